//! What threads meet at: the standard library's. `crates/interleavings` builds some of these modules with others in its
//! place, whose order it chooses.

pub use std::sync::{Condvar, Mutex, MutexGuard, atomic};
pub use std::{thread, thread_local};
