//! The load of the metadata tier: what every process has it serve, on one page that all of them map, and what follows from it for
//! new small files.
//!
//! A process counts a request on bytes of inodes, and an operation on names, when it begins and when it has been served. Once a period, whichever process sees
//! first that it is over takes the counts of all and predicts the next one ([`stripewise_optimisation::burst`]). By that, and by the
//! room that the tier has left, the threshold of small files moves ([`stripewise_optimisation::threshold`]). It is a share: a new
//! file gets that share of what its directory's hint `small` allows.
//!
//! The page is never trusted: what cannot be a share counts as 1, so that hints hold as they are written, and what cannot be a count
//! as 0. A process that is killed in the middle of a request leaves one that has begun and never ends; a period in which nothing else
//! happens takes it for lost. The file is the page; another arrangement would have another name.

use crate::os::shared_pages::{SharedPage, allocate};
use crate::os::sys::{open_or_make, retry};
use crate::pool::pool_file::{Pool, ProfileSource};
use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags};
use rustix::mm::ProtFlags;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use stripewise_model::{NameCosts, Op, OpProfile, Profile};
use stripewise_optimisation::{BurstParameters, ThresholdRules, bls_esm, burst_ratio, esm};

/// Name of the file in the namespace.
const LOAD_FILE: &str = "meta-load.2";
/// How long a period is.
pub(crate) const PERIOD_NS: u64 = 1_000_000_000;
/// Periods without a request that are counted one by one; after as many the tier is idle, however many more there were.
const MOST_IDLE: u64 = 64;
/// The tier's space is short where this many more periods like the last one fill it.
const PERIODS_LEFT: u64 = 8;
/// Unused bytes that are enough for small files on a tier of any size.
const PLENTY_BYTES: u64 = 4 << 30;
/// Greatest count of a period; more was written by something else.
const MOST_COUNT: u64 = 1 << 50;

/// Words of a line: what one processor takes from another at a time.
const LINE: usize = 8;
/// Lines of counts, which files share by their handles.
const STRIPES: usize = 8;
/// Periods that are kept.
const KEPT: usize = 512;
const LINES: usize = 3 + STRIPES + KEPT;

type Words = [AtomicU64; LINE];
type Lines = [Words; LINES];

/// The first line: the state. Its words, by number.
const NEXT_NS: usize = 0;
const LAST_NS: usize = 1;
const SHARE: usize = 2;
const ESM: usize = 3;
const BLS_ESM: usize = 4;
const SPARE_BYTES: usize = 5;
const LOST: usize = 6;
const PERIODS: usize = 7;
/// The second line: the counts at the end of the last period, as a line of counts has them. In the third is what waited then.
const BEFORE: usize = 1;
const WAITED: usize = 2;
const COUNTS: usize = 3;
const HISTORY: usize = COUNTS + STRIPES;

/// Words of a line of counts.
const BEGUN: usize = 0;
const READS: usize = 1;
const WRITES: usize = 2;
const READ_BYTES: usize = 3;
const WRITTEN_BYTES: usize = 4;
const LATENCY_NS: usize = 5;
/// Operations on names: those that look and those that change something.
const LOOKS: usize = 6;
const CHANGES: usize = 7;

/// A period of the metadata tier, all that is kept of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MetaPeriod {
    /// When it ended, in seconds of the epoch.
    pub time_s: f64,
    /// Requests that were served, operations on names among them.
    pub served: u64,
    /// Operations on names that were served.
    pub names: u64,
    /// Requests that had begun and were not served at its end.
    pub waiting: u64,
    /// Bytes that were read and written.
    pub bytes: u64,
    /// Seconds that the requests took, in the mean.
    pub latency_s: f64,
    /// The share of the tier's time that serving them takes by its profile.
    pub load: f64,
    /// The same of the next period, as predicted by smoothing (ESM).
    pub esm: f64,
    /// The same as predicted with what waited (BLS-ESM), by which the threshold goes.
    pub bls_esm: f64,
    /// The threshold after it, as a share of what directories hint.
    pub share: f64,
}

/// What is known of the tier at the end of a period.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MetaTierNow {
    /// `CLOCK_MONOTONIC`.
    pub(crate) now_ns: u64,
    /// Seconds of the epoch.
    pub(crate) time_s: f64,
    /// Bytes that its users have and can have; 0 where it does not say.
    pub(crate) usable_bytes: u64,
    /// Bytes that can be written before only the reserve is left.
    pub(crate) spare_bytes: u64,
}

