//! What the environment asks for, read once; and the descriptors that this process has then.

use crate::environment::variable;
use crate::fd::{borrow, for_each_open};
use crate::paths;
use crate::placed;
use crate::pool::Bypass;
use crate::recording::Recording;
use crate::table::TABLE;
use rustix::fs::FileType;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use stripewise_descriptors::DescriptorState;

/// Both things that this library does, each if asked for.
pub(crate) struct Runtime {
    pub(crate) bypass: Option<Bypass>,
    pub(crate) recording: Option<Recording>,
}

static RUNTIME: AtomicPtr<Runtime> = AtomicPtr::new(ptr::null_mut());
static STARTED: AtomicBool = AtomicBool::new(false);

/// The runtime, started on first use. `None` while it is being started, and after [`leave`]: calls of then are the
/// mount's. One load.
#[inline]
pub(crate) fn get() -> Option<&'static Runtime> {
    match peek() {
        None => start(),
        runtime => runtime,
    }
}

/// The runtime if it is started and was not left.
#[inline]
pub(crate) fn peek() -> Option<&'static Runtime> {
    // SAFETY: from a leaked box, never freed.
    unsafe { RUNTIME.load(Ordering::Acquire).as_ref() }
}

/// The recording, if there is one.
#[inline]
pub(crate) fn recording() -> Option<&'static Recording> {
    get()?.recording.as_ref()
}

/// The bypass, if there is one and it was not given up.
#[inline]
pub(crate) fn bypass() -> Option<&'static Bypass> {
    get()?.bypass.as_ref().filter(|_| !placed::is_given_up())
}

/// The library makes no call of its own in this process from now on: the kernel might end the program for one that the
/// program itself would not have made.
pub(crate) fn leave() {
    RUNTIME.store(ptr::null_mut(), Ordering::SeqCst);
    TABLE.forget_all();
}

/// Whether the kernel filters more of this process's system calls than of what `stripewise run` started. Reading the
/// file is what the loader has done for this library: an open, reads, a close.
fn is_filtered() -> bool {
    let Some(before) = variable(c"STRIPEWISE_FILTERS").and_then(number) else { return false };
    let mut status = vec![0; 1 << 16];
    let filled = paths::read_start(c"/proc/self/status", &mut status);
    let mut lines = status[..filled].split(|&byte| byte == b'\n');
    let now = lines.find_map(|line| number(line.strip_prefix(b"Seccomp_filters:")?));
    now.is_none_or(|now| now > before)
}

fn number(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

#[cold]
fn start() -> Option<&'static Runtime> {
    if STARTED.swap(true, Ordering::AcqRel) || is_filtered() {
        return None;
    }
    // A panic in here is caught where it could reach the program; it should not be seen on its terminal either.
    std::panic::set_hook(Box::new(|_| {}));
    let errno = crate::real::errno();
    let runtime = std::panic::catch_unwind(|| {
        let bypass = variable(c"STRIPEWISE_POOL").and_then(Bypass::load);
        let recording =
            variable(c"STRIPEWISE_TRACE").map(|dir| Recording::new(dir, bypass.as_ref().map(Bypass::mount)));
        Runtime { bypass, recording }
    })
    .unwrap_or(Runtime { bypass: None, recording: None });
    RUNTIME.store(Box::into_raw(Box::new(runtime)), Ordering::Release);
    adopt();
    crate::real::set_errno(errno);
    peek()
}

/// Enters `fd`, which was opened with `flags`, if it is a file of the pool of `bypass` or one to be recorded.
pub(crate) fn enter(fd: c_int, bypass: Option<&Bypass>, flags: c_int) {
    let recording = recording();
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
        let bypass = bypass.filter(|_| self::bypass().is_some() && !on_signal_stack());
        let slot = bypass.and_then(|bypass| placed::open(bypass, borrow(fd)));
        let file = recording.map_or(0, |recording| recording.file_of(fd));
        (slot.is_some() || file != 0).then(|| DescriptorState::new(flags, slot, file))
    }));
    TABLE.finish(fd, ticket, entry.ok().flatten().unwrap_or(DescriptorState::NONE));
    if bypass.is_some() && self::bypass().is_none() {
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
fn adopt() {
    let Some(runtime) = peek() else { return };
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
        enter(fd, bypass(), flags.bits() as c_int);
    });
}
