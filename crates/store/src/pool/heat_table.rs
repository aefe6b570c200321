//! Heat on disk: what accesses to each block of each file have cost, in a file that all processes of the pool on this machine map.
//! Where several machines see the namespace each has one of its own, and who asks for heat adds them up.
//!
//! ```text
//! page 0     header: magic, block size, period, when counters are halved next, updates that found no room
//! directory  entries of two words: the file, and the part of it (1024 blocks) with the unit of its counters; an entry that was given up
//!            waits for another part
//! units      of counters (`heat_units`)
//! ```
//! An update takes no lock and allocates nothing but a new part's unit: it finds the part by hash, and adds to its counters, which
//! stop at their greatest value (Song et al., the online approach; `c <- c / 2` each period). With blocks of 4 KiB a counter is
//! 0.1 % of its block. The units have at most 0.1 % of the bytes on the pool's disks, 1 MiB at least and 61 MiB at most.
//!
//! The first part of a file begins with a small unit, and gets one of twice as many counters when a block behind them has heat. The other
//! parts of a file have a whole page each: their file has four times its blocks at least.
//!
//! Parts whose counters have all come to 0 are given up when counters are halved. A new part that finds no room has the coldest quarter
//! of the pages given up, once in an eighth of a period. An update that has just found a part which is given up meanwhile, or gets
//! another unit, is lost, or heats the part that comes next there by that one request.

use crate::os::boot::boot_id;
use crate::os::error::{Error, Result};
use crate::os::room::Room;
use crate::os::shared_pages::{SharedPage, allocate};
use crate::os::sync::mapped::AtomicU32;
use crate::os::sys::{is_local, open_or_make, read_file_at, retry};
use crate::pool::heat_units::{HeatUnits, MOST_PAGES, PAGE, PAGE_BYTES, Unit, WORDS_BYTES};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Name of the file in the namespace; with a dot and the machine's name behind it where several machines see the namespace.
pub const HEAT_FILE: &str = "heat";
/// Longest name of a machine in that of its file.
const NODE_NAME_BYTES: usize = 64;
/// Blocks of one part of a file, for which there are counters in a page.
const PART: u64 = PAGE;
const ENTRIES: usize = 1 << 17;
/// Entries that are looked at for a part.
const PROBES: usize = 64;
const MAGIC: u64 = 0x5357_4845_4154_3032;
const HEADER_BYTES: u64 = 4096;
const DIRECTORY_BYTES: u64 = (ENTRIES * 16) as u64;
const UNITS_AT: u64 = HEADER_BYTES + DIRECTORY_BYTES;
const COUNTERS_AT: u64 = UNITS_AT + WORDS_BYTES;

type Header = [AtomicU64; 512];
type Directory = [[AtomicU64; 2]; ENTRIES];

/// Words of the header.
const BLOCK: usize = 1;
const PERIOD: usize = 2;
const NEXT_HALVING: usize = 3;
const MISSED: usize = 5;
const UUID: usize = 6;
/// When room may be made next, in seconds since the epoch.
const NEXT_ROOM: usize = 9;
/// The boot in which counters were halved or made last, and when they are halved next, in seconds since then.
const BOOT: usize = 10;
const NEXT_SINCE_BOOT: usize = 11;

/// The owner of entries that were given up: no file has this handle.
const GIVEN_UP: u64 = u64::MAX;
/// In the place of an entry, above the bits of the unit: it is a part's. The number of the part stands above.
const IS_PART: u64 = 1 << Unit::BITS;
const PART_SHIFT: u32 = Unit::BITS + 1;
/// Which part of the pages is given up at once where there is no room: the coldest quarter.
const ROOM_MADE: usize = 4;
/// Parts of a period after which room may be made again.
const ROOM_PERIODS: u64 = 8;
/// How long to wait for one that has the file alone, and from one look to the next.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);
/// Parts of a file without heat behind which no others are looked for when it is cut.
const MOST_GAPS: u64 = 8;
/// Which part of the bytes on the pool's disks heat may have, and the pages that it has in any case.
const DATA_PART: u64 = 1000;
const LEAST_PAGES: u64 = 256;

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
    file: Arc<OwnedFd>,
    header: SharedPage<Header>,
    directory: SharedPage<Directory>,
    units: HeatUnits,
    block_shift: u32,
    /// Directories on the pool's disks.
    disks: Vec<PathBuf>,
}

