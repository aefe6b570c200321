//! From figures to a plan, window by window. No I/O and no clock.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use crate::candidate::Candidate;
use crate::eligibility::Eligibility;
use crate::locality::{SharedServer, mean_reuse};
use crate::mixing::{UserTraffic, mixed_gap};
use crate::payoff::Payoff;
use crate::policy::SchedulePolicy;
use crate::program_rules::ProgramRules;
use crate::seek_time::{FULL_STROKE_BYTES, SeekTime};
use crate::slice_plan::{OTHERS, ProgramKey, SlicePlan};
use crate::standing::{QUARTERS, Standing, StandingTracker, WindowReport};
use crate::traits::ProgramTraits;
use crate::window_means::WindowMeans;

/// Of this many windows one is shared while programs are dedicated: it shows what they do to each other.
const SHARED_EVERY: u64 = 32;
/// This many shared windows show that: they may be short.
const MEASURE_WINDOWS: u32 = 2;
/// Turns that move less than this, beside shared windows from before they began, are measured again, at first after
/// [`FIRST_PATIENCE`] windows of turns: programs that were just starting moved less than they do together.
const CLEAR_GAIN: f64 = 1.5;
const FIRST_PATIENCE: u64 = 2;
/// Windows of turns that a policy hears the gain of.
const GAIN_WINDOWS: usize = 2;
/// What programs usually move is halved in this many windows in which they move less.
const USUAL_WINDOWS: f64 = 32.0;
/// A program without requests for this time is not busy, unless it is usually away for longer: 100 ms.
const BUSY_NS: u64 = 100_000_000;
/// A program without requests for this time takes no part in plans: 1 s, or two windows.
const ACTIVE_NS: u64 = 1_000_000_000;

/// What was decided of a program for the next window, with the figures that decided it.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Its name.
    pub program: String,
    /// Its user.
    pub uid: u32,
    /// Where it stood and where it stands now.
    pub standing: (Standing, Standing),
    /// The figures.
    pub figures: Eligibility,
    /// What windows of turns have moved for all programs together, for each byte of shared ones.
    pub gain: Option<f64>,
    /// Its weight, and the bytes that it may move in a second; 0 is no limit.
    pub rules: (f64, u64),
    /// Its load, the mean time between its bursts and how long ago the last one began in nanoseconds, under a policy that has no use
    /// for the figures.
    pub bursts: Option<(Option<f64>, Option<f64>, u64)>,
    /// Its slice in nanoseconds; 0: it has none of its own.
    pub slice_ns: u64,
    /// The whole window in nanoseconds.
    pub window_ns: u64,
    /// Whether it has that slice for the first time, or another standing.
    pub is_change: bool,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, uid, standing: (before, now), figures, gain, rules: (weight, limit), bursts, .. } = self;
        write!(f, "{program} (user {uid}): ")?;
        if before == now {
            write!(f, "{}", now.name())?;
        } else {
            write!(f, "{} -> {}", before.name(), now.name())?;
        }
        write!(
            f,
            ", gap {:.0} of its own and {:.0} of the mix (KiB, {} servers that seek, {:.0} and {:.0} % apart), ",
            figures.own_gap_bytes / 1024.0 / figures.servers.max(1) as f64,
            figures.mix_gap_bytes / 1024.0 / figures.servers.max(1) as f64,
            figures.servers,
            100.0 * figures.deviations[1],
            100.0 * figures.deviations[0]
        )?;
        match figures.reuse_ns {
            Some(reuse_ns) => write!(f, "reuse {:.2} ms, ", reuse_ns * 1e-6)?,
            None => write!(f, "reuse not known yet, ")?,
        }
        write!(f, "seek {:.2} ms, ", figures.seek_ns * 1e-6)?;
        if let Some(gain) = gain {
            write!(f, "turns move {gain:.2} x of shared windows, ")?;
        }
        if let Some((load, period_ns, burst_age_ns)) = bursts {
            load.map_or(Ok(()), |load| write!(f, "moves {load:.2} x of the mean, "))?;
            if let Some(period_ns) = period_ns {
                let last_s = *burst_age_ns as f64 * 1e-9;
                write!(f, "a burst each {:.2} s, the last {last_s:.2} s ago, ", period_ns * 1e-9)?;
            }
        }
        if *weight != 1.0 {
            write!(f, "weight {weight}, ")?;
        }
        if *limit > 0 {
            write!(f, "limit {:.1} MiB/s, ", *limit as f64 / f64::from(1 << 20))?;
        }
        if self.slice_ns == 0 {
            write!(f, "no slice of its own")
        } else {
            write!(f, "slice {:.0} of {:.0} ms", self.slice_ns as f64 * 1e-6, self.window_ns as f64 * 1e-6)
        }
    }
}

