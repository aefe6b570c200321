//! Pool, namespace, handles, datafiles, emulated servers, mover.

// Each system call is a place where a schedule may switch threads.
#[cfg(feature = "shuttle")]
extern crate stripewise_switching as rustix;

mod backend;
mod file;
mod format;
mod os;
pub mod pool;
mod tools;

pub use backend::plane::{DataPlane, PlaneOptions, ServedName};
pub use backend::{emulate, plane, serves_in_turn};
pub use file::files::Files;
pub use file::inode::Inode;
pub use file::open_file::File;
pub use file::open_inode::OpenInode;
pub use file::paths::open_terms::{KernelPages, OpenTerms};
pub use file::paths::record::{LastOpens, NotTaken, OpenRecord, PathKind, PathState, UnknownRecord};
pub use file::placed_file::{PlacedFile, TransferOutcome};
pub use file::requests::Requests;
pub use file::steps::Then;
pub use file::writers::{Attributes, COUNTED_BYTES};
pub use file::{inode, mover, placements};
pub use format::placement::Placement;
pub use format::{generations, handle, hints, identity, ioctl, placement, surplus};
pub use os::byte_lock::lock_byte;
pub use os::error;
pub use os::error::{Error, Result};
pub use os::room::Room;
pub use os::shared_pages::{self, Atomics, SharedPage};
pub use os::sys::AsUser;
pub use os::threads::run_anywhere;
pub use pool::Pool;
pub use pool::applying::Applying;
pub use pool::namespace::is_shared;
pub use pool::neighbours::Neighbours;
pub use pool::removals::{Journal, Slot};
pub use pool::shared::open_own;
pub use pool::space::{Forecast, RoomSurvey, Space};
pub use pool::store::{Collected, Store};
pub use pool::{epoch, neighbours, rules, store};
pub use tools::emulation::EmulationSnapshot;
pub use tools::hinting::{PathTaken, Unsaid};
pub use tools::rules_kept::RulesKept;
pub use tools::survey::ServerUsage;
pub use tools::{
    adding, apply, calibrate, drain, export_tree, fsck, hottest, layout_hints, rebalance, relief, small_files, status,
};
