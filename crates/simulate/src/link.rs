//! One direction of a link.

use crate::slab::{Line, Slab, Sub};
use crate::time::{after, whole};

/// FIFO. A link is either the last stage of its sub-requests, which then need no event at its end
/// ([`Link::reserve`]), or is followed by another ([`Link::arrive`]).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    ns_per_byte: f64,
    pub busy_ns: u64,
    /// When what was reserved is through.
    free_ns: u64,
    queue: Line,
    /// The sub-request on it.
    current: Option<Sub>,
}

/// What a link has begun to send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sending {
    pub sub: Sub,
    pub ends_ns: u64,
}

impl Link {
    pub(crate) fn new(s_per_byte: f64) -> Self {
        Self { ns_per_byte: s_per_byte * 1e9, busy_ns: 0, free_ns: 0, queue: Line::EMPTY, current: None }
    }

    /// A sub-request of `bytes` comes to the link, its last stage: when it is through, and not before `not_before_ns`.
    /// O(1).
    #[inline]
    pub(crate) fn reserve(&mut self, now_ns: u64, bytes: u64, not_before_ns: u64) -> u64 {
        let starts_ns = now_ns.max(self.free_ns);
        self.free_ns = after(starts_ns, whole(bytes as f64 * self.ns_per_byte)).max(not_before_ns);
        self.busy_ns = after(self.busy_ns, self.free_ns - starts_ns);
        self.free_ns
    }

    /// A sub-request comes to the link; `Some` when it is sent at once. O(1).
    #[inline]
    pub(crate) fn arrive(&mut self, now_ns: u64, slab: &mut Slab, sub: Sub) -> Option<Sending> {
        if self.current.is_some() {
            let slot = slab.add(sub);
            self.queue.push(slab, slot);
            return None;
        }
        Some(self.send(now_ns, sub))
    }

    /// The sub-request that the link has done. The link stays taken until [`Link::go_on`]. O(1).
    #[inline]
    pub(crate) fn done(&self) -> Sub {
        self.current.expect("an event of a link that sends")
    }

    /// The next in the queue, if there is one. O(1).
    #[inline]
    pub(crate) fn go_on(&mut self, now_ns: u64, slab: &mut Slab) -> Option<Sending> {
        self.current = None;
        let slot = self.queue.pop(slab)?;
        let sub = slab.remove(slot);
        Some(self.send(now_ns, sub))
    }

    #[inline]
    fn send(&mut self, now_ns: u64, sub: Sub) -> Sending {
        let takes_ns = whole(sub.bytes as f64 * self.ns_per_byte);
        // What comes through another link at the same time cannot be through this one before it is through that.
        let ends_ns = after(now_ns, takes_ns).max(sub.stamp_ns);
        self.busy_ns = after(self.busy_ns, ends_ns - now_ns);
        self.current = Some(sub);
        Sending { sub, ends_ns }
    }
}
