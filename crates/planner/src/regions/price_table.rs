//! `C[chunk][candidate]`: what each chunk costs under each candidate, from the requests that really fall on it, so
//! that heat counts as much as size (`beyond.md` 2). Per phase: the latency, and the busy time of every server. For
//! segmentation the servers of a tier are taken together; their bottleneck is priced by the caller ([`Prices`]), which
//! keeps the table additive. The local search sums whole loads of any run of chunks from it.

use crate::job::demand::FileDemand;
use crate::objective::pricing::{Pricer, ServerLoad};
use rayon::prelude::*;
use std::ops::Range;
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
    /// Blocks of `1 + resources` rows of one figure per candidate: latency, then the mean server of each tier.
    data: Vec<f32>,
    resources: usize,
    /// `loads[block][candidate]`: latency, then every device and link, `stride` figures each.
    loads: Vec<Vec<f32>>,
    stride: usize,
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

impl PathLoad {
    /// Takes `share` of `other` in place of as much of itself.
    pub(crate) fn move_towards(&mut self, other: &PathLoad, share: f64) {
        let go = |mine: &mut Vec<f64>, other: &[f64]| {
            mine.iter_mut().zip(other).for_each(|(mine, other)| *mine += share * (other - *mine));
        };
        go(&mut self.latency_s, &other.latency_s);
        go(&mut self.bytes, &other.bytes);
        self.busy_s.iter_mut().zip(&other.busy_s).for_each(|(mine, other)| go(mine, other));
    }
}

impl PriceTable {
    /// Prices every chunk under every candidate. O(parts x candidates x servers), on all cores; memory O(chunks x phases
    /// that touch them x candidates x servers).
    pub(crate) fn new(file: &FileDemand, candidates: Vec<TierWidths>, pricer: &Pricer) -> Self {
        let tiers = pricer.cluster.tiers.len();
        let resources = tiers * pricer.resources_per_server();
        let rounds: Vec<Round> = candidates.iter().map(|widths| Round::new(widths, pricer.cluster)).collect();
        let stride = pricer.stride();
        let chunks: Vec<(Vec<u16>, Vec<f32>)> = (0..file.chunks())
            .into_par_iter()
            .map(|chunk| {
                let parts = file.parts(chunk..chunk + 1);
                let mut phases: Vec<u16> = parts.iter().map(|part| file.entries[part.entry as usize].phase).collect();
                phases.sort_unstable();
                phases.dedup();
                let mut loads = vec![0.0_f32; phases.len() * candidates.len() * stride];
                let mut sums = vec![0.0; phases.len() * stride];
                for (candidate, round) in rounds.iter().enumerate() {
                    sums.fill(0.0);
                    for part in parts {
                        let e = &file.entries[part.entry as usize];
                        let at = phases.binary_search(&e.phase).expect("collected from the same parts") * stride;
                        pricer.add_request(&mut sums[at..at + stride], round, e, part.weight);
                    }
                    for (phase, sums) in sums.chunks_exact(stride).enumerate() {
                        let to = &mut loads[(phase * candidates.len() + candidate) * stride..][..stride];
                        to.iter_mut().zip(sums).for_each(|(to, &sum)| *to = sum as f32);
                    }
                }
                (phases, loads)
            })
            .collect();
        let size = (1 + resources) * candidates.len();
        let (mut data, mut blocks, mut loads) = (Vec::new(), Vec::with_capacity(chunks.len()), Vec::new());
        for (phases, of_chunk) in chunks {
            let per_phase = candidates.len() * stride;
            blocks.push(phases.iter().enumerate().map(|(i, &phase)| (phase, data.len() + i * size)).collect());
            for of_phase in of_chunk.chunks_exact(per_phase) {
                let start = data.len();
                data.resize(start + size, 0.0);
                for (candidate, load) in of_phase.chunks_exact(stride).enumerate() {
                    let means = pricer.tier_means(load);
                    data[start + candidate] = load[0];
                    for (resource, mean) in means.into_iter().enumerate() {
                        data[start + (1 + resource) * candidates.len() + candidate] = mean;
                    }
                }
            }
            loads.push(of_chunk);
        }
        let chunk_bytes = file.edges.windows(2).map(|edge| file.present_bytes(edge[0], edge[1]) as f64);
        let share = (0..tiers).map(|tier| {
            let servers = pricer.cluster.tiers[tier].servers.len() as f64;
            let of = |widths: &TierWidths| {
                servers * widths.width_bytes(tier) as f64 / widths.round_bytes(pricer.cluster) as f64
            };
            candidates.iter().map(of).collect()
        });
        Self {
            chunk_bytes: chunk_bytes.collect(),
            share: share.collect(),
            blocks,
            data,
            resources,
            loads,
            stride,
            candidates,
        }
    }

    /// The loads of a run of chunks under every candidate. O(chunks x phases that touch them x candidates x servers).
    pub(crate) fn loads(&self, chunks: Range<usize>, pricer: &Pricer) -> Vec<ServerLoad> {
        let mut sums = vec![pricer.no_load(); self.candidates.len()];
        for chunk in chunks {
            for (index, &(phase, _)) in self.blocks[chunk].iter().enumerate() {
                let block = &self.loads[chunk][index * self.candidates.len() * self.stride..];
                for (sum, load) in sums.iter_mut().zip(block.chunks_exact(self.stride)) {
                    let to = &mut sum[usize::from(phase) * self.stride..][..self.stride];
                    to.iter_mut().zip(load).for_each(|(to, &figure)| *to += f64::from(figure));
                }
            }
        }
        sums
    }

    /// The load of a run of chunks under one candidate, if it is one. O(chunks x phases x servers).
    pub(crate) fn load(&self, chunks: Range<usize>, widths: &TierWidths, pricer: &Pricer) -> Option<ServerLoad> {
        let candidate = self.candidates.binary_search(widths).ok()?;
        let mut sum = pricer.no_load();
        for chunk in chunks {
            for (index, &(phase, _)) in self.blocks[chunk].iter().enumerate() {
                let at = (index * self.candidates.len() + candidate) * self.stride;
                let to = &mut sum[usize::from(phase) * self.stride..][..self.stride];
                let load = &self.loads[chunk][at..at + self.stride];
                to.iter_mut().zip(load).for_each(|(to, &figure)| *to += f64::from(figure));
            }
        }
        Some(sum)
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
