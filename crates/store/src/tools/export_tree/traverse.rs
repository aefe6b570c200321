//! Goes through the tree: makes directories, links and special files, and hands files with bytes to workers.

use super::destination::{STATE, make_directory, open_directory};
use super::pair::{Pair, failure};
use super::run::{Export, count};
use super::source::ExportedFile;
use super::{attributes, copy, verify};
use crate::os::error::{Error, Result};
use crate::os::sync::{Condvar, Mutex, guard};
use crate::tools::directories::{Directory, open_inside};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError};

/// Files that wait for a worker.
const MAX_WAITING: usize = 256;

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
    let visit = |entry: &crate::tools::walk::WalkedFile<'_>| {
        if let Ok(stat) = entry.stat()
            && (stat.st_nlink == 1 || guard(&linked).insert(stat.st_ino))
        {
            export.total_bytes.fetch_add(stat.st_size as u64 * 2, Ordering::Relaxed);
        }
        export.advance(0).map(|()| true)
    };
    // What cannot be read fails when its turn comes.
    crate::tools::walk::walk(&tree, 2, &visit, &|_, _| ())
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

/// Directories that are entered, with those of their names that are directories and still to be entered.
type Way<'a> = Vec<(Arc<Pair<'a>>, std::vec::IntoIter<OsString>)>;

/// Goes through the tree, depth first. Descriptors: those of two [`Directory::top`], and of the workers.
fn walk<'a>(export: &'a Export<'a>, sender: &SyncSender<Job<'a>>, links: &Links) -> Result<()> {
    let from = open_directory(export.store.tree(), ".".as_ref()).map_err(Error::io("open", "tree"))?;
    let stat = rustix::fs::fstat(&from).map_err(Error::io("read", "tree"))?;
    let from = Directory::top(from).map_err(Error::io("open", "tree"))?;
    let to = rustix::io::fcntl_dupfd_cloexec(&export.destination.root, 0).and_then(Directory::top);
    let to = to.map_err(Error::io("open", "DEST"))?;
    let top = Arc::new(Pair { export, above: None, from, to, way: [0; 32], stat });
    let directories = read(&top, sender, links)?;
    let mut way: Way<'_> = vec![(top, directories)];
    while let Some((pair, directories)) = way.last_mut() {
        export.go_on()?;
        let Some(name) = directories.next() else {
            way.pop();
            continue;
        };
        let pair = pair.clone();
        match enter(&pair, &name) {
            Ok(below) => {
                let directories = read(&below, sender, links)?;
                way.push((below, directories));
            }
            Err(error) => {
                ends_all(&error)?;
                export.fail(&pair.path().join(name), &error.to_string());
            }
        }
    }
    Ok(())
}

/// Reads a directory: makes what has no bytes, hands files to the workers, and returns the directories in it.
fn read<'a>(pair: &Arc<Pair<'a>>, sender: &SyncSender<Job<'a>>, links: &Links) -> Result<std::vec::IntoIter<OsString>> {
    let export = pair.export;
    let mut directories = Vec::new();
    let opened = pair.from.fd().and_then(|from| Dir::read_from(&*from).map(|entries| (from, entries)));
    let (from, entries) = match opened {
        Ok(both) => both,
        Err(errno) => {
            let error = failure("read", &pair.path(), errno);
            ends_all(&error)?;
            export.fail(&pair.path(), &error.to_string());
            return Ok(directories.into_iter());
        }
    };
    for entry in entries {
        export.go_on()?;
        let entry = match entry {
            Ok(entry) => entry,
            Err(errno) => {
                export.fail(&pair.path(), &errno.to_string());
                break;
            }
        };
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let done = match entry.file_type() {
            _ if pair.from.is_top() && name == STATE => {
                Err(Error::Invalid("the export itself needs this name: rename it".into()))
            }
            FileType::RegularFile => {
                // Workers go on until this end is dropped, or they all have failed and say why themselves.
                let _ = sender.send((pair.clone(), name.to_owned()));
                Ok(())
            }
            FileType::Directory => {
                directories.push(name.to_owned());
                Ok(())
            }
            _ => other(pair, &from, name, links).map(|kind| match kind {
                FileType::RegularFile => drop(sender.send((pair.clone(), name.to_owned()))),
                FileType::Directory => directories.push(name.to_owned()),
                _ => {}
            }),
        };
        if let Err(error) = done {
            ends_all(&error)?;
            export.fail(&pair.path().join(name), &error.to_string());
        }
    }
    Ok(directories.into_iter())
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

