//! What an emulated server did, and how far the emulation was off.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A median emulation error above this makes a run invalid.
pub const MAX_MEDIAN_ERROR: f64 = 0.10;

/// Buckets of a [`LogHistogram`]: values up to 2^34 are told apart.
const BUCKETS: usize = 256;

/// The bucket of a value: 0 to 7 each their own, then eight per octave.
fn bucket(value: u64) -> usize {
    if value < 8 {
        return value as usize;
    }
    let octave = 60 - value.leading_zeros() as usize;
    let eighth = (value >> octave) as usize & 7;
    (8 + octave * 8 + eighth).min(BUCKETS - 1)
}

/// The least value of a bucket.
fn bucket_floor(bucket: usize) -> u64 {
    if bucket < 8 { bucket as u64 } else { (8 + bucket as u64 % 8) << (bucket / 8 - 1) }
}

/// A [`LogHistogram`] in shared memory.
#[repr(C)]
pub(super) struct AtomicHistogram {
    counts: [AtomicU64; BUCKETS],
}

impl AtomicHistogram {
    /// Counts one value: one atomic addition.
    pub(super) fn add(&self, value: u64) {
        self.counts[bucket(value)].fetch_add(1, Relaxed);
    }

    pub(super) fn load(&self) -> LogHistogram {
        LogHistogram { counts: std::array::from_fn(|i| self.counts[i].load(Relaxed)) }
    }

    pub(super) fn clear(&self) {
        self.counts.iter().for_each(|count| count.store(0, Relaxed));
    }
}

/// [`OpStatistics`] in shared memory, on a cache line of its own.
#[repr(C, align(64))]
pub(super) struct AtomicOpStatistics {
    requests: AtomicU64,
    bytes: AtomicU64,
    busy_ns: AtomicU64,
    waiting_ns: AtomicU64,
}

impl AtomicOpStatistics {
    pub(super) fn add(&self, more: &OpStatistics) {
        self.requests.fetch_add(more.requests, Relaxed);
        self.bytes.fetch_add(more.bytes, Relaxed);
        self.busy_ns.fetch_add(more.busy_ns, Relaxed);
        self.waiting_ns.fetch_add(more.waiting_ns, Relaxed);
    }

    pub(super) fn load(&self) -> OpStatistics {
        OpStatistics {
            requests: self.requests.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            busy_ns: self.busy_ns.load(Relaxed),
            waiting_ns: self.waiting_ns.load(Relaxed),
        }
    }

    pub(super) fn clear(&self) {
        for counter in [&self.requests, &self.bytes, &self.busy_ns, &self.waiting_ns] {
            counter.store(0, Relaxed);
        }
    }
}

/// Counts over a logarithmic scale, eight buckets per octave: a value is known within 12.5 %.
#[derive(Clone, PartialEq, Eq)]
pub struct LogHistogram {
    counts: [u64; BUCKETS],
}

impl Default for LogHistogram {
    fn default() -> Self {
        Self { counts: [0; BUCKETS] }
    }
}

impl fmt::Debug for LogHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count != 0);
        f.debug_map().entries(filled.map(|(i, count)| (bucket_floor(i), count))).finish()
    }
}

impl LogHistogram {
    /// Counts one value.
    pub fn add(&mut self, value: u64) {
        let count = &mut self.counts[bucket(value)];
        *count = count.saturating_add(1);
    }

    /// Values counted.
    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count))
    }

    /// The value that the share `q` (0 to 1) of all values does not exceed, interpolated within its bucket; `None` when
    /// nothing was counted.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let total = self.total();
        if total == 0 {
            return None;
        }
        let rank = q.clamp(0.0, 1.0) * total as f64;
        let mut below = 0.0;
        let mut last = 0;
        for (i, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count != 0) {
            if below + count as f64 >= rank {
                let floor = bucket_floor(i) as f64;
                // Buckets of one value have no inside.
                let width = if i < 8 { 0.0 } else { bucket_floor(i + 1) as f64 - floor };
                return Some(floor + width * ((rank - below) / count as f64));
            }
            below += count as f64;
            last = i;
        }
        Some(bucket_floor(last) as f64)
    }

    /// What was counted since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self { counts: std::array::from_fn(|i| self.counts[i].saturating_sub(earlier.counts[i])) }
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
    }
}

