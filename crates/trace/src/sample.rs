//! A few of a file's requests that stand for all, and how many of them are in flight.

use crate::reader::Trace;
use crate::record::Record;

impl Trace {
    /// At most `most` requests of a file, evenly chosen in their order: the first and the last are among them. Two passes.
    pub fn sample(&self, file: u32, most: usize) -> Vec<Record> {
        let count = self.stream(file).count();
        let kept = count.min(most);
        let place = |number: usize| if kept < 2 { 0 } else { number * (count - 1) / (kept - 1) };
        let mut taken = 0;
        let chosen = self.stream(file).enumerate().filter(|(at, _)| {
            let wanted = taken < kept && *at == place(taken);
            taken += usize::from(wanted);
            wanted
        });
        chosen.map(|(_, record)| *record).collect()
    }

    /// Mean requests in flight to these files, while any is; 1 without requests. O(n log n).
    pub fn in_flight(&self, files: &[u32]) -> f64 {
        let (busy_ns, sum_ns) = self.busy(files);
        if busy_ns > 0.0 { f64::max(sum_ns / busy_ns, 1.0) } else { 1.0 }
    }

    /// Seconds in which any request to these files is in flight. O(n log n).
    pub fn busy_s(&self, files: &[u32]) -> f64 {
        self.busy(files).0 * 1e-9
    }

    /// Nanoseconds in which any request to these files is in flight, and the sum of the requests' own.
    fn busy(&self, files: &[u32]) -> (f64, f64) {
        let requests = files.iter().flat_map(|&file| self.stream(file));
        let mut spans: Vec<(u64, u64)> = requests.map(|record| (record.start_ns, record.end_ns)).collect();
        spans.sort_unstable();
        let (mut busy_ns, mut sum_ns, mut until) = (0.0, 0.0, 0);
        for (start, end) in spans {
            busy_ns += end.saturating_sub(start.max(until)) as f64;
            sum_ns += end.saturating_sub(start) as f64;
            until = until.max(end);
        }
        (busy_ns, sum_ns)
    }
}
