//! The planner against simple placements, HARL and 2,000 random layouts, all simulated with the same requests and the
//! same startup times. Prints one line per figure with its target; exits with 1 when one is missed.
//!
//! Those are the requests that the plan was made from. Beside them stand the same figures on fresh requests, drawn from
//! the same regions with another seed: what a plan gains by following chance is not in those.
//!
//! `cargo run --release -p stripewise-planner --example planning_figures`

use rayon::prelude::*;
use std::time::Instant;
use stripewise_layout::{Layout, ServerId, Stripe};
use stripewise_model::{Cluster, Op, OpProfile, Profile, Request, Tier, TierWidths, presets};
use stripewise_planner::{FileTrace, Job, PlanOptions, harl_within_limits, plan_by};
use stripewise_simulate::{ClosedLoop, Network, SimulationOptions, simulate};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const PROCESSES: u32 = 16;
/// Other startup times than those that the planner rehearses with.
const SEED: u64 = 2026;
const RANDOM_LAYOUTS: usize = 2000;
const SSD_SHARE: f64 = 0.4;

/// SplitMix64: the workloads are the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// A region of a workload: its bytes, its request size and how often each of its bytes is asked for, relatively.
#[derive(Clone, Copy)]
struct Part {
    bytes: u64,
    request: u64,
    heat: f64,
}

/// In what order the requests come.
enum Order {
    /// Reads and writes of all regions mixed.
    Mixed,
    /// Everything written, then everything read, all regions mixed.
    WriteThenRead,
    /// One region after the other, reads.
    RegionByRegion,
}

struct Case {
    name: &'static str,
    parts: Vec<Part>,
    requests: Vec<Request>,
    cuts_s: Vec<f64>,
    bytes: u64,
}

fn case(name: &'static str, seed: u64, parts: &[(u64, u64, f64)], order: &Order, count: usize) -> Case {
    let parts: Vec<Part> =
        parts.iter().map(|&(mib, kib, heat)| Part { bytes: mib * MIB, request: kib * KIB, heat }).collect();
    let mut random = Random(seed);
    // Requests of a part: its share of the heat in bytes, over its request size.
    let weight = |part: &Part| part.heat * part.bytes as f64 / part.request as f64;
    let total: f64 = parts.iter().map(weight).sum();
    let mut list: Vec<(usize, Op)> = Vec::new();
    let passes: &[Option<Op>] =
        if matches!(order, Order::WriteThenRead) { &[Some(Op::Write), Some(Op::Read)] } else { &[None] };
    let mut cuts = Vec::new();
    for &op in passes {
        let begin = list.len();
        for (index, part) in parts.iter().enumerate() {
            let n = (count as f64 / passes.len() as f64 * weight(part) / total).round() as usize;
            if matches!(order, Order::RegionByRegion) && index > 0 {
                cuts.push(list.len());
            }
            for _ in 0..n {
                let op = match order {
                    Order::Mixed => random.pick(&[Op::Read, Op::Write]),
                    Order::RegionByRegion => Op::Read,
                    Order::WriteThenRead => op.expect("one operation a pass"),
                };
                list.push((index, op));
            }
        }
        if !matches!(order, Order::RegionByRegion) {
            for i in (begin + 1..list.len()).rev() {
                list.swap(i, begin + random.below((i - begin + 1) as u64) as usize);
            }
            if begin > 0 {
                cuts.push(begin);
            }
        }
    }
    let starts: Vec<u64> = parts.iter().scan(0, |at, part| Some(std::mem::replace(at, *at + part.bytes))).collect();
    let requests = list.iter().enumerate().map(|(i, &(index, op))| {
        let part = &parts[index];
        let offset = starts[index] + random.below(part.bytes / part.request) * part.request;
        // Every process has a request in flight at every time, as in a closed loop.
        let start_s = (i / PROCESSES as usize) as f64 * 0.01;
        Request {
            offset,
            size: part.request,
            op,
            process: (i % PROCESSES as usize) as u32,
            start_s,
            end_s: start_s + 0.01,
        }
    });
    let requests: Vec<Request> = requests.collect();
    let cuts_s = cuts.into_iter().map(|i| requests[i].start_s).collect();
    Case { name, requests, cuts_s, bytes: parts.iter().map(|part| part.bytes).sum(), parts }
}

