//! Whether a pool has other mounts on this machine: what one mount's kernel may remember depends on it.
//!
//! Every mount holds a shared lock on the file `<namespace>/mounts` as long as it lives (it ends with the process), and
//! has counted itself in the file when it came. A mount that could have the lock alone has no neighbours, and
//! has none while the count stays: one atomic load.
//!
//! A mount whose kernel keeps what programs write ([`Neighbours::keep_out`]) has the pool to itself: each of the others
//! holds a second shared lock of the file, which the first holds exclusively.
//!
//! In a shared pool ([`crate::pool::shared`]) no mount is taken to be alone: what all users can write could tell a
//! mount anything, or be taken from under it.

use crate::backend::emulate::now_ns;
use crate::os::byte_lock::lock_byte;
use crate::os::error::{Error, Result};
use crate::os::shared_pages::{SharedPage, allocate};
use crate::os::sync::mapped::AtomicU32;
use crate::os::sys::retry;
use crate::pool::store::Store;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Name of the file in the namespace.
const FILE: &str = "mounts";
/// The byte of the file whose lock keeps others out.
const ALONE_BYTE: i64 = 2;
/// How long a mount's kernel may believe what it was told of sizes of placed files, and of the absence of names, while
/// the mount has no neighbours.
pub const SHORT: Duration = Duration::from_millis(100);
/// When a kernel has forgotten what it was told to believe for [`SHORT`]: it rounds up to its ticks, of at most 10 ms,
/// and an answer may be on its way for a while.
pub const SHORT_IS_OVER: Duration = Duration::from_millis(250);
/// No count of mounts: there are neighbours.
const NOT_ALONE: u64 = u64::MAX;
/// How soon is looked again whether the neighbours have gone.
const AGAIN_NS: u64 = 1_000_000_000;

/// This mount among those of its pool.
#[derive(Debug)]
pub struct Neighbours {
    /// `None` in a shared pool.
    page: Option<Page>,
}

#[derive(Debug)]
struct Page {
    file: OwnedFd,
    /// The count of mounts stands first.
    counts: SharedPage<[AtomicU32; 1024]>,
    /// The count at which this mount was found alone.
    alone_at: AtomicU64,
    look_again_ns: AtomicU64,
}

impl Neighbours {
    /// Joins the mounts of the pool of this store. If [`Neighbours::alone`] is false then, the caller must
    /// not let programs in before what the kernels of the others remember has run out.
    ///
    /// # Errors
    /// The namespace cannot be written.
    pub fn join(store: &Store) -> Result<Self> {
        let page = if store.plane().is_shared() { None } else { Some(Page::join(&store.pool().namespace)?) };
        Ok(Self { page })
    }

    /// Keeps all others out from now on, as long as it lives: they are refused.
    ///
    /// # Errors
    /// There are others, or the pool is a shared one, in which no process can be sure to be alone.
    pub fn keep_out(&self) -> Result<()> {
        let Some(page) = &self.page else {
            return Err(Error::Invalid("a pool of several users cannot be had by one mount alone".into()));
        };
        lock_byte(page.file.as_fd(), ALONE_BYTE, libc::F_WRLCK, false).map_err(|_| {
            Error::Invalid(
                "the pool is in use by another mount or program: unmount it or wait until that has ended".into(),
            )
        })
    }

    /// Whether no other mount of the pool is on this machine. One atomic load; after there were others, three system
    /// calls once in a second.
    pub fn alone(&self) -> bool {
        self.page.as_ref().is_some_and(Page::alone)
    }
}

impl Page {
    fn join(namespace: &Path) -> Result<Self> {
        let path = namespace.join(FILE);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = retry(|| rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600)));
        let file = file.map_err(Error::io("open", &path))?;
        let bytes = size_of::<[AtomicU32; 1024]>() as u64;
        allocate(file.as_fd(), bytes).map_err(Error::io("allocate", &path))?;
        let counts = SharedPage::map(file.as_fd(), 0, ProtFlags::READ | ProtFlags::WRITE);
        let counts = counts.map_err(Error::io("map", &path))?;
        let never = AtomicU64::new(NOT_ALONE);
        let page = Self { file, counts, alone_at: never, look_again_ns: AtomicU64::new(0) };
        if lock_byte(page.file.as_fd(), ALONE_BYTE, libc::F_RDLCK, false).is_err() {
            return Err(Error::Invalid(format!(
                "{}: the pool is mounted with `writeback_cache`, and can be used through that mount alone: work there, or \
                 unmount it",
                namespace.display()
            )));
        }
        // Others have the lock alone for a moment only. With the lock first, a process that takes it alone after us has
        // seen us in the count.
        lock_byte(page.file.as_fd(), 0, libc::F_RDLCK, true).map_err(Error::io("lock", &path))?;
        page.counts[0].fetch_add(1, Ordering::AcqRel);
        Ok(page)
    }

    fn alone(&self) -> bool {
        let count = u64::from(self.counts[0].load(Ordering::Acquire));
        self.alone_at.load(Ordering::Acquire) == count || self.look(count)
    }

    #[cold]
    fn look(&self, count: u64) -> bool {
        let now_ns = now_ns();
        let due_ns = self.look_again_ns.load(Ordering::Acquire);
        let next_ns = now_ns + AGAIN_NS;
        let claim = || self.look_again_ns.compare_exchange(due_ns, next_ns, Ordering::AcqRel, Ordering::Acquire);
        if now_ns < due_ns || claim().is_err() {
            return false;
        }
        let lock = |kind| lock_byte(self.file.as_fd(), 0, kind, false).is_ok();
        // A newcomer waits for us, and counts itself after `count` was read.
        let alone = lock(libc::F_WRLCK) && lock(libc::F_RDLCK);
        self.alone_at.store(if alone { count } else { NOT_ALONE }, Ordering::Release);
        alone
    }
}

