//! The way out: all files of a pool as plain files of another directory, without a mount.
//!
//! ```text
//! traverse     names, directories, links, special files; bytes go to workers
//! copy         one file: read, written beside its name, read back and compared, then given its name
//! attributes   owner, mode, times, extended attributes
//! destination  the directory that is written: nothing outside it, what an unfinished export left
//! journal      what is done, so that a stopped export goes on
//! verify       compares without writing
//! ```

mod attributes;
mod copy;
mod destination;
mod journal;
mod pair;
mod source;
mod traverse;
mod verify;

use crate::backend::plane::PlaneOptions;
use crate::os::error::{Error, Result};
use crate::os::sync::{Mutex, guard};
use crate::pool::pool_file::Pool;
use crate::pool::store::Store;
use destination::Destination;
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
struct Counts {
    files: AtomicU64,
    resumed_files: AtomicU64,
    bytes: AtomicU64,
    hard_links: AtomicU64,
    directories: AtomicU64,
    symlinks: AtomicU64,
    special_files: AtomicU64,
    owners_not_kept: AtomicU64,
    failed: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// What all parts of an export share.
struct Export<'a> {
    store: Arc<Store>,
    destination: Destination,
    options: &'a ExportOptions,
    watch: &'a dyn ExportWatch,
    counts: Counts,
    done_bytes: AtomicU64,
    total_bytes: AtomicU64,
    stopped: AtomicBool,
}

impl Export<'_> {
    fn fail(&self, path: &Path, reason: &str) {
        count(&self.counts.failed);
        self.watch.failed(path, reason);
    }

    /// Tells that `bytes` more are done; an error when the watcher wants no more.
    fn advance(&self, bytes: u64) -> Result<()> {
        let done = self.done_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if !self.watch.progress(done, self.total_bytes.load(Ordering::Relaxed)) {
            self.stopped.store(true, Ordering::Relaxed);
        }
        self.go_on()
    }

    fn go_on(&self) -> Result<()> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(Error::Invalid("the export was stopped; the same command goes on with it".into()));
        }
        Ok(())
    }

    fn report(&self) -> ExportReport {
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

/// Copies all files of `pool` into the directory `to`, which is new, empty, or that of an export that was stopped. A
/// file gets its name when its bytes were read back and found to be the same. What fails is told and left out; the rest
/// goes on.
///
/// # Errors
/// The pool or the directory cannot be opened, the directory is another user's, it is full, or `watch` stopped it.
pub fn export(pool: &Pool, to: &Path, options: &ExportOptions, watch: &dyn ExportWatch) -> Result<ExportReport> {
    let plane = PlaneOptions { door: options.door.clone(), ..PlaneOptions::default() };
    let store = Store::open_with(pool.clone(), plane)?;
    let destination = if options.verify_only {
        Destination::open_finished(to)?
    } else {
        Destination::open(to, pool, store.plane().pool_uuid())?
    };
    let export = Export {
        store,
        destination,
        options,
        watch,
        counts: Counts::default(),
        done_bytes: AtomicU64::new(0),
        total_bytes: AtomicU64::new(0),
        stopped: AtomicBool::new(false),
    };
    traverse::measure(&export)?;
    traverse::all(&export)?;
    let report = export.report();
    if !options.verify_only {
        export.destination.finish(report.failed == 0)?;
        traverse::finish_root(&export)?;
    }
    Ok(report)
}
