//! The requests of a plan in the form that its inner loops price: grouped, cut into chunks, sampled when too many.

use crate::error::PlanError;
use crate::job::concurrency::processes_in_flight;
use crate::job::input::{FileTrace, PlanOptions};
use crate::job::phases::{self, Moment};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use stripewise_layout::MAX_OFFSET;
use stripewise_model::Op;

/// Requests of one phase with the same operation, offset and size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct RequestGroup {
    pub offset: u64,
    pub size: u64,
    pub op: Op,
    pub phase: u16,
    /// How many they are; more than there are in the sample when the trace was sampled.
    pub count: f64,
}

/// The part of an entry that a chunk pays for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct GroupShare {
    /// Index into [`FileDemand::entries`].
    pub entry: u32,
    /// Count times the share of the entry's bytes that lie in the chunk.
    pub weight: f64,
}

/// One file.
#[derive(Debug, Clone)]
pub(crate) struct FileDemand {
    /// Bytes that the file has: what space limits are held against. Of a group of files: those of the largest.
    pub extent: u64,
    /// Bytes of a file, and how many such files there are, ascending: one file, or all of a group.
    pub extents: Vec<(u64, u64)>,
    /// In order of offset.
    pub entries: Vec<RequestGroup>,
    /// Nothing tells one part of it from another: then it is one chunk, and has one region.
    pub is_even: bool,
    /// First byte of each chunk, and the end of the last one.
    pub edges: Vec<u64>,
    parts: Vec<GroupShare>,
    /// Parts of chunk `c`: `parts[part_ends[c]..part_ends[c + 1]]`.
    part_ends: Vec<usize>,
}

impl RequestGroup {
    /// Puts entries in order of offset and makes equal ones one. O(n log n).
    pub(crate) fn unite(entries: &mut Vec<RequestGroup>) {
        let key = |e: &RequestGroup| (e.offset, e.size, e.op, e.phase);
        // By count, too: sums are then the same whatever the order was.
        entries.sort_unstable_by(|a, b| key(a).cmp(&key(b)).then(a.count.total_cmp(&b.count)));
        entries.dedup_by(|next, kept| {
            let same = key(next) == key(kept);
            kept.count += if same { next.count } else { 0.0 };
            same
        });
    }

    /// The entry with the count of the share of its bytes in `[from, to)`: what a region is charged for.
    pub(crate) fn clipped(&self, from: u64, to: u64) -> Option<Self> {
        let inside = (self.offset + self.size).min(to).saturating_sub(self.offset.max(from));
        (inside > 0).then(|| Self { count: self.count * inside as f64 / self.size as f64, ..*self })
    }
}

impl FileDemand {
    pub(crate) fn chunks(&self) -> usize {
        self.edges.len() - 1
    }

    /// What falls on consecutive chunks. O(1).
    pub(crate) fn parts(&self, chunks: Range<usize>) -> &[GroupShare] {
        &self.parts[self.part_ends[chunks.start]..self.part_ends[chunks.end]]
    }

    /// Makes it one chunk, as nothing tells its parts apart. O(entries).
    pub(crate) fn make_even(&mut self) {
        self.is_even = true;
        let end = *self.edges.last().expect("a file has edges");
        self.edges = vec![0, end];
        let whole = |(entry, e): (usize, &RequestGroup)| GroupShare { entry: entry as u32, weight: e.count };
        self.parts = self.entries.iter().enumerate().map(whole).collect();
        self.part_ends = vec![0, self.parts.len()];
    }

    /// Gives every entry another count; parts without any are dropped.
    fn recount(&mut self, counts: &[f64]) {
        let mut parts = Vec::with_capacity(self.parts.len());
        let mut part_ends = vec![0];
        for chunk in 0..self.chunks() {
            let counted = self.parts(chunk..chunk + 1).iter().map(|part| {
                let entry = part.entry as usize;
                GroupShare { weight: part.weight * counts[entry] / self.entries[entry].count, ..*part }
            });
            parts.extend(counted.filter(|part| part.weight > 0.0));
            part_ends.push(parts.len());
        }
        (self.parts, self.part_ends) = (parts, part_ends);
        self.entries.iter_mut().zip(counts).for_each(|(e, &count)| e.count = count);
    }

