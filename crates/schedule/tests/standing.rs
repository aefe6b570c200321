//! Eligibility: the paper's conditions, and that a program's standing does not swing with what it causes.

use proptest::prelude::*;
use stripewise_schedule::{Eligibility, SeekTime, ServerUseBy, SharedServer, Standing, StandingTracker, WindowReport};

const MS: f64 = 1e6;

fn figures(mix_gap_bytes: f64, own_gap_bytes: f64, reuse_ns: f64) -> Eligibility {
    let servers: Vec<_> = (0..4).map(|_| SharedServer { gap_bytes: mix_gap_bytes, seek_ns: 8.0 * MS }).collect();
    let by = |server| ServerUseBy { server, gap_bytes: own_gap_bytes as f32, reuse_ns: reuse_ns as f32 };
    Eligibility::of(&servers, &(0..4).map(by).collect::<Vec<_>>())
}

fn report(figures: Eligibility, was_shared: bool) -> WindowReport {
    WindowReport { figures, was_shared, was_active: true, gain: None, quarters: 4 }
}

/// A program that is far from the mix and soon back.
fn good() -> Eligibility {
    figures(1e9, 0.0, 2.0 * MS)
}

fn dedicated() -> StandingTracker {
    let mut tracker = StandingTracker::default();
    for _ in 0..3 {
        tracker.step(&report(good(), true));
    }
    assert_eq!(tracker.standing(), Standing::Probe);
    tracker.step(&report(good(), false));
    assert_eq!(tracker.step(&report(good(), false)), Standing::Dedicated);
    tracker
}

#[test]
fn turns_that_do_not_pay_end_and_are_not_tried_again_for_long() {
    let gained = |gain| WindowReport { gain: Some(gain), ..report(good(), false) };
    let mut tracker = StandingTracker::default();
    for _ in 0..3 {
        tracker.step(&report(good(), true));
    }
    assert_eq!(tracker.step(&gained(0.93)), Standing::Probe);
    assert_eq!(tracker.step(&gained(0.93)), Standing::Cooldown);
    let windows = (1..100).find(|_| tracker.step(&report(good(), true)) == Standing::Shared);
    assert_eq!(windows, Some(32));
    // A clear loss is one after the first window, and counts whatever the reuse distance is. The time is the same in quarters.
    for _ in 0..3 {
        tracker.step(&report(good(), true));
    }
    let late = WindowReport { gain: Some(0.6), ..report(figures(1e9, 0.0, 20.0 * MS), false) };
    assert_eq!(tracker.step(&late), Standing::Cooldown);
    let quarter = WindowReport { quarters: 1, ..report(good(), true) };
    assert_eq!((1..1000).find(|_| tracker.step(&quarter) == Standing::Shared), Some(4 * 64));
    // One that paid once stays until it costs in two windows.
    let mut tracker = dedicated();
    for gain in [1.3, 0.9, 1.0, 0.98, 0.96] {
        assert_eq!(tracker.step(&gained(gain)), Standing::Dedicated, "{gain}");
    }
    assert_eq!(tracker.step(&gained(0.9)), Standing::Cooldown);
}

#[test]
fn the_three_conditions() {
    assert!(good().may_gain());
    // Condition 2: 1.5 times.
    assert!(figures(1500.0, 1000.0, 1.0).may_gain());
    assert!(!figures(1499.0, 1000.0, 1.0).may_gain());
    assert!(!figures(0.0, 0.0, 1.0).may_gain(), "without gaps there is nothing to save");
    // Condition 1: one server unlike the others.
    let mut servers = vec![SharedServer { gap_bytes: 1000.0, seek_ns: MS }; 4];
    let mut uses: Vec<_> = (0..4).map(|server| ServerUseBy { server, gap_bytes: 10.0, reuse_ns: 5.0 }).collect();
    assert!(Eligibility::of(&servers, &uses).may_gain());
    servers[3].gap_bytes = 2000.0;
    assert!(!Eligibility::of(&servers, &uses).may_gain());
    servers[3].gap_bytes = 1000.0;
    uses[0].gap_bytes = 100.0;
    assert!(!Eligibility::of(&servers, &uses).may_gain());
    // What is next to nothing beside the mix may differ.
    uses.iter_mut().for_each(|by| by.gap_bytes = 2.0);
    uses[0].gap_bytes = 20.0;
    assert!(Eligibility::of(&servers, &uses).may_gain());
    // A server that does not seek, or that the list does not have, does not count.
    servers[0].seek_ns = 0.0;
    uses.push(ServerUseBy { server: 99, gap_bytes: 1e9, reuse_ns: 1.0 });
    let figures = Eligibility::of(&servers, &uses);
    assert!(figures.may_gain() && figures.servers == 3);
    assert_eq!(figures.reuse_ns, Some(5.0));
    servers.iter_mut().for_each(|server| server.seek_ns = 0.0);
    assert!(!Eligibility::of(&servers, &uses).may_gain(), "nothing seeks");
}

