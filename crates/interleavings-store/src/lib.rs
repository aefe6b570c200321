//! The store, built from its own sources with locks and atomics of [`shuttle`], which decides at each of them, and at each
//! system call on a file, which thread goes on.
//!
//! `crates/interleavings` has the scenarios. Several [`Store`]s of one pool stand for several processes: the locks that the
//! kernel keeps are of open files, and each store has its own.

// The modules' own tests are run with the store.
#![cfg(not(test))]
#![allow(dead_code, reason = "the modules have more than the scenarios use")]
#![allow(missing_docs, reason = "what they stand for has them")]

extern crate rustix as kernel;
// The system calls that the store's modules find are those below.
extern crate self as rustix;

mod byte_lock;
pub mod system_calls;

pub(crate) use kernel::{fd, ioctl, mm, path, process, rand, thread, time};
pub(crate) use system_calls::{fs, io};

mod sync {
    pub(crate) use shuttle::sync::{Mutex, MutexGuard, RwLock, atomic};

    /// In memory that processes share, where shuttle's cannot lie.
    pub(crate) mod mapped {
        use crate::system_calls::switch;
        use std::sync::atomic::Ordering;

        #[derive(Debug)]
        #[repr(transparent)]
        pub(crate) struct AtomicU32(std::sync::atomic::AtomicU32);

        impl AtomicU32 {
            pub(crate) fn load(&self, order: Ordering) -> u32 {
                switch();
                self.0.load(order)
            }

            pub(crate) fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
                switch();
                self.0.fetch_add(value, order)
            }
        }
    }
}

#[path = "../../store/src/access.rs"]
mod access;
#[path = "../../store/src/applying.rs"]
mod applying;
#[path = "../../store/src/emulate/mod.rs"]
pub mod emulate;
#[path = "../../store/src/engine.rs"]
mod engine;
#[path = "../../store/src/epoch.rs"]
pub mod epoch;
#[path = "../../store/src/error.rs"]
pub mod error;
#[path = "../../store/src/extent.rs"]
mod extent;
#[path = "../../store/src/file.rs"]
mod file;
#[path = "../../store/src/files.rs"]
mod files;
#[path = "../../store/src/generations.rs"]
pub mod generations;
#[path = "../../store/src/handle.rs"]
pub mod handle;
#[path = "../../store/src/holes.rs"]
mod holes;
#[path = "../../store/src/identity.rs"]
pub mod identity;
#[path = "../../store/src/inode.rs"]
pub mod inode;
#[path = "../../store/src/layouts.rs"]
mod layouts;
#[path = "../../store/src/lengths.rs"]
mod lengths;
#[path = "../../store/src/lockfile.rs"]
mod lockfile;
#[path = "../../store/src/mover.rs"]
pub mod mover;
#[path = "../../store/src/namespace.rs"]
mod namespace;
#[path = "../../store/src/neighbours.rs"]
pub mod neighbours;
#[path = "../../store/src/open_memory.rs"]
mod open_memory;
#[path = "../../store/src/placed_file.rs"]
mod placed_file;
#[path = "../../store/src/placement.rs"]
pub mod placement;
#[path = "../../store/src/plane.rs"]
pub mod plane;
#[path = "../../store/src/pool.rs"]
pub mod pool;
#[path = "../../store/src/removals/mod.rs"]
mod removals;
#[path = "../../store/src/resize.rs"]
mod resize;
#[path = "../../store/src/rights.rs"]
mod rights;
#[path = "../../store/src/room.rs"]
mod room;
#[path = "../../store/src/rules.rs"]
pub mod rules;
#[path = "../../store/src/shared.rs"]
mod shared;
#[path = "../../store/src/shared_pages.rs"]
mod shared_pages;
#[path = "../../store/src/space.rs"]
mod space;
#[path = "../../store/src/store.rs"]
pub mod store;
#[path = "../../store/src/surplus.rs"]
pub mod surplus;
#[path = "../../store/src/sys.rs"]
mod sys;
#[path = "../../store/src/unsynced.rs"]
mod unsynced;
#[path = "../../store/src/whole.rs"]
mod whole;
#[path = "../../store/src/writers.rs"]
mod writers;

pub use error::{Error, Result};
pub use file::File;
pub use files::Files;
pub use inode::Inode;
pub use neighbours::Neighbours;
pub use placed_file::{Missing, Outcome, PlacedFile};
pub use placement::Placement;
pub use plane::{DataPlane, PlaneOptions};
pub use pool::Pool;
pub use removals::{Journal, Slot};
pub use store::{Collected, Store};
pub use sys::AsUser;
pub use unsynced::Told;
pub use writers::{Attributes, COUNTED_BYTES};
