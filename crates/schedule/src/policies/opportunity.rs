//! Shares by weight among programs that have requests now, as long as turns pay.
//!
//! A program that is served alone leaves servers idle that it does not use, and with many programs on many servers that is most of
//! them. No position tells that beforehand, so what windows of turns move is compared with shared ones ([`crate::Payoff`]).

use crate::candidate::Candidate;
use crate::policy::{FLOOR_PART, SchedulePolicy};
use crate::slice_plan::{OTHERS, SlicePlan};
use crate::slices::into_slices;

/// A program that moves less than this part of what the others move in the mean is light.
const LIGHT_LOAD: f64 = 0.25;

/// Turns that move less than this part of what shared windows move end.
const LEAST_GAIN: f64 = 0.95;
/// One window of this many is shared, to compare turns with: before that was done, and where turns paid.
const SHARED_EVERY: [u64; 2] = [16, 64];
/// Shared windows after turns that did not pay, and windows of turns that are tried again then.
const REST_WINDOWS: u64 = 32;
const TRIAL_WINDOWS: u64 = 4;

/// Work-conserving: a program without requests has no slice, and loses the rest of the one it has when its requests end. All
/// programs are served together where turns move less.
#[derive(Debug, Default)]
pub struct Opportunity {
    windows: u64,
    gain: Option<f64>,
    /// Windows that are left of a rest, and then of a trial.
    rest: u64,
    trial: u64,
}

impl Opportunity {
    /// Whether the next window is shared: turns do not pay, or it is one to compare with.
    fn is_shared(&mut self) -> bool {
        self.windows += 1;
        if self.rest > 0 {
            self.rest -= 1;
            return true;
        }
        if self.trial > 0 {
            self.trial -= 1;
            return false;
        }
        if self.gain.is_some_and(|gain| gain < LEAST_GAIN) {
            (self.rest, self.trial) = (REST_WINDOWS - 1, TRIAL_WINDOWS);
            return true;
        }
        let every = SHARED_EVERY[usize::from(self.gain.is_some())];
        self.windows % every == every / 2
    }
}

impl SchedulePolicy for Opportunity {
    fn name(&self) -> &'static str {
        "opportunity"
    }

    fn describe(&self) -> &'static str {
        "shares by weight among programs that have requests now, where turns do not move less"
    }

    fn note_gain(&mut self, gain: Option<f64>) {
        self.gain = gain;
    }

    fn plan(&mut self, candidates: &[Candidate], window_ns: u64) -> SlicePlan {
        let mut shares: Vec<_> =
            candidates.iter().filter(|one| one.is_busy).map(|one| (one.program, one.weight)).collect();
        if shares.len() < 2 || self.is_shared() {
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
