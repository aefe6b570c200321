//! For which share of a layout's sub-requests the heads of servers stay where they are, and how long the processes take: the
//! processes of the trace are simulated, and each server counts by the rule of [`RunEnds`](stripewise_model::RunEnds).
//!
//! Under another layout processes do not keep the step that they had in the trace. Which of their sub-requests meet at a server
//! only a closed loop tells. Processes with every n-th block of a file can follow each other from server to server, or meet at one
//! of them; mean values, which take requests as independent, cannot tell the one from the other. Simulated are stretches of
//! consecutive requests, as a thinned-out sample has no runs.

use crate::job::demand::time;
use crate::job::input::FileTrace;
use crate::job::phases::{self, Moment};
use rayon::prelude::*;
use std::collections::BTreeMap;
use stripewise_layout::Layout;
use stripewise_model::{Cluster, CostModel, Op, Request, Tier};
use stripewise_simulate::{
    ClosedLoop, Network, SimulatedAccess, SimulatedStep, SimulationOptions, TakenSubs, simulate,
};

/// Most requests that are simulated.
const MOST_REQUESTS: usize = 32_768;

/// Most draws of startup times that few requests are simulated with. Two streams on one disk can meet at each request or
/// never, by chance: a price is the mean of what happens.
const MOST_DRAWS: usize = 16;

/// Stretches of consecutive requests, spread evenly over the run.
pub(crate) const STRETCHES: usize = 8;

/// First seed of the startups, far from those that choose between plans.
const DRAW: u64 = 1 << 33;

/// Requests as their processes make them: a closed loop for each phase of each stretch.
#[derive(Debug)]
pub(crate) struct Arrivals {
    loops: Vec<(usize, ClosedLoop)>,
}

/// What the simulated processes did under one layout of each file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SimulatedHeads {
    /// Sub-requests of each phase, server and operation, at `(phase x servers + slot) x 2 + operation`.
    taken: Vec<TakenSubs>,
    servers: usize,
    phases: Vec<SimulatedPhase>,
}

/// The simulated requests of one phase, of all draws together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct SimulatedPhase {
    pub requests: u64,
    /// Processes that made them.
    pub processes: usize,
    /// Seconds that they took.
    pub time_s: f64,
    /// Their latencies in seconds, added up.
    pub latency_s: f64,
}

impl SimulatedPhase {
    /// Requests in flight on average (Little).
    pub(crate) fn in_flight(&self) -> f64 {
        if self.time_s > 0.0 { (self.latency_s / self.time_s).max(1.0) } else { 1.0 }
    }
}

/// Ranges of `total` things of which at most `most` are wanted: all, or [`STRETCHES`] runs of them.
pub(crate) fn stretches(total: usize, most: usize) -> Vec<std::ops::Range<usize>> {
    if total <= most {
        return std::iter::once(0..total).collect();
    }
    let (each, apart) = (most / STRETCHES, total / STRETCHES);
    (0..STRETCHES).map(|number| number * apart..number * apart + each).collect()
}

/// A request of a file, and its phase.
type Arrival<'a> = (u32, &'a Request, u16);

/// The closed loops of consecutive requests, by phase.
fn loops(arrivals: &[Arrival]) -> Vec<(usize, ClosedLoop)> {
    let mut phases: BTreeMap<u16, BTreeMap<u32, Vec<SimulatedStep>>> = BTreeMap::new();
    for &(file, request, phase) in arrivals {
        let &Request { offset, size, op, process, .. } = request;
        let access = SimulatedAccess { file, offset, size, op, think_s: 0.0 };
        phases.entry(phase).or_default().entry(process).or_default().push(SimulatedStep::Access(access));
    }
    let workload = |processes: BTreeMap<u32, _>| ClosedLoop { processes: processes.into_values().collect() };
    phases.into_iter().map(|(phase, processes)| (usize::from(phase), workload(processes))).collect()
}

impl Arrivals {
    /// O(requests x log).
    pub(crate) fn new(files: &[FileTrace], max_phases: usize) -> Self {
        let requests =
            files.iter().zip(0_u32..).flat_map(|(file, index)| file.requests.iter().map(move |r| (index, r)));
        let requests: Vec<(u32, &Request)> = requests.filter(|(_, r)| r.size > 0).collect();
        let moment =
            |&(file, r): &(u32, &Request)| Moment { start_s: time(r.start_s), place: (file, r.offset), op: r.op };
        let moments: Vec<Moment> = requests.iter().map(moment).collect();
        let phases = phases::find(&moments, max_phases.max(1)).of;
        let mut arrivals: Vec<Arrival> =
            requests.iter().zip(phases).map(|(&(file, r), phase)| (file, r, phase)).collect();
        // Stable: requests of one moment keep the order in which they were given.
        arrivals.sort_by(|a, b| time(a.1.start_s).total_cmp(&time(b.1.start_s)));
        let ranges = stretches(arrivals.len(), MOST_REQUESTS).into_iter();
        Self { loops: ranges.flat_map(|range| loops(&arrivals[range])).collect() }
    }

