//! Prices of busy servers and of scarce bytes, iterated (`beyond.md` 4, math A.10).
//!
//! The objective takes the busiest server of each phase, and space limits bind all regions together; neither is a sum
//! over chunks. Given a price for a second of each tier in each phase (adding up to `p - 1` over `p`) and for a byte
//! on each tier, both are, and the cheapest segmentation is a Viterbi path. The prices move towards the tiers that
//! turn out busiest (multiplicative weights) and too full. The path jumps between extremes as they do: the best paths
//! seen are kept and finished by the local search of `refine`.

use crate::capacity::Limits;
use crate::price_table::{PathLoad, PriceTable, Prices};
use crate::pricing::Pricer;
use crate::viterbi::cheapest_path;
use std::ops::Range;
use stripewise_model::TierWidths;

/// A region before its borders are offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub chunks: Range<usize>,
    pub widths: TierWidths,
}

/// Regions of every file.
pub(crate) type Segmentation = Vec<Vec<Span>>;

/// How the prices are iterated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Iteration {
    /// Price of a region in seconds.
    pub region_s: f64,
    /// Most regions of a file.
    pub max_regions: usize,
    /// Number of iterations.
    pub rounds: usize,
    /// How many segmentations to keep.
    pub keep: usize,
}

/// The best segmentations over all iterations, best first. O(rounds x chunks x candidates x phases x tiers).
pub(crate) fn segmentations(
    tables: &[PriceTable],
    pricer: &Pricer,
    limits: &Limits,
    settings: &Iteration,
) -> Vec<Segmentation> {
    let tiers = pricer.cluster.tiers.len();
    let phases = pricer.phases();
    let resources = tiers * pricer.resources_per_server();
    // Room of each tier in bytes; a tier is full when its servers are, and they fill evenly.
    let mut slot = 0;
    let room = pricer.cluster.tiers.iter().map(|tier| {
        let first = slot;
        slot += tier.servers.len();
        if tier.servers.is_empty() || limits.of(first) == u64::MAX {
            f64::INFINITY
        } else {
            limits.of(first) as f64 * tier.servers.len() as f64
        }
    });
    let room: Vec<f64> = room.collect();
    // weights[phase]: shares of the bottleneck that each resource stands for; they add up to 1.
    let mut weights = vec![vec![1.0 / resources as f64; resources]; phases.len()];
    let mut byte_prices = vec![0.0; tiers];
    let mut region_s = vec![settings.region_s; tables.len()];
    let mut kept: Vec<((f64, f64), Segmentation)> = Vec::new();
    let mut scale = 0.0;
    for round in 0..settings.rounds {
        let prices = Prices {
            latency: phases.iter().map(|phase| 1.0 / phase.processes).collect(),
            busy: weights
                .iter()
                .zip(phases)
                .map(|(weights, phase)| {
                    weights.iter().map(|w| w * (phase.processes - 1.0) / phase.processes).collect()
                })
                .collect(),
            bytes: byte_prices.clone(),
        };
        let mut sum = PathLoad {
            latency_s: vec![0.0; phases.len()],
            busy_s: vec![vec![0.0; resources]; phases.len()],
            bytes: vec![0.0; tiers],
        };
        let mut segmentation = Vec::with_capacity(tables.len());
        let mut regions_s = 0.0;
        for (table, region_s) in tables.iter().zip(&mut region_s) {
            let path = loop {
                let path = cheapest_path(table.chunks(), table.candidates.len(), *region_s, |chunk, row| {
                    table.costs(chunk, &prices, row);
                });
                let regions = path.chunk_by(|a, b| a == b).count();
                if regions <= settings.max_regions.max(1) {
                    break path;
                }
                // Dearer regions are fewer (the lower convex hull); with an infinite price there is one.
                *region_s = if *region_s < 1e30 { (*region_s * 2.0).max(1e-9) } else { f64::INFINITY };
            };
            table.add_path(&path, &mut sum);
            let mut spans: Vec<Span> = Vec::new();
            for (chunk, &candidate) in path.iter().enumerate() {
                match spans.last_mut() {
                    Some(last) if last.widths == table.candidates[candidate] => last.chunks.end = chunk + 1,
                    _ => spans.push(Span { chunks: chunk..chunk + 1, widths: table.candidates[candidate] }),
                }
            }
            regions_s += settings.region_s * (spans.len() as f64 - 1.0);
            segmentation.push(spans);
        }
        let mut time_s = 0.0;
        let step = 1.0 / (1.0 + round as f64 / 8.0).sqrt();
        for ((latency_s, busy_s), (phase, weights)) in
            sum.latency_s.iter().zip(&sum.busy_s).zip(phases.iter().zip(&mut weights))
        {
            let busiest = busy_s.iter().fold(0.0_f64, |max, &b| max.max(b));
            time_s += (latency_s + (phase.processes - 1.0) * busiest) / phase.processes;
            if busiest > 0.0 {
                // A floor lets a tier come back that the path has left.
                weights.iter_mut().zip(busy_s).for_each(|(w, b)| *w = (*w * (step * (b / busiest - 1.0)).exp()).max(1e-5));
                let total: f64 = weights.iter().sum();
                weights.iter_mut().for_each(|w| *w /= total);
            }
        }
        if round == 0 {
            scale = time_s / sum.bytes.iter().sum::<f64>().max(1.0);
        }
        let mut over = 0.0;
        for ((price, &bytes), &room) in byte_prices.iter_mut().zip(&sum.bytes).zip(&room) {
            if !room.is_finite() {
                continue;
            }
            let beyond = (bytes - room) / room.max(1.0);
            over += (bytes - room).max(0.0);
            *price = if *price == 0.0 && beyond > 0.0 {
                scale * 0.1
            } else {
                *price * (2.0 * step * beyond.clamp(-0.5, 1.0)).exp()
            };
        }
        // A little too full is mended by the local search at little cost.
        let total: f64 = sum.bytes.iter().sum();
        let rank = (if over <= 0.02 * total { 0.0 } else { over }, time_s + regions_s);
        if kept.iter().all(|(_, other)| *other != segmentation) {
            kept.push((rank, segmentation));
            kept.sort_by(|a, b| a.0.0.total_cmp(&b.0.0).then(a.0.1.total_cmp(&b.0.1)));
            kept.truncate(settings.keep);
        }
    }
    kept.into_iter().map(|(_, segmentation)| segmentation).collect()
}
