//! Calls that return a descriptor.
//!
//! Those that open a file by name enter it in the table. All others clear what may stand there: a program may have
//! closed the number in a way that no library sees.

use super::recorded::on_descriptor;
use crate::bypass::TransferDirection;
use crate::descriptors::{claim_for_mount, is_own, opened};
use crate::fd::borrow;
use crate::real::{set_errno, wrap};
use crate::recording::TimedOperation;
use crate::runtime;
use crate::table::TABLE;
use libc::{mode_t, size_t, sockaddr, socklen_t};
use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use stripewise_trace::{Operation, flags as marks, now_ns};

/// After an open by name: enters the descriptor and records the open.
fn opened_since(start_ns: u64, fd: c_int, dirfd: c_int, path: *const c_char, flags: c_int) -> c_int {
    if fd >= 0 {
        opened(fd, path, flags);
    }
    let Some(recording) = runtime::recording() else { return fd };
    let errno = crate::real::errno();
    let file = if fd >= 0 {
        TABLE.get(fd).file()
    } else if errno == libc::EFAULT {
        // Not a path that can be read.
        0
    } else {
        crate::paths::bytes(path).map_or(0, |path| recording.file_at(dirfd, path))
    };
    if file != 0 {
        let create = if flags & (libc::O_CREAT | libc::O_TRUNC) != 0 { marks::CREATE } else { 0 };
        let append = if flags & libc::O_APPEND != 0 { marks::APPEND } else { 0 };
        let event = TimedOperation { start_ns, flags: create | append, ..TimedOperation::posix(Operation::Open, file) };
        recording.note(event.result(i64::from(fd)));
    }
    crate::real::set_errno(errno);
    fd
}

/// The clock, if calls are recorded.
fn start() -> u64 {
    if runtime::recording().is_some() { now_ns() } else { 0 }
}

// The mode is a variadic argument in C; passed or not, it stands where a fixed one would.
wrap! { real;
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        let start = start();
        opened_since(start, real(path, flags, mode), libc::AT_FDCWD, path, flags)
    }
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        let start = start();
        opened_since(start, real(path, flags, mode), libc::AT_FDCWD, path, flags)
    }
    fn __open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        let start = start();
        opened_since(start, real(path, flags, mode), libc::AT_FDCWD, path, flags)
    }
    fn __open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        let start = start();
        opened_since(start, real(path, flags, mode), libc::AT_FDCWD, path, flags)
    }
    fn __open_2(path: *const c_char, flags: c_int) -> c_int {
        let start = start();
        opened_since(start, real(path, flags), libc::AT_FDCWD, path, flags)
    }
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
        let start = start();
        opened_since(start, real(path, flags), libc::AT_FDCWD, path, flags)
    }
    fn openat(dirfd: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        let start = start();
        opened_since(start, real(dirfd, path, flags, mode), dirfd, path, flags)
    }
    fn openat64(dirfd: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        let start = start();
        opened_since(start, real(dirfd, path, flags, mode), dirfd, path, flags)
    }
    fn __openat_2(dirfd: c_int, path: *const c_char, flags: c_int) -> c_int {
        let start = start();
        opened_since(start, real(dirfd, path, flags), dirfd, path, flags)
    }
    fn __openat64_2(dirfd: c_int, path: *const c_char, flags: c_int) -> c_int {
        let start = start();
        opened_since(start, real(dirfd, path, flags), dirfd, path, flags)
    }
    fn creat(path: *const c_char, mode: mode_t) -> c_int {
        let start = start();
        opened_since(start, real(path, mode), libc::AT_FDCWD, path, CREAT)
    }
    fn creat64(path: *const c_char, mode: mode_t) -> c_int {
        let start = start();
        opened_since(start, real(path, mode), libc::AT_FDCWD, path, CREAT)
    }
    // The template holds the name once the call has returned.
    fn mkstemp(path: *mut c_char) -> c_int {
        let start = start();
        opened_since(start, real(path), libc::AT_FDCWD, path, TEMPORARY)
    }
    fn mkstemp64(path: *mut c_char) -> c_int {
        let start = start();
        opened_since(start, real(path), libc::AT_FDCWD, path, TEMPORARY)
    }
    fn mkostemp(path: *mut c_char, flags: c_int) -> c_int {
        let start = start();
        opened_since(start, real(path, flags), libc::AT_FDCWD, path, TEMPORARY | flags)
    }
    fn mkostemp64(path: *mut c_char, flags: c_int) -> c_int {
        let start = start();
        opened_since(start, real(path, flags), libc::AT_FDCWD, path, TEMPORARY | flags)
    }
    fn mkstemps(path: *mut c_char, suffix: c_int) -> c_int {
        let start = start();
        opened_since(start, real(path, suffix), libc::AT_FDCWD, path, TEMPORARY)
    }
    fn mkstemps64(path: *mut c_char, suffix: c_int) -> c_int {
        let start = start();
        opened_since(start, real(path, suffix), libc::AT_FDCWD, path, TEMPORARY)
    }
    fn mkostemps(path: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
        let start = start();
        opened_since(start, real(path, suffix, flags), libc::AT_FDCWD, path, TEMPORARY | flags)
    }
    fn mkostemps64(path: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
        let start = start();
        opened_since(start, real(path, suffix, flags), libc::AT_FDCWD, path, TEMPORARY | flags)
    }
}

