//! Programs that run at once: what they do to each other, and what turns would make of that.

use crate::convert::to_python;
use crate::error::raise;
use crate::simulate::{PySystemOptions, estimate};
use crate::trace::PyTrace;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::PathBuf;
use stripewise_simulate::{Estimate, ProgramRules};
use stripewise_whatif::{ConcurrentPrograms, NamedTrace, PolicyOutcome, TogetherRequest};

/// Simulates the programs of `traces`, each with its name, on the servers of a pool or cluster file: alone, together, and
/// together under each of `policies`; with `pairs` also two by two. Weights and limits (bytes per second) are by the name of a program.
#[pyfunction]
#[pyo3(signature = (traces, servers, root, policies, window, weights, limits, *, as_recorded, pairs, around))]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
pub(crate) fn together<'py>(
    py: Python<'py>,
    traces: Vec<(String, PyRef<'py, PyTrace>)>,
    servers: PathBuf,
    root: Option<PathBuf>,
    policies: Vec<String>,
    window: String,
    weights: HashMap<String, f64>,
    limits: HashMap<String, u64>,
    as_recorded: bool,
    pairs: bool,
    around: PySystemOptions,
) -> PyResult<Bound<'py, PyAny>> {
    let around = around.read();
    let named: Vec<NamedTrace> = traces.iter().map(|(name, trace)| NamedTrace { name, trace: &trace.inner }).collect();
    let rules = ProgramRules { weights, limits };
    let asked = TogetherRequest {
        servers: &servers,
        root: root.as_deref(),
        policies: &policies,
        rules: &rules,
        window: &window,
        as_recorded,
        pairs,
    };
    let found = py.detach(|| stripewise_whatif::together(&named, &asked, &around)).map_err(raise)?;
    to_python(py, &document(&found, &around))
}

fn document(of: &ConcurrentPrograms, around: &stripewise_whatif::SystemOptions) -> Value {
    let names = |servers: &[stripewise_layout::ServerId]| {
        servers.iter().map(|&server| of.target.names.name(server)).collect::<Vec<_>>()
    };
    let program = |one: &stripewise_whatif::ProgramAlone| {
        json!({
            "name": one.name,
            "processes": one.processes,
            "bytes": one.bytes,
            "begin_s": one.begin_s,
            "alone_s": estimate(&one.took_s),
            "servers": names(&one.servers),
        })
    };
    let pair = |one: &stripewise_whatif::ProgramPair| {
        json!({
            "programs": one.programs.map(|program| of.programs[program].name.clone()),
            "overlap_s": one.overlap_s,
            "servers": names(&one.servers),
            "slowdowns": one.slowdowns.iter().map(estimate).collect::<Vec<_>>(),
        })
    };
    json!({
        "runs": around.repeat.max(1),
        "seed": around.seed,
        "window_s": of.window_s,
        "programs": of.programs.iter().map(program).collect::<Vec<_>>(),
        "policies": of.outcomes.iter().map(policy).collect::<Vec<_>>(),
        "pairs": of.pairs.iter().map(pair).collect::<Vec<_>>(),
        "pairs_left": of.pairs_left,
    })
}

fn policy(of: &PolicyOutcome) -> Value {
    let all = |values: &[Estimate]| values.iter().map(estimate).collect::<Vec<_>>();
    json!({
        "policy": of.policy,
        "makespan_s": estimate(&of.makespan_s),
        "throughput": estimate(&of.throughput),
        "took_s": all(&of.took_s),
        "slowdowns": all(&of.slowdowns),
        "waited_s": of.waited_s,
        "fairness": estimate(&of.fairness),
    })
}
