//! Simulating a trace on a pool, under the layouts that its files have and under those of a layout file.

use crate::convert::to_python;
use crate::error::raise;
use crate::trace::PyTrace;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::path::PathBuf;
use stripewise_layout::ServerNames;
use stripewise_simulate::{Estimate, Latency, Repeated};
use stripewise_whatif::Simulation;

/// What stands around the pool's profiles, as written on the command line.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PySystemOptions {
    /// `NAME` for all tiers, `TIER=NAME` for one; the last that fits holds.
    queue: Vec<String>,
    wait: String,
    near: String,
    /// `TIER`, or `TIER=BYTES` with the size of its disks.
    seek: Vec<String>,
    /// A bandwidth, or `profile`.
    link: Option<String>,
    client_link: Option<String>,
    processes_per_node: Option<u32>,
    latency: String,
    pipelined: bool,
    metadata: Option<String>,
    think: bool,
    repeat: usize,
    seed: u64,
    bins: usize,
}

impl PySystemOptions {
    pub(crate) fn read(self) -> stripewise_whatif::SystemOptions {
        stripewise_whatif::SystemOptions {
            queue: self.queue,
            wait: self.wait,
            near: self.near,
            seek: self.seek,
            link: self.link,
            client_link: self.client_link,
            processes_per_node: self.processes_per_node,
            latency: self.latency,
            pipelined: self.pipelined,
            metadata: self.metadata,
            think: self.think,
            repeat: self.repeat,
            seed: self.seed,
            bins: self.bins,
        }
    }
}

/// Simulates the requests of `trace` below `root` under the present layouts, and under those of the layout file
/// `layout` if there is one.
#[pyfunction]
pub(crate) fn simulate<'py>(
    py: Python<'py>,
    trace: &PyTrace,
    pool_file: PathBuf,
    root: PathBuf,
    layout: Option<PathBuf>,
    around: PySystemOptions,
) -> PyResult<Bound<'py, PyAny>> {
    let around = around.read();
    let simulate = || stripewise_whatif::simulate(&trace.inner, &pool_file, &root, layout.as_deref(), &around);
    let simulated = py.detach(simulate).map_err(raise)?;
    to_python(py, &document(&simulated, &around))
}

/// As [`simulate`], on the servers of a cluster file, whose default layout all files have; below the directory of all
/// files without a `root`.
#[pyfunction]
pub(crate) fn simulate_on_cluster<'py>(
    py: Python<'py>,
    trace: &PyTrace,
    cluster: PathBuf,
    root: Option<PathBuf>,
    layout: Option<PathBuf>,
    around: PySystemOptions,
) -> PyResult<Bound<'py, PyAny>> {
    let around = around.read();
    let (root, layout) = (root.as_deref(), layout.as_deref());
    let simulate = || stripewise_whatif::simulate_on_cluster(&trace.inner, &cluster, root, layout, &around);
    let simulated = py.detach(simulate).map_err(raise)?;
    to_python(py, &document(&simulated, &around))
}

fn document(of: &Simulation, around: &stripewise_whatif::SystemOptions) -> Value {
    json!({
        "files": of.files,
        "processes": of.processes,
        "nodes": of.nodes,
        "traced_s": of.traced_s,
        "phases": of.phases,
        "collectives": of.collectives,
        "requests": of.present.first.requests,
        "runs": around.repeat.max(1),
        "seed": around.seed,
        "present": describe(&of.present, &of.target.names),
        "layout": of.layout.as_ref().map(|layout| describe(layout, &of.target.names)),
        "ratio": of.ratio.as_ref().map(estimate),
    })
}

fn describe(repeated: &Repeated, names: &ServerNames) -> Value {
    let report = &repeated.first;
    let name = |index: usize| names.name(report.outcome.server_at(index));
    let used = report.outcome.servers.iter().zip(&report.queues).zip(&repeated.busy_s).enumerate();
    let servers = used.map(|(index, ((server, queue), busy_s))| {
        json!({
            "name": name(index),
            "requests": server.requests(),
            "bytes": server.bytes,
            "busy_s": estimate(busy_s),
            "waiting_s": repeated.waiting_s[index].mean,
            "startup_s": repeated.startup_s[index].mean,
            "longest_queue": queue.most,
            "link_in_busy_s": server.link_in_busy_s,
            "link_out_busy_s": server.link_out_busy_s,
        })
    });
    let timeline = report.timeline.as_ref().map(|timeline| {
        json!({
            "bin_s": timeline.bin_s,
            "throughput": timeline.throughput(report.outcome.makespan_s),
            "read_bytes": timeline.read_bytes,
            "written_bytes": timeline.written_bytes,
            "servers": timeline.servers.iter().enumerate().map(|(index, bins)| json!({
                "name": name(index),
                "busy": bins.iter().map(|bin| bin.busy).collect::<Vec<_>>(),
                "queue": bins.iter().map(|bin| bin.queue).collect::<Vec<_>>(),
                "bytes": bins.iter().map(|bin| bin.bytes).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
        })
    });
    json!({
        "throughput": estimate(&repeated.throughput),
        "makespan_s": estimate(&repeated.makespan_s),
        "read_bytes": report.outcome.read_bytes,
        "written_bytes": report.outcome.written_bytes,
        "sub_requests": report.sub_requests,
        "latency": {
            "mean_s": estimate(&repeated.latency_mean_s),
            "p50_s": estimate(&repeated.latency_p50_s),
            "p95_s": estimate(&repeated.latency_p95_s),
            "p99_s": estimate(&repeated.latency_p99_s),
            "max_s": estimate(&repeated.latency_max_s),
        },
        "reads": latency(&report.reads),
        "writes": latency(&report.writes),
        "servers": servers.collect::<Vec<_>>(),
        "nodes": report.nodes.iter().map(|node| json!({
            "in_busy_s": node.in_busy_s,
            "out_busy_s": node.out_busy_s,
        })).collect::<Vec<_>>(),
        "metadata": {
            "requests": report.metadata.requests,
            "busy_s": report.metadata.busy_s,
            "waiting_s": report.metadata.waiting_s,
        },
        "timeline": timeline,
    })
}

pub(crate) fn estimate(estimate: &Estimate) -> Value {
    json!({ "mean": estimate.mean, "half_width": estimate.half_width })
}

fn latency(latency: &Latency) -> Value {
    let Latency { mean_s, p50_s, p95_s, p99_s, max_s } = *latency;
    json!({ "mean_s": mean_s, "p50_s": p50_s, "p95_s": p95_s, "p99_s": p99_s, "max_s": max_s })
}
