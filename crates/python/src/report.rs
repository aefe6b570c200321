//! What the report draws: how files were used, and what each server and process has to do under two layouts.

use crate::convert::to_python;
use crate::error::raise;
use crate::trace::PyTrace;
use numpy::{PyArray1, PyArrayMethods as _};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use serde_json::{Value, json};
use std::path::PathBuf;
use stripewise_advise::LayoutSource;
use stripewise_layout::{Layout, META_NAME, ServerNames, round_entries};
use stripewise_trace::{AccessLoads, AccessMaps, AccessTotals, Fineness, HeatMap, Maps};
use stripewise_whatif::{AdviceRequest, ServerLoads, ServerTraffic};

/// Records between two calls of `progress`, at least.
const STEP: u64 = 1 << 20;

/// The trace in sums and, for the `most` files of which most bytes were moved, in maps of at most `columns` x `rows`
/// cells. Reads the trace twice. `progress` is called with the records read and those to read.
#[pyfunction]
#[pyo3(signature = (trace, *, most, columns, rows, progress))]
pub(crate) fn access<'py>(
    py: Python<'py>,
    trace: &PyTrace,
    most: usize,
    columns: usize,
    rows: usize,
    progress: Py<PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let inner = &trace.inner;
    let (totals, maps) = py.detach(|| {
        let all = 2 * inner.records().len() as u64;
        let (mut done, mut told) = (0, 0);
        let mut step = |records: u64| {
            done += records;
            if done - told < STEP {
                return Ok(());
            }
            told = done;
            Python::attach(|py| progress.call1(py, (done, all)).map(|_| ()))
        };
        let totals = AccessTotals::of(inner, &mut step)?;
        let drawn = totals.most_moved(most);
        let maps = AccessMaps::of(inner, &totals, &drawn, Fineness { columns, rows }, &mut step)?;
        Ok::<_, PyErr>((totals, maps))
    })?;
    let document = to_python(py, &totals_of(&totals, inner.lost()))?;
    document.set_item("process_time", planes(py, maps.processes)?)?;
    let listed = PyList::empty(py);
    for file in maps.files {
        let entry = PyDict::new(py);
        entry.set_item("file", file.file)?;
        entry.set_item("heat", planes(py, file.heat)?)?;
        entry.set_item("sizes", planes(py, file.sizes)?)?;
        listed.append(entry)?;
    }
    document.set_item("maps", listed)?;
    Ok(document)
}

fn totals_of(totals: &AccessTotals, lost: u64) -> Value {
    let processes = totals.processes.iter().map(|(&(program, rank, pid), loads)| {
        json!({ "program": program, "rank": rank, "pid": pid, "reads": load(loads, 0), "writes": load(loads, 1) })
    });
    let sizes = totals
        .sizes
        .iter()
        .map(|(octave, loads)| json!({ "from": 1_u64 << octave, "reads": load(loads, 0), "writes": load(loads, 1) }));
    let files = totals.files.iter().map(|file| {
        json!({
            "file": file.file,
            "extent_bytes": file.extent_bytes,
            "min_bytes": file.sizes.0,
            "max_bytes": file.sizes.1,
            "processes": file.processes,
            "reads": load(&file.loads, 0),
            "writes": load(&file.loads, 1),
        })
    });
    json!({
        "lost": lost,
        "start_s": totals.span_ns.0 as f64 * 1e-9,
        "end_s": totals.span_ns.1 as f64 * 1e-9,
        "processes": processes.collect::<Vec<_>>(),
        "sizes": sizes.collect::<Vec<_>>(),
        "files": files.collect::<Vec<_>>(),
    })
}

fn load(loads: &AccessLoads, way: usize) -> Value {
    let load = loads[way];
    json!({ "requests": load.requests, "bytes": load.bytes, "service_s": load.service_ns as f64 * 1e-9 })
}

/// Reads and writes as arrays of rows x columns, with their axes.
fn planes(py: Python<'_>, maps: Maps) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    let (across, down) = (maps[0].across(), maps[0].down());
    for (name, axis) in [("across", across), ("down", down)] {
        dict.set_item(name, to_python(py, &json!({ "from": axis.from, "cell": axis.cell, "cells": axis.cells }))?)?;
    }
    let array = |map: HeatMap| PyArray1::from_vec(py, map.into_cells()).reshape([down.cells, across.cells]);
    let [reads, writes] = maps;
    dict.set_item("reads", array(reads)?)?;
    dict.set_item("writes", array(writes)?)?;
    Ok(dict)
}

