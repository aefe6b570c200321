//! What heat costs a sub-request, and what counting its latency.
//!
//! `cargo bench -p stripewise-store --bench heat` prints nanoseconds of one call of an observer, the least of many short runs; beside
//! another thread the median of them.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;
use stripewise_control::{Action, Door, FileId, Request, Sender, Served, Way};
use stripewise_layout::{ServerId, SubRequest};
use stripewise_store::Pool;
use stripewise_store::pool::{HeatConfig, PoolSpec, TierSpec, with_heat, with_latencies};

const CALLS: u64 = 10_000;
const RUNS: usize = 300;

fn main() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in /dev/shm");
    let base = directory.path();
    let tier = TierSpec { name: "mem".into(), servers: vec![base.join("s")], ..TierSpec::default() };
    let (mount, namespace) = (base.join("mount"), base.join("names"));
    let spec = PoolSpec { name: "bench".into(), mount, namespace, default_width_bytes: None, tiers: vec![tier] };
    let mut pool = Pool::init(&base.join("pool.toml"), &spec).expect("a pool");
    pool.heat = Some(HeatConfig { block_bytes: 64 << 10, period_s: 600 });
    let heat = with_heat(Door::default(), &pool).expect("a file of heat");
    // A pool without data has room for as many parts as 16 files of 1 GiB have.
    for (what, files, spread_bytes) in
        [("one block", 1, 1), ("1 GiB of a file", 1, 1 << 30), ("16 files of 1 GiB", 16, 1 << 30)]
    {
        println!("heat, {what}: {:.1} ns a sub-request", least_ns(&heat, files, spread_bytes));
    }
    for (what, spread_bytes) in [("one block", 1), ("1 GiB of a file", 1 << 30)] {
        println!("heat, {what}, beside another thread: {:.1} ns a sub-request", beside_another_ns(&heat, spread_bytes));
    }
    let latencies = with_latencies(Door::default(), &pool).expect("a file of latencies");
    println!("latency, one thread: {:.1} ns a sub-request", least_ns(&latencies, 1, 1));
    println!("latency, beside another thread: {:.1} ns a sub-request", beside_another_ns(&latencies, 1));
}

/// The median of runs while another thread does the same. O(calls).
fn beside_another_ns(door: &Door, spread_bytes: u64) -> f64 {
    let busy = AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while busy.load(Relaxed) {
                black_box(runs_ns(door, 1, spread_bytes));
            }
        });
        let mut found_ns = runs_ns(door, 1, spread_bytes);
        found_ns.sort_by(f64::total_cmp);
        let found_ns = found_ns[RUNS / 2];
        busy.store(false, Relaxed);
        found_ns
    })
}

fn least_ns(door: &Door, files: u64, spread_bytes: u64) -> f64 {
    runs_ns(door, files, spread_bytes).into_iter().fold(f64::MAX, f64::min)
}

/// Of a call, in each of the short runs.
fn runs_ns(door: &Door, files: u64, spread_bytes: u64) -> Vec<f64> {
    let sender = Sender::this_process(Way::Library);
    let mut position = 1_u64;
    let run = |_| {
        let start = Instant::now();
        for _ in 0..CALLS {
            position = position.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            // Both are powers of two: a division would take as long as much of what is measured.
            let (file, from) = (1 + (position >> 50 & (files - 1)), (position >> 20) & (spread_bytes - 1) & !4095);
            let request = Request { sender, action: Action::Read, offset: from, len: 4096, rank: 0 };
            let part = SubRequest {
                region: 0,
                slot: 0,
                server: ServerId(0),
                datafile_offset: from,
                len: 4096,
                from,
                to: from + 4096,
            };
            // Without the clock, which the door reads before and behind.
            door.served(FileId(file), &request, Served::of(black_box(&part), 4096), (0, || position >> 40));
        }
        start.elapsed().as_nanos() as f64 / CALLS as f64
    };
    (0..RUNS).map(run).collect()
}
