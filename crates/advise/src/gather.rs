//! From a log to the files that advice is given on: what each was asked for, and how it was used.

use crate::counted;
use crate::requests::{Below, below_root, common_directory};
use crate::usage::{RankUse, Requests, SMALL_BYTES, TINY_BYTES, Use};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use stripewise_import::{About, FileCounters, Lacks};
use stripewise_layout::Layout;
use stripewise_model::{Op, Request};
use stripewise_planner::RequestSource;
use stripewise_trace::{Api, Operation, Process, Record, Trace, flags};

/// Most requests of a file whose places among their process's requests are looked at; of more, some processes are.
const PLACED: usize = 1_000_000;

/// A file to give advice on.
#[derive(Debug, Clone)]
pub(crate) struct File {
    /// Its number in the trace.
    pub id: u32,
    /// Path below the root.
    pub path: String,
    /// How it was used.
    pub used: Use,
    /// Only counters are known of it: its requests are made up.
    pub counted: bool,
}

/// The files of a log, in order of path.
pub(crate) struct Gathered<'a> {
    pub root: PathBuf,
    pub files: Vec<File>,
    pub below: Below<'a>,
    /// Use of all files (below the root that was given), those that move next to nothing included.
    pub all: Use,
    /// Files of the log that advice is not given on, since they move next to nothing.
    pub left_out: usize,
}

impl<'a> Gathered<'a> {
    /// Two passes over the records. With a root `given` only files below it.
    pub(crate) fn new(trace: &'a Trace, about: &About, given: Option<&Path>) -> Self {
        let mut counters: HashMap<u32, Vec<&FileCounters>> = HashMap::new();
        for of_file in &about.counters {
            counters.entry(of_file.file).or_default().push(of_file);
        }
        let root = given.map_or_else(|| common_directory(trace), Path::to_owned);
        let below = Below::new(trace, &root);
        let mut files: Vec<File> = Vec::new();
        for (id, path) in &below.files {
            let of = counters.get(id).map_or(&[][..], Vec::as_slice);
            let counted = about.lacks.contains(Lacks::COUNTERS_ONLY) && counted::alone(of);
            let used = if counted { counted::used(of) } else { used(trace, *id) };
            files.push(File { id: *id, path: path.clone(), used, counted });
        }
        // What rows do not show, counters may: opens, and whether calls were collective.
        for file in &mut files {
            let of = counters.get(&file.id).map_or(&[][..], Vec::as_slice);
            let no_metadata = about.lacks.contains(Lacks::METADATA) || file.counted;
            counted::complete(&mut file.used, of, no_metadata);
        }
        let mut all = Use::default();
        let mut known = HashSet::new();
        for file in &files {
            known.insert(file.id);
            all.add(&file.used);
        }
        let mut left_out = 0;
        for file in trace.files() {
            if known.contains(&file.id) || given.is_some_and(|root| below_root(&file.path, root).is_none()) {
                continue;
            }
            let mut used = used_meta(trace, file.id);
            let of = counters.get(&file.id).map_or(&[][..], Vec::as_slice);
            counted::complete(&mut used, of, about.lacks.contains(Lacks::METADATA));
            left_out += usize::from(used.opens > 0 || !file.records.is_empty());
            all.add(&used);
        }
        if about.lacks.contains(Lacks::RANKS) || !has_ranks(trace.processes()) {
            all.ranks.clear();
            files.iter_mut().for_each(|file| file.used.ranks.clear());
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Self { root, files, below, all, left_out }
    }

    /// Requests of all files.
    pub(crate) fn requests(&self) -> u64 {
        self.below.requests
    }

    /// The requests of each file, all of them. O(records).
    pub(crate) fn held(&self) -> Vec<Vec<Request>> {
        let mut held = vec![Vec::new(); self.files.len()];
        self.visit(&mut |file, request| held[file].push(*request));
        held
    }
}

impl RequestSource for Gathered<'_> {
    fn visit(&self, visit: &mut dyn FnMut(usize, &Request)) {
        let index: HashMap<u32, usize> = self.files.iter().enumerate().map(|(at, file)| (file.id, at)).collect();
        let of_below: Vec<Option<usize>> = self.below.files.iter().map(|(id, _)| index.get(id).copied()).collect();
        self.below.visit(&mut |file, request| {
            if let Some(at) = of_below[file] {
                visit(at, request);
            }
        });
    }
}

/// Whether ranks tell processes apart: several processes that all have rank 0 are of no parallel program.
fn has_ranks(processes: &[Process]) -> bool {
    processes.len() < 2 || processes.iter().any(|process| process.rank != 0)
}

