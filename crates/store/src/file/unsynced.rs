//! Syncs that failed, reported to every open of the file.
//!
//! A kernel reports a failed write-back once through each descriptor, and all opens of a file in this process share one
//! descriptor of each datafile. So the store notes the report for the other opens, as errseq_t does in the kernel: each
//! open gets it once, and later opens do not.

use crate::os::sync::atomic::{AtomicU64, Ordering};
use rustix::io::Errno;

/// Failed syncs of a file: their number, and in the lowest 16 bits the errno of the last.
#[derive(Debug, Default)]
pub(crate) struct Failures(AtomicU64);

/// How many failed syncs one open file has been told of.
#[derive(Debug)]
pub(crate) struct Told(AtomicU64);

const ERRNO_BITS: u32 = 16;

impl Failures {
    /// For a file that is opened now: it is told of nothing that failed before.
    pub(crate) fn told(&self) -> Told {
        Told(AtomicU64::new(self.0.load(Ordering::Acquire)))
    }

    /// The last failure that an open file has not been `told` of; it is now.
    pub(crate) fn tell(&self, told: &Told) -> Option<Errno> {
        let now = self.0.load(Ordering::Acquire);
        let has_failed = told.0.swap(now, Ordering::AcqRel) != now;
        has_failed.then(|| errno_of(now))
    }

    /// The same without telling: what reads it may be a child that closes the descriptors of its parent, who is still to know.
    pub(crate) fn untold(&self, told: &Told) -> Option<Errno> {
        let now = self.0.load(Ordering::Acquire);
        (told.0.load(Ordering::Acquire) != now).then(|| errno_of(now))
    }

    /// Notes a sync that has failed.
    pub(crate) fn note(&self, errno: Errno) {
        let low = errno.raw_os_error() as u64;
        let next = |known: u64| Some(((known >> ERRNO_BITS).wrapping_add(1) << ERRNO_BITS) | low);
        // It never refuses.
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }
}

fn errno_of(failures: u64) -> Errno {
    Errno::from_raw_os_error((failures & ((1 << ERRNO_BITS) - 1)) as i32)
}
