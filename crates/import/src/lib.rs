//! Logs of other tools as rows of one schema.
//!
//! One [`Importer`] a format, one file each. All hand [`Record`](stripewise_trace::Record)s, the same that our own
//! recorder writes, to a [`Sink`] piece by piece: memory does not grow with the log. What a log does not say is stated
//! as [`Lacks`]. Nothing in a log is trusted: a damaged one is imported as far as it can be read, and says so, or is
//! refused with the place and the reason.

mod about;
mod ahead;
mod counted;
mod counters;
mod csv;
mod darshan;
mod dataset;
mod dftracer;
mod error;
mod excerpt;
mod fio;
mod job_header;
mod lacks;
mod lines;
mod log;
mod mount_point;
mod open;
mod osts;
mod out;
mod parquet_log;
mod places;
mod reconstruct;
mod recorder;
mod rows;
mod schema;
mod scratch;
mod sink;
mod sizes;
mod strace;
mod table;

pub use about::About;
pub use counted::{CountedFiles, CountedTraffic, summarise_counted};
pub use counters::{FileCounters, LustreComponent, LustreLayout};
pub use dataset::{write_dataset, write_parquet};
pub use error::ImportError;
pub use excerpt::Excerpt;
pub use job_header::JobHeader;
pub use lacks::Lacks;
pub use log::Log;
pub use mount_point::MountPoint;
pub use open::{Imported, Progress, format_of, open, open_files, open_index};
pub use osts::{OstRate, OstRates, ost_rates, target_rates};
pub use schema::write_csv;
pub use sink::{BATCH_ROWS, MemorySink, Sink, Summary};

use std::path::Path;

/// Reads one format.
pub trait Importer: Sync {
    /// Name in messages and options.
    fn name(&self) -> &'static str;

    /// How the names of files end that, all those in one folder together, are one log; most formats have none.
    fn endings(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether a log that starts with these bytes is of this format.
    fn recognises(&self, start: &[u8]) -> bool;

    /// Reads the log and hands it to the sink.
    ///
    /// # Errors
    /// [`ImportError`] where nothing of the log can be used, or the sink fails.
    fn import(&self, log: &Log, sink: &mut dyn Sink) -> Result<Summary, ImportError>;
}

/// Every importer, in the order in which they are asked.
pub const IMPORTERS: &[&dyn Importer] = &[
    &darshan::Darshan,
    &recorder::RecorderImporter,
    &parquet_log::Parquet,
    &fio::Fio,
    &dftracer::Dftracer,
    &csv::Csv,
    &strace::Strace,
];

/// The importer for this log.
///
/// # Errors
/// [`ImportError::Unknown`] with what is known; [`ImportError::Io`] where the log cannot be read.
pub fn importer_of(log: &Log) -> Result<&'static dyn Importer, ImportError> {
    let start = log.start()?;
    IMPORTERS.iter().copied().find(|importer| importer.recognises(&start)).ok_or_else(|| ImportError::Unknown {
        path: log.path().to_owned(),
        known: IMPORTERS.iter().map(|importer| importer.name()).collect::<Vec<_>>().join(", "),
        why: if start.is_empty() {
            "it is empty".to_owned()
        } else {
            let shown = String::from_utf8_lossy(&start[..start.len().min(24)]).into_owned();
            format!("it starts with {shown:?}")
        },
    })
}

/// Opens a log of any known format and hands it to the sink.
///
/// # Errors
/// [`ImportError`] with the file, the place in it and the remedy.
pub fn import(path: &Path, sink: &mut dyn Sink) -> Result<Summary, ImportError> {
    let log = Log::open(path)?;
    importer_of(&log)?.import(&log, sink)
}
