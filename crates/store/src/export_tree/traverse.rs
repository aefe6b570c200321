//! Goes through the tree: makes directories, links and special files, and hands files with bytes to workers.

use super::destination::{STATE, make_directory, open_directory};
use super::{Export, attributes, copy, count, verify};
use crate::error::{Error, Result};
use crate::inode::guard;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Files that wait for a worker.
const MAX_WAITING: usize = 256;

/// A directory of the pool and the one that it becomes.
pub(super) struct Pair<'a> {
    export: &'a Export<'a>,
    pub(super) from: OwnedFd,
    pub(super) to: OwnedFd,
    /// Relative to the tree.
    pub(super) path: PathBuf,
    stat: Stat,
}

impl Drop for Pair<'_> {
    /// The last who needed the directory is done with it: nothing changes its times any more.
    fn drop(&mut self) {
        if self.export.options.verify_only || self.export.go_on().is_err() {
            return;
        }
        let mtime = attributes::times(&self.stat).last_modification;
        let done = attributes::copy(self.export, self.from.as_fd(), &self.stat, mtime, self.to.as_fd());
        if let Err(errno) = done {
            self.export.fail(&self.path, &format!("its attributes: {errno}"));
        }
    }
}

/// What has become of a file with several names.
enum Linked {
    UnderWay,
    Done,
    /// Why.
    Failed(String),
}

/// What has several names, by inode.
#[derive(Default)]
struct Links {
    known: Mutex<HashMap<u64, Linked>>,
    changed: Condvar,
}

type Job<'a> = (Arc<Pair<'a>>, OsString);

/// Adds up what is to be done, for the time that is left. Sizes are those of the inodes.
pub(super) fn measure(export: &Export<'_>) -> Result<()> {
    let tree = open_directory(export.store.tree(), ".".as_ref()).map_err(Error::io("open", "tree"))?;
    let linked = Mutex::new(std::collections::HashSet::new());
    let visit = |entry: &crate::walk::Entry<'_>| {
        if let Ok(stat) = entry.stat()
            && (stat.st_nlink == 1 || guard(&linked).insert(stat.st_ino))
        {
            export.total_bytes.fetch_add(stat.st_size as u64 * 2, Ordering::Relaxed);
        }
        export.advance(0).map(|()| true)
    };
    // What cannot be read fails when its turn comes.
    crate::walk::walk(&tree, 2, &visit, &|_, _| ())
}

/// Exports or compares everything.
pub(super) fn all(export: &Export<'_>) -> Result<()> {
    let threads = match export.options.threads {
        0 => std::thread::available_parallelism().map_or(2, |count| count.get() * 2).min(32),
        count => count,
    };
    let (sender, receiver) = sync_channel::<Job<'_>>(MAX_WAITING);
    let (receiver, links) = (Mutex::new(receiver), Links::default());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| work(export, &receiver, &links))).collect();
        let walked = walk(export, &sender, &links);
        drop(sender);
        let worked = workers
            .into_iter()
            .map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .fold(Ok(()), Result::and);
        walked.and(worked)
    })
}

/// Gives the directory itself what the tree's top has, once more: what the export kept there is gone now.
pub(super) fn finish_root(export: &Export<'_>) -> Result<()> {
    let failed = || Error::io("set the attributes of", "DEST");
    let from = open_directory(export.store.tree(), ".".as_ref()).map_err(failed())?;
    let stat = rustix::fs::fstat(&from).map_err(failed())?;
    let mtime = attributes::times(&stat).last_modification;
    attributes::copy(export, from.as_fd(), &stat, mtime, export.destination.root.as_fd()).map_err(failed())
}

