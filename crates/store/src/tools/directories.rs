//! The directories of a tree during a walk. Few of them are open at a time, at any depth; the way down follows no link
//! and enters no other mount.
//!
//! A closed directory is opened again from the one below it when the walk leaves that, or else from the nearest open one
//! above it, and must be the same directory. So the number of descriptors does not grow with the depth, and each name
//! is kept once.

use crate::os::sync::{Mutex, guard};
use crate::os::sys::retry;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::process::Resource;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// Bytes of the longest path that is told whole: what the system takes in one call.
const MAX_TOLD_BYTES: usize = 4095;
/// Bytes of the beginning and of the end of a longer one that are told.
const TOLD_BYTES: usize = 1024;

const READ: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens `name` of `directory`: no link is followed, and nothing that is mounted there is touched (EXDEV).
pub(crate) fn open_inside(directory: impl AsFd, name: &OsStr, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // EAGAIN: a rename on the way; the name is asked for again.
    retry(|| match rustix::fs::openat2(&directory, name, flags, Mode::empty(), inside) {
        Err(Errno::AGAIN) => Err(Errno::INTR),
        done => done,
    })
}

/// Why something of a tree could not be reached, in words.
pub(crate) fn why(errno: Errno) -> String {
    match errno {
        Errno::XDEV => "another file system is mounted there: unmount it and run this again".into(),
        Errno::STALE => "it was moved or exchanged while it was read: run this again".into(),
        errno => errno.to_string(),
    }
}

/// The directories of one walk that are open, the top left out.
#[derive(Debug)]
struct Open {
    /// Of each list.
    most: usize,
    /// Where the walk is, in order of opening. Those that are gone count too, until it is their turn.
    near: Mutex<Order>,
    /// On long ways down, at distances from their ends that double: so that the next way down begins near its own end.
    far: Mutex<Order>,
}

type Order = VecDeque<Weak<Directory>>;

impl Open {
    /// Keeps `fd` of a directory, and closes the one that has been in the list for longest if they are too many.
    fn keep(&self, list: &Mutex<Order>, directory: &Arc<Directory>, fd: &Arc<OwnedFd>) {
        match &mut *guard(&directory.fd) {
            // Another thread was quicker.
            Some(_) => return,
            none => *none = Some(fd.clone()),
        }
        let mut order = guard(list);
        order.push_back(Arc::downgrade(directory));
        let first = if order.len() > self.most { order.pop_front() } else { None };
        drop(order);
        if let Some(first) = first.and_then(|first| first.upgrade()) {
            let closed = guard(&first.fd).take();
            drop(closed);
        }
    }

    fn keep_near(&self, directory: &Arc<Directory>, fd: &Arc<OwnedFd>) {
        self.keep(&self.near, directory, fd);
    }
}

/// A directory of a tree.
#[derive(Debug)]
pub(crate) struct Directory {
    /// `None` at the top, which stays open.
    above: Option<Arc<Directory>>,
    name: OsString,
    /// Device and inode.
    identity: (u64, u64),
    /// Levels below the top.
    depth: usize,
    path_bytes: usize,
    /// The last one on the way down whose path has at most [`TOLD_BYTES`]; `None` for one that is so itself.
    head: Option<Arc<Directory>>,
    fd: Mutex<Option<Arc<OwnedFd>>>,
    open: Arc<Open>,
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

impl Directory {
    /// The directory behind `fd`, opened for reading, as the top of a tree of which an eighth of the descriptors that
    /// this process may have is used, 256 at most.
    pub(crate) fn top(fd: OwnedFd) -> rustix::io::Result<Arc<Self>> {
        let limit = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self::top_with(fd, (limit / 8).clamp(8, 256) as usize)
    }

    fn top_with(fd: OwnedFd, most: usize) -> rustix::io::Result<Arc<Self>> {
        let stat = rustix::fs::fstat(&fd)?;
        Ok(Arc::new(Self {
            above: None,
            name: OsString::new(),
            identity: identity(&stat),
            depth: 0,
            path_bytes: 0,
            head: None,
            fd: Mutex::new(Some(Arc::new(fd))),
            open: Arc::new(Open { most: most / 2, near: Mutex::default(), far: Mutex::default() }),
        }))
    }

