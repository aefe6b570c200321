//! The best width for every server of one region, for the price of the whole plan: a local search that moves steps of
//! bytes between servers and tiers, and branch and bound where the widths are few enough to be gone through.

use crate::job::demand::RequestGroup;
use crate::objective::pricing::{Pricer, ServerLoad, add};
use crate::planners::song::costs::{Blocks, ServerLoads};
use rayon::prelude::*;
use std::cmp::Ordering;
use std::ops::Range;
use stripewise_layout::{Layout, ServerId, Stripe};
use stripewise_model::{Op, OpProfile, Profile, WaterLevel, water_fill};

/// Vectors of widths up to which the exact search is tried.
const MOST_VECTORS: u128 = 100_000;

/// Servers beyond which only the busiest and the least busy exchange bytes.
const ALL_PAIRS: usize = 8;

/// Widths that the local search prices at most.
const MOST_MOVES: usize = 4000;

/// A step must gain this share: less is rounding.
const LEAST_GAIN: f64 = 1e-9;

/// One region, its requests, and everything that is fixed beside it.
pub(crate) struct Instance<'a> {
    pub pricer: &'a Pricer<'a>,
    /// What the region is asked for.
    pub entries: Vec<RequestGroup>,
    /// What all other regions ask of the servers.
    pub rest: ServerLoad,
    /// Bytes that each server still has room for, by slot.
    pub room: Vec<u64>,
    /// Bytes of the file in the region.
    pub present: Range<u64>,
    /// Widths are multiples of this in bytes.
    pub step: u64,
    /// Greatest width in bytes.
    pub widest: u64,
}

/// What widths are compared by: first that they fit, then time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct VectorRank {
    pub excess_bytes: u64,
    pub time_s: f64,
}

impl VectorRank {
    fn order(&self, other: &Self) -> Ordering {
        self.excess_bytes.cmp(&other.excess_bytes).then(self.time_s.total_cmp(&other.time_s))
    }

    fn beats(&self, other: &Self) -> bool {
        let less = self.time_s < other.time_s * (1.0 - LEAST_GAIN);
        self.excess_bytes < other.excess_bytes || (self.excess_bytes == other.excess_bytes && less)
    }
}

/// Widths in bytes by slot, with what they cost.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Vector {
    pub widths: Vec<u64>,
    pub rank: VectorRank,
    /// Nothing on the grid is better.
    pub proved: bool,
}

/// The round of these widths; servers without any do not stand in it. `None` without any server.
pub(crate) fn stripes(servers: &[ServerId], widths: &[u64]) -> Option<Vec<Stripe>> {
    let held = servers.iter().zip(widths).filter(|&(_, &width)| width > 0);
    let stripes: Vec<Stripe> = held.map(|(&server, &width_bytes)| Stripe { server, width_bytes }).collect();
    (!stripes.is_empty()).then_some(stripes)
}

