//! The record of a program's I/O: format, recorder, reader.
//!
//! Each process writes its own file of fixed-size [`Record`]s while it runs ([`Recorder`]); [`merge`] joins the files
//! of a directory into one, sorted by file, offset and start; [`Trace`] reads either. [`TraceWriter`] does the same
//! with records from elsewhere. Every file is versioned and nothing in it is trusted.

mod access_map;
mod error;
mod format;
mod heat_map;
mod inputs;
mod merge;
mod output;
mod process_file;
mod reader;
mod record;
mod recorder;
mod sample;
mod summary;
mod tables;
mod writer;

pub use access_map::{
    AccessLoad, AccessLoads, AccessMaps, AccessTotals, FileMaps, FileTotals, Fineness, Maps, ProcessId, SIZE_STEPS,
    size_step,
};
pub use error::TraceError;
pub use format::{MAGIC, PROCESS_FILE_SUFFIX, VERSION};
pub use heat_map::{Axis, HeatMap};
pub use merge::merge;
pub use output::output_place;
pub use reader::{Trace, TraceFile};
pub use record::{Api, Operation, Record, WrappedCall, flags};
pub use recorder::{ProcessInfo, Recorder, now_ns};
pub use summary::{DirectionSummary, FileSummary, Heat, summarise, summarise_together};
pub use tables::{Process, Program, Tables};
pub use writer::TraceWriter;
