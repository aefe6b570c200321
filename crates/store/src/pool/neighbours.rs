//! Whether a pool has other mounts on this machine: what one mount's kernel may remember depends on it.
//!
//! Every mount holds a shared lock on the file `<namespace>/mounts` as long as it lives (it ends with the process), and
//! has counted itself in the file when it came. A mount that could have the lock alone has no neighbours, and
//! has none while the count stays: one atomic load.
//!
//! While a mount has no neighbours, and a thread of it waits for the first ([`Neighbours::begin_to_believe`]), its kernel may
//! believe for [`LONG`] what it is told. Who comes then has counted itself and wakes that thread, which has the kernel forget
//! all that. The newcomer waits for it before its first change, and not longer than those answers hold: the mount may have been
//! stopped ([`Neighbours::wait_for_others`]). Each first writes its own number in the file and then reads that of the other,
//! so that one of the two sees the other.
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
use crate::os::sys::{is_local, open_or_make, retry};
use crate::pool::store::Store;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::ProtFlags;
#[cfg(not(feature = "shuttle"))]
use rustix::{thread::futex, time::Timespec};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

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
/// How long a kernel may believe what it was told while its mount waits for neighbours.
pub const LONG: Duration = Duration::from_secs(10);
/// When a kernel has forgotten what it was told to believe for [`LONG`].
const LONG_IS_OVER: Duration = Duration::from_millis(10_150);
/// How often a mount that has neighbours looks whether they have gone.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Of the numbers in the file, that of the mounts that have come.
const COUNT: usize = 0;
/// 1 as long as the kernel of one mount believes anything for [`LONG`].
const BELIEVER: usize = 1;
/// Grows when a mount comes, after its count, and wakes who waits for that.
const CALLS: usize = 2;

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
    /// The count at which the kernel of this mount may believe answers for [`LONG`].
    believes_at: AtomicU64,
    /// No other machine has the file.
    is_local: bool,
    /// This mount has ended, and waits for no other any more.
    has_ended: AtomicBool,
}

impl Neighbours {
    /// Joins the mounts of the pool of this store. The caller changes nothing before [`Neighbours::wait_for_others`].
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

    /// Waits until no kernel believes what it was told by another mount that did not know of this one: a moment if there is
    /// another, at most as long as [`LONG`].
    pub fn wait_for_others(&self) {
        let began = Instant::now();
        if let Some(page) = &self.page {
            if page.alone() {
                // Of a mount that was killed, with its kernel's knowledge: as long as this one is here no other believes anything.
                page.counts[BELIEVER].store(0, Ordering::SeqCst);
                return;
            }
            page.wait_for_believer(began);
        }
        std::thread::sleep(SHORT_IS_OVER.saturating_sub(began.elapsed()));
    }

    /// Whether the kernel of this mount may believe for [`LONG`] what it is told now. Two atomic loads.
    #[inline]
    pub fn believes(&self) -> bool {
        self.page.as_ref().is_some_and(Page::believes)
    }

    /// Whether all that have the pool are processes of this machine.
    pub fn is_local(&self) -> bool {
        self.page.as_ref().is_some_and(|page| page.is_local)
    }

    /// Waits until this mount is alone, and notes for those that come that its kernel believes what it is told; false at the
    /// mount's end, and at once where no mount can be sure to be alone.
    pub fn begin_to_believe(&self) -> bool {
        let Some(page) = self.page.as_ref().filter(|page| page.is_local) else { return false };
        loop {
            let calls = page.counts[CALLS].load(Ordering::SeqCst);
            if page.has_ended.load(Ordering::SeqCst) {
                return false;
            }
            if page.begin_to_believe() {
                return true;
            }
            sleep_while(&page.counts[CALLS], calls, Some(LOOK_EVERY));
        }
    }

    /// Waits, after [`Neighbours::begin_to_believe`], until another mount has come; false if this one has ended before. From then
    /// on [`Neighbours::believes`] is false.
    pub fn wait_for_newcomer(&self) -> bool {
        let Some(page) = &self.page else { return false };
        loop {
            let calls = page.counts[CALLS].load(Ordering::SeqCst);
            let has_come = !page.believes();
            if has_come || page.has_ended.load(Ordering::SeqCst) {
                page.believes_at.store(NOT_ALONE, Ordering::SeqCst);
                return has_come;
            }
            sleep_while(&page.counts[CALLS], calls, None);
        }
    }

    /// The kernel of this mount has forgotten what it believed: those that have come need not wait any longer.
    pub fn has_forgotten(&self) {
        if let Some(page) = &self.page {
            page.counts[BELIEVER].store(0, Ordering::SeqCst);
            wake(&page.counts[BELIEVER]);
        }
    }

    /// Ends the waiting of [`Neighbours::begin_to_believe`] and [`Neighbours::wait_for_newcomer`]: the mount ends.
    pub fn end(&self) {
        if let Some(page) = &self.page {
            page.has_ended.store(true, Ordering::SeqCst);
            page.counts[CALLS].fetch_add(1, Ordering::SeqCst);
            wake(&page.counts[CALLS]);
        }
    }
}

