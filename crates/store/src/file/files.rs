//! The files of a pool as a program uses them that needs no mount: names, and opening. What is open is a
//! [`File`](crate::File).

use crate::backend::plane::{PlaneOptions, ServedName};
use crate::file::inode::Inode;
use crate::file::writers::Collected;
use crate::os::error::{Error, Result};
use crate::os::sync::{Mutex, guard};
use crate::os::sys::{proc_path, retry};
use crate::pool::heat::with_heat;
use crate::pool::neighbours::Neighbours;
use crate::pool::pool_file::Pool;
use crate::pool::store::Store;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat, Timestamps};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stripewise_control::Door;
use stripewise_model::Op;

/// How long a removal waits for a mover of the file.
const PATIENCE: Duration = Duration::from_secs(5);
/// And for who seems to be no mover: one may be about to begin or to end, or a mount changes the file by its name.
const PATIENCE_WITH_WRITER: Duration = Duration::from_millis(100);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(10);

/// A pool in use without a mount. Paths are relative to the pool's mount point; none leads out of the pool, also not
/// through a symbolic link.
#[derive(Debug)]
pub struct Files {
    store: Arc<Store>,
    /// As long as it lives, mounts on this machine ask again for what we may change.
    _neighbours: Neighbours,
    /// Open files by handle and inode: the last close of a file without a name removes its datafiles.
    opened: Mutex<HashMap<(u64, u64), usize>>,
    /// Held while names of files come, and from the look at what has a name to the step that takes the name away, so
    /// that it is that which loses it.
    names: Mutex<()>,
}

