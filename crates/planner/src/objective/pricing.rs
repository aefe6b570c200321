//! The objective: time of the whole run, from what every region asks of every server in every phase.
//!
//! A [`ServerLoad`] has for each phase the sum of the latencies of its requests (`T`) and the busy time of each lane's devices
//! (and of its links, when links are apart): servers, where they are few ([`Lanes`]). Loads of regions add up; the time of a run is the sum of its phases' times,
//! each that of [`closed_loop`]: with its own bottleneck, over all files.

use crate::job::demand::{Demand, FileDemand, PhaseDemand, RequestGroup};
use crate::objective::closed_loop;
use crate::objective::lanes::Lanes;
use crate::objective::seeks::SimulatedPhase;
use std::ops::Range;
use stripewise_layout::{Layout, ServerId};
use stripewise_model::{Busy, Cluster, CostModel, Round, TierWidths, UnknownServer};

/// See the module; in seconds.
pub(crate) type ServerLoad = Vec<f64>;

/// Prices regions on a cluster.
pub(crate) struct Pricer<'a> {
    pub cluster: &'a Cluster,
    pub model: CostModel,
    /// Costs of each phase, where servers have heads: with the share of adjacent sub-requests; else none.
    models: Vec<CostModel>,
    /// How many times longer each phase takes than [`closed_loop`] says; empty where nothing else is known.
    longer: Vec<f64>,
    phases: &'a [PhaseDemand],
    lanes: Lanes,
    /// Lane of each slot, and one over the servers of the lane.
    share: Vec<(u32, f64)>,
    /// Servers that each resource stands for.
    copies: Vec<f64>,
    /// Devices and links of all servers.
    total: f64,
    /// Whether any server has a link of its own to wait for.
    links: bool,
}

impl<'a> Pricer<'a> {
    /// With servers of large tiers in lanes: for layouts that treat all servers of a tier alike.
    pub(crate) fn new(cluster: &'a Cluster, demand: &'a Demand) -> Self {
        Self::with_lanes(cluster, demand, Lanes::new(cluster))
    }

    /// With a lane for every server: for any layouts.
    pub(crate) fn by_server(cluster: &'a Cluster, demand: &'a Demand) -> Self {
        Self::with_lanes(cluster, demand, Lanes::of_every_server(cluster))
    }

    fn with_lanes(cluster: &'a Cluster, demand: &'a Demand, lanes: Lanes) -> Self {
        let model = CostModel::new(cluster);
        let links = cluster.all_tiers().any(|tier| tier.profile.network_s_per_byte > 0.0);
        let share = |slot| {
            let lane = lanes.of_slot(slot);
            (lane as u32, 1.0 / lanes.slots(lane).len() as f64)
        };
        let share = (0..lanes.servers()).map(share).collect();
        let copies: Vec<f64> = (0..=usize::from(links)).flat_map(|_| lanes.copies()).collect();
        let total = copies.iter().sum();
        let (models, longer) = (Vec::new(), Vec::new());
        Self { cluster, lanes, share, model, models, longer, phases: &demand.phases, copies, total, links }
    }

    /// With these costs of each phase: by tier for [rounds](Pricer::add_request), by server for [layouts](Pricer::layout_load).
    pub(crate) fn with_models(self, models: Vec<CostModel>) -> Self {
        Self { models, ..self }
    }

    /// With the times of phases as the processes were simulated to take, under the layouts that ask `load` of the servers.
    ///
    /// With one process in flight nothing waits, and the price is exact; with as many as were simulated it is the simulated
    /// time. Between them the factor goes by the processes that a request can meet.
    pub(crate) fn with_simulated(mut self, simulated: &[SimulatedPhase], load: &[f64]) -> Self {
        let longer = simulated.iter().enumerate().map(|(phase, of)| {
            let (processes, in_flight) = (self.phases[phase].processes, of.in_flight());
            let (now_s, there_s) =
                (self.closed_loop_s(phase, processes, load), self.closed_loop_s(phase, in_flight, load));
            if of.requests == 0 || now_s <= 0.0 || there_s <= 0.0 {
                return 1.0;
            }
            let simulated_s = of.time_s * self.phases[phase].requests as f64 / of.requests as f64;
            let met = if in_flight > 1.0 { ((processes - 1.0) / (in_flight - 1.0)).min(1.0) } else { 1.0 };
            // More cannot be in flight than those processes have, unless the job is said to have more of them.
            let least = if processes <= of.processes as f64 { processes.min(in_flight) } else { processes };
            (simulated_s / there_s).powf(met) * self.closed_loop_s(phase, least, load) / now_s
        });
        self.longer = longer.collect();
        self
    }

