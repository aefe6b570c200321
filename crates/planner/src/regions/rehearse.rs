//! The last step: the best plans are simulated, the fastest is varied and simulated again while that helps.
//!
//! The model adds up independent requests; a simulation sees processes queue, and catches what the model cannot (such
//! as requests that follow each other meeting on one server). All simulations replay the same requests with the same
//! startup times, so they differ by the layouts alone.

use crate::job::demand::{Demand, time};
use crate::job::input::{FileTrace, PlanOptions};
use crate::objective::capacity::Limits;
use crate::objective::priced::Priced;
use crate::objective::pricing::Pricer;
use crate::objective::seeks::stretches;
use crate::regions::candidates::{STEP, is_round, round, widest};
use rayon::prelude::*;
use stripewise_layout::{Layout, MAX_OFFSET};
use stripewise_model::{Cluster, Request, TierWidths};
use stripewise_simulate::{ClosedLoop, SimulationOptions, simulate};

/// Most requests that are replayed; more are thinned out.
const MOST_REQUESTS: usize = 16_000;

/// Plans that are simulated before the best is varied.
const FIRST: usize = 24;

/// Draws of startup times that a plan is simulated with. One is not enough: requests queue in luckier order under one
/// draw than another, and the best of many plans would be the luckiest.
const DRAWS: usize = 3;

/// A variation must be this much faster to be taken.
const LEAST_GAIN: f64 = 5e-4;

/// Plans whose simulated times differ by no more than this share are equal: then that of fewest regions is taken. The
/// requests are those that plans are made from, and chance gives many regions such a lead.
pub(crate) const SAME_TIME: f64 = 0.02;

/// Share of a region's time that wider stripes, and so fewer pieces, may cost.
const NEAR_TIE: f64 = 5e-3;

/// What is replayed, and on what.
pub(crate) struct Stage<'a> {
    workload: ClosedLoop,
    cluster: &'a Cluster,
    options: SimulationOptions,
    budget: usize,
    /// Seconds that a region must save.
    region_s: f64,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(
        files: &[FileTrace],
        demand: &Demand,
        cluster: &'a Cluster,
        options: &PlanOptions,
        region_s: f64,
    ) -> Self {
        let thinned = if cluster.has_heads() { consecutive(files) } else { thinned(files) };
        let slices: Vec<&[Request]> = thinned.iter().map(Vec::as_slice).collect();
        let workload = ClosedLoop::replay(&slices, &demand.cuts_s, false);
        let options_of = SimulationOptions { seed: options.seed, network: options.network };
        // A region costs what it costs of the time of all requests; of those replayed it is as much less.
        let all: u64 = demand.phases.iter().map(|phase| phase.requests).sum();
        let region_s = region_s * workload.requests() as f64 / all.max(1) as f64;
        Self { workload, cluster, options: options_of, budget: options.simulations, region_s }
    }

    /// Mean makespan over [`DRAWS`] draws of startup times. O(requests).
    fn makespan_s(&self, plan: &Priced) -> f64 {
        self.mean_makespan_s(&plan.layouts, 0, DRAWS as u64)
    }

    /// Mean makespan over `draws` draws of startup times from `first` on. O(draws x requests).
    pub(crate) fn mean_makespan_s(&self, layouts: &[Layout], first: u64, draws: u64) -> f64 {
        let draw = |number: u64| {
            let options = SimulationOptions { seed: self.options.seed.wrapping_add(number), ..self.options };
            let outcome = simulate(self.cluster, layouts, &self.workload, &options);
            // Layouts of this cluster and requests that were checked cannot fail; a failure must not win.
            outcome.map_or(f64::INFINITY, |outcome| outcome.makespan_s)
        };
        (first..first + draws).map(draw).sum::<f64>() / draws as f64
    }

    /// Requests that are replayed.
    pub(crate) fn requests(&self) -> usize {
        self.workload.requests()
    }
}

/// Requests evenly over all of them.
fn thinned(files: &[FileTrace]) -> Vec<Vec<Request>> {
    let total: usize = files.iter().map(|file| file.requests.len()).sum();
    let every = total.div_ceil(MOST_REQUESTS).max(1);
    // A prime stride does not fall in step with loops of the program.
    let every = if every == 1 { 1 } else { next_prime(every) };
    // On from file to file: with many files most have fewer requests than are left out between two.
    let mut before = 0_usize;
    let thinned = files.iter().map(|file| {
        let first = before.next_multiple_of(every) - before;
        before += file.requests.len();
        file.requests.iter().skip(first).step_by(every).copied().collect()
    });
    thinned.collect()
}

