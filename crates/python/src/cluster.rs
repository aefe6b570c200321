//! Servers as planner and simulator see them: those of a pool, and those of a cluster file.

use crate::convert::to_python;
use crate::error::raise;
use crate::pool::op_profile;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use stripewise_advise::{ClusterFile, ClusterTier, DefaultLayout};
use stripewise_layout::ServerId;
use stripewise_model::{Cluster, Tier};
use stripewise_store::pool::Pool;

/// The cluster file `path`, checked, as a dict; a pool file (or its directory) is taken in its place.
#[pyfunction]
pub(crate) fn cluster_load<'py>(py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyAny>> {
    let Servers { cluster, is_pool } = load(&path).map_err(raise)?;
    to_python(py, &describe(&cluster, is_pool))
}

/// A cluster file, or what a pool file would say as one.
pub(crate) struct Servers {
    pub cluster: ClusterFile,
    /// It is a pool: its files are at hand.
    pub is_pool: bool,
}

/// Reads a cluster file or a pool file: only the latter says where a `namespace` is.
pub(crate) fn load(path: &Path) -> Result<Servers, String> {
    let file = if path.is_dir() { path.join("pool.toml") } else { path.to_owned() };
    let is_pool = std::fs::read_to_string(&file).ok().and_then(|text| text.parse::<toml::Table>().ok());
    if !is_pool.is_some_and(|table| table.contains_key("namespace") || table.contains_key("mount")) {
        return ClusterFile::load(&file)
            .map(|cluster| Servers { cluster, is_pool: false })
            .map_err(|error| error.to_string());
    }
    let pool = Pool::load(&file).map_err(|error| error.to_string())?;
    let cluster = of_pool(&pool, &HashMap::new())?;
    let tiers = pool.tiers.iter().zip(cluster.tiers).map(|(tier, priced)| ClusterTier {
        name: priced.name,
        servers: tier.servers.len() as u16,
        profile: priced.profile,
        preset: None,
        capacity_bytes: tier.capacity_bytes,
        pool: None,
    });
    let cluster = ClusterFile {
        name: pool.name.clone(),
        file_system: None,
        default: DefaultLayout { tier: None, count: pool.servers.len() as u16, width_bytes: pool.default_width_bytes },
        tiers: tiers.collect(),
    };
    Ok(Servers { cluster, is_pool: true })
}

pub(crate) fn describe(cluster: &ClusterFile, is_pool: bool) -> Value {
    let default = &cluster.default;
    json!({
        "name": cluster.name,
        "kind": if is_pool { "pool" } else { "cluster" },
        "file_system": cluster.file_system.map(|system| system.name()),
        "default": {
            "tier": default.tier.map(|tier| &cluster.tiers[tier].name),
            "count": default.count,
            "width_bytes": default.width_bytes,
        },
        "tiers": cluster.tiers.iter().map(|tier| json!({
            "name": tier.name,
            "servers": tier.servers,
            "preset": tier.preset,
            "capacity_bytes": tier.capacity_bytes,
            "pool": tier.pool,
            "read": op_profile(&tier.profile.read),
            "write": op_profile(&tier.profile.write),
            "network_s_per_byte": tier.profile.network_s_per_byte,
        })).collect::<Vec<_>>(),
    })
}

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
