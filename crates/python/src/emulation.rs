//! What emulated servers did, and whether they kept their times.

use crate::convert::to_python;
use crate::error::raise;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::path::PathBuf;
use stripewise_store::emulate::{OpStatistics, ServerStatistics, Verdict};
use stripewise_store::pool::Pool;

/// The counters of a pool's emulated servers at one moment.
#[pyclass(frozen, module = "stripewise._native")]
pub(crate) struct EmulationSnapshot {
    servers: Vec<(String, ServerStatistics)>,
}

/// The counters of the emulated servers of the pool `pool_file` now; zeros for a server that served nothing yet.
#[pyfunction]
pub(crate) fn emulation_snapshot(pool_file: PathBuf) -> PyResult<EmulationSnapshot> {
    let pool = Pool::load(&pool_file).map_err(raise)?;
    // A missing server has done nothing; an operation that needs it gets the error that names it.
    Ok(EmulationSnapshot { servers: pool.emulation_statistics().map_err(raise)? })
}

#[pymethods]
impl EmulationSnapshot {
    /// What each server did since `earlier`, and the verdict on the emulation.
    fn since<'py>(&self, py: Python<'py>, earlier: &Self) -> PyResult<Bound<'py, PyAny>> {
        let done: Vec<(&String, ServerStatistics)> = self
            .servers
            .iter()
            .map(|(name, now)| {
                let before = earlier.servers.iter().find(|(other, _)| other == name);
                (name, before.map_or_else(|| now.clone(), |(_, before)| now.since(before)))
            })
            .collect();
        let verdict = Verdict::of(done.iter().map(|(_, statistics)| statistics));
        let servers: Vec<Value> = done.iter().map(|(name, statistics)| server(name, statistics)).collect();
        to_python(py, &json!({ "servers": servers, "verdict": describe(&verdict) }))
    }

    /// What each server did since its queue was made.
    fn total<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let servers: Vec<Value> = self.servers.iter().map(|(name, statistics)| server(name, statistics)).collect();
        to_python(py, &Value::Array(servers))
    }
}

fn server(name: &str, statistics: &ServerStatistics) -> Value {
    json!({
        "name": name,
        "read": op(&statistics.read),
        "write": op(&statistics.write),
        "median_error": statistics.median_error(),
    })
}

fn op(statistics: &OpStatistics) -> Value {
    json!({
        "requests": statistics.requests,
        "bytes": statistics.bytes,
        "busy_s": statistics.busy_ns as f64 * 1e-9,
        "waiting_s": statistics.waiting_ns as f64 * 1e-9,
    })
}

fn describe(verdict: &Verdict) -> Value {
    let error = match verdict {
        Verdict::Idle => None,
        Verdict::Valid(error) | Verdict::Invalid(error) => Some(error),
    };
    json!({
        "valid": verdict.is_valid(),
        "text": verdict.to_string(),
        "median": error.map(|error| error.median),
        "p99": error.map(|error| error.p99),
        "median_overshoot_s": error.map(|error| error.median_overshoot_s),
        "requests": error.map_or(0, |error| error.requests),
    })
}
