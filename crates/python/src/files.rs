//! Files of a pool: where they are, and giving them other layouts.

use crate::convert::to_python;
use crate::error::raise;
use crate::layout_file;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use rustix::fs::FileType;
use rustix::io::Errno;
use serde_json::{Value, json};
use std::fmt::Display;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stripewise_layout::{FileLayout, Layout, Pattern, Region};
use stripewise_store::{Applying, Error, Forecast, Inode, Pool, Store};

/// How often a progress callback is called at most.
const PROGRESS_EVERY: Duration = Duration::from_millis(50);

/// Opens the pool of the pool file `file`.
pub(crate) fn open(file: &Path) -> PyResult<Arc<Store>> {
    Pool::load(file).and_then(Store::open).map_err(raise)
}

/// What is at `path` (relative to the mount) and, of a placed file, where its bytes are.
#[pyfunction]
pub(crate) fn file_stat<'py>(py: Python<'py>, pool_file: PathBuf, path: PathBuf) -> PyResult<Bound<'py, PyAny>> {
    let store = open(&pool_file)?;
    let place = store.open_place(&path).map_err(|error| raise(not_found(&store, &path, error)))?;
    let mut value = match store.inode(place.as_fd()).map_err(raise)? {
        Some(inode) => describe(&store, &inode, &path).map_err(raise)?,
        None => json!({ "placed": false }),
    };
    let failed = |error: &dyn Display| raise(format!("cannot read {}: {error}", path.display()));
    let stat = rustix::fs::fstat(&place).map_err(|error| failed(&error))?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    value["kind"] = json!(kind_name(kind));
    if value["size_bytes"].is_null() {
        value["size_bytes"] = json!(stat.st_size);
    }
    if kind == FileType::Symlink {
        let target = rustix::fs::readlinkat(&place, "", Vec::new()).map_err(|error| failed(&error))?;
        value["target"] = json!(target.to_string_lossy());
    }
    to_python(py, &value)
}

/// Why a path of a pool cannot be opened, in words of names and not of system calls.
fn not_found(store: &Store, path: &Path, error: Error) -> String {
    let (path, pool) = (path.display(), &store.pool().name);
    match error {
        Error::Io { errno: Errno::NOENT | Errno::NOTDIR, .. } => {
            format!("there is no '{path}' in pool '{pool}'; check the path")
        }
        Error::Io { errno: Errno::XDEV, .. } => {
            format!("'{path}' leads out of pool '{pool}' by a link; name what the link points at")
        }
        error => error.to_string(),
    }
}

/// The kind of a file in words.
fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "FIFO",
        FileType::Socket => "socket",
        FileType::CharacterDevice => "character device",
        FileType::BlockDevice => "block device",
        FileType::Unknown => "file of an unknown kind",
    }
}