/// Enters a directory, and makes its copy or compares what that has.
fn enter<'a>(pair: &Arc<Pair<'a>>, name: &OsStr) -> Result<Arc<Pair<'a>>> {
    let export = pair.export;
    let from = pair.from.enter(name).map_err(pair.failed("open", name))?;
    let opened = from.fd().map_err(pair.failed("open", name))?;
    let stat = rustix::fs::fstat(&opened).map_err(pair.failed("read", name))?;
    let verify = export.options.verify_only;
    let to = pair.to()?;
    let to = if verify { open_directory(&to, name) } else { make_directory(&to, name) };
    let to = to.map_err(pair.failed(if verify { "find the copy of" } else { "make directory" }, name))?;
    if verify {
        verify::attributes(export, opened.as_fd(), &stat, to.as_fd())?;
    }
    let to = pair.to.adopt(name, to).map_err(pair.failed("make directory", name))?;
    count(&export.counts.directories);
    let way = *blake3::Hasher::new().update(&pair.way).update(name.as_bytes()).finalize().as_bytes();
    Ok(Arc::new(Pair { export, above: Some(pair.clone()), from, to, way, stat }))
}

/// Makes what is neither a file nor a directory, or compares its copy; says what it is.
fn other(pair: &Arc<Pair<'_>>, from: &OwnedFd, name: &OsStr, links: &Links) -> Result<FileType> {
    let export = pair.export;
    let place = open_inside(from, name, OFlags::PATH).map_err(pair.failed("open", name))?;
    let stat = rustix::fs::fstat(&place).map_err(pair.failed("read", name))?;
    let verify = export.options.verify_only;
    let kind = FileType::from_raw_mode(stat.st_mode);
    match kind {
        FileType::RegularFile | FileType::Directory => {}
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(&place, "", Vec::new()).map_err(pair.failed("read", name))?;
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
    Ok(kind)
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
    let first = |to: BorrowedFd<'_>, name: &OsStr| {
        remake(to, name, || make(to, name)).and_then(|()| attributes::copy_by_name(export, stat, to, name))
    };
    if stat.st_nlink == 1 {
        first(pair.to()?.as_fd(), name).map_err(pair.failed("make", name))?;
        count(counter);
        return Ok(());
    }
    let (state, kept) = (export.destination.state(), kept_name(stat.st_ino));
    if links.begin(stat.st_ino)? {
        let done = first(state, &kept).map_err(pair.failed("make", name));
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
    let to = pair.to()?;
    remake(&to, name, || rustix::fs::linkat(state, kept, &to, name, AtFlags::empty()))
        .map_err(pair.failed("make", name))
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
        if let Err(error) = regular(export, &pair, &name, links) {
            if export.go_on().is_err() {
                ended = Err(error);
            } else if let Err(fatal) = ends_all(&error) {
                export.stopped.store(true, Ordering::Relaxed);
                ended = Err(fatal);
            } else {
                export.fail(&pair.path().join(&name), &error.to_string());
            }
        }
    }
}

fn regular(export: &Export<'_>, pair: &Pair<'_>, name: &OsStr, links: &Links) -> Result<()> {
    if export.options.verify_only {
        return verify::file(export, pair, name);
    }
    let source = ExportedFile::open(pair, name)?;
    if source.stat.st_nlink == 1 {
        return copy::file(pair, source, name, &*pair.to()?, name);
    }
    let inode = source.stat.st_ino;
    let kept = kept_name(inode);
    let state = export.destination.state();
    if links.begin(inode)? {
        let done = copy::file(pair, source, name, state, &kept);
        links.end(inode, done.as_ref().map(drop).map_err(Error::to_string));
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
