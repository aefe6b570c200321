//! The store: the files of a pool, as the mount, the command line and the Python module use them.

use crate::backend::plane::PlaneOptions;
use crate::file::inode::Inode;
pub use crate::file::inode::Store;
use crate::file::lockfile::LockFile;
use crate::file::paths::record::LastOpens;
pub use crate::file::writers::Collected;
use crate::file::writers::{Attributes, COUNTED_BYTES};
use crate::format::handle::{ATTRIBUTE, Created, Handle, Optimisations, read_handle, read_handle_at, read_open_handle};
use crate::format::parser;
use crate::os::error::{Error, Result};
use crate::os::sys::{proc_path, retry};
use crate::pool::open_pool::OpenPool;
use crate::pool::pool_file::Pool;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, XattrFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stripewise_optimisation::WRITEBEHIND;

impl Store {
    /// Opens a pool: its namespace, servers and epoch page. A missing server is no error here.
    pub fn open(pool: Pool) -> Result<Arc<Self>> {
        Self::open_with(pool, PlaneOptions::default())
    }

    /// As [`Store::open`], with the data plane opened by `options`.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_with(pool: Pool, options: PlaneOptions) -> Result<Arc<Self>> {
        Ok(Arc::new(Self::of(OpenPool::open(pool, options)?)))
    }

    /// Gives the fresh, empty regular file `fd` (open for writing, in the tree) its handle: layout by the first rule
    /// that matches its path (relative to the tree; `path` is asked for it if there are rules), else the pool's
    /// default, changed by the optimisations that the directory `hinted` it to have; without the servers that are nearly
    /// full, as the last [`Store::due_look`] found them. Call it before the file gets its final mode: a user attribute
    /// cannot be set on a read-only file. The inode's owner must be final too. Two system calls where no rule has changed.
    pub fn create(
        &self,
        fd: BorrowedFd<'_>,
        hinted: &Optimisations,
        path: impl FnOnce() -> Result<PathBuf>,
    ) -> Result<Created> {
        let (layout, optimisations) = self.layout_hinted(self.layout_for_new(path)?, hinted);
        let hash = self.layouts.put(&layout)?;
        let stat = rustix::fs::fstat(fd).map_err(Error::io("read", proc_path(fd)))?;
        let mut handle = Handle::new(stat.st_ino, hash);
        handle.optimisations = optimisations;
        rustix::fs::fsetxattr(fd, ATTRIBUTE, &handle.encode()?, XattrFlags::CREATE)
            .map_err(Error::io("set the handle of", proc_path(fd)))?;
        Ok(Created { handle, layout, owner: stat.st_uid, mode: stat.st_mode })
    }

    /// The placed file that [`Store::create`] has just made on `fd` (open for reading and writing, not appending),
    /// without reading again what is known. At most one system call.
    pub fn adopt(self: &Arc<Self>, created: Created, fd: OwnedFd) -> Result<Arc<Inode>> {
        let key = (created.handle.logical, created.handle.real);
        let inode = Arc::new(Inode::created(self.clone(), created, fd)?);
        self.buffer.lock().put(key, &inode);
        Ok(inode)
    }

    /// The placed file behind `fd`, an open descriptor (any mode, O_PATH too) of a regular file in the tree. `None`: a
    /// plain file without a handle, its bytes are the inode's own. One `Inode` per file and process, shared.
    ///
    /// Pass a descriptor that is open for reading and writing where there is one: it is duplicated and kept; otherwise
    /// the inode is opened again through /proc with what its mode allows.
    pub fn inode(self: &Arc<Self>, fd: BorrowedFd<'_>) -> Result<Option<Arc<Inode>>> {
        let path = proc_path(fd);
        let stat = rustix::fs::fstat(fd).map_err(Error::io("read", &path))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let Some(handle) = read_handle(&path, stat.st_ino)? else { return Ok(None) };
        // A large layout takes a while to read, and other files must not wait for it under the lock. What is wrong with
        // it is said when the file is opened.
        let _layout = self.layouts.get_for(&handle.layout, stat.st_uid);
        let inode = self.buffered(fd, &path, (handle.logical, stat.st_ino))?;
        // Not under the lock, for which all opens of other files would wait; also of a file that is open here already.
        if handle.cut_at().is_some() {
            inode.finish_cut_of_another()?;
        }
        Ok(Some(inode))
    }

    /// The file behind `fd`, of this handle and inode, as it is open in this process, or opened now.
    fn buffered(self: &Arc<Self>, fd: BorrowedFd<'_>, path: &Path, key: (u64, u64)) -> Result<Arc<Inode>> {
        let mut files = self.buffer.lock();
        if let Some(inode) = files.get(key) {
            if !inode.can_write()
                && let (own, true) = reopen(fd, path)?
            {
                inode.offer_descriptor(own)?;
            }
            return Ok(inode);
        }
        let (own, writable) = reopen(fd, path)?;
        let inode = Arc::new(Inode::new(self.clone(), key.0, key.1, own, writable)?);
        files.put(key, &inode);
        Ok(inode)
    }

    /// The placed file behind `place` (O_PATH), whose logical handle was `known`, and its inode's attributes. `None` where that is
    /// no longer so, or more is to be done than to open it: [`Store::inode`] does it then. Three system calls, of a file that this
    /// process has open already one more.
    ///
    /// # Errors
    /// As [`Store::inode`].
    pub fn inode_known(self: &Arc<Self>, place: BorrowedFd<'_>, known: u64) -> Result<Option<(Arc<Inode>, Stat)>> {
        // Before all else: a change after this moment is seen as one.
        let epoch = self.plane().epoch(known);
        let Ok((own, writable)) = crate::backend::meta::open(&proc_path(place)) else { return Ok(None) };
        let stat = rustix::fs::fstat(&own).map_err(Error::io("read", proc_path(place)))?;
        let Ok(Some(handle)) = read_open_handle(own.as_fd(), stat.st_ino) else { return Ok(None) };
        if handle.logical != known || handle.truncating_to.is_some() {
            return Ok(None);
        }
        // As in `inode`: not under the lock.
        let _layout = self.layouts.get_for(&handle.layout, stat.st_uid);
        let mut files = self.buffer.lock();
        let key = (known, stat.st_ino);
        if let Some(inode) = files.get(key) {
            if writable && !inode.can_write() {
                inode.offer_descriptor(own)?;
            }
            return Ok(Some((inode, stat)));
        }
        let inode = Arc::new(Inode::known(self.clone(), (handle, epoch), stat.st_uid, own, writable)?);
        files.put(key, &inode);
        Ok(Some((inode, stat)))
    }

    /// The file behind `fd`, an open descriptor (any mode, O_PATH too) of a regular file in the tree, with or without a
    /// handle. Of one without, each call gives another `Inode`. For one that `changes` it, what the layout puts into the inode can
    /// be written; for others a file without a handle is not opened for writing, so that it can be run as a program past the mount.
    ///
    /// # Errors
    /// The handle is damaged, or the inode cannot be opened: as [`Inode::open_to_change`].
    pub fn file(self: &Arc<Self>, fd: BorrowedFd<'_>, changes: bool) -> Result<Arc<Inode>> {
        if let Some(inode) = self.inode(fd)? {
            if changes {
                inode.open_to_change(fd)?;
            }
            return Ok(inode);
        }
        let path = proc_path(fd);
        let real = rustix::fs::fstat(fd).map_err(Error::io("read", &path))?.st_ino;
        let access = if changes { OFlags::RDWR } else { OFlags::RDONLY };
        let own =
            crate::backend::meta::open_as(&path, access).map_err(|errno| Error::io("open", name_of(&path))(errno))?;
        Inode::without_handle(self.clone(), real, own, changes).map(Arc::new)
    }

    /// The placed file behind `fd`, whose handle is `logical`, as it is: nothing that was interrupted is finished. For
    /// the holder of its structural lock.
    pub(crate) fn inode_under_lock(self: &Arc<Self>, fd: BorrowedFd<'_>, logical: u64) -> Result<Arc<Inode>> {
        let path = proc_path(fd);
        let real = rustix::fs::fstat(fd).map_err(Error::io("read", &path))?.st_ino;
        let (own, writable) = reopen(fd, &path)?;
        Inode::under_lock(self.clone(), logical, real, own, writable).map(Arc::new)
    }

    /// Attributes of the file behind `fd` (any mode, O_PATH too), of which `stat` has just been read. A file without a writer is
    /// not opened, unless it is a large one with holes: three system calls, one less if it is `known` by which logical handle this
    /// has found it before, and that its inode has not changed since. One for a file that has no datafile and was never moved.
    pub fn attributes(self: &Arc<Self>, fd: BorrowedFd<'_>, stat: &Stat, known: Option<u64>) -> Result<Attributes> {
        // The lock file before the inode: the last writer puts the size before it removes the lock file.
        let closed = |logical| {
            let stat = rustix::fs::fstat(fd).map_err(|errno| Error::io("read", proc_path(fd))(errno))?;
            Ok::<_, Error>(Attributes::of_closed(Some(logical), &stat))
        };
        if let Some(logical) = known
            && !LockFile::exists(self.locks(), logical)?
            && let found = closed(logical)?
            && found.size_bytes < COUNTED_BYTES
        {
            return Ok(found);
        }
        let path = proc_path(fd);
        let Some(handle) = read_handle(&path, stat.st_ino)? else { return Ok(Attributes::of_inode(stat)) };
        // Only a move takes a datafile from a file, and counts its version up: there was none when `stat` was read.
        // What is gathered for it is not in the inode.
        if handle.is_as_made()
            && parser::setting(&handle.optimisations, &WRITEBEHIND).is_none()
            && let Some(found) = Attributes::of_alone(Some(handle.logical), stat)
        {
            return Ok(found);
        }
        if handle.truncating_to.is_some() || LockFile::exists(self.locks(), handle.logical)? {
            return self.file(fd, false)?.attributes();
        }
        let closed = closed(handle.logical)?;
        if closed.size_bytes < COUNTED_BYTES || !handle.sparse {
            return Ok(closed);
        }
        // A file that cannot be opened, as a server is missing, still has a size.
        let inode = self.inode(fd).ok().flatten();
        Ok(inode.map_or(closed, |inode| inode.with_blocks(closed)))
    }

    /// Whether the file of this logical handle has a writer of more than its head, or one that crashed. One system call.
    ///
    /// # Errors
    /// The directory of lock files cannot be read.
    pub fn has_lock_file(&self, logical: u64) -> Result<bool> {
        LockFile::exists(self.locks(), logical)
    }

    /// Whether `name` in the directory `dir` is the inode `real`, with the logical handle `logical`, and has had no datafile yet.
    /// One system call, which goes no way through /proc. `false` where that is not certain: before Linux 6.13, and for a
    /// handle that cannot be read.
    pub fn is_alone_at(&self, dir: BorrowedFd<'_>, name: &OsStr, real: u64, logical: u64) -> bool {
        let found = read_handle_at(dir, name, real).ok().flatten();
        found.is_some_and(|handle| handle.logical == logical && handle.is_as_made())
    }

    /// The placed file behind `fd`, of inode number `real`, if it has datafiles or a lock file that have to go with it.
    /// Two system calls for one that has none, as it was never written, and whose logical handle is `known`; else
    /// three.
    pub fn remains(self: &Arc<Self>, fd: BorrowedFd<'_>, real: u64, known: Option<u64>) -> Result<Option<Arc<Inode>>> {
        let path = proc_path(fd);
        let read = || Ok::<_, Error>(read_handle(&path, real)?.map(|handle| handle.logical));
        let Some(logical) = known.map_or_else(read, |known| Ok(Some(known)))? else { return Ok(None) };
        // In this order: datafiles are made, and noted in the handle, under the lock file.
        let written = LockFile::exists(self.locks(), logical)?
            || read_handle(&path, real)?.is_none_or(|handle| handle.logical != logical || !handle.present.is_empty());
        if written { self.inode(fd) } else { Ok(None) }
    }

    /// Opens the file at `path` (relative to the tree) and returns its [`Inode`]; `None` for a plain file. For tools;
    /// the mount has its own descriptors.
    pub fn lookup(self: &Arc<Self>, path: &Path) -> Result<Option<Arc<Inode>>> {
        self.inode(self.open_place(path)?.as_fd())
    }

    /// Opens what is at `path` (relative to the tree) as a place only, whatever kind of file it is; a link at the end
    /// is not followed.
    pub fn open_place(&self, path: &Path) -> Result<OwnedFd> {
        self.open_resolved(path, ResolveFlags::empty())
    }

    /// As [`Store::open_place`], of what is to move. In a pool of several users no link leads there: with it, and whenever it is put
    /// in the place of a directory, its owner could have another user's file moved.
    ///
    /// # Errors
    /// Those of `openat2`; a link is in the path.
    pub(crate) fn open_to_move(&self, path: &Path) -> Result<OwnedFd> {
        let resolve = if self.plane().is_shared() { ResolveFlags::NO_SYMLINKS } else { ResolveFlags::empty() };
        self.open_resolved(path, resolve).map_err(|error| match error {
            Error::Io { errno: Errno::LOOP, .. } => Error::Invalid(format!(
                "'{}' leads through a link, by which no file of a shared pool moves: name the path that the link leads to",
                path.display()
            )),
            error => error,
        })
    }

    fn open_resolved(&self, path: &Path, resolve: ResolveFlags) -> Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // No user's link and no `..` leads a tool of root's out of the tree.
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | resolve;
        let opened = retry(|| match rustix::fs::openat2(self.tree(), path, flags, Mode::empty(), inside) {
            Err(Errno::AGAIN) => Err(Errno::INTR),
            done => done,
        });
        opened.map_err(Error::io("open", path))
    }

    /// Removes the datafiles of `inode` if it has no name left and no process is registered as a writer. Call it after
    /// unlink or rename-over, and after the last close, once no program holds the file open any more.
    ///
    /// # Errors
    /// A server that is there cannot remove its datafile; those of the others are gone.
    pub fn collect(&self, inode: &Inode) -> Result<Collected> {
        inode.collect()
    }

    /// What this process remembers of the last opens of the regular file behind `fd` (any descriptor, O_PATH too). `opens` counts
    /// none: that is known to the way in. Two system calls.
    ///
    /// # Errors
    /// Those of the calls; the handle is damaged.
    pub fn last_opens(&self, fd: BorrowedFd<'_>) -> Result<LastOpens> {
        let path = proc_path(fd);
        let real = rustix::fs::fstat(fd).map_err(Error::io("read", &path))?.st_ino;
        let key = (read_handle(&path, real)?.map_or(real, |handle| handle.logical), real);
        let last = |writes| self.buffer.opens.last(key, writes);
        Ok(LastOpens { read: last(false), written: last(true), ..LastOpens::default() })
    }

    /// Whether this process uses the placed file of this logical handle and inode.
    pub(crate) fn has_open(&self, handle: u64, real: u64) -> bool {
        self.buffer.lock().has((handle, real))
    }
}

/// A descriptor of our own for the inode behind `fd`, and whether it can write.
fn reopen(fd: BorrowedFd<'_>, path: &Path) -> Result<(OwnedFd, bool)> {
    let flags = rustix::fs::fcntl_getfl(fd).map_err(Error::io("read", path))?;
    let access = flags & OFlags::ACCMODE;
    // An appending descriptor would write the metadata tier's bytes at the end, whatever the offset.
    if !flags.contains(OFlags::PATH) && !flags.contains(OFlags::APPEND) && access == OFlags::RDWR {
        let own = rustix::io::fcntl_dupfd_cloexec(fd, 0).map_err(Error::io("duplicate", path))?;
        return Ok((own, true));
    }
    crate::backend::meta::open(path).map_err(|errno| Error::io("open", name_of(path))(errno))
}

/// What a person knows of `path`, which is one of a descriptor.
fn name_of(path: &Path) -> PathBuf {
    std::fs::read_link(path).unwrap_or_else(|_| path.to_owned())
}
