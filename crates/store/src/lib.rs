//! Pool, namespace, handles, datafiles, emulated servers, mover.
