//! HARL's plan kept within space limits, which HARL itself does not know: regions fall back to one tier, the one with
//! the least extra cost per byte freed first (math A.10).

use super::paper::{self, HarlOptions, HarlPlan};
use crate::job::Job;
use crate::job::demand::FileDemand;
use crate::job::input::FileTrace;
use crate::objective::capacity::{Choice, fall_back};
use crate::objective::priced::FileRegions;
use crate::objective::pricing::Pricer;
use crate::planners::harl::stripe_search::SearchOptions;
use std::ops::Range;
use stripewise_layout::Layout;
use stripewise_model::{Cluster, Request, Round, TierWidths};

/// Larger requests are searched for as if they were as large as this.
const LARGEST_REQUEST: u64 = 2 << 20;

/// Most requests of a file that HARL's search is given.
const MOST_REQUESTS: usize = 20_000;

/// Regions and widths of the paper's HARL for each unit, without limits. Computed once for a job.
pub(crate) fn paper_rows<'a>(job: &'a Job) -> &'a FileRegions {
    job.harl.get_or_init(|| free_rows(job, &options_of(job, false)))
}

/// The paper's HARL within the space limits, for comparison; `None` when it cannot be brought within them.
pub fn harl_within_limits(job: &Job) -> Option<Vec<Layout>> {
    Some(layouts(job, &within(paper_rows(job).clone(), job).ok()?))
}

/// The layouts of the files from the rows of the units.
pub(crate) fn layouts(job: &Job, rows: &FileRegions) -> Vec<Layout> {
    let layout = |rows: &Vec<(u64, TierWidths)>| {
        TierWidths::layout(rows, job.cluster).expect("HARL's rows are ascending rounds of the cluster")
    };
    job.spread(&rows.iter().map(layout).collect::<Vec<Layout>>())
}

/// HARL's plan for one file, on a sample of very many requests and with very large ones cut: the search is quadratic
/// in their size.
fn of_file(file: &FileTrace, cluster: &Cluster, options: &HarlOptions) -> HarlPlan {
    let requests: Vec<Request> = file.requests.iter().filter(|r| r.size > 0).copied().collect();
    let every = requests.len().div_ceil(MOST_REQUESTS).max(1);
    let some = requests.into_iter().step_by(every).map(|r| Request { size: r.size.min(LARGEST_REQUEST), ..r });
    paper::plan(&some.collect::<Vec<_>>(), cluster, options)
}

/// HARL's settings for a job: the paper's, or (`extra`) those with every pair of widths.
pub(crate) fn options_of(job: &Job, extra: bool) -> HarlOptions {
    let paper = HarlOptions::default();
    HarlOptions {
        search: SearchOptions { extra, ..paper.search },
        max_regions: job.options.max_regions.max(1),
        default_width_bytes: job.options.default_width_bytes,
        ..paper
    }
}

/// `(offset, widths)` of every unit of a job as HARL plans it, which knows no limits.
pub(crate) fn free_rows(job: &Job, options: &HarlOptions) -> FileRegions {
    job.unit_traces().iter().map(|file| of_file(file, job.cluster, options).rows).collect()
}

/// The rows of the units brought within the limits, or the bytes beyond them when they cannot be.
pub(crate) fn within(mut rows: FileRegions, job: &Job) -> Result<FileRegions, u64> {
    let (demand, limits) = (job.unit_demand(), &job.limits);
    if !limits.any() {
        return Ok(rows);
    }
    // HARL has a network term of its own, beside beta: it plans for the cluster as it is.
    let pricer = &Pricer::new(job.cluster, demand);
    let mut choices = Vec::new();
    let mut widths = Vec::new();
    for (rows, demand) in rows.iter().zip(&demand.files) {
        for (index, &(offset, own)) in rows.iter().enumerate() {
            let end = rows.get(index + 1).map_or(u64::MAX, |next| next.0);
            let ways = ways(own, pricer);
            let choice = |widths: &TierWidths| Choice {
                cost_s: paper_cost_s(demand, offset..end, widths, pricer),
                bytes: pricer.file_bytes(demand, widths, offset, end),
            };
            choices.push(ways.iter().map(choice).collect::<Vec<_>>());
            widths.push(ways);
        }
    }
    let mut chosen = vec![0; choices.len()];
    if !fall_back(limits, &choices, &mut chosen) {
        let mut held = vec![0_u64; pricer.lanes().len()];
        for (choices, &way) in choices.iter().zip(&chosen) {
            held.iter_mut().zip(&choices[way].bytes).for_each(|(sum, b)| *sum = sum.saturating_add(*b));
        }
        return Err(limits.lane_excess(&held));
    }
    let mut found = widths.iter().zip(&chosen).map(|(ways, &way)| ways[way]);
    rows.iter_mut().flatten().for_each(|row| row.1 = found.next().expect("a way for every row"));
    Ok(rows)
}

/// A region's own widths, then each tier alone with the widths of HARL's search range.
fn ways(own: TierWidths, pricer: &Pricer) -> Vec<TierWidths> {
    let widest = own.as_slice().iter().copied().max().unwrap_or(0).max(64 << 10);
    let mut ways = vec![own];
    for tier in 0..pricer.cluster.tiers.len() {
        if pricer.cluster.tiers[tier].servers.is_empty() {
            continue;
        }
        for halvings in 0..5 {
            let mut widths = vec![0; pricer.cluster.tiers.len()];
            widths[tier] = ((2 * widest) >> halvings).max(4096);
            ways.push(TierWidths::new(&widths));
        }
    }
    ways
}

/// HARL's cost of the requests that start in a range.
fn paper_cost_s(demand: &FileDemand, range: Range<u64>, widths: &TierWidths, pricer: &Pricer) -> f64 {
    let round = Round::new(widths, pricer.cluster);
    let first = demand.entries.partition_point(|e| e.offset < range.start);
    let inside = demand.entries[first..].iter().take_while(|e| e.offset < range.end);
    inside.map(|e| e.count * pricer.model.paper_cost_s(&round, e.op, e.offset, e.size)).sum()
}
