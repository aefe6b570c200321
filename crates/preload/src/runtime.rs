//! What the environment asks for, read once.

use crate::descriptors;
use crate::paths;
use crate::recording::Recording;
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, CWD, StatxFlags};
use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use stripewise_store::{DataPlane, PlaneOptions, Pool};

/// The fast path to a pool's files. Most programs that a script starts open none of them: the pool file is read when
/// the first one is opened.
pub(crate) struct Bypass {
    /// The pool file.
    file: Vec<u8>,
    /// The mount point without a slash at its end.
    mount: Vec<u8>,
    pool: AtomicPtr<Pool>,
    /// Set when the pool file cannot be used, or is not that of the mount.
    unusable: AtomicBool,
    plane: AtomicPtr<Arc<DataPlane>>,
    /// Descriptors of our own stand at this number or above.
    floor: i32,
}

/// Both things that this library does, each if asked for.
pub(crate) struct Runtime {
    pub(crate) bypass: Option<Bypass>,
    pub(crate) recording: Option<Recording>,
}

static RUNTIME: AtomicPtr<Runtime> = AtomicPtr::new(ptr::null_mut());
static STARTED: AtomicBool = AtomicBool::new(false);
/// Set when descriptors can no longer be told apart by their number (see [`give_up_bypass`]).
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

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
    get()?.bypass.as_ref().filter(|_| !GIVEN_UP.load(Ordering::Relaxed))
}

/// The mount serves everything from now on, in this process: parts of it have descriptor tables of their own, so a
/// number no longer says which file is meant.
pub(crate) fn give_up_bypass() {
    GIVEN_UP.store(true, Ordering::SeqCst);
    crate::descriptors::TABLE.forget_all();
}

/// The library makes no call of its own in this process from now on: the kernel might end the program for one that the
/// program itself would not have made.
pub(crate) fn leave() {
    RUNTIME.store(ptr::null_mut(), Ordering::SeqCst);
    crate::descriptors::TABLE.forget_all();
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
        let recording = variable(c"STRIPEWISE_TRACE")
            .map(|dir| Recording::new(dir, bypass.as_ref().map(|bypass| bypass.mount.as_slice())));
        Runtime { bypass, recording }
    })
    .unwrap_or(Runtime { bypass: None, recording: None });
    RUNTIME.store(Box::into_raw(Box::new(runtime)), Ordering::Release);
    descriptors::adopt();
    crate::real::set_errno(errno);
    peek()
}

unsafe extern "C" {
    fn secure_getenv(name: *const c_char) -> *mut c_char;
}

/// Number of the device that a file is on, as the kernel knows it.
fn device(at: BorrowedFd<'_>, path: &[u8], flags: AtFlags) -> Option<(u32, u32)> {
    let known = rustix::fs::statx(at, path, flags | AtFlags::STATX_DONT_SYNC, StatxFlags::empty()).ok()?;
    Some((known.stx_dev_major, known.stx_dev_minor))
}

/// A directory's path without slashes at its end.
fn without_slash(mut path: &[u8]) -> &[u8] {
    while path.len() > 1 && path.ends_with(b"/") {
        path = &path[..path.len() - 1];
    }
    path
}

/// A variable of the environment that is set and not empty; none in a program that runs with other rights than
/// its starter (set-user-id, file capabilities): that user chose the environment.
pub(crate) fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: the name ends with a zero. The value is copied by all callers before the program can change it: they run
    // before its own code, or are the start of one of its threads at worst.
    let value = unsafe {
        let value = secure_getenv(name.as_ptr());
        if value.is_null() {
            return None;
        }
        CStr::from_ptr(value)
    };
    Some(value.to_bytes()).filter(|value| !value.is_empty())
}

