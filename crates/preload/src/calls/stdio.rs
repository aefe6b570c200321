//! The outer calls of stdio: recorded with the sizes that the program asked for. stdio's own reads and writes of its
//! buffer happen inside glibc, where no library can see them, and go through the mount.

use super::closing::{descriptor_of, stream_opened};
use crate::real::wrap;
use crate::recording::TimedOperation;
use crate::runtime;
use crate::table::TABLE;
use libc::{FILE, off_t, size_t, ssize_t};
use std::ffi::{c_char, c_int, c_long, c_void};
use stripewise_trace::{Api, Operation, flags as marks, now_ns};

/// Position of a stream: what is in its buffer counts.
fn position(stream: *mut FILE) -> Option<u64> {
    let errno = crate::real::errno();
    // SAFETY: the program passed the stream to a call that needs an open one.
    let at = unsafe { libc::ftello(stream) };
    crate::real::set_errno(errno);
    u64::try_from(at).ok()
}

/// A read or write on `stream`; `moved` says how many of the `wanted` bytes a result stands for, `None` for a failure.
fn moved<R: Copy>(
    stream: *mut FILE,
    op: Operation,
    wanted: u64,
    call: impl FnOnce() -> R,
    moved: impl FnOnce(R) -> Option<u64>,
) -> R {
    let Some(recording) = runtime::recording() else { return call() };
    let file = TABLE.get(descriptor_of(stream)).file();
    if file == 0 {
        return call();
    }
    let mut event = TimedOperation { api: Api::Stdio, ..TimedOperation::posix(op, file) };
    let result = call();
    match moved(result) {
        Some(bytes) => {
            event.size = bytes;
            if bytes < wanted {
                event.flags |= marks::SHORT;
            }
        }
        None => {
            event.size = wanted;
            event.flags |= marks::FAILED;
        }
    }
    let counted = if event.flags & marks::FAILED == 0 { event.size } else { 0 };
    match position(stream) {
        Some(end) => event.offset = end.saturating_sub(counted),
        None => event.flags |= marks::OFFSET_UNKNOWN,
    }
    recording.note(event);
    result
}

/// A call without bytes; the record has the position after it.
fn positioned<R: Copy>(
    stream: *mut FILE,
    op: Operation,
    call: impl FnOnce() -> R,
    failed: impl FnOnce(R) -> bool,
) -> R {
    let Some(recording) = runtime::recording() else { return call() };
    let file = TABLE.get(descriptor_of(stream)).file();
    if file == 0 {
        return call();
    }
    let event = TimedOperation { api: Api::Stdio, ..TimedOperation::posix(op, file) };
    let result = call();
    let offset = position(stream).unwrap_or(0);
    recording.note(TimedOperation { offset, ..event }.result(if failed(result) { -1 } else { 0 }));
    result
}

fn items(size: size_t, count: size_t) -> u64 {
    size.saturating_mul(count) as u64
}

/// Length of a line that a call returned; null is the end of the file.
fn line_bytes(line: *mut c_char) -> Option<u64> {
    Some(crate::paths::bytes(line).map_or(0, |line| line.len() as u64))
}

