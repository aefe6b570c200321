//! [`TierWidths`]: one width per tier, the planner's candidate for a round.

use crate::profile::Cluster;
use std::fmt;
use stripewise_layout::{Layout, LayoutError, Stripe, units};

/// Most tiers that one cluster may have: a bound that keeps the counting free of allocation.
pub const MAX_TIERS: usize = 8;

/// A round as the planner searches it: the tiers in order, every server of a tier with that tier's width in bytes;
/// width 0 leaves the tier out (`h` and `s` of HARL, for any number of tiers).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TierWidths {
    widths: [u64; MAX_TIERS],
    len: u8,
}

impl TierWidths {
    /// From one width in bytes per tier.
    ///
    /// # Panics
    /// With more than [`MAX_TIERS`] widths.
    pub fn new(widths_bytes: &[u64]) -> Self {
        assert!(widths_bytes.len() <= MAX_TIERS, "{} tiers, at most {MAX_TIERS}", widths_bytes.len());
        let mut widths = [0; MAX_TIERS];
        widths[..widths_bytes.len()].copy_from_slice(widths_bytes);
        Self { widths, len: widths_bytes.len() as u8 }
    }

    /// The same width on every tier of `cluster`: default striping.
    pub fn uniform(cluster: &Cluster, width_bytes: u64) -> Self {
        Self::new(&vec![width_bytes; cluster.tiers.len()])
    }

    /// The widths in bytes, in order of tiers.
    pub fn as_slice(&self) -> &[u64] {
        &self.widths[..usize::from(self.len)]
    }

    /// Width in bytes on tier `tier`; 0 when the tier is left out.
    pub fn width_bytes(&self, tier: usize) -> u64 {
        self.as_slice()[tier]
    }

    /// Length of the round in bytes: `S = sum of servers x width`. 0 when every tier is left out. Saturates.
    pub fn round_bytes(&self, cluster: &Cluster) -> u64 {
        let shares = self.as_slice().iter().zip(&cluster.tiers);
        shares.fold(0, |sum, (&width, tier)| sum.saturating_add(width.saturating_mul(tier.servers.len() as u64)))
    }

    /// The round that a region of this candidate has; tiers of width 0 do not stand in it.
    pub fn stripes(&self, cluster: &Cluster) -> Vec<Stripe> {
        let tiers = self.as_slice().iter().zip(&cluster.tiers).filter(|&(&width, _)| width > 0);
        tiers
            .flat_map(|(&width_bytes, tier)| tier.servers.iter().map(move |&server| Stripe { server, width_bytes }))
            .collect()
    }

    /// The widths that have this round; `None` when it is no round of whole tiers with one width each, in their order.
    /// O(tiers x stripes).
    pub fn of_stripes(stripes: &[Stripe], cluster: &Cluster) -> Option<Self> {
        let width = |server| stripes.iter().find(|stripe| stripe.server == server).map_or(0, |held| held.width_bytes);
        let widths: Vec<u64> =
            cluster.tiers.iter().map(|tier| tier.servers.first().map_or(0, |&server| width(server))).collect();
        let widths = Self::new(&widths);
        (widths.stripes(cluster) == stripes).then_some(widths)
    }

    /// A layout from `(offset, widths)` per region.
    pub fn layout(regions: &[(u64, TierWidths)], cluster: &Cluster) -> Result<Layout, LayoutError> {
        Layout::new(regions.iter().map(|(offset, widths)| (*offset, widths.stripes(cluster))))
    }
}

impl fmt::Debug for TierWidths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TierWidths({self})")
    }
}

impl fmt::Display for TierWidths {
    /// As `{32KiB, 160KiB}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (index, &width) in self.as_slice().iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{}", if width == 0 { "0".to_owned() } else { units::format_bytes(width) })?;
        }
        f.write_str("}")
    }
}
