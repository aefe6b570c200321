//! Local search with the true objective: the busiest server of every phase over all files, and space limits to the
//! byte for what the files really have.
//!
//! Regions and their borders are given. First every region picks from a short list of candidates, alone and in pairs
//! (two regions must often trade places on the fast servers at once); then widths move in ever smaller steps.

use crate::job::demand::Demand;
use crate::objective::capacity::{Choice, Limits, fall_back};
use crate::objective::priced::Rank;
use crate::objective::pricing::{Pricer, ServerLoad, add};
use crate::regions::candidates::{STEP, fitted, is_round, round, widest};
use crate::regions::duals::{ChunkSpan, Segmentation};
use crate::regions::price_table::PriceTable;
use rayon::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use stripewise_model::TierWidths;

/// One way to serve a region.
#[derive(Debug, Clone)]
pub(crate) struct RegionService {
    pub widths: TierWidths,
    pub load: ServerLoad,
    pub bytes: Vec<u64>,
}

/// A region in the search.
#[derive(Debug, Clone)]
pub(crate) struct PlacedRegion {
    pub file: usize,
    pub chunks: Range<usize>,
    pub way: RegionService,
}

/// A whole plan in the search.
#[derive(Debug, Clone)]
pub(crate) struct PlanState {
    pub places: Vec<PlacedRegion>,
    pub load: ServerLoad,
    pub bytes: Vec<u64>,
}

impl PlanState {
    /// Its regions, file by file.
    pub(crate) fn segmentation(&self, files: usize) -> Segmentation {
        let mut spans = vec![Vec::new(); files];
        for place in &self.places {
            spans[place.file].push(ChunkSpan { chunks: place.chunks.clone(), widths: place.way.widths });
        }
        spans
    }
}

/// The search's fixed surroundings.
#[derive(Clone, Copy)]
pub(crate) struct Search<'a> {
    pub demand: &'a Demand,
    pub pricer: &'a Pricer<'a>,
    pub limits: &'a Limits,
    /// Candidates of each file with the loads of every chunk.
    pub tables: &'a [PriceTable],
    /// The default: always a candidate.
    pub default: TierWidths,
    /// Candidates of a region that enter the search in pairs.
    pub short_list: usize,
    /// Widths are at most this many bytes; `u64::MAX` for no bound but that of the region.
    pub widest: u64,
    /// Price of a region in seconds.
    pub region_s: f64,
    /// Most regions of a file.
    pub max_regions: usize,
}

/// More regions than this do not trade places in pairs: with many small ones single moves get as far.
const PAIRS_OF_ALL: usize = 24;