/// The files of `trace` below `root`, and what servers and processes have to do under the layouts that files have now and
/// under those of the text `layout` of a layout file, which errors call `origin`. Servers, root and present layouts are
/// those of [`advise`](crate::advise::advise). Requests and bytes of every server are exact; its busy time, and the time
/// that processes wait for their requests, are simulated once, unless there are too many requests to be held.
#[pyfunction]
#[pyo3(signature = (trace, cluster, layout, origin, *, root = None, preset = "hdd-7200", osts = None))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(crate) fn server_load<'py>(
    py: Python<'py>,
    trace: &PyTrace,
    cluster: Option<PathBuf>,
    layout: &str,
    origin: &str,
    root: Option<PathBuf>,
    preset: &str,
    osts: Option<u16>,
) -> PyResult<Bound<'py, PyAny>> {
    let (servers, root) = (cluster.as_deref(), root.as_deref());
    let asked = AdviceRequest { servers, root, planner: None, preset, osts, layout: None, rules: false, hints: false };
    let loads = py.detach(|| ServerLoads::of(&trace.inner, &trace.about, &asked, layout, origin)).map_err(raise)?;
    to_python(py, &describe(&loads))
}

fn describe(loads: &ServerLoads) -> Value {
    let (cluster, simulated) = (&loads.sides.cluster, loads.simulated.as_ref());
    let names = cluster.names();
    let files = loads.sides.files.iter().map(|file| {
        json!({
            "file": file.id,
            "path": file.path,
            "known": file.source != LayoutSource::Default,
            "present": regions(&file.present, &names),
            "layout": regions(&file.layout, &names),
        })
    });
    let server = |number: usize, name: &str, tier: &str| {
        let [present, layout] = [0, 1].map(|side| {
            let ServerTraffic { requests, bytes } = loads.moved[side][number];
            let busy_s = simulated.map(|simulated| simulated.busy_s[side].get(number).copied().unwrap_or(0.0));
            json!({ "requests": requests, "bytes": bytes, "busy_s": busy_s })
        });
        json!({ "name": name, "tier": tier, "present": present, "layout": layout })
    };
    let mut servers = Vec::new();
    for tier in &cluster.tiers {
        for index in 0..tier.servers {
            servers.push(server(servers.len(), &format!("{}.{index}", tier.name), &tier.name));
        }
    }
    // Most files have nothing on the metadata tier.
    if loads.moved.iter().any(|moved| moved.get(servers.len()).is_some_and(|meta| meta.requests > 0)) {
        servers.push(server(servers.len(), META_NAME, META_NAME));
    }
    let processes = simulated.map(|simulated| {
        let processes = simulated.processes_s.iter().map(|(&(program, rank, pid), [present_s, layout_s])| {
            json!({ "program": program, "rank": rank, "pid": pid, "present_s": present_s, "layout_s": layout_s })
        });
        processes.collect::<Vec<_>>()
    });
    let totals = simulated.map(|simulated| {
        let total = |(time_s, bytes_per_s)| json!({ "time_s": time_s, "bytes_per_s": bytes_per_s });
        let [present, layout] = simulated.totals.map(total);
        json!({ "present": present, "layout": layout })
    });
    json!({
        "name": cluster.name,
        "root": loads.sides.root.to_string_lossy(),
        "tiers": cluster.tiers.iter().map(|tier| &tier.name).collect::<Vec<_>>(),
        "files": files.collect::<Vec<_>>(),
        "servers": servers,
        "processes": processes,
        "simulated": totals,
    })
}

fn regions(layout: &Layout, names: &ServerNames) -> Value {
    let regions = layout.regions().iter().map(|region| {
        let stripes = region
            .stripes()
            .iter()
            .map(|stripe| json!({ "server": names.name(stripe.server), "width_bytes": stripe.width_bytes }));
        json!({
            "offset": region.offset(),
            "round": round_entries(region.stripes(), names),
            "stripes": stripes.collect::<Vec<_>>(),
        })
    });
    json!(regions.collect::<Vec<_>>())
}
