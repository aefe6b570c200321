//! Shares by weight among programs that have requests now; no server is idle while a program waits.

use crate::candidate::Candidate;
use crate::policy::{FLOOR_PART, SchedulePolicy};
use crate::slice_plan::{OTHERS, SlicePlan};
use crate::slices::into_slices;

/// A program that moves less than this part of what the others move in the mean is light.
const LIGHT_LOAD: f64 = 0.25;

/// Work-conserving: a program without requests has no slice, and loses the rest of the one it has when its requests end.
#[derive(Debug, Default)]
pub struct Opportunity;

impl SchedulePolicy for Opportunity {
    fn name(&self) -> &'static str {
        "opportunity"
    }

    fn describe(&self) -> &'static str {
        "shares by weight among programs that have requests now; no server is held idle"
    }

    fn plan(&mut self, candidates: &[Candidate], window_ns: u64) -> SlicePlan {
        let mut shares: Vec<_> =
            candidates.iter().filter(|one| one.is_busy).map(|one| (one.program, one.weight)).collect();
        if shares.len() < 2 {
            return SlicePlan::open();
        }
        // A program that comes back in the middle of a window has a turn in it if it will have much to do. A light one is served
        // at once: its bursts would wait for longer than they delay others, and a slice for it would leave servers idle.
        if candidates.iter().any(|one| !one.is_busy && one.load.is_none_or(|load| load >= LIGHT_LOAD)) {
            shares.push((OTHERS, shares.iter().map(|(_, weight)| *weight).fold(f64::INFINITY, f64::min)));
        }
        into_slices(&shares, window_ns, window_ns / FLOOR_PART)
    }
}
