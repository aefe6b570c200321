//! What happened when: a run cut in bins of equal length.

use crate::time::seconds;

/// A run in bins of equal length; the last one ends with the run.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// Seconds of a bin.
    pub bin_s: f64,
    /// Bytes of the reads that ended in each bin.
    pub read_bytes: Vec<u64>,
    /// Bytes of the writes that ended in each.
    pub written_bytes: Vec<u64>,
    /// By [`ServerId::index`](stripewise_layout::ServerId::index), then by bin.
    pub servers: Vec<Vec<ServerBin>>,
}

impl Timeline {
    /// Bytes per second in each bin; the last is taken over its part of the run that took `makespan_s` seconds.
    pub fn throughput(&self, makespan_s: f64) -> Vec<f64> {
        let bytes = self.read_bytes.iter().zip(&self.written_bytes);
        let rate = |(index, (&read, &written)): (usize, (&u64, &u64))| {
            let length_s = self.bin_s.min(makespan_s - index as f64 * self.bin_s);
            if length_s > 0.0 { (read as f64 + written as f64) / length_s } else { 0.0 }
        };
        bytes.enumerate().map(rate).collect()
    }
}

/// One server in one bin.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ServerBin {
    /// Share of the time that its device was serving.
    pub busy: f64,
    /// Sub-requests at its device, served or waiting, on average.
    pub queue: f64,
    /// Bytes of the sub-requests whose service ended.
    pub bytes: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Bin {
    busy_ns: u64,
    /// Nanoseconds that sub-requests were there, added up.
    present_ns: u64,
    bytes: u64,
}

impl Bin {
    fn add(&mut self, other: &Bin) {
        self.busy_ns = self.busy_ns.saturating_add(other.busy_ns);
        self.present_ns = self.present_ns.saturating_add(other.present_ns);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Bins while a run lasts: when it outgrows them, two become one. Their length is a power of two nanoseconds.
#[derive(Debug)]
pub(crate) struct TimelineRecorder {
    /// Bins a server; even.
    bins: usize,
    shift: u32,
    servers: Vec<Bin>,
    totals: Vec<(u64, u64)>,
    /// Since when each server has had as many sub-requests as it has.
    changed_ns: Vec<u64>,
}

/// A microsecond: no run is of interest that is shorter than some of them.
const FIRST_SHIFT: u32 = 10;

impl TimelineRecorder {
    /// For at least `bins` bins.
    pub(crate) fn new(bins: usize, servers: usize) -> Self {
        let bins = bins.max(1) * 2;
        Self {
            bins,
            shift: FIRST_SHIFT,
            servers: vec![Bin::default(); bins * servers],
            totals: vec![(0, 0); bins],
            changed_ns: vec![0; servers],
        }
    }

    #[inline]
    fn bin_of(&mut self, ns: u64) -> usize {
        while (ns >> self.shift) as usize >= self.bins {
            self.halve();
        }
        (ns >> self.shift) as usize
    }

    /// O(servers x bins), as often as the run doubles.
    #[cold]
    fn halve(&mut self) {
        for server in self.servers.chunks_exact_mut(self.bins) {
            for index in 0..self.bins / 2 {
                let mut sum = server[2 * index];
                sum.add(&server[2 * index + 1]);
                server[index] = sum;
            }
            server[self.bins / 2..].fill(Bin::default());
        }
        for index in 0..self.bins / 2 {
            let (a, b) = (self.totals[2 * index], self.totals[2 * index + 1]);
            self.totals[index] = (a.0.saturating_add(b.0), a.1.saturating_add(b.1));
        }
        self.totals[self.bins / 2..].fill((0, 0));
        self.shift += 1;
    }

    /// Calls `add` with each bin of `[from_ns, to_ns)` and the nanoseconds in it.
    #[inline]
    fn spread(&mut self, server: usize, from_ns: u64, to_ns: u64, add: impl Fn(&mut Bin, u64)) {
        let last = self.bin_of(to_ns);
        let mut bin = (from_ns >> self.shift) as usize;
        let mut from_ns = from_ns;
        let row = &mut self.servers[server * self.bins..][..self.bins];
        while bin < last {
            let end_ns = (bin as u64 + 1) << self.shift;
            add(&mut row[bin], end_ns - from_ns);
            from_ns = end_ns;
            bin += 1;
        }
        add(&mut row[bin], to_ns - from_ns);
    }

    /// From now on another number of sub-requests than `present` is at `server`. O(1) and the bins since the last time.
    #[inline]
    pub(crate) fn queue_changes(&mut self, server: usize, now_ns: u64, present: u32) {
        let since_ns = std::mem::replace(&mut self.changed_ns[server], now_ns);
        if present > 0 && since_ns < now_ns {
            let add = |bin: &mut Bin, ns: u64| {
                bin.present_ns = bin.present_ns.saturating_add(ns.saturating_mul(u64::from(present)))
            };
            self.spread(server, since_ns, now_ns, add);
        }
    }

    /// `server` has served `bytes` since `since_ns`. O(1) and the bins of that time.
    #[inline]
    pub(crate) fn served(&mut self, server: usize, since_ns: u64, now_ns: u64, bytes: u64) {
        self.spread(server, since_ns, now_ns, |bin, ns| bin.busy_ns += ns);
        let bin = self.bin_of(now_ns);
        let bin = &mut self.servers[server * self.bins + bin];
        bin.bytes = bin.bytes.saturating_add(bytes);
    }

    /// A request of `bytes` ended. O(1).
    #[inline]
    pub(crate) fn ended(&mut self, now_ns: u64, write: bool, bytes: u64) {
        let bin = self.bin_of(now_ns);
        let total = &mut self.totals[bin];
        let side = if write { &mut total.1 } else { &mut total.0 };
        *side = side.saturating_add(bytes);
    }

    /// O(servers x bins).
    pub(crate) fn finish(mut self, makespan_ns: u64) -> Timeline {
        let count = self.bin_of(makespan_ns) + 1;
        let length = |bin: usize| makespan_ns.saturating_sub((bin as u64) << self.shift).min(1 << self.shift).max(1);
        let servers = self.servers.chunks_exact(self.bins).map(|row| {
            let bins = row[..count].iter().enumerate().map(|(index, bin)| ServerBin {
                busy: bin.busy_ns as f64 / length(index) as f64,
                queue: bin.present_ns as f64 / length(index) as f64,
                bytes: bin.bytes,
            });
            bins.collect()
        });
        Timeline {
            bin_s: seconds(1 << self.shift),
            read_bytes: self.totals[..count].iter().map(|total| total.0).collect(),
            written_bytes: self.totals[..count].iter().map(|total| total.1).collect(),
            servers: servers.collect(),
        }
    }
}
