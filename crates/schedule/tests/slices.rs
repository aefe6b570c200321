//! Slices fill the window, are inversely proportional to reuse distance, and leave no program without a turn.

use proptest::prelude::*;
use stripewise_schedule::{
    Candidate, MAX_SLICES, OTHERS, POLICY_NAMES, ProgramKey, SchedulePolicy, SlicePlan, Standing, Turn, TurnSlice,
    harmonic_shares, into_slices, policies, turn_of,
};

const WINDOW_NS: u64 = 500_000_000;

fn lengths(plan: &SlicePlan) -> Vec<u64> {
    let begins = std::iter::once(0).chain(plan.slices.iter().map(|slice| slice.end_ns));
    begins.zip(&plan.slices).map(|(begin, slice)| slice.end_ns - begin).collect()
}

fn candidate(number: usize, standing: Standing) -> Candidate {
    Candidate {
        program: ProgramKey(number as u64 + 1),
        standing,
        reuse_ns: Some(1e6),
        weight: 1.0,
        period_ns: None,
        burst_age_ns: 1_000_000,
        age_ns: 1_000_000_000,
        load: None,
        is_busy: true,
    }
}

#[test]
fn the_papers_slices() {
    // Distances 1 : 2 : 4 give 4/7, 2/7 and 1/7 of the window.
    let shares = harmonic_shares(&[Some(1e6), Some(2e6), Some(4e6)]);
    let named: Vec<_> =
        shares.iter().enumerate().map(|(number, share)| (ProgramKey(number as u64 + 1), *share)).collect();
    let plan = into_slices(&named, WINDOW_NS, 0);
    let milliseconds: Vec<u64> = lengths(&plan).iter().map(|ns| (ns + 500_000) / 1_000_000).collect();
    assert_eq!(milliseconds, [286, 143, 71]);
    assert_eq!(plan.share_ns(ProgramKey(2)), lengths(&plan)[1]);
}

#[test]
fn one_program_alone_is_not_held() {
    assert!(into_slices(&[(ProgramKey(1), 1.0)], WINDOW_NS, 0).is_open());
    for name in POLICY_NAMES {
        let mut policy = policies::named(name).unwrap();
        assert_eq!(policy.name(), name);
        let plan = policy.plan(&[candidate(0, Standing::Dedicated)], WINDOW_NS);
        assert!(plan.is_open(), "{name}: {plan:?}");
        assert!(policy.plan(&[], WINDOW_NS).is_open());
    }
    assert!(policies::named("fair").is_none());
}

#[test]
fn a_window_of_nothing_holds_no_program() {
    let two = [(ProgramKey(1), 1.0), (ProgramKey(2), 1.0)];
    assert!(into_slices(&two, 0, 0).is_open());
    let slices = [TurnSlice { program: ProgramKey(1), end_ns: 0 }];
    assert_eq!(turn_of(slices.iter().copied(), 0, 7, ProgramKey(2)), Turn::Now);
}

#[test]
fn reuse_distance_gives_the_others_a_slice_together() {
    let mut all =
        vec![candidate(0, Standing::Dedicated), candidate(1, Standing::Shared), candidate(2, Standing::Cooldown)];
    all[0].reuse_ns = Some(1e6);
    (all[1].reuse_ns, all[2].reuse_ns) = (Some(2e6), Some(2e6));
    let plan = policies::named("reuse-distance").unwrap().plan(&all, WINDOW_NS);
    // Two programs with 2 ms each are one object with 1 ms.
    assert_eq!(lengths(&plan), [WINDOW_NS / 2, WINDOW_NS / 2]);
    assert_eq!(plan.share_ns(OTHERS), WINDOW_NS / 2);
    all.truncate(1);
    assert!(policies::named("reuse-distance").unwrap().plan(&all, WINDOW_NS).is_open());
}

#[test]
fn weights_scale_slices() {
    let mut all = vec![candidate(0, Standing::Dedicated), candidate(1, Standing::Dedicated)];
    all[0].weight = 3.0;
    for name in ["even", "reuse-distance", "opportunity"] {
        let mut policy = if name == "opportunity" { opportunity() } else { policies::named(name).unwrap() };
        let plan = policy.plan(&all, WINDOW_NS);
        assert_eq!(lengths(&plan), [WINDOW_NS / 4 * 3, WINDOW_NS / 4], "{name}");
    }
}

/// `opportunity`, when it has seen shared windows.
fn opportunity() -> Box<dyn SchedulePolicy> {
    let mut policy = policies::named("opportunity").unwrap();
    let both = [candidate(0, Standing::Shared), candidate(1, Standing::Shared)];
    assert!((0..2).all(|_| policy.plan(&both, WINDOW_NS).is_open()));
    policy
}

