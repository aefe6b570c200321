//! Percentiles of any number of times in constant memory.

use crate::outcome::Latency;
use crate::time::seconds;

/// Each power of two is cut in this many equal parts: a time is known to within half a part, 0.1 % of it.
const PARTS_BITS: u32 = 9;
const PARTS: usize = 1 << PARTS_BITS;

/// Counts of times in nanoseconds, in parts of equal relative width; exact below 512 ns.
#[derive(Debug, Clone, Default)]
pub(crate) struct TimeHistogram {
    counts: Vec<u64>,
    count: u64,
    sum_ns: u128,
    max_ns: u64,
}

impl TimeHistogram {
    /// O(1).
    #[inline]
    pub(crate) fn add(&mut self, ns: u64) {
        let part = part_of(ns);
        if part >= self.counts.len() {
            self.counts.resize(part + 1, 0);
        }
        self.counts[part] += 1;
        self.count += 1;
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// The times of both. O(parts).
    pub(crate) fn with(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.counts.resize(self.counts.len().max(other.counts.len()), 0);
        both.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
        both.count += other.count;
        both.sum_ns += other.sum_ns;
        both.max_ns = both.max_ns.max(other.max_ns);
        both
    }

    /// Nearest-rank percentiles, to 0.1 % of each; mean and longest are exact. O(parts).
    pub(crate) fn latency(&self) -> Latency {
        if self.count == 0 {
            return Latency::default();
        }
        let rank = |share: f64| {
            let wanted = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count);
            let mut seen = 0;
            let part = self.counts.iter().position(|&count| {
                seen += count;
                seen >= wanted
            });
            seconds(middle_of(part.expect("the counts add up")).min(self.max_ns))
        };
        Latency {
            mean_s: self.sum_ns as f64 * 1e-9 / self.count as f64,
            p50_s: rank(0.5),
            p95_s: rank(0.95),
            p99_s: rank(0.99),
            max_s: seconds(self.max_ns),
        }
    }
}

#[inline]
fn part_of(ns: u64) -> usize {
    let bits = 64 - ns.leading_zeros();
    if bits <= PARTS_BITS {
        return ns as usize;
    }
    let shift = bits - PARTS_BITS - 1;
    // The leading bit is in every time of the power: what follows it numbers the part.
    (shift as usize + 1) * PARTS + ((ns >> shift) as usize - PARTS)
}

fn middle_of(part: usize) -> u64 {
    if part < PARTS {
        return part as u64;
    }
    let shift = (part / PARTS - 1) as u32;
    let first = ((part % PARTS + PARTS) as u64) << shift;
    first + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_time_is_known_to_a_thousandth(ns in 0..=u64::MAX) {
            let middle = middle_of(part_of(ns));
            prop_assert!(middle.abs_diff(ns) as f64 <= ns as f64 * 1e-3, "{ns} is counted as {middle}");
        }
    }

    #[test]
    fn percentiles_are_those_of_sorted_times() {
        let mut histogram = TimeHistogram::default();
        (1..=1000_u64).rev().for_each(|us| histogram.add(us * 1000));
        let latency = histogram.latency();
        for (found, expected) in [(latency.p50_s, 5e-4), (latency.p95_s, 9.5e-4), (latency.p99_s, 9.9e-4)] {
            assert!((found - expected).abs() <= expected * 1e-3, "{found} is not {expected}");
        }
        assert!((latency.mean_s - 500.5e-6).abs() < 1e-12 && latency.max_s == 1e-3);
        assert_eq!(TimeHistogram::default().latency(), Latency::default());
    }
}
