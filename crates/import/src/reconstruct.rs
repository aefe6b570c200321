//! Requests from counters: what a log without single requests allows to say of a file.
//!
//! The counters of a record fix how many requests there were, their bytes, how far they reached, how many were of each
//! class of size and of the four commonest sizes, how many began where the one before ended, how many ranks took part
//! and when. [`rows_of`] makes requests that agree with all of it: the sizes by [`sizes`](crate::sizes), the places by
//! [`Places`]. What the counters leave open (which size stood where, in which order) is filled in evenly, so that no
//! structure appears that was not measured. The importer hands them on where the log has no rows of a file and
//! interface ([`FileCounters::has_rows`]), so that every sink has them. Every plan that rests on such rows is as good
//! as that, and [`crate::Lacks::COUNTERS_ONLY`] says so.

use crate::counters::FileCounters;
use crate::places::Places;
use crate::sizes::{Interleaved, Sizes, sizes};
use crate::stated::{Stated, prefix_of};
use stripewise_trace::{Operation, Record, flags};

/// Most rows of one record of counters; a record that states more requests gives an even sample of that many.
pub(crate) const RECORD_ROWS: u64 = 1 << 20;
/// Most rows of all records of a log together, for callers to count down.
pub(crate) const LOG_ROWS: u64 = 1 << 22;

/// Processes that are believed; more have never run one program.
const MOST_PROCESSES: u64 = 1 << 24;

/// What [`rows_of`] made of one record.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Reconstructed {
    /// Reads, then writes; in order of time within each rank.
    pub rows: Vec<Record>,
    /// Requests that the counters state; more than rows where those are a sample.
    pub requests: u64,
    /// Whether the counters contradict each other (sizes that cannot add up to the bytes, requests that reach further
    /// than the file was touched). The number of requests and their bytes are kept then, the rest as far as it goes.
    pub contradictory: bool,
}

/// Requests that agree with the counters of one file, of one rank or of all; at most `limit` rows.
///
/// `processes` is that of the job ([`crate::Summary::processes`]): a record that is reduced over all ranks is spread
/// over as many of them as its variance of bytes says moved any. Rows have program 0. O(rows · log ranks), whatever the
/// counters claim.
pub(crate) fn rows_of(counters: &FileCounters, processes: Option<u64>, limit: u64) -> Reconstructed {
    let mut made = Reconstructed::default();
    let both = [Operation::Read, Operation::Write].map(|op| Stated::of(counters, op));
    made.requests = both.iter().fold(0u64, |sum, stated| sum.saturating_add(stated.requests));
    let [reads, writes] = both.each_ref().map(|stated| stated.requests);
    let limit = limit.min(RECORD_ROWS);
    // Each direction gets its share of the rows, and no direction that there was gets none.
    let all = u128::from(reads) + u128::from(writes);
    let share = |count: u64| match u128::from(count) * u128::from(limit) {
        _ if all <= u128::from(limit) => count,
        part => ((part / all) as u64).clamp(u64::from(count > 0).min(limit), limit),
    };
    let read_rows = share(reads);
    let write_rows = share(writes).min(limit - read_rows);
    let multisets = sizes(&both);
    for ((stated, multiset), most) in both.iter().zip(multisets).zip([read_rows, write_rows]) {
        if most > 0 {
            stated.rows(counters, multiset, processes, most, &mut made);
        }
    }
    made
}

