//! [`ScratchTrace`]: the temporary trace that a log is converted to.

use crate::error::ImportError;
use std::io;
use std::path::{Path, PathBuf};
use stripewise_trace::{Record, Tables, Trace, TraceWriter};

/// A temporary trace without a name: it is gone when it is dropped, and when the process ends in whatever way.
pub(crate) struct ScratchTrace {
    writer: TraceWriter,
    /// The log.
    of: PathBuf,
    dir: PathBuf,
}

impl ScratchTrace {
    /// An empty one for the log `of`.
    pub fn new(of: &Path) -> Result<Self, ImportError> {
        let dir = scratch_dir();
        let file = tempfile::tempfile_in(&dir).map_err(|source| no_room(of, &dir, source))?;
        let writer = TraceWriter::new(file, &dir.join("(temporary trace)"));
        Ok(Self { writer, of: of.to_owned(), dir })
    }

    /// Adds records in any order.
    pub fn push(&mut self, records: &[Record]) -> io::Result<()> {
        self.writer.push(records)
    }

    /// Why it could not be written, and what to do.
    pub fn no_room(&self, source: io::Error) -> ImportError {
        no_room(&self.of, &self.dir, source)
    }

    /// See [`TraceWriter::into_trace`].
    pub fn into_trace(
        self,
        tables: Tables,
        start_unix_ns: Option<u64>,
        new_ids: Option<&[u32]>,
    ) -> Result<Trace, ImportError> {
        Ok(self.writer.into_trace(tables, start_unix_ns.unwrap_or(0), new_ids)?)
    }
}

fn no_room(of: &Path, dir: &Path, source: io::Error) -> ImportError {
    ImportError::Scratch { path: of.to_owned(), dir: dir.to_owned(), source }
}

/// `TMPDIR`, else `/var/tmp`, which unlike `/tmp` is on a disk: a temporary trace may be larger than memory.
fn scratch_dir() -> PathBuf {
    match std::env::var_os("TMPDIR") {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir),
        _ => Some(PathBuf::from("/var/tmp")).filter(|dir| dir.is_dir()).unwrap_or_else(std::env::temp_dir),
    }
}
