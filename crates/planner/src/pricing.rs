//! The objective: time of the whole run, from what every region asks of every server in every phase.
//!
//! A [`Load`] has for each phase the sum of the latencies of its requests (`T`) and the busy time of each device (and
//! of each link, when links are apart). Loads of regions add up; the time of a run is the sum of its phases' times,
//! each that of [`closed_loop`]: with its own bottleneck, over all files.

use crate::closed_loop;
use crate::demand::{Demand, Entry, FileDemand, PhaseDemand};
use std::ops::Range;
use stripewise_layout::Layout;
use stripewise_model::{Busy, Cluster, CostModel, Round, TierWidths, UnknownServer};

/// See the module; in seconds.
pub(crate) type Load = Vec<f64>;

/// Prices regions on a cluster.
pub(crate) struct Pricer<'a> {
    pub cluster: &'a Cluster,
    pub model: CostModel,
    phases: &'a [PhaseDemand],
    servers: usize,
    /// One for every resource.
    copies: Vec<f64>,
    /// Whether any server has a link of its own to wait for.
    links: bool,
}

impl<'a> Pricer<'a> {
    pub(crate) fn new(cluster: &'a Cluster, demand: &'a Demand) -> Self {
        let model = CostModel::new(cluster);
        let links = cluster.tiers.iter().any(|tier| tier.profile.network_s_per_byte > 0.0);
        let servers = model.servers();
        let copies = vec![1.0; servers * (1 + usize::from(links))];
        Self { cluster, servers, model, phases: &demand.phases, copies, links }
    }

    pub(crate) fn servers(&self) -> usize {
        self.servers
    }

    /// Resources (devices and links) of each server.
    pub(crate) fn resources_per_server(&self) -> usize {
        1 + usize::from(self.links)
    }

    pub(crate) fn phases(&self) -> &[PhaseDemand] {
        self.phases
    }

    /// Figures of one phase in a load: its latency, then the devices, then the links.
    pub(crate) fn stride(&self) -> usize {
        1 + self.servers * self.resources_per_server()
    }

    pub(crate) fn no_load(&self) -> Load {
        vec![0.0; self.phases.len() * self.stride()]
    }

    #[inline]
    fn add_busy(&self, of_phase: &mut [f64], slot: usize, busy: Busy, weight: f64) {
        of_phase[1 + slot] += weight * busy.device_s;
        if self.links {
            of_phase[1 + self.servers + slot] += weight * busy.network_s;
        }
    }

    /// What `chunks` of a file ask of the servers under `widths`. O(parts x servers).
    pub(crate) fn load(&self, file: &FileDemand, chunks: Range<usize>, widths: &TierWidths) -> Load {
        let round = Round::new(widths, self.cluster);
        let mut load = self.no_load();
        for part in file.parts(chunks) {
            let e = &file.entries[part.entry as usize];
            let of_phase = &mut load[usize::from(e.phase) * self.stride()..][..self.stride()];
            self.add_request(of_phase, &round, e, part.weight);
        }
        load
    }

    /// Adds a request to the figures of its phase. O(servers).
    #[inline]
    pub(crate) fn add_request(&self, of_phase: &mut [f64], round: &Round, e: &Entry, weight: f64) {
        of_phase[0] += weight * self.model.latency_s(round, e.op, e.offset, e.size);
        self.model.for_each_busy(round, e.op, e.offset, e.size, |slot, busy| {
            self.add_busy(of_phase, slot, busy, weight);
        });
    }

    /// The mean over the servers of each tier of the figures of one phase: devices, then links.
    pub(crate) fn tier_means(&self, of_phase: &[f32]) -> Vec<f32> {
        let mut means = Vec::with_capacity(self.cluster.tiers.len() * self.resources_per_server());
        let mut at = 1;
        for _ in 0..self.resources_per_server() {
            for tier in &self.cluster.tiers {
                let servers = &of_phase[at..at + tier.servers.len()];
                means.push(servers.iter().sum::<f32>() / servers.len().max(1) as f32);
                at += servers.len();
            }
        }
        means
    }

    /// What requests ask of the servers under any layout, those across region borders included. O(entries x
    /// sub-requests^2).
    pub(crate) fn layout_load<'e>(
        &self,
        entries: impl IntoIterator<Item = &'e Entry>,
        layout: &Layout,
    ) -> Result<Load, UnknownServer> {
        let mut load = self.no_load();
        for e in entries {
            let of_phase = &mut load[usize::from(e.phase) * self.stride()..][..self.stride()];
            let latency_s = self.model.layout_latency_s(layout, e.op, e.offset, e.size, |slot, busy| {
                self.add_busy(of_phase, slot, busy, e.count);
            })?;
            of_phase[0] += e.count * latency_s;
        }
        Ok(load)
    }

    /// Time of one phase in seconds.
    #[inline]
    pub(crate) fn phase_time_s(&self, phase: usize, load: &[f64]) -> f64 {
        let of_phase = &load[phase * self.stride()..][..self.stride()];
        closed_loop::time_s(self.phases[phase].processes, of_phase[0], &of_phase[1..], &self.copies)
    }

    /// A time that a phase cannot go below, at a fraction of the cost of [`Pricer::phase_time_s`].
    #[inline]
    pub(crate) fn least_phase_time_s(&self, phase: usize, load: &[f64]) -> f64 {
        let of_phase = &load[phase * self.stride()..][..self.stride()];
        closed_loop::least_time_s(self.phases[phase].processes, of_phase[0], &of_phase[1..])
    }

    /// Time of the run in seconds. O(phases x servers).
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
    pub(crate) fn bytes(&self, widths: &TierWidths, range: Range<u64>) -> Vec<u64> {
        let round = widths.round_bytes(self.cluster);
        let before = |x: u64, start: u64, width: u64| x / round * width + (x % round).saturating_sub(start).min(width);
        let mut start = 0;
        let mut bytes = Vec::with_capacity(self.servers);
        for (tier, &width) in self.cluster.tiers.iter().zip(widths.as_slice()) {
            for _ in &tier.servers {
                bytes.push(before(range.end, start, width) - before(range.start, start, width));
                start += width;
            }
        }
        bytes
    }
}

/// `sum += part`.
#[inline]
pub(crate) fn add(sum: &mut [f64], part: &[f64]) {
    sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
}
