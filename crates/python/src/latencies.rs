//! How long the servers of a pool took for requests.

use crate::convert::to_python;
use crate::error::raise;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::path::PathBuf;
use stripewise_store::Pool;
use stripewise_store::pool::{LatencyHistogram, latencies, latency_bounds_s};

/// The histograms of all servers that have served something, as mounts with `-o latencies` have counted.
#[pyfunction]
pub(crate) fn pool_latencies(py: Python<'_>, pool_file: PathBuf) -> PyResult<Bound<'_, PyAny>> {
    let pool = Pool::load(&pool_file).map_err(raise)?;
    let found = py.detach(|| latencies(&pool)).map_err(raise)?;
    let one = |of: &LatencyHistogram| {
        json!({
            "server": pool.server_name(of.server),
            "op": if of.is_write { "write" } else { "read" },
            "counts": of.counts,
            "sum_s": of.sum_ns as f64 * 1e-9,
        })
    };
    let servers: Vec<Value> = found.iter().map(one).collect();
    to_python(py, &json!({ "bounds_s": latency_bounds_s().collect::<Vec<_>>(), "servers": servers }))
}
