//! The file of a journal: a header, and records in memory that is mapped, so that a record costs no system call and
//! stays when its process is killed.
//!
//! | bytes | field |
//! |---|---|
//! | 8 | `SWREMOVE` |
//! | 4 | format, 1 |
//! | 8 | number of the file's own inode: a copy is no journal |
//! | 32 | uuid of the pool |
//! | 36 | id of the system's boot |
//! | 4 | CRC-32C of these |
//! | at 4088: 8 | not 0: a sync has failed, so that names may come back without a power cut |
//! | from 4096 on: 128 each | records |
//!
//! The lock of its first byte is held as long as its process lives.

use super::gone::Gone;
use super::record::{BYTES, RemovalState, StoredRecord, WORDS, decode, encode, in_state};
use crate::os::byte_lock::lock_byte;
use crate::os::error::{Error, Result};
use crate::os::shared_pages::{SharedPage, allocate};
use crate::os::sys::retry;
use crate::pool::namespace::{REMOVALS, make_directory};
use crate::pool::store::Store;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The file grows by this many bytes at a time, a multiple of every page size.
const CHUNK_BYTES: usize = 64 << 10;
/// Records in a chunk.
const CHUNK: usize = CHUNK_BYTES / BYTES;
/// Bytes in front of the records.
pub(super) const HEADER_BYTES: usize = 4096;
/// Where the header says that a sync has failed.
const DOUBT_AT: usize = HEADER_BYTES - 8;
/// Most chunks: 2^19 records.
const MAX_CHUNKS: usize = 1024;
/// Most bytes of a journal.
pub(super) const MAX_BYTES: u64 = (MAX_CHUNKS * CHUNK_BYTES) as u64;

const MAGIC: [u8; 8] = *b"SWREMOVE";
const FORMAT: u32 = 1;
/// Bytes of the header that have a meaning, but for the doubt.
const FIELDS_BYTES: usize = 8 + 4 + 8 + 32 + 36 + 4;

/// The place of a record in this process's journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(u32);

/// What the header of a journal is to say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin<'a> {
    /// Uuid of the pool.
    pub(super) pool: &'a str,
    /// Id of this boot of the system.
    pub(super) boot: &'a str,
}

/// What a header says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PageHeader {
    /// Its maker was killed while making it.
    Unfinished,
    /// It is no journal, for this reason.
    Strange(&'static str),
    /// A journal of another pool, of this one before it was taken over, or a copy: it means nothing here.
    Foreign,
    /// A journal of this pool. `same_boot`: no name can have come back since.
    Own { same_boot: bool },
}

fn fields(origin: Origin<'_>, inode: u64) -> [u8; FIELDS_BYTES] {
    let mut bytes = [0; FIELDS_BYTES];
    let mut at = 0;
    let mut put = |field: &[u8], size: usize| {
        let field = &field[..field.len().min(size)];
        bytes[at..at + field.len()].copy_from_slice(field);
        at += size;
    };
    put(&MAGIC, 8);
    put(&FORMAT.to_be_bytes(), 4);
    put(&inode.to_be_bytes(), 8);
    put(origin.pool.as_bytes(), 32);
    put(origin.boot.as_bytes(), 36);
    let sum = crc32c::crc32c(&bytes[..FIELDS_BYTES - 4]);
    bytes[FIELDS_BYTES - 4..].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// Judges the first [`HEADER_BYTES`] of the file `inode`.
pub(super) fn judge(header: &[u8], origin: Origin<'_>, inode: u64) -> PageHeader {
    if header.iter().all(|byte| *byte == 0) {
        return PageHeader::Unfinished;
    }
    if header.len() < HEADER_BYTES {
        return PageHeader::Strange("it is too short");
    }
    let found = &header[..FIELDS_BYTES];
    let sum = crc32c::crc32c(&found[..FIELDS_BYTES - 4]).to_be_bytes();
    if found[..8] != MAGIC || found[FIELDS_BYTES - 4..] != sum {
        return PageHeader::Strange("its header is damaged, or it is no journal");
    }
    if found[8..12] != FORMAT.to_be_bytes() {
        return PageHeader::Strange("a later release wrote it");
    }
    let mine = fields(origin, inode);
    if found[12..52] != mine[12..52] {
        return PageHeader::Foreign;
    }
    let doubt = header[DOUBT_AT..].iter().any(|byte| *byte != 0);
    PageHeader::Own { same_boot: found[52..88] == mine[52..88] && !doubt }
}

/// Reads the records in `bytes`, which begin with one.
pub(super) fn records(bytes: &[u8]) -> impl Iterator<Item = StoredRecord> + '_ {
    bytes.chunks_exact(BYTES).map(|record| {
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(record.as_chunks().0) {
            *word = u64::from_be_bytes(*bytes);
        }
        decode(&words)
    })
}

/// The file of this process.
#[derive(Debug)]
pub(super) struct JournalPages {
    file: Arc<OwnedFd>,
    name: String,
    chunks: Vec<SharedPage<[AtomicU64; CHUNK_BYTES / 8]>>,
    free: Vec<Slot>,
    /// It takes no more records: its process ends.
    ended: bool,
}

/// How often a name is tried that another process has, or takes for that of a dead one before it is locked.
const TRIES: u32 = 100;

