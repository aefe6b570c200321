//! Time that closed-loop processes need for a set of requests.
//!
//! `theta = (T + (p - 1) B_max) / p` (`beyond.md` 4) is exact for one server and for servers that are equally busy, and
//! otherwise too high: it lets every process ahead wait at the busiest server, though some are at the others. Mean
//! value analysis counts how many wait where: with `Q_i` requests at server `i` when one process is absent, a request
//! takes `sum_i c B_i (1 + Q_i)`. Here `c = T / sum B_i` (1 when every request has one server, less when
//! servers work for a request side by side, where waits overlap as services do). The lower of both is taken, and
//! never less than the busiest server needs.

use smallvec::SmallVec;

/// Populations up to this are followed one process at a time; each further one waits at the busiest server.
const FOLLOWED: usize = 64;

/// Time in seconds of requests with latencies that add up to `latency_s` on an idle system and keep server `i` busy for
/// `busy_s[i]`, when `processes` issue them in closed loops; `copies[i]` servers are like server `i`. Up to 0.1 % too
/// high where that is all that could be gained.
/// O(min(processes, 64) x servers), no allocation for up to 32 servers.
pub(crate) fn time_s(processes: f64, latency_s: f64, busy_s: &[f64], copies: &[f64]) -> f64 {
    let (busiest, total) = busy_s
        .iter()
        .zip(copies)
        .fold((0.0_f64, 0.0), |(max, sum), (&busy, &copies)| (max.max(busy), sum + busy * copies));
    let theta = (latency_s + (processes - 1.0) * busiest) / processes;
    // Nothing to gain: the bounds are as good as one.
    if processes <= 1.0 || total <= 0.0 || theta <= busiest * 1.001 {
        return theta;
    }
    let c = latency_s / total;
    let whole = processes.floor();
    let followed = (whole as usize).clamp(1, FOLLOWED);
    let mut waiting: SmallVec<[f64; 32]> = SmallVec::from_elem(0.0, busy_s.len());
    let (mut response, mut before) = (0.0, 0.0);
    // One more than the whole part, to go between for a mean number of processes.
    for n in 1..=followed + 1 {
        before = response;
        response = 0.0;
        for ((waiting, &busy), &copies) in waiting.iter_mut().zip(busy_s).zip(copies) {
            *waiting = busy * (1.0 + *waiting);
            response += *waiting * copies;
        }
        let scale = n as f64 / (c * response);
        waiting.iter_mut().for_each(|residence| *residence *= scale);
        response *= c;
    }
    let response = if whole as usize > FOLLOWED {
        before + (processes - FOLLOWED as f64) * busiest
    } else {
        before + (processes - whole) * (response - before)
    };
    (response / processes).min(theta).max(busiest)
}

/// A time that [`time_s`] cannot go below, for `servers` servers in all: that of the busiest server, or of the same
/// work spread evenly. O(servers).
#[inline]
pub(crate) fn least_time_s(processes: f64, latency_s: f64, busy_s: &[f64], servers: f64) -> f64 {
    let busiest = busy_s.iter().fold(0.0_f64, |max, &busy| max.max(busy));
    let theta = latency_s + (processes - 1.0) * busiest;
    let even = latency_s * (1.0 + (processes - 1.0) / servers.max(1.0));
    (theta.min(even) / processes).max(busiest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_process_has_the_latency_and_one_server_serves_one_after_the_other() {
        assert_eq!(time_s(1.0, 5.0, &[3.0, 2.0], &[1.0, 1.0]), 5.0);
        assert!((time_s(16.0, 3.0, &[3.0], &[1.0]) - 3.0).abs() < 1e-12);
    }

    #[test]
    fn equal_servers_have_the_product_form_value() {
        // X = K p / (K + p - 1) / s with s = 8 seconds of service shared by K = 4 servers.
        for p in [2.0, 7.0, 16.0] {
            let product_form = 8.0 * (4.0 + p - 1.0) / (4.0 * p);
            assert!((time_s(p, 8.0, &[2.0; 4], &[1.0; 4]) - product_form).abs() < 1e-12);
        }
    }

    #[test]
    fn unequal_servers_have_the_exact_mean_value() {
        // Two servers, D = (2, 1), two processes: R(1) = 3, Q(1) = (2/3, 1/3); R(2) = 2 * 5/3 + 4/3 = 14/3; R/2 = 7/3.
        assert!((time_s(2.0, 3.0, &[2.0, 1.0], &[1.0, 1.0]) - 7.0 / 3.0).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn lies_between_the_busiest_server_and_theta_and_falls_with_processes(
            busy in prop::collection::vec(0.0_f64..10.0, 1..10), overlap in 0.0_f64..1.0, p in 1.0_f64..200.0,
        ) {
            let (max, sum) = busy.iter().fold((0.0_f64, 0.0), |(max, sum), &b| (max.max(b), sum + b));
            let latency = max + overlap * (sum - max);
            let ones = vec![1.0; busy.len()];
            let time = time_s(p, latency, &busy, &ones);
            prop_assert!(time >= least_time_s(p, latency, &busy, busy.len() as f64) * (1.0 - 1e-9));
            prop_assert!(time >= max - 1e-9);
            prop_assert!(time <= (latency + (p - 1.0) * max) / p + 1e-9);
            // Falls up to the 0.1 % by which the quick answer may be too high.
            prop_assert!(time_s(p + 1.0, latency, &busy, &ones) <= time * 1.001 + 1e-9);
        }

        #[test]
        fn copies_are_servers(busy in prop::collection::vec(0.1_f64..10.0, 1..5), p in 1.0_f64..80.0) {
            let twice: Vec<f64> = busy.iter().flat_map(|&b| [b, b]).collect();
            let latency = twice.iter().sum::<f64>() * 0.7;
            let by_copies = time_s(p, latency, &busy, &vec![2.0; busy.len()]);
            let apart = time_s(p, latency, &twice, &vec![1.0; twice.len()]);
            prop_assert!((by_copies - apart).abs() <= 1e-9 * apart);
        }
    }
}
