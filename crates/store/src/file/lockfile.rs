//! Lock files: locks for writing a file, for appending, for changing its handle or its layout.
//!
//! A file that is being written or changed has a lock file `<namespace>/locks/<handle>`. It is never an inode that
//! programs can lock, so their own locks do not collide with the store's. The locks are those of open file
//! descriptions (OFD): they end with the process, and each `Store` counts for itself.
//!
//! In a shared pool a lock file is bound to the inode of its file, as datafiles are: a handle that is written into
//! another file neither locks nor removes the lock file of the file that the handle names.

use crate::backend::plane::DataPlane;
use crate::file::rights::Rights;
use crate::format::identity::{Identity, Said};
use crate::os::byte_lock::{is_byte_locked, lock_byte};
use crate::os::error::{Error, Result};
use crate::os::sys::{AsUser, made_as_owner, retry};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a lock is for: a byte of the lock file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Shared: a registered writer. Exclusive: a structural change.
    Writers = 0,
    /// Exclusive: an append, from reading the size to the end of the write.
    Append = 1,
    /// Exclusive: a short change of the handle.
    Handle = 2,
    /// Shared: a writer that waits to be registered, or for the place of the file's bytes.
    Awaited = 3,
    /// Exclusive: a move beside writers ([`crate::file::beside`]). Shared: a writer whose bytes must stay where they are.
    Place = 4,
    /// Exclusive: a move beside writers switches to the new places, and no writer may write. Shared: one that waits for that.
    Lease = 5,
    /// Shared: a writer has changed what it could not mark for a move ([`crate::file::marks`]).
    Unmarked = 6,
    /// Exclusive, by who has [`Purpose::Writers`] exclusively: a move of a file without writers. None of its bytes changes meanwhile.
    Still = 7,
    /// Exclusive, by a writer that may change the handle: it cuts the file off.
    Cut = 8,
}

/// An open lock file.
#[derive(Debug)]
pub(crate) struct LockFile {
    /// `None`: the file has no handle, and so no lock file. Its layout stays, as if there were another writer at all times.
    fd: Option<OwnedFd>,
    handle: u64,
    waits: Waits,
    /// User and group with whose rights root removes it, in a shared pool.
    remover: Option<(u32, u32)>,
}

/// How long to wait for another's lock.
#[derive(Debug, Clone, Copy)]
enum Waits {
    /// As long as it takes: only the file's owner and root can hold it.
    InKernel,
    /// [`PATIENCE`]: the owner of the file (whose number this is), or a user who may write it, may hold it for ever,
    /// and must not block the threads of others' mount.
    Briefly(u32),
}

/// Bits of a mode by which others than the owner write.
const OTHERS_WRITE: u32 = 0o022;
/// How often to look for a lock file that another is just making or removing.
const TRIES: u32 = 50;
/// How often to look for one that is there at one look and gone at the next.
const TRIES_OF_VANISHING: u32 = 10_000;
/// How long to wait for a lock that a user may hold on purpose.
const PATIENCE: Duration = Duration::from_secs(2);
/// After a wait in vain, no thread waits for this owner's locks for this time.
const SULKING: Duration = Duration::from_secs(10);
/// Threads of this process that wait at once for locks of one owner's files.
const MOST_WAITING: u32 = 4;
const PAUSE_AT_LEAST: Duration = Duration::from_micros(20);
const PAUSE_AT_MOST: Duration = Duration::from_millis(2);

/// Waits of this process's threads for one owner's locks.
#[derive(Debug, Default, Clone, Copy)]
struct Owner {
    waiting: u32,
    not_before: Option<Instant>,
}

/// By owner: what is guarded is the threads of the process.
static OWNERS: Mutex<BTreeMap<u32, Owner>> = Mutex::new(BTreeMap::new());