/// Where a program stood, where it stands now, and the figures that decided it.
type Change = (Standing, Standing, Eligibility);

/// What a window has become.
#[derive(Debug, Clone)]
pub struct NextWindow {
    /// Its plan.
    pub plan: SlicePlan,
    /// What was decided of each program.
    pub decisions: Vec<Decision>,
    /// Standing and mean reuse distance of the programs that take part.
    pub standings: Vec<(ProgramKey, String, Standing, Option<f64>)>,
}

/// Decides for one window after the other.
pub struct Conductor {
    policy: Box<dyn SchedulePolicy>,
    window_ns: u64,
    rules: ProgramRules,
    /// What a seek takes, by server.
    seeks: Vec<SeekTime>,
    trackers: BTreeMap<ProgramKey, (StandingTracker, u64)>,
    /// Windows of turns since the last shared one.
    turns: u64,
    /// Windows of turns until their gain is measured again, if that is not clear.
    patience: u64,
    /// Shared windows that are left of a measurement.
    measuring: u32,
    means: WindowMeans,
    payoff: Payoff,
    /// Bytes that servers had moved for each program at the end of the last window.
    moved: HashMap<ProgramKey, u64>,
    /// What programs at work move in a second in the mean, or moved of late if that was more, in bytes.
    usual_rate: f64,
}

impl Conductor {
    /// With `window_ns` for each window and what a seek takes on each server, `seeks`.
    pub fn new(policy: Box<dyn SchedulePolicy>, window_ns: u64, rules: ProgramRules, seeks: Vec<SeekTime>) -> Self {
        let payoff = Payoff::new(QUARTERS / policy.shared_quarters());
        Self {
            policy,
            window_ns,
            rules,
            seeks,
            trackers: BTreeMap::new(),
            turns: 0,
            patience: FIRST_PATIENCE,
            measuring: 0,
            means: WindowMeans::default(),
            payoff,
            moved: HashMap::new(),
            usual_rate: 0.0,
        }
    }

    /// The policy.
    pub fn policy(&self) -> &dyn SchedulePolicy {
        &*self.policy
    }

    /// Weights and limits.
    pub fn rules(&self) -> &ProgramRules {
        &self.rules
    }

    /// How long a window is, in quarters of a whole one.
    fn quarters(&self, is_shared: bool) -> u32 {
        if is_shared { self.policy.shared_quarters() } else { QUARTERS }
    }

    /// How long a window is, in nanoseconds.
    pub fn length_ns(&self, is_shared: bool) -> u64 {
        self.window_ns * u64::from(self.quarters(is_shared)) / u64::from(QUARTERS)
    }

    /// Whether `program` has requests now, or will have the next as soon as it usually has.
    pub fn is_busy(program: &ProgramTraits, now_ns: u64) -> bool {
        now_ns.saturating_sub(program.last_ns) <= BUSY_NS
    }

