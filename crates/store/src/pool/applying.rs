//! One application of layouts at a time: several files and rules are changed together, and taken back together.
//!
//! The lock is a file in the directory of lock files, `apply.UID`: each user has one, which no other user of a shared
//! pool can open. It is locked by `flock`, so that the kernel tells which process has it, and that it ends with the
//! process. Changes of different users meet at the locks of the single files.

use crate::os::error::{Error, Result};
use crate::os::sys::retry;
use crate::pool::namespace::LOCKS;
use crate::pool::store::Store;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FlockOperation, Mode, Stat, Timestamps};
use rustix::io::Errno;
use std::time::SystemTime;

/// What names of such lock files begin with; a user's number follows.
const PREFIX: &str = "apply.";

/// Whether a lock file's name is one of these.
pub(crate) fn is_lock(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|user| user.parse::<u32>().is_ok())
}

/// The right to change layouts, until it is dropped.
#[derive(Debug)]
pub struct Applying<'a> {
    locks: BorrowedFd<'a>,
    name: String,
    // Closed, and so unlocked, when the name is gone.
    _file: OwnedFd,
}

impl Store {
    /// Takes the right to change layouts for this user, if no other process of this user has it.
    ///
    /// # Errors
    /// [`Error::Applying`] when one has; another user has put something under the name of the lock file.
    pub fn begin_apply(&self) -> Result<Applying<'_>> {
        let name = format!("{PREFIX}{}", rustix::process::geteuid().as_raw());
        let path = self.pool().namespace.join(LOCKS).join(&name);
        loop {
            let file = crate::pool::shared::open_own(&path, Mode::from_raw_mode(0o600))?;
            let stat = rustix::fs::fstat(&file).map_err(Error::io("read", &path))?;
            match retry(|| rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Err(self.applied_by_another(&stat)),
                Err(errno) => return Err(Error::io("lock", &path)(errno)),
            }
            // The one before may have removed the name since it was opened.
            match rustix::fs::statat(self.locks(), name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(there) if (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino) => {}
                _ => continue,
            }
            let now = Timestamps { last_access: NOW, last_modification: NOW };
            // Without it only the time is missing in what another is told.
            let _ = rustix::fs::futimens(&file, &now);
            return Ok(Applying { locks: self.locks(), name, _file: file });
        }
    }

    fn applied_by_another(&self, lock: &Stat) -> Error {
        let begun = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(u64::try_from(lock.st_mtime).unwrap_or(0));
        Error::Applying {
            pool: self.pool().name.clone(),
            process: holder(lock),
            for_s: begun.elapsed().map_or(0, |elapsed| elapsed.as_secs()),
        }
    }
}

const NOW: rustix::fs::Timespec = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };

impl Drop for Applying<'_> {
    fn drop(&mut self) {
        // An empty file that stays does no harm.
        let _ = rustix::fs::unlinkat(self.locks, self.name.as_str(), AtFlags::empty());
    }
}

/// The process that has the file `lock` locked by `flock`; `None` where this machine's kernel does not tell.
fn holder(lock: &Stat) -> Option<u32> {
    let (major, minor) = (rustix::fs::major(lock.st_dev), rustix::fs::minor(lock.st_dev));
    let file = format!("{major:02x}:{minor:02x}:{}", lock.st_ino);
    let held = std::fs::read_to_string("/proc/locks").ok()?;
    // `1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF`; one that waits has an arrow behind the number.
    held.lines().find_map(|line| match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
        [_, "FLOCK", _, _, process, of, ..] if of == file => process.parse().ok().filter(|&process| process > 0),
        _ => None,
    })
}
