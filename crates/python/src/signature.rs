//! Signatures of a trace: by file, by process, by program.

use crate::convert::to_python;
use crate::error::raise;
use crate::trace::PyTrace;
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use stripewise_signature::{
    Access, AccessOp, Factors, FileProgram, FileSignature, PatternSignature, Phase, ProcessSignature, ProgramFactors,
    Signature, SignatureLength, SignatureProgress, StreamSignature, programs_of, stream_in_words,
};

/// How often a progress is told, and Ctrl-C heeded.
const TOLD_EVERY: Duration = Duration::from_millis(100);

/// What each process of a trace did with each file.
#[pyclass(frozen, name = "TraceSignature", module = "stripewise._native")]
pub(crate) struct PyTraceSignature {
    trace: Py<PyTrace>,
    inner: stripewise_signature::TraceSignature,
    /// Files whose requests, or some of them, were made up from counters.
    made_up: HashSet<u32>,
}

impl PyTraceSignature {
    fn file(&self, file: u32) -> PyResult<&FileSignature> {
        let at = self.inner.files.binary_search_by_key(&file, |signature| signature.file);
        at.map(|at| &self.inner.files[at])
            .map_err(|_| raise(format!("file {file} of the trace was neither read nor written: it has no signature")))
    }

    fn stream(&self, file: u32, process: usize) -> PyResult<&StreamSignature> {
        let processes = &self.file(file)?.processes;
        let count = processes.len();
        let missing = || raise(format!("file {file} has {count} processes, counted from 0: there is no {process}"));
        processes.get(process).map(|signature| &signature.stream).ok_or_else(missing)
    }

    fn path(&self, file: u32) -> String {
        self.trace.get().inner.files()[file as usize].path.to_string_lossy().into_owned()
    }

    fn program(&self, program: u32) -> &str {
        self.trace.get().inner.programs().get(program as usize).map_or("", |program| &program.name)
    }
}

#[pymethods]
impl PyTraceSignature {
    /// The signatures of all files of `trace` by process. `progress` is called with records done and all records.
    #[new]
    #[pyo3(signature = (trace, progress = None))]
    fn new(trace: Bound<'_, PyTrace>, progress: Option<Py<PyAny>>) -> PyResult<Self> {
        let py = trace.py();
        let records = &trace.get().inner;
        let total = records.records().len();
        let inner = told(py, progress, total, |watch| stripewise_signature::TraceSignature::of(records, watch))?;
        let made_up = trace.get().about.counters.iter().filter(|counters| counters.is_made_up());
        let made_up = made_up.map(|counters| counters.file).collect();
        Ok(Self { trace: trace.unbind(), inner, made_up })
    }