/// Whether a pool has any mount on this machine, for those who need it to themselves (`fsck`).
#[derive(Debug)]
pub(crate) struct Quiet {
    path: PathBuf,
    file: Option<OwnedFd>,
    /// The count of mounts, if there were none when it was read.
    alone_at: Option<u32>,
}

/// No mount, and none can come, until it is dropped.
#[derive(Debug)]
pub(crate) struct Silence<'a>(&'a OwnedFd);

impl Quiet {
    /// Looks for mounts. With `alone` no second one of its kind may be at work on the pool meanwhile; without it
    /// nothing is written.
    ///
    /// # Errors
    /// The file cannot be opened, or another process is at work.
    pub(crate) fn look(namespace: &Path, alone: bool, shared: bool) -> Result<Self> {
        let path = namespace.join(FILE);
        let mut flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        flags.set(OFlags::CREATE, alone);
        let file = match retry(|| rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600))) {
            Ok(file) => Some(file),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(Error::io("open", &path)(errno)),
        };
        // Mounts of a shared pool do not count themselves.
        let mut quiet = Self { path, file, alone_at: (!shared).then_some(0) };
        if let Some(file) = &quiet.file {
            if alone && lock_byte(file.as_fd(), 1, libc::F_WRLCK, false).is_err() {
                return Err(Error::Invalid("another check of this pool is running: wait until it has ended".into()));
            }
            let silent = lock_byte(file.as_fd(), 0, libc::F_WRLCK, false).is_ok();
            quiet.alone_at = if silent && !shared { Some(quiet.count(file)?) } else { None };
            lock_byte(file.as_fd(), 0, libc::F_UNLCK, false).map_err(Error::io("unlock", &quiet.path))?;
        }
        Ok(quiet)
    }

    fn count(&self, file: &OwnedFd) -> Result<u32> {
        let mut bytes = [0; 4];
        let read = retry(|| rustix::io::pread(file, &mut bytes[..], 0)).map_err(Error::io("read", &self.path))?;
        Ok(if read == bytes.len() { u32::from_ne_bytes(bytes) } else { 0 })
    }

    /// Keeps mounts out, if there was none when this was made and none has been there since; `None` otherwise.
    pub(crate) fn hold(&self) -> Result<Option<Silence<'_>>> {
        let (Some(before), Some(file)) = (self.alone_at, &self.file) else { return Ok(None) };
        if lock_byte(file.as_fd(), 0, libc::F_WRLCK, false).is_err() {
            return Ok(None);
        }
        let silence = Silence(file);
        Ok((self.count(file)? == before).then_some(silence))
    }

    /// Whether there was no mount when this was made.
    pub(crate) fn was_quiet(&self) -> bool {
        self.alone_at.is_some()
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // Not by closing alone: a process that another thread is starting has a copy of the descriptor, and with it the
        // lock, until it executes its program.
        if let Some(file) = &self.file {
            let _ = lock_byte(file.as_fd(), 1, libc::F_UNLCK, false);
        }
    }
}

impl Drop for Silence<'_> {
    fn drop(&mut self) {
        // It ends with the descriptor in any case.
        let _ = lock_byte(self.0.as_fd(), 0, libc::F_UNLCK, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alone_until_another_comes_and_again_when_it_has_gone() {
        let dir = tempfile::tempdir().unwrap();
        let one = Page::join(dir.path()).unwrap();
        assert!(one.alone() && one.alone());
        let two = Page::join(dir.path()).unwrap();
        assert!(!one.alone() && !two.alone());
        drop(two);
        one.look_again_ns.store(0, Ordering::Release);
        assert!(one.alone());
    }

    #[test]
    fn who_keeps_others_out_is_alone_until_he_goes() {
        let dir = tempfile::tempdir().unwrap();
        let join = || Page::join(dir.path()).map(|page| Neighbours { page: Some(page) });
        let (one, two) = (join().unwrap(), join().unwrap());
        assert!(one.keep_out().unwrap_err().to_string().contains("another mount"));
        drop(two);
        one.keep_out().unwrap();
        assert!(join().unwrap_err().to_string().contains("writeback_cache"));
        drop(one);
        join().unwrap();
        assert!(Neighbours { page: None }.keep_out().is_err());
    }

    #[test]
    fn a_check_ends_though_a_copy_of_its_descriptor_lives_on() {
        let dir = tempfile::tempdir().unwrap();
        let check = Quiet::look(dir.path(), true, false).unwrap();
        let _copy = check.file.as_ref().unwrap().try_clone().unwrap();
        assert!(Quiet::look(dir.path(), true, false).unwrap_err().to_string().contains("another check"));
        drop(check);
        Quiet::look(dir.path(), true, false).unwrap();
    }

    #[test]
    fn of_many_that_come_at_once_none_is_alone() {
        let dir = tempfile::tempdir().unwrap();
        let together = std::sync::Barrier::new(8);
        let join = || {
            together.wait();
            let neighbours = Page::join(dir.path()).unwrap();
            neighbours.alone();
            together.wait();
            neighbours.alone()
        };
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(join)).collect();
            assert!(all.into_iter().all(|one| !one.join().unwrap()));
        });
    }
}
