//! What threads meet at: the standard library's, or with the feature `shuttle` that of shuttle, which decides at each of them
//! which thread goes on.

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, RwLock, atomic};
use std::sync::PoisonError;
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, RwLock, atomic};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::thread;

/// Threads that end with what they belong to: shuttle waits for its threads, and not for a task that no other joins.
#[cfg(feature = "shuttle")]
pub(crate) mod thread {
    use shuttle::future::{JoinHandle, spawn};

    /// As the standard library's.
    pub(crate) struct Builder;

    impl Builder {
        /// As the standard library's.
        pub(crate) fn new() -> Self {
            Self
        }

        /// As the standard library's.
        pub(crate) fn name(self, _: String) -> Self {
            self
        }

        /// As the standard library's.
        pub(crate) fn spawn(self, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
            Ok(spawn(async move { run() }))
        }
    }
}

/// In memory that processes share.
#[cfg(not(feature = "shuttle"))]
pub(crate) mod mapped {
    pub(crate) use std::sync::atomic::AtomicU32;
}

/// In memory that processes share, where shuttle's cannot lie.
#[cfg(feature = "shuttle")]
pub(crate) mod mapped {
    use std::sync::atomic::Ordering;
    use stripewise_switching::switch;

    #[derive(Debug)]
    #[repr(transparent)]
    pub(crate) struct AtomicU32(std::sync::atomic::AtomicU32);

    impl AtomicU32 {
        pub(crate) fn load(&self, order: Ordering) -> u32 {
            switch();
            self.0.load(order)
        }

        pub(crate) fn store(&self, value: u32, order: Ordering) {
            switch();
            self.0.store(value, order);
        }

        pub(crate) fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
            switch();
            self.0.fetch_add(value, order)
        }

        pub(crate) fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
            switch();
            self.0.fetch_sub(value, order)
        }
    }
}

/// Locks a mutex; one that a panicking thread held is as good as any, for it guards no invariant across statements.
pub(crate) fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
