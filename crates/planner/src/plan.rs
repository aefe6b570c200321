//! The planner: from requests to one layout per file.

use crate::alike::Alike;
use crate::candidates::candidates;
use crate::capacity::Limits;
use crate::demand::Demand;
use crate::duals::{Segmentation, Span};
use crate::exhaustive::{self, Space};
use crate::harl_limits;
use crate::holdout;
use crate::lanes;
use crate::outcome::{self, Plan, Priced, Rehearsal};
use crate::price_table::PriceTable;
use crate::pricing::{Pricer, add};
use crate::refine::{Rank, Search, State};
use crate::rehearse;
use crate::survey::Survey;
use stripewise_layout::{Layout, ServerId};
use stripewise_model::{Cluster, MAX_TIERS, Op, Request, TierWidths};
use stripewise_simulate::Network;

/// What one file was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct FileTrace<'a> {
    /// Its name, for messages and results.
    pub name: String,
    /// Its requests, in any order, on one clock with those of the other files.
    pub requests: &'a [Request],
    /// Its size in bytes, which counts against space limits; `None` when unknown: then the end of its last request.
    /// Writes beyond the size extend it.
    pub size_bytes: Option<u64>,
}

/// How to plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlanOptions {
    /// Width in bytes of the default layout: one region over all servers. Also for files without requests.
    pub default_width_bytes: u64,
    /// Most regions of a file.
    pub max_regions: usize,
    /// A region must save this share of the time that is predicted with any number of regions; more, when plans made
    /// from half of the requests serve the other half better with fewer.
    pub region_share: f64,
    /// Processes with requests in flight; `None` estimates them from the trace, phase by phase.
    pub processes: Option<f64>,
    /// Most phases that are told apart.
    pub max_phases: usize,
    /// Most chunks that segmentation works on, over all files.
    pub max_chunks: usize,
    /// Most distinct requests that are priced; beyond it a sample is, and the plan says so with its error bound. In pools
    /// of more than 64 servers these, the chunks and the simulations are a quarter of what the options say.
    pub max_entries: usize,
    /// Where the network time of the profiles is spent.
    pub network: Network,
    /// Simulations that may be spent on choosing among the best plans; 0 trusts the model alone.
    pub simulations: usize,
    /// Seed of those simulations.
    pub seed: u64,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            default_width_bytes: 64 << 10,
            max_regions: 128,
            region_share: 1e-3,
            processes: None,
            max_phases: 8,
            max_chunks: 1024,
            max_entries: 20_000,
            network: Network::InBeta,
            simulations: 400,
            seed: 1,
        }
    }
}

/// What cannot be planned.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// No server at all.
    #[error("the pool has no server: add a tier with at least one")]
    NoServer,
    /// Too many tiers.
    #[error("the pool has {0} tiers, at most {MAX_TIERS} can be planned for: join tiers of one profile")]
    TooManyTiers(usize),
    /// A profile that is not one.
    #[error("tier {tier}: its {op} profile has {what} {value}: give times that are finite and not negative")]
    Profile {
        /// Name of the tier.
        tier: String,
        /// `read` or `write`.
        op: &'static str,
        /// Which figure.
        what: &'static str,
        /// Its value.
        value: f64,
    },
    /// An option out of range.
    #[error("{name} is {value}: {remedy}")]
    Option {
        /// Which one.
        name: &'static str,
        /// Its value.
        value: f64,
        /// What it must be.
        remedy: &'static str,
    },
    /// A request ends beyond the largest file offset.
    #[error("{file}: the request of {size} bytes at {offset} ends beyond 2^63 bytes")]
    BeyondEnd {
        /// The file.
        file: String,
        /// First byte.
        offset: u64,
        /// Bytes.
        size: u64,
    },
    /// A layout names a server that the pool does not have.
    #[error("{file}: its layout names server {server}, which the pool does not have")]
    UnknownServer {
        /// The file.
        file: String,
        /// The server.
        server: ServerId,
    },
    /// No planner has this name.
    #[error("no planner '{name}'; there is {known}")]
    UnknownPlanner {
        /// The name.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// The layouts of a planner that knows no limits are beyond them.
    #[error("{planner}: its layouts are {excess_bytes} bytes beyond the servers' limits; take `auto` or `regions`")]
    DoesNotFit {
        /// Name of the planner.
        planner: &'static str,
        /// Bytes beyond limits.
        excess_bytes: u64,
    },
    /// A planner has no layout for such files.
    #[error("{planner}: {reason}; take another planner, see `stripewise planners`")]
    NoLayout {
        /// Name of the planner.
        planner: &'static str,
        /// Why not.
        reason: String,
    },
    /// A planner made more regions than it may.
    #[error("{planner}: {file} has {regions} regions, at most {most} are allowed: allow more, or take another planner")]
    TooManyRegions {
        /// Name of the planner.
        planner: &'static str,
        /// The file.
        file: String,
        /// Regions that it made.
        regions: usize,
        /// Regions that it may make.
        most: usize,
    },
    /// The files do not fit.
    #[error("the files have {bytes} bytes, the servers may hold {room}: raise a tier's capacity or add servers")]
    TooLarge {
        /// Bytes of all files.
        bytes: u128,
        /// Sum of the limits of all servers in bytes.
        room: u128,
    },
    /// The files would fit, but no plan was found that keeps every limit.
    #[error("no layout keeps every server's limit: the best one found is {excess_bytes} bytes over")]
    NoFit {
        /// Bytes beyond limits.
        excess_bytes: u64,
    },
}

