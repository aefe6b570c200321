//! Space limits: one per server, shared by all regions of all files (math A.10).

use crate::error::PlanError;
use crate::objective::lanes::Lanes;
use stripewise_model::Cluster;

/// Bytes that each server may hold, by slot (all servers, tiers in order). `u64::MAX` is no limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Limits {
    slots: Vec<u64>,
    /// Limit of a server of each lane, and its servers.
    lanes: Vec<(u64, u64)>,
}

impl Limits {
    /// The limits of a cluster, or why `bytes` cannot be placed on it at all.
    pub(crate) fn new(cluster: &Cluster, bytes: u128) -> Result<Self, PlanError> {
        let of =
            cluster.tiers.iter().flat_map(|tier| tier.servers.iter().map(|_| tier.capacity_bytes.unwrap_or(u64::MAX)));
        let slots: Vec<u64> = of.collect();
        let room = slots.iter().map(|&limit| u128::from(limit)).sum();
        if bytes > room && slots.iter().all(|&limit| limit != u64::MAX) {
            return Err(PlanError::TooLarge { bytes, room });
        }
        let lanes = Lanes::new(cluster);
        let lane = |lane| (slots[lanes.slots(lane).start], lanes.slots(lane).len() as u64);
        let lanes = (0..lanes.len()).map(lane).collect();
        Ok(Self { slots, lanes })
    }

    /// Bytes beyond the limits, added up over the servers. 0 when all limits hold.
    pub(crate) fn excess(&self, server_bytes: &[u64]) -> u64 {
        let over = self.slots.iter().zip(server_bytes).map(|(&limit, &bytes)| bytes.saturating_sub(limit));
        over.fold(0, u64::saturating_add)
    }

    /// [`Limits::excess`] from above, by lanes: the bytes of each lane's fullest server. 0 only when all limits hold.
    #[inline]
    pub(crate) fn lane_excess(&self, lane_bytes: &[u64]) -> u64 {
        let over = self.lanes.iter().zip(lane_bytes);
        let over = over.map(|(&(limit, servers), &bytes)| bytes.saturating_sub(limit).saturating_mul(servers));
        over.fold(0, u64::saturating_add)
    }

    /// The limit of one server in bytes.
    pub(crate) fn of(&self, slot: usize) -> u64 {
        self.slots[slot]
    }

    /// Whether each server has room for all of these bytes: then no layout of them is beyond a limit.
    pub(crate) fn hold_anywhere(&self, bytes: u128) -> bool {
        self.slots.iter().all(|&limit| u128::from(limit) >= bytes)
    }

    /// Whether any server has a limit.
    pub(crate) fn any(&self) -> bool {
        self.slots.iter().any(|&limit| limit != u64::MAX)
    }
}

/// One way to place a region, as [`fall_back`] sees it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Choice {
    /// Cost in seconds.
    pub cost_s: f64,
    /// Bytes on the fullest server of every lane.
    pub bytes: Vec<u64>,
}

/// Brings regions within the limits by changing their choice, "least extra cost per byte freed" first (math A.10).
/// `choices[r]` are the ways to place region `r`, `chosen[r]` is the present one. Gives whether the limits hold now.
/// O(steps x choices x lanes); every step lowers the excess.
pub(crate) fn fall_back(limits: &Limits, choices: &[Vec<Choice>], chosen: &mut [usize]) -> bool {
    let lanes = limits.lanes.len();
    let mut used = vec![0_u64; lanes];
    for (region, &choice) in chosen.iter().enumerate() {
        used.iter_mut().zip(&choices[region][choice].bytes).for_each(|(sum, b)| *sum = sum.saturating_add(*b));
    }
    let mut after = vec![0; lanes];
    loop {
        let excess = limits.lane_excess(&used);
        if excess == 0 {
            return true;
        }
        let mut best: Option<(f64, usize, usize)> = None;
        for (region, options) in choices.iter().enumerate() {
            let now = &options[chosen[region]];
            for (index, option) in options.iter().enumerate() {
                for (slot, after) in after.iter_mut().enumerate() {
                    *after = used[slot].saturating_sub(now.bytes[slot]).saturating_add(option.bytes[slot]);
                }
                let freed = excess.saturating_sub(limits.lane_excess(&after));
                if freed > 0 {
                    let rate = (option.cost_s - now.cost_s) / freed as f64;
                    if best.is_none_or(|(least, ..)| rate < least) {
                        best = Some((rate, region, index));
                    }
                }
            }
        }
        let Some((_, region, index)) = best else { return false };
        for (slot, used) in used.iter_mut().enumerate() {
            let now = choices[region][chosen[region]].bytes[slot];
            *used = used.saturating_sub(now).saturating_add(choices[region][index].bytes[slot]);
        }
        chosen[region] = index;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_model::presets;

    fn limits(limits: &[Option<u64>], bytes: u128) -> Result<Limits, PlanError> {
        let profile = presets::set_p(1, 1, false).tiers[0].profile;
        let mut cluster = presets::cluster(&vec![("t", 1, profile); limits.len()]);
        cluster.tiers.iter_mut().zip(limits).for_each(|(tier, &limit)| tier.capacity_bytes = limit);
        Limits::new(&cluster, bytes)
    }

    #[test]
    fn excess_counts_only_what_is_beyond_a_limit() {
        let limits = limits(&[Some(10), None], 1000).unwrap();
        assert!(limits.any());
        assert_eq!(limits.excess(&[10, u64::MAX]), 0);
        assert_eq!(limits.excess(&[25, 0]), 15);
        assert!(limits.hold_anywhere(10) && !limits.hold_anywhere(11));
    }

    #[test]
    fn more_bytes_than_room_is_an_error_with_both() {
        let error = limits(&[Some(10), Some(20)], 31).unwrap_err();
        assert!(error.to_string().contains("31") && error.to_string().contains("30"), "{error}");
        assert!(limits(&[Some(10), Some(20)], 30).is_ok());
        assert!(limits(&[Some(10), None], u128::MAX).is_ok());
    }

    #[test]
    fn the_cheapest_byte_is_freed_first() {
        let limits = limits(&[None, Some(10)], 0).unwrap();
        let choice = |cost_s, bytes: [u64; 2]| Choice { cost_s, bytes: bytes.to_vec() };
        // Both regions want server 1. Moving the second costs 1 s for 10 bytes, the first 5 s for 10.
        let choices =
            vec![vec![choice(1.0, [0, 10]), choice(6.0, [10, 0])], vec![choice(1.0, [0, 10]), choice(2.0, [10, 0])]];
        let mut chosen = vec![0, 0];
        assert!(fall_back(&limits, &choices, &mut chosen));
        assert_eq!(chosen, vec![0, 1]);
        // Nothing to choose from: it says so.
        let stuck = vec![vec![choice(1.0, [0, 11])]];
        assert!(!fall_back(&limits, &stuck, &mut [0]));
    }
}
