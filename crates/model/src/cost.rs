//! [`CostModel`]: what a request costs. Paper mode (HARL Eq. 1-8) and the exact latency.

use crate::count::Round;
use crate::expected_max::{Branch, Branches, expected_max_s};
use crate::profile::{Cluster, Op, OpProfile};
use smallvec::SmallVec;
use stripewise_layout::{Layout, ServerId};

/// Mean of the greatest of `servers` startup times (Eq. 2-4): `lo + k/(k+1) (hi - lo)`, and 0 for no server.
#[inline]
pub fn expected_startup_s(servers: u64, profile: &OpProfile) -> f64 {
    if servers == 0 {
        return 0.0;
    }
    let k = servers as f64;
    profile.startup_min_s + k / (k + 1.0) * (profile.startup_max_s - profile.startup_min_s)
}

/// A layout names a server that the cluster does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the layout names server {0}, which has no profile: price it on the pool that it was planned for")]
pub struct UnknownServer(pub ServerId);

/// Bounds are widened by more than their rounding, so that they hold for the rounded costs too.
const BELOW: f64 = 1.0 - 1e-12;
const ABOVE: f64 = 1.0 + 1e-12;

#[derive(Debug, Clone, Copy)]
struct TierCost {
    read: OpProfile,
    write: OpProfile,
    network_s_per_byte: f64,
    in_turn: bool,
    /// The part of a server that one request takes: less than all where several are served side by side.
    share: f64,
}

/// Time that a server is kept busy by (its part of) a request. One that serves several side by side is kept busy by as many times
/// less.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Busy {
    /// Its device: mean startup and transfer, in seconds.
    pub device_s: f64,
    /// Its network link, in seconds.
    pub network_s: f64,
}

impl Busy {
    /// Device and link one after the other, in seconds.
    fn total_s(&self) -> f64 {
        self.device_s + self.network_s
    }
}

/// The costs of a cluster in the form that the inner loops use.
#[derive(Debug, Clone)]
pub struct CostModel {
    tiers: Vec<TierCost>,
    /// Tier per slot: all servers of the cluster, tiers in order, and the metadata tier if its cost is known.
    slots: Vec<usize>,
    /// Slot of the metadata tier.
    meta: Option<usize>,
    /// Slot by server index; `u32::MAX` where the cluster has no such server.
    slot_by_server: Vec<u32>,
}

impl CostModel {
    /// Prepares the costs of `cluster`.
    pub fn new(cluster: &Cluster) -> Self {
        let tiers = cluster.all_tiers().map(|tier| TierCost {
            read: tier.profile.read,
            write: tier.profile.write,
            network_s_per_byte: tier.profile.network_s_per_byte,
            in_turn: tier.in_turn,
            share: 1.0 / f64::from(tier.at_once.max(1)),
        });
        let slots = cluster.tiers.iter().enumerate();
        let slots: Vec<(ServerId, usize)> =
            slots.flat_map(|(tier, of)| of.servers.iter().map(move |&server| (server, tier))).collect();
        let servers = slots.iter().map(|(server, _)| server.index() + 1).max().unwrap_or(0);
        let mut slot_by_server = vec![u32::MAX; servers];
        // The first one counts where a server stands twice.
        for (slot, (server, _)) in slots.iter().enumerate().rev() {
            slot_by_server[server.index()] = slot as u32;
        }
        let meta = cluster.meta.is_some().then_some(slots.len());
        let slots = slots.into_iter().map(|(_, tier)| tier).chain(meta.map(|_| cluster.tiers.len()));
        Self { tiers: tiers.collect(), slots: slots.collect(), meta, slot_by_server }
    }

    /// Number of servers (slots).
    pub fn servers(&self) -> usize {
        self.slots.len()
    }

    /// The slot of a server: its place among all servers, tiers in order, the metadata tier last. O(1).
    #[inline]
    pub fn slot_of(&self, server: ServerId) -> Result<usize, UnknownServer> {
        if server == ServerId::META {
            return self.meta.ok_or(UnknownServer(server));
        }
        match self.slot_by_server.get(server.index()) {
            Some(&slot) if slot != u32::MAX => Ok(slot as usize),
            _ => Err(UnknownServer(server)),
        }
    }

    /// Mean startup in seconds of `op` on the server of a slot. O(1).
    pub fn startup_s(&self, slot: usize, op: Op) -> f64 {
        let profile = self.profile(self.slots[slot], op);
        0.5 * (profile.startup_min_s + profile.startup_max_s)
    }

