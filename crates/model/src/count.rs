//! Exact bytes per server of one request under a round of tier classes, in O(1) per tier (math A.2, A.3).
//!
//! HARL's Figure 5 is not used: several of its rows are wrong (math A.4).

use crate::profile::Cluster;
use crate::widths::{MAX_TIERS, TierWidths};
use smallvec::SmallVec;

/// One tier's part of a round: equal servers with equal widths, consecutive in the round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Class {
    /// Tier index in the cluster.
    tier: usize,
    /// `K`.
    servers: u64,
    /// `w` in bytes.
    width: u64,
    /// `c0`: where the class starts in the round, in bytes.
    start: u64,
    /// `K w`.
    bytes: u64,
    /// Slot of its first server (all servers of the cluster, tiers in order).
    first_slot: usize,
}

/// A candidate round prepared for counting. Tiers that are left out do not stand in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    classes: [Class; MAX_TIERS],
    len: usize,
    round_bytes: u64,
}

/// What one request asks of one tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassShare {
    /// Tier index in the cluster.
    pub tier: usize,
    /// Servers of the tier that hold bytes of the request (`m`, `n` of HARL).
    pub servers: u64,
    /// Most bytes on one of them, over all rounds that the request crosses (`s_m`, `s_n`).
    pub max_bytes: u64,
    /// Bytes on the tier.
    pub total_bytes: u64,
}

/// What a request of a given size asks of one tier, whatever its offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareBounds {
    /// Tier index in the cluster.
    pub tier: usize,
    /// Servers of the tier.
    pub tier_servers: u64,
    /// Least and most servers of the tier that hold bytes.
    pub servers: (u64, u64),
    /// Least and most bytes on the fullest of them.
    pub max_bytes: (u64, u64),
}

/// Servers of one tier that hold equally many bytes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EqualServers {
    /// Tier index in the cluster.
    pub tier: usize,
    /// How many servers; at least 1.
    pub servers: u64,
    /// Bytes on each of them; at least 1.
    pub bytes: u64,
}

/// The groups of one request: at most four a tier; no allocation for up to four tiers.
pub type EqualGroups = SmallVec<[EqualServers; 16]>;

/// The contiguous part of a request on one class, in the class's own homogeneous round-robin file: `[a, b)`.
#[derive(Clone, Copy)]
struct Units {
    /// `b - a`, at least 1.
    len: u64,
    /// Units (stripes) touched.
    count: u64,
    /// Bytes in the first unit, were the request to reach its end.
    first_bytes: u64,
    /// Bytes in the last unit, were the request to begin before it.
    last_bytes: u64,
    /// First unit's index in its round.
    first_server: u64,
}

impl Class {
    /// `G(x)` of math A.3, with `x` given as rounds and phase. Never exceeds `x`.
    #[inline]
    fn linear(&self, rounds: u64, phase: u64) -> u64 {
        rounds * self.bytes + phase.saturating_sub(self.start).min(self.bytes)
    }

    #[inline]
    fn units(&self, from: (u64, u64), to: (u64, u64)) -> Option<Units> {
        let (a, b) = (self.linear(from.0, from.1), self.linear(to.0, to.1));
        if a == b {
            return None;
        }
        let (u0, u1) = (a / self.width, (b - 1) / self.width);
        Some(Units {
            len: b - a,
            count: u1 - u0 + 1,
            // As differences, since `(u0 + 1) * width` may pass 2^64 for the widest stripes.
            first_bytes: self.width - (a - u0 * self.width),
            last_bytes: b - u1 * self.width,
            first_server: u0 % self.servers,
        })
    }

    /// The table of math A.3.
    #[inline]
    fn max_bytes(&self, units: &Units) -> u64 {
        let (k, w, u) = (self.servers, self.width, units.count);
        let (f0, f1) = (units.first_bytes, units.last_bytes);
        if u == 1 || k == 1 {
            return units.len;
        }
        if u <= k {
            return if u == 2 { f0.max(f1) } else { w };
        }
        let (q, e) = (u / k, u % k);
        match e {
            0 if k >= 3 => q * w,
            0 => (q - 1) * w + f0.max(f1),
            // The first and the last unit stand on the same server.
            1 => (q * w).max((q - 1) * w + f0 + f1),
            2 => q * w + f0.max(f1),
            _ => (q + 1) * w,
        }
    }

