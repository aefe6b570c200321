//! Simulating a trace on a pool, under the layouts that its files have and under those of a layout file.

use crate::convert::to_python;
use crate::error::raise;
use crate::trace::PyTrace;
use crate::{cluster, files, layout_file, replay};
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use stripewise_advise::{self as advise, ClusterFile, FileRequests, common_directory};
use stripewise_layout::units::{parse_bandwidth, parse_bytes, parse_seconds};
use stripewise_layout::{Layout, ServerId, ServerNames};
use stripewise_model::Cluster;
use stripewise_planner::{FileTrace, Job, PlanOptions};
use stripewise_simulate::{
    ClientLink, Did, Estimate, Forwarding, Latency, Links, Metadata, Packed, Queue, Repeated, Replayed, ServerLink,
    Service, Startup, StepProgram, System, TierDevice, repeat,
};
use stripewise_store::Pool;

/// A full stroke of a disk whose tier has no capacity: that of a disk of 1 TB.
const STROKE_BYTES: u64 = 1_000_000_000_000;

/// What stands around the pool's profiles, as written on the command line.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct SystemOptions {
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

/// Simulates the requests of `trace` below `root` under the present layouts, and under those of the layout file
/// `layout` if there is one.
#[pyfunction]
pub(crate) fn simulate<'py>(
    py: Python<'py>,
    trace: &PyTrace,
    pool_file: PathBuf,
    root: PathBuf,
    layout: Option<PathBuf>,
    around: SystemOptions,
) -> PyResult<Bound<'py, PyAny>> {
    let store = files::open(&pool_file)?;
    let target = Target::pool(store.pool()).map_err(raise)?;
    let present = |_, file: &FileRequests| {
        let layout = files::present_layout(&store, Path::new(&file.path));
        layout.map(|layout| (*layout).clone()).map_err(|error| error.to_string())
    };
    of(py, trace, &target, &root, layout, &around, &present)
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
    around: SystemOptions,
) -> PyResult<Bound<'py, PyAny>> {
    let cluster = cluster::load(&cluster).map_err(raise)?.cluster;
    let root = root.unwrap_or_else(|| common_directory(&trace.inner));
    let present = |index, _: &FileRequests| Ok(cluster.default_layout(index));
    of(py, trace, &Target::cluster(&cluster), &root, layout, &around, &present)
}

/// The layout that a file has now: by its number and itself.
type Present<'a> = dyn Fn(usize, &FileRequests) -> Result<Layout, String> + Sync + 'a;

fn of<'py>(
    py: Python<'py>,
    trace: &PyTrace,
    target: &Target,
    root: &Path,
    layout: Option<PathBuf>,
    around: &SystemOptions,
    present: &Present,
) -> PyResult<Bound<'py, PyAny>> {
    let load = |path: &Path| layout_file::load_for(path, target.kind, &target.name, &target.names);
    let written = layout.as_deref().map(load).transpose()?;
    let document = py.detach(|| -> Result<Value, String> {
        let case = Case::new(trace, target, root, around, present)?;
        let Some(written) = written else { return case.document(None) };
        let entry = |file: &FileRequests| {
            written
                .files
                .iter()
                .find(|entry| entry.path.matches(file.path.as_bytes()))
                .map(|entry| entry.layout.clone())
        };
        let new: Vec<Option<Layout>> = case.files.iter().map(entry).collect();
        if new.iter().all(Option::is_none) {
            let layout = layout.unwrap_or_default();
            return Err(format!("{} names no file that the trace reads or writes", layout.display()));
        }
        case.document(Some(new))
    });
    to_python(py, &document.map_err(raise)?)
}

/// The servers that are simulated, those of a pool or of a cluster.
struct Target {
    kind: &'static str,
    name: String,
    names: ServerNames,
    cluster: Cluster,
    default_width_bytes: u64,
}

impl Target {
    fn pool(pool: &Pool) -> Result<Self, String> {
        let cluster = cluster::of_pool(pool, &HashMap::new())?;
        let (name, default_width_bytes) = (pool.name.clone(), pool.default_width_bytes);
        Ok(Self { kind: "pool", name, names: layout_file::names(pool), cluster, default_width_bytes })
    }

    fn cluster(file: &ClusterFile) -> Self {
        let (name, default_width_bytes) = (file.name.clone(), file.default.width_bytes);
        Self { kind: "cluster", name, names: file.names(), cluster: file.cluster(), default_width_bytes }
    }
}