/// Opens and the like of a file: what its rows other than reads and writes show.
fn used_meta(trace: &Trace, id: u32) -> Use {
    let mut used = Use::default();
    for record in trace.of_file(id) {
        let took_s = record.end_ns.saturating_sub(record.start_ns) as f64 * 1e-9;
        match record.operation() {
            Some(Operation::Open) if record.api() != Some(Api::MpiIo) => {
                used.opens += 1;
                used.meta_s += took_s;
            }
            Some(Operation::Stat) => {
                used.stats += 1;
                used.meta_s += took_s;
            }
            Some(Operation::Close | Operation::Unlink | Operation::Rename | Operation::SetAttributes) => {
                used.meta_s += took_s;
            }
            Some(Operation::Read | Operation::Write) if record.api() == Some(Api::MpiIo) => {
                if record.flags & flags::COLLECTIVE != 0 {
                    used.collective += 1;
                } else {
                    used.independent += 1;
                }
            }
            _ => {}
        }
    }
    used
}

/// How a file was used, by its rows. O(records log records).
fn used(trace: &Trace, id: u32) -> Use {
    let mut used = used_meta(trace, id);
    let mut count = 0_usize;
    for record in trace.stream(id) {
        count += 1;
        let requests = of(&mut used, record);
        *requests = counted_one(*requests, record.size);
        used.end = used.end.max(record.offset.saturating_add(record.size));
        used.took(record.start_ns as f64 * 1e-9, record.end_ns as f64 * 1e-9);
        let rank = used.ranks.entry(record.rank).or_default();
        *rank = RankUse {
            bytes: rank.bytes.saturating_add(record.size),
            busy_s: rank.busy_s + record.end_ns.saturating_sub(record.start_ns) as f64 * 1e-9,
        };
    }
    used.sharers = used.ranks.len();
    place(&mut used, trace, id, count);
    used
}

fn of<'u>(used: &'u mut Use, record: &Record) -> &'u mut Requests {
    if record.operation() == Some(Operation::Write) { &mut used.writes } else { &mut used.reads }
}

fn counted_one(before: Requests, size: u64) -> Requests {
    Requests {
        count: before.count + 1,
        bytes: before.bytes.saturating_add(size),
        tiny: before.tiny + u64::from(size < TINY_BYTES),
        small: before.small + u64::from(size < SMALL_BYTES),
        ..before
    }
}

/// Where requests begin after those of the same thread and operation before them. O(n log n) for the requests looked at.
fn place(used: &mut Use, trace: &Trace, id: u32, count: usize) {
    // Some threads, with all that they did, where there are too many requests.
    let every = count.div_ceil(PLACED).max(1) as u32;
    let looked_at = |record: &&Record| {
        let thread = record.rank.wrapping_mul(31).wrapping_add(record.pid).wrapping_mul(31).wrapping_add(record.tid);
        thread.wrapping_mul(0x9e37_79b9) / (u32::MAX / every).max(1) == 0
    };
    let mut requests: Vec<&Record> = trace.stream(id).filter(looked_at).take(4 * PLACED).collect();
    let thread = |record: &Record| (record.rank, record.pid, record.tid, record.op);
    requests.sort_by_key(|record| (thread(record), record.start_ns));
    for pair in requests.windows(2) {
        let (last, next) = (pair[0], pair[1]);
        if thread(last) != thread(next) {
            continue;
        }
        let end = last.offset.saturating_add(last.size);
        let requests = of(used, next);
        requests.placed += 1;
        requests.consecutive += u64::from(next.offset == end);
        requests.backward += u64::from(next.offset < end);
        requests.skipping += u64::from(next.offset > end);
    }
}

/// Counts the requests of each file that touch more servers than their size needs under `layouts`.
pub(crate) fn count_unaligned(gathered: &mut Gathered, layouts: &[Layout], sample: &[Vec<Request>]) {
    for ((file, layout), requests) in gathered.files.iter_mut().zip(layouts).zip(sample) {
        let mut found = [(0_u64, 0_u64); 2];
        for request in requests {
            let region = &layout.regions()[layout.region_at(request.offset)];
            let width = region.stripes().iter().map(|stripe| stripe.width_bytes).max().unwrap_or(1);
            let of = &mut found[usize::from(request.op == Op::Write)];
            of.0 += 1;
            let needed = request.size.div_ceil(width).max(1);
            of.1 += u64::from(layout.split(request.offset, request.size).len() as u64 > needed);
        }
        // The sample stands for all.
        let of_all = |(seen, unaligned): (u64, u64), count: u64| {
            if seen == 0 { 0 } else { (unaligned as f64 / seen as f64 * count as f64).round() as u64 }
        };
        file.used.reads.unaligned = of_all(found[0], file.used.reads.count);
        file.used.writes.unaligned = of_all(found[1], file.used.writes.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, rank: u32) -> Process {
        Process {
            program: 0,
            rank,
            pid,
            parent_pid: 0,
            host: String::new(),
            command: String::new(),
            start_ns: 0,
            records: 1,
            holes: 0,
            dropped: 0,
            names_dropped: 0,
        }
    }

    #[test]
    fn processes_of_a_shell_script_have_no_ranks() {
        assert!(!has_ranks(&[process(7, 0), process(8, 0), process(9, 0)]));
        assert!(has_ranks(&[process(7, 0), process(8, 1)]));
        assert!(has_ranks(&[process(7, 0)]), "rank 0 of a job may do everything");
    }
}
