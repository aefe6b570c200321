//! What a seek takes by the gap that it crosses.

/// The gap of two requests whose distance on a device is not known: that of a whole device of 1 TiB, in bytes.
pub const FULL_STROKE_BYTES: f64 = (1_u64 << 40) as f64;

/// `f` of `SeekTime_i = f(SL_i)`: monotone in the gap. The paper takes it from measurements of another work; here it is the
/// square root law between the times of a server's profile, which `pool calibrate` measures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeekTime {
    sequential_ns: f64,
    least_ns: f64,
    most_ns: f64,
    full_bytes: f64,
}

impl SeekTime {
    /// Of a server that does not seek: 0 for each gap.
    pub const NONE: Self = Self { sequential_ns: 0.0, least_ns: 0.0, most_ns: 0.0, full_bytes: 1.0 };

    /// Of a device whose startup takes `sequential_ns` without a gap, and from `least_ns` to `most_ns` with one of up to
    /// `full_bytes`. Times that are not finite, negative or out of order are put right.
    pub fn new(sequential_ns: f64, least_ns: f64, most_ns: f64, full_bytes: f64) -> Self {
        let sound = |value: f64| if value.is_finite() { value.max(0.0) } else { 0.0 };
        let sequential_ns = sound(sequential_ns);
        let least_ns = sound(least_ns).max(sequential_ns);
        Self { sequential_ns, least_ns, most_ns: sound(most_ns).max(least_ns), full_bytes: sound(full_bytes).max(1.0) }
    }

    /// The time of a seek over `gap_bytes` in nanoseconds; none is longer than that over all of the device. O(1).
    pub fn of(&self, gap_bytes: f64) -> f64 {
        if gap_bytes <= 0.0 || gap_bytes.is_nan() {
            return self.sequential_ns;
        }
        let part = (gap_bytes / self.full_bytes).min(1.0);
        self.least_ns + (self.most_ns - self.least_ns) * part.sqrt()
    }
}
