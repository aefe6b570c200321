//! Turns of programs: the orchestrator of a pool, and what it does.

use crate::convert::to_python;
use crate::error::raise;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use stripewise_layout::ServerId;
use stripewise_orchestrate::{
    Decision, Orchestrator, OrchestratorOptions, ProgramRules, ProgramStatus, WatchedNode, orchestration_status,
};
use stripewise_schedule::{POLICY_NAMES, policies};
use stripewise_store::Pool;

/// [`Orchestrator`].
#[pyclass(frozen, name = "Orchestrator", module = "stripewise._native")]
pub(crate) struct PyOrchestrator(Mutex<Option<Orchestrator>>);

/// Names of the policies with a line of each; the first is the default.
#[pyfunction]
pub(crate) fn schedule_policies() -> Vec<(&'static str, &'static str)> {
    POLICY_NAMES.into_iter().filter_map(|name| Some((name, policies::named(name)?.describe()))).collect()
}

/// Begins to orchestrate the pool `pool_file`; weights and limits (bytes per second) by the name of a program.
#[pyfunction]
pub(crate) fn orchestrate(
    pool_file: PathBuf,
    policy: String,
    window_s: f64,
    weights: HashMap<String, f64>,
    limits: HashMap<String, u64>,
) -> PyResult<PyOrchestrator> {
    let pool = Pool::load(&pool_file).map_err(raise)?;
    let window = Duration::try_from_secs_f64(window_s).unwrap_or(Duration::ZERO);
    let options = OrchestratorOptions { policy, window, rules: ProgramRules { weights, limits } };
    let orchestrator = Orchestrator::start(&pool, &options).map_err(raise)?;
    Ok(PyOrchestrator(Mutex::new(Some(orchestrator))))
}

#[pymethods]
impl PyOrchestrator {
    /// Works for `time_s`, or until a window has ended: what was decided then.
    fn work<'py>(&self, py: Python<'py>, time_s: f64) -> PyResult<Bound<'py, PyAny>> {
        let time = Duration::try_from_secs_f64(time_s).unwrap_or(Duration::ZERO);
        let decisions = py.detach(|| {
            let mut orchestrator = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            orchestrator.as_mut().map_or_else(Vec::new, |orchestrator| orchestrator.work(time))
        });
        to_python(py, &Value::Array(decisions.iter().map(decision).collect()))
    }

    /// What is to be told of pages since this was asked last.
    fn take_remarks(&self) -> Vec<String> {
        let mut orchestrator = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        orchestrator.as_mut().map_or_else(Vec::new, Orchestrator::take_remarks)
    }

    /// Opens the gates; nothing is decided any more.
    fn end(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// What goes on in the pool `pool_file`.
#[pyfunction]
pub(crate) fn orchestration<'py>(py: Python<'py>, pool_file: PathBuf) -> PyResult<Bound<'py, PyAny>> {
    let pool = Pool::load(&pool_file).map_err(raise)?;
    let status = orchestration_status(&pool).map_err(raise)?;
    let slices: Vec<_> =
        status.slices.iter().map(|(name, ns)| json!({ "program": name, "slice_s": seconds(*ns) })).collect();
    let document = json!({
        "process": status.process,
        "policy": status.policy,
        "window_s": seconds(status.window_ns),
        "age_s": seconds(status.age_ns),
        "plans": status.plans,
        "served": status.served,
        "slices": slices,
        "programs": status.programs.iter().map(program).collect::<Vec<_>>(),
        "unplaced": status.unplaced,
        "nodes": status.nodes.iter().map(|of| node(&pool, of)).collect::<Vec<_>>(),
        "nodes_told_s": status.nodes_told_ns.map(seconds),
    });
    to_python(py, &document)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 * 1e-9
}

fn program(of: &ProgramStatus) -> Value {
    let traits = &of.traits;
    json!({
        "name": traits.name,
        "user": traits.uid,
        "is_busy": of.is_busy,
        "standing": of.standing.map(|standing| standing.name()),
        "processes": traits.processes,
        "files": traits.files,
        "requests": traits.requests,
        "bytes": traits.bytes,
        "held": traits.held,
        "waited_s": seconds(traits.waited_ns),
        "in_turn": traits.in_turn,
        "unanswered": traits.unanswered,
        "overdue": traits.overdue,
        "weight": of.weight,
        "limit_bytes_per_s": (of.limit > 0).then_some(of.limit),
        "slice_s": seconds(of.slice_ns),
        "gap_bytes": of.gap_bytes,
        "reuse_s": of.reuse_ns.map(|ns| ns * 1e-9),
        "period_s": traits.period_ns.map(|ns| ns * 1e-9),
    })
}

fn node(pool: &Pool, watched: &WatchedNode) -> Value {
    let of = &watched.status;
    let served = of.served.iter().enumerate().take(pool.servers.len()).filter(|(_, done)| done.requests > 0);
    let servers = served.map(|(server, done)| {
        let name = pool.server_name(ServerId(server as u16));
        json!({ "server": name, "requests": done.requests, "bytes": done.bytes })
    });
    json!({
        "name": of.name,
        "address": (!of.address.is_empty()).then_some(&of.address),
        "is_here": watched.is_here,
        "is_joined": of.is_joined,
        "clock_offset_s": of.clock_offset_ns.map(|ns| ns as f64 * 1e-9),
        "clock_error_s": seconds(of.clock_error_ns),
        "heard_s": seconds(of.heard_ns),
        "is_in_turns": of.is_in_turns,
        "programs": watched.programs.iter().map(program).collect::<Vec<_>>(),
        "servers": servers.collect::<Vec<_>>(),
    })
}

fn decision(of: &Decision) -> Value {
    json!({ "program": of.program, "is_change": of.is_change, "text": of.to_string() })
}
