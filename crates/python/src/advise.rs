//! Advice on a log: `stripewise advise`.

use crate::cluster;
use crate::convert::to_python;
use crate::error::raise;
use crate::trace::PyTrace;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::path::PathBuf;
use stripewise_advise::{
    Advice, AdviceRow, AdviseError, Bottleneck, Finding, Gain, JobFacts, KindPlacement, Pass, PassResult, Passes,
    Reproduced, ServersFrom, TierSpace,
};
use stripewise_layout::{Layout, ServerNames, round_entries};
use stripewise_model::Op;
use stripewise_whatif::{AdviceRequest, Advised};

/// Advises on the files of `trace` below `root` (all of them without one), on the servers of a cluster or pool file, or
/// on those that the log's Lustre layouts show. The text `layout` of a layout file, which errors call `origin`, is held
/// against the present layouts in place of what planners make. Where `passes` is given, `trace` is the index of a data
/// set: `passes` is called with a question to all requests and gives, file by file, what [`advise_pass`] answers. With
/// `rules` some layouts that all files might have are tried, too; with `hints` the hints of a pool's directories that gain.
#[pyfunction]
#[pyo3(signature = (trace, cluster = None, *, root = None, planner = None, preset = "hdd-7200", osts = None, layout = None, origin = "the layout", passes = None, rules = false, hints = false))]
#[expect(clippy::too_many_arguments, reason = "the arguments are those of the Python function, most by name")]
pub(crate) fn advise<'py>(
    py: Python<'py>,
    trace: &PyTrace,
    cluster: Option<PathBuf>,
    root: Option<PathBuf>,
    planner: Option<&str>,
    preset: &str,
    osts: Option<u16>,
    layout: Option<&str>,
    origin: &str,
    passes: Option<Py<PyAny>>,
    rules: bool,
    hints: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let (servers, root, layout) = (cluster.as_deref(), root.as_deref(), layout.map(|text| (text, origin)));
    let asked = AdviceRequest { servers, root, planner, preset, osts, layout, rules, hints };
    let advised =
        by_passes(py, trace, passes, |made_by| stripewise_whatif::advise(&trace.inner, &trace.about, &asked, made_by))?;
    to_python(py, &describe(&advised.map_err(raise)?, trace))
}

/// The job of `trace`, what it moved and how fast, as [`advise`] has it; `passes` is as there.
#[pyfunction]
#[pyo3(signature = (trace, *, passes = None))]
pub(crate) fn job_facts<'py>(
    py: Python<'py>,
    trace: &PyTrace,
    passes: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let facts =
        by_passes(py, trace, passes, |made_by| stripewise_advise::job_facts(&trace.inner, &trace.about, made_by))?;
    to_python(py, &job(&facts.map_err(raise)?))
}

/// What `ask` makes of passes over `trace`, or over the requests that `passes` has.
fn by_passes<T: Send>(
    py: Python<'_>,
    trace: &PyTrace,
    passes: Option<Py<PyAny>>,
    ask: impl FnOnce(&dyn Passes) -> T + Send,
) -> PyResult<T> {
    let elsewhere = passes.map(|call| Elsewhere { call, raised: RefCell::new(None) });
    let (told, elsewhere) = py.detach(move || {
        let told = ask(elsewhere.as_ref().map_or(&trace.inner as &dyn Passes, |elsewhere| elsewhere));
        (told, elsewhere)
    });
    // What the function of Python raised says more than that it failed.
    elsewhere.and_then(|elsewhere| elsewhere.raised.into_inner()).map_or(Ok(told), Err)
}

/// Hints of MPI-IO for the files of `trace`, those that move most first: `path` and `hints`, by what was found of their use.
#[pyfunction]
pub(crate) fn io_hints<'py>(py: Python<'py>, trace: &PyTrace) -> PyResult<Bound<'py, PyAny>> {
    let found = py.detach(|| stripewise_advise::file_hints(&trace.inner, &trace.about));
    // A name that is no text cannot stand in a file of hints.
    let told = found.iter().filter_map(|file| Some((file.path.to_str()?, &file.hints.0)));
    let told = told.map(|(path, hints)| json!({ "path": path, "hints": hints }));
    to_python(py, &Value::Array(told.collect()))
}