/// The three loads; another `shift` draws other requests of the same regions.
fn cases(shift: u64) -> [Case; 3] {
    let mixed =
        [(256, 64, 10.0), (512, 512, 1.0), (256, 128, 4.0), (768, 2048, 2.0), (512, 256, 1.0), (256, 1024, 6.0)];
    let phased = [(512, 256, 1.0), (384, 1024, 5.0), (256, 64, 2.0), (512, 2048, 10.0), (640, 512, 1.5)];
    let visited = [
        (256, 512, 2.0),
        (384, 2048, 5.0),
        (128, 64, 10.0),
        (512, 1024, 1.0),
        (256, 256, 8.0),
        (384, 128, 1.0),
        (256, 2048, 3.0),
        (256, 512, 6.0),
    ];
    [
        case("mixed", 11 + shift, &mixed, &Order::Mixed, 16_000),
        case("write-then-read", 12 + shift, &phased, &Order::WriteThenRead, 16_000),
        case("region-by-region", 13 + shift, &visited, &Order::RegionByRegion, 16_000),
    ]
}

/// 6 HDDs and 2 SSDs of the figures, SSDs limited to a share of the bytes.
fn pool(bytes: u64, ssd_share: Option<f64>) -> Cluster {
    let op = |min_ms: f64, max_ms: f64, mb_s: f64| OpProfile {
        startup_min_s: min_ms * 1e-3,
        startup_max_s: max_ms * 1e-3,
        transfer_s_per_byte: 1e-6 / mb_s,
        head: None,
    };
    let tier = |name: &str, servers: std::ops::Range<u16>, op: OpProfile, capacity_bytes| Tier {
        name: name.into(),
        servers: servers.map(ServerId).collect(),
        profile: Profile { read: op, write: op, network_s_per_byte: 0.0 },
        capacity_bytes,
        in_turn: false,
        at_once: 1,
    };
    let limit = ssd_share.map(|share| (share * bytes as f64 / 2.0) as u64);
    Cluster {
        tiers: vec![tier("hdd", 0..6, op(4.0, 12.0, 80.0), None), tier("ssd", 6..8, op(0.08, 0.12, 400.0), limit)],
        meta: None,
    }
}

struct Stage {
    /// Requests that the planner has not seen, of the same regions.
    fresh: ClosedLoop,
    cluster: Cluster,
    workload: ClosedLoop,
    bytes: u64,
    options: SimulationOptions,
}

/// Throughput of a layout on the requests that it was chosen by, and on fresh ones.
#[derive(Clone, Copy, Default)]
struct Rates {
    same: f64,
    fresh: f64,
}

impl Rates {
    /// The one that is better on the requests to choose by.
    fn better(self, other: Self) -> Self {
        if other.same > self.same { other } else { self }
    }

    /// Of two rivals the better one on either kind of requests, so that ours meets the strongest.
    fn highest(self, other: Self) -> Self {
        Self { same: self.same.max(other.same), fresh: self.fresh.max(other.fresh) }
    }
}

impl Stage {
    fn rates(&self, layout: &Layout) -> Rates {
        let outcome = simulate(&self.cluster, std::slice::from_ref(layout), &self.fresh, &self.options);
        let fresh = outcome.expect("layouts of this pool").throughput() / MIB as f64;
        Rates { same: self.throughput(layout), fresh }
    }

    fn throughput(&self, layout: &Layout) -> f64 {
        let outcome = simulate(&self.cluster, std::slice::from_ref(layout), &self.workload, &self.options);
        outcome.expect("layouts of this pool").throughput() / MIB as f64
    }

    /// Whether the layout keeps every server's limit, counted from its rounds.
    fn valid(&self, layout: &Layout) -> bool {
        self.cluster.tiers.iter().filter(|tier| tier.capacity_bytes.is_some()).all(|tier| {
            tier.servers.iter().all(|server| {
                let held: u64 = layout
                    .regions()
                    .iter()
                    .enumerate()
                    .filter_map(|(index, region)| {
                        let slot = region.stripes().iter().position(|stripe| stripe.server == *server)?;
                        let end = layout.region_end(index).min(self.bytes);
                        Some(region.bytes_before(slot, end) - region.bytes_before(slot, region.offset().min(end)))
                    })
                    .sum();
                held <= tier.capacity_bytes.expect("filtered")
            })
        })
    }