const CREAT: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
const TEMPORARY: c_int = libc::O_CREAT | libc::O_RDWR | libc::O_EXCL;

/// `call` returns a copy of `from`, which has the same open file.
fn duplicated(from: c_int, call: impl FnOnce() -> c_int) -> c_int {
    let before = TABLE.get(from);
    let to = call();
    if to >= 0 && to != from {
        TABLE.copy(from, before, to);
    }
    to
}

/// Replaces `to` by a copy of `from`.
fn replace(from: c_int, to: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if from == to {
        return call();
    }
    if is_own(to) {
        // To the program, our numbers are beyond its limit.
        set_errno(libc::EBADF);
        return -1;
    }
    TABLE.forget(to);
    duplicated(from, call)
}

/// `fcntl`, as far as it makes copies or changes how a descriptor writes.
fn control(fd: c_int, command: c_int, argument: usize, call: impl FnOnce() -> c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(fd, call),
        libc::F_SETFL => {
            let entry = TABLE.get(fd);
            if entry.slot().is_some() && argument as c_int & libc::O_APPEND != 0 && !entry.appends() {
                // All that share the open file append from now on, in this process or another.
                claim_for_mount(fd);
            }
            call()
        }
        _ => call(),
    }
}

wrap! { real;
    fn dup(fd: c_int) -> c_int {
        duplicated(fd, || real(fd))
    }
    fn dup2(from: c_int, to: c_int) -> c_int {
        replace(from, to, || real(from, to))
    }
    fn __dup2(from: c_int, to: c_int) -> c_int {
        replace(from, to, || real(from, to))
    }
    fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
        replace(from, to, || real(from, to, flags))
    }
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
        control(fd, command, argument, || real(fd, command, argument))
    }
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
        control(fd, command, argument, || real(fd, command, argument))
    }
    fn __fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
        control(fd, command, argument, || real(fd, command, argument))
    }
}

/// A descriptor that is no file by name: nothing to us.
fn unknown(fd: c_int) -> c_int {
    TABLE.clear(fd);
    fd
}

/// A pair of them.
fn unknown_pair(result: c_int, pair: *mut c_int) -> c_int {
    if result >= 0 && !pair.is_null() {
        // SAFETY: the call succeeded, so it wrote both numbers there.
        let (first, second) = unsafe { (*pair, *pair.add(1)) };
        TABLE.clear(first);
        TABLE.clear(second);
    }
    result
}

