//! Planning from a trace, and predicting what layouts give.

use crate::convert::to_python;
use crate::error::raise;
use crate::room::Rooms;
use crate::trace::PyTrace;
use crate::{cluster, files, layout_file};
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stripewise_advise::{Below, ClusterFile, FileRequests, common_directory};
use stripewise_layout::units::{format_bytes, format_seconds};
use stripewise_layout::{FileLayout, Layout, LayoutFile, Pattern, ServerNames, round_entries};
use stripewise_model::{Cluster, Op, Request};
use stripewise_planner::auto::{self, Comparison};
use stripewise_planner::planners::PLANNERS;
use stripewise_planner::why::Why;
use stripewise_planner::{
    FileTrace, Job as PlanJob, LayoutTimes, Plan, PlanError, PlanOptions, RegionPlan, Sampled, Survey, SurveyedFile,
    plan_as_is, plan_by,
};
use stripewise_simulate::{ClosedLoop, SimulatedAccess, SimulationOptions, simulate_observed};

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
    let document = py.detach(|| -> Result<Value, String> {
        let job = Job::on_pool(trace, &pool_file, &root, false)?;
        job.document(trace, &root, planner, &job.target.options(processes, max_regions))
    });
    to_python(py, &document.map_err(raise)?)
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
    let document = py.detach(|| -> Result<Value, String> {
        let root = root.unwrap_or_else(|| common_directory(&trace.inner));
        let cluster = cluster::load(&cluster)?.cluster;
        let job = Job::on_cluster(trace, &cluster, &root)?;
        let mut document = job.document(trace, &root, planner, &job.target.options(processes, max_regions))?;
        document["root"] = json!(root.to_string_lossy());
        Ok(document)
    });
    to_python(py, &document.map_err(raise)?)
}

/// The planners: name, source and what each does; `auto` first.
#[pyfunction]
pub(crate) fn planners(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let row = |name, source, summary| json!({ "name": name, "source": source, "summary": summary });
    let listed = PLANNERS.iter().map(|planner| row(planner.name(), planner.source(), planner.summary()));
    let all: Vec<Value> = std::iter::once(row(auto::AUTO, auto::SOURCE, auto::SUMMARY)).chain(listed).collect();
    to_python(py, &json!(all))
}

/// The servers by name, of a pool or of a cluster.
struct Target {
    name: String,
    names: ServerNames,
    default_width_bytes: u64,
}

impl Target {
    fn options(&self, processes: Option<f64>, max_regions: Option<usize>) -> PlanOptions {
        let options = PlanOptions::default();
        let max_regions = max_regions.unwrap_or(options.max_regions);
        PlanOptions { default_width_bytes: self.default_width_bytes, processes, max_regions, ..options }
    }
}

/// What is planned, and on what.
struct Job {
    target: Target,
    cluster: Cluster,
    files: Vec<FileRequests>,
    /// There are too many requests to be held: they are read from the trace as a stream.
    is_large: bool,
    /// The layout that each file has now, or would get.
    present: Vec<Arc<Layout>>,
    sizes: Vec<Option<u64>>,
    /// What the servers of a pool have room for.
    rooms: Option<Rooms>,
}

impl Job {
    /// With `held` all requests are held in memory, however many they are.
    fn on_pool(trace: &PyTrace, pool_file: &Path, root: &Path, held: bool) -> Result<Self, String> {
        let store = files::open(pool_file).map_err(|error| error.to_string())?;
        let (files, is_large) = requested(trace, root, held)?;
        let (mut present, mut sizes, mut inodes) = (Vec::new(), Vec::new(), Vec::new());
        for file in &files {
            let path = Path::new(&file.path);
            present.push(files::present_layout(&store, path).map_err(|error| error.to_string())?);
            let inode = files::existing_inode(&store, path).map_err(|error| error.to_string())?;
            let attributes =
                inode.as_ref().map(|inode| inode.attributes()).transpose().map_err(|error| error.to_string())?;
            sizes.push(attributes.map(|attributes| attributes.size_bytes));
            inodes.push(inode);
        }
        let handles: Vec<u64> = inodes.iter().flatten().map(|inode| inode.handle()).collect();
        let others = store.pool().allocated_by_others(&handles);
        let cluster = cluster::of_pool(store.pool(), &others)?;
        let pool = store.pool();
        let target = Target {
            name: pool.name.clone(),
            names: layout_file::names(pool),
            default_width_bytes: pool.default_width_bytes,
        };
        let rooms = Some(Rooms::measure(store.clone(), inodes, &others).map_err(|error| error.to_string())?);
        Ok(Self { target, cluster, files, is_large, present, sizes, rooms })
    }

