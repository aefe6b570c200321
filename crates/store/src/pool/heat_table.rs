//! Heat on disk: what accesses to each block of each file have cost, in a file that all processes of the pool on this machine map.
//! Where several machines see the namespace each has one of its own, and who asks for heat adds them up.
//!
//! ```text
//! page 0     header: magic, block size, period, when counters are halved next, pages in use, updates that found no room
//! directory  entries of two words: the file, and the part of it (1024 blocks) with the page of its counters; an entry that was given up
//!            has the page of counters alone, until another part takes it
//! segments   1 MiB each, as many as are needed: pages of 1024 counters of 4 bytes
//! ```
//! An update takes no lock and allocates nothing but a new part's page: it finds the part by hash, and adds to its counters, which
//! stop at their greatest value (Song et al., the online approach; `c <- c / 2` each period). With blocks of 4 KiB a counter is
//! 0.1 % of its block. The file holds 64 MiB of counters.
//!
//! Parts whose counters have all come to 0 are given up when counters are halved. A new part that finds no room has the coldest quarter
//! given up, once in an eighth of a period. An update that has just found a part which is given up meanwhile is lost, or heats the part
//! that comes next there by that one request.

use crate::os::error::{Error, Result};
use crate::os::shared_pages::{SharedPage, allocate};
use crate::os::sync::mapped::AtomicU32;
use crate::os::sys::{is_local, open_or_make, read_file_at, retry};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Name of the file in the namespace; with a dot and the machine's name behind it where several machines see the namespace.
pub const HEAT_FILE: &str = "heat";
/// Longest name of a machine in that of its file.
const NODE_NAME_BYTES: usize = 64;
/// Counters of a page: the blocks of one part of a file.
const PART: u64 = 1024;
const PAGES_OF_SEGMENT: usize = 256;
const SEGMENTS: usize = 64;
/// Parts of files that there is room for.
const MAX_PAGES: u64 = (PAGES_OF_SEGMENT * SEGMENTS) as u64;
const ENTRIES: usize = 1 << 15;
/// Entries that are looked at for a part.
const PROBES: usize = 64;
const MAGIC: u64 = 0x5357_4845_4154_3031;
const HEADER_BYTES: u64 = 4096;
const SEGMENT_BYTES: u64 = PAGES_OF_SEGMENT as u64 * PART * 4;
const DIRECTORY_BYTES: u64 = (ENTRIES * 16) as u64;

type Header = [AtomicU64; 512];
type Directory = [[AtomicU64; 2]; ENTRIES];
type Segment = [[AtomicU32; PART as usize]; PAGES_OF_SEGMENT];

/// Words of the header.
const BLOCK: usize = 1;
const PERIOD: usize = 2;
const NEXT_HALVING: usize = 3;
const USED: usize = 4;
const MISSED: usize = 5;
const UUID: usize = 6;
/// Pages that were given up, or a few less or more where a process was killed over one.
const FREE: usize = 8;
/// When room may be made next, in seconds since the epoch.
const NEXT_ROOM: usize = 9;
/// The entry of the directory where the last page that was given up was found.
const CURSOR: usize = 10;

/// The owner of entries that were given up: no file has this handle.
const GIVEN_UP: u64 = u64::MAX;
/// In the place of an entry: its page is nothing's. Parts have numbers below.
const IS_FREE: u64 = 1 << 63;
/// Which part of the entries is given up at once where there is no room: the coldest quarter.
const ROOM_MADE: usize = 4;
/// Parts of a period after which room may be made again.
const ROOM_PERIODS: u64 = 8;

/// How heat is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeatConfig {
    /// Size of a block in bytes: a power of two.
    pub block_bytes: u64,
    /// Seconds after which all counters are halved.
    pub period_s: u64,
}

/// The counters of a part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeatPart {
    /// The file: its logical handle, or its inode number where it has none.
    pub file: u64,
    /// Its first block.
    pub first_block: u64,
    /// Cost of accesses to each block in microseconds; of the last blocks that have none nothing stands here.
    pub costs_us: Vec<u32>,
}

impl HeatPart {
    /// Part `number` of a file, if any of its blocks has heat.
    fn of(file: u64, number: u64, mut costs_us: Vec<u32>) -> Option<Self> {
        costs_us.truncate(costs_us.iter().rposition(|cost| *cost > 0)? + 1);
        Some(Self { file, first_block: number.saturating_mul(PART), costs_us })
    }
}

