//! Owner, mode, times and extended attributes of what was exported.

use super::run::{Export, count};
use crate::os::sys::proc_path;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{AtFlags, FileType, Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::path::Path;

/// Our own attributes begin so; programs never see them.
const OWN: &[u8] = b"user.stripewise";
/// Greatest lists and values that Linux knows.
const MAX_XATTR_BYTES: usize = 64 << 10;

/// Access and modification time of `stat`.
pub(super) fn times(stat: &Stat) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: stat.st_atime, tv_nsec: stat.st_atime_nsec as _ },
        last_modification: Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ },
    }
}

/// The extended attributes of the file at `path`, ours left out, in order of name.
pub(super) fn xattrs(path: &Path) -> rustix::io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = vec![0; MAX_XATTR_BYTES];
    let len = match rustix::fs::listxattr(path, &mut names[..]) {
        Ok(len) => len,
        Err(Errno::OPNOTSUPP) => 0,
        Err(errno) => return Err(errno),
    };
    let mut all = Vec::new();
    for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty() && !name.starts_with(OWN)) {
        let mut value = vec![0; MAX_XATTR_BYTES];
        match rustix::fs::getxattr(path, name, &mut value[..]) {
            Ok(len) => all.push((name.to_vec(), value[..len].to_vec())),
            // Removed since, or not for this user to see.
            Err(Errno::NODATA | Errno::PERM | Errno::ACCESS) => {}
            Err(errno) => return Err(errno),
        }
    }
    all.sort();
    Ok(all)
}

/// Gives the file or directory behind `to` what the inode behind `from` has: attributes, owner, mode, times, in the
/// order in which none undoes another. `mtime` stands for the time of last change, where the inode does not know it.
pub(super) fn copy(
    export: &Export<'_>,
    from: BorrowedFd<'_>,
    stat: &Stat,
    mtime: Timespec,
    to: BorrowedFd<'_>,
) -> rustix::io::Result<()> {
    let path = proc_path(to);
    for (name, value) in xattrs(&proc_path(from))? {
        match rustix::fs::setxattr(&path, name.as_slice(), &value, XattrFlags::empty()) {
            // Those of the system (capabilities, security labels) are root's to set.
            Err(Errno::PERM | Errno::OPNOTSUPP) if !name.starts_with(b"user.") => {}
            done => done?,
        }
    }
    let owner = (Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)));
    own(export, rustix::fs::fchown(to, owner.0, owner.1))?;
    rustix::fs::fchmod(to, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    rustix::fs::futimens(to, &Timestamps { last_modification: mtime, ..times(stat) })
}

/// As [`copy`], of something that cannot be opened (a link, a FIFO, a device), by its name.
pub(super) fn copy_by_name(
    export: &Export<'_>,
    stat: &Stat,
    directory: BorrowedFd<'_>,
    name: &std::ffi::OsStr,
) -> rustix::io::Result<()> {
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    own(export, rustix::fs::chownat(directory, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
        let place = rustix::fs::openat(
            directory,
            name,
            rustix::fs::OFlags::PATH | rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        rustix::fs::chmod(proc_path(place.as_fd()), Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    }
    rustix::fs::utimensat(directory, name, &times(stat), AtFlags::SYMLINK_NOFOLLOW)
}

/// Only root gives files away: another user who exports owns them all.
fn own(export: &Export<'_>, done: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match done {
        Err(Errno::PERM) => {
            count(&export.counts.owners_not_kept);
            Ok(())
        }
        done => done,
    }
}