    /// One dict a file that was read or written, in order of path: its five factors, what its processes do in words,
    /// and its phases.
    fn files<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let rows = py.detach(|| {
            let row = |signature: &FileSignature| {
                let factors = signature.factors();
                let streams = signature.processes.iter().map(|process| &process.stream.signature);
                let mut programs: Vec<u32> = signature.processes.iter().map(|one| one.process.program).collect();
                programs.dedup();
                let mut row = told_by(&factors);
                row.extend(lengths(&SignatureLength::of(streams)));
                let made_up = self.made_up.contains(&signature.file);
                let note = if made_up { " (made up to agree with counters)" } else { "" };
                let words = format!("{}{note}", signature.words(&self.trace.get().inner));
                let rest = json!({
                    "file": signature.file,
                    "path": self.path(signature.file),
                    "words": words,
                    "programs": programs.iter().map(|&program| self.program(program)).collect::<Vec<_>>(),
                    "processes": signature.processes.len(),
                    "made_up": made_up,
                    "unknown_offsets": signature.unknown_offsets,
                    "phases": signature.phases.iter().map(phase).collect::<Vec<_>>(),
                });
                merged(row, rest)
            };
            self.inner.files.iter().map(row).collect::<Vec<_>>()
        });
        to_python(py, &Value::Array(rows))
    }

    /// One dict a process of each file (or of that one): as of a file.
    #[pyo3(signature = (file = None))]
    fn processes<'py>(&self, py: Python<'py>, file: Option<u32>) -> PyResult<Bound<'py, PyAny>> {
        let files = match file {
            None => self.inner.files.iter().collect(),
            Some(file) => vec![self.file(file)?],
        };
        let rows = py.detach(|| {
            let row = |file: &FileSignature, index: usize, signature: &ProcessSignature| {
                let mut row = told_by(&signature.stream.factors);
                row.extend(lengths(&SignatureLength::of([&signature.stream.signature])));
                let rest = json!({
                    "file": file.file,
                    "path": self.path(file.file),
                    "process": index,
                    "program": self.program(signature.process.program),
                    "rank": signature.process.rank,
                    "pid": signature.process.pid,
                    "words": stream_in_words(&signature.stream),
                    "phases": signature.stream.phases.iter().map(phase).collect::<Vec<_>>(),
                });
                merged(row, rest)
            };
            let of = |file: &&FileSignature| {
                file.processes.iter().enumerate().map(|(index, one)| row(file, index, one)).collect::<Vec<_>>()
            };
            files.iter().flat_map(of).collect::<Vec<_>>()
        });
        to_python(py, &Value::Array(rows))
    }

    /// One dict a program: its five factors over all files.
    fn programs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let names = self.trace.get().inner.programs();
        let rows = py.detach(|| {
            let name = |program: u32| names.get(program as usize).map_or("", |program| &program.name);
            program_rows(&self.inner.programs(), name)
        });
        to_python(py, &rows)
    }

    /// What `signature_programs` takes: a text a file, in the order of `files()`.
    fn file_programs(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let texts = py.detach(|| {
            let text = |file: &FileSignature| serde_json::to_string(&file.programs());
            self.inner.files.iter().map(text).collect::<Result<Vec<_>, _>>()
        });
        texts.map_err(raise)
    }

    /// The trace signature of a process's requests to a file: all of it, or its first `parts` parts.
    #[pyo3(signature = (file, process, parts = None))]
    fn text(&self, py: Python<'_>, file: u32, process: usize, parts: Option<usize>) -> PyResult<String> {
        let signature = &self.stream(file, process)?.signature;
        Ok(py.detach(|| parts.map_or_else(|| signature.to_string(), |parts| signature.beginning(parts).to_string())))
    }

    /// What that signature expands to: `write` (0 or 1), `offset` and `size` in bytes, in order.
    fn expand<'py>(&self, py: Python<'py>, file: u32, process: usize) -> PyResult<Bound<'py, PyDict>> {
        let signature = &self.stream(file, process)?.signature;
        columns(py, py.detach(|| signature.expand().collect()))
    }

    /// Compares every request of the trace with what the signatures expand to: how many requests those are. Raises an
    /// error that names the first that is not the same.
    #[pyo3(signature = (progress = None))]
    fn check(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<u64> {
        let trace = &self.trace.get().inner;
        let checked = told(py, progress, trace.records().len(), |watch| self.inner.check(trace, watch))?;
        checked.map_err(|mismatch| {
            raise(format!(
                "the signature of {}, rank {}, process {}, is not the trace's after {} requests: this is a mistake in \
                 Stripewise, please report it",
                self.path(mismatch.file),
                mismatch.process.rank,
                mismatch.process.pid,
                mismatch.after
            ))
        })
    }
}

/// What the text of a signature expands to, at most `most` accesses of it: `write` (0 or 1), `offset` and `size`.
#[pyfunction]
pub(crate) fn signature_expand<'py>(py: Python<'py>, text: &str, most: usize) -> PyResult<Bound<'py, PyDict>> {
    let signature: Signature = text.parse().map_err(raise)?;
    columns(py, py.detach(|| signature.expand().take(most).collect()))
}

/// As `TraceSignature.programs`, of the files whose `file_programs` these are, in order of file; `names` are those of
/// the programs.
#[pyfunction]
pub(crate) fn signature_programs<'py>(
    py: Python<'py>,
    files: Vec<String>,
    names: Vec<String>,
) -> PyResult<Bound<'py, PyAny>> {
    let rows = py.detach(|| {
        let read = |text: &String| serde_json::from_str::<Vec<FileProgram>>(text);
        let parts = files.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let name = |program: u32| names.get(program as usize).map_or("", String::as_str);
        Ok::<_, serde_json::Error>(program_rows(&programs_of(parts.into_iter().flatten()), name))
    });
    to_python(py, &rows.map_err(raise)?)
}

