//! What happens when: the pending events of a run.

use crate::draw::{TURN_BITS, Ties};
use crate::time::ns;

/// What ends or is due at an event's time. At one time events happen in the order of this list, those of a kind in an order
/// that the time and their numbers make ([`Ties`]): a run depends on nothing else, so it can be repeated and checked against
/// another implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum EventKind {
    /// A server's device has served a sub-request.
    Device = 0,
    /// One that serves several side by side has served the sub-request of that slot.
    Place = 1,
    /// A server's link has sent one.
    ServerOut = 2,
    /// A server's link has taken one in.
    ServerIn = 3,
    /// A node's link has sent one.
    ClientOut = 4,
    /// A thread of the metadata server has done an operation.
    Metadata = 5,
    /// The exchange of a communicator is over.
    Release = 6,
    /// A process goes on, after a think time or when a message has come.
    Wake = 7,
    /// A device has waited long enough for the next request of a process.
    Patience = 8,
}

const KINDS: [EventKind; 9] = [
    EventKind::Device,
    EventKind::Place,
    EventKind::ServerOut,
    EventKind::ServerIn,
    EventKind::ClientOut,
    EventKind::Metadata,
    EventKind::Release,
    EventKind::Wake,
    EventKind::Patience,
];

/// Children of a node: four 16-byte events are a cache line.
const CHILDREN: usize = 4;

/// Behind all events.
const NONE: u128 = u128::MAX;

/// Pending events: a 4-ary heap of 16-byte keys (time, kind, turn, number). Every event belongs to a resource or a process
/// that has one at a time, or has a queue that says which is meant, so it needs no sequence numbers.
#[derive(Debug)]
pub(crate) struct Agenda {
    /// [`NONE`] from `count` on, up to where each node has all of its children or none: no loop has to look for their number.
    heap: Vec<u128>,
    count: usize,
    /// The first entry has happened; the next event to be added takes its place, which saves half of the work.
    hole: bool,
    ties: Ties,
}

impl Agenda {
    pub(crate) fn new(ties: Ties) -> Self {
        Self { heap: vec![NONE], count: 0, hole: false, ties }
    }

    /// O(log events).
    #[inline]
    pub(crate) fn at(&mut self, time_ns: u64, kind: EventKind, number: u32) {
        self.add(time_ns, kind, self.ties.turn(time_ns, number), number);
    }

    /// [`Agenda::at`] for a time in seconds, not negative; [`Agenda::next`] gives its bits, which order as it does. Ties are
    /// those of the nanosecond.
    #[inline]
    pub(crate) fn at_s(&mut self, time_s: f64, kind: EventKind, number: u32) {
        self.add(time_s.to_bits(), kind, self.ties.turn(ns(time_s), number), number);
    }

    #[inline]
    fn add(&mut self, time: u64, kind: EventKind, turn: u64, number: u32) {
        let order = (u64::from(kind as u8) << TURN_BITS | turn) << 32 | u64::from(number);
        let event = u128::from(time) << 64 | u128::from(order);
        if self.hole {
            self.hole = false;
            self.sift_down(event);
        } else {
            if self.count == self.heap.len() {
                self.heap.extend([NONE; CHILDREN]);
            }
            self.count += 1;
            self.sift_up(event);
        }
    }

    /// Whether nothing is pending. O(1).
    pub(crate) fn is_empty(&self) -> bool {
        self.count == usize::from(self.hole)
    }

    /// The next event. O(log events).
    #[inline]
    pub(crate) fn next(&mut self) -> Option<(u64, EventKind, u32)> {
        if std::mem::take(&mut self.hole) {
            self.count -= 1;
            let last = std::mem::replace(&mut self.heap[self.count], NONE);
            if self.count > 0 {
                self.sift_down(last);
            }
        }
        if self.count == 0 {
            return None;
        }
        let event = self.heap[0];
        self.hole = true;
        Some(((event >> 64) as u64, KINDS[(event as u64 >> (32 + TURN_BITS)) as usize], event as u32))
    }

    /// Puts `event` where the first entry was.
    #[inline]
    fn sift_down(&mut self, event: u128) {
        let heap = self.heap.as_mut_slice();
        let mut at = 0;
        loop {
            let first = CHILDREN * at + 1;
            let Some(&[a, b, c, d]) = heap.get(first..first + CHILDREN) else { break };
            // In pairs, which do not wait for each other.
            let (left, right) = (if b < a { (b, 1) } else { (a, 0) }, if d < c { (d, 3) } else { (c, 2) });
            let (least, child) = if right.0 < left.0 { right } else { left };
            if event <= least {
                break;
            }
            heap[at] = least;
            at = first + child;
        }
        heap[at] = event;
    }

    #[inline]
    fn sift_up(&mut self, event: u128) {
        let heap = self.heap.as_mut_slice();
        let mut at = self.count - 1;
        while at > 0 {
            let parent = (at - 1) / CHILDREN;
            if heap[parent] <= event {
                break;
            }
            heap[at] = heap[parent];
            at = parent;
        }
        heap[at] = event;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Adds and takes in any order, as a sorted set does it that holds the turns, too.
        #[test]
        fn gives_events_in_order(
            steps in prop::collection::vec(prop::option::of((0_u64..40, 0_usize..8, 0_u32..30)), 1..300),
            seed in any::<u64>(),
        ) {
            let ties = Ties::new(seed);
            let (mut agenda, mut set) = (Agenda::new(ties), BTreeSet::new());
            let expect = |set: &mut BTreeSet<(u64, usize, u64, u32)>, agenda: &mut Agenda| {
                let next = agenda.next().map(|(time, kind, number)| (time, kind as usize, number));
                next == set.pop_first().map(|(time, kind, _, number)| (time, kind, number))
            };
            for step in steps {
                match step {
                    Some((time, kind, number)) => {
                        if set.insert((time, kind, ties.turn(time, number), number)) {
                            agenda.at(time, KINDS[kind], number);
                        }
                    }
                    None => prop_assert!(expect(&mut set, &mut agenda)),
                }
            }
            while !set.is_empty() {
                prop_assert!(expect(&mut set, &mut agenda));
            }
            prop_assert!(agenda.next().is_none());
        }
    }

    #[test]
    fn seconds_have_the_ties_of_their_nanoseconds() {
        let (mut by_ns, mut by_s) = (Agenda::new(Ties::new(9)), Agenda::new(Ties::new(9)));
        for (time_ns, number) in (0..60_u32).map(|i| (u64::from(i % 4) * 1_000_003, i)) {
            by_ns.at(time_ns, EventKind::Wake, number);
            by_s.at_s(time_ns as f64 * 1e-9, EventKind::Wake, number);
        }
        while let Some((time_ns, kind, number)) = by_ns.next() {
            assert_eq!(by_s.next(), Some(((time_ns as f64 * 1e-9).to_bits(), kind, number)));
        }
        assert!(by_s.next().is_none());
    }
}
