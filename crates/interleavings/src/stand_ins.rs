//! What the modules under test refer to, as far as the scenarios need it.

use crate::sync::{Mutex, MutexGuard};
use rustix::fs::{FallocateFlags, Stat};
use rustix::io::Errno;
use shuttle::rand::{Rng, thread_rng};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, PoisonError};

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub mod log {
    pub fn error(text: &str) {
        panic!("{text}");
    }
}

/// Of the mount: why a request failed.
#[derive(Debug)]
pub enum Failure {
    Errno(Errno),
    Store(Error),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// Of the mount: what its threads share.
pub mod fs {
    use crate::inode::{Node, Table};
    use crate::removals::Removals;
    use crate::sync::atomic::{AtomicBool, AtomicUsize};
    use crate::{Error, Store};
    use std::sync::Arc;

    pub struct Core {
        pub store: Arc<Store>,
        pub removals: Arc<Removals>,
        pub table: Table,
        pub opened: AtomicUsize,
        pub passthrough: AtomicBool,
        pub writeback: bool,
        pub notes_access: bool,
    }

    impl Core {
        pub fn note<T>(&self, _: &Node, what: &str, result: Result<T, Error>) {
            if let Err(error) = result {
                panic!("{what}: {error}");
            }
        }

        pub fn forget_attributes(&self, _: &Node) {}
    }
}

/// Of fuser: a file that the kernel was given.
#[derive(Debug)]
pub struct BackingId(Arc<std::sync::atomic::AtomicUsize>);

impl BackingId {
    /// Counts itself in `given` as long as it lives.
    pub fn new(given: &Arc<std::sync::atomic::AtomicUsize>) -> Self {
        given.fetch_add(1, Relaxed);
        Self(given.clone())
    }
}

impl Drop for BackingId {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Of fuser.
#[derive(Debug)]
pub struct FopenFlags;

impl FopenFlags {
    pub const FOPEN_DIRECT_IO: Self = Self;
    pub const FOPEN_PARALLEL_DIRECT_WRITES: Self = Self;

    pub const fn union(self, _: Self) -> Self {
        self
    }
}

/// Of the preload: the files behind the entries of its table.
pub mod placed {
    use crate::descriptors::FILES;

    pub fn acquire(slot: u16) -> bool {
        FILES.with(|files| files.acquire(slot))
    }

    pub fn release(slot: u16) {
        FILES.with(|files| files.release(slot));
    }
}

/// Of the preload.
pub mod runtime {
    use super::Relaxed;
    use crate::descriptors::GIVEN_UP;

    /// A descriptor came whose number had an entry.
    pub fn give_up_bypass() {
        GIVEN_UP.store(true, Relaxed);
    }
}

/// Of the store.
#[derive(Debug)]
pub struct Error(Errno);

impl std::fmt::Display for Error {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(out)
    }
}

/// Of the store: a placed file. It says when the mount does what it must not.
#[derive(Debug, Default)]
pub struct Inode {
    pub number: usize,
    /// In one datafile, so that the kernel can serve it.
    pub whole: bool,
    pub writers: Mutex<usize>,
    /// Programs that have it open, as a scenario knows.
    pub programs: AtomicUsize,
    /// Its datafiles are gone.
    pub collected: AtomicBool,
    /// It was synced itself, to be certain that its name is gone.
    pub synced: AtomicBool,
}

/// Failed syncs that an open file has been told of; none here.
#[derive(Debug)]
pub struct Told;

/// For what no scenario asks.
fn unused<T>() -> Result<T, Error> {
    panic!("a scenario asks for what has no stand-in")
}

impl Inode {
    pub fn count_writers(&self) -> usize {
        *lock(&self.writers)
    }

    fn assert_there(&self) {
        assert!(!self.collected.load(Relaxed), "the datafiles of an open file are gone");
    }

    pub fn register_writer(&self) -> Result<(), Error> {
        *lock(&self.writers) += 1;
        Ok(())
    }

    /// Sometimes another thread changes the layout.
    pub fn try_register_writer(&self) -> Result<bool, Error> {
        Ok(thread_rng().gen_bool(0.7) && self.register_writer().is_ok())
    }

    pub fn release_writer(&self) -> Result<(), Error> {
        let mut writers = lock(&self.writers);
        *writers = writers.checked_sub(1).expect("a writer was released that was not registered");
        Ok(())
    }

    pub fn write_at(&self, buf: &[u8], _: u64) -> Result<usize, Error> {
        self.assert_there();
        assert!(self.count_writers() > 0, "a write without being registered");
        Ok(buf.len())
    }

    pub fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<(), Error> {
        self.write_at(buf, offset).map(drop)
    }

