//! The loop: reads what programs do, decides window by window, publishes.

use std::time::Duration;

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use stripewise_schedule::{
    FULL_STROKE_BYTES, MAX_WINDOW_NS, MIN_WINDOW_NS, OTHERS, POLICY_NAMES, ProgramKey, SeekTime, SlicePlan, policies,
};
use stripewise_store::emulate::{now_ns, sleep_until};
use stripewise_store::{Error, Pool, Result, SharedPage, lock_byte};

use crate::conductor::{Conductor, Decision, ProgramRules};
use crate::plan_page::{LISTED, Listed, PlanPage, Published};
use crate::snapshot::{PageReader, Snapshot};
use crate::turns::make_plan_page;

/// Looks at programs in a window; each is a time in which an idle slice is found.
const LOOKS: u64 = 50;
/// Shortest and longest time between two looks: 2 ms and 20 ms.
const LEAST_LOOK_NS: u64 = 2_000_000;
const MOST_LOOK_NS: u64 = 20_000_000;
/// The byte of the page's file that an orchestrator locks.
const LOCK_BYTE: i64 = 0;

/// How to orchestrate.
#[derive(Debug, Clone, PartialEq)]
pub struct OrchestratorOptions {
    /// Name of the policy.
    pub policy: String,
    /// Length of a window.
    pub window: Duration,
    /// Weights and limits.
    pub rules: ProgramRules,
}

impl Default for OrchestratorOptions {
    /// The paper's policy and window.
    fn default() -> Self {
        Self { policy: POLICY_NAMES[0].to_owned(), window: Duration::from_millis(500), rules: ProgramRules::default() }
    }
}

/// The orchestrator of a pool, until it is dropped.
pub struct Orchestrator {
    page: SharedPage<PlanPage>,
    /// Holds the lock.
    _file: OwnedFd,
    reader: PageReader,
    conductor: Conductor,
    window_ns: u64,
    begin_ns: u64,
    /// When the last window ended: later than planned, or sooner where slices were given up.
    ended_ns: u64,
    plan: SlicePlan,
    listed: Vec<Listed>,
    next_look_ns: u64,
}

/// What a seek takes on each server of `pool`, by its calibrated profile, or by that of the device that it stands for; times
/// as programs see them.
fn seek_times(pool: &Pool) -> Vec<SeekTime> {
    let of = |server: &stripewise_store::pool::Server| {
        let read = pool.tiers[server.tier].profile.as_ref().map(|(profile, _)| profile.read);
        let Some((read, head)) = read.and_then(|read| Some((read, read.head?))) else { return SeekTime::NONE };
        let ns = |seconds: f64| seconds * 1e9;
        if let Some(disk) = server.emulate.and_then(|config| config.effective_disk()) {
            let curve = disk.curve(&read);
            let [least_ns, most_ns] = [curve.settle_s, curve.full_stroke_s].map(|s| ns(s + 0.5 * curve.rotation_s));
            return SeekTime::new(ns(curve.sequential_s), least_ns, most_ns, curve.stroke_bytes as f64);
        }
        let [sequential_ns, least_ns, most_ns] =
            [head.sequential_startup_s, read.startup_min_s, read.startup_max_s].map(ns);
        SeekTime::new(sequential_ns, least_ns, most_ns, FULL_STROKE_BYTES)
    };
    pool.servers.iter().map(of).collect()
}

impl Orchestrator {
    /// Begins to orchestrate `pool`.
    ///
    /// # Errors
    /// The policy or the window is none; another orchestrator is at work; the namespace cannot be written.
    pub fn start(pool: &Pool, options: &OrchestratorOptions) -> Result<Self> {
        let policy = policies::named(&options.policy).ok_or_else(|| {
            Error::Invalid(format!("no policy is named '{}': take one of {}", options.policy, POLICY_NAMES.join(", ")))
        })?;
        let window_ns = u64::try_from(options.window.as_nanos()).unwrap_or(u64::MAX);
        if !(MIN_WINDOW_NS..=MAX_WINDOW_NS).contains(&window_ns) {
            return Err(Error::Invalid(format!(
                "a window of {} ms: take 1 to 10000 ms (500 is the paper's)",
                options.window.as_secs_f64() * 1e3
            )));
        }
        check_rules(&options.rules)?;
        let file = make_plan_page(pool)?;
        let path = pool.namespace.join(crate::plan_page::TURNS_FILE);
        let page: SharedPage<PlanPage> =
            SharedPage::map(file.as_fd(), 0, ProtFlags::READ | ProtFlags::WRITE).map_err(Error::io("map", &path))?;
        match lock_byte(file.as_fd(), LOCK_BYTE, libc::F_WRLCK, false) {
            Ok(()) => {}
            Err(Errno::AGAIN | Errno::ACCESS) => {
                let process =
                    page.content(now_ns()).map_or_else(String::new, |found| format!(" (process {})", found.process));
                return Err(Error::Invalid(format!(
                    "pool '{}' is orchestrated already{process}: end that orchestrator first",
                    pool.name
                )));
            }
            Err(errno) => return Err(Error::io("lock", &path)(errno)),
        }
        let conductor = Conductor::new(policy, window_ns, options.rules.clone(), seek_times(pool));
        let now_ns = now_ns();
        page.begin(&options.policy, now_ns);
        let mut orchestrator = Self {
            page,
            _file: file,
            reader: PageReader::new(pool),
            conductor,
            window_ns,
            begin_ns: now_ns,
            ended_ns: now_ns,
            plan: SlicePlan::open(),
            listed: Vec::new(),
            next_look_ns: now_ns,
        };
        orchestrator.publish(now_ns);
        Ok(orchestrator)
    }

