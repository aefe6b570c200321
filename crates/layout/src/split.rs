//! Splitting a request into one sub-request per region and server.

use crate::layout::{Layout, MAX_OFFSET, Region, ServerId};
use smallvec::SmallVec;

/// The part of a request that one server serves in one region: contiguous in the datafile, scattered over the
/// request (see [`Layout::pieces`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubRequest {
    /// Index of the region.
    pub region: usize,
    /// Index of the stripe in the region's round.
    pub slot: usize,
    /// The server.
    pub server: ServerId,
    /// First byte in the server's datafile.
    pub datafile_offset: u64,
    /// Bytes; at least 1.
    pub len: u64,
    /// The part of the request that lies in this region, as file offsets.
    pub from: u64,
    /// End (exclusive) of that part.
    pub to: u64,
}

/// The sub-requests of one request, in order of region and slot; no allocation for up to 16.
pub type SubRequests = SmallVec<[SubRequest; 16]>;

impl Layout {
    /// Splits the request `[offset, offset + len)`. Servers that hold none of its bytes do not appear; `len` 0 gives
    /// none; what lies beyond the largest file offset is left out. O(log regions + regions touched x their stripes),
    /// and O(log stripes + sub-requests) for a request no longer than a round; no allocation for up to 16 sub-requests.
    pub fn split(&self, offset: u64, len: u64) -> SubRequests {
        let mut out = SubRequests::new();
        self.for_each_sub(offset, len, |sub| out.push(sub));
        out
    }

    /// [`Layout::split`] that gives each sub-request to `take` instead of making a list.
    #[inline]
    pub fn for_each_sub(&self, offset: u64, len: u64, mut take: impl FnMut(SubRequest)) {
        let end = offset.saturating_add(len).min(MAX_OFFSET + 1);
        if offset >= end {
            return;
        }
        let mut region = self.region_at(offset);
        let mut from = offset;
        while from < end {
            let to = end.min(self.region_end(region));
            self.regions()[region].for_each_sub(region, from, to, &mut take);
            from = to;
            region += 1;
        }
    }

    /// The one sub-request of a request whose bytes all lie in one stripe of one round, or in a region of one stripe; `None`
    /// where [`Layout::split`] gives none or several. `offset + len` must be at most `MAX_OFFSET + 1`.
    ///
    /// Most requests are such ones, so it costs less than a list of one: O(log regions), and where the region has several
    /// stripes one division and O(log stripes).
    #[inline]
    pub fn only_sub(&self, offset: u64, len: u64) -> Option<SubRequest> {
        let region = self.region_at(offset);
        let row = &self.regions()[region];
        let to = offset + len;
        if len == 0 || to > self.region_end(region) {
            return None;
        }
        if let [only] = row.stripes() {
            // All bytes from the origin on are in one datafile: there they stand as in the file.
            return Some(SubRequest {
                region,
                slot: 0,
                server: only.server,
                datafile_offset: offset,
                len,
                from: offset,
                to,
            });
        }
        row.only_sub(region, offset, len)
    }

    /// The pieces of `sub` in ascending order, as `(file offset, bytes)`, each as long as it can be; they add up to
    /// `sub.len` and are consecutive in the datafile.
    pub fn pieces(&self, sub: &SubRequest) -> Pieces<'_> {
        Pieces { region: &self.regions()[sub.region], slot: sub.slot, next: sub.from, to: sub.to }
    }
}

impl Region {
    /// [`Layout::only_sub`] where the region, the layout's number `region`, has several stripes.
    fn only_sub(&self, region: usize, offset: u64, len: u64) -> Option<SubRequest> {
        let at = self.phase(offset);
        let slot = self.slot_at_phase(at.1);
        let stripe = &self.stripes()[slot];
        if at.1 - self.start_of(slot) + len > stripe.width_bytes {
            return None;
        }
        let before_origin = if self.origin() == 0 { 0 } else { self.bytes_before(slot, self.origin()) };
        let datafile_offset = self.origin() + self.bytes_before_phase(slot, at) - before_origin;
        let (from, to) = (offset, offset + len);
        Some(SubRequest { region, slot, server: stripe.server, datafile_offset, len, from, to })
    }

    /// The sub-requests of `[from, to)`, not empty, which lies in this region, the layout's number `region`.
    #[inline]
    fn for_each_sub(&self, region: usize, from: u64, to: u64, mut take: impl FnMut(SubRequest)) {
        let (first, last) = (self.phase(from), self.phase(to - 1));
        let origin = if self.origin() == 0 { (0, 0) } else { self.phase(self.origin()) };
        let (first_slot, last_slot) = (self.slot_at_phase(first.1), self.slot_at_phase(last.1));
        let stripes = self.stripes().len();
        let (slots, more) = if first.0 == last.0 {
            (first_slot..last_slot + 1, 0..0)
        } else if last.0 - first.0 == 1 && last_slot < first_slot {
            // The end of one round and the beginning of the next: nothing in between.
            (0..last_slot + 1, first_slot..stripes)
        } else {
            (0..stripes, 0..0)
        };
        // Not the phase of `to` itself: the end may be the first byte of the next round.
        let end = (last.0, last.1 + 1);
        for slots in [slots, more] {
            for (slot, (stripe, start)) in slots.clone().zip(self.with_starts(slots)) {
                // No overflow: each of these is at most the offset that it belongs to.
                let before = |(rounds, phase): (u64, u64)| {
                    rounds * stripe.width_bytes + phase.saturating_sub(start).min(stripe.width_bytes)
                };
                let begin = before(first);
                let len = before(end) - begin;
                if len > 0 {
                    let datafile_offset = self.origin() + begin - before(origin);
                    take(SubRequest { region, slot, server: stripe.server, datafile_offset, len, from, to });
                }
            }
        }
    }
}

/// Iterator of [`Layout::pieces`]. O(1) a piece.
#[derive(Debug, Clone)]
pub struct Pieces<'a> {
    region: &'a Region,
    slot: usize,
    next: u64,
    to: u64,
}

impl Iterator for Pieces<'_> {
    /// File offset and length in bytes.
    type Item = (u64, u64);

    #[inline]
    fn next(&mut self) -> Option<(u64, u64)> {
        let round = self.region.round_bytes();
        let start = self.region.start_of(self.slot);
        let width = self.region.stripes()[self.slot].width_bytes;
        if width == round {
            // One server has it all: one piece, whatever the number of rounds.
            let from = std::mem::replace(&mut self.next, self.to);
            return (from < self.to).then(|| (from, self.to - from));
        }
        let phase = self.next % round;
        let round_start = self.next - phase;
        // The stripe of this round, or of the next one if this round's is behind us.
        let stripe_start =
            if phase < start + width { round_start + start } else { round_start.checked_add(round + start)? };
        // The sums above are below 2^64: a round start is at most 2^63, a start and a width in a round are less.
        let from = stripe_start.max(self.next);
        if from >= self.to {
            return None;
        }
        let to = (stripe_start + width).min(self.to);
        self.next = to;
        Some((from, to - from))
    }
}
