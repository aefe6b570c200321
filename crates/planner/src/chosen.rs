//! [`plan_by`]: plans by the name of their planner, `auto` among them, with all that a [`Plan`] says of itself.

use crate::auto::{self, AUTO, Comparison};
use crate::demand::Entry;
use crate::harl_limits;
use crate::job::{Job, Price};
use crate::outcome::{
    FilePlan, PhasePlan, Plan, Rates, RegionPlan, Rehearsal, TierUse, Times, by_tier, clipped, sampled,
};
use crate::plan::PlanError;
use crate::planners::{PLANNERS, by_name, propose};
use crate::pricing::{Load, Pricer, add};
use crate::rehearse::Stage;
use std::collections::HashMap;
use stripewise_layout::{Layout, Region, ServerId};
use stripewise_model::{Cluster, Op, Tier, TierWidths};

/// A plan, and how it came about.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedBy {
    /// Name of the planner whose layouts these are; that of the winner with `auto`.
    pub planner: &'static str,
    /// The planner would choose the default by its own price: these layouts are the default's.
    pub kept_default: bool,
    /// The layouts and what is predicted of them.
    pub plan: Plan,
    /// With `auto`: all planners beside each other.
    pub comparison: Option<Comparison>,
}

/// Plans the layouts of `job` by the planner `name` of [`PLANNERS`], or by [`AUTO`]: within the space limits, and never
/// worse than the default by the planner's own price where that one is within them itself.
///
/// # Errors
/// [`PlanError::UnknownPlanner`] for a name that is not in the list; [`PlanError::DoesNotFit`] when the planner's layouts
/// are beyond the limits; else those of the planner.
pub fn plan_by(name: &str, job: &Job) -> Result<PlannedBy, PlanError> {
    let planner = if name == AUTO { None } else { Some(by_name(name).ok_or_else(|| unknown(name))?) };
    let Some(planner) = planner else {
        let comparison = auto::auto(job)?;
        let chosen = comparison.chosen();
        let plan = describe(job, &chosen.layouts, &chosen.price, comparison.rehearsal)?;
        let planner = comparison.contenders[comparison.winner].planner;
        return Ok(PlannedBy { planner, kept_default: false, plan, comparison: Some(comparison) });
    };
    let proposal = propose(planner, job)?;
    if proposal.price.excess_bytes > 0 {
        let excess_bytes = proposal.price.excess_bytes;
        return Err(PlanError::DoesNotFit { planner: planner.name(), excess_bytes });
    }
    let rehearsal = rehearse(job, &proposal.layouts);
    let plan = describe(job, &proposal.layouts, &proposal.price, rehearsal)?;
    Ok(PlannedBy { planner: planner.name(), kept_default: proposal.kept_default, plan, comparison: None })
}

fn unknown(name: &str) -> PlanError {
    let known: Vec<&str> = PLANNERS.iter().map(|planner| planner.name()).collect();
    PlanError::UnknownPlanner { name: name.to_owned(), known: format!("{AUTO}, {}", known.join(", ")) }
}

/// The layouts and the default simulated as `auto` does; `None` where the options allow none, or there is nothing to do.
fn rehearse(job: &Job, layouts: &[Layout]) -> Option<Rehearsal> {
    if job.options.simulations == 0 || job.demand.files.iter().all(|file| file.entries.is_empty()) {
        return None;
    }
    let stage = Stage::new(job.files, &job.demand, &job.priced_as, job.options, 0.0);
    let default_s = auto::simulated_s(&stage, &job.default_layouts());
    let planned_s = auto::simulated_s(&stage, layouts);
    Some(Rehearsal { requests: stage.requests(), simulations: 2 * auto::DRAWS as usize, default_s, planned_s })
}

/// Layouts beside each other, each with its price.
#[derive(Clone, Copy)]
struct Costed<'a> {
    layouts: &'a [Layout],
    price: &'a Price,
}

