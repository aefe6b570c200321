//! The servers that a trace is planned for or simulated on, with their names.

use crate::error::WhatifError;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use stripewise_advise::{ClusterFile, FileRequests};
use stripewise_layout::{LayoutFile, ServerId, ServerNames};
use stripewise_model::{Cluster, NameCosts, Tier};
use stripewise_planner::{FileTrace, Job, PlanOptions};
use stripewise_simulate::{Startup, TierDevice};
use stripewise_store::emulate::EmulateConfig;
use stripewise_store::pool::ProfileSource;
use stripewise_store::{Pool, Room, serves_in_turn};

/// The servers of a pool or of a cluster file.
#[derive(Debug, Clone)]
pub struct Target {
    /// `pool` or `cluster`.
    pub kind: &'static str,
    /// Name of the pool or cluster.
    pub name: String,
    /// The servers by their names in layout files.
    pub names: ServerNames,
    /// The servers that files may come to, with their profiles.
    pub cluster: Cluster,
    /// All servers on which files may have bytes: also those that are drained, and those that are gone.
    pub holding: Cluster,
    /// By tier: what is emulated there; empty for a cluster.
    pub devices: Vec<TierDevice>,
    /// Bytes that small files may have in their inodes; 0 where nothing is known of the metadata tier.
    pub inode_room_bytes: u64,
    /// What operations on names cost on the metadata tier; `None` where that is not known: then they take no time.
    pub name_costs: Option<NameCosts>,
    /// Of a pool with emulated disks: bytes from the beginning of a file on a disk to that of the next.
    pub file_distance_bytes: Option<u64>,
    /// Width in bytes of the stripes of a file that has no layout of its own.
    pub default_width_bytes: u64,
}

impl Target {
    /// The servers of `pool`. A tier's capacity is what its fullest server has left beside `others`: bytes by server that
    /// stay where they are.
    ///
    /// # Errors
    /// A tier has no profile.
    pub fn of_pool(pool: &Pool, others: &HashMap<ServerId, u64>) -> Result<Self, WhatifError> {
        let tiers = pool.tiers.iter().map(|tier| {
            let (profile, _) = tier.profile.ok_or_else(|| {
                let (name, file) = (&tier.name, pool.file.display());
                WhatifError::Asked(format!(
                    "tier {name} has no profile, so nothing can be predicted; run `stripewise pool calibrate {file}`"
                ))
            })?;
            let servers: Vec<_> = pool.used(tier).collect();
            let used = servers.iter().filter_map(|server| others.get(&server.id)).copied().max().unwrap_or(0);
            Ok(Tier {
                name: tier.name.clone(),
                servers: servers.iter().map(|server| server.id).collect(),
                profile,
                capacity_bytes: tier.capacity_bytes.map(|limit| limit.saturating_sub(used)),
                in_turn: servers.iter().copied().all(serves_in_turn),
                at_once: 1,
            })
        });
        let inode_room_bytes = inode_room_bytes(pool);
        let meta = meta_of(pool, if shares_a_disk(pool) { 0 } else { inode_room_bytes });
        let cluster = Cluster { tiers: tiers.collect::<Result<_, WhatifError>>()?, meta: Some(meta) };
        let all = cluster.tiers.iter().zip(&pool.tiers);
        let all = all.map(|(known, tier)| Tier { servers: tier.servers.clone(), ..known.clone() }).collect();
        Ok(Self {
            kind: "pool",
            name: pool.name.clone(),
            names: pool.server_names(),
            holding: Cluster { tiers: all, meta: cluster.meta.clone() },
            cluster,
            devices: pool.tiers.iter().map(|tier| tier.emulate.map_or_else(TierDevice::default, device_of)).collect(),
            inode_room_bytes,
            name_costs: pool.meta.names,
            file_distance_bytes: pool.tiers.iter().find_map(|tier| Some(tier.emulate?.disk?.file_distance_bytes)),
            default_width_bytes: pool.default_width_bytes,
        })
    }

    /// The servers of a cluster file.
    pub fn of_cluster(file: &ClusterFile) -> Self {
        Self {
            kind: "cluster",
            name: file.name.clone(),
            names: file.names(),
            cluster: file.cluster(),
            holding: file.cluster(),
            devices: Vec::new(),
            inode_room_bytes: 0,
            name_costs: None,
            file_distance_bytes: None,
            default_width_bytes: file.default.width_bytes,
        }
    }

    /// What hints are priced with: all servers that may have bytes, and the room in inodes.
    pub(crate) fn hinted(&self) -> (&Cluster, u64) {
        (&self.holding, self.inode_room_bytes)
    }

