//! What a width for every server adds to a width for every tier, predicted and simulated, on sets B and P; and how long
//! dealing 100,000 whole files to 10,000 servers takes. Prints one line per cell.
//!
//! `cargo run --release -p stripewise-planner --example server_shares_figures`

use std::time::Instant;
use stripewise_layout::Layout;
use stripewise_model::{Cluster, Op, Request, presets};
use stripewise_planner::assignment::{FileCosts, ServerState, assign};
use stripewise_planner::planners::{by_name, propose};
use stripewise_planner::{FileTrace, Job, PlanOptions};
use stripewise_simulate::{ClosedLoop, SimulationOptions, simulate};

const KIB: u64 = 1 << 10;
/// Requests of a cell.
const REQUESTS: u64 = 1200;
/// Draws of startup times, other than the planner's.
const DRAWS: std::ops::Range<u64> = 2026..2032;

/// SplitMix64: the workloads are the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// Aligned requests at random offsets of 16 GiB by `processes` processes in closed loops.
fn random(size: u64, processes: u64, op: Op, random: &mut Random) -> Vec<Request> {
    let request = |i: u64| {
        let start_s = (i / processes) as f64;
        let offset = random.below((16 << 30) / size) * size;
        Request { offset, size, op, process: (i % processes) as u32, start_s, end_s: start_s + 1.0 }
    };
    (0..REQUESTS).map(request).collect()
}

/// Simulated makespan in seconds, mean over the draws.
fn simulated_s(cluster: &Cluster, layout: &Layout, requests: &[Request]) -> f64 {
    let workload = ClosedLoop::replay(&[requests], &[], false);
    let draw = |seed| {
        let options = SimulationOptions { seed, ..SimulationOptions::default() };
        simulate(cluster, std::slice::from_ref(layout), &workload, &options)
            .expect("the layout is the cluster's")
            .makespan_s
    };
    DRAWS.map(draw).sum::<f64>() / (DRAWS.end - DRAWS.start) as f64
}

fn main() {
    let (mut product, mut least, mut cells) = (1.0, f64::INFINITY, 0);
    println!(
        "set size      p op     predicted  simulated  seconds   (server-widths against regions without simulations)"
    );
    for (set, cluster) in [("B", presets::set_b(6, 2)), ("P", presets::set_p(6, 2, true))] {
        for size in [64, 128, 512, 1024, 4096] {
            for processes in [1, 16, 64] {
                for op in [Op::Read, Op::Write] {
                    let requests = random(size * KIB, processes, op, &mut Random(size ^ processes));
                    let files = [FileTrace { name: "f".into(), requests: &requests, size_bytes: None }];
                    let options = PlanOptions { simulations: 0, ..PlanOptions::default() };
                    let job = Job::new(&files, &cluster, &options).expect("a job");
                    let of = |name: &str| {
                        let begin = Instant::now();
                        let found = propose(by_name(name).expect("a planner"), &job).expect("a plan");
                        let simulated_s = simulated_s(&cluster, &found.layouts[0], &requests);
                        (found.price.predicted_s, simulated_s, begin.elapsed().as_secs_f64())
                    };
                    let (tiers, servers) = (of("regions"), of("server-widths"));
                    let gain = tiers.1 / servers.1;
                    (product, least, cells) = (product * gain, least.min(gain), cells + 1);
                    println!(
                        "{set:3} {size:5}K {processes:5} {:6} {:9.4} {gain:10.4} {:8.1}",
                        if op == Op::Read { "read" } else { "write" },
                        tiers.0 / servers.0,
                        servers.2,
                    );
                }
            }
        }
    }
    println!("simulated: geometric mean {:.4}, least {least:.4}", f64::powf(product, 1.0 / f64::from(cells)));

    let mut random = Random(7);
    let mut files = FileCosts::default();
    for _ in 0..100_000 {
        let size = 1 + random.below(1 << 30);
        files.bytes.push(size);
        files.loads_ns.extend([12_000_000 + size / 80, 120_000 + size / 400]);
    }
    let room = files.bytes.iter().sum::<u64>() / 10_000 * 3 / 2;
    let servers: Vec<ServerState> =
        (0..10_000).map(|s| ServerState { class: usize::from(s >= 8000), busy_ns: 0, room_bytes: room }).collect();
    let begin = Instant::now();
    let found = assign(&files, &servers, 2).expect("there is room");
    println!(
        "100,000 files on 10,000 servers with room for 1.5 times the bytes: {:.2} s, busiest server {:.3} s",
        begin.elapsed().as_secs_f64(),
        found.greatest_ns as f64 * 1e-9,
    );
}
