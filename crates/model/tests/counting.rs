//! The closed forms against a walk over every stripe of a request.

use proptest::prelude::*;
use stripewise_layout::Layout;
use stripewise_model::{
    BusyTimes, ClassShare, Cluster, CostModel, Op, Request, Round, TierWidths, expected_startup_s, presets,
};

/// Bytes per slot by walking the request one stripe unit at a time.
fn walk(cluster: &Cluster, widths: &TierWidths, offset: u64, size: u64) -> Vec<u64> {
    let servers: Vec<u64> = cluster
        .tiers
        .iter()
        .zip(widths.as_slice())
        .flat_map(|(tier, &width)| tier.servers.iter().map(move |_| width))
        .collect();
    let round: u64 = servers.iter().sum();
    let mut bytes = vec![0; servers.len()];
    let mut at = offset;
    while at < offset + size {
        let mut phase = at % round;
        let slot = servers
            .iter()
            .position(|&width| {
                let here = phase < width;
                phase = phase.wrapping_sub(if here { 0 } else { width });
                here
            })
            .expect("a server");
        let piece = (servers[slot] - phase).min(offset + size - at);
        bytes[slot] += piece;
        at += piece;
    }
    bytes
}

fn cluster_of(counts: &[u16]) -> Cluster {
    let ab = presets::set_ab(1, 1);
    let p = presets::set_p(1, 1, true);
    let profiles = [ab.tiers[0].profile, ab.tiers[1].profile, p.tiers[0].profile, p.tiers[1].profile];
    let tiers: Vec<_> = counts.iter().enumerate().map(|(i, &count)| ("tier", count, profiles[i % 4])).collect();
    presets::cluster(&tiers)
}

