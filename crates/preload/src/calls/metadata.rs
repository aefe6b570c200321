//! Calls that are recorded and otherwise libc's: positions, sizes, durability, names and attributes.

use super::recorded::{on_descriptor, on_path};
use crate::bypass;
use crate::fd::borrow;
use crate::placed;
use crate::real::wrap;
use crate::recording::TimedOperation;
use crate::runtime;
use crate::table::TABLE;
use libc::{gid_t, loff_t, mode_t, off_t, size_t, ssize_t, uid_t};
use rustix::fs::{AtFlags, StatxFlags};
use std::ffi::{c_char, c_int, c_uint, c_void};
use stripewise_trace::{Operation, flags as marks};

const HERE: c_int = libc::AT_FDCWD;

/// Size of a file that this process may write past the mount, as the mount knows it now. The kernel may have an older one:
/// of two answers that it gets at once it drops the later.
fn fresh_size(fd: c_int) -> Option<off_t> {
    TABLE.get(fd).slot()?;
    off_t::try_from(placed::size(borrow(fd)).ok()?).ok()
}

/// Has the kernel ask for the size of a file in the pool. It copies no further than it knows the file to reach, and neither
/// writes past the mount nor those by another mount tell it. If it cannot ask, the copy itself says why. Three system calls.
fn learn_size(fd: c_int) {
    let Some(bypass) = runtime::bypass().filter(|_| fd >= 0) else { return };
    if bypass.holds(borrow(fd)) {
        let now = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
        let _ = rustix::fs::statx(borrow(fd), c"", now, StatxFlags::SIZE);
    }
}

/// A change of position; the record has the new one.
fn seek(fd: c_int, offset: off_t, whence: c_int, real: impl FnOnce(c_int, off_t, c_int) -> off_t) -> off_t {
    let entry = TABLE.get(fd);
    let call = || match (whence, entry.slot()) {
        (libc::SEEK_END, Some(_)) => match fresh_size(fd).and_then(|size| size.checked_add(offset)) {
            Some(place) => real(fd, place, libc::SEEK_SET),
            None => real(fd, offset, whence),
        },
        _ => real(fd, offset, whence),
    };
    let file = entry.file();
    let Some(recording) = runtime::recording().filter(|_| file != 0) else { return call() };
    let event = TimedOperation::posix(Operation::Seek, file);
    let result = call();
    recording.note(TimedOperation { offset: result.max(0) as u64, ..event }.result(result));
    result
}