    /// [`Pricer::new`] for another demand with the same phases, at the same costs.
    pub(crate) fn on<'b>(&self, demand: &'b Demand) -> Pricer<'b>
    where
        'a: 'b,
    {
        Pricer::new(self.cluster, demand).with_models(self.models.clone())
    }

    /// What requests of a phase cost.
    #[inline]
    pub(crate) fn model_of(&self, phase: u16) -> &CostModel {
        self.models.get(usize::from(phase)).unwrap_or(&self.model)
    }

    pub(crate) fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// Resources (devices and links) of each lane.
    pub(crate) fn resources_per_server(&self) -> usize {
        1 + usize::from(self.links)
    }

    pub(crate) fn phases(&self) -> &[PhaseDemand] {
        self.phases
    }

    /// Figures of one phase in a load: its latency, then the devices, then the links.
    pub(crate) fn stride(&self) -> usize {
        1 + self.lanes.len() * self.resources_per_server()
    }

    pub(crate) fn no_load(&self) -> ServerLoad {
        vec![0.0; self.phases.len() * self.stride()]
    }

    /// Adds to `load` operations on names that take `names_s` seconds one after the other, over the phases as requests are: the
    /// processes wait for them, and the metadata tier is busy with as many at once as it serves. Nothing where the cluster has no
    /// metadata tier. O(phases).
    pub(crate) fn add_names(&self, load: &mut ServerLoad, names_s: f64) {
        let (Some(meta), Ok(slot)) = (&self.cluster.meta, self.model.slot_of(ServerId::META)) else { return };
        let requests: f64 = self.phases.iter().map(|phase| phase.requests as f64).sum();
        for (phase, of_phase) in self.phases.iter().zip(load.chunks_exact_mut(self.stride())) {
            let latency_s = names_s * phase.requests as f64 / requests.max(1.0);
            of_phase[0] += latency_s;
            let device_s = latency_s / f64::from(meta.at_once.max(1));
            self.add_busy(of_phase, slot, Busy { device_s, network_s: 0.0 }, 1.0);
        }
    }

    #[inline]
    fn add_busy(&self, of_phase: &mut [f64], slot: usize, busy: Busy, weight: f64) {
        let (lane, share) = self.share[slot];
        let (lane, weight) = (lane as usize, weight * share);
        of_phase[1 + lane] += weight * busy.device_s;
        if self.links {
            of_phase[1 + self.lanes.len() + lane] += weight * busy.network_s;
        }
    }

    /// What `chunks` of a file ask of the servers under `widths`. O(parts x servers touched).
    pub(crate) fn load(&self, file: &FileDemand, chunks: Range<usize>, widths: &TierWidths) -> ServerLoad {
        let round = Round::new(widths, self.cluster);
        let mut load = self.no_load();
        for part in file.parts(chunks) {
            let e = &file.entries[part.entry as usize];
            let of_phase = &mut load[usize::from(e.phase) * self.stride()..][..self.stride()];
            self.add_request(of_phase, &round, e, part.weight);
        }
        load
    }

    /// Adds a request to the figures of its phase. O(servers touched).
    #[inline]
    pub(crate) fn add_request(&self, of_phase: &mut [f64], round: &Round, e: &RequestGroup, weight: f64) {
        let model = self.model_of(e.phase);
        of_phase[0] += weight * model.latency_s(round, e.op, e.offset, e.size);
        model.for_each_busy(round, e.op, e.offset, e.size, |slot, busy| {
            self.add_busy(of_phase, slot, busy, weight);
        });
    }

    /// The mean over the servers of each tier of the figures of one phase: devices, then links.
    pub(crate) fn tier_means(&self, of_phase: &[f32]) -> Vec<f32> {
        let mut means = Vec::with_capacity(self.cluster.tiers.len() * self.resources_per_server());
        for resource in 0..self.resources_per_server() {
            let mut at = 1 + resource * self.lanes.len();
            for (tier, of) in self.cluster.tiers.iter().enumerate() {
                let lanes = self.lanes.of_tier(tier);
                let busy = of_phase[at..at + lanes.len()].iter().zip(&self.copies[lanes.clone()]);
                let sum: f32 = busy.map(|(&busy, &copies)| busy * copies as f32).sum();
                means.push(sum / of.servers.len().max(1) as f32);
                at += lanes.len();
            }
        }
        means
    }

    /// What requests ask of the servers under any layout, those across region borders included. O(entries x
    /// sub-requests^2).
    pub(crate) fn layout_load<'e>(
        &self,
        entries: impl IntoIterator<Item = &'e RequestGroup>,
        layout: &Layout,
    ) -> Result<ServerLoad, UnknownServer> {
        let mut load = self.no_load();
        self.add_layout_load(&mut load, entries, layout)?;
        Ok(load)
    }

    /// [`Pricer::layout_load`] added to `load`, which need not be as long as all servers for every file.
    pub(crate) fn add_layout_load<'e>(
        &self,
        load: &mut [f64],
        entries: impl IntoIterator<Item = &'e RequestGroup>,
        layout: &Layout,
    ) -> Result<(), UnknownServer> {
        for e in entries {
            let of_phase = &mut load[usize::from(e.phase) * self.stride()..][..self.stride()];
            let latency_s = self.model_of(e.phase).layout_latency_s(layout, e.op, e.offset, e.size, |slot, busy| {
                self.add_busy(of_phase, slot, busy, e.count);
            })?;
            of_phase[0] += e.count * latency_s;
        }
        Ok(())
    }

    /// Time of one phase in seconds.
    #[inline]
    pub(crate) fn phase_time_s(&self, phase: usize, load: &[f64]) -> f64 {
        let longer = self.longer.get(phase).copied().unwrap_or(1.0);
        longer * self.closed_loop_s(phase, self.phases[phase].processes, load)
    }

    #[inline]
    fn closed_loop_s(&self, phase: usize, processes: f64, load: &[f64]) -> f64 {
        let of_phase = &load[phase * self.stride()..][..self.stride()];
        closed_loop::time_s(processes, of_phase[0], &of_phase[1..], &self.copies)
    }

    /// A time that a phase cannot go below, at a fraction of the cost of [`Pricer::phase_time_s`].
    #[inline]
    pub(crate) fn least_phase_time_s(&self, phase: usize, load: &[f64]) -> f64 {
        let of_phase = &load[phase * self.stride()..][..self.stride()];
        closed_loop::least_time_s(self.phases[phase].processes, of_phase[0], &of_phase[1..], self.total)
    }

    /// Time of the run in seconds. O(phases x lanes).
    #[inline]
    pub(crate) fn time_s(&self, load: &[f64]) -> f64 {
        (0..self.phases.len()).map(|phase| self.phase_time_s(phase, load)).sum()
    }

    /// The share of a part (a region, or all reads) in the time of the run: of each phase's time, as much as the part
    /// has of its latency and of its busiest server's time. The shares of all parts add up to [`Pricer::time_s`] of
    /// the whole.
    pub(crate) fn share_s(&self, part: &[f64], whole: &[f64]) -> f64 {
        (0..self.phases.len()).map(|phase| self.phase_share_s(phase, part, whole)).sum()
    }

    fn phase_share_s(&self, phase: usize, part: &[f64], whole: &[f64]) -> f64 {
        let of = |load: &[f64], i: usize| load[phase * self.stride() + i];
        let busiest = (1..self.stride()).fold(1, |best, i| if of(whole, i) > of(whole, best) { i } else { best });
        let p = self.phases[phase].processes;
        let theta = |load: &[f64]| of(load, 0) + (p - 1.0) * of(load, busiest);
        let of_whole = theta(whole);
        if of_whole > 0.0 { self.phase_time_s(phase, whole) * theta(part) / of_whole } else { 0.0 }
    }

    /// Bytes of `[range)` on every server under `widths`. O(servers).
    pub(crate) fn server_bytes(&self, widths: &TierWidths, range: Range<u64>) -> Vec<u64> {
        let mut bytes = Vec::with_capacity(self.lanes.servers());
        for held in self.held(widths, range) {
            bytes.extend((0..held.servers).map(|server| held.on(server)));
        }
        bytes
    }

    /// Bytes of `[range)` on the fullest server of every lane under `widths`. O(lanes).
    pub(crate) fn bytes(&self, widths: &TierWidths, range: Range<u64>) -> Vec<u64> {
        let mut bytes = Vec::with_capacity(self.lanes.len());
        let mut first_slot = 0;
        for (tier, held) in self.held(widths, range).enumerate() {
            for lane in self.lanes.of_tier(tier) {
                let slots = self.lanes.slots(lane);
                bytes.push(held.most(slots.start - first_slot..slots.end - first_slot));
            }
            first_slot += held.servers;
        }
        bytes
    }

    /// Bytes of `[from, to)` of a file, or of all files of a group, on the fullest server of every lane. O(lanes), for
    /// every extent of a group.
    pub(crate) fn file_bytes(&self, file: &FileDemand, widths: &TierWidths, from: u64, to: u64) -> Vec<u64> {
        added(file.each_present(from, to).map(|(range, files)| (self.bytes(widths, range), files)), self.lanes.len())
    }

    /// [`Pricer::file_bytes`] of every server. O(servers), for every extent of a group.
    pub(crate) fn file_server_bytes(&self, file: &FileDemand, widths: &TierWidths, from: u64, to: u64) -> Vec<u64> {
        let ranges = file.each_present(from, to).map(|(range, files)| (self.server_bytes(widths, range), files));
        added(ranges, self.lanes.servers())
    }

    /// What each tier holds of `[range)` under `widths`.
    fn held(&self, widths: &TierWidths, range: Range<u64>) -> impl Iterator<Item = Held> {
        let round = widths.round_bytes(self.cluster);
        let (from, to) = ((range.start / round, range.start % round), (range.end / round, range.end % round));
        let tiers = self.cluster.tiers.iter().zip(widths.as_slice()).map(|(tier, &width)| (tier.servers.len(), width));
        let tiers: Vec<(usize, u64)> = tiers.collect();
        tiers.into_iter().scan(0, move |start, (servers, width)| {
            let held = Held { servers, width, start: *start, from, to };
            *start += width * servers as u64;
            Some(held)
        })
    }
}

