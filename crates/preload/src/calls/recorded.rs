//! Calls that are recorded and otherwise left as they are.

use crate::paths;
use crate::real::{errno, set_errno};
use crate::recording::TimedOperation;
use crate::runtime;
use crate::table::TABLE;
use std::ffi::{c_char, c_int};
use stripewise_trace::{Operation, now_ns};

/// Runs `call` and records it as `op` on the file behind `fd`, if that is recorded.
#[inline]
pub(crate) fn on_descriptor<R: Copy + Into<i64>>(
    fd: c_int,
    op: Operation,
    offset: u64,
    size: u64,
    call: impl FnOnce() -> R,
) -> R {
    if !TABLE.get(fd).is_known() {
        return call();
    }
    recorded(fd, op, offset, size, call)
}

fn recorded<R: Copy + Into<i64>>(fd: c_int, op: Operation, offset: u64, size: u64, call: impl FnOnce() -> R) -> R {
    let recording = runtime::recording().filter(|recording| recording.recorder().is_some());
    // Read after the recorder was looked for: in a forked child that gives the entries new ids.
    let file = TABLE.get(fd).file();
    let Some(recording) = recording.filter(|_| file != 0) else {
        return call();
    };
    let event = TimedOperation { offset, size, ..TimedOperation::posix(op, file) };
    let result = call();
    recording.note(event.result(result.into()));
    result
}

/// Runs `call` and records it as `op` on `path` relative to `dirfd`, if that is recorded.
#[inline]
pub(crate) fn on_path<R: Copy + Into<i64>>(
    dirfd: c_int,
    path: *const c_char,
    op: Operation,
    size: u64,
    call: impl FnOnce() -> R,
) -> R {
    let Some(recording) = runtime::recording() else {
        return call();
    };
    let file_of = || match paths::bytes(path) {
        Some([]) => TABLE.get(dirfd).file(),
        Some(path) => recording.file_at(dirfd, path),
        None => 0,
    };
    let start_ns = now_ns();
    let result = call();
    // The path is looked at only now, when the kernel has found that it can be read.
    let number = errno();
    let failed = result.into() < 0;
    // Searches along a list of directories would fill the table with names that do not exist.
    if failed && (op == Operation::Stat || number == libc::EFAULT) {
        return result;
    }
    let file = file_of();
    if file != 0 {
        recording.note(TimedOperation { start_ns, size, ..TimedOperation::posix(op, file) }.result(result.into()));
    }
    set_errno(number);
    result
}
