//! [`Layout`], [`Region`] and [`Stripe`]: the one description of where bytes are.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Largest file offset: sizes and offsets are below 2^63, as in POSIX `off_t`.
pub const MAX_OFFSET: u64 = i64::MAX as u64;

/// Index of a server in its pool (order of the pool file: tiers in order, servers of a tier in order).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u16);

impl ServerId {
    /// The metadata tier: bytes that live in the inode of the namespace itself.
    pub const META: ServerId = ServerId(u16::MAX);

    /// The server as an index into tables of servers. Meaningless for [`ServerId::META`].
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::META { f.write_str("meta") } else { write!(f, "#{}", self.0) }
    }
}

/// One server's share of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stripe {
    /// The server that holds it.
    pub server: ServerId,
    /// Consecutive bytes of the file on this server in each round; at least 1.
    pub width_bytes: u64,
}

/// What is wrong with a layout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// No region at all.
    #[error("a layout needs at least one region")]
    Empty,
    /// The first region does not start at 0.
    #[error("the first region starts at {0}, not at 0")]
    FirstNotZero(u64),
    /// Regions are not in strictly ascending order of offset.
    #[error("region {region} starts at {offset}, not after the region before it ({before})")]
    NotAscending {
        /// Index of the offending region.
        region: usize,
        /// Its offset in bytes.
        offset: u64,
        /// The offset of the region before it.
        before: u64,
    },
    /// A region starts beyond the largest file offset.
    #[error("region {region} starts at {offset}, beyond the largest file offset 2^63-1")]
    OffsetTooLarge {
        /// Index of the offending region.
        region: usize,
        /// Its offset in bytes.
        offset: u64,
    },
    /// A region without stripes.
    #[error("region {0} has no stripe: name at least one server with a width")]
    NoStripe(usize),
    /// A stripe of width 0.
    #[error("region {region}: server {server} has width 0; leave the server out instead")]
    ZeroWidth {
        /// Index of the offending region.
        region: usize,
        /// The server with the zero width.
        server: ServerId,
    },
    /// A server stands twice in one round.
    #[error("region {region}: server {server} stands twice in the round")]
    Repeated {
        /// Index of the offending region.
        region: usize,
        /// The repeated server.
        server: ServerId,
    },
    /// The round is longer than the largest file offset.
    #[error("region {0}: its widths add up to more than 2^63-1 bytes")]
    RoundTooLarge(usize),
    /// A part of a placed layout that begins within a region, without an origin.
    #[error("the part from {0} on begins within a region, and does not say from where its places count")]
    NoOrigin(u64),
    /// The places of a region would count from an offset behind its first byte.
    #[error("the places of the region at {offset} count from {origin}, which lies behind its first byte")]
    OriginBehind {
        /// First byte of the region.
        offset: u64,
        /// From where its places would count.
        origin: u64,
    },
}

/// A part of a file that is served by one round, repeated.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Region {
    offset: u64,
    /// At most `offset`.
    origin: u64,
    stripes: Arc<[Stripe]>,
    /// `starts[i]` is the offset of stripe `i` in the round (`c_i` of HARL A.1).
    starts: Arc<[u64]>,
    round_bytes: u64,
}

impl Region {
    /// First byte of the region in the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// From where its places in datafiles count: its own offset, or an offset before it where it is a part of what was one
    /// region ([`Layout::placed`]).
    #[inline]
    pub fn origin(&self) -> u64 {
        self.origin
    }

    /// Whether a byte that lies in either has one position in its round, and so on its server, in both. O(stripes).
    pub fn has_round_of(&self, other: &Self) -> bool {
        match (&*self.stripes, &*other.stripes) {
            // All is on the one server, in order, whatever the width.
            ([one], [another]) => one.server == another.server,
            (own, others) => own == others,
        }
    }

    /// The round: servers and widths in order.
    #[inline]
    pub fn stripes(&self) -> &[Stripe] {
        &self.stripes
    }

    /// Length of one round in bytes (`S` of HARL A.1).
    pub fn round_bytes(&self) -> u64 {
        self.round_bytes
    }

    /// Bytes of `[0, x)` of the file that fall on stripe `slot`, were the region to start at 0
    /// (`F_i(x)`, math A.2). O(1).
    #[inline]
    pub fn bytes_before(&self, slot: usize, x: u64) -> u64 {
        self.bytes_before_phase(slot, self.phase(x))
    }

    /// Whole rounds before `x`, and the position of `x` in its round: the divisions that all slots share.
    #[inline]
    pub(crate) fn phase(&self, x: u64) -> (u64, u64) {
        (x / self.round_bytes, x % self.round_bytes)
    }

