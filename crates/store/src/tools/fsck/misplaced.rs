//! Datafiles that stand in another handle's directory: where a file's datafile may be when it is not in its place.

use super::context::Context;
use super::lost_found::make_durable_directory;
use super::servers::parse;
use crate::format::placement::Datafile;
use crate::os::error::{Error, Result};
use crate::os::sync::{Mutex, guard};
use rustix::fd::BorrowedFd;
use rustix::fs::RenameFlags;
use rustix::io::Errno;
use std::collections::HashMap;
use stripewise_layout::ServerId;

/// Paths by handle and generation.
type Paths = HashMap<(u64, u32), String>;

/// What was found on each server that was searched.
#[derive(Debug, Default)]
pub(super) struct Misplaced(Mutex<HashMap<ServerId, Paths>>);

impl Misplaced {
    /// Where that datafile stands instead of in its place. The first call for a server reads all of its directories;
    /// the memory is that of what stands in the wrong one.
    pub(super) fn find(&self, context: &Context<'_>, logical: u64, datafile: Datafile) -> Option<String> {
        let directory = context.ground.directory(datafile.server)?;
        let mut searched = guard(&self.0);
        let paths = searched.entry(datafile.server).or_insert_with(|| search(directory));
        paths.get(&(logical, datafile.generation)).cloned()
    }
}

fn search(server: BorrowedFd<'_>) -> Paths {
    let mut paths = Paths::new();
    for low in 0..=255_u8 {
        let inner = format!("{low:02x}");
        // What cannot be read is told when the datafiles are looked at.
        let Ok(entries) = crate::tools::walk::entries(server, inner.as_ref()) else { continue };
        for entry in entries {
            let Ok(entry) = entry else { break };
            let name = entry.file_name().to_string_lossy();
            if let Some((logical, generation)) = parse(&name)
                && logical as u8 != low
            {
                paths.insert((logical, generation), format!("{inner}/{name}"));
            }
        }
    }
    paths
}

/// Puts what stands at `from` into its place, which is free.
pub(super) fn put_right(server: BorrowedFd<'_>, from: &str, logical: u64, generation: u32) -> Result<()> {
    let to = Datafile { server: ServerId(0), generation }.path(logical);
    make_durable_directory(server, to.directory(), 0o711)?;
    let moved = match rustix::fs::renameat_with(server, from, server, to.as_c_str(), RenameFlags::NOREPLACE) {
        // A file system that knows no such rename; no other makes this name while the file's lock is held.
        Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(server, from, server, to.as_c_str()),
        moved => moved,
    };
    moved.map_err(Error::io("put into its place", from))
}
