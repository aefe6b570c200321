//! Puts together what a [`Plan`] says of itself, for the layouts of any planner.

use super::outcome::{FilePlan, LayoutTimes, PhasePlan, Plan, Rates, RegionPlan, Rehearsal, Sampled, TierUse};
use crate::error::PlanError;
use crate::job::demand::{Demand, RequestGroup};
use crate::job::{Job, Price};
use crate::objective::pricing::Pricer;
use crate::planners::harl::limits::harl_within_limits;
use std::collections::HashMap;
use stripewise_layout::{Layout, Region, ServerId};
use stripewise_model::{Cluster, Op, Tier, TierWidths};

/// Layouts beside each other, each with its price and what prices their parts.
struct Costed<'a> {
    layouts: &'a [Layout],
    price: &'a Price,
    pricer: Pricer<'a>,
}

impl<'a> Costed<'a> {
    fn new(job: &'a Job, layouts: &'a [Layout], price: &'a Price) -> Self {
        Self { layouts, price, pricer: job.pricer_of(price) }
    }

    /// The share of requests on one file in the time of the run.
    fn share_s<'e>(&self, file: usize, entries: impl IntoIterator<Item = &'e RequestGroup>) -> f64 {
        let load = self.pricer.layout_load(entries, &self.layouts[file]);
        self.pricer.share_s(&load.expect("priced before on the same cluster"), &self.price.load)
    }
}

/// Puts the figures together. O(entries x sub-requests^2) for each of the three layouts.
pub(crate) fn describe(
    job: &Job,
    layouts: &[Layout],
    price: &Price,
    rehearsal: Option<Rehearsal>,
) -> Result<Plan, PlanError> {
    let default = job.default_layouts();
    let default_price = job.price(&default)?;
    let harl = harl_within_limits(job);
    let harl_price = harl.as_ref().map(|harl| job.price(harl)).transpose()?;
    let best = Costed::new(job, layouts, price);
    let by_default = Costed::new(job, &default, &default_price);
    let by_harl = harl.as_ref().zip(harl_price.as_ref()).map(|(layouts, price)| Costed::new(job, layouts, price));
    let times = |of: &dyn Fn(&Costed) -> f64| LayoutTimes {
        default_s: of(&by_default),
        harl_s: by_harl.as_ref().map(of),
        planned_s: of(&best),
    };
    let files = job.files.iter().zip(&job.demand.files).enumerate().map(|(index, (trace, file))| {
        let layout = &best.layouts[index];
        let region = |(row, region): (usize, &Region)| {
            let (offset, end) = (region.offset(), layout.region_end(row));
            let inside: Vec<RequestGroup> = file.entries.iter().filter_map(|e| e.clipped(offset, end)).collect();
            let bytes = |op: Op| inside.iter().filter(|e| e.op == op).map(|e| e.count * e.size as f64).sum();
            RegionPlan {
                offset,
                end,
                widths: TierWidths::of_stripes(region.stripes(), job.cluster),
                requests: inside.iter().map(|e| e.count).sum(),
                read_bytes: bytes(Op::Read),
                written_bytes: bytes(Op::Write),
                times: times(&|of| of.share_s(index, &inside)),
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
        times: times(&|of| of.pricer.phase_time_s(phase, &of.price.load)),
    });
    let default_bytes = by_tier(job.cluster, &default_price.server_bytes);
    let planned_bytes = by_tier(job.cluster, &price.server_bytes);
    let bytes = default_bytes.into_iter().zip(planned_bytes);
    // The metadata tier is told of where plans hold anything on it.
    let tiers = job.cluster.all_tiers().zip(bytes).enumerate();
    let tiers = tiers.filter(|&(index, (_, (before, after)))| index < job.cluster.tiers.len() || before + after > 0);
    Ok(Plan {
        files: files.collect(),
        phases: phases.collect(),
        cuts_s: job.demand.cuts_s.clone(),
        total: times(&|of| of.price.predicted_s),
        reads: rates(job, &by_default, &best, Op::Read),
        writes: rates(job, &by_default, &best, Op::Write),
        tiers: tiers
            .map(|(_, (tier, (default_bytes, planned_bytes)))| TierUse {
                name: tier.name.clone(),
                servers: tier.servers.len(),
                default_bytes,
                planned_bytes,
                limit_bytes: tier.capacity_bytes.map(|limit| limit.saturating_mul(tier.servers.len() as u64)),
            })
            .collect(),
        sampled: sampled(&job.demand, &best.pricer, &[&default, layouts]),
        rehearsal,
    })
}

/// Throughput of the requests of one operation, each with the share of the time that it causes.
fn rates(job: &Job, by_default: &Costed, best: &Costed, op: Op) -> Option<Rates> {
    let bytes = job.demand.phases.iter().map(|phase| match op {
        Op::Read => phase.read_bytes,
        Op::Write => phase.written_bytes,
    });
    let bytes = bytes.fold(0, u64::saturating_add);
    let rate = |of: &Costed| {
        let mut load = of.pricer.no_load();
        for (file, layout) in job.demand.files.iter().zip(of.layouts) {
            let of_op = file.entries.iter().filter(|e| e.op == op);
            of.pricer.add_layout_load(&mut load, of_op, layout).expect("priced before on the same cluster");
        }
        let time_s = of.pricer.share_s(&load, &of.price.load);
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
    cluster.all_tiers().map(of).collect()
}

fn by_tier(cluster: &Cluster, slots: &[u64]) -> Vec<u64> {
    let mut slots = slots.iter();
    cluster
        .all_tiers()
        .map(|tier| slots.by_ref().take(tier.servers.len()).fold(0, |sum: u64, &b| sum.saturating_add(b)))
        .collect()
}

/// What a sampled plan says of its sample: nothing when there is none.
fn sampled(demand: &Demand, pricer: &Pricer, plans: &[&[Layout]]) -> Option<Sampled> {
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