/// The first entry that a part can have. Four parts of a file one after the other begin in one line of the processor's cache.
#[inline]
fn first_entry(file: u64, part: u64) -> usize {
    let hash = (file ^ (part >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xff51_afd7_ed55_8ccd) >> 32;
    (hash & !3 | part & 3) as usize
}

/// An entry of the directory that is a part's.
struct Taken<'a> {
    index: usize,
    file: u64,
    /// The number of the part, and its unit.
    place: u64,
    counters: &'a [AtomicU32],
}

/// The unit that a place names, if it is a part's.
#[inline]
fn unit_of(place: u64) -> Option<Unit> {
    (place & IS_PART != 0).then(|| Unit::of_bits(place))
}

/// Takes the shared lock of the file at `path`.
///
/// # Errors
/// A process keeps it for itself for longer than [`PATIENCE`].
fn share_lock(file: impl AsFd, path: &Path) -> Result<()> {
    let began = Instant::now();
    loop {
        match retry(|| rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared)) {
            Err(Errno::WOULDBLOCK) if began.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
            Err(Errno::WOULDBLOCK) => {
                return Err(Error::Invalid(format!(
                    "a process keeps {} locked for itself (`lslocks` names it): end it, and try again",
                    path.display()
                )));
            }
            done => return done.map_err(Error::io("lock", path)),
        }
    }
}