    /// Bytes of the file in `[from, to)`, as a range.
    pub(crate) fn present(&self, from: u64, to: u64) -> Range<u64> {
        from.min(self.extent)..to.min(self.extent)
    }

    /// What the files have of `[from, to)`, and how many of them have that. O(1) each.
    pub(crate) fn each_present(&self, from: u64, to: u64) -> impl Iterator<Item = (Range<u64>, u64)> {
        self.extents.iter().map(move |&(extent, files)| (from.min(extent)..to.min(extent), files))
    }

    /// Bytes that all files have in `[from, to)`.
    pub(crate) fn present_bytes(&self, from: u64, to: u64) -> u64 {
        let bytes = self.each_present(from, to).map(|(range, files)| (range.end - range.start).saturating_mul(files));
        bytes.fold(0, u64::saturating_add)
    }
}

/// One phase of the program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PhaseDemand {
    /// Processes with a request in flight (`p`).
    pub processes: f64,
    pub requests: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

/// A sample in place of all requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DemandSample {
    pub kept: usize,
    pub of: usize,
}

/// Everything that is to be served.
#[derive(Debug, Clone)]
pub(crate) struct Demand {
    pub files: Vec<FileDemand>,
    pub phases: Vec<PhaseDemand>,
    /// Where phases meet, in seconds.
    pub cuts_s: Vec<f64>,
    pub sample: Option<DemandSample>,
}

impl Demand {
    /// Bytes of all files.
    pub(crate) fn bytes(&self) -> u128 {
        let of = |&(extent, files): &(u64, u64)| u128::from(extent) * u128::from(files);
        self.files.iter().flat_map(|file| &file.extents).map(of).sum()
    }

    /// The requests dealt to two halves by chance, each request counted twice: both halves expect the heat and the time
    /// of the whole, but what chance made hot in one is not hot in the other. Files, chunks and phases are those of the
    /// whole. O(requests / 64 + parts).
    pub(crate) fn halves(&self) -> [Self; 2] {
        // A sampled request stands for as many as the lightest: those share one coin, as what is not one request does.
        let counts = self.files.iter().flat_map(|file| &file.entries).map(|e| e.count);
        let unit = counts.fold(f64::INFINITY, f64::min).max(1.0);
        let mut coins = Coins(1);
        let mut halves = [self.clone(), self.clone()];
        for (index, file) in self.files.iter().enumerate() {
            let heads = file.entries.iter().map(|e| coins.heads((e.count / unit).round() as u64) as f64 * unit);
            let heads: Vec<f64> = heads.map(|count| 2.0 * count).collect();
            let tails: Vec<f64> = file.entries.iter().zip(&heads).map(|(e, heads)| 2.0 * e.count - heads).collect();
            for (half, counts) in halves.iter_mut().zip([heads, tails]) {
                half.files[index].recount(&counts);
            }
        }
        halves
    }

    /// Checks and groups the requests. O(n log n); memory O(n) while it runs, O(limits of the options) after.
    pub(crate) fn new(files: &[FileTrace], options: &PlanOptions) -> Result<Self, PlanError> {
        let mut moments = Vec::new();
        for (index, file) in files.iter().enumerate() {
            for r in file.requests {
                if r.offset.checked_add(r.size).is_none_or(|end| end > MAX_OFFSET + 1) {
                    return Err(PlanError::BeyondEnd { file: file.name.clone(), offset: r.offset, size: r.size });
                }
                if r.size > 0 {
                    moments.push(Moment { start_s: time(r.start_s), place: (index as u32, r.offset), op: r.op });
                }
            }
        }
        let found = phases::find(&moments, options.max_phases.max(1));
        drop(moments);
        let (mut entries, phases) = group(files, &found, options);
        let total: usize = entries.iter().map(Vec::len).sum();
        let kept = options.max_entries.max(1);
        let sample = if files.len() > FEW_FILES {
            sample_each(&mut entries, total, kept.max(PER_FILE * files.len()))
        } else {
            (total > kept).then(|| DemandSample { kept: sample(&mut entries, kept), of: total })
        };
        let extents = files.iter().map(extent).collect();
        Ok(Self::assemble(extents, entries, phases, found.cuts_s, sample, options))
    }