    /// [`Region::bytes_before`] of the `x` with that phase.
    #[inline]
    pub(crate) fn bytes_before_phase(&self, slot: usize, (rounds, phase): (u64, u64)) -> u64 {
        let width = self.stripes[slot].width_bytes;
        // No overflow: the result is at most x.
        rounds * width + phase.saturating_sub(self.starts[slot]).min(width)
    }

    /// The stripes in `slots` with their starts in the round.
    #[inline]
    pub(crate) fn with_starts(&self, slots: Range<usize>) -> impl Iterator<Item = (&Stripe, u64)> {
        self.stripes[slots.clone()].iter().zip(self.starts[slots].iter().copied())
    }

    /// The stripe that holds a position in the round.
    #[inline]
    pub(crate) fn slot_at_phase(&self, phase: u64) -> usize {
        self.starts.partition_point(|&start| start <= phase) - 1
    }

    /// The stripe that holds file offset `x`. O(log stripes).
    #[inline]
    pub fn slot_at(&self, x: u64) -> usize {
        self.slot_at_phase(x % self.round_bytes)
    }

    /// Offset of stripe `slot` within the round.
    #[inline]
    pub fn start_of(&self, slot: usize) -> u64 {
        self.starts[slot]
    }

    /// Where byte `x` of the file stands in the datafile of stripe `slot`: the region's origin `o` plus the bytes of `[o, x)` on
    /// that server; at most `x`. For an `x` on another server: where the server's next byte at or after `x` stands. O(1).
    #[inline]
    pub fn datafile_offset(&self, slot: usize, x: u64) -> u64 {
        // Neither overflow (both terms are below 2^63) nor underflow (the last term is at most the origin).
        self.origin + self.bytes_before(slot, x) - self.bytes_before(slot, self.origin)
    }

    /// The file offset of the byte that stands at `datafile_offset` in the datafile of stripe `slot`; `None` when
    /// that position is before the region or beyond the largest file offset. Inverse of [`Region::datafile_offset`]
    /// for bytes on that server. O(1).
    pub fn file_offset(&self, slot: usize, datafile_offset: u64) -> Option<u64> {
        let width = self.stripes[slot].width_bytes;
        let nth = datafile_offset.checked_sub(self.origin)?.checked_add(self.bytes_before(slot, self.origin))?;
        let x = (nth / width).checked_mul(self.round_bytes)?.checked_add(self.starts[slot] + nth % width)?;
        (self.offset..=MAX_OFFSET).contains(&x).then_some(x)
    }
}

/// Where one byte of a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// Index of the region.
    pub region: usize,
    /// Index of the stripe in the region's round.
    pub slot: usize,
    /// The server.
    pub server: ServerId,
    /// Offset in that server's datafile.
    pub datafile_offset: u64,
}

/// Where the bytes of a file are: contiguous regions from 0 on, the last one open-ended. Clones share their regions, so
/// that 100,000 files of one layout hold it once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Layout {
    regions: Arc<[Region]>,
}

impl Layout {
    /// Builds and validates a layout from `(offset, round)` per region.
    pub fn new(regions: impl IntoIterator<Item = (u64, Vec<Stripe>)>) -> Result<Self, LayoutError> {
        let mut built: Vec<Region> = Vec::new();
        for (index, (offset, stripes)) in regions.into_iter().enumerate() {
            match built.last() {
                None if offset != 0 => return Err(LayoutError::FirstNotZero(offset)),
                Some(last) if offset <= last.offset => {
                    return Err(LayoutError::NotAscending { region: index, offset, before: last.offset });
                }
                _ => {}
            }
            if offset > MAX_OFFSET {
                return Err(LayoutError::OffsetTooLarge { region: index, offset });
            }
            if stripes.is_empty() {
                return Err(LayoutError::NoStripe(index));
            }
            let mut seen = std::collections::HashSet::with_capacity(stripes.len());
            let mut starts = Vec::with_capacity(stripes.len());
            let mut round_bytes = 0_u64;
            for stripe in &stripes {
                if stripe.width_bytes == 0 {
                    return Err(LayoutError::ZeroWidth { region: index, server: stripe.server });
                }
                if !seen.insert(stripe.server) {
                    return Err(LayoutError::Repeated { region: index, server: stripe.server });
                }
                starts.push(round_bytes);
                round_bytes = round_bytes
                    .checked_add(stripe.width_bytes)
                    .filter(|&total| total <= MAX_OFFSET)
                    .ok_or(LayoutError::RoundTooLarge(index))?;
            }
            built.push(Region { offset, origin: offset, stripes: stripes.into(), starts: starts.into(), round_bytes });
        }
        if built.is_empty() {
            return Err(LayoutError::Empty);
        }
        Ok(Self { regions: built.into() })
    }

