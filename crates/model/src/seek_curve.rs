//! What it takes the head of a disk to reach a position.

use crate::profile::OpProfile;

/// Startup by distance on disk : `sequential_s` at distance 0, else
/// `settle_s + (full_stroke_s - settle_s) shape(distance / stroke_bytes)` and a turn drawn uniformly in
/// `[0, rotation_s]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeekCurve {
    /// Startup in seconds where the last sub-request ended.
    pub sequential_s: f64,
    /// Seconds of the shortest seek.
    pub settle_s: f64,
    /// Seconds of the longest.
    pub full_stroke_s: f64,
    /// Bytes that the longest passes: the size of the disk. Farther seeks take no longer.
    pub stroke_bytes: u64,
    /// What is between.
    pub shape: SeekShape,
    /// Seconds of a turn; 0 when `settle_s` has the mean of half a turn in it.
    pub rotation_s: f64,
}

/// How seeks grow with distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SeekShape {
    /// With its square root: a head that speeds up, then slows down.
    #[default]
    SquareRoot,
    /// In proportion.
    Linear,
}

impl SeekCurve {
    /// Seeks that stay within a profile's startups: half of the spread is the seek, the other half the rotation, so the
    /// shortest seek takes the least startup and a full stroke with a whole turn the greatest. Sequential sub-requests start at
    /// once, or after the profile's sequential startup. O(1).
    pub fn within(op: &OpProfile, stroke_bytes: u64) -> Self {
        let half_s = 0.5 * (op.startup_max_s - op.startup_min_s);
        Self {
            sequential_s: op.adjacent_startup_s(0.0),
            settle_s: op.startup_min_s,
            full_stroke_s: op.startup_min_s + half_s,
            stroke_bytes,
            shape: SeekShape::SquareRoot,
            rotation_s: half_s,
        }
    }

    /// Startup in seconds for `distance_bytes`, without the turn. O(1).
    #[inline]
    pub fn seek_s(&self, distance_bytes: u64) -> f64 {
        if distance_bytes == 0 {
            return self.sequential_s;
        }
        let share = (distance_bytes as f64 / self.stroke_bytes as f64).min(1.0);
        let share = match self.shape {
            SeekShape::SquareRoot => share.sqrt(),
            SeekShape::Linear => share,
        };
        self.settle_s + (self.full_stroke_s - self.settle_s) * share
    }
}