fn describe(store: &Arc<Store>, inode: &Arc<Inode>, path: &Path) -> stripewise_store::Result<Value> {
    let placement = inode.placement()?;
    let pool = store.pool();
    let regions = placement.layout.regions().iter().map(|region| {
        json!({
            "offset": region.offset(),
            "generation": placement.generations.at(region.offset()),
            "round": layout_file::round(region.stripes(), pool),
        })
    });
    let table = placement.datafiles()?.table;
    let datafiles =
        table.iter().enumerate().filter(|(index, _)| placement.present.contains(*index)).map(|(_, datafile)| {
            let (path, stat) = store.look_at(*datafile, placement.handle);
            json!({
                "server": pool.server_name(datafile.server),
                "generation": datafile.generation,
                "path": path.to_string_lossy(),
                "size_bytes": stat.as_ref().map_or(0, |stat| stat.st_size),
                "allocated_bytes": stat.as_ref().map_or(0, |stat| stat.st_blocks * 512),
                "error": stat.err(),
            })
        });
    let planned = store.layout_for(path)?;
    let left_out = store.left_out(&planned, &placement.layout);
    Ok(json!({
        "placed": true,
        "left_out": left_out.iter().map(|&id| pool.server_name(id)).collect::<Vec<_>>(),
        "size_bytes": inode.attributes()?.size_bytes,
        "handle": format!("{:016x}", placement.handle),
        "version": placement.version,
        "layout_hash": hex(&placement.layout.hash()),
        "regions": regions.collect::<Vec<_>>(),
        "datafiles": datafiles.collect::<Vec<_>>(),
    }))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The layout that `path` has, or would get if it were made now.
pub(crate) fn present_layout(store: &Arc<Store>, path: &Path) -> stripewise_store::Result<Arc<Layout>> {
    match existing_inode(store, path)? {
        Some(inode) => inode.layout(),
        None => store.layout_for(path),
    }
}

/// The placed file at `path`; `None` where there is no file, or a plain one.
pub(crate) fn existing_inode(store: &Arc<Store>, path: &Path) -> stripewise_store::Result<Option<Arc<Inode>>> {
    if exists(store, path) { store.lookup(path) } else { Ok(None) }
}

fn exists(store: &Store, path: &Path) -> bool {
    std::fs::symlink_metadata(store.pool().namespace.join("tree").join(path)).is_ok()
}

/// A file that is to get another layout.
struct Move {
    name: String,
    inode: Arc<Inode>,
    layout: Layout,
}

/// The moves that a layout file asks for, checked but for the space, and the space that they take.
fn wanted(py: Python<'_>, store: &Arc<Store>, entries: &[FileLayout]) -> PyResult<(Vec<Move>, Forecast)> {
    let mut moves = Vec::new();
    for entry in entries {
        store.check_layout(&entry.layout).map_err(raise)?;
        for (name, inode) in existing(py, store, entry)? {
            moves.push(Move { name, inode, layout: entry.layout.clone() });
        }
    }
    let all = moves.iter().map(|of| (of.name.as_str(), &*of.inode, &of.layout));
    let forecast = py.detach(|| store.check_moves(all)).map_err(raise)?;
    Ok((moves, forecast))
}

/// What [`layout_apply`] would do with the layout file `path`. Nothing is changed.
#[pyfunction]
pub(crate) fn layout_forecast<'py>(py: Python<'py>, path: PathBuf, pool_file: PathBuf) -> PyResult<Bound<'py, PyAny>> {
    let store = open(&pool_file)?;
    let entries = layout_file::load(&path, store.pool())?.files;
    let (moves, forecast) = wanted(py, &store, &entries)?;
    let value = py.detach(|| describe_moves(&store, &entries, &moves, forecast)).map_err(raise)?;
    to_python(py, &value)
}

fn describe_moves(
    store: &Store,
    entries: &[FileLayout],
    moves: &[Move],
    forecast: Forecast,
) -> stripewise_store::Result<Value> {
    let pool = store.pool();
    let regions = |layout: &Layout| -> Vec<Value> {
        let region = |of: &Region| json!({ "offset": of.offset(), "round": layout_file::round(of.stripes(), pool) });
        layout.regions().iter().map(region).collect()
    };
    let mut files = Vec::new();
    for (of, moved_bytes) in moves.iter().zip(forecast.moved_bytes) {
        let before = of.inode.layout()?;
        if *before != of.layout && of.inode.is_held()? {
            return Err(Error::Busy { file: of.name.clone() });
        }
        let size_bytes = of.inode.attributes()?.size_bytes;
        files.push(json!({
            "path": of.name,
            "before": regions(&before),
            "after": regions(&of.layout),
            "copied_bytes": moved_bytes,
            "kept_bytes": size_bytes.saturating_sub(moved_bytes),
        }));
    }
    let known = |bytes: u64| (bytes < u64::MAX / 2).then_some(bytes);
    let servers = forecast.rooms.iter().map(|&(id, before, after)| {
        json!({ "server": pool.server_name(id), "free_bytes": known(before), "free_after_bytes": known(after) })
    });
    Ok(json!({
        "files": files,
        "rules": entries.iter().map(|entry| entry.path.as_str()).collect::<Vec<_>>(),
        "servers": servers.collect::<Vec<_>>(),
    }))
}

/// How long is waited between two tries to have the right to change layouts.
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// Takes the right to change layouts; with `waits` when the process that has it is done.
fn begin<'a>(py: Python<'_>, store: &'a Store, waits: bool) -> PyResult<Applying<'a>> {
    loop {
        match store.begin_apply() {
            Err(Error::Applying { .. }) if waits => {
                py.check_signals()?;
                py.detach(|| std::thread::sleep(TRY_AGAIN));
            }
            begun => return begun.map_err(raise),
        }
    }
}

