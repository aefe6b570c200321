//! Walks a tree with several threads: every regular file is shown once for each of its names.

use crate::file::inode::Inode;
use crate::os::error::Result;
use crate::os::sync::{Condvar, Mutex, guard};
use crate::os::sys::retry;
use crate::pool::store::Store;
use crate::tools::directories::{Directory, open_inside};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

/// Files that are handed to a thread at a time.
const BATCH: usize = 256;
/// Batches that may wait; beyond them the thread that reads a directory looks at its files itself.
const MAX_WAITING: usize = 1024;

/// A regular file of the tree.
pub(crate) struct WalkedFile<'a> {
    directory: &'a Directory,
    fd: &'a OwnedFd,
    name: &'a OsStr,
}

impl WalkedFile<'_> {
    /// Opens it as a place only (O_PATH): its mode does not matter, and nothing happens to it.
    ///
    /// # Errors
    /// Those of `openat2`; EXDEV where something is mounted on it.
    pub(crate) fn open(&self) -> rustix::io::Result<OwnedFd> {
        open_inside(self.fd, self.name, OFlags::PATH)
    }

    /// Its size, times and numbers.
    ///
    /// # Errors
    /// Those of [`WalkedFile::open`].
    pub(crate) fn stat(&self) -> rustix::io::Result<Stat> {
        rustix::fs::fstat(self.open()?)
    }

    /// The directory that it was found in.
    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Its path relative to the tree, as [`Directory::path`] tells it.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join(self.name)
    }

    /// Its path relative to the tree, all of it, which the system may not take.
    fn whole_path(&self) -> PathBuf {
        self.directory.whole_path().join(self.name)
    }
}

impl Store {
    /// The placed files whose path relative to the tree `wanted` accepts, in order of their paths, however deep they
    /// are; and their paths, shortened where the system would not take them. What cannot be read is left out.
    ///
    /// # Errors
    /// A handle is damaged; the tree cannot be opened.
    pub fn find(self: &Arc<Self>, wanted: &(dyn Fn(&Path) -> bool + Sync)) -> Result<Vec<(PathBuf, Arc<Inode>)>> {
        let tree =
            rustix::io::fcntl_dupfd_cloexec(self.tree(), 0).map_err(crate::os::error::Error::io("open", "tree"))?;
        let found = Mutex::new(Vec::new());
        let visit = |entry: &WalkedFile<'_>| {
            if wanted(&entry.whole_path())
                && let Ok(fd) = entry.open()
                && let Some(inode) = self.inode(fd.as_fd())?
            {
                guard(&found).push((entry.path(), inode));
            }
            Ok(true)
        };
        walk(&tree, 1, &visit, &|_, _| ())?;
        let mut found = found.into_inner().unwrap_or_default();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(found)
    }
}

enum Work {
    Top(Arc<Directory>),
    Directory(Arc<Directory>, OsString),
    Files(Arc<Directory>, Vec<OsString>),
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Work>,
    busy: usize,
    stopped: bool,
}

struct Walk<'a> {
    queue: Mutex<Queue>,
    wake: Condvar,
    visit: &'a (dyn Fn(&WalkedFile<'_>) -> Result<bool> + Sync),
    unreadable: &'a (dyn Fn(&Path, Errno) + Sync),
}

/// The entries of directory `name` below `directory`, which is not followed if it is a symlink.
pub(crate) fn entries(directory: impl AsFd, name: &OsStr) -> rustix::io::Result<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Dir::new(retry(|| rustix::fs::openat(&directory, name, flags, Mode::empty()))?)
}