/// Goes through the tree, depth first, with a directory's names read as they come: descriptors by depth.
fn walk<'a>(export: &'a Export<'a>, sender: &SyncSender<Job<'a>>, links: &Links) -> Result<()> {
    let from = open_directory(export.store.tree(), ".".as_ref()).map_err(Error::io("open", "tree"))?;
    let stat = rustix::fs::fstat(&from).map_err(Error::io("read", "tree"))?;
    let to = rustix::io::fcntl_dupfd_cloexec(&export.destination.root, 0).map_err(Error::io("open", "DEST"))?;
    let top = Arc::new(Pair { export, from, to, path: PathBuf::new(), stat });
    let mut stack = vec![(Dir::read_from(&top.from).map_err(Error::io("read", "tree"))?, top)];
    while let Some((entries, pair)) = stack.last_mut() {
        export.go_on()?;
        let Some(entry) = entries.next() else {
            stack.pop();
            continue;
        };
        let entry = match entry {
            Ok(entry) => entry,
            Err(errno) => {
                export.fail(&pair.path, &errno.to_string());
                stack.pop();
                continue;
            }
        };
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let pair = pair.clone();
        match one(export, &pair, name, sender, links) {
            Ok(Some(below)) => stack.push(below),
            Ok(None) => {}
            Err(error) => {
                ends_all(&error)?;
                export.fail(&pair.path.join(name), &error.to_string());
            }
        }
    }
    Ok(())
}

/// Whether an error is not that of one file: it is returned then.
fn ends_all(error: &Error) -> Result<()> {
    match error {
        Error::Io { action, path, errno }
            if matches!(*errno, Errno::NOSPC | Errno::DQUOT | Errno::ROFS | Errno::MFILE) =>
        {
            Err(Error::Io { action, path: path.clone(), errno: *errno })
        }
        _ => Ok(()),
    }
}

/// One name: made, given to a worker, or entered.
fn one<'a>(
    export: &'a Export<'a>,
    pair: &Arc<Pair<'a>>,
    name: &OsStr,
    sender: &SyncSender<Job<'a>>,
    links: &Links,
) -> Result<Option<(Dir, Arc<Pair<'a>>)>> {
    let path = || pair.path.join(name);
    if pair.path.as_os_str().is_empty() && name == STATE {
        return Err(Error::Invalid("the export itself needs this name: rename it".into()));
    }
    let stat = rustix::fs::statat(&pair.from, name, AtFlags::SYMLINK_NOFOLLOW).map_err(Error::io("read", path()))?;
    let verify = export.options.verify_only;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            // Workers go on until this end is dropped, or they all have failed and say why themselves.
            let _ = sender.send((pair.clone(), name.to_owned()));
            return Ok(None);
        }
        FileType::Directory => {
            let from = open_directory(&pair.from, name).map_err(Error::io("open", path()))?;
            let to = if verify { open_directory(&pair.to, name) } else { make_directory(&pair.to, name) };
            let to = to.map_err(Error::io(if verify { "find the copy of" } else { "make directory" }, path()))?;
            if verify {
                verify::attributes(export, from.as_fd(), &stat, to.as_fd())?;
            }
            let entries = Dir::read_from(&from).map_err(Error::io("read", path()))?;
            count(&export.counts.directories);
            return Ok(Some((entries, Arc::new(Pair { export, from, to, path: path(), stat }))));
        }
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(&pair.from, name, Vec::new()).map_err(Error::io("read", path()))?;
            if verify {
                verify::symlink(pair, name, &target, &stat)?;
                count(&export.counts.symlinks);
            } else {
                let make = |to: BorrowedFd<'_>, name: &OsStr| rustix::fs::symlinkat(&target, to, name);
                without_bytes(export, pair, name, &stat, links, &export.counts.symlinks, make)?;
            }
        }
        kind => {
            if verify {
                verify::special(pair, name, &stat)?;
                count(&export.counts.special_files);
            } else {
                let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
                let make = |to: BorrowedFd<'_>, name: &OsStr| rustix::fs::mknodat(to, name, kind, mode, stat.st_rdev);
                without_bytes(export, pair, name, &stat, links, &export.counts.special_files, make)?;
            }
        }
    }
    Ok(None)
}

