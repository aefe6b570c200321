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

mod os;
pub mod system_calls;

pub(crate) use kernel::{fd, ioctl, mm, path, process, rand, thread, time};
pub(crate) use system_calls::{fs, io};

#[path = "../../store/src/backend/mod.rs"]
mod backend;
#[path = "../../store/src/file/mod.rs"]
mod file;
#[path = "../../store/src/format/mod.rs"]
mod format;
#[path = "../../store/src/pool/mod.rs"]
pub mod pool;

pub use backend::plane::{DataPlane, PlaneOptions};
pub use backend::{emulate, plane};
pub use file::files::Files;
pub use file::inode::Inode;
pub use file::open_file::File;
pub use file::placed_file::{PlacedFile, TransferOutcome};
pub use file::unsynced::Told;
pub use file::writers::{Attributes, COUNTED_BYTES};
pub use file::{inode, mover, placements};
pub use format::placement::Placement;
pub use format::{generations, handle, identity, placement, surplus};
pub use os::error;
pub use os::error::{Error, Result};
pub use os::room::Room;
pub use os::sys::AsUser;
pub use pool::Pool;
pub use pool::applying::Applying;
pub use pool::neighbours::Neighbours;
pub use pool::removals::{Journal, Slot};

pub use pool::space::{Forecast, RoomSurvey, Space};
pub use pool::store::{Collected, Store};
pub use pool::{epoch, neighbours, rules, store};
