//! Descriptors that stay where they are while what is open under them changes.

use rustix::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::DupFlags;
use std::mem::ManuallyDrop;

/// Moves a descriptor to `floor` or above.
pub(crate) fn lift(fd: OwnedFd, floor: i32) -> rustix::io::Result<RawFd> {
    let raw = fd.into_raw_fd();
    if raw >= floor {
        return Ok(raw);
    }
    // SAFETY: `raw` was owned just now and is not closed before the last use of this borrow.
    let lifted = rustix::io::fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(raw) }, floor);
    close(raw);
    lifted.map(IntoRawFd::into_raw_fd)
}

/// Puts `fd` in the place of the open descriptor `old`, in one step for all threads.
pub(crate) fn replace(old: RawFd, fd: OwnedFd) -> rustix::io::Result<()> {
    // SAFETY: the caller's `old` is open and stays so; `ManuallyDrop` leaves closing it to its owner.
    let mut old = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(old) });
    let fd = fd.into_raw_fd();
    // SAFETY: `fd` was owned just now and is not closed before the last use of this borrow.
    let replaced = rustix::io::dup3(unsafe { BorrowedFd::borrow_raw(fd) }, &mut old, DupFlags::CLOEXEC);
    close(fd);
    replaced
}

/// Puts what can be neither read, written nor looked into in the place of the open descriptor `old`: EBADF and ENOTDIR from
/// now on. Whether that was done.
pub(crate) fn replace_by_nothing(old: RawFd) -> bool {
    let nothing = rustix::fs::open(c"/dev/null", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    nothing.and_then(|nothing| replace(old, nothing)).is_ok()
}

/// Closes a descriptor by the system call itself (an `OwnedFd` would go through `close` of libc).
pub(crate) fn close(fd: RawFd) {
    // SAFETY: callers own `fd` and do not use it again.
    unsafe { rustix::io::close(fd) };
}
