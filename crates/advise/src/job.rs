//! [`JobFacts`]: what stands above every result: the job, what it moved, how fast, and how much of its run that took.

use crate::gather::Gathered;
use std::collections::HashSet;
use stripewise_import::{About, JobHeader, Lacks};
use stripewise_trace::Trace;

/// A smaller share of the run time is not worth a headline.
const LITTLE: f64 = 0.01;

/// The job of a log.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobFacts {
    /// What the log says of it; program and nodes else from its processes.
    pub header: JobHeader,
    /// Ranks, or processes of a program that has none; at least 1.
    pub processes: u64,
    /// Run time in seconds; where the log does not know, from the first request to the last.
    pub run_s: Option<f64>,
    /// The log itself knows the run time.
    pub is_run_known: bool,
    /// Bytes read from files.
    pub read_bytes: u64,
    /// Bytes written to files.
    pub written_bytes: u64,
    /// Bytes that the kernel copied from file to file by itself: no requests of the program.
    pub copied_bytes: u64,
    /// Reads and writes.
    pub requests: u64,
    /// Seconds that the slowest process reads and writes; `None` where the log does not time requests.
    pub slowest_s: Option<f64>,
    /// Seconds of reads and writes of a process, the mean over all.
    pub data_s: f64,
    /// The same of opens, stats and the like.
    pub meta_s: f64,
}

impl JobFacts {
    /// O(processes).
    pub(crate) fn of(trace: &Trace, about: &About, gathered: &Gathered) -> Self {
        let whole = &gathered.whole;
        let both = whole.both();
        let untimed = about.lacks.contains(Lacks::TIMES) || about.lacks.contains(Lacks::DURATIONS);
        let slowest_s = Some(gathered.slowest_s).filter(|took_s| !untimed && *took_s > 0.0);
        let known_s = about.run_ns.map(|ns| ns as f64 * 1e-9);
        // Older logs tell whole seconds: what began and ended within one has run for longer than none.
        let seen_s = Some(whole.span_s.1.max(0.0)).filter(|end_s| end_s.is_finite() && !untimed);
        let run_s = known_s
            .map(|run_s| run_s.max(seen_s.unwrap_or(0.0)))
            .or_else(|| Some(whole.elapsed_s()).filter(|elapsed_s| *elapsed_s > 0.0 && !untimed));
        let hosts: HashSet<&str> =
            trace.processes().iter().map(|of| of.host.as_str()).filter(|host| !host.is_empty()).collect();
        let processes = about.processes.unwrap_or(trace.processes().len() as u64).max(1);
        let first = trace.processes().first();
        let command = first.map(|process| process.command.clone()).filter(|command| !command.is_empty());
        let program = || first.and_then(|of| trace.programs().get(of.program as usize)).map(|of| of.name.clone());
        Self {
            header: JobHeader {
                command: about.job.command.clone().or(command).or_else(program),
                nodes: about.job.nodes.or(Some(hosts.len() as u64).filter(|count| *count > 0)),
                ..about.job.clone()
            },
            processes,
            run_s,
            is_run_known: known_s.is_some(),
            read_bytes: whole.reads.bytes,
            written_bytes: whole.writes.bytes,
            copied_bytes: gathered.all.copied_bytes,
            requests: both.count,
            slowest_s,
            data_s: if untimed { 0.0 } else { whole.busy_s / processes as f64 },
            meta_s: if untimed { 0.0 } else { whole.meta_s / processes as f64 },
        }
    }

    /// Bytes per second while the slowest process reads and writes.
    pub fn bytes_per_s(&self) -> Option<f64> {
        self.slowest_s.map(|took_s| (self.read_bytes as f64 + self.written_bytes as f64) / took_s)
    }

    /// Share of the run time that the mean process spends with its files.
    pub fn io_share(&self) -> Option<f64> {
        self.slowest_s?;
        self.run_s.filter(|run_s| *run_s > 0.0).map(|run_s| ((self.data_s + self.meta_s) / run_s).min(1.0))
    }

    /// Whether opens and the like took a process longer than the run lasted: those of several threads, added up, or times that
    /// are wrong. What share of the I/O they are is not known then.
    pub(crate) fn is_meta_beyond_run(&self) -> bool {
        self.run_s.is_some_and(|run_s| self.meta_s > run_s)
    }

    /// Whether all of I/O is so small a part of the run that nothing about it can matter.
    pub(crate) fn is_little(&self) -> bool {
        let of_all = self.io_share().zip(self.slowest_share()).map(|(mean, slowest)| mean.max(slowest));
        self.is_run_known && of_all.is_some_and(|share| share < LITTLE)
    }

    /// Share of the run time that the slowest process reads and writes: no layout can save more.
    pub fn slowest_share(&self) -> Option<f64> {
        let took_s = self.slowest_s?;
        self.run_s.filter(|run_s| *run_s > 0.0).map(|run_s| (took_s / run_s).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_matters_unless_it_is_next_to_nothing_of_a_known_run() {
        let of = |run_s, slowest_s, meta_s, is_run_known| JobFacts {
            processes: 4,
            run_s: Some(run_s),
            is_run_known,
            slowest_s: Some(slowest_s),
            meta_s,
            ..JobFacts::default()
        };
        assert!(of(1000.0, 5.0, 1.0, true).is_little());
        assert!(!of(1000.0, 50.0, 1.0, true).is_little(), "the slowest process waits for it");
        assert!(!of(1000.0, 5.0, 50.0, true).is_little(), "opens are I/O, too");
        assert!(!of(1000.0, 5.0, 1.0, false).is_little(), "from the first request to the last is not the run");
        assert!(of(10.0, 5.0, 11.0, true).is_meta_beyond_run() && !of(10.0, 5.0, 9.0, true).is_meta_beyond_run());
        assert!(!JobFacts { slowest_s: None, ..of(1000.0, 5.0, 1.0, true) }.is_little());
    }
}
