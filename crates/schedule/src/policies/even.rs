//! Equal slices, whatever a program does (section IV-C, "even time-slicing").

use crate::candidate::Candidate;
use crate::policy::{FLOOR_PART, SchedulePolicy};
use crate::slice_plan::SlicePlan;
use crate::slices::into_slices;

/// A slice for each program, by weight alone.
#[derive(Debug, Default)]
pub struct Even;

impl SchedulePolicy for Even {
    fn name(&self) -> &'static str {
        "even"
    }

    fn describe(&self) -> &'static str {
        "each program an equal slice, whether that pays or not"
    }

    fn plan(&mut self, candidates: &[Candidate], window_ns: u64) -> SlicePlan {
        let shares: Vec<_> = candidates.iter().map(|one| (one.program, one.weight)).collect();
        into_slices(&shares, window_ns, window_ns / FLOOR_PART)
    }

    fn gives_up_idle_slices(&self) -> bool {
        false
    }
}