impl Instance<'_> {
    fn servers(&self) -> Vec<ServerId> {
        self.pricer.cluster.tiers.iter().flat_map(|tier| tier.servers.iter().copied()).collect()
    }

    /// The region's own load and bytes beyond the room under these widths; `None` for no round at all. O(entries x
    /// sub-requests^2).
    fn load(&self, widths: &[u64]) -> Option<(ServerLoad, u64)> {
        let servers = self.servers();
        let layout = Layout::new([(0, stripes(&servers, widths)?)]).ok()?;
        let load = self.pricer.layout_load(&self.entries, &layout).expect("the layout is of the cluster");
        let region = &layout.regions()[0];
        let slots = (0..widths.len()).filter(|&slot| widths[slot] > 0);
        let over = slots.enumerate().map(|(index, slot)| {
            let before = |x: u64| region.bytes_before(index, x);
            (before(self.present.end) - before(self.present.start)).saturating_sub(self.room[slot])
        });
        let excess = over.fold(0, u64::saturating_add);
        Some((load, excess))
    }

    /// What these widths cost; `None` for no round at all.
    pub(crate) fn rank(&self, widths: &[u64]) -> Option<VectorRank> {
        let (mut load, excess_bytes) = self.load(widths)?;
        add(&mut load, &self.rest);
        Some(VectorRank { excess_bytes, time_s: self.pricer.time_s(&load) })
    }

    /// The best widths found from `starts`, pricing about `looks` requests. With few enough vectors of widths on the grid
    /// it is the best of all of them ([`Vector::proved`]); else no move of one of the tried sizes between two servers or two
    /// tiers, or of one of them alone, makes it better (with more than 8 servers: between the 4 busiest and the 4 least
    /// busy). `None` when no start is a round.
    pub(crate) fn search(&self, starts: &[Vec<u64>], looks: usize) -> Option<Vector> {
        let ranked = starts.iter().filter_map(|widths| Some((self.rank(widths)?, widths.clone())));
        // The first of equals.
        let better = |a: (VectorRank, Vec<u64>), b: (VectorRank, Vec<u64>)| if b.0.beats(&a.0) { b } else { a };
        let (rank, widths) = ranked.reduce(better)?;
        let looks = looks / self.entries.len().max(1);
        let mut best = Vector { widths, rank, proved: false };
        self.improve(&mut best, looks.min(MOST_MOVES));
        let each = u128::from(self.widest / self.step) + 1;
        let vectors = each.checked_pow(best.widths.len() as u32).filter(|&vectors| vectors <= MOST_VECTORS);
        if vectors.is_some_and(|vectors| vectors <= looks as u128) {
            self.exact(&mut best);
        }
        Some(best)
    }

    /// Takes the best move of each size, from large to single steps, while there is one.
    fn improve(&self, best: &mut Vector, mut looks: usize) {
        let greatest = best.widths.iter().copied().max().unwrap_or(0).max(self.step);
        let mut size = self.step * (greatest / self.step).next_power_of_two();
        while size >= self.step && looks > 0 {
            loop {
                let moves = self.moves(&best.widths, size);
                looks = looks.saturating_sub(moves.len());
                let ranked: Vec<(VectorRank, Vec<u64>)> =
                    moves.into_par_iter().filter_map(|widths| self.rank(&widths).map(|rank| (rank, widths))).collect();
                let found = ranked.into_iter().min_by(|a, b| a.0.order(&b.0).then_with(|| a.1.cmp(&b.1)));
                match found.filter(|found| found.0.beats(&best.rank)) {
                    Some((rank, widths)) => *best = Vector { widths, rank, proved: false },
                    None => break,
                }
                if looks == 0 {
                    return;
                }
            }
            size /= 2;
        }
    }

    /// The widths after each move of `size` bytes: from one server to another, of one alone; the same for whole tiers.
    fn moves(&self, widths: &[u64], size: u64) -> Vec<Vec<u64>> {
        let (from, to) = self.partners(widths);
        let mut found: Vec<Vec<u64>> = Vec::new();
        let mut offer = |lowered: &[usize], raised: &[usize]| {
            let mut moved = widths.to_vec();
            let mut freed = 0;
            for &slot in lowered {
                // Less than a whole move may be left: then all of it goes.
                let less = size.min(moved[slot]);
                moved[slot] -= less;
                freed += less;
            }
            if !raised.is_empty() {
                let more = if lowered.is_empty() { size * raised.len() as u64 } else { freed };
                let each = more / raised.len() as u64 / self.step * self.step;
                raised.iter().for_each(|&slot| moved[slot] = moved[slot].saturating_add(each).min(self.widest));
            }
            if moved != widths {
                found.push(moved);
            }
        };
        for &a in &from {
            offer(&[a], &[]);
            to.iter().filter(|&&b| a != b).for_each(|&b| offer(&[a], &[b]));
        }
        to.iter().for_each(|&b| offer(&[], &[b]));
        let mut next = 0;
        let tiers = self.pricer.cluster.tiers.iter().map(|tier| {
            next += tier.servers.len();
            (next - tier.servers.len()..next).collect::<Vec<usize>>()
        });
        let tiers: Vec<Vec<usize>> = tiers.filter(|slots| slots.len() > 1 || widths.len() > 1).collect();
        for a in &tiers {
            offer(a, &[]);
            offer(&[], a);
            tiers.iter().filter(|&b| a != b).for_each(|b| offer(a, b));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Servers that may give and servers that may take.
    fn partners(&self, widths: &[u64]) -> (Vec<usize>, Vec<usize>) {
        let all: Vec<usize> = (0..widths.len()).collect();
        if widths.len() <= ALL_PAIRS {
            return (all.clone(), all);
        }
        let mut busy = vec![0.0; widths.len()];
        if let Some((mut load, _)) = self.load(widths) {
            add(&mut load, &self.rest);
            for of_phase in load.chunks(self.pricer.stride()) {
                let lanes = self.pricer.lanes();
                (0..widths.len()).for_each(|slot| busy[slot] += of_phase[1 + lanes.of_slot(slot)]);
            }
        }
        let mut order = all;
        order.sort_by(|&a, &b| busy[b].total_cmp(&busy[a]).then(a.cmp(&b)));
        (order[..ALL_PAIRS / 2].to_vec(), order[order.len() - ALL_PAIRS / 2..].to_vec())
    }

    /// Goes through all widths on the grid, round length by round length, leaving out what a bound excludes.
    fn exact(&self, best: &mut Vector) {
        let servers = best.widths.len() as u64;
        let most = self.widest / self.step;
        for steps in 1..=most * servers {
            let mut branch = Branch::new(self, steps as usize, most as usize);
            branch.descend(0, 0, best);
        }
        best.proved = true;
    }
}

/// All rounds of one length.
struct Branch<'a> {
    of: &'a Instance<'a>,
    /// Length in steps.
    steps: usize,
    /// Most steps of one server.
    most: usize,
    /// What positions ask for, by phase.
    loads: Vec<ServerLoads>,
    /// Least latency of all requests, by phase.
    least_latency_s: Vec<f64>,
    /// Profile of every slot as its device is priced: links are resources of their own.
    devices: Vec<Profile>,
    /// Least time per byte of every slot.
    s_per_byte: Vec<f64>,
    widths: Vec<u64>,
    /// A load as [`Pricer`] has it, for the bound.
    scratch: ServerLoad,
}

