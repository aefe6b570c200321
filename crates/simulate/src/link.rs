//! One direction of a link.

use crate::slab::{Line, NONE, Slab};
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
    /// The sub-request on it; [`NONE`] when it is free.
    current: u32,
}

/// What a link has begun to send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sending {
    pub slot: u32,
    pub ends_ns: u64,
}

impl Link {
    pub(crate) fn new(s_per_byte: f64) -> Self {
        Self { ns_per_byte: s_per_byte * 1e9, busy_ns: 0, free_ns: 0, queue: Line::EMPTY, current: NONE }
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
    pub(crate) fn arrive(&mut self, now_ns: u64, slab: &mut Slab, slot: u32) -> Option<Sending> {
        if self.current != NONE {
            self.queue.push(slab, slot);
            return None;
        }
        Some(self.send(now_ns, slab, slot))
    }

    /// The link has done its sub-request, which is given. It stays taken until [`Link::go_on`]. O(1).
    #[inline]
    pub(crate) fn done(&self) -> u32 {
        self.current
    }

    /// The next in the queue, if there is one. O(1).
    #[inline]
    pub(crate) fn go_on(&mut self, now_ns: u64, slab: &Slab) -> Option<Sending> {
        self.current = NONE;
        let slot = self.queue.pop(slab)?;
        Some(self.send(now_ns, slab, slot))
    }

    #[inline]
    fn send(&mut self, now_ns: u64, slab: &Slab, slot: u32) -> Sending {
        let sub = slab.get(slot);
        let takes_ns = whole(sub.bytes as f64 * self.ns_per_byte);
        // What comes through another link at the same time cannot be through this one before it is through that.
        let ends_ns = after(now_ns, takes_ns).max(sub.stamp_ns);
        self.busy_ns = after(self.busy_ns, ends_ns - now_ns);
        self.current = slot;
        Sending { slot, ends_ns }
    }
}
