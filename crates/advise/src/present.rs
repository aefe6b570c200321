//! Layouts that files have now, as logs tell of Lustre; and a cluster found from nothing but them.

use crate::cluster_file::{ClusterFile, ClusterTier, DefaultLayout, FileSystem, MAX_SERVERS};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use stripewise_import::{LustreComponent, LustreLayout};
use stripewise_layout::{Layout, ServerId, ServerNames, Stripe};
use stripewise_model::{MAX_TIERS, Profile, presets};

/// Most stripes of a component that are followed.
const STRIPES: usize = 2000;

/// Which server of a cluster an object storage target is.
#[derive(Debug, Clone)]
pub(crate) struct Targets {
    /// Where a cluster was found from the log.
    known: HashMap<u64, ServerId>,
    /// First server and number of servers of the tier of each native pool.
    pools: HashMap<String, (u16, u16)>,
    /// Of targets in no pool.
    others: (u16, u16),
}

impl Targets {
    /// The targets of a cluster file: those of a pool by its tier, the others by that of the default; numbers go round.
    pub(crate) fn of(cluster: &ClusterFile) -> Self {
        let mut first = 0;
        let (mut pools, mut tiers) = (HashMap::new(), Vec::new());
        for tier in &cluster.tiers {
            tiers.push((first, tier.servers));
            for name in [Some(&tier.name), tier.pool.as_ref()].into_iter().flatten() {
                pools.insert(name.clone(), (first, tier.servers));
            }
            first += tier.servers;
        }
        let others = cluster.default.tier.map_or((0, first), |tier| tiers[tier]);
        Self { known: HashMap::new(), pools, others }
    }

    /// Name of a server, with its target where that is known.
    pub(crate) fn label(&self, names: &ServerNames, server: usize) -> String {
        let name = names.name(ServerId(server as u16));
        let target = self.known.iter().find(|(_, known)| known.index() == server);
        target.map_or(name.clone(), |(target, _)| format!("{name} (OST {target})"))
    }

    /// The server that a target of a native pool is.
    pub(crate) fn server(&self, pool: &str, target: u64) -> ServerId {
        let (first, servers) = self.pools.get(pool).copied().unwrap_or(self.others);
        self.known.get(&target).copied().unwrap_or(ServerId(first + (target % u64::from(servers.max(1))) as u16))
    }

    /// The layout of a file; `None` where the record holds none. Components that have no objects yet begin on a server
    /// by the `number` of the file. A target that stands twice in a round counts once. O(stripes).
    pub(crate) fn layout(&self, record: &LustreLayout, number: usize) -> Option<Layout> {
        let mirror = record.components.first()?.mirror;
        let mut regions: Vec<(u64, Vec<Stripe>)> = Vec::new();
        for component in record.components.iter().filter(|component| component.mirror == mirror) {
            let stripes = self.stripes(component, number);
            let begins = if regions.is_empty() { 0 } else { component.start };
            if stripes.is_empty() || regions.last().is_some_and(|last| begins <= last.0) {
                continue;
            }
            regions.push((begins, stripes));
        }
        Layout::new(regions).ok()
    }

    fn stripes(&self, component: &LustreComponent, number: usize) -> Vec<Stripe> {
        let width_bytes = component.stripe_bytes.clamp(1, 1 << 40);
        let mut seen = HashSet::new();
        let of_targets = component.osts.iter().take(STRIPES).map(|&target| self.server(&component.pool, target));
        let mut servers: Vec<ServerId> = of_targets.filter(|&server| seen.insert(server)).collect();
        if servers.is_empty() && component.stripe_count > 0 {
            let (first, of) = self.pools.get(component.pool.as_str()).copied().unwrap_or(self.others);
            let count = component.stripe_count.min(u64::from(of)) as usize;
            let place =
                |nth: usize| ServerId(first + ((number.wrapping_mul(count) + nth) % usize::from(of.max(1))) as u16);
            servers = (0..count).map(place).collect();
        }
        servers.into_iter().map(|server| Stripe { server, width_bytes }).collect()
    }
}

/// Servers of the profile `preset`, `servers` of them: Lustre's targets, or what stands for an unknown file system.
pub(crate) fn alike(servers: u16, preset: &str, is_lustre: bool) -> Result<ClusterFile, String> {
    let name = if is_lustre { "ost" } else { "storage" };
    let tier = ClusterTier {
        name: name.to_owned(),
        servers,
        profile: profile_of(preset)?,
        preset: Some(preset.to_owned()),
        capacity_bytes: None,
        pool: None,
    };
    let file_system = is_lustre.then_some(FileSystem::Lustre);
    let default = DefaultLayout { tier: None, count: 1, width_bytes: 1 << 20 };
    Ok(ClusterFile { name: "found".into(), file_system, default, tiers: vec![tier], meta: None })
}

fn profile_of(preset: &str) -> Result<Profile, String> {
    presets::device(preset).ok_or_else(|| {
        let known = presets::DEVICES.map(|(name, _)| name).join(", ");
        format!("no preset \"{preset}\"; there is {known}")
    })
}

