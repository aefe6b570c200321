//! A start for the local search: the regions that gain most per byte on the fastest tier, until it is full, then the
//! next tier. What an administrator would do by hand; the search takes it further.

use crate::job::demand::{Demand, FileDemand};
use crate::objective::capacity::Limits;
use crate::objective::pricing::Pricer;
use crate::regions::duals::{ChunkSpan, Segmentation};
use std::ops::Range;
use stripewise_model::TierWidths;

/// A run of chunks of one file with what it is asked for.
struct Unit {
    file: usize,
    chunks: Range<usize>,
    bytes: u64,
    /// Busy time in seconds on one server of each tier, if each request went to one server.
    busy_s: Vec<f64>,
    /// Mean request size in bytes.
    request: f64,
}

/// Every region of `regions` on one tier, with stripes of `requests` mean requests; the one that fits only in part is
/// cut, neighbours on one tier are joined. `None` when nothing says how much fits (no limits), or nothing is left to cut.
pub(crate) fn hottest_first(
    regions: &Segmentation,
    requests: f64,
    demand: &Demand,
    pricer: &Pricer,
    limits: &Limits,
) -> Option<Segmentation> {
    if !limits.any() {
        return None;
    }
    let mut units: Vec<Unit> = Vec::new();
    for (file, spans) in regions.iter().enumerate() {
        units.extend(spans.iter().map(|span| unit(file, span.chunks.clone(), demand, pricer)));
    }
    let tiers = pricer.cluster.tiers.len();
    let total = |tier: usize| units.iter().map(|unit| unit.busy_s[tier]).sum::<f64>();
    let mut fastest_first: Vec<usize> =
        (0..tiers).filter(|&tier| !pricer.cluster.tiers[tier].servers.is_empty()).collect();
    fastest_first.sort_by(|&a, &b| total(a).total_cmp(&total(b)));
    let mut placed: Vec<Vec<ChunkSpan>> = vec![Vec::new(); regions.len()];
    let mut slots =
        pricer.cluster.tiers.iter().scan(0, |slot, tier| Some(std::mem::replace(slot, *slot + tier.servers.len())));
    let first_slot: Vec<usize> = slots.by_ref().collect();
    for (place, &tier) in fastest_first.iter().enumerate() {
        let servers = pricer.cluster.tiers[tier].servers.len() as u64;
        let room = limits.of(first_slot[tier]);
        let last = fastest_first.get(place + 1).is_none();
        let mut room = if last || room == u64::MAX { u64::MAX } else { room.saturating_mul(servers) };
        let slower = fastest_first.get(place + 1).copied().unwrap_or(tier);
        let gain = |unit: &Unit| (unit.busy_s[slower] - unit.busy_s[tier]) / (unit.bytes.max(1)) as f64;
        units.sort_by(|a, b| gain(b).total_cmp(&gain(a)));
        let mut left = Vec::new();
        for unit in units {
            let width = ((unit.request * requests / 4096.0).ceil().max(1.0) as u64).min(1 << 28) * 4096;
            // Rounds do not end where regions do: half a round on each side is kept free.
            let slack = if room == u64::MAX { 0 } else { width.saturating_mul(servers) };
            let chunks = fitting(&unit, room.saturating_sub(slack), demand);
            let mut widths = vec![0; tiers];
            widths[tier] = width;
            let end = unit.chunks.start + chunks;
            if chunks > 0 {
                let taken = unit.chunks.start..end;
                room = if room == u64::MAX { room } else { room - bytes_of(unit.file, &taken, demand) };
                placed[unit.file].push(ChunkSpan { chunks: taken, widths: TierWidths::new(&widths) });
            }
            if end < unit.chunks.end {
                left.push(self::unit(unit.file, end..unit.chunks.end, demand, pricer));
            }
        }
        units = left;
    }
    for spans in &mut placed {
        spans.sort_by_key(|span| span.chunks.start);
        // One width on a tier for neighbours, that of the larger requests: else every run stays a region.
        spans.dedup_by(|next, kept| {
            let tier = |span: &ChunkSpan| span.widths.as_slice().iter().position(|&width| width > 0);
            let same = tier(next) == tier(kept);
            if same {
                kept.chunks.end = next.chunks.end;
                kept.widths = kept.widths.max(next.widths);
            }
            same
        });
    }
    Some(placed)
}