/// A path as the kernel resolves it below the tree.
fn relative(path: &Path) -> &Path {
    let path = path.strip_prefix("/").unwrap_or(path);
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// Whether a file that could not be opened has lost its last name meanwhile: a call that creates files makes a new one.
pub(crate) fn has_no_name(file: &OwnedFd) -> bool {
    rustix::fs::fstat(file).is_ok_and(|stat| stat.st_nlink == 0)
}

impl Files {
    /// Opens a pool, whose heat counts its requests where the pool keeps heat. Where it is mounted on this machine, this takes a moment: until the mounts'
    /// kernels ask for everything anew.
    ///
    /// # Errors
    /// Those of [`Store::open`]; the namespace cannot be written.
    pub fn open(pool: Pool) -> Result<Arc<Self>> {
        // A user who may not change the heat, or a disk that has no room for it, keeps no program from its files.
        let door = with_heat(Door::default(), &pool).unwrap_or_default();
        Self::open_with(pool, PlaneOptions { door, ..PlaneOptions::default() })
    }

    /// As [`Files::open`], with the data plane opened by `options`.
    ///
    /// # Errors
    /// As [`Files::open`].
    pub fn open_with(pool: Pool, options: PlaneOptions) -> Result<Arc<Self>> {
        let store = Store::open_with(pool, options)?;
        let neighbours = Neighbours::join(&store)?;
        // What the mounts' kernels were told before they knew of us must not outlive our first change.
        neighbours.wait_for_others();
        Ok(Arc::new(Self { store, _neighbours: neighbours, opened: Mutex::default(), names: Mutex::default() }))
    }

    /// The pool's store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Opens below the tree, wherever `path` leads in it; EXDEV if that is outside.
    pub(crate) fn beneath(&self, path: &Path, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        // EAGAIN: a directory on the way was renamed, and the kernel could not tell whether that leads out.
        loop {
            match retry(|| rustix::fs::openat2(self.store.tree(), relative(path), flags, mode, resolve)) {
                Err(Errno::AGAIN) => {}
                done => return done,
            }
        }
    }

    /// The directory of a name, and the name.
    fn split<'a>(&self, path: &'a Path, action: &'static str) -> Result<(OwnedFd, &'a Path)> {
        let name = path.file_name().map(Path::new).ok_or_else(|| Error::io(action, path)(Errno::INVAL))?;
        let parent = path.parent().unwrap_or(Path::new(""));
        let parent = self.beneath(parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
        Ok((parent.map_err(Error::io(action, path))?, name))
    }

    /// Where a symbolic link points that leads to nothing.
    pub(crate) fn dangling(&self, path: &Path) -> Result<Option<PathBuf>> {
        match self.read_link(path) {
            Ok(target) if self.stat(path, true).is_err() => {
                Ok(Some(path.parent().unwrap_or(Path::new("")).join(target)))
            }
            Ok(_) => Ok(None),
            Err(error) if matches!(error.errno(), Errno::INVAL | Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// An operation on names: load of the metadata tier, as through a mount, until what is returned is dropped.
    ///
    /// # Errors
    /// The queue of an emulated tier cannot be used.
    pub(crate) fn serve_names(&self, op: Op) -> Result<ServedName<'_>> {
        self.store.plane().serve_names(op, 0)
    }

    /// Makes an empty file with its handle. It appears under its name only when it is complete.
    pub(crate) fn make(&self, path: &Path, mode: Mode) -> Result<OwnedFd> {
        let _served = self.serve_names(Op::Write)?;
        let (parent, name) = self.split(path, "create")?;
        let failed = |errno| Error::io("create", path)(errno);
        // Layouts go by the path that the directory has, whichever way led to it.
        let real = || {
            let tree = std::fs::read_link(proc_path(self.store.tree())).unwrap_or_default();
            let real = std::fs::read_link(proc_path(parent.as_fd())).unwrap_or_default();
            Ok(real.strip_prefix(&tree).unwrap_or(Path::new("")).join(name))
        };
        // A handle cannot be given to a file that its owner may not write.
        let writable = mode | Mode::RUSR | Mode::WUSR;
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let unnamed = retry(|| rustix::fs::openat(&parent, ".", flags | OFlags::TMPFILE, writable));
        let complete = |fd: &OwnedFd| {
            if let Some(look) = self.store.due_look() {
                look.take();
            }
            let hinted = Store::hints_in(parent.as_fd()).of_name(name.as_os_str().as_bytes());
            drop(self.store.create(fd.as_fd(), &hinted, real)?);
            if writable == mode {
                return Ok(());
            }
            let stat = rustix::fs::fstat(fd).map_err(failed)?;
            rustix::fs::fchmod(fd, Mode::from_raw_mode(stat.st_mode) & mode).map_err(failed)
        };
        match unnamed {
            Ok(fd) => {
                complete(&fd)?;
                let own = proc_path(fd.as_fd());
                let _names = guard(&self.names);
                rustix::fs::linkat(rustix::fs::CWD, &own, &parent, name, AtFlags::SYMLINK_FOLLOW).map_err(failed)?;
                // By its name: messages about the file are to have it.
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let named = rustix::fs::openat(&parent, name, flags, Mode::empty());
                let inode = |fd: &OwnedFd| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino)).ok();
                Ok(named.ok().filter(|named| inode(named) == inode(&fd)).unwrap_or(fd))
            }
            // File systems without unnamed files.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                let _names = guard(&self.names);
                let fd = retry(|| rustix::fs::openat(&parent, name, flags, writable)).map_err(failed)?;
                complete(&fd).inspect_err(|_| {
                    // Why it was not made is told; that its empty remains could not go adds nothing.
                    let _ = rustix::fs::unlinkat(&parent, name, AtFlags::empty());
                })?;
                Ok(fd)
            }
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Attributes of what `path` leads to (of a symbolic link itself, unless `follow`), with the size and time of a
    /// placed file.
    ///
    /// # Errors
    /// Those of `stat`.
    pub fn stat(&self, path: &Path, follow: bool) -> Result<Stat> {
        let _served = self.serve_names(Op::Read)?;
        let nofollow = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let fd = self.beneath(path, OFlags::PATH | nofollow, Mode::empty()).map_err(Error::io("read", path))?;
        self.stat_of(fd.as_fd())
    }

    pub(crate) fn stat_of(&self, fd: BorrowedFd<'_>) -> Result<Stat> {
        let mut stat = rustix::fs::fstat(fd).map_err(Error::io("read", proc_path(fd)))?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            self.store.attributes(fd, &stat, None)?.put_into(&mut stat);
        }
        Ok(stat)
    }

    /// The placed file at `path`; `None` for anything else.
    ///
    /// # Errors
    /// The path leads nowhere, or the handle is damaged.
    pub fn inode(&self, path: &Path) -> Result<Option<Arc<Inode>>> {
        let _served = self.serve_names(Op::Read)?;
        let fd = self.beneath(path, OFlags::PATH, Mode::empty()).map_err(Error::io("open", path))?;
        self.store.inode(fd.as_fd())
    }

    /// Names in a directory.
    ///
    /// # Errors
    /// Those of `open` and `readdir`.
    pub fn list(&self, path: &Path) -> Result<Vec<std::ffi::OsString>> {
        let _served = self.serve_names(Op::Read)?;
        use std::os::unix::ffi::OsStringExt as _;
        let failed = |errno| Error::io("read the directory", path)(errno);
        let fd = self.beneath(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).map_err(failed)?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&fd).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(std::ffi::OsString::from_vec(name));
            }
        }
        Ok(names)
    }

    /// Makes a directory, with the hints of the one that it is made in.
    ///
    /// # Errors
    /// Those of `mkdir`.
    pub fn make_directory(&self, path: &Path, mode: Mode) -> Result<()> {
        let _served = self.serve_names(Op::Write)?;
        let (parent, name) = self.split(path, "make the directory")?;
        rustix::fs::mkdirat(&parent, name, mode).map_err(Error::io("make the directory", path))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // The directory is made in any case, and another process may have removed it already.
        let _ = rustix::fs::openat(&parent, name, flags, Mode::empty())
            .and_then(|made| Store::hand_down_as_owner(parent.as_fd(), made.as_fd()));
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of `rmdir`.
    pub fn remove_directory(&self, path: &Path) -> Result<()> {
        let _served = self.serve_names(Op::Write)?;
        let (parent, name) = self.split(path, "remove the directory")?;
        rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR).map_err(Error::io("remove the directory", path))
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// Those of `symlink`.
    pub fn link_symbolically(&self, target: &Path, path: &Path) -> Result<()> {
        let _served = self.serve_names(Op::Write)?;
        let (parent, name) = self.split(path, "make the link")?;
        rustix::fs::symlinkat(target, parent, name).map_err(Error::io("make the link", path))
    }

    /// Where a symbolic link points.
    ///
    /// # Errors
    /// Those of `readlink`.
    pub fn read_link(&self, path: &Path) -> Result<PathBuf> {
        let _served = self.serve_names(Op::Read)?;
        use std::os::unix::ffi::OsStringExt as _;
        let (parent, name) = self.split(path, "read the link")?;
        let target = rustix::fs::readlinkat(parent, name, Vec::new()).map_err(Error::io("read the link", path))?;
        Ok(std::ffi::OsString::from_vec(target.into_bytes()).into())
    }

    /// Another name for a file.
    ///
    /// # Errors
    /// Those of `link`.
    pub fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let _served = self.serve_names(Op::Write)?;
        let (old, old_name) = self.split(from, "link")?;
        let (new, new_name) = self.split(to, "link")?;
        let _names = guard(&self.names);
        rustix::fs::linkat(old, old_name, new, new_name, AtFlags::empty()).map_err(Error::io("link", from))
    }

    /// Removes a name, and the datafiles if it was the last of a file that is not open.
    ///
    /// # Errors
    /// Those of `unlink`.
    pub fn unlink(&self, path: &Path) -> Result<()> {
        let _served = self.serve_names(Op::Write)?;
        let (parent, name) = self.split(path, "remove")?;
        let names = guard(&self.names);
        let file = self.named(&parent, name);
        rustix::fs::unlinkat(&parent, name, AtFlags::empty()).map_err(Error::io("remove", path))?;
        drop(names);
        self.collect(file, &parent)
    }

    /// Renames, and removes the datafiles of a file whose last name was replaced.
    ///
    /// # Errors
    /// Those of `renameat2`.
    pub fn rename(&self, from: &Path, to: &Path, flags: RenameFlags) -> Result<()> {
        let _served = self.serve_names(Op::Write)?;
        let (old, old_name) = self.split(from, "rename")?;
        let (new, new_name) = self.split(to, "rename")?;
        let names = guard(&self.names);
        let replaced = if flags.is_empty() { self.named(&new, new_name) } else { None };
        rustix::fs::renameat_with(&old, old_name, &new, new_name, flags).map_err(Error::io("rename", from))?;
        drop(names);
        self.collect(replaced, &new)
    }

    /// What has a name, to be collected when it has lost it.
    fn named(&self, parent: &OwnedFd, name: &Path) -> Option<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        retry(|| rustix::fs::openat(parent, name, flags, Mode::empty())).ok()
    }

    /// Removes the datafiles of `file`, which has lost a name in `directory`, if it was the last and it is not open
    /// here. The name must not come back with a power cut when they are gone: what has been written waits for the disk.
    fn collect(&self, file: Option<OwnedFd>, directory: &OwnedFd) -> Result<()> {
        let Some(file) = file else { return Ok(()) };
        let stat = rustix::fs::fstat(&file).map_err(Error::io("look at", "a removed file"))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(());
        }
        let Ok(Some(inode)) = self.store.inode(file.as_fd()) else { return Ok(()) };
        let is_open = guard(&self.opened).contains_key(&inode.key());
        if is_open || self.store.remains(file.as_fd(), stat.st_ino, Some(inode.handle()))?.is_some() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let names = rustix::fs::open(proc_path(directory.as_fd()), flags, Mode::empty());
            match names.and_then(rustix::fs::fsync) {
                // A user who may change a directory may not always read it: then the file says that it has no name.
                Err(Errno::ACCESS) => inode.sync_inode()?,
                synced => synced.map_err(Error::io("sync", "the directory of a removed file"))?,
            }
        }
        self.collect_unless_open(&inode)
    }

    /// As [`Store::collect`], unless this process has the file open. A mover that has it ends with its step, and leaves to this what it has
    /// made; one that is stopped is not waited for. One system call of a file that has a name.
    fn collect_unless_open(&self, inode: &Inode) -> Result<()> {
        if !inode.is_nameless() {
            return Ok(());
        }
        let began = Instant::now();
        loop {
            {
                // Under the lock: no thread opens it meanwhile.
                let opened = guard(&self.opened);
                if opened.contains_key(&inode.key()) || self.store.collect(inode)? != Collected::InUse {
                    return Ok(());
                }
            }
            // A user of a shared pool may hold the locks of a mover for ever.
            let is_moved = !self.store.plane().is_shared() && inode.is_moved()?;
            if began.elapsed() >= if is_moved { PATIENCE } else { PATIENCE_WITH_WRITER } {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Changes the permission bits, also those of the datafiles.
    ///
    /// # Errors
    /// Those of `chmod`, and of [`Inode::change_mode`].
    pub fn change_mode(&self, path: &Path, mode: Mode) -> Result<()> {
        let _served = self.serve_names(Op::Write)?;
        let fd = self.beneath(path, OFlags::PATH, Mode::empty()).map_err(Error::io("change the mode of", path))?;
        let set = |mode| rustix::fs::chmod(proc_path(fd.as_fd()), mode);
        let Some(inode) = self.regular(fd.as_fd())? else {
            return set(mode).map_err(Error::io("change the mode of", path));
        };
        let before = Mode::from_raw_mode(inode.stat()?.st_mode & 0o7777);
        inode.change_mode(Some(mode.as_raw_mode()), || set(mode), || set(before))
    }

    /// Sets access and modification time.
    ///
    /// # Errors
    /// Those of `utimensat`.
    pub fn set_times(&self, path: &Path, times: &Timestamps) -> Result<()> {
        let _served = self.serve_names(Op::Write)?;
        let fd = self.beneath(path, OFlags::PATH, Mode::empty()).map_err(Error::io("set the times of", path))?;
        match self.regular(fd.as_fd())? {
            Some(inode) => inode.set_times(times),
            None => rustix::fs::utimensat(rustix::fs::CWD, proc_path(fd.as_fd()), times, AtFlags::empty())
                .map_err(Error::io("set the times of", path)),
        }
    }

    /// The file behind `fd`; `None` where that is no regular file.
    fn regular(&self, fd: BorrowedFd<'_>) -> Result<Option<Arc<Inode>>> {
        let stat = rustix::fs::fstat(fd).map_err(Error::io("look at", proc_path(fd)))?;
        let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        is_regular.then(|| self.store.file(fd, false)).transpose()
    }

    /// One more open of a file that may have datafiles, which one without a handle has not.
    ///
    /// # Errors
    /// ENOENT: its last name has just gone, and with it perhaps its datafiles.
    pub(crate) fn note_open(&self, inode: &Inode) -> Result<()> {
        if !inode.has_handle() {
            return Ok(());
        }
        let mut opened = guard(&self.opened);
        if !opened.contains_key(&inode.key()) && inode.stat()?.st_nlink == 0 {
            return Err(inode.failed("open")(Errno::NOENT));
        }
        *opened.entry(inode.key()).or_default() += 1;
        Ok(())
    }

    /// One less; the last close of a file without a name removes its datafiles.
    pub(crate) fn note_close(&self, inode: &Inode) -> Result<()> {
        let mut opened = guard(&self.opened);
        let Some(count) = opened.get_mut(&inode.key()) else { return Ok(()) };
        *count -= 1;
        if *count > 0 {
            return Ok(());
        }
        opened.remove(&inode.key());
        drop(opened);
        // One without a name is opened by none meanwhile.
        self.collect_unless_open(inode)
    }
}