    fn best(&self, layouts: impl IntoParallelIterator<Item = Layout>) -> Rates {
        let valid = layouts.into_par_iter().filter(|layout| self.valid(layout));
        valid.map(|layout| self.rates(&layout)).reduce(Rates::default, Rates::better)
    }

    fn layout(&self, rows: &[(u64, [u64; 2])]) -> Layout {
        let mut merged: Vec<(u64, [u64; 2])> = Vec::new();
        for &(offset, widths) in rows {
            if merged.last().is_none_or(|last| last.1 != widths) {
                merged.push((offset, widths));
            }
        }
        let rows: Vec<_> = merged.iter().map(|&(offset, widths)| (offset, TierWidths::new(&widths))).collect();
        TierWidths::layout(&rows, &self.cluster).expect("ascending rounds")
    }

    /// `[from, to)` on the SSDs for each of `spans`, the rest on the HDDs, with the best pair of widths of a grid.
    fn best_split(&self, on_ssd: &[bool], chunk: u64) -> Rates {
        let widths: Vec<u64> = (0..8).map(|k| (64 * KIB) << k).collect();
        let pairs: Vec<(u64, u64)> = widths.iter().flat_map(|&h| widths.iter().map(move |&s| (h, s))).collect();
        self.best(pairs.into_par_iter().map(|(h, s)| {
            let row = |(index, &fast): (usize, &bool)| (index as u64 * chunk, if fast { [0, s] } else { [h, 0] });
            self.layout(&on_ssd.iter().enumerate().map(row).collect::<Vec<_>>())
        }))
    }
}

/// A layout such as an expert might try: borders at the workload's own regions (mostly) or anywhere, widths from an
/// eighth of the region's request to eight times it, fast stripes up to 16 times wider, tiers left out; regions that do
/// not fit lose their fast stripes one after the other.
fn random_layout(stage: &Stage, case: &Case, random: &mut Random) -> Layout {
    let mut borders: Vec<u64> = if random.below(4) > 0 {
        case.parts.iter().scan(0, |at, part| Some(std::mem::replace(at, *at + part.bytes))).collect()
    } else {
        let mut some: Vec<u64> = (0..random.below(8)).map(|_| random.below(case.bytes / MIB) * MIB).collect();
        some.push(0);
        some
    };
    borders.sort_unstable();
    borders.dedup();
    let request_at = |offset: u64| {
        let mut end = 0;
        let part = case.parts.iter().find(|part| {
            end += part.bytes;
            offset < end
        });
        part.expect("inside the file").request
    };
    let mut rows: Vec<(u64, [u64; 2])> = borders
        .iter()
        .map(|&offset| {
            let scale = |power: u64| (request_at(offset) << power >> 3).max(4 * KIB);
            let h = scale(random.below(7));
            let s = match random.below(3) {
                0 => scale(random.below(10)),
                _ => (h as f64 * 2_f64.powf(random.below(33) as f64 / 8.0)) as u64 / 4096 * 4096,
            };
            let widths = match random.below(6) {
                0 => [h, 0],
                1 => [0, s],
                _ => [h, s],
            };
            (offset, widths)
        })
        .collect();
    loop {
        let layout = stage.layout(&rows);
        if stage.valid(&layout) {
            return layout;
        }
        let fast: Vec<usize> = (0..rows.len()).filter(|&i| rows[i].1[1] > 0).collect();
        let row = random.pick(&fast);
        // A smaller share first, none in the end.
        let [h, s] = rows[row].1;
        let h = if h == 0 { s } else { h };
        rows[row].1 = if s / 2 >= h { [h, s / 2 / 4096 * 4096] } else { [h, 0] };
    }
}

struct Verdict(bool);

impl Verdict {
    fn line(&mut self, what: &str, value: f64, least: f64) {
        self.0 &= self.beside(what, value, least);
    }

    /// A line that does not decide the exit code; whether it is met.
    fn beside(&self, what: &str, value: f64, least: f64) -> bool {
        let met = value >= least;
        println!("  {what:<58} {value:>6.2}  (at least {least:.2}) {}", if met { "ok" } else { "MISSED" });
        met
    }
}