/// Answers a question of [`advise`] from the requests that `trace` has.
#[pyfunction]
pub(crate) fn advise_pass<'py>(py: Python<'py>, trace: &PyTrace, question: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let found = py.detach(|| {
        let pass: Pass = postcard::from_bytes(question)?;
        postcard::to_allocvec(&pass.through(&trace.inner))
    });
    Ok(PyBytes::new(py, &found.map_err(|error| raise(format!("a pass of another version: {error}")))?))
}

/// Passes that a function of Python has made elsewhere.
struct Elsewhere {
    /// From a question to an iterable of answers.
    call: Py<PyAny>,
    /// What it raised.
    raised: RefCell<Option<PyErr>>,
}

impl Elsewhere {
    fn ask(&self, pass: &Pass, take: &mut dyn FnMut(PassResult)) -> PyResult<()> {
        let question = postcard::to_allocvec(pass).map_err(raise)?;
        Python::attach(|py| {
            for answer in self.call.bind(py).call1((PyBytes::new(py, &question),))?.try_iter()? {
                let answer = answer?;
                take(postcard::from_bytes(answer.cast::<PyBytes>()?.as_bytes()).map_err(raise)?);
            }
            Ok(())
        })
    }
}

impl Passes for Elsewhere {
    fn make(&self, pass: &Pass, take: &mut dyn FnMut(PassResult)) -> Result<(), AdviseError> {
        self.ask(pass, take).map_err(|error| {
            self.raised.replace(Some(error));
            AdviseError::Passes
        })
    }
}

fn describe(advised: &Advised, trace: &PyTrace) -> Value {
    let Advised { advice, is_pool, lacks, hints } = advised;
    let names = advice.cluster.names();
    let about = &trace.about;
    let present = placed(&names, advice, |row| Some(&row.present));
    let recommended = placed(&names, advice, |row| row.recommended.as_ref());
    let rows = advice.rows.iter().zip(present).zip(recommended);
    json!({
        "cluster": servers(advice, *is_pool),
        "root": advice.root.to_string_lossy(),
        "about": {
            "format": about.format,
            "lacks": lacks.named().map(|(name, words)| json!({ "name": name, "words": words })).collect::<Vec<_>>(),
            "notes": about.notes,
            "processes": about.processes,
        },
        "job": job(&advice.job),
        "reproduced": advice.reproduced.as_ref().map(reproduced),
        "lacking": advice.lacking,
        "planner": advice.planner,
        "processes_in_flight": advice.processes,
        "files": rows.map(|((row, present), recommended)| describe_row(row, present, recommended)).collect::<Vec<_>>(),
        "directories": advice.directories.iter().map(|directory| json!({
            "path": directory.path,
            "files": directory.files,
            "bytes": directory.bytes,
            "change": directory.row.is_some(),
            "layout": directory.row.and_then(|row| advice.rows[row].recommended.as_ref())
                .map(|placed| regions(&names, &placed.layout)),
        })).collect::<Vec<_>>(),
        "total": {
            "bytes": advice.bytes,
            "files": advice.rows.iter().map(|row| row.files).sum::<usize>(),
            "left_out": advice.left_out,
            "change": advice.rows.iter().any(|row| row.recommended.is_some()),
            "present_bytes_per_s": advice.present_bytes_per_s,
            "recommended_bytes_per_s": advice.recommended_bytes_per_s,
            "gain": gain(&advice.gain),
            "run_gain": advice.run_gain.as_ref().map(gain),
            "reasons": advice.causes.iter().map(|cause| &cause.words).collect::<Vec<_>>(),
            "space": space(&advice.space),
            "findings": findings(&advice.findings),
        },
        "layout": advice.layout.to_toml(&names),
        "rules": advice.rules.iter().map(|rule| json!({
            "name": rule.name,
            "words": rule.words,
            "bytes_per_s": rule.bytes_per_s,
            "gain": gain(&rule.gain),
        })).collect::<Vec<_>>(),
        "hints": hints.iter().map(crate::hints::proposed).collect::<Vec<_>>(),
    })
}

fn placed(names: &ServerNames, advice: &Advice, of: impl Fn(&AdviceRow) -> Option<&KindPlacement>) -> Vec<Value> {
    let one = |row: &AdviceRow| {
        of(row).map(|placed| {
            json!({
                "layout": regions(names, &placed.layout),
                "spread": placed.spread,
                "bytes_per_s": placed.bytes_per_s,
                "bottleneck": bottleneck(&placed.bottleneck, advice),
            })
        })
    };
    advice.rows.iter().map(|row| json!(one(row))).collect()
}

