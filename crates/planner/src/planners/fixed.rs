//! `fixed`: what a file system does today, the same stripes for everything.

use crate::error::PlanError;
use crate::job::Job;
use crate::planners::planner::Planner;
use stripewise_layout::Layout;

/// The pool's default layout.
pub struct Fixed;

impl Planner for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn source(&self) -> &'static str {
        "default striping of PVFS2, OrangeFS and Lustre (HARL, section II)"
    }

    fn summary(&self) -> &'static str {
        "one region over all servers, equal widths: the pool's default"
    }

    fn plan(&self, job: &Job) -> Result<Vec<Layout>, PlanError> {
        Ok(job.default_layouts())
    }
}
