//! [`Use`]: how a file, or many alike, were used: counts that findings rest on.

use crate::asked::Asked;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};

/// Requests below this many bytes are tiny: a page of memory.
pub(crate) const TINY_BYTES: u64 = 4 << 10;

/// Requests below this many bytes are small: a disk needs longer to begin than to move them.
pub(crate) const SMALL_BYTES: u64 = 256 << 10;

/// Powers of two of a nanosecond that durations are told apart by.
const DURATIONS: usize = 64;

/// Requests of one operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestCounts {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those of less than 4 KiB.
    pub tiny: u64,
    /// Those of less than 256 KiB.
    pub small: u64,
    /// Those whose place among their process's requests is known.
    pub placed: u64,
    /// Of these: begin where the process's last one ended.
    pub consecutive: u64,
    /// Of these: begin before the end of the process's last one.
    pub backward: u64,
    /// Of these: leave a gap.
    pub skipping: u64,
    /// Touch more servers than their size needs, since they begin within a stripe.
    pub unaligned: u64,
    /// Seconds that they took, added up.
    pub busy_s: f64,
}

impl RequestCounts {
    fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.tiny = self.tiny.saturating_add(other.tiny);
        self.small = self.small.saturating_add(other.small);
        self.placed = self.placed.saturating_add(other.placed);
        self.consecutive = self.consecutive.saturating_add(other.consecutive);
        self.backward = self.backward.saturating_add(other.backward);
        self.skipping = self.skipping.saturating_add(other.skipping);
        self.unaligned = self.unaligned.saturating_add(other.unaligned);
        self.busy_s += other.busy_s;
    }

    /// Mean bytes of a request; 0 without any.
    pub fn mean_bytes(&self) -> f64 {
        share(self.bytes, self.count)
    }

    /// Share of those whose place is known that jump: backward, or over a gap.
    pub fn jumping(&self) -> f64 {
        share(self.backward + self.skipping, self.placed)
    }
}

/// What one rank did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct RankUse {
    /// Bytes read and written.
    pub bytes: u64,
    /// Of these: written.
    pub written_bytes: u64,
    /// Seconds that its requests took, added up.
    pub busy_s: f64,
}

/// How files were used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Use {
    /// Reads.
    pub reads: RequestCounts,
    /// Writes.
    pub writes: RequestCounts,
    /// Calls that read or wrote no byte, and those of one byte.
    pub empty_and_single: (u64, u64),
    /// By rank, where ranks are known.
    pub ranks: HashMap<u32, RankUse>,
    /// Requests that begin at no multiple of the file system's block, where that was counted, and the largest such block in
    /// bytes.
    pub off_alignment: (u64, u64),
    /// Seconds that reads, writes and metadata of one file took the fastest and the slowest rank: of the file where the
    /// slowest took longest.
    pub rank_times_s: (f64, f64),
    /// How many.
    pub files: usize,
    /// Bytes that the kernel copied into these files by itself (`copy_file_range`, `sendfile`), where a log tells.
    pub copied_bytes: u64,
    /// Bytes that went through stdio.
    pub stdio_bytes: u64,
    /// Ranks that used each file, most of any.
    pub sharers: usize,
    /// Processes that moved bytes of each file, most of any, as far as single requests tell: of a program without ranks,
    /// too.
    pub processes: usize,
    /// Files opened or created.
    pub opens: u64,
    /// Attributes asked for.
    pub stats: u64,
    /// Seconds that opens, closes, stats and the like took, added up; where known.
    pub meta_s: f64,
    /// Seconds that reads and writes took, added up.
    pub busy_s: f64,
    /// What was asked above POSIX.
    pub asked: Asked,
    /// Ranks that moved most of one file's bytes: those that read, and those that wrote; most of any, 0 where it is not
    /// known.
    pub movers: (usize, usize),
    /// Nodes that those are on; 0 where it is not known of all.
    pub mover_nodes: (usize, usize),
    /// Requests by the power of two of their duration in nanoseconds.
    durations: Vec<u64>,
    /// Longest request in seconds.
    pub slowest_s: f64,
    /// Seconds of the rank that took longest, of what only counters of all ranks together tell.
    pub slowest_rank_s: f64,
    /// First byte after the last request.
    pub end: u64,
    /// From the first request's begin to the last one's end, in seconds on the log's clock.
    pub span_s: (f64, f64),
}

