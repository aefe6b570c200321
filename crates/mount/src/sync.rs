//! What threads meet at: the standard library's, or with the feature `shuttle` that of shuttle, which decides at each of them
//! which thread goes on.

#[cfg(feature = "shuttle")]
pub use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic};
#[cfg(feature = "shuttle")]
pub use shuttle::thread_local;
#[cfg(not(feature = "shuttle"))]
pub use std::sync::{Condvar, Mutex, MutexGuard, atomic};
#[cfg(not(feature = "shuttle"))]
pub use std::{thread, thread_local};

/// Threads of the mount, which end with their process: shuttle waits for its threads, and not for a task that no other joins.
#[cfg(feature = "shuttle")]
pub mod thread {
    use shuttle::future::{JoinHandle, spawn};
    pub use shuttle::thread::sleep;

    /// As the standard library's.
    pub struct Builder;

    impl Builder {
        /// As the standard library's.
        pub fn new() -> Self {
            Self
        }

        /// As the standard library's.
        pub fn name(self, _: String) -> Self {
            self
        }

        /// As the standard library's.
        pub fn spawn(self, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
            Ok(spawn(async move { run() }))
        }
    }
}
