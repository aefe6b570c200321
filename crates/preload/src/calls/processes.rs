//! Processes that share this one's memory but not its descriptors, or its descriptors but not its memory: the table would
//! be wrong in one of the two. And programs that let the kernel filter their system calls.

use crate::real::wrap;
use crate::runtime;
use crate::table::TABLE;
use std::ffi::{c_int, c_ulong, c_void};

/// A process or thread is made with these flags of `clone`.
pub(crate) fn clone_flags(flags: c_int) {
    if (flags & libc::CLONE_VM != 0) != (flags & libc::CLONE_FILES != 0) {
        TABLE.give_up();
    }
}

/// This thread gets what these flags say for itself.
pub(crate) fn unshared(flags: c_int) {
    if flags & libc::CLONE_FILES != 0 {
        TABLE.give_up();
    }
}

/// The program lets the kernel filter its system calls, unless it only asks whether that is possible (with no filter).
pub(crate) fn filters(strictly: bool, filter: usize) {
    if strictly || filter != 0 {
        runtime::leave();
    }
}

/// `prctl`, as far as it filters.
pub(crate) fn process_control(option: c_int, mode: c_ulong, filter: usize) {
    if option == libc::PR_SET_SECCOMP {
        filters(mode == c_ulong::from(libc::SECCOMP_MODE_STRICT), filter);
    }
}

/// A child of `vfork` shares this process's memory and would change its table. POSIX lets `vfork` be `fork`.
#[unsafe(no_mangle)]
extern "C" fn vfork() -> libc::pid_t {
    // SAFETY: the program asked for a child.
    unsafe { libc::fork() }
}

/// As [`vfork`].
#[unsafe(no_mangle)]
extern "C" fn __vfork() -> libc::pid_t {
    vfork()
}

wrap! { real;
    fn unshare(flags: c_int) -> c_int {
        unshared(flags);
        real(flags)
    }
    // Those after the option are variadic arguments in C.
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
        process_control(option, a, b as usize);
        real(option, a, b, c, d)
    }
    fn clone(
        function: *mut c_void,
        stack: *mut c_void,
        flags: c_int,
        argument: *mut c_void,
        parent: *mut c_void,
        tls: *mut c_void,
        child: *mut c_void,
    ) -> c_int {
        clone_flags(flags);
        real(function, stack, flags, argument, parent, tls, child)
    }
    fn __clone(
        function: *mut c_void,
        stack: *mut c_void,
        flags: c_int,
        argument: *mut c_void,
        parent: *mut c_void,
        tls: *mut c_void,
        child: *mut c_void,
    ) -> c_int {
        clone_flags(flags);
        real(function, stack, flags, argument, parent, tls, child)
    }
}
