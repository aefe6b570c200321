//! Descriptors by their numbers.

use rustix::fd::BorrowedFd;
use rustix::fs::{Mode, OFlags, RawDir};
use std::ffi::c_int;
use std::mem::MaybeUninit;

/// A descriptor that the program holds.
///
/// Only for calls made while the program's own call on it runs: if the program closes it meanwhile, those calls fail
/// or reach what the program put in its place, as its own would.
#[inline]
pub(crate) fn borrow<'a>(fd: c_int) -> BorrowedFd<'a> {
    debug_assert!(fd >= 0);
    // SAFETY: callers pass numbers that are not -1; that it is open is the program's concern, and the kernel answers
    // EBADF when it is not.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Calls `with` for each open descriptor.
pub(crate) fn for_each_open(mut with: impl FnMut(c_int)) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::open(c"/proc/self/fd", flags, Mode::empty()) else { return };
    let own = rustix::fd::IntoRawFd::into_raw_fd(directory);
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut listing = RawDir::new(borrow(own), &mut buffer);
    while let Some(Ok(entry)) = listing.next() {
        let number = entry.file_name().to_str().ok().and_then(|name| name.parse::<c_int>().ok());
        if let Some(fd) = number.filter(|&fd| fd != own) {
            with(fd);
        }
    }
    // SAFETY: opened above, not used any more. (An owned descriptor would be closed through our own `close`.)
    unsafe { rustix::io::close(own) };
}
