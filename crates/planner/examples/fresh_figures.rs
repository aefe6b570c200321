//! Plans on requests that they were not made from: 40 cells of random requests; beside HARL, and beside the best of 110 simple
//! layouts of each cell, which are chosen on the very requests that decide.
//!
//! `cargo run --release -p stripewise-planner --example fresh_figures [quick]`

use rayon::prelude::*;
use stripewise_layout::{Layout, ServerId};
use stripewise_model::{Cluster, Op, Request, presets};
use stripewise_planner::harl::{self, HarlOptions};
use stripewise_planner::{FileTrace, Job, PlanOptions, plan_by};
use stripewise_simulate::{ClosedLoop, Network, SimulationOptions, simulate};

const KIB: u64 = 1 << 10;
const FILE: u64 = 2 << 30;
const REQUESTS: u64 = 3000;
/// Draws of startup times that a layout is simulated with, other than those that planners use.
const DRAWS: u64 = 3;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Aligned requests anywhere in the file, of `processes` closed loops.
fn requests(seed: u64, size: u64, op: Op, processes: u64) -> Vec<Request> {
    let request = |i: u64| {
        let start_s = (i / processes) as f64 * 0.01;
        let offset = mix(mix(seed) ^ i.wrapping_mul(0x9e37_79b9_7f4a_7c15)) % (FILE / size) * size;
        Request { offset, size, op, process: (i % processes) as u32, start_s, end_s: start_s + 0.01 }
    };
    (0..REQUESTS).map(request).collect()
}

/// Requests per second of a layout, mean over draws of startup times.
fn rate(layout: &Layout, workload: &ClosedLoop, cluster: &Cluster) -> f64 {
    let one = |draw| {
        let options = SimulationOptions { seed: 9_000_000 + draw, network: Network::InBeta };
        let outcome = simulate(cluster, std::slice::from_ref(layout), workload, &options);
        outcome.expect("layouts of this cluster").makespan_s
    };
    workload.requests() as f64 * DRAWS as f64 / (0..DRAWS).map(one).sum::<f64>()
}

/// Eleven widths on ten sets of the six slow and two fast servers: all, a tier, a part of one, and mixtures.
fn simple_layouts() -> Vec<Layout> {
    let sets: [Vec<u16>; 10] = [
        (0..8).collect(),
        (0..6).collect(),
        vec![6, 7],
        vec![0],
        vec![6],
        vec![0, 1],
        vec![0, 1, 2],
        vec![0, 1, 2, 3],
        vec![0, 1, 6, 7],
        vec![0, 1, 2, 3, 6, 7],
    ];
    let widths = (4..15).map(|power| KIB << power);
    let of_width = |width: u64| {
        let striped = move |set: &Vec<u16>| Layout::striped(set.iter().map(|&server| ServerId(server)), width);
        sets.iter().map(striped).map(|layout| layout.expect("a round")).collect::<Vec<_>>()
    };
    widths.flat_map(of_width).collect()
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "quick");
    let sets = [("B", presets::set_b(6, 2)), ("P", presets::set_p(6, 2, false))];
    let simple = simple_layouts();
    let (mut beside_harl, mut beside_simple): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
    println!("set op size-KiB p: plan / HARL, plan / best of {} simple layouts, regions, planner", simple.len());
    for (set, cluster) in &sets {
        for op in [Op::Read, Op::Write] {
            for size in [64, 128, 512, 1024, 4096].into_iter().filter(|&size| !quick || size == 512) {
                for processes in [4, 16] {
                    let own = requests(1, size * KIB, op, processes);
                    let fresh = ClosedLoop::replay(&[&requests(2, size * KIB, op, processes)], &[], false);
                    let files = [FileTrace { name: "file".into(), requests: &own, size_bytes: Some(FILE) }];
                    let options = PlanOptions { processes: Some(processes as f64), ..PlanOptions::default() };
                    let job = Job::new(&files, cluster, &options).expect("a job");
                    let planned = plan_by("auto", &job).expect("a plan");
                    let layout = &planned.plan.files[0].layout;
                    let harl = harl::plan(&own, cluster, &HarlOptions::default()).layout(cluster).expect("rounds");
                    let ours = rate(layout, &fresh, cluster);
                    let best = simple.par_iter().map(|layout| rate(layout, &fresh, cluster)).reduce(|| 0.0, f64::max);
                    let (by_harl, by_simple) = (ours / rate(&harl, &fresh, cluster), ours / best);
                    beside_harl.push(by_harl);
                    beside_simple.push(by_simple);
                    let regions = layout.regions().len();
                    println!(
                        "{set} {op:?} {size} {processes}: {by_harl:.3} {by_simple:.3}, {regions}, {}",
                        planned.planner
                    );
                }
            }
        }
    }
    for (name, ratios) in [("HARL", beside_harl), ("the best simple layout", beside_simple)] {
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
        println!("summary plan / {name} over {} cells: least {least:.3} mean {mean:.3}", ratios.len());
    }
}
