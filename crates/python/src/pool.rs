//! Pools: the pool file, its servers and profiles.

use crate::convert::to_python;
use crate::error::raise;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::path::PathBuf;
use stripewise_model::{Head, NameCosts, OpProfile, Profile, SeekMap};
use stripewise_store::emulate::EmulateConfig;
use stripewise_store::pool::{META_PRESET, Pool, PoolSpec, ProfileSource, Server, ServerState, TierSpec};

/// The pool file `path`, checked, as a dict. Touches no server.
#[pyfunction]
pub(crate) fn pool_load<'py>(py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyAny>> {
    let pool = Pool::load(&path).map_err(raise)?;
    to_python(py, &describe(&pool))
}

/// One tier for [`pool_init`]: name, directories, bytes per server, preset to emulate.
#[derive(FromPyObject)]
pub(crate) struct NewTier {
    #[pyo3(item)]
    name: String,
    #[pyo3(item)]
    servers: Vec<PathBuf>,
    #[pyo3(item)]
    capacity_bytes: Option<u64>,
    #[pyo3(item)]
    emulate: Option<String>,
    #[pyo3(item)]
    dilation: Option<f64>,
}

/// Writes the new pool file `path` and makes the pool's directories; `shared`: for several users.
#[pyfunction]
#[pyo3(signature = (path, name, mount, namespace, tiers, shared = false))]
pub(crate) fn pool_init(
    path: PathBuf,
    name: String,
    mount: PathBuf,
    namespace: PathBuf,
    tiers: Vec<NewTier>,
    shared: bool,
) -> PyResult<()> {
    let tiers = tiers.into_iter().map(|tier| TierSpec {
        name: tier.name,
        kind: None,
        servers: tier.servers,
        capacity_bytes: tier.capacity_bytes,
        emulate: tier.emulate,
        dilation: tier.dilation,
    });
    let spec = PoolSpec { name, mount, namespace, default_width_bytes: None, tiers: tiers.collect() };
    let made = if shared { Pool::init_shared(&path, &spec) } else { Pool::init(&path, &spec) };
    made.map(|_| ()).map_err(raise)
}

/// Bytes that are used and free on a server, and why it cannot be used.
type UsedAndFree = (u64, u64, Option<String>);

/// How full each server is, by its name.
#[pyfunction]
pub(crate) fn pool_usage(py: Python<'_>, path: PathBuf) -> PyResult<Vec<(String, UsedAndFree)>> {
    let pool = Pool::load(&path).map_err(raise)?;
    let found = py.detach(|| pool.usage());
    Ok(found.into_iter().map(|of| (of.name, (of.used_bytes, of.free_bytes, of.error))).collect())
}

/// Writes a tier's profile into the pool file, keeping everything else. Each of `read` and `write` is (least startup,
/// greatest startup, seconds per byte); of a server with a head `heads` has (startup in order, bytes ahead) of reads and of writes.
#[pyfunction]
#[pyo3(signature = (path, tier, read, write, heads = [None, None]))]
pub(crate) fn pool_write_profile(
    path: PathBuf,
    tier: &str,
    read: [f64; 3],
    write: [f64; 3],
    heads: [Option<[f64; 2]>; 2],
) -> PyResult<()> {
    let op = |[startup_min_s, startup_max_s, transfer_s_per_byte]: [f64; 3], head: Option<[f64; 2]>| OpProfile {
        startup_min_s,
        startup_max_s,
        transfer_s_per_byte,
        head: head.map(|[sequential_startup_s, ahead]| Head { sequential_startup_s, ahead_bytes: ahead as u64 }),
    };
    let (read, write) = (op(read, heads[0]), op(write, heads[1]));
    let profile = Profile { read, write, network_s_per_byte: 0.0 };
    Pool::write_profile(&path, tier, &profile).map_err(raise)
}

/// Gap in bytes and seconds of a seek over it, by gap.
type SeekPoints = Vec<(u64, f64)>;

