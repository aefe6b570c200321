//! The counters of heat in a mapped file, in units of 16 to 1024 of them: so a part of a file takes as many as it needs, within twice.
//!
//! ```text
//! page 0     words: pages in use, most pages, units that were given up, and for each size where to look for one
//! 32 pages   a word for each page of counters: the size of its units, and which of them are in use; 0 for a page that is nothing's
//! segments   1 MiB each, as many as are needed: 256 pages of 1024 counters of 4 bytes
//! ```
//! A page has units of one size, and is nothing's again when the last of them is given up. Taking and giving up change one word: no
//! lock is needed, and a process that is killed over it loses one unit.

use crate::os::shared_pages::{SharedPage, allocate};
use crate::os::sync::mapped::AtomicU32;
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::mm::ProtFlags;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

/// Counters of a page.
pub(crate) const PAGE: u64 = 1024;
pub(crate) const PAGE_BYTES: u64 = PAGE * 4;
const PAGES_OF_SEGMENT: usize = 256;
const SEGMENTS: usize = 61;
/// Pages that the file can have.
pub(crate) const MOST_PAGES: u64 = (PAGES_OF_SEGMENT * SEGMENTS) as u64;
const SEGMENT_BYTES: u64 = PAGES_OF_SEGMENT as u64 * PAGE_BYTES;

/// Counters of the smallest unit; each next size has twice as many.
const LEAST: u64 = 16;
/// Units of a page that its word can tell of: an eighth of a page of the smallest ones stays empty.
const WORD_UNITS: u64 = 56;
const IN_USE: u64 = (1 << WORD_UNITS) - 1;

type Words = [AtomicU64; CONTROL_WORDS + 32 * 512];
type Segment = [[AtomicU32; PAGE as usize]; PAGES_OF_SEGMENT];

const CONTROL_WORDS: usize = 512;
const USED: usize = 0;
const MOST: usize = 1;
const GIVEN_UP: usize = 2;
/// For each size, how many units had been given up when a look at all pages found none.
const LOOKED: usize = 8;
/// For each size, the page of the last unit that was taken.
const LAST: usize = 16;

/// Bytes in front of the counters.
pub(crate) const WORDS_BYTES: u64 = size_of::<Words>() as u64;

/// Where the counters of a part are: page, place in the page and size, in 23 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unit(u64);

impl Unit {
    pub(crate) const BITS: u32 = 23;

    fn new(page: u64, place: u64, size: u64) -> Self {
        Self(page << 9 | place << 3 | size)
    }

    /// What [`Unit::bits`] has said, or anything.
    #[inline]
    pub(crate) fn of_bits(bits: u64) -> Self {
        Self(bits & ((1 << Self::BITS) - 1))
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) fn page(self) -> u64 {
        self.0 >> 9
    }

    #[inline]
    fn place(self) -> u64 {
        self.0 >> 3 & 0x3f
    }

    #[inline]
    fn size(self) -> u64 {
        self.0 & 7
    }

    /// Counters that it has.
    #[inline]
    pub(crate) fn len(self) -> u64 {
        LEAST << self.size()
    }

    /// The counters of it in those of its page, unless it is none.
    #[inline]
    pub(crate) fn range(self) -> Option<std::ops::Range<usize>> {
        let begin = (self.place() * self.len()) as usize;
        let end = begin + self.len() as usize;
        (end <= PAGE as usize).then_some(begin..end)
    }
}

/// The smallest size that has that many counters, [`PAGE`] at most.
fn size_for(counters: u64) -> u64 {
    u64::from(counters.clamp(LEAST, PAGE).next_power_of_two().ilog2() - LEAST.ilog2())
}

/// The units of a mapped file.
#[derive(Debug)]
pub(crate) struct HeatUnits {
    file: Arc<OwnedFd>,
    /// Where they begin in the file.
    offset: u64,
    words: SharedPage<Words>,
    segments: [OnceLock<SharedPage<Segment>>; SEGMENTS],
    /// Until when no segment is tried to map, in seconds since the epoch: a disk was full.
    not_before_s: AtomicU64,
}

