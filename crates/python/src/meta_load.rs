//! The load of a pool's metadata tier.

use crate::convert::to_python;
use crate::error::raise;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::path::PathBuf;
use stripewise_store::Pool;
use stripewise_store::pool::{MetaPeriod, ProfileSource, meta_periods};

/// The last periods of the metadata tier, the oldest first, and whether its bandwidth is known.
#[pyfunction]
pub(crate) fn pool_meta_load(py: Python<'_>, pool_file: PathBuf) -> PyResult<Bound<'_, PyAny>> {
    let pool = Pool::load(&pool_file).map_err(raise)?;
    let one = |of: MetaPeriod| {
        json!({
            "time_s": of.time_s,
            "served": of.served,
            "names": of.names,
            "waiting": of.waiting,
            "bytes": of.bytes,
            "latency_s": of.latency_s,
            "load": of.load,
            "esm": of.esm,
            "bls_esm": of.bls_esm,
            "share": of.share,
        })
    };
    let periods: Vec<Value> = py.detach(|| meta_periods(&pool)).into_iter().map(one).collect();
    let is_known = pool.meta.profile.1 != ProfileSource::Preset;
    to_python(py, &json!({ "is_known": is_known, "periods": periods }))
}
