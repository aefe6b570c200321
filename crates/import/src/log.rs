//! [`Log`]: a file that somebody else wrote, read by position or as lines, plain or gzip.

use crate::error::ImportError;
use flate2::read::MultiGzDecoder;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Bytes at the start of a log that importers see to recognise it (unpacked where it is gzip).
const START_BYTES: usize = 16 * 1024;

/// An opened log.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
    length: u64,
    gzip: bool,
}

impl Log {
    /// Opens a regular file.
    ///
    /// # Errors
    /// [`ImportError::Io`] where that fails or it is no regular file (a pipe cannot be looked at twice).
    pub fn open(path: &Path) -> Result<Self, ImportError> {
        let file = File::open(path).map_err(|error| ImportError::io("open", path, error))?;
        let metadata = file.metadata().map_err(|error| ImportError::io("open", path, error))?;
        if !metadata.is_file() {
            let why = io::Error::new(io::ErrorKind::InvalidInput, "not a regular file; write the log to a file first");
            return Err(ImportError::io("import", path, why));
        }
        let mut magic = [0; 2];
        let gzip = metadata.len() > 2 && file.read_exact_at(&mut magic, 0).is_ok() && magic == [0x1f, 0x8b];
        Ok(Log { path: path.to_owned(), file, length: metadata.len(), gzip })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length in bytes, as stored.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Its first bytes (at most 16 KiB), unpacked. A damaged gzip file gives what could be unpacked.
    ///
    /// # Errors
    /// [`ImportError::Io`] where the file cannot be read.
    pub fn start(&self) -> Result<Vec<u8>, ImportError> {
        let mut start = vec![0; START_BYTES];
        let mut filled = 0;
        let (mut text, _) = self.text();
        while filled < start.len() {
            match text.read(&mut start[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if self.gzip => break,
                Err(error) => return Err(ImportError::io("read", &self.path, error)),
            }
        }
        start.truncate(filled);
        Ok(start)
    }

    /// Its bytes from the first, unpacked where it is gzip; and how many of the stored bytes are read so far.
    pub(crate) fn text(&self) -> (Box<dyn Read + '_>, Rc<Cell<u64>>) {
        let done = Rc::new(Cell::new(0));
        let part = Part { log: self, position: 0, end: u64::MAX, done: Rc::clone(&done) };
        if self.gzip { (Box::new(MultiGzDecoder::new(part)), done) } else { (Box::new(part), done) }
    }

    /// Whether it is stored as gzip.
    pub(crate) fn is_gzip(&self) -> bool {
        self.gzip
    }

    /// Its stored bytes from `start` to `end`.
    pub(crate) fn part(&self, start: u64, end: u64) -> Part<'_> {
        Part { log: self, position: start, end, done: Rc::new(Cell::new(0)) }
    }
}

/// Reads a part of a log by position: no shared cursor.
pub(crate) struct Part<'a> {
    log: &'a Log,
    position: u64,
    end: u64,
    done: Rc<Cell<u64>>,
}

impl Read for Part<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len().min(usize::try_from(self.end - self.position.min(self.end)).unwrap_or(usize::MAX));
        let count = self.log.file.read_at(&mut buffer[..wanted], self.position)?;
        self.position += count as u64;
        self.done.set(self.done.get() + count as u64);
        Ok(count)
    }
}
