//! Checking and mending a pool, and getting its files out.

use crate::convert::to_python;
use crate::error::raise;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use stripewise_store::export_tree;
use stripewise_store::fsck::{self, CheckFinding, CheckStep, Outcomes};
use stripewise_store::{Pool, Result};

/// How often progress is told at most.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);
/// How often is looked for Ctrl-C, and whether the operation has ended.
const HEAR_EVERY: Duration = Duration::from_millis(5);

/// Calls Python from the threads of a long operation, and keeps what Python raised: that stops the operation.
struct Teller {
    found: Py<PyAny>,
    progress: Py<PyAny>,
    last: Mutex<Option<Instant>>,
    raised: Mutex<Option<PyErr>>,
    stopped: AtomicBool,
}

impl Teller {
    fn new(found: Py<PyAny>, progress: Py<PyAny>) -> Self {
        let (last, raised) = (Mutex::default(), Mutex::default());
        Self { found, progress, last, raised, stopped: AtomicBool::new(false) }
    }

    fn call(&self, work: impl FnOnce(Python<'_>) -> PyResult<()>) {
        if let Err(error) = Python::attach(work) {
            self.stopped.store(true, Ordering::Relaxed);
            let mut raised = self.raised.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            raised.get_or_insert(error);
        }
    }

    fn tell(&self, value: &Value) {
        self.call(|py| self.found.call1(py, (to_python(py, value)?,)).map(drop));
    }

    /// Tells progress, not too often; whether to go on.
    fn advance(&self, step: &str, done: u64, of: Option<u64>) -> bool {
        let mut last = self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if last.is_none_or(|last| last.elapsed() >= PROGRESS_EVERY) {
            *last = Some(Instant::now());
            drop(last);
            self.call(|py| self.progress.call1(py, (step, done, of)).map(drop));
        }
        !self.stopped.load(Ordering::Relaxed)
    }

    /// Runs `work` in a thread of its own, for only this one hears Ctrl-C; what it came to, or what Python raised.
    fn run<T: Send>(self, py: Python<'_>, work: impl FnOnce(&Self) -> Result<T> + Send) -> PyResult<T> {
        let done = py.detach(|| {
            std::thread::scope(|scope| {
                let working = scope.spawn(|| work(&self));
                while !working.is_finished() {
                    std::thread::sleep(HEAR_EVERY);
                    self.call(|py| py.check_signals());
                }
                working.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        });
        match self.raised.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            Some(error) => Err(error),
            None => done.map_err(raise),
        }
    }
}

impl fsck::CheckWatch for Teller {
    fn found(&self, finding: &CheckFinding) {
        self.tell(&json!({
            "kind": finding.kind.name(),
            "outcome": finding.outcome.name(),
            "path": finding.path.as_deref().map(Path::to_string_lossy),
            "server": finding.server,
            "object": finding.object,
            "lost": finding.lost,
            "lost_left_out": finding.lost_left_out,
            "what": finding.what,
            "action": finding.action,
        }));
    }

    fn progress(&self, step: CheckStep, done: u64, of: Option<u64>) -> bool {
        let name = match step {
            CheckStep::Files => "files",
            CheckStep::Again => "files again",
            CheckStep::Datafiles => "datafiles",
            CheckStep::Reading => "bytes",
        };
        self.advance(name, done, of)
    }
}

impl export_tree::ExportWatch for Teller {
    fn failed(&self, path: &Path, reason: &str) {
        self.tell(&json!({ "path": path.to_string_lossy(), "reason": reason }));
    }

    fn progress(&self, done_bytes: u64, total_bytes: u64) -> bool {
        self.advance("bytes", done_bytes, Some(total_bytes))
    }
}

fn outcomes(outcomes: &Outcomes) -> Value {
    json!({
        "mended": outcomes.mended,
        "would_mend": outcomes.would_mend,
        "left": outcomes.left,
        "in_use": outcomes.in_use,
        "notes": outcomes.notes,
    })
}

/// Checks the pool and mends it as the options say. `found(finding)` is called for each finding as it comes,
/// `progress(step, done, of)` now and then; what they raise stops the check.
#[pyfunction]
#[pyo3(signature = (pool_file, *, dry_run, rebind, forget_missing, remove_orphans, scrub, layouts_from, found, progress))]
#[allow(clippy::too_many_arguments, reason = "the options of a command, by keyword")]
pub(crate) fn pool_fsck<'py>(
    py: Python<'py>,
    pool_file: PathBuf,
    dry_run: bool,
    rebind: bool,
    forget_missing: bool,
    remove_orphans: bool,
    scrub: bool,
    layouts_from: Vec<PathBuf>,
    found: Py<PyAny>,
    progress: Py<PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let pool = Pool::load(&pool_file).map_err(raise)?;
    let others = layouts_from.iter().map(|file| Pool::load(file).map(|pool| pool.namespace));
    let layouts_from = others.collect::<Result<_>>().map_err(raise)?;
    let options =
        fsck::CheckOptions { dry_run, rebind, forget_missing, remove_orphans, scrub, layouts_from, threads: 0 };
    let teller = Teller::new(found, progress);
    let report = teller.run(py, |teller| fsck::check(&pool, &options, teller))?;
    let kinds: serde_json::Map<_, _> =
        report.kinds.iter().map(|(kind, each)| (kind.name().to_owned(), outcomes(each))).collect();
    let value = json!({
        "exit_code": report.exit_code(),
        "files": report.files,
        "placed_files": report.placed_files,
        "files_in_use": report.files_in_use,
        "datafiles": report.datafiles,
        "read_bytes": report.read_bytes,
        "total": outcomes(&report.total()),
        "kinds": kinds,
    });
    to_python(py, &value)
}

/// Copies all files of the pool out, or compares an earlier copy. `failed(failure)` is called for each name that failed,
/// `progress(step, done, of)` now and then; what they raise stops it, and the same call goes on with it.
#[pyfunction]
pub(crate) fn pool_export_tree<'py>(
    py: Python<'py>,
    pool_file: PathBuf,
    to: PathBuf,
    verify_only: bool,
    failed: Py<PyAny>,
    progress: Py<PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let pool = Pool::load(&pool_file).map_err(raise)?;
    let options = export_tree::ExportOptions { verify_only, ..Default::default() };
    let teller = Teller::new(failed, progress);
    let report = teller.run(py, |teller| export_tree::export(&pool, &to, &options, teller))?;
    let value = json!({
        "files": report.files,
        "resumed_files": report.resumed_files,
        "bytes": report.bytes,
        "hard_links": report.hard_links,
        "directories": report.directories,
        "symlinks": report.symlinks,
        "special_files": report.special_files,
        "owners_not_kept": report.owners_not_kept,
        "failed": report.failed,
    });
    to_python(py, &value)
}
