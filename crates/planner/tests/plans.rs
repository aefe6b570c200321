//! Whatever is asked for, a plan keeps the limits, serves every byte and is not priced above the default; or an error
//! says why not.

#[path = "common/planned.rs"]
mod planned;

use planned::plan;
use proptest::prelude::*;
use stripewise_layout::{Layout, ServerId};
use stripewise_model::{Cluster, Head, Op, OpProfile, Profile, Request, Tier, TierWidths, presets};
use stripewise_planner::{FileTrace, Job, Plan, PlanError, PlanOptions, harl_within_limits, plan_as_is, plan_by};
use stripewise_simulate::{ClosedLoop, Network, SimulationOptions, simulate};

fn quick() -> PlanOptions {
    PlanOptions { max_chunks: 24, max_entries: 100, max_regions: 6, simulations: 60, ..PlanOptions::default() }
}

/// Bytes of `[0, extent)` on a server, from the layout's own rounds. Wide, as two files of 2^63 bytes on one
/// server are more than a `u64` holds.
fn held(layout: &Layout, server: ServerId, extent: u64) -> u128 {
    let regions = layout.regions().iter().enumerate();
    let held = regions.filter_map(|(index, region)| {
        let slot = region.stripes().iter().position(|stripe| stripe.server == server)?;
        let (from, to) = (region.offset().min(extent), layout.region_end(index).min(extent));
        Some(u128::from(region.bytes_before(slot, to) - region.bytes_before(slot, from)))
    });
    held.sum()
}

/// Bytes that a server of the tier may hold.
fn room(tier: &Tier) -> u128 {
    tier.capacity_bytes.map_or(u128::MAX, u128::from)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![Just(Op::Read), Just(Op::Write)]
}

fn requests(most: u64) -> impl Strategy<Value = Vec<Request>> {
    let offset = prop_oneof![4 => 0..(64_u64 << 20), 1 => 0..most];
    let size = prop_oneof![1 => Just(0_u64), 24 => 1..(96_u64 << 10), 1 => 1..most];
    let request = (offset, size, op(), 0_u32..5, 0.0_f64..10.0, 0.0_f64..1.0);
    let request = request.prop_map(move |(offset, size, op, process, start_s, lasts_s)| Request {
        offset,
        size: size.min((1 << 63) - offset),
        op,
        process,
        start_s,
        end_s: start_s + lasts_s,
    });
    prop::collection::vec(request, 0..60)
}

fn profile() -> impl Strategy<Value = Profile> {
    let network = prop_oneof![Just(0.0), 0.0_f64..2e-8];
    let figures = (0.0_f64..5e-3, 0.0_f64..5e-3, 0.0_f64..2e-8, network, prop::option::of(0.0_f64..5e-3));
    figures.prop_map(|(min, more, beta, network_s_per_byte, sequential)| {
        let head = sequential.map(|sequential_startup_s| Head { sequential_startup_s, ahead_bytes: 1 << 18 });
        let op = OpProfile { startup_min_s: min, startup_max_s: min + more, transfer_s_per_byte: beta, head };
        Profile { read: op, write: op, network_s_per_byte }
    })
}

