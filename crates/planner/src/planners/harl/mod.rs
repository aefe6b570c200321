//! `harl-paper` and `harl`: Algorithms 1 and 2 of He et al., as they stand in the paper and corrected.

pub(crate) mod limits;
pub mod paper;
pub mod stripe_search;

use crate::error::PlanError;
use crate::job::Job;
use crate::planners::planner::Planner;
use stripewise_layout::Layout;
use stripewise_model::{Op, expected_startup_s};

/// The paper's own: regions by change of request size, then the pair `h < s` of least cost in each; each file for
/// itself, without space limits.
pub struct HarlPaper;

impl Planner for HarlPaper {
    fn name(&self) -> &'static str {
        "harl-paper"
    }

    fn source(&self) -> &'static str {
        "He et al. (HARL), Algorithms 1 and 2"
    }

    fn summary(&self) -> &'static str {
        "regions by change of request size, the pair of widths h < s of least latency in each"
    }

    fn plan(&self, job: &Job) -> Result<Vec<Layout>, PlanError> {
        Ok(limits::layouts(job, limits::paper_rows(job)))
    }

    fn own_price(&self, job: &Job, layouts: &[Layout]) -> Result<f64, PlanError> {
        own_price(job, layouts)
    }
}

/// Corrected: also `s <= h`, a tier left out and the default's widths, brought within the space limits.
pub struct Harl;

impl Planner for Harl {
    fn name(&self) -> &'static str {
        "harl"
    }

    fn source(&self) -> &'static str {
        "He et al. (HARL), Algorithms 1 and 2, corrected"
    }

    fn summary(&self) -> &'static str {
        "HARL with every pair of widths and the default among them, brought within space limits"
    }

    fn plan(&self, job: &Job) -> Result<Vec<Layout>, PlanError> {
        let rows = limits::free_rows(job, &limits::options_of(job, true));
        let rows = limits::within(rows, job).map_err(|excess_bytes| PlanError::NoFit { excess_bytes })?;
        Ok(limits::layouts(job, &rows))
    }

    fn own_price(&self, job: &Job, layouts: &[Layout]) -> Result<f64, PlanError> {
        own_price(job, layouts)
    }
}

/// HARL's cost of all requests (Eq. 1-8): the sum of their latencies, each on an idle system. O(entries x
/// sub-requests x log).
fn own_price(job: &Job, layouts: &[Layout]) -> Result<f64, PlanError> {
    let mut total_s = 0.0;
    for (index, layout) in layouts.iter().enumerate() {
        for e in &job.demand.files[index].entries {
            let mut held: Vec<(usize, u64)> = Vec::new();
            for sub in layout.split(e.offset, e.size) {
                held.push((job.slot(index, sub.server)?, sub.len));
            }
            held.sort_unstable();
            held.dedup_by(|next, kept| {
                let same = next.0 == kept.0;
                kept.1 += if same { next.1 } else { 0 };
                same
            });
            total_s += e.count * request_cost_s(job, e.op, &held);
        }
    }
    Ok(total_s)
}

/// HARL's cost of one request, from its bytes by slot.
fn request_cost_s(job: &Job, op: Op, held: &[(usize, u64)]) -> f64 {
    let (mut network_s, mut startup_s, mut transfer_s) = (0.0_f64, 0.0_f64, 0.0_f64);
    let mut first = 0;
    for tier in &job.cluster.tiers {
        let slots = first..first + tier.servers.len();
        first = slots.end;
        let inside = held.iter().filter(|(slot, _)| slots.contains(slot));
        let (servers, most) = inside.fold((0, 0), |(servers, most), &(_, bytes)| (servers + 1, bytes.max(most)));
        let profile = tier.profile.of(op);
        network_s = network_s.max(most as f64 * tier.profile.network_s_per_byte);
        startup_s = startup_s.max(expected_startup_s(servers, profile));
        transfer_s = transfer_s.max(most as f64 * profile.transfer_s_per_byte);
    }
    network_s + startup_s + transfer_s
}
