//! The LD_PRELOAD library: records, and bypasses the mount for reads and writes.
