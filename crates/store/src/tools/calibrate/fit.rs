//! A server's profile from the times of single requests.

use stripewise_model::{Head, OpProfile};

/// Requests of one size and how long each took, in seconds.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// Bytes of each request.
    pub bytes: u64,
    /// Their times.
    pub times_s: Vec<f64>,
}

/// Startup and transfer time fitted to measured requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OpFit {
    /// The fit: `startup + bytes * transfer`.
    pub profile: OpProfile,
    /// Largest deviation of a size's mean time from the fit's, relative to the measured one (0.05 is 5 %).
    pub residual: f64,
    /// Share of the small requests that took so much longer or shorter than the others that the fit leaves them out.
    pub outliers: f64,
    /// Requests measured.
    pub requests: usize,
}

/// Requests up to this size tell the startup time: transfer is the lesser part of them.
const STARTUP_BYTES: u64 = 64 << 10;

/// A size's mean is not believed better than this (relative): no device is exactly linear.
const MODEL_ERROR: f64 = 0.01;

/// A server has a head if requests in order have less than this share of the startup of others: noise is no head.
const HEAD_SHARE: f64 = 0.6;

/// Share of the slowest requests in order that are left out: hiccups of the machine.
const HICCUPS: f64 = 0.03;

/// Most bytes that a server is said to serve ahead.
const MOST_AHEAD_BYTES: u64 = 4 << 20;

/// Requests of one size that follow each other, and how long each took, in seconds.
pub(super) struct InOrder {
    /// Bytes of each request.
    pub bytes: u64,
    /// Of one stream.
    pub alone_s: Vec<f64>,
    /// Of two streams in turn, far from each other.
    pub in_turn_s: Vec<f64>,
}

/// Mean startup time in seconds of requests of `bytes` that took `times_s`; `None` without requests. A mean and no median:
/// of servers that read ahead each few requests wait for one of their reads.
fn mean_startup_s(times_s: &[f64], bytes: u64, profile: &OpProfile) -> Option<f64> {
    let mut sorted = times_s.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.truncate(sorted.len() - (HICCUPS * sorted.len() as f64).ceil() as usize);
    let mean_s = sorted.iter().sum::<f64>() / sorted.len() as f64;
    (!sorted.is_empty()).then(|| (mean_s - bytes as f64 * profile.transfer_s_per_byte).max(0.0))
}

/// The head of a server with the `profile` of requests anywhere; `None` where requests in order start as late as others.
/// Where two streams in turn start sooner than others, one move serves several requests of a stream.
pub(super) fn head(in_order: &InOrder, profile: &OpProfile) -> Option<Head> {
    let others_s = (profile.startup_min_s + profile.startup_max_s) / 2.0;
    let sequential_startup_s = mean_startup_s(&in_order.alone_s, in_order.bytes, profile)?;
    if sequential_startup_s >= HEAD_SHARE * others_s {
        return None;
    }
    let in_turn_s = mean_startup_s(&in_order.in_turn_s, in_order.bytes, profile).unwrap_or(others_s);
    let moves = ((in_turn_s - sequential_startup_s) / (others_s - sequential_startup_s)).max(0.0);
    let ahead_bytes = if moves < HEAD_SHARE { (in_order.bytes as f64 / moves) as u64 } else { 0 };
    Some(Head { sequential_startup_s, ahead_bytes: ahead_bytes.min(MOST_AHEAD_BYTES) })
}

/// The value that the share `q` of `sorted` does not exceed, interpolated.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = q * (sorted.len() - 1) as f64;
    let (low, part) = (at.floor() as usize, at.fract());
    let high = (low + 1).min(sorted.len() - 1);
    sorted[low] + (sorted[high] - sorted[low]) * part
}

/// The values of `sorted` within Tukey's fences (1.5 quartile distances from the quartiles).
fn within_fences(sorted: &[f64]) -> &[f64] {
    let (q1, q3) = (quantile(sorted, 0.25), quantile(sorted, 0.75));
    let fence = 1.5 * (q3 - q1);
    let from = sorted.partition_point(|t| *t < q1 - fence);
    let to = sorted.partition_point(|t| *t <= q3 + fence);
    &sorted[from..to]
}

/// Mean and variance of the mean.
fn mean_and_variance(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    (mean, variance / count)
}

