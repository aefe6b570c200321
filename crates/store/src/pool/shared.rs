//! Pools that several users use directly: through mounts of their own, the preload and tools, beside one mount of
//! root's.
//!
//! Root makes such a pool (`stripewise pool init --shared`), and its namespace's marker says so. Directories in which
//! all users make files are root's and sticky: a user removes or renames own files, and nothing else. What stands in
//! them is believed only when it is a regular file with one name of the user who has to have made it (or of root).
//!
//! | in the namespace | mode | who writes |
//! |---|---|---|
//! | `.`, `.stripewise`, `rules.toml`, `epoch` | 0755, 0644 | root |
//! | `tree/` | 1777, or what the administrator makes it | as its modes say |
//! | `layouts/` | 1777 | all; `HASH`, or `HASH.UID` where another user has put that |
//! | `epochs/UID` | 1777, pages 0644 | the user; no other user reads or maps it |
//! | `turns` | 0644 | root, who alone orchestrates |
//! | `programs/UID` | 1777, pages 0600 | the user; root reads what its programs do |
//! | `removals/` | 1777, journals 0600 | the user whose mount it is; another's counts for that user alone |
//! | `locks/` | 1733 | the owner of the file, root, and those who may write the file |
//! | `SERVER/hh/` | 1733 | owners of files: names cannot be listed, so only readers of a file know its handle |

use crate::os::error::{Error, Result};
use crate::pool::pool_file::Pool;
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;

/// Directory of the users' epoch pages, in the namespace.
pub(crate) const EPOCHS: &str = "epochs";

/// Whether this process is root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Refuses to make a shared pool where it would not be one.
pub(crate) fn check(pool: &Pool) -> Result<()> {
    if let Some(server) = pool.servers.iter().find(|server| server.emulate.is_some()) {
        return Err(Error::Invalid(format!(
            "server {} is emulated, and a shared pool cannot have emulated servers: their queue is a page that any user \
             could take from under the others. Remove `emulate`, or make the pool without --shared",
            server.name
        )));
    }
    Ok(())
}

/// Opens the regular file `path` that must be this user's own, for reading and writing; makes it with `mode` if there
/// is none. What another user has put there is refused.
pub fn open_own(path: &Path, mode: Mode) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let squatted = |what: String| {
        Error::Invalid(format!(
            "{} {what}, so that this user cannot use the pool: its owner or root has to remove it",
            path.display()
        ))
    };
    let opened = crate::os::sys::retry(|| rustix::fs::open(path, flags, mode));
    let file = match opened {
        Err(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => return Err(squatted("is not a regular file".into())),
        Err(Errno::ACCESS | Errno::PERM) => return Err(squatted("is another user's".into())),
        opened => opened.map_err(Error::io("open", path))?,
    };
    let stat = rustix::fs::fstat(&file).map_err(Error::io("read", path))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(squatted("is not a regular file".into()));
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_nlink != 1 {
        return Err(squatted(format!("belongs to user {} or has a second name", stat.st_uid)));
    }
    Ok(file)
}
