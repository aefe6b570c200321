//! What an export has done and made durable: 16 bytes a file.
//!
//! A record is the beginning of the blake3 of the file's inode, size, time of last change and path. It is written only
//! after the file system that holds the file was synced, so that whatever ended the export, what stands here is there.

use crate::os::sys::{read_all, retry, write_all};
use rustix::fd::{BorrowedFd, OwnedFd};
use std::collections::HashSet;

/// Files or bytes after which what was done is made durable.
const BATCH_FILES: usize = 10_000;
const BATCH_BYTES: u64 = 4 << 30;
/// Longest journal that is read: 2^28 files.
const MAX_BYTES: usize = 16 << 28;

/// Identity of a file as it was exported.
pub(super) type ExportKey = [u8; 16];

/// The journal of an export.
pub(super) struct ExportJournal {
    file: Option<OwnedFd>,
    done: HashSet<ExportKey>,
    waiting: Vec<ExportKey>,
    waiting_bytes: u64,
}

impl ExportJournal {
    /// No journal: nothing is done, nothing is kept.
    pub(super) fn none() -> Self {
        Self { file: None, done: HashSet::new(), waiting: Vec::new(), waiting_bytes: 0 }
    }

    /// Reads the journal of an export that was stopped. A record that was cut off counts as not written.
    pub(super) fn open(file: OwnedFd) -> rustix::io::Result<Self> {
        let bytes = read_all(&file, MAX_BYTES)?;
        let (records, cut) = bytes.as_chunks::<16>();
        if !cut.is_empty() {
            rustix::fs::ftruncate(&file, (records.len() * 16) as u64)?;
        }
        let done = records.iter().copied().collect();
        Ok(Self { file: Some(file), done, waiting: Vec::new(), waiting_bytes: 0 })
    }

    /// Whether that file is done.
    pub(super) fn has(&self, key: &ExportKey) -> bool {
        self.done.contains(key)
    }

    /// Notes that a file is done, and now and then makes it durable: `root` is a directory of its file system.
    pub(super) fn add(&mut self, key: ExportKey, bytes: u64, root: BorrowedFd<'_>) -> rustix::io::Result<()> {
        self.waiting.push(key);
        self.waiting_bytes += bytes;
        if self.waiting.len() >= BATCH_FILES || self.waiting_bytes >= BATCH_BYTES {
            self.sync(root)?;
        }
        Ok(())
    }

    /// Makes durable what is done.
    pub(super) fn sync(&mut self, root: BorrowedFd<'_>) -> rustix::io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        if !self.waiting.is_empty() {
            rustix::fs::syncfs(root)?;
            write_all(file, self.waiting.as_flattened())?;
            retry(|| rustix::fs::fsync(file))?;
            self.waiting.clear();
            self.waiting_bytes = 0;
        }
        Ok(())
    }
}
