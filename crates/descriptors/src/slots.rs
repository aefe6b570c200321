//! Open files by number, each shared by all its descriptors and by the requests that are using it.
//!
//! A slot counts the descriptors that stand for its file and the requests that are using it; the thread that takes the
//! count to zero frees the content. Slots themselves are never freed, so a request that comes too late finds a count of
//! zero, or another descriptor's entry, and goes to the mount. No lock: signal handlers come this way too.

use crate::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::ptr;

/// How many slots are tried for a file.
const PROBES: usize = 32;
/// Versions of one file that are kept while it is open (each re-layout adds one); then the mount serves it.
const MAX_VERSIONS: u32 = 16;

/// Which file: another user may have copied its handle to a file of their own, or to one that they may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileKey {
    /// Logical handle.
    pub handle: u64,
    /// Its owner.
    pub owner: u32,
    /// Number of its inode.
    pub inode: u64,
}

/// One version of a file, and the one before it, which requests may still be using.
struct Version<T> {
    file: T,
    before: *mut Version<T>,
}

struct Slot<T> {
    /// Descriptors and requests.
    count: AtomicU32,
    versions: AtomicU32,
    handle: AtomicU64,
    owner: AtomicU32,
    inode: AtomicU64,
    newest: AtomicPtr<Version<T>>,
    /// Set when the mount alone may serve the file from now on.
    off: AtomicBool,
    /// Taken by a thread that is filling the slot.
    filling: AtomicBool,
}

/// That many slots.
pub struct Slots<T, const N: usize> {
    slots: [Slot<T>; N],
}

// SAFETY: the versions behind the pointers are shared by reference, and moved to the thread that frees them.
unsafe impl<T: Send + Sync, const N: usize> Sync for Slots<T, N> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync, const N: usize> Send for Slots<T, N> {}

impl<T> Slot<T> {
    const fn new() -> Self {
        Self {
            count: AtomicU32::new(0),
            versions: AtomicU32::new(0),
            handle: AtomicU64::new(0),
            owner: AtomicU32::new(0),
            inode: AtomicU64::new(0),
            newest: AtomicPtr::new(ptr::null_mut()),
            off: AtomicBool::new(false),
            filling: AtomicBool::new(false),
        }
    }

    fn key(&self) -> FileKey {
        FileKey {
            handle: self.handle.load(Ordering::Acquire),
            owner: self.owner.load(Ordering::Acquire),
            inode: self.inode.load(Ordering::Acquire),
        }
    }

    #[inline]
    fn acquire(&self) -> bool {
        let mut count = self.count.load(Ordering::Acquire);
        while count > 0 && count < u32::MAX {
            match self.count.compare_exchange_weak(count, count + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => count = now,
            }
        }
        false
    }

    #[inline]
    fn release(&self) {
        if self.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.free();
        }
    }

    #[cold]
    fn free(&self) {
        let mut version = self.newest.swap(ptr::null_mut(), Ordering::AcqRel);
        while !version.is_null() {
            // SAFETY: versions come from `Box::into_raw`; the count is zero, so no request uses them, and the swap
            // gave the list to this thread alone.
            let freed = unsafe { Box::from_raw(version) };
            version = freed.before;
        }
        self.filling.store(false, Ordering::Release);
    }
}

impl<T, const N: usize> Slots<T, N> {
    /// All free.
    #[allow(clippy::new_without_default, reason = "made in a static")]
    pub const fn new() -> Self {
        Self { slots: [const { Slot::new() }; N] }
    }

    fn get(&self, index: u16) -> Option<&Slot<T>> {
        self.slots.get(usize::from(index))
    }

    /// Counts one more descriptor for a slot that has one; `false` when it has none (any more).
    pub fn acquire(&self, index: u16) -> bool {
        self.get(index).is_some_and(Slot::acquire)
    }

    /// Counts one descriptor less.
    pub fn release(&self, index: u16) {
        if let Some(slot) = self.get(index) {
            slot.release();
        }
    }

