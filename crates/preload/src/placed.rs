//! The placed files that this process has open, each once however many descriptors it has.
//!
//! A slot counts the descriptors that stand for its file and the requests that are using it; whoever takes the count
//! to zero frees what is in it. Slots themselves are never freed, so a request that comes too late finds a count of
//! zero, or another descriptor's entry, and goes to the mount.

use crate::runtime::Bypass;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::ioctl::{Getter, NoArg, Opcode, Setter, Updater, ioctl};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use stripewise_store::ioctl::{ENSURE_DATAFILES, EnsureDatafiles, MAPPED, PLACEMENT, PlacementPage, SIZE};
use stripewise_store::{DataPlane, PlacedFile, Placement};

/// Files open at once that are served past the mount; more go through it.
const SLOTS: usize = 4096;
/// How many slots are tried for a handle.
const PROBES: usize = 32;
/// Placements of one file that are kept while it is open (each re-layout adds one); then the mount serves it.
const MAX_VERSIONS: u32 = 16;
/// Longest binary placement that is fetched: the layout crate's limits keep real ones far below.
const MAX_PLACEMENT_BYTES: usize = 16 << 20;

/// One version of a file, and the one before it, which requests may still be using.
struct Version {
    file: PlacedFile,
    before: *mut Version,
}

struct Slot {
    /// Descriptors and requests.
    count: AtomicU32,
    versions: AtomicU32,
    handle: AtomicU64,
    /// Of the file: another user may have copied its handle to a file of his own.
    owner: AtomicU32,
    newest: AtomicPtr<Version>,
    /// Set when the mount alone may serve the file from now on.
    off: AtomicBool,
    /// Taken by a thread that is filling the slot.
    filling: AtomicBool,
}

static FILES: [Slot; SLOTS] = [const {
    Slot {
        count: AtomicU32::new(0),
        versions: AtomicU32::new(0),
        handle: AtomicU64::new(0),
        owner: AtomicU32::new(0),
        newest: AtomicPtr::new(ptr::null_mut()),
        off: AtomicBool::new(false),
        filling: AtomicBool::new(false),
    }
}; SLOTS];

fn slot(index: u16) -> Option<&'static Slot> {
    FILES.get(usize::from(index))
}

/// Counts one more descriptor for a slot that has one; `false` when it has none (any more).
pub(crate) fn acquire(index: u16) -> bool {
    slot(index).is_some_and(Slot::acquire)
}

/// Counts one descriptor less.
pub(crate) fn release(index: u16) {
    if let Some(slot) = slot(index) {
        slot.release();
    }
}