    /// One line of the policy.
    pub fn describe(&self) -> &'static str {
        self.conductor.policy().describe()
    }

    /// Works for `time`, or until a window has ended: what was decided then. Nothing of a window without any program.
    pub fn work(&mut self, time: Duration) -> Vec<Decision> {
        let until_ns = now_ns().saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let look_ns = (self.window_ns / LOOKS).clamp(LEAST_LOOK_NS, MOST_LOOK_NS);
        loop {
            let wake_ns = self.next_look_ns.min(until_ns);
            let now_ns = sleep_until(wake_ns);
            if now_ns >= self.next_look_ns {
                self.next_look_ns = now_ns + look_ns;
                let snapshot = self.reader.read(now_ns);
                self.conductor.look(&snapshot.programs, &snapshot.traffic);
                if now_ns >= self.begin_ns.saturating_add(self.window_ns) {
                    return self.end_window(&snapshot, now_ns);
                }
                self.skip_idle(&snapshot, look_ns, now_ns);
            }
            if now_ns >= until_ns {
                return Vec::new();
            }
        }
    }

    fn end_window(&mut self, snapshot: &Snapshot, now_ns: u64) -> Vec<Decision> {
        let was_shared = self.plan.is_open();
        let took_ns = now_ns.saturating_sub(self.ended_ns);
        self.ended_ns = now_ns;
        let next = self.conductor.next(&snapshot.programs, &snapshot.traffic, was_shared, (took_ns, now_ns));
        // Windows follow each other without a gap, but for an orchestrator that was stopped meanwhile.
        let end_ns = self.begin_ns + self.window_ns;
        self.begin_ns = if now_ns - end_ns < self.window_ns / 2 { end_ns } else { now_ns };
        self.plan = next.plan;
        let rules = self.conductor.rules();
        let list = |(program, name, standing, reuse_ns): &(ProgramKey, String, _, Option<f64>)| Listed {
            program: *program,
            standing: *standing,
            weight: rules.weight(name),
            limit: rules.limit(name),
            reuse_ns: *reuse_ns,
        };
        let mut listed: Vec<Listed> = next.standings.iter().map(list).collect();
        // Of more than the page has room for, those with a rule come first: a limit holds.
        listed.sort_by_key(|one| one.limit == 0);
        listed.truncate(LISTED);
        self.listed = listed;
        self.publish(now_ns);
        next.decisions
    }

    /// Ends the slice of a program that has no request any more, and begins the next.
    fn skip_idle(&mut self, snapshot: &Snapshot, look_ns: u64, now_ns: u64) {
        if self.plan.is_open() || now_ns < self.begin_ns {
            return;
        }
        let at_ns = (now_ns - self.begin_ns) % self.window_ns;
        let Some(slice) = self.plan.slices.iter().find(|slice| at_ns < slice.end_ns).copied() else { return };
        let begins = std::iter::once(0).chain(self.plan.slices.iter().map(|slice| slice.end_ns));
        let begun_ns = begins.take_while(|begin_ns| *begin_ns <= at_ns).last().unwrap_or(0);
        let left_ns = slice.end_ns - at_ns;
        // A program that has just got its turn has not answered yet.
        if left_ns <= look_ns || at_ns - begun_ns < 2 * look_ns {
            return;
        }
        if self.conductor.is_wasted(slice.program, &self.plan, &snapshot.programs, 2 * look_ns, now_ns) {
            self.begin_ns = self.begin_ns.saturating_sub(left_ns);
            self.publish(now_ns);
        }
    }

    fn publish(&mut self, now_ns: u64) {
        let published =
            Published { plan: &self.plan, begin_ns: self.begin_ns, window_ns: self.window_ns, listed: &self.listed };
        self.page.publish(&published, now_ns);
    }
}

impl Drop for Orchestrator {
    /// Opens the gates.
    fn drop(&mut self) {
        self.page.end();
    }
}

/// Refuses weights and limits that are none.
fn check_rules(rules: &ProgramRules) -> Result<()> {
    if let Some((name, weight)) = rules.weights.iter().find(|(_, weight)| !(0.001..=1000.0).contains(*weight)) {
        return Err(Error::Invalid(format!("the weight {weight} of '{name}': take 0.001 to 1000")));
    }
    if let Some((name, _)) = rules.limits.iter().find(|(_, limit)| **limit == 0) {
        return Err(Error::Invalid(format!("a limit of 0 bytes per second for '{name}' would stop it: take more")));
    }
    Ok(())
}

/// The name of the object of a slice, by the programs that are known.
pub(crate) fn name_of(program: ProgramKey, snapshot: &Snapshot) -> String {
    if program == OTHERS {
        return "all others".to_owned();
    }
    let found = snapshot.programs.iter().find(|one| one.key == program);
    found.map_or_else(|| format!("{:016x}", program.0), |one| one.name.clone())
}
