//! The servers of a pool: one more, one less, another in its place.

use crate::convert::to_python;
use crate::error::raise;
use crate::files::Teller;
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use stripewise_layout::ServerId;
use stripewise_store::adding::add_servers;
use stripewise_store::apply::ApplyWatch as _;
use stripewise_store::drain::{self, DrainOptions, DrainWatch, Drained, StayingFile};
use stripewise_store::rebalance::{Filling, ServerFill, rebalance};
use stripewise_store::relief::{self, Begun, Leaving, TierPart, TierRoom};
use stripewise_store::small_files::{DueSmallFile, MovedBefore, NewHead, move_small_files};
use stripewise_store::{Result, Store, Then};

/// Adds directories, given with their tiers, to the pool, all or none; the names of the servers.
#[pyfunction]
pub(crate) fn pool_add(pool_file: PathBuf, asked: Vec<(String, PathBuf)>) -> PyResult<Vec<String>> {
    add_servers(&pool_file, &asked).map_err(raise)
}

/// Puts a new server in the directory `root` in the place of another; its name, and what moved.
#[pyfunction]
#[pyo3(signature = (pool_file, server, root, *, wait, progress))]
pub(crate) fn pool_replace<'py>(
    py: Python<'py>,
    pool_file: PathBuf,
    server: &str,
    root: PathBuf,
    wait: bool,
    progress: Py<PyAny>,
) -> PyResult<(String, Bound<'py, PyAny>)> {
    let (name, drained) = watched(py, progress, |watch| drain::replace(&pool_file, server, &root, wait, watch))?;
    Ok((name, to_python(py, &described(&drained))?))
}

/// Takes the drain of a server back.
#[pyfunction]
pub(crate) fn pool_take_back(py: Python<'_>, pool_file: PathBuf, server: &str) -> PyResult<()> {
    py.detach(|| drain::take_back(&pool_file, server)).map_err(raise)
}

/// Moves all files from a server. `progress(name, done, total)` stops it by returning `False`, and lets it rest by `"rest"`.
#[pyfunction]
#[pyo3(signature = (pool_file, server, *, to, wait, dry_run, progress))]
pub(crate) fn pool_drain<'py>(
    py: Python<'py>,
    pool_file: PathBuf,
    server: &str,
    to: Option<String>,
    wait: bool,
    dry_run: bool,
    progress: Py<PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = DrainOptions { to, wait, dry_run };
    let drained = watched(py, progress, |watch| drain::drain(&pool_file, server, &options, watch))?;
    to_python(py, &described(&drained))
}

/// Removes a server that has no bytes; with `lost` one that is not there any more.
#[pyfunction]
pub(crate) fn pool_remove<'py>(
    py: Python<'py>,
    pool_file: PathBuf,
    server: &str,
    lost: bool,
    progress: Py<PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let drained = watched(py, progress, |watch| drain::remove(&pool_file, server, lost, watch))?;
    to_python(py, &described(&drained))
}

/// Fills the servers of each tier alike, or only the `takers` as far; files of `keep` stay. In a `dry_run` only says what would move.
#[pyfunction]
#[pyo3(signature = (pool_file, *, takers, keep, dry_run, progress))]
pub(crate) fn pool_rebalance<'py>(
    py: Python<'py>,
    pool_file: PathBuf,
    takers: Vec<String>,
    keep: HashSet<PathBuf>,
    dry_run: bool,
    progress: Py<PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let filling = Filling { takers, except: keep, dry_run };
    let done = watched(py, progress, |watch| rebalance(&pool_file, &filling, watch))?.unwrap_or_default();
    let fill = |of: &ServerFill| {
        json!({
            "server": of.server,
            "before_bytes": of.before_bytes,
            "after_bytes": of.after_bytes,
            "size_bytes": of.size_bytes,
        })
    };
    let value = json!({
        "moved_files": done.moved_files,
        "copied_bytes": done.copied_bytes,
        "staying": done.staying.iter().map(staying).collect::<Vec<_>>(),
        "servers": done.fills.iter().map(fill).collect::<Vec<_>>(),
    });
    to_python(py, &value)
}

/// How full the servers of a tier are. O(datafiles of the pool).
#[pyfunction]
pub(crate) fn pool_tier_rooms<'py>(py: Python<'py>, pool_file: PathBuf, tier: &str) -> PyResult<Bound<'py, PyAny>> {
    let store = Store::of_file(&pool_file).map_err(raise)?;
    let rooms = py.detach(|| store.rooms_of(tier)).map_err(raise)?;
    to_python(py, &Value::Array(rooms.iter().map(room).collect()))
}

fn room(of: &TierRoom) -> Value {
    json!({
        "server": of.server,
        "used_bytes": of.used_bytes,
        "free_bytes": of.free_bytes,
        "on_disk_bytes": of.on_disk_bytes,
        "reserve_bytes": of.reserve_bytes,
    })
}

