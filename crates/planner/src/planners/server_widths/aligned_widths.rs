//! The best widths in whole steps for one request that is a whole round: exactly, for any number of classes of servers
//! (math A.9, `beyond.md` 3).

use stripewise_model::WaterLevel;

/// Equal servers that have the same width.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WidthClass {
    /// How many; at least 1.
    pub servers: u64,
    /// What each of them costs.
    pub level: WaterLevel,
}

impl WidthClass {
    /// When a server with this width is ready; at once without any.
    fn ready_s(&self, width_bytes: u64) -> f64 {
        if width_bytes == 0 { 0.0 } else { self.level.startup_s + width_bytes as f64 * self.level.s_per_byte }
    }

    /// Greatest width in whole steps, up to `most` bytes, with which a server is ready in time. O(log width).
    fn widest(&self, ready_s: f64, step_bytes: u64, most: u64) -> u64 {
        let (mut fits, mut beyond) = (0, most / step_bytes + 1);
        while beyond - fits > 1 {
            let middle = fits + (beyond - fits) / 2;
            if self.ready_s(middle * step_bytes) <= ready_s { fits = middle } else { beyond = middle }
        }
        fits * step_bytes
    }
}

/// Widths that make `max(alpha_c + w_c gamma_c)` over the classes with any bytes the least possible, when together they
/// hold `bytes`: every class in whole steps, the last one in bytes (rounded up to the same on each of its servers). Gives
/// that time in seconds and the widths. `water_fill` without the steps is a lower bound.
///
/// Bisection over the doubles, at most 64 steps: what is ready in time grows with the time, so the result is exact.
/// O(64 x classes x log(bytes / step)), and
/// O(64 x classes x bytes / step) where a class has more than one server.
///
/// # Panics
/// Without classes, or with a step of 0.
pub fn aligned_widths(classes: &[WidthClass], bytes: u64, step_bytes: u64) -> (f64, Vec<u64>) {
    assert!(!classes.is_empty() && step_bytes > 0, "widths need servers and a step");
    let (last, others) = classes.split_last().expect("there are classes");
    // What fits in time: the other classes hold as much as they can, the last one the rest if it is ready then.
    let fitting = |ready_s: f64| {
        let most: Vec<u64> = others.iter().map(|class| class.widest(ready_s, step_bytes, bytes) / step_bytes).collect();
        let counts: Vec<u64> = others.iter().map(|class| class.servers).collect();
        let mut widths = most_within(&counts, &most, bytes / step_bytes);
        widths.iter_mut().for_each(|width| *width *= step_bytes);
        let held: u64 = counts.iter().zip(&widths).map(|(count, width)| count * width).sum();
        widths.push((bytes - held).div_ceil(last.servers));
        (last.ready_s(widths[others.len()]) <= ready_s).then_some(widths)
    };
    let (mut too_early, mut kept) = (0.0_f64.to_bits(), last.ready_s(bytes).to_bits());
    if fitting(0.0).is_some() {
        kept = too_early;
    }
    while kept > too_early + 1 {
        let middle = too_early + (kept - too_early) / 2;
        if fitting(f64::from_bits(middle)).is_some() { kept = middle } else { too_early = middle }
    }
    let widths = fitting(f64::from_bits(kept)).expect("the last class alone is ready by then");
    let ready = classes.iter().zip(&widths).map(|(class, &width)| class.ready_s(width));
    (ready.fold(0.0, f64::max), widths)
}

