//! Plans on requests that they were not made from: 40 cells of random requests; beside HARL, and beside the best of 110 simple
//! layouts of each cell, which are chosen on the very requests that decide.
//!
//! `cargo run --release -p stripewise-planner --example fresh_figures [quick]`

#[path = "common/closed_loops.rs"]
mod closed_loops;

use closed_loops::{rate, requests};
use rayon::prelude::*;
use stripewise_layout::{Layout, ServerId};
use stripewise_model::{Op, presets};
use stripewise_planner::harl::{self, HarlOptions};
use stripewise_planner::{FileTrace, Job, PlanOptions, plan_by};
use stripewise_simulate::{ClosedLoop, Network};

const KIB: u64 = 1 << 10;
const FILE: u64 = 2 << 30;
const REQUESTS: u64 = 3000;

/// Draws of offsets that decide. The best of many layouts is chosen by them; with one draw it would be the luckiest, as many of
/// them are equally good.
const FRESH: u64 = 4;

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
                    let asked = |seed| requests(seed, FILE, REQUESTS, size * KIB, op, processes);
                    let own = asked(1);
                    let fresh: Vec<ClosedLoop> =
                        (2..2 + FRESH).map(|seed| ClosedLoop::replay(&[&asked(seed)], &[], false)).collect();
                    let files = [FileTrace { name: "file".into(), requests: &own, size_bytes: Some(FILE) }];
                    let options = PlanOptions { processes: Some(processes as f64), ..PlanOptions::default() };
                    let job = Job::new(&files, cluster, &options).expect("a job");
                    let planned = plan_by("auto", &job).expect("a plan");
                    let layout = &planned.plan.files[0].layout;
                    let harl = harl::plan(&own, cluster, &HarlOptions::default()).layout(cluster).expect("rounds");
                    // By the time of all of them.
                    let rate = |layout: &Layout| {
                        let one = |fresh| 1.0 / rate(layout, fresh, cluster, Network::InBeta);
                        FRESH as f64 / fresh.iter().map(one).sum::<f64>()
                    };
                    let ours = rate(layout);
                    let best = simple.par_iter().map(rate).reduce(|| 0.0, f64::max);
                    let (by_harl, by_simple) = (ours / rate(&harl), ours / best);
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
