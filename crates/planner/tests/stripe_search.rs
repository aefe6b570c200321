//! The fast stripe search against the exhaustive one.

#[path = "common/random.rs"]
mod random;

use random::Random;
use stripewise_model::{Cluster, CostModel, Op, Request, TierWidths, presets};
use stripewise_planner::stripe_search::{
    LatencyCost, Sampling, SearchOptions, StripeChoice, TwoClasses, exhaustive, exhaustive_by, search, search_by,
};

const KIB: u64 = 1024;

fn request(offset: u64, size: u64, op: Op) -> Request {
    Request { offset, size, op, process: 0, start_s: 0.0, end_s: 0.0 }
}

fn cluster(random: &mut Random) -> Cluster {
    let (hdds, ssds) = (1 + random.below(6) as u16, 1 + random.below(4) as u16);
    match random.below(5) {
        0 => presets::set_b(hdds, ssds),
        1 => presets::set_p(hdds, ssds, true),
        2 => presets::set_p(hdds, ssds, false),
        3 => {
            let (ab, p) = (presets::set_ab(1, 1), presets::set_p(1, 1, true));
            presets::cluster(&[
                ("ssd", ssds, ab.tiers[1].profile),
                ("hdd", hdds, p.tiers[0].profile),
                ("old", 2, ab.tiers[0].profile),
            ])
        }
        _ => presets::set_ab(hdds, ssds),
    }
}

/// Few requests of few or many sizes, aligned or not.
fn requests(random: &mut Random) -> Vec<Request> {
    let step = 4 * KIB;
    let kind = random.below(4);
    (0..1 + random.below(60))
        .map(|_| {
            let size = match kind {
                0 => 16 * step,
                1 => [8, 12, 20][random.below(3) as usize] * step,
                2 => 1 + random.below(100_000),
                _ => step << random.below(5),
            };
            let offset = if kind == 0 || random.below(2) == 0 {
                random.below(1000) * size
            } else {
                (1 << 40) + random.below(100_000_000)
            };
            request(offset, size, if random.below(2) == 0 { Op::Read } else { Op::Write })
        })
        .collect()
}

fn assert_same(fast: &StripeChoice, full: &StripeChoice, context: &str) {
    assert_eq!(fast.pair_bytes, full.pair_bytes, "{context}");
    assert_eq!(fast.widths, full.widths, "{context}");
    assert!((fast.cost_s - full.cost_s).abs() <= 1e-10 * full.cost_s, "{context}: {} {}", fast.cost_s, full.cost_s);
    assert!(fast.evaluations <= full.evaluations, "{context}");
}

#[test]
fn equals_the_exhaustive_search_on_random_instances() {
    let mut random = Random(0x5EED);
    for instance in 0..200 {
        let cluster = cluster(&mut random);
        let requests = requests(&mut random);
        let options = SearchOptions {
            extra: instance % 2 == 0,
            max_width_bytes: (instance % 5 == 0).then_some(160 * KIB),
            ..SearchOptions::default()
        };
        let (fast, full) = (search(&requests, &cluster, &options), exhaustive(&requests, &cluster, &options));
        assert_same(&fast, &full, &format!("instance {instance}"));
    }
}

#[test]
fn equals_the_exhaustive_search_through_all_levels_of_cells() {
    let mut random = Random(0xBEEF);
    let mut evaluations = (0, 0);
    for instance in 0..24 {
        let cluster = cluster(&mut random);
        let size = [48, 64, 96][instance % 3] * KIB;
        // Any offset, multiples of the size, of an odd unit, or one of two sizes.
        let unit = [1, size, 1000][instance / 3 % 3];
        let mixed = instance % 4 == 3;
        let requests: Vec<Request> = (0..9000)
            .map(|_| {
                let size = if mixed && random.below(3) == 0 { size / 3 } else { size };
                request(random.below(1 << 34) / unit * unit, size, if mixed { Op::Read } else { Op::Write })
            })
            .collect();
        let options = SearchOptions { step_bytes: 8 * KIB, extra: instance % 2 == 0, ..SearchOptions::default() };
        let (fast, full) = (search(&requests, &cluster, &options), exhaustive(&requests, &cluster, &options));
        assert_same(&fast, &full, &format!("instance {instance}"));
        evaluations = (evaluations.0 + fast.evaluations, evaluations.1 + full.evaluations);
    }
    assert!(10 * evaluations.0 < evaluations.1, "{evaluations:?}");
}

#[test]
fn equals_the_exhaustive_search_for_the_exact_latency() {
    let mut random = Random(0xCAFE);
    for instance in 0..60 {
        let cluster = cluster(&mut random);
        let requests: Vec<Request> = requests(&mut random).into_iter().take(12).collect();
        let options = SearchOptions { step_bytes: 8 * KIB, ..SearchOptions::default() };
        let model = CostModel::new(&cluster);
        let fast = search_by(&LatencyCost(&model), &requests, &cluster, &options);
        let full = exhaustive_by(&LatencyCost(&model), &requests, &cluster, &options);
        assert_same(&fast, &full, &format!("instance {instance}"));
    }
}

#[test]
fn ties_go_to_the_largest_stripes() {
    // {4, 20}, {8, 40}, {16, 80} and {32, 160} KiB cost the same for aligned 512 KiB requests.
    let cluster = presets::set_ab(6, 2);
    let requests: Vec<Request> = (0..100).map(|i| request(i * 512 * KIB, 512 * KIB, Op::Read)).collect();
    let options = SearchOptions { extra: false, ..SearchOptions::default() };
    let found = search(&requests, &cluster, &options);
    assert_eq!(found.pair_bytes, (32 * KIB, 160 * KIB));
    let quarter = TierWidths::new(&[8 * KIB, 40 * KIB]);
    let cost = CostModel::new(&cluster);
    let round = stripewise_model::Round::new(&quarter, &cluster);
    let tied: f64 = requests.iter().map(|r| cost.paper_cost_s(&round, r.op, r.offset, r.size)).sum();
    assert!((tied - found.cost_s).abs() < 1e-9 * tied);
}

