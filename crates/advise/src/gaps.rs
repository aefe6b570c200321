//! [`Gaps`]: the time that a program's processes spend between two requests. No layout makes it shorter, so the faster
//! the servers the more it weighs.
//!
//! A log does not tell computing from waiting for other processes, which another layout may speed up. Where processes
//! wait for each other after every request, the last of them does not wait: short gaps are the program's own. So the
//! gap is somewhere between the lower decile and the median. Long pauses, for steps of a simulation, are in neither.

use crate::interval::Cause;
use serde::{Deserialize, Serialize};
use stripewise_planner::RequestSource;

/// About this many requests are read; a log with more is sampled by process.
const LOOKED_AT: u64 = 1_000_000;

/// Most requests that are read where a few processes have most of them, in order of file.
const MOST: usize = 4_000_000;

/// Gaps of a smaller share of the time are not worth a word.
const TOLD: f64 = 0.01;

/// Which requests are read: those of every `every`-th process, in files whose times are of the log.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Timed {
    every: u32,
    /// By index of the file.
    files: Vec<bool>,
}

/// From when to when requests of some processes were under way. Of some files or of all: parts add up, in any order.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Spans(
    /// Index of the file, process, begin and end in seconds.
    Vec<(u32, u32, f64, f64)>,
);

impl Timed {
    /// For a log of `requests` requests, in `files` of which some have times of the log.
    pub(crate) fn new(requests: u64, files: Vec<bool>) -> Self {
        Self { every: requests.div_ceil(LOOKED_AT).max(1) as u32, files }
    }

    /// Spans of the requests of `source`. O(requests).
    pub(crate) fn spans(&self, source: &dyn RequestSource) -> Spans {
        let mut spans = Vec::new();
        source.visit(&mut |file, request| {
            if request.process.is_multiple_of(self.every) && self.files[file] && spans.len() < MOST {
                spans.push((file as u32, request.process, request.start_s, request.end_s));
            }
        });
        Spans(spans)
    }
}

impl Spans {
    /// Adds those of other files.
    pub(crate) fn join(&mut self, other: Self) {
        self.0.extend(other.0);
        self.limit();
    }

    /// The first in order of file stay.
    fn limit(&mut self) {
        if self.0.len() > MOST {
            self.0.sort_by_key(|span| span.0);
            self.0.truncate(MOST);
        }
    }

    fn finished(self) -> Vec<(u32, f64, f64)> {
        self.0.into_iter().map(|(_, process, start_s, end_s)| (process, start_s, end_s)).collect()
    }
}

/// Seconds between the end of a process's request and the begin of its next one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Gaps {
    /// Lower decile: surely the program's own.
    pub least_s: f64,
    /// Median.
    pub most_s: f64,
    /// Mean time of the requests.
    pub request_s: f64,
}

impl Gaps {
    /// From where the requests of some processes lie. O(n log n).
    pub(crate) fn of(spans: Spans) -> Self {
        let mut spans: Vec<(u32, f64, f64)> = spans.finished();
        spans.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.total_cmp(&b.2)));
        let took_s: f64 = spans.iter().map(|(_, start_s, end_s)| (end_s - start_s).max(0.0)).sum();
        let pairs = spans.windows(2).filter(|pair| pair[0].0 == pair[1].0);
        let mut gaps: Vec<f64> = pairs.map(|pair| (pair[1].1 - pair[0].2).max(0.0)).collect();
        if gaps.is_empty() {
            return Self::default();
        }
        gaps.sort_unstable_by(f64::total_cmp);
        Self { least_s: gaps[gaps.len() / 10], most_s: gaps[gaps.len() / 2], request_s: took_s / spans.len() as f64 }
    }

    /// The gap of run `number` of `runs`: evenly from the least to the most, so that what is not known of it is in the
    /// spread of the runs.
    pub(crate) fn of_run(&self, number: u64, runs: u64) -> f64 {
        self.least_s + (self.most_s - self.least_s) * number as f64 / (runs - 1).max(1) as f64
    }

    /// How sure a gain is with so much time that no layout changes.
    pub(crate) fn cause(&self) -> Option<Cause> {
        let own_s = 0.5 * (self.least_s + self.most_s);
        let share = own_s / (own_s + self.request_s);
        let words = || {
            format!(
                "the program's own time between two requests of a process, {:.0} to {:.0} us: {:.0} % of the time",
                1e6 * self.least_s,
                1e6 * self.most_s,
                100.0 * share
            )
        };
        (share > TOLD).then(|| Cause::own_time(share, words()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_model::{Op, Request};

    struct Of(Vec<Request>);

    impl RequestSource for Of {
        fn visit(&self, visit: &mut dyn FnMut(usize, &Request)) {
            self.0.iter().for_each(|request| visit(0, request));
        }
    }

    /// Of `process`, each of 1 s, with these gaps between them.
    fn after_gaps(process: u32, gaps: impl IntoIterator<Item = f64>) -> Vec<Request> {
        let mut start_s = 0.0;
        let mut requests = Vec::new();
        for gap in [0.0].into_iter().chain(gaps) {
            start_s += gap;
            requests.push(Request { offset: 0, size: 1, op: Op::Read, process, start_s, end_s: start_s + 1.0 });
            start_s += 1.0;
        }
        requests
    }

    #[test]
    fn pauses_do_not_count_and_who_waits_for_others_leaves_it_open() {
        // One long pause for computing.
        let even = Of(after_gaps(0, (0..50).map(|n| if n == 20 { 1000.0 } else { 0.25 })));
        let gaps = Gaps::of(Timed::new(51, vec![true]).spans(&even));
        assert_eq!((gaps.least_s, gaps.most_s, gaps.request_s), (0.25, 0.25, 1.0));
        assert!(gaps.cause().is_some());
        // Of four processes one is last in every round: it has no gap but its own.
        let waiting: Vec<Request> = (0..4)
            .flat_map(|process| after_gaps(process, (0..40).map(move |n| if n % 4 == process { 0.01 } else { 0.5 })))
            .collect();
        let gaps = Gaps::of(Timed::new(164, vec![true]).spans(&Of(waiting.clone())));
        assert!((gaps.least_s - 0.01).abs() < 1e-9 && (gaps.most_s - 0.5).abs() < 1e-9);
        assert_eq!(gaps.of_run(0, 7), gaps.least_s);
        assert!((gaps.of_run(6, 7) - gaps.most_s).abs() < 1e-12);
        assert_eq!(
            Gaps::of(Timed::new(164, vec![false]).spans(&Of(waiting))),
            Gaps::default(),
            "made-up times tell nothing"
        );
        assert_eq!(Gaps::default().cause(), None);
    }
}
