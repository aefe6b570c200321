//! The metadata server.

use crate::draw::Draws;
use crate::report::MetadataUse;
use crate::system::{Metadata, Service};
use crate::time::{after, ns, seconds};
use crate::workload::MetadataOp;
use std::collections::VecDeque;

/// Its draws are those of a server that no cluster has.
const STREAM: usize = usize::MAX;

/// One FIFO queue with some threads.
#[derive(Debug)]
pub(crate) struct MetadataServer {
    metadata: Metadata,
    draws: Draws,
    queue: VecDeque<(u32, MetadataOp, u64)>,
    /// The process that each thread serves.
    threads: Vec<Option<u32>>,
    requests: u64,
    busy_ns: u64,
    waiting_ns: u64,
}

impl MetadataServer {
    pub(crate) fn new(metadata: Metadata, seed: u64) -> Self {
        Self {
            metadata,
            draws: Draws::new(seed, STREAM),
            queue: VecDeque::new(),
            threads: vec![None; metadata.threads as usize],
            requests: 0,
            busy_ns: 0,
            waiting_ns: 0,
        }
    }

    /// An operation comes; `Some` with the thread that serves it at once, and until when. O(threads).
    pub(crate) fn arrive(&mut self, now_ns: u64, process: u32, op: MetadataOp) -> Option<(u32, u64)> {
        let Some(thread) = self.threads.iter().position(Option::is_none) else {
            self.queue.push_back((process, op, now_ns));
            return None;
        };
        Some((thread as u32, self.serve(now_ns, thread, process, op)))
    }

    /// The process whose operation `thread` has done. The thread stays taken until [`MetadataServer::go_on`].
    pub(crate) fn done(&mut self, thread: usize) -> u32 {
        self.threads[thread].expect("an event of a thread that serves")
    }

    /// The thread's next operation: until when. O(1).
    pub(crate) fn go_on(&mut self, now_ns: u64, thread: usize) -> Option<u64> {
        self.threads[thread] = None;
        let (process, op, came_ns) = self.queue.pop_front()?;
        self.waiting_ns = after(self.waiting_ns, now_ns - came_ns);
        Some(self.serve(now_ns, thread, process, op))
    }

    fn serve(&mut self, now_ns: u64, thread: usize, process: u32, op: MetadataOp) -> u64 {
        let Service { min_s, max_s } = match op {
            MetadataOp::Open => self.metadata.open,
            MetadataOp::Create | MetadataOp::Change => self.metadata.create,
            MetadataOp::Stat => self.metadata.stat,
        };
        let takes_ns = ns(self.draws.uniform(min_s, max_s));
        self.threads[thread] = Some(process);
        self.requests += 1;
        self.busy_ns = after(self.busy_ns, takes_ns);
        after(now_ns, takes_ns)
    }

    pub(crate) fn used(&self) -> MetadataUse {
        MetadataUse { requests: self.requests, busy_s: seconds(self.busy_ns), waiting_s: seconds(self.waiting_ns) }
    }
}
