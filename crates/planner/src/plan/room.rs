//! A cluster whose servers have less room than the tiers say: disks that others use too, and disks of unequal sizes.

use super::outcome::Plan;
use stripewise_layout::{Layout, ServerId, Stripe};
use stripewise_model::{Cluster, MAX_TIERS, Tier};

/// Servers of one tier whose limits differ by less than this share are planned alike, with the least of them.
const ALIKE: f64 = 1.0 / 8.0;

/// `cluster` with what its servers have room for beside what its tiers may hold. `room_bytes` says it for each server;
/// `needed_bytes` are the bytes of all files, which no server can need more of. A tier whose servers differ becomes several,
/// named by their servers. `None` when no server's room is a limit. O(servers log servers).
pub fn within_room(cluster: &Cluster, room_bytes: impl Fn(ServerId) -> u64, needed_bytes: u64) -> Option<Cluster> {
    let most = (MAX_TIERS / cluster.tiers.len().max(1)).max(1);
    let mut limited = false;
    let mut tiers = Vec::new();
    for tier in &cluster.tiers {
        let needed = tier.capacity_bytes.unwrap_or(u64::MAX).min(needed_bytes);
        let limit = |id: ServerId| room_bytes(id).min(needed);
        if tier.servers.iter().all(|&id| limit(id) >= needed) {
            tiers.push(tier.clone());
            continue;
        }
        limited = true;
        let classes = classes(tier.servers.iter().map(|&id| (id, limit(id))).collect(), most);
        let is_split = classes.len() > 1;
        tiers.extend(classes.into_iter().map(|(servers, bytes)| Tier {
            name: if is_split { named(tier, &servers) } else { tier.name.clone() },
            capacity_bytes: if bytes >= needed { tier.capacity_bytes } else { Some(bytes) },
            profile: tier.profile,
            in_turn: tier.in_turn,
            at_once: tier.at_once,
            servers,
        }));
    }
    limited.then(|| Cluster { tiers, meta: cluster.meta.clone() })
}

/// Sorts servers into at most `most` classes, each with the least limit of its servers, the largest first.
fn classes(mut servers: Vec<(ServerId, u64)>, most: usize) -> Vec<(Vec<ServerId>, u64)> {
    servers.sort_by_key(|&(id, bytes)| (std::cmp::Reverse(bytes), id));
    let mut classes: Vec<(Vec<ServerId>, u64)> = Vec::new();
    for (id, bytes) in servers {
        match classes.last_mut() {
            Some((alike, least)) if bytes as f64 >= *least as f64 * (1.0 - ALIKE) => {
                alike.push(id);
                *least = bytes;
            }
            _ => classes.push((vec![id], bytes)),
        }
    }
    while classes.len() > most {
        // Joined are those two neighbours that this costs the least room.
        let lost = |at: &usize| classes[*at].0.len() as u128 * u128::from(classes[*at].1 - classes[*at + 1].1);
        let Some(at) = (0..classes.len() - 1).min_by_key(lost) else { break };
        let (joined, bytes) = classes.remove(at + 1);
        classes[at].0.extend(joined);
        classes[at].1 = bytes;
    }
    classes.iter_mut().for_each(|(alike, _)| alike.sort());
    classes
}

/// The name of a part of a tier: `hdd.0,2`.
fn named(tier: &Tier, servers: &[ServerId]) -> String {
    let place = |id: &ServerId| tier.servers.iter().position(|other| other == id).unwrap_or(0).to_string();
    format!("{}.{}", tier.name, servers.iter().map(place).collect::<Vec<_>>().join(","))
}

impl Plan {
    /// Puts the servers of every round in their order in the pool, from which [`within_room`] parts them: a layout that is
    /// the default is written as the default.
    pub fn in_pool_order(&mut self) {
        for file in &mut self.files {
            let sorted = |stripes: &[Stripe]| {
                let mut stripes = stripes.to_vec();
                stripes.sort_by_key(|stripe| stripe.server);
                stripes
            };
            let regions = file.layout.regions().iter().map(|region| (region.offset(), sorted(region.stripes())));
            file.layout = Layout::new(regions).expect("the same regions and servers in another order");
        }
    }
}