/// The mapped file.
#[derive(Debug)]
pub(crate) struct HeatTable {
    file: OwnedFd,
    header: SharedPage<Header>,
    directory: SharedPage<Directory>,
    segments: [OnceLock<Option<SharedPage<Segment>>>; SEGMENTS],
    block_shift: u32,
}

/// An entry of the directory that is a part's.
struct Taken<'a> {
    index: usize,
    file: u64,
    /// The number of the part, and of its page.
    place: u64,
    counters: &'a [AtomicU32; PART as usize],
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn uuid_words(uuid: &str) -> [u64; 2] {
    let number = u128::from_str_radix(uuid, 16).unwrap_or(0);
    [(number >> 64) as u64, number as u64]
}

impl HeatTable {
    /// Opens the file of the pool of that uuid, or makes it. What is not such a file, or was kept with other blocks or for another
    /// pool, is dropped.
    ///
    /// # Errors
    /// The file cannot be made or mapped; another process keeps heat with another block size.
    pub(crate) fn open(namespace: &Path, uuid: &str, config: HeatConfig) -> Result<Self> {
        Self::open_file(&namespace.join(own_name(namespace)), uuid, config)
    }

    fn open_file(path: &Path, uuid: &str, config: HeatConfig) -> Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = open_or_make(path, flags, Mode::from_raw_mode(0o600));
        let file = file.map_err(Error::io("open", path))?;
        let alone = match retry(|| rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => true,
            Err(Errno::WOULDBLOCK) => false,
            Err(errno) => return Err(Error::io("lock", path)(errno)),
        };
        if !alone {
            // One that has it alone makes it whole first.
            retry(|| rustix::fs::flock(&file, FlockOperation::LockShared)).map_err(Error::io("lock", path))?;
        }
        let mut table = Self::map(file, config).map_err(Error::io("map", path))?;
        if table.fits(uuid, config) {
            if alone && !table.has_room() {
                table = table.thinned(uuid, config).map_err(Error::io("map", path))?;
            }
        } else if alone {
            table = table.anew(uuid, config).map_err(Error::io("map", path))?;
        } else {
            return Err(Error::Invalid(format!(
                "{} is in use with other blocks than [heat] of the pool file says: end the other mounts of the pool first",
                path.display()
            )));
        }
        retry(|| rustix::fs::flock(&table.file, FlockOperation::LockShared)).map_err(Error::io("lock", path))?;
        Ok(table)
    }

    fn map(file: OwnedFd, config: HeatConfig) -> rustix::io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        allocate(file.as_fd(), HEADER_BYTES + DIRECTORY_BYTES)?;
        let header = SharedPage::map(file.as_fd(), 0, access)?;
        let directory = SharedPage::map(file.as_fd(), HEADER_BYTES, access)?;
        let segments = [const { OnceLock::new() }; SEGMENTS];
        Ok(Self { file, header, directory, segments, block_shift: config.block_bytes.trailing_zeros() })
    }

    /// Whether the file is one of this pool with such blocks. Its period may change.
    fn fits(&self, uuid: &str, config: HeatConfig) -> bool {
        let is = |word: usize, value: u64| self.header[word].load(Ordering::Acquire) == value;
        let [high, low] = uuid_words(uuid);
        let own = is(0, MAGIC) && is(BLOCK, config.block_bytes) && is(UUID, high) && is(UUID + 1, low);
        if own {
            self.header[PERIOD].store(config.period_s.max(1), Ordering::Relaxed);
        }
        own
    }

    /// The file emptied. Only for a process that has it alone.
    fn anew(self, uuid: &str, config: HeatConfig) -> rustix::io::Result<Self> {
        let Self { file, .. } = self;
        rustix::fs::ftruncate(&file, 0)?;
        let table = Self::map(file, config)?;
        let [high, low] = uuid_words(uuid);
        let period_s = config.period_s.max(1);
        let words = [(BLOCK, config.block_bytes), (PERIOD, period_s), (NEXT_HALVING, now_s() + period_s)];
        for (word, value) in words.into_iter().chain([(UUID, high), (UUID + 1, low), (0, MAGIC)]) {
            table.header[word].store(value, Ordering::Release);
        }
        Ok(table)
    }

    /// The hottest half of it in a file emptied before.
    fn thinned(self, uuid: &str, config: HeatConfig) -> rustix::io::Result<Self> {
        let mut parts = self.parts();
        let sum = |part: &HeatPart| part.costs_us.iter().map(|&cost| u64::from(cost)).sum::<u64>();
        parts.sort_by_key(|part| std::cmp::Reverse(sum(part)));
        parts.truncate(MAX_PAGES as usize / 2);
        let table = self.anew(uuid, config)?;
        for part in &parts {
            for (block, &cost_us) in (part.first_block..).zip(&part.costs_us).filter(|(_, cost)| **cost > 0) {
                table.add(part.file, (block << table.block_shift, (block + 1) << table.block_shift), cost_us);
            }
        }
        Ok(table)
    }

    /// Adds `cost_us` to the blocks of the bytes `[from, to)` of a file, to each an equal part of it, at least 1. Some 20 ns for a
    /// range in one block (`cargo bench -p stripewise-store --bench heat`); two loads and one addition in shared memory.
    #[inline]
    pub(crate) fn add(&self, file: u64, (from, to): (u64, u64), cost_us: u32) {
        let (mut block, last) = (from >> self.block_shift, to.saturating_sub(1).max(from) >> self.block_shift);
        let each_us = (u64::from(cost_us) / (last - block + 1)).clamp(1, u64::from(u32::MAX)) as u32;
        while block <= last {
            let end = last.min(block | (PART - 1));
            match self.page(file, block / PART) {
                Some(page) => {
                    for counter in &page[(block % PART) as usize..=(end % PART) as usize] {
                        add_saturating(counter, each_us);
                    }
                }
                None => {
                    self.header[MISSED].fetch_add(1, Ordering::Relaxed);
                }
            }
            block = end + 1;
        }
    }

    /// The counters of a part; made where there are none and there is room.
    #[inline]
    fn page(&self, file: u64, part: u64) -> Option<&[AtomicU32; PART as usize]> {
        let first = (file ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xff51_afd7_ed55_8ccd) >> 32;
        for probe in 0..PROBES {
            let [owner, place] = &self.directory[(first as usize + probe) % ENTRIES];
            match owner.load(Ordering::Acquire) {
                found if found == file => {
                    let place = place.load(Ordering::Acquire);
                    // 0: a process is just taking the entry, or was killed over it.
                    if place != 0 && place >> 16 == part {
                        return self.page_at((place & 0xffff) - 1);
                    }
                }
                0 => break,
                _ => {}
            }
        }
        self.take(first as usize, file, part)
    }

    /// The counters of a part that has none yet, if there is room. O(probes), and O(entries) where the page of another part is taken.
    #[cold]
    fn take(&self, first: usize, file: u64, part: u64) -> Option<&[AtomicU32; PART as usize]> {
        if part >> 47 != 0 || file == GIVEN_UP || !(self.has_room() || self.make_room_if_due()) {
            return None;
        }
        let entries = (0..PROBES).map(|probe| &self.directory[(first + probe) % ENTRIES]);
        let free = |[owner, _]: &&[AtomicU64; 2]| matches!(owner.load(Ordering::Acquire), 0 | GIVEN_UP);
        let [owner, place] = entries.into_iter().find(free)?;
        let before = owner.load(Ordering::Acquire);
        if !matches!(before, 0 | GIVEN_UP) {
            return None;
        }
        // Another one's that was quicker: this update is lost, the next finds it.
        owner.compare_exchange(before, file, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        // The page that was given up with the entry, unless another part has taken it.
        let kept = place.swap(0, Ordering::AcqRel);
        let own = if kept & IS_FREE != 0 { (kept & 0xffff).checked_sub(1) } else { None };
        if own.is_some() {
            self.count_free(-1);
        }
        let Some((page, counters)) =
            own.or_else(|| self.free_page()).and_then(|page| Some((page, self.page_at(page)?)))
        else {
            owner.store(GIVEN_UP, Ordering::Release);
            return None;
        };
        counters.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
        place.store(part << 16 | (page + 1), Ordering::Release);
        Some(counters)
    }

    fn has_room(&self) -> bool {
        self.header[USED].load(Ordering::Relaxed) < MAX_PAGES || self.header[FREE].load(Ordering::Relaxed) > 0
    }

    fn count_free(&self, change: i64) {
        let changed = |free: u64| Some(free.saturating_add_signed(change));
        let _ = self.header[FREE].fetch_update(Ordering::AcqRel, Ordering::Relaxed, changed);
    }

    /// A page that is nothing's: one that was never used, or one that was given up.
    fn free_page(&self) -> Option<u64> {
        if self.header[USED].load(Ordering::Relaxed) < MAX_PAGES {
            let page = self.header[USED].fetch_add(1, Ordering::AcqRel);
            if page < MAX_PAGES {
                return Some(page);
            }
        }
        let from = self.header[CURSOR].load(Ordering::Relaxed) as usize % ENTRIES;
        for index in (0..ENTRIES).map(|step| (from + step) % ENTRIES) {
            let place = &self.directory[index][1];
            let found = place.load(Ordering::Acquire);
            if found & IS_FREE != 0 && place.compare_exchange(found, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                self.header[CURSOR].store(index as u64, Ordering::Relaxed);
                self.count_free(-1);
                return (found & 0xffff).checked_sub(1);
            }
        }
        // What a process was killed over is not looked for again.
        self.header[FREE].store(0, Ordering::Relaxed);
        None
    }

    /// The entries that are a part's.
    fn taken(&self) -> impl Iterator<Item = Taken<'_>> {
        let entry = |(index, [owner, place]): (usize, &[AtomicU64; 2])| {
            let (owner, place) = (owner.load(Ordering::Acquire), place.load(Ordering::Acquire));
            if matches!(owner, 0 | GIVEN_UP) || place & IS_FREE != 0 {
                return None;
            }
            let counters = self.page_at((place & 0xffff).checked_sub(1)?)?;
            Some(Taken { index, file: owner, place, counters })
        };
        self.directory.iter().enumerate().filter_map(entry)
    }

    /// Gives up the entry `index`, if `place` still stands there. In this order: a page is free before its entry is.
    fn give_up(&self, index: usize, place: u64) {
        let [owner, of] = &self.directory[index];
        let freed = IS_FREE | (place & 0xffff);
        if of.compare_exchange(place, freed, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            owner.store(GIVEN_UP, Ordering::Release);
            self.count_free(1);
        }
    }

    /// Where the table is full, and it was not just done: has the coldest parts given up. Whether there is room then. One process does
    /// it; O(counters), some 20 ms of a full table.
    fn make_room_if_due(&self) -> bool {
        let (next, now) = (self.header[NEXT_ROOM].load(Ordering::Acquire), now_s());
        let after = now + (self.header[PERIOD].load(Ordering::Relaxed) / ROOM_PERIODS).max(1);
        // A clock that was set back is no reason to wait for long.
        let is_due = now >= next || next > after;
        let changed =
            is_due && self.header[NEXT_ROOM].compare_exchange(next, after, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !changed {
            return false;
        }
        let sum = |counters: &[AtomicU32; PART as usize]| {
            counters.iter().map(|counter| u64::from(counter.load(Ordering::Relaxed))).sum::<u64>()
        };
        let mut taken: Vec<(u64, usize, u64)> = self.taken().map(|of| (sum(of.counters), of.index, of.place)).collect();
        let spare = taken.len() / ROOM_MADE;
        if spare > 0 {
            taken.select_nth_unstable(spare - 1);
        }
        taken[..spare].iter().for_each(|&(_, index, place)| self.give_up(index, place));
        self.has_room()
    }

    /// A page by its number, which the file says: it is bounded here.
    #[inline]
    fn page_at(&self, page: u64) -> Option<&[AtomicU32; PART as usize]> {
        let segment = page as usize / PAGES_OF_SEGMENT;
        let mapped = self.segments.get(segment)?.get_or_init(|| self.map_segment(segment as u64).ok());
        Some(&mapped.as_ref()?[page as usize % PAGES_OF_SEGMENT])
    }

    #[cold]
    fn map_segment(&self, segment: u64) -> rustix::io::Result<SharedPage<Segment>> {
        let offset = HEADER_BYTES + DIRECTORY_BYTES + segment * SEGMENT_BYTES;
        allocate(self.file.as_fd(), offset + SEGMENT_BYTES)?;
        SharedPage::map(self.file.as_fd(), offset, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Halves all counters once for each period that has gone by, if it is time. One process does it.
    pub(crate) fn halve_if_due(&self) {
        let (next, now) = (self.header[NEXT_HALVING].load(Ordering::Acquire), now_s());
        let period_s = self.header[PERIOD].load(Ordering::Relaxed).max(1);
        // A clock that was ahead, or a period that was longer, puts off no halving for longer than a period.
        let latest = now + period_s;
        if next > latest {
            let _ = self.header[NEXT_HALVING].compare_exchange(next, latest, Ordering::AcqRel, Ordering::Relaxed);
        }
        if now < next {
            return;
        }
        let periods = (now - next) / period_s + 1;
        let after = next + periods * period_s;
        if self.header[NEXT_HALVING].compare_exchange(next, after, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return;
        }
        let halves = periods.min(31);
        for Taken { index, place, counters, .. } in self.taken() {
            let mut left = 0;
            for counter in counters {
                let cost = counter.load(Ordering::Relaxed);
                if cost > 0 {
                    counter.fetch_sub(cost - (cost >> halves), Ordering::Relaxed);
                    left |= cost >> halves;
                }
            }
            if left == 0 {
                self.give_up(index, place);
            }
        }
        let is_free = |[_, place]: &&[AtomicU64; 2]| place.load(Ordering::Relaxed) & IS_FREE != 0;
        self.header[FREE].store(self.directory.iter().filter(is_free).count() as u64, Ordering::Relaxed);
        let missed = self.header[MISSED].load(Ordering::Relaxed);
        self.header[MISSED].fetch_sub(missed - (missed >> halves), Ordering::Relaxed);
    }

    /// Bytes of a block.
    pub(crate) fn block_bytes(&self) -> u64 {
        self.header[BLOCK].load(Ordering::Relaxed)
    }

    /// Seconds after which all counters are halved, and when that is due next, in seconds since the epoch.
    pub(crate) fn halving(&self) -> (u64, u64) {
        (self.header[PERIOD].load(Ordering::Relaxed), self.header[NEXT_HALVING].load(Ordering::Acquire))
    }

    /// All parts of files that have heat.
    pub(crate) fn parts(&self) -> Vec<HeatPart> {
        let mut parts = Vec::new();
        for Taken { file, place, counters, .. } in self.taken() {
            let costs_us = counters.iter().map(|counter| counter.load(Ordering::Relaxed)).collect();
            parts.extend(HeatPart::of(file, place >> 16, costs_us));
        }
        parts.sort_by_key(|part| (part.file, part.first_block));
        parts
    }

    /// Updates that found no room of late: half of them are forgotten each period.
    pub(crate) fn missed(&self) -> u64 {
        self.header[MISSED].load(Ordering::Relaxed)
    }
}

/// The name of this machine's file in `namespace`.
fn own_name(namespace: &Path) -> String {
    let directory = rustix::fs::open(namespace, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    // One that is not there is told of when the file is opened.
    if directory.map_or(true, is_local) {
        return HEAT_FILE.to_owned();
    }
    let system = rustix::system::uname();
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    let name = system.nodename().to_string_lossy();
    let node = name.chars().map(|character| if is_plain(character) { character } else { '_' });
    format!("{HEAT_FILE}.{}", node.take(NODE_NAME_BYTES).collect::<String>())
}

/// The heat that other machines have kept in `namespace`, as of now: a machine that does nothing halves nothing. What is no such file, or
/// was kept with other blocks or for another pool, has none. What a machine has added may be half a minute on its way. O(their bytes).
pub(crate) fn parts_of_others(namespace: &Path, uuid: &str, config: HeatConfig) -> Vec<HeatPart> {
    let own = own_name(namespace);
    let Ok(directory) =
        rustix::fs::open(namespace, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    else {
        return Vec::new();
    };
    let names = rustix::fs::Dir::read_from(&directory).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
    let is_others = |name: &String| {
        let is_heat = name.strip_prefix(HEAT_FILE).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        is_heat && *name != own
    };
    let most_bytes = HEADER_BYTES + DIRECTORY_BYTES + SEGMENTS as u64 * SEGMENT_BYTES;
    let read = |name: String| read_file_at(&directory, name.as_str(), most_bytes as usize).ok();
    let of_all = names.filter(is_others).filter_map(read).flat_map(|bytes| parts_in(&bytes, uuid, config));
    let mut parts: Vec<HeatPart> = of_all.collect();
    parts.sort_by_key(|part| (part.file, part.first_block));
    parts
}

/// The parts in the bytes of a machine's file, all of which may be anything.
fn parts_in(bytes: &[u8], uuid: &str, config: HeatConfig) -> Vec<HeatPart> {
    let word =
        |at: usize| bytes.get(at..at + 8).map_or(0, |word| u64::from_ne_bytes(word.try_into().expect("8 bytes")));
    let [high, low] = uuid_words(uuid);
    let expected = [(0, MAGIC), (BLOCK, config.block_bytes), (UUID, high), (UUID + 1, low)];
    if expected.into_iter().any(|(at, value)| word(8 * at) != value) {
        return Vec::new();
    }
    let (next, period_s) = (word(8 * NEXT_HALVING), word(8 * PERIOD).max(1));
    let periods = now_s().checked_sub(next).map_or(0, |over| over / period_s + 1).min(31);
    let entry = |at: usize| {
        let at = HEADER_BYTES as usize + 16 * at;
        let (file, place) = (word(at), word(at + 8));
        if file == GIVEN_UP || place & IS_FREE != 0 {
            return None;
        }
        let page = (place & 0xffff).checked_sub(1)? as usize;
        let begin = (HEADER_BYTES + DIRECTORY_BYTES) as usize + page * PART as usize * 4;
        let counters = bytes.get(begin..begin + PART as usize * 4)?;
        let cost = |counter: &[u8]| u32::from_ne_bytes(counter.try_into().expect("4 bytes")) >> periods;
        HeatPart::of(file, place >> 16, counters.chunks_exact(4).map(cost).collect())
    };
    (0..ENTRIES).filter_map(entry).collect()
}

/// Adds, and stops at the greatest value.
#[inline]
fn add_saturating(counter: &AtomicU32, value: u32) {
    if counter.fetch_add(value, Ordering::Relaxed).checked_add(value).is_none() {
        counter.store(u32::MAX, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: HeatConfig = HeatConfig { block_bytes: 4096, period_s: 1000 };
    const UUID_TEXT: &str = "000102030405060708090a0b0c0d0e0f";

    fn open(directory: &Path) -> HeatTable {
        HeatTable::open(directory, UUID_TEXT, CONFIG).unwrap()
    }

    fn part(file: u64, first_block: u64, costs_us: &[u32]) -> HeatPart {
        HeatPart { file, first_block, costs_us: costs_us.to_vec() }
    }

    #[test]
    fn two_processes_add_to_the_same_blocks_and_it_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (one, two) = (open(directory.path()), open(directory.path()));
        one.add(7, (0, 4096), 10);
        two.add(7, (4095, 8192), 10);
        two.add(7, (1024 * 4096, 1024 * 4096 + 1), 3);
        one.add(9, (100, 100), 1);
        let expected = [part(7, 0, &[15, 5]), part(7, 1024, &[3]), part(9, 0, &[1])];
        assert_eq!(two.parts(), expected);
        drop((one, two));
        assert_eq!(open(directory.path()).parts(), expected);
    }

    #[test]
    fn a_clock_that_was_ahead_and_a_period_that_gets_shorter_put_off_no_halving() {
        let directory = tempfile::tempdir().unwrap();
        let table = open(directory.path());
        let next = || table.header[NEXT_HALVING].load(Ordering::Relaxed);
        table.header[NEXT_HALVING].store(now_s() + 315_360_000, Ordering::Relaxed);
        table.halve_if_due();
        assert!(next() <= now_s() + CONFIG.period_s, "{}", next());
        let shorter = HeatConfig { period_s: 10, ..CONFIG };
        HeatTable::open(directory.path(), UUID_TEXT, shorter).unwrap().halve_if_due();
        assert!(next() <= now_s() + 10, "{}", next());
    }

    #[test]
    fn counters_stop_at_their_greatest_value_and_are_halved() {
        let directory = tempfile::tempdir().unwrap();
        let table = open(directory.path());
        table.add(1, (0, 1), u32::MAX - 1);
        table.add(1, (0, 1), 5);
        table.add(1, (4096, 4097), 9);
        assert_eq!(table.parts(), [part(1, 0, &[u32::MAX, 9])]);
        table.halve_if_due();
        assert_eq!(table.parts(), [part(1, 0, &[u32::MAX, 9])], "it is not time");
        table.header[NEXT_HALVING].store(now_s() - 1500, Ordering::Relaxed);
        table.halve_if_due();
        assert_eq!(table.parts(), [part(1, 0, &[u32::MAX >> 2, 2])], "two periods have gone by");
    }

    #[test]
    fn heat_of_another_pool_or_of_other_blocks_is_dropped_and_so_is_what_is_no_heat() {
        let directory = tempfile::tempdir().unwrap();
        open(directory.path()).add(7, (0, 1), 10);
        let other = HeatConfig { block_bytes: 8192, ..CONFIG };
        assert_eq!(HeatTable::open(directory.path(), UUID_TEXT, other).unwrap().parts(), []);
        let kept = open(directory.path());
        kept.add(7, (0, 1), 10);
        assert!(HeatTable::open(directory.path(), UUID_TEXT, other).is_err(), "another process has it");
        drop(kept);
        assert_eq!(HeatTable::open(directory.path(), "ff", CONFIG).unwrap().parts(), []);
        std::fs::write(directory.path().join(HEAT_FILE), [0x5a; 9000]).unwrap();
        assert_eq!(open(directory.path()).parts(), []);
        // A directory whose words are anything leads nowhere else.
        let table = open(directory.path());
        for [owner, place] in table.directory.iter() {
            owner.store(3, Ordering::Relaxed);
            place.store(u64::MAX, Ordering::Relaxed);
        }
        assert_eq!(table.parts(), []);
        table.add(3, (0, 1), 1);
        assert_eq!(table.missed(), 1);
    }

    #[test]
    fn what_other_machines_have_kept_is_added_as_of_now() {
        let directory = tempfile::tempdir().unwrap();
        let others = || parts_of_others(directory.path(), UUID_TEXT, CONFIG);
        let file = |name: &str| directory.path().join(name);
        let own = open(directory.path());
        own.add(7, (0, 1), 10);
        assert_eq!(others(), [], "its own is none of another");
        let other = HeatTable::open_file(&file("heat.other"), UUID_TEXT, CONFIG).unwrap();
        other.add(7, (4096, 4097), 12);
        other.add(8, (1025 * 4096, 1025 * 4096 + 1), 3);
        assert_eq!(others(), [part(7, 0, &[0, 12]), part(8, 1024, &[0, 3])]);
        other.header[NEXT_HALVING].store(now_s() - 1500, Ordering::Relaxed);
        assert_eq!(others(), [part(7, 0, &[0, 3])], "two periods in which it did nothing");
        other.header[NEXT_HALVING].store(0, Ordering::Relaxed);
        assert_eq!(others(), [], "all of it has cooled");
    }

    #[test]
    fn a_file_of_another_machine_is_not_trusted() {
        let directory = tempfile::tempdir().unwrap();
        let others = || parts_of_others(directory.path(), UUID_TEXT, CONFIG);
        let path = directory.path().join("heat.other");
        let other = HeatTable::open_file(&path, UUID_TEXT, CONFIG).unwrap();
        other.add(7, (0, 1), 12);
        let whole = std::fs::read(&path).unwrap();
        for length in [0, 7, 100, 4096, 4100, DIRECTORY_BYTES as usize, whole.len() - 1] {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(others().len() <= 1, "{length}");
        }
        std::fs::write(&path, &whole).unwrap();
        assert_eq!(others(), [part(7, 0, &[12])]);
        for at in [0, 8 * BLOCK, 8 * UUID] {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(others(), [], "{at}");
        }
        let mut wild = whole;
        wild[HEADER_BYTES as usize..(HEADER_BYTES + DIRECTORY_BYTES) as usize].fill(0xff);
        std::fs::write(&path, wild).unwrap();
        assert_eq!(others(), []);
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert_eq!(others(), []);
    }

    /// Fills the table: files `from` and on, one block each, which cost `cost_us`.
    fn fill(table: &HeatTable, files: std::ops::Range<u64>, cost_us: u32) {
        files.for_each(|file| table.add(file, (0, 1), cost_us));
    }

    const FULL: u64 = MAX_PAGES;

    #[test]
    fn the_coldest_give_their_place_to_what_comes_while_the_table_is_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let table = open(directory.path());
        let (made, cold) = (FULL / ROOM_MADE as u64, FULL / 2);
        fill(&table, 1..FULL - cold + 1, 1000);
        fill(&table, FULL - cold + 1..FULL + 1, 10);
        assert_eq!((table.parts().len() as u64, table.missed()), (FULL, 0));
        // As many as the coldest quarter come at once; the next has to wait.
        fill(&table, FULL + 1..FULL + made + 2, 5);
        let parts = table.parts();
        assert_eq!((parts.len() as u64, table.missed()), (FULL, 1));
        let has = |file: u64| parts.binary_search_by_key(&file, |part| part.file).is_ok();
        assert!((1..FULL - cold + 1).all(has), "what is hot stays");
        assert!((FULL + 1..FULL + made + 1).all(has) && !has(FULL + made + 1));
        assert_eq!((FULL - cold + 1..FULL + 1).filter(|&file| has(file)).count() as u64, cold - made);
        assert!(parts.iter().all(|part| part.costs_us.len() == 1 && [1000, 10, 5].contains(&part.costs_us[0])));
        table.header[NEXT_ROOM].store(now_s(), Ordering::Relaxed);
        table.add(FULL + made + 1, (0, 1), 7);
        assert!(
            table
                .parts()
                .iter()
                .any(|part| *part == HeatPart { file: FULL + made + 1, first_block: 0, costs_us: vec![7] })
        );
        // Another process sees the same.
        assert_eq!(open(directory.path()).parts(), table.parts());
    }

    #[test]
    fn what_has_cooled_gives_its_place_when_counters_are_halved() {
        let directory = tempfile::tempdir().unwrap();
        let table = open(directory.path());
        table.header[NEXT_ROOM].store(now_s() + 100, Ordering::Relaxed);
        fill(&table, 1..FULL + 1, 3);
        fill(&table, 1..101, 5);
        fill(&table, FULL + 1..FULL + 11, 3);
        assert_eq!(table.missed(), 10);
        table.header[NEXT_HALVING].store(now_s() - 1500, Ordering::Relaxed);
        table.halve_if_due();
        assert_eq!(
            (table.parts().len(), table.missed()),
            (100, 2),
            "8 >> 2 is left of a hundred, nothing of the others"
        );
        // All of it can be filled again, by files of which the hundred are none.
        fill(&table, 2 * FULL..3 * FULL - 100, 9);
        let parts = table.parts();
        assert_eq!((parts.len() as u64, table.missed()), (FULL, 2));
        assert!(
            parts[..100].iter().all(|part| part.costs_us == [2])
                && parts[100..].iter().all(|part| part.costs_us == [9])
        );
    }

    /// Threads add parts without end, others give parts up meanwhile: no page is that of two parts, and what is hot is found.
    #[test]
    fn pages_have_one_part_each_while_parts_come_and_go() {
        let directory = tempfile::tempdir().unwrap();
        let tables = [open(directory.path()), open(directory.path())];
        fill(&tables[0], 1..101, 1_000_000);
        fill(&tables[0], 101..FULL, 1);
        std::thread::scope(|scope| {
            for (number, table) in (0..4).zip(tables.iter().cycle()) {
                scope.spawn(move || {
                    let from = (number + 1) << 32;
                    for file in from..from + FULL {
                        table.add(file, (0, 1), 1);
                        table.add(file, (1024 * 4096 * 3, 1024 * 4096 * 3 + 1), 1);
                        if file % 1000 == 0 {
                            table.header[NEXT_ROOM].store(0, Ordering::Relaxed);
                            table.make_room_if_due();
                        }
                    }
                });
            }
        });
        let mut pages: Vec<u64> = tables[0].taken().map(|of| of.place & 0xffff).collect();
        let free =
            |[_, place]: &[AtomicU64; 2]| Some(place.load(Ordering::Relaxed)).filter(|place| place & IS_FREE != 0);
        pages.extend(tables[0].directory.iter().filter_map(free).map(|place| place & 0xffff));
        let count = pages.len();
        pages.sort_unstable();
        pages.dedup();
        assert_eq!(pages.len(), count, "a page is that of two parts");
        assert_eq!(count as u64, FULL, "some are lost");
        let parts = tables[1].parts();
        assert_eq!(parts.iter().filter(|part| part.costs_us == [1_000_000]).count(), 100);
    }

    #[test]
    fn a_full_table_is_thinned_out_by_the_next_that_has_it_alone() {
        let directory = tempfile::tempdir().unwrap();
        let table = open(directory.path());
        table.add(1, (0, 1), 1000);
        table.add(2, (0, 1), 1);
        table.header[USED].store(MAX_PAGES, Ordering::Relaxed);
        table.header[NEXT_ROOM].store(now_s() + 100, Ordering::Relaxed);
        table.add(3, (0, 1), 1);
        table.add(1, (0, 1), 1);
        assert_eq!((table.missed(), table.parts().len()), (1, 2));
        drop(table);
        let table = open(directory.path());
        table.add(3, (0, 1), 1);
        assert_eq!(table.parts(), [part(1, 0, &[1001]), part(2, 0, &[1]), part(3, 0, &[1])]);
        assert_eq!(table.missed(), 0);
    }
}
