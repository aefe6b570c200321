//! The race: pairs compared on growing random samples of the requests.

use super::cells::SearchItem;
use super::{Bounded, ErrorBound, RequestCost, Sampling, Search};
use rayon::prelude::*;
use stripewise_model::Round;

/// Requests in the first sample of a race.
const FIRST_SAMPLE: usize = 512;

/// A pair in a race.
struct Racer {
    of: Bounded,
    /// Sum and sum of squares of the sampled excess over the bound.
    sum: f64,
    squares: f64,
    /// What its cost over all requests is at least, with confidence.
    floor: f64,
}

impl Racer {
    /// Lower confidence bound of the mean excess after `n` of `all` draws without replacement, each in `[0, range]`.
    fn least_mean(&self, n: usize, all: usize, range: f64, log_term: f64) -> f64 {
        let (n, all) = (n as f64, all as f64);
        let mean = self.sum / n;
        let variance = (self.squares / n - mean * mean).max(0.0);
        let left = if n <= all / 2.0 { 1.0 - (n - 1.0) / all } else { (1.0 - n / all) * (1.0 + 1.0 / n) };
        let kappa = 7.0 / 3.0 + 3.0 / std::f64::consts::SQRT_2;
        (mean - (2.0 * variance * left * log_term / n).sqrt() - kappa * range * log_term / n).max(0.0)
    }
}

/// Fisher-Yates with splitmix64.
fn shuffle<T>(of: &mut [T], seed: u64) {
    let mut state = seed;
    for i in (1..of.len()).rev() {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        of.swap(i, ((u128::from(z) * (i as u128 + 1)) >> 64) as usize);
    }
}

impl<C: RequestCost, R: Fn((u64, u64)) -> Round + Sync> Search<'_, C, R> {
    /// Sampled: pairs race on prefixes of a random order of the requests; a pair leaves when its cost is above the
    /// best known full cost by a confidence bound (empirical Bernstein for draws without replacement, Bardenet and
    /// Maillard 2015, Theorem 4.3). The pairs that remain are verified on all requests.
    ///
    /// What is sampled is a request's cost above its class's lower bound: the sum of the bounds is known exactly, so
    /// the sizes add no variance.
    pub(super) fn race(&mut self, mut items: Vec<SearchItem>, bounded: &[Bounded], sampling: &Sampling) -> ErrorBound {
        shuffle(&mut items, sampling.seed);
        let all = items.len();
        let mut racers: Vec<Racer> =
            bounded.iter().map(|&of| Racer { of, sum: 0.0, squares: 0.0, floor: of.bound }).collect();
        let stages = (all as f64 / FIRST_SAMPLE as f64).log2().max(0.0) as i32 + 1;
        // Each pair in each stage has its share of the risk.
        let log_term = (5.0 * racers.len() as f64 * f64::from(stages) / sampling.risk).ln();
        let (mut seen, mut next) = (0, FIRST_SAMPLE.min(all));
        let mut verified = Vec::new();
        self.verify(&items, racers[0].of.pair, &mut verified);
        loop {
            let limit = self.best.limit();
            racers.retain(|racer| racer.floor <= limit);
            let (cost, classes, round_of) = (self.cost, &self.classes, self.round_of);
            let sample = &items[seen..next];
            racers.par_iter_mut().for_each(|racer| {
                let round = round_of(racer.of.pair);
                let bounds: Vec<(f64, f64)> =
                    classes.iter().map(|class| cost.bounds(&round, class.op, class.sizes)).collect();
                for item in sample {
                    let class = item.class as usize;
                    let excess = cost.cost(&round, classes[class].op, item.offset, item.size) - bounds[class].0;
                    racer.sum += excess;
                    racer.squares += excess * excess;
                }
                let range = bounds.iter().map(|(least, most)| most - least).fold(0.0, f64::max);
                let floor = racer.of.bound + all as f64 * racer.least_mean(next, all, range, log_term);
                // All stages' bounds hold at once.
                racer.floor = racer.floor.max(floor);
            });
            self.evaluations += (racers.len() * sample.len()) as u64;
            self.bound_evaluations += (racers.len() * classes.len()) as u64;
            seen = next;
            // The pair that looks best becomes known exactly.
            let estimate = |racer: &Racer| racer.of.bound + racer.sum / seen as f64 * all as f64;
            let leader = racers.iter().min_by(|a, b| estimate(a).total_cmp(&estimate(b))).map(|racer| racer.of.pair);
            if let Some(pair) = leader.filter(|pair| !verified.contains(pair)) {
                self.verify(&items, pair, &mut verified);
            }
            let limit = self.best.limit();
            racers.retain(|racer| racer.floor <= limit && !verified.contains(&racer.of.pair));
            let to_verify = (racers.len() * all) as u64;
            if to_verify <= sampling.verify_evaluations / 4 || 2 * seen > all {
                break;
            }
            next = (2 * seen).min(all);
        }
        racers.sort_unstable_by(|a, b| a.floor.total_cmp(&b.floor));
        let may_verify = (sampling.verify_evaluations / all as u64) as usize;
        for racer in racers.iter().take(may_verify) {
            self.verify(&items, racer.of.pair, &mut verified);
        }
        let unverified = racers.get(may_verify).map_or(f64::INFINITY, |racer| racer.floor);
        let relative_gap = (1.0 - unverified / self.best.cost).max(0.0);
        ErrorBound { relative_gap, risk: sampling.risk, verified_pairs: verified.len(), sample: seen }
    }

    /// Prices one pair on all requests.
    fn verify(&mut self, items: &[SearchItem], pair: (u64, u64), verified: &mut Vec<(u64, u64)>) {
        verified.push(pair);
        let round = (self.round_of)(pair);
        let (cost, classes) = (self.cost, &self.classes);
        let price = |item: &SearchItem| cost.cost(&round, classes[item.class as usize].op, item.offset, item.size);
        // Chunks in order: the sum does not depend on the number of threads.
        let sums: Vec<f64> = items.par_chunks(8192).map(|chunk| chunk.iter().map(price).sum()).collect();
        self.evaluations += items.len() as u64;
        self.best.offer(pair, sums.iter().sum());
    }
}