/// Gives the files of the layout file `path` their layouts: existing ones are moved, and with `rules` files to come get
/// theirs. Everything is checked first; when a move fails, those before it are undone. `progress(name, done, total)`
/// stops the moves by returning `False`. One process of a user does so at a time: another one is refused, or `waits`.
#[pyfunction]
pub(crate) fn layout_apply<'py>(
    py: Python<'py>,
    path: PathBuf,
    pool_file: PathBuf,
    rules: bool,
    waits: bool,
    progress: Py<PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let store = open(&pool_file)?;
    let entries = layout_file::load(&path, store.pool())?.files;
    let _alone = begin(py, &store, waits)?;
    let (moves, _) = wanted(py, &store, &entries)?;
    let mut applied = Vec::new();
    let mut undo: Vec<(String, Arc<Inode>, Arc<Layout>)> = Vec::new();
    for Move { name, inode, layout } in moves {
        let before = inode.layout().map_err(raise)?;
        let mut watch = Watch { name: &name, progress: &progress, last: None, stopped: None };
        let moved = py.detach(|| inode.move_to(&layout, &name, &mut |done, total| watch.at(done, total)));
        match moved {
            Ok(moved) => applied.push(json!({
                "path": name,
                "kind": "moved",
                "copied_bytes": moved.copied_bytes,
                "kept_bytes": moved.kept_bytes,
                "checksum": hex(&moved.checksum),
            })),
            Err(error) => {
                if let Some(stopped) = watch.stopped {
                    return Err(stopped);
                }
                let mut message = error.to_string();
                for (name, inode, layout) in undo.into_iter().rev() {
                    let undone = py.detach(|| inode.move_to(&layout, &name, &mut |_, _| true));
                    if let Err(error) = undone {
                        message += &format!("; {name} stays in its new layout, it cannot be moved back: {error}");
                    }
                }
                return Err(raise(message));
            }
        }
        undo.push((name, inode, before));
    }
    if rules {
        for entry in &entries {
            store.set_rule(&entry.path, &entry.layout).map_err(raise)?;
            applied.push(json!({
                "path": entry.path.as_str(), "kind": "rule", "copied_bytes": 0, "kept_bytes": 0, "checksum": null,
            }));
        }
    }
    to_python(py, &Value::Array(applied))
}

/// Hands a move's progress to Python, not too often, and Ctrl-C to the move.
struct Watch<'a> {
    name: &'a str,
    progress: &'a Py<PyAny>,
    last: Option<Instant>,
    stopped: Option<PyErr>,
}

impl Watch<'_> {
    fn at(&mut self, done: u64, total: u64) -> bool {
        if done < total && self.last.is_some_and(|last| last.elapsed() < PROGRESS_EVERY) {
            return true;
        }
        self.last = Some(Instant::now());
        let told = Python::attach(|py| {
            py.check_signals()?;
            self.progress.call1(py, (self.name, done, total))?.is_truthy(py)
        });
        match told {
            Ok(true) => true,
            Ok(false) => {
                self.stopped = Some(PyKeyboardInterrupt::new_err(()));
                false
            }
            Err(error) => {
                self.stopped = Some(error);
                false
            }
        }
    }
}

/// The placed files that `entry` is for, with their paths.
fn existing(py: Python<'_>, store: &Arc<Store>, entry: &FileLayout) -> PyResult<Vec<(String, Arc<Inode>)>> {
    let found = match entry.path.exact_path() {
        Some(path) => existing_inode(store, Path::new(&path))
            .map(|inode| inode.map(|inode| (path.into(), inode)).into_iter().collect()),
        None => py.detach(|| store.find(&|path| entry.path.matches(path.as_os_str().as_bytes()))),
    };
    let found: Vec<(PathBuf, Arc<Inode>)> = found.map_err(raise)?;
    Ok(found.into_iter().map(|(path, inode)| (path.to_string_lossy().into_owned(), inode)).collect())
}

/// The rules of some paths as they were at one moment.
#[pyclass(frozen, module = "stripewise._native")]
pub(crate) struct RulesSnapshot {
    pool_file: PathBuf,
    rules: Vec<(Pattern, Option<Arc<Layout>>)>,
}

/// The rules for exactly the patterns of the layout file `path`, to be put back later.
#[pyfunction]
pub(crate) fn rules_snapshot(pool_file: PathBuf, path: PathBuf) -> PyResult<RulesSnapshot> {
    let store = open(&pool_file)?;
    let known = store.rules().map_err(raise)?;
    let mut rules = Vec::new();
    for entry in layout_file::load(&path, store.pool())?.files {
        let rule = known.iter().find(|rule| rule.pattern == entry.path);
        let layout = rule.map(|rule| store.rule_layout(rule)).transpose().map_err(raise)?;
        rules.push((entry.path, layout));
    }
    Ok(RulesSnapshot { pool_file, rules })
}

#[pymethods]
impl RulesSnapshot {
    /// Puts the rules back: those that were there get their layouts, the others go.
    fn restore(&self) -> PyResult<()> {
        let store = open(&self.pool_file)?;
        for (pattern, layout) in &self.rules {
            match layout {
                Some(layout) => store.set_rule(pattern, layout).map_err(raise)?,
                None => {
                    store.remove_rule(pattern).map_err(raise)?;
                }
            }
        }
        Ok(())
    }
}
