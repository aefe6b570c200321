//! The paper's policy: slices for programs that gain by them, inversely proportional to reuse distance.

use crate::candidate::Candidate;
use crate::policy::{FLOOR_PART, SchedulePolicy};
use crate::slice_plan::{OTHERS, SlicePlan};
use crate::slices::{harmonic_shares, into_slices};

/// IOrchestrator (section III-D).
#[derive(Debug, Default)]
pub struct ReuseDistance;

/// The reuse distance of programs that are served together: their rates add up. One without a measured distance counts as the
/// mean of the others.
fn together_ns(of: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let (mut rate, mut known, mut all) = (0.0, 0_usize, 0_usize);
    for reuse_ns in of {
        all += 1;
        if let Some(reuse_ns) = reuse_ns {
            rate += 1.0 / reuse_ns.max(1.0);
            known += 1;
        }
    }
    (known > 0).then(|| known as f64 / (rate * all as f64))
}

impl SchedulePolicy for ReuseDistance {
    fn name(&self) -> &'static str {
        "reuse-distance"
    }

    fn describe(&self) -> &'static str {
        "IOrchestrator: slices for programs that gain by them, inversely proportional to reuse distance"
    }

    fn plan(&mut self, candidates: &[Candidate], window_ns: u64) -> SlicePlan {
        let is_dedicated = |one: &&Candidate| one.standing.is_dedicated();
        let dedicated: Vec<&Candidate> = candidates.iter().filter(is_dedicated).collect();
        if dedicated.is_empty() {
            return SlicePlan::open();
        }
        let others = || candidates.iter().filter(|one| !is_dedicated(one));
        let mut reuse_ns: Vec<Option<f64>> = dedicated.iter().map(|one| one.reuse_ns).collect();
        let mut objects: Vec<_> = dedicated.iter().map(|one| (one.program, one.weight)).collect();
        if others().next().is_some() {
            reuse_ns.push(together_ns(others().map(|one| one.reuse_ns)));
            let count = others().count().max(1) as f64;
            objects.push((OTHERS, others().map(|one| one.weight).sum::<f64>() / count));
        }
        let shares = harmonic_shares(&reuse_ns);
        let weighted: Vec<_> =
            objects.iter().zip(shares).map(|((object, weight), share)| (*object, weight * share)).collect();
        into_slices(&weighted, window_ns, window_ns / FLOOR_PART)
    }

    /// What is eligible shows in shared windows, and to end one of these costs nothing.
    fn shared_quarters(&self) -> u32 {
        1
    }

    fn needs_standings(&self) -> bool {
        true
    }
}
