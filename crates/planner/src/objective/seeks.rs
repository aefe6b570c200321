//! For which share of a layout's sub-requests the heads of servers stay where they are: the processes of the trace are
//! simulated, and each server counts by the rule of [`RunEnds`](stripewise_model::RunEnds).
//!
//! Under another layout processes do not keep the step that they had in the trace. Which of their sub-requests meet at a server
//! only a closed loop tells. Simulated are stretches of consecutive requests, as a thinned-out sample has no runs.

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

/// Stretches of consecutive requests, spread evenly over the run.
pub(crate) const STRETCHES: usize = 8;

/// Seed of the startups, far from those that choose between plans.
const DRAW: u64 = 1 << 33;

/// Requests as their processes make them: a closed loop for each phase of each stretch.
#[derive(Debug)]
pub(crate) struct Arrivals {
    loops: Vec<(usize, ClosedLoop)>,
}

/// The share of adjacent sub-requests of each phase, server and operation under one layout of each file.
#[derive(Debug)]
pub(crate) struct AdjacentShares {
    /// At `(phase x servers + slot) x 2 + operation`.
    taken: Vec<TakenSubs>,
    servers: usize,
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
    pub(crate) fn shares(
        &self,
        layouts: &[Layout],
        cluster: &Cluster,
        phases: usize,
        network: Network,
    ) -> AdjacentShares {
        let model = CostModel::new(cluster);
        let servers = model.servers();
        let mut taken = vec![TakenSubs::default(); phases * servers * 2];
        let options = SimulationOptions { seed: DRAW, network };
        let outcomes = self.loops.par_iter().map(|(phase, of)| (*phase, simulate(cluster, layouts, of, &options)));
        for (phase, outcome) in outcomes.collect::<Vec<_>>() {
            let Ok(outcome) = outcome else { continue };
            for (index, used) in outcome.servers.iter().enumerate() {
                let Ok(slot) = model.slot_of(outcome.server_at(index)) else { continue };
                for (op, of) in [(Op::Read, used.reads), (Op::Write, used.writes)] {
                    let sum = &mut taken[place(servers, phase, slot, op)];
                    sum.requests += of.requests;
                    sum.adjacent += of.adjacent;
                }
            }
        }
        AdjacentShares { taken, servers }
    }
}

fn place(servers: usize, phase: usize, slot: usize, op: Op) -> usize {
    (phase * servers + slot) * 2 + usize::from(op == Op::Write)
}

impl AdjacentShares {
    /// The share of the servers in `slots`; 0 where they had nothing to do.
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
