//! Requests of one phase, size and operation counted into cells, coarse to fine.

use std::collections::HashMap;
use stripewise_model::{Op, Request};

/// Most classes of (size, operation); with more distinct sizes neighbours share a class and its bounds.
const MAX_CLASSES: usize = 64;

/// A request as the search sees it.
#[derive(Clone, Copy)]
pub(super) struct SearchItem {
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) class: u32,
}

/// Requests of one operation and of (nearly) one size.
#[derive(Clone, Copy)]
pub(super) struct RequestClass {
    pub(super) op: Op,
    pub(super) sizes: (u64, u64),
    pub(super) count: f64,
}

/// Sorts the requests that cost anything into classes. O(n log n) in the number of distinct sizes, O(n) in the rest.
pub(super) fn classify(requests: &[Request]) -> (Vec<SearchItem>, Vec<RequestClass>) {
    let mut counts: HashMap<(Op, u64), u64> = HashMap::new();
    for request in requests.iter().filter(|request| request.size > 0) {
        *counts.entry((request.op, request.size)).or_default() += 1;
    }
    let mut distinct: Vec<((Op, u64), u64)> = counts.iter().map(|(&key, &count)| (key, count)).collect();
    distinct.sort_unstable();
    let per_class = distinct.len().div_ceil(MAX_CLASSES).max(1);
    let mut classes: Vec<RequestClass> = Vec::new();
    let mut members = 0;
    for ((op, size), count) in distinct {
        match classes.last_mut() {
            Some(class) if class.op == op && members < per_class => {
                class.sizes.1 = size;
                class.count += count as f64;
                members += 1;
            }
            _ => {
                classes.push(RequestClass { op, sizes: (size, size), count: count as f64 });
                members = 1;
            }
        }
        counts.insert((op, size), classes.len() as u64 - 1);
    }
    let items = requests.iter().filter(|request| request.size > 0).map(|request| SearchItem {
        offset: request.offset,
        size: request.size,
        class: counts[&(request.op, request.size)] as u32,
    });
    (items.collect(), classes)
}

/// Requests of one class whose phases are close: the interval `[lo, hi]` holds them all.
#[derive(Clone, Copy)]
pub(super) struct PhaseCell {
    lo: u64,
    hi: u64,
    pub(super) least_size: u64,
    pub(super) class: u32,
    pub(super) count: u32,
}

impl PhaseCell {
    /// Start and size of what every request of the cell contains, after the phase; `None` if that is nothing.
    #[inline]
    pub(super) fn core(&self) -> Option<(u64, u64)> {
        let size = self.least_size.checked_sub(self.hi - self.lo).filter(|&size| size > 0)?;
        Some((self.hi, size))
    }
}

/// All requests on a line `S`, as cells in an order that mixes phases and classes.
pub(super) struct LineLevel {
    pub(super) cells: Vec<PhaseCell>,
    /// Every cell is one phase and one size: its core is its requests.
    pub(super) exact: bool,
}

/// Cells per round and class, coarse to fine; each request for itself comes last.
pub(super) const BUCKETS: [u64; 3] = [32, 256, 2048];

/// The levels of the lines that were visited, each made when first asked for.
pub(super) struct LineLevels {
    pub(super) items: Vec<SearchItem>,
    classes: usize,
    levels: HashMap<(u64, usize), LineLevel>,
    kept_cells: usize,
    /// Requests that were counted into cells, over all levels made: the other part of the work.
    pub(super) counted: u64,
}

impl LineLevels {
    pub(super) fn new(items: Vec<SearchItem>, classes: usize) -> Self {
        Self { items, classes, levels: HashMap::new(), kept_cells: 0, counted: 0 }
    }

    /// Level `level` of the line `S = round_bytes`, up to `BUCKETS.len()`. The first call for a level is O(requests);
    /// nothing is sorted.
    pub(super) fn level(&mut self, round_bytes: u64, level: usize) -> &LineLevel {
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
            self.counted += self.items.len() as u64;
            self.levels.insert(key, made);
        }
        &self.levels[&key]
    }

    /// Is level `level` so much coarser than the requests that it is worth its making.
    pub(super) fn is_useful(&self, level: usize) -> bool {
        BUCKETS.get(level).is_none_or(|&buckets| 2 * buckets * self.classes as u64 <= self.items.len() as u64)
    }

    fn bucketed(&self, round_bytes: u64, buckets: u64) -> LineLevel {
        let width = round_bytes.div_ceil(buckets);
        let empty = PhaseCell { lo: u64::MAX, hi: 0, least_size: u64::MAX, class: 0, count: 0 };
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
        LineLevel { cells: in_mixed_order(&cells), exact }
    }

    fn single(&self, round_bytes: u64) -> LineLevel {
        let cell = |item: &SearchItem| {
            let phase = item.offset % round_bytes;
            PhaseCell { lo: phase, hi: phase, least_size: item.size, class: item.class, count: 1 }
        };
        let cells: Vec<PhaseCell> = self.items.iter().map(cell).collect();
        LineLevel { cells: in_mixed_order(&cells), exact: true }
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