wrap! { real;
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int { unknown(real(domain, kind, protocol)) }
    fn socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int {
        unknown_pair(real(domain, kind, protocol, pair), pair)
    }
    fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int { unknown(real(fd, address, len)) }
    fn accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
        unknown(real(fd, address, len, flags))
    }
    fn pipe(pair: *mut c_int) -> c_int { unknown_pair(real(pair), pair) }
    fn __pipe(pair: *mut c_int) -> c_int { unknown_pair(real(pair), pair) }
    fn pipe2(pair: *mut c_int, flags: c_int) -> c_int { unknown_pair(real(pair, flags), pair) }
    fn epoll_create(size: c_int) -> c_int { unknown(real(size)) }
    fn epoll_create1(flags: c_int) -> c_int { unknown(real(flags)) }
    fn eventfd(value: c_uint, flags: c_int) -> c_int { unknown(real(value, flags)) }
    fn signalfd(fd: c_int, set: *const libc::sigset_t, flags: c_int) -> c_int { unknown(real(fd, set, flags)) }
    fn timerfd_create(clock: c_int, flags: c_int) -> c_int { unknown(real(clock, flags)) }
    fn inotify_init() -> c_int { unknown(real()) }
    fn inotify_init1(flags: c_int) -> c_int { unknown(real(flags)) }
    fn fanotify_init(flags: c_uint, event_flags: c_uint) -> c_int { unknown(real(flags, event_flags)) }
    fn memfd_create(name: *const c_char, flags: c_uint) -> c_int { unknown(real(name, flags)) }
    fn pidfd_open(pid: libc::pid_t, flags: c_uint) -> c_int { unknown(real(pid, flags)) }
    fn pidfd_getfd(pidfd: c_int, target: c_int, flags: c_uint) -> c_int { unknown(real(pidfd, target, flags)) }
    fn shm_open(name: *const c_char, flags: c_int, mode: mode_t) -> c_int { unknown(real(name, flags, mode)) }
    fn mq_open(name: *const c_char, flags: c_int, mode: mode_t, attributes: *mut c_void) -> c_int {
        unknown(real(name, flags, mode, attributes))
    }
    fn open_by_handle_at(mount: c_int, handle: *mut c_void, flags: c_int) -> c_int {
        unknown(real(mount, handle, flags))
    }
    fn open_tree(dirfd: c_int, path: *const c_char, flags: c_uint) -> c_int { unknown(real(dirfd, path, flags)) }
    fn fsopen(name: *const c_char, flags: c_uint) -> c_int { unknown(real(name, flags)) }
    fn fsmount(fd: c_int, flags: c_uint, attributes: c_uint) -> c_int { unknown(real(fd, flags, attributes)) }
    fn fspick(dirfd: c_int, path: *const c_char, flags: c_uint) -> c_int { unknown(real(dirfd, path, flags)) }
    fn posix_openpt(flags: c_int) -> c_int { unknown(real(flags)) }
    fn getpt() -> c_int { unknown(real()) }
    fn openpty(main: *mut c_int, other: *mut c_int, name: *mut c_char, t: *const c_void, w: *const c_void) -> c_int {
        let result = real(main, other, name, t, w);
        if result >= 0 && !main.is_null() && !other.is_null() {
            // SAFETY: the call succeeded, so it wrote a number to each.
            let (main, other) = unsafe { (*main, *other) };
            TABLE.clear(main);
            TABLE.clear(other);
        }
        result
    }
    // Descriptors can come in a message.
    fn recvmsg(fd: c_int, message: *mut libc::msghdr, flags: c_int) -> isize {
        let result = real(fd, message, flags);
        if result >= 0 && !message.is_null() {
            // SAFETY: the call succeeded, so the message is a valid one.
            received(unsafe { &*message });
        }
        result
    }
    fn recvmmsg(fd: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int, timeout: *mut c_void) -> c_int {
        let result = real(fd, messages, count, flags, timeout);
        if !messages.is_null() {
            for index in 0..usize::try_from(result).unwrap_or(0) {
                // SAFETY: the call filled that many messages.
                received(unsafe { &(*messages.add(index)).msg_hdr });
            }
        }
        result
    }
}