#[test]
fn a_program_that_is_seldom_back_cools_down_longer_each_time() {
    let late = || figures(1e9, 0.0, 9.0 * MS);
    let mut tracker = StandingTracker::default();
    let mut cooldowns = Vec::new();
    for _ in 0..3 {
        while tracker.standing() != Standing::Probe {
            tracker.step(&report(late(), true));
        }
        tracker.step(&report(late(), false));
        assert_eq!(tracker.step(&report(late(), false)), Standing::Cooldown);
        let mut windows = 0;
        while tracker.standing() == Standing::Cooldown {
            tracker.step(&report(late(), true));
            windows += 1;
        }
        cooldowns.push(windows);
    }
    assert_eq!(cooldowns, [2, 4, 8]);
}

#[test]
fn dedicated_programs_are_judged_by_shared_windows() {
    let mut tracker = dedicated();
    // In its own slices the mix is the program itself: that says nothing.
    for _ in 0..20 {
        assert_eq!(tracker.step(&report(figures(0.0, 0.0, 2.0 * MS), false)), Standing::Dedicated);
    }
    assert_eq!(tracker.step(&report(figures(1210.0, 1000.0, 9.0 * MS), true)), Standing::Dedicated);
    assert_eq!(tracker.step(&report(figures(1190.0, 1000.0, 2.0 * MS), true)), Standing::Shared);
    let mut tracker = dedicated();
    assert_eq!(tracker.step(&report(figures(1e9, 0.0, 11.0 * MS), false)), Standing::Dedicated, "once is chance");
    assert_eq!(tracker.step(&report(figures(1e9, 0.0, 11.0 * MS), false)), Standing::Cooldown);
}

#[test]
fn a_program_without_requests_keeps_its_standing() {
    let mut tracker = dedicated();
    let silent = WindowReport { was_active: false, ..report(figures(0.0, 0.0, 1e12), true) };
    for _ in 0..100 {
        assert_eq!(tracker.step(&silent), Standing::Dedicated);
    }
}

proptest! {
    /// Figures within 20 % of a bound do not make a program change its standing again and again.
    #[test]
    fn standings_do_not_oscillate(noise in prop::collection::vec((0.85..1.2_f64, 0.85..1.2_f64), 400)) {
        let mut tracker = StandingTracker::default();
        let mut changes = 0;
        for (window, (gap, reuse)) in noise.iter().enumerate() {
            let before = tracker.standing();
            let was_shared = !before.is_dedicated() || window % 32 == 0;
            // At the bound of condition 2, and of condition 3.
            let now = tracker.step(&report(figures(1550.0 * gap, 1000.0, 8.0 * MS * reuse), was_shared));
            changes += u32::from(now.is_dedicated() != before.is_dedicated());
        }
        // Cooldowns double: fewer than one change in ten windows, whatever the noise.
        prop_assert!(changes <= 40, "{} changes", changes);
    }

    #[test]
    fn a_seek_is_monotone_in_its_gap(
        times in (0.0..1e7_f64, 0.0..1e7_f64, 0.0..1e7_f64), gaps in (0.0..1e13_f64, 0.0..1e13_f64)
    ) {
        let seek = SeekTime::new(times.0, times.1, times.2, 1e12);
        let (near, far) = (gaps.0.min(gaps.1), gaps.0.max(gaps.1));
        prop_assert!(seek.of(0.0) <= seek.of(near) && seek.of(near) <= seek.of(far));
        // With measured times, in whatever order and of whatever value, it never falls either.
        let points = [(1e6, times.2), (2e6, times.1), (2e6, times.0), (f64::NAN, 1.0), (1e9, f64::NAN), (4e11, times.1)];
        let measured = seek.measured(points);
        prop_assert!(measured.of(near) <= measured.of(far) && measured.of(0.0) <= measured.of(near));
        prop_assert!(SeekTime::NONE.of(far) <= 0.0);
        prop_assert!(SeekTime::new(f64::NAN, f64::INFINITY, -1.0, 0.0).of(far).is_finite());
    }
}