fn describe_row(row: &AdviceRow, mut present: Value, recommended: Value) -> Value {
    present["source"] = json!(row.source.words());
    json!({
        "path": row.path,
        "files": row.files,
        "read_bytes": row.read_bytes,
        "written_bytes": row.written_bytes,
        "requests": row.requests,
        "ranks": row.ranks,
        "counters_only": row.counters_only,
        "named": row.is_named,
        "factor": row.factor,
        "present": present,
        "recommended": recommended,
        "change": row.recommended.is_some(),
        "reason": row.reason,
        "gain": gain(&row.gain),
        "space": space(&row.space),
        "findings": findings(&row.findings),
    })
}

/// As `cluster_load` tells of them, and whether the log is all that is known of them.
fn servers(advice: &Advice, is_pool: bool) -> Value {
    let mut told = cluster::describe(&advice.cluster, is_pool);
    told["found"] = json!(matches!(advice.servers_from, ServersFrom::Log | ServersFrom::Number));
    told["known_from"] = json!(advice.servers_from.words());
    told["targets"] = json!(advice.targets);
    told
}

fn job(job: &JobFacts) -> Value {
    json!({
        "command": job.header.command,
        "user": job.header.user,
        "id": job.header.id,
        "processes": job.processes,
        "nodes": job.header.nodes,
        "run_s": job.run_s,
        "run_known": job.is_run_known,
        "read_bytes": job.read_bytes,
        "written_bytes": job.written_bytes,
        "copied_bytes": job.copied_bytes,
        "requests": job.requests,
        "slowest_s": job.slowest_s,
        "bytes_per_s": job.bytes_per_s(),
        "data_s": job.data_s,
        "meta_s": job.meta_s,
        "io_share": job.io_share(),
        "slowest_share": job.slowest_share(),
    })
}

fn reproduced(of: &Reproduced) -> Value {
    let profiles = of.profiles.iter().map(|of| {
        json!({
            "tier": of.tier,
            "op": if of.op == Op::Read { "read" } else { "write" },
            "from_s": of.from_s,
            "startup_s": of.startup_s,
            "bytes_per_s": of.bytes_per_s,
        })
    });
    json!({
        "factor": of.factor,
        "refused": of.refused,
        "held_out": of.held_out.map(|of| json!({ "ratio": of.ratio, "low": of.low, "high": of.high })),
        "memory_share": of.memory_share,
        "profiles": profiles.collect::<Vec<_>>(),
    })
}

fn regions(names: &ServerNames, layout: &Layout) -> Value {
    let regions = layout.regions().iter();
    json!(
        regions
            .map(|region| json!({ "offset": region.offset(), "round": round_entries(region.stripes(), names) }))
            .collect::<Vec<_>>()
    )
}

fn bottleneck(bottleneck: &Bottleneck, advice: &Advice) -> Value {
    let servers = bottleneck.servers.iter().filter_map(|&server| advice.labels.get(server));
    json!({
        "kind": bottleneck.kind,
        "words": bottleneck.words,
        "servers": servers.collect::<Vec<_>>(),
        "startup_share": bottleneck.startup_share,
        "imbalance": bottleneck.imbalance,
        "servers_used": bottleneck.used,
    })
}

fn gain(gain: &Gain) -> Value {
    json!({ "ratio": gain.ratio, "low": gain.low, "high": gain.high })
}

fn space(space: &[TierSpace]) -> Value {
    let tiers = space.iter().map(|tier| {
        json!({
            "tier": tier.tier,
            "present_bytes": tier.present_bytes,
            "recommended_bytes": tier.recommended_bytes,
            "capacity_bytes": tier.capacity_bytes,
        })
    });
    json!(tiers.collect::<Vec<_>>())
}

fn findings(findings: &[Finding]) -> Value {
    let findings = findings.iter().map(|finding| {
        json!({
            "kind": finding.kind,
            "severity": finding.severity.name(),
            "words": finding.words,
            "numbers": finding.numbers.iter().map(|(name, value)| (name.to_string(), json!(value)))
                .collect::<serde_json::Map<_, _>>(),
            "mend": finding.mend,
            "hints": finding.hints.0.iter().map(|(name, value)| (name.clone(), json!(value)))
                .collect::<serde_json::Map<_, _>>(),
        })
    });
    json!(findings.collect::<Vec<_>>())
}
