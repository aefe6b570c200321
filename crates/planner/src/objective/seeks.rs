//! For which share of a layout's sub-requests the heads of servers stay where they are: requests of the trace are replayed
//! about in the order in which they began, and each server takes its sub-requests by the rule of [`RunEnds`].
//!
//! Replayed are stretches of consecutive requests, as a thinned-out sample has no runs. How many sub-requests wait at a
//! server follows from the processes in flight and the server's share of the requests.

use crate::job::demand::{PhaseDemand, time};
use crate::job::input::FileTrace;
use crate::job::phases::{self, Moment};
use std::collections::HashMap;
use stripewise_layout::Layout;
use stripewise_model::{Cluster, CostModel, Op, Profile, RunEnds, Tier, head_position};

/// Most requests that are replayed.
const MOST_REQUESTS: usize = 32_768;

/// Stretches of consecutive requests, spread evenly over the run.
pub(crate) const STRETCHES: usize = 8;

/// A request in its turn.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    file: u32,
    phase: u16,
    op: Op,
    offset: u64,
    size: u64,
}

/// Requests in an order in which they can have come.
#[derive(Debug)]
pub(crate) struct Arrivals {
    stretches: Vec<Vec<Arrival>>,
}

/// Sub-requests that a server took in one phase by one operation, and those of them that were adjacent.
#[derive(Debug, Clone, Copy, Default)]
struct Taken {
    subs: f64,
    adjacent: f64,
}

/// The share of adjacent sub-requests of each phase, server and operation under one layout of each file.
#[derive(Debug)]
pub(crate) struct AdjacentShares {
    /// At `(phase x servers + slot) x 2 + operation`.
    taken: Vec<Taken>,
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

/// Requests with their processes, in the order of the trace, as they come when each process goes on at its own pace: up to a
/// turn later. Under another layout processes do not keep the step that they had. Those of one process stay in their order.
/// O(requests x log).
fn drifted(arrivals: &[(u32, Arrival)], phases: &[PhaseDemand]) -> Vec<Arrival> {
    let mut keys: HashMap<u32, Vec<f64>> = HashMap::new();
    for (number, (process, arrival)) in arrivals.iter().enumerate() {
        // The golden ratio's multiples are spread evenly over a turn.
        let share = (number as f64 * 0.618_033_988_749_895).fract();
        let turn = phases[usize::from(arrival.phase)].processes;
        keys.entry(*process).or_default().push(number as f64 + share * turn);
    }
    let mut next: HashMap<u32, std::vec::IntoIter<f64>> = HashMap::with_capacity(keys.len());
    for (process, mut of_process) in keys {
        of_process.sort_unstable_by(f64::total_cmp);
        next.insert(process, of_process.into_iter());
    }
    let key = |(process, arrival): &(u32, Arrival)| {
        let key = next.get_mut(process).and_then(Iterator::next);
        (key.expect("a key for each request of the process"), *arrival)
    };
    let mut keyed: Vec<(f64, Arrival)> = arrivals.iter().map(key).collect();
    keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
    keyed.into_iter().map(|(_, arrival)| arrival).collect()
}

impl Arrivals {
    /// O(requests x log).
    pub(crate) fn new(files: &[FileTrace], max_phases: usize, of_phases: &[PhaseDemand]) -> Self {
        let requests =
            || files.iter().zip(0_u32..).flat_map(|(file, index)| file.requests.iter().map(move |r| (index, r)));
        let requests = || requests().filter(|(_, r)| r.size > 0);
        let moment = |(file, r): (u32, &stripewise_model::Request)| Moment {
            start_s: time(r.start_s),
            place: (file, r.offset),
            op: r.op,
        };
        let moments: Vec<Moment> = requests().map(moment).collect();
        let phases = phases::find(&moments, max_phases.max(1)).of;
        let arrival = |((file, r), &phase): ((u32, &stripewise_model::Request), &u16)| Arrival {
            file,
            phase,
            op: r.op,
            offset: r.offset,
            size: r.size,
        };
        let begun = requests().zip(&phases).map(|of| (time(of.0.1.start_s), (of.0.1.process, arrival(of))));
        let mut arrivals: Vec<(f64, (u32, Arrival))> = begun.collect();
        // Stable: requests of one moment keep the order in which they were given.
        arrivals.sort_by(|a, b| a.0.total_cmp(&b.0));
        let arrivals: Vec<(u32, Arrival)> = arrivals.into_iter().map(|(_, of)| of).collect();
        let ranges = stretches(arrivals.len(), MOST_REQUESTS).into_iter();
        Self { stretches: ranges.map(|range| drifted(&arrivals[range], of_phases)).collect() }
    }

    /// Replays the requests under `layouts`, one of each file. Servers that `cluster` does not have are left out.
    /// O(sub-requests).
    pub(crate) fn shares(&self, layouts: &[Layout], cluster: &Cluster, phases: &[PhaseDemand]) -> AdjacentShares {
        let model = CostModel::new(cluster);
        let profiles: Vec<Profile> =
            cluster.all_tiers().flat_map(|tier| vec![tier.profile; tier.servers.len()]).collect();
        let servers = profiles.len();
        let mut taken = vec![Taken::default(); phases.len() * servers * 2];
        for stretch in &self.stretches {
            let mut ends = vec![RunEnds::default(); servers];
            let mut arrived = vec![0_u64; servers];
            for (number, arrival) in stretch.iter().enumerate() {
                let processes = phases[usize::from(arrival.phase)].processes;
                for sub in &layouts[arrival.file as usize].split(arrival.offset, arrival.size) {
                    let Ok(slot) = model.slot_of(sub.server) else { continue };
                    let here = arrived[slot];
                    arrived[slot] += 1;
                    // One of those at the server is served, and one is this.
                    let present = processes * here as f64 / (number + 1) as f64;
                    let waiting = (present - 2.0).max(0.0).round() as u64;
                    let position = head_position(u64::from(arrival.file), sub.datafile_offset);
                    let begun = here.saturating_sub(waiting);
                    let ahead_bytes = profiles[slot].of(arrival.op).ahead_bytes();
                    let (_, adjacent) = ends[slot].take(position, sub.len, here + 1, begun, ahead_bytes);
                    let of = &mut taken[index(servers, usize::from(arrival.phase), slot, arrival.op)];
                    of.subs += 1.0;
                    of.adjacent += f64::from(u8::from(adjacent));
                }
            }
        }
        AdjacentShares { taken, servers }
    }
}

fn index(servers: usize, phase: usize, slot: usize, op: Op) -> usize {
    (phase * servers + slot) * 2 + usize::from(op == Op::Write)
}

impl AdjacentShares {
    /// The share of the servers in `slots`; 0 where they had nothing to do.
    fn of(&self, phase: usize, slots: std::ops::Range<usize>, op: Op) -> f64 {
        let sum = slots.map(|slot| self.taken[index(self.servers, phase, slot, op)]);
        let sum = sum
            .fold(Taken::default(), |sum, of| Taken { subs: sum.subs + of.subs, adjacent: sum.adjacent + of.adjacent });
        if sum.subs > 0.0 { sum.adjacent / sum.subs } else { 0.0 }
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
