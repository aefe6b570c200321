//! The page of a user's programs: their gates count in it, the orchestrator reads it.
//!
//! Each user of a shared pool has a page of its own, so that none writes of another's programs. The page is one of a user: what
//! that user writes there is bounded where it is read, and counts for that user's programs alone.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use stripewise_schedule::{BURST_GAP_NS, FULL_STROKE_BYTES, PROGRAM_NAME_BYTES, ProgramKey, weighed};
use stripewise_store::Atomics;

use crate::identity::Identified;
use crate::plan_page::store_bytes;

/// In place of a datafile, where positions are addresses on the server's disk: all datafiles lie on one line there.
pub(crate) const ON_DISK: u64 = u64::MAX;

/// Directory of the pages, in the namespace; each is named by its user's number.
pub const PROGRAMS_DIRECTORY: &str = "programs";

/// "SWUSES" and the version of the page.
pub(crate) const USES_MAGIC: u64 = u64::from_be_bytes(*b"SWUSES\0\x03");
/// Programs of a user at a time; what more there are count with all others.
pub(crate) const MOST_PROGRAMS: usize = 64;
/// Servers of which there are figures: the pool's first ones.
pub(crate) const MOST_SERVERS: usize = 128;
/// Processes of which is known that they are there.
pub(crate) const MOST_PROCESSES: usize = 512;
/// Requests that servers have of which is known whose they are.
pub(crate) const MOST_FLIGHTS: usize = 256;
/// Ranks of files, by their hint `class`; files without one have the first.
const RANKS: usize = 8;
/// Places that are looked at for a request.
const FLIGHT_PLACES: usize = 8;
/// A program or a process that has sent no request for this time may lose its place to another: 30 s.
pub(crate) const FORGOTTEN_AFTER_NS: u64 = 30_000_000_000;