impl Search<'_> {
    /// A region under widths, or under narrower ones where their round is longer than the region.
    pub(crate) fn way(&self, file: usize, chunks: Range<usize>, widths: TierWidths) -> RegionService {
        let of = &self.demand.files[file];
        let bytes = of.edges[chunks.end] - of.edges[chunks.start];
        let widths = if widths == self.default { widths } else { fitted(&widths, bytes, self.pricer.cluster) };
        let present_bytes = self.pricer.file_bytes(of, &widths, of.edges[chunks.start], of.edges[chunks.end]);
        let load = self.tables[file].load(chunks.clone(), &widths, self.pricer);
        let load = load.unwrap_or_else(|| self.pricer.load(of, chunks, &widths));
        RegionService { load, bytes: present_bytes, widths }
    }

    /// A state as given, without search.
    pub(crate) fn state(&self, segmentation: &Segmentation) -> PlanState {
        let places: Vec<PlacedRegion> = segmentation
            .iter()
            .enumerate()
            .flat_map(|(file, spans)| spans.iter().map(move |span| (file, span)))
            .map(|(file, ChunkSpan { chunks, widths })| PlacedRegion {
                file,
                chunks: chunks.clone(),
                way: self.way(file, chunks.clone(), *widths),
            })
            .collect();
        self.summed(places)
    }

    pub(crate) fn summed(&self, places: Vec<PlacedRegion>) -> PlanState {
        let mut load = self.pricer.no_load();
        let mut bytes = vec![0_u64; self.pricer.lanes().len()];
        for place in &places {
            add(&mut load, &place.way.load);
            bytes.iter_mut().zip(&place.way.bytes).for_each(|(sum, b)| *sum = sum.saturating_add(*b));
        }
        PlanState { places, load, bytes }
    }

    pub(crate) fn rank(&self, state: &PlanState) -> Rank {
        self.rank_of(&state.load, &state.bytes, state.places.len())
    }

    pub(crate) fn rank_of(&self, load: &[f64], bytes: &[u64], regions: usize) -> Rank {
        let regions_s = self.region_s * regions as f64;
        Rank { excess_bytes: self.limits.lane_excess(bytes), time_s: self.pricer.time_s(load) + regions_s, regions_s }
    }

    /// Widest stripe for a region.
    fn widest_in(&self, file: usize, chunks: &Range<usize>) -> u64 {
        let edges = &self.demand.files[file].edges;
        widest(edges[chunks.end] - edges[chunks.start]).min(self.widest)
    }

    /// The first step of [`Search::improve`] alone: every region picks a way for itself.
    pub(crate) fn settle_in(&self, mut state: PlanState) -> PlanState {
        let ways: Vec<Vec<RegionService>> = state.places.par_iter().map(|place| self.ways(place)).collect();
        self.descend(&mut state, &ways, false);
        self.join(state)
    }

    /// Search over candidates, borders and widths. The result is never worse than `state` by [`Rank`].
    pub(crate) fn improve(&self, mut state: PlanState) -> PlanState {
        for _ in 0..3 {
            let before = self.rank(&state);
            let ways: Vec<Vec<RegionService>> = state.places.par_iter().map(|place| self.ways(place)).collect();
            self.descend(&mut state, &ways, true);
            state = self.reshape(state);
            let after = self.rank(&state);
            if after.excess_bytes == before.excess_bytes && after.time_s > before.time_s * 0.998 {
                break;
            }
        }
        self.polish(&mut state);
        self.join(state)
    }

    /// The ways worth trying for a region: those that are cheapest at some prices of servers and bytes. The present
    /// way is the first.
    pub(crate) fn ways(&self, place: &PlacedRegion) -> Vec<RegionService> {
        let bound = self.widest_in(place.file, &place.chunks);
        let edges = &self.demand.files[place.file].edges;
        let bytes = edges[place.chunks.end] - edges[place.chunks.start];
        let allowed = |widths: &TierWidths| {
            let narrow = widths.as_slice().iter().all(|&width| width <= bound);
            *widths == self.default || (narrow && fitted(widths, bytes, self.pricer.cluster) == *widths)
        };
        let file = &self.demand.files[place.file];
        let (from, to) = (edges[place.chunks.start], edges[place.chunks.end]);
        let table = &self.tables[place.file];
        let loads = table.loads(place.chunks.clone(), self.pricer).into_iter();
        let ways: Vec<RegionService> = table
            .candidates
            .iter()
            .zip(loads)
            .filter(|(widths, _)| allowed(widths))
            .map(|(&widths, load)| RegionService {
                widths,
                load,
                bytes: self.pricer.file_bytes(file, &widths, from, to),
            })
            .collect();
        let keep = short_list(self.pricer, &ways, self.short_list);
        let mut kept = vec![place.way.clone()];
        kept.extend(
            ways.into_iter()
                .zip(keep)
                .filter(|(way, keep)| (*keep || way.widths == self.default) && way.widths != place.way.widths)
                .map(|(way, _)| way),
        );
        kept
    }

    /// Coordinate descent over regions, then (with `pairs`) over pairs of regions, until neither helps.
    fn descend(&self, state: &mut PlanState, ways: &[Vec<RegionService>], pairs: bool) {
        let mut chosen = vec![0; ways.len()];
        if self.limits.lane_excess(&state.bytes) > 0 {
            self.fall_back(state, ways, &mut chosen);
        }
        let mut rank = self.rank(state);
        for _ in 0..24 {
            let before = rank;
            let mut order: Vec<usize> = (0..ways.len()).collect();
            let cost = |place: &PlacedRegion| self.pricer.share_s(&place.way.load, &state.load);
            let costs: Vec<f64> = state.places.iter().map(cost).collect();
            order.sort_by(|&a, &b| costs[b].total_cmp(&costs[a]));
            let mut improved = false;
            for &region in &order {
                improved |= self.best_of(state, ways, &mut chosen, &mut rank, &[region]);
            }
            // A pass that gains next to nothing is the last of its kind.
            if improved && (rank.excess_bytes < before.excess_bytes || rank.time_s < before.time_s * 0.9995) {
                continue;
            }
            if !pairs || order.len() > PAIRS_OF_ALL {
                break;
            }
            for (i, &a) in order.iter().enumerate() {
                for &b in &order[i + 1..] {
                    self.best_of(state, ways, &mut chosen, &mut rank, &[a, b]);
                }
            }
            if rank.excess_bytes == before.excess_bytes && rank.time_s >= before.time_s * 0.9995 {
                break;
            }
        }
        self.settle(state, ways, &chosen);
    }

    /// Moves the regions of `which` (one or two) to the ways that are best together. Gives whether that helped.
    fn best_of(
        &self,
        state: &mut PlanState,
        ways: &[Vec<RegionService>],
        chosen: &mut [usize],
        rank: &mut Rank,
        which: &[usize],
    ) -> bool {
        let mut rest = state.load.clone();
        let mut rest_bytes = state.bytes.clone();
        for &region in which {
            let now = &ways[region][chosen[region]];
            rest.iter_mut().zip(&now.load).for_each(|(sum, part)| *sum -= part);
            rest_bytes.iter_mut().zip(&now.bytes).for_each(|(sum, part)| *sum = sum.saturating_sub(*part));
        }
        let before = *rank;
        // Only phases that these regions serve change with them.
        let stride = self.pricer.stride();
        let served = |phase: &usize| which.iter().any(|&r| ways[r].iter().any(|way| way.load[phase * stride] > 0.0));
        let (active, others): (Vec<usize>, Vec<usize>) = (0..self.pricer.phases().len()).partition(served);
        let fixed_s: f64 =
            others.iter().map(|&phase| self.pricer.phase_time_s(phase, &rest)).sum::<f64>() + before.regions_s;
        // The rank with `way` added, unless a bound shows that it cannot beat the present one.
        let rank_with =
            |rest: &[f64], rest_bytes: &[u64], way: &RegionService, load: &mut ServerLoad, bytes: &mut Vec<u64>| {
                sum_into(load, rest, way, bytes, rest_bytes);
                let excess_bytes = self.limits.lane_excess(bytes);
                let least = |&phase: &usize| self.pricer.least_phase_time_s(phase, load);
                let floor_s = active.iter().map(least).sum::<f64>() + fixed_s;
                if excess_bytes > before.excess_bytes
                    || (excess_bytes == before.excess_bytes && floor_s >= before.time_s)
                {
                    return None;
                }
                let time = |&phase: &usize| self.pricer.phase_time_s(phase, load);
                Some(Rank { excess_bytes, time_s: active.iter().map(time).sum::<f64>() + fixed_s, ..before })
            };
        let found =
            match *which {
                [region] => {
                    let (mut load, mut bytes) = (Vec::new(), Vec::new());
                    best(ways[region].iter().enumerate().filter_map(|(i, way)| {
                        Some((rank_with(&rest, &rest_bytes, way, &mut load, &mut bytes)?, [i, 0]))
                    }))
                }
                [a, b] => {
                    let rows = ways[a].par_iter().enumerate().map(|(i, way)| {
                        let (mut load, mut bytes) = (Vec::new(), Vec::new());
                        sum_into(&mut load, &rest, way, &mut bytes, &rest_bytes);
                        let (mut both, mut both_bytes) = (Vec::new(), Vec::new());
                        best(ways[b].iter().enumerate().filter_map(|(j, way)| {
                            Some((rank_with(&load, &bytes, way, &mut both, &mut both_bytes)?, [i, j]))
                        }))
                    });
                    let rows: Vec<_> = rows.collect();
                    best(rows.into_iter().flatten())
                }
                _ => unreachable!("one region or two"),
            };
        let Some((better, indices)) = found.filter(|(found, _)| found.beats(rank)) else { return false };
        for (&region, index) in which.iter().zip(indices) {
            chosen[region] = index;
            add(&mut rest, &ways[region][index].load);
            rest_bytes.iter_mut().zip(&ways[region][index].bytes).for_each(|(sum, b)| *sum = sum.saturating_add(*b));
        }
        (state.load, state.bytes) = (rest, rest_bytes);
        *rank = better;
        true
    }

    fn fall_back(&self, state: &mut PlanState, ways: &[Vec<RegionService>], chosen: &mut [usize]) {
        let whole = state.load.clone();
        let choice =
            |way: &RegionService| Choice { cost_s: self.pricer.share_s(&way.load, &whole), bytes: way.bytes.clone() };
        let choices: Vec<Vec<Choice>> = ways.iter().map(|ways| ways.iter().map(choice).collect()).collect();
        fall_back(self.limits, &choices, chosen);
        self.settle(state, ways, chosen);
    }

    /// Puts the chosen ways into the state and sums up anew, so that rounding does not build up.
    fn settle(&self, state: &mut PlanState, ways: &[Vec<RegionService>], chosen: &[usize]) {
        for (place, (ways, &index)) in state.places.iter_mut().zip(ways.iter().zip(chosen)) {
            place.way = ways[index].clone();
        }
        *state = self.summed(std::mem::take(&mut state.places));
    }

    /// Widths of single tiers in ever smaller steps, down to [`STEP`], dearest regions first.
    fn polish(&self, state: &mut PlanState) {
        const FACTORS: [f64; 8] = [0.5, 2.0, 0.71, 1.41, 0.84, 1.19, 0.93, 1.08];
        let mut rank = self.rank(state);
        for _ in 0..4 {
            let mut improved = false;
            let mut order: Vec<usize> = (0..state.places.len()).collect();
            let costs: Vec<f64> =
                state.places.iter().map(|place| self.pricer.share_s(&place.way.load, &state.load)).collect();
            order.sort_by(|&a, &b| costs[b].total_cmp(&costs[a]));
            order.truncate(PAIRS_OF_ALL);
            for region in order {
                for tier in 0..self.pricer.cluster.tiers.len() {
                    let place = &state.places[region];
                    let bound = self.widest_in(place.file, &place.chunks);
                    let now = place.way.widths;
                    let width = now.width_bytes(tier) as f64;
                    let scaled = FACTORS.iter().map(|factor| width * factor);
                    let steps = [1.0, 2.0, 4.0].map(|k| k * STEP as f64);
                    let moved = steps.iter().flat_map(|step| [width - step, width + step]);
                    let mut tried: Vec<TierWidths> = scaled
                        .chain(moved)
                        .map(|width| {
                            let mut widths = now.as_slice().to_vec();
                            widths[tier] = round(width, bound);
                            TierWidths::new(&widths)
                        })
                        .filter(|widths| *widths != now && is_round(widths, self.pricer.cluster))
                        .collect();
                    tried.sort_unstable();
                    tried.dedup();
                    improved |= self.try_widths(state, &mut rank, region, tried);
                }
            }
            if !improved {
                break;
            }
        }
    }

    /// Takes the best of `tried` for a region if it helps.
    fn try_widths(&self, state: &mut PlanState, rank: &mut Rank, region: usize, tried: Vec<TierWidths>) -> bool {
        let place = &state.places[region];
        let rest: ServerLoad = state.load.iter().zip(&place.way.load).map(|(sum, part)| sum - part).collect();
        let rest_bytes = state.bytes.iter().zip(&place.way.bytes).map(|(sum, part)| sum.saturating_sub(*part));
        let rest_bytes: Vec<u64> = rest_bytes.collect();
        let ways = tried.into_par_iter().map(|widths| {
            let way = self.way(place.file, place.chunks.clone(), widths);
            let load: ServerLoad = rest.iter().zip(&way.load).map(|(a, b)| a + b).collect();
            let bytes: Vec<u64> = rest_bytes.iter().zip(&way.bytes).map(|(a, b)| a.saturating_add(*b)).collect();
            (self.rank_of(&load, &bytes, state.places.len()), way)
        });
        let ways: Vec<(Rank, RegionService)> = ways.collect();
        let Some((better, way)) = best(ways).filter(|(found, _)| found.beats(rank)) else { return false };
        *rank = better;
        state.places[region].way = way;
        *state = self.summed(std::mem::take(&mut state.places));
        true
    }

    /// Equal neighbours are one region: nothing moves, since the phase of a byte is absolute.
    pub(crate) fn join(&self, state: PlanState) -> PlanState {
        let mut places: Vec<PlacedRegion> = Vec::with_capacity(state.places.len());
        for place in state.places {
            match places.last_mut() {
                Some(last) if last.file == place.file && last.way.widths == place.way.widths => {
                    last.chunks.end = place.chunks.end;
                    add(&mut last.way.load, &place.way.load);
                    last.way.bytes.iter_mut().zip(&place.way.bytes).for_each(|(sum, b)| *sum = sum.saturating_add(*b));
                }
                _ => places.push(place),
            }
        }
        self.summed(places)
    }
}

