//! Threads in step: programs whose threads meet at a barrier after each round of requests. No trace has the barriers.

use stripewise_simulate::Did;

/// Rounds that a program in step has at least.
const LEAST_ROUNDS: usize = 8;
/// The share of its rounds in which each thread does as much as each other.
const LEAST_EVEN: f64 = 0.9;

/// One round: from a moment at which nothing was under way to the next.
#[derive(Debug, Clone)]
struct Round {
    start_ns: u64,
    /// By thread.
    dids: Vec<u32>,
}

/// Where the rounds of `threads` begin, in nanoseconds, if the program is in step: between two moments at which nothing was
/// under way each thread that has not ended did as much as each other, in nearly all rounds. Threads that go on by themselves
/// have hardly such a moment, and no such rounds. O(n log n).
pub(crate) fn rounds_ns(threads: &[Vec<Did>]) -> Vec<u64> {
    if threads.len() < 2 {
        return Vec::new();
    }
    let of = |(thread, dids): (usize, &Vec<Did>)| {
        dids.iter().map(move |did| (did.start_ns, did.end_ns, thread)).collect::<Vec<_>>()
    };
    let mut spans: Vec<(u64, u64, usize)> = threads.iter().enumerate().flat_map(of).collect();
    spans.sort_unstable();
    let mut rounds: Vec<Round> = Vec::new();
    let mut until_ns = 0;
    for (start_ns, end_ns, thread) in spans {
        if rounds.is_empty() || start_ns >= until_ns {
            rounds.push(Round { start_ns, dids: vec![0; threads.len()] });
        }
        until_ns = until_ns.max(end_ns);
        if let Some(round) = rounds.last_mut() {
            round.dids[thread] += 1;
        }
    }
    let last_ns: Vec<u64> = threads.iter().map(|dids| dids.iter().map(|did| did.start_ns).max().unwrap_or(0)).collect();
    let is_even = |round: &&Round| {
        let mut live =
            round.dids.iter().zip(&last_ns).filter(|(_, last)| **last >= round.start_ns).map(|(dids, _)| dids);
        live.next().is_some_and(|first| *first > 0 && live.all(|dids| dids == first))
    };
    let even = rounds.iter().filter(is_even).count();
    if rounds.len() < LEAST_ROUNDS || (even as f64) < LEAST_EVEN * rounds.len() as f64 {
        return Vec::new();
    }
    rounds.iter().skip(1).filter(is_even).map(|round| round.start_ns).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_model::Op;
    use stripewise_simulate::{SimulatedAccess, What};

    fn did(start_ns: u64, end_ns: u64) -> Did {
        let access = SimulatedAccess { file: 0, offset: 0, size: 1, op: Op::Read, think_s: 0.0 };
        Did { start_ns, end_ns, what: What::Access(access) }
    }

    #[test]
    fn rounds_of_threads_in_step_are_found_and_others_are_not() {
        let in_step: Vec<Vec<Did>> = (0..3)
            .map(|thread| (0..10).map(|round| did(round * 100 + thread, round * 100 + 50 + thread * 10)).collect())
            .collect();
        let found = rounds_ns(&in_step);
        assert_eq!(found, (1..10).map(|round| round * 100).collect::<Vec<_>>());
        let free: Vec<Vec<Did>> = (0..3)
            .map(|thread| (0..10).map(|n| did(n * (90 + thread * 7), n * (90 + thread * 7) + 80)).collect())
            .collect();
        assert!(rounds_ns(&free).is_empty());
        // One that waits for the others to end, and one thread alone.
        let one_by_one: Vec<Vec<Did>> = (0..3)
            .map(|thread| (0..10).map(|n| did(thread * 1000 + n * 100, thread * 1000 + n * 100 + 90)).collect())
            .collect();
        assert!(rounds_ns(&one_by_one).is_empty());
        assert!(rounds_ns(&in_step[..1]).is_empty());
        assert!(rounds_ns(&[]).is_empty());
    }
}