impl JournalPages {
    /// Makes the file in `directory`, locked.
    ///
    /// # Errors
    /// Those of the calls; the disk is full.
    pub(super) fn make(directory: BorrowedFd<'_>, origin: Origin<'_>) -> rustix::io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for _ in 0..TRIES {
            let name = format!("{:016x}", u64::from_ne_bytes(crate::os::sys::random()));
            let file = match retry(|| rustix::fs::openat(directory, name.as_str(), flags, Mode::from_raw_mode(0o600))) {
                Err(Errno::EXIST) => continue,
                file => file?,
            };
            let discard = |errno| {
                // A file that is empty says nothing, should it stay.
                let _ = rustix::fs::unlinkat(directory, name.as_str(), AtFlags::empty());
                errno
            };
            match lock_byte(file.as_fd(), 0, libc::F_WRLCK, false) {
                Ok(()) => {}
                // A process that looks for journals of dead processes has it just now, and removes it.
                Err(Errno::AGAIN | Errno::ACCESS) => continue,
                Err(errno) => return Err(discard(errno)),
            }
            let stat = rustix::fs::fstat(&file).map_err(discard)?;
            if stat.st_nlink == 0 {
                // The same, a moment earlier.
                continue;
            }
            let mut pages = Self { file: Arc::new(file), name, chunks: Vec::new(), free: Vec::new(), ended: false };
            let made = pages.grow().and_then(|()| {
                let header = fields(origin, stat.st_ino);
                match retry(|| rustix::io::pwrite(&pages.file, &header, 0))? {
                    FIELDS_BYTES => Ok(()),
                    _ => Err(Errno::IO),
                }
            });
            if made.is_err() {
                pages.remove(directory);
            }
            return made.map(|()| pages);
        }
        Err(Errno::EXIST)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn grow(&mut self) -> rustix::io::Result<()> {
        let number = self.chunks.len();
        if number >= MAX_CHUNKS {
            return Err(Errno::FBIG);
        }
        let file = self.file.as_fd();
        allocate(file, ((number + 1) * CHUNK_BYTES) as u64)?;
        let chunk = SharedPage::map(file, (number * CHUNK_BYTES) as u64, ProtFlags::READ | ProtFlags::WRITE)?;
        self.chunks.push(chunk);
        let header = if number == 0 { HEADER_BYTES / BYTES } else { 0 };
        self.free.extend((header..CHUNK).rev().map(|place| Slot((number * CHUNK + place) as u32)));
        Ok(())
    }

    fn words(&self, slot: Slot) -> &[AtomicU64] {
        let place = slot.0 as usize % CHUNK * WORDS;
        &self.chunks[slot.0 as usize / CHUNK][place..place + WORDS]
    }

    /// Writes a record: 16 stores, and a system call or two for each 512 records more than there ever were at once.
    /// `None`: there is no room.
    pub(super) fn put(&mut self, state: RemovalState, gone: &Gone) -> Option<Slot> {
        if self.ended || self.free.is_empty() && self.grow().is_err() {
            return None;
        }
        let slot = self.free.pop()?;
        let (record, words) = (encode(state, gone), self.words(slot));
        for (word, value) in words.iter().zip(record).skip(1) {
            word.store(value.to_be(), Ordering::Relaxed);
        }
        // The first word makes it valid, so it comes last.
        fence(Ordering::Release);
        words[0].store(record[0].to_be(), Ordering::Release);
        Some(slot)
    }

    fn read(&self, slot: Slot) -> [u64; WORDS] {
        let words = self.words(slot);
        std::array::from_fn(|index| u64::from_be(words[index].load(Ordering::Acquire)))
    }

    /// What stands in `slot`.
    pub(super) fn get(&self, slot: Slot) -> StoredRecord {
        decode(&self.read(slot))
    }

    /// Gives the record in `slot` another state.
    pub(super) fn set(&self, slot: Slot, state: RemovalState) {
        self.words(slot)[0].store(in_state(&self.read(slot), state).to_be(), Ordering::Release);
    }

    /// Takes a record back.
    pub(super) fn clear(&mut self, slot: Slot) {
        self.words(slot)[0].store(0, Ordering::Release);
        self.free.push(slot);
    }

    /// Notes that a sync has failed.
    pub(super) fn doubt(&self) {
        if let Some(first) = self.chunks.first() {
            first[DOUBT_AT / 8].store(u64::MAX, Ordering::Release);
        }
    }

    /// Whether there is no record.
    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == (self.chunks.len() * CHUNK).saturating_sub(HEADER_BYTES / BYTES)
    }

    /// The file, to be synced while others write records.
    pub(super) fn file(&self) -> Arc<OwnedFd> {
        self.file.clone()
    }

    /// Takes no more records, and removes the file if it has none.
    pub(super) fn end(&mut self, directory: BorrowedFd<'_>) {
        self.ended = true;
        if self.is_empty() {
            self.remove(directory);
        }
    }

    fn remove(&self, directory: BorrowedFd<'_>) {
        // What stays is found empty, and removed, by the next mount.
        let _ = rustix::fs::unlinkat(directory, self.name.as_str(), AtFlags::empty());
    }
}

/// Opens the directory of journals of the pool of `store`, and makes it where there is none.
pub(super) fn directory(store: &Store) -> Result<OwnedFd> {
    let path = store.pool().namespace.join(REMOVALS);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || retry(|| rustix::fs::open(&path, flags, Mode::empty()));
    let opened = match open() {
        Err(Errno::NOENT) => {
            make_directory(&path, store.plane().is_shared(), 0o700, 0o1777)?;
            open()
        }
        opened => opened,
    };
    opened.map_err(Error::io("open", &path))
}