/// Puts the figures together. O(entries x sub-requests^2) for each of the three layouts.
fn describe(job: &Job, layouts: &[Layout], price: &Price, rehearsal: Option<Rehearsal>) -> Result<Plan, PlanError> {
    let pricer = job.pricer();
    let default = job.default_layouts();
    let default_price = job.price(&default)?;
    let harl = job.harl_layouts();
    let harl_price = harl.as_ref().map(|harl| job.price(harl)).transpose()?;
    let best = Costed { layouts, price };
    let by_default = Costed { layouts: &default, price: &default_price };
    let by_harl = harl.as_ref().zip(harl_price.as_ref()).map(|(layouts, price)| Costed { layouts, price });
    let times = |of: &dyn Fn(&Costed) -> f64| Times {
        default_s: of(&by_default),
        harl_s: by_harl.as_ref().map(of),
        planned_s: of(&best),
    };
    let files = job.files.iter().zip(&job.demand.files).enumerate().map(|(index, (trace, file))| {
        let layout = &best.layouts[index];
        let region = |(row, region): (usize, &Region)| {
            let (offset, end) = (region.offset(), layout.region_end(row));
            let inside: Vec<Entry> = file.entries.iter().filter_map(|e| clipped(e, offset, end)).collect();
            let bytes = |op: Op| inside.iter().filter(|e| e.op == op).map(|e| e.count * e.size as f64).sum();
            RegionPlan {
                offset,
                end,
                widths: TierWidths::of_stripes(region.stripes(), job.cluster),
                requests: inside.iter().map(|e| e.count).sum(),
                read_bytes: bytes(Op::Read),
                written_bytes: bytes(Op::Write),
                times: times(&|of| pricer.share_s(&load_of(&pricer, &of.layouts[index], &inside), &of.price.load)),
                tier_bytes: tier_bytes(job.cluster, region, offset.min(file.extent), end.min(file.extent)),
            }
        };
        FilePlan {
            name: trace.name.clone(),
            layout: layout.clone(),
            extent_bytes: file.extent,
            regions: layout.regions().iter().enumerate().map(region).collect(),
        }
    });
    let phases = job.demand.phases.iter().enumerate().map(|(phase, of)| PhasePlan {
        processes: of.processes,
        requests: of.requests,
        read_bytes: of.read_bytes,
        written_bytes: of.written_bytes,
        times: times(&|of| pricer.phase_time_s(phase, &of.price.load)),
    });
    let default_bytes = by_tier(job.cluster, &default_price.server_bytes);
    let planned_bytes = by_tier(job.cluster, &price.server_bytes);
    let tiers = job.cluster.tiers.iter().zip(default_bytes.into_iter().zip(planned_bytes));
    Ok(Plan {
        files: files.collect(),
        phases: phases.collect(),
        cuts_s: job.demand.cuts_s.clone(),
        total: times(&|of| of.price.predicted_s),
        reads: rates(job, &pricer, by_default, best, Op::Read),
        writes: rates(job, &pricer, by_default, best, Op::Write),
        tiers: tiers
            .map(|(tier, (default_bytes, planned_bytes))| TierUse {
                name: tier.name.clone(),
                servers: tier.servers.len(),
                default_bytes,
                planned_bytes,
                limit_bytes: tier.capacity_bytes.map(|limit| limit.saturating_mul(tier.servers.len() as u64)),
            })
            .collect(),
        sampled: sampled(&job.demand, &pricer, &[&default, layouts]),
        rehearsal,
    })
}

/// The loads of requests under one layout of a file.
fn load_of<'e>(pricer: &Pricer, layout: &Layout, entries: impl IntoIterator<Item = &'e Entry>) -> Load {
    pricer.layout_load(entries, layout).expect("priced before on the same cluster")
}

/// Throughput of the requests of one operation, each with the share of the time that it causes.
fn rates(job: &Job, pricer: &Pricer, by_default: Costed, best: Costed, op: Op) -> Option<Rates> {
    let bytes = job.demand.phases.iter().map(|phase| match op {
        Op::Read => phase.read_bytes,
        Op::Write => phase.written_bytes,
    });
    let bytes = bytes.fold(0, u64::saturating_add);
    let rate = |of: Costed| {
        let mut load = pricer.no_load();
        for (file, layout) in job.demand.files.iter().zip(of.layouts) {
            add(&mut load, &load_of(pricer, layout, file.entries.iter().filter(|e| e.op == op)));
        }
        let time_s = pricer.share_s(&load, &of.price.load);
        if time_s > 0.0 { bytes as f64 / time_s } else { 0.0 }
    };
    (bytes > 0).then(|| Rates { bytes, default_bytes_per_s: rate(by_default), planned_bytes_per_s: rate(best) })
}

/// Bytes of `[from, to)` of a file that a region puts on each tier. O(servers).
fn tier_bytes(cluster: &Cluster, region: &Region, from: u64, to: u64) -> Vec<u64> {
    let held = |slot: usize| region.bytes_before(slot, to) - region.bytes_before(slot, from);
    let by_server: HashMap<ServerId, u64> =
        region.stripes().iter().enumerate().map(|(slot, stripe)| (stripe.server, held(slot))).collect();
    let of = |tier: &Tier| tier.servers.iter().filter_map(|server| by_server.get(server)).sum();
    cluster.tiers.iter().map(of).collect()
}

impl Job<'_> {
    /// The paper's HARL within the space limits, for comparison; `None` when it cannot be brought within them.
    fn harl_layouts(&self) -> Option<Vec<Layout>> {
        let as_given = Pricer::new(self.cluster, &self.demand);
        let rows = harl_limits::rows(self.files, &self.demand.files, &as_given, &self.limits, self.options)?;
        let layout = |rows: Vec<(u64, TierWidths)>| {
            TierWidths::layout(&rows, self.cluster).expect("HARL's rows are ascending rounds of the cluster")
        };
        Some(rows.into_iter().map(layout).collect())
    }
}