fn planned(stage: &Stage, requests: &[Request], network: Network) -> (Layout, stripewise_planner::Plan, f64) {
    let begin = Instant::now();
    let files = [FileTrace { name: "file".into(), requests, size_bytes: Some(stage.bytes) }];
    let options = PlanOptions { network, ..PlanOptions::default() };
    let job = Job::new(&files, &stage.cluster, &options).expect("a job");
    let plan = plan_by("regions", &job).expect("a plan").plan;
    let layout = plan.files[0].layout.clone();
    assert!(stage.valid(&layout), "the plan exceeds a limit");
    (layout, plan, begin.elapsed().as_secs_f64())
}

#[expect(clippy::too_many_lines, reason = "one figure, computed and judged line by line")]
fn unequal(case: &Case, fresh: &Case, verdict: &mut Verdict) {
    let stage = Stage {
        cluster: pool(case.bytes, Some(SSD_SHARE)),
        workload: ClosedLoop::replay(&[&case.requests], &case.cuts_s, false),
        fresh: ClosedLoop::replay(&[&fresh.requests], &fresh.cuts_s, false),
        bytes: case.bytes,
        options: SimulationOptions { seed: SEED, network: Network::InBeta },
    };
    let (layout, plan, seconds) = planned(&stage, &case.requests, Network::InBeta);
    let ours = stage.rates(&layout);
    println!(
        "{}: {} requests, {} MiB, {} phases found, planned in {seconds:.1} s",
        case.name,
        case.requests.len(),
        case.bytes / MIB,
        plan.phases.len()
    );
    for region in &plan.files[0].regions {
        println!("    {:>6} MiB  {}", region.offset / MIB, region.widths.expect("regions of whole tiers"));
    }
    let fixed = stage.best((0..11).into_par_iter().map(|k| stage.layout(&[(0, [(4 * KIB) << k, (4 * KIB) << k])])));
    let chunk = 4 * MIB;
    let chunks = (case.bytes / chunk) as usize;
    let fit = (SSD_SHARE * case.bytes as f64 / chunk as f64) as usize;
    let by_offset = stage.best_split(&(0..chunks).map(|i| i < fit).collect::<Vec<_>>(), chunk);
    let mut heat = vec![0_u64; chunks];
    case.requests.iter().for_each(|r| heat[(r.offset / chunk) as usize] += r.size);
    let mut order: Vec<usize> = (0..chunks).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(heat[i]));
    // Room for what rounding to whole stripes costs.
    let mut hot = vec![false; chunks];
    order[..fit.saturating_sub(2)].iter().for_each(|&i| hot[i] = true);
    let hottest = stage.best_split(&hot, chunk);
    // The same by the regions as they are, which an administrator may know.
    let mut ranked: Vec<usize> = (0..case.parts.len()).collect();
    ranked.sort_by(|&a, &b| case.parts[b].heat.total_cmp(&case.parts[a].heat));
    let mut by_region = vec![false; chunks];
    let mut left = fit.saturating_sub(2);
    for index in ranked {
        let first: u64 = case.parts[..index].iter().map(|part| part.bytes / chunk).sum();
        let take = left.min((case.parts[index].bytes / chunk) as usize);
        by_region[first as usize..first as usize + take].fill(true);
        left -= take;
    }
    let hottest = hottest.highest(stage.best_split(&by_region, chunk));
    let files = [FileTrace { name: "file".into(), requests: &case.requests, size_bytes: Some(case.bytes) }];
    let options = PlanOptions::default();
    let harl = harl_within_limits(&Job::new(&files, &stage.cluster, &options).expect("valid")).expect("fits");
    assert!(stage.valid(&harl[0]));
    let harl = stage.rates(&harl[0]);
    let mut random = Random(99);
    let layouts: Vec<Layout> = (0..RANDOM_LAYOUTS).map(|_| random_layout(&stage, case, &mut random)).collect();
    let random = stage.best(layouts);
    for (requests, rate) in
        [("simulated", (|rates: Rates| rates.same) as fn(Rates) -> f64), ("fresh", |rates| rates.fresh)]
    {
        println!(
            "  MiB/s {requests}: ours {:.1}; SSDs first by offset {:.1}, best fixed width {:.1}, HARL {:.1}; hottest on \
            SSDs {:.1}; best of {RANDOM_LAYOUTS} random {:.1}",
            rate(ours),
            rate(by_offset),
            rate(fixed),
            rate(harl),
            rate(hottest),
            rate(random)
        );
    }
    println!(
        "  MiB/s predicted: {:.1}",
        plan.rehearsal.map_or(0.0, |_| {
            let bytes: u64 = case.requests.iter().map(|r| r.size).sum();
            bytes as f64 / MIB as f64 / plan.total.planned_s
        })
    );
    let simple = by_offset.highest(fixed).highest(harl);
    verdict.line("ours / best of {by offset, fixed width, HARL}", ours.same / simple.same, 1.3);
    verdict.line("ours / hottest bytes on SSDs", ours.same / hottest.same, 1.0);
    verdict.line("ours / best random layout", ours.same / random.same, 0.9);
    // A plan also follows the chance in the requests that it was made from; this is what is left without it.
    verdict.beside("fresh requests: ours / best of the three", ours.fresh / simple.fresh, 1.3);
    verdict.beside("fresh requests: ours / hottest bytes on SSDs", ours.fresh / hottest.fresh, 1.0);
    verdict.beside("fresh requests: ours / best random layout", ours.fresh / random.fresh, 0.9);
}

