//! How many processes have a request in flight (the `p` of the throughput objective, `beyond.md` 4).

/// Time-weighted number of processes with a request in flight, over the time in which any has one. `spans` holds
/// `(process, start, end)` in seconds. Requests without duration say nothing: when there is none with one, the number
/// of distinct processes. At least 1. O(n log n).
pub(crate) fn processes_in_flight(spans: &mut [(u32, f64, f64)]) -> f64 {
    spans.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let distinct = spans.chunk_by(|a, b| a.0 == b.0).count();
    // Two requests of one process at a time (threads, or MPI-IO over POSIX) are one process in flight.
    let busy_s: f64 = spans.chunk_by(|a, b| a.0 == b.0).map(union_s).sum();
    spans.sort_by(|a, b| a.1.total_cmp(&b.1));
    let any_s = union_s(spans);
    let mean = if any_s > 0.0 { busy_s / any_s } else { distinct as f64 };
    // Rounding may bring the mean beside its bounds.
    mean.clamp(1.0, (distinct as f64).max(1.0))
}

/// Length of the union of spans in ascending order of start.
fn union_s(spans: &[(u32, f64, f64)]) -> f64 {
    let (mut total, mut until) = (0.0, f64::NEG_INFINITY);
    for &(_, start, end) in spans {
        let from = start.max(until);
        if end > from {
            total += end - from;
            until = end;
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_loops_without_gaps_count_fully() {
        let mut spans: Vec<_> =
            (0..16).flat_map(|p| (0..9).map(move |i| (p, f64::from(i), f64::from(i + 1)))).collect();
        assert!((processes_in_flight(&mut spans) - 16.0).abs() < 1e-12);
    }

    #[test]
    fn idle_time_and_overlap_within_a_process_do_not_count() {
        // Process 0: [0,4) in two overlapping requests; process 1: [2,4); none in [4,10); process 1: [10,12).
        let mut spans = [(0, 0.0, 3.0), (0, 1.0, 4.0), (1, 2.0, 4.0), (1, 10.0, 12.0)];
        assert!((processes_in_flight(&mut spans) - 8.0 / 6.0).abs() < 1e-12);
    }

    #[test]
    fn without_durations_every_process_counts() {
        assert_eq!(processes_in_flight(&mut [(0, 0.0, 0.0), (5, 0.0, 0.0), (5, 0.0, 0.0)]), 2.0);
        assert_eq!(processes_in_flight(&mut []), 1.0);
    }
}