    pub fn append(&self, buf: &[u8]) -> Result<(u64, usize), Error> {
        Ok((0, self.write_at(buf, 0)?))
    }

    pub fn truncate(&self, _: u64) -> Result<(), Error> {
        self.assert_there();
        Ok(())
    }

    pub fn read_at(&self, buf: &mut [u8], _: u64) -> Result<usize, Error> {
        self.assert_there();
        Ok(buf.len())
    }

    pub fn is_whole(&self) -> Result<bool, Error> {
        Ok(self.whole)
    }

    pub fn whole_datafile(&self, make: bool) -> Result<Option<OwnedFd>, Error> {
        assert!(self.count_writers() > 0, "a datafile for the kernel without being registered");
        let null = || std::fs::File::open("/dev/null").expect("a file").into();
        Ok((make || thread_rng().gen_bool(0.5)).then(null))
    }

    pub fn bump_epoch(&self) {}

    pub fn note_read(&self) {}

    pub fn settle_access(&self) -> bool {
        self.assert_there();
        false
    }

    pub fn settle_access_past(&self) {
        self.assert_there();
    }

    pub fn sync_inode(&self) -> Result<(), Errno> {
        self.synced.store(true, Relaxed);
        shuttle::thread::yield_now();
        Ok(())
    }

    pub fn told(&self) -> Told {
        Told
    }

    pub fn sync_for(&self, _: &Told, _: bool) -> Result<(), Error> {
        unused()
    }

    pub fn allocate(&self, _: FallocateFlags, _: u64, _: u64) -> Result<(), Error> {
        unused()
    }

    pub fn certain_size_bytes(&self) -> Result<u64, Error> {
        unused()
    }

    pub fn seek_data(&self, _: u64) -> Result<u64, Error> {
        unused()
    }

    pub fn seek_hole(&self, _: u64) -> Result<u64, Error> {
        unused()
    }
}

/// Of the store: notes what is collected.
#[derive(Debug, Default)]
pub struct Store {
    /// The one placed file.
    pub file: Option<Arc<Inode>>,
    pub collected: Mutex<Vec<usize>>,
}

impl Store {
    pub fn inode(&self, _: BorrowedFd<'_>) -> Result<Option<Arc<Inode>>, Error> {
        Ok(self.file.clone())
    }

    pub fn remains(&self, _: BorrowedFd<'_>, _: u64, _: Option<u64>) -> Result<Option<Arc<Inode>>, Error> {
        Ok(self.file.clone())
    }

    pub fn collect(&self, inode: &Inode) -> Result<Collected, Error> {
        shuttle::thread::yield_now();
        assert_eq!(inode.programs.load(Relaxed), 0, "the datafiles of an open file are removed");
        assert_eq!(inode.count_writers(), 0, "the datafiles of a file that has writers are removed");
        inode.collected.store(true, Relaxed);
        lock(&self.collected).push(inode.number);
        Ok(Collected::Gone)
    }
}

/// Of the store.
#[derive(Debug, PartialEq, Eq)]
pub enum Collected {
    InUse,
    Gone,
    Missing,
}

/// Of the store: a place in the journal.
#[derive(Debug, Clone, Copy)]
pub struct Slot(usize);

/// Of the store: the journal of removals. Each record is written, is certain and is cleared in this order, once.
#[derive(Debug, Default)]
pub struct Journal(Mutex<Vec<&'static str>>);

impl Journal {
    pub fn note(&self, inode: &Inode, _: &Stat, _: bool) -> Option<Slot> {
        inode.assert_there();
        let mut records = lock(&self.0);
        records.push("noted");
        Some(Slot(records.len() - 1))
    }

    fn step(&self, slot: Slot, from: &str, to: &'static str) {
        let record = &mut lock(&self.0)[slot.0];
        assert_eq!(*record, from, "a record is to be {to}");
        *record = to;
    }

    pub fn certain(&self, slot: Slot) {
        self.step(slot, "noted", "certain");
    }

    pub fn clear(&self, slot: Slot) {
        self.step(slot, "certain", "cleared");
    }

    pub fn doubt(&self) {}

    pub fn leave(&self, _: Slot, _: &Inode, _: bool) {
        panic!("a removal is refused");
    }

    pub fn has_left(&self) -> bool {
        false
    }

    pub fn round(&self) -> usize {
        0
    }

    pub fn look(&self) -> Vec<String> {
        Vec::new()
    }

    /// # Panics
    /// A record is not cleared.
    pub fn end(&self) {
        let records = lock(&self.0);
        assert!(records.iter().all(|record| *record == "cleared"), "a file was noted and not removed: {records:?}");
    }
}
