//! [`CountedTraffic`]: what a file moved by its counters, where its rows are made up from them and may be a sample.

use crate::about::About;
use std::collections::{HashMap, HashSet};
use stripewise_trace::{Api, FileSummary, Operation, Trace, summarise_together};

/// Reads, or writes, of a file as they were counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CountedTraffic {
    /// Requests that moved bytes.
    pub requests: u64,
    /// Bytes moved.
    pub bytes: u64,
}

/// Reads and writes of files by their counters; only of files all of whose rows are made up from these.
pub type CountedFiles = HashMap<u32, [CountedTraffic; 2]>;

impl About {
    /// Reads and writes of the files that have only counters. O(counters).
    pub fn counted_files(&self) -> CountedFiles {
        let mut counted = CountedFiles::new();
        let mut with_rows = HashSet::new();
        for of in self.counters.iter().filter(|of| of.api != Api::MpiIo) {
            if of.has_rows {
                with_rows.insert(of.file);
            }
            let prefix = if of.api == Api::Posix { "POSIX" } else { "STDIO" };
            let counter = |name| u64::try_from(of.integer_of(prefix, ["_", name, ""]).unwrap_or(0)).unwrap_or(0);
            let traffic = counted.entry(of.file).or_default();
            for (of_op, (requests, bytes)) in
                traffic.iter_mut().zip([("READS", "BYTES_READ"), ("WRITES", "BYTES_WRITTEN")])
            {
                of_op.requests = of_op.requests.saturating_add(counter(requests));
                of_op.bytes = of_op.bytes.saturating_add(counter(bytes));
            }
        }
        counted.retain(|file, _| !with_rows.contains(file));
        counted
    }
}

/// [`summarise_together`], with the requests and bytes that were counted where the rows are a sample of them. O(n log n)
/// in the files' records.
pub fn summarise_counted(trace: &Trace, counted: &CountedFiles, ids: &[u32], heat_parts: usize) -> FileSummary {
    let mut summary = summarise_together(trace, ids, heat_parts);
    let mut missing = [CountedTraffic::default(); 2];
    for (id, stated) in ids.iter().filter_map(|id| Some((*id, counted.get(id)?))) {
        let mut made = [CountedTraffic::default(); 2];
        for record in trace.requests(id) {
            let of_op = &mut made[usize::from(record.op == Operation::Write as u8)];
            of_op.requests += 1;
            of_op.bytes = of_op.bytes.saturating_add(record.size);
        }
        for ((missing, stated), made) in missing.iter_mut().zip(stated).zip(made) {
            // Requests that moved nothing are counted, and have no rows: they alone are no sample.
            if made.requests > 0 && stated.requests > made.requests && stated.bytes > made.bytes {
                missing.requests = missing.requests.saturating_add(stated.requests - made.requests);
                missing.bytes = missing.bytes.saturating_add(stated.bytes - made.bytes);
            }
        }
    }
    summary.stand_for([(missing[0].requests, missing[0].bytes), (missing[1].requests, missing[1].bytes)]);
    summary
}
