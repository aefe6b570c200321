//! How sure a predicted gain is: [`Gain`], with the reasons for its width.
//!
//! A gain is a ratio, so its errors multiply: the interval is symmetric in its logarithm. Its half widths, each from
//! one cause, are independent and add by their squares. What is known of each cause: the spread over seeds is measured
//! by the simulator, with the time between requests (`gaps`); the model's own error is that of docs/accuracy.md with
//! what a program adds that no server's time has in it, which weighs more the larger the gain is; what a log lacks has
//! a half width by judgement, below.

use crate::fit::HeldOut;
use stripewise_import::Lacks;
use stripewise_simulate::Estimate;

/// How much faster, with the interval that holds it in 95 of 100 cases.
#[derive(Debug, Clone, PartialEq)]
pub struct Gain {
    /// Throughput after over throughput before; 1 is no change.
    pub ratio: f64,
    /// Least.
    pub low: f64,
    /// Greatest.
    pub high: f64,
}

/// One cause of width.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    /// Half width of the logarithm of the gain when nothing is gained.
    pub base: f64,
    /// What the half width grows by for each unit of the gain's own logarithm.
    pub of_gain: f64,
    /// Share of the present time that no layout changes, and that is not the same in every run.
    pub own_share: f64,
    /// In words.
    pub words: String,
}

impl Cause {
    fn new(base: f64, of_gain: f64, words: impl Into<String>) -> Self {
        Self { base, of_gain, own_share: 0.0, words: words.into() }
    }

    /// The program spends this share of the present time between its requests.
    pub(crate) fn own_time(share: f64, words: String) -> Self {
        Self { own_share: share, ..Self::new(0.0, 0.0, words) }
    }

    /// Ranks that write collectively are others than the log shows.
    pub(crate) fn other_writers() -> Self {
        let words = "other ranks write what is written collectively than the log shows, each as fast as those";
        Self::new(0.05, 0.15, words)
    }

    fn half_width(&self, log: f64) -> f64 {
        // What stays as it is has a larger share of a shorter time.
        self.base + self.of_gain * log.abs() + OWN_TIME_VARIES * (self.own_share * log.exp()).min(1.0)
    }
}

/// How much the program's own time differs from run to run, by judgement: its processors have more to do than this.
const OWN_TIME_VARIES: f64 = 0.25;

/// Beside these, of files of which only counters are known.
pub(crate) fn counters_only() -> Cause {
    Cause::new(0.15, 0.30, "the log: of some files it has only counters, no single requests")
}

/// Requests that take no time tell nothing of how many are in flight at once: from this share of them on it matters.
const INSTANT: f64 = 0.1;

/// Of a log whose times are too coarse for the share `instant` of its requests.
pub(crate) fn coarse_times(instant: f64) -> Option<Cause> {
    let words =
        || format!("the log: times are in whole microseconds, {:.0} % of the requests took none", 100.0 * instant);
    (instant >= INSTANT).then(|| Cause::new(0.02, 0.02, words()))
}

/// Profiles that were fitted to the log: they are as good as what they predict of it, all of it and a half that was kept
/// back.
pub(crate) fn fitted(factor: f64, held_out: Option<&HeldOut>) -> Cause {
    let base = factor.ln().abs().max(held_out.map_or(0.0, |of| of.ratio.ln().abs()));
    let told = held_out.map_or(String::new(), |of| {
        format!(", and to one half of the requests it predicts {:.2} times the time of the other", of.ratio)
    });
    Cause::new(
        base,
        0.10,
        format!("profiles are fitted to the log's own times: {factor:.2} times what it measured{told}"),
    )
}

/// The causes that hold for all of a log.
pub(crate) fn causes(lacks: Lacks, preset: Option<&str>, found: bool, sampled: Option<f64>) -> Vec<Cause> {
    let mut causes = vec![Cause::new(0.05, 0.10, "the model's own error")];
    // By judgement: what the planner would get wrong without it. Ranks and counters decide which process waits for
    // which.
    let of_lacks = [
        (Lacks::RANKS, 0.10, 0.10),
        (Lacks::OFFSETS, 0.20, 0.20),
        (Lacks::TIMES, 0.10, 0.10),
        (Lacks::DURATIONS, 0.02, 0.0),
        (Lacks::CUT, 0.10, 0.10),
        (Lacks::DAMAGED, 0.10, 0.10),
        (Lacks::OFFSETS_RECORDED, 0.02, 0.0),
        (Lacks::LAYOUTS, 0.05, 0.05),
    ];
    for (lack, base, of_gain) in of_lacks {
        if lacks.contains(lack) {
            causes.extend(lack.words().map(|words| Cause::new(base, of_gain, format!("the log: {words}"))));
        }
    }
    if let Some(preset) = preset {
        let words = format!("profiles are those of the preset {preset}, not measured on these servers");
        causes.push(Cause::new(0.05, 0.15, words));
    }
    if found {
        let words = "the servers are those that the log shows: there may be more, and of other kinds";
        causes.push(Cause::new(0.05, 0.10, words));
    }
    if let Some(bound) = sampled {
        let words = format!("a sample of the requests was priced: within {:.1} %", 100.0 * bound);
        causes.push(Cause::new(bound.ln_1p(), 0.0, words));
    }
    causes
}

