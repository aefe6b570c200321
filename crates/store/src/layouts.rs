//! The layouts of a pool, each kept once under its hash.

use crate::error::{Error, Result};
use crate::sys;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use stripewise_layout::Layout;

/// Greatest length of a layout's binary form in bytes.
pub(crate) const MAX_BYTES: usize = 16 << 20;

/// The directory of layouts, with those that this process used.
#[derive(Debug)]
pub(crate) struct Layouts {
    directory: OwnedFd,
    known: Mutex<HashMap<[u8; 32], Arc<Layout>>>,
}

/// A hash as hexadecimal digits.
pub(crate) fn hex(hash: &[u8; 32]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The hash of 64 hexadecimal digits.
pub(crate) fn from_hex(digits: &str) -> Option<[u8; 32]> {
    if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut hash = [0; 32];
    for (byte, at) in hash.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&digits[at..at + 2], 16).ok()?;
    }
    Some(hash)
}

impl Layouts {
    /// Opens the directory below `namespace`.
    pub(crate) fn open(namespace: &Path) -> Result<Self> {
        let path = namespace.join(crate::namespace::LAYOUTS);
        let directory = sys::open_directory(&path).map_err(Error::io("open", path))?;
        Ok(Self { directory, known: Mutex::default() })
    }

    /// Keeps `layout`, durably, and returns its hash.
    pub(crate) fn put(&self, layout: &Layout) -> Result<[u8; 32]> {
        let bytes = layout.to_bytes();
        let hash = layout.hash();
        if self.known.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&hash) {
            return Ok(hash);
        }
        let name = hex(&hash);
        let failed = |reason: String| Error::Layout { hash: name.clone(), reason };
        if bytes.len() > MAX_BYTES {
            return Err(failed(format!("{} bytes long, the limit is {MAX_BYTES}: use fewer regions", bytes.len())));
        }
        match rustix::fs::statat(&self.directory, name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            // Whoever put it there may not have come to making its name durable.
            Ok(_) => sys::sync_directory(&self.directory, ".").map_err(|errno| failed(errno.to_string()))?,
            Err(Errno::NOENT) => sys::replace_file(&self.directory, &name, &bytes, Mode::from_raw_mode(0o600))
                .map_err(|errno| failed(format!("cannot be kept in the namespace: {errno}")))?,
            Err(errno) => return Err(failed(errno.to_string())),
        }
        // Read it back: what stands there under this name may be damaged.
        self.get(&hash)?;
        Ok(hash)
    }

    /// The layout of that hash.
    pub(crate) fn get(&self, hash: &[u8; 32]) -> Result<Arc<Layout>> {
        if let Some(layout) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(hash) {
            return Ok(layout.clone());
        }
        let name = hex(hash);
        let failed = |reason: String| Error::Layout { hash: name.clone(), reason };
        let bytes = sys::read_file_at(&self.directory, name.as_str(), MAX_BYTES)
            .map_err(|errno| failed(format!("cannot be read from the namespace's layouts directory: {errno}")))?;
        if blake3::hash(&bytes) != *hash {
            return Err(failed("its file in the namespace's layouts directory is damaged: restore it".into()));
        }
        let layout = Layout::from_bytes(&bytes).map_err(|error| failed(error.to_string()))?;
        let layout = Arc::new(layout);
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(*hash, layout.clone());
        Ok(layout)
    }
}
