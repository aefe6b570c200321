//! The parts of a window.

use crate::slice_plan::{MAX_SLICES, MIN_WINDOW_NS, OTHERS, ProgramKey, SlicePlan, TurnSlice};

/// Least reuse distance that is told apart, in nanoseconds: 0.1 ms. No disk is asked again sooner, and a program that claims it
/// would have the whole window.
const LEAST_REUSE_NS: f64 = 100_000.0;

/// Weights that are inversely proportional to reuse distances in nanoseconds: `1 / RD_k` (section III-D). Of the two readings
/// of the text, the one in which three slices are inversely proportional, too. A distance that is not known is taken to be the
/// mean of the others, and with none known all are equal. O(programs).
pub fn harmonic_shares(reuse_ns: &[Option<f64>]) -> Vec<f64> {
    let known = || reuse_ns.iter().flatten().filter(|reuse| reuse.is_finite()).map(|reuse| reuse.max(LEAST_REUSE_NS));
    let count = known().count();
    let mean = if count == 0 { LEAST_REUSE_NS } else { known().sum::<f64>() / count as f64 };
    let of =
        |reuse: &Option<f64>| reuse.filter(|reuse| reuse.is_finite()).map_or(mean, |reuse| reuse.max(LEAST_REUSE_NS));
    reuse_ns.iter().map(|reuse| 1.0 / of(reuse)).collect()
}

/// A window of `window_ns` in parts that are proportional to `shares`; no part is shorter than `floor_ns`, or than an equal part
/// where the window has no room for that, so that no program starves. Fewer than two parts are no plan: all are served. Shares that are not positive
/// numbers count as the least one. Where there are more than [`MAX_SLICES`], the last ones are [`OTHERS`] together.
/// O(programs).
pub fn into_slices(shares: &[(ProgramKey, f64)], window_ns: u64, floor_ns: u64) -> SlicePlan {
    // Those without a slice of their own must keep what is theirs.
    let floor = (floor_ns as f64).min(window_ns as f64 / shares.len().max(1) as f64);
    let shares = at_most(shares);
    if shares.len() < 2 || window_ns < MIN_WINDOW_NS {
        return SlicePlan::open();
    }
    let is_sound = |share: f64| share.is_finite() && share > 0.0;
    let least = shares.iter().map(|(_, share)| *share).filter(|share| is_sound(*share)).fold(f64::INFINITY, f64::min);
    let least = if least.is_finite() { least } else { 1.0 };
    let sound: Vec<f64> = shares.iter().map(|(_, share)| if is_sound(*share) { *share } else { least }).collect();
    let total: f64 = sound.iter().sum();
    // What is above the floor is shared in proportion; where none is below it, that is what the shares say.
    let plain: Vec<f64> = sound.iter().map(|share| window_ns as f64 * (share / total)).collect();
    let parts: Vec<f64> =
        if plain.iter().all(|part| *part >= floor) { plain } else { raised(&plain, floor, window_ns as f64) };
    let mut end = 0.0;
    let mut slices: Vec<TurnSlice> = shares
        .iter()
        .zip(parts)
        .map(|((program, _), part)| {
            end += part;
            TurnSlice { program: *program, end_ns: (end as u64).min(window_ns) }
        })
        .collect();
    if let Some(last) = slices.last_mut() {
        last.end_ns = window_ns;
    }
    SlicePlan { slices }
}

/// The first shares, and one of the others together, where there are too many.
fn at_most(shares: &[(ProgramKey, f64)]) -> Vec<(ProgramKey, f64)> {
    if shares.len() <= MAX_SLICES {
        return shares.to_vec();
    }
    let (first, rest) = shares.split_at(MAX_SLICES - 1);
    let together = rest.iter().map(|(_, share)| *share).filter(|share| *share > 0.0).sum();
    first.iter().copied().chain([(OTHERS, together)]).collect()
}

/// `parts` with none below `floor`: those that are get it, and the others share the rest as before.
fn raised(parts: &[f64], floor: f64, whole: f64) -> Vec<f64> {
    let mut is_low: Vec<bool> = parts.iter().map(|part| *part < floor).collect();
    loop {
        let low = is_low.iter().filter(|low| **low).count();
        let rest: f64 = parts.iter().zip(&is_low).filter(|(_, low)| !**low).map(|(part, _)| part).sum();
        let scale = if rest > 0.0 { (whole - floor * low as f64) / rest } else { 0.0 };
        let more: Vec<usize> =
            (0..parts.len()).filter(|place| !is_low[*place] && parts[*place] * scale < floor).collect();
        if more.is_empty() || low + more.len() == parts.len() {
            let even = whole / parts.len() as f64;
            let one = |(part, low): (&f64, &bool)| if *low { floor } else { part * scale };
            return if low + more.len() == parts.len() {
                vec![even; parts.len()]
            } else {
                parts.iter().zip(&is_low).map(one).collect()
            };
        }
        more.into_iter().for_each(|place| is_low[place] = true);
    }
}