/// A byte for a second: loads are bytes.
const BYTES: Profile = {
    let op = OpProfile { startup_min_s: 0.0, startup_max_s: 0.0, transfer_s_per_byte: 1.0, head: None };
    Profile { read: op, write: op, network_s_per_byte: 0.0 }
};

impl<'a> Branch<'a> {
    fn new(of: &'a Instance<'a>, steps: usize, most: usize) -> Self {
        let tiers = of.pricer.cluster.tiers.iter();
        let profiles: Vec<Profile> =
            tiers.flat_map(|tier| std::iter::repeat_n(tier.profile, tier.servers.len())).collect();
        let phases = 0..of.pricer.phases().len();
        let blocks = Blocks { count: steps, bytes: of.step };
        let in_phase = |phase: usize| of.entries.iter().filter(move |e| usize::from(e.phase) == phase);
        let loads = phases
            .clone()
            .map(|phase| ServerLoads::new(blocks, in_phase(phase).map(|e| (e.op, e.offset, e.size, e.count))));
        let level = |profile: &Profile, op: Op| {
            let op = profile.of(op);
            let startup_s = 0.5 * (op.startup_min_s + op.startup_max_s);
            WaterLevel { startup_s, s_per_byte: op.transfer_s_per_byte + profile.network_s_per_byte }
        };
        let levels = [Op::Read, Op::Write]
            .map(|op| profiles.iter().map(|profile| level(profile, op)).collect::<Vec<WaterLevel>>());
        let least_latency_s =
            |e: &RequestGroup| e.count * ready_s(&levels[usize::from(e.op == Op::Write)], e.size as f64);
        let least_latency_s =
            phases.map(|phase| of.rest[phase * of.pricer.stride()] + in_phase(phase).map(least_latency_s).sum::<f64>());
        let s_per_byte = |profile: &Profile| profile.read.transfer_s_per_byte.min(profile.write.transfer_s_per_byte);
        Self {
            of,
            steps,
            most,
            loads: loads.collect(),
            least_latency_s: least_latency_s.collect(),
            s_per_byte: profiles.iter().map(s_per_byte).collect(),
            devices: profiles.iter().map(|&profile| Profile { network_s_per_byte: 0.0, ..profile }).collect(),
            widths: vec![0; profiles.len()],
            scratch: of.pricer.no_load(),
        }
    }

