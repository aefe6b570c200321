//! Traces: merging, summaries, records as columns.

use crate::convert::to_python;
use crate::error::raise;
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Value, json};
use std::path::PathBuf;
use stripewise_trace as trace;

/// Parts of equal length that a file's heat is given in.
const HEAT_PARTS: usize = 64;

/// Joins the process files in `directory` into the trace file `out`.
#[pyfunction]
pub(crate) fn trace_merge(py: Python<'_>, directory: PathBuf, out: PathBuf) -> PyResult<()> {
    py.detach(|| trace::merge(&directory, &out)).map_err(raise)
}

/// A recorded run.
#[pyclass(frozen, module = "stripewise._native")]
pub(crate) struct Trace {
    pub(crate) inner: trace::Trace,
}

#[pymethods]
impl Trace {
    /// Opens a trace file, or the directory of a run that is being recorded or was killed.
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        py.detach(|| trace::Trace::open(&path)).map(|inner| Self { inner }).map_err(raise)
    }

    /// Programs, processes, and each file with its sizes, rates and heat.
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let value = py.detach(|| self.summarise());
        to_python(py, &value)
    }

    /// Paths of the files, by their number in the column `file`.
    fn files(&self) -> Vec<PathBuf> {
        self.inner.files().iter().map(|file| file.path.clone()).collect()
    }

    /// Names of the programs, by their number in the column `program`.
    fn programs(&self) -> Vec<String> {
        self.inner.programs().iter().map(|program| program.name.clone()).collect()
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

impl Trace {
    fn summarise(&self) -> Value {
        let inner = &self.inner;
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
            "files": inner.files().iter().map(|file| {
                let summary = trace::summarise(inner, file.id, HEAT_PARTS);
                json!({
                    "id": file.id,
                    "path": file.path.to_string_lossy(),
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
            }).collect::<Vec<_>>(),
        })
    }
}

fn direction(direction: &trace::Direction) -> Value {
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
