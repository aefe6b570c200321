//! Carries out operations through the store's own interface, in this process.

use crate::operation::{Answer, CaseOperation, Stat};
use rustix::fs::{FallocateFlags, FileType, Mode, OFlags, RenameFlags, SeekFrom, Timespec, Timestamps, UTIME_OMIT};
use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stripewise_store::{Error, File, Files, Pool};

/// A program that uses the store.
#[derive(Debug)]
pub struct Direct {
    files: Arc<Files>,
    directory: PathBuf,
    slots: HashMap<u8, Arc<File>>,
}

type Result = std::result::Result<Answer, i32>;

fn errno(error: Error) -> i32 {
    error.errno().raw_os_error()
}

fn done(_: ()) -> Answer {
    Answer::Done(0)
}

fn stat_answer(stat: rustix::fs::Stat) -> Answer {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => 'f',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        _ => '?',
    };
    let of_directory = |value: u64| if kind == 'd' { 0 } else { value };
    let ns = |seconds: i64, ns: i64| seconds * 1_000_000_000 + ns;
    Answer::Stat(Stat {
        kind,
        mode: stat.st_mode & 0o7777,
        links: of_directory(stat.st_nlink),
        size_bytes: of_directory(stat.st_size as u64),
        inode: stat.st_ino,
        atime_ns: ns(stat.st_atime, stat.st_atime_nsec as i64),
        mtime_ns: ns(stat.st_mtime, stat.st_mtime_nsec as i64),
        ctime_ns: ns(stat.st_ctime, stat.st_ctime_nsec as i64),
    })
}

/// Cuts `data` as a program's buffers do.
fn cut<'a>(mut data: &'a [u8], lens: &[usize]) -> Vec<IoSlice<'a>> {
    let buffer = |&len: &usize| {
        let (here, rest) = data.split_at(len);
        data = rest;
        IoSlice::new(here)
    };
    lens.iter().map(buffer).collect()
}

fn cut_mut<'a>(data: &'a mut [u8], lens: &[usize]) -> Vec<IoSliceMut<'a>> {
    let mut rest = data;
    let buffer = |&len: &usize| {
        let (here, after) = std::mem::take(&mut rest).split_at_mut(len);
        rest = after;
        IoSliceMut::new(here)
    };
    lens.iter().map(buffer).collect()
}

impl Direct {
    /// Opens a pool. Modes of new files are taken as they are given, in all of this process.
    ///
    /// # Errors
    /// The pool's.
    pub fn new(pool: Pool) -> stripewise_store::Result<Self> {
        rustix::process::umask(Mode::empty());
        Ok(Self { files: Files::open(pool)?, directory: PathBuf::new(), slots: HashMap::new() })
    }

    /// Closes everything and goes to a directory of the pool.
    pub fn enter(&mut self, directory: &str) {
        self.slots.clear();
        self.directory = directory.into();
    }

    /// Whether the store has the operation: maps are the kernel's, attributes and copies between files the mount's.
    pub fn has(operation: &CaseOperation) -> bool {
        !matches!(
            operation,
            CaseOperation::Map { .. }
                | CaseOperation::MapRead { .. }
                | CaseOperation::MapWrite { .. }
                | CaseOperation::Msync { .. }
                | CaseOperation::Unmap { .. }
                | CaseOperation::CopyRange { .. }
                | CaseOperation::SetXattr { .. }
                | CaseOperation::GetXattr { .. }
                | CaseOperation::ListXattr { .. }
                | CaseOperation::RemoveXattr { .. }
        )
    }

    /// Carries out one operation; `data` is what it writes.
    pub fn run(&mut self, operation: &CaseOperation, data: &[u8]) -> Answer {
        let ran = self.on_file(operation, data).unwrap_or_else(|| self.on_names(operation));
        ran.unwrap_or_else(Answer::Failed)
    }

    fn slot(&self, slot: u8) -> std::result::Result<&Arc<File>, i32> {
        self.slots.get(&slot).ok_or(libc::EBADF)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.directory.join(path)
    }

    fn read(&self, slot: u8, at: Option<i64>, lens: &[usize]) -> Result {
        let file = self.slot(slot)?;
        let mut data = vec![0xee; lens.iter().sum()];
        let mut bufs = cut_mut(&mut data, lens);
        let read = match at {
            Some(at) => file.read_at(&mut bufs, at as u64),
            None => file.read(&mut bufs),
        };
        data.truncate(read.map_err(errno)?);
        Ok(Answer::Bytes { data })
    }

    fn write(&self, slot: u8, at: Option<i64>, data: &[u8], lens: &[usize]) -> Result {
        let (file, bufs) = (self.slot(slot)?, cut(data, lens));
        let written = match at {
            Some(at) => file.write_at(&bufs, at as u64),
            None => file.write(&bufs),
        };
        written.map(|count| Answer::Done(count as i64)).map_err(errno)
    }