/// What is simulated, and on what.
struct Case<'a> {
    target: &'a Target,
    files: Vec<FileRequests>,
    present: Vec<Layout>,
    program: Packed,
    nodes: usize,
    /// From the begin of the first to the end of the last thing that is replayed, in the trace.
    traced_s: f64,
    phases: usize,
    collectives: usize,
    system: System,
    around: &'a SystemOptions,
}

impl<'a> Case<'a> {
    fn new(
        trace: &PyTrace,
        target: &'a Target,
        root: &Path,
        around: &'a SystemOptions,
        present: &Present,
    ) -> Result<Self, String> {
        let files = advise::below(&trace.inner, root);
        if files.is_empty() {
            let root = root.display();
            return Err(format!(
                "the trace has no read or write of a file below {root}; name the directory with --root"
            ));
        }
        let present = files.iter().enumerate().map(|(index, file)| present(index, file));
        let present = present.collect::<Result<Vec<Layout>, String>>()?;
        let threads = replay::threads(&trace.inner, &files, around.metadata.is_some());
        let threads: Vec<Vec<Did>> = threads.into_iter().map(|thread| thread.1).collect();
        let processes = threads.len();
        let span_ns = |of: fn(&Did) -> u64| threads.iter().flatten().map(of);
        let (first_ns, last_ns) = (span_ns(|did| did.start_ns).min(), span_ns(|did| did.end_ns).max());
        let traced_s = last_ns.unwrap_or(0).saturating_sub(first_ns.unwrap_or(0)) as f64 * 1e-9;
        let cuts_ns: Vec<u64> = cuts(&files, target)?.iter().map(|cut_s| (cut_s * 1e9).round() as u64).collect();
        let Replayed { program, calls, barriers, .. } = stripewise_simulate::replay(threads, &cuts_ns, around.think);
        let hosts: HashSet<&str> = trace.inner.processes().iter().map(|process| process.host.as_str()).collect();
        let per_node = around.processes_per_node.unwrap_or_else(|| processes.div_ceil(hosts.len().max(1)) as u32);
        let system = system(around, target, per_node)?;
        let nodes = processes.div_ceil(per_node.max(1) as usize);
        let (phases, collectives) = (barriers + 1, calls);
        Ok(Self { target, files, present, program, nodes, traced_s, phases, collectives, system, around })
    }

    fn document(&self, new: Option<Vec<Option<Layout>>>) -> Result<Value, String> {
        let present = self.repeat(&self.present)?;
        let other = match new {
            None => None,
            Some(new) => {
                let layouts = new.into_iter().zip(&self.present).map(|(new, old)| new.unwrap_or_else(|| old.clone()));
                Some(self.repeat(&layouts.collect::<Vec<_>>())?)
            }
        };
        // Both are drawn with the same seeds, so they are compared pair by pair.
        let ratio = other.as_ref().map(|other| {
            let pairs = other.throughputs.iter().zip(&present.throughputs).filter(|pair| *pair.1 > 0.0);
            estimate(&Estimate::of(&pairs.map(|(new, old)| new / old).collect::<Vec<_>>()))
        });
        Ok(json!({
            "files": self.files.iter().map(|file| &file.path).collect::<Vec<_>>(),
            "processes": self.program.processes(),
            "nodes": self.nodes,
            "traced_s": self.traced_s,
            "phases": self.phases,
            "collectives": self.collectives,
            "requests": present.first.requests,
            "runs": self.around.repeat.max(1),
            "seed": self.around.seed,
            "present": self.describe(&present),
            "layout": other.as_ref().map(|other| self.describe(other)),
            "ratio": ratio,
        }))
    }

    fn repeat(&self, layouts: &[Layout]) -> Result<Repeated, String> {
        let SystemOptions { seed, repeat: runs, .. } = *self.around;
        repeat(&self.target.cluster, layouts, &self.program, &self.system, seed, runs)
            .map_err(|error| error.to_string())
    }

