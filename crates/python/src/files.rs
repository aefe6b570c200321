//! Files of a pool: where they are, and giving them other layouts.

use crate::convert::{hex, kind_name, to_python};
use crate::error::raise;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use stripewise_layout::{FileLayout, Layout, LayoutFile, Region, ServerNames, round_entries};
use stripewise_store::apply::{Applied, ApplyWatch, ForecastMove};
use stripewise_store::status::{FileStatus, PlacedStatus};
use stripewise_store::{Forecast, Pool, RulesKept, Store, Then};

/// How often a progress callback is called at most.
const PROGRESS_EVERY: Duration = Duration::from_millis(50);
/// … and at least once for as many bytes: a rate is kept within a file.
const PROGRESS_EVERY_BYTES: u64 = 1 << 20;

/// The entries of the layout file `path`, read for `pool`.
fn entries(path: &Path, pool: &Pool) -> PyResult<Vec<FileLayout>> {
    Ok(LayoutFile::load(path, "pool", &pool.name, &pool.server_names()).map_err(raise)?.files)
}

/// What is at `path` (relative to the mount) and, of a regular file, where its bytes are.
#[pyfunction]
pub(crate) fn file_stat<'py>(py: Python<'py>, pool_file: PathBuf, path: PathBuf) -> PyResult<Bound<'py, PyAny>> {
    let store = Store::of_file(&pool_file).map_err(raise)?;
    let status = store.status(&path).map_err(raise)?;
    to_python(py, &describe(&status, store.pool()))
}

fn describe(status: &FileStatus, pool: &Pool) -> Value {
    let mut value = status.placed.as_ref().map_or_else(|| json!({ "placed": false }), |of| placed(of, pool));
    value["kind"] = json!(kind_name(status.kind));
    value["size_bytes"] = json!(status.size_bytes);
    if let Some(target) = &status.target {
        value["target"] = json!(target.to_string_lossy());
    }
    value
}

fn placed(of: &PlacedStatus, pool: &Pool) -> Value {
    let (placement, names) = (&of.placement, pool.server_names());
    let regions = of.placed.regions().iter().map(|region| {
        json!({
            "offset": region.offset(),
            "origin": region.origin(),
            "generation": placement.generations.at(region.offset()),
            "round": round_entries(region.stripes(), &names),
        })
    });
    let datafiles = of.datafiles.iter().map(|datafile| {
        let (size_bytes, allocated_bytes) = *datafile.found.as_ref().unwrap_or(&(0, 0));
        json!({
            "server": pool.server_name(datafile.server),
            "generation": datafile.generation,
            "path": datafile.path.to_string_lossy(),
            "size_bytes": size_bytes,
            "allocated_bytes": allocated_bytes,
            "error": datafile.found.as_ref().err(),
        })
    });
    let has_handle = of.has_handle;
    json!({
        "placed": has_handle,
        "left_out": of.left_out.iter().map(|&id| pool.server_name(id)).collect::<Vec<_>>(),
        "made_with": crate::hints::described(&of.made_with),
        "landed_on": of.landed_on,
        "handle": has_handle.then(|| format!("{:016x}", placement.handle)),
        "version": has_handle.then_some(placement.version),
        "layout_hash": hex(&placement.layout.hash()),
        "regions": regions.collect::<Vec<_>>(),
        "datafiles": datafiles.collect::<Vec<_>>(),
    })
}

/// What [`layout_apply`] would do with the layout file `path`. Nothing is changed.
#[pyfunction]
pub(crate) fn layout_forecast<'py>(py: Python<'py>, path: PathBuf, pool_file: PathBuf) -> PyResult<Bound<'py, PyAny>> {
    let store = Store::of_file(&pool_file).map_err(raise)?;
    let entries = entries(&path, store.pool())?;
    let (moves, forecast) = py.detach(|| store.forecast(&entries)).map_err(raise)?;
    to_python(py, &describe_forecast(&entries, &moves, &forecast, store.pool()))
}