/// The cluster that the log's Lustre layouts show: the targets that files were on, a tier for each pool, all with the
/// profile `preset`; the commonest stripes are its default. Of targets in one pool, or in none, there are at least `osts`.
/// `None` without such layouts, `Err` for an unknown preset. O(stripes of all records).
pub(crate) fn found(
    layouts: &[LustreLayout],
    preset: &str,
    osts: Option<u16>,
) -> Result<Option<(ClusterFile, Targets)>, String> {
    let profile = profile_of(preset)?;
    let mut pools: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    let mut kinds: BTreeMap<(u64, u64), usize> = BTreeMap::new();
    for component in layouts.iter().flat_map(|layout| &layout.components) {
        pools.entry(&component.pool).or_default().extend(component.osts.iter().take(STRIPES));
        if component.stripe_count > 0 && component.stripe_bytes > 0 {
            *kinds.entry((component.stripe_count, component.stripe_bytes)).or_default() += 1;
        }
    }
    pools.retain(|_, targets| !targets.is_empty());
    let commonest = kinds.iter().max_by_key(|(_, count)| **count).map(|(&kind, _)| kind);
    let Some((count, width)) = commonest.filter(|_| !pools.is_empty()) else { return Ok(None) };
    if pools.len() > MAX_TIERS {
        // More pools than can be told apart: then all targets are of one kind, as their profile is.
        let all = std::mem::take(&mut pools).into_values().flatten().collect();
        pools.insert("", all);
    }
    let pool_count = pools.len();
    let (mut known, mut tiers, mut first) = (HashMap::new(), Vec::new(), 0_u16);
    let mut by_pool = HashMap::new();
    for (number, (pool, targets)) in pools.into_iter().enumerate() {
        let room = usize::from(MAX_SERVERS - first);
        let targets: Vec<u64> = targets.into_iter().filter(|target| !known.contains_key(target)).take(room).collect();
        if targets.is_empty() {
            continue;
        }
        known.extend(targets.iter().zip(first..).map(|(&target, server)| (target, ServerId(server))));
        // Those that no file of the log is on come last.
        let servers = (targets.len() as u16).max(osts.filter(|_| pool_count == 1).unwrap_or(0));
        by_pool.insert(pool.to_owned(), (first, servers));
        first += servers;
        let name = if pool.is_empty() { "ost".to_owned() } else { format!("pool{number}") };
        tiers.push(ClusterTier {
            name,
            servers,
            profile,
            preset: Some(preset.to_owned()),
            capacity_bytes: None,
            pool: (!pool.is_empty()).then(|| pool.to_owned()),
        });
    }
    let default = DefaultLayout {
        tier: None,
        count: count.clamp(1, u64::from(first)) as u16,
        width_bytes: width.clamp(1, 1 << 40),
    };
    let file = ClusterFile { name: "found".into(), file_system: Some(FileSystem::Lustre), default, tiers, meta: None };
    Ok(Some((file, Targets { known, pools: by_pool, others: (0, first) })))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn component(start: u64, end: Option<u64>, bytes: u64, count: u64, osts: &[u64]) -> LustreComponent {
        LustreComponent {
            start,
            end,
            stripe_bytes: bytes,
            stripe_count: count,
            pattern: None,
            mirror: None,
            pool: String::new(),
            osts: osts.to_vec(),
        }
    }

    #[test]
    fn targets_seen_are_the_servers() {
        let layouts = [
            LustreLayout { file: 0, components: vec![component(0, None, 1 << 20, 2, &[40, 7])] },
            LustreLayout { file: 1, components: vec![component(0, None, 1 << 20, 2, &[12, 40])] },
        ];
        let (cluster, targets) = found(&layouts, "hdd-7200", None).unwrap().unwrap();
        assert_eq!((cluster.tiers.len(), cluster.tiers[0].servers, cluster.default.count), (1, 3, 2));
        let servers = |layout: &Layout| layout.regions()[0].stripes().iter().map(|s| s.server.0).collect::<Vec<_>>();
        assert_eq!(servers(&targets.layout(&layouts[0], 0).unwrap()), [2, 0]);
        assert_eq!(servers(&targets.layout(&layouts[1], 1).unwrap()), [1, 2]);
        let (more, targets) = found(&layouts, "hdd-7200", Some(8)).unwrap().unwrap();
        assert_eq!((more.tiers[0].servers, more.default.count), (8, 2), "more than the log shows");
        assert_eq!(servers(&targets.layout(&layouts[0], 0).unwrap()), [2, 0]);
        assert!(found(&layouts, "floppy", None).unwrap_err().contains("hdd-7200, hdd-7200-head, ssd-sata, nvme"));
        assert!(found(&[], "nvme", Some(8)).unwrap().is_none());
    }

    #[test]
    fn progressive_layouts_have_regions_and_parts_without_objects_a_place() {
        let components = vec![component(0, Some(4 << 20), 1 << 20, 1, &[3]), component(4 << 20, None, 4 << 20, 4, &[])];
        let record = LustreLayout { file: 0, components };
        let (_, targets) = found(std::slice::from_ref(&record), "nvme", None).unwrap().unwrap();
        let layout = targets.layout(&record, 0).unwrap();
        assert_eq!(layout.regions().len(), 2);
        assert_eq!(layout.regions()[1].stripes().len(), 1, "one target is all that was seen");
    }

    proptest::proptest! {
        #[test]
        fn no_record_is_a_panic(components in proptest::collection::vec(
            (0_u64..1 << 63, proptest::option::of(0_u64..1 << 63), proptest::num::u64::ANY, proptest::num::u64::ANY,
             proptest::collection::vec(proptest::num::u64::ANY, 0..5)), 0..4)) {
            let components = components.iter().map(|(start, end, bytes, count, osts)| component(*start, *end, *bytes, *count, osts));
            let record = LustreLayout { file: 0, components: components.collect() };
            if let Some((cluster, targets)) = found(std::slice::from_ref(&record), "nvme", None).unwrap() {
                let servers = cluster.tiers[0].servers;
                if let Some(layout) = targets.layout(&record, 3) {
                    for region in layout.regions() {
                        proptest::prop_assert!(region.stripes().iter().all(|stripe| stripe.server.0 < servers));
                    }
                }
                cluster.default_layout(5);
            }
        }
    }
}