impl Gain {
    /// Nothing changes.
    pub const NONE: Gain = Gain { ratio: 1.0, low: 1.0, high: 1.0 };

    /// Of a run, when of this share of its time all is divided by the gain.
    pub(crate) fn of_share(&self, share: f64) -> Self {
        // Amdahl's law.
        let whole = |gain: f64| 1.0 / (1.0 - share + share / gain);
        Self { ratio: whole(self.ratio), low: whole(self.low), high: whole(self.high) }
    }

    /// From the gains that single seeds gave. What one run will show is predicted, not the mean of many.
    pub(crate) fn of(by_seed: &[f64], causes: &[Cause]) -> Self {
        let logs: Vec<f64> =
            by_seed.iter().filter(|gain| gain.is_finite() && **gain > 0.0).map(|gain| gain.ln()).collect();
        if logs.is_empty() {
            return Self::NONE;
        }
        let spread = Estimate::of(&logs);
        // Of the mean of n draws; a single one varies by the square root of n + 1 times that.
        let of_one = spread.half_width.unwrap_or(0.0) * ((logs.len() + 1) as f64).sqrt();
        let squares = causes.iter().map(|cause| cause.half_width(spread.mean).powi(2)).sum::<f64>();
        let half = (of_one * of_one + squares).sqrt();
        Self { ratio: spread.mean.exp(), low: (spread.mean - half).exp(), high: (spread.mean + half).exp() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_widens() {
        let seeds = [2.0, 2.1, 1.9];
        let all = Gain::of(&seeds, &causes(Lacks::NOTHING, None, false, None));
        assert!(all.low < 2.0 && 2.0 < all.high && (all.ratio - 2.0).abs() < 0.01);
        let mut last = all.clone();
        for (lacks, preset, found) in [
            (Lacks::CUT, None, false),
            (Lacks::CUT | Lacks::TIMES, None, false),
            (Lacks::CUT | Lacks::TIMES, Some("hdd-7200"), true),
        ] {
            let wider = Gain::of(&seeds, &causes(lacks, preset, found, None));
            assert!(wider.low < last.low && wider.high > last.high);
            last = wider;
        }
        assert_eq!(causes(Lacks::CUT | Lacks::RANKS, None, false, Some(0.02)).len(), 4);
        let coarse =
            Gain::of(&seeds, &[causes(Lacks::NOTHING, None, false, None), vec![coarse_times(0.5).unwrap()]].concat());
        assert!(coarse.low < all.low && coarse.high > all.high);
        assert_eq!(coarse_times(0.05), None, "most requests took some time");
    }

    #[test]
    fn a_run_gains_no_more_than_the_share_that_gains() {
        let gain = Gain { ratio: 4.0, low: 2.0, high: 8.0 };
        assert_eq!(gain.of_share(1.0), gain);
        assert_eq!(gain.of_share(0.0), Gain::NONE);
        let half = gain.of_share(0.5);
        assert!((half.ratio - 1.6).abs() < 1e-9 && half.low < half.ratio && half.high < 2.0);
    }

    proptest::proptest! {
        #[test]
        fn an_interval_holds_its_ratio_and_1_where_nothing_changes(
            seeds in proptest::collection::vec(0.01_f64..100.0, 1..9), bits in 0_u32..1 << 11) {
            let all = [Lacks::RANKS, Lacks::PIDS, Lacks::OFFSETS, Lacks::TIMES, Lacks::DURATIONS, Lacks::CUT,
                Lacks::COUNTERS_ONLY, Lacks::DAMAGED, Lacks::NAMES, Lacks::METADATA, Lacks::OFFSETS_RECORDED];
            let chosen = all.into_iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
            let lacks = chosen.fold(Lacks::NOTHING, |sum, (_, lack)| sum | lack);
            let causes = causes(lacks, None, bits & 1 == 1, None);
            let gain = Gain::of(&seeds, &causes);
            proptest::prop_assert!(0.0 < gain.low && gain.low <= gain.ratio && gain.ratio <= gain.high);
            let same = Gain::of(&vec![1.0; seeds.len()], &causes);
            proptest::prop_assert!(same.low < 1.0 && same.high > 1.0);
        }

        #[test]
        fn the_programs_own_time_widens_the_more_the_larger_its_share_is(gain in 0.5_f64..50.0, share in 0.01_f64..1.0) {
            let own = |share| Gain::of(&[gain; 7], &[Cause::own_time(share, String::new())]);
            let (some, less) = (own(share), own(share / 2.0));
            proptest::prop_assert!(some.low <= less.low && some.high >= less.high && less.low < less.high);
        }
    }
}