/// What [`layout_apply`] would do with each of the layout files of one file, of which these are the texts: the path as it stands there, and the
/// file with its layouts now and then (`None` where no file is there), or why it cannot move. Nothing is changed. O(texts).
#[pyfunction]
pub(crate) fn layout_forecasts(py: Python<'_>, texts: Vec<String>, pool_file: PathBuf) -> PyResult<Bound<'_, PyAny>> {
    let store = Store::of_file(&pool_file).map_err(raise)?;
    let names = store.pool().server_names();
    let mut found = Vec::new();
    for text in &texts {
        let entries = LayoutFile::parse(text, &names).map_err(raise)?.files;
        let (file, why) = match py.detach(|| store.forecast(&entries)) {
            Ok((moves, _)) => (moves.first().map(|of| describe_file(of, &names)), None),
            Err(error) => (None, Some(error.to_string())),
        };
        found.push(json!({ "path": entries.first().map(|entry| entry.path.as_str()), "file": file, "why": why }));
    }
    to_python(py, &Value::Array(found))
}

fn describe_file(of: &ForecastMove, names: &ServerNames) -> Value {
    let regions = |layout: &Layout| -> Vec<Value> {
        let region = |of: &Region| json!({ "offset": of.offset(), "round": round_entries(of.stripes(), names) });
        layout.regions().iter().map(region).collect()
    };
    json!({
        "path": of.path,
        "before": regions(&of.before),
        "after": regions(&of.after),
        "copied_bytes": of.copied_bytes,
        "kept_bytes": of.kept_bytes,
        "size_bytes": of.size_bytes,
    })
}

fn describe_forecast(entries: &[FileLayout], moves: &[ForecastMove], forecast: &Forecast, pool: &Pool) -> Value {
    let names = pool.server_names();
    let files = moves.iter().map(|of| describe_file(of, &names));
    let known = |bytes: u64| (bytes < u64::MAX / 2).then_some(bytes);
    let servers = forecast.rooms.iter().map(|&(id, before, after)| {
        json!({ "server": pool.server_name(id), "free_bytes": known(before), "free_after_bytes": known(after) })
    });
    json!({
        "files": files.collect::<Vec<_>>(),
        "rules": entries.iter().map(|entry| entry.path.as_str()).collect::<Vec<_>>(),
        "servers": servers.collect::<Vec<_>>(),
    })
}

/// [`Store::apply`] of the layout file `path`. `progress(name, done, total)` stops it by returning `False`, and lets
/// it rest by `"rest"`. While another process of this user applies layouts, it is refused, or `waits`. A move `gives_way` to
/// a writer that comes, and fails then, or the writer waits.
#[pyfunction]
pub(crate) fn layout_apply<'py>(
    py: Python<'py>,
    path: PathBuf,
    pool_file: PathBuf,
    rules: bool,
    waits: bool,
    gives_way: bool,
    progress: Py<PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let store = Store::of_file(&pool_file).map_err(raise)?;
    let entries = entries(&path, store.pool())?;
    let mut teller = Teller::new(progress, waits, gives_way);
    let applied = py.detach(|| store.apply(&entries, rules, &mut teller));
    if let Some(stopped) = teller.stopped() {
        return Err(stopped);
    }
    let applied = applied.map_err(raise)?.unwrap_or_default();
    to_python(py, &Value::Array(applied.iter().map(describe_applied).collect()))
}

fn describe_applied(of: &Applied) -> Value {
    json!({
        "path": of.path,
        "kind": if of.moved.is_some() { "moved" } else { "rule" },
        "copied_bytes": of.moved.map_or(0, |moved| moved.copied_bytes),
        "kept_bytes": of.moved.map_or(0, |moved| moved.kept_bytes),
        "checksum": of.moved.map(|moved| hex(&moved.checksum)),
    })
}

/// Hands progress to Python, not too often, and Ctrl-C to the store.
pub(crate) struct Teller {
    progress: Py<PyAny>,
    waits: bool,
    gives_way: bool,
    /// Python has let the move rest.
    rests: bool,
    /// Of which file progress was last told, when, and at how many bytes.
    last: Option<(String, Instant, u64)>,
    /// What Python raised: that stops the store.
    stopped: Option<PyErr>,
}

impl Teller {
    pub(crate) fn new(progress: Py<PyAny>, waits: bool, gives_way: bool) -> Self {
        Self { progress, waits, gives_way, rests: false, last: None, stopped: None }
    }

    /// What Python raised, if that has stopped the store.
    pub(crate) fn stopped(self) -> Option<PyErr> {
        self.stopped
    }

    /// What Python said.
    fn ask(&mut self, what: impl FnOnce(Python<'_>, &Py<PyAny>) -> PyResult<Then>) -> Then {
        let answer = Python::attach(|py| {
            py.check_signals()?;
            what(py, &self.progress)
        });
        match answer {
            Ok(Then::Stop) => self.stopped = Some(PyKeyboardInterrupt::new_err(())),
            Ok(then) => return then,
            Err(error) => self.stopped = Some(error),
        }
        Then::Stop
    }
}

impl ApplyWatch for Teller {
    fn waits(&mut self) -> bool {
        self.waits && self.ask(|_, _| Ok(Then::On)) == Then::On
    }

    fn gives_way(&self) -> bool {
        self.gives_way
    }

    fn progress(&mut self, path: &str, done_bytes: u64, total_bytes: u64) -> Then {
        let told = |(of, last, told_bytes): &(String, Instant, u64)| {
            of == path
                && last.elapsed() < PROGRESS_EVERY
                && done_bytes.saturating_sub(*told_bytes) < PROGRESS_EVERY_BYTES
        };
        if done_bytes < total_bytes && !self.rests && self.last.as_ref().is_some_and(told) {
            return Then::On;
        }
        self.last = Some((path.to_owned(), Instant::now(), done_bytes));
        let then = self.ask(|py, progress| {
            let said = progress.call1(py, (path, done_bytes, total_bytes))?;
            let rests = said.bind(py).eq("rest")?;
            if rests { Ok(Then::Rest) } else { said.is_truthy(py).map(Then::from) }
        });
        self.rests = then == Then::Rest;
        then
    }
}

/// The rules of some patterns as they were at one moment.
#[pyclass(frozen, module = "stripewise._native")]
pub(crate) struct RulesSnapshot {
    pool_file: PathBuf,
    rules: RulesKept,
}

/// The rules for exactly the patterns of the layout file `path`, to be put back later.
#[pyfunction]
pub(crate) fn rules_snapshot(pool_file: PathBuf, path: PathBuf) -> PyResult<RulesSnapshot> {
    let store = Store::of_file(&pool_file).map_err(raise)?;
    let entries = entries(&path, store.pool())?;
    let rules = store.keep_rules(entries.iter().map(|entry| &entry.path)).map_err(raise)?;
    Ok(RulesSnapshot { pool_file, rules })
}

#[pymethods]
impl RulesSnapshot {
    /// Puts the rules back: those that were there get their layouts, the others go.
    fn restore(&self) -> PyResult<()> {
        Store::of_file(&self.pool_file).and_then(|store| store.restore_rules(&self.rules)).map_err(raise)
    }
}