/// Whether `stat` is of a lock file of a file with these rights.
fn belongs(stat: &rustix::fs::Stat, rights: Rights, user: u32) -> bool {
    let made_by = stat.st_uid;
    let by_writer = rights.mode & 0o002 != 0 || (rights.mode & 0o020 != 0 && stat.st_gid == rights.gid);
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        // None: it was removed since it was opened.
        && stat.st_nlink <= 1
        && (made_by == rights.uid || made_by == 0 || made_by == user || by_writer)
}

/// Whether a lock file that could not be opened or made failed for what stands under its name, and not for its disk: a
/// full or read-only one, or one that has gone.
fn is_of_what_stands_there(errno: Errno) -> bool {
    matches!(errno, Errno::ACCESS | Errno::PERM | Errno::LOOP | Errno::ISDIR | Errno::NXIO | Errno::NODEV)
}

fn name(handle: u64) -> String {
    format!("{handle:016x}")
}

/// Writers of a file in this process, and the lock that registers them with the others.
#[derive(Debug, Default)]
pub(crate) struct Writers {
    pub(crate) count: usize,
    /// Beside those counted: writers of the head alone, which need no lock file ([`crate::pool::heads`]).
    pub(crate) heads: usize,
    /// One of those counted is for all `heads`: the file has left a metadata tier without room ([`crate::file::full_tier`]), and what they
    /// write has its places on the servers.
    pub(crate) are_registered: bool,
    /// Opens whose pages a kernel keeps ([`crate::file::paths::cached`]): none of them writes.
    pub(crate) kept: usize,
    /// Whether the lock file says that the bytes must stay where they are, for this process.
    pub(crate) holds_place: bool,
    pub(crate) lock: Option<Arc<LockFile>>,
}

impl LockFile {
    /// The locks of the file of inode `real`, which has no handle.
    pub(crate) fn without_handle(real: u64) -> Self {
        Self { fd: None, handle: real, waits: Waits::InKernel, remover: None }
    }

    /// Opens the lock file of `handle` in the directory `locks`; `true` when it was made just now. In a shared
    /// pool count the `identity` and the `rights` of the file, and whether it `has_datafiles` that are bound to it.
    ///
    /// # Errors
    /// [`Error::ForeignLock`] when a user who has no part in the file has put something there, [`Error::UnboundLock`]
    /// when it is another file's.
    pub(crate) fn open(
        plane: &DataPlane,
        locks: BorrowedFd<'_>,
        handle: u64,
        identity: Identity,
        rights: impl FnOnce() -> Result<Rights>,
        has_datafiles: impl Fn() -> bool,
    ) -> Result<(Self, bool)> {
        if !plane.is_shared() {
            return Self::open_any(locks, handle);
        }
        let rights = rights()?;
        for _ in 0..TRIES {
            let (lock, made) = Self::open_shared(locks, handle, identity, rights)?;
            // One without the attribute was made just now, or its maker has died before it was set.
            let said = lock.fd.as_ref().map_or(Ok(Said::Another), |fd| identity.asked_of(fd));
            if said.map_err(|errno| lock.failed(errno))? != Said::Another {
                return Ok((lock, made));
            }
            // The datafiles say whose the handle is. Another file in which it was written has left this one.
            let goes = has_datafiles() && lock.try_exclusive(Purpose::Writers)? && lock.remove(locks).is_ok();
            if !goes {
                break;
            }
        }
        Err(Error::UnboundLock { lock: name(handle), inode: identity.inode })
    }

    /// [`LockFile::open`] in a pool of one user, and for a check of any pool, which does not wait.
    pub(crate) fn open_any(locks: BorrowedFd<'_>, handle: u64) -> Result<(Self, bool)> {
        loop {
            if let Some((fd, made)) = Self::open_once(locks, handle)? {
                return Ok((Self { fd: Some(fd), handle, waits: Waits::InKernel, remover: None }, made));
            }
        }
    }

