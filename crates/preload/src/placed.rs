//! The placed files that this process has open, each once however many descriptors it has ([`Slots`]), and what
//! the mount says of them.

use crate::pool::Bypass;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::ioctl::{Getter, NoArg, Opcode, Setter, Updater, ioctl};
use std::sync::atomic::{AtomicBool, Ordering};
use stripewise_descriptors::{CountedFiles, FileKey, Joined, Slots};
use stripewise_store::ioctl::{
    CUT_BACK, CutBack, ENSURE_DATAFILES, EnsureDatafiles, LOST, MAPPED, PLACEMENT, PlacementPage, SIZE,
};
use stripewise_store::surplus::Surplus;
use stripewise_store::{PlacedFile, Placement};

/// Files open at once that are served past the mount; more go through it.
const SLOTS: usize = 4096;
/// Longest binary placement that is fetched: the layout crate's limits keep real ones far below.
const MAX_PLACEMENT_BYTES: usize = 16 << 20;

static FILES: Slots<PlacedFile, SLOTS> = Slots::new();
/// Set when descriptors can no longer be told apart by their number.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// A placed file that stays open as long as this lives.
pub(crate) type PlacedPin = stripewise_descriptors::Pin<'static, PlacedFile>;

fn key(placement: &Placement) -> FileKey {
    FileKey { handle: placement.handle, owner: placement.owner, inode: placement.identity.inode }
}

/// The files of the table of descriptors.
pub(crate) struct Placed;

impl CountedFiles for Placed {
    fn acquire(&self, slot: u16) -> bool {
        FILES.acquire(slot)
    }

    fn release(&self, slot: u16) {
        FILES.release(slot);
    }

    fn give_up(&self) {
        GIVEN_UP.store(true, Ordering::SeqCst);
    }
}

/// Whether the mount alone serves this process.
pub(crate) fn is_given_up() -> bool {
    GIVEN_UP.load(Ordering::Relaxed)
}

/// Holds the file of slot `index` for one request, as [`Slots::pin`] does.
#[inline]
pub(crate) fn pin(index: u16) -> Option<PlacedPin> {
    FILES.pin(index)
}

/// [`pin`], also of a file that the mount alone serves by now.
pub(crate) fn pin_served_before(index: u16) -> Option<PlacedPin> {
    FILES.pin_served_before(index)
}

/// Fetches the placement again when it is out of date. `false`: leave it to the mount.
#[cold]
pub(crate) fn refresh(pin: &PlacedPin, bypass: &Bypass, fd: BorrowedFd<'_>) -> bool {
    let Ok(placement) = fetch(bypass, fd) else {
        return false;
    };
    if !placement.bypass || pin.key() != key(&placement) {
        pin.turn_off();
        return false;
    }
    let known = pin.known();
    if known.file().is_some_and(|file| file.refresh(&placement)) {
        return true;
    }
    known.supersede(|| {
        let plane = bypass.plane().filter(|plane| plane.sees_changes_of(placement.owner))?;
        PlacedFile::new(plane, placement, None).ok()
    })
}

/// Has the datafiles `indexes` made by the mount, then fetches the placement again.
#[cold]
pub(crate) fn ensure(pin: &PlacedPin, bypass: &Bypass, fd: BorrowedFd<'_>, version: u32, indexes: &[u16]) -> bool {
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
    refresh(pin, bypass, fd)
}

/// The slot of the placed file behind `fd`, with one descriptor counted. `None`: not a placed file, or one that the
/// mount alone serves.
pub(crate) fn open(bypass: &Bypass, fd: BorrowedFd<'_>) -> Option<u16> {
    let placement = fetch(bypass, fd).ok()?;
    if !placement.bypass {
        return None;
    }
    let key = key(&placement);
    match FILES.join(key) {
        Joined::Slot(index) => return Some(index),
        Joined::Off => return None,
        Joined::No => {}
    }
    let plane = bypass.plane()?;
    if !plane.sees_changes_of(key.owner) {
        return None;
    }
    let file = PlacedFile::new(plane, placement, None).ok()?;
    FILES.enter(key, file)
}

/// Asks the mount for the placement behind `fd`. EXDEV: it is a file of another pool or of another file system, to which
/// a link may have led; its server could say anything.
fn fetch(bypass: &Bypass, fd: BorrowedFd<'_>) -> Result<Placement, Errno> {
    if !bypass.holds(fd) {
        return Err(Errno::XDEV);
    }
    let placement = ask(fd)?;
    // Another pool's mount may have been made where this pool's was. Without the right to bypass nothing is looked for on
    // the servers.
    let ours = !placement.bypass || bypass.plane().is_some_and(|plane| *plane.pool_uuid() == placement.pool);
    if ours { Ok(placement) } else { Err(Errno::XDEV) }
}

/// What the server of `fd` says of its placement.
fn ask(fd: BorrowedFd<'_>) -> Result<Placement, Errno> {
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

/// Has the mount cut off what a write that failed half-way has left behind the bytes that count.
#[cold]
pub(crate) fn cut_back(fd: BorrowedFd<'_>, surplus: &Surplus) {
    let Some(cut) = CutBack::new(surplus) else { return };
    // What cannot be cut off stays, as where others write.
    // SAFETY: the opcode and the structure are the mount's own definition.
    let _ = unsafe { ioctl(fd, Setter::<{ CUT_BACK as Opcode }, CutBack>::new(cut)) };
}

/// Tells the mount that bytes which this process has written past it may be lost, so that its `fsync` says so to all that have
/// the file open.
#[cold]
pub(crate) fn tell_lost(fd: BorrowedFd<'_>) {
    // If it fails, this descriptor still gets the report.
    // SAFETY: the opcode is the mount's own definition; it takes no argument.
    let _ = unsafe { ioctl(fd, NoArg::<{ LOST as Opcode }>::new()) };
}

/// Tells the mount that this process maps (or appends to) the file behind `fd`: no process goes past the mount for it
/// until all have closed it.
pub(crate) fn mapped(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the opcode is the mount's own definition; it takes no argument.
    unsafe { ioctl(fd, NoArg::<{ MAPPED as Opcode }>::new()) }
}