/// What was done with one kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpStatistics {
    /// Sub-requests completed.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time in service, in nanoseconds.
    pub busy_ns: u64,
    /// Time in the queue before service, in nanoseconds.
    pub waiting_ns: u64,
}

impl OpStatistics {
    /// What was done since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(earlier.requests),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            busy_ns: self.busy_ns.saturating_sub(earlier.busy_ns),
            waiting_ns: self.waiting_ns.saturating_sub(earlier.waiting_ns),
        }
    }
}

/// What one emulated server did, over all processes, since its queue was made or between two snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerStatistics {
    /// Reads.
    pub read: OpStatistics,
    /// Writes.
    pub write: OpStatistics,
    /// Relative emulation error (measured − drawn) / drawn of the requests that this server decided, in millionths.
    pub error_ppm: LogHistogram,
    /// The same as a time, in nanoseconds.
    pub overshoot_ns: LogHistogram,
    /// Sum of the drawn times of those requests, in nanoseconds: from arrival to the last deadline.
    pub drawn_sum_ns: u64,
    /// Sum of the times that they took longer, in nanoseconds.
    pub overshoot_sum_ns: u64,
}

impl ServerStatistics {
    /// What was done since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            read: self.read.since(&earlier.read),
            write: self.write.since(&earlier.write),
            error_ppm: self.error_ppm.since(&earlier.error_ppm),
            overshoot_ns: self.overshoot_ns.since(&earlier.overshoot_ns),
            drawn_sum_ns: self.drawn_sum_ns.saturating_sub(earlier.drawn_sum_ns),
            overshoot_sum_ns: self.overshoot_sum_ns.saturating_sub(earlier.overshoot_sum_ns),
        }
    }

    /// Median of the relative emulation error (0.05 is 5 %); `None` when this server decided no request.
    pub fn median_error(&self) -> Option<f64> {
        Some(self.error_ppm.quantile(0.5)? * 1e-6)
    }
}

/// Whether the figures of a run on emulated servers may be used.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// No request was emulated.
    Idle,
    /// The median error is within [`MAX_MEDIAN_ERROR`].
    Valid(EmulationError),
    /// The median error is above [`MAX_MEDIAN_ERROR`]: the run gives no figure.
    Invalid(EmulationError),
}

/// How far the emulation of a run was off.
#[derive(Debug, Clone, PartialEq)]
pub struct EmulationError {
    /// Median of the relative error over all requests.
    pub median: f64,
    /// Its 99th percentile.
    pub p99: f64,
    /// Overshoot of all requests over their drawn time: about the part of the throughput that the emulation lost. A few
    /// late requests move it where the median does not see them.
    pub total: f64,
    /// Median of the time that requests took longer than drawn, in seconds.
    pub median_overshoot_s: f64,
    /// Requests that were emulated.
    pub requests: u64,
}

