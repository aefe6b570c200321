//! Processes that share this one's memory but not its descriptors, or its descriptors but not its memory: the table would
//! be wrong in one of the two.

use crate::real::wrap;
use crate::runtime;
use std::ffi::{c_int, c_void};

/// A process or thread is made with these flags of `clone`.
pub(crate) fn clone_flags(flags: c_int) {
    if (flags & libc::CLONE_VM != 0) != (flags & libc::CLONE_FILES != 0) {
        runtime::give_up_bypass();
    }
}

/// This thread gets what these flags say for itself.
pub(crate) fn unshared(flags: c_int) {
    if flags & libc::CLONE_FILES != 0 {
        runtime::give_up_bypass();
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