    /// Without a store: all files have the cluster's default layout, and no size but what the trace shows.
    fn on_cluster(trace: &PyTrace, cluster: &ClusterFile, root: &Path) -> Result<Self, String> {
        let (files, is_large) = requested(trace, root, false)?;
        let present = (0..files.len()).map(|file| Arc::new(cluster.default_layout(file)));
        let target = Target {
            name: cluster.name.clone(),
            names: cluster.names(),
            default_width_bytes: cluster.default.width_bytes,
        };
        let (present, sizes) = (present.collect(), vec![None; files.len()]);
        Ok(Self { target, cluster: cluster.cluster(), files, is_large, present, sizes, rooms: None })
    }

    fn document(&self, trace: &PyTrace, root: &Path, planner: &str, options: &PlanOptions) -> Result<Value, String> {
        let named = self.files.iter().zip(&self.sizes).map(|(file, &size_bytes)| (file, file.path.clone(), size_bytes));
        let surveyed = self.is_large.then(|| {
            let files = named.clone().map(|(_, name, size_bytes)| SurveyedFile { name, size_bytes }).collect();
            Survey::new(files, &Below::new(&trace.inner, root), options)
        });
        let surveyed = surveyed.transpose().map_err(|error| error.to_string())?;
        // Of very many requests planners are given an even sample, and the exact counts of the survey.
        let traces: Vec<FileTrace> = match &surveyed {
            Some(survey) => survey.traces(),
            None => {
                named.map(|(file, name, size_bytes)| FileTrace { name, requests: &file.requests, size_bytes }).collect()
            }
        };
        let job = match &surveyed {
            Some(survey) => PlanJob::surveyed(survey, &traces, &self.cluster, options),
            None => PlanJob::new(&traces, &self.cluster, options),
        };
        let job = job.map_err(|error| error.to_string())?;
        let on = |cluster: &Cluster| {
            let job = match &surveyed {
                Some(survey) => PlanJob::surveyed(survey, &traces, cluster, options),
                None => PlanJob::new(&traces, cluster, options),
            };
            job.and_then(|job| plan_by(planner, &job))
        };
        let free = || plan_by(planner, &job);
        let (planned, limit) = match &self.rooms {
            None => (free().map_err(|error| error.to_string())?, None),
            Some(rooms) => {
                let needed = (0..traces.len()).map(|file| job.extent_bytes(file)).fold(0, u64::saturating_add);
                let present: Vec<Layout> = self.present.iter().map(|layout| (**layout).clone()).collect();
                rooms.plan(&self.cluster, needed, free, on, || plan_as_is(&job, &present))?
            }
        };
        let mut document = self.describe(&planned.plan)?;
        document["limited_by_space"] = json!(limit);
        document["planner"] = json!(planned.planner);
        document["kept_default"] = json!(planned.kept_default);
        document["comparison"] = json!(planned.comparison.as_ref().map(comparison));
        Ok(document)
    }

