//! Syncs that failed, reported to every open of the file.
//!
//! A kernel reports a failed write-back once through each descriptor, and all opens of a file in this process share one
//! descriptor of each datafile. So the store notes the report for the other opens, as errseq_t does in the kernel: each
//! open gets it once, and later opens do not.

use crate::file::inode::Inode;
use crate::os::error::Result;
use crate::os::sync::atomic::{AtomicU64, Ordering};
use rustix::io::Errno;

/// Failed syncs of a file: their number, and in the lowest 16 bits the errno of the last.
#[derive(Debug, Default)]
pub(crate) struct Failures(AtomicU64);

/// How many failed syncs one open file has been told of.
#[derive(Debug)]
pub struct Told(AtomicU64);

const ERRNO_BITS: u32 = 16;

impl Failures {
    fn note(&self, errno: Errno) {
        let low = errno.raw_os_error() as u64;
        let next = |known: u64| Some(((known >> ERRNO_BITS).wrapping_add(1) << ERRNO_BITS) | low);
        // It never refuses.
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }
}

impl Inode {
    /// For a file that is opened now: it is told of nothing that failed before.
    pub fn told(&self) -> Told {
        Told(AtomicU64::new(self.failures.0.load(Ordering::Acquire)))
    }

    /// Makes everything written so far durable (`data_only`: as fdatasync), for an open file that has been `told` of
    /// what failed so far.
    ///
    /// # Errors
    /// Those of the servers; that of another's sync that has failed since, once.
    pub fn sync_for(&self, told: &Told, data_only: bool) -> Result<()> {
        let done = self.sync(data_only);
        let now = self.failures.0.load(Ordering::Acquire);
        let before = told.0.swap(now, Ordering::AcqRel);
        done?;
        if before == now {
            return Ok(());
        }
        let errno = Errno::from_raw_os_error((now & ((1 << ERRNO_BITS) - 1)) as i32);
        Err(self.failed("keep what was written to")(errno))
    }

    /// Notes that bytes of the file may be lost: each that has it open is told by its next sync.
    pub fn note_lost(&self, errno: Errno) {
        self.failures.note(errno);
    }
}
