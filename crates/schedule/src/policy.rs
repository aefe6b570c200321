//! What a policy is.

use crate::candidate::Candidate;
use crate::slice_plan::SlicePlan;
use crate::standing::QUARTERS;

/// Decides who is served when.
pub trait SchedulePolicy: Send {
    /// The name that a command takes.
    fn name(&self) -> &'static str;

    /// One line for help and logs.
    fn describe(&self) -> &'static str;

    /// The plan of the next window of `window_ns`. `candidates` are in an order that stays the same from window to window.
    fn plan(&mut self, candidates: &[Candidate], window_ns: u64) -> SlicePlan;

    /// Hears before each plan what windows of turns have moved for all programs together, for each byte of shared ones; `None`
    /// where that was not measured yet.
    fn note_gain(&mut self, _gain: Option<f64>) {}

    /// Whether a slice ends when its program has no request any more, and the next begins.
    fn gives_up_idle_slices(&self) -> bool {
        true
    }

    /// How long a shared window is, in quarters of a whole one.
    fn shared_quarters(&self) -> u32 {
        QUARTERS
    }

    /// Whether it looks at standings: then some windows are shared, to measure what programs do to each other.
    fn needs_standings(&self) -> bool {
        false
    }
}

/// No slice is shorter than this part of a window.
pub(crate) const FLOOR_PART: u64 = 50;