    fn describe(&self, repeated: &Repeated) -> Value {
        let report = &repeated.first;
        let name = |index: usize| self.target.names.name(ServerId(index as u16));
        let used = report.outcome.servers.iter().zip(&report.queues).zip(&repeated.busy_s).enumerate();
        let servers = used.map(|(index, ((server, queue), busy_s))| {
            json!({
                "name": name(index),
                "requests": server.requests,
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
}

fn estimate(estimate: &Estimate) -> Value {
    json!({ "mean": estimate.mean, "half_width": estimate.half_width })
}

fn latency(latency: &Latency) -> Value {
    let Latency { mean_s, p50_s, p95_s, p99_s, max_s } = *latency;
    json!({ "mean_s": mean_s, "p50_s": p50_s, "p95_s": p95_s, "p99_s": p99_s, "max_s": max_s })
}

/// Where the phases of the program meet, as the planner finds them.
fn cuts(files: &[FileRequests], target: &Target) -> Result<Vec<f64>, String> {
    let traces: Vec<FileTrace> = files
        .iter()
        .map(|file| FileTrace { name: file.path.clone(), requests: &file.requests, size_bytes: None })
        .collect();
    let options = PlanOptions { default_width_bytes: target.default_width_bytes, ..PlanOptions::default() };
    let job = Job::new(&traces, &target.cluster, &options).map_err(|error| error.to_string())?;
    Ok(job.cuts_s().to_vec())
}

/// The system that `around` describes, for the tiers of `target`.
fn system(around: &SystemOptions, target: &Target, per_node: u32) -> Result<System, String> {
    let Target { kind, name: of, cluster, .. } = target;
    let mut devices = vec![TierDevice::default(); cluster.tiers.len()];
    let tier_of = |option: &str, name: &str| {
        let known = || cluster.tiers.iter().map(|tier| tier.name.as_str()).collect::<Vec<_>>().join(", ");
        cluster
            .tiers
            .iter()
            .position(|tier| tier.name == name)
            .ok_or_else(|| format!("{option}: {kind} '{of}' has no tier {name}; there is {}", known()))
    };
    let quantity = |option: &str, error: &dyn std::fmt::Display| format!("{option}: {error}");
    for text in &around.queue {
        let (tier, name) = text.split_once('=').map_or((None, text.as_str()), |(tier, name)| (Some(tier), name));
        let queue = match name {
            "fifo" => Queue::Fifo,
            "elevator" => Queue::Elevator,
            "anticipatory" => Queue::Anticipatory {
                wait_s: parse_seconds(&around.wait).map_err(|error| quantity("--wait", &error))?,
                near_bytes: parse_bytes(&around.near).map_err(|error| quantity("--near", &error))?,
            },
            _ => return Err(format!("--queue {text}: there is fifo, elevator and anticipatory")),
        };
        match tier {
            Some(tier) => devices[tier_of("--queue", tier)?].queue = queue,
            None => devices.iter_mut().for_each(|device| device.queue = queue),
        }
    }
    for text in &around.seek {
        let (name, size) = text.split_once('=').map_or((text.as_str(), None), |(name, size)| (name, Some(size)));
        let tier = tier_of("--seek", name)?;
        let stroke_bytes = match size {
            Some(size) => parse_bytes(size).map_err(|error| quantity("--seek", &error))?,
            None => cluster.tiers[tier].capacity_bytes.unwrap_or(STROKE_BYTES),
        };
        let profile = &cluster.tiers[tier].profile;
        devices[tier].startup = Startup::seek_within(&profile.read, &profile.write, stroke_bytes);
    }
    let rate = |option: &str, text: &str| {
        parse_bandwidth(text).map(|bytes_per_s| 1.0 / bytes_per_s).map_err(|error| quantity(option, &error))
    };
    let server = match around.link.as_deref() {
        None => ServerLink::InBeta,
        Some("profile") => ServerLink::OfProfile,
        Some(text) => ServerLink::Rate { s_per_byte: rate("--link", text)? },
    };
    let client = around.client_link.as_deref().map(|text| {
        rate("--client-link", text).map(|s_per_byte| ClientLink { s_per_byte, processes_per_node: per_node })
    });
    let metadata = around.metadata.as_deref().map(|text| {
        let time_s = parse_seconds(text).map_err(|error| quantity("--metadata", &error))?;
        let service = Service { min_s: time_s, max_s: time_s };
        Ok::<Metadata, String>(Metadata { threads: 1, open: service, create: service, stat: service })
    });
    Ok(System {
        devices,
        links: Links {
            server,
            client: client.transpose()?,
            latency_s: parse_seconds(&around.latency).map_err(|error| quantity("--latency", &error))?,
            forwarding: if around.pipelined { Forwarding::Pipelined } else { Forwarding::StoreAndForward },
        },
        metadata: metadata.transpose()?,
        file_starts: None,
        bins: around.bins,
    })
}
