//! What the report draws: how files were used, and what each server and process has to do under two layouts.

use crate::convert::to_python;
use crate::error::raise;
use crate::replay::{self, ThreadId};
use crate::trace::PyTrace;
use crate::{advise, cluster};
use numpy::{PyArray1, PyArrayMethods as _};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use stripewise_advise::{AdviceOptions, Below, ClusterFile, FileRequests, LayoutSource, Sided, Sides};
use stripewise_layout::{Layout, LayoutFile, ServerNames, round_entries};
use stripewise_model::Cluster;
use stripewise_planner::{FileTrace, Job, PlanOptions};
use stripewise_simulate::{Did, SimulatedAccess, System, run_observed};
use stripewise_trace::{AccessLoads, AccessMaps, AccessTotals, Fineness, HeatMap, Maps, Operation, ProcessId};

/// Records between two calls of `progress`, at least.
const STEP: u64 = 1 << 20;

/// A file of which less than this part of the bytes of the most moved one is moved gets no map.
const LEAST_SHARE: u64 = 100;

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
    let (totals, maps, drawn) = py.detach(|| {
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
        let mut ranked: Vec<(u64, u32)> = totals
            .files
            .iter()
            .map(|file| (file.loads.iter().fold(0, |sum: u64, load| sum.saturating_add(load.bytes)), file.file))
            .collect();
        let most_bytes = ranked.iter().map(|file| file.0).max().unwrap_or(0);
        ranked.retain(|file| file.0 > 0 && file.0 >= most_bytes / LEAST_SHARE);
        ranked.sort_by_key(|&(bytes, file)| (std::cmp::Reverse(bytes), file));
        let drawn: Vec<u32> = ranked.iter().take(most).map(|&(_, file)| file).collect();
        let maps = AccessMaps::of(inner, &totals, &drawn, Fineness { columns, rows }, &mut step)?;
        Ok::<_, PyErr>((totals, maps, drawn))
    })?;
    let document = to_python(py, &totals_of(&totals, inner.lost()))?;
    document.set_item("process_time", planes(py, maps.processes)?)?;
    let listed = PyList::empty(py);
    let mut files: HashMap<u32, _> = maps.files.into_iter().map(|file| (file.file, file)).collect();
    for id in drawn {
        let Some(file) = files.remove(&id) else { continue };
        let entry = PyDict::new(py);
        entry.set_item("file", id)?;
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
#[pyo3(signature = (trace, cluster, layout, origin, *, root = None, preset = "hdd-7200"))]
pub(crate) fn server_load<'py>(
    py: Python<'py>,
    trace: &PyTrace,
    cluster: Option<PathBuf>,
    layout: &str,
    origin: &str,
    root: Option<PathBuf>,
    preset: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let document = py.detach(|| {
        let servers = cluster.as_deref().map(cluster::load).transpose()?;
        let options = AdviceOptions {
            cluster: servers.as_ref().map(|servers| &servers.cluster),
            preset,
            root: root.as_deref(),
            planner: None,
            present: None,
        };
        let pool = servers.as_ref().filter(|servers| servers.is_pool).and(cluster.as_deref());
        advise::with_present(pool, &options, |options| {
            let read = |cluster: &ClusterFile| LayoutFile::parse(layout, &cluster.names());
            let sides = Sides::of(&trace.inner, &trace.about, options, read)
                .map_err(|error| format!("{origin}:{}: {}", error.line, error.problem))?
                .map_err(|error| error.to_string())?;
            describe(trace, &sides)
        })
    });
    to_python(py, &document.map_err(raise)?)
}

/// Sub-requests and bytes of a server, by reads and writes.
#[derive(Clone, Copy, Default)]
struct Moved {
    requests: [u64; 2],
    bytes: [u64; 2],
}

/// What each of `servers` has to do under one of the layouts. O(requests x their sub-requests).
fn moved(trace: &PyTrace, sides: &Sides, side: usize, servers: usize) -> Vec<Moved> {
    let mut moved = vec![Moved::default(); servers];
    for file in &sides.files {
        let layout = layout_of(file, side);
        for record in trace.inner.stream(file.id) {
            let way = usize::from(record.operation() == Some(Operation::Write));
            for part in layout.split(record.offset, record.size) {
                if let Some(server) = moved.get_mut(part.server.index()) {
                    server.requests[way] += 1;
                    server.bytes[way] = server.bytes[way].saturating_add(part.len);
                }
            }
        }
    }
    moved
}

/// The present layout of a file is its first side.
fn layout_of(file: &Sided, side: usize) -> &Layout {
    if side == 0 { &file.present } else { &file.layout }
}