    /// The profile that prices `op` on tier `tier`.
    #[inline]
    fn profile(&self, tier: usize, op: Op) -> &OpProfile {
        let tier = &self.tiers[tier];
        match op {
            Op::Read => &tier.read,
            Op::Write => &tier.write,
        }
    }

    /// HARL's cost of one request in seconds: the *sum of maxima* `T = T_X + T_S + T_T` (Eq. 1-8, with the corrections
    /// of math A.5 and any number of tiers, A.9). An upper bound of the maximum of sums in its transfer part; kept as
    /// the paper has it. O(tiers), no allocation.
    #[inline]
    pub fn paper_cost_s(&self, round: &Round, op: Op, offset: u64, size: u64) -> f64 {
        let (mut network, mut startup, mut transfer) = (0.0_f64, 0.0_f64, 0.0_f64);
        round.for_each_share(offset, size, |share| {
            let profile = self.profile(share.tier, op);
            let bytes = share.max_bytes as f64;
            network = network.max(bytes * self.tiers[share.tier].network_s_per_byte);
            startup = startup.max(expected_startup_s(share.servers, profile));
            transfer = transfer.max(bytes * profile.transfer_s_per_byte);
        });
        network + startup + transfer
    }

    /// Lower and upper bound in seconds of [`CostModel::paper_cost_s`] over all offsets of a request of `size` bytes.
    /// O(tiers), no allocation.
    #[inline]
    pub fn paper_bounds_s(&self, round: &Round, op: Op, size: u64) -> (f64, f64) {
        let (mut network, mut startup, mut transfer) = ((0.0_f64, 0.0_f64), (0.0_f64, 0.0_f64), (0.0_f64, 0.0_f64));
        let (mut network_rate, mut transfer_rate) = (0.0, 0.0);
        let raise = |term: &mut (f64, f64), least: f64, most: f64| *term = (term.0.max(least), term.1.max(most));
        round.for_each_share_bounds(size, |share| {
            let profile = self.profile(share.tier, op);
            let network_s_per_byte = self.tiers[share.tier].network_s_per_byte;
            let (least, most) = (share.max_bytes.0 as f64, share.max_bytes.1 as f64);
            raise(&mut network, least * network_s_per_byte, most * network_s_per_byte);
            let startups = (expected_startup_s(share.servers.0, profile), expected_startup_s(share.servers.1, profile));
            raise(&mut startup, startups.0, startups.1);
            raise(&mut transfer, least * profile.transfer_s_per_byte, most * profile.transfer_s_per_byte);
            network_rate += share.tier_servers as f64 / network_s_per_byte;
            transfer_rate += share.tier_servers as f64 / profile.transfer_s_per_byte;
        });
        // No division of the bytes over the servers makes the slowest of them faster than all together.
        let size = size as f64;
        let least = network.0.max(size / network_rate) + startup.0 + transfer.0.max(size / transfer_rate);
        (least * BELOW, (network.1 + startup.1 + transfer.1) * ABOVE)
    }

    /// Lower and upper bound in seconds of [`CostModel::latency_s`] over all offsets of a request of `size` bytes.
    /// O(tiers), no allocation.
    #[inline]
    pub fn latency_bounds_s(&self, round: &Round, op: Op, size: u64) -> (f64, f64) {
        let (mut least, mut latest, mut shift, mut in_turn_s) = (0.0_f64, 0.0_f64, 0.0_f64, 0.0);
        round.for_each_share_bounds(size, |share| {
            if share.servers.1 == 0 {
                return;
            }
            let profile = self.profile(share.tier, op);
            let s_per_byte = profile.transfer_s_per_byte + self.tiers[share.tier].network_s_per_byte;
            if share.servers.0 > 0 {
                // The slowest startup meets some server; the fullest server has its own mean startup.
                let fullest = expected_startup_s(1, profile) + share.max_bytes.0 as f64 * s_per_byte;
                least = least.max(fullest).max(expected_startup_s(share.servers.0, profile));
            }
            let most_s = share.max_bytes.1 as f64 * s_per_byte;
            if self.tiers[share.tier].in_turn {
                in_turn_s += share.servers.1 as f64 * (profile.startup_max_s + most_s);
                return;
            }
            latest = latest.max(profile.startup_max_s);
            shift = shift.max(most_s);
        });
        (least * BELOW, (latest + shift).max(in_turn_s) * ABOVE)
    }