    /// Seconds that the operations on names, those that look and those that change something, take on the metadata tier one after the
    /// other; 0 where that is not known.
    pub(crate) fn names_s(&self, (looks, changes): (u64, u64)) -> f64 {
        self.name_costs.map_or(0.0, |names| names.busy_s(looks, changes))
    }

    /// Reads the layout file `path` for these servers.
    pub(crate) fn layouts(&self, path: &Path) -> Result<LayoutFile, WhatifError> {
        Ok(LayoutFile::load(path, self.kind, &self.name, &self.names)?)
    }
}

/// The simulator's device for an emulated one: the same queue and the same seeks, in times as programs see them.
fn device_of(config: EmulateConfig) -> TierDevice {
    let Some(disk) = config.effective_disk() else { return TierDevice::default() };
    let profile = config.effective_profile();
    let startup = Startup::Seek { read: disk.curve(&profile.read), write: disk.curve(&profile.write) };
    TierDevice { queue: disk.queue, startup }
}

/// The metadata tier of a pool, on which plans may put `capacity_bytes` of files.
fn meta_of(pool: &Pool, capacity_bytes: u64) -> Tier {
    Tier { at_once: pool.meta.at_once, ..Tier::meta(pool.meta.profile.0, capacity_bytes) }
}

/// Bytes that files may have in their inodes where the cost of the metadata tier is known. Half of what the namespace has room for is left to
/// names and to files that others make.
fn inode_room_bytes(pool: &Pool) -> u64 {
    let spare_bytes = |room: Room| room.spare_bytes(pool.default_width_bytes) / 2;
    match pool.meta.profile.1 {
        ProfileSource::Preset => 0,
        _ => Room::at(&pool.namespace).map_or(0, spare_bytes),
    }
}

/// Whether the namespace is on the disk of a server. What a plan puts on the metadata tier then stays on that disk: the model would count two
/// disks where there is one. An emulated disk is one of its own.
fn shares_a_disk(pool: &Pool) -> bool {
    let device = |path: &Path| std::fs::metadata(path).map(|found| found.dev()).ok();
    let Some(of_names) = device(&pool.namespace).filter(|_| pool.meta.server.emulate.is_none()) else { return false };
    let real = pool.tiers.iter().filter(|tier| tier.emulate.is_none());
    real.flat_map(|tier| pool.used(tier)).any(|server| device(&server.root) == Some(of_names))
}

/// Where the phases of a program that makes these requests meet, as the planner finds them: seconds in the trace.
pub(crate) fn cuts_s(
    files: &[FileRequests],
    cluster: &Cluster,
    default_width_bytes: u64,
) -> Result<Vec<f64>, WhatifError> {
    let traces: Vec<FileTrace> = files
        .iter()
        .map(|file| FileTrace { name: file.path.clone(), requests: &file.requests, size_bytes: None })
        .collect();
    let options = PlanOptions { default_width_bytes, ..PlanOptions::default() };
    Ok(Job::new(&traces, cluster, &options)?.cuts_s().to_vec())
}

/// Why a trace is refused of which no file is below `root`.
pub(crate) fn nothing_below(root: &Path) -> WhatifError {
    let root = root.display();
    WhatifError::Asked(format!("the trace has no read or write of a file below {root}; name the directory with --root"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool of one server whose metadata tier was measured, with that text about the tier of the server and about the metadata tier.
    fn pool(directory: &Path, of_server: &str, of_names: &str) -> Pool {
        let file = directory.join("pool.toml");
        let cost = "startup = [\"1ms\", \"2ms\"]\nbandwidth = \"1GB/s\"\n";
        let meta = format!("[meta]\n{of_names}[meta.read]\n{cost}[meta.write]\n{cost}");
        let tier =
            format!("[[tier]]\nname = \"ssd\"\nservers = [\"s0\"]\n{of_server}[tier.read]\n{cost}[tier.write]\n{cost}");
        std::fs::create_dir_all(directory.join("s0")).unwrap();
        std::fs::create_dir_all(directory.join("names")).unwrap();
        std::fs::write(&file, format!("name = \"p\"\nmount = \"mnt\"\nnamespace = \"names\"\n{meta}{tier}")).unwrap();
        Pool::load(&file).unwrap()
    }

    #[test]
    fn plans_put_bytes_on_the_metadata_tier_only_where_it_is_a_disk_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let emulated = "emulate = \"ssd-sata\"\n";
        for (of_server, of_names, is_one_disk) in [("", "", true), (emulated, "", false), ("", emulated, false)] {
            let target = Target::of_pool(&pool(directory.path(), of_server, of_names), &HashMap::new()).unwrap();
            let planned_bytes = target.cluster.meta.unwrap().capacity_bytes.unwrap();
            assert_eq!(planned_bytes == 0, is_one_disk, "{of_server:?} {of_names:?}");
            assert!(target.inode_room_bytes > 0);
        }
    }
}
