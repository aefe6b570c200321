//! Every planner of the list, on whatever may be asked for: valid layouts or a clear error, never a panic, never worse
//! than the default by its own price. A new planner is tested here by being in the list.

use proptest::prelude::*;
use std::path::Path;
use stripewise_layout::{MAX_OFFSET, ServerId};
use stripewise_model::{Cluster, Op, OpProfile, Profile, Request, Tier, presets};
use stripewise_planner::auto::auto;
use stripewise_planner::planners::{PLANNERS, Planner, by_name, propose};
use stripewise_planner::{FileTrace, Job, PlanError, PlanOptions};

fn quick() -> PlanOptions {
    PlanOptions { max_chunks: 24, max_entries: 100, max_regions: 6, simulations: 12, ..PlanOptions::default() }
}

fn request(offset: u64, size: u64, op: Op) -> Request {
    Request { offset, size, op, process: 0, start_s: 0.0, end_s: 0.0 }
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![Just(Op::Read), Just(Op::Write)]
}

/// A time that a damaged trace may hold, now and then.
fn time() -> impl Strategy<Value = f64> {
    prop_oneof![16 => 0.0_f64..10.0, 1 => Just(f64::NAN), 1 => Just(f64::INFINITY), 1 => Just(-1e300)]
}

/// Requests anywhere in a file, up to its last possible byte, overlapping or not, some of no bytes.
fn any_requests() -> impl Strategy<Value = Vec<Request>> {
    let offset = prop_oneof![4 => 0..(64_u64 << 20), 1 => 0..=MAX_OFFSET, 1 => MAX_OFFSET - 4096..=MAX_OFFSET];
    let size = prop_oneof![2 => Just(0_u64), 24 => 1..(96_u64 << 10), 1 => 1..=MAX_OFFSET];
    let request = (offset, size, op(), prop_oneof![0_u32..5, any::<u32>()], time(), time());
    let request = request.prop_map(|(offset, size, op, process, start_s, end_s)| Request {
        offset,
        size: size.min(MAX_OFFSET + 1 - offset),
        op,
        process,
        start_s,
        end_s,
    });
    prop::collection::vec(request, 0..60)
}

/// Requests of one size, each process in a part of its own, as programs make them.
fn usual_requests() -> impl Strategy<Value = Vec<Request>> {
    let shape = (1_u32..6, 1_u64..12, 0_u32..9, any::<bool>(), op());
    shape.prop_map(|(processes, each, size, sequential, op)| {
        let size = 4096_u64 << size;
        let all = (0..processes).flat_map(|process| (0..each).map(move |i| (process, i)));
        all.map(|(process, i)| {
            let place =
                if sequential { u64::from(process) * each + i } else { i * u64::from(processes) + u64::from(process) };
            Request { offset: place * size, size, op, process, start_s: i as f64, end_s: i as f64 + 0.9 }
        })
        .collect()
    })
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let one = (0..=MAX_OFFSET, op()).prop_map(|(offset, op)| vec![request(offset, 1, op)]);
    prop_oneof![
        8 => any_requests(),
        8 => usual_requests(),
        1 => Just(Vec::new()),
        1 => one,
        1 => op().prop_map(|op| vec![request(7, 0, op)]),
        1 => (1_usize..40, op()).prop_map(|(n, op)| vec![request(12_345, 70_000, op); n]),
    ]
}

fn profile() -> impl Strategy<Value = Profile> {
    let some = |range: std::ops::Range<f64>| prop_oneof![1 => Just(0.0), 6 => range];
    let op = || (some(0.0..5e-3), some(0.0..5e-3), some(0.0..2e-8));
    (op(), op(), some(0.0..2e-8)).prop_map(|(read, write, network_s_per_byte)| {
        let op = |(min, more, beta)| OpProfile {
            startup_min_s: min,
            startup_max_s: min + more,
            transfer_s_per_byte: beta,
            head: None,
        };
        Profile { read: op(read), write: op(write), network_s_per_byte }
    })
}

fn clusters() -> impl Strategy<Value = Cluster> {
    let capacity = prop_oneof![3 => Just(None), 1 => (0_u64..1 << 27).prop_map(Some)];
    let any = prop::collection::vec((profile(), 0_usize..4, capacity), 0..5).prop_map(|tiers| {
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
        Cluster { tiers: tiers.collect(), meta: None }
    });
    let one_server = profile().prop_map(|profile| presets::cluster(&[("only", 1, profile)]));
    prop_oneof![6 => any, 1 => one_server, 1 => Just(presets::set_ab(6, 2)), 1 => Just(presets::set_p(3, 1, false))]
}

