//! Which widths are worth pricing.
//!
//! For every common request size `r`: striping a request over servers (`r / 8` and up), one server per request
//! (`r`), and far beyond (`16 r`: each request on one server, several in a row on the fast ones); widths in the ratio
//! in which the tiers can serve requests, and away from it, so that space limits find a cheaper mix; HARL's lines
//! where the round is the request (`S = r`). A tier may be left out. The best of them is refined afterwards in steps
//! of [`STEP`].

use crate::job::demand::{FileDemand, RequestGroup};
use stripewise_model::{Cluster, Op, TierWidths};

/// Widths are multiples of this many bytes, except the default's own.
pub(crate) const STEP: u64 = 4096;

/// A stripe is at most this share of its region, so that the region's heat spreads over the servers.
const LEAST_STRIPES: u64 = 16;

/// No stripe is wider, whatever the file: rounds of many servers stay far below the largest offset.
const WIDEST: u64 = 1 << 40;

/// Most request sizes that get candidates of their own.
const SIZES: usize = 5;

/// The candidates of one file: valid rounds, each once, in ascending order. `always` are among them, whatever they are.
/// O(sizes x candidates) with at most a few hundred candidates a size.
pub(crate) fn candidates(file: &FileDemand, cluster: &Cluster, always: &[TierWidths]) -> Vec<TierWidths> {
    let widest = widest(*file.edges.last().expect("a file has edges"));
    let mut list = Vec::new();
    for (size, op) in common_sizes(&file.entries) {
        let mut add = |widths: &[f64]| {
            let rounded: Vec<u64> = widths.iter().map(|&w| round(w, widest)).collect();
            list.push(TierWidths::new(&rounded));
        };
        match cluster.tiers.len() {
            1 => powers(size).for_each(|w| add(&[w])),
            2 => pairs(size, cluster, &mut add),
            tiers => grid(size, tiers, &mut add),
        }
        proportional(size, op, cluster, &mut add);
    }
    list.extend_from_slice(always);
    list.retain(|widths| is_round(widths, cluster));
    list.sort_unstable();
    list.dedup();
    list
}

/// Greatest width in a region of `bytes`.
pub(crate) fn widest(bytes: u64) -> u64 {
    (bytes / LEAST_STRIPES).clamp(64 << 10, WIDEST)
}

/// The widths with their round no longer than `bytes`, so that a region has bytes for every server of its round; widths
/// of 64 KiB and less stay, small regions may do without some servers.
pub(crate) fn fitted(widths: &TierWidths, bytes: u64, cluster: &Cluster) -> TierWidths {
    let round_bytes = widths.round_bytes(cluster);
    if round_bytes <= bytes {
        return *widths;
    }
    let share = bytes as f64 / round_bytes as f64;
    let fitted = |&width: &u64| {
        let least = width.min(64 << 10);
        ((width as f64 * share) as u64 / STEP * STEP).max(least)
    };
    TierWidths::new(&widths.as_slice().iter().map(fitted).collect::<Vec<_>>())
}

/// Whether the widths make a round at all: something in it, and no longer than a file can be.
pub(crate) fn is_round(widths: &TierWidths, cluster: &Cluster) -> bool {
    let round = widths.round_bytes(cluster);
    round > 0 && round < 1 << 62
}

/// A width in whole steps, up to `widest`; 0 stays 0.
pub(crate) fn round(width: f64, widest: u64) -> u64 {
    if width <= 0.0 {
        return 0;
    }
    let steps = (width.min(widest as f64) / STEP as f64).round() as u64;
    (steps.max(1) * STEP).min((widest / STEP).max(1) * STEP)
}

