//! What a plan says of itself: layouts, and predictions beside those of the default and of HARL.

use crate::demand::{Demand, Entry};
use crate::plan::{Chosen, FileTrace};
use crate::pricing::{Load, Pricer, add};
use crate::refine::Rank;
use stripewise_layout::{Layout, MAX_OFFSET};
use stripewise_model::{Cluster, Op, TierWidths};

/// Predicted times in seconds of the same requests under three layouts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Times {
    /// Under the default layout.
    pub default_s: f64,
    /// Under HARL's plan, brought within the space limits; `None` when it cannot be.
    pub harl_s: Option<f64>,
    /// Under this plan.
    pub planned_s: f64,
}

impl Times {
    /// How many times faster than the default; 1 when nothing takes time.
    pub fn gain(&self) -> f64 {
        if self.planned_s > 0.0 { self.default_s / self.planned_s } else { 1.0 }
    }
}

/// Predicted throughput of reads or of writes. In a phase with both, each has the share of the time that it causes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Bytes read or written.
    pub bytes: u64,
    /// Bytes per second under the default layout.
    pub default_bytes_per_s: f64,
    /// Bytes per second under this plan.
    pub planned_bytes_per_s: f64,
}

/// One region of a planned file.
#[derive(Debug, Clone, PartialEq)]
pub struct RegionPlan {
    /// First byte.
    pub offset: u64,
    /// First byte after it; 2^63 for the last region.
    pub end: u64,
    /// Width on every tier; `None` when servers of a tier differ.
    pub widths: Option<TierWidths>,
    /// Requests that fall on it; one across a border counts in parts.
    pub requests: f64,
    /// Bytes that they read.
    pub read_bytes: f64,
    /// Bytes that they write.
    pub written_bytes: f64,
    /// Its share in the predicted time of the whole run. The shares of all regions add up to [`Plan::total`].
    pub times: Times,
    /// Bytes of the file that it puts on each tier.
    pub tier_bytes: Vec<u64>,
}

/// One file.
#[derive(Debug, Clone, PartialEq)]
pub struct FilePlan {
    /// Its name, as it was given.
    pub name: String,
    /// Where its bytes shall be.
    pub layout: Layout,
    /// Bytes that it has, as far as the plan knows.
    pub extent_bytes: u64,
    /// Its regions.
    pub regions: Vec<RegionPlan>,
}

/// One phase of the program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PhasePlan {
    /// Processes with a request in flight.
    pub processes: f64,
    /// Requests of more than 0 bytes.
    pub requests: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Its predicted time.
    pub times: Times,
}

/// What a plan puts on a tier.
#[derive(Debug, Clone, PartialEq)]
pub struct TierUse {
    /// Name of the tier.
    pub name: String,
    /// Number of servers.
    pub servers: usize,
    /// Bytes under the default layout.
    pub default_bytes: u64,
    /// Bytes under this plan.
    pub planned_bytes: u64,
    /// Bytes that the tier may hold, all servers together.
    pub limit_bytes: Option<u64>,
}

/// A sample was priced in place of all requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampled {
    /// Distinct requests priced.
    pub kept: usize,
    /// Distinct requests in the trace.
    pub of: usize,
    /// 95 % bound of the relative error of the mean latency, from the sample's own spread: the larger of those under the
    /// default and under the plan.
    pub error_bound: f64,
}

/// Simulated times of the replayed requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rehearsal {
    /// Requests replayed.
    pub requests: usize,
    /// Simulations run.
    pub simulations: usize,
    /// Makespan in seconds under the default layout.
    pub default_s: f64,
    /// Makespan in seconds under this plan.
    pub planned_s: f64,
}

/// Result of [`plan`](crate::plan).
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// In the order in which the files were given.
    pub files: Vec<FilePlan>,
    /// In order of first appearance in time.
    pub phases: Vec<PhasePlan>,
    /// When one phase gives way to another, in seconds on the clock of the requests, ascending.
    pub cuts_s: Vec<f64>,
    /// Predicted time of the whole run.
    pub total: Times,
    /// Reads, if any.
    pub reads: Option<Rates>,
    /// Writes, if any.
    pub writes: Option<Rates>,
    /// Space by tier.
    pub tiers: Vec<TierUse>,
    /// Whether the figures are those of a sample.
    pub sampled: Option<Sampled>,
    /// The simulated comparison, if simulations were allowed.
    pub rehearsal: Option<Rehearsal>,
}

/// Layouts with their price.
#[derive(Debug, Clone)]
pub(crate) struct Priced {
    pub rows: Vec<Vec<(u64, TierWidths)>>,
    pub layouts: Vec<Layout>,
    pub load: Load,
    pub bytes: Vec<u64>,
    pub rank: Rank,
}

/// The loads of the requests that one layout is asked for by `entries` of a file.
fn load_of<'e>(pricer: &Pricer, layout: &Layout, entries: impl IntoIterator<Item = &'e Entry>) -> Load {
    pricer.layout_load(entries, layout).expect("priced before on the same cluster")
}

