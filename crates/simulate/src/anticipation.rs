//! What an anticipatory queue has learned of all processes.

use crate::slab::Sub;
use std::collections::HashMap;
use stripewise_model::{NewProcesses, ProcessHistory};

/// What one device has learned: 64 bytes for every process that it has seen.
#[derive(Debug, Default)]
pub(crate) struct Learned {
    histories: HashMap<u32, ProcessHistory>,
    new: NewProcesses,
}

impl Learned {
    /// A sub-request comes. O(1).
    pub(crate) fn arrives(&mut self, now_ns: u64, wait_ns: u64, sub: &Sub) {
        let history = self.histories.entry(sub.process).or_default();
        history.arrives(now_ns, wait_ns, (sub.position, sub.bytes), &mut self.new);
    }

    /// A sub-request of `process` has been served. O(1).
    pub(crate) fn ends(&mut self, now_ns: u64, process: u32) {
        if let Some(history) = self.histories.get_mut(&process) {
            history.ends(now_ns);
        }
    }

    /// Whether `process`, which has just been served, can be expected to be back within `wait_ns`. O(1).
    pub(crate) fn returns(&self, process: u32, wait_ns: u64) -> bool {
        self.histories.get(&process).copied().unwrap_or_default().returns(wait_ns, &self.new)
    }

    /// Bytes from the head to where the next sub-request of `process` is expected. O(1).
    pub(crate) fn expected_seek(&self, process: u32) -> f64 {
        self.histories.get(&process).copied().unwrap_or_default().expected_seek(&self.new)
    }
}
