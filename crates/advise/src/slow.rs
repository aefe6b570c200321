//! Servers that are slower than others of their kind, by how long the log's own requests took on them.

use crate::counted;
use crate::gather::File;
use crate::usage::SMALL_BYTES;
use stripewise_layout::Layout;
use stripewise_model::{Op, Request};

/// A server with less than this share of the median rate is slow.
const SLOW: f64 = 0.5;

/// Least servers with figures, and least bytes on one, for a comparison.
const SERVERS: usize = 3;
const BYTES: f64 = 1048576.0;

/// One slow server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlowServer {
    /// Its index in the cluster.
    pub server: usize,
    /// Bytes for each second that a request was on it.
    pub bytes_per_s: f64,
}

/// Slow servers, the slowest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Slow {
    /// At least one.
    pub servers: Vec<SlowServer>,
    /// Of all servers with figures.
    pub median_bytes_per_s: f64,
    /// How many have figures.
    pub compared: usize,
}

impl Slow {
    /// In words, without what to do about it.
    pub(crate) fn words(&self, label: &dyn Fn(usize) -> String) -> String {
        let first = &self.servers[0];
        let others = self.servers.len() - 1;
        let also = if others > 0 { format!(" (and {others} more)") } else { String::new() };
        format!(
            "{}{also} serves {:.1} MiB/s a request, the median of {} servers is {:.1} MiB/s",
            label(first.server),
            first.bytes_per_s / 1048576.0,
            self.compared,
            self.median_bytes_per_s / 1048576.0,
        )
    }
}

/// Slow ones among the servers of files whose layouts are known (`known`), by rows with durations or by counters of
/// files on a single server. O(requests x sub-requests).
pub(crate) fn slow(
    files: &[File],
    layouts: &[Layout],
    known: &[bool],
    requests: &[Vec<Request>],
    servers: usize,
) -> Option<Slow> {
    // Reads and writes apart, and large requests alone: else what a server was asked for would count as its speed.
    let mut sums = [vec![(0.0_f64, 0.0_f64); servers], vec![(0.0_f64, 0.0_f64); servers]];
    for (((file, layout), requests), _) in
        files.iter().zip(layouts).zip(requests).zip(known).filter(|(_, known)| **known)
    {
        if file.counted {
            let only = match layout.regions() {
                [region] if region.stripes().len() == 1 => region.stripes()[0].server.index(),
                _ => continue,
            };
            let both = file.used.both();
            let writes = usize::from(file.used.writes.bytes > file.used.reads.bytes);
            if let (Some(rate), Some(sum)) = (counted::rate(&file.used), sums[writes].get_mut(only))
                && both.mean_bytes() >= SMALL_BYTES as f64
            {
                let bytes = both.bytes as f64;
                *sum = (sum.0 + bytes, sum.1 + bytes / rate);
            }
            continue;
        }
        for request in requests.iter().filter(|request| request.size >= SMALL_BYTES) {
            let took_s = request.end_s - request.start_s;
            let pieces = layout.split(request.offset, request.size);
            // Of a request on several servers nobody knows which one it waited for.
            if let ([piece], true) = (&pieces[..], took_s > 0.0)
                && let Some(sum) = sums[usize::from(request.op == Op::Write)].get_mut(piece.server.index())
            {
                *sum = (sum.0 + piece.len as f64, sum.1 + took_s);
            }
        }
    }
    let moved = |sums: &[(f64, f64)]| sums.iter().map(|sum| sum.0).sum::<f64>();
    let [reads, writes] = sums;
    let sums = if moved(&writes) > moved(&reads) { writes } else { reads };
    let mut rates: Vec<SlowServer> = sums
        .iter()
        .enumerate()
        .filter(|(_, (bytes, seconds))| *bytes >= BYTES && *seconds > 0.0)
        .map(|(server, (bytes, seconds))| SlowServer { server, bytes_per_s: bytes / seconds })
        .collect();
    rates.sort_by(|a, b| a.bytes_per_s.total_cmp(&b.bytes_per_s));
    let compared = rates.len();
    let median_bytes_per_s = rates.get(compared / 2)?.bytes_per_s;
    rates.retain(|rate| rate.bytes_per_s < SLOW * median_bytes_per_s);
    // Where a third of all are, these are of another kind and not slow ones of one.
    let few = !rates.is_empty() && 3 * rates.len() <= compared;
    (compared >= SERVERS && few).then_some(Slow { servers: rates, median_bytes_per_s, compared })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::Use;
    use stripewise_layout::ServerId;

    #[test]
    fn the_slow_one_of_many_is_found() {
        let files = [File { id: 0, path: "a".into(), used: Use::default(), counted: false }];
        let layouts = [Layout::striped((0..6).map(ServerId), 1 << 20).unwrap()];
        let requests = |slow: u64| -> Vec<Request> {
            let request = |n: u64| {
                let took_s = if n % 6 == slow { 0.5 } else { 0.1 };
                Request { offset: n << 20, size: 1 << 20, op: Op::Read, process: 0, start_s: 0.0, end_s: took_s }
            };
            (0..24).map(request).collect()
        };
        let find = |slow_one| slow(&files, &layouts, &[true], &[requests(slow_one)], 6);
        let found = find(4).unwrap();
        assert_eq!((found.servers.len(), found.servers[0].server, found.compared), (1, 4, 6));
        assert!(found.words(&|server| format!("OST {server}")).starts_with("OST 4 serves 2.0 MiB/s a request"));
        assert_eq!(find(7), None);
        assert_eq!(slow(&files, &layouts, &[false], &[requests(4)], 6), None, "a layout that is only assumed");
    }
}