    /// Simulates the requests of `phases` phases under `layouts`, one of each file. Nothing is known of layouts that name a
    /// server that `cluster` does not have. O(sub-requests x log processes).
    pub(crate) fn simulated(
        &self,
        layouts: &[Layout],
        cluster: &Cluster,
        phases: usize,
        network: Network,
    ) -> SimulatedHeads {
        let model = CostModel::new(cluster);
        let servers = model.servers();
        let mut taken = vec![TakenSubs::default(); phases * servers * 2];
        let mut times = vec![SimulatedPhase::default(); phases];
        let all: usize = self.loops.iter().map(|(_, of)| of.requests()).sum();
        let draws = 0..(MOST_REQUESTS / all.max(1)).clamp(1, MOST_DRAWS) as u64;
        let runs: Vec<(u64, &(usize, ClosedLoop))> =
            draws.flat_map(|draw| self.loops.iter().map(move |of| (draw, of))).collect();
        let outcomes = runs.into_par_iter().map(|(draw, (phase, of))| {
            let options = SimulationOptions { seed: DRAW + draw, network };
            (*phase, of, simulate(cluster, layouts, of, &options))
        });
        for (phase, of, outcome) in outcomes.collect::<Vec<_>>() {
            let Ok(outcome) = outcome else { continue };
            let (requests, sum) = (of.requests(), &mut times[phase]);
            sum.requests += requests as u64;
            sum.processes = sum.processes.max(of.processes.len());
            sum.time_s += outcome.makespan_s;
            sum.latency_s += outcome.latency.mean_s * requests as f64;
            for (index, used) in outcome.servers.iter().enumerate() {
                let Ok(slot) = model.slot_of(outcome.server_at(index)) else { continue };
                for (op, of) in [(Op::Read, used.reads), (Op::Write, used.writes)] {
                    let sum = &mut taken[place(servers, phase, slot, op)];
                    sum.requests += of.requests;
                    sum.adjacent += of.adjacent;
                }
            }
        }
        SimulatedHeads { taken, servers, phases: times }
    }
}

fn place(servers: usize, phase: usize, slot: usize, op: Op) -> usize {
    (phase * servers + slot) * 2 + usize::from(op == Op::Write)
}

impl SimulatedHeads {
    /// What was simulated of each phase.
    pub(crate) fn phases(&self) -> &[SimulatedPhase] {
        &self.phases
    }

    /// The share of adjacent sub-requests of the servers in `slots`; 0 where they had nothing to do.
    fn of(&self, phase: usize, slots: std::ops::Range<usize>, op: Op) -> f64 {
        let of = slots.map(|slot| self.taken[place(self.servers, phase, slot, op)]);
        let (requests, adjacent) = of.fold((0, 0), |sum, of| (sum.0 + of.requests, sum.1 + of.adjacent));
        if requests > 0 { adjacent as f64 / requests as f64 } else { 0.0 }
    }

    /// The costs of each phase, by tier of `cluster`.
    pub(crate) fn by_tier(&self, cluster: &Cluster) -> Vec<CostModel> {
        self.models(cluster)
    }

    /// The costs of each phase, where each server is a tier of its own; slots are those of `cluster`.
    pub(crate) fn by_server(&self, cluster: &Cluster) -> Vec<CostModel> {
        let alone = |tier: &Tier| -> Vec<Tier> {
            tier.servers.iter().map(|&server| Tier { servers: vec![server], ..tier.clone() }).collect()
        };
        self.models(&Cluster { tiers: cluster.tiers.iter().flat_map(alone).collect(), meta: cluster.meta.clone() })
    }

    fn models(&self, cluster: &Cluster) -> Vec<CostModel> {
        let phases = self.taken.len() / (2 * self.servers).max(1);
        let model = |phase: usize| {
            let mut mixed = cluster.clone();
            let mut first = 0;
            for tier in mixed.tiers.iter_mut().chain(&mut mixed.meta) {
                let slots = first..first + tier.servers.len();
                let profile = &mut tier.profile;
                first = slots.end;
                profile.read = profile.read.with_adjacent(self.of(phase, slots.clone(), Op::Read));
                profile.write = profile.write.with_adjacent(self.of(phase, slots, Op::Write));
            }
            CostModel::new(&mixed)
        };
        (0..phases).map(model).collect()
    }
}
