//! The loop: reads what programs do, decides window by window, publishes.

use std::time::Duration;

use stripewise_schedule::{
    Conductor, Decision, FULL_STROKE_BYTES, Looked, MAX_WINDOW_NS, MIN_WINDOW_NS, NextWindow, OTHERS, POLICY_NAMES,
    ProgramKey, ProgramRules, SeekTime, TurnClock, policies,
};
use stripewise_store::emulate::{now_ns, sleep_until};
use stripewise_store::{Error, Pool, Result, is_shared};

use crate::node_board::NodeBoard;
use crate::node_program::NodeProgram;
use crate::nodes::{NodeStatus, OtherNodes, this_node};
use crate::plan_page::{LISTED, ListedProgram, PublishedPlan};
use crate::plan_writer::PlanWriter;
use crate::snapshot::{NodeSnapshot, PageReader};
use crate::turns::remove_node_page;

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
    writer: PlanWriter,
    reader: PageReader,
    /// Where agents can join.
    others: Option<Box<dyn OtherNodes>>,
    /// What `--status` shows of the nodes.
    board: NodeBoard,
    clock: TurnClock,
    /// Whether other users read the page of turns: of a program it has what gates need, and no figures.
    is_shared: bool,
    listed: Vec<ListedProgram>,
    next_look_ns: u64,
    next_glance_ns: u64,
    /// What the last look has found.
    snapshot: NodeSnapshot,
}

/// What a seek takes on each server of `pool`: as measured, else by its calibrated profile, or by that of the device that it
/// stands for; times as programs see them.
fn seek_times(pool: &Pool) -> Vec<SeekTime> {
    let of = |server: &stripewise_store::pool::Server| {
        let read = pool.tiers[server.tier].profile.as_ref().map(|(profile, _)| profile.read);
        let Some((read, head)) = read.and_then(|read| Some((read, read.head?))) else { return SeekTime::NONE };
        let ns = |seconds: f64| seconds * 1e9;
        let points = server.seeks.as_ref().map_or(&[][..], |map| map.points());
        let points = points.iter().map(|(gap, startup_s)| (*gap as f64, ns(*startup_s)));
        if let Some(disk) = server.emulate.and_then(|config| config.effective_disk()) {
            let curve = disk.curve(&read);
            let [least_ns, most_ns] = [curve.settle_s, curve.full_stroke_s].map(|s| ns(s + 0.5 * curve.rotation_s));
            let law = SeekTime::new(ns(curve.sequential_s), least_ns, most_ns, curve.stroke_bytes as f64);
            return law.measured(points);
        }
        let [sequential_ns, least_ns, most_ns] =
            [head.sequential_startup_s, read.startup_min_s, read.startup_max_s].map(ns);
        SeekTime::new(sequential_ns, least_ns, most_ns, FULL_STROKE_BYTES).measured(points)
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
        options.rules.check().map_err(Error::Invalid)?;
        let mut writer = PlanWriter::open(pool, &pool.namespace)?;
        remove_node_page(pool, &this_node())?;
        let conductor = Conductor::new(policy, window_ns, options.rules.clone(), seek_times(pool));
        let now_ns = now_ns();
        writer.begin(&options.policy, now_ns);
        let mut orchestrator = Self {
            writer,
            reader: PageReader::new(&pool.namespace, pool.servers.len()),
            others: None,
            board: NodeBoard::new(&pool.namespace),
            clock: TurnClock::new(conductor, window_ns, now_ns),
            is_shared: is_shared(pool)?,
            listed: Vec::new(),
            next_look_ns: now_ns,
            next_glance_ns: now_ns,
            snapshot: NodeSnapshot::default(),
        };
        orchestrator.publish(now_ns);
        Ok(orchestrator)
    }

    /// With agents of other nodes: their programs count as this node's do, and they get its plans.
    pub fn with_nodes(mut self, others: Box<dyn OtherNodes>) -> Self {
        self.others = Some(others);
        self.publish(now_ns());
        self
    }

    /// One line of the policy.
    pub fn describe(&self) -> &'static str {
        self.clock.conductor().policy().describe()
    }

    /// Works for `time`, or until a window has ended: what was decided then. Nothing of a window without any program.
    pub fn work(&mut self, time: Duration) -> Vec<Decision> {
        let until_ns = now_ns().saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        loop {
            // Where all programs are served there is no slice to be given up. What other nodes say is as old as a look.
            let glances = !self.clock.plan().is_open() && self.others.is_none();
            let glance_ns = if glances { self.next_glance_ns } else { u64::MAX };
            let next_ns = self.next_look_ns.min(glance_ns).min(self.writer.due_ns().unwrap_or(u64::MAX));
            let now_ns = sleep_until(next_ns.min(until_ns));
            self.writer.tick(now_ns);
            if now_ns >= self.next_look_ns {
                if let Some(next) = self.look(now_ns) {
                    return self.begin_window(next, now_ns);
                }
            } else if now_ns >= glance_ns {
                self.glance(now_ns);
            }
            if now_ns >= until_ns {
                return Vec::new();
            }
        }
    }

    /// Looks at all that pages and other nodes say; the next window, if that begins.
    fn look(&mut self, now_ns: u64) -> Option<NextWindow> {
        self.next_look_ns = now_ns + self.clock.look_ns();
        self.next_glance_ns = now_ns + self.clock.glance_ns();
        let mut snapshot = self.reader.read(now_ns);
        if self.others.is_some() && self.board.is_due(now_ns) {
            self.tell_of_nodes(&snapshot, now_ns);
        }
        if let Some(others) = &mut self.others {
            others.add_to(&mut snapshot, now_ns);
            self.clock.set_lead(others.lead_ns());
        }
        self.clock.note(&snapshot.programs, &snapshot.traffic);
        let looked = self.clock.look(&snapshot.programs, &snapshot.traffic, now_ns);
        self.snapshot = snapshot;
        match looked {
            Looked::Same => None,
            Looked::GivenUp => {
                self.publish(now_ns);
                None
            }
            Looked::Window(next) => Some(next),
        }
    }

    /// Looks which programs of this node are at work, and whether the slice of one that is not goes to the next.
    fn glance(&mut self, now_ns: u64) {
        self.next_glance_ns = now_ns + self.clock.glance_ns();
        self.reader.note_last(&mut self.snapshot, now_ns);
        if self.clock.glance(&self.snapshot.programs, now_ns) {
            self.publish(now_ns);
        }
        if self.clock.is_over(now_ns) {
            self.next_look_ns = now_ns;
        }
    }

    /// Says what goes on on each node; `own` is what this node's pages say.
    fn tell_of_nodes(&mut self, own: &NodeSnapshot, now_ns: u64) {
        let Some(others) = &self.others else { return };
        let here = NodeStatus {
            name: this_node(),
            address: String::new(),
            is_joined: true,
            clock_offset_ns: Some(0),
            clock_error_ns: 0,
            heard_ns: 0,
            is_in_turns: Some(self.writer.is_in_turns(now_ns)),
            programs: own.programs.iter().map(|program| NodeProgram::of(program, now_ns)).collect(),
            served: own.served.clone(),
        };
        let nodes: Vec<NodeStatus> = std::iter::once(here).chain(others.statuses(now_ns)).collect();
        self.board.write(nodes, now_ns);
    }

    /// What is to be told of pages since this was asked last: those that are none, and a plan that another process has changed.
    pub fn take_remarks(&mut self) -> Vec<String> {
        let mut remarks = self.reader.take_remarks();
        remarks.extend(self.writer.take_remarks());
        remarks
    }

    fn begin_window(&mut self, next: NextWindow, now_ns: u64) -> Vec<Decision> {
        let rules = self.clock.conductor().rules();
        let list = |(program, name, standing, reuse_ns): &(ProgramKey, String, _, Option<f64>)| ListedProgram {
            program: *program,
            standing: *standing,
            weight: rules.weight(name),
            limit: rules.limit(name),
            reuse_ns: reuse_ns.filter(|_| !self.is_shared),
        };
        let mut listed: Vec<ListedProgram> = next.standings.iter().map(list).collect();
        // Of more than the page has room for, those with a rule come first: a limit holds.
        listed.sort_by_key(|one| one.limit == 0);
        listed.truncate(LISTED);
        self.listed = listed;
        self.publish(now_ns);
        next.decisions
    }

    fn publish(&mut self, now_ns: u64) {
        let clock = &self.clock;
        let (begin_ns, window_ns) = (clock.begin_ns(), clock.window_ns());
        let published = PublishedPlan { plan: clock.plan().clone(), begin_ns, window_ns, listed: self.listed.clone() };
        if let Some(others) = &mut self.others {
            others.send(&published);
        }
        self.writer.publish(published, now_ns);
    }
}