impl Stated {
    /// Appends at most `most` rows of this direction.
    fn rows(
        &self,
        counters: &FileCounters,
        multiset: Sizes,
        processes: Option<u64>,
        most: u64,
        made: &mut Reconstructed,
    ) {
        made.contradictory |= multiset.contradictory;
        let sampled = self.requests > most;
        let multiset = if sampled { multiset.sample(most) } else { multiset };
        let ranks = match counters.rank {
            Some(rank) => vec![rank],
            None => ranks_of(counters, processes, multiset.requests()),
        };
        let places = Places::of(self, &multiset, ranks.len() as u64, sampled);
        made.contradictory |= places.contradictory;
        let count = multiset.requests();
        let begin = made.rows.len();
        made.rows.reserve(count as usize);
        let base = Record {
            file: counters.file,
            api: counters.api as u8,
            op: self.op.map_or(0, |op| op as u8),
            ..Record::default()
        };
        let collective = u128::from(self.collective.min(self.requests));
        let nth = |index: u64| u128::from(index) * collective / u128::from(self.requests.max(1));
        let parts = Interleaved::new(&multiset, self.alignment);
        for (index, (place, size)) in places.walk(parts).enumerate() {
            let together = collective > 0 && nth(index as u64 + 1) > nth(index as u64);
            made.rows.push(Record {
                offset: place.offset,
                size,
                rank: ranks[place.lane as usize],
                flags: if together { flags::COLLECTIVE } else { 0 },
                ..base
            });
        }
        debug_assert_eq!(made.rows.len() - begin, count as usize);
        let rows = &mut made.rows[begin..];
        rows.sort_by_key(|row| row.rank);
        let mean_ns = self.busy_ns / self.requests.max(1);
        for own in rows.chunk_by_mut(|a, b| a.rank == b.rank) {
            if let Some(together) = places.mixed {
                mix(own, together as usize);
            }
            self.spread_in_time(own, mean_ns);
        }
    }

    /// The first begins when the direction began, the last ends when it ended, each takes the mean time where there is
    /// room for that.
    fn spread_in_time(&self, rows: &mut [Record], mean_ns: u64) {
        let window = self.end_ns - self.start_ns;
        let count = rows.len() as u64;
        let each = mean_ns.min(window / count);
        let steps = (count - 1).max(1);
        let (step, rest) = ((window - each) / steps, (window - each) % steps);
        for (index, row) in rows.iter_mut().enumerate() {
            let index = index as u64;
            row.start_ns = self.start_ns + step * index + rest * index / steps;
            row.end_ns = row.start_ns + each;
        }
    }
}

/// Brings rows out of order, `together` at a time, evenly over all of them: the next ones stand some 0.38 of them all
/// further on.
fn mix(rows: &mut [Record], together: usize) {
    let groups = rows.len().div_ceil(together);
    let mut step = (groups as f64 * 0.381_966) as usize | 1;
    while gcd(step, groups) > 1 {
        step += 2;
    }
    let before = rows.to_vec();
    let order = (0..groups).map(|index| (index as u128 * step as u128 % groups as u128) as usize);
    let moved = order.flat_map(|group| &before[group * together..((group + 1) * together).min(before.len())]);
    rows.iter_mut().zip(moved).for_each(|(row, from)| *row = *from);
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The ranks that a record of all ranks is spread over.
///
/// If `m` of `P` ranks move the same number of bytes and the others none, the variance of a rank's bytes is
/// `mean² (P/m − 1)`; so `m = P / (1 + variance / mean²)`, and P where all moved the same. They are taken evenly from
/// all ranks (as aggregators are), the slowest and the fastest among them where they moved something.
fn ranks_of(counters: &FileCounters, processes: Option<u64>, requests: u64) -> Vec<u32> {
    let prefix = prefix_of(counters.api);
    let value = |name: &str| counters.integer(&format!("{prefix}{name}")).unwrap_or(0);
    let all = processes.unwrap_or(1).clamp(1, MOST_PROCESSES);
    let bytes = (value("BYTES_READ").max(0) as f64) + (value("BYTES_WRITTEN").max(0) as f64);
    let variance = counters.float(&format!("{prefix}F_VARIANCE_RANK_BYTES")).unwrap_or(0.0);
    let mean = bytes / all as f64;
    let spread = if mean > 0.0 && variance.is_finite() && variance > 0.0 { variance / (mean * mean) } else { 0.0 };
    let active = ((all as f64 / (1.0 + spread)).round() as u64).clamp(1, all.min(requests.max(1)));
    let mut ranks: Vec<u32> = (0..active).map(|index| (index * all / active) as u32).collect();
    for name in ["SLOWEST_RANK", "FASTEST_RANK"] {
        let Ok(rank) = u32::try_from(value(name)) else { continue };
        if value(&format!("{name}_BYTES")) > 0
            && u64::from(rank) < all
            && let Err(after) = ranks.binary_search(&rank)
        {
            // In the place of its neighbour, which keeps the order.
            ranks[after.saturating_sub(1)] = rank;
        }
    }
    ranks
}

#[cfg(test)]
#[path = "reconstruct_tests.rs"]
mod tests;
