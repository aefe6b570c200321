//! Lanes: neighbouring servers of one tier that are priced together, so that a pool of thousands costs what one of
//! dozens does.
//!
//! All servers of a tier have one profile and one width, and requests spread over them. Pools of up to [`FEW`] servers
//! have a lane for each. In larger ones the first servers of a tier have lanes of their own, for every file begins on
//! them; each further one is twice as long. A lane's load is the mean of its servers' loads, its bytes are those of its
//! fullest server, so that what fits by lanes fits by servers.

use std::ops::Range;
use stripewise_model::Cluster;

/// Up to this many servers in all, each is a lane.
pub(crate) const FEW: usize = 64;

/// Servers of a tier that have lanes of their own.
const SINGLE: usize = 4;

/// The lanes of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lanes {
    /// Lane by slot (all servers, tiers in order).
    of_slot: Vec<u32>,
    /// Slots of each lane.
    slots: Vec<Range<usize>>,
    /// Lanes of each tier.
    tiers: Vec<Range<usize>>,
}

impl Lanes {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        let total: usize = cluster.tiers.iter().map(|tier| tier.servers.len()).sum();
        let mut lanes = Self { of_slot: Vec::with_capacity(total), slots: Vec::new(), tiers: Vec::new() };
        for tier in &cluster.tiers {
            let first_lane = lanes.slots.len();
            let end = lanes.of_slot.len() + tier.servers.len();
            while lanes.of_slot.len() < end {
                let begin = lanes.of_slot.len();
                let number = lanes.slots.len() - first_lane;
                let longest = if total <= FEW || number < SINGLE { 1 } else { 2 << (number - SINGLE).min(16) };
                let slots = begin..(begin + longest).min(end);
                lanes.of_slot.extend(slots.clone().map(|_| lanes.slots.len() as u32));
                lanes.slots.push(slots);
            }
            lanes.tiers.push(first_lane..lanes.slots.len());
        }
        lanes
    }

    /// Number of lanes.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Number of servers.
    pub(crate) fn servers(&self) -> usize {
        self.of_slot.len()
    }

    /// A lane for every server, the metadata tier last if it has a profile: for layouts that treat the servers of a tier
    /// differently.
    pub(crate) fn of_every_server(cluster: &Cluster) -> Self {
        let mut tiers = Vec::with_capacity(cluster.tiers.len());
        let mut total = 0;
        for tier in &cluster.tiers {
            tiers.push(total..total + tier.servers.len());
            total += tier.servers.len();
        }
        total += usize::from(cluster.meta.is_some());
        Self { of_slot: (0..total as u32).collect(), slots: (0..total).map(|slot| slot..slot + 1).collect(), tiers }
    }

    /// The lane of a slot.
    #[inline]
    pub(crate) fn of_slot(&self, slot: usize) -> usize {
        self.of_slot[slot] as usize
    }

    /// The slots of a lane.
    #[inline]
    pub(crate) fn slots(&self, lane: usize) -> Range<usize> {
        self.slots[lane].clone()
    }

    /// The lanes of a tier.
    #[inline]
    pub(crate) fn of_tier(&self, tier: usize) -> Range<usize> {
        self.tiers[tier].clone()
    }

    /// Servers of each lane.
    pub(crate) fn copies(&self) -> impl Iterator<Item = f64> {
        self.slots.iter().map(|slots| slots.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_model::presets;

    #[test]
    fn small_pools_have_a_lane_for_every_server_and_large_ones_cover_all() {
        let of = |hdds, ssds| Lanes::new(&presets::set_p(hdds, ssds, false));
        let small = of(48, 16);
        assert_eq!((small.len(), small.servers()), (64, 64));
        assert_eq!((small.of_tier(0), small.of_tier(1)), (0..48, 48..64));
        let large = of(9000, 1000);
        assert!(large.len() < 40, "{}", large.len());
        assert_eq!(large.copies().sum::<f64>(), 10_000.0);
        for slot in 0..10_000 {
            assert!(large.slots(large.of_slot(slot)).contains(&slot));
        }
        assert_eq!(large.slots(large.of_tier(1).start), 9000..9001);
        assert_eq!(of(65, 0).of_tier(1), of(65, 0).of_tier(1).end..of(65, 0).len());
    }
}
