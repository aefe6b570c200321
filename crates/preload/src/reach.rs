//! Whether memory that the program named is there. The kernel answers EFAULT for what is not; this library, which looks at
//! lists of buffers and fills holes with zeros itself, would end the program by SIGSEGV.

use rustix::io::Errno;
use rustix::mm::{Advice, madvise};
use std::ffi::c_void;

/// Every page size is a multiple of it; the kernel rounds the length up.
const PAGE_BYTES: usize = 4096;

/// Whether the `len` bytes at `base` can be read, or written if `write`. One system call. `true` where the kernel cannot
/// tell (before Linux 5.14).
pub(crate) fn is_there(base: *const c_void, len: usize, write: bool) -> bool {
    let populate = |base: *const c_void, len: usize| {
        let before = base.addr() % PAGE_BYTES;
        let advice = if write { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
        // SAFETY: the kernel brings the pages in as a read or a write would, and changes nothing in them.
        unsafe { madvise(base.wrapping_byte_sub(before).cast_mut(), len.saturating_add(before), advice) }
    };
    match populate(base, len) {
        // No permission; or a kernel that does not know the advice, and says so of memory that is there, too.
        Err(Errno::INVAL) => populate((&raw const base).cast(), 1) == Err(Errno::INVAL),
        Err(Errno::FAULT | Errno::NOMEM) => false,
        _ => true,
    }
}
