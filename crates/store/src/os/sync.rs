//! What threads meet at: the standard library's. `crates/interleavings-store` builds the store with others in its place,
//! whose order it chooses.

pub(crate) use std::sync::{Mutex, MutexGuard, RwLock, atomic};

/// In memory that processes share.
pub(crate) mod mapped {
    pub(crate) use std::sync::atomic::AtomicU32;
}
