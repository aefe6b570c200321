//! Traces: merging, summaries, records as columns.

use crate::convert::to_python;
use crate::error::raise;
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::PathBuf;
use stripewise_import as import;
use stripewise_trace as trace;

/// Parts of equal length that a file's heat is given in.
const HEAT_PARTS: usize = 64;

/// Joins the process files in `directory` into the trace file `out`.
#[pyfunction]
pub(crate) fn trace_merge(py: Python<'_>, directory: PathBuf, out: PathBuf) -> PyResult<()> {
    py.detach(|| trace::merge(&directory, &out)).map_err(raise)
}

/// The format of a log by its name and first bytes; `None` for what is no log.
#[pyfunction]
pub(crate) fn log_format(py: Python<'_>, path: PathBuf) -> Option<&'static str> {
    py.detach(|| import::format_of(&path))
}

/// A path with `*` for its numbers, as files that are named alike are shown together.
#[pyfunction]
pub(crate) fn path_pattern(path: &str) -> String {
    stripewise_advise::numbers_replaced(path)
}

/// A recorded run, or a log of one.
#[pyclass(frozen, name = "Trace", module = "stripewise._native")]
pub(crate) struct PyTrace {
    pub(crate) inner: trace::Trace,
    pub(crate) about: import::About,
}

#[pymethods]
impl PyTrace {
    /// Opens a trace file, the directory of a run that is being recorded or was killed, or any log that can be
    /// imported. `progress` is called with the bytes of the log that are read and all its bytes. With `files`, numbers
    /// of files of a data set, only their requests, counters and layouts are read; with none, its index: no requests,
    /// counters and layouts of all files.
    #[new]
    #[pyo3(signature = (path, progress = None, *, files = None))]
    fn new(py: Python<'_>, path: PathBuf, progress: Option<Py<PyAny>>, files: Option<Vec<u32>>) -> PyResult<Self> {
        let import::Imported { trace, about } = watched(py, progress, |progress| match &files {
            None => import::open(&path, progress).map_err(raise),
            Some(none) if none.is_empty() => import::open_index(&path, progress).map_err(raise),
            Some(files) => import::open_files(&path, files, progress).map_err(raise),
        })?;
        Ok(Self { inner: trace, about })
    }

    /// Where the trace comes from and what it lacks.
    fn about<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let about = &self.about;
        let lacks = about.lacks.named().map(|(name, words)| json!({ "name": name, "words": words }));
        let value = json!({
            "format": about.format,
            "job": about.job,
            "lacks": lacks.collect::<Vec<_>>(),
            "notes": about.notes,
            "processes": about.processes,
            "run_s": about.run_ns.map(|ns| ns as f64 * 1e-9),
            "start_unix_s": about.start_unix_ns.map(|ns| ns as f64 * 1e-9),
        });
        to_python(py, &value)
    }

    /// The records of some files, ranks and programs, by their numbers (`None`: all), as a trace of its own, with `note`
    /// among the notes. Files are numbered anew. `log` is for messages.
    #[pyo3(signature = (log, note, *, files, ranks, programs))]
    fn excerpt(
        &self,
        py: Python<'_>,
        log: PathBuf,
        note: String,
        files: Option<HashSet<u32>>,
        ranks: Option<HashSet<u32>>,
        programs: Option<HashSet<u32>>,
    ) -> PyResult<Self> {
        let wanted = import::Excerpt { files, ranks, programs };
        let import::Imported { trace, mut about } =
            py.detach(|| wanted.of(&self.inner, &self.about, &log)).map_err(raise)?;
        about.notes.push(note);
        Ok(Self { inner: trace, about })
    }

    /// Writes the trace as a data set, which `Trace(path)` opens again. `progress` is called with the rows that are
    /// written and all rows.
    #[pyo3(signature = (path, progress = None))]
    fn save(&self, py: Python<'_>, path: PathBuf, progress: Option<Py<PyAny>>) -> PyResult<()> {
        watched(py, progress, |progress| {
            import::write_dataset(&self.inner, &self.about, &path, progress).map_err(raise)
        })
    }

    /// Writes all records as one table of Parquet, in the columns of a data set's requests.
    fn write_parquet(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| import::write_parquet(&self.inner, &path)).map_err(raise)
    }

    /// Writes all records as CSV, in the same columns, to an open file descriptor.
    fn write_csv(&self, py: Python<'_>, descriptor: i32) -> PyResult<()> {
        py.detach(|| {
            // SAFETY: the caller keeps the descriptor open; the copy is closed here.
            let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(descriptor) };
            let file = std::fs::File::from(borrowed.try_clone_to_owned()?);
            import::write_csv(&self.inner, file)
        })
        .map_err(PyErr::from)
    }

    /// What Darshan counted of each file: `file` as in `files()`, interface, rank (`None`: of all ranks), counters.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let rows = self.about.counters.iter().map(|counters| {
            let integers = counters.integers.iter().map(|&(name, value)| (name.to_owned(), json!(value)));
            let floats = counters.floats.iter().map(|&(name, value)| (name.to_owned(), json!(value)));
            json!({
                "file": counters.file,
                "api": counters.api.name(),
                "rank": counters.rank,
                "counters": integers.chain(floats).collect::<serde_json::Map<_, _>>(),
            })
        });
        to_python(py, &json!(rows.collect::<Vec<_>>()))
    }

    /// The layouts that files had on Lustre: `file` as in `files()`, and its components.
    fn lustre_layouts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let rows = self.about.lustre_layouts.iter().map(|layout| {
            let components = layout.components.iter().map(|component| {
                json!({
                    "start": component.start,
                    "end": component.end,
                    "stripe_bytes": component.stripe_bytes,
                    "stripe_count": component.stripe_count,
                    "pool": component.pool,
                    "osts": component.osts,
                })
            });
            json!({ "file": layout.file, "components": components.collect::<Vec<_>>() })
        });
        to_python(py, &json!(rows.collect::<Vec<_>>()))
    }

    /// Programs, processes, and each file with its sizes, rates and heat.
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let value = py.detach(|| self.summarise());
        to_python(py, &value)
    }

    /// The entry of `summary` of each group of files together, by their numbers: `id` and `path` are the first one's, and
    /// `files` says how many they are.
    fn summaries<'py>(&self, py: Python<'py>, groups: Vec<Vec<u32>>) -> PyResult<Bound<'py, PyAny>> {
        let value = py.detach(|| {
            let counted = self.about.counted_files();
            let of = |files: &Vec<u32>| {
                file_summary(&self.inner, &import::summarise_counted(&self.inner, &counted, files, HEAT_PARTS))
            };
            json!(groups.iter().map(of).collect::<Vec<_>>())
        });
        to_python(py, &value)
    }

    /// The processes that made records.
    fn processes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let processes = self.inner.processes().iter().map(|process| {
            json!({
                "program": process.program,
                "rank": process.rank,
                "pid": process.pid,
                "host": process.host,
                "records": process.records,
            })
        });
        to_python(py, &json!(processes.collect::<Vec<_>>()))
    }

    /// Paths of the files, by their number in the column `file`.
    fn files(&self) -> Vec<PathBuf> {
        self.inner.files().iter().map(|file| file.path.clone()).collect()
    }

    /// Names of the programs, by their number in the column `program`.
    fn programs(&self) -> Vec<String> {
        self.inner.programs().iter().map(|program| program.name.clone()).collect()
    }

    /// Number of records.
    fn record_count(&self) -> usize {
        self.inner.records().len()
    }

    /// Names of interfaces and operations by their numbers in the columns `api` and `op`.
    #[staticmethod]
    fn names<'py>(py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        let apis = PyDict::new(py);
        for api in trace::Api::ALL {
            apis.set_item(api as u8, api.name())?;
        }
        let ops = PyDict::new(py);
        for op in trace::Operation::ALL {
            ops.set_item(op as u8, op.name())?;
        }
        dict.set_item("api", apis)?;
        dict.set_item("op", ops)?;
        Ok(dict)
    }

    /// Evenly chosen requests of a file, at most `most`: as `columns`, operation, offset and size alone. Two passes.
    fn sample<'py>(&self, py: Python<'py>, file: u32, most: usize) -> PyResult<Bound<'py, PyDict>> {
        let records = py.detach(|| self.inner.sample(file, most));
        let dict = PyDict::new(py);
        dict.set_item("op", PyArray1::from_iter(py, records.iter().map(|record| record.op)))?;
        dict.set_item("offset", PyArray1::from_iter(py, records.iter().map(|record| record.offset)))?;
        dict.set_item("size", PyArray1::from_iter(py, records.iter().map(|record| record.size)))?;
        Ok(dict)
    }

    /// Mean requests in flight to these files, while any is. O(n log n).
    fn in_flight(&self, py: Python<'_>, files: Vec<u32>) -> f64 {
        py.detach(|| self.inner.in_flight(&files))
    }

    /// Seconds in which any request to these files is in flight; `None` of a log that does not tell how long requests
    /// took. O(n log n).
    fn busy_s(&self, py: Python<'_>, files: Vec<u32>) -> Option<f64> {
        let lacks = |what| self.about.lacks.contains(what);
        let timed = !lacks(import::Lacks::TIMES) && !lacks(import::Lacks::DURATIONS);
        timed.then(|| py.detach(|| self.inner.busy_s(&files)))
    }

    /// All records as one numpy array a column. With `requests_only`: the requests that moved bytes and that the
    /// storage saw (MPI-IO's own calls are left out where the POSIX calls below them were recorded too).
    #[pyo3(signature = (*, requests_only = false))]
    fn columns<'py>(&self, py: Python<'py>, requests_only: bool) -> PyResult<Bound<'py, PyDict>> {
        let records: Vec<trace::Record> = py.detach(|| {
            if requests_only {
                self.inner.files().iter().flat_map(|file| self.inner.requests(file.id)).copied().collect()
            } else {
                self.inner.records().to_vec()
            }
        });
        let dict = PyDict::new(py);
        macro_rules! column {
            ($($name:ident),*) => {
                $(dict.set_item(stringify!($name), PyArray1::from_iter(py, records.iter().map(|r| r.$name)))?;)*
            };
        }
        column!(offset, size, start_ns, end_ns, file, program, rank, pid, tid, api, op, flags);
        Ok(dict)
    }
}

