//! [`Gaps`]: the time that a program's processes spend between two requests. No layout makes it shorter, so the faster
//! the servers the more it weighs.
//!
//! A log does not tell computing from waiting for others, who may be quicker under another layout. Where processes wait
//! for each other after every request, the last of them waits for nobody: short gaps are the program's own. So the gap
//! is somewhere between the lower decile and the median. Long pauses, for steps of a simulation, are in neither.

use crate::interval::Cause;
use stripewise_planner::RequestSource;

/// Most requests that are looked at; of more, those of some processes are.
const LOOKED_AT: u64 = 1_000_000;

/// Gaps of a smaller share of the time are not worth a word.
const TOLD: f64 = 0.01;

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
    /// Of the `requests` requests of `source`, as far as they are `timed`: by the index of the file. O(n log n) for at
    /// most a few millions of them, of processes chosen evenly.
    pub(crate) fn of(source: &dyn RequestSource, requests: u64, timed: impl Fn(usize) -> bool) -> Self {
        let every = requests.div_ceil(LOOKED_AT).max(1) as u32;
        let mut spans: Vec<(u32, f64, f64)> = Vec::new();
        source.visit(&mut |file, request| {
            if request.process.is_multiple_of(every) && timed(file) && spans.len() < 4 * LOOKED_AT as usize {
                spans.push((request.process, request.start_s, request.end_s));
            }
        });
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
        let gaps = Gaps::of(&even, 51, |_| true);
        assert_eq!((gaps.least_s, gaps.most_s, gaps.request_s), (0.25, 0.25, 1.0));
        assert!(gaps.cause().is_some());
        // Of four processes one is last in every round: it has no gap but its own.
        let waiting: Vec<Request> = (0..4)
            .flat_map(|process| after_gaps(process, (0..40).map(move |n| if n % 4 == process { 0.01 } else { 0.5 })))
            .collect();
        let gaps = Gaps::of(&Of(waiting.clone()), 164, |_| true);
        assert!((gaps.least_s - 0.01).abs() < 1e-9 && (gaps.most_s - 0.5).abs() < 1e-9);
        assert_eq!(gaps.of_run(0, 7), gaps.least_s);
        assert!((gaps.of_run(6, 7) - gaps.most_s).abs() < 1e-12);
        assert_eq!(Gaps::of(&Of(waiting), 164, |_| false), Gaps::default(), "made-up times tell nothing");
        assert_eq!(Gaps::default().cause(), None);
    }
}
