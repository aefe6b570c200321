//! Walks a tree with several threads: every regular file is shown once for each of its names.

use crate::error::Result;
use crate::inode::guard;
use crate::sys::retry;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Files that are handed to a thread at a time.
const BATCH: usize = 256;
/// Batches that may wait; beyond them the thread that reads a directory looks at its files itself.
const MAX_WAITING: usize = 1024;

/// A directory of the tree.
pub(crate) struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

/// A regular file of the tree.
pub(crate) struct Entry<'a> {
    directory: &'a Directory,
    name: &'a OsStr,
}

impl Entry<'_> {
    /// Opens it as a place only (O_PATH): its mode does not matter, and nothing happens to it.
    pub(crate) fn open(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        retry(|| rustix::fs::openat(&self.directory.fd, self.name, flags, Mode::empty()))
    }

    /// Its size, times and numbers.
    pub(crate) fn stat(&self) -> rustix::io::Result<Stat> {
        rustix::fs::statat(&self.directory.fd, self.name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Its path relative to the tree.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path.join(self.name)
    }
}

enum Work {
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
    visit: &'a (dyn Fn(&Entry<'_>) -> Result<bool> + Sync),
    unreadable: &'a (dyn Fn(&Path, Errno) + Sync),
}

/// The entries of directory `name` below `directory`, which is not followed if it is a symlink.
pub(crate) fn entries(directory: impl AsFd, name: &OsStr) -> rustix::io::Result<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Dir::new(retry(|| rustix::fs::openat(&directory, name, flags, Mode::empty()))?)
}

/// Shows every regular file below `tree` to `visit`, from `threads` threads; `false` from it, or an error, ends the
/// walk. `unreadable` is told what could not be read. Open descriptors: at most one per level and thread.
pub(crate) fn walk(
    tree: &OwnedFd,
    threads: usize,
    visit: &(dyn Fn(&Entry<'_>) -> Result<bool> + Sync),
    unreadable: &(dyn Fn(&Path, Errno) + Sync),
) -> Result<()> {
    let top = match rustix::io::fcntl_dupfd_cloexec(tree, 0) {
        Ok(fd) => Arc::new(Directory { fd, path: PathBuf::new() }),
        Err(errno) => return Err(crate::error::Error::io("open", "tree")(errno)),
    };
    let queue = Queue { waiting: vec![Work::Directory(top, ".".into())], ..Queue::default() };
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
                Work::Directory(above, name) => self.read(&above, &name),
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

    fn read(&self, above: &Directory, name: &OsStr) -> Result<bool> {
        let path = if name == "." { above.path.clone() } else { above.path.join(name) };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = retry(|| rustix::fs::openat(&above.fd, name, flags, Mode::empty()));
        let entries = opened.and_then(|fd| Dir::read_from(&fd).map(|entries| (fd, entries)));
        let (fd, entries) = match entries {
            Ok(both) => both,
            // Removed, or exchanged for a file, since its name was read.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(true),
            Err(errno) => {
                (self.unreadable)(&path, errno);
                return Ok(true);
            }
        };
        let directory = Arc::new(Directory { fd, path });
        let mut names = Vec::new();
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(errno) => {
                    (self.unreadable)(&directory.path, errno);
                    break;
                }
            };
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let kind = match entry.file_type() {
                FileType::Unknown => rustix::fs::statat(&directory.fd, name, AtFlags::SYMLINK_NOFOLLOW)
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
            if names.len() == BATCH && !self.hand_over(&directory, std::mem::take(&mut names))? {
                return Ok(false);
            }
        }
        self.show(&directory, &names)
    }

    fn hand_over(&self, directory: &Arc<Directory>, names: Vec<OsString>) -> Result<bool> {
        match self.put(Work::Files(directory.clone(), names)) {
            Some(Work::Files(_, names)) => self.show(directory, &names),
            _ => Ok(true),
        }
    }

    fn show(&self, directory: &Directory, names: &[OsString]) -> Result<bool> {
        for name in names {
            if !(self.visit)(&Entry { directory, name })? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