/// Sums of bytes, each taken for as many files as stand with it.
fn added(parts: impl Iterator<Item = (Vec<u64>, u64)>, len: usize) -> Vec<u64> {
    let mut sums = vec![0_u64; len];
    for (bytes, files) in parts {
        sums.iter_mut().zip(bytes).for_each(|(sum, b)| *sum = sum.saturating_add(b.saturating_mul(files)));
    }
    sums
}

/// What a tier holds of a range of a file.
struct Held {
    servers: usize,
    width: u64,
    /// Where the tier begins in the round.
    start: u64,
    /// Ends of the range: whole rounds, and the place in the round.
    from: (u64, u64),
    to: (u64, u64),
}

impl Held {
    /// Bytes on a server of the tier.
    #[inline]
    fn on(&self, server: usize) -> u64 {
        let start = self.start + server as u64 * self.width;
        let before = |(rounds, phase): (u64, u64)| rounds * self.width + phase.saturating_sub(start).min(self.width);
        before(self.to) - before(self.from)
    }

    /// Most bytes on a server of a run of them, not empty. O(1): only where the range begins and ends do neighbours
    /// differ.
    fn most(&self, servers: Range<usize>) -> u64 {
        let at = |phase: u64| phase.saturating_sub(self.start).checked_div(self.width).unwrap_or(0);
        let mut most = self.on(servers.start);
        if servers.len() > 1 {
            for border in [at(self.from.1), at(self.to.1)] {
                for server in border.saturating_sub(1)..=border.saturating_add(1) {
                    if servers.contains(&(server as usize)) {
                        most = most.max(self.on(server as usize));
                    }
                }
            }
            most = most.max(self.on(servers.end - 1));
        }
        most
    }
}

/// `sum += part`.
#[inline]
pub(crate) fn add(sum: &mut [f64], part: &[f64]) {
    sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::input::PlanOptions;
    use proptest::prelude::*;
    use stripewise_model::presets;

    proptest! {
        #[test]
        fn a_lane_has_the_bytes_of_its_fullest_server(
            h in 0_u64..9, s in 0_u64..9, from in 0_u64..4000, len in 0_u64..4000,
        ) {
            prop_assume!(h + s > 0);
            let cluster = presets::set_p(150, 40, false);
            let demand = Demand::new(&[], &PlanOptions::default()).unwrap();
            let pricer = Pricer::new(&cluster, &demand);
            let widths = TierWidths::new(&[h, s]);
            let servers = pricer.server_bytes(&widths, from..from + len);
            prop_assert_eq!(servers.iter().sum::<u64>(), len);
            let lanes = pricer.bytes(&widths, from..from + len);
            for (lane, &bytes) in lanes.iter().enumerate() {
                prop_assert_eq!(bytes, servers[pricer.lanes().slots(lane)].iter().copied().max().unwrap());
            }
        }
    }
}
