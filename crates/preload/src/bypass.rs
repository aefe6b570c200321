//! Reads and writes: of a placed file straight from its datafiles, of others by libc's own call; recorded if asked for.

use crate::fd::borrow;
use crate::placed;
use crate::pool::Bypass;
use crate::reach;
use crate::real::set_errno;
use crate::runtime;
use crate::table::TABLE;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::cell::Cell;
use std::convert::Infallible;
use std::ffi::{c_int, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use stripewise_control::{Sender, Way};
use stripewise_descriptors::DescriptorState;
use stripewise_store::placements::{self, Placements};
use stripewise_store::surplus::Surplus;
use stripewise_store::{Error, PlacedFile, Result};

use stripewise_trace::{Operation, flags, now_ns};

/// Most bytes of one call in Linux; more are cut to it, which is left to the kernel.
const MAX_BYTES: usize = 0x7fff_f000;
/// Most buffers of one call.
const MAX_BUFFERS: usize = 1024;
/// How often a placement that changed is fetched again within one request.
const MAX_REFRESHES: u32 = 16;

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransferDirection {
    Read,
    Write,
}

/// Where in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilePosition {
    /// At the descriptor's offset, which moves on.
    Cursor,
    /// At this offset.
    At(i64),
}

/// The program's buffers.
#[derive(Clone, Copy)]
pub(crate) struct ProgramBuffers {
    one: libc::iovec,
    many: *const libc::iovec,
    count: usize,
}

impl ProgramBuffers {
    #[inline]
    pub(crate) fn one(base: *mut c_void, len: usize) -> Self {
        Self { one: libc::iovec { iov_base: base, iov_len: len }, many: std::ptr::null(), count: 1 }
    }

    /// Counts that the kernel refuses, and null, give no buffers.
    #[inline]
    pub(crate) fn many(many: *const libc::iovec, count: c_int) -> Self {
        let count = usize::try_from(count).ok().filter(|&count| count <= MAX_BUFFERS && !many.is_null()).unwrap_or(0);
        Self { one: libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }, many, count }
    }

    /// The same, or no buffers when the list of them cannot be read here. For one buffer two comparisons, else a system
    /// call.
    fn checked(self) -> Self {
        let bytes = self.count * size_of::<libc::iovec>();
        let fine = self.many.is_null() || self.many.is_aligned() && reach::is_there(self.many.cast(), bytes, false);
        if fine { self } else { Self::many(std::ptr::null(), 0) }
    }

    /// Whether the buffers can be written to. A system call for each.
    fn are_writable(&self) -> bool {
        self.slice().iter().all(|buffer| buffer.iov_len == 0 || reach::is_there(buffer.iov_base, buffer.iov_len, true))
    }

    fn slice(&self) -> &[libc::iovec] {
        if self.many.is_null() {
            return std::slice::from_ref(&self.one);
        }
        // SAFETY: the program passed `count` buffers at `many` to a call that reads them, and they can be read
        // (`checked`).
        unsafe { std::slice::from_raw_parts(self.many, self.count) }
    }

    /// Bytes in all; `None` when the kernel should judge them.
    #[inline]
    fn total(&self) -> Option<usize> {
        let mut total = 0_usize;
        for buffer in self.slice() {
            if buffer.iov_base.is_null() && buffer.iov_len > 0 {
                return None;
            }
            total = total.checked_add(buffer.iov_len)?;
        }
        (total > 0 && total <= MAX_BYTES).then_some(total)
    }
}

/// A read or write by the program. `call` is libc's own. For a descriptor that is nothing to us: one bound check, one
/// load, one comparison.
#[inline]
pub(crate) fn transfer(
    fd: c_int,
    direction: TransferDirection,
    position: FilePosition,
    buffers: ProgramBuffers,
    call: impl FnOnce() -> isize,
) -> isize {
    let entry = TABLE.get(fd);
    if !entry.is_known() {
        return call();
    }
    known(fd, entry, direction, position, buffers, call)
}

