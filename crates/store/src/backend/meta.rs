//! The metadata tier as a server: the inode of a file keeps bytes of its own, at their own offsets.
//!
//! It has no names to make, list or remove: an inode is found by the file's own name, and goes with it.

use super::ServerLimits;
use crate::os::sys::retry;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;

/// What it can do: its stripe stands alone in its region, because a byte has the same offset in the inode as in the
/// file.
pub(crate) const LIMITS: ServerLimits = ServerLimits { most_stripes: 1, ..ServerLimits::NONE };

/// A descriptor of our own for the bytes of the inode at `path` (a name in /proc), and whether it can write.
pub(crate) fn open(path: &Path) -> rustix::io::Result<(OwnedFd, bool)> {
    // NONBLOCK: its owner may hold a lease on it, for which the kernel would have us wait.
    let flags = OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let open = |access| retry(|| rustix::fs::open(path, access | flags, Mode::empty()));
    match open(OFlags::RDWR) {
        Err(Errno::ACCESS | Errno::ROFS | Errno::PERM | Errno::TXTBSY) => Ok((open(OFlags::RDONLY)?, false)),
        opened => Ok((opened?, true)),
    }
}
