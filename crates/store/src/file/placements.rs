//! Requests on a file whose places may change under them: the loop that every way in goes through.
//!
//! A [`PlacedFile`] serves a request by the places that it knows, and reports when these are out of date. What follows
//! is the same for all ways in; only how they find the new places differs, which is what [`Placements`] is for.

use crate::file::placed_file::{MoveBeside, PlacedFile, TransferOutcome};
use crate::format::surplus::Surplus;
use crate::os::error::{Error, Result};
use std::io::{IoSlice, IoSliceMut};
use std::ops::Deref;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;
use stripewise_control::{Action, Request, Sender, SentRequest};

/// So often a write is repeated because its file has changed meanwhile, before it keeps others from changing it.
const TRIES: u32 = 4;

/// So often a request looks again, a millisecond later, whether a datafile and its file have the same owner: a `chown` gives one away
/// after the other.
const OWNER_LOOKS: u32 = 10;

/// Whether to look again after a `found` error: a `chown` may be under way. `looks` are those so far.
#[cold]
fn may_be_given_away(found: &Error, looks: &mut u32) -> bool {
    if !matches!(found, Error::ForeignDatafile { .. }) || *looks >= OWNER_LOOKS {
        return false;
    }
    *looks += 1;
    std::thread::sleep(Duration::from_millis(1));
    true
}

/// Where the bytes of one file are: the store reads the handle, the preload asks the mount, the mover knows both layouts.
/// [`Error::Elsewhere`] from any of its functions ends the request at once.
pub trait Placements {
    /// The file as it was found, in use until this is dropped.
    type Found: Deref<Target = PlacedFile>;
    /// The right to change the file, kept from all others until this is dropped.
    type Alone;

    /// The file as it is known now.
    ///
    /// # Errors
    /// Its places cannot be found out.
    fn current(&self) -> Result<Self::Found>;

    /// The file to write, and the value of its epoch counter since which no process cuts it back. `alone`: the caller holds
    /// [`Placements::alone`].
    ///
    /// # Errors
    /// As [`Placements::current`].
    fn to_write(&self, _alone: bool) -> Result<(Self::Found, u32)> {
        let file = self.current()?;
        let epoch = file.epoch();
        Ok((file, epoch))
    }

    /// Finds out where the bytes are, as `file` is out of date.
    ///
    /// # Errors
    /// They cannot be found out.
    fn renew(&self, file: &PlacedFile) -> Result<()>;

    /// Whether `file` is out of date by a change that its epoch counter does not tell.
    ///
    /// # Errors
    /// It cannot be found out.
    fn has_changed(&self, _file: &PlacedFile) -> Result<bool> {
        Ok(false)
    }

    /// Makes the datafiles of `file` with these indexes; afterwards [`Placements::current`] has them.
    ///
    /// # Errors
    /// One could not be made.
    fn make(&self, file: &PlacedFile, indexes: &[u16]) -> Result<()>;

    /// Size of the file now, in bytes.
    ///
    /// # Errors
    /// It is not certain.
    fn size_bytes(&self) -> Result<u64>;

    /// Called where datafile `index` of `file` ends at `position`, before the file does.
    ///
    /// # Errors
    /// What is missing there is no hole: bytes were lost.
    fn check_hole(&self, file: &PlacedFile, index: u16, position: u64) -> Result<()>;

    /// Cuts off what a write that failed half-way has left.
    ///
    /// # Errors
    /// [`Error::Elsewhere`] alone: what cannot be cut off stays.
    fn cut_back(&self, surplus: &Surplus) -> Result<()>;

    /// Notes that `[offset, offset + len)` was written while the file is moved beside its writers.
    ///
    /// # Errors
    /// It cannot be noted, nor the move be ended.
    fn mark(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    /// Keeps others from changing the file.
    ///
    /// # Errors
    /// That cannot be had.
    fn alone(&self) -> Result<Self::Alone>;

    /// Who sends the request.
    fn sender(&self) -> Sender;

    /// Whether the gate has let the request pass already, before the caller took a lock.
    fn is_admitted(&self) -> bool {
        false
    }
}

/// A request on its way through the door.
struct Admission {
    request: Request,
    is_admitted: bool,
    /// Servers have it until this is dropped; `None`: it has not come to the door yet.
    in_flight: Option<SentRequest>,
}

impl Admission {
    fn new(placements: &impl Placements, action: Action, offset: u64, lens: impl Iterator<Item = usize>) -> Self {
        let len = lens.fold(0, |sum: u64, len| sum.saturating_add(len as u64));
        let request = Request { sender: placements.sender(), action, offset, len, rank: 0 };
        Self { request, is_admitted: placements.is_admitted(), in_flight: None }
    }