impl HeatUnits {
    /// Those of `file` from byte `offset` on.
    ///
    /// # Errors
    /// Those of `fallocate` and `mmap`.
    pub(crate) fn map(file: Arc<OwnedFd>, offset: u64) -> rustix::io::Result<Self> {
        allocate(file.as_fd(), offset + WORDS_BYTES)?;
        let words = SharedPage::map(file.as_fd(), offset, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok(Self {
            file,
            offset,
            words,
            segments: [const { OnceLock::new() }; SEGMENTS],
            not_before_s: AtomicU64::new(0),
        })
    }

    fn word(&self, page: u64) -> &AtomicU64 {
        &self.words[CONTROL_WORDS + (page & 0x3fff) as usize]
    }

    fn used(&self) -> u64 {
        self.words[USED].load(Ordering::Relaxed).min(MOST_PAGES)
    }

    /// The pages that it may have, [`MOST_PAGES`] until it is set.
    pub(crate) fn most_pages(&self) -> u64 {
        match self.words[MOST].load(Ordering::Relaxed) {
            0 => MOST_PAGES,
            most => most.min(MOST_PAGES),
        }
    }

    pub(crate) fn set_most_pages(&self, pages: u64) {
        self.words[MOST].store(pages.clamp(1, MOST_PAGES), Ordering::Relaxed);
    }

    /// Whether there is a page that is nothing's. O(pages).
    pub(crate) fn has_free_page(&self) -> bool {
        let used = self.used();
        used < self.most_pages() || (0..used).any(|page| self.word(page).load(Ordering::Relaxed) == 0)
    }

    /// Takes a unit with at least that many counters, which are anything. O(1), O(pages) where units were given up since it last failed.
    pub(crate) fn take(&self, counters: u64) -> Option<Unit> {
        let size = size_for(counters);
        let last = &self.words[LAST + size as usize];
        let from = last.load(Ordering::Relaxed) % MOST_PAGES;
        if let Some(unit) = self.take_in(from, size) {
            return Some(unit);
        }
        let (looked, given_up) = (&self.words[LOOKED + size as usize], self.words[GIVEN_UP].load(Ordering::Acquire));
        if looked.load(Ordering::Relaxed) != given_up {
            let used = self.used();
            let found = (from..used).chain(0..from.min(used)).find_map(|page| self.take_in(page, size));
            if let Some(unit) = found {
                last.store(unit.page(), Ordering::Relaxed);
                return Some(unit);
            }
            looked.store(given_up, Ordering::Relaxed);
        }
        let most = self.most_pages();
        let next = |used: u64| (used < most).then(|| used + 1);
        let page = self.words[USED].fetch_update(Ordering::AcqRel, Ordering::Relaxed, next).ok()?;
        last.store(page, Ordering::Relaxed);
        self.take_in(page, size)
    }

    /// A unit of that size in that page, if it has such, or is nothing's, and one is free.
    fn take_in(&self, page: u64, size: u64) -> Option<Unit> {
        if page >= self.used() {
            return None;
        }
        let word = self.word(page);
        let units = (PAGE / (LEAST << size)).min(WORD_UNITS);
        let of_size = (size + 1) << WORD_UNITS;
        let mut found = word.load(Ordering::Acquire);
        loop {
            if found & !IN_USE != of_size && found != 0 {
                return None;
            }
            let place = u64::from((found & IN_USE).trailing_ones());
            if place >= units {
                return None;
            }
            let taken = of_size | found | 1 << place;
            match word.compare_exchange_weak(found, taken, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(Unit::new(page, place, size)),
                Err(now) => found = now,
            }
        }
    }

    /// Gives a unit up. Late additions to it go to what comes next there.
    pub(crate) fn give_up(&self, unit: Unit) {
        let without = |found: u64| {
            let left = found & !(1 << unit.place().min(WORD_UNITS - 1));
            Some(if left & IN_USE == 0 { 0 } else { left })
        };
        let _ = self.word(unit.page()).fetch_update(Ordering::AcqRel, Ordering::Acquire, without);
        self.words[GIVEN_UP].fetch_add(1, Ordering::AcqRel);
    }

    /// The counters of a unit, which the file says: it is bounded here.
    #[inline]
    pub(crate) fn counters(&self, unit: Unit) -> Option<&[AtomicU32]> {
        let page = unit.page() as usize;
        let segment = self.segments.get(page / PAGES_OF_SEGMENT)?;
        let mapped = segment.get().or_else(|| self.map_segment(page / PAGES_OF_SEGMENT))?;
        Some(&mapped[page % PAGES_OF_SEGMENT][unit.range()?])
    }

    /// Has no segment be mapped before that second, as after a failure.
    #[cfg(test)]
    pub(crate) fn refuse_until(&self, second: u64) {
        self.not_before_s.store(second, Ordering::Relaxed);
    }

    /// Where that fails it is not tried again within a second.
    #[cold]
    fn map_segment(&self, number: usize) -> Option<&SharedPage<Segment>> {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if self.not_before_s.load(Ordering::Relaxed) == now_s + 1 {
            return None;
        }
        let offset = self.offset + WORDS_BYTES + number as u64 * SEGMENT_BYTES;
        let mapped = allocate(self.file.as_fd(), offset + SEGMENT_BYTES)
            .and_then(|()| SharedPage::map(self.file.as_fd(), offset, ProtFlags::READ | ProtFlags::WRITE));
        match mapped {
            Ok(mapped) => Some(self.segments[number].get_or_init(|| mapped)),
            Err(_) => {
                self.not_before_s.store(now_s + 1, Ordering::Relaxed);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn units() -> HeatUnits {
        HeatUnits::map(Arc::new(OwnedFd::from(tempfile::tempfile().unwrap())), 0).unwrap()
    }

    /// The bytes of a unit in the file.
    fn bytes(unit: Unit) -> std::ops::Range<u64> {
        let range = unit.range().unwrap();
        unit.page() * PAGE_BYTES + range.start as u64 * 4..unit.page() * PAGE_BYTES + range.end as u64 * 4
    }

    proptest! {
        /// No two units overlap, each has the counters that were asked for within twice, and what is given up is taken anew
        /// before the file grows.
        #[test]
        fn units_are_apart_and_come_back(asked in prop::collection::vec((1_u64..=PAGE, any::<bool>()), 1..200)) {
            let units = units();
            units.set_most_pages(40);
            let mut held: HashMap<u64, Unit> = HashMap::new();
            for (number, (counters, gives_up)) in asked.into_iter().enumerate() {
                if gives_up && let Some(&key) = held.keys().min() {
                    units.give_up(held.remove(&key).unwrap());
                }
                let Some(unit) = units.take(counters) else { continue };
                prop_assert!(unit.len() >= counters && unit.len() <= (2 * counters).max(LEAST));
                prop_assert_eq!(units.counters(unit).unwrap().len() as u64, unit.len());
                prop_assert!(unit.page() < 40);
                prop_assert_eq!(Unit::of_bits(unit.bits()), unit);
                let own = bytes(unit);
                prop_assert!(held.values().all(|other| bytes(*other).end <= own.start || own.end <= bytes(*other).start));
                held.insert(number as u64, unit);
            }
            held.into_values().for_each(|unit| units.give_up(unit));
            prop_assert!((0..40).all(|page| units.word(page).load(Ordering::Relaxed) == 0));
            prop_assert_eq!((0..41).filter_map(|_| units.take(PAGE)).count(), 40);
        }
    }

    #[test]
    fn a_page_of_small_units_becomes_one_of_large_ones() {
        let units = units();
        units.set_most_pages(1);
        let small: Vec<Unit> = (0..60).map_while(|_| units.take(1)).collect();
        assert_eq!(small.len() as u64, WORD_UNITS);
        small[1..].iter().for_each(|unit| units.give_up(*unit));
        assert_eq!(units.take(PAGE), None);
        units.give_up(small[0]);
        assert_eq!(units.take(PAGE).map(Unit::len), Some(PAGE));
        assert_eq!(units.take(1), None);
    }

    #[test]
    fn words_that_are_anything_lead_nowhere_else() {
        let units = units();
        for bits in [0, 6, 7, 1 << 22, 0x3f << 3 | 6, u64::MAX] {
            let unit = Unit::of_bits(bits);
            assert!(units.counters(unit).is_none_or(|counters| counters.len() as u64 == unit.len()), "{bits:#x}");
            units.give_up(unit);
        }
        units.words.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
        assert!(units.take(1).is_none() && units.take(PAGE).is_none() && !units.has_free_page());
    }
}
