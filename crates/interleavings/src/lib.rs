//! Concurrent parts of the mount and of the preload library, built from their own sources with locks, atomics and
//! threads of [`shuttle`], which decides at each of them which thread goes on.
//!
//! Their modules take what threads meet at from `crate::sync`; here that is shuttle's, and the rest that they refer to
//! is as much of it as the scenarios need. What is decided by the kernel, or by other processes, is not tried here but
//! by the tests of whole programs. Shuttle carries out every atomic operation as sequentially consistent: it finds
//! wrong orders of steps, not orderings that are too weak.

#![allow(dead_code, reason = "the modules have more than the scenarios use")]
#![allow(missing_docs, reason = "stand-ins; what they stand for has them")]

// The store and the part of fuser that the mount's modules find are stand-ins.
extern crate self as fuser;
extern crate self as stripewise_store;

mod sync {
    pub use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic};
    pub use shuttle::thread_local;

    /// Threads of the mount, which end with their process: shuttle waits for its threads, but not for a task that is
    /// not joined.
    pub mod thread {
        use shuttle::future::{JoinHandle, spawn};
        pub use shuttle::thread::sleep;

        pub struct Builder;

        impl Builder {
            pub fn new() -> Self {
                Self
            }

            pub fn name(self, _: String) -> Self {
                self
            }

            pub fn spawn(self, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
                Ok(spawn(async move { run() }))
            }
        }
    }
}

#[path = "../../mount/src/file.rs"]
mod file;
#[path = "../../mount/src/inode.rs"]
pub(crate) mod inode;
#[path = "../../mount/src/prune.rs"]
mod prune;
#[path = "../../mount/src/removals.rs"]
mod removals;
#[path = "../../mount/src/shares.rs"]
mod shares;
#[path = "../../preload/src/slots.rs"]
mod slots;
#[path = "../../preload/src/table.rs"]
mod table;
#[path = "../../mount/src/workers.rs"]
mod workers;

pub mod descriptors;
pub mod inodes;
pub mod opens;
pub mod placements;
pub mod pools;
pub mod removing;
pub mod serving;
mod stand_ins;
pub mod writers;

pub use stand_ins::{BackingId, Collected, Error, FopenFlags, Inode, Journal, Slot, Store, Told};
use stand_ins::{Failure, fs, lock, log, placed, runtime};
