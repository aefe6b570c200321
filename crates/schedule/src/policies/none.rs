//! No turns: what a pool does without an orchestrator.

use crate::candidate::Candidate;
use crate::policy::SchedulePolicy;
use crate::slice_plan::SlicePlan;

/// Serves all at all times.
#[derive(Debug, Default)]
pub struct Unscheduled;

impl SchedulePolicy for Unscheduled {
    fn name(&self) -> &'static str {
        "none"
    }

    fn describe(&self) -> &'static str {
        "all programs at all times; programs are watched only"
    }

    fn plan(&mut self, _: &[Candidate], _: u64) -> SlicePlan {
        SlicePlan::open()
    }
}
