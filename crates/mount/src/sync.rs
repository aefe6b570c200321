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

use std::sync::PoisonError;
use std::time::Duration;

/// Waits on `condition` for `longest` at most; whether that has passed. `guard` is one of `mutex`.
#[cfg(not(feature = "shuttle"))]
pub fn wait_for<'a, T>(
    condition: &Condvar,
    _mutex: &'a Mutex<T>,
    guard: MutexGuard<'a, T>,
    longest: Duration,
) -> (MutexGuard<'a, T>, bool) {
    let (guard, timeout) = condition.wait_timeout(guard, longest).unwrap_or_else(PoisonError::into_inner);
    (guard, timeout.timed_out())
}

/// As above: time passes whenever others have gone on, as shuttle knows no time.
#[cfg(feature = "shuttle")]
pub fn wait_for<'a, T>(
    _condition: &Condvar,
    mutex: &'a Mutex<T>,
    guard: MutexGuard<'a, T>,
    _longest: Duration,
) -> (MutexGuard<'a, T>, bool) {
    drop(guard);
    shuttle::thread::yield_now();
    (mutex.lock().unwrap_or_else(PoisonError::into_inner), true)
}

/// How often this thread has given up its processor to wait for something, and not because its time was over. A system call.
#[cfg(not(feature = "shuttle"))]
pub fn waits() -> i64 {
    // SAFETY: `rusage` is numbers alone, all of which may be 0.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes no more than a `rusage`, which lives on this stack.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut used) };
    used.ru_nvcsw
}

/// As above: none, as the threads of a schedule are one of the system's.
#[cfg(feature = "shuttle")]
pub fn waits() -> i64 {
    0
}

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
