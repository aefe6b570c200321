//! Servers: their directories, and the devices that emulated ones stand for.

pub mod emulate;
pub mod plane;
