//! Segmentation of a file of four regions whose request sizes vary by a quarter (`beyond.md` 2): the cost of at most
//! five regions against a layout of its own for every 64 MB chunk; and the time for a file of 4 TB.
//!
//! `cargo run --release -p stripewise-planner --example segmentation_figures`

use std::time::Instant;
use stripewise_model::{Cluster, CostModel, Op, Request, TierWidths, presets};
use stripewise_planner::stripe_search::{LatencyCost, SearchOptions, search_by};
use stripewise_planner::{FileTrace, PlanOptions, segment};
use stripewise_simulate::Network;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const CHUNK: u64 = 64 << 20;
/// What a region costs, in seconds.
const REGION_S: f64 = 0.05;
const SIZES: [u64; 4] = [64 * KIB, 512 * KIB, MIB, 2 * MIB];

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Reads of four regions of `quarter` bytes: one after the other from beginning to end, or `count` of them anywhere.
fn requests(seed: u64, quarter: u64, count: Option<u64>) -> Vec<Request> {
    let mut random = Random(seed);
    let mut list = Vec::new();
    for (region, usual) in (0..).zip(SIZES) {
        let (begin, mut at) = (region * quarter, 0);
        for i in 0.. {
            // 75 % to 125 %, in steps of 1 KiB.
            let size = (usual * 3 / 4 + random.next() % (usual / 2 + 1)) / KIB * KIB;
            let offset = count.map_or(at, |_| random.next() % (quarter - size) / KIB * KIB);
            if at + size > quarter || count.is_some_and(|count| i >= count / 4) {
                break;
            }
            list.push(Request { offset: begin + offset, size, op: Op::Read, process: 0, start_s: 0.0, end_s: 0.0 });
            at += if count.is_some() { 0 } else { size };
        }
    }
    list
}

/// Latencies of all requests in seconds.
fn cost_s(rows: &[(u64, TierWidths)], requests: &[Request], cluster: &Cluster) -> f64 {
    let model = CostModel::new(cluster);
    let layout = TierWidths::layout(rows, cluster).expect("ascending rounds");
    let latency =
        |r: &Request| model.layout_latency_s(&layout, r.op, r.offset, r.size, |_, _| ()).expect("of the cluster");
    requests.iter().map(latency).sum()
}

/// The best pair of widths for every chunk, by exact search over its own requests, in steps of a 64th of their size.
fn by_chunks(requests: &[Request], cluster: &Cluster) -> Vec<(u64, TierWidths)> {
    let model = CostModel::new(cluster);
    let mut rows = Vec::new();
    for chunk in requests.chunk_by(|a, b| a.offset / CHUNK == b.offset / CHUNK) {
        let mean = chunk.iter().map(|r| r.size).sum::<u64>() / chunk.len() as u64;
        let step_bytes = (mean / 64).next_multiple_of(4 * KIB);
        let options = SearchOptions { step_bytes, ..SearchOptions::default() };
        let found = search_by(&LatencyCost(&model), chunk, cluster, &options);
        rows.push((chunk[0].offset / CHUNK * CHUNK, found.widths));
    }
    rows
}

fn main() {
    let cluster = presets::set_b(6, 2);
    let options = PlanOptions { max_regions: 5, network: Network::Link, max_chunks: 7500, ..PlanOptions::default() };
    let file = |requests| FileTrace { name: "file".into(), requests, size_bytes: None };
    let quarter = 1856 * MIB;
    let (all, fresh) = (requests(1, quarter, None), requests(2, quarter, None));
    println!("four regions of 1856 MiB, {} reads of 64 KiB, 512 KiB, 1 MiB, 2 MiB, each +-25 %, set B", all.len());
    let rows = segment(&file(&all), &cluster, &options, REGION_S).expect("a cluster with servers");
    let chunks = by_chunks(&all, &cluster);
    let fixed = [(0, TierWidths::uniform(&cluster, 64 * KIB))];
    for (name, rows) in [("fixed 64 KiB", &fixed[..]), ("64 MB chunks", &chunks), ("regions", &rows)] {
        let (own_s, fresh_s) = (cost_s(rows, &all, &cluster), cost_s(rows, &fresh, &cluster));
        println!("  {name}: regions {}, seconds {own_s:.3}, fresh {fresh_s:.3}", rows.len());
    }
    for (offset, widths) in &rows {
        println!("    {:>6} MiB  {widths}", offset / MIB);
    }
    let large = requests(3, 1 << 40, Some(200_000));
    let begin = Instant::now();
    let options = PlanOptions { max_entries: 8000, max_chunks: 1024, ..options };
    let rows = segment(&file(&large), &cluster, &options, REGION_S).expect("a cluster with servers");
    println!("4 TiB: seconds {:.3}, regions {}, {} requests", begin.elapsed().as_secs_f64(), rows.len(), large.len());
}
