//! `lost+found`: where bytes go that no file names, under names that say what they are.
//!
//! ```text
//! SERVER/lost+found/orphan-HANDLE.GENERATION     a datafile of which no file had the handle
//!                   leftover-HANDLE.GENERATION   the file had no datafile of that generation there
//!                   unlisted-HANDLE.GENERATION   the file's handle did not list it
//! ```
//! Should the file that it belongs to come back, an orphan is taken back from there.

use crate::format::placement::Datafile;
use crate::os::error::{Error, Result};
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, Mode, RenameFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use stripewise_layout::ServerId;

/// Name of the directory, on each server.
pub(super) const LOST_FOUND: &str = "lost+found";

fn failed(action: &'static str, name: &str) -> impl FnOnce(Errno) -> Error {
    Error::io(action, format!("{LOST_FOUND}/{name}"))
}

/// Moves the datafile `from` (a path below `server`) into `lost+found` as `kind-HANDLE.GENERATION`, with a number
/// behind it if that name is taken; its path there.
pub(super) fn keep(server: BorrowedFd<'_>, from: &CStr, kind: &str, logical: u64, generation: u32) -> Result<String> {
    make_durable_directory(server, LOST_FOUND, 0o700)?;
    let base = format!("{kind}-{logical:016x}.{generation:08x}");
    for number in 1.. {
        let name = if number == 1 { base.clone() } else { format!("{base}.{number}") };
        let path = format!("{LOST_FOUND}/{name}");
        match rustix::fs::renameat_with(server, from, server, path.as_str(), RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(path),
            Err(Errno::EXIST) => {}
            // A file system that knows no such rename: the name is free, or ours.
            Err(Errno::INVAL | Errno::NOSYS) if !exists(server, &path) => {
                rustix::fs::renameat(server, from, server, path.as_str()).map_err(failed("make", &name))?;
                return Ok(path);
            }
            Err(Errno::INVAL | Errno::NOSYS) => {}
            Err(errno) => return Err(failed("make", &name)(errno)),
        }
    }
    unreachable!("numbers do not end")
}

/// Makes the directory `name` of a server. Before something is moved into it, it is on the disk: a power cut must not
/// leave the one without the other.
pub(super) fn make_durable_directory(server: BorrowedFd<'_>, name: &str, mode: u32) -> Result<()> {
    match rustix::fs::mkdirat(server, name, Mode::from_raw_mode(mode)) {
        Ok(()) => crate::os::sys::sync_directory(server, ".").map_err(Error::io("sync the directory of", name)),
        Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(Error::io("make directory", name)(errno)),
    }
}

fn exists(server: BorrowedFd<'_>, path: &str) -> bool {
    rustix::fs::statat(server, path, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

fn orphan(logical: u64, generation: u32) -> String {
    format!("{LOST_FOUND}/orphan-{logical:016x}.{generation:08x}")
}

/// Whether an earlier check kept that datafile as an orphan.
pub(super) fn has(server: BorrowedFd<'_>, logical: u64, generation: u32) -> bool {
    exists(server, &orphan(logical, generation))
}

/// Puts an orphan back to its place, which is free.
pub(super) fn take_back(server: BorrowedFd<'_>, logical: u64, generation: u32) -> Result<()> {
    let to = Datafile { server: ServerId(0), generation }.path(logical);
    make_durable_directory(server, to.directory(), 0o711)?;
    let from = orphan(logical, generation);
    rustix::fs::renameat(server, from.as_str(), server, to.as_c_str()).map_err(Error::io("take back", from))
}
