//! The stripe search of HARL (Algorithm 2, math A.7): the best width for slow and for fast servers, exactly and fast.
//!
//! The exhaustive search prices every pair of widths on every request. This one returns the same pair, ties included:
//!
//! 1. **Bounds first.** A request's cost has a lower bound over all offsets that depends on its size only. Summed over
//!    the sizes it bounds a pair from below. Pairs are visited in order of that bound, so the first one is a good
//!    incumbent and the search ends at the first pair whose bound is above the best cost.
//! 2. **Lines and cells.** The cost depends on an offset only through its phase `o mod S`, and `S` is the same for many
//!    pairs. For each `S` requests of one size and operation are counted into cells of close phases, coarse to fine.
//!    All requests of a cell contain a common core, whose cost bounds theirs; where a cell is one phase, as for
//!    aligned requests, the bound is the cost.
//! 3. **Early abandoning.** A pair is given up as soon as its partial cost and the bounds of the rest exceed the best.
//!
//! For very many requests [`Sampling`] races the pairs on growing random samples and says how sure the result is.

mod cells;
mod race;

use cells::{BUCKETS, LineLevel, LineLevels, RequestClass, SearchItem, classify};
use rayon::prelude::*;
use stripewise_model::{Cluster, CostModel, Op, Request, Round, TierWidths};

/// Costs within this relative distance of the least one are ties; the largest stripes win (math A.7).
pub const TIE_TOLERANCE: f64 = 1e-9;

/// Room for the rounding of sums in another order: far below [`TIE_TOLERANCE`], far above the rounding.
const SUM_SLACK: f64 = 1e-10;

/// Requests that are counted into cells in the time of one cost evaluation, about.
const COUNTED: u64 = 3;

/// Most steps on one axis: beyond, the step grows, so that a mean request of gigabytes does not make the grid endless.
const MAX_STEPS: u64 = 1024;

/// The cost of a request, to be added up over requests: what the search minimises. It must depend on the offset only
/// through the bytes on each server, and a request must cost no less than any part of it.
pub trait RequestCost: Sync {
    /// Cost of one request in seconds (or any unit that adds up).
    fn cost(&self, round: &Round, op: Op, offset: u64, size: u64) -> f64;
    /// Lower and upper bound of [`RequestCost::cost`] over all offsets and all sizes from `sizes.0` to `sizes.1`. The
    /// tighter, the faster the search; `(0, infinity)` is valid.
    fn bounds(&self, round: &Round, op: Op, sizes: (u64, u64)) -> (f64, f64);
}

/// HARL's cost: the sum of maxima, Eq. 1-8.
pub struct PaperCost<'a>(pub &'a CostModel);

impl RequestCost for PaperCost<'_> {
    fn cost(&self, round: &Round, op: Op, offset: u64, size: u64) -> f64 {
        self.0.paper_cost_s(round, op, offset, size)
    }

    fn bounds(&self, round: &Round, op: Op, sizes: (u64, u64)) -> (f64, f64) {
        // A longer request holds a shorter one, and costs no less.
        let (least, most) = self.0.paper_bounds_s(round, op, sizes.0);
        (least, if sizes.0 == sizes.1 { most } else { self.0.paper_bounds_s(round, op, sizes.1).1 })
    }
}

/// The exact mean latency: the mean of the maximum of sums.
pub struct LatencyCost<'a>(pub &'a CostModel);

impl RequestCost for LatencyCost<'_> {
    fn cost(&self, round: &Round, op: Op, offset: u64, size: u64) -> f64 {
        self.0.latency_s(round, op, offset, size)
    }

    fn bounds(&self, round: &Round, op: Op, sizes: (u64, u64)) -> (f64, f64) {
        let (least, most) = self.0.latency_bounds_s(round, op, sizes.0);
        (least, if sizes.0 == sizes.1 { most } else { self.0.latency_bounds_s(round, op, sizes.1).1 })
    }
}

/// When and how to search on samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Sets of at most this many requests are searched exactly, ...
    pub exact_up_to: usize,
    /// ... as long as that takes at most this many cost evaluations; then the pairs that are left race.
    pub exact_evaluations: u64,
    /// Probability that the stated bound does not hold.
    pub risk: f64,
    /// Seed of the order in which requests are drawn.
    pub seed: u64,
    /// Cost evaluations to spend on verifying the last pairs on all requests.
    pub verify_evaluations: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            exact_up_to: 100_000,
            exact_evaluations: 10_000_000,
            risk: 1e-6,
            seed: 1,
            verify_evaluations: 100_000_000,
        }
    }
}

