//! Block costs of Song et al. and their division among servers (math C): the paper's equal-depth rule on costs that are
//! shared by blocks, and loads with a startup for every server that a request touches.
//!
//! A file is cut into blocks; block `i` falls on position `i mod N` of a round of `N` blocks, and a server holds
//! consecutive positions. Requests are added one by one; both forms keep `N` figures for each operation, whatever the
//! length of the file.

use stripewise_model::{Op, Profile};

/// Number of an operation's figures.
fn index(op: Op) -> usize {
    match op {
        Op::Read => 0,
        Op::Write => 1,
    }
}

/// Mean startup and time per byte of an operation in seconds (`alpha`, `beta`), the network included.
fn costs(profile: &Profile, op: Op) -> (f64, f64) {
    let of = profile.of(op);
    (0.5 * (of.startup_min_s + of.startup_max_s), of.transfer_s_per_byte + profile.network_s_per_byte)
}

/// The blocks that a request touches, as positions in the round.
struct Touched {
    /// Position of the first.
    first: usize,
    /// How many, partial ones included (`m`).
    blocks: u64,
    /// Bytes in the first and in the last; the others are touched whole.
    ends_bytes: (u64, u64),
}

/// The round: what positions are and where requests fall on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    /// Blocks in a round (`N`); at least 1.
    pub count: usize,
    /// Bytes of a block (`b`); at least 1.
    pub bytes: u64,
}

impl Blocks {
    fn touched(&self, offset: u64, size: u64) -> Touched {
        let (first, last) = (offset / self.bytes, (offset + size - 1) / self.bytes);
        let blocks = last - first + 1;
        let first_bytes = if blocks == 1 { size } else { self.bytes - offset % self.bytes };
        let last_bytes = (offset + size - 1) % self.bytes + 1;
        Touched { first: (first % self.count as u64) as usize, blocks, ends_bytes: (first_bytes, last_bytes) }
    }

    /// Adds the bytes of a request to the positions: whole laps at once, the rest one by one. O(min(m, N)).
    fn add_bytes(&self, bytes: &mut [f64], touched: &Touched, count: f64) {
        let n = self.count as u64;
        // The first and last block apart, those between are whole.
        bytes[touched.first] += count * touched.ends_bytes.0 as f64;
        if touched.blocks == 1 {
            return;
        }
        let last = (touched.first as u64 + (touched.blocks - 1) % n) % n;
        bytes[last as usize] += count * touched.ends_bytes.1 as f64;
        let (laps, rest) = ((touched.blocks - 2) / n, (touched.blocks - 2) % n);
        let block = count * self.bytes as f64;
        if laps > 0 {
            bytes.iter_mut().for_each(|sum| *sum += block * laps as f64);
        }
        (1..=rest as usize).for_each(|at| bytes[(touched.first + at) % self.count] += block);
    }
}

/// `K` and `S` of every position of a round (math C.1, C.2), reads and writes apart.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockCosts {
    of: Blocks,
    startups: [Vec<f64>; 2],
    bytes: [Vec<f64>; 2],
}

impl BlockCosts {
    /// No request yet.
    pub fn new(of: Blocks) -> Self {
        let zeros = || [vec![0.0; of.count], vec![0.0; of.count]];
        Self { of, startups: zeros(), bytes: zeros() }
    }

    /// Adds `count` requests of `size` bytes at `offset` (together at most 2^63): `1/m` startups to each of the `m`
    /// blocks that one touches, and its bytes. O(min(m, N)).
    pub fn add(&mut self, op: Op, offset: u64, size: u64, count: f64) {
        if size == 0 {
            return;
        }
        let touched = self.of.touched(offset, size);
        let (startups, n) = (&mut self.startups[index(op)], self.of.count as u64);
        let share = count / touched.blocks as f64;
        let (laps, rest) = (touched.blocks / n, touched.blocks % n);
        if laps > 0 {
            startups.iter_mut().for_each(|sum| *sum += share * laps as f64);
        }
        (0..rest as usize).for_each(|at| startups[(touched.first + at) % self.of.count] += share);
        self.of.add_bytes(&mut self.bytes[index(op)], &touched, count);
    }

    /// `c_j = K_j alpha + S_j beta` in seconds for every position (Eq. 1), summed over both operations. O(N).
    pub fn costs_s(&self, profile: &Profile) -> Vec<f64> {
        let mut sums = vec![0.0; self.of.count];
        for op in [Op::Read, Op::Write] {
            let (startup_s, s_per_byte) = costs(profile, op);
            let figures = self.startups[index(op)].iter().zip(&self.bytes[index(op)]);
            sums.iter_mut().zip(figures).for_each(|(sum, (k, s))| *sum += k * startup_s + s * s_per_byte);
        }
        sums
    }
}

