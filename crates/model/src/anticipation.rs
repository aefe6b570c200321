//! What an anticipatory queue knows of a process, after Linux's anticipatory scheduler (`block/as-iosched.c` until Linux 2.6.32).

/// A mean in which every new value counts an eighth and all before it seven.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RecentMean {
    /// Of the values so far; 0 without one.
    pub weight: f64,
    /// The weighed values.
    pub sum: f64,
}

impl RecentMean {
    fn add(&mut self, value: f64) {
        self.weight = (7.0 * self.weight + 1.0) / 8.0;
        self.sum = (7.0 * self.sum + value) / 8.0;
    }

    /// `None` without a value.
    fn value(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
}

/// Of the first value of each process: what is expected of one without any.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct NewProcesses {
    /// Nanoseconds.
    pub think: RecentMean,
    /// Bytes.
    pub seek: RecentMean,
}

/// One process at one device.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ProcessHistory {
    /// Nanoseconds from the end of its last sub-request to the next.
    pub think: RecentMean,
    /// Bytes from where one sub-request ends to where the next one begins.
    pub seek: RecentMean,
    /// When its last sub-request was served.
    pub ended_ns: u64,
    /// Where the one that came last ends.
    pub position: u64,
    /// Sub-requests here, waiting or being served.
    pub here: u32,
    /// Whether one has ever come.
    pub known: bool,
}

/// A think time counts at most this many times the longest wait: one long pause is forgotten soon.
const LONGEST_WAITS: u64 = 3;

impl ProcessHistory {
    /// A sub-request of `bytes` at `position` comes at a device that waits `wait_ns` at most. O(1).
    pub fn arrives(&mut self, now_ns: u64, wait_ns: u64, (position, bytes): (u64, u64), new: &mut NewProcesses) {
        if self.known {
            let thought_ns = if self.here > 0 { 0 } else { now_ns.saturating_sub(self.ended_ns) };
            let think = thought_ns.min(wait_ns.saturating_mul(LONGEST_WAITS)) as f64;
            let seek = position.abs_diff(self.position) as f64;
            if self.think.value().is_none() {
                new.think.add(think);
                new.seek.add(seek);
            }
            self.think.add(think);
            self.seek.add(seek);
        }
        self.known = true;
        self.here = self.here.saturating_add(1);
        self.position = position.saturating_add(bytes);
    }

    /// A sub-request has been served. O(1).
    pub fn ends(&mut self, now_ns: u64) {
        self.here = self.here.saturating_sub(1);
        self.ended_ns = now_ns;
    }

    /// Whether the process, which has just been served, can be expected to be back within `wait_ns`: it has nothing else
    /// here, and thinks no longer than that on average. O(1).
    pub fn returns(&self, wait_ns: u64, new: &NewProcesses) -> bool {
        let think = self.think.value().or(new.think.value()).unwrap_or(0.0);
        self.here == 0 && think <= wait_ns as f64
    }

    /// Bytes from the head to where its next sub-request is expected. O(1).
    pub fn expected_seek(&self, new: &NewProcesses) -> f64 {
        self.seek.value().or(new.seek.value()).unwrap_or(0.0)
    }
}
