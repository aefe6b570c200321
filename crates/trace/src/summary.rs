//! [`summarise`]: a file of a trace in a few figures.

use crate::reader::Trace;
use crate::record::{Operation, Record};

/// Reads, or writes, of one file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DirectionSummary {
    /// Requests that moved bytes.
    pub requests: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Smallest request in bytes.
    pub min_bytes: u64,
    /// Median request in bytes.
    pub median_bytes: u64,
    /// Largest request in bytes.
    pub max_bytes: u64,
    /// The commonest sizes, at most four: size in bytes and requests of that size, commonest first.
    pub common_sizes: Vec<(u64, u64)>,
    /// Time in which at least one request was in flight, in seconds.
    pub busy_s: f64,
    /// Sum of the requests' times, in seconds.
    pub service_s: f64,
    /// Bytes per second of busy time.
    pub rate_bytes_per_s: f64,
    /// Mean number of requests in flight while any was.
    pub mean_concurrency: f64,
    /// Most requests in flight at once.
    pub max_concurrency: u64,
}

/// How often the bytes of one part of a file were moved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Heat {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Bytes read from it.
    pub read_bytes: u64,
    /// Bytes written to it.
    pub write_bytes: u64,
}

/// One file of a trace, or several together.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FileSummary {
    /// Index of the file, or of the first of them.
    pub file: u32,
    /// How many files these are.
    pub files: usize,
    /// Records of any kind.
    pub records: u64,
    /// Records by operation, those that occur, in order of [`Operation::ALL`].
    pub operations: Vec<(Operation, u64)>,
    /// What was read.
    pub reads: DirectionSummary,
    /// What was written.
    pub writes: DirectionSummary,
    /// Ranks that moved bytes, ascending.
    pub ranks: Vec<u32>,
    /// Programs that touched it, ascending.
    pub programs: Vec<u32>,
    /// End of the furthest byte moved.
    pub extent_bytes: u64,
    /// The file in equal parts with what was moved in each.
    pub heat: Vec<Heat>,
    /// First and last moment at which the file was touched, in nanoseconds since the start of the trace.
    pub span_ns: (u64, u64),
}

impl FileSummary {
    /// Makes the figures of a sample those of all requests that it stands for: `missing` is how many requests the sample
    /// lacks and how many bytes these move, of reads and of writes. Sizes and heat grow in proportion.
    pub fn stand_for(&mut self, missing: [(u64, u64); 2]) {
        for (of_op, (requests, bytes)) in [&mut self.reads, &mut self.writes].into_iter().zip(missing) {
            let before = (of_op.requests, of_op.bytes);
            of_op.requests = of_op.requests.saturating_add(requests);
            of_op.bytes = of_op.bytes.saturating_add(bytes);
            of_op.common_sizes.iter_mut().for_each(|(_, count)| *count = part(*count, of_op.requests, before.0));
            of_op.rate_bytes_per_s = if of_op.busy_s > 0.0 { of_op.bytes as f64 / of_op.busy_s } else { 0.0 };
        }
        let (read, written) = (missing[0].1, missing[1].1);
        for place in &mut self.heat {
            place.read_bytes = part(place.read_bytes, self.reads.bytes, self.reads.bytes - read);
            place.write_bytes = part(place.write_bytes, self.writes.bytes, self.writes.bytes - written);
        }
    }
}

