//! What a simulation found.

use stripewise_layout::ServerId;

/// Sub-requests of one operation that a server took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TakenSubs {
    /// All of them.
    pub requests: u64,
    /// Those for which the server's head did not move; 0 of a server without a head.
    pub adjacent: u64,
}

impl TakenSubs {
    /// Counts one. O(1).
    #[inline]
    pub(crate) fn add(&mut self, adjacent: bool) {
        self.requests += 1;
        self.adjacent += u64::from(adjacent);
    }
}

/// What one server did.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ServerUse {
    /// Sub-requests that read.
    pub reads: TakenSubs,
    /// Sub-requests that wrote.
    pub writes: TakenSubs,
    /// Bytes read and written.
    pub bytes: u64,
    /// Seconds that the device was serving.
    pub busy_s: f64,
    /// Seconds that sub-requests waited for the device, added up.
    pub waiting_s: f64,
    /// Seconds that the server's link was carrying reads, with [`Network::Link`](crate::Network::Link).
    pub link_out_busy_s: f64,
    /// Seconds that the server's link was carrying writes.
    pub link_in_busy_s: f64,
}

/// How long requests took from issue to end, in seconds. All 0 without requests.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean_s: f64,
    /// Median.
    pub p50_s: f64,
    /// 95th percentile.
    pub p95_s: f64,
    /// 99th percentile.
    pub p99_s: f64,
    /// Longest.
    pub max_s: f64,
}

impl Latency {
    /// Nearest-rank percentiles of `latencies` in seconds, which are reordered. O(n).
    pub(crate) fn of(latencies: &mut [f64]) -> Self {
        if latencies.is_empty() {
            return Self::default();
        }
        let n = latencies.len();
        let mut rank = |share: f64| {
            let index = ((n as f64 * share).ceil() as usize).clamp(1, n) - 1;
            *latencies.select_nth_unstable_by(index, f64::total_cmp).1
        };
        let (p50_s, p95_s, p99_s, max_s) = (rank(0.5), rank(0.95), rank(0.99), rank(1.0));
        Self { mean_s: latencies.iter().sum::<f64>() / n as f64, p50_s, p95_s, p99_s, max_s }
    }
}

/// Result of [`simulate`](crate::simulate()).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SimulationOutcome {
    /// Seconds until the last process ended.
    pub makespan_s: f64,
    /// Bytes that reads returned.
    pub read_bytes: u64,
    /// Bytes that writes brought.
    pub written_bytes: u64,
    /// By [`ServerId::index`]; the metadata tier last, where a layout names it.
    pub servers: Vec<ServerUse>,
    /// Whether the last server is the metadata tier.
    pub has_meta: bool,
    /// Over all requests of more than 0 bytes.
    pub latency: Latency,
    /// When each barrier opened, in seconds; ascending.
    pub barriers_s: Vec<f64>,
}

impl ServerUse {
    /// Sub-requests served.
    pub fn requests(&self) -> u64 {
        self.reads.requests + self.writes.requests
    }
}

impl SimulationOutcome {
    /// The server that stands at `index`.
    pub fn server_at(&self, index: usize) -> ServerId {
        if self.has_meta && index + 1 == self.servers.len() { ServerId::META } else { ServerId(index as u16) }
    }

    /// Bytes per second over the makespan; 0 when nothing took any time.
    pub fn throughput(&self) -> f64 {
        if self.makespan_s > 0.0 { (self.read_bytes as f64 + self.written_bytes as f64) / self.makespan_s } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let mut values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        let latency = Latency::of(&mut values);
        assert_eq!(latency, Latency { mean_s: 100.5, p50_s: 100.0, p95_s: 190.0, p99_s: 198.0, max_s: 200.0 });
        assert_eq!(Latency::of(&mut []), Latency::default());
    }
}