prop_compose! {
    /// One to four tiers with some left out, and a request anywhere below 2^63 that often ends on a border.
    fn instance()(tiers in prop::collection::vec((1_u16..6, 0_u64..9), 1..5).prop_filter("a width", |t| t.iter().any(|&(_, w)| w > 0)),
                  scale in prop_oneof![Just(1_u64), Just(4096), Just(65_537)],
                  base in prop_oneof![Just(0_u64), 0_u64..2000, Just((1 << 63) - 200_000_000)],
                  start in 0_u64..200, size in 0_u64..200, aligned in any::<bool>())
                  -> (Cluster, TierWidths, u64, u64) {
        let counts: Vec<u16> = tiers.iter().map(|&(count, _)| count).collect();
        let widths: Vec<u64> = tiers.iter().map(|&(_, width)| width * scale).collect();
        let unit = if aligned { scale } else { (scale / 3).max(1) };
        (cluster_of(&counts), TierWidths::new(&widths), base + start * unit, size * unit)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn shares_groups_and_servers_equal_the_walk((cluster, widths, offset, size) in instance()) {
        let want = walk(&cluster, &widths, offset, size);
        let round = Round::new(&widths, &cluster);

        let mut got = vec![0; want.len()];
        round.for_each_server(offset, size, |slot, _, bytes| got[slot] += bytes);
        prop_assert_eq!(&got, &want);

        let mut first = 0;
        let groups = round.groups(offset, size);
        prop_assert!(!groups.spilled());
        for (tier, of) in cluster.tiers.iter().enumerate() {
            let mut touched: Vec<u64> =
                want[first..first + of.servers.len()].iter().copied().filter(|&bytes| bytes > 0).collect();
            first += of.servers.len();
            let mut share = None;
            round.for_each_share(offset, size, |s| if s.tier == tier { share = Some(s) });
            prop_assert_eq!(share.is_some(), !touched.is_empty());
            if let Some(share) = share {
                prop_assert_eq!(share.servers, touched.len() as u64);
                prop_assert_eq!(share.max_bytes, *touched.iter().max().unwrap());
                prop_assert_eq!(share.total_bytes, touched.iter().sum::<u64>());
            }
            let mut expanded: Vec<u64> = groups.iter().filter(|g| g.tier == tier)
                .flat_map(|g| std::iter::repeat_n(g.bytes, g.servers as usize)).collect();
            expanded.sort_unstable();
            touched.sort_unstable();
            prop_assert_eq!(expanded, touched);
        }
    }

    #[test]
    fn a_layout_of_one_region_costs_what_its_widths_cost(
        (mut cluster, widths, offset, size) in instance(), write in any::<bool>(), in_turn in any::<bool>(),
    ) {
        cluster.tiers[0].in_turn = in_turn;
        let op = if write { Op::Write } else { Op::Read };
        let model = CostModel::new(&cluster);
        let round = Round::new(&widths, &cluster);
        let layout: Layout = TierWidths::layout(&[(0, widths)], &cluster).unwrap();
        let request = Request { offset, size, op, process: 0, start_s: 0.0, end_s: 0.0 };
        let (mut by_widths, mut by_layout) = (BusyTimes::new(model.servers()), BusyTimes::new(model.servers()));
        by_widths.add(&model, &round, &request, 1.0);
        by_layout.add_on_layout(&model, &layout, &request).unwrap();
        for processes in [1.0, 16.0] {
            let (a, b) = (by_widths.theta_s(processes), by_layout.theta_s(processes));
            prop_assert!((a - b).abs() <= 1e-9 * a.max(1e-9), "{a} {b}");
        }
        // The paper's cost is an upper bound for its transfer part, and takes max of means where the truth is E[max]:
        // both lie between the slowest single server and the sum over all of them.
        let (mut slowest, mut sum) = (0.0_f64, 0.0_f64);
        model.for_each_busy(&round, op, offset, size, |_, busy| {
            slowest = slowest.max(busy.device_s + busy.network_s);
            sum += busy.device_s + busy.network_s;
        });
        let (paper, exact) = (model.paper_cost_s(&round, op, offset, size), model.latency_s(&round, op, offset, size));
        prop_assert!(paper >= slowest * (1.0 - 1e-12) && paper <= 3.0 * sum + 1e-12);
        prop_assert!(exact >= slowest * (1.0 - 1e-9) && exact <= sum * (1.0 + 1e-9) + 1e-12);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn bounds_hold_at_every_offset(
        (mut cluster, widths, offset, size) in instance(), write in any::<bool>(), in_turn in any::<bool>(),
    ) {
        cluster.tiers[0].in_turn = in_turn;
        let op = if write { Op::Write } else { Op::Read };
        let model = CostModel::new(&cluster);
        let round = Round::new(&widths, &cluster);
        round.for_each_share_bounds(size, |bounds| {
            let mut share = ClassShare::default();
            round.for_each_share(offset, size, |s| if s.tier == bounds.tier { share = s });
            assert!((bounds.servers.0..=bounds.servers.1).contains(&share.servers), "{bounds:?} {share:?}");
            assert!((bounds.max_bytes.0..=bounds.max_bytes.1).contains(&share.max_bytes), "{bounds:?} {share:?}");
        });
        let (cost, (least, most)) = (model.paper_cost_s(&round, op, offset, size), model.paper_bounds_s(&round, op, size));
        prop_assert!(least <= cost && cost <= most, "paper: {} <= {} <= {}", least, cost, most);
        let (cost, (least, most)) = (model.latency_s(&round, op, offset, size), model.latency_bounds_s(&round, op, size));
        prop_assert!(least <= cost && cost <= most, "latency: {} <= {} <= {}", least, cost, most);
    }
}

#[test]
fn bounds_are_met_by_requests_of_whole_rounds() {
    let cluster = presets::set_ab(6, 2);
    let (model, round) = (CostModel::new(&cluster), Round::new(&TierWidths::new(&[32 << 10, 160 << 10]), &cluster));
    let cost = model.paper_cost_s(&round, Op::Read, 4096, 1 << 20);
    let (least, _) = model.paper_bounds_s(&round, Op::Read, 1 << 20);
    assert!((cost - least).abs() < 1e-9 * cost);
}

#[test]
fn startup_of_no_server_is_nothing() {
    let profile = presets::op_profile(1.0, 2.0, 1.0);
    assert_eq!(expected_startup_s(0, &profile), 0.0);
    assert!((expected_startup_s(1, &profile) - 1.5e-3).abs() < 1e-15);
    assert!((expected_startup_s(3, &profile) - 1.75e-3).abs() < 1e-15);
}

#[test]
fn paper_cost_by_hand() {
    // 512 KB at 0 over {32, 160} KB of set AB: every server gets one stripe. T_X = 160/117, T_S = 0.3 + 6/7 1.1,
    // T_T = max(32/24, 160/122), in ms.
    let cluster = presets::set_ab(6, 2);
    let round = Round::new(&TierWidths::new(&[32 << 10, 160 << 10]), &cluster);
    let cost = CostModel::new(&cluster).paper_cost_s(&round, Op::Read, 0, 512 << 10);
    let want = (160.0 / 117.0 + 0.3 + 6.0 / 7.0 * 1.1 + 32.0 / 24.0) * 1e-3;
    assert!((cost - want).abs() < 1e-12, "{cost} {want}");
}

#[test]
fn exact_latency_is_the_mean_of_many_draws() {
    let cluster = presets::set_p(6, 2, false);
    let widths = TierWidths::new(&[32 << 10, 160 << 10]);
    let round = Round::new(&widths, &cluster);
    let model = CostModel::new(&cluster);
    let (offset, size) = (100_000, 700_000);
    let want = walk(&cluster, &widths, offset, size);
    let mut seed = 88_172_645_463_325_252_u64;
    let mut uniform = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 11) as f64 / (1_u64 << 53) as f64
    };
    let draws = 200_000;
    let mut sum = 0.0;
    for _ in 0..draws {
        let mut latest = 0.0_f64;
        for (slot, &bytes) in want.iter().enumerate().filter(|&(_, &bytes)| bytes > 0) {
            let profile = cluster.tiers[usize::from(slot >= 6)].profile.of(Op::Read);
            let startup = profile.startup_min_s + uniform() * (profile.startup_max_s - profile.startup_min_s);
            latest = latest.max(startup + bytes as f64 * profile.transfer_s_per_byte);
        }
        sum += latest;
    }
    let (drawn, exact) = (sum / f64::from(draws), model.latency_s(&round, Op::Read, offset, size));
    assert!((drawn - exact).abs() < 2e-3 * exact, "{drawn} {exact}");
}

#[test]
fn a_server_of_two_regions_serves_one_part_after_the_other() {
    let cluster = presets::set_p(1, 1, false);
    let region = TierWidths::new(&[4096, 0]);
    // The same round twice, so that only the border differs: both parts are on hdd.0.
    let layout = TierWidths::layout(&[(0, region), (8192, region)], &cluster).unwrap();
    let model = CostModel::new(&cluster);
    let busy = |bytes| model.busy(0, Op::Read, bytes).device_s;
    let mut seen = 0.0;
    let latency = model.layout_latency_s(&layout, Op::Read, 4096, 8192, |_, b| seen += b.device_s).unwrap();
    assert!((latency - 2.0 * busy(4096)).abs() < 1e-12 && (seen - latency).abs() < 1e-12);
}
