//! The throughput objective (theta, `beyond.md` 4) against HARL's, simulated: sets B and P, requests of 64 KiB to 4 MiB,
//! 1, 16 and 64 processes, reads and writes. Plans are made from one draw of requests and simulated with another.
//!
//! `cargo run --release -p stripewise-planner --example theta_figures [SIZE-IN-KIB]`

#[path = "common/closed_loops.rs"]
mod closed_loops;

use closed_loops::{rate, requests};
use stripewise_layout::Layout;
use stripewise_model::{Op, TierWidths, presets};
use stripewise_planner::harl::{self, HarlOptions};
use stripewise_planner::planners::{by_name, propose};
use stripewise_planner::{FileTrace, Job, PlanOptions};
use stripewise_simulate::{ClosedLoop, Network};

const KIB: u64 = 1 << 10;
const GIB: u64 = 1 << 30;
const FILE: u64 = 64 * GIB;
const REQUESTS: u64 = 6000;

fn described(layout: &Layout) -> String {
    let of = |region: &stripewise_layout::Region| {
        let width = |wanted: u16| {
            let stripe = region.stripes().iter().find(|stripe| stripe.server.0 == wanted);
            stripe.map_or(0, |stripe| stripe.width_bytes / KIB)
        };
        format!("{}/{}", width(0), width(6))
    };
    let regions = layout.regions();
    if regions.len() == 1 { of(&regions[0]) } else { format!("{} +{}", of(&regions[0]), regions.len() - 1) }
}

fn main() {
    let only: Option<u64> = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let sets = [("B", presets::set_b(6, 2)), ("P", presets::set_p(6, 2, true))];
    let names = ["64 KiB on all", "HARL", "theta", "theta, simulated", "per server"];
    println!("set op size-KiB p: MiB/s of {}", names.join(", "));
    let mut cells: Vec<Vec<f64>> = Vec::new();
    for (set, cluster) in &sets {
        for op in [Op::Read, Op::Write] {
            for size in [64, 128, 512, 1024, 4096].into_iter().filter(|&size| only.is_none_or(|only| only == size)) {
                for processes in [1, 16, 64] {
                    let asked = |seed| requests(seed, FILE, REQUESTS, size * KIB, op, processes);
                    let own = asked(1);
                    let fresh = ClosedLoop::replay(&[&asked(2)], &[], false);
                    let files = [FileTrace { name: "file".into(), requests: &own, size_bytes: Some(FILE) }];
                    let base = PlanOptions {
                        processes: Some(processes as f64),
                        max_regions: 1,
                        network: Network::Link,
                        ..PlanOptions::default()
                    };
                    let theta_only = PlanOptions { simulations: 0, ..base };
                    let planned = |options| {
                        let job = Job::new(&files, cluster, options).expect("a job");
                        propose(by_name("regions").expect("a planner"), &job).expect("a proposal").layouts.remove(0)
                    };
                    let fixed = TierWidths::layout(&[(0, TierWidths::uniform(cluster, 64 * KIB))], cluster);
                    let harl = harl::plan(&own, cluster, &HarlOptions::default()).layout(cluster);
                    let mut layouts = vec![fixed.expect("a round"), harl.expect("rounds")];
                    layouts.extend([planned(&theta_only), planned(&base)]);
                    if let Some(planner) = by_name("server-widths") {
                        let job = Job::new(&files, cluster, &base).expect("a job");
                        layouts.extend(propose(planner, &job).expect("a proposal").layouts);
                    }
                    let bytes = size as f64 / 1024.0;
                    let rates: Vec<f64> =
                        layouts.iter().map(|layout| bytes * rate(layout, &fresh, cluster, Network::Link)).collect();
                    let columns: Vec<String> = rates.iter().map(|rate| format!("{rate:.1}")).collect();
                    let best: Vec<String> = layouts[1..].iter().map(described).collect();
                    println!("{set} {op:?} {size} {processes}: {} [{}]", columns.join(" "), best.join(", "));
                    cells.push(rates);
                }
            }
        }
    }
    for (column, name) in names.iter().enumerate().skip(2) {
        let ratios: Vec<f64> = cells.iter().filter_map(|cell| Some(cell.get(column)? / cell[1])).collect();
        if ratios.is_empty() {
            continue;
        }
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
        println!("summary {name} / HARL over {} cells: least {least:.3} mean {mean:.3}", ratios.len());
    }
}