#[test]
fn never_worse_than_the_default_layout_with_extra() {
    // 7 : 1 is where the literal loops lose to plain 64K (math A.7).
    let cluster = presets::set_b(7, 1);
    let requests: Vec<Request> = (0..50).map(|i| request(i * 512 * KIB, 512 * KIB, Op::Read)).collect();
    let found = search(&requests, &cluster, &SearchOptions::default());
    let model = CostModel::new(&cluster);
    let round = stripewise_model::Round::new(&TierWidths::uniform(&cluster, 64 * KIB), &cluster);
    let default: f64 = requests.iter().map(|r| model.paper_cost_s(&round, r.op, r.offset, r.size)).sum();
    assert!(found.cost_s <= default * (1.0 + 1e-12));
}

#[test]
fn odd_inputs() {
    let cluster = presets::set_ab(6, 2);
    let none = search(&[], &cluster, &SearchOptions::default());
    assert_eq!((none.cost_s, none.pair_bytes), (0.0, (4 * KIB, 4 * KIB)));
    let empty = [request(5, 0, Op::Read)];
    assert_eq!(search(&empty, &cluster, &SearchOptions::default()).pair_bytes, none.pair_bytes);
    // Requests of a gigabyte: the step grows, the grid stays small.
    let large = [request(0, 1 << 30, Op::Read), request(1 << 62, 1 << 30, Op::Write)];
    let found = search(&large, &cluster, &SearchOptions::default());
    assert_eq!(found.step_bytes, 1 << 20);
    assert!(found.pairs <= 1025 * 1025);
    // One tier: one width.
    let one = presets::cluster(&[("ssd", 4, cluster.tiers[1].profile)]);
    let found = search(&[request(0, 64 * KIB, Op::Read)], &one, &SearchOptions::default());
    assert_eq!((found.widths.as_slice().len(), found.pair_bytes.0), (1, 0));
}

#[test]
fn tiers_fall_into_two_classes_by_startup() {
    let (ab, p) = (presets::set_ab(1, 1), presets::set_p(1, 1, false));
    let tiers = |order: [usize; 3]| {
        let all = [("nvme", 1, p.tiers[1].profile), ("disk", 1, ab.tiers[0].profile), ("old", 1, p.tiers[0].profile)];
        presets::cluster(&order.map(|i| all[i]))
    };
    // Mean startups 0.1, 0.85 and 8 ms: the largest ratio is between the old disk and the other two.
    assert_eq!(TwoClasses::of(&tiers([0, 1, 2])).widths((1, 2)), TierWidths::new(&[2, 2, 1]));
    assert_eq!(TwoClasses::of(&tiers([2, 0, 1])).widths((1, 2)), TierWidths::new(&[1, 2, 2]));
    // Two equal tiers are still two; one is one.
    let equal = presets::cluster(&[("a", 1, p.tiers[0].profile), ("b", 1, p.tiers[0].profile)]);
    assert_eq!(TwoClasses::of(&equal).widths((1, 2)), TierWidths::new(&[1, 2]));
    assert!(!TwoClasses::of(&presets::cluster(&[("a", 1, p.tiers[0].profile)])).has_slow());
    // A tier without servers is no class: its width alone would be a round of no bytes.
    let hollow = presets::set_p(4, 0, false);
    assert!(!TwoClasses::of(&hollow).has_slow());
    let many: Vec<Request> = (0..4000).map(|i| request(i * 64 * KIB, KIB, Op::Read)).collect();
    assert!(search(&many, &hollow, &SearchOptions::default()).widths.width_bytes(0) > 0);
}

#[test]
fn a_sampled_search_keeps_its_bound() {
    let mut random = Random(0xF00D);
    let cluster = presets::set_ab(6, 2);
    let requests: Vec<Request> = (0..12_000)
        .map(|_| {
            let op = if random.below(2) == 0 { Op::Read } else { Op::Write };
            request(random.below(1 << 36), 4 * KIB * (1 + random.below(32)), op)
        })
        .collect();
    let options = SearchOptions { max_width_bytes: Some(96 * KIB), ..SearchOptions::default() };
    let full = exhaustive(&requests, &cluster, &options);
    let exact = search(&requests, &cluster, &options);
    assert_same(&exact, &full, "exact");
    for (seed, verify_evaluations) in [(1, 100_000_000), (2, 24_000), (3, 0)] {
        // By the number of requests, or after some exact pairs.
        let exact_up_to = if seed == 1 { 1000 } else { 100_000 };
        let sampling = Sampling { exact_up_to, exact_evaluations: 30_000, risk: 1e-6, seed, verify_evaluations };
        let sampled = search(&requests, &cluster, &SearchOptions { sampling: Some(sampling), ..options });
        let bound = sampled.error_bound.expect("sampled");
        assert!(full.cost_s >= sampled.cost_s * (1.0 - bound.relative_gap - 1e-9), "{sampled:?} {}", full.cost_s);
        if verify_evaluations > 1_000_000 {
            // Everything that could be better was verified.
            assert_eq!(bound.relative_gap, 0.0);
            assert_same(&sampled, &full, "sampled");
        }
    }
}
