//! The heat of a pool's files.

use crate::convert::to_python;
use crate::error::raise;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::path::PathBuf;
use stripewise_store::Store;
use stripewise_store::hottest::FileHeat;
use stripewise_store::pool::recent_requests;

/// The heat of the file at `path` (relative to the mount), or of all files below it if it is a directory.
#[pyfunction]
pub(crate) fn pool_heat(py: Python<'_>, pool_file: PathBuf, path: PathBuf) -> PyResult<Bound<'_, PyAny>> {
    let store = Store::of_file(&pool_file).map_err(raise)?;
    let everything = path.as_os_str().is_empty() || path.as_os_str() == ".";
    let heat = py.detach(|| store.heat(&|file| everything || file.starts_with(&path))).map_err(raise)?;
    let file = |of: &FileHeat| {
        json!({
            "id": of.id,
            "path": of.path.to_string_lossy(),
            "size_bytes": of.size_bytes,
            "cost_us": of.blocks.iter().map(|(_, cost)| cost).sum::<u64>(),
            "blocks": of.blocks,
        })
    };
    let files: Vec<Value> = heat.files.iter().map(file).collect();
    let why = |(path, why): &(PathBuf, String)| json!({ "path": path.to_string_lossy(), "why": why });
    let unreadable: Vec<Value> = heat.unreadable.iter().map(why).collect();
    let value = json!({
        "block_bytes": heat.block_bytes,
        "period_s": heat.period_s,
        "missed": heat.missed,
        "files": files,
        "unreadable": unreadable,
    });
    to_python(py, &value)
}

/// The heat of all blocks, without looking at the files; no block if there are more than `most`.
#[pyfunction]
pub(crate) fn pool_block_heat(py: Python<'_>, pool_file: PathBuf, most: usize) -> PyResult<Bound<'_, PyAny>> {
    let store = Store::of_file(&pool_file).map_err(raise)?;
    let heat = py.detach(|| store.block_heat()).map_err(raise)?;
    let value = json!({
        "block_bytes": heat.block_bytes,
        "period_s": heat.period_s,
        "next_halving_s": heat.next_halving_s,
        "blocks": (heat.blocks.len() <= most).then_some(heat.blocks),
    });
    to_python(py, &value)
}

/// A request: file, offset, length, whether it is a write, thread, milliseconds.
type RecentRow = (u64, u64, u64, bool, u32, u32);

/// The last requests of a pool that keeps heat, the oldest first.
#[pyfunction]
pub(crate) fn pool_recent(pool_file: PathBuf) -> PyResult<Vec<RecentRow>> {
    let store = Store::of_file(&pool_file).map_err(raise)?;
    let found = recent_requests(store.pool()).map_err(raise)?;
    Ok(found.iter().map(|of| (of.file, of.offset, of.len, of.is_write, of.thread, of.time_ms)).collect())
}
