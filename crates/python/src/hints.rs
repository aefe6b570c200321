//! Hints of a pool's directories.

use crate::convert::{Utf8Text, kind_name, to_python};
use crate::error::raise;
use pyo3::prelude::*;
use rustix::fs::FileType;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use stripewise_layout::{Layout, MAX_OFFSET, Pattern};
use stripewise_optimisation::{OptimisationSetting, OptimisationType, ParameterType, SMALL, TABLE};
use stripewise_store::handle::Optimisations;
use stripewise_store::hints::DirectoryHints;
use stripewise_store::layout_hints::HintedLayout;
use stripewise_store::{LastOpens, OpenRecord, PathKind, PathState, Store, Unsaid};
use stripewise_whatif::HintProposal;

/// Each as people write it; of one that this release does not understand what is wrong with it.
pub(crate) fn described(optimisations: &Optimisations) -> Vec<String> {
    let text = |&(index, parameters): &(u32, u64)| match OptimisationSetting::unpack(index, parameters) {
        Ok(setting) => setting.to_string(),
        Err(error) => error.to_string(),
    };
    optimisations.enabled().iter().map(text).collect()
}

/// A hint that gains.
pub(crate) fn proposed(hint: &HintProposal) -> Value {
    json!({
        "directory": hint.directory,
        "pattern": hint.pattern,
        "optimisation": hint.setting.to_string(),
        "files": hint.files,
        "now_s": hint.now_s,
        "then_s": hint.then_s,
    })
}

/// The hints of the directory `path`, and the rules for what is below it.
fn describe(store: &Store, path: &Path, hints: &DirectoryHints) -> PyResult<Value> {
    let hint = |hint: &stripewise_store::hints::Hint| {
        let pattern = hint.pattern.as_ref().map(Pattern::as_str);
        json!({ "pattern": pattern, "optimisations": described(&hint.optimisations) })
    };
    let names = store.pool().server_names();
    let rule = |rule: &HintedLayout| json!({ "pattern": rule.pattern, "layout": rule.layout.to_line(&names) });
    let rules = store.hinted_layouts(path).map_err(raise)?;
    Ok(json!({
        "version": hints.version,
        "hints": hints.hints().iter().map(hint).collect::<Vec<_>>(),
        "layouts": rules.iter().map(rule).collect::<Vec<_>>(),
    }))
}

/// What the hint for a layout begins with; the rest is the layout in one line.
const LAYOUT: &str = "layout=";

/// What a hint is to say.
#[derive(Default)]
struct Asked {
    optimisations: Optimisations,
    layout: Option<Layout>,
}

impl Asked {
    fn parse(settings: &[Utf8Text], store: &Store) -> PyResult<Self> {
        let mut asked = Self::default();
        for Utf8Text(text) in settings {
            if let Some(line) = text.strip_prefix(LAYOUT) {
                let layout = Layout::parse_line(line, &store.pool().server_names());
                asked.layout = Some(layout.map_err(|error| raise(format!("{text}: {error}")))?);
                continue;
            }
            let (index, parameters) = OptimisationSetting::parse(text).map_err(raise)?.pack();
            asked.optimisations.enable(index, parameters).map_err(raise)?;
        }
        if asked.layout.is_some() && asked.optimisations.parameters(SMALL.index).is_some() {
            let how = "as in layout=meta:64KiB/64KiB@hdd.0-5:64KiB";
            return Err(raise(format!(
                "a layout says where every byte is: write what is to be in the inode into it, {how}"
            )));
        }
        Ok(asked)
    }
}

/// The pattern of names in one directory.
fn pattern_of(text: Option<Utf8Text>) -> PyResult<Option<Pattern>> {
    let Some(Utf8Text(text)) = text else { return Ok(None) };
    if text.contains('/') {
        let reason = "has a '/': a hint is of names in its directory; give that directory itself";
        return Err(raise(format!("pattern '{text}' {reason}")));
    }
    Pattern::new(&text).map(Some).map_err(raise)
}

