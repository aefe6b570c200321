//! What happens when a descriptor comes, is copied, or goes.

use crate::placed::{self, Placed};
use crate::runtime::{self, Bypass};
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, StatxFlags};
use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use stripewise_descriptors::{DescriptorState, DescriptorTable};

/// What is known of the program's descriptors. Those from this number on are left to the mount and not recorded.
pub(crate) static TABLE: DescriptorTable<Placed, { 1 << 16 }> = DescriptorTable::new(Placed);

/// A descriptor that the program holds.
///
/// Only for calls made while the program's own call on it runs: if the program closes it meanwhile, those calls fail
/// or reach what the program put in its place, as its own would.
#[inline]
pub(crate) fn borrow<'a>(fd: c_int) -> BorrowedFd<'a> {
    debug_assert!(fd >= 0);
    // SAFETY: callers pass numbers that are not -1; that it is open is the program's concern, and the kernel answers
    // EBADF when it is not.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// `fd` came from an open of `path` with `flags`: enters it if it is a placed file, or one to be recorded. Outside the
/// pool and without recording: one comparison of a prefix (for a relative path a few `statx`, which ask no server).
pub(crate) fn opened(fd: c_int, path: *const c_char, flags: c_int) {
    if fd < 0 {
        return;
    }
    let candidate = runtime::bypass().filter(|bypass| match crate::paths::bytes(path) {
        Some(path) if path.starts_with(b"/") => bypass.contains(path),
        _ => bypass.holds(borrow(fd)),
    });
    enter(fd, candidate, flags);
}

fn enter(fd: c_int, bypass: Option<&Bypass>, flags: c_int) {
    let recording = runtime::recording();
    if (bypass.is_none() && recording.is_none()) || flags & libc::O_PATH != 0 {
        return TABLE.clear(fd);
    }
    let ticket = TABLE.begin(fd);
    let entry = catch_unwind(AssertUnwindSafe(|| {
        let stat = rustix::fs::fstat(borrow(fd)).ok()?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return None;
        }
        // Beginning may have shown that the bypass is to be given up.
        let bypass = bypass.filter(|_| runtime::bypass().is_some() && !on_signal_stack());
        let slot = bypass.and_then(|bypass| placed::open(bypass, borrow(fd)));
        let file = recording.map_or(0, |recording| recording.file_of(fd));
        (slot.is_some() || file != 0).then(|| DescriptorState::new(flags, slot, file))
    }));
    TABLE.finish(fd, ticket, entry.ok().flatten().unwrap_or(DescriptorState::NONE));
    if bypass.is_some() && runtime::bypass().is_none() {
        // Another thread gave it up meanwhile.
        TABLE.forget(fd);
    }
}

/// Whether the caller runs on a stack for signal handlers. These may be as small as 2 KiB, and asking the mount for a
/// placement takes more: what is opened there is left to the mount.
fn on_signal_stack() -> bool {
    let mut stack = MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: asks only; the structure has room for the answer, and zeros are a valid value of it.
    unsafe {
        libc::sigaltstack(std::ptr::null(), stack.as_mut_ptr()) == 0
            && stack.assume_init().ss_flags & libc::SS_ONSTACK != 0
    }
}

/// Enters the descriptors that this process was started with.
pub(crate) fn adopt() {
    let Some(runtime) = runtime::peek() else { return };
    if runtime.bypass.is_none() && runtime.recording.is_none() {
        return;
    }
    for_each_open(|fd| {
        // Another library's constructor may have opened files already.
        if TABLE.get(fd).is_known() {
            return;
        }
        let Ok(stat) = rustix::fs::fstat(borrow(fd)) else { return };
        // Terminals, pipes and the null device are what most programs get: for them the mount is not even looked at.
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return;
        }
        let Ok(flags) = rustix::fs::fcntl_getfl(borrow(fd)) else { return };
        enter(fd, runtime::bypass(), flags.bits() as c_int);
    });
}

/// Calls `with` for each open descriptor.
pub(crate) fn for_each_open(mut with: impl FnMut(c_int)) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::open(c"/proc/self/fd", flags, Mode::empty()) else { return };
    let own = rustix::fd::IntoRawFd::into_raw_fd(directory);
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut listing = RawDir::new(borrow(own), &mut buffer);
    while let Some(Ok(entry)) = listing.next() {
        let number = entry.file_name().to_str().ok().and_then(|name| name.parse::<c_int>().ok());
        if let Some(fd) = number.filter(|&fd| fd != own) {
            with(fd);
        }
    }
    // SAFETY: opened above, not used any more. (An owned descriptor would be closed through our own `close`.)
    unsafe { rustix::io::close(own) };
}

/// Whether `fd` is this library's own, which the program must neither close nor replace. For numbers below the floor
/// one comparison.
#[inline]
pub(crate) fn is_own(fd: c_int) -> bool {
    runtime::peek()
        .and_then(|runtime| runtime.bypass.as_ref())
        .is_some_and(|bypass| fd >= bypass.floor() && bypass.owns(fd))
}

/// First number at which descriptors of this library can stand, if it has any.
pub(crate) fn floor() -> Option<c_int> {
    runtime::peek()?.bypass.as_ref().map(Bypass::floor)
}

/// The program is about to map `fd`, or to let it append: the mount must serve its file alone from now on, in every
/// process. For descriptors outside the pool a few `statx`.
pub(crate) fn claim_for_mount(fd: c_int) {
    let Some(bypass) = runtime::peek().and_then(|runtime| runtime.bypass.as_ref()) else { return };
    if fd < 0 {
        return;
    }
    let slot = TABLE.get(fd).slot();
    if slot.is_some() || bypass.holds(borrow(fd)) {
        // ENOTTY: not a placed file.
        let _ = placed::mapped(borrow(fd));
        // The kernel has not seen what was written past the mount: it would raise SIGBUS beyond the size it remembers.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
        let _ = rustix::fs::statx(borrow(fd), c"", flags, StatxFlags::SIZE);
        if let Some(pin) = slot.and_then(placed::pin) {
            pin.turn_off();
        }
    }
}