    fn describe(&self, plan: &Plan) -> Result<Value, String> {
        let names = &self.target.names;
        let mut written = LayoutFile { pool: self.target.name.clone(), files: Vec::new() };
        let mut described = Vec::new();
        for (planned, before) in plan.files.iter().zip(&self.present) {
            let layout = &planned.layout;
            written.files.push(FileLayout {
                path: Pattern::exact(&planned.name).map_err(|error| error.to_string())?,
                layout: layout.clone(),
                note: None,
                region_notes: planned.regions.iter().map(|region| Some(note(region))).collect(),
            });
            let regions = planned.regions.iter().map(|region| {
                let now = &before.regions()[before.region_at(region.offset)];
                let then = &layout.regions()[layout.region_at(region.offset)];
                json!({
                    "offset": region.offset,
                    "end": region.end.min(planned.extent_bytes.max(region.offset)),
                    "round_before": round_entries(now.stripes(), names),
                    "round": round_entries(then.stripes(), names),
                    "cost_s": times(&region.times),
                    "requests": region.requests,
                    "read_bytes": region.read_bytes,
                    "write_bytes": region.written_bytes,
                })
            });
            described.push(json!({
                "path": planned.name,
                "extent_bytes": planned.extent_bytes,
                "regions": regions.collect::<Vec<_>>(),
            }));
        }
        let bytes = plan.phases.iter().flat_map(|phase| [phase.read_bytes, phase.written_bytes]);
        let bytes = bytes.fold(0, u64::saturating_add);
        let requests: u64 = plan.phases.iter().map(|phase| phase.requests).sum();
        let busy: f64 = plan.phases.iter().map(|phase| phase.processes * phase.requests as f64).sum();
        Ok(json!({
            "layout": written.to_toml(names),
            "changes": plan.files.iter().zip(&self.present).any(|(new, old)| new.layout != **old),
            "processes": busy / requests.max(1) as f64,
            "phases": plan.phases.len(),
            "cuts_s": plan.cuts_s,
            "bytes": bytes,
            "sampled": plan.sampled.as_ref().map(sampled),
            "cost_s": times(&plan.total),
            "simulated_s": plan.rehearsal.map(|r| json!({ "default": r.default_s, "plan": r.planned_s })),
            "files": described,
            "space": plan.tiers.iter().map(|tier| json!({
                "tier": tier.name,
                "servers": tier.servers,
                "default_bytes": tier.default_bytes,
                "planned_bytes": tier.planned_bytes,
                "capacity_bytes": tier.limit_bytes,
            })).collect::<Vec<_>>(),
        }))
    }
}

/// The files of `trace` below `root`; and whether there are too many requests to be held, unless they are to be `held`.
fn requested(trace: &PyTrace, root: &Path, held: bool) -> Result<(Vec<FileRequests>, bool), String> {
    let below = Below::new(&trace.inner, root);
    let is_large = !held && below.is_large();
    let files = below.files(!is_large);
    if files.is_empty() {
        let root = root.display();
        return Err(format!("the trace has no read or write of a file below {root}; name the directory with --root"));
    }
    Ok((files, is_large))
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

fn sampled(sampled: &Sampled) -> String {
    format!(
        "priced a sample of {} of {} distinct requests: mean latency within {:.1} % (95 %)",
        sampled.kept,
        sampled.of,
        sampled.error_bound * 100.0
    )
}

fn note(region: &RegionPlan) -> String {
    format!(
        "{:.0} requests, {} read, {} written; predicted {} instead of {}",
        region.requests,
        about(region.read_bytes),
        about(region.written_bytes),
        format_seconds(round_to(region.times.planned_s)),
        format_seconds(round_to(region.times.default_s)),
    )
}

/// Three decimals of milliseconds are enough for people.
pub(crate) fn round_to(seconds: f64) -> f64 {
    (seconds * 1e6).round() * 1e-6
}

fn about(bytes: f64) -> String {
    format_bytes(((bytes / 1024.0).round() * 1024.0) as u64)
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
    let store = files::open(&pool_file)?;
    let written = layout_file::load(&layout, store.pool())?;
    let document = py.detach(|| -> Result<Value, String> {
        let job = Job::on_pool(trace, &pool_file, &root, true)?;
        let new = job.files.iter().map(|file| {
            let entry = written.files.iter().find(|entry| entry.path.matches(file.path.as_bytes()));
            entry
                .map(|entry| entry.layout.clone())
                .ok_or_else(|| format!("{} is not in {}", file.path, layout.display()))
        });
        let new: Vec<Layout> = new.collect::<Result<_, String>>()?;
        let old: Vec<Layout> = job.present.iter().map(|layout| (**layout).clone()).collect();
        Prediction { cluster: &job.cluster, old: &old, new: &new, cuts_s: &cuts_s }.of(&job.files)
    });
    to_python(py, &document.map_err(raise)?)
}

struct Prediction<'a> {
    cluster: &'a Cluster,
    old: &'a [Layout],
    new: &'a [Layout],
    /// Where the program's phases meet: no request of the next begins before those of the last have ended.
    cuts_s: &'a [f64],
}

