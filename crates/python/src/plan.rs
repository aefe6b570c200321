//! Planning from a trace, and predicting what layouts give.

use crate::convert::to_python;
use crate::error::raise;
use crate::trace::PyTrace;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::path::PathBuf;
use stripewise_advise::common_directory;
use stripewise_layout::round_entries;
use stripewise_planner::auto::{self, Comparison};
use stripewise_planner::planners::PLANNERS;
use stripewise_planner::why::Why;
use stripewise_planner::{FilePlan, LayoutTimes, PlanError};
use stripewise_whatif::{Bandwidths, BeforeAfter, PlanRequest, Planned, Planning, Servers, WhatifError};

/// Plans the files of `trace` below `root` on a pool; `planner` is a name of [`planners`].
#[pyfunction]
#[pyo3(signature = (trace, pool_file, root, *, planner = "auto", processes = None, max_regions = None))]
pub(crate) fn plan<'py>(
    py: Python<'py>,
    trace: &PyTrace,
    pool_file: PathBuf,
    root: PathBuf,
    planner: &str,
    processes: Option<f64>,
    max_regions: Option<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let by = PlanRequest { planner, processes, max_regions };
    let planned = py.detach(|| Planning::on_pool(&trace.inner, &pool_file, &root, false)?.plan(&by));
    to_python(py, &planned.and_then(|planned| describe(&planned)).map_err(raise)?)
}

/// The hints that gain for files like those of `trace` below `root` on a pool, laid out as they are.
#[pyfunction]
pub(crate) fn hints_for<'py>(
    py: Python<'py>,
    trace: &PyTrace,
    pool_file: PathBuf,
    root: PathBuf,
) -> PyResult<Bound<'py, PyAny>> {
    let found = py.detach(|| Planning::on_pool(&trace.inner, &pool_file, &root, true)?.hints()).map_err(raise)?;
    to_python(py, &Value::Array(found.iter().map(crate::hints::proposed).collect()))
}

/// Plans the files of `trace` below `root` (all of them without one) on the servers of a cluster file; their layouts
/// are compared with the cluster's default.
#[pyfunction]
#[pyo3(signature = (trace, cluster, *, root = None, planner = "auto", processes = None, max_regions = None))]
pub(crate) fn plan_on_cluster<'py>(
    py: Python<'py>,
    trace: &PyTrace,
    cluster: PathBuf,
    root: Option<PathBuf>,
    planner: &str,
    processes: Option<f64>,
    max_regions: Option<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let by = PlanRequest { planner, processes, max_regions };
    let root = root.unwrap_or_else(|| common_directory(&trace.inner));
    let planned = py.detach(|| {
        let cluster = Servers::load(&cluster)?.cluster;
        Planning::on_cluster(&trace.inner, &cluster, &root)?.plan(&by)
    });
    let mut document = planned.and_then(|planned| describe(&planned)).map_err(raise)?;
    document["root"] = json!(root.to_string_lossy());
    to_python(py, &document)
}

/// The planners: name, source and what each does; `auto` first.
#[pyfunction]
pub(crate) fn planners(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let row = |name, source, summary| json!({ "name": name, "source": source, "summary": summary });
    let listed = PLANNERS.iter().map(|planner| row(planner.name(), planner.source(), planner.summary()));
    let all: Vec<Value> = std::iter::once(row(auto::AUTO, auto::SOURCE, auto::SUMMARY)).chain(listed).collect();
    to_python(py, &json!(all))
}

