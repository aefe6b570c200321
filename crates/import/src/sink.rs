//! [`Sink`]: what receives an import; [`Summary`]: what is known at its end.

use crate::counters::{FileCounters, LustreLayout};
use crate::job_header::JobHeader;
use crate::lacks::Lacks;
use crate::mount_point::MountPoint;
use std::collections::BTreeMap;
use std::io;
use stripewise_trace::Record;

/// Receives a log piece by piece, so that no importer holds more than a piece of it.
///
/// `file` and `program` of a [`Record`] are numbers that the sink was told before the first row that has them; they
/// count from 0 without gaps. Times are nanoseconds since the start of the log ([`Summary::start_unix_ns`]). Rows come
/// in the order of the log, which is that of time only in some formats.
pub trait Sink {
    /// A file was met. `path` is as the log has it; it may be relative, and need not be UTF-8.
    fn file(&mut self, id: u32, path: &[u8]) -> io::Result<()>;

    /// A program was met.
    fn program(&mut self, id: u32, name: &[u8]) -> io::Result<()>;

    /// Some rows (at most [`BATCH_ROWS`]).
    fn rows(&mut self, rows: &[Record]) -> io::Result<()>;

    /// Counters of one file, where the log has such.
    fn counters(&mut self, _counters: &FileCounters) -> io::Result<()> {
        Ok(())
    }

    /// The layout that one file had, where the log has such. Once per file.
    fn layout(&mut self, _layout: &LustreLayout) -> io::Result<()> {
        Ok(())
    }

    /// `done_bytes` of the log's `total_bytes` are read; called about once a megabyte.
    fn progress(&mut self, _done_bytes: u64, _total_bytes: u64) {}
}

/// Most rows in one call of [`Sink::rows`].
pub const BATCH_ROWS: usize = 4096;

/// What an import found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Summary {
    /// Name of the format ([`crate::Importer::name`]).
    pub format: &'static str,
    /// Rows handed over.
    pub rows: u64,
    /// Files named.
    pub files: u64,
    /// What the log does not say.
    pub lacks: Lacks,
    /// What happened that a user should know, in whole sentences without full stop; at most 16.
    pub notes: Vec<String>,
    /// Time 0 of the rows in nanoseconds since 1970, where the log knows.
    pub start_unix_ns: Option<u64>,
    /// Processes of the job, where the log knows.
    pub processes: Option<u64>,
    /// How long the program ran in nanoseconds, where the log knows.
    pub run_ns: Option<u64>,
    /// Object storage targets of the Lustre that files are on, where the log knows.
    pub targets: Option<u64>,
    /// File systems of the machine, where the log names them.
    pub mounts: Vec<MountPoint>,
    /// The job, as far as the log tells of it.
    pub job: JobHeader,
    /// The node of each rank, where the log knows.
    pub hosts: BTreeMap<u32, String>,
}

impl Summary {
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        if self.notes.len() < 16 {
            self.notes.push(text.into());
        }
    }

    /// A compressed log could not be unpacked to its end.
    pub(crate) fn note_cut(&mut self, why: &str) {
        self.lacks |= Lacks::CUT | Lacks::DAMAGED;
        self.note(format!("the compressed log could not be unpacked to its end: {why}"));
    }
}

/// Keeps everything in memory: for tests and small logs.
#[derive(Debug, Default)]
pub struct MemorySink {
    /// Paths of the files in order of number.
    pub files: Vec<Vec<u8>>,
    /// Names of the programs in order of number.
    pub programs: Vec<Vec<u8>>,
    /// The rows in order of the log.
    pub rows: Vec<Record>,
    /// Counters.
    pub counters: Vec<FileCounters>,
    /// Layouts.
    pub layouts: Vec<LustreLayout>,
}

impl Sink for MemorySink {
    fn file(&mut self, id: u32, path: &[u8]) -> io::Result<()> {
        debug_assert_eq!(id as usize, self.files.len());
        self.files.push(path.to_vec());
        Ok(())
    }

    fn program(&mut self, id: u32, name: &[u8]) -> io::Result<()> {
        debug_assert_eq!(id as usize, self.programs.len());
        self.programs.push(name.to_vec());
        Ok(())
    }

    fn rows(&mut self, rows: &[Record]) -> io::Result<()> {
        self.rows.extend_from_slice(rows);
        Ok(())
    }

    fn counters(&mut self, counters: &FileCounters) -> io::Result<()> {
        self.counters.push(counters.clone());
        Ok(())
    }

    fn layout(&mut self, layout: &LustreLayout) -> io::Result<()> {
        self.layouts.push(layout.clone());
        Ok(())
    }
}