/// A program on a server. Positions are addresses on disk where these are known ([`ON_DISK`]); else offsets in datafiles, of
/// which two are a whole stroke apart.
#[repr(C)]
pub(crate) struct UseCell {
    /// The datafile of the last request; 0: none yet.
    pub(crate) datafile: AtomicU64,
    pub(crate) end: AtomicU64,
    pub(crate) last_ns: AtomicU64,
    pub(crate) gap_bytes: AtomicU64,
    pub(crate) reuse_ns: AtomicU64,
    pub(crate) requests: AtomicU64,
    /// Whether `reuse_ns` is of any: 0 or 1.
    pub(crate) has_reuse: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

/// A program.
#[repr(C, align(64))]
pub(crate) struct ProgramCell {
    /// 0: free.
    pub(crate) key: AtomicU64,
    pub(crate) uid: AtomicU64,
    pub(crate) name: [AtomicU64; 4],
    pub(crate) first_ns: AtomicU64,
    /// When it last asked for anything, or still waited.
    pub(crate) last_ns: AtomicU64,
    /// When a request of it that was held went on.
    pub(crate) resumed_ns: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Requests that waited, and how long all of them did.
    pub(crate) held: AtomicU64,
    pub(crate) waited_ns: AtomicU64,
    /// Requests that passed in a turn of the program.
    pub(crate) in_turn: AtomicU64,
    /// Requests that passed as no orchestrator answered.
    pub(crate) unanswered: AtomicU64,
    /// Requests that passed after two windows, whatever the plan said.
    pub(crate) overdue: AtomicU64,
    /// A bit for each file, by its hash.
    pub(crate) files: AtomicU64,
    pub(crate) burst_ns: AtomicU64,
    pub(crate) bursts: AtomicU64,
    pub(crate) period_ns: AtomicU64,
    /// Until when its limit has been used up.
    pub(crate) paced_ns: AtomicU64,
}

/// A process: its number and the place of its program.
#[repr(C)]
pub(crate) struct ProcessCell {
    pub(crate) process: AtomicU64,
    pub(crate) last_ns: AtomicU64,
}

/// A request that servers have.
#[repr(C)]
pub(crate) struct FlightCell {
    /// The number of the process that carries it out, and the place of its program plus one; 0: free.
    pub(crate) word: AtomicU64,
    pub(crate) since_ns: AtomicU64,
}

/// The page.
#[repr(C, align(64))]
pub(crate) struct UsePage {
    pub(crate) magic: AtomicU64,
    /// Requests of other programs that found no place.
    pub(crate) unplaced: AtomicU64,
    /// All programs of the user together, in the windows in which all are served.
    pub(crate) servers: [UseCell; MOST_SERVERS],
    pub(crate) programs: [ProgramCell; MOST_PROGRAMS],
    pub(crate) uses: [[UseCell; MOST_SERVERS]; MOST_PROGRAMS],
    pub(crate) processes: [ProcessCell; MOST_PROCESSES],
    pub(crate) flights: [FlightCell; MOST_FLIGHTS],
    /// When programs last asked for bytes of files of each rank, waited for them or got them.
    pub(crate) ranks: [AtomicU64; RANKS],
}

// SAFETY: all of its fields are atomics.
unsafe impl Atomics for UsePage {}

/// How long ago a time was; a time ahead of now is of another boot.
fn age_ns(since_ns: &AtomicU64, now_ns: u64) -> u64 {
    let since_ns = since_ns.load(Ordering::Relaxed);
    if since_ns > now_ns.saturating_add(FORGOTTEN_AFTER_NS) { u64::MAX } else { now_ns.saturating_sub(since_ns) }
}

/// Whether a process is there, as this process's namespace numbers it.
fn is_there(process: u32) -> bool {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    process.is_some_and(|process| test_kill_process(process) != Err(Errno::SRCH))
}

fn load_f64(word: &AtomicU64) -> f64 {
    f64::from_bits(word.load(Ordering::Relaxed))
}

/// Part of a request, as a server has served it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServedPart {
    pub(crate) server: usize,
    /// Which datafile; not 0.
    pub(crate) datafile: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl UseCell {
    /// Takes one request. Concurrent ones may each miss the other: an average of averages has no need of more. Some ten loads
    /// and stores.
    #[inline]
    fn note(&self, part: &ServedPart, now_ns: u64, resumed_ns: u64) {
        let count = self.requests.fetch_add(1, Ordering::Relaxed);
        let (before, end) = (self.datafile.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
        let last_ns = self.last_ns.load(Ordering::Relaxed);
        self.datafile.store(part.datafile, Ordering::Relaxed);
        self.end.store(part.offset.wrapping_add(part.bytes), Ordering::Relaxed);
        self.last_ns.store(now_ns, Ordering::Relaxed);
        self.bytes.fetch_add(part.bytes, Ordering::Relaxed);
        if before == 0 {
            return;
        }
        let apart = if before == part.datafile { end.abs_diff(part.offset) as f64 } else { FULL_STROKE_BYTES };
        let known = (count > 1).then(|| load_f64(&self.gap_bytes));
        self.gap_bytes.store(weighed(known, apart.min(FULL_STROKE_BYTES)).to_bits(), Ordering::Relaxed);
        // While a program was held, it could not come back.
        if last_ns >= resumed_ns && now_ns >= last_ns {
            let known = (self.has_reuse.load(Ordering::Relaxed) > 0).then(|| load_f64(&self.reuse_ns));
            self.has_reuse.store(1, Ordering::Relaxed);
            self.reuse_ns.store(weighed(known, (now_ns - last_ns) as f64).to_bits(), Ordering::Relaxed);
        }
    }

    fn clear(&self) {
        let words = [&self.datafile, &self.end, &self.last_ns, &self.gap_bytes, &self.reuse_ns, &self.requests];
        words.into_iter().chain([&self.has_reuse, &self.bytes]).for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

impl UsePage {
    /// Makes a new or foreign page one of this version.
    pub(crate) fn set_up(&self) {
        if self.magic.load(Ordering::Relaxed) != USES_MAGIC {
            self.programs.iter().for_each(|program| program.key.store(0, Ordering::Relaxed));
            self.processes.iter().for_each(|process| process.process.store(0, Ordering::Relaxed));
            self.flights.iter().for_each(|flight| flight.word.store(0, Ordering::Relaxed));
            self.servers.iter().for_each(UseCell::clear);
            self.magic.store(USES_MAGIC, Ordering::Relaxed);
        }
    }

    /// The place of a program: `hint` if it is there still, else that of its key, else a free one, else that of a program that
    /// has not been heard of for long. `None`: all have a program that is at work.
    pub(crate) fn place(&self, program: &Identified, hint: usize, now_ns: u64) -> Option<usize> {
        let key = |place: usize| self.programs[place].key.load(Ordering::Relaxed);
        if hint < MOST_PROGRAMS && key(hint) == program.key.0 {
            return Some(hint);
        }
        self.find_place(program, now_ns)
    }

    #[cold]
    fn find_place(&self, program: &Identified, now_ns: u64) -> Option<usize> {
        let found = |wanted: u64| self.programs.iter().position(|cell| cell.key.load(Ordering::Relaxed) == wanted);
        for _ in 0..MOST_PROGRAMS {
            if let Some(place) = found(program.key.0) {
                return Some(place);
            }
            let old = || {
                self.programs.iter().position(|cell| {
                    let last_ns = cell.last_ns.load(Ordering::Relaxed);
                    // A time ahead of now is of another boot.
                    now_ns.saturating_sub(last_ns) > FORGOTTEN_AFTER_NS || last_ns > now_ns + FORGOTTEN_AFTER_NS
                })
            };
            let Some(place) = found(0).or_else(old) else { break };
            let cell = &self.programs[place];
            let before = cell.key.load(Ordering::Relaxed);
            if cell.key.compare_exchange(before, program.key.0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                self.reset(place, program, now_ns);
                return Some(place);
            }
        }
        self.unplaced.fetch_add(1, Ordering::Relaxed);
        None
    }

    fn reset(&self, place: usize, program: &Identified, now_ns: u64) {
        let cell = &self.programs[place];
        let counters = [&cell.resumed_ns, &cell.requests, &cell.bytes, &cell.held, &cell.waited_ns, &cell.in_turn];
        let others = [&cell.unanswered, &cell.overdue, &cell.files, &cell.bursts, &cell.period_ns, &cell.paced_ns];
        counters.into_iter().chain(others).for_each(|word| word.store(0, Ordering::Relaxed));
        cell.uid.store(u64::from(program.uid), Ordering::Relaxed);
        const { assert!(PROGRAM_NAME_BYTES == 32) };
        store_bytes(&cell.name, &program.name);
        [&cell.first_ns, &cell.last_ns, &cell.burst_ns]
            .into_iter()
            .for_each(|word| word.store(now_ns, Ordering::Relaxed));
        self.uses[place].iter().for_each(UseCell::clear);
    }

    /// Notes that a process of the program at `place` has sent a request.
    pub(crate) fn note_process(&self, process: u32, place: usize, now_ns: u64) {
        let word = u64::from(process) | ((place as u64) << 32);
        let first = (process as usize).wrapping_mul(0x9e37_79b1) % MOST_PROCESSES;
        // A few places are looked at: what finds none is not counted.
        for at in (first..first + 8).map(|at| at % MOST_PROCESSES) {
            let cell = &self.processes[at];
            let (known, last_ns) = (cell.process.load(Ordering::Relaxed), cell.last_ns.load(Ordering::Relaxed));
            if known == word
                || known == 0
                || known as u32 == process
                || now_ns.saturating_sub(last_ns) > FORGOTTEN_AFTER_NS
            {
                cell.process.store(word, Ordering::Relaxed);
                cell.last_ns.store(now_ns, Ordering::Relaxed);
                return;
            }
        }
    }

    /// Notes that the program at `place` asks for bytes of `file`.
    pub(crate) fn note_request(&self, place: usize, file: u64, now_ns: u64) {
        let cell = &self.programs[place];
        let last_ns = cell.last_ns.swap(now_ns, Ordering::Relaxed);
        let bit = 1 << (file.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58);
        if cell.files.load(Ordering::Relaxed) & bit == 0 {
            cell.files.fetch_or(bit, Ordering::Relaxed);
        }
        if now_ns.saturating_sub(last_ns) > BURST_GAP_NS {
            let begun_ns = cell.burst_ns.swap(now_ns, Ordering::Relaxed);
            let known = (cell.bursts.fetch_add(1, Ordering::Relaxed) > 0).then(|| load_f64(&cell.period_ns));
            let period_ns = weighed(known, now_ns.saturating_sub(begun_ns) as f64);
            cell.period_ns.store(period_ns.to_bits(), Ordering::Relaxed);
        }
    }

    /// Notes that a program asks for bytes of a file of that rank, waits for them or has got them. One store.
    pub(crate) fn note_rank(&self, rank: u8, now_ns: u64) {
        self.ranks[usize::from(rank) % RANKS].store(now_ns, Ordering::Relaxed);
    }

    /// How long it is at least until programs have paused for `pause_ns` on files of lower ranks. Loads, as many as there are lower
    /// ranks.
    pub(crate) fn until_pause_ns(&self, rank: u8, pause_ns: u64, now_ns: u64) -> u64 {
        let lower = &self.ranks[..usize::from(rank) % RANKS];
        lower.iter().map(|last_ns| pause_ns.saturating_sub(age_ns(last_ns, now_ns))).max().unwrap_or(0)
    }

    /// Notes that servers have a request of the program at `place`, which `process` carries out: a number for [`Self::land`].
    /// `None`: the places that are looked at are taken, and nothing knows of it. Some loads and one exchange.
    pub(crate) fn take_off(&self, process: u32, place: usize, now_ns: u64) -> Option<NonZeroU32> {
        let word = (u64::from(process) << 32) | (place as u64 + 1);
        let first = (now_ns.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
        (first..first + FLIGHT_PLACES).map(|at| at % MOST_FLIGHTS).find_map(|at| {
            let cell = &self.flights[at];
            let known = cell.word.load(Ordering::Relaxed);
            // Those of a process that was killed stay until they are in the way.
            let is_free = known == 0 || age_ns(&cell.since_ns, now_ns) > FORGOTTEN_AFTER_NS;
            let is_taken =
                is_free && cell.word.compare_exchange(known, word, Ordering::Acquire, Ordering::Relaxed).is_ok();
            is_taken.then(|| cell.since_ns.store(now_ns, Ordering::Relaxed))?;
            NonZeroU32::new(at as u32 + 1)
        })
    }

    /// Servers have answered the request of this number.
    pub(crate) fn land(&self, number: NonZeroU32) {
        if let Some(cell) = self.flights.get(number.get() as usize - 1) {
            cell.word.store(0, Ordering::Release);
        }
    }

    /// Whether servers have had a request, for at most `most_ns`, of a program that is one of `is_former`. What a process had
    /// that is there no more is forgotten: one system call for each. O([`MOST_FLIGHTS`]).
    pub(crate) fn has_flight(&self, is_former: impl Fn(ProgramKey) -> bool, most_ns: u64, now_ns: u64) -> bool {
        self.flights.iter().any(|cell| {
            let word = cell.word.load(Ordering::Acquire);
            let program = self.programs.get((word as u32 as usize).wrapping_sub(1));
            let is_one = program.is_some_and(|program| {
                age_ns(&cell.since_ns, now_ns) <= most_ns && is_former(ProgramKey(program.key.load(Ordering::Relaxed)))
            });
            if is_one && !is_there((word >> 32) as u32) {
                let _ = cell.word.compare_exchange(word, 0, Ordering::Relaxed, Ordering::Relaxed);
                return false;
            }
            is_one
        })
    }

    /// Notes what a server has served of the program at `place`; in a window of all programs (`is_mixed`) also what the server
    /// sees of all.
    #[inline]
    pub(crate) fn note_served(&self, place: Option<usize>, part: &ServedPart, is_mixed: bool, now_ns: u64) {
        let Some(server) = self.servers.get(part.server) else { return };
        if is_mixed {
            server.note(part, now_ns, 0);
        }
        if let Some(place) = place {
            let resumed_ns = self.programs[place].resumed_ns.load(Ordering::Relaxed);
            self.uses[place][part.server].note(part, now_ns, resumed_ns);
            self.programs[place].bytes.fetch_add(part.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Box<UsePage> {
        // SAFETY: the layout has a size, and all bytes, zeros too, are a value of atomics.
        let page: Box<UsePage> = unsafe {
            let memory = std::alloc::alloc_zeroed(std::alloc::Layout::new::<UsePage>()).cast::<UsePage>();
            assert!(!memory.is_null());
            Box::from_raw(memory)
        };
        page.set_up();
        page
    }

    fn part(datafile: u64, offset: u64) -> ServedPart {
        ServedPart { server: 3, datafile, offset, bytes: 4096 }
    }

    #[test]
    fn gaps_and_times_between_requests() {
        let page = page();
        let program = Identified::named(0, b"a");
        let place = page.place(&program, usize::MAX, 1000);
        page.note_served(place, &part(1, 0), true, 1000);
        page.note_served(place, &part(1, 4096), true, 3000);
        let cell = &page.uses[place.unwrap()][3];
        assert_eq!((load_f64(&cell.gap_bytes).to_bits(), load_f64(&cell.reuse_ns) as u64), (0, 2000));
        page.note_served(place, &part(1, 16_384), true, 5000);
        assert_eq!(load_f64(&cell.gap_bytes) as u64, 8192 * 7 / 8);
        // Another file is a whole stroke away; and a program that was held could not come back.
        page.programs[place.unwrap()].resumed_ns.store(6000, Ordering::Relaxed);
        page.note_served(place, &part(2, 0), false, 1_000_000);
        assert!(load_f64(&cell.gap_bytes) > 0.8 * FULL_STROKE_BYTES);
        assert_eq!(load_f64(&cell.reuse_ns) as u64, 2000);
        assert_eq!(page.servers[3].requests.load(Ordering::Relaxed), 3, "not in a window of one program");
        page.note_served(place, &ServedPart { server: 70_000, ..part(1, 0) }, true, 7000);
    }

    #[test]
    fn programs_have_places_until_they_are_forgotten() {
        let page = page();
        let named = |number: usize| Identified::named(0, format!("p{number}").as_bytes());
        let places: Vec<_> = (0..MOST_PROGRAMS).map(|number| page.place(&named(number), 0, 1000).unwrap()).collect();
        assert_eq!(places, (0..MOST_PROGRAMS).collect::<Vec<_>>());
        assert_eq!(page.place(&named(5), 77, 1000), Some(5));
        assert_eq!(page.place(&named(99), 0, 2000), None);
        assert_eq!(page.unplaced.load(Ordering::Relaxed), 1);
        page.note_request(0, 1, FORGOTTEN_AFTER_NS);
        let late_ns = FORGOTTEN_AFTER_NS + 2000;
        assert_eq!(page.place(&named(99), 0, late_ns), Some(1), "the first that was silent");
        assert_eq!(page.place(&named(1), 1, late_ns), Some(2), "whose place it was finds another");
    }

    #[test]
    fn requests_that_servers_have_are_known_until_they_land_or_their_process_ends() {
        let page = page();
        let place = page.place(&Identified::named(0, b"a"), 0, 1000).unwrap();
        let key = page.programs[place].key.load(Ordering::Relaxed);
        let has = |now_ns| page.has_flight(|program| program.0 == key, 5000, now_ns);
        assert!(!has(1000));
        let own = std::process::id();
        let [one, two] = [1000, 2000].map(|now_ns| page.take_off(own, place, now_ns).unwrap());
        assert!(has(3000) && !page.has_flight(|program| program.0 != key, 5000, 3000));
        page.land(one);
        assert!(has(3000) && has(7000) && !has(7001), "one that takes long is waited for no longer");
        page.land(two);
        assert!(!has(3000));
        // A process that was killed.
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        page.take_off(child.id(), place, 3000).unwrap();
        assert!(!has(3000));
        assert!(page.flights.iter().all(|cell| cell.word.load(Ordering::Relaxed) == 0), "it is forgotten");
        // When there is no place, what comes is not known; garbage names no program; old ones are no hindrance.
        page.flights.iter().for_each(|cell| cell.word.store(u64::MAX, Ordering::Relaxed));
        assert_eq!(page.take_off(own, place, 3000), None);
        assert!(!has(3000));
        page.land(NonZeroU32::MAX);
        assert!(page.take_off(own, place, 2 * FORGOTTEN_AFTER_NS).is_some());
    }

    #[test]
    fn a_rank_waits_until_lower_ones_have_paused() {
        let page = page();
        let until_ns = |rank, now_ns| page.until_pause_ns(rank, 1000, now_ns);
        assert_eq!(until_ns(7, 50_000), 0, "none has asked for anything");
        page.note_rank(0, 50_000);
        page.note_rank(3, 50_600);
        assert_eq!([0, 1, 3, 4, 7].map(|rank| until_ns(rank, 50_700)), [0, 300, 300, 900, 900]);
        assert_eq!([1, 4].map(|rank| until_ns(rank, 51_100)), [0, 500]);
        // A time of another boot, and a rank that none can have.
        page.note_rank(0, 50_000 + 2 * FORGOTTEN_AFTER_NS);
        page.note_rank(255, 51_000);
        assert_eq!([1, 255].map(|rank| until_ns(rank, 52_000)), [0, 0]);
    }

    #[test]
    fn bursts_give_a_period_and_files_are_counted() {
        let page = page();
        let place = page.place(&Identified::named(0, b"a"), 0, 0).unwrap();
        for burst in 1..4 {
            for request in 0..5 {
                page.note_request(place, 17 + request % 2, burst * 1_000_000_000 + request * 1_000_000);
            }
        }
        let cell = &page.programs[place];
        assert_eq!(load_f64(&cell.period_ns) as u64, 1_000_000_000);
        assert_eq!(cell.files.load(Ordering::Relaxed).count_ones(), 2);
    }
}
