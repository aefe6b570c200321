//! What layouts give: the log's requests replayed by the simulator with several seeds, and what each kind of file got.

use crate::gaps::Gaps;
use crate::phased::PhasedCluster;
use crate::served::Served;
use crate::served_run::{MOST_REQUESTS, SEEDS, ServedRun};
use crate::writers::Writers;
use rayon::prelude::*;
use std::borrow::Cow;
use std::collections::BTreeMap;
use stripewise_layout::Layout;
use stripewise_model::{Cluster, Request};
use stripewise_simulate::{ClosedLoop, SimulateError, SimulatedAccess, SimulationOptions, simulate_observed};

/// First of the seeds, far from those that planners choose by: a plan has no luck of its own to bring.
const FIRST_SEED: u64 = 1 << 40;

/// Files, requests and servers.
pub(crate) struct KindRehearsal<'a> {
    targets: &'a PhasedCluster,
    /// Servers of all stretches of the run.
    cluster: Cluster,
    /// Who writes what is written collectively.
    writers: &'a Writers,
    run: ServedRun,
    gaps: Gaps,
    /// As the log has them.
    replay: Replay,
    /// Kind of every file.
    kinds: Vec<u32>,
    kind_count: usize,
    /// What no server answers.
    memory: MemoryTimes,
    /// What the requests took in the log.
    pub measured: RunTimes,
}

/// What is simulated.
#[derive(Clone)]
struct Replay {
    /// Of each seed.
    workloads: Vec<ClosedLoop>,
    /// Processes of the workloads, in their order.
    processes: Vec<u32>,
}

impl Replay {
    /// Of requests by file and stretch of the run.
    fn of(run: &ServedRun, gaps: &Gaps) -> Self {
        let workloads = (0..SEEDS).map(|seed| run.with_gap(gaps.of_run(seed, SEEDS))).collect();
        Self { workloads, processes: run.processes.clone() }
    }
}

/// How long requests took.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunTimes {
    /// Of the process whose requests took longest in all, in seconds.
    pub slowest_s: f64,
    /// Of each kind, all processes added up, in seconds.
    pub kinds_s: Vec<f64>,
}

/// Requests that the client's memory answered, in proportion to those that are replayed.
#[derive(Debug, Default)]
struct MemoryTimes {
    bytes: f64,
    /// Seconds by process and kind.
    times_s: BTreeMap<(u32, u32), f64>,
    kind_bytes: Vec<f64>,
}

impl MemoryTimes {
    fn of(requests: &[Vec<Request>], kinds: &[u32], kind_count: usize, share: f64) -> Self {
        let mut found = Self { kind_bytes: vec![0.0; kind_count], ..Self::default() };
        for (requests, &kind) in requests.iter().zip(kinds) {
            for r in requests {
                found.bytes += share * r.size as f64;
                found.kind_bytes[kind as usize] += share * r.size as f64;
                *found.times_s.entry((r.process, kind)).or_default() += share * (r.end_s - r.start_s);
            }
        }
        found
    }

    fn by_process(&self) -> BTreeMap<u32, f64> {
        let mut by_process = BTreeMap::new();
        self.times_s.iter().for_each(|((process, _), took_s)| *by_process.entry(*process).or_default() += took_s);
        by_process
    }

    /// Seconds of the process that is busy longest with a kind.
    fn of_kind_s(&self, kind: u32) -> f64 {
        self.times_s.iter().filter(|((_, of), _)| *of == kind).map(|(_, took_s)| *took_s).fold(0.0, f64::max)
    }
}

/// Bytes per second, and times, of one seed.
#[derive(Debug, Clone, Default)]
pub(crate) struct SeedRates {
    /// Over the whole run.
    pub total: f64,
    /// Of all, while any request was in flight.
    pub in_flight: f64,
    /// Of each kind, while any of its requests was in flight; 0 where none was.
    pub kinds: Vec<f64>,
    /// Of the requests.
    pub times: RunTimes,
}

impl<'a> KindRehearsal<'a> {
    /// Requests of each file, who writes collectively, `kinds` of each file, the times at which all processes meet, and
    /// those that a process spends between its requests. O(seeds x requests).
    pub(crate) fn new(
        targets: &'a PhasedCluster,
        served: &Served,
        writers: &'a Writers,
        kinds: &[u32],
        cuts_s: &[f64],
        gaps: &Gaps,
    ) -> Self {
        let run = ServedRun::of(served, MOST_REQUESTS, cuts_s);
        let kind_count = kinds.iter().max().map_or(0, |&most| most as usize + 1);
        let memory = MemoryTimes::of(&served.by_memory, kinds, kind_count, run.share);
        let mut kinds_s = vec![0.0; kind_count];
        let mut processes_s = memory.by_process();
        for (requests, &kind) in run.requests.iter().zip(kinds) {
            for r in requests {
                kinds_s[kind as usize] += r.end_s - r.start_s;
                *processes_s.entry(r.process).or_default() += r.end_s - r.start_s;
            }
        }
        memory.times_s.iter().for_each(|((_, kind), took_s)| kinds_s[*kind as usize] += took_s);
        let measured = RunTimes { slowest_s: processes_s.into_values().fold(0.0, f64::max), kinds_s };
        let replay = Replay::of(&run.of_files(targets.requests(&run.requests).into_owned()), gaps);
        let cluster = targets.joined();
        Self {
            targets,
            cluster,
            writers,
            run,
            gaps: *gaps,
            replay,
            kinds: kinds.to_vec(),
            kind_count,
            memory,
            measured,
        }
    }