/// Clears the entries of the descriptors that `message` brought.
fn received(message: &libc::msghdr) {
    // SAFETY: the kernel filled the control messages; the CMSG functions stay within their length.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(control) = header.as_ref() {
            if control.cmsg_level == libc::SOL_SOCKET && control.cmsg_type == libc::SCM_RIGHTS {
                let bytes = control.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                let first = libc::CMSG_DATA(header).cast::<c_int>();
                for index in 0..bytes / size_of::<c_int>() {
                    TABLE.clear(first.add(index).read_unaligned());
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
}

/// Maps memory; a placed file is the mount's alone before its bytes are.
///
/// No symbol is looked up and nothing is started here: an allocator may be calling, for that very look-up.
fn map(
    symbol: &crate::real::NextSymbol,
    (address, len, protection, flags, fd, offset): (*mut c_void, size_t, c_int, c_int, c_int, i64),
) -> *mut c_void {
    type Map = extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, i64) -> *mut c_void;
    let call = || {
        if symbol.is_resolved() {
            // SAFETY: the next library's function of this name has this type.
            let real: Map = unsafe { std::mem::transmute::<*mut c_void, Map>(symbol.address()) };
            return real(address, len, protection, flags, fd, offset);
        }
        let (Ok(offset), true) = (u64::try_from(offset), len > 0) else {
            set_errno(libc::EINVAL);
            return libc::MAP_FAILED;
        };
        let protection = rustix::mm::ProtFlags::from_bits_retain(protection as u32);
        let flags = rustix::mm::MapFlags::from_bits_retain(flags as u32);
        // SAFETY: the program's own request, as it made it.
        let mapped = unsafe {
            if fd < 0 {
                rustix::mm::mmap_anonymous(address, len, protection, flags.difference(ANONYMOUS))
            } else {
                rustix::mm::mmap(address, len, protection, flags, borrow(fd), offset)
            }
        };
        mapped.unwrap_or_else(|errno| {
            set_errno(errno.raw_os_error());
            libc::MAP_FAILED
        })
    };
    if fd < 0 || flags & libc::MAP_ANONYMOUS != 0 || runtime::peek().is_none() {
        return call();
    }
    claim_for_mount(fd);
    let writable = protection & libc::PROT_WRITE != 0 && flags & libc::MAP_SHARED != 0;
    let mapped = std::cell::Cell::new(libc::MAP_FAILED);
    on_descriptor(fd, Operation::Mmap, offset.max(0) as u64, len as u64, || {
        mapped.set(call());
        if mapped.get() == libc::MAP_FAILED { -1_i64 } else { i64::from(writable) }
    });
    mapped.get()
}

/// What [`rustix::mm::mmap_anonymous`] adds by itself.
const ANONYMOUS: rustix::mm::MapFlags = rustix::mm::MapFlags::from_bits_retain(libc::MAP_ANONYMOUS as u32);

macro_rules! mapping {
    ($($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name(a: *mut c_void, len: size_t, p: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void {
            static SYMBOL: crate::real::NextSymbol = crate::real::NextSymbol::new(
                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name has no zero inside"),
                },
            );
            #[used]
            #[unsafe(link_section = "stripewise_symbols")]
            static ENTRY: &crate::real::NextSymbol = &SYMBOL;
            map(&SYMBOL, (a, len, p, flags, fd, offset))
        }
    )* };
}
mapping! { mmap mmap64 }

/// System calls by number: whatever touches descriptors is left to the kernel, and the table told.
#[expect(clippy::too_many_lines, reason = "a table: an arm for each system call")]
fn by_number(number: c_long, a: [c_long; 6], call: impl FnOnce() -> c_long) -> c_long {
    use super::processes::{clone_flags, filters, process_control, unshared};
    let fd = a[0] as c_int;
    match number {
        libc::SYS_close => {
            if is_own(fd) {
                set_errno(libc::EBADF);
                return -1;
            }
            TABLE.forget(fd);
            call()
        }
        libc::SYS_close_range => {
            let mut result = 0;
            super::closing::close_range_with(a[0] as c_uint, a[1] as c_uint, a[2] as c_int, || {
                result = call();
                result as c_int
            });
            result
        }
        libc::SYS_dup => c_long::from(duplicated(fd, || call() as c_int)),
        libc::SYS_dup3 => c_long::from(replace(fd, a[1] as c_int, || call() as c_int)),
        libc::SYS_fcntl => c_long::from(control(fd, a[1] as c_int, a[2] as usize, || call() as c_int)),
        libc::SYS_mmap => {
            if a[3] as c_int & libc::MAP_ANONYMOUS == 0 {
                claim_for_mount(a[4] as c_int);
            }
            call()
        }
        libc::SYS_read => {
            let buffers = crate::bypass::ProgramBuffers::one(a[1] as *mut c_void, a[2] as usize);
            let position = crate::bypass::FilePosition::Cursor;
            crate::bypass::transfer(fd, TransferDirection::Read, position, buffers, || call() as isize) as c_long
        }
        libc::SYS_write => {
            let buffers = crate::bypass::ProgramBuffers::one(a[1] as *mut c_void, a[2] as usize);
            let position = crate::bypass::FilePosition::Cursor;
            crate::bypass::transfer(fd, TransferDirection::Write, position, buffers, || call() as isize) as c_long
        }
        libc::SYS_unshare => {
            unshared(a[0] as c_int);
            call()
        }
        libc::SYS_seccomp => {
            let operation = a[0] as c_uint;
            if operation == libc::SECCOMP_SET_MODE_STRICT || operation == libc::SECCOMP_SET_MODE_FILTER {
                filters(operation == libc::SECCOMP_SET_MODE_STRICT, a[2] as usize);
            }
            let result = call();
            // With one of its flags it returns a descriptor.
            TABLE.forget(result as c_int);
            result
        }
        libc::SYS_prctl => {
            process_control(a[0] as c_int, a[1] as c_ulong, a[2] as usize);
            call()
        }
        libc::SYS_clone => {
            clone_flags(a[0] as c_int);
            call()
        }
        libc::SYS_clone3 => {
            // Its flags are in memory; what they are does not matter enough to read them.
            clone_flags(libc::CLONE_VM);
            call()
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => c_long::from(replace(fd, a[1] as c_int, || call() as c_int)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_vfork => {
            clone_flags(libc::CLONE_VM);
            call()
        }
        number if RETURN_DESCRIPTORS.contains(&number) => {
            let result = call();
            // Some return other numbers, too.
            TABLE.forget(result as c_int);
            result
        }
        _ => call(),
    }
}

/// System calls whose result is a descriptor: it is left to the mount.
const RETURN_DESCRIPTORS: &[c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_create,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_eventfd,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_inotify_init,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_signalfd,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_socket,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_epoll_create1,
    libc::SYS_eventfd2,
    libc::SYS_inotify_init1,
    libc::SYS_fanotify_init,
    libc::SYS_signalfd4,
    libc::SYS_timerfd_create,
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    libc::SYS_mq_open,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_perf_event_open,
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_fsmount,
];

wrap! { real;
    fn syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long {
        by_number(number, [a, b, c, d, e, f], || real(number, a, b, c, d, e, f))
    }
}
