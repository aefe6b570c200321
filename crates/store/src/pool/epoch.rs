//! The epoch page: a counter per file (shared by hash) that every change of a placement increments.
//!
//! In a shared pool ([`crate::pool::shared`]) a counter has two parts: root's page, which all may read, and the user's
//! own, for that user's processes. No other user's is believed, or mapped: its owner could shorten it, and kill
//! processes that map it. Of other users' files the mount reads the handle again at each request instead.
//!
//! A holder of a placement compares one atomic load per request with the value that it read before it fetched the
//! placement.

use crate::os::error::{Error, Result};
use crate::os::shared_pages::{SharedPage, allocate};
use crate::os::sync::atomic::Ordering;
use crate::os::sync::mapped::AtomicU32;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::mm::ProtFlags;
use std::path::Path;

/// Name of the page's file in the namespace.
pub const EPOCH_FILE: &str = "epoch";
/// Number of counters.
const COUNTERS: usize = 1 << 16;

type Counters = [AtomicU32; COUNTERS];

const BYTES: usize = size_of::<Counters>();

/// The mapped pages of a pool.
#[derive(Debug)]
pub struct EpochPage {
    /// Of the one user of the pool; of root in a shared one.
    common: SharedPage<Counters>,
    /// Of this user in a shared pool, if that is not root.
    own: Option<SharedPage<Counters>>,
}

impl EpochPage {
    /// Maps the page in `namespace`, and the user's own if the pool is `shared`; makes them when there are none.
    pub fn open(namespace: &Path, shared: bool) -> Result<Self> {
        let path = namespace.join(EPOCH_FILE);
        let read_only = shared && !crate::pool::shared::is_root();
        let access = if read_only { OFlags::RDONLY } else { OFlags::RDWR | OFlags::CREATE };
        let mode = Mode::from_raw_mode(if shared { 0o644 } else { 0o600 });
        let file = crate::os::sys::retry(|| rustix::fs::open(&path, access | OFlags::CLOEXEC | OFlags::NOFOLLOW, mode))
            .map_err(Error::io("open", &path))?;
        if shared && !read_only {
            rustix::fs::fchmod(&file, mode).map_err(Error::io("change the mode of", &path))?;
        }
        let common = map(&file, &path, !read_only)?;
        let own = if read_only {
            let name = rustix::process::geteuid().as_raw().to_string();
            let path = namespace.join(crate::pool::shared::EPOCHS).join(name);
            Some(map(&crate::pool::shared::open_own(&path, Mode::from_raw_mode(0o644))?, &path, true)?)
        } else {
            None
        };
        Ok(Self { common, own })
    }

    /// The counter of a file now. One atomic load, two for a user of a shared pool.
    #[inline]
    pub fn get(&self, handle: u64) -> u32 {
        let own = self.own.as_ref().map_or(0, |page| page[index(handle)].load(Ordering::Acquire));
        self.common[index(handle)].load(Ordering::Acquire).wrapping_add(own)
    }

    /// Tells all holders of a placement of this file to fetch it again.
    pub fn bump(&self, handle: u64) {
        self.own.as_ref().unwrap_or(&self.common)[index(handle)].fetch_add(1, Ordering::AcqRel);
    }
}

/// Where the counter of a file is.
#[inline]
fn index(handle: u64) -> usize {
    // Fibonacci hashing: handles are random, but a user can choose them; any index is in bounds.
    (handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize
}

fn map(file: &OwnedFd, path: &Path, write: bool) -> Result<SharedPage<Counters>> {
    if write {
        allocate(file.as_fd(), BYTES as u64).map_err(Error::io("allocate", path))?;
    } else if rustix::fs::fstat(file).map_err(Error::io("read", path))?.st_size < BYTES as i64 {
        let path = path.display();
        return Err(Error::Invalid(format!(
            "{path} is shorter than {BYTES} bytes: root makes it whole by mounting the pool"
        )));
    }
    let access = if write { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
    SharedPage::map(file.as_fd(), 0, access).map_err(Error::io("map", path))
}
