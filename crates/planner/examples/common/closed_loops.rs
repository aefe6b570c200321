//! Random requests of closed loops, and how fast a layout serves them.

use stripewise_layout::Layout;
use stripewise_model::{Cluster, Op, Request};
use stripewise_simulate::{ClosedLoop, Network, SimulationOptions, simulate};

/// Draws of startup times that a layout is simulated with, other than those that planners use.
const DRAWS: u64 = 3;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// `count` aligned requests of `size` bytes anywhere in a file of `file_bytes`, by `processes` closed loops.
pub fn requests(seed: u64, file_bytes: u64, count: u64, size: u64, op: Op, processes: u64) -> Vec<Request> {
    let request = |i: u64| {
        let start_s = (i / processes) as f64 * 0.01;
        let offset = mix(mix(seed) ^ i.wrapping_mul(0x9e37_79b9_7f4a_7c15)) % (file_bytes / size) * size;
        Request { offset, size, op, process: (i % processes) as u32, start_s, end_s: start_s + 0.01 }
    };
    (0..count).map(request).collect()
}

/// Requests per second under a layout, mean over the draws.
pub fn rate(layout: &Layout, workload: &ClosedLoop, cluster: &Cluster, network: Network) -> f64 {
    let one = |draw| {
        let options = SimulationOptions { seed: 9_000_000 + draw, network };
        let outcome = simulate(cluster, std::slice::from_ref(layout), workload, &options);
        outcome.expect("layouts of this cluster").makespan_s
    };
    workload.requests() as f64 * DRAWS as f64 / (0..DRAWS).map(one).sum::<f64>()
}