/// The paper's rule (math C.3, method 1): break points where the accumulated cost is `i/n` of the whole, a block's cost
/// spread evenly over it; widths rounded half up to whole blocks, the last server has what is left. Blocks per server;
/// equal runs where nothing costs anything. O(N + n).
///
/// # Panics
/// Without servers.
pub fn quantile_widths(costs_s: &[f64], servers: usize) -> Vec<usize> {
    assert!(servers > 0, "blocks need a server");
    let total: f64 = costs_s.iter().sum();
    let even = vec![1.0; costs_s.len()];
    let (costs_s, total) = if total > 0.0 { (costs_s, total) } else { (&even[..], costs_s.len() as f64) };
    let (mut block, mut before) = (0, 0.0);
    let mut left = costs_s.len();
    let mut last_point = 0.0;
    let mut widths = Vec::with_capacity(servers);
    for server in 1..servers {
        let wanted = total * server as f64 / servers as f64;
        while block < costs_s.len() && before + costs_s[block] < wanted {
            before += costs_s[block];
            block += 1;
        }
        let inside = costs_s.get(block).map_or(0.0, |&cost| if cost > 0.0 { (wanted - before) / cost } else { 0.0 });
        let point = block as f64 + inside;
        // Half up, within what is left.
        let width = ((point - last_point + 0.5).floor().max(0.0) as usize).min(left);
        last_point = point;
        left -= width;
        widths.push(width);
    }
    widths.push(left);
    widths
}

/// Loads of servers that hold runs of positions, with a startup for every server that a request touches: what a server
/// is really kept busy for (`beyond.md` 5).
///
/// The number of requests that touch the positions `[a, b)` is a function of `a` and `b` alone, so that runs can be
/// dealt to servers exactly by [`least_maximum`](crate::planners::song::partition::least_maximum).
#[derive(Debug, Clone, PartialEq)]
pub struct ServerLoads {
    of: Blocks,
    ops: [Touches; 2],
}

/// One operation's requests. An arc is a request's positions from `first` to `last`, `last` counted on beyond the end of
/// the round (`first <= last < first + N`); a longer request touches everything.
#[derive(Debug, Clone, PartialEq)]
struct Touches {
    /// Bytes on positions below `a`, once [`ServerLoads::finish`] has added them up.
    bytes: Vec<f64>,
    /// Requests that touch every position.
    everywhere: f64,
    /// Arcs with `first < a`.
    begun: Vec<f64>,
    /// Arcs with `last < a`.
    ended: Vec<f64>,
    /// Arcs with `last >= a + N`.
    around: Vec<f64>,
    /// Arcs with `first < b` and `last >= a + N`, at `a (N + 1) + b`; empty when no arc goes around, or the round has too
    /// many blocks.
    both: Vec<f64>,
}

/// Rounds of more blocks do without [`Touches::both`], a square of them.
const MOST_SQUARED: usize = 1024;

impl Touches {
    fn new(blocks: usize) -> Self {
        let zeros = || vec![0.0; blocks + 1];
        Self { bytes: zeros(), everywhere: 0.0, begun: zeros(), ended: zeros(), around: zeros(), both: Vec::new() }
    }

    fn add(&mut self, blocks: usize, touched: &Touched, count: f64) {
        if touched.blocks >= blocks as u64 {
            self.everywhere += count;
            return;
        }
        let last = touched.first + touched.blocks as usize - 1;
        self.begun[touched.first + 1] += count;
        if last < blocks {
            self.ended[last + 1] += count;
        } else {
            let beyond = last - blocks;
            self.around[beyond] += count;
            if blocks <= MOST_SQUARED {
                self.both.resize((blocks + 1) * (blocks + 1), 0.0);
                self.both[beyond * (blocks + 1) + touched.first + 1] += count;
            }
        }
    }

    fn finish(&mut self, blocks: usize) {
        let add_up = |figures: &mut [f64]| {
            (1..figures.len()).for_each(|at| figures[at] += figures[at - 1]);
        };
        [&mut self.bytes, &mut self.begun, &mut self.ended].into_iter().for_each(|figures| add_up(figures));
        (0..blocks).rev().for_each(|at| self.around[at] += self.around[at + 1]);
        if !self.both.is_empty() {
            let stride = blocks + 1;
            self.both.chunks_mut(stride).for_each(add_up);
            for at in (0..blocks * stride).rev() {
                self.both[at] += self.both[at + stride];
            }
        }
    }

    /// Requests that touch `[from, to)`.
    fn requests(&self, from: usize, to: usize) -> f64 {
        let twice = if self.both.is_empty() { 0.0 } else { self.both[from * self.begun.len() + to] };
        self.everywhere + (self.begun[to] - self.ended[from]) + (self.around[from] - twice)
    }
}

