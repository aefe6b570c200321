//! [`RunEnds`]: for which sub-requests the head of a server moves.
//!
//! A sub-request is adjacent, and has the sequential startup, when it begins where the last one that the server took ended,
//! or when it begins or ends at one that still waits: queues of disks gather such requests into one. Of those that wait the
//! last [`GATHERED`] runs are looked at. A server can read ahead, or gather what is written, for as many streams: then one move
//! of its head serves that many bytes of a stream, whatever comes between. Simulators, the objective and emulated devices
//! all ask this module.

/// Runs of adjacent sub-requests that a queue looks at.
pub const GATHERED: usize = 8;

/// A run of adjacent sub-requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeadRun {
    /// Position of its first byte.
    pub begin: u64,
    /// Position after its last byte; equal to `begin` where there is no run.
    pub end: u64,
    /// What tells whether it still waits: the time at which its service begins, or its number.
    pub mark: u64,
    /// Position up to which the last move of the head serves the run.
    pub served: u64,
}

/// The last runs that a server took. They stand in a ring; `last` counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunEnds {
    /// By number, modulo [`GATHERED`].
    pub runs: [HeadRun; GATHERED],
    /// Runs so far; the last one has that number, less one.
    pub count: u64,
}

/// The position of a byte of a datafile: datafiles of any numbers are far apart from each other, and adjacent bytes of one
/// are adjacent.
pub fn head_position(datafile: u64, offset: u64) -> u64 {
    // SplitMix64's finisher: a bijection without visible structure.
    let mut z = datafile.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).wrapping_add(offset)
}

impl RunEnds {
    /// Takes a sub-request of `[begin, begin + bytes)`; runs with a mark above `begun` still wait. `mark` is its own. A move
    /// of the head serves `ahead_bytes` bytes at least. Gives the slot of the ring that has changed, and whether the
    /// sub-request is adjacent. O([`GATHERED`]), no allocation.
    #[inline]
    pub fn take(&mut self, begin: u64, bytes: u64, mark: u64, begun: u64, ahead_bytes: u64) -> (usize, bool) {
        let end = begin.wrapping_add(bytes);
        let slot = |number: u64| (number % GATHERED as u64) as usize;
        let known = self.count.min(GATHERED as u64);
        for back in 1..=known {
            let at = slot(self.count.wrapping_sub(back));
            let run = &mut self.runs[at];
            if run.begin == run.end {
                continue;
            }
            let waits = run.mark > begun;
            if run.end == begin && (waits || back == 1) {
                run.end = end;
                // The head ends there when this one is done, not before.
                run.mark = if back == 1 { mark } else { run.mark };
                return (at, true);
            }
            // Lengths, as positions may wrap.
            if run.end == begin
                && bytes <= run.served.wrapping_sub(begin)
                && run.served.wrapping_sub(begin) <= ahead_bytes
            {
                run.end = end;
                return (at, true);
            }
            if waits && run.begin == end {
                run.begin = begin;
                return (at, true);
            }
        }
        let at = slot(self.count);
        self.runs[at] = HeadRun { begin, end, mark, served: begin.wrapping_add(bytes.max(ahead_bytes)) };
        self.count = self.count.wrapping_add(1);
        (at, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_stream_moves_the_head_once_and_two_streams_each_time_unless_they_wait() {
        let mut ends = RunEnds::default();
        let alone: Vec<bool> = (0..5).map(|i| ends.take(100 + 10 * i, 10, i, i, 0).1).collect();
        assert_eq!(alone, [false, true, true, true, true]);
        let mut ends = RunEnds::default();
        let two = |i: u64| (if i.is_multiple_of(2) { 1000 } else { 5000 }) + 10 * (i / 2);
        let served: Vec<bool> = (0..6).map(|i| ends.take(two(i), 10, i, i, 0).1).collect();
        assert_eq!(served, [false; 6]);
        let mut ends = RunEnds::default();
        let waiting: Vec<bool> = (0..6).map(|i| ends.take(two(i), 10, i + 1, 0, 0).1).collect();
        assert_eq!(waiting, [false, false, true, true, true, true]);
    }

    #[test]
    fn a_move_serves_what_is_read_ahead_of_each_stream() {
        let mut ends = RunEnds::default();
        let two = |i: u64| (if i.is_multiple_of(2) { 1000 } else { 5000 }) + 10 * (i / 2);
        let served: Vec<bool> = (0..16).map(|i| ends.take(two(i), 10, i, i, 40).1).collect();
        let of_each = [false, true, true, true, false, true, true, true];
        assert_eq!(served.iter().step_by(2).copied().collect::<Vec<_>>(), of_each);
        assert_eq!(served.iter().skip(1).step_by(2).copied().collect::<Vec<_>>(), of_each);
    }

    #[test]
    fn what_waits_is_joined_at_both_ends() {
        let mut ends = RunEnds::default();
        assert!(!ends.take(100, 10, 1, 0, 0).1);
        assert!(ends.take(90, 10, 2, 0, 0).1);
        // Its service has begun: only its end is where the head will be.
        assert!(!ends.take(80, 10, 3, 3, 0).1);
        assert!(ends.take(90, 10, 4, 4, 0).1);
    }

    /// The rule in plain words: a list of all runs, never forgotten but for the last few.
    fn plain(asked: &[(u64, u64, u64)], ahead: u64) -> Vec<bool> {
        let mut runs: Vec<(u64, u64, u64)> = Vec::new();
        let mut reach: Vec<u64> = Vec::new();
        let mut found = Vec::new();
        for (number, &(begin, bytes, begun)) in asked.iter().enumerate() {
            let (end, mark) = (begin + bytes, number as u64 + 1);
            let first = runs.len().saturating_sub(GATHERED);
            let fits = |&at: &usize| {
                let (from, to, of): (u64, u64, u64) = runs[at];
                let is_last = at + 1 == runs.len();
                let goes_on = of > begun || is_last || (end <= reach[at] && reach[at] <= begin + ahead);
                to > from && ((to == begin && goes_on) || (of > begun && from == end))
            };
            let joined = (first..runs.len()).rev().find(fits);
            if let Some(at) = joined {
                let is_last = at + 1 == runs.len();
                let read_ahead = end <= reach[at] && reach[at] <= begin + ahead;
                if runs[at].1 == begin && (runs[at].2 > begun || is_last || read_ahead) {
                    runs[at] = (runs[at].0, end, if is_last { mark } else { runs[at].2 });
                } else {
                    runs[at].0 = begin;
                }
            } else {
                runs.push((begin, end, mark));
                reach.push(begin + bytes.max(ahead));
            }
            found.push(joined.is_some());
        }
        found
    }

    proptest! {
        #[test]
        fn a_ring_is_a_list_of_the_last_runs(
            asked in prop::collection::vec((0_u64..40, 1_u64..6, 0_u64..30), 0..60),
            ahead in 0_u64..12,
        ) {
            let mut ends = RunEnds::default();
            let took = asked.iter().enumerate();
            let took: Vec<bool> =
                took.map(|(n, &(begin, bytes, begun))| ends.take(begin, bytes, n as u64 + 1, begun, ahead).1).collect();
            prop_assert_eq!(took, plain(&asked, ahead));
        }

        #[test]
        fn datafiles_are_apart(a in 0_u64..1000, b in 0_u64..1000, at in 0_u64..1 << 40) {
            prop_assert_eq!(head_position(a, at).wrapping_add(7), head_position(a, at + 7));
            prop_assert!(a == b || head_position(a, 0).abs_diff(head_position(b, 0)) > 1 << 33);
        }
    }
}