    /// What servers see of all programs together. A server that no program uses has no gap.
    fn shared_servers(&self, traffic: &[Vec<UserTraffic>]) -> Vec<SharedServer> {
        let seek_ns = |server: usize, gap_bytes: f64| self.seeks.get(server).map_or(0.0, |seek| seek.of(gap_bytes));
        let one = |(server, users): (usize, &Vec<UserTraffic>)| {
            let gap_bytes = self.means.gap_bytes(server).or_else(|| gap_of(users)).unwrap_or(0.0);
            SharedServer { gap_bytes, seek_ns: seek_ns(server, gap_bytes) }
        };
        traffic.iter().enumerate().map(one).collect()
    }

    /// A look at the pages within a window.
    pub fn look(&mut self, programs: &[ProgramTraits], traffic: &[Vec<UserTraffic>]) {
        self.means.note(programs, traffic.iter().map(|users| gap_of(users)));
    }

    /// Takes what was moved in a window, which took `took_ns`.
    fn note_moved(&mut self, active: &[&ProgramTraits], was_shared: bool, took_ns: u64) {
        let moved =
            |one: &&ProgramTraits| one.bytes.saturating_sub(self.moved.get(&one.key).copied().unwrap_or(one.bytes));
        let bytes = active.iter().map(moved).sum();
        self.moved = active.iter().map(|one| (one.key, one.bytes)).collect();
        let mut programs: Vec<u64> = active.iter().map(|one| one.key.0).collect();
        programs.sort_unstable();
        self.payoff.note(&programs, was_shared, bytes, took_ns);
    }

    /// What programs usually move in a second, after a window of `took_ns` in which they moved `mean_rate` in the mean. When a heavy
    /// program ends, those that are left do not become heavy by that.
    fn note_rate(&mut self, mean_rate: f64, took_ns: u64) -> f64 {
        let windows = took_ns as f64 / self.window_ns.max(1) as f64;
        self.usual_rate = mean_rate.max(self.usual_rate * (-windows / USUAL_WINDOWS).exp2());
        self.usual_rate
    }

    /// Whether the next window is a shared one, which shows what programs do to each other, and what they move so.
    fn is_to_measure(&mut self, has_dedicated: bool, gain: Option<f64>) -> bool {
        if !has_dedicated || !self.policy.needs_standings() {
            self.measuring = 0;
            return false;
        }
        let is_clear = gain.is_none_or(|gain| gain >= CLEAR_GAIN);
        if self.measuring == 0 && self.turns >= if is_clear { SHARED_EVERY - 1 } else { self.patience } {
            self.patience = (2 * self.patience).min(SHARED_EVERY - 1);
            self.measuring = MEASURE_WINDOWS;
            self.payoff.begin_measurement();
        }
        let is_to_measure = self.measuring > 0;
        self.measuring = self.measuring.saturating_sub(1);
        is_to_measure
    }