/// Makes a symbolic link or a special file, or a further name of one that is made.
fn without_bytes(
    export: &Export<'_>,
    pair: &Pair<'_>,
    name: &OsStr,
    stat: &Stat,
    links: &Links,
    counter: &AtomicU64,
    make: impl Fn(BorrowedFd<'_>, &OsStr) -> rustix::io::Result<()>,
) -> Result<()> {
    let failed = || Error::io("make", pair.path.join(name));
    let first = |to: BorrowedFd<'_>, name: &OsStr| {
        remake(to, name, || make(to, name)).and_then(|()| attributes::copy_by_name(export, stat, to, name))
    };
    if stat.st_nlink == 1 {
        first(pair.to.as_fd(), name).map_err(failed())?;
        count(counter);
        return Ok(());
    }
    let (state, kept) = (export.destination.state(), kept_name(stat.st_ino));
    if links.begin(stat.st_ino)? {
        let done = first(state, &kept).map_err(failed());
        links.end(stat.st_ino, done.as_ref().map(drop).map_err(Error::to_string));
        done?;
        count(counter);
    } else {
        count(&export.counts.hard_links);
    }
    link_kept(state, &kept, pair, name)
}

/// What an inode with several names is called in the export's own directory, until all of them are made.
fn kept_name(inode: u64) -> OsString {
    format!("link-{inode}").into()
}

/// Gives what is kept a name of the copy.
fn link_kept(state: BorrowedFd<'_>, kept: &OsStr, pair: &Pair<'_>, name: &OsStr) -> Result<()> {
    remake(&pair.to, name, || rustix::fs::linkat(state, kept, &pair.to, name, AtFlags::empty()))
        .map_err(Error::io("make", pair.path.join(name)))
}

/// Makes a name anew: what a stopped export made there may be of a file that has changed since.
fn remake(to: impl AsFd, name: &OsStr, make: impl Fn() -> rustix::io::Result<()>) -> rustix::io::Result<()> {
    match make() {
        Err(Errno::EXIST) => rustix::fs::unlinkat(to, name, AtFlags::empty()).and_then(|()| make()),
        done => done,
    }
}

fn work<'a>(export: &Export<'a>, receiver: &Mutex<Receiver<Job<'a>>>, links: &Links) -> Result<()> {
    let mut ended = Ok(());
    loop {
        let job = guard(receiver).recv();
        let Ok((pair, name)) = job else { return ended };
        // After an end the rest is only taken out of the way of the one who sends.
        if ended.is_err() || export.go_on().is_err() {
            continue;
        }
        let path = pair.path.join(&name);
        if let Err(error) = regular(export, &pair, &name, links) {
            if export.go_on().is_err() {
                ended = Err(error);
            } else if let Err(fatal) = ends_all(&error) {
                export.stopped.store(true, Ordering::Relaxed);
                ended = Err(fatal);
            } else {
                export.fail(&path, &error.to_string());
            }
        }
    }
}

fn regular(export: &Export<'_>, pair: &Pair<'_>, name: &OsStr, links: &Links) -> Result<()> {
    if export.options.verify_only {
        return verify::file(export, pair, name);
    }
    let stat = rustix::fs::statat(&pair.from, name, AtFlags::SYMLINK_NOFOLLOW);
    let stat = stat.map_err(Error::io("read", pair.path.join(name)))?;
    if stat.st_nlink == 1 {
        return copy::file(export, pair, name, &pair.to, name);
    }
    let kept = kept_name(stat.st_ino);
    let state = export.destination.state();
    if links.begin(stat.st_ino)? {
        let done = copy::file(export, pair, name, state, &kept);
        links.end(stat.st_ino, done.as_ref().map(drop).map_err(Error::to_string));
        done?;
    } else {
        count(&export.counts.hard_links);
    }
    link_kept(state, &kept, pair, name)
}

impl Links {
    /// Whether this is the first name of the inode, whose bytes are to be copied. Otherwise waits until they are.
    fn begin(&self, inode: u64) -> Result<bool> {
        let mut known = guard(&self.known);
        loop {
            match known.get(&inode) {
                None => {
                    known.insert(inode, Linked::UnderWay);
                    return Ok(true);
                }
                Some(Linked::Done) => return Ok(false),
                Some(Linked::Failed(reason)) => return Err(Error::Invalid(reason.clone())),
                Some(Linked::UnderWay) => known = self.changed.wait(known).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn end(&self, inode: u64, done: Result<(), String>) {
        guard(&self.known).insert(inode, done.map_or_else(Linked::Failed, |()| Linked::Done));
        self.changed.notify_all();
    }
}
