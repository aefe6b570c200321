//! Phases: stretches of accesses with long pauses between them, found in one pass.

use crate::access::{Access, AccessOp};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Phases that are told apart at most; of more pauses than that, the longest count.
pub const MAX_PHASES: usize = 64;

/// A stretch of accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phase {
    /// Start of its first access, in nanoseconds of the trace.
    pub start_ns: u64,
    /// Last end of its accesses.
    pub end_ns: u64,
    /// Accesses.
    pub accesses: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

/// A pause: (length, accesses before, bytes read before, bytes written before, end before, start after).
type Pause = (u64, u64, u64, u64, u64, u64);

/// Keeps the longest pauses with the counts so far.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    longest: BinaryHeap<Reverse<Pause>>,
    start_ns: Option<u64>,
    end_ns: u64,
    counts: (u64, u64, u64),
}

impl Pauses {
    /// Takes an access, in order of start. O(1), O(log [`MAX_PHASES`]) for a pause longer than most.
    fn push(&mut self, start_ns: u64, end_ns: u64, read_bytes: u64, written_bytes: u64) {
        self.start_ns.get_or_insert(start_ns);
        let pause_ns = start_ns.saturating_sub(self.end_ns);
        let room = self.longest.len() < MAX_PHASES - 1;
        if self.counts.0 > 0 && pause_ns > 0 && (room || self.longest.peek().is_some_and(|least| least.0.0 < pause_ns))
        {
            let (accesses, read, written) = self.counts;
            self.longest.push(Reverse((pause_ns, accesses, read, written, self.end_ns, start_ns)));
            if !room {
                self.longest.pop();
            }
        }
        self.end_ns = self.end_ns.max(end_ns).max(start_ns);
        let (accesses, read, written) = self.counts;
        self.counts = (accesses + 1, read.saturating_add(read_bytes), written.saturating_add(written_bytes));
    }

    /// As [`Self::push`].
    pub fn push_access(&mut self, access: Access, start_ns: u64, end_ns: u64) {
        match access.op {
            AccessOp::Read => self.push(start_ns, end_ns, access.size_bytes, 0),
            AccessOp::Write => self.push(start_ns, end_ns, 0, access.size_bytes),
        }
    }

    /// The phases: a pause parts two when it is ten times as long as an access takes otherwise (the time without the
    /// longest pauses, over the accesses) and a thousandth of the whole; phases of fewer than four accesses on average
    /// are only a slow program.
    pub fn phases(&self) -> Vec<Phase> {
        let Some(start_ns) = self.start_ns else { return Vec::new() };
        let whole_ns = self.end_ns - start_ns.min(self.end_ns);
        let paused_ns: u64 = self.longest.iter().map(|pause| pause.0.0).sum();
        let usual_ns = (whole_ns - paused_ns.min(whole_ns)) / self.counts.0;
        let parts = |pause: &Pause| pause.0 >= usual_ns.saturating_mul(10).max(whole_ns / 1000);
        let mut borders: Vec<Pause> = self.longest.iter().map(|pause| pause.0).filter(parts).collect();
        if (borders.len() as u64 + 1) * 4 > self.counts.0 {
            borders.clear();
        }
        borders.sort_unstable_by_key(|pause| pause.1);
        borders.push((0, self.counts.0, self.counts.1, self.counts.2, self.end_ns, 0));
        let mut from = (0, 0, 0, start_ns);
        borders
            .into_iter()
            .map(|(_, accesses, read, written, end_ns, next_ns)| {
                let phase = Phase {
                    start_ns: from.3,
                    end_ns,
                    accesses: accesses - from.0,
                    bytes_read: read - from.1,
                    bytes_written: written - from.2,
                };
                from = (accesses, read, written, next_ns);
                phase
            })
            .collect()
    }
}