    /// Ends a window of `took_ns`, in which all programs were served at all times if it `was_shared`, and plans the next.
    pub fn next(
        &mut self,
        programs: &[ProgramTraits],
        traffic: &[Vec<UserTraffic>],
        was_shared: bool,
        (took_ns, now_ns): (u64, u64),
    ) -> NextWindow {
        self.turns = if was_shared { 0 } else { self.turns + 1 };
        let servers = self.shared_servers(traffic);
        let age_ns = |program: &ProgramTraits| now_ns.saturating_sub(program.last_ns);
        let active_ns = ACTIVE_NS.max(2 * self.window_ns);
        let active: Vec<&ProgramTraits> = programs.iter().filter(|one| age_ns(one) <= active_ns).collect();
        let known: Vec<ProgramKey> = programs.iter().map(|one| one.key).collect();
        self.trackers.retain(|key, _| known.contains(key));
        self.note_moved(&active, was_shared, took_ns);
        let (gain, quarters) = (self.payoff.gain(1), self.quarters(was_shared));
        let rate = |one: &ProgramTraits| one.bytes as f64 / now_ns.saturating_sub(one.first_ns).max(1) as f64;
        let mean_rate = active.iter().map(|one| rate(one)).sum::<f64>() / active.len().max(1) as f64;
        let usual_rate = self.note_rate(mean_rate, took_ns);
        let mut candidates = Vec::with_capacity(active.len());
        let mut changes: Vec<Change> = Vec::with_capacity(active.len());
        for program in &active {
            let uses = self.means.uses(program);
            let figures = Eligibility::of(&servers, &uses);
            let (tracker, _) = self.trackers.entry(program.key).or_default();
            let before = tracker.standing();
            let was_active = age_ns(program) <= self.window_ns;
            let now = tracker.step(&WindowReport { figures, was_shared, was_active, gain, quarters });
            changes.push((before, now, figures));
            candidates.push(Candidate {
                program: program.key,
                standing: now,
                // What a probe measures is known at its end: until then its requests waited for those of others, too.
                reuse_ns: figures.reuse_ns.or_else(|| mean_reuse(&uses)).filter(|_| now != Standing::Probe),
                weight: self.rules.weight(&program.name),
                period_ns: program.period_ns,
                burst_age_ns: now_ns.saturating_sub(program.burst_ns),
                age_ns: now_ns.saturating_sub(program.first_ns),
                load: (usual_rate > 0.0).then(|| rate(program) / usual_rate),
                is_busy: Self::is_busy(program, now_ns),
            });
        }
        self.means.clear();
        self.policy.note_gain(self.payoff.gain(GAIN_WINDOWS));
        if changes.iter().any(|(before, now, _)| before != now && *now == Standing::Probe) {
            self.payoff.begin_trial();
            self.patience = FIRST_PATIENCE;
        }
        let is_to_measure = self.is_to_measure(candidates.iter().any(|one| one.standing.is_dedicated()), gain);
        let plan = if is_to_measure { SlicePlan::open() } else { self.policy.plan(&candidates, self.window_ns) };
        let has_no_use = !self.policy.needs_standings();
        let decisions = active.iter().zip(&candidates).zip(&changes).map(|((program, one), (before, now, figures))| {
            let slice_ns = plan.share_ns(program.key);
            let slot = self.trackers.get_mut(&program.key);
            let had = slot.map_or(0, |(_, had)| std::mem::replace(had, if is_to_measure { *had } else { slice_ns }));
            // A slice that changes by less than a tenth of the window is no news.
            let is_news =
                !is_to_measure && ((had == 0) != (slice_ns == 0) || had.abs_diff(slice_ns) > self.window_ns / 10);
            Decision {
                program: program.name.clone(),
                uid: program.uid,
                standing: (*before, *now),
                figures: *figures,
                gain,
                rules: (one.weight, self.rules.limit(&program.name)),
                bursts: has_no_use.then_some((one.load, one.period_ns, one.burst_age_ns)),
                slice_ns,
                window_ns: self.window_ns,
                is_change: before != now || is_news,
            }
        });
        let decisions = decisions.collect();
        let standings = standings_of(&active, &candidates, &changes);
        NextWindow { plan, decisions, standings }
    }

    /// Whether the slice of `program`, or of all others, is of no use now: none of its programs has sent a request for twice
    /// its reuse distance and `least_ns`, while another one has.
    pub fn is_wasted(
        &self,
        program: ProgramKey,
        plan: &SlicePlan,
        programs: &[ProgramTraits],
        least_ns: u64,
        now_ns: u64,
    ) -> bool {
        if !self.policy.gives_up_idle_slices() {
            return false;
        }
        let has_slice = |one: &ProgramTraits| plan.slices.iter().any(|slice| slice.program == one.key);
        let is_of_slice = |one: &&ProgramTraits| if program == OTHERS { !has_slice(one) } else { one.key == program };
        let is_idle = |one: &ProgramTraits| {
            let age_ns = now_ns.saturating_sub(one.last_ns);
            let usual_ns = || mean_reuse(&one.uses).map_or(0, |reuse| (2.0 * reuse) as u64);
            // What a program usually does is asked last: it has a figure for each server.
            age_ns > least_ns && age_ns > usual_ns().clamp(least_ns, least_ns.max(self.window_ns / 2))
        };
        let is_free = programs.iter().filter(is_of_slice).all(is_idle);
        is_free && programs.iter().any(|one| !is_of_slice(&one) && now_ns.saturating_sub(one.last_ns) <= least_ns)
    }
}