/// Requests in stretches that follow each other: what is left out would break the runs that heads follow.
fn consecutive(files: &[FileTrace]) -> Vec<Vec<Request>> {
    let each = |(file, of): (usize, &FileTrace)| -> Vec<(f64, usize, Request)> {
        of.requests.iter().map(|request| (time(request.start_s), file, *request)).collect()
    };
    let mut all: Vec<(f64, usize, Request)> = files.iter().enumerate().flat_map(each).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut kept = vec![Vec::new(); files.len()];
    for range in stretches(all.len(), MOST_REQUESTS) {
        all[range].iter().for_each(|&(_, file, request)| kept[file].push(request));
    }
    kept
}

fn next_prime(from: usize) -> usize {
    (from..).find(|n| (2..).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d))).expect("primes are endless")
}

/// The plan that simulates fastest: of `plans` (valid, cheapest first), then of variations of the best of them. One
/// that the model prices above the default is taken only when the default does not keep the limits itself.
pub(crate) fn choose(
    stage: &Stage,
    mut plans: Vec<Priced>,
    by_default: &Priced,
    limits: &Limits,
    demand: &Demand,
    pricer: &Pricer,
) -> Priced {
    let bound_s = if by_default.rank.excess_bytes == 0 { by_default.rank.time_s } else { f64::INFINITY };
    plans.retain(|plan| plan.rank.time_s <= bound_s);
    plans.dedup_by(|a, b| a.rows == b.rows);
    plans.truncate(FIRST.min((stage.budget / DRAWS).max(1)));
    let times: Vec<f64> = plans.par_iter().map(|plan| stage.makespan_s(plan)).collect();
    // The frame simulates the default beside them.
    let mut spent = DRAWS * (plans.len() + 1);
    let with_regions = |at: usize| times[at] + stage.region_s * plans[at].regions() as f64;
    let order = |&a: &usize, &b: &usize| with_regions(a).total_cmp(&with_regions(b));
    let fastest = (0..plans.len()).min_by(order).expect("one plan at least");
    let most_s = with_regions(fastest) * (1.0 + SAME_TIME);
    let equal = (0..plans.len()).filter(|&at| with_regions(at) <= most_s);
    let first = equal.min_by(|a, b| plans[*a].regions().cmp(&plans[*b].regions()).then(order(a, b))).unwrap_or(fastest);
    let (mut best, mut best_s) = (plans.swap_remove(first), times[first]);
    let mut factor = 2.0_f64;
    while spent < stage.budget && factor > 1.05 {
        let mut improved = false;
        // Dearest regions first: they have most to give.
        for (_, (file, offset)) in dearest(&best, demand, pricer) {
            let Some(row) = row_from(&best, file, offset) else { continue };
            let varied = variations(&best, file, row, factor, demand, pricer);
            let varied: Vec<Priced> = varied
                .into_par_iter()
                .map(|rows| Priced::new(rows, demand, pricer, limits))
                .filter(|plan| plan.rank.excess_bytes == 0 && plan.rank.time_s <= bound_s.min(best.rank.time_s * 1.15))
                .collect();
            if varied.is_empty() {
                continue;
            }
            let times: Vec<f64> = varied.par_iter().map(|plan| stage.makespan_s(plan)).collect();
            spent += DRAWS * varied.len();
            for (plan, time_s) in varied.into_iter().zip(times) {
                if time_s < best_s * (1.0 - LEAST_GAIN) {
                    (best, best_s) = (plan, time_s);
                    improved = true;
                }
            }
            if spent >= stage.budget {
                break;
            }
        }
        if !improved {
            factor = factor.sqrt();
        }
    }
    widen(stage, (best, best_s), limits, demand, pricer, bound_s)
}

/// The row of the region that begins at `offset`; `None` when a better plan has made it one with the region before it.
fn row_from(plan: &Priced, file: usize, offset: u64) -> Option<usize> {
    plan.rows[file].binary_search_by_key(&offset, |row| row.0).ok()
}