    /// Its directory `name`, opened for reading.
    ///
    /// # Errors
    /// Those of `openat2`; EXDEV where another file system begins or something is mounted.
    pub(crate) fn enter(self: &Arc<Self>, name: &OsStr) -> rustix::io::Result<Arc<Self>> {
        self.adopt(name, open_inside(&self.fd()?, name, READ)?)
    }

    /// As [`Directory::enter`] of one that is open.
    pub(crate) fn adopt(self: &Arc<Self>, name: &OsStr, fd: OwnedFd) -> rustix::io::Result<Arc<Self>> {
        let identity = identity(&rustix::fs::fstat(&fd)?);
        if identity.0 != self.identity.0 {
            return Err(Errno::XDEV);
        }
        let path_bytes = self.path_bytes + usize::from(self.above.is_some()) + name.len();
        let head = (path_bytes > TOLD_BYTES).then(|| self.head.clone().unwrap_or_else(|| self.clone()));
        let directory = Arc::new(Self {
            above: Some(self.clone()),
            name: name.to_owned(),
            identity,
            depth: self.depth + 1,
            path_bytes,
            head,
            fd: Mutex::default(),
            open: self.open.clone(),
        });
        self.open.keep_near(&directory, &Arc::new(fd));
        Ok(directory)
    }

    /// Its descriptor. No system call where it is open; else two for each level from the nearest one above that is.
    ///
    /// # Errors
    /// Those of `openat2`; ESTALE if another directory has its name by now.
    pub(crate) fn fd(self: &Arc<Self>) -> rustix::io::Result<Arc<OwnedFd>> {
        let mut closed: Vec<&Arc<Self>> = Vec::new();
        let mut at = self;
        let mut fd = loop {
            if let Some(fd) = &*guard(&at.fd) {
                break fd.clone();
            }
            closed.push(at);
            at = at.above.as_ref().expect("the top stays open");
        };
        while let Some(directory) = closed.pop() {
            let again = open_inside(&fd, &directory.name, READ).map_err(|errno| match errno {
                Errno::NOENT | Errno::NOTDIR | Errno::LOOP => Errno::STALE,
                errno => errno,
            })?;
            if identity(&rustix::fs::fstat(&again)?) != directory.identity {
                return Err(Errno::STALE);
            }
            fd = Arc::new(again);
            // A thread that goes up again needs the next ones above; a part, as other threads are elsewhere.
            if closed.len() <= self.open.most / 2 {
                self.open.keep_near(directory, &fd);
            } else if closed.len().is_power_of_two() {
                self.open.keep(&self.open.far, directory, &fd);
            }
        }
        Ok(fd)
    }

    /// Its descriptor, by that of a directory that was in it.
    fn open_from_below(&self, below: &OwnedFd) -> rustix::io::Result<Arc<OwnedFd>> {
        let same_mount = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let fd = retry(|| rustix::fs::openat2(below, "..", READ, Mode::empty(), same_mount))?;
        // The one below may have been moved, out of the tree even.
        if identity(&rustix::fs::fstat(&fd)?) == self.identity { Ok(Arc::new(fd)) } else { Err(Errno::STALE) }
    }

    /// Its path relative to the top. Of one that the system would not take, the beginning and the end.
    pub(crate) fn path(&self) -> PathBuf {
        let Some(head) = self.head.as_ref().filter(|_| self.path_bytes > MAX_TOLD_BYTES) else {
            return self.whole_path();
        };
        let (mut names, mut bytes, mut at) = (Vec::new(), 0, self);
        while let Some(above) = &at.above
            && bytes + at.name.len() < TOLD_BYTES
        {
            names.push(&*at.name);
            bytes += at.name.len() + 1;
            at = above;
        }
        let left_out = at.depth.saturating_sub(head.depth);
        let mut path = head.path().join(format!("...({left_out} directories)..."));
        path.extend(names.into_iter().rev().map(Path::new));
        path
    }

    /// Its path relative to the top, all of it, which the system may not take.
    pub(crate) fn whole_path(&self) -> PathBuf {
        let above = std::iter::successors(Some(self), |at| at.above.as_deref());
        let mut names: Vec<_> = above.map(|at| &*at.name).collect();
        // The top has no name.
        names.pop();
        names.into_iter().rev().collect()
    }