/// Standing and mean reuse distance of programs, those of a probe among them.
fn standings_of(
    active: &[&ProgramTraits],
    candidates: &[Candidate],
    changes: &[Change],
) -> Vec<(ProgramKey, String, Standing, Option<f64>)> {
    let both = candidates.iter().zip(changes);
    let reuse_ns = |one: &Candidate, change: &Change| change.2.reuse_ns.or(one.reuse_ns);
    let of = |(program, (one, change)): (&&ProgramTraits, (&Candidate, &Change))| {
        (program.key, program.name.clone(), one.standing, reuse_ns(one, change))
    };
    active.iter().zip(both).map(of).collect()
}

/// The gap of the mix on a server of these users.
fn gap_of(users: &[UserTraffic]) -> Option<f64> {
    mixed_gap(users.iter().copied(), FULL_STROKE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locality::ServerUseBy;
    use crate::policies;

    const WINDOW_NS: u64 = 500_000_000;

    /// Two programs that are near in themselves and far from each other, on disks that seek for 8 ms at most.
    struct Bench {
        conductor: Conductor,
        programs: Vec<ProgramTraits>,
        was_shared: bool,
        now_ns: u64,
    }

    impl Bench {
        fn new() -> Self {
            let policy = policies::named("reuse-distance").unwrap();
            let seeks = vec![SeekTime::new(0.0, 4e6, 8e6, 1e12); 3];
            let conductor = Conductor::new(policy, WINDOW_NS, ProgramRules::default(), seeks);
            let uses = (0..3).map(|server| ServerUseBy { server, gap_bytes: 4096.0, reuse_ns: 1e6 });
            let programs = [1, 2].map(|key| ProgramTraits {
                uses: uses.clone().collect(),
                ..ProgramTraits::named(ProgramKey(key), if key == 1 { "one" } else { "two" })
            });
            Self { conductor, programs: programs.to_vec(), was_shared: true, now_ns: 0 }
        }

        /// A window in which both move `bytes` together, or as much less as it is shorter; the plan of the next.
        fn window(&mut self, bytes: u64) -> NextWindow {
            let length_ns = self.conductor.length_ns(self.was_shared);
            self.now_ns += length_ns;
            let bytes = bytes * length_ns / WINDOW_NS;
            for one in &mut self.programs {
                one.last_ns = self.now_ns;
                one.bytes += bytes / 2;
            }
            let traffic = vec![vec![UserTraffic { requests: 10.0, gap_bytes: 3e10 }]; 3];
            let next = self.conductor.next(&self.programs, &traffic, self.was_shared, (length_ns, self.now_ns));
            self.was_shared = next.plan.is_open();
            next
        }
    }

    #[test]
    fn a_decision_says_when_the_last_burst_began() {
        let policy = policies::named("opportunity").unwrap();
        let mut conductor = Conductor::new(policy, WINDOW_NS, ProgramRules::default(), Vec::new());
        let (now_ns, named) = (4_000_000_000, ProgramTraits::named(ProgramKey(1), "one"));
        let program = ProgramTraits { period_ns: Some(2e9), burst_ns: 1_000_000_000, last_ns: now_ns, ..named };
        let next = conductor.next(&[program], &[], true, (WINDOW_NS, now_ns));
        let said = next.decisions[0].to_string();
        assert!(said.contains("a burst each 2.00 s, the last 3.00 s ago, "), "{said}");
    }

    /// Three programs of short bursts beside one that reads all the time, and when that has ended: the bursts pass, then as before. After
    /// some hundred windows without it they are what programs usually are.
    #[test]
    fn light_programs_are_not_heavy_when_the_heavy_one_has_ended() {
        let policy = policies::named("opportunity").unwrap();
        let mut conductor = Conductor::new(policy, WINDOW_NS, ProgramRules::default(), Vec::new());
        let named = |key| ProgramTraits::named(ProgramKey(key), "light");
        let mut programs: Vec<_> = (1..=4).map(named).collect();
        let (mut now_ns, mut turns) = (0, [0, 0, 0]);
        for window in 0..600 {
            now_ns += WINDOW_NS;
            for program in &mut programs[..3] {
                program.bytes += 1 << 20;
                (program.period_ns, program.burst_ns, program.last_ns) = (Some(3e8), now_ns, now_ns);
            }
            if window < 20 {
                programs[3].bytes += 100 << 20;
                programs[3].last_ns = now_ns;
            }
            let next = conductor.next(&programs, &[], true, (WINDOW_NS, now_ns));
            turns[[0, 20, 40].iter().rposition(|&begin| window >= begin).unwrap()] += usize::from(!next.plan.is_open());
        }
        assert_eq!(turns[..2], [0, 0], "{turns:?}");
        assert!(turns[2] > 100, "{turns:?}");
    }

    #[test]
    fn programs_that_lose_by_turns_are_served_together_again() {
        let mut bench = Bench::new();
        let (mut in_turns, mut last) = (0, None);
        while bench.now_ns < 60 * WINDOW_NS {
            let next = bench.window(if bench.was_shared { 1000 } else { 700 });
            in_turns += u32::from(!next.plan.is_open());
            last = Some(next);
        }
        // A trial of one window, which says enough, and after 32 windows another one.
        assert_eq!(in_turns, 2);
        assert!(last.unwrap().decisions.iter().all(|one| one.gain.is_some_and(|gain| (gain - 0.7).abs() < 1e-2)));
    }

    #[test]
    fn turns_that_gain_beside_a_slow_start_alone_end_soon() {
        let mut bench = Bench::new();
        let mut in_turns = 0;
        while bench.now_ns < 40 * WINDOW_NS {
            let shared = if bench.now_ns < WINDOW_NS { 700 } else { 1000 };
            let next = bench.window(if bench.was_shared { shared } else { 900 });
            in_turns += u32::from(!next.plan.is_open());
        }
        // A trial of two, two more until it is measured again, and two that lose.
        assert!((2..=7).contains(&in_turns), "{in_turns}");
    }

    #[test]
    fn programs_that_gain_by_turns_keep_them() {
        let mut bench = Bench::new();
        let plans: Vec<NextWindow> =
            (0..60).map(|_| bench.window(if bench.was_shared { 1000 } else { 2000 })).collect();
        let open = plans.iter().filter(|next| next.plan.is_open()).count();
        // Three windows until the probe, and two short ones for each 32 to measure in.
        assert!((3..=6).contains(&open), "{open}");
        assert!(plans.last().unwrap().decisions.iter().all(|one| one.slice_ns == WINDOW_NS / 2));
    }

    #[test]
    fn what_is_eligible_has_turns_after_a_window_and_equal_ones_until_its_reuse_is_known() {
        let mut bench = Bench::new();
        bench.programs[1].uses.iter_mut().for_each(|by| by.reuse_ns = 4e6);
        let mut shares = Vec::new();
        while shares.len() < 3 {
            let next = bench.window(if bench.was_shared { 1000 } else { 2000 });
            if next.plan.is_open() {
                assert!(bench.now_ns < WINDOW_NS, "three quarters of a window say that it is eligible");
            } else {
                shares.push([1, 2].map(|key| next.plan.share_ns(ProgramKey(key))));
            }
        }
        let half = [WINDOW_NS / 2; 2];
        assert_eq!(shares, [half, half, [WINDOW_NS / 5 * 4, WINDOW_NS / 5]]);
    }
}
