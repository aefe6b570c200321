//! [`rustix`], with a switch before each system call on a file: another thread of the schedule may go on there.
//!
//! The store takes this crate for rustix where its feature `shuttle` is on, so each system call that it makes is such a place.
//! Several stores of one pool stand for several processes in a schedule: the locks that the kernel keeps are of open files, and
//! each store has its own.

pub use rustix::*;
use std::cell::Cell;

thread_local! {
    /// Whether threads take turns at system calls.
    static SWITCHING: Cell<bool> = const { Cell::new(false) };
}

/// Carries out `scenario` with switches at system calls. Without, what is set up before and looked at after it takes no
/// share of the places where a schedule can switch.
pub fn switching<T>(scenario: impl FnOnce() -> T) -> T {
    struct Off;
    impl Drop for Off {
        fn drop(&mut self) {
            SWITCHING.set(false);
        }
    }
    SWITCHING.set(true);
    let _off = Off;
    scenario()
}

/// Another thread may go on here.
pub fn switch() {
    if SWITCHING.get() && !std::thread::panicking() {
        shuttle::thread::sleep(std::time::Duration::ZERO);
    }
}

macro_rules! calls {
    ($($module:ident: fn $name:ident$(<$($generic:ident: $bound:path),*>)?
        ($($argument:ident: $kind:ty),*) -> $out:ty;)*) => {
        $(#[allow(missing_docs, reason = "as in rustix")]
        pub fn $name$(<$($generic: $bound),*>)?($($argument: $kind),*) -> Result<$out> {
            crate::switch();
            rustix::$module::$name($($argument),*)
        })*
    };
}

/// As in rustix.
pub mod fs {
    use rustix::buffer::Buffer;
    use rustix::fd::{AsFd, OwnedFd};
    pub use rustix::fs::*;
    use rustix::io::Result;
    use rustix::path::Arg;

    calls! {
        fs: fn accessat<P: Arg, Fd: AsFd>(directory: Fd, path: P, access: Access, flags: AtFlags) -> ();
        fs: fn fallocate<Fd: AsFd>(fd: Fd, mode: FallocateFlags, offset: u64, len: u64) -> ();
        fs: fn fchmod<Fd: AsFd>(fd: Fd, mode: Mode) -> ();
        fs: fn fdatasync<Fd: AsFd>(fd: Fd) -> ();
        fs: fn fgetxattr<Fd: AsFd, Name: Arg, Buf: Buffer<u8>>(fd: Fd, name: Name, value: Buf) -> Buf::Output;
        fs: fn fsetxattr<Fd: AsFd, Name: Arg>(fd: Fd, name: Name, value: &[u8], flags: XattrFlags) -> ();
        fs: fn fstat<Fd: AsFd>(fd: Fd) -> Stat;
        fs: fn fsync<Fd: AsFd>(fd: Fd) -> ();
        fs: fn ftruncate<Fd: AsFd>(fd: Fd, length: u64) -> ();
        fs: fn futimens<Fd: AsFd>(fd: Fd, times: &Timestamps) -> ();
        fs: fn getxattr<P: Arg, Name: Arg, Buf: Buffer<u8>>(path: P, name: Name, value: Buf) -> Buf::Output;
        fs: fn open<P: Arg>(path: P, flags: OFlags, mode: Mode) -> OwnedFd;
        fs: fn openat<P: Arg, Fd: AsFd>(directory: Fd, path: P, flags: OFlags, mode: Mode) -> OwnedFd;
        fs: fn statat<P: Arg, Fd: AsFd>(directory: Fd, path: P, flags: AtFlags) -> Stat;
        fs: fn unlinkat<P: Arg, Fd: AsFd>(directory: Fd, path: P, flags: AtFlags) -> ();
    }
}

/// As in rustix.
pub mod io {
    use rustix::buffer::Buffer;
    use rustix::fd::AsFd;
    pub use rustix::io::*;

    calls! {
        io: fn pread<Fd: AsFd, Buf: Buffer<u8>>(fd: Fd, into: Buf, offset: u64) -> Buf::Output;
        io: fn preadv<Fd: AsFd>(fd: Fd, into: &mut [IoSliceMut<'_>], offset: u64) -> usize;
        io: fn pwrite<Fd: AsFd>(fd: Fd, from: &[u8], offset: u64) -> usize;
        io: fn pwritev<Fd: AsFd>(fd: Fd, from: &[IoSlice<'_>], offset: u64) -> usize;
        io: fn pwritev2<Fd: AsFd>(fd: Fd, from: &[IoSlice<'_>], offset: u64, flags: ReadWriteFlags) -> usize;
    }
}
