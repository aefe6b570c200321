//! Lock files: who writes a file, who appends, who changes its handle or its layout.
//!
//! A file that is being written or changed has a lock file `<namespace>/locks/<handle>`. It is never an inode that
//! programs can lock, so their own locks do not collide with the store's. The locks are those of open file
//! descriptions (OFD): they end with the process, and each `Store` counts for itself.

use crate::error::{Error, Result};
use crate::sys::retry;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

/// What a lock is for: a byte of the lock file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Shared: a registered writer. Exclusive: a structural change.
    Writers = 0,
    /// Exclusive: an append, from reading the size to the end of the write.
    Append = 1,
    /// Exclusive: a short change of the handle.
    Handle = 2,
}

/// An open lock file.
#[derive(Debug)]
pub(crate) struct LockFile {
    fd: OwnedFd,
    handle: u64,
}

fn name(handle: u64) -> String {
    format!("{handle:016x}")
}

impl LockFile {
    /// Opens the lock file of `handle` in the directory `locks`; `true` when it was made just now.
    pub(crate) fn open(locks: BorrowedFd<'_>, handle: u64) -> Result<(Self, bool)> {
        let name = name(handle);
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let open = |flags| retry(|| rustix::fs::openat(locks, name.as_str(), flags, Mode::from_raw_mode(0o600)));
        loop {
            match open(flags | OFlags::CREATE | OFlags::EXCL) {
                Ok(fd) => return Ok((Self { fd, handle }, true)),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(Error::io("create lock file", name)(errno)),
            }
            match open(flags) {
                Ok(fd) => return Ok((Self { fd, handle }, false)),
                // Its last user removed it meanwhile.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(Error::io("open lock file", name)(errno)),
            }
        }
    }

    /// Opens the lock file of `handle` if there is one.
    pub(crate) fn open_existing(locks: BorrowedFd<'_>, handle: u64) -> Result<Option<Self>> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match retry(|| rustix::fs::openat(locks, name(handle), flags, Mode::empty())) {
            Ok(fd) => Ok(Some(Self { fd, handle })),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Error::io("open lock file", name(handle))(errno)),
        }
    }

    /// Whether a lock file of `handle` exists: somebody writes, or crashed while writing.
    pub(crate) fn exists(locks: BorrowedFd<'_>, handle: u64) -> Result<bool> {
        match rustix::fs::statat(locks, name(handle), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(Error::io("look for lock file", name(handle))(errno)),
        }
    }

    /// Whether the name still leads to this very file: the last user removes it.
    pub(crate) fn is_current(&self, locks: BorrowedFd<'_>) -> bool {
        let here = rustix::fs::fstat(&self.fd).map(|stat| (stat.st_dev, stat.st_ino));
        let there = rustix::fs::statat(locks, name(self.handle), AtFlags::SYMLINK_NOFOLLOW)
            .map(|stat| (stat.st_dev, stat.st_ino));
        here.is_ok() && here == there
    }

    /// Removes the name. Only for the holder of the exclusive [`Purpose::Writers`] lock.
    pub(crate) fn remove(&self, locks: BorrowedFd<'_>) -> Result<()> {
        rustix::fs::unlinkat(locks, name(self.handle), AtFlags::empty())
            .map_err(Error::io("remove lock file", name(self.handle)))
    }

    fn control(&self, purpose: Purpose, kind: libc::c_int, wait: bool) -> rustix::io::Result<()> {
        crate::sys::lock_byte(self.fd.as_fd(), purpose as i64, kind, wait)
    }

    fn failed(&self, errno: Errno) -> Error {
        Error::io("lock file", name(self.handle))(errno)
    }

    /// Takes the lock, exclusive or shared, waiting for it.
    pub(crate) fn lock(&self, purpose: Purpose, exclusive: bool) -> Result<()> {
        let kind = if exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
        self.control(purpose, kind, true).map_err(|errno| self.failed(errno))
    }

    /// Takes the exclusive lock if nobody else has the lock in any form; an own shared lock is exchanged for it.
    pub(crate) fn try_exclusive(&self, purpose: Purpose) -> Result<bool> {
        match self.control(purpose, libc::F_WRLCK, false) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    /// Takes the shared lock unless somebody holds it exclusively.
    pub(crate) fn try_shared(&self, purpose: Purpose) -> Result<bool> {
        match self.control(purpose, libc::F_RDLCK, false) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    /// Gives the lock back.
    pub(crate) fn unlock(&self, purpose: Purpose) -> Result<()> {
        self.control(purpose, libc::F_UNLCK, false).map_err(|errno| self.failed(errno))
    }
}
