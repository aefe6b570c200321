//! CSV with the columns of our schema (`stripewise show --csv`), or some of them: `file`, `op`, `offset` and `size` are
//! needed. The first line names the columns.

use crate::Importer;
use crate::error::ImportError;
use crate::log::Log;
use crate::out::Out;
use crate::rows::{RowBuilder, TableCell};
use crate::schema::COLUMNS;
use crate::sink::{Sink, Summary};
use csv_core::ReadRecordResult;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Reads tables as text.
pub struct Csv;

/// Longest line that is used.
const MAX_LINE_BYTES: usize = 256 * 1024;
/// Most columns.
const MAX_COLUMNS: usize = 256;
/// Excel writes it in front.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl Importer for Csv {
    fn name(&self) -> &'static str {
        "CSV"
    }

    /// The first line names a column `file` and another of ours.
    fn recognises(&self, start: &[u8]) -> bool {
        let start = start.strip_prefix(BYTE_ORDER_MARK).unwrap_or(start);
        let line = start.split(|byte| matches!(byte, b'\n' | b'\r')).next().unwrap_or_default();
        let names = || line.split(|byte| *byte == b',').map(|name| name.trim_ascii());
        let named = |wanted: &str| {
            names().any(|name| {
                let bare = name.strip_prefix(b"\"").and_then(|name| name.strip_suffix(b"\"")).unwrap_or(name);
                bare == wanted.as_bytes()
            })
        };
        named("file") && COLUMNS.iter().filter(|column| **column != "file").any(|column| named(column))
    }

    /// O(length); memory for one line and the names.
    fn import(&self, log: &Log, sink: &mut dyn Sink) -> Result<Summary, ImportError> {
        let mut out = Out::new(log, sink, self.name());
        let mut records = Records::new(log)?;
        let header: Vec<Vec<u8>> = match records.next()? {
            Some(Some(record)) => (0..record.len()).map(|place| record.field(place).to_vec()).collect(),
            _ => Vec::new(),
        };
        let names = header.iter().map(|name| name.strip_prefix(BYTE_ORDER_MARK).unwrap_or(name));
        let mut rows = RowBuilder::new(&mut out, log, self.name(), names)?;
        let places = *rows.places();
        let mut next_progress = 0;
        loop {
            let done_bytes = records.done_bytes();
            if done_bytes >= next_progress {
                next_progress = done_bytes + (1 << 20);
                out.progress(done_bytes);
            }
            match records.next()? {
                None => break,
                Some(None) => {
                    rows.bad(&format!("line {}: it is longer than 256 KiB, or a quote is not closed", records.line));
                }
                Some(Some(record)) => {
                    let line = || format!("line {}", record.line);
                    let cell = |column: usize| match places[column].filter(|place| *place < record.len()) {
                        Some(place) => TableCell::Text(record.field(place)),
                        None => TableCell::Nothing,
                    };
                    if record.len() == header.len() {
                        rows.row(&mut out, &cell, &line)?;
                    } else {
                        let why = format!("{}: it has {} columns of {}", line(), record.len(), header.len());
                        rows.bad(&why);
                    }
                }
            }
        }
        if let Some(why) = &records.stopped {
            out.summary.note_cut(why);
        }
        rows.finish(&mut out, log, self.name())?;
        out.finish()
    }
}

/// The records of a log, one in memory.
struct Records<'a> {
    log: &'a Log,
    reader: Box<dyn io::Read>,
    done: Arc<AtomicU64>,
    parser: csv_core::Reader,
    input: Vec<u8>,
    begin: usize,
    end: usize,
    text: Vec<u8>,
    ends: Vec<usize>,
    /// Line on which the last record began, from 1.
    line: u64,
    /// Why the text stopped early (damaged gzip), where it did.
    stopped: Option<String>,
}

struct Fields<'r> {
    text: &'r [u8],
    ends: &'r [usize],
    line: u64,
}

impl<'r> Fields<'r> {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn field(&self, place: usize) -> &'r [u8] {
        let begin = if place == 0 { 0 } else { self.ends[place - 1] };
        &self.text[begin..self.ends[place]]
    }
}

impl<'a> Records<'a> {
    fn new(log: &'a Log) -> Result<Self, ImportError> {
        let (reader, done) = log.whole_text_of(0)?;
        Ok(Records {
            log,
            reader,
            done,
            parser: csv_core::Reader::new(),
            input: vec![0; 512 * 1024],
            begin: 0,
            end: 0,
            text: vec![0; MAX_LINE_BYTES],
            ends: vec![0; MAX_COLUMNS],
            line: 1,
            stopped: None,
        })
    }

    fn done_bytes(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// The next record; `Some(None)` for one that is too long; `None` at the end. O(its length).
    fn next(&mut self) -> Result<Option<Option<Fields<'_>>>, ImportError> {
        let (mut filled, mut fields, mut too_long) = (0, 0, false);
        self.line = self.parser.line();
        loop {
            if self.begin == self.end && self.stopped.is_none() {
                self.fill()?;
            }
            let input = &self.input[self.begin..self.end];
            let (result, read, written, ended) =
                self.parser.read_record(input, &mut self.text[filled..], &mut self.ends[fields..]);
            self.begin += read;
            filled += written;
            fields += ended;
            match result {
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull => {
                    // The rest of it goes nowhere.
                    too_long = true;
                    (filled, fields) = (0, 0);
                }
                ReadRecordResult::Record if too_long => return Ok(Some(None)),
                ReadRecordResult::Record => {
                    let (text, ends) = (&self.text[..filled], &self.ends[..fields]);
                    return Ok(Some(Some(Fields { text, ends, line: self.line })));
                }
                ReadRecordResult::End => return Ok(None),
            }
        }
    }

    fn fill(&mut self) -> Result<(), ImportError> {
        (self.begin, self.end) = (0, 0);
        loop {
            match self.reader.read(&mut self.input) {
                Ok(count) => {
                    self.end = count;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if self.log.is_gzip() => {
                    self.stopped = Some(error.to_string());
                    return Ok(());
                }
                Err(error) => return Err(ImportError::io("read", self.log.path(), error)),
            }
        }
    }
}