/// Runs `work` without the interpreter, with a progress that calls `callback` and heeds Ctrl-C: what either raises
/// ends the work and is raised here.
fn watched<T: Send>(
    py: Python<'_>,
    callback: Option<Py<PyAny>>,
    work: impl FnOnce(&mut import::Progress<'_>) -> PyResult<T> + Send,
) -> PyResult<T> {
    let mut raised = None;
    let done = py.detach(|| {
        let mut progress = |done: u64, total: u64| {
            let called = Python::attach(|py| {
                py.check_signals()?;
                callback.as_ref().map_or(Ok(()), |callback| callback.call1(py, (done, total)).map(drop))
            });
            match called {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    raised = Some(error);
                    ControlFlow::Break(())
                }
            }
        };
        work(&mut progress)
    });
    raised.map_or(done, Err)
}

impl PyTrace {
    fn summarise(&self) -> Value {
        let inner = &self.inner;
        let counted = self.about.counted_files();
        json!({
            "start_unix_ns": inner.start_unix_ns(),
            "duration_s": inner.duration_ns() as f64 * 1e-9,
            "records": inner.records().len(),
            "lost": inner.lost(),
            "programs": inner.programs().iter().map(|program| program.name.clone()).collect::<Vec<_>>(),
            "processes": inner.processes().iter().map(|process| json!({
                "program": process.program,
                "rank": process.rank,
                "pid": process.pid,
                "parent_pid": process.parent_pid,
                "host": process.host,
                "command": process.command,
                "records": process.records,
                "lost": process.holes.saturating_add(process.dropped),
            })).collect::<Vec<_>>(),
            "files": inner.files().iter()
                .map(|file| file_summary(inner, &import::summarise_counted(inner, &counted, &[file.id], HEAT_PARTS)))
                .collect::<Vec<_>>(),
        })
    }
}

