//! Bytes of an open file on their way from the kernel's memory to the disk.

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::{Errno, Result};

/// `sync_file_range`, by the kernel itself: the C library's may be one that the preload library records as the program's call.
fn sync_range(fd: BorrowedFd<'_>, offset: i64, len: i64, flags: libc::c_uint) -> Result<()> {
    // SAFETY: no memory is passed.
    match unsafe { libc::syscall(libc::SYS_sync_file_range, fd.as_raw_fd(), offset, len, flags) } {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(()),
    }
}

/// Has the kernel begin to write back what it has of the file. One system call; what fails then is told by the sync that follows.
pub(crate) fn begin(fd: BorrowedFd<'_>) {
    let _ = sync_range(fd, 0, 0, libc::SYNC_FILE_RANGE_WRITE);
}

/// Whether the kernel could not write back what was written to an open file, and `fd` has not told that yet; no sync tells it by `fd` from
/// now on. One system call, which writes nothing and waits for nothing.
pub(crate) fn has_lost(fd: BorrowedFd<'_>) -> bool {
    /// No page is there.
    const BEHIND_ALL: i64 = 1 << 62;
    let asked = sync_range(fd, BEHIND_ALL, 1, libc::SYNC_FILE_RANGE_WAIT_BEFORE);
    matches!(asked, Err(Errno::IO | Errno::NOSPC | Errno::DQUOT | Errno::ROFS))
}
