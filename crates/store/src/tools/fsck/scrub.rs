//! Reads every byte of every file from its disk, so that what a disk cannot give back is known while there still is a
//! backup.
//!
//! A thread for each server, and one for the namespace: all disks work at once, each on one file after the other. A walk of
//! the tree gives them their work, through queues of bounded length. What the kernel holds in memory is given up first, as
//! it would tell nothing of the disk. Holes are passed over.

use super::context::{CheckStep, Context};
use super::datafiles::open;
use super::finding::{CheckFinding, DamageKind};
use super::hold::{InodeHandle, Subject};
use crate::backend::Backend;
use crate::format::handle::Handle;
use crate::format::placement::{DatafileKey, Datafiles};
use crate::os::error::{Error, Result};
use crate::os::sync::{Mutex, guard};
use crate::os::sys::retry;
use crate::tools::stretches::Stretches;
use crate::tools::walk::{WalkedFile, walk};
use rustix::fd::OwnedFd;
use rustix::fs::{Advice, FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::collections::HashSet;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use stripewise_layout::MAX_OFFSET;

/// Bytes that are read at a time.
const CHUNK_BYTES: u64 = 1 << 20;
/// Bytes that are given up where a read fails: what file systems read at least.
const PAGE_BYTES: u64 = 4096;
/// Pages of one datafile that may fail before the rest of it is given up: each can take a disk seconds.
const MOST_BAD_PAGES: u32 = 256;
/// Files that wait for a server.
const QUEUE: usize = 64;

/// Where the bytes of a file stand that are to be read.
enum Place {
    /// In the inode itself, which is opened as a place only.
    Inode(Box<Subject>),
    /// In a datafile.
    Datafile(Arc<Shape>, u16),
}

/// A placed file.
struct Shape {
    path: PathBuf,
    logical: u64,
    datafiles: Datafiles,
}

/// Work for the servers, by number, and for the namespace, the last.
struct Queues(Vec<SyncSender<Place>>);

impl Queues {
    /// An error when whose work it is has ended, as the check was stopped.
    fn put(&self, index: usize, place: Place) -> Result<()> {
        let queue = self.0.get(index).ok_or_else(stopped)?;
        queue.send(place).map_err(|_| stopped())
    }
}

fn stopped() -> Error {
    Error::Invalid("the check was stopped".into())
}

/// Reads all files, if the options say so.
pub(super) fn read_all(context: &Context<'_>) -> Result<()> {
    if !context.options.scrub {
        return Ok(());
    }
    let servers = context.ground.servers.len();
    let (queues, works): (Vec<_>, Vec<_>) = (0..=servers).map(|_| sync_channel(QUEUE)).unzip();
    std::thread::scope(|scope| {
        let readers: Vec<_> =
            works.into_iter().map(|work: Receiver<Place>| scope.spawn(move || read_those(context, &work))).collect();
        let walked = give_out(context, Queues(queues));
        let mut all = Ok(());
        for reader in readers {
            all = all.and(reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        // Why a reader has ended says more than that its queue has.
        all.and(walked)
    })?;
    let read = context.read_bytes.load(Ordering::Relaxed);
    context.progress(CheckStep::Reading, read, Some(read))
}

/// Walks the tree and gives each file to those who have its bytes.
fn give_out(context: &Context<'_>, queues: Queues) -> Result<()> {
    let seen: Mutex<HashSet<u64>> = Mutex::default();
    let visit = |entry: &WalkedFile<'_>| {
        // What cannot be opened has been told.
        let Ok(fd) = entry.open() else { return Ok(true) };
        let subject = Subject::new(fd, entry.path())?;
        let is_new = subject.stat.st_nlink == 1 || guard(&seen).insert(subject.stat.st_ino);
        if is_new && FileType::from_raw_mode(subject.stat.st_mode) == FileType::RegularFile {
            give(context, &queues, subject)?;
        }
        Ok(true)
    };
    walk(&context.ground.tree, 1, &visit, &|_, _| ())
}

fn give(context: &Context<'_>, queues: &Queues, subject: Subject) -> Result<()> {
    if let Ok(InodeHandle::Handle(handle)) = subject.handle()
        && let Some(shape) = shape(context, &subject, &handle)
    {
        let shape = Arc::new(shape);
        for (index, datafile) in shape.datafiles.table.iter().enumerate() {
            if handle.present.contains(index) {
                queues.put(datafile.server.index(), Place::Datafile(shape.clone(), index as u16))?;
            }
        }
    }
    if subject.stat.st_blocks == 0 {
        return Ok(());
    }
    queues.put(context.ground.servers.len(), Place::Inode(Box::new(subject)))
}

/// What a file's handle says of its datafiles; `None` where that is not known, which has been told.
fn shape(context: &Context<'_>, subject: &Subject, handle: &Handle) -> Option<Shape> {
    let layout = context.ground.known_layouts.get(&handle.layout).ok()?;
    let datafiles = Datafiles::new(&layout, &handle.generations).ok()?;
    if handle.real != subject.stat.st_ino {
        return None;
    }
    Some(Shape { path: subject.path.clone(), logical: handle.logical, datafiles })
}

/// Reads what comes until there is no more.
fn read_those(context: &Context<'_>, work: &Receiver<Place>) -> Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES as usize];
    for place in work {
        context.go_on()?;
        match place {
            Place::Inode(subject) => read_inode(context, &subject, &mut buffer)?,
            Place::Datafile(shape, index) => read_datafile(context, &shape, index, &mut buffer)?,
        }
    }
    Ok(())
}

fn read_inode(context: &Context<'_>, subject: &Subject, buffer: &mut [u8]) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let bad = match retry(|| rustix::fs::open(subject.place(), flags, Mode::empty())) {
        Ok(fd) => read_through(context, &fd, buffer)?,
        Err(errno) => Bad { errno: Some(errno), ..Bad::default() },
    };
    let Some(errno) = bad.errno else { return Ok(()) };
    let mut lost = Stretches::default();
    bad.places.iter().for_each(|&(from, to)| lost.add(from, to));
    let what = match bad.places[..] {
        [] => format!("it cannot be opened: {errno}"),
        _ => format!("{} of the file cannot be read: {errno}{}", lost.words(), bad.rest()),
    };
    let finding = CheckFinding::new(DamageKind::UnreadableBytes, what, ACTION).of(&subject.path);
    context.left(finding.without(&lost));
    Ok(())
}

const ACTION: &str = "restore these bytes from a backup; ask the disk what is wrong with it (dmesg, smartctl)";

fn read_datafile(context: &Context<'_>, shape: &Shape, index: u16, buffer: &mut [u8]) -> Result<()> {
    let datafile = shape.datafiles.table[usize::from(index)];
    // That it is missing has been told.
    let Some(backend) = context.ground.server(datafile.server) else { return Ok(()) };
    let path = datafile.path(shape.logical);
    let bad = match open_regular(backend, datafile.key(shape.logical)) {
        Ok(Some(fd)) => read_through(context, &fd, buffer)?,
        // Gone, or no regular file: that has been told, or it has been removed or moved since.
        Ok(None) => return Ok(()),
        Err(error) => Bad { errno: Some(error.errno()), ..Bad::default() },
    };
    let Some(errno) = bad.errno else { return Ok(()) };
    let of = |place: &(u64, u64)| Stretches::of(&shape.datafiles, index, *place, MAX_OFFSET);
    let lost = Stretches::joined(bad.places.iter().map(of).collect());
    let what = match bad.places[..] {
        [] => format!("it cannot be opened: {errno}"),
        [(from, _), ..] => {
            format!("from byte {from} of it on, {} of the file cannot be read: {errno}{}", lost.words(), bad.rest())
        }
    };
    let finding = CheckFinding::new(DamageKind::UnreadableBytes, what, ACTION).of(&shape.path);
    let finding = finding.on(&context.ground.server_name(datafile.server)).object(path.as_str());
    context.left(finding.without(&lost));
    Ok(())
}

fn open_regular(backend: &dyn Backend, key: DatafileKey) -> Result<Option<OwnedFd>> {
    let fd = match open(backend, key) {
        Ok(fd) => fd,
        Err(error) if matches!(error.errno(), Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let stat = rustix::fs::fstat(&fd).map_err(Error::io("look at the datafile", key.path().as_str()))?;
    Ok((FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then_some(fd))
}

/// What could not be read.
#[derive(Default)]
struct Bad {
    /// Places in ascending order, as `(from, to)`.
    places: Vec<(u64, u64)>,
    /// Why, of the first.
    errno: Option<Errno>,
    /// From where on the rest was not tried.
    given_up: Option<u64>,
}

impl Bad {
    fn add(&mut self, from: u64, to: u64, errno: Errno) {
        self.errno.get_or_insert(errno);
        match self.places.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => self.places.push((from, to)),
        }
    }

    fn rest(&self) -> String {
        self.given_up.map_or_else(String::new, |at| format!("; from byte {at} of it on nothing was tried any more"))
    }
}

/// Reads an open file from its disk.
fn read_through(context: &Context<'_>, fd: &OwnedFd, buffer: &mut [u8]) -> Result<Bad> {
    let mut bad = Bad::default();
    let mut bad_pages = 0;
    // What stays in memory is only not read from the disk.
    let _ = rustix::fs::fadvise(fd, 0, None, Advice::DontNeed);
    let mut at = 0;
    'extents: while let Some((from, to)) = data_behind(fd, at) {
        at = from;
        while at < to {
            context.go_on()?;
            let wanted = (to - at).min(CHUNK_BYTES);
            match retry(|| rustix::io::pread(fd, &mut buffer[..wanted as usize], at)) {
                // It has become shorter.
                Ok(0) => break 'extents,
                Ok(count) => {
                    advance(context, count as u64)?;
                    let _ = rustix::fs::fadvise(fd, at, NonZeroU64::new(count as u64), Advice::DontNeed);
                    at += count as u64;
                }
                Err(errno) if wanted <= PAGE_BYTES => {
                    bad.add(at, at + wanted, errno);
                    bad_pages += 1;
                    at += wanted;
                }
                Err(_) => {
                    at = read_pages(context, fd, buffer, (at, at + wanted), &mut bad, &mut bad_pages)?;
                }
            }
            if bad_pages >= MOST_BAD_PAGES && at < to {
                bad.given_up = Some(at);
                break 'extents;
            }
        }
    }
    Ok(bad)
}

/// Reads `[from, to)`, in which a read has failed, page by page; returns how far it got.
fn read_pages(
    context: &Context<'_>,
    fd: &OwnedFd,
    buffer: &mut [u8],
    (from, to): (u64, u64),
    bad: &mut Bad,
    bad_pages: &mut u32,
) -> Result<u64> {
    let mut at = from;
    while at < to && *bad_pages < MOST_BAD_PAGES {
        context.go_on()?;
        let wanted = (PAGE_BYTES - at % PAGE_BYTES).min(to - at);
        match retry(|| rustix::io::pread(fd, &mut buffer[..wanted as usize], at)) {
            Ok(0) => return Ok(to),
            Ok(count) => {
                advance(context, count as u64)?;
                at += count as u64;
            }
            Err(errno) => {
                bad.add(at, at + wanted, errno);
                *bad_pages += 1;
                at += wanted;
            }
        }
    }
    Ok(at)
}

/// The next stretch with data, as `(from, to)`. What its file system does not know counts as data.
fn data_behind(fd: &OwnedFd, at: u64) -> Option<(u64, u64)> {
    let size = rustix::fs::fstat(fd).map_or(0, |stat| stat.st_size as u64);
    let from = match rustix::fs::seek(fd, SeekFrom::Data(at)) {
        Ok(from) => from,
        Err(Errno::NXIO) => return None,
        Err(_) => at,
    };
    let to = rustix::fs::seek(fd, SeekFrom::Hole(from)).unwrap_or(size);
    (from < to).then_some((from, to))
}

fn advance(context: &Context<'_>, bytes: u64) -> Result<()> {
    let done = context.read_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
    context.progress(CheckStep::Reading, done, Some(context.allocated_bytes.load(Ordering::Relaxed).max(done)))
}