#[test]
fn opportunity_gives_nothing_to_programs_without_requests() {
    let mut all = vec![candidate(0, Standing::Shared), candidate(1, Standing::Shared), candidate(2, Standing::Shared)];
    all[2].is_busy = false;
    let plan = opportunity().plan(&all, WINDOW_NS);
    assert_eq!(plan.share_ns(ProgramKey(3)), 0);
    assert!(plan.share_ns(ProgramKey(1)) > WINDOW_NS / 4 && plan.share_ns(OTHERS) > 0);
    // One that is back within a window has a slice, which it loses as long as it is away.
    all[2].period_ns = Some(WINDOW_NS as f64);
    let plan = opportunity().plan(&all, WINDOW_NS);
    assert!(plan.share_ns(ProgramKey(3)) > WINDOW_NS / 4 && plan.share_ns(OTHERS) == 0);
    all[1].is_busy = false;
    assert!(opportunity().plan(&all, WINDOW_NS).is_open());
}

#[test]
fn set_10_serves_one_of_a_decade_until_its_requests_end() {
    let mut policy = policies::named("set-10").unwrap();
    let mut all: Vec<_> = (0..3).map(|number| candidate(number, Standing::Shared)).collect();
    (all[0].period_ns, all[1].period_ns, all[2].period_ns) = (Some(1e9), Some(1.2e9), Some(1e10));
    let first = policy.plan(&all, WINDOW_NS);
    assert!(first.share_ns(ProgramKey(1)) > 9 * first.share_ns(ProgramKey(3)), "{first:?}");
    assert_eq!(first.share_ns(ProgramKey(2)), 0);
    assert!(first.share_ns(OTHERS) > 0, "the second of a set waits with a bound");
    all[0].is_busy = false;
    assert!(policy.plan(&all, WINDOW_NS).share_ns(ProgramKey(2)) > 0);
    all[0].is_busy = true;
    assert_eq!(policy.plan(&all, WINDOW_NS).share_ns(ProgramKey(1)), 0, "the served one is not interrupted");
}

proptest! {
    #[test]
    fn slices_fill_the_window_and_none_is_below_the_floor(
        shares in prop::collection::vec(prop_oneof![8 => 1e-12..1e12_f64, 1 => Just(0.0), 1 => Just(f64::NAN)], 2..200),
        window_ns in 1_000_000_u64..10_000_000_000,
    ) {
        let named: Vec<_> = shares.iter().enumerate().map(|(number, share)| (ProgramKey(number as u64 + 1), *share)).collect();
        let floor_ns = window_ns / 100;
        let plan = into_slices(&named, window_ns, floor_ns);
        prop_assert_eq!(plan.slices.len(), shares.len().min(MAX_SLICES));
        prop_assert_eq!(lengths(&plan).iter().sum::<u64>(), window_ns);
        let floor_ns = floor_ns.min(window_ns / shares.len() as u64);
        for length in lengths(&plan) {
            prop_assert!(length + 2 >= floor_ns, "{} below {}", length, floor_ns);
        }
        let gives_rest = plan.slices.last().unwrap().program == OTHERS;
        prop_assert_eq!(gives_rest, shares.len() > MAX_SLICES);
    }

    #[test]
    fn slices_are_inversely_proportional(reuse_ns in prop::collection::vec(1e5..1e9_f64, 2..20)) {
        let known: Vec<_> = reuse_ns.iter().map(|reuse| Some(*reuse)).collect();
        let shares = harmonic_shares(&known);
        let named: Vec<_> = shares.iter().enumerate().map(|(number, share)| (ProgramKey(number as u64 + 1), *share)).collect();
        let plan = into_slices(&named, WINDOW_NS, 0);
        let products: Vec<f64> = lengths(&plan).iter().zip(&reuse_ns).map(|(length, reuse)| *length as f64 * reuse).collect();
        let first = products[0];
        for (product, reuse) in products.iter().zip(&reuse_ns) {
            // A length is known to 1 ns at both ends.
            prop_assert!((product - first).abs() <= 2.0 * (reuse + reuse_ns[0]) + 1e-6 * first);
        }
    }

    #[test]
    fn no_program_waits_longer_than_a_window(
        slices in prop::collection::vec((0_u64..6, 0_u64..2_000_000_000), 0..80),
        window_ns in 0_u64..20_000_000_000,
        since_ns: u64,
        program in 0_u64..8,
    ) {
        // What a page says may be no plan at all.
        let slices: Vec<_> = slices.iter().map(|(program, end_ns)| TurnSlice { program: ProgramKey(*program), end_ns: *end_ns }).collect();
        if let Turn::In(wait_ns) = turn_of(slices.iter().copied(), window_ns, since_ns, ProgramKey(program)) {
            prop_assert!(wait_ns <= window_ns);
            let later = turn_of(slices.iter().copied(), window_ns, (since_ns % window_ns) + wait_ns, ProgramKey(program));
            prop_assert_eq!(later, Turn::Now);
        }
    }

    #[test]
    fn every_policy_serves_every_busy_program_within_two_windows(
        kinds in prop::collection::vec((0_usize..4, 1e3..1e9_f64, 1e6..1e12_f64, any::<bool>(), 0.1..10.0_f64), 0..100),
        name in prop::sample::select(POLICY_NAMES.to_vec()),
    ) {
        const STANDINGS: [Standing; 4] = [Standing::Shared, Standing::Probe, Standing::Dedicated, Standing::Cooldown];
        let all: Vec<_> = kinds.iter().enumerate().map(|(number, (standing, reuse, period, is_busy, weight))| Candidate {
            reuse_ns: Some(*reuse), period_ns: Some(*period), load: None, is_busy: *is_busy, weight: *weight,
            ..candidate(number, STANDINGS[*standing])
        }).collect();
        let mut policy = policies::named(name).unwrap();
        let plan = policy.plan(&all, WINDOW_NS);
        prop_assert!(plan.is_open() || lengths(&plan).iter().sum::<u64>() == WINDOW_NS);
        for one in all.iter().filter(|one| one.is_busy) {
            let turn = turn_of(plan.slices.iter().copied(), WINDOW_NS, 0, one.program);
            prop_assert!(matches!(turn, Turn::Now | Turn::In(0..=WINDOW_NS)));
        }
        // Where some are held, all that have no slice share one: none is served at all times.
        if !plan.is_open() {
            let without = all.iter().any(|one| one.is_busy && plan.share_ns(one.program) == 0);
            prop_assert!(!without || plan.share_ns(OTHERS) > 0);
        }
    }
}