    /// Time that no plan with these first `slots` widths, `held` steps together, goes below.
    fn bound_s(&mut self, slots: usize, held: usize) -> f64 {
        let stride = self.of.pricer.stride();
        let mut sum = 0.0;
        for (phase, loads) in self.loads.iter().enumerate() {
            let rest = &self.of.rest[phase * stride..][1..stride];
            let mut busiest = rest.iter().fold(0.0_f64, |max, &busy| max.max(busy));
            let mut from = 0;
            for ((&width, &rest_s), device) in self.widths[..slots].iter().zip(rest).zip(&self.devices) {
                let to = from + (width / self.of.step) as usize;
                busiest = busiest.max(rest_s + loads.load_s(device, from, to));
                from = to;
            }
            let left: Vec<WaterLevel> = (slots..self.widths.len())
                .map(|slot| WaterLevel { startup_s: rest[slot], s_per_byte: self.s_per_byte[slot] })
                .collect();
            busiest = busiest.max(ready_s(&left, loads.load_s(&BYTES, held, self.steps)));
            let of_phase = &mut self.scratch[phase * stride..][..stride];
            (of_phase[0], of_phase[1]) = (self.least_latency_s[phase], busiest);
            sum += self.of.pricer.least_phase_time_s(phase, &self.scratch);
        }
        sum * (1.0 - LEAST_GAIN)
    }

    fn descend(&mut self, slot: usize, held: usize, best: &mut Vector) {
        let left = self.widths.len() - slot;
        if self.steps - held > left * self.most
            || (best.rank.excess_bytes == 0 && self.bound_s(slot, held) >= best.rank.time_s)
        {
            return;
        }
        if left == 0 {
            if let Some(rank) = self.of.rank(&self.widths).filter(|rank| rank.beats(&best.rank)) {
                *best = Vector { widths: self.widths.clone(), rank, proved: false };
            }
            return;
        }
        for width in 0..=self.most.min(self.steps - held) {
            self.widths[slot] = width as u64 * self.of.step;
            self.descend(slot + 1, held + width, best);
        }
        self.widths[slot] = 0;
    }
}