/// [`hottest_first`] for runs of chunks that are equally long, as short as `max_regions` of a file allow for: heat as
/// fine as it can be told apart.
pub(crate) fn hottest_chunks_first(
    max_regions: usize,
    requests: f64,
    demand: &Demand,
    pricer: &Pricer,
    limits: &Limits,
) -> Option<Segmentation> {
    let longest = demand.files.iter().map(FileDemand::chunks).max()?;
    let any = TierWidths::uniform(pricer.cluster, 4096);
    let mut run = 1;
    loop {
        let even = |file: &FileDemand| {
            let starts = (0..file.chunks()).step_by(run);
            starts.map(|start| ChunkSpan { chunks: start..(start + run).min(file.chunks()), widths: any }).collect()
        };
        let regions: Segmentation = demand.files.iter().map(even).collect();
        let placed = hottest_first(&regions, requests, demand, pricer, limits)?;
        if run >= longest || placed.iter().all(|spans| spans.len() <= max_regions.max(1)) {
            return Some(placed);
        }
        run *= 2;
    }
}

fn bytes_of(file: usize, chunks: &Range<usize>, demand: &Demand) -> u64 {
    let of = &demand.files[file];
    of.present_bytes(of.edges[chunks.start], of.edges[chunks.end])
}

/// How many chunks of a unit have at most `room` bytes.
fn fitting(unit: &Unit, room: u64, demand: &Demand) -> usize {
    let fits = |&chunks: &usize| bytes_of(unit.file, &(unit.chunks.start..unit.chunks.start + chunks), demand) <= room;
    (0..=unit.chunks.len()).rev().find(fits).unwrap_or(0)
}

fn unit(file: usize, chunks: Range<usize>, demand: &Demand, pricer: &Pricer) -> Unit {
    let of = &demand.files[file];
    let mut busy_s = vec![0.0; pricer.cluster.tiers.len()];
    let (mut count, mut bytes) = (0.0, 0.0);
    for part in of.parts(chunks.clone()) {
        let e = &of.entries[part.entry as usize];
        count += part.weight;
        bytes += part.weight * e.size as f64;
        for (tier, busy_s) in busy_s.iter_mut().enumerate() {
            let busy = pricer.model.busy(tier, e.op, e.size);
            *busy_s += part.weight * (busy.device_s + busy.network_s);
        }
    }
    let request = if count > 0.0 { bytes / count } else { 65536.0 };
    Unit { file, bytes: bytes_of(file, &chunks, demand), chunks, busy_s, request }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::input::{FileTrace, PlanOptions};
    use stripewise_model::{Op, Request, presets};

    #[test]
    fn the_hot_region_has_the_fast_tier_and_what_is_left_goes_to_the_next() {
        // 32 MiB cold, 32 MiB hot, room for 40 MiB on the SSDs.
        let requests: Vec<Request> = (0..640_u64)
            .map(|i| {
                let offset = if i % 10 == 0 { (i % 64) << 19 } else { (32 << 20) + ((i % 64) << 19) };
                Request { offset, size: 1 << 19, op: Op::Read, process: 0, start_s: 0.0, end_s: 0.0 }
            })
            .collect();
        let files = [FileTrace { name: "f".into(), requests: &requests, size_bytes: Some(64 << 20) }];
        let demand = Demand::new(&files, &PlanOptions::default()).unwrap();
        let mut cluster = presets::set_p(6, 2, false);
        cluster.tiers[1].capacity_bytes = Some(20 << 20);
        let pricer = Pricer::new(&cluster, &demand);
        let limits = Limits::new(&cluster, 64 << 20).unwrap();
        let edges = &demand.files[0].edges;
        let middle = edges.partition_point(|&edge| edge < 32 << 20);
        let any = TierWidths::new(&[1 << 19, 1 << 19]);
        let span = |chunks| ChunkSpan { chunks, widths: any };
        let regions = vec![vec![span(0..middle), span(middle..edges.len() - 1)]];
        let placed = hottest_first(&regions, 1.0, &demand, &pricer, &limits).unwrap();
        let on = |tier: usize, span: &ChunkSpan| {
            span.widths.width_bytes(tier) == 1 << 19 && span.widths.width_bytes(1 - tier) == 0
        };
        let spans = &placed[0];
        assert!(on(1, spans.last().unwrap()) && spans.last().unwrap().chunks == (middle..edges.len() - 1));
        assert!(on(1, &spans[0]) && on(0, &spans[1]));
        assert!(spans.windows(2).all(|pair| pair[0].chunks.end == pair[1].chunks.start));
        let fast: u64 = spans.iter().filter(|s| on(1, s)).map(|s| bytes_of(0, &s.chunks, &demand)).sum();
        assert!((36 << 20..=40 << 20).contains(&fast), "{fast}");
        cluster.tiers[1].capacity_bytes = None;
        let limits = Limits::new(&cluster, 64 << 20).unwrap();
        assert_eq!(hottest_first(&regions, 1.0, &demand, &Pricer::new(&cluster, &demand), &limits), None);
    }
}