/// How full the servers of a tier are, what of files could leave them, and which of those that have `begun` to leave may have more there.
#[pyfunction]
#[pyo3(signature = (pool_file, tier, begun = HashMap::new()))]
pub(crate) fn pool_tier_parts<'py>(
    py: Python<'py>,
    pool_file: PathBuf,
    tier: &str,
    begun: HashMap<u64, Begun>,
) -> PyResult<Bound<'py, PyAny>> {
    let store = Store::of_file(&pool_file).map_err(raise)?;
    let name = |&(id, bytes): &(ServerId, u64)| (store.pool().server_name(id), json!(bytes));
    let found = py.detach(|| store.rooms_of(tier).and_then(|rooms| Ok((rooms, store.parts_on(tier, &begun)?))));
    let (rooms, found) = found.map_err(raise)?;
    let part = |of: &TierPart| {
        json!({
            "path": of.path,
            "handle": of.handle,
            "version": of.version,
            "stretch": of.stretch,
            "tier_bytes": of.tier_bytes,
            "by_server": of.by_server.iter().map(name).collect::<serde_json::Map<_, _>>(),
            "has_landed": of.has_landed,
        })
    };
    let value = json!({
        "rooms": rooms.iter().map(room).collect::<Vec<_>>(),
        "parts": found.parts.iter().map(part).collect::<Vec<_>>(),
        "begun": found.begun,
        "unread": found.unread.iter().map(staying).collect::<Vec<_>>(),
    });
    to_python(py, &value)
}

/// Of a file its path, its handle and the version of that, stretches, and whether they go to its place.
type LeavingFile = (String, u64, u32, Vec<(u64, u64)>, bool);

/// Moves stretches of files from a tier to the place of each file, or what they have on the tier to the other tiers.
#[pyfunction]
pub(crate) fn pool_relieve<'py>(
    py: Python<'py>,
    pool_file: PathBuf,
    tier: &str,
    leaving: Vec<LeavingFile>,
    progress: Py<PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let one =
        |(path, handle, version, stretches, to_its_place)| Leaving { path, handle, version, stretches, to_its_place };
    let leaving: Vec<Leaving> = leaving.into_iter().map(one).collect();
    let drained = watched(py, progress, |watch| relief::relieve(&pool_file, tier, &leaving, watch))?;
    to_python(py, &described_by_file(&drained))
}

/// The small files that the thresholds move. Of files that were moved before, by their handles: how often, and how long they were when
/// they were sent to the servers, if they are there.
#[pyfunction]
pub(crate) fn pool_due_small_files(
    py: Python<'_>,
    pool_file: PathBuf,
    before: HashMap<u64, (f64, Option<u64>)>,
) -> PyResult<Bound<'_, PyAny>> {
    let before =
        before.into_iter().map(|(handle, (moves, sent_bytes))| (handle, MovedBefore { moves, sent_bytes })).collect();
    let due = py.detach(|| Store::of_file(&pool_file)?.due_small_files(&before)).map_err(raise)?;
    let one = |of: &DueSmallFile| {
        json!({
            "path": of.path,
            "handle": of.handle,
            "size_bytes": of.size_bytes,
            "head_bytes": of.head_bytes,
            "moved_bytes": of.moved_bytes,
        })
    };
    to_python(py, &json!(due.iter().map(one).collect::<Vec<_>>()))
}

/// Moves files between the metadata tier and the servers, each given by path and handle with how many bytes are to be in the inode.
#[pyfunction]
pub(crate) fn pool_move_small_files<'py>(
    py: Python<'py>,
    pool_file: PathBuf,
    heads: Vec<(String, u64, u64)>,
    progress: Py<PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let head = |(path, handle, head_bytes)| NewHead { path, handle, head_bytes };
    let heads: Vec<NewHead> = heads.into_iter().map(head).collect();
    let moved = watched(py, progress, |watch| move_small_files(&pool_file, &heads, watch))?;
    to_python(py, &described_by_file(&moved))
}

/// Hands the progress of a drain to Python.
struct Drainer(Teller);

impl DrainWatch for Drainer {
    fn progress(&mut self, path: &str, done_bytes: u64, total_bytes: u64) -> Then {
        self.0.progress(path, done_bytes, total_bytes)
    }
}

fn watched<T: Send>(
    py: Python<'_>,
    progress: Py<PyAny>,
    work: impl FnOnce(&mut Drainer) -> Result<T> + Send,
) -> PyResult<T> {
    let mut drainer = Drainer(Teller::new(progress, false, true));
    let done = py.detach(|| work(&mut drainer));
    if let Some(stopped) = drainer.0.stopped() {
        return Err(stopped);
    }
    done.map_err(raise)
}

fn staying(file: &StayingFile) -> Value {
    json!({
        "path": file.path,
        "why": file.why,
        "is_busy": file.is_busy,
        "stretches": file.stretches,
        "left_out": file.left_out,
        "bytes": file.bytes,
    })
}

fn described(of: &Drained) -> Value {
    json!({
        "moved_files": of.moved_files,
        "copied_bytes": of.copied_bytes,
        "rules": of.rules,
        "staying": of.staying.iter().map(staying).collect::<Vec<_>>(),
    })
}

/// [`described`], of files each of which was named.
fn described_by_file(of: &Drained) -> Value {
    let mut value = described(of);
    value["passed_over"] = json!(of.passed_over);
    value
}