/// Time until which servers have served `bytes` at the earliest, each from its startup on; 0 where nothing limits them.
fn ready_s(levels: &[WaterLevel], bytes: f64) -> f64 {
    if bytes <= 0.0 || levels.is_empty() || levels.iter().any(|level| level.s_per_byte <= 0.0) {
        return 0.0;
    }
    water_fill(levels, bytes).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Job;
    use crate::job::input::{FileTrace, PlanOptions};
    use proptest::prelude::*;
    use stripewise_model::{Cluster, Request, presets};

    const STEP: u64 = 16 << 10;

    fn profile() -> impl Strategy<Value = Profile> {
        (1e-5_f64..5e-3, 0.0_f64..5e-3, 1e-10_f64..3e-8, 0.0_f64..1e-8).prop_map(|(min, more, beta, network)| {
            let op = |beta| OpProfile {
                startup_min_s: min,
                startup_max_s: min + more,
                transfer_s_per_byte: beta,
                head: None,
            };
            Profile { read: op(beta), write: op(beta * 1.3), network_s_per_byte: network }
        })
    }

    fn requests() -> impl Strategy<Value = Vec<Request>> {
        let request = (0_u64..40, 1_u64..12, any::<bool>(), 0_u32..4, 0.0_f64..4.0);
        let request = request.prop_map(|(at, size, read, process, start_s)| Request {
            // Some aligned, some not.
            offset: (at * 12) << 10,
            size: (size * 8) << 10,
            op: if read { Op::Read } else { Op::Write },
            process,
            start_s,
            end_s: start_s + 1.0,
        });
        prop::collection::vec(request, 1..7)
    }

    fn cluster(tiers: &[(u16, Profile)]) -> Cluster {
        let tiers: Vec<(&str, u16, Profile)> =
            tiers.iter().map(|&(servers, profile)| ("t", servers, profile)).collect();
        presets::cluster(&tiers)
    }

    fn instance<'a>(job: &'a Job, pricer: &'a Pricer<'a>, room: u64, most: u64) -> Instance<'a> {
        let file = &job.demand.files[0];
        Instance {
            pricer,
            entries: file.entries.clone(),
            rest: pricer.no_load(),
            room: vec![room; pricer.lanes().servers()],
            present: 0..file.extent,
            step: STEP,
            widest: most * STEP,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn small_instances_have_the_exhaustive_optimum(
            tiers in prop::collection::vec((1_u16..3, profile()), 1..3),
            requests in requests(), p in 1.0_f64..32.0, most in 1_u64..5, links in any::<bool>(),
            room in prop_oneof![2 => Just(u64::MAX), 1 => (8_u64..64).prop_map(|kib| kib << 13)],
        ) {
            let cluster = cluster(&tiers);
            let files = [FileTrace { name: "f".into(), requests: &requests, size_bytes: None }];
            let mut options = PlanOptions { processes: Some(p), ..PlanOptions::default() };
            if links {
                options.network = stripewise_simulate::Network::Link;
            }
            let job = Job::new(&files, &cluster, &options).unwrap();
            let pricer = job.pricer();
            let of = instance(&job, &pricer, room, most);
            let servers = of.room.len();
            let mut least: Option<VectorRank> = None;
            for number in 1..(most + 1).pow(servers as u32) {
                let digits = (0..servers).scan(number, |n, _| { let d = *n % (most + 1); *n /= most + 1; Some(d * STEP) });
                let rank = of.rank(&digits.collect::<Vec<u64>>()).unwrap();
                if least.is_none_or(|best| rank.order(&best).is_lt()) {
                    least = Some(rank);
                }
            }
            let least = least.unwrap();
            let found = of.search(&[vec![STEP; servers]], usize::MAX).unwrap();
            prop_assert!(found.proved);
            prop_assert_eq!(found.rank.excess_bytes, least.excess_bytes);
            prop_assert!(found.rank.time_s <= least.time_s * (1.0 + 2.0 * LEAST_GAIN), "{:?} {:?}", found, least);
            prop_assert_eq!(of.rank(&found.widths), Some(found.rank));
        }
    }

    #[test]
    fn a_large_instance_ends_where_no_move_helps() {
        let requests: Vec<Request> = (0..200_u64)
            .map(|i| Request {
                offset: (i * 7919 % 512) << 19,
                size: 1 << 19,
                op: Op::Read,
                process: (i % 16) as u32,
                start_s: (i / 16) as f64,
                end_s: (i / 16 + 1) as f64,
            })
            .collect();
        let files = [FileTrace { name: "f".into(), requests: &requests, size_bytes: None }];
        let (cluster, options) = (presets::set_b(6, 2), PlanOptions::default());
        let job = Job::new(&files, &cluster, &options).unwrap();
        let pricer = job.pricer();
        let of = Instance { widest: 1 << 22, ..instance(&job, &pricer, u64::MAX, 1) };
        let start = vec![64 << 10; 8];
        let before = of.rank(&start).unwrap();
        let found = of.search(std::slice::from_ref(&start), 10_000_000).unwrap();
        assert!(!found.proved && found.rank.time_s < before.time_s);
        let no_better = of.moves(&found.widths, STEP).iter().all(|widths| !of.rank(widths).unwrap().beats(&found.rank));
        assert!(no_better, "{found:?}");
        // Without anything to spend the start is what is found.
        assert_eq!(of.search(std::slice::from_ref(&start), 0).unwrap().widths, start);
        assert!(of.search(&[vec![0; 8]], 100).is_none());
    }
}
