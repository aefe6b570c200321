//! What servers have and have done, asked without opening their pool.

use crate::backend::Server;
use crate::backend::emulate::{Device, ServerStatistics};
use crate::backend::meta::TREE;
use crate::backend::plane::OpenServer;
use crate::backend::{self, Backend, Setting};
use crate::format::placement::Datafile;
use crate::os::error::{Error, Result};
use crate::os::room::Room;
use crate::os::sync::atomic::{AtomicU64, Ordering};
use crate::pool::pool_file::Pool;
use crate::pool::store::Store;
use crate::tools::walk::{WalkedFile, walk};
use rustix::fd::BorrowedFd;
use rustix::fs::{Access, AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::PathBuf;
use stripewise_layout::ServerId;

/// What stands at a server's place, whatever its marker says, without the device that it stands for; `None` if it is
/// not there.
fn there(server: &Server) -> Option<Box<dyn Backend>> {
    let backend = backend::of(&Server { emulate: None, ..server.clone() }, &Setting::default());
    backend.connect().is_ok().then_some(backend)
}

/// How full a server is, and whether it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUsage {
    /// Its name.
    pub name: String,
    /// Bytes that are allocated to datafiles; on the metadata tier to the inodes of files.
    pub used_bytes: u64,
    /// Bytes that this user can still write there: what the file system has, or what the tier's capacity leaves.
    pub free_bytes: u64,
    /// Why the server cannot be used; both figures are 0 then.
    pub error: Option<String>,
}

/// What a server has allocated, in bytes, and its room; or why it cannot be used.
fn look(server: &Server) -> std::result::Result<(u64, Room), String> {
    let backend = backend::of(&Server { emulate: None, ..server.clone() }, &Setting::default());
    backend.connect().map_err(|error| match error {
        Error::MissingServer { reason, .. } => format!("not there: {reason}"),
        other => other.to_string(),
    })?;
    let directory = backend.own_directory().map_err(|errno| format!("not there: {errno}"))?;
    match backend::site(server).marker() {
        Ok(_) => {}
        Err(Errno::NOENT | Errno::NOTDIR) => return Err("not this pool's: no marker, is its disk mounted?".into()),
        Err(errno) => return Err(format!("not there: its marker cannot be read: {errno}")),
    }
    let room = backend.room().map_err(|errno| errno.to_string())?;
    if room.is_read_only || rustix::fs::accessat(directory, c".", Access::WRITE_OK, AtFlags::empty()).is_err() {
        return Err("read-only".into());
    }
    let is_meta = server.id == ServerId::META;
    let used_bytes = if is_meta { in_inodes(directory) } else { backend.upkeep().allocated_bytes(&[]) };
    Ok((used_bytes, room))
}

/// Bytes that are allocated to the inodes of files, as far as they can be read.
fn in_inodes(namespace: BorrowedFd<'_>) -> u64 {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(tree) = rustix::fs::openat(namespace, TREE, flags, Mode::empty()) else { return 0 };
    let bytes = AtomicU64::new(0);
    let visit = |entry: &WalkedFile<'_>| {
        bytes.fetch_add(entry.stat().map_or(0, |stat| 512 * stat.st_blocks as u64), Ordering::Relaxed);
        Ok(true)
    };
    // What cannot be read is left out.
    let _ = walk(&tree, 2, &visit, &|_, _| ());
    bytes.into_inner()
}

impl Pool {
    /// How full each server of the pool is that has not been removed, and the metadata tier. O(files of the pool).
    pub fn usage(&self) -> Vec<ServerUsage> {
        let usage = |server: &Server| {
            let (found, error) = match look(server) {
                Ok(found) => (Some(found), None),
                Err(reason) => (None, Some(reason)),
            };
            let used_bytes = found.map_or(0, |(used_bytes, _)| used_bytes);
            let limit = server.capacity_bytes.map_or(u64::MAX, |limit| limit.saturating_sub(used_bytes));
            let free_bytes = found.map_or(0, |(_, room)| room.available_bytes.min(limit));
            ServerUsage { name: server.name.clone(), used_bytes, free_bytes, error }
        };
        self.there().chain([&self.meta.server]).map(usage).collect()
    }

    /// Bytes allocated on each server by datafiles of other files than those with the logical handles `except`. A
    /// server that is not there has none. O(datafiles of the pool).
    pub fn allocated_by_others(&self, except: &[u64]) -> HashMap<ServerId, u64> {
        let bytes = |server| there(server).map_or(0, |backend| backend.upkeep().allocated_bytes(except));
        self.servers.iter().map(|server| (server.id, bytes(server))).collect()
    }

    /// The counters of the emulated servers, by name; zeros for one that has served nothing yet, or is not there.
    ///
    /// # Errors
    /// A server's queue is there and cannot be read.
    pub fn emulation_statistics(&self) -> Result<Vec<(String, ServerStatistics)>> {
        let emulated = self.servers.iter().chain([&self.meta.server]).filter(|server| server.emulate.is_some());
        let statistics = emulated.map(|server| {
            let absent = |reason: String| backend::missing(server, reason);
            let Some(backend) = there(server) else { return Ok((server.name.clone(), ServerStatistics::default())) };
            let directory = backend.own_directory().map_err(|errno| absent(errno.to_string()))?;
            let observed = Device::observe(directory).map_err(|error| absent(error.to_string()))?;
            Ok((server.name.clone(), observed.unwrap_or_default()))
        });
        statistics.collect()
    }
}

impl Store {
    /// Where a datafile is, in words for people, and its attributes or why they cannot be had.
    pub fn look_at(&self, datafile: Datafile, handle: u64) -> (PathBuf, Result<Stat, String>) {
        let key = datafile.key(handle);
        let server = self.plane().server(datafile.server);
        let place = server.as_ref().map_or_else(|_| PathBuf::new(), |server| server.place(key));
        let backend = server.and_then(OpenServer::current).map_err(|error| error.to_string());
        (place, backend.and_then(|backend| backend.stat(key).map_err(|errno| errno.to_string())))
    }
}
