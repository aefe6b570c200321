//! The moving average of all statistics.

/// Weight of the new observation. The paper prints 7/8 for the new one, as "recent statistics" are to weigh more; Linux's
/// anticipatory scheduler has it the other way round.
const NEW_WEIGHT: f64 = 7.0 / 8.0;

/// The average `before`, with one `observation` more: `x(k) = 1/8 x(k-1) + 7/8 obs(k)` (section III-B). The first observation
/// is the average. O(1).
#[inline]
pub fn weighed(before: Option<f64>, observation: f64) -> f64 {
    before.map_or(observation, |before| before + NEW_WEIGHT * (observation - before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_new_one_weighs_seven_eighths() {
        assert_eq!(weighed(None, 8.0).to_bits(), 8.0_f64.to_bits());
        assert!((weighed(Some(8.0), 16.0) - 15.0).abs() < 1e-12);
    }
}
