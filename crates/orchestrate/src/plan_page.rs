//! The page of the plan: the orchestrator writes it, every gate reads it.
//!
//! Readers look at it without a lock: its version is odd while it is written, and one that has changed is read again. An
//! orchestrator that dies in the middle leaves it odd, and such a page holds no request.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use stripewise_schedule::{
    MAX_SLICES, MAX_WINDOW_NS, MIN_WINDOW_NS, ProgramKey, SlicePlan, Standing, Turn, TurnSlice, turn_of,
};
use stripewise_store::Atomics;

/// Name of the page's file in the namespace.
pub const TURNS_FILE: &str = "turns";

/// "SWTURNS" and the version of the page.
const MAGIC: u64 = u64::from_be_bytes(*b"SWTURNS\x01");
/// Programs that the page has weights, limits and standings of.
pub(crate) const LISTED: usize = 64;
/// A plan is repeated this many windows when no other follows; then gates open.
pub(crate) const LASTING_WINDOWS: u64 = 3;
/// Readers try this often to find the page unchanged.
const TRIES: usize = 8;

/// No orchestrator.
const ABSENT: u64 = 0;
/// One watches: programs count what they do, and all are served at all times.
const WATCHING: u64 = 1;
/// One has given out slices.
const IN_TURNS: u64 = 2;

/// The page. Times are of `CLOCK_MONOTONIC` in nanoseconds.
#[repr(C, align(64))]
pub(crate) struct PlanPage {
    /// The one thing that a gate looks at while nothing is scheduled.
    state: AtomicU64,
    /// Alone on its cache line.
    _gap: [AtomicU64; 7],
    magic: AtomicU64,
    version: AtomicU64,
    begin_ns: AtomicU64,
    window_ns: AtomicU64,
    expires_ns: AtomicU64,
    process: AtomicU64,
    since_ns: AtomicU64,
    windows: AtomicU64,
    policy: [AtomicU64; 4],
    slices: AtomicU64,
    slice: [[AtomicU64; 2]; MAX_SLICES],
    listed: AtomicU64,
    list: [[AtomicU64; 5]; LISTED],
}

/// Bytes of the page's file.
pub(crate) const PLAN_PAGE_BYTES: u64 = 8192;
const _: () = assert!(size_of::<PlanPage>() <= PLAN_PAGE_BYTES as usize);

// SAFETY: all of its fields are atomics.
unsafe impl Atomics for PlanPage {}

/// What a gate is to do with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admittance {
    /// Let it pass; no program has slices.
    Open,
    /// Let it pass; it is the program's turn.
    Turn,
    /// Let it pass: there was an orchestrator, and it does not answer, or the page is no plan.
    Unanswered,
    /// Its turn comes in this many nanoseconds.
    Wait(u64),
}

/// What the orchestrator says of a program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ListedProgram {
    /// Which.
    pub program: ProgramKey,
    /// Where it stands.
    pub standing: Standing,
    /// Weight.
    pub weight: f64,
    /// Bytes in a second; 0 is no limit.
    pub limit: u64,
    /// Mean time between its requests on a server, in nanoseconds.
    pub reuse_ns: Option<f64>,
}

/// One plan, as it is published.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedPlan {
    /// Its slices.
    pub plan: SlicePlan,
    /// When its first window begins: `CLOCK_MONOTONIC` of the node whose page it is for, in nanoseconds.
    pub begin_ns: u64,
    /// Length of a window in nanoseconds.
    pub window_ns: u64,
    /// The programs that have a weight, a limit or a standing; the first 64 count.
    pub listed: Vec<ListedProgram>,
}

/// All of the page.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlanContent {
    pub(crate) is_in_turns: bool,
    pub(crate) begin_ns: u64,
    pub(crate) window_ns: u64,
    pub(crate) process: u32,
    pub(crate) since_ns: u64,
    pub(crate) windows: u64,
    pub(crate) policy: String,
    pub(crate) slices: Vec<TurnSlice>,
    pub(crate) listed: Vec<ListedProgram>,
}

const STANDINGS: [Standing; 4] = [Standing::Shared, Standing::Probe, Standing::Dedicated, Standing::Cooldown];

