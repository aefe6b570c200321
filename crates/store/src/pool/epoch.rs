//! The epoch page: a counter per file (shared by hash) that every change of a placement increments.
//!
//! In a shared pool ([`crate::pool::shared`]) a counter has two parts: root's page, which all may read, and the user's
//! own, for that user's processes. No other user's is believed, or mapped: its owner could shorten it, and kill
//! processes that map it. Of other users' files the mount reads the handle again at each request instead.
//!
//! A holder of a placement compares one atomic load per request with the value that it read before it fetched the
//! placement.
//!
//! Behind the counters of a pool of one user are as many that count all changes but moves, which leave all bytes of a file as they are: a
//! copy of bytes is no older than the file as long as that counter stays.

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

/// How often the bytes of a file may have changed so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CountedChanges(u32);

/// The mapped pages of a pool.
#[derive(Debug)]
pub struct EpochPage {
    /// Of the one user of the pool; of root in a shared one.
    common: SharedPage<Counters>,
    /// Of this user in a shared pool, if that is not root.
    own: Option<SharedPage<Counters>>,
    /// Of the one user of the pool; none in a shared one, where nothing is copied ahead.
    bytes: Option<SharedPage<Counters>>,
}

impl EpochPage {
    /// Maps the page in `namespace`, and the user's own if the pool is `shared`; makes them when there are none.
    pub fn open(namespace: &Path, shared: bool) -> Result<Self> {
        let path = namespace.join(EPOCH_FILE);
        let read_only = shared && !crate::pool::shared::is_root();
        let access = if read_only { OFlags::RDONLY } else { OFlags::RDWR | OFlags::CREATE };
        let mode = Mode::from_raw_mode(if shared { 0o644 } else { 0o600 });
        let file = crate::os::sys::open_or_make(&path, access | OFlags::CLOEXEC | OFlags::NOFOLLOW, mode)
            .map_err(Error::io("open", &path))?;
        if shared && !read_only {
            rustix::fs::fchmod(&file, mode).map_err(Error::io("change the mode of", &path))?;
        }
        let held = if shared { BYTES } else { 2 * BYTES } as u64;
        let common = map(&file, &path, (0, held), !read_only)?;
        let bytes = if shared { None } else { Some(map(&file, &path, (BYTES as u64, held), true)?) };
        let own = if read_only {
            let name = rustix::process::geteuid().as_raw().to_string();
            let path = namespace.join(crate::pool::shared::EPOCHS).join(name);
            let own = crate::pool::shared::open_own(&path, Mode::from_raw_mode(0o644))?;
            Some(map(&own, &path, (0, BYTES as u64), true)?)
        } else {
            None
        };
        Ok(Self { common, own, bytes })
    }

    /// The counter of a file now. One atomic load, two for a user of a shared pool.
    #[inline]
    pub fn get(&self, handle: u64) -> u32 {
        let own = self.own.as_ref().map_or(0, |page| page[index(handle)].load(Ordering::Acquire));
        self.common[index(handle)].load(Ordering::Acquire).wrapping_add(own)
    }

    /// Tells all holders of a placement of this file to fetch it again, and of copies of its bytes that these may be old.
    pub fn bump(&self, handle: u64) {
        if let Some(bytes) = &self.bytes {
            bytes[index(handle)].fetch_add(1, Ordering::AcqRel);
        }
        self.bump_for_move(handle);
    }

    /// As [`EpochPage::bump`], after a change that has left all bytes of the file as they were: copies are not told.
    pub(crate) fn bump_for_move(&self, handle: u64) {
        self.own.as_ref().unwrap_or(&self.common)[index(handle)].fetch_add(1, Ordering::AcqRel);
    }

    /// What is counted now of changes of a file's bytes. One atomic load; two for a user of a shared pool, where moves count, too.
    #[inline]
    pub(crate) fn counted(&self, handle: u64) -> CountedChanges {
        let bytes = self.bytes.as_ref().map(|page| page[index(handle)].load(Ordering::Acquire));
        CountedChanges(bytes.unwrap_or_else(|| self.get(handle)))
    }
}

/// Where the counter of a file is.
#[inline]
fn index(handle: u64) -> usize {
    // Fibonacci hashing: handles are random, but a user can choose them; any index is in bounds.
    (handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize
}

/// Maps the counters at an offset of a file, which has that many bytes or gets them.
fn map(file: &OwnedFd, path: &Path, (offset, bytes): (u64, u64), write: bool) -> Result<SharedPage<Counters>> {
    if write {
        allocate(file.as_fd(), bytes).map_err(Error::io("allocate", path))?;
    } else if rustix::fs::fstat(file).map_err(Error::io("read", path))?.st_size < BYTES as i64 {
        let path = path.display();
        return Err(Error::Invalid(format!(
            "{path} is shorter than {BYTES} bytes: root makes it whole by mounting the pool"
        )));
    }
    let access = if write { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
    SharedPage::map(file.as_fd(), offset, access).map_err(Error::io("map", path))
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_move_is_told_to_holders_of_a_placement_and_not_to_those_of_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let [page, other] = [(); 2].map(|()| EpochPage::open(directory.path(), false).unwrap());
        let (before, since) = (page.get(7), page.counted(7));
        other.bump_for_move(7);
        assert_eq!((page.get(7), page.counted(7)), (before + 1, since));
        other.bump(7);
        assert_eq!(page.get(7), before + 2);
        assert_ne!(page.counted(7), since);
    }
}