fn program_rows<'a>(programs: &[ProgramFactors], name: impl Fn(u32) -> &'a str) -> Value {
    let row = |program: &ProgramFactors| {
        let mut row = told_by(&program.factors);
        row.extend(lengths(&program.length()));
        let rest = json!({
            "program": name(program.program),
            "files": program.files,
            "processes": program.processes,
        });
        merged(row, rest)
    };
    Value::Array(programs.iter().map(row).collect())
}

/// Runs `work` beside the interpreter, which meanwhile tells the progress and heeds Ctrl-C: what either raises ends the
/// work and is raised here.
fn told<T: Send>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    total: usize,
    work: impl FnOnce(&SignatureProgress) -> T + Send,
) -> PyResult<T> {
    let watch = SignatureProgress::default();
    let tell = || {
        Python::attach(|py| {
            py.check_signals()?;
            progress.as_ref().map_or(Ok(()), |told| told.call1(py, (watch.done(), total)).map(drop))
        })
    };
    py.detach(|| {
        std::thread::scope(|scope| {
            let (ended, end) = channel::<()>();
            let watch = &watch;
            let working = scope.spawn(move || {
                let result = work(watch);
                drop(ended);
                result
            });
            let mut raised = None;
            while end.recv_timeout(TOLD_EVERY) == Err(RecvTimeoutError::Timeout) {
                if raised.is_none()
                    && let Err(error) = tell()
                {
                    watch.stop();
                    raised = Some(error);
                }
            }
            let result = working.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            match raised {
                Some(error) => Err(error),
                None => tell().map(|()| result),
            }
        })
    })
}

fn columns(py: Python<'_>, accesses: Vec<Access>) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item(
        "write",
        PyArray1::from_iter(py, accesses.iter().map(|access| u8::from(access.op == AccessOp::Write))),
    )?;
    dict.set_item("offset", PyArray1::from_iter(py, accesses.iter().map(|access| access.offset)))?;
    dict.set_item("size", PyArray1::from_iter(py, accesses.iter().map(|access| access.size_bytes)))?;
    Ok(dict)
}

/// The five factors, and what they are decided from.
fn told_by(factors: &Factors) -> Map<String, Value> {
    let pattern = factors.pattern();
    let of = |name: fn(&PatternSignature) -> Value| pattern.as_ref().map_or(Value::Null, name);
    let (offset, end) = factors.extent.unzip();
    let (least, most) = factors.size_range.unzip();
    let value = json!({
        "pattern": pattern.map(|pattern| pattern.to_string()),
        "operation": of(|pattern| json!(pattern.operations.name())),
        "spatial": of(|pattern| json!(pattern.spatial.name())),
        "dimension": of(|pattern| json!(pattern.dimension)),
        "repetition": of(|pattern| json!(if pattern.repeating { "repeating" } else { "single" })),
        "size": of(|pattern| json!(if pattern.fixed_size { "fixed" } else { "variable" })),
        "size_class": of(|pattern| json!(pattern.size.name())),
        "temporal": of(|pattern| json!(pattern.temporal.name())),
        "requests": factors.accesses(),
        "reads": factors.reads,
        "writes": factors.writes,
        "read_bytes": factors.bytes_read,
        "written_bytes": factors.bytes_written,
        "offset": offset,
        "end": end,
        "min_bytes": least,
        "max_bytes": most,
    });
    let Value::Object(fields) = value else { return Map::new() };
    fields
}

/// How long signatures are: parts, and numbers of the requests per number of theirs.
fn lengths(of: &SignatureLength) -> Map<String, Value> {
    Map::from_iter([("parts".to_owned(), json!(of.parts)), ("ratio".to_owned(), json!(of.ratio()))])
}

fn phase(phase: &Phase) -> Value {
    json!({
        "start_s": phase.start_ns as f64 * 1e-9,
        "end_s": phase.end_ns as f64 * 1e-9,
        "requests": phase.accesses,
        "read_bytes": phase.bytes_read,
        "written_bytes": phase.bytes_written,
    })
}

/// Both as one object, `first`'s fields after those of `then`.
fn merged(first: Map<String, Value>, then: Value) -> Value {
    let Value::Object(mut all) = then else { return Value::Object(first) };
    all.extend(first);
    Value::Object(all)
}