impl Default for Use {
    fn default() -> Self {
        Self {
            reads: RequestCounts::default(),
            writes: RequestCounts::default(),
            empty_and_single: (0, 0),
            ranks: HashMap::new(),
            off_alignment: (0, 0),
            rank_times_s: (0.0, 0.0),
            files: 1,
            copied_bytes: 0,
            stdio_bytes: 0,
            sharers: 0,
            processes: 0,
            opens: 0,
            stats: 0,
            meta_s: 0.0,
            busy_s: 0.0,
            asked: Asked::default(),
            movers: (0, 0),
            mover_nodes: (0, 0),
            durations: vec![0; DURATIONS],
            slowest_s: 0.0,
            slowest_rank_s: 0.0,
            end: 0,
            span_s: (f64::INFINITY, f64::NEG_INFINITY),
        }
    }
}

impl Use {
    /// Adds a request's time. O(1).
    pub(crate) fn took(&mut self, start_s: f64, end_s: f64) {
        let took_s = (end_s - start_s).max(0.0);
        self.busy_s += took_s;
        self.slowest_s = self.slowest_s.max(took_s);
        self.durations[((took_s * 1e9) as u64).checked_ilog2().unwrap_or(0) as usize] += 1;
        self.spans(start_s, end_s);
    }

    pub(crate) fn spans(&mut self, start_s: f64, end_s: f64) {
        self.span_s = (self.span_s.0.min(start_s), self.span_s.1.max(end_s));
    }

    /// Keeps the times of the file where the slowest rank took longest.
    pub(crate) fn slowest_ranks(&mut self, times_s: (f64, f64)) {
        if times_s.1 > self.rank_times_s.1 {
            self.rank_times_s = times_s;
        }
    }

    /// Of no file.
    pub(crate) fn none() -> Self {
        Self { files: 0, ..Self::default() }
    }

