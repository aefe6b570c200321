//! The search of the `regions` planner: plans from several starts, each priced as the layouts that it makes.
//!
//! What is planned are the files of a job, or the groups of them that are alike where they are many. Regions and
//! widths are found once for a job; the rehearsal and `server-widths` both go on from there.

use crate::error::PlanError;
use crate::job::Job;
use crate::job::demand::{Demand, FileDemand};
use crate::job::input::{PlanOptions, for_pool};
use crate::objective::priced::{FileRegions, Priced, RegionPlans};
use crate::objective::pricing::Pricer;
use crate::regions::candidates::candidates;
use crate::regions::duals::{ChunkSpan, Segmentation};
use crate::regions::exhaustive::{self, SearchSpace};
use crate::regions::holdout;
use crate::regions::price_table::PriceTable;
use crate::regions::refine::{PlanState, Search};
use crate::regions::rehearse::{self, Stage};
use stripewise_layout::Layout;
use stripewise_model::TierWidths;

/// Price of a region, as a share of the default's time, that lets a plan have nearly as many as it likes.
const NEXT_TO_FREE: f64 = 2e-5;

/// With no more regions than this per file no plan follows chance.
const FEW: usize = 3;

/// Starts that the local search takes all the way.
const IMPROVED: usize = 3;

/// Searches. `harl_rows` are those of the paper's HARL within the limits, if there are any.
///
/// # Errors
/// [`PlanError::NoFit`].
pub(crate) fn search(job: &Job, harl_rows: Option<&[Vec<(u64, TierWidths)>]>) -> Result<RegionPlans, PlanError> {
    let (demand, limits, options) = (job.unit_demand(), &job.limits, &for_pool(job.cluster, job.options));
    let pricer = job.tier_pricer(demand);
    let default = job.default_widths();
    let (found, region_s) = candidate_rows(job, &pricer, default, harl_rows, options);
    let price = |rows: FileRegions| Priced::new(rows, demand, &pricer, limits);
    let by_default = price(vec![vec![(0, default)]; demand.files.len()]);
    let mut plans: Vec<Priced> = found.into_iter().map(price).collect();
    let max_regions = options.max_regions;
    plans.extend(exhaustive::best(&SearchSpace { demand, pricer: &pricer, limits, default, max_regions, region_s }));
    // Requests across borders were priced as if each region went on: only now are all prices those of real layouts.
    plans.push(by_default.clone());
    plans.extend(harl_rows.map(|rows| price(rows.to_vec())));
    plans.retain(|plan| plan.rank.excess_bytes == 0);
    // HARL cuts where chance makes sizes differ, too.
    let is_one = |(rows, file): (&Vec<(u64, TierWidths)>, &FileDemand)| !file.is_even || rows.len() == 1;
    plans.retain(|plan| plan.rows.iter().zip(&demand.files).all(is_one));
    let with_regions = |plan: &Priced| plan.rank.time_s + region_s * plan.regions() as f64;
    plans.sort_by(|a, b| with_regions(a).total_cmp(&with_regions(b)));
    if plans.is_empty() {
        return Err(PlanError::NoFit { excess_bytes: by_default.rank.excess_bytes });
    }
    Ok(RegionPlans { plans, by_default, region_s })
}

/// The layouts of the plan that simulates fastest, one for each unit, where the options allow for simulations and
/// there is anything to simulate; else of the cheapest.
pub(crate) fn rehearsed(found: &RegionPlans, job: &Job) -> Vec<Layout> {
    let (demand, options) = (job.unit_demand(), &for_pool(job.cluster, job.options));
    if options.simulations == 0 || demand.files.iter().all(|file| file.entries.is_empty()) {
        return found.cheapest().to_vec();
    }
    let pricer = job.tier_pricer(demand);
    let stage = Stage::new(&job.unit_traces(), demand, &job.priced_as, options, found.region_s);
    rehearse::choose(&stage, found.plans.clone(), &found.by_default, &job.limits, demand, &pricer).layouts
}