impl PlanPage {
    /// Whether an orchestrator has been at work and did not say goodbye. One load.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.state.load(Ordering::Relaxed) != ABSENT
    }

    /// Whether all programs are served at all times now, so that what a server sees is the mix of them.
    pub(crate) fn is_mixed(&self) -> bool {
        self.state.load(Ordering::Relaxed) == WATCHING
    }

    /// Whether programs have slices, so that one follows the other. One load.
    #[inline]
    pub(crate) fn is_in_turns(&self) -> bool {
        self.state.load(Ordering::Relaxed) == IN_TURNS
    }

    /// When the slice of `now_ns` has begun, whatever the page says.
    pub(crate) fn slice_begun_ns(&self, now_ns: u64) -> u64 {
        let since_ns = now_ns.saturating_sub(self.begin_ns.load(Ordering::Relaxed));
        let at_ns = since_ns % self.window_ns();
        let ends = self.slices().map(|slice| slice.end_ns);
        let begun_ns = ends.take_while(|end_ns| *end_ns <= at_ns).last().unwrap_or(0);
        now_ns - (at_ns - begun_ns)
    }

    /// Runs `read` on a page that does not change meanwhile; `None` where it changes or stays half-written.
    fn consistent<T>(&self, read: impl Fn(&Self) -> T) -> Option<T> {
        for _ in 0..TRIES {
            let before = self.version.load(Ordering::Acquire);
            let found = read(self);
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == before {
                return (self.magic.load(Ordering::Relaxed) == MAGIC).then_some(found);
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Whether its times are those of a living orchestrator: it has been heard of, and no time is further ahead than windows
    /// allow (the page may be of another boot, or hostile).
    fn is_fresh(&self, now_ns: u64) -> bool {
        let window_ns = self.window_ns.load(Ordering::Relaxed);
        let expires_ns = self.expires_ns.load(Ordering::Relaxed);
        let begin_ns = self.begin_ns.load(Ordering::Relaxed);
        let most_ns = window_ns.saturating_mul(2 * LASTING_WINDOWS);
        (MIN_WINDOW_NS..=MAX_WINDOW_NS).contains(&window_ns)
            && now_ns < expires_ns
            && expires_ns - now_ns <= most_ns
            && begin_ns <= now_ns.saturating_add(window_ns)
    }

    /// Why it gives no orders at `now_ns`, in words.
    pub(crate) fn fault(&self, now_ns: u64) -> String {
        if self.magic.load(Ordering::Relaxed) != MAGIC {
            return "its page is of another version, or none".to_owned();
        }
        let times = [&self.window_ns, &self.begin_ns, &self.expires_ns];
        let Some([window_ns, begin_ns, expires_ns]) =
            self.consistent(|_| times.map(|word| word.load(Ordering::Relaxed)))
        else {
            return "its page is half-written".to_owned();
        };
        if !(MIN_WINDOW_NS..=MAX_WINDOW_NS).contains(&window_ns) {
            return format!("its page has a window of {} ms", window_ns as f64 * 1e-6);
        }
        let is_ahead = begin_ns > now_ns.saturating_add(window_ns);
        if is_ahead || expires_ns > now_ns.saturating_add(window_ns.saturating_mul(2 * LASTING_WINDOWS)) {
            return "its page has times that are ahead of this clock".to_owned();
        }
        format!("its last plan ended {:.1} s ago", now_ns.saturating_sub(expires_ns) as f64 * 1e-9)
    }

    /// What another process has changed since this one published `last`, in words; `None`: nothing.
    pub(crate) fn changed_by_others(&self, last: &PublishedPlan) -> Option<String> {
        if self.magic.load(Ordering::Relaxed) != MAGIC {
            return Some("it was of another version".to_owned());
        }
        if !self.version.load(Ordering::Relaxed).is_multiple_of(2) {
            return Some("it was half-written".to_owned());
        }
        let window_ns = self.window_ns.load(Ordering::Relaxed);
        if window_ns != last.window_ns {
            return Some(format!("it had a window of {} ms", window_ns as f64 * 1e-6));
        }
        let is_planned = |program: ProgramKey| last.plan.slices.iter().any(|slice| slice.program == program);
        if let Some(slice) = self.slices().find(|slice| !is_planned(slice.program)) {
            return Some(format!("it had a slice for {}, which has none", slice.program));
        }
        let is_same = self.slices().eq(last.plan.slices.iter().copied().take(MAX_SLICES))
            && self.begin_ns.load(Ordering::Relaxed) == last.begin_ns;
        (!is_same).then(|| "it had another plan".to_owned())
    }

    /// Whether an orchestrator answers now.
    pub(crate) fn answers(&self, now_ns: u64) -> bool {
        self.is_active() && self.consistent(|page| page.is_fresh(now_ns)) == Some(true)
    }

    fn slices(&self) -> impl ExactSizeIterator<Item = TurnSlice> + Clone + '_ {
        let count = (self.slices.load(Ordering::Relaxed) as usize).min(MAX_SLICES);
        self.slice[..count].iter().map(|[program, end_ns]| TurnSlice {
            program: ProgramKey(program.load(Ordering::Relaxed)),
            end_ns: end_ns.load(Ordering::Relaxed),
        })
    }

    /// What is to be done with a request of `program` now. Of an active page; some hundred nanoseconds, no system call, no
    /// allocation, little stack.
    pub(crate) fn admittance(&self, program: ProgramKey, now_ns: u64) -> Admittance {
        let found = self.consistent(|page| {
            if !page.is_fresh(now_ns) {
                return Admittance::Unanswered;
            }
            if page.state.load(Ordering::Relaxed) != IN_TURNS {
                return Admittance::Open;
            }
            let begin_ns = page.begin_ns.load(Ordering::Relaxed);
            let window_ns = page.window_ns.load(Ordering::Relaxed);
            // A plan may be sent a little ahead.
            if begin_ns > now_ns {
                return Admittance::Wait(begin_ns - now_ns);
            }
            match turn_of(page.slices(), window_ns, now_ns - begin_ns, program) {
                Turn::Now => Admittance::Turn,
                Turn::In(wait_ns) => Admittance::Wait(wait_ns),
            }
        });
        found.unwrap_or(Admittance::Unanswered)
    }

    /// The window in nanoseconds, within its bounds whatever the page says.
    pub(crate) fn window_ns(&self) -> u64 {
        self.window_ns.load(Ordering::Relaxed).clamp(MIN_WINDOW_NS, MAX_WINDOW_NS)
    }

    /// Bytes in a second that `program` may move; 0 is no limit.
    pub(crate) fn limit(&self, program: ProgramKey) -> u64 {
        let count = (self.listed.load(Ordering::Relaxed) as usize).min(LISTED);
        let mut rows = self.list[..count].iter();
        rows.find(|row| row[0].load(Ordering::Relaxed) == program.0).map_or(0, |row| row[3].load(Ordering::Relaxed))
    }

    /// Begins the work of this process's orchestrator.
    pub(crate) fn begin(&self, policy: &str, now_ns: u64) {
        self.write(|page| {
            page.magic.store(MAGIC, Ordering::Relaxed);
            page.process.store(u64::from(std::process::id()), Ordering::Relaxed);
            page.since_ns.store(now_ns, Ordering::Relaxed);
            page.windows.store(0, Ordering::Relaxed);
            page.slices.store(0, Ordering::Relaxed);
            page.listed.store(0, Ordering::Relaxed);
            let mut name = [0; 32];
            name.iter_mut().zip(policy.bytes()).for_each(|(to, from)| *to = from);
            store_bytes(&page.policy, &name);
        });
    }

    /// Puts a plan in force. Its times count from `begin_ns`.
    pub(crate) fn publish(&self, published: &PublishedPlan, now_ns: u64) {
        let state = if published.plan.is_open() { WATCHING } else { IN_TURNS };
        self.write(|page| {
            page.begin_ns.store(published.begin_ns, Ordering::Relaxed);
            page.window_ns.store(published.window_ns, Ordering::Relaxed);
            page.windows.fetch_add(1, Ordering::Relaxed);
            let slices = &published.plan.slices[..published.plan.slices.len().min(MAX_SLICES)];
            for (slice, [program, end_ns]) in slices.iter().zip(&page.slice) {
                program.store(slice.program.0, Ordering::Relaxed);
                end_ns.store(slice.end_ns, Ordering::Relaxed);
            }
            page.slices.store(slices.len() as u64, Ordering::Relaxed);
            let listed = &published.listed[..published.listed.len().min(LISTED)];
            for (one, row) in listed.iter().zip(&page.list) {
                let standing = STANDINGS.iter().position(|standing| *standing == one.standing).unwrap_or(0);
                let reuse = one.reuse_ns.unwrap_or(f64::NAN).to_bits();
                let words = [one.program.0, standing as u64, one.weight.to_bits(), one.limit, reuse];
                row.iter().zip(words).for_each(|(to, from)| to.store(from, Ordering::Relaxed));
            }
            page.listed.store(listed.len() as u64, Ordering::Relaxed);
            let lasts_ns = published.window_ns * LASTING_WINDOWS;
            page.expires_ns.store(now_ns.saturating_add(lasts_ns), Ordering::Relaxed);
            page.state.store(state, Ordering::Relaxed);
        });
    }

    /// Opens all gates for good.
    pub(crate) fn end(&self) {
        self.write(|page| {
            page.state.store(ABSENT, Ordering::Relaxed);
            page.expires_ns.store(0, Ordering::Relaxed);
        });
    }

    /// Changes the page. One process at a time does (it holds the page's lock).
    fn write(&self, change: impl FnOnce(&Self)) {
        let before = self.version.load(Ordering::Relaxed);
        // One that was left odd stays so until this is done.
        let odd = before | 1;
        self.version.store(odd, Ordering::Relaxed);
        fence(Ordering::Release);
        change(self);
        self.version.store(odd.wrapping_add(1), Ordering::Release);
    }

    /// All of it, if an orchestrator answers.
    pub(crate) fn content(&self, now_ns: u64) -> Option<PlanContent> {
        if !self.answers(now_ns) {
            return None;
        }
        self.consistent(|page| {
            let of = |word: &AtomicU64| word.load(Ordering::Relaxed);
            let count = (of(&page.listed) as usize).min(LISTED);
            let listed = page.list[..count].iter().map(|row| ListedProgram {
                program: ProgramKey(of(&row[0])),
                standing: STANDINGS[of(&row[1]) as usize % STANDINGS.len()],
                weight: f64::from_bits(of(&row[2])),
                limit: of(&row[3]),
                reuse_ns: Some(f64::from_bits(of(&row[4]))).filter(|reuse| reuse.is_finite()),
            });
            PlanContent {
                is_in_turns: of(&page.state) == IN_TURNS,
                begin_ns: of(&page.begin_ns),
                window_ns: page.window_ns(),
                process: of(&page.process) as u32,
                since_ns: of(&page.since_ns),
                windows: of(&page.windows),
                policy: text_of(&load_bytes(&page.policy)),
                slices: page.slices().collect(),
                listed: listed.collect(),
            }
        })
    }
}

/// Puts 32 bytes into four words.
pub(crate) fn store_bytes(words: &[AtomicU64; 4], bytes: &[u8; 32]) {
    for (word, eight) in words.iter().zip(bytes.chunks_exact(8)) {
        word.store(u64::from_le_bytes(eight.try_into().unwrap_or_default()), Ordering::Relaxed);
    }
}

fn load_bytes(words: &[AtomicU64; 4]) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (word, eight) in words.iter().zip(bytes.chunks_exact_mut(8)) {
        eight.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    bytes
}

/// Text up to the first zero, without what a terminal would take for an order.
pub(crate) fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page() -> Box<PlanPage> {
        // SAFETY: all bytes are a value of atomics.
        Box::new(unsafe { std::mem::zeroed() })
    }

    const WINDOW_NS: u64 = 500_000_000;
    const NOW_NS: u64 = 1_000_000_000_000;

    fn two_halves(page: &PlanPage) {
        let slice = |program, end_ns| TurnSlice { program: ProgramKey(program), end_ns };
        let plan = SlicePlan { slices: vec![slice(7, WINDOW_NS / 2), slice(8, WINDOW_NS)] };
        page.begin("even", NOW_NS);
        page.publish(&PublishedPlan { plan, begin_ns: NOW_NS, window_ns: WINDOW_NS, listed: Vec::new() }, NOW_NS);
    }

    #[test]
    fn a_plan_holds_those_whose_turn_it_is_not_until_it_is_too_old() {
        let page = page();
        assert!(!page.is_active() && !page.answers(NOW_NS));
        two_halves(&page);
        assert_eq!(page.admittance(ProgramKey(7), NOW_NS), Admittance::Turn);
        assert_eq!(page.admittance(ProgramKey(8), NOW_NS + 1), Admittance::Wait(WINDOW_NS / 2 - 1));
        assert_eq!(page.admittance(ProgramKey(8), NOW_NS + 2 * WINDOW_NS), Admittance::Wait(WINDOW_NS / 2), "repeated");
        assert_eq!(page.admittance(ProgramKey(9), NOW_NS), Admittance::Turn, "a program that the plan does not know");
        let half_ns = WINDOW_NS / 2;
        let begun =
            [0, 1, half_ns - 1, half_ns, WINDOW_NS - 1, WINDOW_NS].map(|after| page.slice_begun_ns(NOW_NS + after));
        assert_eq!(begun.map(|at_ns| at_ns - NOW_NS), [0, 0, 0, half_ns, half_ns, WINDOW_NS]);
        let late_ns = NOW_NS + LASTING_WINDOWS * WINDOW_NS;
        assert_eq!(page.admittance(ProgramKey(8), late_ns), Admittance::Unanswered);
        assert_eq!(page.fault(late_ns + 500_000_000), "its last plan ended 0.5 s ago");
        assert!(page.is_active() && !page.answers(late_ns));
        // The clock of another boot.
        assert_eq!(page.admittance(ProgramKey(8), 5), Admittance::Unanswered);
        assert_eq!(page.fault(5), "its page has times that are ahead of this clock");
        page.end();
        assert!(!page.is_active());
    }

    #[test]
    fn what_is_half_written_holds_no_program() {
        let page = page();
        two_halves(&page);
        page.version.fetch_add(1, Ordering::Relaxed);
        assert_eq!(page.admittance(ProgramKey(8), NOW_NS), Admittance::Unanswered);
        assert_eq!(page.fault(NOW_NS), "its page is half-written");
        two_halves(&page);
        assert_eq!(page.admittance(ProgramKey(8), NOW_NS), Admittance::Wait(WINDOW_NS / 2), "the next one mends it");
        page.magic.store(MAGIC + 1, Ordering::Relaxed);
        assert_eq!(page.admittance(ProgramKey(8), NOW_NS), Admittance::Unanswered, "of another version");
        assert_eq!(page.fault(NOW_NS), "its page is of another version, or none");
        two_halves(&page);
        page.window_ns.store(0, Ordering::Relaxed);
        assert_eq!(page.admittance(ProgramKey(8), NOW_NS), Admittance::Unanswered, "a window of 0");
        assert_eq!(page.fault(NOW_NS), "its page has a window of 0 ms");
    }

    proptest! {
        #[test]
        fn whatever_a_page_says_no_wait_is_longer_than_a_window(words in prop::collection::vec(any::<u64>(), 24), now_ns: u64) {
            let page = page();
            two_halves(&page);
            let fields = [&page.state, &page.begin_ns, &page.window_ns, &page.expires_ns, &page.slices, &page.listed];
            fields.iter().zip(&words).for_each(|(field, word)| field.store(*word, Ordering::Relaxed));
            page.slice.iter().flatten().zip(&words[6..]).for_each(|(field, word)| field.store(*word, Ordering::Relaxed));
            for now_ns in [now_ns, NOW_NS, page.begin_ns.load(Ordering::Relaxed)] {
                if let Admittance::Wait(wait_ns) = page.admittance(ProgramKey(words[7]), now_ns) {
                    prop_assert!(wait_ns <= MAX_WINDOW_NS);
                }
                let _ = (page.content(now_ns), page.slice_begun_ns(now_ns), page.fault(now_ns));
                let _ = page.limit(ProgramKey(words[8]));
            }
        }
    }
}