/// Numbers up to `most`, one for each count, whose sum weighted by `counts` is the greatest within `total`. Where all
/// counts are 1, the later ones are lowered first; else by the sums that can be reached, O(counts x total).
fn most_within(counts: &[u64], most: &[u64], total: u64) -> Vec<u64> {
    let mut numbers = most.to_vec();
    let sum = counts.iter().zip(most).map(|(&count, &most)| u128::from(count) * u128::from(most)).sum::<u128>();
    if sum <= u128::from(total) {
        return numbers;
    }
    if counts.iter().all(|&count| count == 1) {
        let mut over = sum - u128::from(total);
        for number in numbers.iter_mut().rev() {
            let less = over.min(u128::from(*number)) as u64;
            *number -= less;
            over -= u128::from(less);
        }
        return numbers;
    }
    // used[class][sum]: how many of the class the sum takes, the fewest; out of reach where there is none.
    const NO: u64 = u64::MAX;
    let total = total as usize;
    let mut used: Vec<Vec<u64>> = Vec::with_capacity(counts.len());
    for (&count, &most) in counts.iter().zip(most) {
        let mut row = vec![NO; total + 1];
        for sum in 0..=total {
            let reached = used.last().map_or(sum == 0, |before| before[sum] != NO);
            if reached {
                row[sum] = 0;
            } else if let Some(before) = sum.checked_sub(count as usize)
                && row[before] < most
            {
                row[sum] = row[before] + 1;
            }
        }
        used.push(row);
    }
    let mut sum = (0..=total).rev().find(|&sum| used[counts.len() - 1][sum] != NO).expect("nothing is always reached");
    for class in (0..counts.len()).rev() {
        numbers[class] = used[class][sum];
        sum -= (numbers[class] * counts[class]) as usize;
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stripewise_model::water_fill;

    fn class(servers: u64, startup_ms: f64, kb_per_ms: f64) -> WidthClass {
        // ms and KB, with the network of the papers.
        WidthClass { servers, level: WaterLevel { startup_s: startup_ms, s_per_byte: 1.0 / kb_per_ms + 1.0 / 117.0 } }
    }

    #[test]
    fn three_profiles_row_by_row() {
        // beyond.md 3: three old disks, three new ones and two SSDs on a grid of 4 KB; then all disks with one width.
        let classes = [class(3, 1.33, 20.0), class(3, 1.0, 60.0), class(2, 0.083, 102.0)];
        let servers: Vec<WaterLevel> = classes.iter().flat_map(|c| vec![c.level; c.servers as usize]).collect();
        // The old disk is ready last whatever the width, so it stands for all six.
        let disks_alike = [WidthClass { servers: 6, ..classes[0] }, classes[2]];
        for (kb, widths, tau_ms, alike, alike_ms, gain) in [
            (128, [0, 4, 58], 1.147, [0, 64], 1.257, 9.6),
            (256, [4, 24, 86], 1.661, [8, 104], 1.991, 19.9),
            (512, [20, 60, 136], 2.579, [32, 160], 3.204, 24.2),
            (1024, [52, 132, 236], 4.414, [72, 296], 5.545, 25.6),
            (4096, [240, 572, 830], 15.42, [320, 1088], 20.07, 30.1),
        ] {
            let (found_ms, found) = aligned_widths(&classes, kb, 4);
            assert_eq!(found, widths, "{kb}");
            assert!((found_ms - tau_ms).abs() < 0.6e-3 * tau_ms, "{kb}: {found_ms}");
            let (found_alike_ms, found_alike) = aligned_widths(&disks_alike, kb, 4);
            assert_eq!(found_alike, alike, "{kb}");
            assert!((found_alike_ms - alike_ms).abs() < 0.6e-3 * alike_ms, "{kb}: {found_alike_ms}");
            assert!((100.0 * (found_alike_ms / found_ms - 1.0) - gain).abs() < 0.1, "{kb}");
            // The continuous optimum is within 2.6 %.
            let (level_ms, _) = water_fill(&servers, kb as f64);
            assert!(level_ms <= found_ms && level_ms >= found_ms * (1.0 - 0.026), "{kb}: {level_ms} {found_ms}");
        }
    }

    #[test]
    fn nothing_and_next_to_nothing() {
        let classes = [class(2, 1.0, 20.0), class(1, 0.1, 100.0)];
        assert_eq!(aligned_widths(&classes, 0, 4), (0.0, vec![0, 0]));
        assert_eq!(aligned_widths(&classes, 1, 4).1, [0, 1]);
        // Free servers: no time at all.
        let free = WidthClass { servers: 1, level: WaterLevel { startup_s: 0.0, s_per_byte: 0.0 } };
        assert_eq!(aligned_widths(&[free, free], 10, 4).0, 0.0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn no_widths_on_the_grid_are_better(
            classes in prop::collection::vec((1_u64..4, 0.0_f64..5.0, 0.01_f64..1.0), 1..4),
            bytes in 0_u64..80, step in 1_u64..8,
        ) {
            let classes: Vec<WidthClass> = classes.into_iter()
                .map(|(servers, startup_s, s_per_byte)| WidthClass { servers, level: WaterLevel { startup_s, s_per_byte } }).collect();
            let (others, last) = (&classes[..classes.len() - 1], classes[classes.len() - 1]);
            let most = bytes / step + 1;
            let mut least = f64::INFINITY;
            for number in 0..most.pow(others.len() as u32) {
                let digits = (0..others.len()).scan(number, |n, _| { let d = *n % most; *n /= most; Some(d) });
                let widths: Vec<u64> = digits.map(|steps| steps * step).collect();
                let held: u64 = others.iter().zip(&widths).map(|(class, width)| class.servers * width).sum();
                if held <= bytes {
                    let rest = last.ready_s((bytes - held).div_ceil(last.servers));
                    least = least.min(others.iter().zip(&widths).map(|(c, &w)| c.ready_s(w)).fold(rest, f64::max));
                }
            }
            let (ready_s, widths) = aligned_widths(&classes, bytes, step);
            let held: u64 = classes.iter().zip(&widths).map(|(class, width)| class.servers * width).sum();
            prop_assert!(held >= bytes && held < bytes + last.servers);
            prop_assert!(ready_s <= least * (1.0 + 1e-12), "{ready_s} {least} {widths:?}");
        }
    }
}