/// Plans layouts for `files` on `cluster`: the least predicted time over all files and phases within the servers'
/// limits. Never predicted (or, with simulations, simulated) to be slower than the default layout where that one keeps
/// the limits itself.
///
/// Time: about `max_entries` x a few hundred candidates x 0.3 us, some seconds at the defaults, on all cores. Memory
/// beside the requests: bounded by the options, about 100 MB at the defaults.
///
/// # Errors
/// See [`PlanError`].
pub fn plan(files: &[FileTrace], cluster: &Cluster, options: &PlanOptions) -> Result<Plan, PlanError> {
    check(cluster, options)?;
    plan_demand(files, &Demand::new(files, &for_pool(cluster, options))?, cluster, options)
}

/// [`plan`](plan()) for requests that were [surveyed](Survey) and are too many to be held.
///
/// # Errors
/// See [`PlanError`].
pub fn plan_surveyed(survey: &Survey, cluster: &Cluster, options: &PlanOptions) -> Result<Plan, PlanError> {
    check(cluster, options)?;
    plan_demand(&survey.traces(), &survey.demand(&for_pool(cluster, options)), cluster, options)
}

/// The options as they are taken on this cluster: in a large pool everything costs more, since requests touch more
/// servers and loads have more figures, so there is less of it.
pub(crate) fn for_pool(cluster: &Cluster, options: &PlanOptions) -> PlanOptions {
    let servers: usize = cluster.tiers.iter().map(|tier| tier.servers.len()).sum();
    if servers <= lanes::FEW {
        return *options;
    }
    PlanOptions {
        max_entries: options.max_entries.div_ceil(4),
        max_chunks: options.max_chunks.div_ceil(4),
        simulations: options.simulations.div_ceil(4),
        ..*options
    }
}

/// Plans for a demand; `files` are replayed and searched by HARL, and may be a sample.
pub(crate) fn plan_demand(
    files: &[FileTrace],
    demand: &Demand,
    cluster: &Cluster,
    options: &PlanOptions,
) -> Result<Plan, PlanError> {
    let options = &for_pool(cluster, options);
    let priced_as = as_priced(cluster, options.network);
    let pricer = Pricer::new(&priced_as, demand);
    let limits = Limits::new(cluster, demand.bytes())?;
    let Some(alike) = Alike::new(files, demand, options) else {
        let chosen = choose(files, demand, &priced_as, cluster, &limits, options)?;
        return Ok(outcome::describe(files, cluster, demand, &pricer, chosen));
    };
    let groups = choose(&alike.traces(), &alike.demand, &priced_as, cluster, &limits, options)?;
    // Every file has the layout of its group; what that costs is added up file by file.
    let spread = |plan: &Priced| {
        let rows = alike.of.iter().map(|&group| plan.rows[group].clone()).collect();
        Priced::new(rows, demand, &pricer, &limits)
    };
    let (mut best, by_default) = (spread(&groups.best), spread(&groups.by_default));
    if by_default.rank.order(&best.rank).is_lt() {
        best = by_default.clone();
    }
    if best.rank.excess_bytes > 0 {
        return Err(PlanError::NoFit { excess_bytes: best.rank.excess_bytes });
    }
    let by_harl = groups.by_harl.as_ref().map(spread);
    let rehearsal = groups.rehearsal;
    let mut plan = outcome::describe(files, cluster, demand, &pricer, Chosen { best, by_default, by_harl, rehearsal });
    let of_groups = Pricer::new(&priced_as, &alike.demand);
    plan.sampled = outcome::sampled(&alike.demand, &of_groups, &[&groups.by_default.layouts, &groups.best.layouts]);
    Ok(plan)
}

/// The plan with what it is compared with.
pub(crate) struct Chosen {
    pub best: Priced,
    pub by_default: Priced,
    pub by_harl: Option<Priced>,
    pub rehearsal: Option<Rehearsal>,
}