fn uniform(name: &str, op: Op, cluster: Cluster, network: Network, least: f64, verdict: &mut Verdict) {
    let part = [(4096, 512, 1.0)];
    let mut case = case("uniform", 5, &part, &Order::RegionByRegion, 16_000);
    case.requests.iter_mut().for_each(|r| r.op = op);
    let mut other = crate::case("uniform", 1005, &part, &Order::RegionByRegion, 16_000);
    other.requests.iter_mut().for_each(|r| r.op = op);
    let stage = Stage {
        fresh: ClosedLoop::replay(&[&other.requests], &[], false),
        cluster,
        workload: ClosedLoop::replay(&[&case.requests], &[], false),
        bytes: case.bytes,
        options: SimulationOptions { seed: SEED, network },
    };
    let (layout, plan, seconds) = planned(&stage, &case.requests, network);
    let rates = stage.rates(&layout);
    let ours = rates.same;
    let default = Layout::new([(0, (0..8).map(|i| Stripe { server: ServerId(i), width_bytes: 64 * KIB }).collect())]);
    let default = stage.rates(&default.expect("one region"));
    let fixed = default.same;
    let rows: Vec<String> = plan.files[0]
        .regions
        .iter()
        .map(|r| format!("{} MiB {}", r.offset / MIB, r.widths.expect("regions of whole tiers")))
        .collect();
    let bytes: u64 = case.requests.iter().map(|r| r.size).sum();
    println!(
        "{name}: {}; {ours:.1} MiB/s against {fixed:.1}, predicted {:.1} against {:.1}, planned in {seconds:.1} s",
        rows.join(", "),
        bytes as f64 / MIB as f64 / plan.total.planned_s,
        bytes as f64 / MIB as f64 / plan.total.default_s
    );
    verdict.line("ours / 64 KiB on all servers", ours / fixed, least);
    verdict.beside("fresh requests: ours / 64 KiB on all servers", rates.fresh / default.fresh, least);
}

fn main() {
    if let Some(name) = std::env::args().nth(1) {
        let mut verdict = Verdict(true);
        for (case, fresh) in cases(0).iter().zip(&cases(1000)).filter(|(case, _)| case.name == name) {
            unequal(case, fresh, &mut verdict);
        }
        return;
    }
    let mut verdict = Verdict(true);
    let bytes = 4096 * MIB;
    for op in [Op::Read, Op::Write] {
        uniform(&format!("uniform {op:?}, no limit"), op, pool(bytes, None), Network::InBeta, 12.0, &mut verdict);
        let limited = pool(bytes, Some(SSD_SHARE));
        uniform(&format!("uniform {op:?}, SSDs 40 %"), op, limited, Network::InBeta, 4.5, &mut verdict);
        uniform(&format!("uniform {op:?}, set B"), op, presets::set_b(6, 2), Network::InBeta, 1.45, &mut verdict);
    }
    for (case, fresh) in cases(0).iter().zip(&cases(1000)) {
        unequal(case, fresh, &mut verdict);
    }
    if !verdict.0 {
        std::process::exit(1);
    }
}
