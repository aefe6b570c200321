//! [`Lines`]: lines of untrusted text in one buffer, no allocation a line, no line without bound.

use crate::error::ImportError;
use crate::lacks::Lacks;
use crate::log::{Log, Text};
use crate::sink::Summary;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest line that is read; longer ones are skipped and counted. A path is at most 4 KiB, and strace writes a few
/// of them in one line.
const MAX_LINE_BYTES: usize = 256 * 1024;
const BUFFER_BYTES: usize = 512 * 1024;

pub(crate) struct Lines<'a> {
    log: &'a Log,
    part: usize,
    reader: Box<dyn Read>,
    done: Arc<AtomicU64>,
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
    skipping: bool,
    at_end: bool,
    /// Lines returned or skipped so far: the number of the line that was last returned, from 1.
    pub number: u64,
    /// Lines that were longer than the bound.
    pub too_long: u64,
    /// Why the text stopped early (damaged gzip), where it did.
    pub stopped: Option<String>,
    /// Whether the last line had no line end: the log was cut within it, or is still being written.
    pub unfinished_line: bool,
}

impl<'a> Lines<'a> {
    pub fn new(log: &'a Log) -> Result<Self, ImportError> {
        Ok(Lines::of_text(log, 0, log.whole_text_of(0)?))
    }

    /// The lines of a part of the log, whose text this is.
    pub fn of_text(log: &'a Log, part: usize, text: Text) -> Self {
        let (reader, done) = text;
        Lines {
            log,
            part,
            reader,
            done,
            buffer: vec![0; BUFFER_BYTES],
            begin: 0,
            end: 0,
            skipping: false,
            at_end: false,
            number: 0,
            too_long: 0,
            stopped: None,
            unfinished_line: false,
        }
    }

    /// Notes how the log ends, where it does not end as a whole one does. After the last line.
    pub fn note_end(&self, summary: &mut Summary) {
        // An interrupted last line is how every log of a running program ends, and may be half a number.
        if self.unfinished_line {
            summary.lacks |= Lacks::CUT;
            summary.note("the log ends within a line");
        }
        if let Some(why) = &self.stopped {
            summary.note_cut(why);
        }
    }

    /// Stored bytes of the log that were read so far.
    pub fn done_bytes(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// The next line without its end. O(its length).
    pub fn next(&mut self) -> Result<Option<&[u8]>, ImportError> {
        let mut searched = self.begin;
        loop {
            if let Some(found) = memchr::memchr(b'\n', &self.buffer[searched..self.end]) {
                let (from, to) = (self.begin, searched + found);
                self.begin = to + 1;
                self.number += 1;
                if std::mem::take(&mut self.skipping) {
                    self.too_long += 1;
                    searched = self.begin;
                    continue;
                }
                let line = &self.buffer[from..to];
                return Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)));
            }
            if self.at_end {
                let (from, to) = (self.begin, self.end);
                self.begin = self.end;
                if from == to && !self.skipping {
                    return Ok(None);
                }
                self.number += 1;
                self.unfinished_line = true;
                if std::mem::take(&mut self.skipping) {
                    self.too_long += 1;
                    return Ok(None);
                }
                return Ok(Some(&self.buffer[from..to]));
            }
            if self.end - self.begin > MAX_LINE_BYTES {
                self.skipping = true;
            }
            if self.skipping {
                self.begin = self.end;
            }
            self.buffer.copy_within(self.begin..self.end, 0);
            self.end -= self.begin;
            self.begin = 0;
            searched = self.end;
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Result<(), ImportError> {
        match self.reader.read(&mut self.buffer[self.end..]) {
            Ok(0) => self.at_end = true,
            Ok(count) => self.end += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if self.log.is_gzip_of(self.part) => {
                self.stopped = Some(error.to_string());
                self.at_end = true;
            }
            Err(error) => return Err(ImportError::io("read", self.log.path(), error)),
        }
        Ok(())
    }
}
