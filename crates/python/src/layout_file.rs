//! Layout files: reading, checking against a pool, writing; and the patterns in them.

use crate::convert::to_python;
use crate::error::raise;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::path::PathBuf;
use stripewise_layout::{LayoutFile, Pattern, ServerNames, round_entries};
use stripewise_store::{Pool, Store};

/// The layout file `path` without a pool: servers are only names.
#[pyfunction]
pub(crate) fn layout_read<'py>(py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyAny>> {
    let (file, names) = LayoutFile::load_as_named(&path).map_err(raise)?;
    to_python(py, &describe(&file, &names))
}

/// The text of a layout file, read without a pool.
#[pyfunction]
pub(crate) fn layout_parse<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    let (file, names) = LayoutFile::parse_as_named(text).map_err(raise)?;
    to_python(py, &describe(&file, &names))
}

/// The layout file `path`, checked for a pool: every server that it names is one of the pool's.
#[pyfunction]
pub(crate) fn layout_check<'py>(py: Python<'py>, path: PathBuf, pool_file: PathBuf) -> PyResult<Bound<'py, PyAny>> {
    let pool = Pool::load(&pool_file).map_err(raise)?;
    let names = pool.server_names();
    to_python(py, &describe(&LayoutFile::load(&path, "pool", &pool.name, &names).map_err(raise)?, &names))
}

/// The text of a layout file with the layouts that files of a pool have now (or would get if they were made now).
#[pyfunction]
pub(crate) fn layout_present(pool_file: PathBuf, paths: Vec<String>) -> PyResult<String> {
    let store = Store::of_file(&pool_file).map_err(raise)?;
    let file = store.present_layouts(paths.iter().map(String::as_str)).map_err(raise)?;
    Ok(file.to_toml(&store.pool().server_names()))
}

/// [`Pattern::place`].
#[pyfunction]
pub(crate) fn pattern_place(pattern: &str) -> PyResult<(String, bool)> {
    Ok(Pattern::new(pattern).map_err(raise)?.place())
}

/// Whether a pattern of a layout file matches `path`.
#[pyfunction]
pub(crate) fn pattern_matches(pattern: &str, path: &str) -> PyResult<bool> {
    Ok(Pattern::new(pattern).map_err(raise)?.matches(path.as_bytes()))
}

fn describe(file: &LayoutFile, names: &ServerNames) -> Value {
    let files = file.files.iter().map(|file| {
        let regions = file.layout.regions().iter().map(|region| {
            let stripes = region.stripes().iter();
            json!({
                "offset": region.offset(),
                "round": round_entries(region.stripes(), names),
                "stripes": stripes.map(|stripe| json!({
                    "server": names.name(stripe.server),
                    "width_bytes": stripe.width_bytes,
                })).collect::<Vec<_>>(),
            })
        });
        json!({ "path": file.path.as_str(), "note": file.note, "regions": regions.collect::<Vec<_>>() })
    });
    json!({ "pool": file.pool, "files": files.collect::<Vec<_>>() })
}
