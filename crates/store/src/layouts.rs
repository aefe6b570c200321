//! The layouts of a pool, each kept once under its hash.
//!
//! In a shared pool ([`crate::shared`]) a user who puts a layout can also remove it. So whoever needs one that neither he nor
//! root has put keeps a copy of his own, `HASH.UID`. Whose a copy is does not matter for reading: its hash says what it is.

use crate::error::{Error, Result};
use crate::sync::{Mutex, MutexGuard};
use crate::sys;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use stripewise_layout::Layout;

/// Greatest length of a layout's binary form in bytes.
pub(crate) const MAX_BYTES: usize = 16 << 20;

/// The directory of layouts, with those that this process used.
#[derive(Debug)]
pub(crate) struct Layouts {
    directory: OwnedFd,
    shared: bool,
    known: Mutex<HashMap<[u8; 32], Known>>,
}

#[derive(Debug)]
struct Known {
    layout: Arc<Layout>,
    /// Whether it is certain to stay: root or this user has put it.
    kept: bool,
}

/// So many layouts are remembered; then those that no open file uses are dropped. A user can make any number of them.
const MAX_KNOWN: usize = 1024;

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
    pub(crate) fn open(namespace: &Path, shared: bool) -> Result<Self> {
        let path = namespace.join(crate::namespace::LAYOUTS);
        let directory = sys::open_directory(&path).map_err(Error::io("open", path))?;
        Ok(Self { directory, shared, known: Mutex::default() })
    }

    /// Keeps `layout`, durably, and returns its hash.
    pub(crate) fn put(&self, layout: &Layout) -> Result<[u8; 32]> {
        let hash = layout.hash();
        if self.known().get(&hash).is_some_and(|known| known.kept) {
            return Ok(hash);
        }
        let bytes = layout.to_bytes();
        let name = hex(&hash);
        let failed = |reason: String| Error::Layout { hash: name.clone(), reason };
        if bytes.len() > MAX_BYTES {
            return Err(failed(format!("{} bytes long, the limit is {MAX_BYTES}: use fewer regions", bytes.len())));
        }
        let user = rustix::process::geteuid().as_raw();
        let own = format!("{name}.{user}");
        let names = if self.shared { &[name.as_str(), own.as_str()][..] } else { &[name.as_str()][..] };
        for (last, name) in names.iter().enumerate().map(|(index, name)| (index + 1 == names.len(), *name)) {
            match rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                // Another user could remove it.
                Ok(stat) if self.shared && !last && stat.st_uid != user && stat.st_uid != 0 => continue,
                // Whoever put it there may not have come to making its name durable.
                Ok(_) => match sys::sync_directory(&self.directory, ".") {
                    // A shared pool's, which only root may list.
                    Err(Errno::ACCESS) if self.shared => {}
                    synced => synced.map_err(|errno| failed(errno.to_string()))?,
                },
                Err(Errno::NOENT) => {
                    let mode = Mode::from_raw_mode(if self.shared { 0o644 } else { 0o600 });
                    match sys::replace_file(&self.directory, name, &bytes, mode) {
                        // Another user was faster.
                        Err(Errno::PERM | Errno::ACCESS | Errno::ISDIR) if !last => continue,
                        done => {
                            done.map_err(|errno| failed(format!("cannot be kept in the namespace: {errno}")))?;
                        }
                    }
                }
                Err(errno) => return Err(failed(errno.to_string())),
            }
            // Read it back: what stands there under this name may be damaged.
            match self.read(name, &hash) {
                Ok(layout) => {
                    self.remember(hash, layout, true);
                    return Ok(hash);
                }
                Err(reason) if last => return Err(failed(reason)),
                Err(_) => {}
            }
        }
        Err(failed("cannot be kept in the namespace".into()))
    }

    /// The layout of that hash, whoever keeps it.
    pub(crate) fn get(&self, hash: &[u8; 32]) -> Result<Arc<Layout>> {
        let mut owners = vec![0];
        if self.shared && !self.known().contains_key(hash) {
            owners.extend(self.keepers(&hex(hash)));
        }
        let mut found = self.get_for(hash, 0);
        for owner in owners {
            found = found.or_else(|error| self.get_for(hash, owner).map_err(|_| error));
        }
        found
    }

    /// Users who keep a copy of their own of the layout `name`.
    fn keepers(&self, name: &str) -> Vec<u32> {
        let Ok(entries) = rustix::fs::Dir::read_from(&self.directory) else { return Vec::new() };
        let suffix = |entry: rustix::fs::DirEntry| {
            entry.file_name().to_str().ok()?.strip_prefix(name)?.strip_prefix('.')?.parse().ok()
        };
        entries.flatten().filter_map(suffix).collect()
    }

    /// The layout of that hash, for a file of user `owner`.
    pub(crate) fn get_for(&self, hash: &[u8; 32], owner: u32) -> Result<Arc<Layout>> {
        if let Some(known) = self.known().get(hash) {
            return Ok(known.layout.clone());
        }
        let name = hex(hash);
        let mut found = self.read(&name, hash);
        if self.shared {
            found = found
                .or_else(|reason| self.read(&format!("{name}.{owner}"), hash).map_err(|_| reason))
                .or_else(|reason| self.read(&format!("{name}.0"), hash).map_err(|_| reason));
        }
        let layout = found.map_err(|reason| Error::Layout { hash: name.clone(), reason })?;
        self.remember(*hash, layout.clone(), false);
        Ok(layout)
    }

    /// Reads and checks one file. Never waits for a FIFO, never follows a link.
    fn read(&self, name: &str, hash: &[u8; 32]) -> Result<Arc<Layout>, String> {
        let bytes = sys::read_file_at(&self.directory, name, MAX_BYTES)
            .map_err(|errno| format!("{name} cannot be read from the namespace's layouts directory: {errno}"))?;
        if blake3::hash(&bytes) != *hash {
            return Err(format!("{name} in the namespace's layouts directory is damaged: restore it"));
        }
        Layout::from_bytes(&bytes).map(Arc::new).map_err(|error| error.to_string())
    }

    fn known(&self) -> MutexGuard<'_, HashMap<[u8; 32], Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, hash: [u8; 32], layout: Arc<Layout>, kept: bool) {
        let mut known = self.known();
        if known.len() >= MAX_KNOWN {
            known.retain(|_, other| Arc::strong_count(&other.layout) > 1);
        }
        known.insert(hash, Known { layout, kept });
    }
}
