//! [`TraceError`]: what can be wrong with a trace, with the place and the remedy.

use std::io;
use std::path::PathBuf;

/// Why a trace could not be read, merged or started.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A system call failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file is not a trace.
    #[error("{} is not a Stripewise trace: {why}; record one with `stripewise trace -o DIR -- COMMAND`", path.display())]
    NotATrace {
        /// The file.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// The file was written by another version.
    #[error("{} has trace format version {found}, this program reads up to {known}: update Stripewise", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version known here.
        known: u32,
    },
    /// The file ends too early.
    #[error(
        "{} is cut: it has {found_bytes} bytes and should have {expected_bytes}; copy it again from where it was recorded, or move it away to use the rest",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Length of the file in bytes.
        found_bytes: u64,
        /// Length that its header promises, in bytes.
        expected_bytes: u64,
    },
    /// Something in the file cannot be.
    #[error("{} is damaged at byte {offset}: {why}; copy it again from where it was recorded, or record again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in it, in bytes.
        offset: u64,
        /// What is wrong there.
        why: String,
    },
    /// A directory without a recorder file.
    #[error("{} holds no trace: no process of the program touched a file there, or the preload library was not loaded (static or setuid program)", .0.display())]
    Empty(PathBuf),
    /// A directory of other files.
    #[error("{} holds no trace of stripewise, but other files: name one of them, as {}", dir.display(), example.display())]
    Others {
        /// The directory.
        dir: PathBuf,
        /// One of its files.
        example: PathBuf,
    },
    /// A process was recording while its file was read.
    #[error("{} is still being recorded; wait for the program to end", .0.display())]
    Changing(PathBuf),
    /// Tables beyond what the format can number.
    #[error("{}: more than 2^32-1 {what}; trace fewer processes at once", path.display())]
    TooMany {
        /// The directory.
        path: PathBuf,
        /// What there is too much of.
        what: &'static str,
    },
}

impl TraceError {
    pub(crate) fn io(action: &'static str, path: &std::path::Path, source: impl Into<io::Error>) -> Self {
        TraceError::Io { action, path: path.to_owned(), source: source.into() }
    }

    pub(crate) fn damaged(path: &std::path::Path, offset: u64, why: impl Into<String>) -> Self {
        TraceError::Damaged { path: path.to_owned(), offset, why: why.into() }
    }
}
