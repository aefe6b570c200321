//! Traces of our own recorder, merged into one file.

use crate::Importer;
use crate::error::ImportError;
use crate::log::Log;
use crate::out::Out;
use crate::sink::{Sink, Summary};
use std::os::unix::ffi::OsStrExt;
use stripewise_trace::{MAGIC, Trace};

/// Reads what `stripewise trace` writes. [`crate::open`] opens such a file where it is instead.
pub struct RecorderImporter;

/// Rows after which progress is told.
const WINDOW_ROWS: usize = 1 << 15;

impl Importer for RecorderImporter {
    fn name(&self) -> &'static str {
        "Stripewise"
    }

    fn recognises(&self, start: &[u8]) -> bool {
        start.starts_with(&MAGIC)
    }

    /// O(length); memory for the names.
    fn import(&self, log: &Log, sink: &mut dyn Sink) -> Result<Summary, ImportError> {
        let trace = Trace::open(log.path())?;
        let mut out = Out::new(log, sink, self.name());
        out.summary.start_unix_ns = Some(trace.start_unix_ns());
        out.summary.processes = Some(trace.processes().len() as u64);
        let mut files = Vec::with_capacity(trace.files().len());
        for file in trace.files() {
            files.push(out.file(file.path.as_os_str().as_bytes())?);
        }
        let mut programs = Vec::with_capacity(trace.programs().len());
        for program in trace.programs() {
            programs.push(out.program(program.name.as_bytes())?);
        }
        let mut rows = 0;
        for window in trace.windows(WINDOW_ROWS) {
            for row in window {
                let (file, program) = (files[row.file as usize], programs[row.program as usize]);
                out.row(stripewise_trace::Record { file, program, ..*row })?;
            }
            rows += window.len();
            out.progress((log.length() as f64 * rows as f64 / trace.records().len() as f64) as u64);
        }
        out.finish()
    }
}
