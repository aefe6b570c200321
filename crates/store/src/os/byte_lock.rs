//! Locks of single bytes of a file, by which processes exclude one another.

use crate::os::sys::retry;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;

/// Takes (`F_RDLCK`, `F_WRLCK`) or gives back (`F_UNLCK`) the lock of one byte of an open file, for its open file
/// description; `wait`: until it can be had, otherwise EAGAIN. An own lock of another kind is exchanged for it.
pub fn lock_byte(file: BorrowedFd<'_>, byte: i64, kind: libc::c_int, wait: bool) -> rustix::io::Result<()> {
    // The threads of a schedule are one thread of the system, which must not wait in the kernel for what another of them holds.
    #[cfg(feature = "shuttle")]
    stripewise_switching::switch();
    #[cfg(feature = "shuttle")]
    if wait {
        loop {
            match lock_byte(file, byte, kind, false) {
                Err(Errno::AGAIN | Errno::ACCESS) => shuttle::thread::yield_now(),
                done => return done,
            }
        }
    }
    control(file, if wait { libc::F_OFD_SETLKW } else { libc::F_OFD_SETLK }, &mut lock_of(byte, kind))
}

/// Whether another open file description has a lock of one byte that keeps `kind` from being taken: any with `F_WRLCK`, an
/// exclusive one with `F_RDLCK`. Takes none. One system call.
pub(crate) fn is_byte_locked(file: BorrowedFd<'_>, byte: i64, kind: libc::c_int) -> rustix::io::Result<bool> {
    #[cfg(feature = "shuttle")]
    stripewise_switching::switch();
    let mut lock = lock_of(byte, kind);
    control(file, libc::F_OFD_GETLK, &mut lock)?;
    Ok(libc::c_int::from(lock.l_type) != libc::F_UNLCK)
}

fn lock_of(byte: i64, kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    }
}

fn control(file: BorrowedFd<'_>, command: libc::c_int, lock: &mut libc::flock) -> rustix::io::Result<()> {
    retry(|| {
        // SAFETY: the descriptor is open and `lock` a valid structure for this command.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut *lock) } {
            -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
            _ => Ok(()),
        }
    })
}