fn known(
    fd: c_int,
    mut entry: DescriptorState,
    direction: TransferDirection,
    position: FilePosition,
    buffers: ProgramBuffers,
    call: impl FnOnce() -> isize,
) -> isize {
    let buffers = buffers.checked();
    let recorder =
        if entry.file() == 0 { None } else { runtime::recording().and_then(|recording| recording.recorder()) };
    if recorder.is_some() {
        // In a forked child, looking for the recorder has given the entries new ids.
        entry = TABLE.get(fd);
    }
    let start_ns = if recorder.is_some() { now_ns() } else { 0 };
    let (result, offset, bypassed) = match attempt(fd, entry, direction, position, buffers) {
        Some((result, offset)) => (result, Some(offset), flags::BYPASSED),
        None => (call(), None, 0),
    };
    if let Some(recorder) = recorder.filter(|_| entry.file() != 0) {
        let end_ns = now_ns();
        let mut marks =
            bypassed | if entry.appends() && direction == TransferDirection::Write { flags::APPEND } else { 0 };
        let moved = result.max(0) as u64;
        let offset = match (offset, position) {
            (Some(offset), _) => offset,
            (None, FilePosition::At(offset)) if marks & flags::APPEND == 0 => offset.max(0) as u64,
            // Where it was appended, as near as can be known afterwards.
            (None, FilePosition::At(_)) => {
                marks |= flags::OFFSET_UNKNOWN;
                rustix::fs::fstat(borrow(fd)).map_or(0, |stat| (stat.st_size.max(0) as u64).saturating_sub(moved))
            }
            // The descriptor's offset is behind what was moved.
            _ => match rustix::fs::seek(borrow(fd), SeekFrom::Current(0)) {
                Ok(end) => end.saturating_sub(moved),
                Err(_) => {
                    marks |= flags::OFFSET_UNKNOWN;
                    0
                }
            },
        };
        let wanted = buffers.slice().iter().fold(0_u64, |sum, buffer| sum.saturating_add(buffer.iov_len as u64));
        if result < 0 {
            marks |= flags::FAILED;
        } else if moved < wanted {
            marks |= flags::SHORT;
        }
        recorder.record(&stripewise_trace::WrappedCall {
            file: entry.file(),
            api: stripewise_trace::Api::Posix,
            op: if direction == TransferDirection::Read { Operation::Read } else { Operation::Write },
            offset,
            size: if result < 0 { wanted } else { moved },
            start_ns,
            end_ns,
            flags: marks,
        });
    }
    result
}

/// `fsync` or `fdatasync`, which is the mount's to carry out: it has the same datafiles. Only this process knows which
/// of its own writes went to a server that has died and come back since.
pub(crate) fn sync(fd: c_int, call: impl Fn() -> c_int) -> c_int {
    let was_lost = tells_of_loss(fd, PlacedFile::take_lost);
    let mut result = call();
    // A write that failed meanwhile may have been told to another process before the mount opened the datafile.
    let is_lost = result == 0 && tells_of_loss(fd, PlacedFile::take_not_written_back);
    if is_lost {
        // The mount tells all who have the file open, once: this descriptor now.
        result = call();
    }
    if result == 0 && (was_lost || is_lost) {
        set_errno(libc::EIO);
        return -1;
    }
    result
}

/// Whether what was written past the mount may be lost, as `ask` takes it from the file's places. The others are told then.
fn tells_of_loss(fd: c_int, ask: impl Fn(&PlacedFile) -> bool) -> bool {
    let entry = TABLE.get(fd);
    // A reader without write permission cannot tell the others.
    let pin = entry.slot().filter(|_| entry.can_write()).and_then(placed::pin_served_before);
    // Of all places that the file has had meanwhile, each of which has to be asked.
    let is_lost = pin.is_some_and(|pin| pin.files().fold(false, |lost, file| ask(file) | lost));
    if is_lost {
        placed::tell_lost(borrow(fd));
    }
    is_lost
}

/// Serves the request from the datafiles: what the call returns and the offset it was at. `None`: nothing was done,
/// the program's own call must be made.
fn attempt(
    fd: c_int,
    entry: DescriptorState,
    direction: TransferDirection,
    position: FilePosition,
    buffers: ProgramBuffers,
) -> Option<(isize, u64)> {
    let slot = entry.slot()?;
    let allowed = match direction {
        TransferDirection::Read => entry.can_read(),
        TransferDirection::Write => entry.can_write() && !entry.appends(),
    };
    if !allowed {
        return None;
    }
    let total = buffers.total()?;
    let pin = placed::pin(slot)?;
    if TABLE.get(fd) != entry {
        return None;
    }
    let offset = match position {
        // A request that ends beyond the greatest offset is the kernel's to refuse, as the seek below refuses it.
        FilePosition::At(offset) => {
            offset.checked_add(total as i64)?;
            u64::try_from(offset).ok()?
        }
        // Moves the descriptor's offset over the request's place, at once for all that share it.
        FilePosition::Cursor => {
            rustix::fs::seek(borrow(fd), SeekFrom::Current(total as i64)).ok()?.checked_sub(total as u64)?
        }
    };
    let served = catch_unwind(AssertUnwindSafe(|| serve(&pin, fd, direction, buffers, offset)));
    let served = match served {
        Ok(Some(count)) => Ok(count),
        // Whatever it was, the mount knows; the request's place is ours, so it goes there.
        _ if position == FilePosition::Cursor => through_mount(fd, direction, buffers, offset),
        _ => return None,
    };
    let done = *served.as_ref().unwrap_or(&0);
    if position == FilePosition::Cursor && done < total {
        let _ = rustix::fs::seek(borrow(fd), SeekFrom::Current(done as i64 - total as i64));
    }
    match served {
        Ok(count) => Some((count as isize, offset)),
        Err(errno) => {
            set_errno(errno.raw_os_error());
            Some((-1, offset))
        }
    }
}

