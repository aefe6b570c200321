//! Sizes of requests that agree with counters: a class of size each, the commonest sizes, and the sum.

use crate::stated::Stated;

/// Largest size of each class but the last, as Darshan counts them.
const CLASS_ENDS: [u64; 9] = [100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30];

fn class_of(size: u64) -> usize {
    CLASS_ENDS.iter().position(|end| size <= *end).unwrap_or(CLASS_ENDS.len())
}

/// Sizes and how many requests have each; short, however many requests there are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Sizes {
    /// (size in bytes, requests), no entry without requests.
    pub runs: Vec<(u64, u64)>,
    /// Whether no sizes agree with all that is stated: the sum and the number of requests are kept.
    pub contradictory: bool,
}

impl Sizes {
    /// Number of requests.
    pub fn requests(&self) -> u64 {
        self.runs.iter().map(|(_, count)| count).sum()
    }

    /// Bytes of all requests.
    pub fn bytes(&self) -> u128 {
        self.runs.iter().map(|(size, count)| u128::from(*size) * u128::from(*count)).sum()
    }

    /// The largest size.
    pub fn largest(&self) -> u64 {
        self.runs.iter().map(|(size, _)| *size).max().unwrap_or(0)
    }

    /// `most` of the requests (at most all), each size in its share.
    pub fn sample(&self, most: u64) -> Sizes {
        let all = u128::from(self.requests().max(1));
        let most = u128::from(most).min(all);
        let mut before = 0u128;
        let mut runs = Vec::with_capacity(self.runs.len());
        for (size, count) in &self.runs {
            let after = before + u128::from(*count);
            let kept = after * most / all - before * most / all;
            if kept > 0 {
                runs.push((*size, kept as u64));
            }
            before = after;
        }
        Sizes { runs, contradictory: self.contradictory }
    }

    fn push(&mut self, size: u64, count: u64) {
        if count > 0 {
            self.runs.push((size, count));
        }
    }

    /// `count` requests whose sizes differ by at most one byte.
    fn push_even(&mut self, bytes: u128, count: u64) {
        if count > 0 {
            let (each, rest) = ((bytes / u128::from(count)) as u64, (bytes % u128::from(count)) as u64);
            self.push(each, count - rest);
            self.push(each.saturating_add(1), rest);
        }
    }
}

/// Which direction gets the commonest sizes first, where both have requests of that class.
#[derive(Clone, Copy)]
enum Share {
    Even,
    First(usize),
}

/// Sizes of the requests of both directions (the commonest sizes are counted for both together).
pub(crate) fn sizes(both: &[Stated; 2]) -> [Sizes; 2] {
    for share in [Share::Even, Share::First(0), Share::First(1)] {
        let common = shared_out(both, share);
        if let (Some(reads), Some(writes)) = (exact(&both[0], &common[0]), exact(&both[1], &common[1])) {
            return [reads, writes];
        }
    }
    // The commonest sizes fit neither way: without them, then with nothing but the sum.
    both.each_ref().map(|stated| {
        let mut sizes = exact(stated, &[]).unwrap_or_else(|| {
            let mut even = Sizes::default();
            even.push_even(u128::from(stated.bytes), stated.requests);
            even
        });
        sizes.contradictory = stated.requests > 0;
        sizes
    })
}

/// The commonest sizes of each direction.
fn shared_out(both: &[Stated; 2], share: Share) -> [Vec<(u64, u64)>; 2] {
    let mut left = both.each_ref().map(|stated| stated.histogram.unwrap_or([0; 10]));
    let mut common = [Vec::new(), Vec::new()];
    // The list is of the record; a direction without requests has none.
    let listed = both.iter().map(|stated| &stated.common).find(|common| !common.is_empty());
    for &(size, count) in listed.into_iter().flatten() {
        let class = class_of(size);
        let [reads, writes] = [left[0][class], left[1][class]];
        let all = u128::from(reads) + u128::from(writes);
        let count = u128::from(count).min(all);
        let of_reads = match share {
            Share::Even if all > 0 => (count * u128::from(reads) / all) as u64,
            Share::First(0) => count.min(u128::from(reads)) as u64,
            _ => (count - count.min(u128::from(writes))) as u64,
        };
        // Rounding down may leave more for the writes than there are.
        let of_reads = of_reads.max((count - count.min(u128::from(writes))) as u64);
        for (direction, own) in [of_reads, (count - u128::from(of_reads)) as u64].into_iter().enumerate() {
            left[direction][class] -= own;
            if own > 0 {
                common[direction].push((size, own));
            }
        }
    }
    common
}

