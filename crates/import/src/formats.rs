//! The formats that are known, and which of them a log has.

use crate::error::ImportError;
use crate::importer::Importer;
use crate::log::Log;
use crate::sink::{Sink, Summary};
use crate::{csv, darshan, dftracer, fio, parquet_log, recorder, strace};
use std::path::Path;

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
    let log = open_log(path)?;
    importer_of(&log)?.import(&log, sink)
}

/// Opens a log: a regular file, or a folder of files of which each is a part of one.
///
/// # Errors
/// As of [`Log::open`] and [`Log::of_folder`].
pub(crate) fn open_log(path: &Path) -> Result<Log, ImportError> {
    if path.is_dir() { Log::of_folder(path, &endings()) } else { Log::open(path) }
}

/// Whether a folder has files that are parts of a log.
pub(crate) fn is_log_folder(path: &Path) -> bool {
    path.is_dir() && Log::parts_of(path, &endings()).is_ok_and(|parts| !parts.is_empty())
}

/// Endings of the names of files that are parts of logs.
fn endings() -> Vec<&'static str> {
    IMPORTERS.iter().flat_map(|importer| importer.endings()).copied().collect()
}
