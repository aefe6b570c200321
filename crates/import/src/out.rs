//! [`Out`]: between an importer and its sink: batches rows, numbers files and programs, counts.

use crate::error::ImportError;
use crate::log::Log;
use crate::sink::{BATCH_ROWS, Sink, Summary};
use std::collections::HashMap;
use stripewise_trace::Record;

pub(crate) struct Out<'a> {
    log: &'a Log,
    sink: &'a mut dyn Sink,
    batch: Vec<Record>,
    files: HashMap<Box<[u8]>, u32>,
    programs: HashMap<Box<[u8]>, u32>,
    pub summary: Summary,
}

impl<'a> Out<'a> {
    pub fn new(log: &'a Log, sink: &'a mut dyn Sink, format: &'static str) -> Self {
        Out {
            log,
            sink,
            batch: Vec::with_capacity(BATCH_ROWS),
            files: HashMap::new(),
            programs: HashMap::new(),
            summary: Summary { format, ..Summary::default() },
        }
    }

    /// The number of the file with this path. O(1), one allocation for a new one.
    pub fn file(&mut self, path: &[u8]) -> Result<u32, ImportError> {
        if let Some(&id) = self.files.get(path) {
            return Ok(id);
        }
        let id = self.files.len() as u32;
        self.files.insert(path.into(), id);
        self.tell_file(id, path)?;
        Ok(id)
    }

    fn tell_file(&mut self, id: u32, path: &[u8]) -> Result<(), ImportError> {
        self.summary.files += 1;
        let told = self.sink.file(id, path);
        self.checked(told)
    }

    /// The number of the program of this name. O(1).
    pub fn program(&mut self, name: &[u8]) -> Result<u32, ImportError> {
        if let Some(&id) = self.programs.get(name) {
            return Ok(id);
        }
        let id = self.programs.len() as u32;
        self.programs.insert(name.into(), id);
        let told = self.sink.program(id, name);
        self.checked(told)?;
        Ok(id)
    }

    /// Hands a row on. O(1), one call of the sink in [`BATCH_ROWS`].
    #[inline]
    pub fn row(&mut self, row: Record) -> Result<(), ImportError> {
        self.batch.push(row);
        if self.batch.len() == BATCH_ROWS { self.flush() } else { Ok(()) }
    }

    pub fn counters(&mut self, counters: &crate::FileCounters) -> Result<(), ImportError> {
        let told = self.sink.counters(counters);
        self.checked(told)
    }

    pub fn layout(&mut self, layout: &crate::LustreLayout) -> Result<(), ImportError> {
        let told = self.sink.layout(layout);
        self.checked(told)
    }

    pub fn progress(&mut self, done_bytes: u64) {
        self.sink.progress(done_bytes.min(self.log.length()), self.log.length());
    }

    fn flush(&mut self) -> Result<(), ImportError> {
        self.summary.rows += self.batch.len() as u64;
        let told = self.sink.rows(&self.batch);
        self.batch.clear();
        self.checked(told)
    }

    pub fn finish(mut self) -> Result<Summary, ImportError> {
        if !self.batch.is_empty() {
            self.flush()?;
        }
        self.progress(self.log.length());
        Ok(self.summary)
    }

    fn checked(&self, told: std::io::Result<()>) -> Result<(), ImportError> {
        told.map_err(|source| ImportError::Sink { path: self.log.path().to_owned(), source })
    }
}