/// The name of the object of a slice, by the programs that are known.
pub(crate) fn name_of(program: ProgramKey, snapshot: &NodeSnapshot) -> String {
    if program == OTHERS {
        return "all others".to_owned();
    }
    let found = snapshot.programs.iter().find(|one| one.key == program);
    found.map_or_else(|| format!("{:016x}", program.0), |one| one.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_store::pool::{PoolSpec, SeekMap, TierSpec};

    #[test]
    fn seeks_are_those_that_were_measured() {
        let dir = tempfile::tempdir().unwrap();
        let tier = TierSpec {
            name: "hdd".into(),
            servers: ["one", "two"].map(|name| dir.path().join(name)).to_vec(),
            emulate: Some("hdd-7200-head".into()),
            ..TierSpec::default()
        };
        let (mount, namespace) = (dir.path().join("mount"), dir.path().join("namespace"));
        let spec = PoolSpec { name: "seeks".into(), mount, namespace, tiers: vec![tier], ..PoolSpec::default() };
        let file = dir.path().join("pool.toml");
        Pool::init(&file, &spec).unwrap();
        let map = SeekMap::new(vec![(1 << 20, 0.25), (4 << 20, 0.75)]).unwrap();
        Pool::write_seeks(&file, &[("hdd.1".to_owned(), Some(map.clone()))]).unwrap();
        let of = seek_times(&Pool::load(&file).unwrap());
        let ms = |server: usize, gap: f64| of[server].of(gap) * 1e-6;
        assert!((ms(1, 1.0) - 250.0).abs() < 1.0 && (ms(1, 4_194_304.0) - 750.0).abs() < 1.0);
        assert!(ms(0, 4_194_304.0) < 100.0, "of the other server the profile counts");
        Pool::write_seeks(&file, &[("hdd.1".to_owned(), None)]).unwrap();
        let of = seek_times(&Pool::load(&file).unwrap());
        assert_eq!(of[0], of[1]);
        let refused = Pool::write_seeks(&file, &[("hdd.2".to_owned(), Some(map))]).unwrap_err().to_string();
        assert!(refused.contains("hdd.2"), "{refused}");
    }
}