    /// Opens the lock file of `handle` if there is one.
    pub(crate) fn open_existing(locks: BorrowedFd<'_>, handle: u64) -> Result<Option<Self>> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        match retry(|| rustix::fs::openat(locks, name(handle), flags, Mode::empty())) {
            Ok(fd) => Ok(Some(Self { fd: Some(fd), handle, waits: Waits::InKernel, remover: None })),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Error::io("open lock file", name(handle))(errno)),
        }
    }

    /// From now on waits for this lock end as those for locks that `owner` may hold on purpose.
    pub(crate) fn wait_briefly_for(&mut self, owner: u32) {
        self.waits = Waits::Briefly(owner);
    }

    /// `None` when its last user removed it between two looks.
    fn open_once(locks: BorrowedFd<'_>, handle: u64) -> Result<Option<(OwnedFd, bool)>> {
        let name = name(handle);
        // NONBLOCK: what stands there may be a FIFO.
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let open = |flags| retry(|| rustix::fs::openat(locks, name.as_str(), flags, Mode::from_raw_mode(0o600)));
        let new = flags | OFlags::CREATE | OFlags::EXCL;
        match made_as_owner(locks, || rustix::fs::openat(locks, name.as_str(), new, Mode::from_raw_mode(0o600))) {
            Ok(fd) => return Ok(Some((fd, true))),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(Error::io("create lock file", name)(errno)),
        }
        match open(flags) {
            Ok(fd) => Ok(Some((fd, false))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Error::io("open lock file", name)(errno)),
        }
    }

    /// In a shared pool any user can put something under the name. A lock file is the owner's or root's; where others
    /// may write the file, it can be theirs as well. Anything else is refused; root removes it.
    fn open_shared(locks: BorrowedFd<'_>, handle: u64, identity: Identity, rights: Rights) -> Result<(Self, bool)> {
        let user = rustix::process::geteuid().as_raw();
        let waits = if user == rights.uid && rights.mode & OTHERS_WRITE == 0 {
            Waits::InKernel
        } else {
            Waits::Briefly(rights.uid)
        };
        let mut tries = 0;
        loop {
            tries += 1;
            // Made and removed again and again by another, on purpose or not.
            let vanishes = || Error::HeldLock { lock: name(handle), owner: rights.uid };
            let opened = match Self::open_once(locks, handle) {
                // The disk's own error, which it would tell anew each time.
                Err(Error::Io { errno, .. }) if !is_of_what_stands_there(errno) => {
                    return Err(Error::io("create lock file", name(handle))(errno));
                }
                opened => opened,
            };
            let denied = match &opened {
                Ok(None) if tries < TRIES_OF_VANISHING => continue,
                Ok(None) => return Err(vanishes()),
                Ok(Some((fd, made))) if *made => {
                    if let Err(errno) = identity.bind(fd).and_then(|()| Self::shape(fd, rights)) {
                        // Made for the wrong users it must not stay.
                        let _ = rustix::fs::unlinkat(locks, name(handle), AtFlags::empty());
                        return Err(Error::io("create lock file", name(handle))(errno));
                    }
                    false
                }
                Ok(Some(_)) => false,
                Err(_) => true,
            };
            let stat = match &opened {
                Ok(Some((fd, _))) => rustix::fs::fstat(fd),
                _ => rustix::fs::statat(locks, name(handle), AtFlags::SYMLINK_NOFOLLOW),
            };
            let stat = match stat {
                Ok(stat) => stat,
                Err(Errno::NOENT) if tries < TRIES_OF_VANISHING => continue,
                Err(Errno::NOENT) => return Err(opened.err().unwrap_or_else(vanishes)),
                Err(errno) => return Err(Error::io("open lock file", name(handle))(errno)),
            };
            if denied && belongs(&stat, rights, user) && tries < TRIES {
                // Another who may write the file has made it just now, and not yet given it its mode.
                std::thread::sleep(PAUSE_AT_MOST);
                continue;
            }
            if !denied && belongs(&stat, rights, user) {
                let (fd, made) = opened?.ok_or_else(|| Error::io("open lock file", name(handle))(Errno::NOENT))?;
                return Ok((Self { fd: Some(fd), handle, waits, remover: Some((rights.uid, rights.gid)) }, made));
            }
            if !crate::pool::shared::is_root() || tries >= TRIES {
                return Err(Error::ForeignLock { lock: name(handle), found: stat.st_uid, owner: rights.uid });
            }
            let directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            // As the user whose it is: what has taken its place meanwhile stays.
            let _theirs = AsUser::become_if_root(stat.st_uid, stat.st_gid);
            if let Err(errno) = rustix::fs::unlinkat(locks, name(handle), flags)
                && errno != Errno::NOENT
            {
                return Err(Error::ForeignLock { lock: name(handle), found: stat.st_uid, owner: rights.uid });
            }
        }
    }

    /// Gives a new lock file to whom the file is, open to those who may write it.
    fn shape(fd: &OwnedFd, rights: Rights) -> rustix::io::Result<()> {
        let (uid, gid) = (Uid::from_raw(rights.uid), Gid::from_raw(rights.gid));
        let mine = rights.uid == rustix::process::geteuid().as_raw();
        let grouped = if crate::pool::shared::is_root() {
            rustix::fs::fchown(fd, Some(uid), Some(gid)).map(|()| true)?
        } else {
            rights.mode & OTHERS_WRITE != 0 && rustix::fs::fchown(fd, None, Some(gid)).is_ok()
        };
        let mode = match rights.mode & OTHERS_WRITE {
            0 => 0o600,
            0o020 if grouped && (mine || crate::pool::shared::is_root()) => 0o660,
            // The owner need not be of the group.
            _ => 0o666,
        };
        if mode == 0o600 { Ok(()) } else { rustix::fs::fchmod(fd, Mode::from_raw_mode(mode)) }
    }

    /// Whether a lock file of `handle` exists: the file has a writer, or one crashed.
    pub(crate) fn exists(locks: BorrowedFd<'_>, handle: u64) -> Result<bool> {
        match rustix::fs::statat(locks, name(handle), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(Error::io("look for lock file", name(handle))(errno)),
        }
    }

    /// Whether the name still leads to this very file: the last user removes it.
    pub(crate) fn is_current(&self, locks: BorrowedFd<'_>) -> bool {
        let Some(fd) = &self.fd else { return true };
        let here = rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
        let there = rustix::fs::statat(locks, name(self.handle), AtFlags::SYMLINK_NOFOLLOW)
            .map(|stat| (stat.st_dev, stat.st_ino));
        here.is_ok() && here == there
    }

    /// Removes the name. Only for the holder of the exclusive [`Purpose::Writers`] lock.
    pub(crate) fn remove(&self, locks: BorrowedFd<'_>) -> Result<()> {
        // As root on behalf of a user, with that user's rights: a handle may name another's lock file.
        let _owner = self.remover.map(|(uid, gid)| AsUser::become_if_root(uid, gid));
        if self.remover.is_some() && !self.is_current(locks) {
            return Ok(());
        }
        rustix::fs::unlinkat(locks, name(self.handle), AtFlags::empty())
            .map_err(Error::io("remove lock file", name(self.handle)))
    }

    fn control(&self, purpose: Purpose, kind: libc::c_int, wait: bool) -> rustix::io::Result<()> {
        match &self.fd {
            Some(fd) => lock_byte(fd.as_fd(), purpose as i64, kind, wait),
            None if purpose == Purpose::Writers && kind == libc::F_WRLCK => Err(Errno::AGAIN),
            None => Ok(()),
        }
    }

    fn failed(&self, errno: Errno) -> Error {
        Error::io("lock file", name(self.handle))(errno)
    }

    /// Takes the lock, exclusive or shared, waiting for it.
    ///
    /// # Errors
    /// [`Error::HeldLock`] where a user might hold it on purpose, and has for [`PATIENCE`].
    pub(crate) fn lock(&self, purpose: Purpose, exclusive: bool) -> Result<()> {
        let kind = if exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
        match self.waits {
            Waits::InKernel => self.control(purpose, kind, true).map_err(|errno| self.failed(errno)),
            Waits::Briefly(owner) => self.lock_briefly(purpose, kind, owner),
        }
    }

    fn lock_briefly(&self, purpose: Purpose, kind: libc::c_int, owner: u32) -> Result<()> {
        let held = || Error::HeldLock { lock: name(self.handle), owner };
        let take = || match self.control(purpose, kind, false) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
            Err(errno) => Err(self.failed(errno)),
        };
        if take()? {
            return Ok(());
        }
        let begin = Instant::now();
        {
            let mut owners = OWNERS.lock().unwrap_or_else(PoisonError::into_inner);
            let owner = owners.entry(owner).or_default();
            if owner.waiting >= MOST_WAITING || owner.not_before.is_some_and(|when| begin < when) {
                return Err(held());
            }
            owner.waiting += 1;
        }
        let mut pause = PAUSE_AT_LEAST;
        let taken = loop {
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_AT_MOST);
            match take() {
                Ok(false) if begin.elapsed() < PATIENCE => {}
                done => break done,
            }
        };
        let mut owners = OWNERS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = owners.get_mut(&owner) {
            known.waiting -= 1;
            if matches!(taken, Ok(false)) {
                known.not_before = Some(Instant::now() + SULKING);
            } else if known.waiting == 0 && known.not_before.is_none_or(|when| when < begin) {
                owners.remove(&owner);
            }
        }
        if taken? { Ok(()) } else { Err(held()) }
    }

    /// Takes the shared lock of [`Purpose::Writers`], waiting for a structural change to end, which can give way meanwhile:
    /// [`LockFile::is_awaited`]; whether it had to wait. One system call where none is under way.
    ///
    /// # Errors
    /// As [`LockFile::lock`].
    pub(crate) fn lock_as_writer(&self) -> Result<bool> {
        if self.try_shared(Purpose::Writers)? {
            return Ok(false);
        }
        // In vain where a user holds it on purpose: then the change does not learn of this writer.
        let is_told = self.try_shared(Purpose::Awaited)?;
        self.lock(Purpose::Writers, false)?;
        if is_told {
            self.unlock(Purpose::Awaited)?;
        }
        Ok(true)
    }

    /// Whether a writer waits for the holder of the exclusive lock of [`Purpose::Writers`] or [`Purpose::Place`]. One system call.
    pub(crate) fn is_awaited(&self) -> Result<bool> {
        self.is_refused(Purpose::Awaited, libc::F_WRLCK)
    }

    /// Takes the shared lock of [`Purpose::Place`], waiting for a move beside writers to end, which gives way meanwhile.
    ///
    /// # Errors
    /// As [`LockFile::lock`].
    pub(crate) fn lock_place(&self) -> Result<()> {
        let is_told = self.try_shared(Purpose::Awaited)?;
        let locked = self.lock(Purpose::Place, false);
        if is_told {
            self.unlock(Purpose::Awaited)?;
        }
        locked
    }

    /// Whether another holds the lock exclusively. One system call.
    pub(crate) fn is_exclusive(&self, purpose: Purpose) -> Result<bool> {
        self.is_refused(purpose, libc::F_RDLCK)
    }

    /// Whether another holds the lock in any form. One system call.
    pub(crate) fn is_held(&self, purpose: Purpose) -> Result<bool> {
        self.is_refused(purpose, libc::F_WRLCK)
    }

    fn is_refused(&self, purpose: Purpose, kind: libc::c_int) -> Result<bool> {
        let Some(fd) = &self.fd else { return Ok(false) };
        is_byte_locked(fd.as_fd(), purpose as i64, kind).map_err(|errno| self.failed(errno))
    }

    /// What stands in the lock file, beside its locks: the marks of [`crate::file::marks`].
    pub(crate) fn content(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(|fd| fd.as_fd())
    }

    /// Takes the exclusive lock if no other has the lock in any form; an own shared lock is exchanged for it.
    pub(crate) fn try_exclusive(&self, purpose: Purpose) -> Result<bool> {
        match self.control(purpose, libc::F_WRLCK, false) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
            Err(errno) => Err(self.failed(errno)),
        }
    }

    /// Takes the shared lock unless another holds it exclusively.
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