fn file_summary(of: &trace::Trace, summary: &trace::FileSummary) -> Value {
    json!({
        "id": summary.file,
        "files": summary.files,
        "path": of.files().get(summary.file as usize).map(|file| file.path.to_string_lossy()),
        "records": summary.records,
        "operations": summary.operations.iter()
            .map(|(op, count)| (op.name().to_owned(), json!(count)))
            .collect::<serde_json::Map<_, _>>(),
        "reads": direction(&summary.reads),
        "writes": direction(&summary.writes),
        "ranks": summary.ranks,
        "programs": summary.programs,
        "extent_bytes": summary.extent_bytes,
        "heat": summary.heat.iter().map(|part| json!({
            "offset": part.offset,
            "length": part.length,
            "read_bytes": part.read_bytes,
            "write_bytes": part.write_bytes,
        })).collect::<Vec<_>>(),
        "start_s": summary.span_ns.0 as f64 * 1e-9,
        "end_s": summary.span_ns.1 as f64 * 1e-9,
    })
}

fn direction(direction: &trace::DirectionSummary) -> Value {
    json!({
        "requests": direction.requests,
        "bytes": direction.bytes,
        "min_bytes": direction.min_bytes,
        "median_bytes": direction.median_bytes,
        "max_bytes": direction.max_bytes,
        "common_sizes": direction.common_sizes,
        "busy_s": direction.busy_s,
        "service_s": direction.service_s,
        "rate_bytes_per_s": direction.rate_bytes_per_s,
        "mean_concurrency": direction.mean_concurrency,
        "max_concurrency": direction.max_concurrency,
    })
}
