//! One export: how it is done, what it has come to, and whether it goes on.

use super::destination::Destination;
use crate::os::error::{Error, Result};
use crate::os::sync::{Mutex, guard};
use crate::pool::store::Store;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use stripewise_control::Door;

/// How to export.
#[derive(Debug, Clone, Default)]
pub struct ExportOptions {
    /// Only compare what an export made with the pool; nothing is written.
    pub verify_only: bool,
    /// Threads that copy; 0 takes twice the number of processors.
    pub threads: usize,
    /// What every read of the pool's files goes through.
    pub door: Door,
}

/// Listens to the progress of an export. Called from several threads.
pub trait ExportWatch: Sync {
    /// `path` could not be exported, or differs.
    fn failed(&self, path: &Path, reason: &str);
    /// Bytes that are copied and compared, of all. `false` stops the export; it can be resumed.
    fn progress(&self, done_bytes: u64, total_bytes: u64) -> bool {
        let _ = (done_bytes, total_bytes);
        true
    }
}

/// Failures in memory, for those who expect few.
impl ExportWatch for Mutex<Vec<(PathBuf, String)>> {
    fn failed(&self, path: &Path, reason: &str) {
        guard(self).push((path.to_owned(), reason.to_owned()));
    }
}

/// What an export came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExportReport {
    /// Regular files that are there and compared, further names of one file not counted.
    pub files: u64,
    /// Those of them that an earlier, stopped export had done.
    pub resumed_files: u64,
    /// Their bytes, holes included.
    pub bytes: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// FIFOs, sockets and devices.
    pub special_files: u64,
    /// Files whose owner could not be kept, because this user may not give files away.
    pub owners_not_kept: u64,
    /// Names that failed; each was told.
    pub failed: u64,
}

/// Counters of an [`ExportReport`] under way.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) files: AtomicU64,
    pub(super) resumed_files: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) hard_links: AtomicU64,
    pub(super) directories: AtomicU64,
    pub(super) symlinks: AtomicU64,
    pub(super) special_files: AtomicU64,
    pub(super) owners_not_kept: AtomicU64,
    pub(super) failed: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// What all parts of an export share.
pub(super) struct Export<'a> {
    pub(super) store: Arc<Store>,
    pub(super) destination: Destination,
    pub(super) options: &'a ExportOptions,
    pub(super) watch: &'a dyn ExportWatch,
    pub(super) counts: Counts,
    pub(super) done_bytes: AtomicU64,
    pub(super) total_bytes: AtomicU64,
    pub(super) stopped: AtomicBool,
}

impl Export<'_> {
    pub(super) fn fail(&self, path: &Path, reason: &str) {
        count(&self.counts.failed);
        self.watch.failed(path, reason);
    }

    /// Tells that `bytes` more are done; an error when the watcher wants no more.
    pub(super) fn advance(&self, bytes: u64) -> Result<()> {
        let done = self.done_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if !self.watch.progress(done, self.total_bytes.load(Ordering::Relaxed)) {
            self.stopped.store(true, Ordering::Relaxed);
        }
        self.go_on()
    }

    pub(super) fn go_on(&self) -> Result<()> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(Error::Invalid("the export was stopped; the same command goes on with it".into()));
        }
        Ok(())
    }

    pub(super) fn report(&self) -> ExportReport {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &self.counts;
        ExportReport {
            files: get(&counts.files),
            resumed_files: get(&counts.resumed_files),
            bytes: get(&counts.bytes),
            hard_links: get(&counts.hard_links),
            directories: get(&counts.directories),
            symlinks: get(&counts.symlinks),
            special_files: get(&counts.special_files),
            owners_not_kept: get(&counts.owners_not_kept),
            failed: get(&counts.failed),
        }
    }
}