/// Fits startup and transfer time to samples of at least two sizes; `None` when there are fewer.
///
/// The transfer time is the slope of a weighted least-squares line through the trimmed means of the sizes. The startup's
/// least and greatest value are the 1st and 99th percentile of what the small requests (up to 64 KiB) took beyond it,
/// within Tukey's fences as well: a hiccup of the machine is not a property of the server.
pub fn fit(samples: &[Sample]) -> Option<OpFit> {
    let mut sums = [0.0; 5];
    let mut means = Vec::new();
    for sample in samples.iter().filter(|sample| !sample.times_s.is_empty()) {
        let mut sorted = sample.times_s.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let (mean, variance) = mean_and_variance(within_fences(&sorted));
        means.push((sample.bytes as f64, mean));
        let weight = 1.0 / (variance + (MODEL_ERROR * mean).powi(2)).max(f64::MIN_POSITIVE);
        let (x, y) = (sample.bytes as f64, mean);
        for (sum, term) in sums.iter_mut().zip([1.0, x, y, x * x, x * y]) {
            *sum += weight * term;
        }
    }
    if means.len() < 2 {
        return None;
    }
    let [w, x, y, xx, xy] = sums;
    // Memory can be so fast that noise makes the slope negative: then the transfer is free as far as can be seen.
    let transfer = ((w * xy - x * y) / (w * xx - x * x)).max(0.0);
    let smallest = samples.iter().filter(|s| !s.times_s.is_empty()).map(|s| s.bytes).min()?;
    let mut startups: Vec<f64> = samples
        .iter()
        .filter(|sample| sample.bytes <= STARTUP_BYTES.max(smallest))
        .flat_map(|sample| sample.times_s.iter().map(|t| (t - sample.bytes as f64 * transfer).max(0.0)))
        .collect();
    startups.sort_unstable_by(f64::total_cmp);
    let usual = within_fences(&startups);
    let outliers = 1.0 - usual.len() as f64 / startups.len() as f64;
    let profile = OpProfile {
        startup_min_s: quantile(usual, 0.01),
        startup_max_s: quantile(usual, 0.99),
        transfer_s_per_byte: transfer,
        head: None,
    };
    let startup = (profile.startup_min_s + profile.startup_max_s) / 2.0;
    let residual = means.iter().map(|(x, mean)| (startup + x * transfer - mean).abs() / mean).fold(0.0, f64::max);
    Some(OpFit { profile, residual, outliers, requests: samples.iter().map(|sample| sample.times_s.len()).sum() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [u64; 6] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

    /// Requests with startups evenly over [min, max], in an order that has nothing to do with the size.
    fn synthetic(count: usize, min: f64, max: f64, bandwidth: f64) -> Vec<Sample> {
        let sample = |(s, bytes): (usize, u64)| {
            let startup = |i: usize| min + (max - min) * (((i * 37 + s * 11) % count) as f64 + 0.5) / count as f64;
            Sample { bytes, times_s: (0..count).map(|i| startup(i) + bytes as f64 / bandwidth).collect() }
        };
        SIZES.into_iter().enumerate().map(sample).collect()
    }

    fn near(value: f64, expected: f64, tolerance: f64) -> bool {
        (value / expected - 1.0).abs() < tolerance
    }

    #[test]
    fn a_hard_disk_is_found() {
        let found = fit(&synthetic(101, 4e-3, 12e-3, 80e6)).unwrap();
        assert!(near(found.profile.startup_min_s, 4e-3, 0.03), "{found:?}");
        assert!(near(found.profile.startup_max_s, 12e-3, 0.03), "{found:?}");
        assert!(near(found.profile.transfer_s_per_byte, 1.0 / 80e6, 0.01), "{found:?}");
        assert!(found.residual < 0.01);
        assert_eq!(found.requests, 606);
    }

    #[test]
    fn hiccups_of_the_machine_do_not_move_it() {
        let mut samples = synthetic(202, 80e-6, 120e-6, 400e6);
        for sample in &mut samples {
            sample.times_s[7..17].fill(0.5);
        }
        let found = fit(&samples).unwrap();
        assert!(near(found.outliers, 10.0 / 202.0, 1e-9), "{found:?}");
        assert!(near(found.profile.startup_min_s, 80e-6, 0.03), "{found:?}");
        assert!(near(found.profile.startup_max_s, 120e-6, 0.03), "{found:?}");
        assert!(near(found.profile.transfer_s_per_byte, 1.0 / 400e6, 0.01), "{found:?}");
    }

    #[test]
    fn a_head_is_found_and_what_it_serves_ahead_and_noise_is_none() {
        let disk = fit(&synthetic(101, 4e-3, 12e-3, 80e6)).unwrap().profile;
        let times_s = |startup_s: &dyn Fn(u32) -> f64| -> Vec<f64> {
            (0..64).map(|i| startup_s(i) * (0.9 + 0.1 * f64::from(i % 3)) + 65536.0 / 80e6).chain([0.9]).collect()
        };
        let found = |alone_s: f64, in_turn: &dyn Fn(u32) -> f64| {
            let in_order = InOrder { bytes: 65536, alone_s: times_s(&|_| alone_s), in_turn_s: times_s(in_turn) };
            head(&in_order, &disk)
        };
        let moved = found(2e-4, &|_| 8e-3).unwrap();
        assert!(near(moved.sequential_startup_s, 2e-4, 0.1) && moved.ahead_bytes == 0, "{moved:?}");
        let ahead = found(2e-4, &|i| if i.is_multiple_of(4) { 8e-3 } else { 2e-4 }).unwrap();
        assert!(near(ahead.ahead_bytes as f64, 4.0 * 65536.0, 0.25), "{ahead:?}");
        assert_eq!(found(2e-4, &|_| 2e-4).unwrap().ahead_bytes, MOST_AHEAD_BYTES);
        assert_eq!(found(7e-3, &|_| 2e-4), None);
        assert_eq!(head(&InOrder { bytes: 1, alone_s: Vec::new(), in_turn_s: Vec::new() }, &disk), None);
    }

    #[test]
    fn what_is_not_linear_shows_in_the_residual() {
        let mut samples = synthetic(50, 1e-3, 2e-3, 100e6);
        samples[3].times_s.iter_mut().for_each(|t| *t *= 2.0);
        assert!(fit(&samples).unwrap().residual > 0.3);
    }

    #[test]
    fn one_size_says_nothing_of_the_transfer() {
        assert_eq!(fit(&synthetic(50, 1e-3, 2e-3, 100e6)[..1]), None);
        assert_eq!(fit(&[]), None);
    }

    #[test]
    fn equal_times_are_a_transfer_of_nothing() {
        let samples = SIZES.map(|bytes| Sample { bytes, times_s: vec![1e-5; 20] });
        let found = fit(&samples).unwrap();
        assert!(found.profile.transfer_s_per_byte.abs() < 1e-18, "{found:?}");
        assert!(near(found.profile.startup_min_s, 1e-5, 1e-6));
    }
}