    /// Puts together what was found of each file, cut into chunks. O(parts log parts).
    pub(crate) fn assemble(
        extents: Vec<u64>,
        entries: Vec<Vec<RequestGroup>>,
        phases: Vec<PhaseDemand>,
        cuts_s: Vec<f64>,
        sample: Option<DemandSample>,
        options: &PlanOptions,
    ) -> Self {
        let budgets = chunk_budgets(&entries, options.max_chunks.max(1));
        let files = extents.into_iter().zip(entries).zip(budgets);
        let files = files.map(|((extent, entries), budget)| cut(extent, entries, budget)).collect();
        Self { files, phases, cuts_s, sample }
    }
}

/// Fair coins, the same on every run (SplitMix64).
struct Coins(u64);

impl Coins {
    /// How many of `n` fall heads. O(n / 64).
    fn heads(&mut self, n: u64) -> u64 {
        let word = |left: u64| {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let kept = if left >= 64 { u64::MAX } else { (1 << left) - 1 };
            u64::from(((z ^ (z >> 31)) & kept).count_ones())
        };
        (0..n.div_ceil(64)).map(|at| n - 64 * at).map(word).sum()
    }
}

/// A time that can be ordered and subtracted: what is no number counts as 0.
pub(crate) fn time(seconds: f64) -> f64 {
    if seconds.is_finite() { seconds } else { 0.0 }
}

/// Bytes that the file has: its size, or what was written beyond it; without a size, the last byte of any request.
fn extent(file: &FileTrace) -> u64 {
    let end = |any: bool| {
        let counts = file.requests.iter().filter(|r| r.size > 0 && (any || r.op == Op::Write));
        counts.map(|r| r.offset + r.size).max().unwrap_or(0)
    };
    file.size_bytes.map_or_else(|| end(true), |size| size.max(end(false)))
}

/// Entries per file in order of (offset, size, operation, phase), and the phases.
fn group(
    files: &[FileTrace],
    found: &phases::Phases,
    options: &PlanOptions,
) -> (Vec<Vec<RequestGroup>>, Vec<PhaseDemand>) {
    let mut phases = vec![PhaseDemand::default(); found.count];
    let mut spans = vec![Vec::new(); found.count];
    let mut at = 0;
    let entries = files.iter().map(|file| {
        let mut entries: Vec<RequestGroup> = Vec::with_capacity(file.requests.len());
        for r in file.requests.iter().filter(|r| r.size > 0) {
            let phase = found.of[at];
            at += 1;
            let of = &mut phases[usize::from(phase)];
            of.requests += 1;
            match r.op {
                Op::Read => of.read_bytes = of.read_bytes.saturating_add(r.size),
                Op::Write => of.written_bytes = of.written_bytes.saturating_add(r.size),
            }
            spans[usize::from(phase)].push((r.process, time(r.start_s), time(r.end_s)));
            entries.push(RequestGroup { offset: r.offset, size: r.size, op: r.op, phase, count: 1.0 });
        }
        RequestGroup::unite(&mut entries);
        entries
    });
    let entries = entries.collect();
    for (phase, spans) in phases.iter_mut().zip(&mut spans) {
        phase.processes = options.processes.unwrap_or_else(|| processes_in_flight(spans)).max(1.0);
    }
    (entries, phases)
}

/// Up to this many files are planned one by one.
pub(crate) const FEW_FILES: usize = 64;

/// Entries of a file to keep on the mean where files are many.
const PER_FILE: usize = 4;

/// [`sample`] of each file for itself, when there are more than `most` of `total` entries: every file keeps some, and
/// its share of the requests.
fn sample_each(entries: &mut [Vec<RequestGroup>], total: usize, most: usize) -> Option<DemandSample> {
    if total <= most {
        return None;
    }
    let requests: f64 = entries.iter().flatten().map(|e| e.count).sum();
    let of_file = |file: &mut Vec<RequestGroup>| {
        let share = file.iter().map(|e| e.count).sum::<f64>() / requests;
        let budget = (most as f64 * share).ceil().max(1.0) as usize;
        if file.len() <= budget { file.len() } else { sample(std::slice::from_mut(file), budget) }
    };
    Some(DemandSample { kept: entries.iter_mut().map(of_file).sum(), of: total })
}

