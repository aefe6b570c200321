//! What stands on disks or crosses a process: handles, placements, extents, requests of the mount.

pub(crate) mod extent;
pub mod generations;
pub mod handle;
pub mod hints;
pub mod identity;
pub mod ioctl;
pub(crate) mod marker;
pub(crate) mod parser;
pub mod placement;
pub mod surplus;