/// Candidates for the plan, as rows per file: several starts, each improved by local search; and the seconds
/// that a region must save.
fn candidate_rows(
    job: &Job,
    pricer: &Pricer,
    default: TierWidths,
    harl_rows: Option<&[Vec<(u64, TierWidths)>]>,
    options: &PlanOptions,
) -> (Vec<FileRegions>, f64) {
    let (demand, limits) = (job.unit_demand(), &job.limits);
    let mut lists = Vec::with_capacity(demand.files.len());
    for (index, file) in demand.files.iter().enumerate() {
        let mut always = vec![default];
        if let Some(rows) = harl_rows {
            always.extend(rows[index].iter().map(|row| row.1));
            always.truncate(options.max_regions.max(2));
        }
        lists.push(candidates(file, pricer.cluster, &always));
    }
    let tables: Vec<PriceTable> =
        demand.files.iter().zip(lists).map(|(file, list)| PriceTable::new(file, list, pricer)).collect();
    let whole = |file: usize| ChunkSpan { chunks: 0..demand.files[file].chunks(), widths: default };
    let undivided: Segmentation = (0..demand.files.len()).map(|file| vec![whole(file)]).collect();
    let mut free = Search {
        demand,
        pricer,
        limits,
        tables: &tables,
        default,
        short_list: 48,
        widest: u64::MAX,
        region_s: 0.0,
        max_regions: options.max_regions,
    };
    // How far the time can go down at all, as a measure for the price: regions that are next to free.
    let default_s = free.rank(&free.state(&undivided)).time_s;
    free.region_s = NEXT_TO_FREE * default_s;
    let mut starts = holdout::starts(&free, &[1.0], 16);
    let planned_s = |start| free.pricer.time_s(&free.settle_in(free.state(start)).load);
    let planned_s = starts.iter().map(planned_s).fold(default_s, f64::min);
    free.region_s = options.region_share.max(0.0) * planned_s;
    if starts.iter().any(|start| start.iter().map(Vec::len).sum::<usize>() > FEW * demand.files.len()) {
        free.region_s *= holdout::dearer(&free);
    }
    let at_prices = holdout::starts(&free, &holdout::DEARER, 32);
    let divided = at_prices.first().cloned();
    starts.extend(at_prices);
    // One region a file: where processes have parts of the file to themselves, regions give some of them the slow
    // servers alone, which only a rehearsal sees. All candidates: few of the short list's keep a limit by themselves.
    let whole_files = Search { short_list: usize::MAX, ..free }.settle_in(free.state(&undivided));
    // Taken all the way, too: where heat is chance, or next to it, the plan with one region a file is the one to hold all
    // others against. With a full tier few widths keep the limit, and those that fill it are found by small steps alone.
    let whole_files = Search { max_regions: 1, ..free }.improve(whole_files);
    starts.push(undivided);
    if let Some(rows) = harl_rows {
        let spans = |(file, rows): (usize, &Vec<(u64, TierWidths)>)| spans(&demand.files[file].edges, rows);
        starts.push(rows.iter().enumerate().map(spans).collect());
    }
    let mut states: Vec<PlanState> = starts.iter().map(|start| free.settle_in(free.state(start))).collect();
    states.sort_by(|a, b| free.rank(a).order(&free.rank(b)));
    states.dedup_by(|a, b| free.rank(a) == free.rank(b));
    states.truncate(IMPROVED);
    let mut states: Vec<PlanState> = states.into_iter().map(|state| free.improve(state)).collect();
    // As they are, too: where the model errs a rehearsal may prefer them.
    if options.simulations > 0 {
        states.extend(starts.iter().map(|start| free.state(start)));
    }
    states.push(whole_files);
    // Requests that follow each other in the file meet on one server when stripes are wide; the model, which takes
    // requests as independent, cannot see it, but a simulation can choose a plan with stripes as narrow as requests.
    if options.simulations > 0
        && let Some(start) = divided
    {
        let largest = demand.files.iter().flat_map(|file| &file.entries).map(|e| e.size).max().unwrap_or(0);
        for bound in [largest, largest / 4] {
            let narrow = Search { widest: bound.max(options.default_width_bytes), ..free };
            states.push(narrow.improve(narrow.state(&start)));
        }
    }
    let rows = states.iter().map(|state| rows_of(state, demand)).collect();
    (rows, free.region_s)
}

/// FileRegions as spans of chunks: each border at the nearest edge.
fn spans(edges: &[u64], rows: &[(u64, TierWidths)]) -> Vec<ChunkSpan> {
    let mut spans: Vec<ChunkSpan> = Vec::new();
    let last = edges.len() - 1;
    for &(offset, widths) in rows {
        let above = edges.partition_point(|&edge| edge < offset).min(last);
        let nearest = if above > 0 && offset - edges[above - 1] < edges[above].saturating_sub(offset) {
            above - 1
        } else {
            above
        };
        if let Some(before) = spans.last_mut() {
            before.chunks.end = nearest;
            if before.chunks.is_empty() {
                spans.pop();
            }
        }
        let start = if spans.is_empty() { 0 } else { nearest };
        if start < last {
            spans.push(ChunkSpan { chunks: start..last, widths });
        }
    }
    if let Some(end) = spans.last_mut() {
        end.chunks.end = last;
    }
    spans
}

fn rows_of(state: &PlanState, demand: &Demand) -> FileRegions {
    let mut rows = vec![Vec::new(); demand.files.len()];
    for place in &state.places {
        rows[place.file].push((demand.files[place.file].edges[place.chunks.start], place.way.widths));
    }
    rows
}