/// What to search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchOptions {
    /// Step of the grid in bytes; 4 KiB in the paper.
    pub step_bytes: u64,
    /// Largest width in bytes; `None` is the paper's: the mean request size, rounded up to a step.
    pub max_width_bytes: Option<u64>,
    /// Also `s <= h` and `s = 0`, which the paper's loops leave out, and with them the default layout.
    pub extra: bool,
    /// `None`: exact, whatever the number of requests.
    pub sampling: Option<Sampling>,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self { step_bytes: 4096, max_width_bytes: None, extra: true, sampling: None }
    }
}

/// How sure a sampled result is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ErrorBound {
    /// The optimum is at most this share below the returned cost, ...
    pub relative_gap: f64,
    /// ... except with this probability.
    pub risk: f64,
    /// Pairs that were verified on all requests in the end.
    pub verified_pairs: usize,
    /// Requests in the largest sample.
    pub sample: usize,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct StripeChoice {
    /// The best widths, one per tier.
    pub widths: TierWidths,
    /// The pair: width of the slow tiers and of the fast tiers, in bytes.
    pub pair_bytes: (u64, u64),
    /// Cost of all requests under it, in seconds: exact also when the search was sampled.
    pub cost_s: f64,
    /// Evaluations of a request's cost.
    pub evaluations: u64,
    /// Evaluations of the bound of a (size, operation) class.
    pub bound_evaluations: u64,
    /// Pairs on the grid.
    pub pairs: u64,
    /// The step that was used: [`SearchOptions::step_bytes`], or a multiple of it for a very long axis.
    pub step_bytes: u64,
    /// `None` when the search was exact.
    pub error_bound: Option<ErrorBound>,
}

/// HARL knows slow and fast servers. A cluster of more tiers is seen as two classes: all tiers of a class get the same
/// width, each is priced by its own profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TwoClasses {
    /// Per tier: is it in the fast class.
    fast: Vec<bool>,
}

impl TwoClasses {
    /// Divides the tiers by their mean startup time, at the largest ratio between neighbours. Tiers without servers
    /// count for nothing: a class of them alone would be a round of no bytes. With one tier, or when all startups are
    /// equal and there are not exactly two tiers, there is no slow class. With two tiers, the one of the longer startup
    /// is the slow one; the first, if they are equal.
    pub fn of(cluster: &Cluster) -> Self {
        let startup = |tier: usize| {
            let profile = &cluster.tiers[tier].profile;
            let (read, write) = (&profile.read, &profile.write);
            read.startup_min_s + read.startup_max_s + write.startup_min_s + write.startup_max_s
        };
        let mut order: Vec<usize> =
            (0..cluster.tiers.len()).filter(|&tier| !cluster.tiers[tier].servers.is_empty()).collect();
        order.sort_by(|&a, &b| startup(b).total_cmp(&startup(a)));
        let mut slow = usize::from(order.len() == 2);
        let mut largest = 1.0;
        for cut in 1..order.len() {
            let (before, after) = (startup(order[cut - 1]), startup(order[cut]));
            if before > largest * after {
                largest = before / after;
                slow = cut;
            }
        }
        let mut fast = vec![true; cluster.tiers.len()];
        for &tier in &order[..slow] {
            fast[tier] = false;
        }
        Self { fast }
    }

    /// Are there slow tiers at all.
    pub fn has_slow(&self) -> bool {
        self.fast.contains(&false)
    }

    /// One width per tier from `(h, s)`: width on slow and on fast servers, in bytes.
    pub fn widths(&self, pair_bytes: (u64, u64)) -> TierWidths {
        let mut widths = [0; stripewise_model::MAX_TIERS];
        for (width, &fast) in widths.iter_mut().zip(&self.fast) {
            *width = if fast { pair_bytes.1 } else { pair_bytes.0 };
        }
        TierWidths::new(&widths[..self.fast.len()])
    }
}

/// The grid: all pairs in ascending order of `(h, s)`.
fn grid(requests: &[Request], classes: &TwoClasses, options: &SearchOptions) -> (Vec<(u64, u64)>, u64) {
    let mut step = options.step_bytes.max(1);
    let longest = options.max_width_bytes.unwrap_or_else(|| {
        let total: u128 = requests.iter().map(|request| u128::from(request.size)).sum();
        (total.div_ceil(requests.len().max(1) as u128)) as u64
    });
    while longest.div_ceil(step) > MAX_STEPS {
        step *= 2;
    }
    let steps = longest.div_ceil(step).max(1);
    let slow_steps = if classes.has_slow() { steps } else { 0 };
    let mut pairs = Vec::new();
    for h in 0..=slow_steps {
        let first = if options.extra { u64::from(h == 0) } else { h + 1 };
        pairs.extend((first..=steps).map(|s| (h * step, s * step)));
    }
    (pairs, step)
}

