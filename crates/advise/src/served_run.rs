//! [`ServedRun`]: the requests that servers answered as processes make them one after the other, which the fit and the
//! comparison of layouts both replay: what the one is fitted to is what the other predicts with.

use crate::served::Served;
use std::collections::BTreeMap;
use stripewise_model::Request;
use stripewise_simulate::{ClosedLoop, SimulatedStep};

/// Most requests that are replayed; more are thinned out evenly.
pub(crate) const MOST_REQUESTS: usize = 16_000;

/// Runs with other startup times, and other times between requests.
pub(crate) const SEEDS: u64 = 7;

/// What is replayed.
pub(crate) struct ServedRun {
    /// Of each file.
    pub requests: Vec<Vec<Request>>,
    /// Of those that servers answered in all.
    pub share: f64,
    /// In their order.
    pub processes: Vec<u32>,
    /// Without time between requests.
    workload: ClosedLoop,
    /// Seconds of requests that no server answers, by process.
    memory_s: BTreeMap<u32, f64>,
    /// Where all processes meet.
    cuts_s: Vec<f64>,
}

impl ServedRun {
    /// Of at most about `most` requests, evenly over all files. All processes meet at `cuts_s`. O(requests).
    pub(crate) fn of(served: &Served, most: usize, cuts_s: &[f64]) -> Self {
        let requests = thinned(&served.by_servers, most);
        let count = |of: &[Vec<Request>]| of.iter().map(Vec::len).sum::<usize>();
        let all = count(&served.by_servers);
        let share = if all == 0 { 1.0 } else { count(&requests) as f64 / all as f64 };
        let mut memory_s = BTreeMap::new();
        for r in served.by_memory.iter().flatten() {
            *memory_s.entry(r.process).or_default() += share * (r.end_s - r.start_s);
        }
        Self::made(requests, share, memory_s, cuts_s.to_vec())
    }

    /// The same run where files have these requests in place of their own. O(requests).
    pub(crate) fn of_files(&self, requests: Vec<Vec<Request>>) -> Self {
        Self::made(requests, self.share, self.memory_s.clone(), self.cuts_s.clone())
    }

    fn made(requests: Vec<Vec<Request>>, share: f64, memory_s: BTreeMap<u32, f64>, cuts_s: Vec<f64>) -> Self {
        let mut processes: Vec<u32> = requests.iter().flatten().map(|r| r.process).collect();
        processes.sort_unstable();
        processes.dedup();
        let slices: Vec<&[Request]> = requests.iter().map(Vec::as_slice).collect();
        let workload = ClosedLoop::replay(&slices, &cuts_s, false);
        Self { requests, share, processes, workload, memory_s, cuts_s }
    }

    /// With `gap_s` between two requests of a process, and the time of those that no server answers evenly before its
    /// others. O(requests).
    pub(crate) fn with_gap(&self, gap_s: f64) -> ClosedLoop {
        let mut workload = self.workload.clone();
        for (steps, process) in workload.processes.iter_mut().zip(&self.processes) {
            let count = steps.iter().filter(|step| matches!(step, SimulatedStep::Access(_))).count();
            let each_s = self.memory_s.get(process).copied().unwrap_or(0.0) / count.max(1) as f64;
            let mut follows = false;
            for step in steps {
                match step {
                    SimulatedStep::Access(access) => {
                        access.think_s = each_s + if follows { gap_s } else { 0.0 };
                        follows = true;
                    }
                    _ => follows = false,
                }
            }
        }
        workload
    }
}

/// At most about `most` of the requests, evenly over all files, in their order.
pub(crate) fn thinned(requests: &[Vec<Request>], most: usize) -> Vec<Vec<Request>> {
    let total: usize = requests.iter().map(Vec::len).sum();
    let mut every = total.div_ceil(most.max(1)).max(1);
    // An odd stride does not fall in step with loops of the program so soon.
    every += usize::from(every > 1 && every.is_multiple_of(2));
    let mut seen = 0;
    let mut keep = |_: &&Request| {
        seen += 1;
        (seen - 1_usize).is_multiple_of(every)
    };
    requests.iter().map(|of| of.iter().filter(&mut keep).copied().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_model::Op;

    #[test]
    fn thinning_keeps_an_even_share() {
        let request = |n: u64| Request { offset: n, size: 1, op: Op::Read, process: 0, start_s: 0.0, end_s: 0.0 };
        let files = vec![(0..100).map(request).collect::<Vec<_>>(); 10];
        let kept: usize = thinned(&files, 200).iter().map(Vec::len).sum();
        assert!((190..=200).contains(&kept), "{kept}");
        assert_eq!(thinned(&files, 5000), files);
    }
}
