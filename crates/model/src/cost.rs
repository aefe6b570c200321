//! [`CostModel`]: what a request costs. Paper mode (HARL Eq. 1-8) and the exact latency.

use crate::count::Round;
use crate::expected_max::{Branch, Branches, expected_max_s};
use crate::profile::{Cluster, Op, OpProfile};
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

#[derive(Debug, Clone, Copy)]
struct TierCost {
    read: OpProfile,
    write: OpProfile,
    network_s_per_byte: f64,
}

/// Time that a server is kept busy by (its part of) a request.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Busy {
    /// Its device: mean startup and transfer, in seconds.
    pub device_s: f64,
    /// Its network link, in seconds.
    pub network_s: f64,
}

/// The costs of a cluster in the form that the inner loops use.
#[derive(Debug, Clone)]
pub struct CostModel {
    tiers: Vec<TierCost>,
    /// `(server, tier)` per slot: all servers of the cluster, tiers in order.
    slots: Vec<(ServerId, usize)>,
}

impl CostModel {
    /// Prepares the costs of `cluster`.
    pub fn new(cluster: &Cluster) -> Self {
        let tiers = cluster.tiers.iter().map(|tier| TierCost {
            read: tier.profile.read,
            write: tier.profile.write,
            network_s_per_byte: tier.profile.network_s_per_byte,
        });
        let slots = cluster.tiers.iter().enumerate();
        let slots = slots.flat_map(|(tier, of)| of.servers.iter().map(move |&server| (server, tier)));
        Self { tiers: tiers.collect(), slots: slots.collect() }
    }

    /// Number of servers (slots).
    pub fn servers(&self) -> usize {
        self.slots.len()
    }

    /// The slot of a server: its place among all servers, tiers in order. O(servers).
    pub fn slot_of(&self, server: ServerId) -> Result<usize, UnknownServer> {
        self.slots.iter().position(|&(known, _)| known == server).ok_or(UnknownServer(server))
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

    /// Exact mean latency in seconds of one request on an idle system: `E[max_i(alpha_i + b_i (beta_i + t))]` over the
    /// servers that hold its bytes (`beyond.md` 4). O(groups^2 x quadrature nodes) with at most four groups a tier,
    /// whatever the number of servers; no allocation for up to four tiers.
    #[inline]
    pub fn latency_s(&self, round: &Round, op: Op, offset: u64, size: u64) -> f64 {
        let branches = round.groups(offset, size);
        let branches: Branches =
            branches.iter().map(|group| self.branch(group.tier, op, group.bytes, group.servers)).collect();
        expected_max_s(&branches)
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
        let profile = self.profile(tier, op);
        Busy {
            device_s: 0.5 * (profile.startup_min_s + profile.startup_max_s)
                + bytes as f64 * profile.transfer_s_per_byte,
            network_s: bytes as f64 * self.tiers[tier].network_s_per_byte,
        }
    }

    /// Calls `visit(slot, busy)` for each server that holds bytes of the request. O(servers), no allocation.
    #[inline]
    pub fn for_each_busy(&self, round: &Round, op: Op, offset: u64, size: u64, mut visit: impl FnMut(usize, Busy)) {
        round.for_each_server(offset, size, |slot, tier, bytes| visit(slot, self.busy(tier, op, bytes)));
    }

    /// Exact mean latency of one request under any layout, regions and widths per server included, and the busy time
    /// of each server through `visit(slot, busy)`. A server that holds parts in two regions serves them one after
    /// the other: each further part adds its mean time. O(sub-requests x (sub-requests + servers)).
    ///
    /// # Errors
    /// [`UnknownServer`] when the layout names a server outside the cluster (the metadata tier has no profile).
    pub fn layout_latency_s(
        &self,
        layout: &Layout,
        op: Op,
        offset: u64,
        size: u64,
        mut visit: impl FnMut(usize, Busy),
    ) -> Result<f64, UnknownServer> {
        let subs = layout.split(offset, size);
        let mut branches = Branches::new();
        for (index, sub) in subs.iter().enumerate() {
            let slot = self.slot_of(sub.server)?;
            let tier = self.slots[slot].1;
            let busy = self.busy(tier, op, sub.len);
            visit(slot, busy);
            match subs[..index].iter().position(|earlier| earlier.server == sub.server) {
                // Branches stand in order of each server's first sub-request.
                Some(first) => {
                    let of = distinct_before(&subs, first);
                    let more = busy.device_s + busy.network_s;
                    branches[of].lo_s += more;
                    branches[of].hi_s += more;
                }
                None => branches.push(self.branch(tier, op, sub.len, 1)),
            }
        }
        Ok(expected_max_s(&branches))
    }
}

/// Number of distinct servers among the sub-requests before `index`.
fn distinct_before(subs: &[stripewise_layout::SubRequest], index: usize) -> usize {
    (0..index).filter(|&i| subs[..i].iter().all(|earlier| earlier.server != subs[i].server)).count()
}
