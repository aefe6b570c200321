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
}

/// A part of a file that is served by one round, repeated.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Region {
    offset: u64,
    stripes: Vec<Stripe>,
    /// `starts[i]` is the offset of stripe `i` in the round (`c_i` of HARL A.1).
    starts: Vec<u64>,
    round_bytes: u64,
}

impl Region {
    /// First byte of the region in the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The round: servers and widths in order.
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

    /// Where byte `x` of the file stands in the datafile of stripe `slot`: `O_k` plus the bytes of `[O_k, x)` on
    /// that server. For an `x` on another server: where the server's next byte at or after `x` stands. O(1).
    #[inline]
    pub fn datafile_offset(&self, slot: usize, x: u64) -> u64 {
        // Neither overflow (both terms are below 2^63) nor underflow (the last term is at most the offset).
        self.offset + self.bytes_before(slot, x) - self.bytes_before(slot, self.offset)
    }

    /// The file offset of the byte that stands at `datafile_offset` in the datafile of stripe `slot`; `None` when
    /// that position is before the region or beyond the largest file offset. Inverse of [`Region::datafile_offset`]
    /// for bytes on that server. O(1).
    pub fn file_offset(&self, slot: usize, datafile_offset: u64) -> Option<u64> {
        let width = self.stripes[slot].width_bytes;
        let nth = datafile_offset.checked_sub(self.offset)?.checked_add(self.bytes_before(slot, self.offset))?;
        let x = (nth / width).checked_mul(self.round_bytes)?.checked_add(self.starts[slot] + nth % width)?;
        (x <= MAX_OFFSET).then_some(x)
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
            built.push(Region { offset, stripes, starts, round_bytes });
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
        let stripes = vec![Stripe { server: ServerId::META, width_bytes }];
        Self { regions: Arc::new([Region { offset: 0, stripes, starts: vec![0], round_bytes: width_bytes }]) }
    }

    /// The regions in order of offset.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// First byte after region `index`; `MAX_OFFSET + 1` for the last.
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

    /// The file offset of the byte at `datafile_offset` in `server`'s datafile, if any byte of the file is there.
    /// Inverse of [`Layout::locate`]. O(regions).
    pub fn file_offset(&self, server: ServerId, datafile_offset: u64) -> Option<u64> {
        // Region k keeps its bytes in [O_k, O_k + its bytes on the server), which ends at or before O_(k+1).
        let region = self.region_at(datafile_offset.min(MAX_OFFSET));
        let row = &self.regions[region];
        let slot = row.stripes.iter().position(|stripe| stripe.server == server)?;
        row.file_offset(slot, datafile_offset).filter(|&x| x < self.region_end(region))
    }

    /// All servers that stand anywhere in the layout, each once, in order of first appearance.
    pub fn servers(&self) -> Vec<ServerId> {
        let mut seen = std::collections::HashSet::new();
        let stripes = self.regions.iter().flat_map(|region| &region.stripes);
        stripes.map(|stripe| stripe.server).filter(|&server| seen.insert(server)).collect()
    }
}
