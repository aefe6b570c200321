//! IO-Sets: of programs with alike periods one is served at a time, and sets share (Boito, Pallez, Teylo, Vidal: *IO-Sets:
//! Simple and Efficient Approaches for I/O Bandwidth Management*, 2022).
//!
//! A program's set is the decade of its characteristic time, from the beginning of one burst of requests to that of the next.
//! Set `i` has the priority `10^-i`: short, frequent bursts are served fast, since they delay long ones by little.

use crate::candidate::Candidate;
use crate::policy::{FLOOR_PART, SchedulePolicy};
use crate::slice_plan::{OTHERS, ProgramKey, SlicePlan};
use crate::slices::into_slices;
use std::collections::BTreeMap;

/// One program of each set at a time, first come first served.
#[derive(Debug, Default)]
pub struct Set10 {
    /// Who is served of each set, until it has no request any more.
    served: BTreeMap<i32, ProgramKey>,
    /// Busy programs in the order in which they became so.
    waiting: Vec<ProgramKey>,
}

/// The decade of a candidate's characteristic time in seconds. One burst without an end yet is as long as it has lasted.
fn set_of(candidate: &Candidate) -> i32 {
    let period_ns = candidate.period_ns.unwrap_or(candidate.age_ns as f64).max(1.0);
    // Rounded to the nearest decade, as in the paper.
    (period_ns * 1e-9).log10().round() as i32
}

impl SchedulePolicy for Set10 {
    fn name(&self) -> &'static str {
        "set-10"
    }

    fn describe(&self) -> &'static str {
        "IO-Sets: one program of each decade of periods at a time; sets share by priority"
    }

    fn plan(&mut self, candidates: &[Candidate], window_ns: u64) -> SlicePlan {
        let busy: BTreeMap<ProgramKey, &Candidate> =
            candidates.iter().filter(|one| one.is_busy).map(|one| (one.program, one)).collect();
        self.waiting.retain(|program| busy.contains_key(program));
        for one in candidates.iter().filter(|one| one.is_busy) {
            if !self.waiting.contains(&one.program) {
                self.waiting.push(one.program);
            }
        }
        let mut sets: BTreeMap<i32, (ProgramKey, f64)> = BTreeMap::new();
        for program in &self.waiting {
            let one = busy[program];
            let set = set_of(one);
            let is_first = self.served.get(&set) == Some(program) || !sets.contains_key(&set);
            if is_first {
                sets.insert(set, (*program, one.weight * 10_f64.powi(-set)));
            }
        }
        self.served = sets.iter().map(|(set, (program, _))| (*set, *program)).collect();
        let mut shares: Vec<_> = sets.into_values().collect();
        if busy.len() > shares.len() {
            // The first of each set has nearly all of the window; the others must not wait without a bound.
            let least = shares.iter().map(|(_, share)| *share).fold(f64::INFINITY, f64::min);
            shares.push((OTHERS, least / 1e6));
        }
        into_slices(&shares, window_ns, window_ns / FLOOR_PART)
    }
}
