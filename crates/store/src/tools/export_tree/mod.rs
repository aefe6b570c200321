//! The way out: all files of a pool as plain files of another directory, without a mount.
//!
//! ```text
//! traverse     names, directories, links, special files; bytes go to workers
//! copy         one file: read, written beside its name, read back and compared, then given its name
//! attributes   owner, mode, times, extended attributes
//! destination  the directory that is written: nothing outside it, what an unfinished export left
//! journal      what is done, so that a stopped export goes on
//! verify       compares without writing
//! run          what all of them share: options, counters, whether to go on
//! ```

mod attributes;
mod copy;
mod destination;
mod journal;
mod pair;
mod run;
mod source;
mod traverse;
mod verify;

use crate::backend::plane::PlaneOptions;
use crate::os::error::Result;
use crate::pool::pool_file::Pool;
use crate::pool::store::Store;
use destination::Destination;
use run::{Counts, Export};
pub use run::{ExportOptions, ExportReport, ExportWatch};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};

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