/// The best plan for a demand, by price and rehearsal.
fn choose(
    files: &[FileTrace],
    demand: &Demand,
    priced_as: &Cluster,
    cluster: &Cluster,
    limits: &Limits,
    options: &PlanOptions,
) -> Result<Chosen, PlanError> {
    let pricer = Pricer::new(priced_as, demand);
    let default = TierWidths::uniform(cluster, options.default_width_bytes);
    let default_rows: Rows = vec![vec![(0, default)]; files.len()];
    // HARL has a network term of its own, beside beta: it plans for the cluster as it is.
    let as_given = Pricer::new(cluster, demand);
    let harl_rows = harl_limits::rows(files, &demand.files, &as_given, limits, options);

    let (found, region_s) = search(demand, &pricer, limits, default, harl_rows.as_deref(), options);
    let price = |rows: Rows| Priced::new(rows, demand, &pricer, limits);
    let by_default = price(default_rows);
    let by_harl = harl_rows.map(price);
    let mut plans: Vec<Priced> = found.into_iter().map(price).collect();
    let max_regions = options.max_regions;
    plans.extend(exhaustive::best(&Space { demand, pricer: &pricer, limits, default, max_regions, region_s }));
    // Requests across borders were priced as if each region went on: only now are all prices those of real layouts.
    plans.push(by_default.clone());
    plans.extend(by_harl.clone());
    plans.retain(|plan| plan.rank.excess_bytes == 0);
    let with_regions = |plan: &Priced| plan.rank.time_s + region_s * plan.regions() as f64;
    plans.sort_by(|a, b| with_regions(a).total_cmp(&with_regions(b)));
    if plans.is_empty() {
        return Err(PlanError::NoFit { excess_bytes: by_default.rank.excess_bytes });
    }
    let mut rehearsal = None;
    let best = if options.simulations > 0 && !demand.files.iter().all(|file| file.entries.is_empty()) {
        let stage = rehearse::Stage::new(files, demand, priced_as, options, region_s);
        let (best, outcome) = rehearse::choose(&stage, plans, &by_default, limits, demand, &pricer);
        rehearsal = Some(outcome);
        best
    } else {
        plans.swap_remove(0)
    };
    Ok(Chosen { best, by_default, by_harl, rehearsal })
}

/// Predicted time in seconds of the requests under given layouts, one per file, as [`plan`] predicts it for its own.
///
/// # Errors
/// Those of [`plan`] for its inputs; [`PlanError::UnknownServer`] when a layout names a server outside the cluster.
///
/// # Panics
/// When there are not as many layouts as files.
pub fn predict(
    files: &[FileTrace],
    layouts: &[Layout],
    cluster: &Cluster,
    options: &PlanOptions,
) -> Result<f64, PlanError> {
    assert_eq!(files.len(), layouts.len(), "one layout per file");
    check(cluster, options)?;
    let priced_as = as_priced(cluster, options.network);
    let demand = Demand::new(files, &for_pool(cluster, options))?;
    let pricer = Pricer::new(&priced_as, &demand);
    let mut load = pricer.no_load();
    for ((file, layout), trace) in demand.files.iter().zip(layouts).zip(files) {
        let of = pricer.layout_load(&file.entries, layout);
        let of = of.map_err(|error| PlanError::UnknownServer { file: trace.name.clone(), server: error.0 })?;
        add(&mut load, &of);
    }
    Ok(pricer.time_s(&load))
}

/// Price of a region, as a share of the default's time, that lets a plan have nearly as many as it likes.
const NEXT_TO_FREE: f64 = 2e-5;

/// With no more regions than this per file no plan follows chance.
const FEW: usize = 3;

/// Starts that the local search takes all the way.
const IMPROVED: usize = 3;

/// Regions of every file: first byte and widths.
type Rows = Vec<Vec<(u64, TierWidths)>>;

/// Candidates for the plan, as rows per file: several starts, each improved by local search; and the seconds
/// that a region must save.
fn search(
    demand: &Demand,
    pricer: &Pricer,
    limits: &Limits,
    default: TierWidths,
    harl_rows: Option<&[Vec<(u64, TierWidths)>]>,
    options: &PlanOptions,
) -> (Vec<Rows>, f64) {
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
    let whole = |file: usize| Span { chunks: 0..demand.files[file].chunks(), widths: default };
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
    starts.push(undivided);
    if let Some(rows) = harl_rows {
        let spans = |(file, rows): (usize, &Vec<(u64, TierWidths)>)| spans(&demand.files[file].edges, rows);
        starts.push(rows.iter().enumerate().map(spans).collect());
    }
    let mut states: Vec<State> = starts.iter().map(|start| free.settle_in(free.state(start))).collect();
    states.sort_by(|a, b| free.rank(a).order(&free.rank(b)));
    states.dedup_by(|a, b| free.rank(a) == free.rank(b));
    states.truncate(IMPROVED);
    let mut states: Vec<State> = states.into_iter().map(|state| free.improve(state)).collect();
    // As they are, too: where the model errs a rehearsal may prefer them.
    if options.simulations > 0 {
        states.extend(starts.iter().map(|start| free.state(start)));
        states.push(whole_files);
    }
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

/// Rows as spans of chunks: each border at the nearest edge.
fn spans(edges: &[u64], rows: &[(u64, TierWidths)]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
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
            spans.push(Span { chunks: start..last, widths });
        }
    }
    if let Some(end) = spans.last_mut() {
        end.chunks.end = last;
    }
    spans
}

