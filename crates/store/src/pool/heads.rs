//! Locks of those who write no more of a file than its head in the inode.
//!
//! They write what the inode itself keeps: its size and time are right at all times, and a crash leaves nothing to settle. So they
//! need no lock file. That the layout stays meanwhile they ask of one file for the whole pool, `heads` in the namespace, which is
//! empty and stays: of it each file has one byte, by its handle. The locks are those of open file descriptions, as in
//! [`crate::file::lockfile`], and end with the process.
//!
//! A second byte of each file keeps apart the two changes of which only one may be under way: its first datafile is made, or its head
//! is cut as if that were all of it.
//!
//! A third byte of each file, that of the complement of its handle, says that a kernel keeps pages of it ([`crate::file::paths::cached`]).
//!
//! A shared pool has none: any user could hold the byte of another's file.

use crate::os::byte_lock::{is_byte_locked, lock_byte};
use crate::os::error::{Error, Result};
use crate::os::sys::{open_directory, open_or_make_at};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;
use std::sync::OnceLock;

/// Name of the file, in the namespace.
const FILE: &str = "heads";

/// The locks of a pool, as one process has them.
#[derive(Debug)]
pub(crate) struct HeadLocks {
    /// `None`: a shared pool, which has none.
    namespace: Option<OwnedFd>,
    /// Whether the file is made if there is none.
    makes: bool,
    file: OnceLock<OwnedFd>,
}

/// No other process writes the head of a file (or, by its second byte, settles whether it has more), and none can begin, until this
/// is dropped.
#[derive(Debug)]
pub(crate) struct HeadsExcluded<'a> {
    held: Option<(BorrowedFd<'a>, i64)>,
}

impl Drop for HeadsExcluded<'_> {
    fn drop(&mut self) {
        if let Some((file, byte)) = self.held {
            // If it fails, the end of the process will do.
            let _ = lock_byte(file, byte, libc::F_UNLCK, false);
        }
    }
}

impl HeadsExcluded<'_> {
    /// Ends it for a process that had the shared lock before: without a moment in which it has none. One system call.
    pub(crate) fn share_again(mut self) {
        if let Some((file, byte)) = self.held.take() {
            // An own lock is exchanged, also while others wait for it.
            let _ = lock_byte(file, byte, libc::F_RDLCK, false);
        }
    }
}

/// The byte of a file. Files that share one only wait for each other.
fn byte_of(handle: u64) -> i64 {
    (handle >> 2).cast_signed()
}

/// The second byte of a file, behind the first ones of all files.
fn second_byte_of(handle: u64) -> i64 {
    byte_of(handle) | 1 << 62
}

/// The third byte of a file. Handles are chance: that it is the first one of another file is as unlikely as that two have the same.
fn third_byte_of(handle: u64) -> i64 {
    byte_of(!handle)
}

impl HeadLocks {
    /// Those of the pool with this namespace. Opens nothing of a shared pool.
    pub(crate) fn open(namespace: &Path, is_shared: bool) -> Result<Self> {
        let open = || open_directory(namespace).map_err(Error::io("open", namespace));
        let namespace = if is_shared { None } else { Some(open()?) };
        Ok(Self { namespace, makes: true, file: OnceLock::new() })
    }

    /// For a look that changes nothing: where the file is not there, none writes a head now.
    pub(crate) fn looking(self) -> Self {
        Self { makes: false, ..self }
    }

