//! [`Looked`]: how each file was used, by its own rows.

use crate::requests::{below_root, is_no_file};
use crate::usage::{RankUse, RequestCounts, SMALL_BYTES, TINY_BYTES, Use};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use stripewise_trace::{Api, Operation, Record, Trace, flags};

/// Most requests of a file whose places among their process's requests are looked at; of more, some processes are.
const PLACED: usize = 1_000_000;

/// Rank, process and thread.
pub(crate) type ThreadKey = (u32, u32, u32);

/// How files were used. Of some of them or of all: parts add up, in any order.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Looked {
    /// Number in the trace, and use, of every file with records.
    pub(crate) files: Vec<(u32, Use)>,
    /// All that read or wrote, and for how many nanoseconds: whole numbers add up to the same in any order.
    pub(crate) threads: Vec<(ThreadKey, u64)>,
}

impl Looked {
    /// At the files of a trace, those below `root` where one is given. Three passes over the records.
    pub(crate) fn of(trace: &Trace, root: Option<&Path>) -> Self {
        let mut threads = HashMap::new();
        let wanted = trace.files().iter().filter(|file| {
            let is_file = !file.records.is_empty() && !is_no_file(&file.path);
            is_file && root.is_none_or(|root| below_root(&file.path, root).is_some())
        });
        let known = trace.processes().iter().filter(|process| !process.host.is_empty());
        let hosts: HashMap<u32, &str> = known.map(|process| (process.rank, process.host.as_str())).collect();
        let files = wanted.map(|file| (file.id, used(trace, file.id, &hosts, &mut threads))).collect();
        Self { files, threads: threads.into_iter().collect() }
    }

    /// Adds what other files were used for.
    pub(crate) fn join(&mut self, other: Self) {
        self.files.extend(other.files);
        self.threads.extend(other.threads);
    }

    /// The whole, after the last part: in order.
    pub(crate) fn finished(mut self) -> Self {
        self.files.sort_unstable_by_key(|(id, _)| *id);
        self.threads.sort_by_key(|(thread, _)| *thread);
        self.threads.dedup_by(|next, first| {
            let same = next.0 == first.0;
            first.1 = first.1.saturating_add(if same { next.1 } else { 0 });
            same
        });
        self
    }
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
            // One row for each end that is a file: a copy counts where it is written.
            Some(Operation::KernelCopy)
                if record.flags & (flags::FAILED | flags::KERNEL_WRITE) == flags::KERNEL_WRITE =>
            {
                used.copied_bytes = used.copied_bytes.saturating_add(record.size);
            }
            Some(Operation::Stat) => {
                used.stats += 1;
                used.meta_s += took_s;
            }
            Some(Operation::Close | Operation::Unlink | Operation::Rename | Operation::SetAttributes) => {
                used.meta_s += took_s;
            }
            Some(Operation::Read | Operation::Write) if record.api() == Some(Api::MpiIo) => {
                let write = record.operation() == Some(Operation::Write);
                let asked = if write { &mut used.asked.writes } else { &mut used.asked.reads };
                if record.flags & flags::COLLECTIVE != 0 {
                    asked.collective += 1;
                } else {
                    asked.independent += 1;
                }
                asked.nonblocking += u64::from(record.flags & flags::NONBLOCKING != 0);
                asked.bytes = asked.bytes.saturating_add(record.size);
            }
            Some(Operation::Read | Operation::Write) if record.size == 0 && record.flags & flags::FAILED == 0 => {
                used.empty_and_single.0 += 1;
            }
            _ => {}
        }
    }
    used
}

/// How a file was used, by its rows. O(records log records).
fn used(trace: &Trace, id: u32, hosts: &HashMap<u32, &str>, threads: &mut HashMap<ThreadKey, u64>) -> Use {
    let mut used = used_meta(trace, id);
    let mut count = 0_usize;
    // Most requests are of the same thread as the one before.
    let mut last: Option<(ThreadKey, u64)> = None;
    let mut pids = HashSet::new();
    for record in trace.stream(id) {
        count += 1;
        let thread = (record.rank, record.pid, record.tid);
        let took_ns = record.end_ns.saturating_sub(record.start_ns);
        let took_s = took_ns as f64 * 1e-9;
        match &mut last {
            Some((same, busy_ns)) if *same == thread => *busy_ns = busy_ns.saturating_add(took_ns),
            _ => {
                pids.insert((record.rank, record.pid));
                if let Some((done, busy_ns)) = last.replace((thread, took_ns)) {
                    add(threads, done, busy_ns);
                }
            }
        }
        if record.api() == Some(Api::Stdio) {
            used.stdio_bytes = used.stdio_bytes.saturating_add(record.size);
        }
        used.empty_and_single.1 += u64::from(record.size == 1);
        let requests = of(&mut used, record);
        *requests = counted_one(*requests, record.size, took_s);
        used.end = used.end.max(record.offset.saturating_add(record.size));
        used.took(record.start_ns as f64 * 1e-9, record.end_ns as f64 * 1e-9);
        let rank = used.ranks.entry(record.rank).or_default();
        let written = if record.operation() == Some(Operation::Write) { record.size } else { 0 };
        *rank = RankUse {
            bytes: rank.bytes.saturating_add(record.size),
            written_bytes: rank.written_bytes.saturating_add(written),
            busy_s: rank.busy_s + took_s,
        };
    }
    if let Some((done, busy_ns)) = last {
        add(threads, done, busy_ns);
    }
    used.sharers = used.ranks.len();
    used.processes = pids.len();
    used.find_movers(hosts);
    place(&mut used, trace, id, count);
    used
}

fn add(threads: &mut HashMap<ThreadKey, u64>, thread: ThreadKey, busy_ns: u64) {
    let of = threads.entry(thread).or_default();
    *of = of.saturating_add(busy_ns);
}

fn of<'u>(used: &'u mut Use, record: &Record) -> &'u mut RequestCounts {
    if record.operation() == Some(Operation::Write) { &mut used.writes } else { &mut used.reads }
}

fn counted_one(before: RequestCounts, size: u64, took_s: f64) -> RequestCounts {
    RequestCounts {
        count: before.count + 1,
        bytes: before.bytes.saturating_add(size),
        tiny: before.tiny + u64::from(size < TINY_BYTES),
        small: before.small + u64::from(size < SMALL_BYTES),
        busy_s: before.busy_s + took_s,
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
    // An append to a file of unknown length has no place.
    let placed = trace.stream(id).filter(|record| record.flags & flags::OFFSET_UNKNOWN == 0);
    let mut requests: Vec<&Record> = placed.filter(looked_at).take(4 * PLACED).collect();
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