/// The sizes that carry most requests, with the operation that is more common at each: one for every power of two.
fn common_sizes(entries: &[RequestGroup]) -> Vec<(f64, Op)> {
    // Per class: requests, reads, bytes.
    let mut classes = [(0.0, 0.0, 0.0); 64];
    for e in entries {
        let class = &mut classes[e.size.ilog2() as usize];
        class.0 += e.count;
        class.1 += if e.op == Op::Read { e.count } else { 0.0 };
        class.2 += e.count * e.size as f64;
    }
    let (requests, bytes) = classes.iter().fold((0.0, 0.0), |sum, class| (sum.0 + class.0, sum.1 + class.2));
    // Many small requests and few large ones may both be what takes the time.
    let mut ranked: Vec<_> = classes.iter().filter(|class| class.0 > 0.0).collect();
    let weight = |class: &(f64, f64, f64)| class.0 / requests + class.2 / bytes;
    ranked.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    ranked.truncate(SIZES);
    let op = |class: &(f64, f64, f64)| if 2.0 * class.1 >= class.0 { Op::Read } else { Op::Write };
    ranked.into_iter().map(|class| (class.2 / class.0, op(class))).collect()
}

fn powers(size: f64) -> impl Iterator<Item = f64> {
    (-3..=4).map(move |power| size * 2_f64.powi(power))
}

/// Two tiers: a fine grid of pairs.
fn pairs(size: f64, cluster: &Cluster, add: &mut impl FnMut(&[f64])) {
    for w in powers(size) {
        add(&[w, 0.0]);
        add(&[0.0, w]);
        for other in powers(size) {
            add(&[w, other]);
        }
    }
    for h in [0.25, 0.5, 1.0, 2.0].map(|k| k * size) {
        for half_steps in -5..=10 {
            add(&[h, h * 2_f64.powf(f64::from(half_steps) * 0.5)]);
        }
    }
    let [first, second] = [0, 1].map(|tier| cluster.tiers[tier].servers.len().max(1) as f64);
    for k in 0..=8 {
        let share = f64::from(k) / 8.0;
        for round in [size, 2.0 * size] {
            add(&[round * share / first, round * (1.0 - share) / second]);
        }
    }
}

/// Three tiers and more: a coarse grid of all combinations, coarser with more tiers.
fn grid(size: f64, tiers: usize, add: &mut impl FnMut(&[f64])) {
    let values: &[f64] = match tiers {
        3 => &[0.0, 0.25, 1.0, 4.0, 16.0],
        4 => &[0.0, 0.5, 2.0, 8.0],
        5 => &[0.0, 1.0, 4.0],
        _ => &[0.0, 1.0],
    };
    let mut widths = vec![0.0; tiers];
    for mut number in 0..values.len().pow(tiers as u32) {
        for width in &mut widths {
            *width = values[number % values.len()] * size;
            number /= values.len();
        }
        add(&widths);
    }
}

