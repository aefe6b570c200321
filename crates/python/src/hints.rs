//! Hints of a pool's directories.

use crate::convert::to_python;
use crate::error::raise;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::path::PathBuf;
use stripewise_layout::{MAX_OFFSET, Pattern};
use stripewise_optimisation::{OptimisationSetting, OptimisationType, ParameterType, TABLE};
use stripewise_store::Store;
use stripewise_store::handle::Optimisations;
use stripewise_store::hints::DirectoryHints;

/// Each as people write it; of one that this release does not understand what is wrong with it.
pub(crate) fn described(optimisations: &Optimisations) -> Vec<String> {
    let text = |&(index, parameters): &(u32, u64)| match OptimisationSetting::unpack(index, parameters) {
        Ok(setting) => setting.to_string(),
        Err(error) => error.to_string(),
    };
    optimisations.enabled().iter().map(text).collect()
}

fn describe(hints: &DirectoryHints) -> Value {
    let hint = |hint: &stripewise_store::hints::Hint| {
        let pattern = hint.pattern.as_ref().map(Pattern::as_str);
        json!({ "pattern": pattern, "optimisations": described(&hint.optimisations) })
    };
    json!({ "version": hints.version, "hints": hints.hints().iter().map(hint).collect::<Vec<_>>() })
}

/// The pattern of names in one directory.
fn pattern_of(text: Option<&str>) -> PyResult<Option<Pattern>> {
    let Some(text) = text else { return Ok(None) };
    if text.contains('/') {
        let reason = "has a '/': a hint is of names in its directory; give that directory itself";
        return Err(raise(format!("pattern '{text}' {reason}")));
    }
    Pattern::new(text).map(Some).map_err(raise)
}

/// All optimisations that there are.
#[pyfunction]
pub(crate) fn optimisation_table(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let parameter = |each: &ParameterType| {
        let text = |value| each.format(value);
        json!({
            "name": each.name,
            "least": text(each.least),
            "most": text(each.most),
            "multiple": text(each.multiple),
            "default": text(each.default),
        })
    };
    let row = |each: &OptimisationType| {
        let parameters: Vec<Value> = each.parameters.iter().map(parameter).collect();
        json!({
            "index": each.index,
            "name": each.name,
            "form": each.form(),
            "parameters": parameters,
            "does": each.does,
        })
    };
    to_python(py, &Value::Array(TABLE.iter().map(row).collect()))
}

/// The hints of the directory `path` (relative to the mount).
#[pyfunction]
pub(crate) fn hints_of<'py>(py: Python<'py>, pool_file: PathBuf, path: PathBuf) -> PyResult<Bound<'py, PyAny>> {
    let store = Store::of_file(&pool_file).map_err(raise)?;
    to_python(py, &describe(&store.hints(&path).map_err(raise)?))
}

/// Sets what new files of `path` whose name matches `pattern` get, in place of what was said of exactly that pattern.
#[pyfunction]
pub(crate) fn hint_set<'py>(
    py: Python<'py>,
    pool_file: PathBuf,
    path: PathBuf,
    pattern: Option<&str>,
    settings: Vec<String>,
) -> PyResult<Bound<'py, PyAny>> {
    let pattern = pattern_of(pattern)?;
    let mut optimisations = Optimisations::default();
    for text in settings {
        let (index, parameters) = OptimisationSetting::parse(&text).map_err(raise)?.pack();
        optimisations.enable(index, parameters).map_err(raise)?;
    }
    let store = Store::of_file(&pool_file).map_err(raise)?;
    let hints = store.change_hints(&path, |hints| hints.set(pattern, optimisations)).map_err(raise)?;
    to_python(py, &describe(&hints))
}

/// Removes what was said of exactly `pattern`; whether there was something.
#[pyfunction]
pub(crate) fn hint_remove(pool_file: PathBuf, path: PathBuf, pattern: Option<&str>) -> PyResult<bool> {
    let pattern = pattern_of(pattern)?;
    let store = Store::of_file(&pool_file).map_err(raise)?;
    let mut found = false;
    let remove = |hints: &mut DirectoryHints| {
        found = hints.remove(pattern.as_ref());
        Ok(())
    };
    store.change_hints(&path, remove).map_err(raise)?;
    Ok(found)
}

/// Removes all hints of the directory `path`, damaged ones too.
#[pyfunction]
pub(crate) fn hints_remove_all(pool_file: PathBuf, path: PathBuf) -> PyResult<()> {
    Store::of_file(&pool_file).and_then(|store| store.remove_hints(&path)).map_err(raise)
}

/// Why the requests on the file `path` go where they go.
#[pyfunction]
pub(crate) fn path_taken<'py>(py: Python<'py>, pool_file: PathBuf, path: PathBuf) -> PyResult<Bound<'py, PyAny>> {
    let store = Store::of_file(&pool_file).map_err(raise)?;
    let taken = store.path_taken(&path).map_err(raise)?;
    let all_in_inode = taken.head_bytes > MAX_OFFSET;
    to_python(
        py,
        &json!({
            "size_bytes": taken.size_bytes,
            "head_bytes": (!all_in_inode).then_some(taken.head_bytes),
            "has_handle": taken.has_handle,
            "made_with": described(&taken.made_with),
            "reads_ahead": taken.reads_ahead,
            "is_ruled": taken.is_ruled,
            "landed_on": taken.landed_on,
            "hinted_now": described(&taken.hinted_now),
            "hints_version": taken.hints_version,
        }),
    )
}
