//! Phases of a program: spans of time in which the mix of its requests stays the same.
//!
//! A program that writes everything and then reads everything, or visits its regions one after the other, keeps
//! other servers busy at each time. The bottleneck of the throughput objective must be taken per phase: a layout that
//! balances the servers over the whole run can leave most of them idle at every moment.
//!
//! The trace is cut into windows of equally many requests. Each window is a histogram over operation and place
//! (sixteen slices of the data with equally many requests each). The cuts are those of the multinomial model with the
//! best description length, found exactly by dynamic programming; each is then moved to the request at which it fits
//! best, and phases with one mix are one phase, however often the program comes back to it.

use stripewise_model::Op;

const PLACES: usize = 16;
const MIXES: usize = 2 * PLACES;
const MAX_WINDOWS: usize = 128;
const MIN_WINDOW: usize = 48;

/// What the detection needs to know of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// Seconds.
    pub start_s: f64,
    /// File index and first byte.
    pub place: (u32, u64),
    /// Read or write.
    pub op: Op,
}

/// Result: a phase for every request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Phases {
    /// Number of phases; at least 1.
    pub count: usize,
    /// Phase of each request, in the order in which they were given.
    pub of: Vec<u16>,
    /// Times at which a phase ends and another one begins, ascending, in seconds.
    pub cuts_s: Vec<f64>,
    /// The phase before the first cut, and those from each cut on.
    pub segments: Vec<u16>,
}

type Mix = [f64; MIXES];

/// Finds at most `most` phases. O(n log n + windows^2).
pub(crate) fn find(moments: &[Moment], most: usize) -> Phases {
    let n = moments.len();
    let single = Phases { count: 1, of: vec![0; n], cuts_s: Vec::new(), segments: vec![0] };
    let mut order: Vec<usize> = (0..n).collect();
    // Stable, so that a trace without times stays as it was given.
    order.sort_by(|&a, &b| moments[a].start_s.total_cmp(&moments[b].start_s));
    let timeless = n == 0 || moments[order[0]].start_s == moments[order[n - 1]].start_s;
    if timeless || most < 2 || n < 2 * MIN_WINDOW {
        return single;
    }
    let mixes = mixes(moments);
    let timeline: Vec<u8> = order.iter().map(|&i| mixes[i]).collect();
    let windows = (n / MIN_WINDOW).min(MAX_WINDOWS);
    let borders: Vec<usize> = (0..=windows).map(|w| w * n / windows).collect();
    // What one more phase must gain in nats: half a logarithm of the sample per free parameter (BIC).
    let used = MIXES - (0..MIXES as u8).filter(|mix| !timeline.contains(mix)).count();
    let penalty = 0.5 * used as f64 * (n as f64).ln();
    let mut cuts = segment(&timeline, &borders, penalty);
    sharpen(&timeline, &mut cuts);
    // Requests of one moment are not cut apart: the cut is where the next moment begins.
    let time = |at: usize| moments[order[at]].start_s;
    for cut in &mut cuts {
        while *cut < n && time(*cut - 1) == time(*cut) {
            *cut += 1;
        }
    }
    cuts.retain(|&cut| cut < n);
    cuts.dedup();
    let phases = cluster(&timeline, &cuts, penalty, most);
    let mut of = vec![0; n];
    let mut segment = 0;
    for (at, &request) in order.iter().enumerate() {
        while cuts.get(segment).is_some_and(|&cut| cut <= at) {
            segment += 1;
        }
        of[request] = phases[segment];
    }
    let turns = cuts.iter().enumerate().filter(|&(i, _)| phases[i] != phases[i + 1]);
    let cuts_s = turns.map(|(_, &cut)| time(cut)).collect();
    let mut segments = phases;
    segments.dedup();
    Phases { count: usize::from(*segments.iter().max().expect("one segment at least")) + 1, of, cuts_s, segments }
}

/// Operation and place of each request as one small number.
fn mixes(moments: &[Moment]) -> Vec<u8> {
    let mut places: Vec<(u32, u64)> = moments.iter().map(|m| m.place).collect();
    places.sort_unstable();
    let borders: Vec<(u32, u64)> = (1..PLACES).map(|i| places[i * places.len() / PLACES]).collect();
    let of = |m: &Moment| {
        let place = borders.partition_point(|border| *border <= m.place);
        (place + if m.op == Op::Write { PLACES } else { 0 }) as u8
    };
    moments.iter().map(of).collect()
}

fn count(timeline: &[u8]) -> Mix {
    let mut mix = [0.0; MIXES];
    for &m in timeline {
        mix[usize::from(m)] += 1.0;
    }
    mix
}

fn plus(a: &Mix, b: &Mix) -> Mix {
    std::array::from_fn(|m| a[m] + b[m])
}

/// Negative log-likelihood in nats of requests drawn from their own mix.
fn description(mix: &Mix) -> f64 {
    let total: f64 = mix.iter().sum();
    mix.iter().filter(|&&n| n > 0.0).map(|&n| n * (total / n).ln()).sum()
}

/// Best cuts at borders of windows: exact by dynamic programming.
fn segment(timeline: &[u8], borders: &[usize], penalty: f64) -> Vec<usize> {
    let windows = borders.len() - 1;
    let mixes: Vec<Mix> = borders.windows(2).map(|w| count(&timeline[w[0]..w[1]])).collect();
    // best[w]: least cost of the first w windows; from[w]: where its last segment begins.
    let mut best = vec![f64::INFINITY; windows + 1];
    let mut from = vec![0; windows + 1];
    best[0] = 0.0;
    for end in 1..=windows {
        let mut mix = [0.0; MIXES];
        for begin in (0..end).rev() {
            mix = plus(&mix, &mixes[begin]);
            let cost = best[begin] + description(&mix) + penalty;
            if cost < best[end] {
                (best[end], from[end]) = (cost, begin);
            }
        }
    }
    let mut cuts = Vec::new();
    let mut at = from[windows];
    while at > 0 {
        cuts.push(borders[at]);
        at = from[at];
    }
    cuts.reverse();
    cuts
}