/// For every set of tiers: widths in the ratio of the rates at which a server of each serves requests of `size`, and
/// the water level that ends a request of `size` on all of them at once (math A.9).
fn proportional(size: f64, op: Op, cluster: &Cluster, add: &mut impl FnMut(&[f64])) {
    let tiers = cluster.tiers.len();
    let startup = |tier: usize| {
        let costs = cluster.tiers[tier].profile.of(op);
        0.5 * (costs.startup_min_s + costs.startup_max_s)
    };
    let per_byte = |tier: usize| {
        let profile = &cluster.tiers[tier].profile;
        profile.of(op).transfer_s_per_byte + profile.network_s_per_byte
    };
    for set in 1_u32..1 << tiers {
        let inside = |tier: usize| set >> tier & 1 == 1;
        let rate = |tier: usize| if inside(tier) { 1.0 / (startup(tier) + size * per_byte(tier)) } else { 0.0 };
        let slowest = (0..tiers).filter(|&t| inside(t)).map(rate).fold(f64::INFINITY, f64::min);
        let bases: &[f64] = if tiers > 4 { &[1.0] } else { &[0.25, 0.5, 1.0, 2.0] };
        for base in bases {
            let widths: Vec<f64> = (0..tiers).map(|tier| base * size * rate(tier) / slowest).collect();
            if widths.iter().all(|w| w.is_finite()) {
                add(&widths);
            }
        }
        // tau = (r + sum n alpha / gamma) / (sum n / gamma) over the set.
        let sums = (0..tiers).filter(|&t| inside(t)).fold((size, 0.0), |(bytes, rates), tier| {
            let n = cluster.tiers[tier].servers.len() as f64;
            (bytes + n * startup(tier) / per_byte(tier), rates + n / per_byte(tier))
        });
        let level = sums.0 / sums.1;
        let width = |tier: usize| if inside(tier) { (level - startup(tier)) / per_byte(tier) } else { 0.0 };
        let widths: Vec<f64> = (0..tiers).map(width).collect();
        if widths.iter().all(|w| w.is_finite()) {
            add(&widths);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::input::{FileTrace, PlanOptions};
    use stripewise_model::{Request, presets};

    fn file(sizes: &[u64]) -> FileDemand {
        let requests: Vec<Request> = (0..64)
            .flat_map(|i| sizes.iter().map(move |&size| (i, size)))
            .map(|(i, size)| Request { offset: i << 24, size, op: Op::Read, process: 0, start_s: 0.0, end_s: 0.0 })
            .collect();
        let files = [FileTrace { name: "f".into(), requests: &requests, size_bytes: None }];
        crate::job::demand::Demand::new(&files, &PlanOptions::default()).unwrap().files.remove(0)
    }

    #[test]
    fn known_optima_are_near_a_candidate() {
        let cluster = presets::set_p(6, 2, false);
        let list = candidates(&file(&[512 << 10]), &cluster, &[]);
        for (h, s) in [(512, 8192), (512, 1024), (0, 512), (512, 0), (512, 5792)] {
            let wanted = TierWidths::new(&[h << 10, s << 10]);
            assert!(
                list.iter().any(|widths| widths
                    .as_slice()
                    .iter()
                    .zip(wanted.as_slice())
                    .all(|(&a, &b)| { (a == 0) == (b == 0) && (a as f64 - b as f64).abs() <= 0.05 * b as f64 })),
                "{wanted}"
            );
        }
        assert!(list.len() < 300, "{}", list.len());
    }

    #[test]
    fn rounds_fit_their_region() {
        let cluster = presets::set_p(6, 2, false);
        let wide = TierWidths::new(&[16 << 20, 4 << 20]);
        let fitted = |widths: &TierWidths, bytes| super::fitted(widths, bytes, &cluster);
        assert_eq!(fitted(&wide, 104 << 20), wide);
        let narrow = fitted(&wide, 4 << 20);
        assert!(
            narrow.round_bytes(&cluster) <= 4 << 20 && narrow.width_bytes(0) > 3 * narrow.width_bytes(1),
            "{narrow}"
        );
        // What is narrow anyway stays, and what is left out stays so.
        let least = TierWidths::new(&[64 << 10, 12 << 10]);
        assert_eq!(fitted(&least, 1), least);
        assert_eq!(fitted(&TierWidths::new(&[0, 1 << 30]), 1 << 20), TierWidths::new(&[0, 512 << 10]));
    }

    #[test]
    fn any_number_of_tiers_has_candidates_and_the_default_among_them() {
        let profile = presets::set_p(1, 1, false).tiers[0].profile;
        for tiers in 1..=8 {
            let cluster = presets::cluster(&vec![("t", 2, profile); tiers]);
            let default = TierWidths::uniform(&cluster, 100);
            let list = candidates(&file(&[64 << 10, 512 << 10, 2 << 20]), &cluster, &[default]);
            assert!(list.contains(&default));
            assert!((8..2500).contains(&list.len()), "{tiers}: {}", list.len());
            assert!(list.iter().all(|widths| is_round(widths, &cluster)));
        }
    }
}