wrap! { real;
    fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t { seek(fd, offset, whence, |fd, offset, whence| real(fd, offset, whence)) }
    fn lseek64(fd: c_int, offset: off_t, whence: c_int) -> off_t { seek(fd, offset, whence, |fd, offset, whence| real(fd, offset, whence)) }
    fn __lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t { seek(fd, offset, whence, |fd, offset, whence| real(fd, offset, whence)) }
    fn llseek(fd: c_int, offset: off_t, whence: c_int) -> off_t { seek(fd, offset, whence, |fd, offset, whence| real(fd, offset, whence)) }

    fn ftruncate(fd: c_int, size: off_t) -> c_int {
        on_descriptor(fd, Operation::Truncate, 0, size.max(0) as u64, || real(fd, size))
    }
    fn ftruncate64(fd: c_int, size: off_t) -> c_int {
        on_descriptor(fd, Operation::Truncate, 0, size.max(0) as u64, || real(fd, size))
    }
    fn truncate(path: *const c_char, size: off_t) -> c_int {
        on_path(HERE, path, Operation::Truncate, size.max(0) as u64, || real(path, size))
    }
    fn truncate64(path: *const c_char, size: off_t) -> c_int {
        on_path(HERE, path, Operation::Truncate, size.max(0) as u64, || real(path, size))
    }
    fn fallocate(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int {
        on_descriptor(fd, Operation::Allocate, offset.max(0) as u64, len.max(0) as u64, || real(fd, mode, offset, len))
    }
    fn fallocate64(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int {
        on_descriptor(fd, Operation::Allocate, offset.max(0) as u64, len.max(0) as u64, || real(fd, mode, offset, len))
    }
    fn posix_fallocate(fd: c_int, offset: off_t, len: off_t) -> c_int {
        on_descriptor(fd, Operation::Allocate, offset.max(0) as u64, len.max(0) as u64, || real(fd, offset, len))
    }
    fn posix_fallocate64(fd: c_int, offset: off_t, len: off_t) -> c_int {
        on_descriptor(fd, Operation::Allocate, offset.max(0) as u64, len.max(0) as u64, || real(fd, offset, len))
    }

    fn fsync(fd: c_int) -> c_int { on_descriptor(fd, Operation::Sync, 0, 0, || bypass::sync(fd, || real(fd))) }
    fn fdatasync(fd: c_int) -> c_int { on_descriptor(fd, Operation::Sync, 0, 0, || bypass::sync(fd, || real(fd))) }
    fn sync_file_range(fd: c_int, offset: off_t, len: off_t, flags: c_uint) -> c_int {
        on_descriptor(fd, Operation::Sync, offset.max(0) as u64, len.max(0) as u64, || real(fd, offset, len, flags))
    }
    fn posix_fadvise(fd: c_int, offset: off_t, len: off_t, advice: c_int) -> c_int {
        on_descriptor(fd, Operation::Advise, offset.max(0) as u64, len.max(0) as u64, || real(fd, offset, len, advice))
    }
    fn posix_fadvise64(fd: c_int, offset: off_t, len: off_t, advice: c_int) -> c_int {
        on_descriptor(fd, Operation::Advise, offset.max(0) as u64, len.max(0) as u64, || real(fd, offset, len, advice))
    }
    fn readahead(fd: c_int, offset: off_t, len: size_t) -> ssize_t {
        on_descriptor(fd, Operation::Advise, offset.max(0) as u64, len as u64, || Wide(real(fd, offset, len))).0
    }
}

/// An asynchronous request: recorded when it is handed in. glibc's own threads carry it out, through the mount.
fn asynchronous(job: *const libc::aiocb, op: Operation, call: impl FnOnce() -> c_int) -> c_int {
    if job.is_null() {
        return call();
    }
    // SAFETY: the program passes a control block, which the call reads.
    let (fd, offset, size) = unsafe { ((*job).aio_fildes, (*job).aio_offset, (*job).aio_nbytes) };
    let file = TABLE.get(fd).file();
    let Some(recording) = runtime::recording().filter(|_| file != 0) else { return call() };
    let flags = marks::NONBLOCKING | marks::SIZE_REQUESTED;
    let event =
        TimedOperation { offset: offset.max(0) as u64, size: size as u64, flags, ..TimedOperation::posix(op, file) };
    let result = call();
    recording.note(event.result(i64::from(result)));
    result
}

wrap! { real;
    fn aio_read(job: *mut libc::aiocb) -> c_int { asynchronous(job, Operation::Read, || real(job)) }
    fn aio_read64(job: *mut libc::aiocb) -> c_int { asynchronous(job, Operation::Read, || real(job)) }
    fn aio_write(job: *mut libc::aiocb) -> c_int { asynchronous(job, Operation::Write, || real(job)) }
    fn aio_write64(job: *mut libc::aiocb) -> c_int { asynchronous(job, Operation::Write, || real(job)) }
}

/// A result of `ssize_t`, which has no `Into<i64>` of its own.
#[derive(Clone, Copy)]
struct Wide(ssize_t);

impl From<Wide> for i64 {
    fn from(wide: Wide) -> i64 {
        wide.0 as i64
    }
}

/// One side of a copy inside the kernel; `place` is where its offset stands, null for the descriptor's own.
fn copied(fd: c_int, place: *const loff_t, count: ssize_t, start_ns: u64, write: bool) {
    let file = TABLE.get(fd).file();
    let Some(recording) = runtime::recording().filter(|_| file != 0) else { return };
    let moved = count.max(0) as u64;
    // Either is behind what was moved.
    let end = if place.is_null() {
        rustix::fs::seek(crate::fd::borrow(fd), rustix::fs::SeekFrom::Current(0)).unwrap_or(0)
    } else {
        // SAFETY: the program passed a place for an offset, and the kernel used it.
        unsafe { place.read_unaligned() }.max(0) as u64
    };
    let flags = if write { marks::KERNEL_WRITE } else { 0 };
    let event = TimedOperation {
        start_ns,
        offset: end.saturating_sub(moved),
        size: moved,
        flags,
        ..TimedOperation::posix(Operation::KernelCopy, file)
    };
    recording.note(event.result(count as i64));
}

/// A copy inside the kernel from one descriptor to another.
fn copy(
    (from, from_place): (c_int, *const loff_t),
    (to, to_place): (c_int, *const loff_t),
    call: impl FnOnce() -> ssize_t,
) -> ssize_t {
    if !TABLE.get(from).is_known() && !TABLE.get(to).is_known() {
        return call();
    }
    let start_ns = stripewise_trace::now_ns();
    let count = call();
    copied(from, from_place, count, start_ns, false);
    copied(to, to_place, count, start_ns, true);
    count
}

wrap! { real;
    fn copy_file_range(
        from: c_int, from_place: *mut loff_t, to: c_int, to_place: *mut loff_t, len: size_t, flags: c_uint,
    ) -> ssize_t {
        learn_size(from);
        copy((from, from_place), (to, to_place), || real(from, from_place, to, to_place, len, flags))
    }
    fn sendfile(to: c_int, from: c_int, place: *mut off_t, len: size_t) -> ssize_t {
        copy((from, place), (to, std::ptr::null()), || real(to, from, place, len))
    }
    fn sendfile64(to: c_int, from: c_int, place: *mut off_t, len: size_t) -> ssize_t {
        copy((from, place), (to, std::ptr::null()), || real(to, from, place, len))
    }
    fn splice(
        from: c_int, from_place: *mut loff_t, to: c_int, to_place: *mut loff_t, len: size_t, flags: c_uint,
    ) -> ssize_t {
        copy((from, from_place), (to, to_place), || real(from, from_place, to, to_place, len, flags))
    }
}

/// `fstat`: the kernel's answer, with the size that the file has.
fn attributes(fd: c_int, out: *mut c_void, call: impl FnOnce() -> c_int) -> c_int {
    on_descriptor(fd, Operation::Stat, 0, 0, || {
        let result = call();
        if result == 0
            && let Some(size) = fresh_size(fd)
        {
            // SAFETY: libc has just filled the program's structure; with 64-bit offsets it has one form.
            unsafe { (*out.cast::<libc::stat>()).st_size = size };
        }
        result
    })
}

wrap! { real;
    fn stat(path: *const c_char, out: *mut c_void) -> c_int { on_path(HERE, path, Operation::Stat, 0, || real(path, out)) }
    fn stat64(path: *const c_char, out: *mut c_void) -> c_int { on_path(HERE, path, Operation::Stat, 0, || real(path, out)) }
    fn lstat(path: *const c_char, out: *mut c_void) -> c_int { on_path(HERE, path, Operation::Stat, 0, || real(path, out)) }
    fn lstat64(path: *const c_char, out: *mut c_void) -> c_int { on_path(HERE, path, Operation::Stat, 0, || real(path, out)) }
    fn fstat(fd: c_int, out: *mut c_void) -> c_int { attributes(fd, out, || real(fd, out)) }
    fn fstat64(fd: c_int, out: *mut c_void) -> c_int { attributes(fd, out, || real(fd, out)) }
    fn fstatat(dirfd: c_int, path: *const c_char, out: *mut c_void, flags: c_int) -> c_int {
        on_path(dirfd, path, Operation::Stat, 0, || real(dirfd, path, out, flags))
    }
    fn fstatat64(dirfd: c_int, path: *const c_char, out: *mut c_void, flags: c_int) -> c_int {
        on_path(dirfd, path, Operation::Stat, 0, || real(dirfd, path, out, flags))
    }
    fn statx(dirfd: c_int, path: *const c_char, flags: c_int, mask: c_uint, out: *mut c_void) -> c_int {
        on_path(dirfd, path, Operation::Stat, 0, || real(dirfd, path, flags, mask, out))
    }
    // What programs built against glibc before 2.33 call.
    fn __xstat(version: c_int, path: *const c_char, out: *mut c_void) -> c_int {
        on_path(HERE, path, Operation::Stat, 0, || real(version, path, out))
    }
    fn __xstat64(version: c_int, path: *const c_char, out: *mut c_void) -> c_int {
        on_path(HERE, path, Operation::Stat, 0, || real(version, path, out))
    }
    fn __lxstat(version: c_int, path: *const c_char, out: *mut c_void) -> c_int {
        on_path(HERE, path, Operation::Stat, 0, || real(version, path, out))
    }
    fn __lxstat64(version: c_int, path: *const c_char, out: *mut c_void) -> c_int {
        on_path(HERE, path, Operation::Stat, 0, || real(version, path, out))
    }
    fn __fxstat(version: c_int, fd: c_int, out: *mut c_void) -> c_int {
        attributes(fd, out, || real(version, fd, out))
    }
    fn __fxstat64(version: c_int, fd: c_int, out: *mut c_void) -> c_int {
        attributes(fd, out, || real(version, fd, out))
    }
    fn __fxstatat(version: c_int, dirfd: c_int, path: *const c_char, out: *mut c_void, flags: c_int) -> c_int {
        on_path(dirfd, path, Operation::Stat, 0, || real(version, dirfd, path, out, flags))
    }
    fn __fxstatat64(version: c_int, dirfd: c_int, path: *const c_char, out: *mut c_void, flags: c_int) -> c_int {
        on_path(dirfd, path, Operation::Stat, 0, || real(version, dirfd, path, out, flags))
    }
    fn access(path: *const c_char, mode: c_int) -> c_int { on_path(HERE, path, Operation::Stat, 0, || real(path, mode)) }
    fn faccessat(dirfd: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
        on_path(dirfd, path, Operation::Stat, 0, || real(dirfd, path, mode, flags))
    }

    fn unlink(path: *const c_char) -> c_int { on_path(HERE, path, Operation::Unlink, 0, || real(path)) }
    fn unlinkat(dirfd: c_int, path: *const c_char, flags: c_int) -> c_int {
        on_path(dirfd, path, Operation::Unlink, 0, || real(dirfd, path, flags))
    }
    fn remove(path: *const c_char) -> c_int { on_path(HERE, path, Operation::Unlink, 0, || real(path)) }
    fn rename(from: *const c_char, to: *const c_char) -> c_int {
        on_path(HERE, from, Operation::Rename, 0, || on_path(HERE, to, Operation::Rename, 0, || real(from, to)))
    }
    fn renameat(from_fd: c_int, from: *const c_char, to_fd: c_int, to: *const c_char) -> c_int {
        on_path(from_fd, from, Operation::Rename, 0, || {
            on_path(to_fd, to, Operation::Rename, 0, || real(from_fd, from, to_fd, to))
        })
    }
    fn renameat2(from_fd: c_int, from: *const c_char, to_fd: c_int, to: *const c_char, flags: c_uint) -> c_int {
        on_path(from_fd, from, Operation::Rename, 0, || {
            on_path(to_fd, to, Operation::Rename, 0, || real(from_fd, from, to_fd, to, flags))
        })
    }
    fn chmod(path: *const c_char, mode: mode_t) -> c_int {
        on_path(HERE, path, Operation::SetAttributes, 0, || real(path, mode))
    }
    fn fchmod(fd: c_int, mode: mode_t) -> c_int {
        on_descriptor(fd, Operation::SetAttributes, 0, 0, || real(fd, mode))
    }
    fn fchmodat(dirfd: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int {
        on_path(dirfd, path, Operation::SetAttributes, 0, || real(dirfd, path, mode, flags))
    }
    fn chown(path: *const c_char, user: uid_t, group: gid_t) -> c_int {
        on_path(HERE, path, Operation::SetAttributes, 0, || real(path, user, group))
    }
    fn lchown(path: *const c_char, user: uid_t, group: gid_t) -> c_int {
        on_path(HERE, path, Operation::SetAttributes, 0, || real(path, user, group))
    }
    fn fchown(fd: c_int, user: uid_t, group: gid_t) -> c_int {
        on_descriptor(fd, Operation::SetAttributes, 0, 0, || real(fd, user, group))
    }
    fn fchownat(dirfd: c_int, path: *const c_char, user: uid_t, group: gid_t, flags: c_int) -> c_int {
        on_path(dirfd, path, Operation::SetAttributes, 0, || real(dirfd, path, user, group, flags))
    }
    fn utimes(path: *const c_char, times: *const c_void) -> c_int {
        on_path(HERE, path, Operation::SetAttributes, 0, || real(path, times))
    }
    fn futimes(fd: c_int, times: *const c_void) -> c_int {
        on_descriptor(fd, Operation::SetAttributes, 0, 0, || real(fd, times))
    }
    fn futimens(fd: c_int, times: *const c_void) -> c_int {
        on_descriptor(fd, Operation::SetAttributes, 0, 0, || real(fd, times))
    }
    fn utimensat(dirfd: c_int, path: *const c_char, times: *const c_void, flags: c_int) -> c_int {
        // A null path means the descriptor itself.
        if path.is_null() {
            return on_descriptor(dirfd, Operation::SetAttributes, 0, 0, || real(dirfd, path, times, flags));
        }
        on_path(dirfd, path, Operation::SetAttributes, 0, || real(dirfd, path, times, flags))
    }
}
