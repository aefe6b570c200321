//! Requests that leave nothing in the page cache (`RWF_DONTCACHE`, Linux 6.14 on, by file system).
//!
//! The kernel moves the bytes through pages as ever, so that a request has no alignment and sees what others wrote, and drops the
//! pages that it had to make for it: after a read at once, after a write when they are on the disk, to which they go at once. Linux
//! 6.18 drops what was written over blocks of ext4 no sooner than it wants the memory: the disk's interrupt ends such a write, and
//! drops nothing.

use crate::os::sys::retry;
use rustix::fd::BorrowedFd;
use rustix::io::ReadWriteFlags;
use std::io::{IoSlice, IoSliceMut};

/// linux/fs.h
const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// Reads at `offset` into `bufs`.
///
/// # Errors
/// EOPNOTSUPP: the kernel, or the file system of `fd`, has no such requests. Those of `preadv`.
pub(crate) fn read(fd: BorrowedFd<'_>, bufs: &mut [IoSliceMut<'_>], offset: u64) -> rustix::io::Result<usize> {
    rustix::io::preadv2(fd, bufs, offset, DONTCACHE)
}

/// Writes `bufs` at `offset`.
///
/// # Errors
/// As [`read`], and those of `pwritev`.
pub(crate) fn write(fd: BorrowedFd<'_>, bufs: &[IoSlice<'_>], offset: u64) -> rustix::io::Result<usize> {
    rustix::io::pwritev2(fd, bufs, offset, DONTCACHE)
}

/// Whether the file system of `file`, which is open for reading, takes such requests. One system call.
pub(crate) fn is_taken(file: BorrowedFd<'_>) -> bool {
    let mut byte = [0];
    retry(|| read(file, &mut [IoSliceMut::new(&mut byte)], 0)).is_ok()
}