fn describe(planned: &Planned) -> Result<Value, WhatifError> {
    let (plan, names) = (&planned.by.plan, &planned.target.names);
    let describe_file = |(index, file): (usize, &FilePlan)| {
        let regions = file.regions.iter().map(|region| {
            let (now, then) = planned.regions_at(index, region.offset);
            json!({
                "offset": region.offset,
                "end": region.end.min(file.extent_bytes.max(region.offset)),
                "round_before": round_entries(now.stripes(), names),
                "round": round_entries(then.stripes(), names),
                "cost_s": times(&region.times),
                "requests": region.requests,
                "read_bytes": region.read_bytes,
                "write_bytes": region.written_bytes,
            })
        });
        json!({ "path": file.name, "extent_bytes": file.extent_bytes, "regions": regions.collect::<Vec<_>>() })
    };
    Ok(json!({
        "layout": planned.layout_file()?.to_toml(names),
        "changes": planned.changes(),
        "processes": planned.processes(),
        "phases": plan.phases.len(),
        "cuts_s": plan.cuts_s,
        "bytes": planned.bytes(),
        "sampled": planned.sampled(),
        "cost_s": times(&plan.total),
        "simulated_s": plan.rehearsal.map(|r| json!({ "default": r.default_s, "plan": r.planned_s })),
        "files": plan.files.iter().enumerate().map(describe_file).collect::<Vec<_>>(),
        "space": plan.tiers.iter().map(|tier| json!({
            "tier": tier.name,
            "servers": tier.servers,
            "default_bytes": tier.default_bytes,
            "planned_bytes": tier.planned_bytes,
            "capacity_bytes": tier.limit_bytes,
        })).collect::<Vec<_>>(),
        "limited_by_space": planned.limited_by_space,
        "hints": planned.hints.iter().map(crate::hints::proposed).collect::<Vec<_>>(),
        "planner": planned.by.planner,
        "kept_default": planned.by.kept_default,
        "comparison": planned.by.comparison.as_ref().map(comparison),
    }))
}

/// Every planner beside the winner: what was predicted and simulated of its layouts, and by which share each time is
/// above the winner's.
fn comparison(of: &Comparison) -> Value {
    let rows = of.contenders.iter().map(|contender| match &contender.offer {
        Ok(offer) => {
            let (predicted_loss, simulated_loss) = of.loss(offer);
            json!({
                "planner": contender.planner,
                "regions": offer.regions(),
                "predicted_s": offer.price.predicted_s,
                "predicted_loss": predicted_loss,
                "simulated_s": offer.simulated_s,
                "simulated_loss": simulated_loss,
                "excess_bytes": offer.price.excess_bytes,
                "error": null,
            })
        }
        Err(error) => json!({
            "planner": contender.planner,
            "regions": null,
            "predicted_s": null,
            "predicted_loss": null,
            "simulated_s": null,
            "simulated_loss": null,
            "excess_bytes": if let PlanError::NoFit { excess_bytes } = error { Some(*excess_bytes) } else { None },
            "error": error.to_string(),
        }),
    });
    json!({
        "planners": rows.collect::<Vec<_>>(),
        "why": of.why.iter().map(Why::text).collect::<Vec<_>>(),
        "simulations": of.rehearsal.map(|rehearsal| rehearsal.simulations),
    })
}

fn times(times: &LayoutTimes) -> Value {
    json!({ "default": times.default_s, "harl": times.harl_s, "plan": times.planned_s })
}

/// What the present layouts and those of the layout file `layout` give, simulated with the requests of `trace`: bytes
/// per second while requests are in flight, by region of the new layout and operation, and in all.
#[pyfunction]
pub(crate) fn predict<'py>(
    py: Python<'py>,
    trace: &PyTrace,
    pool_file: PathBuf,
    root: PathBuf,
    layout: PathBuf,
    cuts_s: Vec<f64>,
) -> PyResult<Bound<'py, PyAny>> {
    let predicted = py.detach(|| stripewise_whatif::predict(&trace.inner, &pool_file, &root, &layout, &cuts_s));
    let predicted = predicted.map_err(raise)?;
    let files = predicted.files.iter().map(
        |(path, regions)| json!({ "path": path, "regions": regions.iter().map(before_after).collect::<Vec<_>>() }),
    );
    to_python(py, &json!({ "total": before_after(&predicted.total), "files": files.collect::<Vec<_>>() }))
}

fn before_after(of: &BeforeAfter) -> Value {
    let rates = |Bandwidths { read, write, both }: Bandwidths| json!({ "read": read, "write": write, "both": both });
    json!({ "before": rates(of.before), "after": rates(of.after) })
}
