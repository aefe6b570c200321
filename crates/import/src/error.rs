//! [`ImportError`]: why a log could not be imported, with the place and the remedy.

use std::io;
use std::path::{Path, PathBuf};
use stripewise_trace::TraceError;

/// Why a log was refused. What could be read of a damaged log is imported instead, with [`crate::Lacks::DAMAGED`].
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
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
    /// A directory that is no log has some.
    #[error("{} is a directory of {logs} {}, and not one itself: name one of them, or look at all with `stripewise survey {}`", path.display(), if *logs == 1 { "log" } else { "logs" }, path.display())]
    Logs {
        /// The directory.
        path: PathBuf,
        /// How many.
        logs: usize,
    },
    /// No importer knows this file.
    #[error("{} is no log that Stripewise knows ({known}): {why}", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// Names of the formats.
        known: String,
        /// What was found.
        why: String,
    },
    /// The file is of this format but cannot be used at all.
    #[error("{} is a damaged {format} log, at byte {offset}: {why}; copy it again from where it was recorded", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Name of its format.
        format: &'static str,
        /// Where in it, in bytes.
        offset: u64,
        /// What is wrong there.
        why: String,
    },
    /// The log is whole, but nothing in it can be used.
    #[error("{} is a {format} log without requests: {why}", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// Name of its format.
        format: &'static str,
        /// What is missing, and how to record it.
        why: String,
    },
    /// The file is of a version that is not known here.
    #[error("{} is a {format} log of version {found}, known here are {known}: convert it with the tool that wrote it, or update Stripewise", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Name of its format.
        format: &'static str,
        /// Its version.
        found: String,
        /// Versions that can be read.
        known: &'static str,
    },
    /// A trace of our own cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The temporary trace that a log is converted to cannot be written.
    #[error("cannot convert {} in {}: {source}; make room there, or set TMPDIR to a directory that has some", path.display(), dir.display())]
    Scratch {
        /// The log.
        path: PathBuf,
        /// Where temporary files go.
        dir: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A table does not have what is needed.
    #[error("{} cannot be imported as {format}: {why}", path.display())]
    Columns {
        /// The file.
        path: PathBuf,
        /// Name of its format.
        format: &'static str,
        /// What is missing or wrong, with its place, as a clause.
        why: String,
    },
    /// Where a data set is to be written there is something.
    #[error("{} exists already: remove it, or choose another name", path.display())]
    Exists {
        /// Its path.
        path: PathBuf,
    },
    /// What was to be written cannot be; nothing is left of it.
    #[error("cannot write {}: {source}; nothing is left of it", path.display())]
    Write {
        /// Its path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Only a data set can be opened file by file.
    #[error("{} is no data set, which alone can be read file by file: make one with `stripewise import {} -o T`, and give T", path.display(), path.display())]
    NotDataset {
        /// What it is not.
        path: PathBuf,
    },
    /// A table of a data set cannot be used.
    #[error("{} is damaged: {why}; import the log again", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// What is wrong in it, as a clause.
        why: String,
    },
    /// The progress callback asked to stop.
    #[error("the import of {} was stopped", path.display())]
    Stopped {
        /// The log.
        path: PathBuf,
    },
    /// What receives the rows failed.
    #[error("cannot store what was read of {}: {source}", path.display())]
    Sink {
        /// The log.
        path: PathBuf,
        /// The receiver's reason.
        source: io::Error,
    },
}

impl ImportError {
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        ImportError::Io { action, path: path.to_owned(), source }
    }

    pub(crate) fn damaged(path: &Path, format: &'static str, offset: u64, why: impl Into<String>) -> Self {
        ImportError::Damaged { path: path.to_owned(), format, offset, why: why.into() }
    }
}
