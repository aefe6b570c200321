//! Servers as planner and simulator see them: those of a pool, and those of a cluster file.

use crate::convert::to_python;
use crate::error::raise;
use crate::pool::op_profile;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::path::PathBuf;
use stripewise_advise::ClusterFile;
use stripewise_whatif::Servers;

/// The cluster file `path`, checked, as a dict; a pool file (or its directory) is taken in its place.
#[pyfunction]
pub(crate) fn cluster_load<'py>(py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyAny>> {
    let servers = Servers::load(&path).map_err(raise)?;
    to_python(py, &describe(&servers.cluster, servers.pool_file.is_some()))
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
