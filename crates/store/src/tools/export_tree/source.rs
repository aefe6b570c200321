//! A file of the pool that is exported, open for reading.

use super::journal::ExportKey;
use super::pair::Pair;
use crate::file::open_inode::OpenInode;
use crate::file::writers::Attributes;
use crate::os::error::{Error, Result};
use crate::os::sys::retry;
use crate::tools::directories::open_inside;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, OFlags, Stat, Timespec};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::IoSliceMut;
use std::os::unix::ffi::OsStrExt as _;
use stripewise_control::{Sender, Way};

/// Who sends the requests of an export.
const EXPORTER: Sender = Sender::this_process(Way::Exporter);

/// A file of the pool, open for reading.
pub(super) struct ExportedFile {
    place: OwnedFd,
    pub(super) stat: Stat,
    pub(super) size_bytes: u64,
    pub(super) mtime: Timespec,
    open: OpenInode,
}

impl ExportedFile {
    /// Opens file `name` of the directory of the pool.
    pub(super) fn open(pair: &Pair<'_>, name: &OsStr) -> Result<Self> {
        let place = open_inside(&*pair.from()?, name, OFlags::PATH).map_err(pair.failed("open", name))?;
        let stat = rustix::fs::fstat(&place).map_err(pair.failed("read the attributes of", name))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Error::Invalid("it was exchanged for what is no file: export again".into()));
        }
        let inode = pair.export.store.file(place.as_fd(), false)?;
        let Attributes { size_bytes, mtime, .. } = inode.attributes()?;
        Ok(Self { place, stat, size_bytes, mtime, open: OpenInode::new(inode, false, false) })
    }

    /// Reads at `offset`; fewer bytes than asked for only at the end.
    pub(super) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        // It gives what stands before a server that is missing, and only then says so.
        while done < buffer.len() {
            match self.open.read_at(EXPORTER, &mut [IoSliceMut::new(&mut buffer[done..])], offset + done as u64)? {
                0 => break,
                count => done += count,
            }
        }
        Ok(done)
    }

    /// Where the next byte that is no hole may be, from `offset` on; the size if there is none.
    pub(super) fn next_data(&self, offset: u64) -> u64 {
        let found = match self.open.inode().seek_data(offset) {
            Ok(data) => data,
            Err(error) if error.errno() == Errno::NXIO => self.size_bytes,
            // Reading says what is wrong.
            Err(_) => offset,
        };
        found.min(self.size_bytes)
    }

    /// Whether its size and time are what they were when it was opened.
    pub(super) fn is_unchanged(&self) -> Result<bool> {
        let now = self.open.inode().attributes()?;
        Ok((now.size_bytes, now.mtime) == (self.size_bytes, self.mtime))
    }

    /// The inode itself, for its attributes.
    pub(super) fn place(&self) -> rustix::fd::BorrowedFd<'_> {
        self.place.as_fd()
    }
}

/// Reads as much as there is.
pub(super) fn read_full(fd: &OwnedFd, buffer: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match retry(|| rustix::io::pread(fd, &mut buffer[done..], offset + done as u64))? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

/// Whether a copy has the size and the time of its source.
pub(super) fn is_of(stat: &Stat, source: &ExportedFile) -> bool {
    let mtime = Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ };
    stat.st_size as u64 == source.size_bytes && mtime == source.mtime
}

/// The key of a file that becomes `name`, of the directory whose names have the hash `way`: another one when it has changed
/// since.
pub(super) fn key(name: &OsStr, way: &[u8; 32], source: &ExportedFile) -> ExportKey {
    let (stat, mtime) = (&source.stat, source.mtime);
    let numbers = [stat.st_ino, source.size_bytes, mtime.tv_sec as u64, mtime.tv_nsec as u64, u64::from(stat.st_mode)];
    let mut hasher = blake3::Hasher::new();
    for number in numbers {
        hasher.update(&number.to_le_bytes());
    }
    if stat.st_nlink == 1 {
        hasher.update(way).update(name.as_bytes());
    }
    let mut key = [0; 16];
    key.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    key
}
