//! Layout files: reading, checking against a pool, writing.

use crate::convert::to_python;
use crate::error::raise;
use crate::files;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use stripewise_layout::{FileLayout, LayoutFile, Pattern, RstError, ServerNames, Stripe, round_entries};
use stripewise_store::Pool;

/// The servers of `pool` by their names in layout files.
pub(crate) fn names(pool: &Pool) -> ServerNames {
    let tiers = pool.tiers.iter().map(|tier| (tier.name.clone(), tier.servers.len() as u16));
    ServerNames::new(tiers).expect("a pool has at most 4096 servers")
}

/// A round as in layout files: `["hdd.0-5:64KiB", "ssd.0:192KiB"]`.
pub(crate) fn round(stripes: &[Stripe], pool: &Pool) -> Vec<String> {
    round_entries(stripes, &names(pool))
}

/// Reads the layout file `path` for `pool`.
pub(crate) fn load(path: &Path, pool: &Pool) -> PyResult<LayoutFile> {
    load_for(path, "pool", &pool.name, &names(pool))
}

/// Reads the layout file `path` for the pool or cluster `name` (`kind` says which) with servers of these names.
pub(crate) fn load_for(path: &Path, kind: &str, name: &str, names: &ServerNames) -> PyResult<LayoutFile> {
    let file = LayoutFile::parse(&text(path)?, names).map_err(|error| at_line(path, &error))?;
    if file.pool != name {
        let theirs = &file.pool;
        let path = path.display();
        return Err(raise(format!(
            "{path} is for pool '{theirs}', not for '{name}'; change its `pool`, or the --{kind}"
        )));
    }
    Ok(file)
}

fn text(path: &Path) -> PyResult<String> {
    std::fs::read_to_string(path).map_err(|error| raise(format!("cannot read {}: {error}", path.display())))
}

fn at_line(path: &Path, error: &RstError) -> PyErr {
    raise(format!("{}:{}: {}", path.display(), error.line, error.problem))
}

/// The layout file `path` without a pool: servers are only names.
#[pyfunction]
pub(crate) fn layout_read<'py>(py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyAny>> {
    let (file, names) = LayoutFile::parse_as_named(&text(&path)?).map_err(|error| at_line(&path, &error))?;
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
    to_python(py, &describe(&load(&path, &pool)?, &names(&pool)))
}

/// The text of a layout file with the layouts that files of a pool have now (or would get if they were made now).
#[pyfunction]
pub(crate) fn layout_present(pool_file: PathBuf, paths: Vec<String>) -> PyResult<String> {
    let store = files::open(&pool_file)?;
    let mut file = LayoutFile { pool: store.pool().name.clone(), files: Vec::new() };
    for path in &paths {
        let layout = files::present_layout(&store, Path::new(path)).map_err(raise)?;
        let path = Pattern::exact(path).map_err(raise)?;
        file.files.push(FileLayout { path, layout: (*layout).clone(), note: None, region_notes: Vec::new() });
    }
    Ok(file.to_toml(&names(store.pool())))
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
