//! [`drifts`]: when servers became faster or slower for good, by how long requests took beside what a model of one speed
//! has them take: caches that are full, another job that began, a disk that rebuilds.
//!
//! Requests are put into bins of the time, each with as many of them; the logarithm of a bin's measured over its simulated
//! time is one draw. The draws are cut in two where the squares of what is left are least (binary segmentation, Vostrikova
//! 1981), and again, while both sides differ by more than chance, by enough to matter, and for long enough: a burst is no
//! stretch of a run.

/// Most bins of the time.
const BINS: usize = 32;

/// Fewest requests of a bin.
const LEAST_REQUESTS: usize = 16;

/// Fewest bins of a side: one or two that are slow are stragglers.
const LEAST_BINS: usize = 4;

/// Sides differ by this factor at least.
const LEAST_FACTOR: f64 = 1.5;

/// And by this many standard errors: bins next to each other are not independent, and the best of many places is taken.
const LEAST_T: f64 = 6.0;

/// Bins are no surer than this, in logarithms: the simulator's own draws differ.
const LEAST_DEVIATION: f64 = 0.05;

/// How long a request took, and when it began, both in seconds.
pub(crate) type Took = (f64, f64);

/// When servers changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Drift {
    /// The begin of the first request after it, in seconds of the log.
    pub end_s: f64,
    /// By how many standard errors both sides differ.
    pub strength: f64,
}

/// The changes of requests of one kind, in order of time, from the same requests as the log and as a model of one speed has
/// them, both with the log's begins; stretches between them are `least_s` seconds long at least. O(n log n).
pub(crate) fn drifts(measured: &[Took], simulated: &[Took], least_s: f64) -> Vec<Drift> {
    let bins = (measured.len() / LEAST_REQUESTS).min(BINS);
    if bins < 2 * LEAST_BINS {
        return Vec::new();
    }
    let mut begins_s: Vec<f64> = measured.iter().map(|took| took.0).collect();
    begins_s.sort_unstable_by(f64::total_cmp);
    let mut edges_s: Vec<f64> = (1..bins).map(|bin| begins_s[bin * begins_s.len() / bins]).collect();
    // Times in whole seconds may have many begin at once.
    edges_s.dedup();
    let sums = |of: &[Took]| {
        let mut sums = vec![0.0; edges_s.len() + 1];
        of.iter().for_each(|(start_s, took_s)| sums[edges_s.partition_point(|edge_s| edge_s <= start_s)] += took_s);
        sums
    };
    let pairs = sums(measured).into_iter().zip(sums(simulated));
    let logs: Vec<f64> = pairs.map(|(measured, simulated)| (measured / simulated).ln()).collect();
    if !logs.iter().all(|log| log.is_finite()) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let bounds_s = (begins_s[0], begins_s[begins_s.len() - 1]);
    cut(&logs, &edges_s, bounds_s, least_s, &mut found);
    found.sort_by(|a: &Drift, b| a.end_s.total_cmp(&b.end_s));
    found
}

/// Cuts `logs`, between which the edges are, and which lie within the bounds, where they differ most. O(bins²).
fn cut(logs: &[f64], edges_s: &[f64], bounds_s: (f64, f64), least_s: f64, found: &mut Vec<Drift>) {
    let places = LEAST_BINS..(logs.len() + 1).saturating_sub(LEAST_BINS);
    let Some((at, squares)) =
        places.map(|at| (at, squares(&logs[..at]) + squares(&logs[at..]))).min_by(|a, b| a.1.total_cmp(&b.1))
    else {
        return;
    };
    let apart = (mean(&logs[at..]) - mean(&logs[..at])).abs();
    let deviation = (squares / (logs.len() - 2) as f64).sqrt().max(LEAST_DEVIATION);
    let strength = apart / (deviation * (1.0 / at as f64 + 1.0 / (logs.len() - at) as f64).sqrt());
    if apart < LEAST_FACTOR.ln() || strength < LEAST_T {
        return;
    }
    let end_s = edges_s[at - 1];
    // A burst parts what is before it from what is behind it, and is no stretch by itself.
    if end_s - bounds_s.0 >= least_s && bounds_s.1 - end_s >= least_s {
        found.push(Drift { end_s, strength });
    }
    cut(&logs[..at], &edges_s[..at - 1], (bounds_s.0, end_s), least_s, found);
    cut(&logs[at..], &edges_s[at..], (end_s, bounds_s.1), least_s, found);
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len().max(1) as f64
}

