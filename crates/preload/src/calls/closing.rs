//! Calls that close descriptors, their own argument's or others that glibc closes inside without calling `close`.

use super::recorded::on_descriptor;
use crate::descriptors::{floor, is_own, opened};
use crate::fd::for_each_open;
use crate::real::{set_errno, wrap};
use crate::recording::TimedOperation;
use crate::runtime;
use crate::table::TABLE;
use libc::FILE;
use std::ffi::{c_char, c_int, c_uint, c_void};
use stripewise_trace::{Api, Operation, flags as marks, now_ns};

fn close_one(fd: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if is_own(fd) {
        set_errno(libc::EBADF);
        return -1;
    }
    on_descriptor(fd, Operation::Close, 0, 0, || {
        TABLE.forget(fd);
        call()
    })
}

/// Closes all descriptors from `first` to `last` but our own. `call` is the program's call.
pub(crate) fn close_range_with(first: c_uint, last: c_uint, flags: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if flags & libc::CLOSE_RANGE_CLOEXEC as c_int != 0 || first > last {
        return call();
    }
    if flags & libc::CLOSE_RANGE_UNSHARE as c_int != 0 {
        TABLE.give_up();
    }
    TABLE.forget_range(first, last);
    let Some(floor) = floor().map(|floor| floor as c_uint).filter(|&floor| last >= floor) else {
        return call();
    };
    // One after the other from the floor on, as ours stand among them.
    for_each_open(|fd| {
        let number = fd as c_uint;
        if number >= floor.max(first) && number <= last && !is_own(fd) {
            // SAFETY: the program asked for it to be closed.
            unsafe { rustix::io::close(fd) };
        }
    });
    if first < floor {
        // SAFETY: the program asked for these to be closed. The kernel checks the numbers.
        let result = unsafe { libc::syscall(libc::SYS_close_range, first, floor - 1, 0) };
        return result as c_int;
    }
    0
}

wrap! { real;
    fn close(fd: c_int) -> c_int { close_one(fd, || real(fd)) }
    fn __close(fd: c_int) -> c_int { close_one(fd, || real(fd)) }
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        close_range_with(first, last, flags, || real(first, last, flags))
    }
    fn closefrom(first: c_int) -> () {
        close_range_with(first.max(0) as c_uint, c_uint::MAX, 0, || {
            real(first);
            0
        });
    }
    fn mq_close(fd: c_int) -> c_int { close_one(fd, || real(fd)) }
    fn closedir(dir: *mut libc::DIR) -> c_int {
        if !dir.is_null() {
            // SAFETY: the program passes an open directory stream, as `closedir` needs.
            TABLE.forget(unsafe { libc::dirfd(dir) });
        }
        real(dir)
    }
    // Both put the null device or a terminal in the place of the standard descriptors.
    fn daemon(keep_directory: c_int, keep_descriptors: c_int) -> c_int {
        if keep_descriptors == 0 {
            TABLE.forget_range(0, 2);
        }
        real(keep_directory, keep_descriptors)
    }
    fn login_tty(fd: c_int) -> c_int {
        TABLE.forget(fd);
        TABLE.forget_range(0, 2);
        real(fd)
    }
    // The child's standard descriptors become the terminal before it returns here.
    fn forkpty(main: *mut c_int, name: *mut c_char, terminal: *const c_void, size: *const c_void) -> libc::pid_t {
        let result = real(main, name, terminal, size);
        if result == 0 {
            TABLE.forget_range(0, 2);
        } else if result > 0 && !main.is_null() {
            // SAFETY: the call succeeded, so it wrote the number there.
            TABLE.forget(unsafe { *main });
        }
        result
    }
}

/// The descriptor of a stream; -1 when it has none.
pub(crate) fn descriptor_of(stream: *mut FILE) -> c_int {
    if stream.is_null() {
        return -1;
    }
    let errno = crate::real::errno();
    // SAFETY: the program passes an open stream, as the call that it made needs.
    let fd = unsafe { libc::fileno(stream) };
    set_errno(errno);
    fd
}

fn close_stream(stream: *mut FILE, call: impl FnOnce() -> c_int) -> c_int {
    let fd = descriptor_of(stream);
    let file = TABLE.get(fd).file();
    let start_ns = if file == 0 { 0 } else { now_ns() };
    // What stdio still has to write goes through the mount, at the descriptor's own offset.
    TABLE.forget(fd);
    let result = call();
    if let Some(recording) = runtime::recording().filter(|_| file != 0) {
        let event = TimedOperation { start_ns, api: Api::Stdio, ..TimedOperation::posix(Operation::Close, file) };
        recording.note(event.result(i64::from(result)));
    }
    result
}

/// A stream was opened: its descriptor is entered like one of `open`, and the open recorded as stdio's.
pub(crate) fn stream_opened(start_ns: u64, stream: *mut FILE, path: *const c_char, mode: *const c_char) -> *mut FILE {
    let fd = descriptor_of(stream);
    if fd < 0 {
        return stream;
    }
    let mode = crate::paths::bytes(mode).unwrap_or_default();
    let update = mode.contains(&b'+');
    let (access, create) = match mode.first() {
        Some(b'w') => (libc::O_WRONLY, marks::CREATE),
        Some(b'a') => (libc::O_WRONLY | libc::O_APPEND, 0),
        _ => (libc::O_RDONLY, 0),
    };
    let flags = if update { access & !libc::O_ACCMODE | libc::O_RDWR } else { access };
    opened(fd, path, flags);
    let file = TABLE.get(fd).file();
    if let Some(recording) = runtime::recording().filter(|_| file != 0) {
        let event =
            TimedOperation { start_ns, api: Api::Stdio, flags: create, ..TimedOperation::posix(Operation::Open, file) };
        recording.note(event);
    }
    stream
}

fn reopen(path: *const c_char, mode: *const c_char, stream: *mut FILE, call: impl FnOnce() -> *mut FILE) -> *mut FILE {
    let start_ns = if runtime::recording().is_some() { now_ns() } else { 0 };
    TABLE.forget(descriptor_of(stream));
    let reopened = call();
    if path.is_null() { reopened } else { stream_opened(start_ns, reopened, path, mode) }
}

wrap! { real;
    fn fclose(stream: *mut FILE) -> c_int { close_stream(stream, || real(stream)) }
    fn _IO_fclose(stream: *mut FILE) -> c_int { close_stream(stream, || real(stream)) }
    fn pclose(stream: *mut FILE) -> c_int { close_stream(stream, || real(stream)) }
    fn endmntent(stream: *mut FILE) -> c_int { close_stream(stream, || real(stream)) }
    fn __endmntent(stream: *mut FILE) -> c_int { close_stream(stream, || real(stream)) }
    fn _IO_file_close(stream: *mut FILE) -> c_int { close_stream(stream, || real(stream)) }
    fn _IO_file_close_it(stream: *mut FILE) -> c_int { close_stream(stream, || real(stream)) }
    fn _IO_file_finish(stream: *mut FILE, unused: c_int) -> () {
        TABLE.forget(descriptor_of(stream));
        real(stream, unused)
    }
    fn fcloseall() -> c_int {
        TABLE.forget_all();
        real()
    }
    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
        reopen(path, mode, stream, || real(path, mode, stream))
    }
    fn freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
        reopen(path, mode, stream, || real(path, mode, stream))
    }
}