impl Bypass {
    /// The mount point is what `STRIPEWISE_MOUNT` says; without it the pool file is read now. Nothing when that cannot
    /// be used: the mount serves all. (`stripewise run` has checked it before.)
    fn load(file: &[u8]) -> Option<Self> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let limit = limit.unwrap_or(1 << 20).min(1 << 20) as i32;
        let mut bypass = Self {
            file: file.to_vec(),
            mount: Vec::new(),
            pool: AtomicPtr::new(ptr::null_mut()),
            unusable: AtomicBool::new(false),
            plane: AtomicPtr::new(ptr::null_mut()),
            floor: limit - (limit / 4).min(8192),
        };
        bypass.mount = match variable(c"STRIPEWISE_MOUNT").filter(|mount| mount.starts_with(b"/")) {
            Some(mount) => without_slash(mount).to_vec(),
            None => without_slash(bypass.read_pool()?.mount.as_os_str().as_bytes()).to_vec(),
        };
        Some(bypass)
    }

    /// The pool, if it was read.
    fn known_pool(&self) -> Option<&Pool> {
        // SAFETY: set once from a leaked box, never freed.
        unsafe { self.pool.load(Ordering::Acquire).as_ref() }
    }

    fn read_pool(&self) -> Option<&Pool> {
        let pool = Pool::load(Path::new(OsStr::from_bytes(&self.file))).ok()?;
        let made = Box::into_raw(Box::new(pool));
        if self.pool.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // Another thread read it, too.
            // SAFETY: from `Box::into_raw` just now, and no other thread saw it.
            drop(unsafe { Box::from_raw(made) });
        }
        self.known_pool()
    }

    /// The pool, read on first use. `None` when its file cannot be used or names another mount: a placement from one
    /// pool's mount must never be looked for on another's servers.
    fn pool(&self) -> Option<&Pool> {
        if self.unusable.load(Ordering::Relaxed) {
            return None;
        }
        let pool = self.known_pool().or_else(|| self.read_pool());
        let pool = pool.filter(|pool| without_slash(pool.mount.as_os_str().as_bytes()) == self.mount);
        if pool.is_none() {
            self.unusable.store(true, Ordering::Relaxed);
        }
        pool
    }

    /// Whether the absolute `path` is below the mount. One comparison of a prefix.
    #[inline]
    pub(crate) fn contains(&self, path: &[u8]) -> bool {
        paths::is_below(path, &self.mount)
    }

    /// Whether `fd` is on the file system that is at the mount point now. Two system calls, which ask no server.
    ///
    /// Looked at each time: the mount may come after this process, or go, and another file system gets its number.
    pub(crate) fn holds(&self, fd: BorrowedFd<'_>) -> bool {
        let here = device(fd, b"", AtFlags::EMPTY_PATH);
        here.is_some() && here == device(CWD, &self.mount, AtFlags::empty())
    }

    /// The data plane, opened on first use.
    pub(crate) fn plane(&self) -> Option<Arc<DataPlane>> {
        // SAFETY: set once from a leaked box, never freed.
        if let Some(plane) = unsafe { self.plane.load(Ordering::Acquire).as_ref() } {
            return Some(Arc::clone(plane));
        }
        let pool = self.pool()?;
        let options = PlaneOptions { descriptor_floor: self.floor, door: crate::door::door(pool) };
        let plane = DataPlane::open(pool, options).ok()?;
        let made = Box::into_raw(Box::new(Arc::clone(&plane)));
        match self.plane.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Some(plane),
            Err(other) => {
                // SAFETY: `made` is from `Box::into_raw` and no other thread saw it; `other` was set once and is never
                // freed.
                unsafe {
                    drop(Box::from_raw(made));
                    other.as_ref().map(Arc::clone)
                }
            }
        }
    }

    /// First number that a descriptor of this library can have.
    #[inline]
    pub(crate) fn floor(&self) -> i32 {
        self.floor
    }

    /// Whether `fd` is a descriptor of this library: high, and open on a server's or the namespace's files.
    #[cold]
    pub(crate) fn owns(&self, fd: i32) -> bool {
        // Before the pool is known, nothing of it was opened.
        let Some(pool) = self.known_pool() else { return false };
        let mut buffer = [0; paths::MAX_BYTES];
        let Some(path) = paths::of_descriptor(fd, &mut buffer) else {
            return false;
        };
        pool.is_inside(Path::new(OsStr::from_bytes(path)))
    }
}
