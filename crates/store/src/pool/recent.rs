//! The last requests of a pool that keeps heat, in a file that all its mounts on this machine map: who asked for what, one after the
//! other. Heat says where requests go, and not whether they follow each other, by which hints are chosen.
//!
//! ```text
//! entry 0    requests so far, magic, uuid of the pool
//! entries    4096 requests, the oldest is overwritten: file, offset, length and kind, time and thread
//! ```
//! An entry that is read while it is written may be of two requests, and of two requests that come at the same time one may be missing.
//! What is read says where more could be gained, and nothing else.

use crate::os::error::{Error, Result};
use crate::os::shared_pages::{SharedPage, allocate};
use crate::os::sys::open_or_make;
use crate::pool::namespace::{is_shared, namespace_uuid};
use crate::pool::pool_file::Pool;
use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags};
use rustix::mm::ProtFlags;
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use stripewise_layout::MAX_OFFSET;

/// Name of the file in the namespace.
const RECENT_FILE: &str = "recent.1";
const MAGIC: u64 = 0x5357_5245_4345_4e31;
const ENTRIES: usize = 4096;
/// Kinds, in the lowest bits of a length; 0: nothing was written there yet.
const READ: u64 = 1;
const WRITE: u64 = 2;

type Entry = [AtomicU64; 4];
type Entries = [Entry; ENTRIES + 1];

/// A request that was served of late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecentRequest {
    /// The file: its logical handle, or its inode number where it has none.
    pub file: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes asked for.
    pub len: u64,
    /// It is a write, else a read.
    pub is_write: bool,
    /// The thread that asked; 0: one of Stripewise itself, or the kernel.
    pub thread: u32,
    /// When, in milliseconds since some moment; it begins anew after 49 days.
    pub time_ms: u32,
}

/// The mapped file.
#[derive(Debug)]
pub(crate) struct RecentTable {
    entries: SharedPage<Entries>,
}

impl RecentTable {
    /// Opens the file of the pool of that uuid, or makes it. What is not such a file, or another pool's, is overwritten.
    ///
    /// # Errors
    /// The file cannot be made or mapped.
    pub(crate) fn open(namespace: &Path, uuid: &str) -> Result<Self> {
        let path = namespace.join(RECENT_FILE);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = open_or_make(&path, flags, Mode::from_raw_mode(0o600));
        let file = file.map_err(Error::io("open", &path))?;
        let mapped = || {
            allocate(file.as_fd(), size_of::<Entries>() as u64)?;
            SharedPage::map(file.as_fd(), 0, ProtFlags::READ | ProtFlags::WRITE)
        };
        let table = Self { entries: mapped().map_err(Error::io("map", &path))? };
        table.begin(u128::from_str_radix(uuid, 16).unwrap_or(0));
        Ok(table)
    }

    /// Forgets what is of no such file, or of another pool.
    fn begin(&self, uuid: u128) {
        let [_, magic, high, low] = &self.entries[0];
        let words = [(magic, MAGIC), (high, (uuid >> 64) as u64), (low, uuid as u64)];
        if words.iter().all(|(word, value)| word.load(Ordering::Acquire) == *value) {
            return;
        }
        self.entries.iter().flatten().for_each(|word| word.store(0, Ordering::Relaxed));
        words.iter().for_each(|(word, value)| word.store(*value, Ordering::Release));
    }

    /// Adds a request, and says how many were added before, by whichever process. A load and five stores to shared memory, and a look
    /// at a clock that the kernel keeps there: an atomic addition would take a third of the time of all that heat does for a request.
    /// So of two requests of the same nanoseconds one may be lost.
    #[inline]
    pub(crate) fn add(&self, file: u64, offset: u64, len: u64, is_write: bool, thread: u32) -> u64 {
        let so_far = &self.entries[0][0];
        let number = so_far.load(Ordering::Relaxed);
        so_far.store(number.wrapping_add(1), Ordering::Relaxed);
        let now = clock_gettime(ClockId::MonotonicCoarse);
        let time_ms = (now.tv_sec as u64).wrapping_mul(1000).wrapping_add(now.tv_nsec as u64 / 1_000_000);
        let entry = &self.entries[1 + number as usize % ENTRIES];
        let kind = if is_write { WRITE } else { READ };
        let words = [file, offset, len.min(MAX_OFFSET) << 2 | kind, time_ms << 32 | u64::from(thread)];
        entry.iter().zip(words).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        number
    }

    /// Those that are there, the oldest first. What cannot be a request is left out.
    fn requests(&self) -> Vec<RecentRequest> {
        let so_far = self.entries[0][0].load(Ordering::Acquire) as usize;
        let first = so_far.saturating_sub(ENTRIES);
        let entry = |number: usize| {
            let [file, offset, len, from] = &self.entries[1 + number % ENTRIES];
            let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
            let (offset, len, kind, from) = (word(offset), word(len) >> 2, word(len) & 3, word(from));
            let is_one = matches!(kind, READ | WRITE) && len > 0 && offset <= MAX_OFFSET && len <= MAX_OFFSET - offset;
            is_one.then(|| RecentRequest {
                file: word(file),
                offset,
                len,
                is_write: kind == WRITE,
                thread: from as u32,
                time_ms: (from >> 32) as u32,
            })
        };
        (first..so_far.min(first + ENTRIES)).filter_map(entry).collect()
    }
}

/// The last requests of a pool, 4,096 at most, the oldest first. None where it keeps no heat, and none of a pool of several users.
///
/// # Errors
/// Their file cannot be mapped.
pub fn recent_requests(pool: &Pool) -> Result<Vec<RecentRequest>> {
    if pool.heat.is_none() || is_shared(pool)? {
        return Ok(Vec::new());
    }
    Ok(RecentTable::open(&pool.namespace, &namespace_uuid(pool)?)?.requests())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID_TEXT: &str = "000102030405060708090a0b0c0d0e0f";

    fn open(directory: &Path) -> RecentTable {
        RecentTable::open(directory, UUID_TEXT).unwrap()
    }

    #[test]
    fn the_last_requests_of_all_mounts_are_there_in_their_order() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (open(directory.path()), open(directory.path()));
        assert_eq!(one.requests(), []);
        one.add(7, 4096, 100, false, 3);
        other.add(8, 0, 1 << 30, true, 0);
        let found = one.requests();
        let what = |of: &RecentRequest| (of.file, of.offset, of.len, of.is_write, of.thread);
        assert_eq!(found.iter().map(what).collect::<Vec<_>>(), [(7, 4096, 100, false, 3), (8, 0, 1 << 30, true, 0)]);
        assert!(found[1].time_ms.wrapping_sub(found[0].time_ms) < 1 << 31);
        for number in 0..2 * ENTRIES as u64 {
            one.add(9, number, 1, false, 0);
        }
        let offsets: Vec<u64> = other.requests().iter().map(|of| of.offset).collect();
        assert_eq!(offsets, (ENTRIES as u64..2 * ENTRIES as u64).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_of_another_pool_or_no_request_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        open(directory.path()).add(7, 4096, 100, false, 3);
        assert_eq!(RecentTable::open(directory.path(), "ff").unwrap().requests(), []);
        let table = open(directory.path());
        assert_eq!(table.requests(), []);
        table.entries.iter().skip(1).flatten().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
        table.entries[0][0].store(u64::MAX, Ordering::Relaxed);
        assert_eq!(table.requests(), []);
        table.add(7, MAX_OFFSET, u64::MAX, true, 3);
        table.add(7, 0, 0, true, 3);
        assert_eq!(table.requests(), []);
    }
}
