//! Pool, namespace, handles, datafiles, emulated servers, mover.

pub mod calibrate;
pub mod emulate;
mod engine;
pub mod epoch;
pub mod error;
mod extent;
pub mod fsck;
pub mod generations;
pub mod handle;
pub mod inode;
pub mod ioctl;
mod layouts;
mod lockfile;
pub mod mover;
mod namespace;
pub mod neighbours;
mod placed_file;
pub mod placement;
pub mod plane;
pub mod pool;
mod resize;
pub mod rules;
pub mod store;
mod sys;
mod whole;
mod writers;

pub use error::{Error, Result};
pub use inode::Inode;
pub use neighbours::Neighbours;
pub use placed_file::{Outcome, PlacedFile};
pub use placement::Placement;
pub use plane::{DataPlane, PlaneOptions};
pub use pool::Pool;
pub use store::Store;
pub use writers::Attributes;
