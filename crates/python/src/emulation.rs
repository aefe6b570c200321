//! What emulated servers did, and whether they kept their times.

use crate::convert::to_python;
use crate::error::raise;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::path::PathBuf;
use stripewise_store::emulate::{OpStatistics, ServerStatistics, Verdict};
use stripewise_store::{EmulationSnapshot, Pool};

/// [`EmulationSnapshot`].
#[pyclass(frozen, name = "EmulationSnapshot", module = "stripewise._native")]
pub(crate) struct PyEmulationSnapshot(EmulationSnapshot);

/// The counters of the emulated servers of the pool `pool_file` now; zeros for a server that served nothing yet.
#[pyfunction]
pub(crate) fn emulation_snapshot(pool_file: PathBuf) -> PyResult<PyEmulationSnapshot> {
    let pool = Pool::load(&pool_file).map_err(raise)?;
    Ok(PyEmulationSnapshot(EmulationSnapshot::of(&pool).map_err(raise)?))
}

#[pymethods]
impl PyEmulationSnapshot {
    /// What each server did since `earlier`, and the verdict on the emulation.
    fn since<'py>(&self, py: Python<'py>, earlier: &Self) -> PyResult<Bound<'py, PyAny>> {
        let done = self.0.since(&earlier.0);
        to_python(py, &json!({ "servers": servers(&done), "verdict": describe(&done.verdict()) }))
    }

    /// What each server did since its queue was made.
    fn total<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &servers(&self.0))
    }
}

fn servers(of: &EmulationSnapshot) -> Value {
    Value::Array(of.servers.iter().map(|(name, statistics)| server(name, statistics)).collect())
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
