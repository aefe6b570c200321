//! Which servers new files leave out, and when to look again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stripewise_layout::ServerId;

/// Which servers new files leave out, as far as it is known.
#[derive(Debug)]
pub(crate) struct Spill {
    began: Instant,
    /// When servers are asked next, in nanoseconds since `began`; without end while they are asked.
    next_ns: AtomicU64,
    left_out: Mutex<Arc<[ServerId]>>,
    /// Whether the metadata tier takes no more heads of files.
    meta_is_full: AtomicBool,
}

impl Default for Spill {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            next_ns: AtomicU64::new(0),
            left_out: Mutex::new(Arc::new([])),
            meta_is_full: AtomicBool::new(false),
        }
    }
}

impl Spill {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whether it is time to ask; to one thread until [`Spill::done`].
    pub(crate) fn is_due(&self) -> bool {
        let next = self.next_ns.load(Ordering::Relaxed);
        self.now_ns() >= next
            && self.next_ns.compare_exchange(next, u64::MAX, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn done(&self, good_for: Duration) {
        self.next_ns.store(self.now_ns().saturating_add(good_for.as_nanos() as u64), Ordering::Relaxed);
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, Arc<[ServerId]>> {
        self.left_out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether new files have no bytes in their inodes for now.
    pub(crate) fn meta_is_full(&self) -> bool {
        self.meta_is_full.load(Ordering::Relaxed)
    }

    pub(crate) fn know_meta(&self, is_full: bool) {
        self.meta_is_full.store(is_full, Ordering::Relaxed);
    }
}
