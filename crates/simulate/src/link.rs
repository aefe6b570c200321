//! One direction of a link.

use crate::slab::{Line, NONE, Slab};
use crate::time::{END_NS, after};

/// FIFO; 32 bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub ns_per_byte: f64,
    pub busy_ns: u64,
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
        Self { ns_per_byte: s_per_byte * 1e9, busy_ns: 0, queue: Line::EMPTY, current: NONE }
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
        let takes_ns = ((sub.bytes as f64 * self.ns_per_byte).round() as u64).min(END_NS);
        // What comes through another link at the same time cannot be through this one before it is through that.
        let ends_ns = after(now_ns, takes_ns).max(sub.stamp_ns);
        self.busy_ns = after(self.busy_ns, ends_ns - now_ns);
        self.current = slot;
        Sending { slot, ends_ns }
    }
}