/// A pair of the grid with the lower bound of its cost over all requests.
#[derive(Clone, Copy)]
struct Bounded {
    pair: (u64, u64),
    bound: f64,
}

/// The best so far, with all its ties.
struct Best {
    cost: f64,
    /// `(pair, cost)` within the tolerance of the best at the time.
    near: Vec<((u64, u64), f64)>,
}

impl Best {
    fn new() -> Self {
        Self { cost: f64::INFINITY, near: Vec::new() }
    }

    /// A pair above this is neither better nor a tie.
    fn limit(&self) -> f64 {
        self.cost * (1.0 + TIE_TOLERANCE + SUM_SLACK)
    }

    fn offer(&mut self, pair: (u64, u64), cost: f64) {
        if cost <= self.limit() {
            self.cost = self.cost.min(cost);
            self.near.push((pair, cost));
        }
    }

    /// The largest stripes among the ties: the last in ascending order of `(h, s)`.
    fn take(self) -> ((u64, u64), f64) {
        let limit = self.cost * (1.0 + TIE_TOLERANCE);
        let ties = self.near.into_iter().filter(|&(_, cost)| cost <= limit);
        ties.max_by_key(|&(pair, _)| pair).expect("the grid is not empty")
    }
}

/// Searches the grid for the pair of widths of least paper cost (HARL Eq. 1-8); see [`search_by`].
pub fn search(requests: &[Request], cluster: &Cluster, options: &SearchOptions) -> StripeChoice {
    search_by(&PaperCost(&CostModel::new(cluster)), requests, cluster, options)
}

/// Searches the grid for the pair of widths of least total cost, ties to the largest stripes: the result of
/// [`exhaustive_by`]. Costs one bound per pair and class of (size, operation), then evaluations for the few pairs whose
/// bound is below the optimum. Without requests every pair costs 0, and the largest is returned.
pub fn search_by(
    cost: &impl RequestCost,
    requests: &[Request],
    cluster: &Cluster,
    options: &SearchOptions,
) -> StripeChoice {
    let two = TwoClasses::of(cluster);
    let (pairs, step_bytes) = grid(requests, &two, options);
    let (items, classes) = classify(requests);
    let round_of = |pair| Round::new(&two.widths(pair), cluster);
    let mut bounded: Vec<Bounded> = pairs
        .par_iter()
        .with_min_len(64)
        .map(|&pair| {
            let round = round_of(pair);
            let sum = classes.iter().map(|class| class.count * cost.bounds(&round, class.op, class.sizes).0).sum();
            Bounded { pair, bound: sum }
        })
        .collect();
    // Of equal bounds, larger stripes first: the fewer units, the closer the bound.
    bounded.sort_unstable_by(|a, b| a.bound.total_cmp(&b.bound).then(b.pair.cmp(&a.pair)));
    let mut search =
        Search { cost, classes, round_of: &round_of, evaluations: 0, bound_evaluations: 0, best: Best::new() };
    search.bound_evaluations = (bounded.len() * search.classes.len()) as u64;
    let error_bound = match options.sampling {
        None => {
            search.visit(items, &bounded, u64::MAX);
            None
        }
        Some(sampling) if items.len() > sampling.exact_up_to => Some(search.race(items, &bounded, &sampling)),
        Some(sampling) => search
            .visit(items, &bounded, sampling.exact_evaluations)
            .map(|(items, visited)| search.race(items, &bounded[visited..], &sampling)),
    };
    let (evaluations, bound_evaluations) = (search.evaluations, search.bound_evaluations);
    let (pair, cost_s) = search.best.take();
    StripeChoice {
        widths: two.widths(pair),
        pair_bytes: pair,
        cost_s,
        evaluations,
        bound_evaluations,
        pairs: pairs.len() as u64,
        step_bytes,
        error_bound,
    }
}

struct Search<'a, C, R> {
    cost: &'a C,
    classes: Vec<RequestClass>,
    round_of: &'a R,
    evaluations: u64,
    bound_evaluations: u64,
    best: Best,
}