    /// Holds the file of slot `index` for one request. The caller must check afterwards that the descriptor still has
    /// the entry that named the slot.
    #[inline]
    pub fn pin(&self, index: u16) -> Option<Pin<'_, T>> {
        let slot = self.get(index)?;
        // Made only where it was counted: dropping it counts one less.
        (!slot.off.load(Ordering::Relaxed) && slot.acquire()).then(|| Pin { slot })
    }

    /// As [`Slots::pin`], also of a file that the mount alone serves by now.
    pub fn pin_served_before(&self, index: u16) -> Option<Pin<'_, T>> {
        let slot = self.get(index)?;
        // Made only where it was counted: dropping it counts one less.
        slot.acquire().then(|| Pin { slot })
    }

    fn places(key: FileKey) -> impl Iterator<Item = usize> {
        let start = (key.handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        (0..PROBES).map(move |probe| (start + probe) % N)
    }

    /// The slot of a file that is open already, with one more descriptor counted.
    pub fn join(&self, key: FileKey) -> Joined {
        for index in Self::places(key) {
            let slot = &self.slots[index];
            if slot.key() == key && slot.acquire() {
                // Counted now, so it can no longer change.
                if slot.key() == key {
                    if !slot.off.load(Ordering::Acquire) {
                        return Joined::Slot(index as u16);
                    }
                    slot.release();
                    return Joined::Off;
                }
                slot.release();
            }
        }
        Joined::No
    }

    /// A slot for a file that was not found open, with one descriptor counted; none when all places are taken.
    pub fn enter(&self, key: FileKey, file: T) -> Option<u16> {
        let version = Box::into_raw(Box::new(Version { file, before: ptr::null_mut() }));
        for index in Self::places(key) {
            let slot = &self.slots[index];
            if slot.filling.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                slot.off.store(false, Ordering::Relaxed);
                slot.versions.store(1, Ordering::Relaxed);
                slot.handle.store(key.handle, Ordering::Relaxed);
                slot.owner.store(key.owner, Ordering::Relaxed);
                slot.inode.store(key.inode, Ordering::Relaxed);
                slot.newest.store(version, Ordering::Release);
                slot.count.store(1, Ordering::Release);
                return Some(index as u16);
            }
        }
        // SAFETY: from `Box::into_raw` above, and no slot took it.
        drop(unsafe { Box::from_raw(version) });
        None
    }
}

/// What [`Slots::join`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum Joined {
    /// The file, in this slot.
    Slot(u16),
    /// The file, which the mount alone may serve.
    Off,
    /// Nothing.
    No,
}

/// A file that stays open as long as this lives.
pub struct Pin<'a, T> {
    slot: &'a Slot<T>,
}

impl<T> Drop for Pin<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.slot.release();
    }
}

/// A version of a pinned file, as it was found.
pub struct PinnedVersion<'a, T> {
    version: *mut Version<T>,
    pin: &'a Pin<'a, T>,
}

impl<T> Pin<'_, T> {
    /// The newest version of the file.
    #[inline]
    pub fn file(&self) -> Option<&T> {
        // SAFETY: a version is freed only when the count is zero, and this pin is counted.
        unsafe { self.slot.newest.load(Ordering::Acquire).as_ref() }.map(|version| &version.file)
    }

    /// All versions of the file that there were since it was opened, the newest first.
    pub fn files(&self) -> impl Iterator<Item = &T> {
        let at = |version: *mut Version<T>| {
            // SAFETY: a version is freed only when the count is zero, and this pin is counted.
            unsafe { version.as_ref() }
        };
        let newest = at(self.slot.newest.load(Ordering::Acquire));
        std::iter::successors(newest, move |version| at(version.before)).map(|version| &version.file)
    }

    /// Which file it is.
    pub fn key(&self) -> FileKey {
        self.slot.key()
    }

    /// From now on the mount alone serves this file.
    pub fn turn_off(&self) {
        self.slot.off.store(true, Ordering::Release);
    }

    /// The newest version, to be superseded.
    pub fn known(&self) -> PinnedVersion<'_, T> {
        PinnedVersion { version: self.slot.newest.load(Ordering::Acquire), pin: self }
    }
}

impl<T> PinnedVersion<'_, T> {
    /// The file in this version.
    pub fn file(&self) -> Option<&T> {
        // SAFETY: as in `Pin::file`.
        unsafe { self.version.as_ref() }.map(|version| &version.file)
    }

    /// Puts what `make` gives over this version, unless another thread has put something there. `false`: nothing was
    /// made, or the file has had [`MAX_VERSIONS`] versions and the mount alone serves it from now on.
    pub fn supersede(&self, make: impl FnOnce() -> Option<T>) -> bool {
        let slot = self.pin.slot;
        if slot.versions.fetch_add(1, Ordering::AcqRel) >= MAX_VERSIONS {
            self.pin.turn_off();
            return false;
        }
        let Some(file) = make() else { return false };
        let version = Box::into_raw(Box::new(Version { file, before: self.version }));
        if slot.newest.compare_exchange(self.version, version, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: from `Box::into_raw` just now, and no other thread saw it.
            drop(unsafe { Box::from_raw(version) });
        }
        true
    }
}