fn squares(of: &[f64]) -> f64 {
    let mean = mean(of);
    of.iter().map(|log| (log - mean).powi(2)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` requests a second apart that take `took_s` of their number.
    fn took(count: usize, took_s: impl Fn(usize) -> f64) -> Vec<Took> {
        (0..count).map(|n| (n as f64, took_s(n))).collect()
    }

    /// From 0.5 to 1.5, without order.
    fn noise(n: usize) -> f64 {
        0.5 + (n.wrapping_mul(2_654_435_761) % 1024) as f64 / 1024.0
    }

    #[test]
    fn each_change_for_good_is_found_where_it_is() {
        let measured = took(1200, |n| {
            noise(n)
                * if n < 300 {
                    1.0
                } else if n < 900 {
                    4.0
                } else {
                    0.5
                }
        });
        let found = drifts(&measured, &took(1200, |_| 1.0), 60.0);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!((270.0..340.0).contains(&found[0].end_s) && (860.0..940.0).contains(&found[1].end_s), "{found:?}");
    }

    #[test]
    fn noise_stragglers_and_what_the_model_expects_are_no_change() {
        let even = took(1200, |_| 1.0);
        assert_eq!(drifts(&took(1200, noise), &even, 60.0), []);
        assert_eq!(drifts(&took(1200, |n| if n % 400 == 7 { 50.0 } else { noise(n) }), &even, 60.0), []);
        let slower = took(1200, |n| if n < 600 { 1.0 } else { 3.0 });
        assert_eq!(drifts(&slower, &slower, 60.0), [], "more processes are at work then, and the model has them");
    }

    #[test]
    fn a_burst_is_no_stretch_of_the_run() {
        // 600 requests of 1200 seconds, then 600 within half of one, which are slower.
        let begin_s = |n: usize| if n < 600 { 2.0 * n as f64 } else { 1200.0 + n as f64 / 1200.0 };
        let burst = |factor: f64| -> Vec<Took> {
            (0..1200).map(|n| (begin_s(n), if n < 600 { 1.0 } else { factor })).collect()
        };
        assert_eq!(drifts(&burst(9.0), &burst(1.0), 0.0).len(), 1);
        assert_eq!(drifts(&burst(9.0), &burst(1.0), 60.0), []);
    }

    #[test]
    fn few_requests_say_nothing() {
        let measured = took(100, |n| if n < 50 { 1.0 } else { 9.0 });
        assert_eq!(drifts(&measured, &took(100, |_| 1.0), 0.0), []);
        assert_eq!(drifts(&[], &[], 0.0), []);
        let at_once: Vec<Took> = (0..1000).map(|n| (0.0, n as f64)).collect();
        assert_eq!(drifts(&at_once, &at_once, 0.0), []);
    }

    proptest::proptest! {
        #[test]
        fn no_times_break_it(took_s in proptest::collection::vec((0.0_f64..1e3, 0.0_f64..1e6), 0..600)) {
            let simulated: Vec<Took> = took_s.iter().map(|took| (took.0, 1.0)).collect();
            let found = drifts(&took_s, &simulated, 1.0);
            proptest::prop_assert!(found.len() < BINS / LEAST_BINS);
            proptest::prop_assert!(found.windows(2).all(|pair| pair[0].end_s + 1.0 <= pair[1].end_s));
        }
    }
}