    /// Adds what other files were used for. O(ranks).
    pub(crate) fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.off_alignment.0 = self.off_alignment.0.saturating_add(other.off_alignment.0);
        self.off_alignment.1 = self.off_alignment.1.max(other.off_alignment.1);
        self.slowest_ranks(other.rank_times_s);
        self.stdio_bytes = self.stdio_bytes.saturating_add(other.stdio_bytes);
        self.copied_bytes = self.copied_bytes.saturating_add(other.copied_bytes);
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.empty_and_single.0 = self.empty_and_single.0.saturating_add(other.empty_and_single.0);
        self.empty_and_single.1 = self.empty_and_single.1.saturating_add(other.empty_and_single.1);
        for (&rank, of) in &other.ranks {
            let own = self.ranks.entry(rank).or_default();
            own.bytes = own.bytes.saturating_add(of.bytes);
            own.written_bytes = own.written_bytes.saturating_add(of.written_bytes);
            own.busy_s += of.busy_s;
        }
        self.sharers = self.sharers.max(other.sharers);
        self.processes = self.processes.max(other.processes);
        self.opens = self.opens.saturating_add(other.opens);
        self.stats = self.stats.saturating_add(other.stats);
        self.meta_s += other.meta_s;
        self.busy_s += other.busy_s;
        self.asked.add(&other.asked);
        for (own, of) in [(&mut self.movers, other.movers), (&mut self.mover_nodes, other.mover_nodes)] {
            *own = (own.0.max(of.0), own.1.max(of.1));
        }
        self.durations.iter_mut().zip(&other.durations).for_each(|(own, of)| *own += of);
        self.slowest_s = self.slowest_s.max(other.slowest_s);
        self.slowest_rank_s += other.slowest_rank_s;
        self.end = self.end.max(other.end);
        self.spans(other.span_s.0, other.span_s.1);
    }

    /// Opens, stats and calls of MPI-IO alone, without reads and writes.
    pub(crate) fn metadata(self) -> Self {
        let Self { files, opens, stats, meta_s, asked, stdio_bytes, copied_bytes, .. } = self;
        Self { files, opens, stats, meta_s, asked, stdio_bytes, copied_bytes, ..Self::default() }
    }

    /// Finds who moves one file's bytes: the ranks with a tenth or more of what the busiest one moves. A header that rank
    /// 0 writes makes no writer of it. `hosts` are the nodes of ranks, where they are known. O(ranks).
    pub(crate) fn find_movers(&mut self, hosts: &HashMap<u32, &str>) {
        let count = |of: &dyn Fn(&RankUse) -> u64| {
            let most = self.ranks.values().map(of).max().unwrap_or(0);
            let moving = self.ranks.iter().filter(|(_, rank)| most > 0 && of(rank) >= most.div_ceil(10));
            let movers: Vec<u32> = moving.map(|(rank, _)| *rank).collect();
            let nodes: Option<HashSet<&str>> = movers.iter().map(|rank| hosts.get(rank).copied()).collect();
            (movers.len(), nodes.map_or(0, |nodes| nodes.len()))
        };
        let (reading, writing) =
            (count(&|rank| rank.bytes.saturating_sub(rank.written_bytes)), count(&|rank| rank.written_bytes));
        self.movers = (reading.0, writing.0);
        self.mover_nodes = (reading.1, writing.1);
    }

    /// Whether what was read, and what was written, is asked for by all ranks together.
    pub(crate) fn is_collective(&self) -> (bool, bool) {
        (self.asked.reads.is_collective(self.reads.tiny), self.asked.writes.is_collective(self.writes.tiny))
    }

    /// Reads and writes.
    pub fn both(&self) -> RequestCounts {
        let mut both = self.reads;
        both.add(&self.writes);
        both
    }

    /// Share of the requests whose duration is known that took none.
    pub fn instant_share(&self) -> f64 {
        share(self.durations[0], self.durations.iter().sum())
    }

    /// Half of the requests took no longer than about this, in seconds (to a factor of 1.5); 0 where no duration is
    /// known.
    pub fn median_s(&self) -> f64 {
        let all: u64 = self.durations.iter().sum();
        let mut below = 0;
        for (power, count) in self.durations.iter().enumerate() {
            below += count;
            if below * 2 >= all && all > 0 {
                return 1.5 * (power as f64).exp2() * 1e-9;
            }
        }
        0.0
    }

    /// Seconds that requests took that lasted over `times` times the median, added up from their classes, and how many.
    pub fn slower_than(&self, times: f64) -> (u64, f64) {
        let bound_s = self.median_s() * times;
        let classes = self.durations.iter().enumerate();
        classes.fold((0, 0.0), |(count, sum_s), (power, &of)| {
            let least_s = (power as f64).exp2() * 1e-9;
            if of > 0 && least_s > bound_s { (count + of, sum_s + of as f64 * 1.5 * least_s) } else { (count, sum_s) }
        })
    }

    /// Seconds from the first request to the last.
    pub fn elapsed_s(&self) -> f64 {
        (self.span_s.1 - self.span_s.0).max(0.0)
    }
}

/// `part / whole`, 0 of nothing.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_damaged_log_do_not_wrap() {
        let most = u64::MAX;
        let requests = RequestCounts {
            count: most,
            bytes: most,
            tiny: most,
            small: most,
            placed: most,
            consecutive: most,
            backward: most,
            skipping: most,
            unaligned: most,
            busy_s: 0.0,
        };
        let of = Use { reads: requests, writes: requests, opens: most, stats: most, ..Use::default() };
        let mut sum = of.clone();
        sum.add(&of);
        assert_eq!((sum.opens, sum.stats, sum.both().count), (most, most, most));
    }
}