/// What holds for a planner on a job, or what does not.
fn check(planner: &dyn Planner, job: &Job) -> Result<(), TestCaseError> {
    let name = planner.name();
    let proposal = match propose(planner, job) {
        Ok(proposal) => proposal,
        // No other error has its cause in the planner: the job was made.
        Err(PlanError::NoFit { .. }) => return Ok(()),
        Err(PlanError::NoLayout { planner: who, reason }) => {
            prop_assert!(who == name && reason.len() > 10, "{who}: {reason}");
            return Ok(());
        }
        Err(error) => return Err(TestCaseError::fail(format!("{name}: {error}"))),
    };
    prop_assert_eq!(proposal.layouts.len(), job.files.len());
    let known: Vec<ServerId> = job.cluster.tiers.iter().flat_map(|tier| tier.servers.clone()).collect();
    for layout in &proposal.layouts {
        prop_assert!(layout.regions().len() <= job.options.max_regions, "{name}: {} regions", layout.regions().len());
        prop_assert!(layout.servers().iter().all(|server| known.contains(server)), "{name}");
    }
    let default = job.default_layouts();
    let default_price = job.price(&default).unwrap();
    if default_price.excess_bytes <= proposal.price.excess_bytes {
        let (own, of_default) =
            (planner.own_price(job, &proposal.layouts).unwrap(), planner.own_price(job, &default).unwrap());
        prop_assert!(own <= of_default, "{name}: {own} against {of_default} of the default");
    }
    prop_assert!(proposal.price.predicted_s.is_finite() && proposal.price.predicted_s >= 0.0, "{name}");
    // Every byte is somewhere, and the price is that of the layouts.
    let held: u128 = proposal.price.server_bytes.iter().map(|&bytes| u128::from(bytes)).sum();
    let bytes: u128 = (0..job.files.len()).map(|file| u128::from(job.extent_bytes(file))).sum();
    // What one server cannot hold in any case is not counted beyond 2^64.
    let saturated = proposal.price.server_bytes.contains(&u64::MAX);
    prop_assert!(held == bytes || saturated && held < bytes, "{name}: {held} of {bytes} bytes");
    prop_assert_eq!(&job.price(&proposal.layouts).unwrap(), &proposal.price, "{}", name);
    prop_assert_eq!(&propose(planner, job).unwrap(), &proposal, "{} is not the same again", name);
    Ok(())
}

/// What holds for the comparison of them all.
fn check_auto(job: &Job) -> Result<(), TestCaseError> {
    let default = job.price(&job.default_layouts()).unwrap();
    let comparison = match auto(job) {
        Ok(comparison) => comparison,
        Err(PlanError::NoFit { .. }) => {
            prop_assert!(default.excess_bytes > 0);
            return Ok(());
        }
        Err(error) => return Err(TestCaseError::fail(format!("auto: {error}"))),
    };
    let names: Vec<&str> = comparison.contenders.iter().map(|contender| contender.planner).collect();
    prop_assert_eq!(names, PLANNERS.iter().map(|planner| planner.name()).collect::<Vec<_>>());
    let chosen = comparison.chosen();
    prop_assert_eq!(chosen.price.excess_bytes, 0);
    prop_assert!(default.excess_bytes > 0 || chosen.price.predicted_s <= default.predicted_s);
    if let Some(rehearsal) = comparison.rehearsal {
        prop_assert_eq!(Some(rehearsal.planned_s), chosen.simulated_s);
        // Layouts that simulate alike are told apart by their regions.
        prop_assert!(default.excess_bytes > 0 || rehearsal.planned_s <= rehearsal.default_s * 1.001);
    } else {
        prop_assert!(job.files.iter().all(|file| file.requests.iter().all(|request| request.size == 0)));
    }
    for offer in comparison.contenders.iter().filter_map(|contender| contender.offer.as_ref().ok()) {
        let (predicted, simulated) = comparison.loss(offer);
        prop_assert!(predicted.is_finite() && simulated.is_none_or(f64::is_finite));
    }
    for why in &comparison.why {
        prop_assert!(why.before.startup_s <= why.before.busy_s * (1.0 + 1e-9) && why.phase < why.phases, "{why:?}");
        prop_assert!(why.text().contains("busy for") && !why.text().contains("NaN"), "{}", why.text());
    }
    prop_assert_eq!(&auto(job).unwrap(), &comparison);
    Ok(())
}

