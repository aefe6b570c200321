//! What a seek takes by the gap that it crosses.

/// The gap of two requests whose distance on a device is not known: that of a whole device of 1 TiB, in bytes.
pub const FULL_STROKE_BYTES: f64 = (1_u64 << 40) as f64;

/// `f` of `SeekTime_i = f(SL_i)`: monotone in the gap. The paper takes it from measurements of another work; here it is what `pool
/// calibrate` has measured of the server, and beyond that, or without it, the square root law between the times of its profile.
#[derive(Debug, Clone, PartialEq)]
pub struct SeekTime {
    sequential_ns: f64,
    least_ns: f64,
    most_ns: f64,
    full_bytes: f64,
    /// Measured: gaps in bytes, ascending, and times that do not fall.
    knots: Vec<(f64, f64)>,
}

impl SeekTime {
    /// Of a server that does not seek: 0 for each gap.
    pub const NONE: Self = Self { sequential_ns: 0.0, least_ns: 0.0, most_ns: 0.0, full_bytes: 1.0, knots: Vec::new() };

    /// Of a device whose startup takes `sequential_ns` without a gap, and from `least_ns` to `most_ns` with one of up to
    /// `full_bytes`. Times that are not finite, negative or out of order are put right.
    pub fn new(sequential_ns: f64, least_ns: f64, most_ns: f64, full_bytes: f64) -> Self {
        let sound = |value: f64| if value.is_finite() { value.max(0.0) } else { 0.0 };
        let sequential_ns = sound(sequential_ns);
        let least_ns = sound(least_ns).max(sequential_ns);
        let (most_ns, full_bytes) = (sound(most_ns).max(least_ns), sound(full_bytes).max(1.0));
        Self { sequential_ns, least_ns, most_ns, full_bytes, knots: Vec::new() }
    }

    /// With measured times: `points` are gaps in bytes and times in nanoseconds, in the order of the gaps. A time that falls, or is
    /// below that without a gap, is put right.
    pub fn measured(mut self, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let mut last_ns = self.sequential_ns;
        self.knots.clear();
        for (gap_bytes, time_ns) in points {
            if gap_bytes.is_finite() && gap_bytes > self.knots.last().map_or(0.0, |knot| knot.0) {
                last_ns = if time_ns.is_finite() { time_ns.max(last_ns) } else { last_ns };
                self.knots.push((gap_bytes, last_ns));
            }
        }
        self
    }

    /// The time of a seek over `gap_bytes` in nanoseconds; none is longer than that over all of the device. Between two measured
    /// gaps it grows with the square root of the gap, below the least of them it is the time of that. O(log of the measured
    /// gaps).
    pub fn of(&self, gap_bytes: f64) -> f64 {
        if gap_bytes <= 0.0 || gap_bytes.is_nan() {
            return self.sequential_ns;
        }
        let behind = self.knots.partition_point(|knot| knot.0 < gap_bytes);
        let between = |from: (f64, f64), to: (f64, f64)| {
            let root = |bytes: f64| bytes.sqrt() - from.0.sqrt();
            from.1 + (to.1 - from.1) * (root(gap_bytes.min(to.0)) / root(to.0).max(f64::MIN_POSITIVE))
        };
        match (behind.checked_sub(1).map(|before| self.knots[before]), self.knots.get(behind)) {
            (None, None) => between((0.0, self.least_ns), (self.full_bytes, self.most_ns)),
            (None, Some(first)) => first.1,
            (Some(before), Some(next)) => between(before, *next),
            (Some(last), None) if self.full_bytes > last.0 => {
                between(last, (self.full_bytes, self.most_ns.max(last.1)))
            }
            (Some(last), None) => last.1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_counts_and_beyond_it_the_law() {
        let law = SeekTime::new(1.0, 10.0, 90.0, 10_000.0);
        assert_eq!([0.0, 2500.0, 10_000.0, 1e12].map(|gap| law.of(gap).round() as u64), [1, 50, 90, 90]);
        let measured = law.measured([(100.0, 20.0), (400.0, 40.0), (2500.0, 40.0)]);
        let times = [0.0, 50.0, 100.0, 225.0, 400.0, 1000.0, 2500.0, 5625.0, 10_000.0, 1e12];
        assert_eq!(times.map(|gap| measured.of(gap).round() as u64), [1, 20, 20, 30, 40, 40, 40, 65, 90, 90]);
        // A device that is slower than its profile says, and whose measured gaps go farther.
        assert_eq!(measured.measured([(20_000.0, 100.0)]).of(1e12).round() as u64, 100);
    }
}
