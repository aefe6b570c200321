//! Prediction of load and the threshold that follows it, against the equations written out.

use proptest::prelude::*;
use stripewise_optimisation::burst::MOST_RATIO;
use stripewise_optimisation::{BurstParameters, ThresholdRules, bls_esm, burst_ratio, esm, file_threshold};

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The recursion is the weighted sum of all that was seen.
    #[test]
    fn smoothing_weighs_what_is_older_less(lambda in 0.01..1.0_f64, seen in prop::collection::vec(0.0..1e9_f64, 1..40)) {
        let first = seen[0];
        let found = seen[1..].iter().fold(first, |before, &seen| esm(lambda, before, seen));
        let ages = seen[1..].iter().rev().enumerate();
        let sum: f64 = ages.map(|(age, seen)| lambda * (1.0 - lambda).powi(age as i32) * seen).sum();
        prop_assert!(near(found, sum + (1.0 - lambda).powi(seen.len() as i32 - 1) * first));
    }

    /// Equation (5) is that of smoothing, and (R - 1) V more of it outside the band.
    #[test]
    fn a_burst_adds_what_waited(before in 0.0..1e9_f64, seen in 0.0..1e9_f64, served in 0_u64..1000, waiting in 0_u64..9000) {
        let parameters = BurstParameters::default();
        let ratio = burst_ratio(served + waiting, served);
        prop_assert!((1.0..=MOST_RATIO).contains(&ratio));
        let (found, smooth) = (bls_esm(&parameters, before, seen, ratio), esm(parameters.lambda, before, seen));
        let wanted = if ratio < parameters.nu { smooth } else { smooth + (ratio - 1.0) * seen };
        prop_assert!(near(found, wanted), "{found} is not {wanted}");
        if waiting == 0 {
            prop_assert_eq!(found, smooth);
        }
    }

    /// Whatever a ratio is, the prediction is a load.
    #[test]
    fn a_prediction_is_never_below_nothing(before in 0.0..1e9_f64, seen in 0.0..1e9_f64, ratio in -1e9..1e9_f64) {
        let found = bls_esm(&BurstParameters::default(), before, seen, ratio);
        prop_assert!(found.is_finite() && found >= 0.0);
    }

    /// Equation (1), case by case; it stays in its bounds, also where what was kept of it is none.
    #[test]
    fn a_threshold_goes_by_space_first_and_then_by_load(share in -0.5..1.5_f64, unused in 0.0..1.0_f64, load in 0.0..3.0_f64) {
        let rules = ThresholdRules::default();
        let found = rules.after(share, unused, load);
        prop_assert!(rules.is_share(found));
        let from = if share < rules.least || share > 1.0 { 1.0 } else { share };
        let factor = match (unused < 0.05, load) {
            (true, _) => 0.5,
            (false, load) if load < 0.5 => 1.25,
            (false, load) if load >= 0.8 => 0.5,
            _ => 1.0,
        };
        prop_assert!(near(found, (from * factor).clamp(1.0 / 256.0, 1.0)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Equation (2): between the global threshold and the maximum, and more with each move.
    #[test]
    fn a_file_that_moves_has_a_greater_threshold(most in 4096_u64..1 << 30, part in 0.0..1.0_f64, moves in 0.0..50.0_f64) {
        let global = (most as f64 * part) as u64;
        let found = file_threshold(most, global, moves);
        prop_assert!(global <= found && found <= most);
        prop_assert!(found.abs_diff(most.min((global as f64 * (1.0 + moves / 4.0)) as u64)) <= 1);
        prop_assert!(file_threshold(most, global, moves + 1.0) >= found);
        prop_assert_eq!(file_threshold(most, global, f64::NAN), global);
    }
}

#[test]
fn a_threshold_comes_back_from_its_floor() {
    let rules = ThresholdRules::default();
    let after =
        |share: f64, load: f64, periods: usize| (0..periods).fold(share, |share, _| rules.after(share, 1.0, load));
    let floor = after(1.0, 2.0, 100);
    assert_eq!(floor, rules.least);
    assert_eq!(after(floor, 0.6, 100), floor, "the dead band");
    assert_eq!(after(floor, 0.0, 25), 1.0);
    for none in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
        assert_eq!(rules.after(none, 1.0, 0.6), 1.0, "{none} is no threshold");
    }
}

/// At the end of a burst that a server could not keep up with, and at once when it begins.
#[test]
fn a_burst_is_seen_in_the_period_in_which_it_begins() {
    let parameters = BurstParameters::default();
    assert_eq!([burst_ratio(0, 0), burst_ratio(7, 0), burst_ratio(300, 100)], [1.0, MOST_RATIO, 3.0]);
    // 40 a period for long; then 300 want to be served, and 100 are.
    let (smooth, burst) = (esm(parameters.lambda, 40.0, 100.0), bls_esm(&parameters, 40.0, 100.0, 3.0));
    assert!(near(smooth, 82.0) && near(burst, 282.0));
}