/// Writes what a seek takes on servers, by their names, into the pool file, keeping everything else. `None` takes out what was
/// there.
#[pyfunction]
pub(crate) fn pool_write_seeks(path: PathBuf, seeks: Vec<(String, Option<SeekPoints>)>) -> PyResult<()> {
    let read = |(server, points): (String, Option<SeekPoints>)| {
        let wrong = |message| raise(stripewise_store::Error::Invalid(format!("seeks of {server}: {message}")));
        let map = points.map(SeekMap::new).transpose().map_err(wrong)?;
        Ok((server, map))
    };
    let seeks = seeks.into_iter().map(read).collect::<PyResult<Vec<_>>>()?;
    Pool::write_seeks(&path, &seeks).map_err(raise)
}

/// Writes what operations on names cost on the metadata tier into a pool file: least and greatest time in seconds of those that look
/// and of those that change something.
#[pyfunction]
pub(crate) fn pool_write_names(path: PathBuf, look_s: [f64; 2], change_s: [f64; 2]) -> PyResult<()> {
    Pool::write_names(&path, &NameCosts { look_s, change_s }).map_err(raise)
}

/// Writes how many requests the metadata tier serves side by side into a pool file.
#[pyfunction]
pub(crate) fn pool_write_at_once(path: PathBuf, at_once: u32) -> PyResult<()> {
    Pool::write_at_once(&path, at_once).map_err(raise)
}

fn describe(pool: &Pool) -> Value {
    let server = |of: &Server| {
        let state = if of.is_used() { "used" } else { "draining" };
        let seeks = of.seeks.as_ref().map_or(&[][..], |map| map.points());
        json!({ "id": of.id.0, "name": of.name, "path": of.root.to_string_lossy(), "state": state, "seeks": seeks })
    };
    let tiers = pool.tiers.iter().map(|tier| {
        let servers = tier.servers.iter().filter_map(|&id| pool.server(id));
        let there = servers.filter(|server| server.state != ServerState::Removed);
        let servers = there.map(server).collect();
        tier_of(&tier.name, servers, (tier.capacity_bytes, tier.emulate), tier.profile)
    });
    let of = &pool.meta.server;
    let meta = vec![server(of)];
    json!({
        "file": pool.file.to_string_lossy(),
        "name": pool.name,
        "mount": pool.mount.to_string_lossy(),
        "namespace": pool.namespace.to_string_lossy(),
        "default_width_bytes": pool.default_width_bytes,
        "land": pool.landing.map(|landing| &pool.tiers[landing.tier].name),
        "land_mark": pool.landing.map(|landing| landing.mark),
        "keeps_heat": pool.heat.is_some(),
        "tiers": tiers.collect::<Vec<_>>(),
        "meta_at_once": pool.meta.at_once,
        "meta_names": pool.meta.names.map(|names| json!({ "look_s": names.look_s, "change_s": names.change_s })),
        "meta": tier_of(&of.name, meta, (of.capacity_bytes, of.emulate), Some(pool.meta.profile)),
    })
}

/// A tier, whose servers have `(capacity_bytes, emulate)`.
fn tier_of(
    name: &str,
    servers: Vec<Value>,
    (capacity_bytes, emulate): (Option<u64>, Option<EmulateConfig>),
    profile: Option<(Profile, ProfileSource)>,
) -> Value {
    json!({
        "name": name,
        "servers": servers,
        "capacity_bytes": capacity_bytes,
        "emulated": emulate.is_some(),
        "dilation": emulate.map_or(1.0, |config| config.dilation),
        "read": profile.map(|(profile, _)| op_profile(&profile.read)),
        "write": profile.map(|(profile, _)| op_profile(&profile.write)),
        "network_s_per_byte": profile.map_or(0.0, |(profile, _)| profile.network_s_per_byte),
        "profile_source": match profile {
            Some((_, ProfileSource::PoolFile)) => "pool file",
            Some((_, ProfileSource::Emulation)) => "emulation",
            Some((_, ProfileSource::Preset)) => META_PRESET,
            None => "none",
        },
    })
}

pub(crate) fn op_profile(op: &OpProfile) -> Value {
    json!({
        "startup_min_s": op.startup_min_s,
        "startup_max_s": op.startup_max_s,
        "sequential_startup_s": op.head.map(|head| head.sequential_startup_s),
        "ahead_bytes": op.ahead_bytes(),
        "bandwidth_bytes_per_s": 1.0 / op.transfer_s_per_byte,
    })
}