    /// Least of [`Class::max_bytes`] over all positions of an interval of `len` bytes, from below. Whole rounds put `w`
    /// on each server; of the rest, either a whole unit is on one server or two servers share it (table of math A.3).
    #[inline]
    fn least_max(&self, len: u64) -> u64 {
        if self.servers == 1 {
            return len;
        }
        let (rounds, rest) = (len / self.bytes, len % self.bytes);
        rounds * self.width + rest.div_ceil(2).min(self.width)
    }

    /// Most of [`Class::max_bytes`] over all positions of an interval of at most `len` bytes, from above.
    #[inline]
    fn most_max(&self, len: u64) -> u64 {
        if self.servers == 1 {
            return len;
        }
        let (rounds, rest) = (len / self.bytes, len % self.bytes);
        rounds * self.width + rest.min(self.width)
    }

    #[inline]
    fn least_servers(&self, len: u64) -> u64 {
        len.div_ceil(self.width).min(self.servers)
    }

    #[inline]
    fn most_servers(&self, len: u64) -> u64 {
        // The least part of the first unit is one byte.
        if len == 0 { 0 } else { ((len - 1).div_ceil(self.width) + 1).min(self.servers) }
    }

    /// Servers by bytes: those with the first and the last unit apart, the others in at most two groups.
    #[inline]
    fn groups(&self, units: &Units, mut emit: impl FnMut(u64, u64)) {
        let (k, w, u) = (self.servers, self.width, units.count);
        if u == 1 || k == 1 {
            return emit(1, units.len);
        }
        let (q, e) = (u / k, u % k);
        // Seen from the first unit's server: servers 0..e hold q + 1 units, the others q.
        let full = |server: u64| if server < e { (q + 1) * w } else { q * w };
        let last = (u - 1) % k;
        let (short_first, short_last) = (w - units.first_bytes, w - units.last_bytes);
        let (mut more, mut fewer) = (e, if q > 0 { k - e } else { 0 });
        let mut take = |server: u64| if server < e { more -= 1 } else { fewer -= 1 };
        take(0);
        if last == 0 {
            emit(1, full(0) - short_first - short_last);
        } else {
            take(last);
            emit(1, full(0) - short_first);
            emit(1, full(last) - short_last);
        }
        if more > 0 {
            emit(more, (q + 1) * w);
        }
        if fewer > 0 {
            emit(fewer, q * w);
        }
    }

    /// Bytes on the server that comes `distance` after the one of the first unit; one that holds any. O(1).
    #[inline]
    fn bytes_at(&self, units: &Units, distance: u64) -> u64 {
        let (k, w, u) = (self.servers, self.width, units.count);
        if u == 1 {
            return units.len;
        }
        let (q, e) = (u / k, u % k);
        let mut bytes = if distance < e { (q + 1) * w } else { q * w };
        if distance == 0 {
            bytes -= w - units.first_bytes;
        }
        if distance == (u - 1) % k {
            bytes -= w - units.last_bytes;
        }
        bytes
    }
}

impl Round {
    /// Prepares `widths` on `cluster`. With all tiers left out every request costs nothing: callers do not offer that.
    ///
    /// # Panics
    /// When `widths` has another number of tiers than `cluster`, or the round exceeds 2^63-1 bytes.
    pub fn new(widths: &TierWidths, cluster: &Cluster) -> Self {
        assert_eq!(widths.as_slice().len(), cluster.tiers.len(), "one width per tier");
        let mut round = Self { classes: [Class::default(); MAX_TIERS], len: 0, round_bytes: 0 };
        let mut first_slot = 0;
        for (tier, (&width, of)) in widths.as_slice().iter().zip(&cluster.tiers).enumerate() {
            let servers = of.servers.len() as u64;
            if width > 0 && servers > 0 {
                let bytes = width.checked_mul(servers).expect("a round below 2^63 bytes");
                round.classes[round.len] = Class { tier, servers, width, start: round.round_bytes, bytes, first_slot };
                round.len += 1;
                round.round_bytes = round
                    .round_bytes
                    .checked_add(bytes)
                    .filter(|&sum| sum < 1 << 63)
                    .expect("a round below 2^63 bytes");
            }
            first_slot += of.servers.len();
        }
        round
    }