/// Puts the figures together. O(entries x sub-requests^2) for each of the three layouts.
pub(crate) fn describe(
    files: &[FileTrace],
    cluster: &Cluster,
    demand: &Demand,
    pricer: &Pricer,
    chosen: Chosen,
) -> Plan {
    let Chosen { best, by_default, by_harl, rehearsal } = chosen;
    let times = |of: &dyn Fn(&Priced) -> f64| Times {
        default_s: of(&by_default),
        harl_s: by_harl.as_ref().map(of),
        planned_s: of(&best),
    };
    let mut plans = Vec::with_capacity(files.len());
    for (index, (trace, file)) in files.iter().zip(&demand.files).enumerate() {
        let rows = &best.rows[index];
        let region = |(row, &(offset, widths)): (usize, &(u64, TierWidths))| {
            let end = rows.get(row + 1).map_or(MAX_OFFSET + 1, |next| next.0);
            let inside: Vec<Entry> = file.entries.iter().filter_map(|e| clipped(e, offset, end)).collect();
            let bytes = |op: Op| inside.iter().filter(|e| e.op == op).map(|e| e.count * e.size as f64).sum();
            RegionPlan {
                offset,
                end,
                widths: Some(widths),
                requests: inside.iter().map(|e| e.count).sum(),
                read_bytes: bytes(Op::Read),
                written_bytes: bytes(Op::Write),
                times: times(&|plan| pricer.share_s(&load_of(pricer, &plan.layouts[index], &inside), &plan.load)),
                tier_bytes: by_tier(cluster, &pricer.file_server_bytes(file, &widths, offset, end)),
            }
        };
        let regions = rows.iter().enumerate().map(region).collect();
        let layout = best.layouts[index].clone();
        plans.push(FilePlan { name: trace.name.clone(), layout, extent_bytes: file.extent, regions });
    }
    let phases = demand.phases.iter().enumerate().map(|(phase, of)| PhasePlan {
        processes: of.processes,
        requests: of.requests,
        read_bytes: of.read_bytes,
        written_bytes: of.written_bytes,
        times: times(&|plan| pricer.phase_time_s(phase, &plan.load)),
    });
    let rates = |op: Op| {
        let bytes = demand.phases.iter().map(|phase| match op {
            Op::Read => phase.read_bytes,
            Op::Write => phase.written_bytes,
        });
        let bytes = bytes.fold(0, u64::saturating_add);
        let time_s = |plan: &Priced| {
            let mut load = pricer.no_load();
            for (file, layout) in demand.files.iter().zip(&plan.layouts) {
                add(&mut load, &load_of(pricer, layout, file.entries.iter().filter(|e| e.op == op)));
            }
            pricer.share_s(&load, &plan.load)
        };
        let rate = |plan: &Priced| {
            let time_s = time_s(plan);
            if time_s > 0.0 { bytes as f64 / time_s } else { 0.0 }
        };
        (bytes > 0).then(|| Rates { bytes, default_bytes_per_s: rate(&by_default), planned_bytes_per_s: rate(&best) })
    };
    let (default_bytes, planned_bytes) = (by_tier(cluster, &by_default.bytes), by_tier(cluster, &best.bytes));
    let tiers = cluster.tiers.iter().zip(default_bytes.iter().zip(&planned_bytes));
    Plan {
        files: plans,
        phases: phases.collect(),
        cuts_s: demand.cuts_s.clone(),
        total: times(&|plan| plan.rank.time_s),
        reads: rates(Op::Read),
        writes: rates(Op::Write),
        tiers: tiers
            .map(|(tier, (&default_bytes, &planned_bytes))| TierUse {
                name: tier.name.clone(),
                servers: tier.servers.len(),
                default_bytes,
                planned_bytes,
                limit_bytes: tier.capacity_bytes.map(|limit| limit.saturating_mul(tier.servers.len() as u64)),
            })
            .collect(),
        sampled: sampled(demand, pricer, &[&by_default.layouts, &best.layouts]),
        rehearsal,
    }
}

/// The entry with the count of the share of its bytes in `[from, to)`: what a region is charged for.
pub(crate) fn clipped(e: &Entry, from: u64, to: u64) -> Option<Entry> {
    let inside = (e.offset + e.size).min(to).saturating_sub(e.offset.max(from));
    (inside > 0).then(|| Entry { count: e.count * inside as f64 / e.size as f64, ..*e })
}

pub(crate) fn by_tier(cluster: &Cluster, slots: &[u64]) -> Vec<u64> {
    let mut slots = slots.iter();
    cluster
        .tiers
        .iter()
        .map(|tier| slots.by_ref().take(tier.servers.len()).fold(0, |sum: u64, &b| sum.saturating_add(b)))
        .collect()
}

/// What a sampled plan says of its sample: nothing when there is none.
pub(crate) fn sampled(demand: &Demand, pricer: &Pricer, plans: &[&[Layout]]) -> Option<Sampled> {
    let bound = |layouts: &&[Layout]| error_bound(demand, pricer, layouts);
    demand.sample.map(|sample| Sampled {
        kept: sample.kept,
        of: sample.of,
        error_bound: plans.iter().map(bound).fold(0.0, f64::max),
    })
}

/// 1.96 standard errors of the mean latency over the mean, by the sample's own spread. The sample is systematic in order
/// of offset, or has every place and size by its share, so this is an upper bound unless heat is periodic in the very
/// order of the sample. Unequal weights count as fewer requests (Kish).
fn error_bound(demand: &Demand, pricer: &Pricer, layouts: &[Layout]) -> f64 {
    let (mut weight, mut weights, mut sum, mut squares) = (0.0, 0.0, 0.0, 0.0);
    for (file, layout) in demand.files.iter().zip(layouts) {
        for e in &file.entries {
            let latency_s =
                pricer.model.layout_latency_s(layout, e.op, e.offset, e.size, |_, _| ()).unwrap_or_default();
            weight += e.count;
            weights += e.count * e.count;
            sum += e.count * latency_s;
            squares += e.count * latency_s * latency_s;
        }
    }
    if weight == 0.0 || sum == 0.0 {
        return 0.0;
    }
    let mean = sum / weight;
    1.96 * (squares / weight - mean * mean).max(0.0).sqrt() * weights.sqrt() / weight / mean
}