    /// Runs under `layouts`, one a file, with as many collective writers as those let write. O(seeds x requests).
    pub(crate) fn runs(&self, layouts: &[Layout]) -> Result<Vec<SeedRates>, SimulateError> {
        let replay = match self.writers.under(layouts, &self.run.requests) {
            None => Cow::Borrowed(&self.replay),
            Some(requests) => {
                Cow::Owned(Replay::of(&self.run.of_files(self.targets.requests(&requests).into_owned()), &self.gaps))
            }
        };
        let layouts = self.targets.layouts(layouts);
        let numbered = (0..replay.workloads.len()).into_par_iter();
        numbered.map(|number| self.run(&layouts, &replay, number)).collect()
    }

    fn run(&self, layouts: &[Layout], replay: &Replay, number: usize) -> Result<SeedRates, SimulateError> {
        let mut flights: Vec<(f64, Vec<(f64, f64)>)> = vec![Default::default(); self.kind_count];
        let mut processes_s = self.memory.by_process();
        let note = |process: u32, access: &SimulatedAccess, issued_s: f64, ended_s: f64| {
            let flight = &mut flights[self.kinds[access.file as usize / self.targets.count()] as usize];
            flight.0 += access.size as f64;
            flight.1.push((issued_s, ended_s));
            *processes_s.entry(replay.processes[process as usize]).or_default() += ended_s - issued_s;
        };
        let options = SimulationOptions { seed: FIRST_SEED + number as u64, ..SimulationOptions::default() };
        let outcome = simulate_observed(&self.cluster, layouts, &replay.workloads[number], &options, note)?;
        let of_memory_s = self.memory.by_process().into_values().fold(0.0, f64::max);
        let makespan_s = outcome.makespan_s.max(of_memory_s);
        let bytes = outcome.read_bytes as f64 + outcome.written_bytes as f64 + self.memory.bytes;
        let rate = |bytes: f64, took_s: f64| if took_s > 0.0 { bytes / took_s } else { 0.0 };
        let (mut kinds, mut kinds_s) = (Vec::with_capacity(self.kind_count), Vec::with_capacity(self.kind_count));
        let every = flights.iter().flat_map(|(_, spans)| spans.iter().copied());
        let in_flight = rate(bytes, union_s(every.collect()) + of_memory_s);
        for (kind, (bytes, spans)) in flights.into_iter().enumerate() {
            let of_memory_s = self.memory.times_s.iter().filter(|((_, of), _)| *of == kind as u32);
            kinds_s.push(
                spans.iter().map(|(issued_s, ended_s)| ended_s - issued_s).sum::<f64>()
                    + of_memory_s.map(|(_, took_s)| took_s).sum::<f64>(),
            );
            let busy_s = union_s(spans) + self.memory.of_kind_s(kind as u32);
            kinds.push(rate(bytes + self.memory.kind_bytes[kind], busy_s));
        }
        let slowest_s = processes_s.into_values().fold(0.0, f64::max);
        Ok(SeedRates { total: rate(bytes, makespan_s), in_flight, kinds, times: RunTimes { slowest_s, kinds_s } })
    }
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

/// What rates of kinds are multiplied by, where that of all of them is to be `bytes_per_s`: a kind is as fast as all
/// where it is all that there is.
pub(crate) fn scale(runs: &[SeedRates], bytes_per_s: f64) -> f64 {
    let in_flight = runs.iter().map(|run| run.in_flight).sum::<f64>() / runs.len().max(1) as f64;
    if in_flight > 0.0 { bytes_per_s / in_flight } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::ServerId;
    use stripewise_model::{Op, presets};

    #[test]
    fn one_server_is_slower_than_all_and_the_same_layout_gains_nothing() {
        let cluster = PhasedCluster::always(presets::set_p(6, 2, false));
        let request = |n: u64| Request {
            offset: n << 20,
            size: 1 << 20,
            op: Op::Write,
            process: (n % 8) as u32,
            start_s: n as f64,
            end_s: n as f64 + 1.0,
        };
        let requests = vec![(0..160).map(request).collect::<Vec<_>>()];
        let served = Served { by_servers: requests, by_memory: vec![Vec::new()] };
        let nothing = Writers::default();
        let rehearsal = KindRehearsal::new(&cluster, &served, &nothing, &[0], &[], &Gaps::default());
        let one = [Layout::striped([ServerId(0)], 1 << 20).unwrap()];
        let all = [Layout::striped((0..8).map(ServerId), 1 << 20).unwrap()];
        let (before, after) = (rehearsal.runs(&one).unwrap(), rehearsal.runs(&all).unwrap());
        assert!(gains(&before, &after, None).iter().all(|&gain| gain > 3.0));
        assert!(gains(&before, &after, Some(0)).iter().all(|&gain| gain > 3.0));
        assert!(gains(&before, &before, Some(0)).iter().all(|&gain| gain == 1.0));
        assert!(mean(&after, None) > mean(&before, Some(0)));
        // What the program does between its requests no layout makes faster.
        let slow = Gaps { least_s: 0.1, most_s: 0.1, ..Gaps::default() };
        let rehearsal = KindRehearsal::new(&cluster, &served, &nothing, &[0], &[], &slow);
        let (before, after) = (rehearsal.runs(&one).unwrap(), rehearsal.runs(&all).unwrap());
        assert!(gains(&before, &after, None).iter().all(|&gain| gain < 2.0));
    }
}
