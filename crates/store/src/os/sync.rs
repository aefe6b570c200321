//! What threads meet at: the standard library's. `crates/interleavings-store` builds the store with others in its
//! place, whose order it chooses.

use std::sync::PoisonError;
pub(crate) use std::sync::{Mutex, MutexGuard, RwLock, atomic};

/// In memory that processes share.
pub(crate) mod mapped {
    pub(crate) use std::sync::atomic::AtomicU32;
}

/// Locks a mutex; one that a panicking thread held is as good as any, for it guards no invariant across statements.
pub(crate) fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
