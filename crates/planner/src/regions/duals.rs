//! Prices of busy servers and of scarce bytes, iterated (`beyond.md` 4, math A.10).
//!
//! The objective follows the busiest servers of each phase, and space limits bind all regions together; neither is a
//! sum over chunks. Linearised at a mix of the paths so far, both are: a second of each tier in each phase and a byte
//! on each tier have a price, and the cheapest segmentation is a Viterbi path. The mix moves towards that path
//! (Frank-Wolfe), the prices with it, bytes getting dearer while a tier is too full. Paths jump between extremes even
//! when the prices have settled: the best ones seen are kept, and the local search of `refine` finishes them.

use crate::job::demand::PhaseDemand;
use crate::objective::capacity::Limits;
use crate::objective::closed_loop;
use crate::objective::pricing::Pricer;
use crate::regions::price_table::{PathLoad, PriceTable, Prices};
use crate::regions::viterbi::path_within;
use std::ops::Range;
use stripewise_model::TierWidths;

/// A region before its borders are offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChunkSpan {
    pub chunks: Range<usize>,
    pub widths: TierWidths,
}

/// Regions of every file.
pub(crate) type Segmentation = Vec<Vec<ChunkSpan>>;

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
    let room = room_of_tiers(pricer, limits);
    let copies: Vec<f64> = (0..resources).map(|i| pricer.cluster.tiers[i % tiers].servers.len() as f64).collect();
    let nothing = PathLoad {
        latency_s: vec![0.0; phases.len()],
        busy_s: vec![vec![0.0; resources]; phases.len()],
        bytes: vec![0.0; tiers],
    };
    let time_s = |load: &PathLoad| -> f64 {
        let phases = phases.iter().zip(load.latency_s.iter().zip(&load.busy_s));
        phases
            .map(|(phase, (&latency_s, busy_s))| closed_loop::time_s(phase.processes, latency_s, busy_s, &copies))
            .sum()
    };
    let mut prices = first_prices(phases, &copies, tiers);
    let mut mix = nothing.clone();
    let mut kept: Vec<((f64, f64), Segmentation)> = Vec::new();
    let mut scale = 0.0;
    for round in 0..settings.rounds {
        let mut sum = nothing.clone();
        let mut segmentation = Vec::with_capacity(tables.len());
        let mut regions_s = 0.0;
        for table in tables {
            let (chunks, candidates) = (table.chunks(), table.candidates.len());
            let most_changes = settings.max_regions.max(1) - 1;
            let path = path_within(chunks, candidates, settings.region_s, most_changes, |chunk, row| {
                table.costs(chunk, &prices, row);
            });
            table.add_path(&path, &mut sum);
            let spans = spans_of(&path, table);
            regions_s += settings.region_s * (spans.len() as f64 - 1.0);
            segmentation.push(spans);
        }
        mix.move_towards(&sum, 2.0 / (round as f64 + 2.0));
        if round == 0 {
            scale = time_s(&sum) / sum.bytes.iter().sum::<f64>().max(1.0);
        }
        linearise(&mix, phases, &copies, &mut prices);
        let step = 1.0 / (1.0 + round as f64 / 8.0).sqrt();
        let mut over = 0.0;
        for (tier, &room) in room.iter().enumerate().filter(|(_, room)| room.is_finite()) {
            let beyond = (0.5 * (mix.bytes[tier] + sum.bytes[tier]) - room) / room.max(1.0);
            over += (sum.bytes[tier] - room).max(0.0);
            let price = &mut prices.bytes[tier];
            *price = if *price == 0.0 && beyond > 0.0 {
                scale * 0.1
            } else {
                *price * (2.0 * step * beyond.clamp(-0.5, 1.0)).exp()
            };
        }
        // A little too full is mended by the local search at little cost.
        let total: f64 = sum.bytes.iter().sum();
        let rank = (if over <= 0.02 * total { 0.0 } else { over }, time_s(&sum) + regions_s);
        if kept.iter().all(|(_, other)| *other != segmentation) {
            kept.push((rank, segmentation));
            kept.sort_by(|a, b| a.0.0.total_cmp(&b.0.0).then(a.0.1.total_cmp(&b.0.1)));
            kept.truncate(settings.keep);
        }
    }
    kept.into_iter().map(|(_, segmentation)| segmentation).collect()
}

/// Room of each tier in bytes; a tier is full when its servers are, and they fill evenly.
fn room_of_tiers(pricer: &Pricer, limits: &Limits) -> Vec<f64> {
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
    room.collect()
}

/// Prices before anything is known: every server may be the busiest.
fn first_prices(phases: &[PhaseDemand], copies: &[f64], tiers: usize) -> Prices {
    let servers: f64 = copies.iter().sum();
    let busy_of =
        |phase: &PhaseDemand| copies.iter().map(|n| (phase.processes - 1.0) / phase.processes * n / servers).collect();
    Prices {
        latency: phases.iter().map(|phase| 1.0 / phase.processes).collect(),
        busy: phases.iter().map(busy_of).collect(),
        bytes: vec![0.0; tiers],
    }
}

/// The regions of a path: neighbouring chunks of equal widths are one.
fn spans_of(path: &[usize], table: &PriceTable) -> Vec<ChunkSpan> {
    let mut spans: Vec<ChunkSpan> = Vec::new();
    for (chunk, &candidate) in path.iter().enumerate() {
        match spans.last_mut() {
            Some(last) if last.widths == table.candidates[candidate] => last.chunks.end = chunk + 1,
            _ => spans.push(ChunkSpan { chunks: chunk..chunk + 1, widths: table.candidates[candidate] }),
        }
    }
    spans
}

/// Prices of latency and of each tier's time at `mix`: the slopes of the objective there, by differences. Slopes that
/// the mix does not determine (nothing there yet) stay as they are.
fn linearise(mix: &PathLoad, phases: &[PhaseDemand], copies: &[f64], prices: &mut Prices) {
    for (phase, demand) in phases.iter().enumerate() {
        let (latency_s, mut busy_s) = (mix.latency_s[phase], mix.busy_s[phase].clone());
        let at = |latency_s: f64, busy_s: &[f64]| closed_loop::time_s(demand.processes, latency_s, busy_s, copies);
        if latency_s <= 0.0 {
            continue;
        }
        let little = latency_s * 1e-3;
        prices.latency[phase] =
            ((at(latency_s + little, &busy_s) - at(latency_s - little, &busy_s)) / (2.0 * little)).max(0.0);
        let busiest = busy_s.iter().fold(0.0_f64, |max, &busy| max.max(busy));
        for resource in 0..busy_s.len() {
            let busy = busy_s[resource];
            let little = (busiest * 1e-3).min(busy).max(busiest * 1e-6);
            let mut with = |value: f64| {
                busy_s[resource] = value;
                let time_s = at(latency_s, &busy_s);
                busy_s[resource] = busy;
                time_s
            };
            let slope = (with(busy + little) - with((busy - little).max(0.0))) / (little + little.min(busy));
            prices.busy[phase][resource] = slope.max(0.0);
        }
    }
}