/// Moves each cut to where the two mixes beside it explain the requests best.
fn sharpen(timeline: &[u8], cuts: &mut [usize]) {
    for i in 0..cuts.len() {
        let begin = if i == 0 { 0 } else { cuts[i - 1] };
        let end = cuts.get(i + 1).copied().unwrap_or(timeline.len());
        let share = |range: &[u8]| {
            let mix = count(range);
            mix.map(|n| ((n + 0.5) / (range.len() as f64 + 0.5 * MIXES as f64)).ln())
        };
        let (left, right) = (share(&timeline[begin..cuts[i]]), share(&timeline[cuts[i]..end]));
        let (mut sum, mut best) = (0.0, (f64::NEG_INFINITY, cuts[i]));
        for at in begin + 1..end {
            let mix = usize::from(timeline[at - 1]);
            sum += left[mix] - right[mix];
            if sum > best.0 {
                best = (sum, at);
            }
        }
        cuts[i] = best.1;
    }
}

/// The phase of each segment: segments are merged, nearest first, while the merger costs less than a phase is worth
/// or there are more than `most`.
fn cluster(timeline: &[u8], cuts: &[usize], penalty: f64, most: usize) -> Vec<u16> {
    let mut ends = cuts.to_vec();
    ends.push(timeline.len());
    let mut begin = 0;
    let mut clusters: Vec<(Mix, Vec<usize>)> = Vec::new();
    for (segment, &end) in ends.iter().enumerate() {
        clusters.push((count(&timeline[begin..end]), vec![segment]));
        begin = end;
    }
    loop {
        let mut best = (f64::INFINITY, 0, 0);
        for a in 0..clusters.len() {
            for b in a + 1..clusters.len() {
                let (x, y) = (&clusters[a].0, &clusters[b].0);
                let loss = description(&plus(x, y)) - description(x) - description(y);
                if loss < best.0 {
                    best = (loss, a, b);
                }
            }
        }
        if clusters.len() < 2 || (best.0 > penalty && clusters.len() <= most) {
            break;
        }
        let (mix, segments) = clusters.swap_remove(best.2);
        clusters[best.1].0 = plus(&clusters[best.1].0, &mix);
        clusters[best.1].1.extend(segments);
    }
    // Numbered by first appearance.
    clusters.sort_by_key(|(_, segments)| *segments.iter().min().expect("no cluster is empty"));
    let mut phases = vec![0; ends.len()];
    for (phase, (_, segments)) in clusters.iter().enumerate() {
        for &segment in segments {
            phases[segment] = phase as u16;
        }
    }
    phases
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator: the tests need scattered places, not good ones.
    fn scatter(i: usize) -> u64 {
        (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
    }

    fn moments(list: impl IntoIterator<Item = (Op, u64)>) -> Vec<Moment> {
        list.into_iter().enumerate().map(|(i, (op, x))| Moment { start_s: i as f64, place: (0, x), op }).collect()
    }

    #[test]
    fn a_steady_mix_is_one_phase() {
        let ops = [Op::Read, Op::Write];
        let steady = moments((0..4000).map(|i| (ops[(scatter(i * 7 + 1) % 2) as usize], scatter(i))));
        assert_eq!(find(&steady, 8).count, 1);
    }

    #[test]
    fn writing_and_then_reading_are_two_phases_cut_at_the_request() {
        let ops = |i| if i < 1234 { Op::Write } else { Op::Read };
        let phases = find(&moments((0..4000).map(|i| (ops(i), scatter(i)))), 8);
        assert_eq!((phases.count, phases.cuts_s), (2, vec![1234.0]));
        assert!((0..4000).all(|i| phases.of[i] == u16::from(i >= 1234)));
    }

    #[test]
    fn regions_one_after_the_other_are_phases() {
        let phases = find(&moments((0..3000).map(|i| (Op::Read, (i as u64 / 1000 * (1 << 30)) + scatter(i)))), 8);
        assert_eq!((phases.count, phases.cuts_s), (3, vec![1000.0, 2000.0]));
    }

    #[test]
    fn a_phase_that_comes_back_is_the_same() {
        let ops = |i: usize| if (i / 500).is_multiple_of(2) { Op::Write } else { Op::Read };
        let phases = find(&moments((0..3000).map(|i| (ops(i), scatter(i)))), 8);
        assert_eq!(phases.count, 2);
        assert_eq!(phases.cuts_s, vec![500.0, 1000.0, 1500.0, 2000.0, 2500.0]);
        assert_eq!(phases.segments, [0, 1, 0, 1, 0, 1]);
    }

    #[test]
    fn the_number_of_phases_is_bounded() {
        let wandering = moments((0..6000).map(|i| (Op::Read, (i as u64 / 200) << 30)));
        assert!(find(&wandering, 64).count > 4);
        assert_eq!(find(&wandering, 4).count, 4);
    }

    #[test]
    fn without_times_or_requests_there_is_one_phase() {
        assert_eq!(find(&[], 8).count, 1);
        let mut same = moments((0..500).map(|i| (if i < 250 { Op::Write } else { Op::Read }, scatter(i))));
        same.iter_mut().for_each(|m| m.start_s = 1.0);
        assert_eq!(find(&same, 8).count, 1);
    }
}
