//! HARL against the figures of the paper (math F.2) and the rules of math A.6.

use stripewise_model::{Op, Request, TierWidths, presets};
use stripewise_planner::harl::{HarlOptions, divide, plan};
use stripewise_planner::stripe_search::{SearchOptions, search};

const KIB: u64 = 1024;

fn request(offset: u64, size: u64, op: Op) -> Request {
    Request { offset, size, op, process: 0, start_s: 0.0, end_s: 0.0 }
}

/// `count` requests of `size` bytes, one after the other from `from` on.
fn run(from: u64, count: u64, size: u64, op: Op) -> Vec<Request> {
    (0..count).map(|i| request(from + i * size, size, op)).collect()
}

/// Aligned requests at random places.
fn random_aligned(size: u64, op: Op) -> Vec<Request> {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 20
    };
    (0..2000).map(|_| request(next() % 32_768 * size, size, op)).collect()
}

#[test]
fn the_papers_optima_come_out() {
    let cases = [
        (6, 2, 512, Op::Read, (32, 160)),
        (6, 2, 512, Op::Write, (36, 148)),
        (6, 2, 128, Op::Read, (0, 64)),
        (6, 2, 128, Op::Write, (0, 64)),
    ];
    for (hdds, ssds, size, op, (h, s)) in cases {
        let cluster = presets::set_ab(hdds, ssds);
        let plan = plan(&random_aligned(size * KIB, op), &cluster, &HarlOptions::default());
        assert_eq!(plan.rows, [(0, TierWidths::new(&[h * KIB, s * KIB]))], "{hdds}:{ssds} {size}K {op:?}");
    }
    for op in [Op::Read, Op::Write] {
        let found = plan(&random_aligned(512 * KIB, op), &presets::set_ab(2, 6), &HarlOptions::default());
        assert_eq!(found.rows[0].1.width_bytes(0), 0, "2:6 {op:?}: {:?}", found.rows);
    }
}

#[test]
fn uniform_phases_become_regions_that_start_with_the_change() {
    let mut requests = run(0, 50, 64 * KIB, Op::Read);
    requests.extend(run(50 * 64 * KIB, 50, 1024 * KIB, Op::Read));
    let options = HarlOptions { chunk_bytes: None, ..HarlOptions::default() };
    let (regions, _) = divide(&requests, &options);
    assert_eq!(regions.len(), 2);
    assert_eq!((regions[0].offset, regions[0].requests.clone()), (0, 0..50));
    assert_eq!((regions[1].offset, regions[1].requests.clone()), (50 * 64 * KIB, 50..100));
    assert_eq!((regions[0].mean_request_bytes, regions[1].mean_request_bytes), (65536.0, 1_048_576.0));

    // As printed, the first large request spoils the small ones' mean: 82.8K (math A.6).
    let (literal, _) = divide(&requests, &HarlOptions { literal: true, ..options });
    assert_eq!(literal[0].requests, 0..51);
    assert!((literal[0].mean_request_bytes / 1024.0 - 82.8).abs() < 0.05);
    assert_eq!(literal[1].offset, requests[51].offset);
}

#[test]
fn epsilon_forgives_one_odd_request() {
    let mut requests = run(0, 20, 64 * KIB, Op::Read);
    requests.push(request(20 * 64 * KIB, 65 * KIB, Op::Read));
    requests.extend(run(30 * 64 * KIB, 20, 64 * KIB, Op::Read));
    let options = HarlOptions { chunk_bytes: None, ..HarlOptions::default() };
    assert_eq!(divide(&requests, &options).0.len(), 1);
    assert!(divide(&requests, &HarlOptions { epsilon: 0.0, ..options }).0.len() > 1);
}

#[test]
fn the_threshold_adapts_to_the_extent() {
    // Forty changes within 16 MB.
    let mut requests = Vec::new();
    let mut at = 0;
    for phase in 0..40 {
        let size = if phase % 2 == 0 { 4 * KIB } else { 64 * KIB };
        requests.extend(run(at, 10, size, Op::Read));
        at += 10 * size;
    }
    let free = divide(&requests, &HarlOptions { chunk_bytes: None, ..HarlOptions::default() });
    let held = divide(&requests, &HarlOptions::default());
    assert!(free.0.len() > 1 && free.1 == 1.0, "{}", free.0.len());
    assert!(held.0.len() == 1 && held.1 > 1.0);
    // Without an epsilon no threshold is enough; it still ends.
    assert!(divide(&requests, &HarlOptions { epsilon: 0.0, ..HarlOptions::default() }).1.is_finite());
}

#[test]
fn equal_offsets_stay_together() {
    for literal in [false, true] {
        let mut requests = run(0, 10, 64 * KIB, Op::Read);
        let at = 10 * 64 * KIB;
        requests.extend([64, 1024, 1024, 1024].map(|size| request(at, size * KIB, Op::Read)));
        requests.extend(run(at + 2048 * KIB, 5, 1024 * KIB, Op::Read));
        let (regions, _) = divide(&requests, &HarlOptions { chunk_bytes: None, literal, ..HarlOptions::default() });
        for pair in regions.windows(2) {
            assert!(pair[0].offset < pair[1].offset);
            assert!(requests[pair[0].requests.end - 1].offset < requests[pair[1].requests.start].offset);
        }
        assert_eq!(regions.last().unwrap().requests.end, requests.len());
    }
}

#[test]
fn every_request_is_in_one_region_and_equal_rows_merge() {
    let cluster = presets::set_ab(6, 2);
    // 512K and 1M aligned: one layout is best for both up to ties, so compare with searching each region alone.
    let mut requests = run(0, 30, 128 * KIB, Op::Read);
    requests.extend(run(30 * 128 * KIB, 30, 32 * KIB, Op::Read));
    requests.extend(run(64 << 20, 30, 2048 * KIB, Op::Write));
    requests.reverse();
    let options = HarlOptions { chunk_bytes: None, ..HarlOptions::default() };
    let plan = plan(&requests, &cluster, &options);
    assert_eq!(plan.regions.iter().map(|region| region.division.requests.len()).sum::<usize>(), 90);
    assert!(plan.rows.windows(2).all(|rows| rows[0].1 != rows[1].1 && rows[0].0 < rows[1].0));
    let layout = plan.layout(&cluster).unwrap();
    assert_eq!(layout.regions().len(), plan.rows.len());
    let alone = search(&run(64 << 20, 30, 2048 * KIB, Op::Write), &cluster, &options.search);
    assert_eq!(plan.rows.last().unwrap().1, alone.widths);

    // The same widths on both sides of a border are one row.
    let mut same = run(0, 30, 128 * KIB, Op::Read);
    same.extend(run(30 * 128 * KIB, 30, 120 * KIB, Op::Read));
    let narrow = SearchOptions { max_width_bytes: Some(4 * KIB), ..options.search };
    let merged = regions_and_rows(&same, &HarlOptions { search: narrow, epsilon: 0.0, ..options });
    assert_eq!(merged, (2, 1));
}

fn regions_and_rows(requests: &[Request], options: &HarlOptions) -> (usize, usize) {
    let plan = plan(requests, &presets::set_ab(6, 2), options);
    (plan.regions.len(), plan.rows.len())
}

#[test]
fn no_request_is_the_default_layout() {
    let cluster = presets::set_ab(6, 2);
    let plan = plan(&[request(0, 0, Op::Read)], &cluster, &HarlOptions::default());
    assert_eq!(plan.rows, [(0, TierWidths::uniform(&cluster, 64 * KIB))]);
    assert_eq!(plan.layout(&cluster).unwrap().regions()[0].stripes().len(), 8);
}