impl ServerLoads {
    /// The loads of `requests`: operation, offset, size (together at most 2^63) and how many of them. O(requests x
    /// min(m, N)), and O(N^2) when requests go around the end of the round and `N` is at most 1024. In longer rounds such a
    /// request, should it begin and end on one server, counts as two there.
    pub fn new(of: Blocks, requests: impl IntoIterator<Item = (Op, u64, u64, f64)>) -> Self {
        let mut ops = [Touches::new(of.count), Touches::new(of.count)];
        for (op, offset, size, count) in requests {
            if size > 0 {
                let touched = of.touched(offset, size);
                let touches = &mut ops[index(op)];
                of.add_bytes(&mut touches.bytes[1..], &touched, count);
                touches.add(of.count, &touched, count);
            }
        }
        ops.iter_mut().for_each(|touches| touches.finish(of.count));
        Self { of, ops }
    }

    /// The round.
    pub fn blocks(&self) -> Blocks {
        self.of
    }

    /// Busy time in seconds of a server of `profile` that holds positions `from..to`. O(1).
    pub fn load_s(&self, profile: &Profile, from: usize, to: usize) -> f64 {
        if from >= to {
            return 0.0;
        }
        let of = |op: Op| {
            let ((startup_s, s_per_byte), touches) = (costs(profile, op), &self.ops[index(op)]);
            touches.requests(from, to) * startup_s + (touches.bytes[to] - touches.bytes[from]) * s_per_byte
        };
        of(Op::Read) + of(Op::Write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planners::song::partition::least_maximum;
    use crate::table_ii::{TABLE_II, song_loop};
    use proptest::prelude::*;
    use stripewise_layout::{Layout, ServerId, Stripe};
    use stripewise_model::{CostModel, OpProfile, presets};

    fn profile(startup_s: f64, s_per_byte: f64) -> Profile {
        let op = OpProfile {
            startup_min_s: startup_s,
            startup_max_s: startup_s,
            transfer_s_per_byte: s_per_byte,
            head: None,
        };
        Profile { read: op, write: op, network_s_per_byte: 0.0 }
    }

    /// Widths in KB for a round and block size in KB, alpha = 0.2 ms and the given KB/ms.
    fn table_row(round: u64, block: u64, kb_per_ms: f64) -> Vec<u64> {
        let blocks = Blocks { count: (round / block) as usize, bytes: block << 10 };
        let mut costs = BlockCosts::new(blocks);
        song_loop(4 << 20).into_iter().for_each(|(offset, size)| costs.add(Op::Write, offset, size, 1.0));
        let costs = costs.costs_s(&profile(0.2e-3, presets::seconds_per_byte(kb_per_ms)));
        quantile_widths(&costs, 4).into_iter().map(|width| width as u64 * block).collect()
    }

    #[test]
    fn table_ii_of_song_row_by_row() {
        for (round, block, widths) in TABLE_II {
            // 1/beta = 85 KB/ms, and anywhere else in the interval that math F.1 gives.
            for kb_per_ms in [74.0, 85.0, 99.0] {
                assert_eq!(table_row(round, block, kb_per_ms), widths, "{round} {block} at {kb_per_ms}");
            }
        }
        // Beyond the interval some row differs.
        for kb_per_ms in [73.0, 101.0] {
            assert!(TABLE_II.iter().any(|&(round, block, widths)| table_row(round, block, kb_per_ms) != widths));
        }
    }

    #[test]
    fn the_exact_rule_is_never_above_the_papers() {
        // 256 KB, blocks of 4 KB, R = 4.5 and a cost of 1 for a request of 1 KB: 52.0 against 52.5.
        let (round, block) = (256, 4);
        let alpha = 59.5 / 3.5;
        let profile = profile(alpha / (alpha + 1.0), 1.0 / (alpha + 1.0) / 1024.0);
        let mut costs = BlockCosts::new(Blocks { count: round / block, bytes: 4 << 10 });
        song_loop(256 << 10).into_iter().for_each(|(offset, size)| costs.add(Op::Read, offset, size, 1.0));
        let costs = costs.costs_s(&profile);
        let load = |from: usize, to: usize| costs[from..to].iter().sum::<f64>();
        let greatest = |ends: &[usize]| {
            let starts = std::iter::once(0).chain(ends.iter().copied());
            ends.iter().zip(starts).map(|(&to, from)| load(from, to)).fold(0.0_f64, f64::max)
        };
        let ends = |widths: &[usize]| -> Vec<usize> {
            widths
                .iter()
                .scan(0, |sum, width| {
                    *sum += width;
                    Some(*sum)
                })
                .collect()
        };
        let exact = least_maximum(4, costs.len(), |_, from, to| load(from, to));
        let paper = ends(&quantile_widths(&costs, 4));
        assert!((greatest(&exact) - 52.0).abs() < 0.05, "{}", greatest(&exact));
        assert!((greatest(&paper) - 52.5).abs() < 0.05, "{}", greatest(&paper));
    }

    #[test]
    fn nothing_asked_for_is_equal_widths() {
        assert_eq!(quantile_widths(&[0.0; 8], 4), [2; 4]);
        assert_eq!(quantile_widths(&[0.0; 3], 4), [1, 1, 1, 0]);
        assert_eq!(quantile_widths(&[], 2), [0, 0]);
        assert_eq!(quantile_widths(&[5.0, 0.0, 0.0, 0.0], 2).iter().sum::<usize>(), 4);
    }

    #[test]
    fn the_largest_requests_and_offsets_are_counted() {
        let blocks = Blocks { count: 3, bytes: 4096 };
        let whole = [(Op::Read, 0, 1 << 63, 1.0), (Op::Write, (1 << 63) - 1, 1, 1.0)];
        let mut costs = BlockCosts::new(blocks);
        whole.iter().for_each(|&(op, offset, size, count)| costs.add(op, offset, size, count));
        let sum: f64 = costs.costs_s(&profile(1.0, 1.0)).iter().sum();
        assert!((sum / (2.0 + 2_f64.powi(63)) - 1.0).abs() < 1e-12);
        let loads = ServerLoads::new(blocks, whole);
        assert_eq!(loads.load_s(&profile(1.0, 0.0), 0, 3), 2.0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn loads_are_those_of_the_layout(
            requests in prop::collection::vec((any::<bool>(), 0_u64..400, 1_u64..120), 0..20),
            widths in prop::collection::vec(0_usize..6, 1..5),
            block_bytes in 1_u64..9,
        ) {
            let requests: Vec<(Op, u64, u64, f64)> = requests.into_iter()
                .map(|(read, offset, size)| (if read { Op::Read } else { Op::Write }, offset, size, 1.0)).collect();
            let count = widths.iter().sum::<usize>();
            prop_assume!(count > 0);
            let mut cluster = presets::set_p(widths.len() as u16, 0, true);
            cluster.tiers[0].profile.write.startup_min_s = 1e-3;
            let loads = ServerLoads::new(Blocks { count, bytes: block_bytes }, requests.iter().copied());
            let stripes = widths.iter().enumerate().filter(|&(_, &width)| width > 0);
            let stripes = stripes.map(|(server, &width)| Stripe { server: ServerId(server as u16), width_bytes: width as u64 * block_bytes });
            let layout = Layout::new([(0, stripes.collect())]).unwrap();
            let model = CostModel::new(&cluster);
            let mut busy = vec![0.0; widths.len()];
            for &(op, offset, size, _) in &requests {
                model.layout_latency_s(&layout, op, offset, size, |slot, of| busy[slot] += of.device_s + of.network_s).unwrap();
            }
            let mut from = 0;
            for (server, width) in widths.iter().enumerate() {
                let load = loads.load_s(&cluster.tiers[0].profile, from, from + width);
                prop_assert!((load - busy[server]).abs() <= 1e-9 * busy[server].max(1e-9), "{server}: {load} {busy:?}");
                from += width;
            }
        }

        #[test]
        fn equal_depth_is_the_exhaustive_optimum(
            requests in prop::collection::vec((any::<bool>(), 0_u64..600, 1_u64..200), 1..12),
            servers in prop::collection::vec((0.0_f64..1e-2, 1e-6_f64..1e-3), 1..5),
            count in 1_usize..10,
        ) {
            // Servers with a startup and a speed of their own: every contiguous partition, loads in seconds.
            let requests = requests.into_iter()
                .map(|(read, offset, size)| (if read { Op::Read } else { Op::Write }, offset, size, 1.0));
            let loads = ServerLoads::new(Blocks { count, bytes: 16 }, requests);
            let profiles: Vec<Profile> = servers.iter().map(|&(startup_s, beta)| profile(startup_s, beta)).collect();
            let load = |server: usize, from: usize, to: usize| loads.load_s(&profiles[server], from, to);
            let greatest = |ends: &[usize]| {
                let starts = std::iter::once(0).chain(ends.iter().copied());
                ends.iter().zip(starts).enumerate().map(|(s, (&to, from))| load(s, from, to)).fold(0.0_f64, f64::max)
            };
            let mut least = f64::INFINITY;
            let mut ends = vec![count; servers.len()];
            let breaks = servers.len() - 1;
            for number in 0..(count + 1).pow(breaks as u32) {
                let digits = (0..breaks).scan(number, |n, _| { let d = *n % (count + 1); *n /= count + 1; Some(d) });
                digits.enumerate().for_each(|(at, digit)| ends[at] = digit);
                if ends.is_sorted() {
                    least = least.min(greatest(&ends));
                }
            }
            prop_assert_eq!(greatest(&least_maximum(servers.len(), count, load)), least);
        }
    }
}