/// Two runs of the trace's requests, under the present layouts and under the others, with the same startup times.
struct Simulated {
    /// Seconds that the run took, and bytes per second.
    totals: [(f64, f64); 2],
    /// Busy seconds of each server.
    busy_s: [Vec<f64>; 2],
    /// Seconds that each process waited for its requests.
    processes_s: BTreeMap<ProcessId, [f64; 2]>,
}

impl Simulated {
    /// `None` where there are too many requests to be held.
    fn of(trace: &PyTrace, sides: &Sides) -> Result<Option<Self>, String> {
        let below = Below::new(&trace.inner, &sides.root);
        if below.is_large() {
            return Ok(None);
        }
        let cluster = sides.cluster.cluster();
        let requests = below.files(true);
        let by_id: HashMap<u32, &Sided> = sides.files.iter().map(|file| (file.id, file)).collect();
        let cuts_s = cuts(&requests, &cluster, sides.cluster.default.width_bytes)?;
        let cuts_ns: Vec<u64> = cuts_s.iter().map(|cut_s| (cut_s * 1e9).round() as u64).collect();
        let threads = replay::threads(&trace.inner, &requests, false);
        let (ids, did): (Vec<ThreadId>, Vec<Vec<Did>>) = threads.into_iter().unzip();
        let program = stripewise_simulate::replay(did, &cuts_ns, false).program;
        let mut made = Self { totals: [(0.0, 0.0); 2], busy_s: [Vec::new(), Vec::new()], processes_s: BTreeMap::new() };
        for side in 0..2 {
            let layouts = requests.iter().map(|file| by_id.get(&file.id).map(|file| layout_of(file, side).clone()));
            let layouts: Vec<Layout> = layouts.collect::<Option<_>>().ok_or("a file of the trace has no layout")?;
            let processes_s = &mut made.processes_s;
            let observe = |process: u32, _: &SimulatedAccess, issued_s: f64, ended_s: f64| {
                if let Some(&(rank, pid, _, program)) = ids.get(process as usize) {
                    processes_s.entry((program, rank, pid)).or_default()[side] += ended_s - issued_s;
                }
            };
            let report = run_observed(&cluster, &layouts, &program, &System::default(), 1, observe);
            let outcome = report.map_err(|error| error.to_string())?.outcome;
            made.totals[side] = (outcome.makespan_s, outcome.throughput());
            made.busy_s[side] = outcome.servers.iter().map(|server| server.busy_s).collect();
        }
        Ok(Some(made))
    }
}

/// Where the phases of the program meet, as the planner finds them.
fn cuts(files: &[FileRequests], cluster: &Cluster, default_width_bytes: u64) -> Result<Vec<f64>, String> {
    let traces =
        files.iter().map(|file| FileTrace { name: file.path.clone(), requests: &file.requests, size_bytes: None });
    let traces: Vec<FileTrace> = traces.collect();
    let options = PlanOptions { default_width_bytes, ..PlanOptions::default() };
    Job::new(&traces, cluster, &options).map(|job| job.cuts_s().to_vec()).map_err(|error| error.to_string())
}

fn describe(trace: &PyTrace, sides: &Sides) -> Result<Value, String> {
    let cluster = &sides.cluster;
    let names = cluster.names();
    let count = cluster.tiers.iter().map(|tier| usize::from(tier.servers)).sum();
    let moved = [0, 1].map(|side| moved(trace, sides, side, count));
    let simulated = Simulated::of(trace, sides)?;
    let simulated = simulated.as_ref();
    let files = sides.files.iter().map(|file| {
        let [present, layout] = [0, 1].map(|side| regions(layout_of(file, side), &names));
        let known = file.source != LayoutSource::Default;
        json!({ "file": file.id, "path": file.path, "known": known, "present": present, "layout": layout })
    });
    let mut servers = Vec::new();
    for tier in &cluster.tiers {
        for index in 0..tier.servers {
            let number = servers.len();
            let [present, layout] = [0, 1].map(|side| {
                let Moved { requests, bytes } = moved[side][number];
                json!({
                    "requests": requests.iter().sum::<u64>(),
                    "bytes": bytes.iter().fold(0, |sum: u64, &more| sum.saturating_add(more)),
                    "busy_s": simulated.and_then(|simulated| simulated.busy_s[side].get(number)),
                })
            });
            let name = format!("{}.{index}", tier.name);
            servers.push(json!({ "name": name, "tier": tier.name, "present": present, "layout": layout }));
        }
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
    Ok(json!({
        "name": cluster.name,
        "root": sides.root.to_string_lossy(),
        "tiers": cluster.tiers.iter().map(|tier| &tier.name).collect::<Vec<_>>(),
        "files": files.collect::<Vec<_>>(),
        "servers": servers,
        "processes": processes,
        "simulated": totals,
    }))
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