/// Sleeps until `word` is woken, or at most that long; not at all if it is not `value` any more.
#[cfg(not(feature = "shuttle"))]
fn sleep_while(word: &AtomicU32, value: u32, most: Option<Duration>) {
    let most = most.map(|most| Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() });
    // However it ends, the caller looks again.
    let _ = futex::wait(word, futex::Flags::empty(), value, most.as_ref());
}

/// Wakes all that sleep for `word`, in all processes.
#[cfg(not(feature = "shuttle"))]
fn wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

/// The threads of a schedule do not sleep.
#[cfg(feature = "shuttle")]
fn sleep_while(_: &AtomicU32, _: u32, _: Option<Duration>) {
    shuttle::thread::yield_now();
}

#[cfg(feature = "shuttle")]
fn wake(_: &AtomicU32) {}

impl Page {
    fn join(namespace: &Path) -> Result<Self> {
        let path = namespace.join(FILE);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = open_or_make(&path, flags, Mode::from_raw_mode(0o600));
        let file = file.map_err(Error::io("open", &path))?;
        let bytes = size_of::<[AtomicU32; 1024]>() as u64;
        allocate(file.as_fd(), bytes).map_err(Error::io("allocate", &path))?;
        let counts = SharedPage::map(file.as_fd(), 0, ProtFlags::READ | ProtFlags::WRITE);
        let counts = counts.map_err(Error::io("map", &path))?;
        let never = AtomicU64::new(NOT_ALONE);
        let is_local = is_local(&file);
        let page = Self {
            file,
            counts,
            alone_at: never,
            look_again_ns: AtomicU64::new(0),
            believes_at: AtomicU64::new(NOT_ALONE),
            is_local,
            has_ended: AtomicBool::new(false),
        };
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
        page.counts[COUNT].fetch_add(1, Ordering::SeqCst);
        page.counts[CALLS].fetch_add(1, Ordering::SeqCst);
        wake(&page.counts[CALLS]);
        Ok(page)
    }

    fn alone(&self) -> bool {
        let count = u64::from(self.counts[COUNT].load(Ordering::Acquire));
        self.alone_at.load(Ordering::Acquire) == count || self.look(count)
    }

    #[inline]
    fn believes(&self) -> bool {
        self.believes_at.load(Ordering::Acquire) == u64::from(self.counts[COUNT].load(Ordering::SeqCst))
    }

    /// Whether this mount is alone, and those that come know that its kernel believes what it is told.
    fn begin_to_believe(&self) -> bool {
        let count = u64::from(self.counts[COUNT].load(Ordering::SeqCst));
        if self.alone_at.load(Ordering::Acquire) != count && !self.look(count) {
            return false;
        }
        self.counts[BELIEVER].store(1, Ordering::SeqCst);
        let is_alone = u64::from(self.counts[COUNT].load(Ordering::SeqCst)) == count;
        if is_alone {
            self.believes_at.store(count, Ordering::SeqCst);
        } else {
            // Who came meanwhile may wait.
            self.counts[BELIEVER].store(0, Ordering::SeqCst);
            wake(&self.counts[BELIEVER]);
        }
        is_alone
    }

    /// Waits until the kernel of no mount believes anything for [`LONG`] any more.
    fn wait_for_believer(&self, began: Instant) {
        loop {
            let believer = self.counts[BELIEVER].load(Ordering::SeqCst);
            let rest = LONG_IS_OVER.saturating_sub(began.elapsed());
            if believer == 0 || rest.is_zero() {
                return;
            }
            sleep_while(&self.counts[BELIEVER], believer, Some(rest));
        }
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
        let file = match open_or_make(&path, flags, Mode::from_raw_mode(0o600)) {
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
    fn who_comes_waits_until_the_other_kernel_has_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let join = || Neighbours { page: Some(Page::join(dir.path()).unwrap()) };
        let one = join();
        one.wait_for_others();
        assert!(!one.believes());
        assert!(one.begin_to_believe() && one.believes());
        let two = join();
        assert!(!one.believes(), "as soon as another is there");
        let forgotten = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                two.wait_for_others();
                forgotten.load(Ordering::SeqCst)
            });
            assert!(one.wait_for_newcomer());
            forgotten.store(true, Ordering::SeqCst);
            one.has_forgotten();
            assert!(waits.join().unwrap(), "the change would have been made too early");
        });
        // Of two none believes, and what waits for that ends with its mount.
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| one.begin_to_believe());
            one.end();
            assert!(!waits.join().unwrap() && !two.believes());
        });
    }

    /// A mount that was killed leaves its number: the next is alone, and one beside that does not wait for the dead.
    #[test]
    fn nothing_waits_for_a_mount_that_was_killed() {
        let dir = tempfile::tempdir().unwrap();
        let join = || Neighbours { page: Some(Page::join(dir.path()).unwrap()) };
        let killed = join();
        assert!(killed.begin_to_believe());
        drop(killed);
        let next = join();
        assert_eq!(next.page.as_ref().unwrap().counts[BELIEVER].load(Ordering::SeqCst), 1);
        next.wait_for_others();
        assert_eq!(next.page.as_ref().unwrap().counts[BELIEVER].load(Ordering::SeqCst), 0);
        assert!(!Neighbours { page: None }.begin_to_believe());
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
