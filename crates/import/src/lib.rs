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
mod formats;
mod imported;
mod importer;
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
mod stated;
mod strace;
mod table;

pub use about::About;
pub use counted::{CountedFiles, CountedTraffic, summarise_counted};
pub use counters::{FileCounters, LustreComponent, LustreLayout};
pub use dataset::{write_dataset, write_parquet};
pub use error::ImportError;
pub use excerpt::Excerpt;
pub use formats::{IMPORTERS, import, importer_of};
pub use imported::{Imported, Progress};
pub use importer::Importer;
pub use job_header::JobHeader;
pub use lacks::Lacks;
pub use log::Log;
pub use mount_point::MountPoint;
pub use open::{format_of, open, open_files, open_index};
pub use osts::{OstRate, OstRates, ost_rates, target_rates};
pub use schema::write_csv;
pub use sink::{BATCH_ROWS, MemorySink, Sink, Summary};
