//! `regions`: Stripewise's own, any number of tiers, files and phases, within space limits.

use crate::error::PlanError;
use crate::job::Job;
use crate::objective::priced::RegionPlans;
use crate::planners::harl::limits;
use crate::planners::planner::Planner;
use crate::regions::meta_tier;
use crate::regions::search::{rehearsed, search};
use stripewise_layout::Layout;

/// Regions by optimal segmentation, a width for every tier, many files within the space limits.
pub struct Regions;

impl Planner for Regions {
    fn name(&self) -> &'static str {
        "regions"
    }

    fn source(&self) -> &'static str {
        "Stripewise (docs/architecture.md)"
    }

    fn summary(&self) -> &'static str {
        "optimal regions, a width for every tier, for the processes and phases of the trace, within space limits"
    }

    /// Time: about `max_entries` x a few hundred candidates x 0.3 us, some seconds at the defaults, on all cores. Memory
    /// beside the requests: bounded by the options, about 100 MB at the defaults.
    fn plan(&self, job: &Job) -> Result<Vec<Layout>, PlanError> {
        let found = before_rehearsal(job)?;
        let layouts = meta_tier::with_meta_tier(job, rehearsed(found, job), found.region_s);
        Ok(job.spread(&layouts))
    }
}

/// The plans before any is simulated, HARL's among them where it keeps the limits. Computed once for a job.
pub(super) fn before_rehearsal<'a>(job: &'a Job) -> Result<&'a RegionPlans, PlanError> {
    let new = || search(job, limits::within(limits::paper_rows(job).clone(), job).ok().as_deref());
    job.regions.get_or_init(new).as_ref().map_err(Clone::clone)
}