    /// Length of the round in bytes (`S`).
    pub fn round_bytes(&self) -> u64 {
        self.round_bytes
    }

    #[inline]
    fn ends(&self, offset: u64, size: u64) -> ((u64, u64), (u64, u64)) {
        let end = offset + size;
        let from = (offset / self.round_bytes, offset % self.round_bytes);
        (from, (end / self.round_bytes, end % self.round_bytes))
    }

    /// Calls `visit` with the share of each tier that holds bytes of `[offset, offset + size)`. O(tiers), whatever the
    /// number of servers and rounds; no allocation.
    #[inline]
    pub fn for_each_share(&self, offset: u64, size: u64, mut visit: impl FnMut(ClassShare)) {
        if size == 0 || self.len == 0 {
            return;
        }
        let (from, to) = self.ends(offset, size);
        for class in &self.classes[..self.len] {
            if let Some(units) = class.units(from, to) {
                visit(ClassShare {
                    tier: class.tier,
                    servers: units.count.min(class.servers),
                    max_bytes: class.max_bytes(&units),
                    total_bytes: units.len,
                });
            }
        }
    }

    /// Calls `visit` with bounds of each tier's share over *all* offsets of a request of `size` bytes: what the share of
    /// any such request lies within. O(tiers), no allocation.
    #[inline]
    pub fn for_each_share_bounds(&self, size: u64, mut visit: impl FnMut(ShareBounds)) {
        if size == 0 || self.len == 0 {
            return;
        }
        let (rounds, rest) = (size / self.round_bytes, size % self.round_bytes);
        for class in &self.classes[..self.len] {
            // A window of `rest` bytes has on the class what does not fit elsewhere, and at most what fits on it.
            let least = rounds * class.bytes + rest.saturating_sub(self.round_bytes - class.bytes);
            let most = rounds * class.bytes + rest.min(class.bytes);
            visit(ShareBounds {
                tier: class.tier,
                tier_servers: class.servers,
                servers: (class.least_servers(least), class.most_servers(most)),
                max_bytes: (class.least_max(least), class.most_max(most)),
            });
        }
    }

    /// Groups of servers with equally many bytes of the request: the whole distribution, in O(tiers).
    #[inline]
    pub fn groups(&self, offset: u64, size: u64) -> EqualGroups {
        let mut groups = EqualGroups::new();
        if size == 0 || self.len == 0 {
            return groups;
        }
        let (from, to) = self.ends(offset, size);
        for class in &self.classes[..self.len] {
            if let Some(units) = class.units(from, to) {
                class.groups(&units, |servers, bytes| groups.push(EqualServers { tier: class.tier, servers, bytes }));
            }
        }
        groups
    }

    /// Calls `visit(slot, tier, bytes)` for each server that holds bytes of the request; the slot counts all servers
    /// of the cluster, tiers in order. In a tier the server of the first byte comes first. O(tiers + servers that hold
    /// bytes), no allocation.
    #[inline]
    pub fn for_each_server(&self, offset: u64, size: u64, mut visit: impl FnMut(usize, usize, u64)) {
        if size == 0 || self.len == 0 {
            return;
        }
        let (from, to) = self.ends(offset, size);
        for class in &self.classes[..self.len] {
            let Some(units) = class.units(from, to) else { continue };
            for distance in 0..units.count.min(class.servers) {
                let server = units.first_server + distance;
                let server = if server < class.servers { server } else { server - class.servers };
                visit(class.first_slot + server as usize, class.tier, class.bytes_at(&units, distance));
            }
        }
    }
}