#[test]
fn a_light_program_that_is_away_has_no_slice_held_for_it() {
    let mut policy = opportunity();
    let one = |key, is_busy, load| Candidate { is_busy, load: Some(load), ..candidate(key, Standing::Shared) };
    let mut plan = |away: f64| policy.plan(&[one(0, true, 1.5), one(1, true, 1.4), one(2, false, away)], WINDOW_NS);
    assert_eq!(plan(0.1).share_ns(OTHERS), 0);
    assert!(plan(0.1).share_ns(ProgramKey(1)) > WINDOW_NS / 3);
    assert!(plan(0.3).share_ns(OTHERS) > 0);
    // Nor has one whose burst has just begun: it is served in all slices.
    let mut light = one(2, true, 0.1);
    let mut share_ns =
        || policy.plan(&[one(0, true, 1.5), one(1, true, 1.4), light], WINDOW_NS).share_ns(ProgramKey(3));
    assert!(share_ns() > 0, "it never pauses");
    light.period_ns = Some(1e9);
    let mut after = |burst_age_ns| {
        let light = Candidate { burst_age_ns, ..light };
        let plan = policy.plan(&[one(0, true, 1.5), one(1, true, 1.4), light], WINDOW_NS);
        [ProgramKey(3), OTHERS].map(|program| plan.share_ns(program))
    };
    assert_eq!(after(WINDOW_NS - 1), [0, 0]);
    // A burst that goes on is no short one: served in all slices it would end the others' turns.
    assert_eq!(after(WINDOW_NS)[1], 0);
    assert!(after(WINDOW_NS)[0] > WINDOW_NS / 4);
}

#[test]
fn opportunity_ends_turns_that_move_less_and_tries_them_again() {
    let mut policy = policies::named("opportunity").unwrap();
    let both = [candidate(0, Standing::Shared), candidate(1, Standing::Shared)];
    let mut shared_of = |windows: usize, gain| {
        let mut is_shared = |_: &usize| {
            policy.note_gain(gain);
            policy.plan(&both, WINDOW_NS).is_open()
        };
        (0..windows).filter(&mut is_shared).count()
    };
    assert_eq!(shared_of(2, None), 2, "two short windows to compare with");
    assert_eq!(shared_of(20, None), 4);
    assert_eq!(shared_of(128, Some(0.9)), 128);
    assert_eq!(shared_of(4, Some(0.9)), 0, "a trial");
    assert_eq!(shared_of(128, Some(0.9)), 128);
    assert_eq!(shared_of(136, Some(2.0)), 4);
}

#[test]
fn programs_beyond_the_slices_keep_what_is_theirs() {
    let all: Vec<_> = (0..1000).map(|number| (ProgramKey(number + 1), 1.0)).collect();
    let plan = into_slices(&all, WINDOW_NS, WINDOW_NS / 50);
    let others = (1000 - MAX_SLICES as u64 + 1) * WINDOW_NS / 1000;
    assert!(plan.share_ns(OTHERS).abs_diff(others) < 1000, "{} of {WINDOW_NS}", plan.share_ns(OTHERS));
}
