//! What happens when a descriptor comes from an open, or is about to be mapped; and which are this library's own.

use crate::fd::borrow;
use crate::paths;
use crate::placed;
use crate::pool::Bypass;
use crate::runtime;
use crate::table::TABLE;
use rustix::fs::{AtFlags, StatxFlags};
use std::ffi::{c_char, c_int};

/// `fd` came from an open of `path` with `flags`: enters it if it is a placed file, or one to be recorded. Outside the
/// pool and without recording: one comparison of a prefix (for a relative path a few `statx`, which ask no server).
pub(crate) fn opened(fd: c_int, path: *const c_char, flags: c_int) {
    if fd < 0 {
        return;
    }
    let candidate = runtime::bypass().filter(|bypass| match paths::bytes(path) {
        Some(path) if path.starts_with(b"/") => bypass.contains(path),
        _ => bypass.holds(borrow(fd)),
    });
    runtime::enter(fd, candidate, flags);
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