/// What holds for every planner on these files, and for the comparison.
fn check_all(files: &[FileTrace], cluster: &Cluster, options: &PlanOptions) -> Result<(), TestCaseError> {
    match Job::new(files, cluster, options) {
        Ok(job) => {
            PLANNERS.iter().try_for_each(|&planner| check(planner, &job))?;
            check_auto(&job)?;
        }
        Err(PlanError::NoServer) => prop_assert!(cluster.tiers.iter().all(|tier| tier.servers.is_empty())),
        Err(PlanError::TooLarge { bytes, room }) => prop_assert!(bytes > room),
        Err(error) => prop_assert!(false, "{error}"),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn every_planner_has_valid_layouts_or_a_clear_error(
        traces in prop::collection::vec((requests(), prop::option::of(0_u64..1 << 30)), 0..4),
        cluster in clusters(),
        max_regions in prop_oneof![Just(1_usize), 1_usize..8],
        processes in prop_oneof![3 => Just(None), 1 => (1.0_f64..200.0).prop_map(Some)],
        link in any::<bool>(),
    ) {
        let files = traces.iter().enumerate().map(|(index, (requests, size_bytes))| {
            FileTrace { name: format!("f{index}"), requests, size_bytes: *size_bytes }
        });
        let files: Vec<FileTrace> = files.collect();
        let mut options = PlanOptions { max_regions, processes, ..quick() };
        if link {
            options.network = stripewise_simulate::Network::Link;
        }
        check_all(&files, &cluster, &options)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]
    /// Beyond 64 files those that are alike are planned as one, and beyond 64 servers neighbours are.
    #[test]
    fn so_it_is_with_many_files_or_servers(
        some in prop::collection::vec((usual_requests(), prop::option::of(0_u64..1 << 24)), 1..4),
        count in 65_usize..120,
        capacity in prop_oneof![1 => Just(None), 2 => (1_u64 << 20..1 << 29).prop_map(Some)],
        servers in prop_oneof![Just(2_u16), Just(9), Just(70)],
    ) {
        let many = (0..count).map(|index| (index, &some[index % some.len()]));
        let files: Vec<FileTrace> = many.map(|(index, (requests, size_bytes))| {
            FileTrace { name: format!("f{index}"), requests, size_bytes: *size_bytes }
        }).collect();
        let mut cluster = presets::set_p(servers - 1, 1, false);
        cluster.tiers.push(Tier {
            name: "third".into(),
            servers: vec![ServerId(servers)],
            profile: presets::set_b(1, 1).tiers[1].profile,
            capacity_bytes: None,
            in_turn: false, at_once: 1,
        });
        cluster.tiers.iter_mut().for_each(|tier| tier.capacity_bytes = capacity);
        check_all(&files, &cluster, &quick())?;
        check_all(&files[..1], &cluster, &quick())?;
    }
}

#[test]
fn names_are_words_each_once_and_every_planner_says_what_it_is() {
    for (index, planner) in PLANNERS.iter().enumerate() {
        let name = planner.name();
        assert!(
            !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
            "{name}"
        );
        assert_ne!(name, "auto");
        assert!(PLANNERS[..index].iter().all(|other| other.name() != name), "{name} stands twice");
        assert!(planner.source().len() > 5 && planner.summary().len() > 10, "{name}");
        assert_eq!(by_name(name).map(|found| found.summary()), Some(planner.summary()));
    }
    assert_eq!(PLANNERS[0].name(), "fixed");
    assert!(by_name("no-such-planner").is_none());
}

#[test]
fn the_documented_planner_is_the_real_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../../docs/planners.md")).unwrap();
    let shown: Vec<&str> = page.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(shown, [std::fs::read_to_string(root.join("src/planners/fixed.rs")).unwrap()]);
    let (_, rest) = page.split_once("```text\n").unwrap();
    let line = rest.split("```").next().unwrap();
    assert!(std::fs::read_to_string(root.join("src/planners/mod.rs")).unwrap().contains(line), "{line}");
}
