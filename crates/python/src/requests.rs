//! From a trace to what planner and simulator take: the requests of each file below a directory.

use std::collections::HashMap;
use std::path::Path;
use stripewise_model::{Op, Request};
use stripewise_trace::{Operation, Trace};

/// Files with less than this share of all bytes moved are not planned: nothing could be gained on them.
const LEAST_SHARE: f64 = 1e-3;

/// The requests of one file.
pub(crate) struct FileRequests {
    /// Path relative to the directory.
    pub path: String,
    /// In order of offset and start.
    pub requests: Vec<Request>,
}

/// The files of `trace` below `root` that are worth planning, in order of path. A thread is a process to planner and
/// simulator: each has one request in flight at a time. O(records).
pub(crate) fn below(trace: &Trace, root: &Path) -> Vec<FileRequests> {
    let mut threads: HashMap<(u32, u32, u32), u32> = HashMap::new();
    let mut files = Vec::new();
    for file in trace.files() {
        let Ok(relative) = file.path.strip_prefix(root) else { continue };
        // A layout file is text.
        let Some(path) = relative.to_str() else { continue };
        let requests: Vec<Request> = trace
            .requests(file.id)
            .map(|record| {
                let next = threads.len() as u32;
                Request {
                    offset: record.offset,
                    size: record.size,
                    op: if record.operation() == Some(Operation::Write) { Op::Write } else { Op::Read },
                    process: *threads.entry((record.rank, record.pid, record.tid)).or_insert(next),
                    start_s: record.start_ns as f64 * 1e-9,
                    end_s: record.end_ns as f64 * 1e-9,
                }
            })
            .collect();
        files.push(FileRequests { path: path.to_owned(), requests });
    }
    let total: f64 = files.iter().map(FileRequests::moved_bytes).sum();
    files.retain(|file| !file.requests.is_empty() && file.moved_bytes() >= LEAST_SHARE * total);
    files
}

impl FileRequests {
    fn moved_bytes(&self) -> f64 {
        self.requests.iter().map(|request| request.size as f64).sum()
    }
}