/// Requests of one kind: their bytes, and the spans in which they were in flight.
#[derive(Default)]
struct InFlight {
    bytes: u64,
    spans: Vec<(f64, f64)>,
}

impl InFlight {
    /// Bytes per second of time in which any was in flight.
    fn rate(mut self) -> f64 {
        self.spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut busy_s, mut until) = (0.0, f64::NEG_INFINITY);
        for (start, end) in self.spans {
            busy_s += (end - until.max(start)).max(0.0);
            until = until.max(end);
        }
        if busy_s > 0.0 { self.bytes as f64 / busy_s } else { 0.0 }
    }
}

impl Prediction<'_> {
    fn of(&self, files: &[FileRequests]) -> Result<Value, String> {
        let slices: Vec<&[Request]> = files.iter().map(|file| file.requests.as_slice()).collect();
        let workload = ClosedLoop::replay(&slices, self.cuts_s, false);
        let (mut before, mut after) = (self.run(&workload, self.old)?, self.run(&workload, self.new)?);
        let total = json!({ "before": before.rates(None), "after": after.rates(None) });
        let files: Vec<Value> = files
            .iter()
            .enumerate()
            .map(|(index, file)| {
                let regions = (0..self.new[index].regions().len()).map(|region| Some((index as u32, region)));
                let rates = regions.map(|at| json!({ "before": before.rates(at), "after": after.rates(at) }));
                json!({ "path": file.path, "regions": rates.collect::<Vec<_>>() })
            })
            .collect();
        Ok(json!({ "total": total, "files": files }))
    }

    /// Runs the workload under `layouts`; requests are sorted by the region of the *new* layout that they begin in, so
    /// that the two sides compare.
    fn run(&self, workload: &ClosedLoop, layouts: &[Layout]) -> Result<Observed, String> {
        let mut observed = Observed::default();
        let note = |access: &SimulatedAccess, issued_s: f64, ended_s: f64| {
            let region = self.new[access.file as usize].region_at(access.offset);
            for at in [None, Some((access.file, region))] {
                for op in [None, Some(access.op)] {
                    let kind = observed.0.entry((at, op)).or_default();
                    kind.bytes += access.size;
                    kind.spans.push((issued_s, ended_s));
                }
            }
        };
        let options = SimulationOptions { seed: 1, ..SimulationOptions::default() };
        simulate_observed(self.cluster, layouts, workload, &options, note).map_err(|error| error.to_string())?;
        Ok(observed)
    }
}

/// File and region.
type Place = (u32, usize);

/// What was in flight, by place (or everywhere) and operation (or both).
#[derive(Default)]
struct Observed(HashMap<(Option<Place>, Option<Op>), InFlight>);

impl Observed {
    fn rates(&mut self, at: Option<Place>) -> Value {
        let mut rate = |op| self.0.remove(&(at, op)).map_or(0.0, InFlight::rate);
        json!({ "read": rate(Some(Op::Read)), "write": rate(Some(Op::Write)), "both": rate(None) })
    }
}
