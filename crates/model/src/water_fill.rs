//! The best widths for one aligned request, in closed form (math A.9).

/// A server as water-filling sees it: its startup time, and its time for a byte.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WaterLevel {
    /// Startup in seconds (`alpha`).
    pub startup_s: f64,
    /// Transfer and network in seconds per byte (`gamma = beta + t`); above 0.
    pub s_per_byte: f64,
}

/// The continuous optimum of `max_i(alpha_i + w_i gamma_i)` over widths that add up to `bytes`: all servers that get
/// bytes are ready at the same time, and those that would not even have started by then get none. Returns that time in
/// seconds and a width in bytes per server. O(servers log servers).
///
/// A layout needs whole steps: round, keep the sum, and try a step more or less.
pub fn water_fill(servers: &[WaterLevel], bytes: f64) -> (f64, Vec<f64>) {
    let mut order: Vec<&WaterLevel> = servers.iter().collect();
    order.sort_by(|a, b| a.startup_s.total_cmp(&b.startup_s));
    let (mut rate, mut head_start, mut ready_s) = (0.0, 0.0, f64::INFINITY);
    for level in order {
        // Servers in use so far are ready before this one starts: it gets nothing, nor do later ones.
        if ready_s <= level.startup_s {
            break;
        }
        rate += 1.0 / level.s_per_byte;
        head_start += level.startup_s / level.s_per_byte;
        ready_s = (bytes + head_start) / rate;
    }
    let width = |level: &WaterLevel| ((ready_s - level.startup_s) / level.s_per_byte).max(0.0);
    (ready_s, servers.iter().map(width).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn level(startup_ms: f64, kb_per_ms: f64) -> WaterLevel {
        // ms and KB, with the network of the papers.
        WaterLevel { startup_s: startup_ms, s_per_byte: 1.0 / kb_per_ms + 1.0 / 117.0 }
    }

    #[test]
    fn old_disks_new_disks_and_flash() {
        // The table of three profiles: on the 4 KB grid {0,4,58} at 1.147 ms for 128 KB, {20,60,136} at 2.579 ms for
        // 512 KB, {52,132,236} at 4.414 ms for 1 MB. The continuous optimum is at most 2.6 % below.
        let servers: Vec<WaterLevel> = [(1.33, 20.0), (1.0, 60.0), (0.083, 102.0)]
            .into_iter()
            .zip([3, 3, 2])
            .flat_map(|((startup, rate), count)| vec![level(startup, rate); count])
            .collect();
        for (bytes, grid_ms, widths) in [
            (128.0, 1.147, [0.0, 4.0, 58.0]),
            (512.0, 2.579, [20.0, 60.0, 136.0]),
            (1024.0, 4.414, [52.0, 132.0, 236.0]),
        ] {
            let (ready, found) = water_fill(&servers, bytes);
            assert!(ready <= grid_ms && ready >= grid_ms * 0.974, "{bytes}: {ready}");
            for (at, want) in [(0, widths[0]), (3, widths[1]), (6, widths[2])] {
                assert!((found[at] - want).abs() < 4.0, "{bytes}: {found:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn nothing_is_better(servers in prop::collection::vec((0.0_f64..10.0, 0.01_f64..1.0), 1..8), bytes in 0.1_f64..500.0, from in 0_usize..8, to in 0_usize..8) {
            let servers: Vec<WaterLevel> =
                servers.into_iter().map(|(startup_s, s_per_byte)| WaterLevel { startup_s, s_per_byte }).collect();
            let (ready, widths) = water_fill(&servers, bytes);
            prop_assert!((widths.iter().sum::<f64>() - bytes).abs() < 1e-6 * bytes.max(1.0));
            let time = |widths: &[f64]| {
                servers.iter().zip(widths).filter(|&(_, &width)| width > 0.0)
                    .map(|(level, width)| level.startup_s + width * level.s_per_byte).fold(0.0, f64::max)
            };
            prop_assert!((time(&widths) - ready).abs() < 1e-9 * ready);
            // Moving bytes from one server to another helps no one.
            let (from, to) = (from % servers.len(), to % servers.len());
            let mut moved = widths.clone();
            let share = 0.1 * moved[from];
            moved[from] -= share;
            moved[to] += share;
            prop_assert!(time(&moved) >= ready * (1.0 - 1e-9));
        }
    }
}
