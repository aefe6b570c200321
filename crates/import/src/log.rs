//! [`Log`]: a file of another program, read by position or as lines, plain or gzip.

use crate::ahead::Ahead;
use crate::error::ImportError;
use flate2::bufread;
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes at the start of a log that importers see to recognise it (unpacked where it is gzip).
const START_BYTES: usize = 16 * 1024;

/// A gzip file from this length on is worth a thread.
const AHEAD_FROM_BYTES: u64 = 64 * 1024;

/// The text of a part, and how many of its stored bytes were read.
pub(crate) type Text = (Box<dyn Read>, Arc<AtomicU64>);

/// An opened log: one file, or the files of a folder that are one log together.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    parts: Vec<Stored>,
}

/// One file of a log.
#[derive(Debug)]
struct Stored {
    path: PathBuf,
    /// `None`, but never of the first: it is opened when it is read, for a folder may have more parts than a process
    /// can have open.
    file: Option<Arc<File>>,
    length: u64,
    gzip: bool,
}

impl Log {
    /// Opens a regular file.
    ///
    /// # Errors
    /// [`ImportError::Io`] where that fails or it is none (a pipe cannot be looked at twice).
    pub fn open(path: &Path) -> Result<Self, ImportError> {
        Ok(Log { path: path.to_owned(), parts: vec![Stored::open(path)?] })
    }

    /// Opens a folder of which the files with such `endings` are the parts of a log
    /// ([`Importer::endings`](crate::Importer::endings)); others in it are left alone, and so are empty ones.
    ///
    /// # Errors
    /// [`ImportError::Io`] where that fails or there are none.
    pub(crate) fn of_folder(path: &Path, endings: &[&str]) -> Result<Self, ImportError> {
        let mut parts = Vec::new();
        for found in Self::parts_of(path, endings).map_err(|error| ImportError::io("open", path, error))? {
            let part = Stored::open(&found)?;
            if part.length > 0 {
                let first = parts.is_empty();
                parts.push(Stored { file: part.file.filter(|_| first), ..part });
            }
        }
        if parts.is_empty() {
            let endings: Vec<_> = endings.iter().map(|ending| format!("*{ending}")).collect();
            let why = format!("the folder has no parts of a log ({})", endings.join(", "));
            return Err(ImportError::io("import", path, io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        Ok(Log { path: path.to_owned(), parts })
    }

    /// The files in a folder that have such endings, by name.
    pub(crate) fn parts_of(folder: &Path, endings: &[&str]) -> io::Result<Vec<PathBuf>> {
        let mut parts = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            if endings.iter().any(|ending| name.ends_with(ending.as_bytes())) {
                parts.push(path);
            }
        }
        parts.sort();
        Ok(parts)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length in bytes, as stored.
    pub fn length(&self) -> u64 {
        self.parts.iter().map(|part| part.length).sum()
    }

    /// How many files it is in.
    pub(crate) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The name of a part, for messages.
    pub(crate) fn part_name(&self, part: usize) -> String {
        let path = &self.parts[part].path;
        path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
    }

    /// Its first bytes (at most 16 KiB), unpacked. A damaged gzip file gives what could be unpacked.
    ///
    /// # Errors
    /// [`ImportError::Io`] where the file cannot be read.
    pub fn start(&self) -> Result<Vec<u8>, ImportError> {
        let mut start = vec![0; START_BYTES];
        let mut filled = 0;
        let (mut text, _) = self.text_of(0)?;
        while filled < start.len() {
            match text.read(&mut start[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if self.is_gzip() => break,
                Err(error) => return Err(ImportError::io("read", &self.path, error)),
            }
        }
        start.truncate(filled);
        Ok(start)
    }

    /// The bytes of a part from the first, unpacked where it is gzip; and how many of the stored bytes are read so far.
    ///
    /// # Errors
    /// [`ImportError::Io`] where the file cannot be opened again.
    pub(crate) fn text_of(&self, part: usize) -> Result<Text, ImportError> {
        let (stored, done) = (&self.parts[part], Arc::default());
        let part = LogSlice { file: stored.file()?, position: 0, end: u64::MAX, done: Arc::clone(&done) };
        Ok(if stored.gzip { (Box::new(MultiGzDecoder::new(part)), done) } else { (Box::new(part), done) })
    }

    /// As [`Log::text_of`], for a log that is read to its end: a thread unpacks gzip.
    pub(crate) fn whole_text_of(&self, part: usize) -> Result<Text, ImportError> {
        let (stored, done) = (&self.parts[part], Arc::default());
        if !stored.gzip || stored.length < AHEAD_FROM_BYTES {
            return self.text_of(part);
        }
        let part = LogSlice { file: stored.file()?, position: 0, end: u64::MAX, done: Arc::clone(&done) };
        let packed = BufReader::with_capacity(128 * 1024, part);
        let ahead = Ahead::new(bufread::MultiGzDecoder::new(packed));
        Ok((Box::new(ahead.map_err(|error| ImportError::io("unpack", &stored.path, error))?), done))
    }

    /// Whether a part is stored as gzip.
    pub(crate) fn is_gzip_of(&self, part: usize) -> bool {
        self.parts[part].gzip
    }

    /// Whether it is stored as gzip.
    pub(crate) fn is_gzip(&self) -> bool {
        self.is_gzip_of(0)
    }

    /// The stored bytes of its first file from `start` to `end`.
    pub(crate) fn part(&self, start: u64, end: u64) -> LogSlice {
        let file = self.parts[0].file.as_ref().expect("the first file of a log stays open");
        LogSlice { file: Arc::clone(file), position: start, end, done: Arc::default() }
    }
}

impl Stored {
    fn open(path: &Path) -> Result<Self, ImportError> {
        let opening = |error| ImportError::io("open", path, error);
        // Before it is opened: opening a FIFO without a writer waits for one, and so do some devices.
        if !std::fs::metadata(path).map_err(opening)?.is_file() {
            let why = io::Error::new(io::ErrorKind::InvalidInput, "not a regular file; write the log to a file first");
            return Err(ImportError::io("import", path, why));
        }
        let file = File::open(path).map_err(opening)?;
        let metadata = file.metadata().map_err(opening)?;
        let mut magic = [0; 2];
        let gzip = metadata.len() > 2 && file.read_exact_at(&mut magic, 0).is_ok() && magic == [0x1f, 0x8b];
        Ok(Stored { path: path.to_owned(), file: Some(Arc::new(file)), length: metadata.len(), gzip })
    }

    fn file(&self) -> Result<Arc<File>, ImportError> {
        match &self.file {
            Some(file) => Ok(Arc::clone(file)),
            None => {
                let file = File::open(&self.path).map_err(|error| ImportError::io("open", &self.path, error))?;
                Ok(Arc::new(file))
            }
        }
    }
}

/// Reads a part of a log by position: no shared cursor.
pub(crate) struct LogSlice {
    file: Arc<File>,
    position: u64,
    end: u64,
    done: Arc<AtomicU64>,
}

impl Read for LogSlice {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len().min(usize::try_from(self.end - self.position.min(self.end)).unwrap_or(usize::MAX));
        let count = self.file.read_at(&mut buffer[..wanted], self.position)?;
        self.position += count as u64;
        self.done.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
