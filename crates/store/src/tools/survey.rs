//! What servers have and have done, asked without opening their pool.

use crate::backend::Server;
use crate::backend::emulate::{Device, ServerStatistics};
use crate::backend::plane::OpenServer;
use crate::backend::{self, Backend, Setting};
use crate::format::placement::Datafile;
use crate::os::error::Result;
use crate::pool::pool_file::Pool;
use crate::pool::store::Store;
use rustix::fs::Stat;
use std::collections::HashMap;
use std::path::PathBuf;
use stripewise_layout::ServerId;

/// What stands at a server's place, whatever its marker says, without the device that it stands for; `None` if it is
/// not there.
fn there(server: &Server) -> Option<Box<dyn Backend>> {
    let backend = backend::of(&Server { emulate: None, ..server.clone() }, &Setting::default());
    backend.connect().is_ok().then_some(backend)
}

impl Pool {
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