fn clusters() -> impl Strategy<Value = Cluster> {
    let capacity = prop_oneof![Just(None), (1_u64 << 16..1_u64 << 27).prop_map(Some)];
    let meta = prop::option::of((profile(), 0_u64..1 << 24));
    (prop::collection::vec((profile(), 0_usize..4, capacity), 1..4), meta).prop_map(|(tiers, meta)| {
        let mut next = 0;
        let tiers = tiers.into_iter().enumerate().map(|(index, (profile, servers, capacity_bytes))| {
            let servers = (0..servers).map(|_| {
                next += 1;
                ServerId(next - 1)
            });
            Tier {
                name: format!("t{index}"),
                servers: servers.collect(),
                profile,
                capacity_bytes,
                in_turn: false,
                at_once: 1,
            }
        });
        Cluster { tiers: tiers.collect(), meta: meta.map(|(profile, bytes)| Tier::meta(profile, bytes)) }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn any_input_has_a_valid_plan_or_a_clear_error(
        traces in prop::collection::vec((requests(1 << 63), prop::option::of(0_u64..1 << 30)), 0..3),
        cluster in clusters(),
        link in any::<bool>(),
    ) {
        let files: Vec<FileTrace> = traces
            .iter()
            .enumerate()
            .map(|(index, (requests, size_bytes))| FileTrace { name: format!("f{index}"), requests, size_bytes: *size_bytes })
            .collect();
        let mut options = quick();
        if link {
            options.network = stripewise_simulate::Network::Link;
        }
        match plan(&files, &cluster, &options) {
            Ok(plan) => {
                prop_assert_eq!(plan.files.len(), files.len());
                for tier in cluster.all_tiers() {
                    for &server in &tier.servers {
                        let held: u128 = plan.files.iter().map(|f| held(&f.layout, server, f.extent_bytes)).sum();
                        prop_assert!(held <= room(tier), "{server}: {held}");
                    }
                }
                // All bytes are somewhere, and the figures by tier are those of the layouts.
                let bytes: u128 = plan.files.iter().map(|f| u128::from(f.extent_bytes)).sum();
                let planned: u128 = plan.tiers.iter().map(|t| u128::from(t.planned_bytes)).sum();
                let saturated = plan.tiers.iter().any(|t| t.planned_bytes == u64::MAX);
                prop_assert!(planned == bytes || (saturated && planned < bytes), "{planned} of {bytes}");
                let fits = |tier: &Tier| tier.servers.iter().all(|&server| {
                    let everywhere = Layout::striped(
                        cluster.tiers.iter().flat_map(|t| t.servers.clone()), options.default_width_bytes).unwrap();
                    let held: u128 = plan.files.iter().map(|f| held(&everywhere, server, f.extent_bytes)).sum();
                    held <= room(tier)
                });
                if cluster.tiers.iter().all(fits) {
                    prop_assert!(plan.total.planned_s <= plan.total.default_s * (1.0 + 1e-9));
                }
                let shares: f64 = plan.files.iter().flat_map(|f| &f.regions).map(|r| r.times.planned_s).sum();
                prop_assert!((shares - plan.total.planned_s).abs() <= 1e-6 * plan.total.planned_s.max(1e-9));
                let layouts: Vec<Layout> = plan.files.iter().map(|f| f.layout.clone()).collect();
                let again = Job::new(&files, &cluster, &options).unwrap().price(&layouts).unwrap().predicted_s;
                prop_assert!((again - plan.total.planned_s).abs() <= 1e-9 * again.max(1e-9));
            }
            Err(PlanError::NoServer) => prop_assert!(cluster.tiers.iter().all(|tier| tier.servers.is_empty())),
            Err(PlanError::TooLarge { bytes, room }) => prop_assert!(bytes > room),
            Err(PlanError::NoFit { excess_bytes }) => {
                // Only where room is really scarce: with half of it free some plan must be found.
                prop_assert!(excess_bytes > 0);
                let bytes: u128 = files.iter().map(|f| {
                    let end = f.requests.iter().filter(|r| r.size > 0 && (f.size_bytes.is_none() || r.op == Op::Write))
                        .map(|r| r.offset + r.size).max().unwrap_or(0);
                    u128::from(f.size_bytes.unwrap_or(0).max(end))
                }).sum();
                let room: u128 = cluster.tiers.iter().map(|tier| {
                    tier.servers.len() as u128 * u128::from(tier.capacity_bytes.unwrap_or(u64::MAX))
                }).sum();
                prop_assert!(bytes * 2 > room, "{bytes} of {room}");
            }
            Err(error) => prop_assert!(false, "{error}"),
        }
    }
}

fn uniform(count: u64, size: u64, slots: u64) -> Vec<Request> {
    (0..count)
        .map(|i| {
            let slot = (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % slots;
            let start_s = (i / 16) as f64;
            Request { offset: slot * size, size, op: Op::Read, process: (i % 16) as u32, start_s, end_s: start_s + 1.0 }
        })
        .collect()
}

fn planned(requests: &[Request], cluster: &Cluster, options: &PlanOptions) -> stripewise_planner::Plan {
    plan(&[FileTrace { name: "f".into(), requests, size_bytes: None }], cluster, options).unwrap()
}

#[test]
fn random_half_megabytes_have_their_known_optimum() {
    // beyond.md 4: without a network about {512K, 8192K}, each request on one server.
    let requests = uniform(6000, 512 << 10, 8192);
    let options = PlanOptions { simulations: 0, ..PlanOptions::default() };
    let plan = planned(&requests, &presets::set_p(6, 2, false), &options);
    assert_eq!(plan.phases.len(), 1);
    assert!((plan.phases[0].processes - 16.0).abs() < 1e-6);
    assert!(plan.total.gain() > 12.0, "{}", plan.total.gain());
    let harl_s = plan.total.harl_s.unwrap();
    assert!(plan.total.planned_s < harl_s, "{} {harl_s}", plan.total.planned_s);
    for region in &plan.files[0].regions {
        let widths = region.widths.unwrap();
        let (h, s) = (widths.width_bytes(0), widths.width_bytes(1));
        assert!(s >= 4 * h && s >= 1 << 20, "{widths}");
    }
}

#[test]
fn processes_are_counted_phase_by_phase() {
    // 16 processes write side by side; then one of them reads the same bytes on its own.
    let mut requests = uniform(1600, 64 << 10, 1600);
    requests.iter_mut().for_each(|r| r.op = Op::Write);
    requests.extend((0..1600_u32).map(|i| {
        let start_s = 200.0 + f64::from(i);
        Request {
            offset: u64::from(i * 7919 % 1600) << 16,
            size: 64 << 10,
            op: Op::Read,
            process: 3,
            start_s,
            end_s: start_s + 1.0,
        }
    }));
    let options = PlanOptions { simulations: 0, ..PlanOptions::default() };
    let plan = planned(&requests, &presets::set_p(6, 2, false), &options);
    let processes: Vec<f64> = plan.phases.iter().map(|phase| phase.processes).collect();
    assert!(processes.len() == 2, "{processes:?}");
    assert!((processes[0] - 16.0).abs() < 1e-6 && (processes[1] - 1.0).abs() < 1e-6, "{processes:?}");
}

#[test]
fn a_limit_on_regions_is_kept_and_made_use_of() {
    // Eight parts of unlike requests: best with a region each.
    let requests: Vec<Request> = (0..8_u64)
        .flat_map(|part| {
            let size = if part % 2 == 0 { 16 << 10 } else { 2 << 20 };
            uniform(if part % 2 == 0 { 1600 } else { 100 }, size, (64 << 20) / size)
                .into_iter()
                .map(move |r| Request { offset: r.offset + (part << 26), ..r })
        })
        .collect();
    let planned_s = |max_regions| {
        let options = PlanOptions { max_regions, simulations: 0, processes: Some(4.0), ..PlanOptions::default() };
        let plan = planned(&requests, &presets::set_ab(6, 2), &options);
        assert!(plan.files[0].regions.len() <= max_regions, "{max_regions}: {:?}", plan.files[0].layout);
        plan.total.planned_s
    };
    let (one, few, free) = (planned_s(1), planned_s(3), planned_s(128));
    assert!(free < few && few < one, "{one} {few} {free}");
}

#[test]
fn the_limits_hold_for_all_files_together() {
    // Any of the files fits on the SSDs, five of the twenty do together.
    let requests = uniform(400, 256 << 10, 64);
    let mut cluster = presets::set_p(6, 2, false);
    cluster.tiers[1].capacity_bytes = Some(40 << 20);
    let named = |index| FileTrace { name: format!("f{index}"), requests: &requests, size_bytes: Some(16 << 20) };
    let files: Vec<FileTrace> = (0..20).map(named).collect();
    let plan = plan(&files, &cluster, &quick()).unwrap();
    for &server in &cluster.tiers[1].servers {
        let bytes: u128 = plan.files.iter().map(|file| held(&file.layout, server, 16 << 20)).sum();
        assert!(bytes <= 40 << 20, "{bytes} on {server}");
        assert!(bytes > 30 << 20, "{bytes} on {server}: the fast servers are not made use of");
    }
}

#[test]
fn processes_with_parts_of_their_own_share_the_fast_servers() {
    // Each process has a sixteenth of the file to itself. With regions for the fast servers some processes would have
    // none of those; a round of both tiers at the limit's ratio serves all alike, and simulates 10 % faster.
    let (size, processes, each) = (512_u64 << 10, 16_u64, 256_u64);
    let part = |process: u64| {
        let mut slots: Vec<u64> = (process * each..(process + 1) * each).collect();
        slots.sort_by_key(|slot| slot.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d));
        slots.into_iter().enumerate().map(move |(number, slot)| {
            let start_s = number as f64;
            let (offset, process) = (slot * size, process as u32);
            Request { offset, size, op: Op::Write, process, start_s, end_s: start_s + 1.0 }
        })
    };
    let requests: Vec<Request> = (0..processes).flat_map(part).collect();
    let mut cluster = presets::set_p(6, 2, false);
    cluster.tiers[1].capacity_bytes = Some(processes * each * size / 5);
    let plan = planned(&requests, &cluster, &PlanOptions::default());
    let simulated_s = |layout: &Layout| {
        let workload = ClosedLoop::replay(&[&requests], &[], false);
        let options = SimulationOptions { seed: 5, network: Network::InBeta };
        simulate(&cluster, std::slice::from_ref(layout), &workload, &options).unwrap().makespan_s
    };
    let round = TierWidths::new(&[size, 2 * size]);
    let by_hand = TierWidths::layout(&[(0, round)], &cluster).unwrap();
    let (planned_s, by_hand_s) = (simulated_s(&plan.files[0].layout), simulated_s(&by_hand));
    assert!(planned_s <= 1.02 * by_hand_s, "{planned_s} {by_hand_s} {:?}", plan.files[0].regions);
}

#[test]
fn heat_decides_who_has_the_fast_servers() {
    // The second half is asked for ten times as often; the SSDs have room for a little more than it.
    let mut requests = uniform(400, 256 << 10, 512);
    requests.extend(uniform(4000, 256 << 10, 512).into_iter().map(|r| Request { offset: r.offset + (128 << 20), ..r }));
    let mut cluster = presets::set_p(6, 2, false);
    cluster.tiers[1].capacity_bytes = Some(70 << 20);
    let plan = planned(&requests, &cluster, &PlanOptions { simulations: 0, ..PlanOptions::default() });
    let layout = &plan.files[0].layout;
    let ssd = |from: u64, to: u64| -> u128 {
        cluster.tiers[1].servers.iter().map(|&s| held(layout, s, to) - held(layout, s, from)).sum()
    };
    assert!(ssd(128 << 20, 256 << 20) > (100 << 20), "{}", ssd(128 << 20, 256 << 20));
    assert!(ssd(0, 256 << 20) <= 140 << 20);
    assert!(plan.total.planned_s * 1.3 < plan.total.harl_s.unwrap());
}

#[test]
fn chance_makes_few_regions_and_rounds_fit_theirs() {
    let mut requests = uniform(8000, 512 << 10, 4096);
    for (i, request) in requests.iter_mut().enumerate() {
        // Without the even spread of multiples: some places are hit thrice by chance, some not at all.
        let z = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        request.offset = ((z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 52) << 19;
    }
    let mut cluster = presets::set_p(6, 2, false);
    cluster.tiers[1].capacity_bytes = Some(400 << 20);
    let plan = planned(&requests, &cluster, &PlanOptions { simulations: 0, ..PlanOptions::default() });
    let regions = &plan.files[0].regions;
    assert!(regions.len() <= 16, "{}", regions.len());
    for (index, region) in regions.iter().enumerate() {
        let end = regions.get(index + 1).map_or(plan.files[0].extent_bytes, |next| next.offset);
        let widths = region.widths.unwrap();
        assert!(widths.round_bytes(&cluster) <= end - region.offset, "{} {widths}", region.offset);
    }
}

#[test]
fn stripes_are_no_narrower_than_needed() {
    // One process reads from beginning to end: pieces of 4 KiB would be as fast only if pieces were free.
    let read = |i: u64| Request {
        offset: i << 15,
        size: 32 << 10,
        op: Op::Read,
        process: 0,
        start_s: i as f64,
        end_s: i as f64 + 1.0,
    };
    let plan = planned(&(0..1024).map(read).collect::<Vec<_>>(), &presets::set_p(6, 2, false), &PlanOptions::default());
    for region in &plan.files[0].regions {
        let widths = region.widths.unwrap();
        let narrowest = widths.as_slice().iter().filter(|&&width| width > 0).min();
        assert!(narrowest >= Some(&(16 << 10)), "{widths}");
    }
}

#[test]
fn one_process_one_request_one_server_and_nothing_at_all() {
    let one = Request { offset: 12345, size: 678, op: Op::Write, process: 9, start_s: f64::NAN, end_s: f64::INFINITY };
    let single = presets::cluster(&[("only", 1, presets::set_p(1, 1, false).tiers[0].profile)]);
    let plan = planned(&[one], &single, &quick());
    assert_eq!(plan.files[0].layout.servers(), vec![ServerId(0)]);
    assert_eq!(plan.files[0].extent_bytes, 12345 + 678);
    assert_eq!(plan.writes.unwrap().bytes, 678);
    assert!(plan.reads.is_none());
    let empty = planned(&[], &presets::set_p(6, 2, false), &quick());
    assert_eq!(empty.files[0].layout, Layout::striped((0..8).map(ServerId), 64 << 10).unwrap());
    assert_eq!(empty.total.gain(), 1.0);
    assert!(self::plan(&[], &single, &quick()).unwrap().files.is_empty());
}

#[test]
fn a_sampled_plan_says_so_with_its_bound() {
    let requests = uniform(5000, 4096, 1 << 20);
    let options = PlanOptions { max_entries: 400, simulations: 0, ..PlanOptions::default() };
    let plan = planned(&requests, &presets::set_p(6, 2, false), &options);
    let sampled = plan.sampled.unwrap();
    assert!(sampled.kept <= 400 && sampled.of > 4900, "{sampled:?}");
    assert!(sampled.error_bound < 0.1, "{sampled:?}");
    let all = planned(&requests, &presets::set_p(6, 2, false), &PlanOptions { max_entries: 10_000, ..options });
    assert!(all.sampled.is_none());
    assert!((all.total.default_s / plan.total.default_s - 1.0).abs() < 0.05);
}

#[test]
fn errors_name_the_thing_and_the_remedy() {
    let cluster = presets::set_p(6, 2, false);
    let requests = uniform(10, 1 << 20, 100);
    let files = [FileTrace { name: "data/x".into(), requests: &requests, size_bytes: Some(1 << 30) }];
    let error = |cluster: &Cluster, options: &PlanOptions| plan(&files, cluster, options).unwrap_err().to_string();
    let mut full = cluster.clone();
    full.tiers.iter_mut().for_each(|tier| tier.capacity_bytes = Some(1 << 20));
    assert_eq!(
        error(&full, &quick()),
        "the files have 1073741824 bytes, the servers may hold 8388608: raise a tier's capacity or add servers"
    );
    let mut odd = cluster.clone();
    odd.tiers[1].profile.write.startup_max_s = -1.0;
    assert!(error(&odd, &quick()).starts_with("tier ssd: its write profile has"));
    assert!(error(&cluster, &PlanOptions { default_width_bytes: 0, ..quick() }).contains("default width"));
    assert!(error(&cluster, &PlanOptions { processes: Some(0.5), ..quick() }).contains("processes"));
    let meta = Layout::striped([ServerId::META], 4096).unwrap();
    let options = quick();
    let job = Job::new(&files, &cluster, &options).unwrap();
    assert!(job.price(&[meta]).unwrap_err().to_string().contains("data/x"));
}

#[test]
fn harl_is_brought_within_the_limits() {
    let requests = uniform(500, 128 << 10, 1024);
    let mut cluster = presets::set_ab(6, 2);
    let files = [FileTrace { name: "f".into(), requests: &requests, size_bytes: Some(128 << 20) }];
    let harl = |cluster: &Cluster| harl_within_limits(&Job::new(&files, cluster, &quick()).unwrap());
    let free = harl(&cluster).unwrap();
    // F.2: 128K goes to {0, 64K}.
    assert_eq!(free[0].servers(), vec![ServerId(6), ServerId(7)]);
    cluster.tiers[1].capacity_bytes = Some(16 << 20);
    let kept = harl(&cluster).unwrap();
    for server in [6, 7] {
        assert!(held(&kept[0], ServerId(server), 128 << 20) <= 16 << 20);
    }
    cluster.tiers[0].capacity_bytes = Some(17 << 20);
    cluster.tiers[1].capacity_bytes = Some(14 << 20);
    assert_eq!(harl(&cluster), None);
}

#[test]
fn the_metadata_tier_is_priced_as_a_server_of_its_profile() {
    let requests = uniform(300, 64 << 10, 200);
    let files = [FileTrace { name: "f".into(), requests: &requests, size_bytes: None }];
    let (mut with_meta, mut of_three) = (presets::set_p(3, 2, true), presets::set_p(3, 2, true));
    let profile = presets::device("nvme").unwrap();
    with_meta.meta = Some(Tier::meta(Profile { network_s_per_byte: 1e-9, ..profile }, 0));
    let third = Tier {
        name: "t".into(),
        servers: vec![ServerId(5)],
        profile,
        capacity_bytes: None,
        in_turn: false,
        at_once: 1,
    };
    of_three.tiers.push(Tier { profile: with_meta.meta.as_ref().unwrap().profile, ..third });
    let layout = |first| {
        let stripe = |server| stripewise_layout::Stripe { server, width_bytes: 64 << 10 };
        Layout::new([(0, vec![stripe(first)]), (4 << 20, (0..5).map(|n| stripe(ServerId(n))).collect())]).unwrap()
    };
    for network in [Network::InBeta, Network::Link] {
        let options = PlanOptions { network, ..quick() };
        let (on_meta, on_third) = ([layout(ServerId::META)], [layout(ServerId(5))]);
        let job = Job::new(&files, &with_meta, &options).unwrap();
        let price = job.price(&on_meta).unwrap();
        let same = Job::new(&files, &of_three, &options).unwrap().price(&on_third).unwrap();
        assert!((price.predicted_s / same.predicted_s - 1.0).abs() < 1e-9, "{price:?} {same:?}");
        assert_eq!(price.server_bytes, same.server_bytes);
        assert!(price.server_bytes[5] > 0);
        // No planner places anything on it, and what stays there is described.
        let kept = plan_as_is(&job, &on_meta).unwrap().plan;
        assert!((kept.total.planned_s / price.predicted_s - 1.0).abs() < 1e-9);
        let best = plan_by("auto", &job).unwrap().plan;
        assert!(!best.files[0].layout.servers().contains(&ServerId::META));
    }
}

/// `count` small files that are read whole, in any order, by 4 processes.
fn small_files(count: usize, bytes: u64) -> Vec<Vec<Request>> {
    let request = |file: usize| Request {
        offset: 0,
        size: bytes,
        op: Op::Read,
        process: (file % 4) as u32,
        start_s: file as f64 * 1e-3,
        end_s: file as f64 * 1e-3 + 1e-3,
    };
    (0..count).map(|file| vec![request(file); 3]).collect()
}

#[test]
fn small_files_go_to_a_fast_metadata_tier_as_far_as_it_has_room() {
    let traces = small_files(40, 8 << 10);
    let files: Vec<FileTrace> = traces
        .iter()
        .enumerate()
        .map(|(index, requests)| FileTrace { name: format!("f{index}"), requests, size_bytes: Some(8 << 10) })
        .collect();
    let mut cluster = presets::set_ab(4, 0);
    let without = plan(&files, &cluster, &quick()).unwrap();
    let fast = presets::device("nvme").unwrap();
    for (room_bytes, expected) in [(1 << 30, 40), (80 << 10, 10), (0, 0)] {
        cluster.meta = Some(Tier::meta(fast, room_bytes));
        let with = plan(&files, &cluster, &quick()).unwrap();
        assert_eq!(files_on_meta(&with), expected, "with room for {room_bytes} bytes");
        assert!(with.total.planned_s <= without.total.planned_s);
        let told = with.tiers.iter().find(|tier| tier.name == "meta");
        assert_eq!(told.map_or(0, |tier| tier.planned_bytes), expected as u64 * (8 << 10));
    }
    // The papers' planners know no such tier.
    cluster.meta = Some(Tier::meta(fast, 1 << 30));
    let job_options = quick();
    let job = Job::new(&files, &cluster, &job_options).unwrap();
    for name in ["fixed", "whole-files", "harl", "harl-paper", "1-dh", "equal-depth"] {
        assert_eq!(files_on_meta(&plan_by(name, &job).unwrap().plan), 0, "{name}");
    }
}

#[test]
fn a_metadata_tier_that_is_slow_or_busy_gets_nothing() {
    let traces = small_files(40, 64 << 10);
    let files: Vec<FileTrace> = traces
        .iter()
        .enumerate()
        .map(|(index, requests)| FileTrace { name: format!("f{index}"), requests, size_bytes: Some(64 << 10) })
        .collect();
    let mut cluster = presets::set_ab(0, 4);
    cluster.meta = Some(Tier::meta(presets::set_ab(1, 0).tiers[0].profile, 1 << 30));
    assert_eq!(files_on_meta(&plan(&files, &cluster, &quick()).unwrap()), 0);
}

#[test]
fn a_metadata_tier_that_is_busy_with_names_gets_nothing() {
    let mut traces = small_files(40, 8 << 10);
    traces.iter_mut().flatten().for_each(|request| request.end_s = request.start_s + 4e-3);
    let name = |index| format!("f{index}");
    let file = |(index, requests)| FileTrace { name: name(index), requests, size_bytes: Some(8 << 10) };
    let files: Vec<FileTrace> = traces.iter().map(Vec::as_slice).enumerate().map(file).collect();
    let mut cluster = presets::set_ab(4, 0);
    cluster.meta = Some(Tier::meta(presets::device("nvme").unwrap(), 1 << 30));
    let on_meta = |names_s| files_on_meta(&plan(&files, &cluster, &PlanOptions { names_s, ..quick() }).unwrap());
    assert_eq!((on_meta(0.0), on_meta(1e-6), on_meta(10.0)), (40, 40, 0));
    cluster.meta = None;
    assert_eq!(files_on_meta(&plan(&files, &cluster, &PlanOptions { names_s: 10.0, ..quick() }).unwrap()), 0);
}

#[test]
fn a_metadata_tier_that_serves_several_side_by_side_has_them_wait_less() {
    let mut traces = small_files(40, 8 << 10);
    // Four processes at a time.
    traces.iter_mut().flatten().for_each(|request| request.end_s = request.start_s + 4e-3);
    let name = |index| format!("f{index}");
    let file = |(index, requests)| FileTrace { name: name(index), requests, size_bytes: Some(8 << 10) };
    let files: Vec<FileTrace> = traces.iter().map(Vec::as_slice).enumerate().map(file).collect();
    let planned_s = |at_once| {
        let mut cluster = presets::set_ab(4, 0);
        cluster.meta = Some(Tier { at_once, ..Tier::meta(presets::device("nvme").unwrap(), 1 << 30) });
        let plan = plan(&files, &cluster, &quick()).unwrap();
        assert_eq!(files_on_meta(&plan), 40);
        plan.total.planned_s
    };
    assert!(planned_s(4) < 0.9 * planned_s(1), "{} {}", planned_s(4), planned_s(1));
}

/// A header that is read again and again in small pieces, and behind it the data, in large ones.
#[test]
fn the_head_of_a_larger_file_goes_to_a_fast_metadata_tier_and_the_rest_stays_on_the_servers() {
    const HEAD_BYTES: u64 = 64 << 10;
    const SIZE_BYTES: u64 = 64 << 20;
    let request = |number: u64, (offset, size): (u64, u64)| Request {
        offset,
        size,
        op: Op::Read,
        process: (number % 4) as u32,
        start_s: number as f64 * 1e-3,
        end_s: number as f64 * 1e-3 + 1e-3,
    };
    let place = |number: u64| match number % 4 {
        0 => (HEAD_BYTES + number / 4 % 63 * (1 << 20), 1 << 20),
        _ => (number * 4096 % HEAD_BYTES, 4096),
    };
    let requests: Vec<Request> = (0..1000).map(|number| request(number, place(number))).collect();
    let files = [FileTrace { name: "data".into(), requests: &requests, size_bytes: Some(SIZE_BYTES) }];
    let mut cluster = presets::set_ab(4, 0);
    let without = plan(&files, &cluster, &quick()).unwrap();
    // Room for the head, and not for the file.
    cluster.meta = Some(Tier::meta(presets::device("nvme").unwrap(), 1 << 20));
    let with = plan(&files, &cluster, &quick()).unwrap();
    let layout = &with.files[0].layout;
    let head_bytes = layout.head_in_inode_bytes();
    assert!((HEAD_BYTES / 2..=1 << 20).contains(&head_bytes), "{layout:?}");
    assert_ne!(layout.locate(SIZE_BYTES / 2).server, ServerId::META, "{layout:?}");
    assert!(with.total.planned_s < without.total.planned_s);
}

/// Files of a plan with a region on the metadata tier.
fn files_on_meta(plan: &Plan) -> usize {
    plan.files.iter().filter(|file| file.layout.servers().contains(&ServerId::META)).count()
}
