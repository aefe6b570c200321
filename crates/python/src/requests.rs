//! From a trace to what planner and simulator take: the requests of each file below a directory.

use std::collections::HashMap;
use std::path::Path;
use stripewise_model::{Op, Request};
use stripewise_planner::RequestSource;
use stripewise_trace::{Operation, Record, Trace};

/// Files that together have less than this share of all bytes moved are not planned: nothing could be gained on them.
const LEAST_SHARE: f64 = 1e-3;

/// Most requests that are held in memory at once (48 bytes each); more are read from the trace as they are needed.
const HELD: u64 = 4_000_000;

/// The requests of one file.
pub(crate) struct FileRequests {
    /// Path relative to the directory.
    pub path: String,
    /// In order of offset and start; none where the trace is too large: see [`Below::is_large`].
    pub requests: Vec<Request>,
}

/// The files of a trace below a directory that are worth planning, in order of path.
pub(crate) struct Below<'a> {
    trace: &'a Trace,
    /// Id in the trace, path below the directory.
    files: Vec<(u32, String)>,
    requests: u64,
}

/// Threads as processes, numbered as they come: a thread is a process to planner and simulator, each has one request in
/// flight at a time.
#[derive(Default)]
struct Threads(HashMap<(u32, u32, u32), u32>);

impl Threads {
    fn request(&mut self, record: &Record) -> Request {
        let next = self.0.len() as u32;
        Request {
            offset: record.offset,
            size: record.size,
            op: if record.operation() == Some(Operation::Write) { Op::Write } else { Op::Read },
            process: *self.0.entry((record.rank, record.pid, record.tid)).or_insert(next),
            start_s: record.start_ns as f64 * 1e-9,
            end_s: record.end_ns as f64 * 1e-9,
        }
    }
}

/// The files of `trace` below `root` that are worth planning, with all their requests in memory. O(records).
pub(crate) fn below(trace: &Trace, root: &Path) -> Vec<FileRequests> {
    Below::new(trace, root).files(true)
}

impl<'a> Below<'a> {
    /// O(records), in memory for the list of files alone.
    pub(crate) fn new(trace: &'a Trace, root: &Path) -> Self {
        let mut found: Vec<(u32, String, u64, f64)> = Vec::new();
        for file in trace.files() {
            let Ok(relative) = file.path.strip_prefix(root) else { continue };
            // A layout file is text.
            let Some(path) = relative.to_str() else { continue };
            let moved = trace.stream(file.id).fold((0, 0.0), |sum, r| (sum.0 + 1, sum.1 + r.size as f64));
            if moved.0 > 0 {
                found.push((file.id, path.to_owned(), moved.0, moved.1));
            }
        }
        let total: f64 = found.iter().map(|file| file.3).sum();
        // The least first, as long as all of them together are next to nothing.
        let mut ranked: Vec<(f64, u32)> = found.iter().map(|file| (file.3, file.0)).collect();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut sum = 0.0;
        let left_out = ranked.iter().take_while(|file| {
            sum += file.0;
            sum < LEAST_SHARE * total
        });
        let left_out: std::collections::HashSet<u32> = left_out.map(|file| file.1).collect();
        found.retain(|file| !left_out.contains(&file.0));
        let requests = found.iter().map(|file| file.2).sum();
        Self { trace, files: found.into_iter().map(|(id, path, ..)| (id, path)).collect(), requests }
    }

    /// Whether there are too many requests to be held: then they are to be surveyed.
    pub(crate) fn is_large(&self) -> bool {
        self.requests > HELD
    }

    /// The files with their requests, or without where `held` is not set. O(records).
    pub(crate) fn files(&self, held: bool) -> Vec<FileRequests> {
        let mut threads = Threads::default();
        let file = |(id, path): &(u32, String)| {
            let records = self.trace.stream(*id).filter(|_| held);
            FileRequests { path: path.clone(), requests: records.map(|record| threads.request(record)).collect() }
        };
        self.files.iter().map(file).collect()
    }
}

impl RequestSource for Below<'_> {
    fn visit(&self, visit: &mut dyn FnMut(usize, &Request)) {
        let mut threads = Threads::default();
        for (index, (id, _)) in self.files.iter().enumerate() {
            self.trace.stream(*id).for_each(|record| visit(index, &threads.request(record)));
        }
    }
}