/// Sizes with these among them that agree with the classes, the number and the sum; `None` where there are none.
///
/// What is not of a known size stands equally far between the ends of its class in every class.
fn exact(stated: &Stated, common: &[(u64, u64)]) -> Option<Sizes> {
    let mut sizes = Sizes::default();
    let Some(mut left) = stated.histogram else {
        if !common.is_empty() {
            return None;
        }
        sizes.push_even(u128::from(stated.bytes), stated.requests);
        return Some(sizes);
    };
    if left.iter().map(|count| u128::from(*count)).sum::<u128>() != u128::from(stated.requests) {
        return None;
    }
    let mut bytes = u128::from(stated.bytes);
    for &(size, count) in common {
        left[class_of(size)] -= count;
        bytes = bytes.checked_sub(u128::from(size) * u128::from(count))?;
        sizes.push(size, count);
    }
    // Sums that all requests of a class may have.
    let ends = |class: usize| {
        let low = if class == 0 { 0 } else { CLASS_ENDS[class - 1] + 1 };
        let high = CLASS_ENDS.get(class).map_or(bytes.max(u128::from(low)), |end| u128::from(*end));
        (u128::from(low), high)
    };
    let limits: [(u128, u128); 10] = std::array::from_fn(|class| {
        let (count, (low, high)) = (u128::from(left[class]), ends(class));
        (count * low, count * high)
    });
    let lowest: u128 = limits.iter().map(|(low, _)| low).sum();
    let highest = limits.iter().fold(0u128, |sum, (_, high)| sum.saturating_add(*high));
    if !(lowest..=highest).contains(&bytes) {
        return None;
    }
    let part = if highest > lowest { (bytes - lowest) as f64 / (highest - lowest) as f64 } else { 0.0 };
    let mut totals = limits.map(|(low, high)| low + (((high - low) as f64 * part) as u128).min(high - low));
    // What rounding left over or took too much.
    settle(&mut totals, &limits, bytes);
    for (class, total) in totals.into_iter().enumerate() {
        sizes.push_even(total, left[class]);
    }
    Some(sizes)
}

/// Changes totals within their limits until their sum is `bytes`, which is within the sum of the limits.
fn settle(totals: &mut [u128; 10], limits: &[(u128, u128); 10], bytes: u128) {
    let sum = totals.iter().fold(0u128, |sum, total| sum.saturating_add(*total));
    let (mut missing, mut over) = (bytes.saturating_sub(sum), sum.saturating_sub(bytes));
    for (total, (low, high)) in totals.iter_mut().zip(limits) {
        let (up, down) = (missing.min(high - *total), over.min(*total - low));
        *total = *total + up - down;
        missing -= up;
        over -= down;
    }
    debug_assert!(missing == 0 && over == 0);
}

/// Sizes in the order in which they are laid out: those that keep the alignment first, and among them each size evenly
/// between the others, so that no part of the file has sizes of its own: none were measured.
pub(crate) struct Interleaved {
    /// Size, requests, requests given out.
    groups: [Vec<(u64, u64, u64)>; 2],
}

impl Interleaved {
    pub fn new(sizes: &Sizes, alignment: u64) -> Self {
        let (aligned, other): (Vec<_>, Vec<_>) =
            sizes.runs.iter().map(|&(size, count)| (size, count, 0)).partition(|(size, _, _)| size % alignment == 0);
        Interleaved { groups: [aligned, other] }
    }
}

impl Iterator for Interleaved {
    type Item = u64;

    /// O(sizes).
    fn next(&mut self) -> Option<u64> {
        let group = self.groups.iter_mut().find(|group| !group.is_empty())?;
        let due = |(_, count, given): &(u64, u64, u64)| (*given as f64 + 0.5) / *count as f64;
        let (at, _) = group.iter().enumerate().min_by(|(_, a), (_, b)| due(a).total_cmp(&due(b)))?;
        let (size, count, given) = &mut group[at];
        *given += 1;
        let size = *size;
        if given == count {
            group.swap_remove(at);
        }
        Some(size)
    }
}