    /// Waits at the gate, once, and goes to the servers. Two comparisons where there is none.
    #[inline]
    fn enter(&mut self, file: &PlacedFile) {
        if self.in_flight.is_none() {
            self.request.rank = file.class().rank();
            if !self.is_admitted {
                file.door().enter(file.id(), &self.request);
            }
            self.in_flight = Some(file.door().send(&self.request));
        }
    }
}

/// Reads at `offset`; fewer bytes than asked for only at the end of the file. Holes are zeros.
///
/// # Errors
/// Those of [`PlacedFile::read_at`] and of `placements`.
pub fn read<P: Placements>(placements: &P, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
    let mut admission = Admission::new(placements, Action::Read, offset, bufs.iter().map(|buf| buf.len()));
    let mut looks = 0;
    loop {
        let file = placements.current()?;
        admission.enter(&file);
        let mut hole = |index, position| placements.check_hole(&file, index, position);
        match file.read_at(&admission.request, bufs, offset, &mut || placements.size_bytes(), &mut hole) {
            Err(Error::Elsewhere) => return Err(Error::Elsewhere),
            // What was read while the handle changed may come from places that are no longer the file's, or that are gone.
            Ok(TransferOutcome::Done(_)) | Err(_) if placements.has_changed(&file)? => {}
            Ok(TransferOutcome::Done(count)) => return Ok(count),
            Ok(_) => {}
            Err(error) if may_be_given_away(&error, &mut looks) => {}
            Err(error) => return Err(error),
        }
        placements.renew(&file)?;
    }
}

/// Writes at `offset` as much as can be written without a gap.
///
/// # Errors
/// Those of [`PlacedFile::write_at`] and of `placements`.
pub fn write<P: Placements>(placements: &P, bufs: &[IoSlice<'_>], offset: u64) -> Result<usize> {
    let mut admission = Admission::new(placements, Action::Write, offset, bufs.iter().map(|buf| buf.len()));
    write_admitted(placements, &mut admission, bufs, offset)
}

/// [`write`] of `bufs`, all or the first bytes of the request of `admission`.
#[inline]
fn write_admitted<P: Placements>(
    placements: &P,
    admission: &mut Admission,
    bufs: &[IoSlice<'_>],
    offset: u64,
) -> Result<usize> {
    let (mut tries, mut looks) = (0, 0);
    let mut alone = None;
    loop {
        let (file, epoch) = placements.to_write(alone.is_some())?;
        admission.enter(&file);
        let mut written = file.write_as_of(&admission.request, epoch, bufs, offset);
        if written.as_ref().is_err_and(|error| may_be_given_away(error, &mut looks)) {
            written = Ok(TransferOutcome::Stale);
        }
        match marked(placements, &file, written, alone.is_none().then_some(epoch), bufs, offset)? {
            TransferOutcome::Done(count) => return Ok(count),
            TransferOutcome::Partly(count, surplus) => {
                let is_kept = alone.is_some() || file.is_of(epoch);
                alone = None;
                placements.cut_back(&surplus)?;
                if is_kept {
                    return Ok(count);
                }
                tries = TRIES;
            }
            TransferOutcome::Stale => {
                placements.renew(&file)?;
                tries += 1;
            }
            TransferOutcome::Absent(indexes) => {
                alone = None;
                match placements.make(&file, &indexes) {
                    Ok(()) => {}
                    Err(Error::Elsewhere) => return Err(Error::Elsewhere),
                    Err(error) => return write_before_absent(placements, admission, (bufs, offset), error),
                }
            }
        }
        if tries >= TRIES && alone.is_none() {
            alone = Some(placements.alone()?);
        }
    }
}

/// Writes what lies before the first datafile that cannot be made.
///
/// # Errors
/// `error`, which says why it cannot, where there is nothing before it; those of [`write`].
#[cold]
fn write_before_absent<P: Placements>(
    placements: &P,
    admission: &mut Admission,
    (bufs, offset): (&[IoSlice<'_>], u64),
    error: Error,
) -> Result<usize> {
    let len = bufs.iter().map(|buf| buf.len() as u64).sum();
    match placements.current()?.bytes_before_absent(offset, len) {
        0 => Err(error),
        before => write_admitted(placements, admission, &first(bufs, before), offset),
    }
}

/// Marks what was `written` where the file is moved beside its writers. The write counts if the counter still has the value of `epoch`, or
/// if no other can change the file (`None`).
#[inline]
fn marked<P: Placements>(
    placements: &P,
    file: &PlacedFile,
    written: Result<TransferOutcome>,
    epoch: Option<u32>,
    bufs: &[IoSlice<'_>],
    offset: u64,
) -> Result<TransferOutcome> {
    if file.move_beside() == MoveBeside::No
        || matches!(written, Ok(TransferOutcome::Stale | TransferOutcome::Absent(_)))
    {
        return written;
    }
    // A write that fails may have changed any of its bytes.
    placements.mark(offset, bufs.iter().map(|buf| buf.len() as u64).sum())?;
    // A move that changes the counter from now on finds the mark.
    fence(Ordering::SeqCst);
    match written {
        Ok(TransferOutcome::Done(_)) | Err(_) if epoch.is_some_and(|epoch| !file.is_of(epoch)) => {
            Ok(TransferOutcome::Stale)
        }
        written => written,
    }
}

/// The first `len` bytes of `bufs`.
fn first<'a>(bufs: &'a [IoSlice<'_>], len: u64) -> Vec<IoSlice<'a>> {
    let mut rest = len as usize;
    let cut = bufs.iter().map(|buf| {
        let here = rest.min(buf.len());
        rest -= here;
        IoSlice::new(&buf[..here])
    });
    cut.collect()
}