impl Slot {
    fn is_of(&self, placement: &Placement) -> bool {
        self.handle.load(Ordering::Acquire) == placement.handle && self.owner.load(Ordering::Acquire) == placement.owner
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

/// A placed file that stays open as long as this lives.
pub(crate) struct Pin {
    slot: &'static Slot,
}

impl Drop for Pin {
    #[inline]
    fn drop(&mut self) {
        self.slot.release();
    }
}

/// Holds the file of slot `index` for one request. The caller must check afterwards that the descriptor still has the
/// entry he got the slot from.
#[inline]
pub(crate) fn pin(index: u16) -> Option<Pin> {
    let slot = slot(index)?;
    (!slot.off.load(Ordering::Relaxed) && slot.acquire()).then_some(Pin { slot })
}

impl Pin {
    /// The newest version of the file.
    #[inline]
    pub(crate) fn file(&self) -> Option<&PlacedFile> {
        // SAFETY: a version is freed only when the count is zero, and this pin is counted.
        unsafe { self.slot.newest.load(Ordering::Acquire).as_ref() }.map(|version| &version.file)
    }

    /// From now on the mount alone serves this file.
    pub(crate) fn turn_off(&self) {
        self.slot.off.store(true, Ordering::Release);
    }

    /// Fetches the placement again after [`stripewise_store::Outcome::Stale`]. `false`: leave it to the mount.
    #[cold]
    pub(crate) fn refresh(&self, bypass: &Bypass, fd: BorrowedFd<'_>) -> bool {
        let Ok(placement) = fetch(fd) else {
            return false;
        };
        if !placement.bypass || !self.slot.is_of(&placement) {
            self.turn_off();
            return false;
        }
        let newest = self.slot.newest.load(Ordering::Acquire);
        // SAFETY: as in `file`.
        if unsafe { newest.as_ref() }.is_some_and(|version| version.file.refresh(&placement)) {
            return true;
        }
        if self.slot.versions.fetch_add(1, Ordering::AcqRel) >= MAX_VERSIONS {
            self.turn_off();
            return false;
        }
        let sees = |plane: &Arc<DataPlane>| plane.sees_changes_of(placement.owner);
        let Some(file) = bypass.plane().filter(sees).and_then(|plane| PlacedFile::new(plane, placement, None).ok())
        else {
            return false;
        };
        let version = Box::into_raw(Box::new(Version { file, before: newest }));
        if self.slot.newest.compare_exchange(newest, version, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // Another thread fetched it too.
            // SAFETY: from `Box::into_raw` just now, and nobody else saw it.
            drop(unsafe { Box::from_raw(version) });
        }
        true
    }

    /// Has the datafiles `indexes` made by the mount, then fetches the placement again.
    #[cold]
    pub(crate) fn ensure(&self, bypass: &Bypass, fd: BorrowedFd<'_>, version: u32, indexes: &[u16]) -> bool {
        for some in indexes.chunks(stripewise_store::ioctl::MAX_ENSURE) {
            // SAFETY: the opcode and the structure are the mount's own definition.
            let made = unsafe {
                let request =
                    Setter::<{ ENSURE_DATAFILES as Opcode }, EnsureDatafiles>::new(EnsureDatafiles::new(version, some));
                ioctl(fd, request)
            };
            match made {
                Ok(()) | Err(Errno::STALE) => {}
                Err(_) => return false,
            }
        }
        self.refresh(bypass, fd)
    }
}

/// The slot of the placed file behind `fd`, with one descriptor counted. `None`: not a placed file, or one that the
/// mount alone serves.
pub(crate) fn open(bypass: &Bypass, fd: BorrowedFd<'_>) -> Option<u16> {
    let placement = fetch(fd).ok()?;
    if !placement.bypass {
        return None;
    }
    let (handle, owner) = (placement.handle, placement.owner);
    let start = (handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
    let places = (0..PROBES).map(|probe| (start + probe) % SLOTS);
    for index in places.clone() {
        let slot = &FILES[index];
        if slot.is_of(&placement) && slot.acquire() {
            // Counted now, so it can no longer change.
            if slot.is_of(&placement) {
                return if slot.off.load(Ordering::Acquire) {
                    slot.release();
                    None
                } else {
                    Some(index as u16)
                };
            }
            slot.release();
        }
    }
    let plane = bypass.plane()?;
    if !plane.sees_changes_of(owner) {
        return None;
    }
    let file = PlacedFile::new(plane, placement, None).ok()?;
    let version = Box::into_raw(Box::new(Version { file, before: ptr::null_mut() }));
    for index in places {
        let slot = &FILES[index];
        if slot.filling.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            slot.off.store(false, Ordering::Relaxed);
            slot.versions.store(1, Ordering::Relaxed);
            slot.handle.store(handle, Ordering::Relaxed);
            slot.owner.store(owner, Ordering::Relaxed);
            slot.newest.store(version, Ordering::Release);
            slot.count.store(1, Ordering::Release);
            return Some(index as u16);
        }
    }
    // SAFETY: from `Box::into_raw` above, and no slot took it.
    drop(unsafe { Box::from_raw(version) });
    None
}

/// Asks the mount for the placement behind `fd`.
fn fetch(fd: BorrowedFd<'_>) -> Result<Placement, Errno> {
    // A change between two pages starts it over; a file that changes all the time is left to the mount.
    'again: for _ in 0..8 {
        let mut whole: Vec<u8> = Vec::new();
        let mut stamp = None;
        loop {
            let mut page = PlacementPage::request(u32::try_from(whole.len()).map_err(|_| Errno::INVAL)?);
            // SAFETY: the opcode and the structure are the mount's own definition.
            unsafe { ioctl(fd, Updater::<{ PLACEMENT as Opcode }, PlacementPage>::new(&mut page)) }?;
            let filled = page.filled().ok_or(Errno::INVAL)?;
            if stamp.is_some_and(|stamp| stamp != page.stamp) {
                continue 'again;
            }
            stamp = Some(page.stamp);
            whole.extend_from_slice(filled);
            let total = page.total_bytes as usize;
            if whole.len() >= total {
                return Placement::from_bytes(&whole).map_err(|_| Errno::INVAL);
            }
            if filled.is_empty() || total > MAX_PLACEMENT_BYTES {
                return Err(Errno::INVAL);
            }
        }
    }
    Err(Errno::AGAIN)
}

/// Size of the file behind `fd` as the mount knows it.
pub(crate) fn size(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    // SAFETY: the opcode and the type are the mount's own definition.
    unsafe { ioctl(fd, Getter::<{ SIZE as Opcode }, u64>::new()) }
}

/// Tells the mount that this process maps (or appends to) the file behind `fd`: no process goes past the mount for it
/// until all have closed it.
pub(crate) fn mapped(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the opcode is the mount's own definition; it takes no argument.
    unsafe { ioctl(fd, NoArg::<{ MAPPED as Opcode }>::new()) }
}
