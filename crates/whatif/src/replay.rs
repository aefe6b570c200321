//! From a trace to the program that the simulator runs.

use std::collections::HashMap;
use stripewise_advise::FileRequests;
use stripewise_model::Op;
use stripewise_simulate::{Did, MetadataOp, SimulatedAccess, What};
use stripewise_trace::{Api, Operation, Record, Trace, flags};

/// What has one request in flight at a time: rank, process, thread, program. Ranks of a node are neighbours.
pub(crate) type ThreadId = (u32, u32, u32, u32);

/// Operations on the names of `files`: those that look, and those that change something. O(records).
pub(crate) fn names(trace: &Trace, files: &[FileRequests]) -> (u64, u64) {
    let ops = files.iter().flat_map(|file| trace.of_file(file.id)).filter_map(metadata_of);
    ops.fold((0, 0), |(looks, changes), op| match op {
        MetadataOp::Open | MetadataOp::Stat => (looks + 1, changes),
        MetadataOp::Create | MetadataOp::Change => (looks, changes + 1),
    })
}

/// Each thread of `trace` and what it did to `files`; with `metadata`, operations on their names, too. Collective calls
/// are taken from all files: a thread that waited in one waited, whatever file it was for. O(records).
pub(crate) fn threads(trace: &Trace, files: &[FileRequests], metadata: bool) -> Vec<(ThreadId, Vec<Did>)> {
    let mut threads: HashMap<ThreadId, Vec<Did>> = HashMap::new();
    let mut groups: HashMap<(u32, u32), u32> = HashMap::new();
    let indices: HashMap<u32, u32> = files.iter().zip(0..).map(|(file, index)| (file.id, index)).collect();
    for file in trace.files() {
        let index = indices.get(&file.id).copied();
        for record in trace.of_file(file.id) {
            let access = index.filter(|_| trace.is_request(record));
            let access = access.map(|file| access_of(record, file));
            let what = match call_of(record) {
                Some(data) => {
                    let next = groups.len() as u32;
                    let group = *groups.entry((record.program, file.id)).or_insert(next);
                    What::Call { group, kind: record.op, data, access }
                }
                None => match (access, metadata_of(record)) {
                    (Some(access), _) => What::Access(access),
                    (None, Some(op)) if metadata && index.is_some() => What::Metadata(op),
                    _ => continue,
                },
            };
            let thread = threads.entry((record.rank, record.pid, record.tid, record.program)).or_default();
            thread.push(Did { start_ns: record.start_ns, end_ns: record.end_ns, what });
        }
    }
    // Threads that only took part in calls are waited for like the others.
    let mut threads: Vec<(ThreadId, Vec<Did>)> = threads.into_iter().collect();
    threads.sort_unstable_by_key(|thread| thread.0);
    threads
}

/// Times of a trace as its records have them.
pub(crate) fn nanoseconds(seconds: &[f64]) -> Vec<u64> {
    seconds.iter().map(|seconds| (seconds * 1e9).round() as u64).collect()
}

fn access_of(record: &Record, file: u32) -> SimulatedAccess {
    let op = if record.operation() == Some(Operation::Write) { Op::Write } else { Op::Read };
    SimulatedAccess { file, offset: record.offset, size: record.size, op, think_s: 0.0 }
}

/// Whether `record` is a collective call that returns when it is done; if it is, whether it moves data.
fn call_of(record: &Record) -> Option<bool> {
    let waits = record.flags & (flags::COLLECTIVE | flags::NONBLOCKING | flags::FAILED) == flags::COLLECTIVE;
    let data = matches!(record.operation(), Some(Operation::Read | Operation::Write));
    (waits && record.api() == Some(Api::MpiIo)).then_some(data)
}

fn metadata_of(record: &Record) -> Option<MetadataOp> {
    if record.flags & flags::FAILED != 0 || record.api() != Some(Api::Posix) {
        return None;
    }
    match record.operation() {
        Some(Operation::Stat) => Some(MetadataOp::Stat),
        Some(Operation::Open) if record.flags & flags::CREATE != 0 => Some(MetadataOp::Create),
        Some(Operation::Open) => Some(MetadataOp::Open),
        Some(Operation::Unlink | Operation::Rename | Operation::SetAttributes) => Some(MetadataOp::Change),
        _ => None,
    }
}
