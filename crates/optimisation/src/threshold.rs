//! The thresholds of small files: Wei et al., equations (1) and (2), as corrected.
//!
//! As printed it shrinks where space is plenty, and takes the greater of the threshold and its maximum, so that it never grows; and
//! its bound of high load is never used. Here little space and a high load shrink it, and a low load lets it grow to its maximum.
//! The threshold is a share of each directory's maximum: so one number holds for all directories, whatever their maxima.

/// The constants of equation (1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ThresholdRules {
    /// Below this share of unused space it shrinks (`Ca_t`).
    pub least_unused: f64,
    /// By which part it shrinks for space (`x`).
    pub shrink_for_space: f64,
    /// Below this share of the bandwidth it grows (`Ba_low`).
    pub low_load: f64,
    /// By which part it grows (`y`).
    pub growth: f64,
    /// From this share of the bandwidth on it shrinks (`Ba_high`).
    pub high_load: f64,
    /// By which part it shrinks for load (`z`).
    pub shrink_for_load: f64,
    /// It never gets below this share of the maximum, so that it can grow again (`g_min`).
    pub least: f64,
}

impl Default for ThresholdRules {
    fn default() -> Self {
        Self {
            least_unused: 0.05,
            shrink_for_space: 0.5,
            low_load: 0.5,
            growth: 0.25,
            high_load: 0.8,
            shrink_for_load: 0.5,
            least: 1.0 / 256.0,
        }
    }
}

impl ThresholdRules {
    /// The share after a period at whose end the share `unused` of the tier's space is unused, and for which the share `load` of its
    /// bandwidth is predicted. A `share` that is none counts as 1. O(1).
    pub fn after(&self, share: f64, unused: f64, load: f64) -> f64 {
        let share = if self.is_share(share) { share } else { 1.0 };
        let moved = if unused < self.least_unused {
            share * (1.0 - self.shrink_for_space)
        } else if load < self.low_load {
            share * (1.0 + self.growth)
        } else if load >= self.high_load {
            share * (1.0 - self.shrink_for_load)
        } else {
            share
        };
        moved.clamp(self.least, 1.0)
    }

    /// Whether these rules can have led to `share`.
    pub fn is_share(&self, share: f64) -> bool {
        (self.least..=1.0).contains(&share)
    }
}

/// How many moves of a file make its own threshold twice the global one (theta).
const THETA: f64 = 4.0;

/// Equation (2): the threshold of a file that was moved `moves` times, in bytes: more than the `global` one, so that a file that goes
/// to and fro stays on the metadata tier, and `most` at most. As printed it is never less than the maximum. O(1).
pub fn file_threshold(most: u64, global: u64, moves: f64) -> u64 {
    let moves = if moves.is_finite() { moves.max(0.0) } else { 0.0 };
    ((global as f64 * ((THETA + moves) / THETA)) as u64).min(most)
}