/// [`pattern_of`] of names that a hint is to be given for. What shells read as a class or a choice of characters is refused, as it would
/// match that text alone; a hint of before may have such a pattern, and can be removed.
fn new_pattern_of(text: Option<Utf8Text>) -> PyResult<Option<Pattern>> {
    let pattern = pattern_of(text)?;
    let Some((text, mark)) = pattern.as_ref().and_then(|of| Some((of.as_str(), of.foreign_wildcard()?))) else {
        return Ok(pattern);
    };
    let remedy = format!("give a hint for each name that it stands for, or write '\\{mark}' where names have it");
    Err(raise(format!("pattern '{text}' has a '{mark}', and only '*' and '?' stand for other characters: {remedy}")))
}

/// The indices of the optimisations of these names, each once.
fn indices_of<'a>(names: impl IntoIterator<Item = &'a Utf8Text>) -> PyResult<Vec<u32>> {
    let index = |Utf8Text(name): &Utf8Text| Ok(OptimisationSetting::parse(name).map_err(raise)?.pack().0);
    let indices = names.into_iter().map(index).collect::<PyResult<BTreeSet<u32>>>()?;
    Ok(indices.into_iter().collect())
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
    to_python(py, &describe(&store, &path, &store.hints(&path).map_err(raise)?)?)
}

/// Sets what new files of `path` whose name matches `pattern` get. What else was said of exactly that pattern stays.
#[pyfunction]
pub(crate) fn hint_set<'py>(
    py: Python<'py>,
    pool_file: PathBuf,
    path: PathBuf,
    pattern: Option<Utf8Text>,
    settings: Vec<Utf8Text>,
) -> PyResult<Bound<'py, PyAny>> {
    let pattern = new_pattern_of(pattern)?;
    let store = Store::of_file(&pool_file).map_err(raise)?;
    let Asked { optimisations, layout } = Asked::parse(&settings, &store)?;
    // What could not be told afterwards is not changed.
    describe(&store, &path, &store.hints(&path).map_err(raise)?)?;
    store.say_hints(&path, pattern, optimisations, layout.as_ref()).map_err(raise)?;
    to_python(py, &describe(&store, &path, &store.hints(&path).map_err(raise)?)?)
}

/// Gives the file `path` an optimisation from its next open on, unless it has one of that kind or is yet to come to its place;
/// whether it did.
#[pyfunction]
pub(crate) fn file_optimise(py: Python<'_>, pool_file: PathBuf, path: PathBuf, setting: &str) -> PyResult<bool> {
    let setting = OptimisationSetting::parse(setting).map_err(raise)?;
    py.detach(|| Store::of_file(&pool_file)?.optimise(&path, &setting)).map_err(raise)
}

/// Whether what is at `path` is a regular file, and no directory. What is neither has no hints.
#[pyfunction]
pub(crate) fn is_file(pool_file: PathBuf, path: PathBuf) -> PyResult<bool> {
    let place = Store::of_file(&pool_file).and_then(|store| store.open_place(&path)).map_err(raise)?;
    let stat = rustix::fs::fstat(place).map_err(raise)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(true),
        FileType::Directory => Ok(false),
        other => {
            let reason = "hints are of directories and regular files";
            Err(raise(format!("{} is a {}: {reason}", path.display(), kind_name(other))))
        }
    }
}

/// Gives the file `path` these optimisations from its next open on, also over those that it has.
#[pyfunction]
pub(crate) fn file_hint(py: Python<'_>, pool_file: PathBuf, path: PathBuf, settings: Vec<Utf8Text>) -> PyResult<()> {
    let store = Store::of_file(&pool_file).map_err(raise)?;
    let Asked { optimisations, layout } = Asked::parse(&settings, &store)?;
    if layout.is_some() {
        return Err(raise(format!("{}: a file gets another layout by `stripewise apply`", path.display())));
    }
    py.detach(|| store.hint_file(&path, &optimisations)).map_err(raise)
}

