//! A file that is judged: its inode, and its structural lock, which keeps writers out.

use super::context::Context;
use super::ground::Ground;
use super::holding::Alone;
use crate::file::inode::Inode;
use crate::file::lengths::{self, Lengths};
use crate::file::lockfile::{LockFile, Purpose};
use crate::file::rights::{Rights, former_owner};
use crate::format::handle::{ATTRIBUTE, FORMER_OWNER, Handle, MAX_BYTES};
use crate::format::identity::Identity;
use crate::format::placement::Datafile;
use crate::os::error::{Error, HandleError, Result};
use crate::os::sys::{proc_path, retry};
use crate::pool::heads::HeadsExcluded;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, Stat, XattrFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An inode of the tree.
pub(super) struct Subject {
    fd: OwnedFd,
    pub(super) stat: Stat,
    /// Relative to the tree.
    pub(super) path: PathBuf,
}

/// What an inode has for a handle.
pub(super) enum InodeHandle {
    /// None: a plain file.
    Plain,
    /// A handle, of this inode or another.
    Handle(Handle),
    /// Bytes that are none.
    Damaged(Vec<u8>, HandleError),
}

/// The right to judge a file: it has no writer, and can get none.
pub(super) struct Hold<'a> {
    /// `None` in a dry run of a file that has no lock file.
    lock: Option<LockFile>,
    /// Whether a lock file stood there: its writer is gone.
    pub(super) was_stale: bool,
    /// No writer of the head alone.
    _heads: Option<HeadsExcluded<'a>>,
    /// The last, as fields are dropped in order.
    _alone: Alone<'a>,
}

impl Subject {
    /// The inode behind `fd`, which was opened as a place only.
    pub(super) fn new(fd: OwnedFd, path: PathBuf) -> Result<Self> {
        let stat = rustix::fs::fstat(&fd).map_err(Error::io("read the attributes of", &path))?;
        Ok(Self { fd, stat, path })
    }

    /// Reads size and times again.
    pub(super) fn renew(&mut self) -> Result<()> {
        self.stat = rustix::fs::fstat(&self.fd).map_err(Error::io("read the attributes of", &self.path))?;
        Ok(())
    }

    /// The path under which the inode can be opened.
    pub(super) fn place(&self) -> PathBuf {
        proc_path(self.fd.as_fd())
    }

    /// The rights that its datafiles are to have.
    pub(super) fn rights(&self) -> Rights {
        Rights::at(&self.place(), &self.stat)
    }

