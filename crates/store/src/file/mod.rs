//! One file: its inode, its bytes on the servers, its writers, size, holes, rights and moves.

pub(crate) mod access;
pub(crate) mod cut_back;
pub(crate) mod engine;
pub(crate) mod extents;
pub(crate) mod files;
pub(crate) mod heads;
mod holes;
pub mod inode;
pub(crate) mod lengths;
pub(crate) mod lockfile;
pub(crate) mod move_plan;
pub mod mover;
pub(crate) mod open_file;
pub(crate) mod open_inode;
pub(crate) mod open_memory;
pub(crate) mod owners;
pub(crate) mod paths;
pub(crate) mod placed_file;
pub mod placements;
pub(crate) mod requests;
pub(crate) mod resize;
pub(crate) mod rights;
pub(crate) mod room_ahead;
pub(crate) mod steps;
pub(crate) mod unsynced;
pub(crate) mod whole;
pub(crate) mod writers;