/// Takes from the file `path` the optimisations of these `names`, or all but `small` where none is given. Whether it had all of them;
/// else nothing is changed.
#[pyfunction]
pub(crate) fn file_unhint(py: Python<'_>, pool_file: PathBuf, path: PathBuf, names: Vec<Utf8Text>) -> PyResult<bool> {
    let indices = indices_of(&names)?;
    let only = (!indices.is_empty()).then_some(&indices[..]);
    py.detach(|| Store::of_file(&pool_file)?.unhint_file(&path, only)).map_err(raise)
}

/// Removes what was said of exactly `pattern`: the optimisations of these `names`, or all of it where none is given. Whether all
/// of them were there; else nothing is changed.
#[pyfunction]
pub(crate) fn hint_remove(
    pool_file: PathBuf,
    path: PathBuf,
    pattern: Option<Utf8Text>,
    names: Vec<Utf8Text>,
) -> PyResult<bool> {
    let pattern = pattern_of(pattern)?;
    let (layouts, names): (Vec<_>, Vec<_>) = names.iter().partition(|name| format!("{}=", name.0).starts_with(LAYOUT));
    let indices = indices_of(names.iter().copied())?;
    let what = match names.is_empty() && layouts.is_empty() {
        true => Unsaid::All,
        false => Unsaid::Some { indices: &indices, layout: !layouts.is_empty() },
    };
    let store = Store::of_file(&pool_file).map_err(raise)?;
    store.unsay_hints(&path, pattern.as_ref(), what).map_err(raise)
}

/// Removes all hints of the directory `path`, damaged ones too.
#[pyfunction]
pub(crate) fn hints_remove_all(pool_file: PathBuf, path: PathBuf) -> PyResult<()> {
    Store::of_file(&pool_file).map_err(raise)?.remove_hints(&path).map_err(raise)
}

/// What the mount at `mount` has `said` of the last opens of a file.
fn opens_at(mount: &str, said: &str) -> PyResult<Value> {
    let found: LastOpens = said.parse().map_err(raise)?;
    let described = |record: OpenRecord| {
        let is_taken = |kind| record.state(kind) == PathState::Taken;
        let taken = PathKind::ALL.iter().filter(|(kind, _)| is_taken(*kind)).map(|(_, name)| *name);
        let not_taken = PathKind::ALL.iter().filter_map(|(kind, name)| match record.state(*kind) {
            PathState::Not(reason) => Some(json!({ "path": name, "reason": reason.word(), "because": reason.says() })),
            PathState::Taken | PathState::NotAsked => None,
        });
        json!({
            "taken": taken.collect::<Vec<_>>(),
            "not_taken": not_taken.collect::<Vec<_>>(),
            "past_the_mount": record.is_past_the_mount(),
            "served_by_kernel": record.is_served_by_kernel(),
        })
    };
    Ok(json!({
        "mount": mount,
        "opens": found.opens,
        "writing": found.writing,
        "read": found.read.map(described),
        "written": found.written.map(described),
    }))
}

/// Why the requests on the file `path` go where they go; `said` is what mounts have said of its last opens.
#[pyfunction]
pub(crate) fn path_taken<'py>(
    py: Python<'py>,
    pool_file: PathBuf,
    path: PathBuf,
    said: Vec<(String, String)>,
) -> PyResult<Bound<'py, PyAny>> {
    let opens = said.iter().map(|(mount, words)| opens_at(mount, words)).collect::<PyResult<Vec<_>>>()?;
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
            "version": taken.version,
            "reads_ahead": taken.reads_ahead,
            "writes_behind": taken.writes_behind,
            "cached": taken.is_cached,
            "has_writer": taken.has_writer,
            "kept": taken.is_kept,
            "rank": taken.rank,
            "direct_least_bytes": taken.direct_least_bytes,
            "rule": taken.rule.as_ref().map(Pattern::as_str),
            "has_layout_of_rule": taken.has_layout_of_rule,
            "landed_on": taken.landed_on,
            "hinted_now": described(&taken.hinted_now),
            "hints_version": taken.hints_version,
            "hints_fault": taken.hints_fault,
            "opens": opens,
        }),
    )
}