/// Systematic sample with probability proportional to count, in the order (file, offset): places keep their share of
/// the requests, and the counts add up to what they were. Gives the number of entries kept.
pub(crate) fn sample(entries: &mut [Vec<RequestGroup>], most: usize) -> usize {
    let total: f64 = entries.iter().flatten().map(|e| e.count).sum();
    let step = total / most as f64;
    let (mut seen, mut next, mut kept) = (0.0, step * 0.5, 0);
    for file in entries {
        file.retain_mut(|entry| {
            seen += entry.count;
            let hits = if seen > next { ((seen - next) / step).ceil() } else { 0.0 };
            next += hits * step;
            entry.count = hits * step;
            kept += usize::from(hits > 0.0);
            hits > 0.0
        });
    }
    kept
}

/// Chunks that each file may have: in proportion to its entries, at least one.
fn chunk_budgets(entries: &[Vec<RequestGroup>], most: usize) -> Vec<usize> {
    let total = entries.iter().map(Vec::len).sum::<usize>().max(1);
    entries.iter().map(|file| (most * file.len()).div_ceil(total).max(1)).collect()
}

/// Smallest chunk.
const LEAST_GRANULE: u64 = 64 << 10;

/// Cuts a file at multiples of a granule, a power of two: each granule that a request touches is a chunk, the
/// untouched ones between them are one together. The granule is the smallest that keeps to the budget and above the
/// median request.
fn cut(extent: u64, entries: Vec<RequestGroup>, budget: usize) -> FileDemand {
    let mut sizes: Vec<u64> = entries.iter().map(|e| e.size).collect();
    sizes.sort_unstable();
    let median = sizes.get(sizes.len() / 2).copied().unwrap_or(0);
    let mut granule = median.max(LEAST_GRANULE).next_power_of_two();
    let mut edges = edges(extent, &entries, granule, budget);
    while edges.len() > budget.max(1) + 1 && granule < 1 << 62 {
        granule *= 2;
        edges = self::edges(extent, &entries, granule, budget);
    }
    let mut parts: Vec<(usize, GroupShare)> = Vec::with_capacity(entries.len());
    for (index, e) in entries.iter().enumerate() {
        let end = e.offset + e.size;
        let mut chunk = edges.partition_point(|&edge| edge <= e.offset) - 1;
        while chunk + 1 < edges.len() && edges[chunk] < end {
            let inside = end.min(edges[chunk + 1]) - e.offset.max(edges[chunk]);
            let weight = e.count * inside as f64 / e.size as f64;
            parts.push((chunk, GroupShare { entry: index as u32, weight }));
            chunk += 1;
        }
    }
    parts.sort_by_key(|&(chunk, _)| chunk);
    let part_ends = (0..edges.len()).map(|chunk| parts.partition_point(|&(of, _)| of < chunk)).collect();
    FileDemand {
        extent,
        extents: vec![(extent, 1)],
        entries,
        is_even: false,
        edges,
        parts: parts.into_iter().map(|(_, part)| part).collect(),
        part_ends,
    }
}

