//! What load the next period brings: exponential smoothing (ESM), and the same with bursts seen in what waits (BLS-ESM). Wei et al.,
//! equations (3) to (5), as corrected: the printed left side of (5) is E(t), and its ratio is that of the last period.
//!
//! The paper calls `S'` the blocked requests of a period and `S` the served ones. Here `S'` are those that wanted to be served in it:
//! the served ones and those that still waited at its end. So the ratio of a server that keeps up is 1, where both predictions are
//! the same.

/// Greatest ratio of requests that wanted to be served to those that were.
pub const MOST_RATIO: f64 = 8.0;

/// The parameters of a predictor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BurstParameters {
    /// Weight of the last period (lambda), above 0 and at most 1.
    pub lambda: f64,
    /// The ratio of a burst that ends is at most this (mu), below 1.
    pub mu: f64,
    /// The ratio of a burst is at least this (nu), above 1.
    pub nu: f64,
}

impl Default for BurstParameters {
    /// Chosen on the 40 random loads of `examples/burst_figures.rs`, which prints what other ones make of them.
    fn default() -> Self {
        Self { lambda: 0.7, mu: 0.8, nu: 1.25 }
    }
}

/// The ratio `S'/S` of requests that wanted to be served in a period to those that were: 1 where there were none, at most
/// [`MOST_RATIO`].
pub fn burst_ratio(wanted: u64, served: u64) -> f64 {
    match (wanted, served) {
        (0, 0) => 1.0,
        (_, 0) => MOST_RATIO,
        (wanted, served) => (wanted as f64 / served as f64).min(MOST_RATIO),
    }
}

/// Equation (3): the load of the next period, of which `before` was predicted for the last one and `seen` came. O(1).
pub fn esm(lambda: f64, before: f64, seen: f64) -> f64 {
    lambda * seen + (1.0 - lambda) * before
}

/// Equation (5): [`esm`], or what the `ratio` of the last period makes of it where that is not between mu and nu. Never below 0.
/// O(1).
pub fn bls_esm(parameters: &BurstParameters, before: f64, seen: f64, ratio: f64) -> f64 {
    let BurstParameters { lambda, mu, nu } = *parameters;
    if mu < ratio && ratio < nu {
        return esm(lambda, before, seen);
    }
    ((ratio.clamp(0.0, MOST_RATIO) - 1.0 + lambda) * seen + (1.0 - lambda) * before).max(0.0)
}