impl<C: RequestCost, R: Fn((u64, u64)) -> Round + Sync> Search<'_, C, R> {
    /// Exact: pairs in order of bound, until the bound alone is too much. After the work of
    /// `most_evaluations` it gives the requests back with the number of pairs that are done.
    fn visit(
        &mut self,
        items: Vec<SearchItem>,
        bounded: &[Bounded],
        most_evaluations: u64,
    ) -> Option<(Vec<SearchItem>, usize)> {
        let mut lines = LineLevels::new(items, self.classes.len());
        // A round as long as a request is usually close to the best: a good incumbent from the start.
        let usual = self.usual_size();
        let first = bounded.iter().min_by_key(|of| (self.round_of)(of.pair).round_bytes().abs_diff(usual));
        let first = first.expect("the grid is not empty").pair;
        self.evaluate(first, &mut lines, BUCKETS.len());
        for (visited, of) in bounded.iter().enumerate() {
            if of.bound > self.best.limit() {
                break;
            }
            if self.evaluations + lines.counted / COUNTED > most_evaluations {
                return Some((lines.items, visited));
            }
            if of.pair != first {
                self.evaluate(of.pair, &mut lines, 0);
            }
        }
        None
    }

    /// Median size of the requests.
    fn usual_size(&self) -> u64 {
        let mut sizes: Vec<(u64, f64)> = self.classes.iter().map(|class| (class.sizes.0, class.count)).collect();
        sizes.sort_unstable_by_key(|&(size, _)| size);
        let half = 0.5 * sizes.iter().map(|&(_, count)| count).sum::<f64>();
        let mut below = 0.0;
        let middle = sizes.iter().find(|&&(_, count)| {
            below += count;
            below >= half
        });
        middle.map_or(0, |&(size, _)| size)
    }

    /// The cost of one pair, from level `from_level` on; given up when it cannot be the best any more.
    ///
    /// A cell's requests all contain its core, so they cost at least what the core costs; and at least their class's
    /// bound. Finer levels have larger cores. At an exact level the sum is the cost.
    fn evaluate(&mut self, pair: (u64, u64), lines: &mut LineLevels, from_level: usize) {
        let round = (self.round_of)(pair);
        self.bound_evaluations += self.classes.len() as u64;
        let least: Vec<f64> =
            self.classes.iter().map(|class| self.cost.bounds(&round, class.op, class.sizes).0).collect();
        let bound: f64 = self.classes.iter().zip(&least).map(|(class, least)| class.count * least).sum();
        let limit = self.best.limit();
        for level in from_level..=BUCKETS.len() {
            if !lines.is_useful(level) {
                continue;
            }
            let LineLevel { cells, exact } = lines.level(round.round_bytes(), level);
            let (mut total, mut rest) = (0.0, bound);
            for cell in cells {
                let class = cell.class as usize;
                let of_core = cell.core().map_or(0.0, |(offset, size)| {
                    self.evaluations += 1;
                    self.cost.cost(&round, self.classes[class].op, offset, size)
                });
                let count = f64::from(cell.count);
                total += count * of_core.max(least[class]);
                rest -= count * least[class];
                if total + rest > limit {
                    return;
                }
            }
            if *exact {
                return self.best.offer(pair, total);
            }
        }
    }
}

/// Prices every pair on every request by paper cost: what [`search`] must equal. See [`exhaustive_by`].
pub fn exhaustive(requests: &[Request], cluster: &Cluster, options: &SearchOptions) -> StripeChoice {
    exhaustive_by(&PaperCost(&CostModel::new(cluster)), requests, cluster, options)
}

/// Prices every pair on every request: Algorithm 2 as printed, with the corrections of math A.7. O(pairs x requests).
/// For checks; [`search_by`] returns the same pair.
pub fn exhaustive_by(
    cost: &impl RequestCost,
    requests: &[Request],
    cluster: &Cluster,
    options: &SearchOptions,
) -> StripeChoice {
    let two = TwoClasses::of(cluster);
    let (pairs, step_bytes) = grid(requests, &two, options);
    let mut best = Best::new();
    for &pair in &pairs {
        let round = Round::new(&two.widths(pair), cluster);
        let price = |request: &Request| cost.cost(&round, request.op, request.offset, request.size);
        best.offer(pair, requests.iter().map(price).sum());
    }
    let (pair, cost_s) = best.take();
    StripeChoice {
        widths: two.widths(pair),
        pair_bytes: pair,
        cost_s,
        evaluations: (pairs.len() * requests.len()) as u64,
        bound_evaluations: 0,
        pairs: pairs.len() as u64,
        step_bytes,
        error_bound: None,
    }
}