    /// One region over `servers` with equal widths: default striping (1-DH).
    pub fn striped(servers: impl IntoIterator<Item = ServerId>, width_bytes: u64) -> Result<Self, LayoutError> {
        let round = servers.into_iter().map(|server| Stripe { server, width_bytes }).collect();
        Self::new([(0, round)])
    }

    /// The layout `[meta]`, of files whose bytes are all the inode's own. The width of its one stripe says nothing.
    pub fn in_inode() -> Self {
        let width_bytes = 64 << 10;
        let (stripes, starts) = (Arc::new([Stripe { server: ServerId::META, width_bytes }]), Arc::new([0]));
        Self { regions: Arc::new([Region { offset: 0, origin: 0, stripes, starts, round_bytes: width_bytes }]) }
    }

    /// The layout as a file has it whose parts came to their places at different times. It is cut where a part begins; the parts
    /// are given as `(offset, origin)` in ascending order from 0 on. Places of the regions of a part count from its origin, of
    /// a part without one each from its own offset, as in a layout that is not placed. Rounds are shared, so that a region
    /// more takes the same few words whatever its stripes. O(regions + parts), or O(parts log regions) where no part has an origin.
    ///
    /// # Errors
    /// Parts are in no such order; one without an origin begins within a region; an origin lies behind what counts from it.
    pub fn placed(&self, parts: &[(u64, Option<u64>)]) -> Result<Self, LayoutError> {
        let starts_region = |offset| self.regions[self.region_at(offset)].offset == offset;
        for (index, &(offset, origin)) in parts.iter().enumerate() {
            let before = index.checked_sub(1).map(|before| parts[before].0);
            match before {
                None if offset != 0 => return Err(LayoutError::FirstNotZero(offset)),
                Some(before) if offset <= before => {
                    return Err(LayoutError::NotAscending { region: index, offset, before });
                }
                _ if origin.is_some_and(|origin| origin > offset) => {
                    return Err(LayoutError::OriginBehind { offset, origin: origin.unwrap_or_default() });
                }
                _ if origin.is_none() && !starts_region(offset) => return Err(LayoutError::NoOrigin(offset)),
                _ if offset > MAX_OFFSET => return Err(LayoutError::OffsetTooLarge { region: index, offset }),
                _ => {}
            }
        }
        if parts.iter().all(|(_, origin)| origin.is_none()) {
            return if parts.is_empty() { Err(LayoutError::Empty) } else { Ok(self.clone()) };
        }
        let mut regions = Vec::with_capacity(self.regions.len() + parts.len());
        for (index, &(from, origin)) in parts.iter().enumerate() {
            let to = parts.get(index + 1).map_or(MAX_OFFSET + 1, |next| next.0);
            let first = self.region_at(from);
            for region in self.regions[first..].iter().take_while(|region| region.offset < to) {
                let offset = region.offset.max(from);
                regions.push(Region { offset, origin: origin.unwrap_or(offset), ..region.clone() });
            }
        }
        Ok(Self { regions: regions.into() })
    }

    /// The regions in order of offset.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// First byte after region `index`; `MAX_OFFSET + 1` for the last.
    #[inline]
    pub fn region_end(&self, index: usize) -> u64 {
        self.regions.get(index + 1).map_or(MAX_OFFSET + 1, |next| next.offset)
    }

    /// The region that holds file offset `x` (the last row with `O_k <= x`, math A.8). O(log regions).
    #[inline]
    pub fn region_at(&self, x: u64) -> usize {
        self.regions.partition_point(|region| region.offset <= x) - 1
    }

    /// Where byte `x` is. O(log regions + log stripes).
    pub fn locate(&self, x: u64) -> Location {
        let region = self.region_at(x);
        let row = &self.regions[region];
        let slot = row.slot_at(x);
        Location { region, slot, server: row.stripes[slot].server, datafile_offset: row.datafile_offset(slot, x) }
    }

    /// All servers that stand anywhere in the layout, each once, in order of first appearance.
    pub fn servers(&self) -> Vec<ServerId> {
        let mut seen = std::collections::HashSet::new();
        let stripes = self.regions.iter().flat_map(|region| region.stripes.iter());
        stripes.map(|stripe| stripe.server).filter(|&server| seen.insert(server)).collect()
    }
}
