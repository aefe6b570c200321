//! What can go wrong.

use std::path::PathBuf;

/// Why a run gave no result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Options that do not fit each other.
    #[error("{0}")]
    Usage(String),
    /// A system call on the file failed.
    #[error("process {rank}: {call} of {path} at offset {offset} for {bytes} bytes: {source}")]
    Io {
        /// Process.
        rank: u32,
        /// System call.
        call: &'static str,
        /// File.
        path: PathBuf,
        /// First byte in the file.
        offset: u64,
        /// Bytes asked for.
        bytes: u64,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The file ends too early.
    #[error(
        "process {rank}: {path} ends at offset {offset}, inside a request; write it first with the same options (without \
         --read)"
    )]
    Short {
        /// Process.
        rank: u32,
        /// File.
        path: PathBuf,
        /// Where it ends.
        offset: u64,
    },
    /// A byte is not what was written there.
    #[error(
        "VERIFICATION FAILED: process {rank}: {path} at offset {offset}: expected {expected:02x?}, found {found:02x?}{origin}"
    )]
    Mismatch {
        /// Process that checked.
        rank: u32,
        /// File.
        path: PathBuf,
        /// First wrong byte.
        offset: u64,
        /// What was written: up to 8 bytes from there on.
        expected: Vec<u8>,
        /// What is there.
        found: Vec<u8>,
        /// Where such bytes belong, if known.
        origin: String,
    },
    /// Processes could not be made, or shared memory not mapped.
    #[error("cannot {action}: {source}")]
    System {
        /// What failed.
        action: &'static str,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// There is no MPI library, or none that can be used.
    #[error("{0}")]
    NoMpi(String),
    /// An MPI function failed.
    #[error("process {rank}: {call}{place}: {message}")]
    Mpi {
        /// Process.
        rank: u32,
        /// Function.
        call: &'static str,
        /// File, offset and size, where it was about some.
        place: String,
        /// What the library said.
        message: String,
    },
    /// Processes ended without a result; each said why.
    #[error("{failed} of {processes} processes failed: no result")]
    Processes {
        /// How many.
        failed: u32,
        /// Of how many.
        processes: u32,
    },
}