/// What requests cost on the tier.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MetaPrices {
    profile: Profile,
    /// Requests that it serves side by side.
    at_once: u32,
    /// What operations on names cost; nothing where that is not known.
    names: NameCosts,
    /// Whether the profile was measured, or is that of an emulation: else the load is not known, and does not move the threshold.
    is_known: bool,
}

impl MetaPrices {
    /// Those of the pool's metadata tier.
    pub(crate) fn of(pool: &Pool) -> Self {
        let (profile, source) = pool.meta.profile;
        let names = pool.meta.names.unwrap_or(NameCosts::FREE);
        Self { profile, at_once: pool.meta.at_once, names, is_known: source != ProfileSource::Preset }
    }

    /// Seconds that it takes for an operation on names, in the mean of those that look and those that change; `None` where that is not known.
    pub(crate) fn name_s(&self) -> Option<f64> {
        let name_s = self.names.busy_s(1, 1) / 2.0;
        (self.is_known && name_s > 0.0).then_some(name_s)
    }

    /// Seconds that the tier takes for what was counted, which it serves side by side as far as it does.
    fn busy_s(&self, counts: &[u64; LINE]) -> f64 {
        let of = |op: &OpProfile, requests: u64, bytes: u64| {
            let startup_s = (op.startup_min_s + op.startup_max_s) / 2.0;
            requests as f64 * startup_s + bytes as f64 * (op.transfer_s_per_byte + self.profile.network_s_per_byte)
        };
        let reads_s = of(&self.profile.read, counts[READS], counts[READ_BYTES]);
        let bytes_s = reads_s + of(&self.profile.write, counts[WRITES], counts[WRITTEN_BYTES]);
        (bytes_s + self.names.busy_s(counts[LOOKS], counts[CHANGES])) / f64::from(self.at_once)
    }
}

/// The page, as one process has it.
#[derive(Debug)]
pub(crate) struct MetaLoad {
    page: SharedPage<Lines>,
}

fn word(line: &Words, at: usize) -> u64 {
    line[at].load(Ordering::Relaxed)
}

/// A load that was kept; 0 for what is none.
fn load_of(bits: u64) -> f64 {
    let load = f64::from_bits(bits);
    if load.is_finite() && (0.0..=1e6).contains(&load) { load } else { 0.0 }
}

/// A threshold that was kept; 1 for what is none.
fn share_of(bits: u64) -> f64 {
    let share = f64::from_bits(bits);
    if ThresholdRules::default().is_share(share) { share } else { 1.0 }
}