/// A load and bytes with one way added to the rest, into buffers.
fn sum_into(load: &mut ServerLoad, rest: &[f64], way: &RegionService, bytes: &mut Vec<u64>, rest_bytes: &[u64]) {
    load.clear();
    load.extend(rest.iter().zip(&way.load).map(|(a, b)| a + b));
    bytes.clear();
    bytes.extend(rest_bytes.iter().zip(&way.bytes).map(|(a, b)| a.saturating_add(*b)));
}

/// The first of the best.
pub(crate) fn best<T>(ranked: impl IntoIterator<Item = (Rank, T)>) -> Option<(Rank, T)> {
    ranked.into_iter().reduce(|best, next| if next.0.beats(&best.0) { next } else { best })
}

/// Marks the ways that are among the cheapest at some prices: a fixed set of prices from single tiers to even ones,
/// with bytes free to dear. O(ways x prices).
fn short_list(pricer: &Pricer, ways: &[RegionService], keep: usize) -> Vec<bool> {
    let mut kept = vec![false; ways.len()];
    if ways.len() <= keep {
        kept.fill(true);
        return kept;
    }
    let tiers = &pricer.cluster.tiers;
    let (lanes, stride) = (pricer.lanes(), pricer.stride());
    // Per way and tier: mean busy time weighted by (p - 1) / p, bytes; and the latency.
    let summary: Vec<(f64, Vec<(f64, f64)>)> = ways
        .iter()
        .map(|way| {
            let mut latency = 0.0;
            let mut of = vec![(0.0, 0.0); tiers.len()];
            for (phase, demand) in pricer.phases().iter().enumerate() {
                let load = &way.load[phase * stride..][..stride];
                latency += load[0] / demand.processes;
                let weight = (demand.processes - 1.0) / demand.processes;
                for (tier, of) in of.iter_mut().enumerate() {
                    let range = lanes.of_tier(tier);
                    let busiest = |range: Range<usize>| load[1..][range].iter().fold(0.0_f64, |m, &b| m.max(b));
                    let link = if pricer.resources_per_server() > 1 {
                        busiest(lanes.len() + range.start..lanes.len() + range.end)
                    } else {
                        0.0
                    };
                    of.0 += weight * busiest(range).max(link);
                }
            }
            for (tier, of) in of.iter_mut().enumerate() {
                of.1 = lanes.of_tier(tier).map(|lane| way.bytes[lane] as f64 * lanes.slots(lane).len() as f64).sum();
            }
            (latency, of)
        })
        .collect();
    let bytes: f64 = summary[0].1.iter().map(|of| of.1).sum::<f64>().max(1.0);
    let typical = summary.iter().map(|(latency, of)| latency + of.iter().map(|x| x.0).sum::<f64>()).sum::<f64>()
        / summary.len() as f64
        / bytes;
    // Cheapest first, of equals the first; as few are taken from each, none is sorted to the end.
    let mut orders: Vec<BinaryHeap<Reverse<(u64, usize)>>> = Vec::new();
    for dear in 0..tiers.len() {
        for share in [0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98, 1.0] {
            for byte in [0.0, 0.1, 0.5, 2.0] {
                // `dear` carries `share` of the bottleneck and the price of bytes; the other tiers share the rest.
                let price = |tier: usize| {
                    if tier == dear { share } else { (1.0 - share) / (tiers.len() - 1).max(1) as f64 }
                };
                let cost: Vec<f64> = summary
                    .iter()
                    .map(|(latency, of)| {
                        latency
                            + of.iter().enumerate().map(|(tier, x)| price(tier) * x.0).sum::<f64>()
                            + byte * typical * of[dear].1
                    })
                    .collect();
                // Costs are not negative: their bits are in their order.
                orders.push(cost.iter().zip(0..).map(|(cost, way)| Reverse((cost.to_bits(), way))).collect());
            }
        }
    }
    let mut count = 0;
    while count < keep {
        for order in &mut orders {
            let Some(Reverse((_, way))) = order.pop().filter(|_| count < keep) else { return kept };
            if !std::mem::replace(&mut kept[way], true) {
                count += 1;
            }
        }
    }
    kept
}
