//! `C[chunk][candidate]`: what each chunk costs under each candidate, from the requests that really fall on it, so
//! that heat counts as much as size (`beyond.md` 2). Per phase: the latency, and the mean busy time of a server of
//! each tier; the bottleneck over servers is priced by the caller ([`Prices`]), which keeps the table additive.

use crate::demand::FileDemand;
use crate::pricing::Pricer;
use rayon::prelude::*;
use stripewise_model::{Round, TierWidths};

/// What a second of latency, a second of a tier's time and a byte on a tier cost.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Prices {
    /// `latency[phase]`: 1/p.
    pub latency: Vec<f64>,
    /// `busy[phase][resource]`: of one second of the mean server of a tier.
    pub busy: Vec<Vec<f64>>,
    /// `bytes[tier]`: seconds for a byte.
    pub bytes: Vec<f64>,
}

/// The table of one file.
pub(crate) struct PriceTable {
    pub candidates: Vec<TierWidths>,
    /// Bytes that the file has in each chunk.
    chunk_bytes: Vec<f64>,
    /// `share[tier][candidate]`: part of a long range that lies on the tier.
    share: Vec<Vec<f64>>,
    /// `(phase, start in data)` of each block of each chunk.
    blocks: Vec<Vec<(u16, usize)>>,
    /// Blocks of `1 + resources` rows of one figure per candidate.
    data: Vec<f32>,
    resources: usize,
}

/// What one path through the table adds up to, at the table's precision.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PathLoad {
    /// Sum of latencies per phase, in seconds.
    pub latency_s: Vec<f64>,
    /// Busy time per phase of the mean server of each tier, device then link.
    pub busy_s: Vec<Vec<f64>>,
    /// Bytes per tier.
    pub bytes: Vec<f64>,
}

impl PriceTable {
    /// Prices every chunk under every candidate. O(parts x candidates x tiers), on all cores; memory O(chunks x phases
    /// that touch them x candidates x tiers).
    pub(crate) fn new(file: &FileDemand, candidates: Vec<TierWidths>, pricer: &Pricer) -> Self {
        let tiers = pricer.cluster.tiers.len();
        let resources = tiers * pricer.resources_per_server();
        let rounds: Vec<Round> = candidates.iter().map(|widths| Round::new(widths, pricer.cluster)).collect();
        let chunks: Vec<(Vec<u16>, Vec<f32>)> = (0..file.chunks())
            .into_par_iter()
            .map(|chunk| {
                let parts = file.parts(chunk..chunk + 1);
                let mut phases: Vec<u16> = parts.iter().map(|part| file.entries[part.entry as usize].phase).collect();
                phases.sort_unstable();
                phases.dedup();
                let rows = 1 + resources;
                let mut block = vec![0.0; phases.len() * rows * candidates.len()];
                let mut sums = vec![0.0; phases.len() * rows];
                for (candidate, round) in rounds.iter().enumerate() {
                    sums.fill(0.0);
                    for part in parts {
                        let e = &file.entries[part.entry as usize];
                        let at = phases.binary_search(&e.phase).expect("collected from the same parts") * rows;
                        sums[at] += part.weight * pricer.model.latency_s(round, e.op, e.offset, e.size);
                        for group in round.groups(e.offset, e.size) {
                            let busy = pricer.model.busy(group.tier, e.op, group.bytes);
                            let of_mean = part.weight * group.servers as f64
                                / pricer.cluster.tiers[group.tier].servers.len() as f64;
                            sums[at + 1 + group.tier] += of_mean * busy.device_s;
                            if resources > tiers {
                                sums[at + 1 + tiers + group.tier] += of_mean * busy.network_s;
                            }
                        }
                    }
                    for (row, &sum) in sums.iter().enumerate() {
                        block[row * candidates.len() + candidate] = sum as f32;
                    }
                }
                (phases, block)
            })
            .collect();
        let mut data = Vec::with_capacity(chunks.iter().map(|(_, block)| block.len()).sum());
        let mut blocks = Vec::with_capacity(chunks.len());
        for (phases, block) in chunks {
            let start = data.len();
            let size = (1 + resources) * candidates.len();
            blocks.push(phases.iter().enumerate().map(|(i, &phase)| (phase, start + i * size)).collect());
            data.extend(block);
        }
        let chunk_bytes = file.edges.windows(2).map(|edge| {
            let present = file.present(edge[0], edge[1]);
            (present.end - present.start) as f64
        });
        let share = (0..tiers).map(|tier| {
            let servers = pricer.cluster.tiers[tier].servers.len() as f64;
            let of = |widths: &TierWidths| {
                servers * widths.width_bytes(tier) as f64 / widths.round_bytes(pricer.cluster) as f64
            };
            candidates.iter().map(of).collect()
        });
        Self { chunk_bytes: chunk_bytes.collect(), share: share.collect(), blocks, data, resources, candidates }
    }

    pub(crate) fn chunks(&self) -> usize {
        self.blocks.len()
    }

    fn row(&self, start: usize, row: usize) -> &[f32] {
        &self.data[start + row * self.candidates.len()..][..self.candidates.len()]
    }

    /// The cost of a chunk under every candidate, in seconds. O(candidates x (phases of the chunk + 1) x tiers).
    pub(crate) fn costs(&self, chunk: usize, prices: &Prices, costs: &mut [f64]) {
        costs.fill(0.0);
        for (share, &price) in self.share.iter().zip(&prices.bytes) {
            let price = price * self.chunk_bytes[chunk];
            if price > 0.0 {
                costs.iter_mut().zip(share).for_each(|(cost, share)| *cost += price * share);
            }
        }
        for &(phase, start) in &self.blocks[chunk] {
            let phase = usize::from(phase);
            let rows = std::iter::once(&prices.latency[phase]).chain(&prices.busy[phase]);
            for (row, &price) in rows.enumerate() {
                let figures = self.row(start, row);
                costs.iter_mut().zip(figures).for_each(|(cost, &figure)| *cost += price * f64::from(figure));
            }
        }
    }

    /// Adds what a path asks for to `sum`. O(chunks x phases x tiers).
    pub(crate) fn add_path(&self, path: &[usize], sum: &mut PathLoad) {
        for (chunk, &candidate) in path.iter().enumerate() {
            for (bytes, share) in sum.bytes.iter_mut().zip(&self.share) {
                *bytes += self.chunk_bytes[chunk] * share[candidate];
            }
            for &(phase, start) in &self.blocks[chunk] {
                let phase = usize::from(phase);
                sum.latency_s[phase] += f64::from(self.row(start, 0)[candidate]);
                for resource in 0..self.resources {
                    sum.busy_s[phase][resource] += f64::from(self.row(start, 1 + resource)[candidate]);
                }
            }
        }
    }
}
