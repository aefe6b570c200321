//! What an anticipatory queue learns of processes, after Linux's anticipatory scheduler (`block/as-iosched.c` until
//! Linux 2.6.32).

use crate::slab::Sub;
use std::collections::HashMap;

/// A mean in which every new value counts an eighth and all before it seven.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    weight: f64,
    sum: f64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.weight = (7.0 * self.weight + 1.0) / 8.0;
        self.sum = (7.0 * self.sum + value) / 8.0;
    }

    /// `None` without a value.
    fn value(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
}

/// One process at one device.
#[derive(Debug, Clone, Copy, Default)]
struct History {
    /// Nanoseconds from the end of its last sub-request to the next.
    think: Mean,
    /// Bytes from where one sub-request ends to where the next one begins.
    seek: Mean,
    /// When its last sub-request was served.
    ended_ns: u64,
    /// Where the one that came last ends.
    position: u64,
    /// Sub-requests here, waiting or being served.
    here: u32,
    /// Whether one has ever come.
    known: bool,
}

/// What one device has learned: 64 bytes for every process that it has seen.
#[derive(Debug, Default)]
pub(crate) struct Learned {
    histories: HashMap<u32, History>,
    /// Of the first value of each process: what is expected of one without any.
    new_think: Mean,
    new_seek: Mean,
}

/// A think time counts at most this many times the longest wait: one long pause is forgotten soon.
const LONGEST_WAITS: u64 = 3;

impl Learned {
    /// A sub-request comes. O(1).
    pub(crate) fn arrives(&mut self, now_ns: u64, wait_ns: u64, sub: &Sub) {
        let history = self.histories.entry(sub.process).or_default();
        if history.known {
            let thought_ns = if history.here > 0 { 0 } else { now_ns - history.ended_ns };
            let think = thought_ns.min(wait_ns.saturating_mul(LONGEST_WAITS)) as f64;
            let seek = sub.position.abs_diff(history.position) as f64;
            if history.think.value().is_none() {
                self.new_think.add(think);
                self.new_seek.add(seek);
            }
            history.think.add(think);
            history.seek.add(seek);
        }
        history.known = true;
        history.here += 1;
        history.position = sub.position.saturating_add(sub.bytes);
    }

    /// A sub-request of `process` has been served. O(1).
    pub(crate) fn ends(&mut self, now_ns: u64, process: u32) {
        if let Some(history) = self.histories.get_mut(&process) {
            history.here -= 1;
            history.ended_ns = now_ns;
        }
    }

    /// Whether `process`, which has just been served, can be expected to be back within `wait_ns`: it has nothing else
    /// here, and thinks no longer than that on average. O(1).
    pub(crate) fn returns(&self, process: u32, wait_ns: u64) -> bool {
        let history = self.histories.get(&process).copied().unwrap_or_default();
        let think = history.think.value().or(self.new_think.value()).unwrap_or(0.0);
        history.here == 0 && think <= wait_ns as f64
    }

    /// Bytes from the head to where the next sub-request of `process` is expected. O(1).
    pub(crate) fn expected_seek(&self, process: u32) -> f64 {
        let own = self.histories.get(&process).and_then(|history| history.seek.value());
        own.or(self.new_seek.value()).unwrap_or(0.0)
    }
}