    /// Exact mean latency in seconds of one request on an idle system: `E[max_i(alpha_i + b_i (beta_i + t))]` over the
    /// servers that hold its bytes (`beyond.md` 4); of those that are asked in turn, the sum of their means, where that is more.
    /// O(groups^2 x quadrature nodes) with at most four groups a tier, whatever the number of servers; no allocation for up
    /// to four tiers.
    #[inline]
    pub fn latency_s(&self, round: &Round, op: Op, offset: u64, size: u64) -> f64 {
        let (mut branches, mut in_turn_s) = (Branches::new(), 0.0);
        for group in &round.groups(offset, size) {
            if self.tiers[group.tier].in_turn {
                in_turn_s += group.servers as f64 * self.busy(group.tier, op, group.bytes).total_s();
            } else {
                branches.push(self.branch(group.tier, op, group.bytes, group.servers));
            }
        }
        expected_max_s(&branches).max(in_turn_s)
    }

    #[inline]
    fn branch(&self, tier: usize, op: Op, bytes: u64, servers: u64) -> Branch {
        let profile = self.profile(tier, op);
        let shift = bytes as f64 * (profile.transfer_s_per_byte + self.tiers[tier].network_s_per_byte);
        Branch { lo_s: profile.startup_min_s + shift, hi_s: profile.startup_max_s + shift, servers }
    }

    /// Busy time of a server of tier `tier` for `bytes` of one request: nothing for 0 bytes. O(1).
    #[inline]
    pub fn busy(&self, tier: usize, op: Op, bytes: u64) -> Busy {
        if bytes == 0 {
            return Busy::default();
        }
        let (profile, share) = (self.profile(tier, op), self.tiers[tier].share);
        Busy {
            device_s: share
                * (0.5 * (profile.startup_min_s + profile.startup_max_s) + bytes as f64 * profile.transfer_s_per_byte),
            network_s: share * bytes as f64 * self.tiers[tier].network_s_per_byte,
        }
    }

    /// Calls `visit(slot, busy)` for each server that holds bytes of the request. O(tiers + those servers), no
    /// allocation.
    #[inline]
    pub fn for_each_busy(&self, round: &Round, op: Op, offset: u64, size: u64, mut visit: impl FnMut(usize, Busy)) {
        round.for_each_server(offset, size, |slot, tier, bytes| visit(slot, self.busy(tier, op, bytes)));
    }

    /// Exact mean latency of one request under any layout, regions and widths per server included, and the busy time
    /// of each server through `visit(slot, busy)`. A server that holds parts in two regions serves them one after
    /// the other: each further part adds its mean time. O(sub-requests^2).
    ///
    /// # Errors
    /// [`UnknownServer`] when the layout names a server outside the cluster, or the metadata tier of one that has no profile.
    pub fn layout_latency_s(
        &self,
        layout: &Layout,
        op: Op,
        offset: u64,
        size: u64,
        mut visit: impl FnMut(usize, Busy),
    ) -> Result<f64, UnknownServer> {
        let subs = layout.split(offset, size);
        let (mut branches, mut in_turn_s) = (Branches::new(), 0.0);
        // Of each branch, its server.
        let mut asked: SmallVec<[ServerId; 16]> = SmallVec::new();
        for sub in &subs {
            let slot = self.slot_of(sub.server)?;
            let tier = self.slots[slot];
            let busy = self.busy(tier, op, sub.len);
            visit(slot, busy);
            if self.tiers[tier].in_turn {
                in_turn_s += busy.total_s();
                continue;
            }
            // A server stands once in a region.
            let earlier = if sub.region == subs[0].region { &[] } else { &asked[..] };
            match earlier.iter().position(|&earlier| earlier == sub.server) {
                Some(of) => {
                    branches[of].lo_s += busy.total_s();
                    branches[of].hi_s += busy.total_s();
                }
                None => {
                    asked.push(sub.server);
                    branches.push(self.branch(tier, op, sub.len, 1));
                }
            }
        }
        // Whole stripes next to each other are equal: the quadrature is quadratic in what is not.
        branches.dedup_by(|next, kept| {
            let same = (next.lo_s, next.hi_s) == (kept.lo_s, kept.hi_s);
            kept.servers += if same { next.servers } else { 0 };
            same
        });
        Ok(expected_max_s(&branches).max(in_turn_s))
    }
}
