//! The queue of an elevator.

use crate::slab::{Slab, Sub};

/// The present sweep and the next one. Sub-requests of the next sweep are kept as they come and sorted when it begins;
/// the present one is then read from front to back. Only one that joins a sweep under way goes through a heap. So a
/// sub-request costs the logarithm of a short time, and moves through memory in order.
#[derive(Debug, Default)]
pub(crate) struct Sweeps {
    /// Sorted, from `at` on.
    present: Vec<Waiting>,
    at: usize,
    /// Those that have joined the present sweep: position, order of arrival and slot, in one number.
    joined: Heap,
    next: Vec<Waiting>,
    arrivals: u64,
    /// Where the sub-request that was started last begins.
    last_start: Option<u64>,
}

/// A sub-request that waits for a sweep: 32 bytes. The server is the queue's own.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    position: u64,
    bytes: u64,
    stamp_ns: u64,
    process: u32,
    /// Number in its sweep, twice, and whether it writes.
    order_and_write: u32,
}

/// Bits of a heap's entry for the slot; the arrivals have the other bits of its lower half, and wrap after 2^36 of a
/// server.
const SLOT_BITS: u32 = 28;

/// Most slots that an entry can name, and most that wait for one sweep.
pub(crate) const MOST_SLOTS: usize = (1 << SLOT_BITS) - 1;

impl Sweeps {
    /// A sub-request begins at `position` without having waited.
    #[inline]
    pub(crate) fn starts(&mut self, position: u64) {
        self.last_start = Some(position);
    }

    /// O(1) for the next sweep, O(log) of those that have joined for the present one.
    #[inline]
    pub(crate) fn push(&mut self, slab: &mut Slab, sub: Sub) {
        if self.last_start.is_none_or(|last| sub.position > last) {
            self.arrivals += 1;
            let order = (self.arrivals << SLOT_BITS) | u64::from(slab.add(sub));
            self.joined.push(u128::from(sub.position) << 64 | u128::from(order));
        } else {
            let Sub { position, bytes, stamp_ns, process, write, .. } = sub;
            let order_and_write = (self.next.len() as u32) << 1 | u32::from(write);
            self.next.push(Waiting { position, bytes, stamp_ns, process, order_and_write });
        }
    }

    /// The next one's position. Looking does not begin a sweep: what comes meanwhile may still join it. O(1), or the
    /// length of the next sweep where the present one is over.
    #[inline]
    pub(crate) fn peek(&self) -> Option<u64> {
        let sorted = self.present.get(self.at).map(|waiting| waiting.position);
        let joined = self.joined.0.first().map(|entry| (entry >> 64) as u64);
        match (sorted, joined) {
            (Some(sorted), Some(joined)) => Some(sorted.min(joined)),
            (None, None) => self.next.iter().map(|waiting| waiting.position).min(),
            (sorted, joined) => sorted.or(joined),
        }
    }

    /// O(log queue) on average over a sweep.
    #[inline]
    pub(crate) fn pop(&mut self, slab: &mut Slab) -> Option<Sub> {
        if self.at == self.present.len() && self.joined.0.is_empty() {
            self.begin();
        }
        let sorted = self.present.get(self.at);
        // Those that joined came later than all that were sorted.
        let joined = self
            .joined
            .0
            .first()
            .filter(|&&entry| sorted.is_none_or(|waiting| ((entry >> 64) as u64) < waiting.position));
        let sub = match (joined, sorted) {
            (Some(&entry), _) => {
                self.joined.pop();
                slab.remove(entry as u32 & MOST_SLOTS as u32)
            }
            (None, Some(&waiting)) => {
                self.at += 1;
                waiting.sub()
            }
            (None, None) => return None,
        };
        self.last_start = Some(sub.position);
        Some(sub)
    }

    /// The next sweep becomes the present one.
    fn begin(&mut self) {
        self.present.clear();
        self.at = 0;
        std::mem::swap(&mut self.present, &mut self.next);
        self.present.sort_unstable_by_key(|waiting| (waiting.position, waiting.order_and_write));
    }
}

impl Waiting {
    #[inline]
    fn sub(self) -> Sub {
        Sub {
            position: self.position,
            bytes: self.bytes,
            stamp_ns: self.stamp_ns,
            process: self.process,
            next: 0,
            server: 0,
            write: self.order_and_write & 1 != 0,
            adjacent: false,
        }
    }
}

/// A binary heap, least first.
#[derive(Debug, Default)]
struct Heap(Vec<u128>);

impl Heap {
    #[inline]
    fn push(&mut self, entry: u128) {
        let mut at = self.0.len();
        self.0.push(entry);
        let heap = self.0.as_mut_slice();
        while at > 0 {
            let parent = (at - 1) / 2;
            if heap[parent] <= entry {
                break;
            }
            heap[at] = heap[parent];
            at = parent;
        }
        heap[at] = entry;
    }

    #[inline]
    fn pop(&mut self) {
        let Some(entry) = self.0.pop() else { return };
        let heap = self.0.as_mut_slice();
        if heap.is_empty() {
            return;
        }
        let mut at = 0;
        loop {
            let mut child = 2 * at + 1;
            if child >= heap.len() {
                break;
            }
            if child + 1 < heap.len() && heap[child + 1] < heap[child] {
                child += 1;
            }
            if entry <= heap[child] {
                break;
            }
            heap[at] = heap[child];
            at = child;
        }
        heap[at] = entry;
    }
}