/// The edges for one granule; stops soon after `budget`.
fn edges(extent: u64, entries: &[RequestGroup], granule: u64, budget: usize) -> Vec<u64> {
    let touched = entries.iter().map(|e| e.offset + e.size).max().unwrap_or(0);
    let end = extent.max(touched).max(1);
    let mut edges = vec![0];
    let mut until = 0;
    for e in entries {
        let first = e.offset / granule * granule;
        if first > until {
            // Untouched bytes are one chunk.
            edges.push(first);
            until = first;
        }
        while until < e.offset + e.size && edges.len() <= budget + 2 {
            until = until.saturating_add(granule).min(end);
            edges.push(until);
        }
    }
    if until < end {
        edges.push(end);
    }
    edges.dedup();
    edges
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_model::Request;

    fn request(offset: u64, size: u64, op: Op) -> Request {
        Request { offset, size, op, process: 0, start_s: 0.0, end_s: 0.0 }
    }

    fn demand(requests: &[Request], size_bytes: Option<u64>, options: &PlanOptions) -> Demand {
        Demand::new(&[FileTrace { name: "f".into(), requests, size_bytes }], options).unwrap()
    }

    #[test]
    fn equal_requests_are_one_entry_and_chunks_hold_all_of_them() {
        let mut requests = vec![request(0, 1 << 16, Op::Read); 10];
        requests.extend([request(1 << 20, 3 << 16, Op::Write), request(5, 0, Op::Read)]);
        let demand = demand(&requests, None, &PlanOptions::default());
        let file = &demand.files[0];
        assert_eq!(file.entries.len(), 2);
        assert_eq!(file.entries[0].count, 10.0);
        assert_eq!(file.extent, (1 << 20) + (3 << 16));
        // Granule 256 KiB: the first, the untouched ones, the last.
        assert_eq!(file.edges, vec![0, 1 << 18, 1 << 20, (1 << 20) + (3 << 16)]);
        let weights: f64 = file.parts(0..file.chunks()).iter().map(|part| part.weight).sum();
        assert!((weights - 11.0).abs() < 1e-12);
        assert!(file.parts(1..2).is_empty());
    }

    #[test]
    fn a_request_is_shared_by_the_chunks_that_it_covers() {
        let requests =
            [request(0, 1 << 16, Op::Read), request(1 << 16, 1 << 16, Op::Read), request(1 << 15, 1 << 16, Op::Read)];
        let demand = demand(&requests, None, &PlanOptions::default());
        let file = &demand.files[0];
        let weight = |chunk: usize| file.parts(chunk..chunk + 1).iter().map(|part| part.weight).sum::<f64>();
        assert_eq!((file.chunks(), weight(0), weight(1)), (2, 1.5, 1.5));
    }

    #[test]
    fn extents_follow_sizes_and_writes_and_not_reads_beyond_the_end() {
        let requests = [request(1 << 40, 8, Op::Read), request(100, 50, Op::Write)];
        assert_eq!(demand(&requests, Some(120), &PlanOptions::default()).files[0].extent, 150);
        assert_eq!(demand(&requests, Some(1000), &PlanOptions::default()).files[0].extent, 1000);
        assert_eq!(demand(&requests, None, &PlanOptions::default()).files[0].extent, (1 << 40) + 8);
    }

    #[test]
    fn budgets_bound_chunks_and_entries_wherever_the_requests_are() {
        let options = PlanOptions { max_chunks: 64, max_entries: 500, ..PlanOptions::default() };
        let requests: Vec<Request> =
            (0..5000_u64).map(|i| request(i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 2, 4096, Op::Read)).collect();
        let demand = demand(&requests, None, &options);
        let file = &demand.files[0];
        assert!(file.chunks() <= 66, "{}", file.chunks());
        assert_eq!(demand.sample.map(|s| s.of), Some(5000));
        assert!((450..=500).contains(&demand.sample.unwrap().kept));
        let count: f64 = file.entries.iter().map(|e| e.count).sum();
        assert!((count - 5000.0).abs() < 5000.0 / 500.0 + 1e-6);
    }

    #[test]
    fn halves_share_what_is_asked_for_often_and_not_what_is_asked_for_once() {
        let mut requests = vec![request(0, 1 << 16, Op::Read); 1000];
        requests.extend((1..1001).map(|i| request(i << 16, 1 << 16, Op::Read)));
        let whole = demand(&requests, None, &PlanOptions { max_chunks: 2000, ..PlanOptions::default() });
        let halves = whole.halves();
        let weight = |half: &Demand, chunk: usize| {
            half.files[0].parts(chunk..chunk + 1).iter().map(|part| part.weight).sum::<f64>()
        };
        for half in &halves {
            assert_eq!(half.files[0].edges, whole.files[0].edges);
            assert!((weight(half, 0) - 1000.0).abs() < 200.0, "{}", weight(half, 0));
        }
        for chunk in 0..1001 {
            let of = halves.each_ref().map(|half| weight(half, chunk));
            assert_eq!(of[0] + of[1], 2.0 * weight(&whole, chunk));
            assert!(chunk == 0 || of.contains(&0.0));
        }
        let first = (1..1001).filter(|&chunk| weight(&halves[0], chunk) > 0.0).count();
        assert!((400..600).contains(&first), "{first}");
    }

    #[test]
    fn requests_beyond_the_largest_offset_are_refused() {
        let requests = [request(u64::MAX, 2, Op::Read)];
        let files = [FileTrace { name: "f".into(), requests: &requests, size_bytes: None }];
        let error = Demand::new(&files, &PlanOptions::default()).unwrap_err();
        assert!(error.to_string().contains("f: "), "{error}");
    }
}
