//! The process that something in memory belongs to: a child that it forks has a copy, but none of its threads.

use crate::os::sync::atomic::{AtomicU32, Ordering};

/// The process that has asked first; 0: none has. In a child that it forks, locks may be held by threads that are not there.
#[derive(Debug, Default)]
pub(crate) struct FirstProcess(AtomicU32);

impl FirstProcess {
    /// Whether this process is it; the first that asks is. One atomic operation.
    pub(crate) fn is_this(&self) -> bool {
        let own = std::process::id();
        match self.0.compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(of) => of == own,
        }
    }

    /// Whether this process is it, and has asked. One load.
    pub(crate) fn was_this(&self) -> bool {
        self.0.load(Ordering::Acquire) == std::process::id()
    }

    /// As if `process` had asked first.
    #[cfg(all(test, not(feature = "shuttle")))]
    pub(crate) fn give_to(&self, process: u32) {
        self.0.store(process, Ordering::Release);
    }
}