/// Shows every regular file below `tree` to `visit`, from `threads` threads; `false` from it, or an error, ends the
/// walk. `unreadable` is told what could not be read. Open descriptors: those of [`Directory::top`], and two a thread.
pub(crate) fn walk(
    tree: &OwnedFd,
    threads: usize,
    visit: &(dyn Fn(&WalkedFile<'_>) -> Result<bool> + Sync),
    unreadable: &(dyn Fn(&Path, Errno) + Sync),
) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = retry(|| rustix::fs::openat(tree, ".", flags, Mode::empty())).and_then(Directory::top);
    let top = top.map_err(crate::os::error::Error::io("open", "tree"))?;
    let queue = Queue { waiting: vec![Work::Top(top)], ..Queue::default() };
    let walk = Walk { queue: Mutex::new(queue), wake: Condvar::new(), visit, unreadable };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(|| walk.work())).collect();
        all.into_iter().try_for_each(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

impl Walk<'_> {
    /// What each thread does.
    fn work(&self) -> Result<()> {
        loop {
            let work = {
                let mut queue = guard(&self.queue);
                loop {
                    if queue.stopped {
                        return Ok(());
                    }
                    if let Some(work) = queue.waiting.pop() {
                        queue.busy += 1;
                        break work;
                    }
                    if queue.busy == 0 {
                        return Ok(());
                    }
                    queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
                }
            };
            let done = match work {
                Work::Top(directory) => self.read(&directory),
                Work::Directory(above, name) => self.enter(&above, &name),
                Work::Files(directory, names) => self.show(&directory, &names),
            };
            let mut queue = guard(&self.queue);
            queue.busy -= 1;
            queue.stopped |= !matches!(done, Ok(true));
            if queue.stopped || queue.busy == 0 {
                self.wake.notify_all();
            }
            done?;
        }
    }

    fn put(&self, work: Work) -> Option<Work> {
        let mut queue = guard(&self.queue);
        if queue.waiting.len() >= MAX_WAITING && matches!(work, Work::Files(..)) {
            return Some(work);
        }
        queue.waiting.push(work);
        self.wake.notify_one();
        None
    }

    fn enter(&self, above: &Arc<Directory>, name: &OsStr) -> Result<bool> {
        match above.enter(name) {
            Ok(directory) => self.read(&directory),
            // Removed, or exchanged for a file, since its name was read.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(true),
            Err(errno) => {
                (self.unreadable)(&above.path().join(name), errno);
                Ok(true)
            }
        }
    }

    fn read(&self, directory: &Arc<Directory>) -> Result<bool> {
        let opened = directory.fd().and_then(|fd| Dir::read_from(&*fd).map(|entries| (fd, entries)));
        let (fd, entries) = match opened {
            Ok(both) => both,
            Err(errno) => {
                (self.unreadable)(&directory.path(), errno);
                return Ok(true);
            }
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(errno) => {
                    (self.unreadable)(&directory.path(), errno);
                    break;
                }
            };
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let kind = match entry.file_type() {
                FileType::Unknown => rustix::fs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
                kind => kind,
            };
            match kind {
                FileType::Directory if name != "." && name != ".." => {
                    self.put(Work::Directory(directory.clone(), name.to_owned()));
                }
                FileType::RegularFile => names.push(name.to_owned()),
                _ => {}
            }
            if names.len() == BATCH && !self.hand_over(directory, std::mem::take(&mut names))? {
                return Ok(false);
            }
        }
        drop(fd);
        self.show(directory, &names)
    }

    fn hand_over(&self, directory: &Arc<Directory>, names: Vec<OsString>) -> Result<bool> {
        match self.put(Work::Files(directory.clone(), names)) {
            Some(Work::Files(_, names)) => self.show(directory, &names),
            _ => Ok(true),
        }
    }

    fn show(&self, directory: &Arc<Directory>, names: &[OsString]) -> Result<bool> {
        if names.is_empty() {
            return Ok(true);
        }
        let fd = match directory.fd() {
            Ok(fd) => fd,
            Err(errno) => {
                (self.unreadable)(&directory.path(), errno);
                return Ok(true);
            }
        };
        for name in names {
            if !(self.visit)(&WalkedFile { directory, fd: &fd, name })? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