    /// `None`: there are no such locks.
    fn file(&self) -> rustix::io::Result<Option<BorrowedFd<'_>>> {
        let Some(namespace) = &self.namespace else { return Ok(None) };
        if let Some(file) = self.file.get() {
            return Ok(Some(file.as_fd()));
        }
        let makes = if self.makes { OFlags::CREATE } else { OFlags::empty() };
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY | makes;
        let opened = match open_or_make_at(namespace, FILE, flags, Mode::from_raw_mode(0o600)) {
            Err(Errno::NOENT) if !self.makes => return Ok(None),
            opened => opened?,
        };
        // Two threads at once: the second's is closed, before it has a lock.
        Ok(Some(self.file.get_or_init(|| opened).as_fd()))
    }

    /// Takes a lock to write the head of file `handle`. `false`: its layout is being changed, there are no such locks, or they
    /// cannot be had: then a lock file does it. One system call.
    pub(crate) fn try_shared(&self, handle: u64) -> bool {
        self.lock_shared(byte_of(handle))
    }

    /// Gives the lock back.
    pub(crate) fn unlock(&self, handle: u64) {
        self.unlock_byte(byte_of(handle));
    }

    /// Says that a kernel keeps pages of file `handle`. `false`: there are no such locks, or they cannot be had. One system call.
    pub(crate) fn try_keep(&self, handle: u64) -> bool {
        self.lock_shared(third_byte_of(handle))
    }

    /// Undoes [`HeadLocks::try_keep`].
    pub(crate) fn let_go(&self, handle: u64) {
        self.unlock_byte(third_byte_of(handle));
    }

    fn lock_shared(&self, byte: i64) -> bool {
        match self.file() {
            Ok(Some(file)) => lock_byte(file, byte, libc::F_RDLCK, false).is_ok(),
            _ => false,
        }
    }

    fn unlock_byte(&self, byte: i64) {
        if let Ok(Some(file)) = self.file() {
            // If it fails, the end of the process will do.
            let _ = lock_byte(file, byte, libc::F_UNLCK, false);
        }
    }

    /// Whether another process has said that a kernel keeps pages of file `handle`. One system call.
    ///
    /// # Errors
    /// The file of the locks cannot be opened or asked.
    pub(crate) fn is_kept(&self, handle: u64) -> Result<bool> {
        let file = match self.file() {
            Ok(Some(file)) => file,
            // There is no such file, and no process that could have a lock of it.
            Ok(None) | Err(Errno::ROFS | Errno::NOSPC | Errno::DQUOT) => return Ok(false),
            Err(errno) => return Err(Error::io("open", Path::new(FILE))(errno)),
        };
        is_byte_locked(file, third_byte_of(handle), libc::F_WRLCK).map_err(Error::io("lock", Path::new(FILE)))
    }

    /// Keeps other processes from making the first datafile of file `handle`, or from cutting its head as if that were all of it,
    /// until this is dropped. Waits for one that does. The caller keeps the threads of this process apart. Two system calls with the
    /// end of it, none in a shared pool.
    ///
    /// # Errors
    /// The file of the locks cannot be opened or locked.
    pub(crate) fn settle_lone(&self, handle: u64) -> Result<HeadsExcluded<'_>> {
        let file = match self.file() {
            Ok(file) => file,
            // There is no such file, and no process that could have a lock of it.
            Err(Errno::ROFS | Errno::NOSPC | Errno::DQUOT) => None,
            Err(errno) => return Err(Error::io("open", Path::new(FILE))(errno)),
        };
        let Some(file) = file else { return Ok(HeadsExcluded { held: None }) };
        let byte = second_byte_of(handle);
        lock_byte(file, byte, libc::F_WRLCK, true).map_err(Error::io("lock", Path::new(FILE)))?;
        Ok(HeadsExcluded { held: Some((file, byte)) })
    }

    /// Keeps all others from writing the head of file `handle`; `None` where one does. An own shared lock is exchanged: the caller knows
    /// that this process has none, or ends it by [`HeadsExcluded::share_again`]. Two system calls with the end of it.
    ///
    /// # Errors
    /// The file of the locks cannot be opened or locked.
    pub(crate) fn exclude(&self, handle: u64) -> Result<Option<HeadsExcluded<'_>>> {
        let (file, byte) = match self.file() {
            Ok(Some(file)) => (file, byte_of(handle)),
            // On a read-only file system none writes a head.
            Ok(None) | Err(Errno::ROFS) => return Ok(Some(HeadsExcluded { held: None })),
            Err(errno) => return Err(Error::io("open", Path::new(FILE))(errno)),
        };
        match lock_byte(file, byte, libc::F_WRLCK, false) {
            Ok(()) => Ok(Some(HeadsExcluded { held: Some((file, byte)) })),
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(None),
            Err(errno) => Err(Error::io("lock", Path::new(FILE))(errno)),
        }
    }
}
