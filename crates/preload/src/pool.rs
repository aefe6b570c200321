//! [`Bypass`]: the pool whose files are served past its mount.

use crate::door::door;
use crate::environment::variable;
use crate::paths;
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, CWD, StatxFlags};
use std::ffi::OsStr;
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

impl Bypass {
    /// The mount point is what `STRIPEWISE_MOUNT` says; without it the pool file is read now. Nothing when that cannot
    /// be used: the mount serves all. (`stripewise run` has checked it before.)
    pub(crate) fn load(file: &[u8]) -> Option<Self> {
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

    /// The mount point.
    pub(crate) fn mount(&self) -> &[u8] {
        &self.mount
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
        let options = PlaneOptions { descriptor_floor: self.floor, door: door(pool) };
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