impl MetaLoad {
    /// Maps the page of the pool with this `namespace`; makes it if there is none. `None` where this process cannot: its requests are
    /// not counted then, and its new files are made as the hints say. So it is for all but root in a pool of several users, where it
    /// would be any user's page.
    pub(crate) fn open(namespace: &Path, shared: bool) -> Option<Self> {
        if shared && !rustix::process::geteuid().is_root() {
            return None;
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mode = Mode::from_raw_mode(0o600);
        let file = open_or_make(&namespace.join(LOAD_FILE), flags, mode).ok()?;
        allocate(file.as_fd(), size_of::<Lines>() as u64).ok()?;
        let page = SharedPage::map(file.as_fd(), 0, ProtFlags::READ | ProtFlags::WRITE).ok()?;
        Some(Self { page })
    }

    /// Counts a request on the file of that handle, which begins. One addition.
    #[inline]
    pub(crate) fn begin(&self, handle: u64) {
        self.counts(handle)[BEGUN].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts that it has been served, and is over at `now_ns`; whether the period is, too. Three additions and a load: together with
    /// [`MetaLoad::begin`] and the clock some 100 ns.
    #[inline]
    pub(crate) fn end(&self, handle: u64, op: Op, bytes: u64, (began_ns, now_ns): (u64, u64)) -> bool {
        let line = self.counts(handle);
        let (requests, sum) = if op == Op::Read { (READS, READ_BYTES) } else { (WRITES, WRITTEN_BYTES) };
        line[requests].fetch_add(1, Ordering::Relaxed);
        line[sum].fetch_add(bytes, Ordering::Relaxed);
        line[LATENCY_NS].fetch_add(now_ns.saturating_sub(began_ns), Ordering::Relaxed);
        self.is_over(now_ns)
    }

    /// As [`MetaLoad::end`], of an operation on names.
    #[inline]
    pub(crate) fn end_name(&self, handle: u64, op: Op, (began_ns, now_ns): (u64, u64)) -> bool {
        let line = self.counts(handle);
        line[if op == Op::Read { LOOKS } else { CHANGES }].fetch_add(1, Ordering::Relaxed);
        line[LATENCY_NS].fetch_add(now_ns.saturating_sub(began_ns), Ordering::Relaxed);
        self.is_over(now_ns)
    }

    /// Takes back what [`MetaLoad::begin`] counted: the end of a file was read, which the tier serves from memory. One subtraction.
    pub(crate) fn withdraw(&self, handle: u64) {
        self.counts(handle)[BEGUN].fetch_sub(1, Ordering::Relaxed);
    }

    fn counts(&self, handle: u64) -> &Words {
        &self.page[COUNTS + handle as usize % STRIPES]
    }

    /// Whether the period is over. A time that no process can have set, as after a start of the machine, is over, too.
    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        let next_ns = word(&self.page[0], NEXT_NS);
        now_ns >= next_ns || next_ns - now_ns > PERIOD_NS
    }

    /// The threshold of now, as a share of what directories hint: 1 where what is kept is none, or no period has ended of late.
    pub(crate) fn share(&self, now_ns: u64) -> f64 {
        if self.is_fresh(now_ns) { share_of(word(&self.page[0], SHARE)) } else { 1.0 }
    }

    /// Whether a period has ended of late.
    pub(crate) fn is_fresh(&self, now_ns: u64) -> bool {
        let passed_ns = now_ns.checked_sub(word(&self.page[0], LAST_NS));
        passed_ns.is_some_and(|passed_ns| passed_ns <= MOST_IDLE * PERIOD_NS)
    }

    /// What was counted so far, by all processes.
    pub(crate) fn counted(&self) -> [u64; LINE] {
        let mut sum = [0_u64; LINE];
        for line in &self.page[COUNTS..COUNTS + STRIPES] {
            for (at, sum) in sum.iter_mut().enumerate() {
                *sum = sum.wrapping_add(word(line, at));
            }
        }
        sum
    }

    /// Ends the period if it is over: in one of the processes that see it, which stores what follows. No lock: one that is killed
    /// here leaves words of two periods beside each other, each of which is checked where it is read.
    pub(crate) fn end_period(&self, now: &MetaTierNow, prices: &MetaPrices) {
        let state = &self.page[0];
        let next_ns = word(state, NEXT_NS);
        let is_ours = self.is_over(now.now_ns)
            && state[NEXT_NS]
                .compare_exchange(next_ns, now.now_ns + PERIOD_NS, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !is_ours {
            return;
        }
        let last_ns = word(state, LAST_NS);
        let passed_ns = now.now_ns.checked_sub(last_ns).filter(|passed_ns| last_ns > 0 && *passed_ns > 0);
        let total = self.counted();
        let before: [u64; LINE] = std::array::from_fn(|at| word(&self.page[BEFORE], at));
        let did: [u64; LINE] = std::array::from_fn(|at| {
            Some(total[at].wrapping_sub(before[at]))
                .filter(|did| *did <= MOST_COUNT && passed_ns.is_some())
                .unwrap_or(0)
        });
        let waiting = self.waiting(&total, &did);
        let spare_before = word(state, SPARE_BYTES);
        for (at, value) in total.into_iter().enumerate() {
            self.page[BEFORE][at].store(value, Ordering::Relaxed);
        }
        state[LAST_NS].store(now.now_ns, Ordering::Relaxed);
        state[SPARE_BYTES].store(now.spare_bytes, Ordering::Relaxed);
        let taken_bytes = spare_before.saturating_sub(now.spare_bytes);
        let is_filling = passed_ns.is_some() && taken_bytes > 0 && now.spare_bytes / taken_bytes < PERIODS_LEFT;
        let unused = if is_filling { 0.0 } else { unused(now) };
        // All that was served came in the first of several periods that passed: a request later would have ended that one.
        let passed_ns = passed_ns.unwrap_or(PERIOD_NS);
        let (first_ns, idle) = if passed_ns < 2 * PERIOD_NS {
            (passed_ns, 0)
        } else {
            (PERIOD_NS, (passed_ns / PERIOD_NS - 1).min(MOST_IDLE))
        };
        let names = did[LOOKS] + did[CHANGES];
        let served = did[READS] + did[WRITES] + names;
        let load = (prices.busy_s(&did) / (first_ns as f64 * 1e-9)).min(1e6);
        let mut next = Prediction::kept(state);
        next.period(load, burst_ratio(served + waiting, served), unused, prices.is_known);
        for _ in 0..idle {
            next.period(0.0, 1.0, unused, prices.is_known);
        }
        next.keep(state);
        let latency_s = did[LATENCY_NS] as f64 * 1e-9 / served.max(1) as f64;
        let bytes = did[READ_BYTES] + did[WRITTEN_BYTES];
        let Prediction { esm, bls_esm, share } = next;
        let time_s = now.time_s;
        self.remember(&MetaPeriod { time_s, served, names, waiting, bytes, latency_s, load, esm, bls_esm, share });
    }

    /// Requests that have begun and were not served, without those that are lost.
    fn waiting(&self, total: &[u64; LINE], did: &[u64; LINE]) -> u64 {
        let state = &self.page[0];
        let served = [READS, WRITES, LOOKS, CHANGES].map(|at| total[at]);
        let open = served.into_iter().fold(total[BEGUN], u64::wrapping_sub);
        // A request that ends between two of these loads makes it negative.
        let open = if open > MOST_COUNT { 0 } else { open };
        let mut lost = word(state, LOST).min(open);
        let has_stood = [BEGUN, READS, WRITES, LOOKS, CHANGES].iter().all(|&at| did[at] == 0);
        if has_stood && open - lost <= word(&self.page[WAITED], 0) {
            lost = open;
        }
        state[LOST].store(lost, Ordering::Relaxed);
        self.page[WAITED][0].store(open - lost, Ordering::Relaxed);
        open - lost
    }

    fn remember(&self, period: &MetaPeriod) {
        let number = self.page[0][PERIODS].fetch_add(1, Ordering::Relaxed);
        let line = &self.page[HISTORY + number as usize % KEPT];
        for (word, value) in line.iter().zip(period.to_words()) {
            word.store(value, Ordering::Relaxed);
        }
    }
}

/// The share of the tier's space that is unused, its reserve left out; all of it where that is plenty for small files, however large
/// the tier is.
fn unused(now: &MetaTierNow) -> f64 {
    if now.usable_bytes == 0 || now.spare_bytes >= PLENTY_BYTES {
        return 1.0;
    }
    now.spare_bytes as f64 / now.usable_bytes as f64
}

/// What is predicted of the next period, and the threshold for it.
struct Prediction {
    esm: f64,
    bls_esm: f64,
    share: f64,
}

impl Prediction {
    fn kept(state: &Words) -> Self {
        let load = |at| load_of(word(state, at));
        Self { esm: load(ESM), bls_esm: load(BLS_ESM), share: share_of(word(state, SHARE)) }
    }

    /// After a period of that load.
    fn period(&mut self, load: f64, ratio: f64, unused: f64, is_known: bool) {
        let parameters = BurstParameters::default();
        self.esm = esm(parameters.lambda, self.esm, load);
        self.bls_esm = bls_esm(&parameters, self.bls_esm, load, ratio);
        let expected = if is_known { self.bls_esm } else { 0.0 };
        self.share = ThresholdRules::default().after(self.share, unused, expected);
    }

    fn keep(&self, state: &Words) {
        for (at, value) in [(ESM, self.esm), (BLS_ESM, self.bls_esm), (SHARE, self.share)] {
            state[at].store(value.to_bits(), Ordering::Relaxed);
        }
    }
}

impl MetaPeriod {
    fn to_words(self) -> [u64; LINE] {
        let both = |high: f64, low: f64| u64::from((high as f32).to_bits()) << 32 | u64::from((low as f32).to_bits());
        [
            self.time_s.to_bits(),
            self.names.min(u64::from(u32::MAX)) << 32 | self.served.min(u64::from(u32::MAX)),
            self.waiting,
            self.bytes,
            self.latency_s.to_bits(),
            self.load.to_bits(),
            both(self.esm, self.bls_esm),
            self.share.to_bits(),
        ]
    }

    /// `None` for what no process has written, or a hand.
    fn from_words(words: [u64; LINE]) -> Option<Self> {
        let [time, served, waiting, bytes, latency, load, both, share] = words;
        let half = |bits: u64| f64::from(f32::from_bits(bits as u32));
        let number = |value: f64| (value.is_finite() && value >= 0.0).then_some(value);
        Some(Self {
            time_s: number(f64::from_bits(time)).filter(|time_s| *time_s > 0.0)?,
            served: served & u64::from(u32::MAX),
            names: served >> 32,
            waiting,
            bytes,
            latency_s: number(f64::from_bits(latency))?,
            load: number(f64::from_bits(load))?,
            esm: number(half(both >> 32))?,
            bls_esm: number(half(both))?,
            share: Some(f64::from_bits(share)).filter(|share| ThresholdRules::default().is_share(*share))?,
        })
    }
}

/// The last periods of the pool's metadata tier, the oldest first: 512 at most. None where nothing was counted, or this process may
/// not look.
pub fn meta_periods(pool: &Pool) -> Vec<MetaPeriod> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let path = pool.namespace.join(LOAD_FILE);
    let Ok(file) = retry(|| rustix::fs::open(&path, flags, Mode::empty())) else { return Vec::new() };
    let mut bytes = vec![0; size_of::<Lines>()];
    if !matches!(retry(|| rustix::io::pread(&file, &mut bytes[..], 0)), Ok(read) if read == size_of::<Lines>()) {
        return Vec::new();
    }
    let line = |bytes: &[u8]| {
        let mut words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")));
        std::array::from_fn(|_| words.next().expect("a line of words"))
    };
    let lines = bytes.chunks_exact(LINE * 8).skip(HISTORY).map(line);
    let mut periods: Vec<MetaPeriod> = lines.filter_map(MetaPeriod::from_words).collect();
    periods.sort_by(|a, b| a.time_s.total_cmp(&b.time_s));
    periods
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    /// A tier that serves 100 requests in a second.
    fn prices(is_known: bool) -> MetaPrices {
        let op = OpProfile { startup_min_s: 0.01, startup_max_s: 0.01, transfer_s_per_byte: 0.0, head: None };
        MetaPrices {
            profile: Profile { read: op, write: op, network_s_per_byte: 0.0 },
            at_once: 1,
            names: NameCosts::FREE,
            is_known,
        }
    }

    fn page() -> (tempfile::TempDir, MetaLoad) {
        let directory = tempfile::tempdir().unwrap();
        let load = MetaLoad::open(directory.path(), false).unwrap();
        (directory, load)
    }

    /// The end of period number `period`.
    fn end(load: &MetaLoad, period: u64, spare_bytes: u64, is_known: bool) -> f64 {
        let now_ns = period * PERIOD_NS;
        let now = MetaTierNow { now_ns, time_s: 1e9 + period as f64, usable_bytes: 1000 * MIB, spare_bytes };
        load.end_period(&now, &prices(is_known));
        load.share(now_ns)
    }

    fn serve(load: &MetaLoad, begun: u64, served: u64, period: u64) {
        (0..begun).for_each(|handle| load.begin(handle));
        (0..served).for_each(|handle| {
            load.end(handle, Op::Read, 4096, (0, period * PERIOD_NS - PERIOD_NS / 2));
        });
    }

    #[test]
    fn a_tier_that_serves_several_at_once_takes_as_many_times_less() {
        let mut counts = [0; LINE];
        (counts[READS], counts[WRITES]) = (60, 40);
        let busy_s = |at_once| MetaPrices { at_once, ..prices(true) }.busy_s(&counts);
        assert!((busy_s(1) - 1.0).abs() < 1e-9 && (busy_s(4) - 0.25).abs() < 1e-9);
    }

    #[test]
    fn space_is_short_by_its_share_of_what_users_can_have_unless_it_is_plenty() {
        let of = |usable_bytes, spare_bytes| unused(&MetaTierNow { now_ns: 0, time_s: 0.0, usable_bytes, spare_bytes });
        let short = ThresholdRules::default().least_unused;
        assert!(of(1000 * MIB, 49 * MIB) < short && of(1000 * MIB, 51 * MIB) >= short);
        assert!(of(1000 * PLENTY_BYTES, PLENTY_BYTES) >= short && of(1000 * PLENTY_BYTES, PLENTY_BYTES - 1) < short);
        assert!(of(0, 0) >= short, "a tier that does not say has enough");
    }

    #[test]
    fn a_burst_lowers_the_threshold_while_it_lasts_and_the_quiet_after_it_brings_it_back() {
        let (_directory, load) = page();
        assert_eq!(load.share(PERIOD_NS), 1.0);
        for period in 1..6 {
            serve(&load, 20, 20, period);
            assert_eq!(end(&load, period, 900 * MIB, true), 1.0);
        }
        // 400 come at once; the tier serves 60 before the period ends, which alone would be within the dead band.
        serve(&load, 400, 60, 6);
        assert_eq!(end(&load, 6, 900 * MIB, true), 0.5);
        let waiting = |load: &MetaLoad| word(&load.page[WAITED], 0);
        assert_eq!(waiting(&load), 340, "the burst has not passed");
        for period in 7..10 {
            serve(&load, 0, 100, period);
            end(&load, period, 900 * MIB, true);
        }
        assert!(load.share(9 * PERIOD_NS) < 0.1);
        serve(&load, 0, 40, 10);
        end(&load, 10, 900 * MIB, true);
        assert_eq!(waiting(&load), 0);
        // Nothing is looked at for a while: each period that passed counts.
        assert_eq!(end(&load, 40, 900 * MIB, true), 1.0);
    }

    #[test]
    fn a_load_that_is_not_known_moves_nothing_and_space_does() {
        let (_directory, load) = page();
        for period in 1..5 {
            serve(&load, 4000, 4000, period);
            assert_eq!(end(&load, period, 900 * MIB, false), 1.0);
        }
        assert_eq!(end(&load, 5, 40 * MIB, false), 0.5, "less than a twentieth is unused");
        assert_eq!(end(&load, 6, 40 * MIB, false), 0.25);
        assert_eq!(end(&load, 7, 500 * MIB, false), 0.3125);
        assert_eq!(end(&load, 8, 400 * MIB, false), 0.15625, "full in four periods, if it goes on like that");
        assert_eq!(end(&load, 9, 399 * MIB, false), 0.1953125);
    }

    #[test]
    fn one_process_ends_a_period_and_all_see_it() {
        let (directory, first) = page();
        let second = MetaLoad::open(directory.path(), false).unwrap();
        end(&first, 1, 900 * MIB, true);
        serve(&first, 200, 50, 2);
        serve(&second, 200, 50, 2);
        assert_eq!(end(&first, 2, 900 * MIB, true), 0.5);
        assert_eq!(end(&second, 2, 900 * MIB, true), 0.5, "not again");
        assert!(!second.is_over(2 * PERIOD_NS + 5) && second.is_over(3 * PERIOD_NS));
    }

    #[test]
    fn a_request_that_never_ends_is_lost_when_the_tier_is_quiet() {
        let (_directory, load) = page();
        end(&load, 1, 900 * MIB, true);
        serve(&load, 7, 4, 2);
        end(&load, 2, 900 * MIB, true);
        assert_eq!(word(&load.page[WAITED], 0), 3);
        end(&load, 3, 900 * MIB, true);
        assert_eq!((word(&load.page[WAITED], 0), word(&load.page[0], LOST)), (0, 3));
        // They were only slow.
        serve(&load, 0, 3, 4);
        end(&load, 4, 900 * MIB, true);
        assert_eq!((word(&load.page[WAITED], 0), word(&load.page[0], LOST)), (0, 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Whatever stands on the page, the threshold is one, and the page is in order again after some periods.
        #[test]
        fn a_page_of_anything_is_survived(words in prop::collection::vec(any::<u64>(), (3 + STRIPES) * LINE), now in 1..u64::MAX / 2) {
            let (_directory, load) = page();
            for (at, value) in words.into_iter().enumerate() {
                load.page[at / LINE][at % LINE].store(value, Ordering::Relaxed);
            }
            for period in 0..4 {
                let now_ns = now + period * PERIOD_NS;
                let share = load.share(now_ns);
                prop_assert!(ThresholdRules::default().is_share(share));
                let now = MetaTierNow { now_ns, time_s: 1.0, usable_bytes: 0, spare_bytes: u64::MAX };
                prop_assert!(period > 0 || load.is_over(now_ns) || word(&load.page[0], NEXT_NS) - now_ns <= PERIOD_NS);
                load.end_period(&now, &prices(true));
                prop_assert!(ThresholdRules::default().is_share(load.share(now_ns)));
            }
            prop_assert!(!load.is_over(word(&load.page[0], LAST_NS)));
        }
    }
}