    /// Whether it is the top.
    pub(crate) fn is_top(&self) -> bool {
        self.above.is_none()
    }
}

impl Drop for Directory {
    /// Lets go of those above one after the other: a stack would not hold a call for each level. One that is used on is
    /// opened by the way up, if it is closed: a way up through the whole tree costs one system call a level.
    fn drop(&mut self) {
        let mut below = guard(&self.fd).take();
        let mut above = self.above.take();
        while let Some(directory) = above {
            let open = guard(&directory.fd).clone();
            below = open.or_else(|| below.and_then(|below| directory.open_from_below(&below).ok()));
            if let Some(fd) = &below
                && Arc::strong_count(&directory) > 1
            {
                directory.open.keep_near(&directory, fd);
            }
            above = Arc::into_inner(directory).and_then(|mut last| last.above.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> OwnedFd {
        rustix::fs::open(path, READ, Mode::empty()).unwrap()
    }

    /// The directory that many levels below `top`, made if it is not there.
    fn descend(top: &Arc<Directory>, name: &str, levels: usize) -> Vec<Arc<Directory>> {
        let mut all = vec![top.clone()];
        for _ in 0..levels {
            let above = all.last().unwrap();
            match rustix::fs::mkdirat(above.fd().unwrap(), name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => panic!("{errno}"),
            }
            all.push(above.enter(name.as_ref()).unwrap());
        }
        all
    }

    fn count_open(all: &[Arc<Directory>]) -> usize {
        all.iter().filter(|one| guard(&one.fd).is_some()).count()
    }

    #[test]
    fn a_few_are_open_and_each_of_the_others_is_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let top = Directory::top_with(open(directory.path()), 8).unwrap();
        let all = descend(&top, "d", 300);
        assert!(count_open(&all) <= 9, "{}", count_open(&all));
        for one in all.iter().rev().chain(&all) {
            assert_eq!(identity(&rustix::fs::fstat(one.fd().unwrap()).unwrap()), one.identity);
            assert!(count_open(&all) <= 9, "{}", count_open(&all));
        }
    }

    #[test]
    fn what_was_exchanged_meanwhile_is_not_entered() {
        let directory = tempfile::tempdir().unwrap();
        let top = Directory::top_with(open(directory.path()), 8).unwrap();
        let all = descend(&top, "d", 40);
        let place = directory.path().join("d");
        std::fs::rename(&place, directory.path().join("away")).unwrap();
        // 20 levels down nothing is open that was not exchanged.
        assert_eq!(all[20].fd().unwrap_err(), Errno::STALE);
        std::fs::create_dir(&place).unwrap();
        assert_eq!(all[20].fd().unwrap_err(), Errno::STALE);
        std::fs::remove_dir(&place).unwrap();
        std::os::unix::fs::symlink("away", &place).unwrap();
        assert_eq!(all[20].fd().unwrap_err(), Errno::STALE);
        assert!(matches!(top.enter("d".as_ref()).unwrap_err(), Errno::LOOP | Errno::NOTDIR));
    }

    #[test]
    fn a_path_that_the_system_takes_is_told_whole_and_a_longer_one_by_its_ends() {
        let directory = tempfile::tempdir().unwrap();
        let top = Directory::top_with(open(directory.path()), 8).unwrap();
        let name = "n".repeat(199);
        let all = descend(&top, &name, 60);
        assert_eq!(all[0].path(), Path::new(""));
        assert_eq!(all[20].path(), std::iter::repeat_n(&name, 20).collect::<PathBuf>());
        let ends = |count| std::iter::repeat_n(&name, count).collect::<PathBuf>();
        assert_eq!(all[60].path(), ends(5).join("...(50 directories)...").join(ends(5)));
        assert_eq!(all[60].whole_path(), ends(60));
    }

    #[test]
    fn a_hundred_thousand_levels_go_without_a_stack_of_calls() {
        let directory = tempfile::tempdir().unwrap();
        let mut at = Directory::top_with(open(directory.path()), 8).unwrap();
        for _ in 0..100_000 {
            at = at.adopt("d".as_ref(), open(directory.path())).unwrap();
        }
        assert!(at.path().as_os_str().len() < MAX_TOLD_BYTES);
    }
}
