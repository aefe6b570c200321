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

use rayon::prelude::*;
use std::collections::HashMap;
use stripewise_model::{Cluster, CostModel, Op, Request, Round, TierWidths};

/// Costs within this relative distance of the least one are ties; the largest stripes win (math A.7).
pub const TIE_TOLERANCE: f64 = 1e-9;

/// Room for the rounding of sums in another order: far below [`TIE_TOLERANCE`], far above the rounding.
const SUM_SLACK: f64 = 1e-10;

/// Most steps on one axis: beyond, the step grows, so that a mean request of gigabytes does not make the grid endless.
const MAX_STEPS: u64 = 1024;

/// Most classes of (size, operation); with more distinct sizes neighbours share a class and its bounds.
const MAX_CLASSES: usize = 64;

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
    /// ... as long as that takes no more cost evaluations than this; then the pairs that are left race.
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
pub struct Found {
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
    /// Divides the tiers by their mean startup time, at the largest ratio between neighbours. With one tier, or when
    /// all startups are equal and there are not exactly two tiers, there is no slow class. With two tiers, the one
    /// of the longer startup is the slow one; the first, if they are equal.
    pub fn of(cluster: &Cluster) -> Self {
        let startup = |tier: usize| {
            let profile = &cluster.tiers[tier].profile;
            let (read, write) = (&profile.read, &profile.write);
            read.startup_min_s + read.startup_max_s + write.startup_min_s + write.startup_max_s
        };
        let mut order: Vec<usize> = (0..cluster.tiers.len()).collect();
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
        let mut fast = vec![true; order.len()];
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

/// A request as the search sees it.
#[derive(Clone, Copy)]
struct Item {
    offset: u64,
    size: u64,
    class: u32,
}

/// Requests of one operation and of (nearly) one size.
#[derive(Clone, Copy)]
struct Class {
    op: Op,
    sizes: (u64, u64),
    count: f64,
}

/// Sorts the requests that cost anything into classes. O(n log n) in the number of distinct sizes, O(n) in the rest.
fn classify(requests: &[Request]) -> (Vec<Item>, Vec<Class>) {
    let mut counts: HashMap<(Op, u64), u64> = HashMap::new();
    for request in requests.iter().filter(|request| request.size > 0) {
        *counts.entry((request.op, request.size)).or_default() += 1;
    }
    let mut distinct: Vec<((Op, u64), u64)> = counts.iter().map(|(&key, &count)| (key, count)).collect();
    distinct.sort_unstable();
    let per_class = distinct.len().div_ceil(MAX_CLASSES).max(1);
    let mut classes: Vec<Class> = Vec::new();
    let mut members = 0;
    for ((op, size), count) in distinct {
        match classes.last_mut() {
            Some(class) if class.op == op && members < per_class => {
                class.sizes.1 = size;
                class.count += count as f64;
                members += 1;
            }
            _ => {
                classes.push(Class { op, sizes: (size, size), count: count as f64 });
                members = 1;
            }
        }
        counts.insert((op, size), classes.len() as u64 - 1);
    }
    let items = requests.iter().filter(|request| request.size > 0).map(|request| Item {
        offset: request.offset,
        size: request.size,
        class: counts[&(request.op, request.size)] as u32,
    });
    (items.collect(), classes)
}

/// Requests of one class whose phases are close: the interval `[lo, hi]` holds them all.
#[derive(Clone, Copy)]
struct Cell {
    lo: u64,
    hi: u64,
    least_size: u64,
    class: u32,
    count: u32,
}

impl Cell {
    /// Start and size of what every request of the cell contains, after the phase; `None` if that is nothing.
    #[inline]
    fn core(&self) -> Option<(u64, u64)> {
        let size = self.least_size.checked_sub(self.hi - self.lo).filter(|&size| size > 0)?;
        Some((self.hi, size))
    }
}

/// All requests on a line `S`, as cells in an order that mixes phases and classes.
struct Level {
    cells: Vec<Cell>,
    /// Every cell is one phase and one size: its core is its requests.
    exact: bool,
}

/// Cells per round and class, coarse to fine; each request for itself comes last.
const BUCKETS: [u64; 3] = [32, 256, 2048];

/// The levels of the lines that were visited, each made when first asked for.
struct Lines {
    items: Vec<Item>,
    classes: usize,
    levels: HashMap<(u64, usize), Level>,
    kept_cells: usize,
}

impl Lines {
    fn new(items: Vec<Item>, classes: usize) -> Self {
        Self { items, classes, levels: HashMap::new(), kept_cells: 0 }
    }

    /// Level `level` of the line `S = round_bytes`, up to `BUCKETS.len()`. The first call for a level is O(requests);
    /// nothing is sorted.
    fn level(&mut self, round_bytes: u64, level: usize) -> &Level {
        let key = (round_bytes, level);
        if !self.levels.contains_key(&key) {
            // A bound on memory: start over rather than keep every line.
            if self.kept_cells > 4 * self.items.len().max(100_000) {
                self.levels.clear();
                self.kept_cells = 0;
            }
            let made = match BUCKETS.get(level) {
                Some(&buckets) => self.bucketed(round_bytes, buckets),
                None => self.single(round_bytes),
            };
            self.kept_cells += made.cells.len();
            self.levels.insert(key, made);
        }
        &self.levels[&key]
    }

    /// Is level `level` so much coarser than the requests that it is worth its making.
    fn is_useful(&self, level: usize) -> bool {
        BUCKETS.get(level).is_none_or(|&buckets| 2 * buckets * self.classes as u64 <= self.items.len() as u64)
    }

    fn bucketed(&self, round_bytes: u64, buckets: u64) -> Level {
        let width = round_bytes.div_ceil(buckets);
        let empty = Cell { lo: u64::MAX, hi: 0, least_size: u64::MAX, class: 0, count: 0 };
        let mut cells = vec![empty; buckets as usize * self.classes];
        let mut exact = true;
        for item in &self.items {
            let phase = item.offset % round_bytes;
            let cell = &mut cells[(phase / width) as usize * self.classes + item.class as usize];
            let first = cell.count == 0;
            exact &= first || (cell.lo == phase && cell.hi == phase && cell.least_size == item.size);
            cell.lo = cell.lo.min(phase);
            cell.hi = cell.hi.max(phase);
            cell.least_size = cell.least_size.min(item.size);
            cell.class = item.class;
            cell.count += 1;
        }
        cells.retain(|cell| cell.count > 0);
        Level { cells: in_mixed_order(&cells), exact }
    }

    fn single(&self, round_bytes: u64) -> Level {
        let cell = |item: &Item| {
            let phase = item.offset % round_bytes;
            Cell { lo: phase, hi: phase, least_size: item.size, class: item.class, count: 1 }
        };
        let cells: Vec<Cell> = self.items.iter().map(cell).collect();
        Level { cells: in_mixed_order(&cells), exact: true }
    }
}

/// Visits all places once in steps of about the golden ratio of their number: a prefix is then like the whole.
fn in_mixed_order<T: Copy>(of: &[T]) -> Vec<T> {
    let n = of.len();
    let mut stride = ((n as f64 * 0.618_033_988_749_895) as usize).max(1);
    while gcd(stride as u64, n as u64) > 1 {
        stride += 1;
    }
    (0..n).map(|i| of[(i as u128 * stride as u128 % n as u128) as usize]).collect()
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
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
pub fn search(requests: &[Request], cluster: &Cluster, options: &SearchOptions) -> Found {
    search_by(&PaperCost(&CostModel::new(cluster)), requests, cluster, options)
}

/// Searches the grid for the pair of widths of least total cost, ties to the largest stripes: the result of
/// [`exhaustive_by`]. Costs one bound per pair and class of (size, operation), then evaluations for the few pairs whose
/// bound is below the optimum. Without requests every pair costs 0, and the largest is returned.
pub fn search_by(cost: &impl RequestCost, requests: &[Request], cluster: &Cluster, options: &SearchOptions) -> Found {
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
    Found {
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
    classes: Vec<Class>,
    round_of: &'a R,
    evaluations: u64,
    bound_evaluations: u64,
    best: Best,
}

impl<C: RequestCost, R: Fn((u64, u64)) -> Round + Sync> Search<'_, C, R> {
    /// Exact: pairs in order of bound, until the bound alone is too much. After `most_evaluations` it gives the requests
    /// back with the number of pairs that are done.
    fn visit(&mut self, items: Vec<Item>, bounded: &[Bounded], most_evaluations: u64) -> Option<(Vec<Item>, usize)> {
        let mut lines = Lines::new(items, self.classes.len());
        // A round as long as a request is usually close to the best: a good incumbent from the start.
        let usual = self.usual_size();
        let first = bounded.iter().min_by_key(|of| (self.round_of)(of.pair).round_bytes().abs_diff(usual));
        let first = first.expect("the grid is not empty").pair;
        self.evaluate(first, &mut lines, BUCKETS.len());
        for (visited, of) in bounded.iter().enumerate() {
            if of.bound > self.best.limit() {
                break;
            }
            if self.evaluations > most_evaluations {
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
    fn evaluate(&mut self, pair: (u64, u64), lines: &mut Lines, from_level: usize) {
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
            let Level { cells, exact } = lines.level(round.round_bytes(), level);
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

    /// Sampled: pairs race on prefixes of a random order of the requests; a pair leaves when its cost is above the
    /// best known full cost by a confidence bound (empirical Bernstein for draws without replacement, Bardenet and
    /// Maillard 2015, Theorem 4). The pairs that remain are verified on all requests.
    ///
    /// What is sampled is a request's cost above its class's lower bound: the sum of the bounds is known exactly, so
    /// the sizes add no variance.
    fn race(&mut self, mut items: Vec<Item>, bounded: &[Bounded], sampling: &Sampling) -> ErrorBound {
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
            racers.par_iter_mut().with_min_len(1).for_each(|racer| {
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
                racer.floor = racer.of.bound + all as f64 * racer.least_mean(next, all, range, log_term);
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
    fn verify(&mut self, items: &[Item], pair: (u64, u64), verified: &mut Vec<(u64, u64)>) {
        verified.push(pair);
        let round = (self.round_of)(pair);
        let (cost, classes) = (self.cost, &self.classes);
        let price = |item: &Item| cost.cost(&round, classes[item.class as usize].op, item.offset, item.size);
        // Chunks in order: the sum does not depend on the number of threads.
        let sums: Vec<f64> = items.par_chunks(8192).map(|chunk| chunk.iter().map(price).sum()).collect();
        self.evaluations += items.len() as u64;
        self.best.offer(pair, sums.iter().sum());
    }
}

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

/// Prices every pair on every request by paper cost: what [`search`] must equal. See [`exhaustive_by`].
pub fn exhaustive(requests: &[Request], cluster: &Cluster, options: &SearchOptions) -> Found {
    exhaustive_by(&PaperCost(&CostModel::new(cluster)), requests, cluster, options)
}

/// Prices every pair on every request: Algorithm 2 as printed, with the corrections of math A.7. O(pairs x requests).
/// For checks; [`search_by`] returns the same pair.
pub fn exhaustive_by(
    cost: &impl RequestCost,
    requests: &[Request],
    cluster: &Cluster,
    options: &SearchOptions,
) -> Found {
    let two = TwoClasses::of(cluster);
    let (pairs, step_bytes) = grid(requests, &two, options);
    let mut best = Best::new();
    for &pair in &pairs {
        let round = Round::new(&two.widths(pair), cluster);
        let price = |request: &Request| cost.cost(&round, request.op, request.offset, request.size);
        best.offer(pair, requests.iter().map(price).sum());
    }
    let (pair, cost_s) = best.take();
    Found {
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
