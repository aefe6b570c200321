//! `regions`: Stripewise's own. See [`plan`](crate::plan()).

use crate::error::PlanError;
use crate::job::Job;
use crate::planners::Planner;
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

    fn plan(&self, job: &Job) -> Result<Vec<Layout>, PlanError> {
        job.regions().map(|(layouts, _)| layouts)
    }
}
