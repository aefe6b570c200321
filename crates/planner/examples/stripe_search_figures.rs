//! Prints what the stripe search costs against the exhaustive one: evaluations, ratio, seconds, peak memory.
//!
//! `cargo run --release -p stripewise-planner --example stripe_search_figures`

use std::time::Instant;
use stripewise_model::{Op, Request, presets};
use stripewise_planner::stripe_search::{Sampling, SearchOptions, StripeChoice, exhaustive, search};

const KIB: u64 = 1024;

/// splitmix64
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((u128::from(z ^ (z >> 31)) * u128::from(bound)) >> 64) as u64
    }
}

fn requests(count: usize, mut draw: impl FnMut(&mut Random) -> (u64, u64)) -> Vec<Request> {
    let mut random = Random(1);
    (0..count)
        .map(|_| {
            let (offset, size) = draw(&mut random);
            let op = if random.below(2) == 0 { Op::Read } else { Op::Write };
            Request { offset, size, op, process: 0, start_s: 0.0, end_s: 0.0 }
        })
        .collect()
}

fn show(found: &StripeChoice, requests: usize, seconds: f64, step_bytes: u64, mean_bytes: f64) {
    let steps = (mean_bytes / step_bytes as f64).ceil();
    let naive = steps * steps / 2.0 * requests as f64;
    println!(
        "  search      {}  cost {:.6} s  {} evaluations + {} bounds, {:.0} x fewer evaluations than (R/step)^2/2 k = {:.0} \
         ({:.0} x with the bounds counted), {seconds:.3} s",
        found.widths,
        found.cost_s,
        found.evaluations,
        found.bound_evaluations,
        naive / found.evaluations as f64,
        naive,
        naive / (found.evaluations + found.bound_evaluations) as f64,
    );
    if let Some(bound) = found.error_bound {
        println!(
            "  sampled     the optimum is at most {:.4} % below that cost, with probability 1 - {:e}; samples of up to {} \
             requests, {} pairs verified on all",
            100.0 * bound.relative_gap,
            bound.risk,
            bound.sample,
            bound.verified_pairs
        );
    }
}

fn measure(title: &str, requests: &[Request], options: &SearchOptions, compare: bool) {
    println!("{title}");
    let cluster = presets::set_b(6, 2);
    let mean_bytes = requests.iter().map(|request| request.size as f64).sum::<f64>() / requests.len() as f64;
    let start = Instant::now();
    let found = search(requests, &cluster, options);
    show(&found, requests.len(), start.elapsed().as_secs_f64(), options.step_bytes, mean_bytes);
    if compare {
        let start = Instant::now();
        let full = exhaustive(requests, &cluster, options);
        println!(
            "  exhaustive  {}  cost {:.6} s  {} evaluations, {:.3} s: {}",
            full.widths,
            full.cost_s,
            full.evaluations,
            start.elapsed().as_secs_f64(),
            if full.pair_bytes == found.pair_bytes { "the same pair" } else { "ANOTHER PAIR" }
        );
        assert_eq!(full.pair_bytes, found.pair_bytes, "the search must find the exhaustive optimum");
    }
}

/// Peak resident memory in MB, of the whole process so far.
fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
    kib.map_or(f64::NAN, |kib: f64| kib * 1024.0 / 1e6)
}

fn main() {
    let paper = SearchOptions { extra: false, ..SearchOptions::default() };
    let aligned = requests(20_000, |random| (random.below(32_768) * 512 * KIB, 512 * KIB));
    measure("20,000 requests of 512 KiB, aligned, the paper's grid", &aligned, &paper, true);
    measure("the same, with s <= h", &aligned, &SearchOptions::default(), false);
    let unaligned = requests(20_000, |random| (random.below(1 << 34), 512 * KIB));
    measure("20,000 requests of 512 KiB at any offset, the paper's grid", &unaligned, &paper, true);

    let mixed = requests(1_000_000, |random| (random.below(1 << 36), 4 * KIB * (1 + random.below(256))));
    let sampled = SearchOptions { sampling: Some(Sampling::default()), ..SearchOptions::default() };
    let before = peak_mb();
    measure(
        "1,000,000 requests of 4 KiB to 1 MiB at any offset, half of them writes, s <= h too",
        &mixed,
        &sampled,
        false,
    );
    println!("peak resident memory: {:.0} MB, of which {before:.0} MB before the last search", peak_mb());
}
