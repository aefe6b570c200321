//! Pool, namespace, handles, datafiles, emulated servers, mover.

pub mod emulate;
pub mod epoch;
pub mod error;
pub mod generations;
pub mod handle;
pub mod inode;
pub mod ioctl;
pub mod mover;
mod namespace;
pub mod placement;
pub mod plane;
pub mod pool;
pub mod rules;
pub mod store;
mod sys;

pub use error::{Error, Result};
pub use inode::{Attributes, Inode};
pub use placement::Placement;
pub use plane::{DataPlane, Outcome, PlacedFile, PlaneOptions};
pub use pool::Pool;
pub use store::Store;