/// Which boot of the machine this is, as far as the kernel tells, and seconds since then, whatever the clock says.
fn boot() -> (u64, u64) {
    static BOOT: OnceLock<u64> = OnceLock::new();
    let number = || boot_id().map_or(0, |[_, low]| low | 1);
    let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    (*BOOT.get_or_init(number), since.tv_sec as u64)
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn uuid_words(uuid: &str) -> [u64; 2] {
    let number = u128::from_str_radix(uuid, 16).unwrap_or(0);
    [(number >> 64) as u64, number as u64]
}

impl HeatTable {
    /// Opens the file of the pool of that uuid, or makes it; `disks` are directories on the disks of the pool. What is not such a file, or
    /// was kept with other blocks or for another pool, is dropped.
    ///
    /// # Errors
    /// The file cannot be made or mapped; another process keeps heat with another block size.
    pub(crate) fn open(namespace: &Path, uuid: &str, config: HeatConfig, disks: Vec<PathBuf>) -> Result<Self> {
        Self::open_file(&namespace.join(own_name(namespace)), uuid, config, disks)
    }

    fn open_file(path: &Path, uuid: &str, config: HeatConfig, disks: Vec<PathBuf>) -> Result<Self> {
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
            share_lock(&file, path)?;
        }
        let mut table = Self::map(Arc::new(file), config, disks).map_err(Error::io("map", path))?;
        if table.fits(uuid, config) {
            table.bound();
            if alone && !table.units.has_free_page() {
                table = table.thinned(uuid, config).map_err(Error::io("map", path))?;
            }
        } else if alone {
            table = table.anew(uuid, config).map_err(Error::io("map", path))?;
        } else {
            return Err(Error::Invalid(format!(
                "{} is in use with other blocks than [heat] of the pool file says, or was damaged meanwhile: end the other mounts of the pool \
                 first",
                path.display()
            )));
        }
        share_lock(&table.file, path)?;
        Ok(table)
    }

    fn map(file: Arc<OwnedFd>, config: HeatConfig, disks: Vec<PathBuf>) -> rustix::io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        allocate(file.as_fd(), UNITS_AT)?;
        let header = SharedPage::map(file.as_fd(), 0, access)?;
        let directory = SharedPage::map(file.as_fd(), HEADER_BYTES, access)?;
        let units = HeatUnits::map(Arc::clone(&file), UNITS_AT)?;
        Ok(Self { file, header, directory, units, block_shift: config.block_bytes.trailing_zeros(), disks })
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

    /// Lets it have no more pages than its part of the bytes on the pool's disks. Two system calls for each disk, which may wait for it:
    /// those who open the file do it, mounts and each who asks for heat.
    fn bound(&self) {
        if self.disks.is_empty() {
            return;
        }
        let mut seen = HashSet::new();
        let of_disk = |disk: &PathBuf| Room::at(disk).ok().filter(|room| seen.insert(room.device));
        let rooms: Vec<Room> = self.disks.iter().filter_map(of_disk).collect();
        // A disk that does not say may hold anything.
        if rooms.is_empty() || rooms.iter().any(|room| room.total_bytes == 0) {
            return self.units.set_most_pages(MOST_PAGES);
        }
        let used_bytes: u64 = rooms.iter().map(|room| room.total_bytes.saturating_sub(room.free_bytes)).sum();
        let pages = (used_bytes / DATA_PART).saturating_sub(COUNTERS_AT) / PAGE_BYTES;
        self.units.set_most_pages(pages.max(LEAST_PAGES));
    }

    /// The file emptied. Only for a process that has it alone.
    fn anew(self, uuid: &str, config: HeatConfig) -> rustix::io::Result<Self> {
        let Self { file, disks, .. } = self;
        rustix::fs::ftruncate(&file, 0)?;
        let table = Self::map(file, config, disks)?;
        let [high, low] = uuid_words(uuid);
        let period_s = config.period_s.max(1);
        let words = [(BLOCK, config.block_bytes), (PERIOD, period_s), (NEXT_HALVING, now_s() + period_s)];
        let (boot, since_s) = boot();
        let words = words.into_iter().chain([(BOOT, boot), (NEXT_SINCE_BOOT, since_s + period_s)]);
        for (word, value) in words.chain([(UUID, high), (UUID + 1, low), (0, MAGIC)]) {
            table.header[word].store(value, Ordering::Release);
        }
        table.bound();
        Ok(table)
    }

    /// The hottest parts of it in a file emptied before, in half of the pages that it may have.
    fn thinned(self, uuid: &str, config: HeatConfig) -> rustix::io::Result<Self> {
        let mut parts: Vec<(u64, HeatPart)> = self.parts_with_units().map(|(unit, part)| (unit.len(), part)).collect();
        let heat = |part: &HeatPart| part.costs_us.iter().map(|&cost| u64::from(cost)).sum::<u64>();
        parts.sort_by_key(|(counters, part)| std::cmp::Reverse(heat(part) * PAGE / counters));
        let mut room = self.units.most_pages() / 2 * PAGE;
        let has_room = |(counters, _): &&(u64, HeatPart)| {
            let has_room = *counters <= room;
            room = room.saturating_sub(*counters);
            has_room
        };
        let kept: Vec<&HeatPart> = parts.iter().take_while(has_room).map(|(_, part)| part).collect();
        let table = self.anew(uuid, config)?;
        for part in kept {
            let blocks = (part.first_block..).zip(part.costs_us.iter().copied()).filter(|(_, cost)| *cost > 0);
            // From the last on: so a part gets the unit that it needs at once.
            for (block, cost_us) in blocks.collect::<Vec<_>>().into_iter().rev() {
                table.add(part.file, (block << table.block_shift, (block + 1) << table.block_shift), cost_us);
            }
        }
        Ok(table)
    }

    /// Adds `cost_us` to the blocks of the bytes `[from, to)` of a file, to each an equal part of it, at least 1. Some 10 ns for a
    /// range in one block (`cargo bench -p stripewise-store --bench heat`); two loads and one addition in shared memory.
    #[inline]
    pub(crate) fn add(&self, file: u64, (from, to): (u64, u64), cost_us: u32) {
        let (mut block, last) = (from >> self.block_shift, to.saturating_sub(1).max(from) >> self.block_shift);
        // A division takes as long as all else that is done for one block.
        let each_us = if block == last { cost_us } else { (u64::from(cost_us) / (last - block + 1)) as u32 }.max(1);
        while block <= last {
            let end = last.min(block | (PART - 1));
            let within = (block % PART) as usize..=(end % PART) as usize;
            match self.counters(file, block / PART, end % PART).and_then(|counters| counters.get(within)) {
                Some(counters) => counters.iter().for_each(|counter| add_saturating(counter, each_us)),
                None => {
                    self.header[MISSED].fetch_add(1, Ordering::Relaxed);
                }
            }
            block = end + 1;
        }
    }

    /// The file ends at byte `size_bytes` now: what was behind it has no heat, whatever comes there. O(parts behind it).
    pub(crate) fn cut(&self, file: u64, size_bytes: u64) {
        let first = size_bytes.div_ceil(1 << self.block_shift);
        let (mut part, mut gaps, mut from) = (first / PART, 0, (first % PART) as usize);
        while gaps < MOST_GAPS {
            let found = self.find(file, part).and_then(|(_, place)| self.units.counters(unit_of(place)?));
            gaps = if found.is_some() { 0 } else { gaps + 1 };
            let behind = found.and_then(|counters| counters.get(from..)).into_iter().flatten();
            behind.for_each(|counter| counter.store(0, Ordering::Relaxed));
            (part, from) = (part + 1, 0);
        }
    }

    /// The place of a part that has counters, and where it stands. O(probes).
    #[inline]
    fn find(&self, file: u64, part: u64) -> Option<(&AtomicU64, u64)> {
        let first = first_entry(file, part);
        for probe in 0..PROBES {
            let [owner, of] = &self.directory[(first + probe) % ENTRIES];
            match owner.load(Ordering::Acquire) {
                found if found == file => {
                    let place = of.load(Ordering::Acquire);
                    // 0: a process is just taking the entry or giving it up, or was killed over it.
                    if place >> PART_SHIFT == part && place & IS_PART != 0 {
                        return Some((of, place));
                    }
                }
                0 => return None,
                _ => {}
            }
        }
        None
    }

    /// The counters of a part, up to block `last` of it at least; made where there are none and there is room.
    #[inline]
    fn counters(&self, file: u64, part: u64, last: u64) -> Option<&[AtomicU32]> {
        match self.find(file, part) {
            Some((of, place)) => {
                let unit = unit_of(place)?;
                if last < unit.len() { self.units.counters(unit) } else { self.grow(of, place, last) }
            }
            None => self.take(first_entry(file, part), file, part, last),
        }
    }

    /// A unit whose counters are 0, for a part of a file up to its block `last`.
    fn unit(&self, part: u64, last: u64) -> Option<(Unit, &[AtomicU32])> {
        // The file has parts before this one.
        let counters = if part > 0 { PART } else { last + 1 };
        let take = || self.units.take(counters);
        let unit = take().or_else(|| if self.make_room_if_due() { take() } else { None })?;
        let Some(counters) = self.units.counters(unit) else {
            self.units.give_up(unit);
            return None;
        };
        counters.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
        Some((unit, counters))
    }

    /// The counters of a part that has none yet, if there is room. O(probes), and O(pages) where a unit of another part is taken.
    #[cold]
    fn take(&self, first: usize, file: u64, part: u64, last: u64) -> Option<&[AtomicU32]> {
        if part >> (64 - PART_SHIFT) != 0 || matches!(file, 0 | GIVEN_UP) {
            return None;
        }
        let mut entries = (0..PROBES).map(|probe| &self.directory[(first + probe) % ENTRIES]);
        let free = |[owner, _]: &&[AtomicU64; 2]| matches!(owner.load(Ordering::Acquire), 0 | GIVEN_UP);
        let Some([owner, of]) = entries.find(free) else {
            // The next one may find room.
            self.make_room_if_due();
            return None;
        };
        let (unit, counters) = self.unit(part, last)?;
        let before = owner.load(Ordering::Acquire);
        let is_free = matches!(before, 0 | GIVEN_UP);
        // Another one's that was quicker: this update is lost, the next finds it.
        if !is_free || owner.compare_exchange(before, file, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            self.units.give_up(unit);
            return None;
        }
        of.store(part << PART_SHIFT | IS_PART | unit.bits(), Ordering::Release);
        Some(counters)
    }

    /// The counters of the part at `place` in a unit with more of them, if there is room. O(counters).
    #[cold]
    fn grow(&self, of: &AtomicU64, place: u64, last: u64) -> Option<&[AtomicU32]> {
        let part = place >> PART_SHIFT;
        let (unit, counters) = self.unit(part, last)?;
        let old = unit_of(place)?;
        for (counter, before) in counters.iter().zip(self.units.counters(old).into_iter().flatten()) {
            counter.store(before.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let grown = part << PART_SHIFT | IS_PART | unit.bits();
        let changed = of.compare_exchange(place, grown, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        self.units.give_up(if changed { old } else { unit });
        changed.then_some(counters)
    }

    /// The entries that are a part's.
    fn taken(&self) -> impl Iterator<Item = Taken<'_>> {
        let entry = |(index, [owner, place]): (usize, &[AtomicU64; 2])| {
            let (owner, place) = (owner.load(Ordering::Acquire), place.load(Ordering::Acquire));
            if matches!(owner, 0 | GIVEN_UP) {
                return None;
            }
            let counters = self.units.counters(unit_of(place)?)?;
            Some(Taken { index, file: owner, place, counters })
        };
        self.directory.iter().enumerate().filter_map(entry)
    }

    /// Gives up the entry `index`, if `place` still stands there. In this order: a unit is nothing's before its entry is.
    fn give_up(&self, index: usize, place: u64) {
        let [owner, of] = &self.directory[index];
        if of.compare_exchange(place, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            unit_of(place).into_iter().for_each(|unit| self.units.give_up(unit));
            owner.store(GIVEN_UP, Ordering::Release);
        }
    }

    /// Where the table is full, and it was not just done: has the parts in the coldest pages given up. Whether it was done. One process
    /// does it; O(counters), some 20 ms of a full table.
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
        let mut heat_of: HashMap<u64, u64> = HashMap::new();
        for Taken { place, counters, .. } in self.taken() {
            let heat: u64 = counters.iter().map(|counter| u64::from(counter.load(Ordering::Relaxed))).sum();
            *heat_of.entry(Unit::of_bits(place).page()).or_default() += heat;
        }
        let mut pages: Vec<(u64, u64)> = heat_of.into_iter().map(|(page, heat)| (heat, page)).collect();
        let spare = pages.len().div_ceil(ROOM_MADE);
        if spare > 0 {
            pages.select_nth_unstable(spare - 1);
        }
        let coldest: HashSet<u64> = pages[..spare].iter().map(|&(_, page)| page).collect();
        for Taken { index, place, .. } in self.taken() {
            if coldest.contains(&Unit::of_bits(place).page()) {
                self.give_up(index, place);
            }
        }
        true
    }

    /// How many periods have gone by, if it is time to halve all counters: of one process alone. Within a boot of the machine a clock that
    /// is set says nothing; from one boot to the next the clock is all there is.
    fn periods_due(&self) -> Option<u64> {
        let period_s = self.header[PERIOD].load(Ordering::Relaxed).max(1);
        let (now, (boot, since_s)) = (now_s(), boot());
        let is_this_boot = boot != 0 && self.header[BOOT].load(Ordering::Acquire) == boot;
        let (word, now_there) = if is_this_boot { (NEXT_SINCE_BOOT, since_s) } else { (NEXT_HALVING, now) };
        let next = self.header[word].load(Ordering::Acquire);
        // A clock that was ahead, or a period that was longer, puts off no halving for longer than a period.
        let latest = now_there + period_s;
        let periods = now_there.checked_sub(next).map_or(0, |over_s| over_s / period_s + 1);
        let after = if next > latest { latest } else { next + periods * period_s };
        if after == next && is_this_boot {
            return None;
        }
        let is_own = self.header[word].compare_exchange(next, after, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if is_own {
            let left_s = after - now_there;
            self.header[NEXT_HALVING].store(now + left_s, Ordering::Release);
            self.header[NEXT_SINCE_BOOT].store(since_s + left_s, Ordering::Release);
            self.header[BOOT].store(boot, Ordering::Release);
        }
        (is_own && periods > 0).then_some(periods)
    }

    /// Halves all counters once for each period that has gone by, if it is time. One process does it.
    pub(crate) fn halve_if_due(&self) {
        let Some(periods) = self.periods_due() else { return };
        let halves = periods.min(31);
        for Taken { index, place, counters, .. } in self.taken() {
            let mut left = 0;
            for counter in counters {
                let cost = counter.load(Ordering::Relaxed);
                if cost > 0 {
                    let less = cost - (cost >> halves);
                    // It was cut off, or is another part's since.
                    if counter.fetch_sub(less, Ordering::Relaxed) < less {
                        counter.store(0, Ordering::Relaxed);
                    }
                    left |= cost >> halves;
                }
            }
            if left == 0 {
                self.give_up(index, place);
            }
        }
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
        let mut parts: Vec<HeatPart> = self.parts_with_units().map(|(_, part)| part).collect();
        parts.sort_by_key(|part| (part.file, part.first_block));
        parts
    }

    /// The same in no order, each with its unit.
    fn parts_with_units(&self) -> impl Iterator<Item = (Unit, HeatPart)> {
        self.taken().filter_map(|Taken { file, place, counters, .. }| {
            let costs_us = counters.iter().map(|counter| counter.load(Ordering::Relaxed)).collect();
            Some((unit_of(place)?, HeatPart::of(file, place >> PART_SHIFT, costs_us)?))
        })
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
    let most_bytes = COUNTERS_AT + MOST_PAGES * PAGE_BYTES;
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
        if matches!(file, 0 | GIVEN_UP) {
            return None;
        }
        let unit = unit_of(place)?;
        let (page, within) = ((COUNTERS_AT + unit.page() * PAGE_BYTES) as usize, unit.range()?);
        let counters = bytes.get(page + 4 * within.start..page + 4 * within.end)?;
        let cost = |counter: &[u8]| u32::from_ne_bytes(counter.try_into().expect("4 bytes")) >> periods;
        HeatPart::of(file, place >> PART_SHIFT, counters.chunks_exact(4).map(cost).collect())
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
        HeatTable::open(directory, UUID_TEXT, CONFIG, vec![]).unwrap()
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

    /// Has the counters be due for halving since `over_s` seconds.
    fn be_due(table: &HeatTable, over_s: u64) {
        let (number, since_s) = boot();
        // The boot may have been less long ago.
        let (word, now) = if since_s > over_s { (NEXT_SINCE_BOOT, since_s) } else { (NEXT_HALVING, now_s()) };
        table.header[BOOT].store(if since_s > over_s { number } else { 0 }, Ordering::Relaxed);
        table.header[word].store(now - over_s, Ordering::Relaxed);
    }

    #[test]
    fn a_clock_that_is_set_halves_nothing_and_puts_nothing_off() {
        let directory = tempfile::tempdir().unwrap();
        let table = open(directory.path());
        table.add(1, (0, 1), 1000);
        // As it would be where the clock was set by years, to and fro.
        for next in [now_s() - 800_000_000, now_s() + 800_000_000] {
            table.header[NEXT_HALVING].store(next, Ordering::Relaxed);
            table.halve_if_due();
            assert_eq!(table.parts(), [part(1, 0, &[1000])]);
        }
        be_due(&table, 0);
        table.halve_if_due();
        assert_eq!(table.parts(), [part(1, 0, &[500])]);
        assert!(table.header[NEXT_HALVING].load(Ordering::Relaxed).abs_diff(now_s() + CONFIG.period_s) <= 1);
        // Behind another boot the clock tells.
        table.header[BOOT].store(2, Ordering::Relaxed);
        table.header[NEXT_HALVING].store(now_s() - 1500, Ordering::Relaxed);
        table.halve_if_due();
        assert_eq!(table.parts(), [part(1, 0, &[125])]);
        assert_eq!(table.header[BOOT].load(Ordering::Relaxed), boot().0);
    }

    #[test]
    fn what_is_cut_off_has_no_heat_when_it_comes_back() {
        let directory = tempfile::tempdir().unwrap();
        let table = open(directory.path());
        let blocks = [0, 3, 4, 1023, 1024, 5 * 1024 + 7];
        for file in [1, 2] {
            blocks.iter().for_each(|block| table.add(file, (block << 12, (block + 1) << 12), 9));
        }
        table.cut(1, (3 << 12) + 1);
        let parts: Vec<HeatPart> = table.parts().into_iter().filter(|part| part.file == 1).collect();
        assert_eq!(parts, [part(1, 0, &[9, 0, 0, 9])]);
        table.cut(1, 0);
        let parts = table.parts();
        assert!(parts.iter().all(|part| part.file == 2) && parts.len() == 3, "{parts:?}");
    }

    #[test]
    fn a_disk_that_was_full_costs_no_room() {
        let directory = tempfile::tempdir().unwrap();
        let table = open(directory.path());
        // The lowest bit of the time is what the next look compares.
        for _ in 0..2 {
            let now = now_s();
            table.units.refuse_until(now + 1);
            (1..1000).for_each(|file| table.add(file, (0, 1), 1));
        }
        table.units.refuse_until(0);
        (1..1000).for_each(|file| table.add(file, (0, 1), 1));
        assert_eq!(table.parts().len(), 999);
    }

    /// As root: the owner of a pool gives a file of root's another name where heat is kept.
    #[test]
    fn another_name_of_a_file_of_another_user_is_not_written() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
        std::fs::write(other.path(), "of root").unwrap();
        let name = directory.path().join(HEAT_FILE);
        std::fs::copy(other.path(), &name).unwrap();
        std::os::unix::fs::chown(directory.path(), Some(65534), None).unwrap();
        drop(open(directory.path()));
        std::fs::remove_file(&name).unwrap();
        if std::fs::hard_link(other.path(), &name).is_err() {
            return;
        }
        let error = HeatTable::open(directory.path(), UUID_TEXT, CONFIG, vec![]).unwrap_err().to_string();
        assert!(error.contains("Too many links"), "{error}");
        assert_eq!(std::fs::read_to_string(other.path()).unwrap(), "of root");
    }

    #[test]
    fn one_that_keeps_the_file_locked_is_not_waited_for_without_end() {
        let directory = tempfile::tempdir().unwrap();
        drop(open(directory.path()));
        let held = std::fs::File::open(directory.path().join(HEAT_FILE)).unwrap();
        rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
        let error = HeatTable::open(directory.path(), UUID_TEXT, CONFIG, vec![]).unwrap_err().to_string();
        assert!(error.contains("heat locked for itself"), "{error}");
    }

    #[test]
    fn a_clock_that_was_ahead_and_a_period_that_gets_shorter_put_off_no_halving() {
        let directory = tempfile::tempdir().unwrap();
        let table = open(directory.path());
        let next = || table.header[NEXT_HALVING].load(Ordering::Relaxed);
        table.header[BOOT].store(2, Ordering::Relaxed);
        table.header[NEXT_HALVING].store(now_s() + 315_360_000, Ordering::Relaxed);
        table.halve_if_due();
        assert!(next() <= now_s() + CONFIG.period_s, "{}", next());
        let shorter = HeatConfig { period_s: 10, ..CONFIG };
        HeatTable::open(directory.path(), UUID_TEXT, shorter, vec![]).unwrap().halve_if_due();
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
        be_due(&table, 1500);
        table.halve_if_due();
        assert_eq!(table.parts(), [part(1, 0, &[u32::MAX >> 2, 2])], "two periods have gone by");
    }

    #[test]
    fn heat_of_another_pool_or_of_other_blocks_is_dropped_and_so_is_what_is_no_heat() {
        let directory = tempfile::tempdir().unwrap();
        open(directory.path()).add(7, (0, 1), 10);
        let other = HeatConfig { block_bytes: 8192, ..CONFIG };
        assert_eq!(HeatTable::open(directory.path(), UUID_TEXT, other, vec![]).unwrap().parts(), []);
        let kept = open(directory.path());
        kept.add(7, (0, 1), 10);
        assert!(HeatTable::open(directory.path(), UUID_TEXT, other, vec![]).is_err(), "another process has it");
        drop(kept);
        assert_eq!(HeatTable::open(directory.path(), "ff", CONFIG, vec![]).unwrap().parts(), []);
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
        let other = HeatTable::open_file(&file("heat.other"), UUID_TEXT, CONFIG, vec![]).unwrap();
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
        let other = HeatTable::open_file(&path, UUID_TEXT, CONFIG, vec![]).unwrap();
        other.add(7, (0, 1), 12);
        let whole = std::fs::read(&path).unwrap();
        for length in [0, 7, 100, 4096, 4100, DIRECTORY_BYTES as usize, COUNTERS_AT as usize + 3, whole.len() - 1] {
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

    /// Fills the table: a block in the second part of the files `from` and on, which cost `cost_us`. Each has a page.
    fn fill(table: &HeatTable, files: std::ops::Range<u64>, cost_us: u32) {
        files.for_each(|file| table.add(file, (SECOND, SECOND + 1), cost_us));
    }

    const SECOND: u64 = 1024 * 4096;
    const FULL: u64 = 512;

    /// A table with room for [`FULL`] pages.
    fn small(directory: &Path) -> HeatTable {
        let table = open(directory);
        table.units.set_most_pages(FULL);
        table
    }

    #[test]
    fn a_part_has_counters_for_the_blocks_that_have_heat_within_twice() {
        let directory = tempfile::tempdir().unwrap();
        let table = open(directory.path());
        let bytes = |table: &HeatTable| table.parts_with_units().map(|(unit, _)| unit.len() * 4).sum::<u64>();
        // 10,000 files of 64 KiB in which each block is read: 64 bytes each.
        for file in 1..10_001 {
            (0..16).for_each(|block| table.add(file, (block << 12, (block + 1) << 12), 1));
        }
        assert_eq!((table.parts().len(), table.missed(), bytes(&table)), (10_000, 0, 640_000));
        let grows = 77_777;
        for block in 0..1500_u64 {
            let before = bytes(&table);
            table.add(grows, (block << 12, (block + 1) << 12), 2 + block as u32);
            let own = bytes(&table) - 640_000;
            assert!(own <= (8 * (block + 1)).max(64) || block >= 1024, "{own} bytes at block {block}");
            assert!(block < 1024 || own == 8192);
            assert!(before <= bytes(&table));
        }
        let of_file: Vec<HeatPart> = table.parts().into_iter().filter(|part| part.file == grows).collect();
        let costs = |blocks: std::ops::Range<u32>| blocks.map(|block| 2 + block).collect::<Vec<u32>>();
        assert_eq!(of_file, [part(grows, 0, &costs(0..1024)), part(grows, 1024, &costs(1024..1500))]);
        // A request over the end of a unit finds the larger one.
        table.add(5, (0, 40 << 12), 40);
        let expected = [vec![2; 16], vec![1; 24]].concat();
        assert!(table.parts().iter().any(|part| part.file == 5 && part.costs_us == expected));
        assert_eq!(table.missed(), 0);
    }

    #[test]
    fn heat_has_a_thousandth_of_what_the_disks_hold_at_most() {
        let directory = tempfile::tempdir().unwrap();
        let room = Room::at(directory.path()).unwrap();
        let table = HeatTable::open(directory.path(), UUID_TEXT, CONFIG, vec![directory.path().to_owned(); 3]).unwrap();
        let pages = ((room.total_bytes - room.free_bytes) / 1000 / 4096).min(MOST_PAGES);
        let most = table.units.most_pages();
        assert!(most == LEAST_PAGES || most <= pages && (most == MOST_PAGES || most > pages / 2), "{most} of {pages}");
        assert_eq!(small(directory.path()).units.most_pages(), FULL);
    }

    #[test]
    fn the_coldest_give_their_place_to_what_comes_while_the_table_is_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let table = small(directory.path());
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
        fill(&table, FULL + made + 1..FULL + made + 2, 7);
        assert!(table.parts().contains(&part(FULL + made + 1, 1024, &[7])));
        // Another process sees the same.
        assert_eq!(open(directory.path()).parts(), table.parts());
    }
    #[test]
    fn what_has_cooled_gives_its_place_when_counters_are_halved() {
        let directory = tempfile::tempdir().unwrap();
        let table = small(directory.path());
        table.header[NEXT_ROOM].store(now_s() + 100, Ordering::Relaxed);
        fill(&table, 1..FULL + 1, 3);
        fill(&table, 1..101, 5);
        fill(&table, FULL + 1..FULL + 11, 3);
        assert_eq!(table.missed(), 10);
        be_due(&table, 1500);
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
        // What was a page of one part is one of many small ones, and the other way round.
        be_due(&table, 5000);
        table.halve_if_due();
        (1..FULL * 50).for_each(|file| table.add(file, (0, 1), 5));
        assert_eq!((table.parts().len() as u64, table.missed()), (FULL * 50 - 1, 0));
        be_due(&table, 5000);
        table.halve_if_due();
        fill(&table, 1..FULL + 1, 3);
        assert_eq!((table.parts().len() as u64, table.missed()), (FULL, 0));
    }

    /// Threads add parts without end, others give parts up meanwhile: no unit is that of two parts, and what is hot is found.
    #[test]
    fn units_have_one_part_each_while_parts_come_and_go() {
        let directory = tempfile::tempdir().unwrap();
        let tables = [small(directory.path()), small(directory.path())];
        fill(&tables[0], 1..101, 1_000_000);
        fill(&tables[0], 101..FULL + 1, 1);
        std::thread::scope(|scope| {
            for (number, table) in (0..4).zip(tables.iter().cycle()) {
                scope.spawn(move || {
                    let from = (number + 1) << 32;
                    for file in from..from + 20 * FULL {
                        for block in [0, 20, 300, 3 * 1024] {
                            table.add(file, (block << 12, (block + 1) << 12), 1);
                        }
                        if file % 100 == 0 {
                            table.header[NEXT_ROOM].store(0, Ordering::Relaxed);
                            table.make_room_if_due();
                        }
                    }
                });
            }
        });
        let mut ranges: Vec<(u64, usize, usize)> =
            tables[0].taken().filter_map(|of| unit_of(of.place)).map(of_page).collect();
        ranges.sort_unstable();
        assert!(ranges.len() > 100 && ranges.iter().all(|&(page, ..)| page < FULL));
        let apart = |pair: &[(u64, usize, usize)]| pair[0].0 < pair[1].0 || pair[0].2 <= pair[1].1;
        assert!(ranges.windows(2).all(apart), "a unit is that of two parts");
        assert_eq!(tables[1].parts().iter().filter(|part| part.costs_us == [1_000_000]).count(), 100);
        // None is lost: when all have cooled, all pages can be taken.
        for table in &tables {
            be_due(table, 100_000);
            table.halve_if_due();
        }
        let missed = tables[0].missed();
        fill(&tables[0], 1..FULL + 1, 3);
        assert_eq!((tables[0].parts().len() as u64, tables[0].missed()), (FULL, missed));
    }

    fn of_page(unit: Unit) -> (u64, usize, usize) {
        let range = unit.range().unwrap();
        (unit.page(), range.start, range.end)
    }

    #[test]
    fn a_full_table_is_thinned_out_by_the_next_that_has_it_alone() {
        let directory = tempfile::tempdir().unwrap();
        let table = small(directory.path());
        fill(&table, 1..2, 1000);
        fill(&table, 2..FULL + 1, 1);
        table.header[NEXT_ROOM].store(now_s() + 100, Ordering::Relaxed);
        fill(&table, FULL + 1..FULL + 2, 1);
        fill(&table, 1..2, 1);
        assert_eq!((table.missed(), table.parts().len() as u64), (1, FULL));
        drop(table);
        let table = open(directory.path());
        assert_eq!((table.parts().len() as u64, table.missed()), (FULL / 2, 0));
        assert_eq!(table.parts()[0], part(1, 1024, &[1001]));
        fill(&table, FULL + 1..FULL + 2, 1);
        assert!(table.parts().contains(&part(FULL + 1, 1024, &[1])));
    }
}