impl Verdict {
    /// Judges a run by what its servers did in it (differences of snapshots).
    pub fn of<'a>(servers: impl IntoIterator<Item = &'a ServerStatistics>) -> Self {
        let (mut error_ppm, mut overshoot_ns) = (LogHistogram::default(), LogHistogram::default());
        let (mut drawn_sum, mut overshoot_sum) = (0.0, 0.0);
        for server in servers {
            drawn_sum += server.drawn_sum_ns as f64;
            overshoot_sum += server.overshoot_sum_ns as f64;
            error_ppm.merge(&server.error_ppm);
            overshoot_ns.merge(&server.overshoot_ns);
        }
        let Some(median_ppm) = error_ppm.quantile(0.5) else { return Self::Idle };
        let error = EmulationError {
            median: median_ppm * 1e-6,
            p99: error_ppm.quantile(0.99).unwrap_or(median_ppm) * 1e-6,
            total: if drawn_sum > 0.0 { overshoot_sum / drawn_sum } else { 0.0 },
            median_overshoot_s: overshoot_ns.quantile(0.5).unwrap_or(0.0) * 1e-9,
            requests: error_ppm.total(),
        };
        if error.median > MAX_MEDIAN_ERROR { Self::Invalid(error) } else { Self::Valid(error) }
    }

    /// Whether figures of the run may be given.
    pub fn is_valid(&self) -> bool {
        !matches!(self, Self::Invalid(_))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = MAX_MEDIAN_ERROR * 100.0;
        match self {
            Self::Idle => f.write_str("emulated servers: no request"),
            Self::Valid(e) => write!(f, "emulated servers: {e}"),
            Self::Invalid(e) => write!(
                f,
                "INVALID RUN, emulated servers: {e}; above {limit:.0} % the figures say nothing about the devices: run \
                 fewer processes, stop other work on this machine, or raise the pool's dilation"
            ),
        }
    }
}

impl fmt::Display for EmulationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "emulation error median {:.1} % ({:.0} us), 99th percentile {:.0} %, {:.1} % of the time of {} requests",
            self.median * 100.0,
            self.median_overshoot_s * 1e6,
            self.p99 * 100.0,
            self.total * 100.0,
            self.requests
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_within_an_eighth() {
        let mut last = 0;
        for value in (0..2000).chain((11..34).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + (1 << (bit - 2))]))
        {
            let bucket = bucket(value);
            assert!(bucket >= last, "{value}");
            last = bucket;
            let floor = bucket_floor(bucket);
            assert!(floor <= value && value <= floor + floor / 8, "{value} in the bucket from {floor}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_within_a_bucket() {
        let mut histogram = LogHistogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        (1..=10_000).for_each(|value| histogram.add(value));
        for q in [0.01, 0.25, 0.5, 0.9, 0.99] {
            let found = histogram.quantile(q).unwrap();
            assert!((found / (q * 10_000.0) - 1.0).abs() < 0.03, "{q}: {found}");
        }
        assert_eq!(histogram.total(), 10_000);
    }

    #[test]
    fn a_difference_is_what_came_in_between() {
        let mut before = ServerStatistics::default();
        (0..5).for_each(|_| before.error_ppm.add(900_000));
        before.read.requests = 5;
        let mut after = before.clone();
        (0..3).for_each(|_| after.error_ppm.add(1000));
        after.read.requests = 8;
        let between = after.since(&before);
        assert_eq!(between.read.requests, 3);
        assert!((between.median_error().unwrap() - 0.001).abs() < 0.0001);
        // Pages can be replaced under a reader: no difference is below nothing.
        assert_eq!(before.since(&after), ServerStatistics::default());
    }

    #[test]
    fn a_run_above_ten_percent_calls_itself_invalid() {
        let with_error = |ppm: u64, requests: usize| {
            let mut server = ServerStatistics::default();
            for _ in 0..requests {
                server.error_ppm.add(ppm);
                server.overshoot_ns.add(ppm);
                server.overshoot_sum_ns += ppm;
                server.drawn_sum_ns += 1_000_000;
            }
            server
        };
        assert_eq!(Verdict::of([]), Verdict::Idle);
        assert_eq!(Verdict::of(&[ServerStatistics::default()]), Verdict::Idle);
        let (good, bad) = (with_error(20_000, 100), with_error(300_000, 60));
        let verdict = Verdict::of([&good, &bad]);
        assert!(verdict.is_valid());
        // (100 * 2 % + 60 * 30 %) / 160
        assert!(verdict.to_string().ends_with("12.5 % of the time of 160 requests"), "{verdict}");
        let verdict = Verdict::of([&good, &bad, &bad]);
        assert!(!verdict.is_valid());
        assert!(verdict.to_string().starts_with("INVALID RUN"), "{verdict}");
    }
}