fn rows_of(state: &State, demand: &Demand) -> Rows {
    let mut rows = vec![Vec::new(); demand.files.len()];
    for place in &state.places {
        rows[place.file].push((demand.files[place.file].edges[place.chunks.start], place.way.widths));
    }
    rows
}

/// The cluster as its requests are priced: with the network in beta, a byte costs its device both.
pub(crate) fn as_priced(cluster: &Cluster, network: Network) -> Cluster {
    let mut priced = cluster.clone();
    if network == Network::InBeta {
        for tier in &mut priced.tiers {
            let network = std::mem::take(&mut tier.profile.network_s_per_byte);
            tier.profile.read.transfer_s_per_byte += network;
            tier.profile.write.transfer_s_per_byte += network;
        }
    }
    priced
}

pub(crate) fn check(cluster: &Cluster, options: &PlanOptions) -> Result<(), PlanError> {
    if cluster.tiers.iter().all(|tier| tier.servers.is_empty()) {
        return Err(PlanError::NoServer);
    }
    if cluster.tiers.len() > MAX_TIERS {
        return Err(PlanError::TooManyTiers(cluster.tiers.len()));
    }
    for tier in &cluster.tiers {
        for (op, name) in [(Op::Read, "read"), (Op::Write, "write")] {
            let costs = tier.profile.of(op);
            let figures = [
                ("a least startup of", costs.startup_min_s),
                ("a greatest startup of", costs.startup_max_s),
                ("a transfer time per byte of", costs.transfer_s_per_byte),
                ("a network time per byte of", tier.profile.network_s_per_byte),
                ("a startup interval of", costs.startup_max_s - costs.startup_min_s),
            ];
            for (what, value) in figures {
                if !(value.is_finite() && value >= 0.0) {
                    return Err(PlanError::Profile { tier: tier.name.clone(), op: name, what, value });
                }
            }
        }
    }
    // A round of the default must be shorter than the largest file.
    if !(1..=1 << 40).contains(&options.default_width_bytes) {
        let value = options.default_width_bytes as f64;
        return Err(PlanError::Option { name: "the default width", value, remedy: "give 1 byte to 1 TiB" });
    }
    if let Some(value) = options.processes.filter(|p| !(p.is_finite() && *p >= 1.0)) {
        return Err(PlanError::Option { name: "the number of processes", value, remedy: "give 1 or more" });
    }
    Ok(())
}

impl Priced {
    /// Regions of all files.
    pub(crate) fn regions(&self) -> usize {
        self.rows.iter().map(Vec::len).sum()
    }

    /// Prices rows as the layouts that they are, equal neighbours as one: nothing moves by that.
    pub(crate) fn new(mut rows: Rows, demand: &Demand, pricer: &Pricer, limits: &Limits) -> Self {
        rows.iter_mut().for_each(|rows| rows.dedup_by(|next, kept| next.1 == kept.1));
        let layouts: Vec<Layout> = rows
            .iter()
            .map(|rows| TierWidths::layout(rows, pricer.cluster).expect("rows are ascending rounds of the cluster"))
            .collect();
        let mut load = pricer.no_load();
        let mut bytes = vec![0_u64; pricer.lanes().servers()];
        for ((file, layout), rows) in demand.files.iter().zip(&layouts).zip(&rows) {
            let of = pricer.layout_load(&file.entries, layout).expect("the layout is of the pricer's cluster");
            add(&mut load, &of);
            for (index, &(offset, widths)) in rows.iter().enumerate() {
                let end = rows.get(index + 1).map_or(u64::MAX, |next| next.0);
                let region = pricer.file_server_bytes(file, &widths, offset, end);
                bytes.iter_mut().zip(region).for_each(|(sum, b)| *sum = sum.saturating_add(b));
            }
        }
        let rank = Rank { excess_bytes: limits.excess(&bytes), time_s: pricer.time_s(&load), regions_s: 0.0 };
        Self { rows, layouts, load, bytes, rank }
    }
}
