//! [`RequestOrder`]: the requests of one file of a trace by process, each process's in order of start, in bounded
//! memory.
//!
//! A trace is in order of offset. Its requests are brought into order of time window by window: a pass over the file
//! for each stretch of time that has as many requests as may be held.

use crate::access::{Access, AccessOp};
use hashbrown::HashMap;
use rayon::prelude::*;
use stripewise_trace::{Operation, Record, Trace, flags};

/// Requests that are held at once, at 44 bytes each: some 370 MB.
pub(crate) const HELD: usize = 1 << 23;
/// Equal stretches of time that a file's requests are counted by, to part them into windows.
const BINS: usize = 1 << 14;

/// The process that made a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestProcess {
    /// Number in [`Trace::programs`].
    pub program: u32,
    /// Rank in its program.
    pub rank: u32,
    /// Process id; 0 where the log has none.
    pub pid: u32,
}

/// One request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestRow {
    pub start_ns: u64,
    pub end_ns: u64,
    offset: u64,
    size_bytes: u64,
    /// Index in [`RequestOrder::processes`].
    process: u32,
    /// Twice its place among the rows of the window, in order of the trace; one more if it writes.
    place: u32,
}

impl RequestRow {
    pub fn access(&self) -> Access {
        let op = if self.place & 1 == 1 { AccessOp::Write } else { AccessOp::Read };
        Access { op, offset: self.offset, size_bytes: self.size_bytes }
    }
}

/// How the requests of a file are taken; see the module's text.
pub(crate) struct RequestOrder<'a> {
    trace: &'a Trace,
    file: u32,
    held: usize,
    /// In order; those with a request at a known offset.
    pub processes: Vec<RequestProcess>,
    numbers: HashMap<RequestProcess, u32>,
    /// First and last start of each, in nanoseconds.
    windows: Vec<(u64, u64)>,
    /// Requests at known offsets.
    pub requests: u64,
    /// Requests whose offset the log does not have; they are left out.
    pub unknown_offsets: u64,
}

fn process_of(record: &Record) -> RequestProcess {
    RequestProcess { program: record.program, rank: record.rank, pid: record.pid }
}

impl<'a> RequestOrder<'a> {
    /// O(records), once more for each window that holds more than `held` requests of one bin.
    pub fn new(trace: &'a Trace, file: u32, held: usize) -> Self {
        let mut order = Self {
            trace,
            file,
            held,
            processes: Vec::new(),
            numbers: HashMap::new(),
            windows: Vec::new(),
            requests: 0,
            unknown_offsets: 0,
        };
        let (mut first_ns, mut last_ns, mut known) = (u64::MAX, 0, 0);
        let mut latest = None;
        for record in trace.stream(file) {
            if record.flags & flags::OFFSET_UNKNOWN != 0 {
                order.unknown_offsets += 1;
                continue;
            }
            known += 1;
            first_ns = first_ns.min(record.start_ns);
            last_ns = last_ns.max(record.start_ns);
            if latest != Some(process_of(record)) {
                latest = Some(process_of(record));
                order.numbers.entry(process_of(record)).or_insert(0);
            }
        }
        order.requests = known;
        order.processes = order.numbers.keys().copied().collect();
        order.processes.sort_unstable();
        for (number, process) in order.processes.iter().enumerate() {
            order.numbers.insert(*process, number as u32);
        }
        if known > 0 {
            order.windows = order.parted(first_ns, last_ns, known);
        }
        order
    }

    fn known(&self) -> impl Iterator<Item = &'a Record> + use<'a> {
        self.trace.stream(self.file).filter(|record| record.flags & flags::OFFSET_UNKNOWN == 0)
    }

    /// Windows of at most `held` requests each, or of one nanosecond.
    fn parted(&self, first_ns: u64, last_ns: u64, requests: u64) -> Vec<(u64, u64)> {
        if requests <= self.held as u64 || first_ns == last_ns {
            return vec![(first_ns, last_ns)];
        }
        let bin_ns = (last_ns - first_ns) / BINS as u64 + 1;
        let mut counts = vec![0u64; BINS];
        for record in self.known().filter(|record| (first_ns..=last_ns).contains(&record.start_ns)) {
            counts[((record.start_ns - first_ns) / bin_ns) as usize] += 1;
        }
        let mut windows = Vec::new();
        let (mut from, mut sum) = (0, 0);
        for bin in 0..=BINS {
            let next = counts.get(bin).copied().unwrap_or(0);
            if bin == BINS || sum + next > self.held as u64 {
                if sum > 0 {
                    let start = first_ns + from as u64 * bin_ns;
                    let end = first_ns.saturating_add((bin as u64).saturating_mul(bin_ns) - 1).min(last_ns);
                    windows.extend(if sum > self.held as u64 {
                        self.parted(start, end, sum)
                    } else {
                        vec![(start, end)]
                    });
                }
                (from, sum) = (bin, 0);
            }
            sum += next;
        }
        windows
    }

    /// Whether all requests come in one window.
    pub fn is_held(&self) -> bool {
        self.requests <= self.held as u64
    }

    /// Hands over the requests, window by window in order of time; false ends it. A pass over the file's records for
    /// each.
    pub fn each(&self, take: &mut dyn FnMut(&TimeWindow) -> bool) {
        let mut window = TimeWindow::default();
        for &(first_ns, last_ns) in &self.windows {
            for record in self.known().filter(|record| (first_ns..=last_ns).contains(&record.start_ns)) {
                // More than may be held have one start: their order is the trace's, so any part of them can go on.
                if window.rows.len() == self.held {
                    window.arrange(self.processes.len());
                    if !take(&window) {
                        return;
                    }
                    window.rows.clear();
                }
                let writes = u32::from(record.op == Operation::Write as u8);
                window.rows.push(RequestRow {
                    start_ns: record.start_ns,
                    end_ns: record.end_ns,
                    offset: record.offset,
                    size_bytes: record.size,
                    process: self.numbers[&process_of(record)],
                    place: (window.rows.len() as u32) << 1 | writes,
                });
            }
            window.arrange(self.processes.len());
            if !take(&window) {
                return;
            }
            window.rows.clear();
        }
    }
}

/// Requests of a stretch of time.
#[derive(Default)]
pub(crate) struct TimeWindow {
    rows: Vec<RequestRow>,
    /// Indices of the rows, by process.
    by_process: Vec<u32>,
    /// Where each process's begin in `by_process`, and the end.
    begins: Vec<u32>,
}

impl TimeWindow {
    /// O(n log n) in the rows, on all processors.
    fn arrange(&mut self, processes: usize) {
        self.rows.par_sort_unstable_by_key(|row| (row.start_ns, row.place));
        self.begins.clear();
        self.begins.resize(processes + 1, 0);
        for row in &self.rows {
            self.begins[row.process as usize + 1] += 1;
        }
        for process in 0..processes {
            self.begins[process + 1] += self.begins[process];
        }
        let mut next = self.begins.clone();
        self.by_process.clear();
        self.by_process.resize(self.rows.len(), 0);
        for (index, row) in self.rows.iter().enumerate() {
            let place = &mut next[row.process as usize];
            self.by_process[*place as usize] = index as u32;
            *place += 1;
        }
    }

    /// All, in order of start; what started at once is in order of offset.
    pub fn rows(&self) -> &[RequestRow] {
        &self.rows
    }

    /// Those of one process, in the same order.
    pub fn of(&self, process: usize) -> impl Iterator<Item = &RequestRow> {
        let range = self.begins[process] as usize..self.begins[process + 1] as usize;
        self.by_process[range].iter().map(|&index| &self.rows[index as usize])
    }
}
