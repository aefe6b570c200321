//! Locks of single bytes of a file, waited for without keeping the others from going on.

use crate::system_calls::switch;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

#[path = "../../../store/src/os/byte_lock.rs"]
mod real;

/// As the store's own. All threads of an execution are one of the system, which must not wait in the kernel for what
/// another of them holds.
pub(crate) fn lock_byte(file: BorrowedFd<'_>, byte: i64, kind: libc::c_int, wait: bool) -> rustix::io::Result<()> {
    switch();
    loop {
        match real::lock_byte(file, byte, kind, false) {
            Err(Errno::AGAIN | Errno::ACCESS) if wait => shuttle::thread::yield_now(),
            done => return done,
        }
    }
}
