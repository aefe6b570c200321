//! What layouts give: the log's requests replayed by the simulator with several seeds, and what each kind of file got.

use crate::gaps::Gaps;
use rayon::prelude::*;
use std::collections::HashMap;
use stripewise_layout::Layout;
use stripewise_model::{Cluster, Request};
use stripewise_simulate::{
    ClosedLoop, SimulateError, SimulatedAccess, SimulatedStep, SimulationOptions, simulate_observed,
};

/// Most requests that are replayed; more are thinned out evenly.
const MOST_REQUESTS: usize = 16_000;

/// Runs with other startup times, and other times between requests.
const SEEDS: u64 = 7;

/// First of the seeds, far from those that planners choose by: a plan has no luck of its own to bring.
const FIRST_SEED: u64 = 1 << 40;

/// Files, requests and servers.
pub(crate) struct KindRehearsal<'a> {
    cluster: &'a Cluster,
    /// Of each seed.
    workloads: Vec<ClosedLoop>,
    /// Kind of every file.
    kinds: Vec<u32>,
}

/// Bytes per second of one seed.
#[derive(Debug, Clone, Default)]
pub(crate) struct SeedRates {
    /// Over the whole run.
    pub total: f64,
    /// Of each kind, while any of its requests was in flight; 0 where none was.
    pub kinds: Vec<f64>,
}

impl<'a> KindRehearsal<'a> {
    /// `requests` of each file, `kinds` of each file, the times at which all processes meet, and those that a process
    /// spends between its requests. O(seeds x requests).
    pub(crate) fn new(
        cluster: &'a Cluster,
        requests: &[Vec<Request>],
        kinds: Vec<u32>,
        cuts_s: &[f64],
        gaps: &Gaps,
    ) -> Self {
        let thinned = thinned(requests, MOST_REQUESTS);
        let slices: Vec<&[Request]> = thinned.iter().map(Vec::as_slice).collect();
        let workload = ClosedLoop::replay(&slices, cuts_s, false);
        let workloads = (0..SEEDS).map(|seed| with_gap(workload.clone(), gaps.of_run(seed, SEEDS))).collect();
        Self { cluster, workloads, kinds }
    }

    /// Runs under `layouts`, one a file. O(seeds x requests).
    pub(crate) fn runs(&self, layouts: &[Layout]) -> Result<Vec<SeedRates>, SimulateError> {
        let count = self.kinds.iter().max().map_or(0, |&most| most as usize + 1);
        let numbered = self.workloads.par_iter().enumerate();
        numbered.map(|(number, workload)| self.run(layouts, workload, FIRST_SEED + number as u64, count)).collect()
    }

    fn run(
        &self,
        layouts: &[Layout],
        workload: &ClosedLoop,
        seed: u64,
        count: usize,
    ) -> Result<SeedRates, SimulateError> {
        let mut flights: HashMap<u32, (u64, Vec<(f64, f64)>)> = HashMap::new();
        let note = |access: &SimulatedAccess, issued_s: f64, ended_s: f64| {
            let flight = flights.entry(self.kinds[access.file as usize]).or_default();
            flight.0 += access.size;
            flight.1.push((issued_s, ended_s));
        };
        let options = SimulationOptions { seed, ..SimulationOptions::default() };
        let outcome = simulate_observed(self.cluster, layouts, workload, &options, note)?;
        let mut kinds = vec![0.0; count];
        for (kind, (bytes, spans)) in flights {
            let busy_s = union_s(spans);
            kinds[kind as usize] = if busy_s > 0.0 { bytes as f64 / busy_s } else { 0.0 };
        }
        Ok(SeedRates { total: outcome.throughput(), kinds })
    }
}

/// `workload`, whose processes spend `gap_s` between two requests.
fn with_gap(mut workload: ClosedLoop, gap_s: f64) -> ClosedLoop {
    for steps in &mut workload.processes {
        let mut follows = false;
        for step in steps {
            match step {
                SimulatedStep::Access(access) if follows => access.think_s = gap_s,
                SimulatedStep::Access(_) => follows = true,
                _ => follows = false,
            }
        }
    }
    workload
}

/// Seconds in which any of the spans is.
fn union_s(mut spans: Vec<(f64, f64)>) -> f64 {
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut busy_s, mut until) = (0.0, f64::NEG_INFINITY);
    for (start, end) in spans {
        busy_s += (end - until.max(start)).max(0.0);
        until = until.max(end);
    }
    busy_s
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

/// Gains of each seed: of the whole, or of a kind.
pub(crate) fn gains(before: &[SeedRates], after: &[SeedRates], kind: Option<usize>) -> Vec<f64> {
    let rate = |run: &SeedRates| kind.map_or(run.total, |kind| run.kinds.get(kind).copied().unwrap_or(0.0));
    before.iter().zip(after).map(|(before, after)| rate(after) / rate(before)).collect()
}

/// Mean over the seeds, in bytes per second.
pub(crate) fn mean(runs: &[SeedRates], kind: Option<usize>) -> f64 {
    let rate = |run: &SeedRates| kind.map_or(run.total, |kind| run.kinds.get(kind).copied().unwrap_or(0.0));
    if runs.is_empty() { 0.0 } else { runs.iter().map(rate).sum::<f64>() / runs.len() as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::ServerId;
    use stripewise_model::{Op, presets};

    #[test]
    fn thinning_keeps_an_even_share() {
        let request = |n: u64| Request { offset: n, size: 1, op: Op::Read, process: 0, start_s: 0.0, end_s: 0.0 };
        let files = vec![(0..100).map(request).collect::<Vec<_>>(); 10];
        let kept: usize = thinned(&files, 200).iter().map(Vec::len).sum();
        assert!((190..=200).contains(&kept), "{kept}");
        assert_eq!(thinned(&files, 5000), files);
    }

    #[test]
    fn one_server_is_slower_than_all_and_the_same_layout_gains_nothing() {
        let cluster = presets::set_p(6, 2, false);
        let request = |n: u64| Request {
            offset: n << 20,
            size: 1 << 20,
            op: Op::Write,
            process: (n % 8) as u32,
            start_s: n as f64,
            end_s: n as f64 + 1.0,
        };
        let requests = vec![(0..160).map(request).collect::<Vec<_>>()];
        let rehearsal = KindRehearsal::new(&cluster, &requests, vec![0], &[], &Gaps::default());
        let one = [Layout::striped([ServerId(0)], 1 << 20).unwrap()];
        let all = [Layout::striped((0..8).map(ServerId), 1 << 20).unwrap()];
        let (before, after) = (rehearsal.runs(&one).unwrap(), rehearsal.runs(&all).unwrap());
        assert!(gains(&before, &after, None).iter().all(|&gain| gain > 3.0));
        assert!(gains(&before, &after, Some(0)).iter().all(|&gain| gain > 3.0));
        assert!(gains(&before, &before, Some(0)).iter().all(|&gain| gain == 1.0));
        assert!(mean(&after, None) > mean(&before, Some(0)));
        // What the program does between its requests no layout makes faster.
        let slow = Gaps { least_s: 0.1, most_s: 0.1, ..Gaps::default() };
        let rehearsal = KindRehearsal::new(&cluster, &requests, vec![0], &[], &slow);
        let (before, after) = (rehearsal.runs(&one).unwrap(), rehearsal.runs(&all).unwrap());
        assert!(gains(&before, &after, None).iter().all(|&gain| gain < 2.0));
    }
}