/// `count` of `before` as a part of `now`.
fn part(count: u64, now: u64, before: u64) -> u64 {
    let scaled = u128::from(count) * u128::from(now) / u128::from(before.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Summarises file `id` with its extent in at most `heat_parts` equal parts (multiples of 4 KiB). O(n log n) in the
/// file's records, plus the parts that requests touch.
pub fn summarise(trace: &Trace, id: u32, heat_parts: usize) -> FileSummary {
    summarise_together(trace, &[id], heat_parts)
}

/// [`summarise`] of several files as if they were one: their heat is that of equal offsets. O(n log n) in their records.
pub fn summarise_together(trace: &Trace, ids: &[u32], heat_parts: usize) -> FileSummary {
    let all: Vec<&Record> = ids.iter().flat_map(|&id| trace.of_file(id)).collect();
    let requests: Vec<&Record> = ids.iter().flat_map(|&id| trace.requests(id)).collect();
    let of = |op: Operation| requests.iter().copied().filter(|r| r.op == op as u8).collect::<Vec<_>>();
    let extent_bytes = requests.iter().map(|record| record.end()).max().unwrap_or(0);
    FileSummary {
        file: ids.first().copied().unwrap_or(0),
        files: ids.len(),
        records: all.len() as u64,
        operations: Operation::ALL
            .into_iter()
            .map(|op| (op, all.iter().filter(|record| record.op == op as u8).count() as u64))
            .filter(|&(_, count)| count > 0)
            .collect(),
        reads: direction(&of(Operation::Read)),
        writes: direction(&of(Operation::Write)),
        ranks: distinct(requests.iter().map(|record| record.rank)),
        programs: distinct(all.iter().map(|record| record.program)),
        extent_bytes,
        heat: heat(&requests, extent_bytes, heat_parts),
        span_ns: (
            all.iter().map(|record| record.start_ns).min().unwrap_or(0),
            all.iter().map(|record| record.end_ns).max().unwrap_or(0),
        ),
    }
}

fn distinct(numbers: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn direction(requests: &[&Record]) -> DirectionSummary {
    let mut sizes: Vec<u64> = requests.iter().map(|record| record.size).collect();
    sizes.sort_unstable();
    let mut common_sizes: Vec<(u64, u64)> =
        sizes.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u64)).collect();
    common_sizes.sort_by_key(|&(size, count)| (std::cmp::Reverse(count), size));
    common_sizes.truncate(4);

    // Sweep over begins and ends; an end before a begin at the same time.
    let mut edges: Vec<(u64, i64)> = requests
        .iter()
        .flat_map(|record| [(record.start_ns, 1), (record.end_ns.max(record.start_ns.saturating_add(1)), -1)])
        .collect();
    edges.sort_unstable();
    let (mut in_flight, mut most, mut since, mut busy_ns) = (0_i64, 0_i64, 0_u64, 0_u64);
    for (at, step) in edges {
        if in_flight > 0 {
            busy_ns += at - since;
        }
        since = at;
        in_flight += step;
        most = most.max(in_flight);
    }
    let bytes = sizes.iter().fold(0_u64, |sum, &size| sum.saturating_add(size));
    let busy_s = busy_ns as f64 * 1e-9;
    let service_s = requests.iter().map(|record| (record.end_ns - record.start_ns) as f64 * 1e-9).sum::<f64>();
    DirectionSummary {
        requests: sizes.len() as u64,
        bytes,
        min_bytes: sizes.first().copied().unwrap_or(0),
        median_bytes: sizes.get(sizes.len() / 2).copied().unwrap_or(0),
        max_bytes: sizes.last().copied().unwrap_or(0),
        common_sizes,
        busy_s,
        service_s,
        rate_bytes_per_s: if busy_ns > 0 { bytes as f64 / busy_s } else { 0.0 },
        mean_concurrency: if busy_ns > 0 { service_s / busy_s } else { 0.0 },
        max_concurrency: most as u64,
    }
}

fn heat(requests: &[&Record], extent_bytes: u64, parts: usize) -> Vec<Heat> {
    if extent_bytes == 0 || parts == 0 {
        return Vec::new();
    }
    let length = extent_bytes.div_ceil(parts as u64).next_multiple_of(4096);
    let count = extent_bytes.div_ceil(length);
    let mut heat: Vec<Heat> = (0..count)
        .map(|part| Heat {
            offset: part * length,
            length: length.min(extent_bytes - part * length),
            read_bytes: 0,
            write_bytes: 0,
        })
        .collect();
    for record in requests {
        let (mut at, end) = (record.offset, record.end());
        while at < end {
            let part = at / length;
            let to = end.min((part + 1) * length);
            let place = &mut heat[part as usize];
            let bytes = if record.op == Operation::Read as u8 { &mut place.read_bytes } else { &mut place.write_bytes };
            *bytes = bytes.saturating_add(to - at);
            at = to;
        }
    }
    heat
}
