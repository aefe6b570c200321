//! A pool as planner and simulator see it.

use std::collections::HashMap;
use std::path::Path;
use stripewise_layout::ServerId;
use stripewise_model::{Cluster, Tier};
use stripewise_store::pool::Pool;

/// The tiers of `pool` with their profiles; `Err` names a tier that has none. A tier's capacity is what its fullest
/// server has left beside `others` (bytes by server that stay where they are).
pub(crate) fn of_pool(pool: &Pool, others: &HashMap<ServerId, u64>) -> Result<Cluster, String> {
    let tiers = pool.tiers.iter().map(|tier| {
        let (profile, _) = tier.profile.ok_or_else(|| {
            let (name, file) = (&tier.name, pool.file.display());
            format!("tier {name} has no profile, so nothing can be predicted; run `stripewise pool calibrate {file}`")
        })?;
        let used = tier.servers.iter().filter_map(|id| others.get(id)).copied().max().unwrap_or(0);
        Ok(Tier {
            name: tier.name.clone(),
            servers: tier.servers.clone(),
            profile,
            capacity_bytes: tier.capacity_bytes.map(|limit| limit.saturating_sub(used)),
        })
    });
    Ok(Cluster { tiers: tiers.collect::<Result<_, String>>()? })
}

/// Bytes allocated on each server by datafiles of other files than those with the logical handles `except`. A server
/// that is not there has none. O(datafiles of the pool).
pub(crate) fn used_by_others(pool: &Pool, except: &[u64]) -> HashMap<ServerId, u64> {
    let own: Vec<String> = except.iter().map(|handle| format!("{handle:016x}.")).collect();
    pool.servers.iter().map(|server| (server.id, allocated(&server.root, &own))).collect()
}

fn allocated(root: &Path, own: &[String]) -> u64 {
    let shelves = std::fs::read_dir(root).into_iter().flatten().flatten();
    let datafiles = shelves.filter(|shelf| shelf.file_type().is_ok_and(|kind| kind.is_dir()));
    let datafiles = datafiles.flat_map(|shelf| std::fs::read_dir(shelf.path()).into_iter().flatten().flatten());
    let others = datafiles.filter(|file| {
        let name = file.file_name();
        !own.iter().any(|handle| name.to_string_lossy().starts_with(handle))
    });
    use std::os::unix::fs::MetadataExt as _;
    others.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.blocks() * 512).sum()
}