/// How a request past the mount finds the bytes: by the placement that the mount tells of.
struct ByMount<'a> {
    pin: &'a placed::PlacedPin,
    fd: c_int,
    buffers: &'a ProgramBuffers,
    /// How often the placement was fetched again.
    refreshes: Cell<u32>,
}

impl ByMount<'_> {
    /// The right to ask the mount once more within this request.
    fn again(&self) -> Result<&'static Bypass> {
        let refreshes = self.refreshes.replace(self.refreshes.get() + 1);
        runtime::bypass().filter(|_| refreshes < MAX_REFRESHES).ok_or(Error::Elsewhere)
    }
}

impl<'a> Placements for ByMount<'a> {
    type Found = &'a PlacedFile;
    type Alone = Infallible;

    fn current(&self) -> Result<&'a PlacedFile> {
        self.pin.file().ok_or(Error::Elsewhere)
    }

    fn renew(&self, _file: &PlacedFile) -> Result<()> {
        let bypass = self.again()?;
        if placed::refresh(self.pin, bypass, borrow(self.fd)) { Ok(()) } else { Err(Error::Elsewhere) }
    }

    fn make(&self, file: &PlacedFile, indexes: &[u16]) -> Result<()> {
        let bypass = self.again()?;
        let made = placed::ensure(self.pin, bypass, borrow(self.fd), file.placement().version, indexes);
        if made { Ok(()) } else { Err(Error::Elsewhere) }
    }

    /// Asked for when bytes are missing: then zeros may be written into the buffers here.
    fn size_bytes(&self) -> Result<u64> {
        let there = if self.buffers.are_writable() { Ok(()) } else { Err(Errno::FAULT) };
        there.and_then(|()| placed::size(borrow(self.fd))).map_err(Error::io("size", "a placed file"))
    }

    /// What no datafile has is a hole or lost: the mount knows what was recorded.
    fn check_hole(&self, _file: &PlacedFile, _index: u16, _position: u64) -> Result<()> {
        Err(Error::Elsewhere)
    }

    /// The mount then says how much can be written, and why not all.
    fn cut_back(&self, surplus: &Surplus) -> Result<()> {
        placed::cut_back(borrow(self.fd), surplus);
        Err(Error::Elsewhere)
    }

    fn alone(&self) -> Result<Infallible> {
        Err(Error::Elsewhere)
    }

    fn sender(&self) -> Sender {
        Sender::this_process(Way::Preload)
    }
}

/// Moves the bytes past the mount; `None` when the mount must do it.
fn serve(
    pin: &placed::PlacedPin,
    fd: c_int,
    direction: TransferDirection,
    all: ProgramBuffers,
    offset: u64,
) -> Option<usize> {
    let buffers = all.slice();
    let places = ByMount { pin, fd, buffers: &all, refreshes: Cell::new(0) };
    let served = match direction {
        TransferDirection::Read => {
            // SAFETY: IoSliceMut is an iovec (guaranteed by the standard library), and the program passed buffers to be
            // written to. They are not read.
            let slices = unsafe {
                std::slice::from_raw_parts_mut(buffers.as_ptr().cast::<IoSliceMut<'_>>().cast_mut(), buffers.len())
            };
            placements::read(&places, slices, offset)
        }
        TransferDirection::Write => {
            // SAFETY: IoSlice is an iovec, and the program passed buffers to be read.
            let slices = unsafe { std::slice::from_raw_parts(buffers.as_ptr().cast::<IoSlice<'_>>(), buffers.len()) };
            placements::write(&places, slices, offset)
        }
    };
    served.ok()
}

/// The mount's own read or write at `offset`, which leaves the descriptor's offset alone.
fn through_mount(
    fd: c_int,
    direction: TransferDirection,
    buffers: ProgramBuffers,
    offset: u64,
) -> Result<usize, Errno> {
    let buffers = buffers.slice();
    match direction {
        TransferDirection::Read => {
            // SAFETY: as in `serve`.
            let slices = unsafe {
                std::slice::from_raw_parts_mut(buffers.as_ptr().cast::<IoSliceMut<'_>>().cast_mut(), buffers.len())
            };
            rustix::io::preadv(borrow(fd), slices, offset)
        }
        TransferDirection::Write => {
            // SAFETY: as in `serve`.
            let slices = unsafe { std::slice::from_raw_parts(buffers.as_ptr().cast::<IoSlice<'_>>(), buffers.len()) };
            rustix::io::pwritev(borrow(fd), slices, offset)
        }
    }
}