    /// What its datafiles are to be bound to; `None` in a pool of one user, where nothing is asked.
    pub(super) fn identity(&self, ground: &Ground) -> Result<Option<Identity>> {
        if !ground.shared {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let opened = retry(|| rustix::fs::open(self.place(), flags, Mode::empty()));
        let fd = opened.map_err(Error::io("open", &self.path))?;
        Identity::of(fd.as_fd(), self.stat.st_ino).map(Some)
    }

    /// Whether root's mount was giving the file with that handle away when it was interrupted, and it was `uid`'s
    /// before.
    pub(super) fn was_given_by(&self, logical: u64, uid: u32) -> bool {
        let mut bytes = [0; 16];
        let found = rustix::fs::getxattr(self.place(), FORMER_OWNER, &mut bytes[..]);
        found.is_ok_and(|len| bytes[..len] == former_owner(logical, uid))
    }

    /// Its handle, unchecked against the inode.
    pub(super) fn handle(&self) -> Result<InodeHandle> {
        let mut bytes = [0; MAX_BYTES];
        match rustix::fs::getxattr(self.place(), ATTRIBUTE, &mut bytes[..]) {
            Ok(len) => Ok(match Handle::decode(&bytes[..len]) {
                Ok(handle) => InodeHandle::Handle(handle),
                Err(error) => InodeHandle::Damaged(bytes[..len].to_vec(), error),
            }),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(InodeHandle::Plain),
            Err(Errno::RANGE) => Ok(InodeHandle::Damaged(Vec::new(), HandleError::Damaged("longer than 4096 bytes"))),
            Err(errno) => Err(Error::io("read the handle of", &self.path)(errno)),
        }
    }

    /// Writes its handle and tells those who have the file open.
    pub(super) fn set_handle(&self, context: &Context<'_>, handle: &Handle) -> Result<()> {
        self.set_attribute(ATTRIBUTE, &handle.encode()?).map_err(Error::io("change the handle of", &self.path))?;
        self.sync()?;
        context.ground.bump_epoch(handle.logical)
    }

    /// What is recorded of the lengths of the datafiles of file `logical`.
    pub(super) fn lengths(&self, logical: u64) -> Result<Option<Lengths>> {
        lengths::read_record(logical, |bytes| rustix::fs::getxattr(self.place(), lengths::ATTRIBUTE, bytes))
            .map_err(Error::io("read the recorded lengths of", &self.path))
    }

    /// Forgets what is recorded of a datafile beyond `bytes`. Only under a [`Hold`].
    pub(super) fn lower_length(&self, logical: u64, datafile: Datafile, bytes: u64) -> Result<()> {
        let Some(recorded) = self.lengths(logical)? else { return Ok(()) };
        let bytes = recorded.lowered(datafile, bytes).encode();
        self.set_attribute(lengths::ATTRIBUTE, &bytes).map_err(Error::io("record the lengths of", &self.path))?;
        self.sync()
    }

    fn set_attribute(&self, name: &str, bytes: &[u8]) -> rustix::io::Result<()> {
        let place = self.place();
        let set = || rustix::fs::setxattr(&place, name, bytes, XattrFlags::empty());
        let mode = Mode::from_raw_mode(self.stat.st_mode & 0o7777);
        match set() {
            // Its owner has made it read-only, and may not set a user attribute then.
            Err(Errno::ACCESS) => rustix::fs::chmod(&place, mode | Mode::WUSR)
                .and_then(|()| set())
                .and_then(|()| rustix::fs::chmod(&place, mode)),
            done => done,
        }
    }

    /// Makes size, times and handle durable.
    pub(super) fn sync(&self) -> Result<()> {
        let open = |access| rustix::fs::open(self.place(), access | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty());
        let opened = retry(|| open(OFlags::RDONLY)).or_else(|_| retry(|| open(OFlags::WRONLY)));
        opened.and_then(|fd| rustix::fs::fsync(&fd)).map_err(Error::io("sync", &self.path))
    }

    /// The store's own view of it, to mend with. Only under a [`Hold`].
    pub(super) fn inode(&self, context: &Context<'_>, handle: &Handle) -> Result<Arc<Inode>> {
        context.store()?.inode_under_lock(self.fd.as_fd(), handle.logical)
    }
}

/// Takes the structural lock of `logical`; `None`: the file has a writer. A dry run makes no lock file. A thread holds
/// one file at a time.
pub(super) fn hold<'a>(context: &'a Context<'_>, logical: u64) -> Result<Option<Hold<'a>>> {
    let alone = context.holding.alone(logical);
    let locks = context.ground.locks.as_fd();
    loop {
        let there = LockFile::exists(locks, logical)?;
        if !there && context.options.dry_run {
            return Ok(Some(Hold { lock: None, was_stale: false, _heads: None, _alone: alone }));
        }
        let Some(heads) = context.ground.heads.exclude(logical)? else { return Ok(None) };
        let (lock, created) = LockFile::open_any(locks, logical)?;
        if !lock.try_exclusive(Purpose::Writers)? {
            return Ok(None);
        }
        if lock.is_current(locks) {
            return Ok(Some(Hold { lock: Some(lock), was_stale: !created, _heads: Some(heads), _alone: alone }));
        }
    }
}

impl Hold<'_> {
    /// Gives the lock back. Where the file is not settled and a writer left its lock file, that stays and says so.
    pub(super) fn release(self, context: &Context<'_>, settled: bool) -> Result<()> {
        match self.lock {
            Some(lock) if !context.options.dry_run && (settled || !self.was_stale) => {
                lock.remove(context.ground.locks.as_fd())
            }
            _ => Ok(()),
        }
    }
}

/// What errors and findings call a file.
pub(super) fn shown(path: &Path) -> String {
    path.display().to_string()
}
