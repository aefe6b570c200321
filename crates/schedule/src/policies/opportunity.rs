//! Shares by weight among programs that have requests now, as long as turns pay.
//!
//! A program that is served alone leaves servers idle that it does not use, and with many programs on many servers that is most of
//! them. No position tells that beforehand, so what windows of turns move is compared with shared ones ([`crate::Payoff`]).

use crate::candidate::Candidate;
use crate::policy::{FLOOR_PART, SchedulePolicy};
use crate::slice_plan::{OTHERS, SlicePlan};
use crate::slices::into_slices;
use crate::standing::QUARTERS;

/// A program that moves less than this part of what the others move in the mean is light.
const LIGHT_LOAD: f64 = 0.25;

/// Turns that move less than this part of what shared windows move end.
const LEAST_GAIN: f64 = 0.95;
/// Shared windows, a quarter as long as others, to compare turns with.
const SHARED_WINDOWS: u64 = 2;
/// Windows of turns between them: as long as it is not known what turns gain, and where they paid.
const TURNS_WINDOWS: [u64; 2] = [8, 64];
/// Shared windows after turns that did not pay, and windows of turns that are tried again then.
const REST_WINDOWS: u64 = 32 * QUARTERS as u64;
const TRIAL_WINDOWS: u64 = 4;

/// Work-conserving: a program without requests has no slice, and loses the rest of the one it has when its requests end. All
/// programs are served together where turns move less.
#[derive(Debug)]
pub struct Opportunity {
    /// Windows of turns since the last shared ones, and shared ones that are left.
    turns: u64,
    shared: u64,
    gain: Option<f64>,
    /// Windows that are left of a rest, and then of a trial.
    rest: u64,
    trial: u64,
}

impl Default for Opportunity {
    /// It begins with shared windows.
    fn default() -> Self {
        Self { turns: 0, shared: SHARED_WINDOWS, gain: None, rest: 0, trial: 0 }
    }
}

/// Whether a program moves so little that its bursts had better be served at once.
fn is_light(one: &Candidate) -> bool {
    one.load.is_some_and(|load| load < LIGHT_LOAD)
}

impl Opportunity {
    /// Whether the next window is shared: turns do not pay, or it is one to compare with.
    fn is_shared(&mut self) -> bool {
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
        if self.shared == 0 && self.turns == TURNS_WINDOWS[usize::from(self.gain.is_some())] {
            self.shared = SHARED_WINDOWS;
        }
        let is_shared = self.shared > 0;
        (self.shared, self.turns) = if is_shared { (self.shared - 1, 0) } else { (0, self.turns + 1) };
        is_shared
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

    fn shared_quarters(&self) -> u32 {
        1
    }

    fn plan(&mut self, candidates: &[Candidate], window_ns: u64) -> SlicePlan {
        // Bursts of a light program are served at once: they would wait for longer than they delay others, and a slice for it would
        // leave servers idle. A burst that goes on delays others for longer than it would wait: few bytes are no little work on a
        // disk that seeks for each of them. One that pauses and has much to do is back within a window, and its slice is given up
        // until then.
        let has_slice = |one: &&Candidate| {
            let pauses_ns = one.period_ns.unwrap_or(f64::INFINITY);
            if one.is_busy {
                !is_light(one) || one.period_ns.is_none() || one.burst_age_ns >= window_ns
            } else {
                !is_light(one) && pauses_ns <= window_ns as f64
            }
        };
        let mut shares: Vec<_> = candidates.iter().filter(has_slice).map(|one| (one.program, one.weight)).collect();
        let busy = candidates.iter().filter(|one| one.is_busy && has_slice(one)).count();
        if busy < 2 || self.is_shared() {
            return SlicePlan::open();
        }
        // A program that comes back in the middle of a window has a turn in it if it will have much to do.
        if candidates.iter().any(|one| !one.is_busy && !is_light(one) && !has_slice(&one)) {
            shares.push((OTHERS, shares.iter().map(|(_, weight)| *weight).fold(f64::INFINITY, f64::min)));
        }
        into_slices(&shares, window_ns, window_ns / FLOOR_PART)
    }
}
