//! Pool, namespace, handles, datafiles, emulated servers, mover.

pub mod emulate;
