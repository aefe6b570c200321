//! The sub-requests that wait in queues, in slots that are used again. What is being served or sent is with its resource.

/// No slot.
pub(crate) const NONE: u32 = u32::MAX;

/// One sub-request on its way: 40 bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sub {
    /// First byte on the server's disk.
    pub position: u64,
    pub bytes: u64,
    /// In a device's queue: when it came there. Between two pipelined links: when the first is done.
    pub stamp_ns: u64,
    pub process: u32,
    /// The next one in the same queue, or free slot.
    pub next: u32,
    pub server: u16,
    pub write: bool,
    /// Whether the head is where it begins, as its queue found when it came.
    pub adjacent: bool,
}

/// A slab with a list of free slots: no allocation once it has its size.
#[derive(Debug)]
pub(crate) struct Slab {
    slots: Vec<Sub>,
    free: u32,
}

impl Slab {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), free: NONE }
    }

    /// Slots in use at most at any time.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// O(1).
    #[inline]
    pub(crate) fn add(&mut self, sub: Sub) -> u32 {
        if self.free == NONE {
            self.slots.push(sub);
            return self.slots.len() as u32 - 1;
        }
        let slot = self.free;
        self.free = self.slots[slot as usize].next;
        self.slots[slot as usize] = sub;
        slot
    }

    /// O(1).
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) -> Sub {
        let sub = self.slots[slot as usize];
        self.slots[slot as usize].next = self.free;
        self.free = slot;
        sub
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> &Sub {
        &self.slots[slot as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut Sub {
        &mut self.slots[slot as usize]
    }
}

/// A FIFO queue that runs through [`Sub::next`]: 8 bytes, no allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    first: u32,
    last: u32,
}

impl Line {
    pub(crate) const EMPTY: Self = Self { first: NONE, last: NONE };

    /// O(1).
    #[inline]
    pub(crate) fn push(&mut self, slab: &mut Slab, slot: u32) {
        slab.get_mut(slot).next = NONE;
        if self.first == NONE {
            self.first = slot;
        } else {
            slab.get_mut(self.last).next = slot;
        }
        self.last = slot;
    }

    /// O(1).
    #[inline]
    pub(crate) fn pop(&mut self, slab: &Slab) -> Option<u32> {
        let slot = self.first;
        if slot == NONE {
            return None;
        }
        self.first = slab.get(slot).next;
        Some(slot)
    }
}