wrap! { real;
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
        let start_ns = now_ns();
        stream_opened(start_ns, real(path, mode), path, mode)
    }
    fn _IO_fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
        let start_ns = now_ns();
        stream_opened(start_ns, real(path, mode), path, mode)
    }
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
        let start_ns = now_ns();
        stream_opened(start_ns, real(path, mode), path, mode)
    }
    // These return descriptors of files without a name, or of pipes.
    fn tmpfile() -> *mut FILE { forgotten(real()) }
    fn tmpfile64() -> *mut FILE { forgotten(real()) }
    fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE { forgotten(real(command, mode)) }
    fn _IO_popen(command: *const c_char, mode: *const c_char) -> *mut FILE { forgotten(real(command, mode)) }
    fn setmntent(path: *const c_char, mode: *const c_char) -> *mut FILE { forgotten(real(path, mode)) }
    fn __setmntent(path: *const c_char, mode: *const c_char) -> *mut FILE { forgotten(real(path, mode)) }
    fn opendir(path: *const c_char) -> *mut libc::DIR {
        let dir = real(path);
        if !dir.is_null() {
            // SAFETY: an open directory stream.
            TABLE.forget(unsafe { libc::dirfd(dir) });
        }
        dir
    }

    fn fread(buffer: *mut c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t {
        let call = || real(buffer, size, count, stream);
        moved(stream, Operation::Read, items(size, count), call, |done| Some(items(size, done)))
    }
    fn fread_unlocked(buffer: *mut c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t {
        let call = || real(buffer, size, count, stream);
        moved(stream, Operation::Read, items(size, count), call, |done| Some(items(size, done)))
    }
    fn __fread_chk(buffer: *mut c_void, room: size_t, size: size_t, count: size_t, stream: *mut FILE) -> size_t {
        let call = || real(buffer, room, size, count, stream);
        moved(stream, Operation::Read, items(size, count), call, |done| Some(items(size, done)))
    }
    fn fwrite(buffer: *const c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t {
        let call = || real(buffer, size, count, stream);
        moved(stream, Operation::Write, items(size, count), call, |done| Some(items(size, done)))
    }
    fn fwrite_unlocked(buffer: *const c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t {
        let call = || real(buffer, size, count, stream);
        moved(stream, Operation::Write, items(size, count), call, |done| Some(items(size, done)))
    }
    fn fgets(line: *mut c_char, room: c_int, stream: *mut FILE) -> *mut c_char {
        moved(stream, Operation::Read, 0, || real(line, room, stream), line_bytes)
    }
    fn __fgets_chk(line: *mut c_char, size: size_t, room: c_int, stream: *mut FILE) -> *mut c_char {
        moved(stream, Operation::Read, 0, || real(line, size, room, stream), line_bytes)
    }
    fn getline(line: *mut *mut c_char, room: *mut size_t, stream: *mut FILE) -> ssize_t {
        moved(stream, Operation::Read, 0, || real(line, room, stream), |len| Some(len.max(0) as u64))
    }
    fn getdelim(line: *mut *mut c_char, room: *mut size_t, end: c_int, stream: *mut FILE) -> ssize_t {
        moved(stream, Operation::Read, 0, || real(line, room, end, stream), |len| Some(len.max(0) as u64))
    }
    fn __getdelim(line: *mut *mut c_char, room: *mut size_t, end: c_int, stream: *mut FILE) -> ssize_t {
        moved(stream, Operation::Read, 0, || real(line, room, end, stream), |len| Some(len.max(0) as u64))
    }
    fn fputs(text: *const c_char, stream: *mut FILE) -> c_int {
        let len = crate::paths::bytes(text).map_or(0, |text| text.len() as u64);
        moved(stream, Operation::Write, len, || real(text, stream), |result| (result >= 0).then_some(len))
    }
    fn fseek(stream: *mut FILE, offset: c_long, whence: c_int) -> c_int {
        positioned(stream, Operation::Seek, || real(stream, offset, whence), |result| result < 0)
    }
    fn fseeko(stream: *mut FILE, offset: off_t, whence: c_int) -> c_int {
        positioned(stream, Operation::Seek, || real(stream, offset, whence), |result| result < 0)
    }
    fn fseeko64(stream: *mut FILE, offset: off_t, whence: c_int) -> c_int {
        positioned(stream, Operation::Seek, || real(stream, offset, whence), |result| result < 0)
    }
    fn rewind(stream: *mut FILE) -> () {
        positioned(stream, Operation::Seek, || real(stream), |()| false)
    }
    fn fflush(stream: *mut FILE) -> c_int {
        if stream.is_null() {
            return real(stream);
        }
        positioned(stream, Operation::Sync, || real(stream), |result| result != 0)
    }
}

fn forgotten(stream: *mut FILE) -> *mut FILE {
    TABLE.forget(descriptor_of(stream));
    stream
}