/// Regions (file and offset, which outlive a change of rows) with their seconds of the predicted time, most first.
fn dearest(plan: &Priced, demand: &Demand, pricer: &Pricer) -> Vec<(f64, (usize, u64))> {
    let mut regions = Vec::new();
    for (file, rows) in plan.rows.iter().enumerate() {
        let entries = &demand.files[file].entries;
        for row in 0..rows.len() {
            let end = rows.get(row + 1).map_or(u64::MAX, |next| next.0);
            let first = entries.partition_point(|e| e.offset < rows[row].0);
            let inside = entries[first..].iter().take_while(|e| e.offset < end);
            let Ok(load) = pricer.layout_load(inside, &plan.layouts[file]) else { continue };
            regions.push((pricer.share_s(&load, &plan.load), (file, rows[row].0)));
        }
    }
    regions.sort_by(|a, b| b.0.total_cmp(&a.0));
    regions
}

/// The plan with wider stripes in regions whose requests are cut into pieces, where that costs less than [`NEAR_TIE`]:
/// a piece has a cost that neither model nor simulation knows. A few
/// simulations for each such region.
fn widen(
    stage: &Stage,
    (mut plan, mut plan_s): (Priced, f64),
    limits: &Limits,
    demand: &Demand,
    pricer: &Pricer,
    bound_s: f64,
) -> Priced {
    for (region_s, (file, offset)) in dearest(&plan, demand, pricer).into_iter().take(FIRST) {
        let share = NEAR_TIE * region_s / plan.rank.time_s;
        let (most_s, most_predicted_s) = (plan_s * (1.0 + share), bound_s.min(plan.rank.time_s * (1.0 + share)));
        let Some(row) = row_from(&plan, file, offset) else { continue };
        let end = plan.rows[file].get(row + 1).map_or(*demand.files[file].edges.last().expect("edges"), |next| next.0);
        let largest =
            demand.files[file].entries.iter().filter(|e| (offset..end).contains(&e.offset)).map(|e| e.size).max();
        for factor in [8, 4, 2] {
            let widths = plan.rows[file][row].1;
            let wide: Vec<u64> = widths.as_slice().iter().map(|width| width.saturating_mul(factor)).collect();
            let wide = TierWidths::new(&wide);
            let widest = wide.as_slice().iter().max().copied().unwrap_or(0);
            if Some(widest) > largest || widest > self::widest(end.saturating_sub(offset)) {
                continue;
            }
            let mut rows = plan.rows.clone();
            rows[file][row].1 = wide;
            let wider = Priced::new(rows, demand, pricer, limits);
            if wider.rank.excess_bytes > 0 || wider.rank.time_s > most_predicted_s {
                continue;
            }
            let wider_s = stage.makespan_s(&wider);
            if wider_s <= most_s {
                (plan, plan_s) = (wider, wider_s);
                break;
            }
        }
    }
    plan
}

/// The plan with one region's width on one tier (or on all) made wider or narrower by `factor`.
fn variations(
    plan: &Priced,
    file: usize,
    row: usize,
    factor: f64,
    demand: &Demand,
    pricer: &Pricer,
) -> Vec<Vec<Vec<(u64, TierWidths)>>> {
    let rows = &plan.rows[file];
    let (offset, widths) = rows[row];
    let file_end = *demand.files[file].edges.last().expect("a file has edges");
    let end = rows.get(row + 1).map_or(file_end.max(offset), |next| next.0).min(MAX_OFFSET);
    let bound = widest(end - offset);
    let tiers = widths.as_slice().len();
    let mut found = Vec::new();
    for factor in [factor, 1.0 / factor] {
        let scaled = |tier: usize| round(widths.width_bytes(tier) as f64 * factor, bound.max(STEP));
        let mut all = Vec::with_capacity(tiers);
        for tier in 0..tiers {
            let mut one = widths.as_slice().to_vec();
            one[tier] = scaled(tier);
            found.push(TierWidths::new(&one));
            all.push(one[tier]);
        }
        found.push(TierWidths::new(&all));
    }
    found.retain(|other| *other != widths && is_round(other, pricer.cluster));
    found.sort_unstable();
    found.dedup();
    let with = |widths| {
        let mut rows = plan.rows.clone();
        rows[file][row].1 = widths;
        rows
    };
    found.into_iter().map(with).collect()
}