    fn on_file(&mut self, operation: &CaseOperation, data: &[u8]) -> Option<Result> {
        let ran = match *operation {
            CaseOperation::Open { slot, ref path, flags, mode } => {
                self.slots.remove(&slot);
                let flags = OFlags::from_bits_retain(flags as u32);
                match self.files.open_file(&self.path(path), flags, Mode::from_raw_mode(mode)) {
                    Ok(file) => {
                        self.slots.insert(slot, Arc::new(file));
                        Ok(Answer::Done(0))
                    }
                    Err(error) => Err(errno(error)),
                }
            }
            CaseOperation::Close { slot } => match self.slots.remove(&slot).map(Arc::try_unwrap) {
                Some(Ok(file)) => file.close().map(done).map_err(errno),
                // A duplicate has it open still.
                Some(Err(_)) => Ok(Answer::Done(0)),
                None => Err(libc::EBADF),
            },
            CaseOperation::Dup { from, to } => match self.slots.get(&from).cloned() {
                Some(file) => {
                    self.slots.insert(to, file);
                    Ok(Answer::Done(0))
                }
                None => Err(libc::EBADF),
            },
            CaseOperation::Read { slot, len } => self.read(slot, None, &[len]),
            CaseOperation::Pread { slot, at, len } => self.read(slot, Some(at), &[len]),
            CaseOperation::Readv { slot, at, ref lens } => self.read(slot, at, lens),
            CaseOperation::Write { slot, len, .. } => self.write(slot, None, data, &[len]),
            CaseOperation::Pwrite { slot, at, len, .. } => self.write(slot, Some(at), data, &[len]),
            CaseOperation::Writev { slot, at, ref lens, .. } => self.write(slot, at, data, lens),
            CaseOperation::Seek { slot, at, whence } => self.seek(slot, at, whence),
            CaseOperation::Ftruncate { slot, size } => {
                self.slot(slot).and_then(|file| file.truncate(size as u64).map(done).map_err(errno))
            }
            CaseOperation::Fallocate { slot, mode, at, len } => self.slot(slot).and_then(|file| {
                let mode = FallocateFlags::from_bits_retain(mode as u32);
                file.allocate(mode, at as u64, len as u64).map(done).map_err(errno)
            }),
            CaseOperation::Fsync { slot, data_only } => {
                self.slot(slot).and_then(|file| file.sync(data_only).map(done).map_err(errno))
            }
            CaseOperation::Fstat { slot } => {
                self.slot(slot).and_then(|file| file.stat().map(stat_answer).map_err(errno))
            }
            _ => return None,
        };
        Some(ran)
    }

    fn seek(&self, slot: u8, at: i64, whence: i32) -> Result {
        let file = self.slot(slot)?;
        let unsigned = |errno| u64::try_from(at).map_err(|_| errno);
        let to = match whence {
            libc::SEEK_SET => SeekFrom::Start(unsigned(libc::EINVAL)?),
            libc::SEEK_CUR => SeekFrom::Current(at),
            libc::SEEK_END => SeekFrom::End(at),
            libc::SEEK_DATA => SeekFrom::Data(unsigned(libc::ENXIO)?),
            _ => SeekFrom::Hole(unsigned(libc::ENXIO)?),
        };
        file.seek(to).map(|at| Answer::Done(at as i64)).map_err(errno)
    }

    fn on_names(&self, operation: &CaseOperation) -> Result {
        let files = &self.files;
        let ran = match operation {
            CaseOperation::Truncate { path, size } => files
                .open_file(&self.path(path), OFlags::WRONLY, Mode::empty())
                .and_then(|file| file.truncate(*size as u64).and_then(|()| file.close()))
                .map(done),
            CaseOperation::Stat { path, follow } => files.stat(&self.path(path), *follow).map(stat_answer),
            CaseOperation::Rename { from, to, flags } => {
                files.rename(&self.path(from), &self.path(to), RenameFlags::from_bits_retain(*flags)).map(done)
            }
            CaseOperation::Link { from, to } => files.link(&self.path(from), &self.path(to)).map(done),
            CaseOperation::Unlink { path } => files.unlink(&self.path(path)).map(done),
            CaseOperation::Mkdir { path } => {
                files.make_directory(&self.path(path), Mode::from_raw_mode(0o755)).map(done)
            }
            CaseOperation::Rmdir { path } => files.remove_directory(&self.path(path)).map(done),
            CaseOperation::List { path } => files.list(&self.path(path)).map(|mut names| {
                names.sort_unstable();
                Answer::Names(names.iter().map(|name| name.to_string_lossy().into_owned()).collect())
            }),
            CaseOperation::Symlink { target, path } => {
                files.link_symbolically(Path::new(target), &self.path(path)).map(done)
            }
            CaseOperation::Readlink { path } => files.read_link(&self.path(path)).map(|target| {
                let data = target.into_os_string().into_encoded_bytes();
                Answer::Bytes { data }
            }),
            CaseOperation::Chmod { path, mode } => {
                files.change_mode(&self.path(path), Mode::from_raw_mode(*mode)).map(done)
            }
            CaseOperation::SetTimes { path, atime_ns, mtime_ns } => {
                let time = |ns: Option<i64>| match ns {
                    Some(ns) => {
                        Timespec { tv_sec: ns.div_euclid(1_000_000_000), tv_nsec: ns.rem_euclid(1_000_000_000) }
                    }
                    None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
                };
                let times = Timestamps { last_access: time(*atime_ns), last_modification: time(*mtime_ns) };
                files.set_times(&self.path(path), &times).map(done)
            }
            _ => unreachable!("the store has not got {operation:?}"),
        };
        ran.map_err(errno)
    }
}
