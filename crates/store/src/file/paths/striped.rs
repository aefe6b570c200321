//! `striped`: the place of what the layout puts on servers, in datafiles.
//!
//! It keeps the descriptors of one file's datafiles, opens them when a request first needs them, and finds a server again that has gone
//! and come back. It is shared by all threads, and survives `fork`.

use crate::backend::plane::{DataPlane, OpenServer};
use crate::file::engine::Direction;
use crate::file::extents::LastExtent;
use crate::file::paths::place::{PartPlace, PlacePath};
use crate::format::extent::datafile_bytes;
use crate::format::handle::Present;
use crate::format::identity::Identity;
use crate::format::placement::{Datafile, Datafiles, Placement};
use crate::os::descriptors::{close, replace, replace_by_nothing};
use crate::os::error::{Error, Result, has_gone};
use crate::os::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use crate::os::sys::retry;
use crate::os::writeback;
use rustix::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::fs::FileType;
use rustix::io::Errno;
use std::sync::Arc;
use stripewise_layout::ServerId;

/// One datafile as far as this process knows it.
#[derive(Debug, Default)]
struct Slot {
    /// Whether the datafile exists.
    present: AtomicBool,
    /// -1: not open. Else the descriptor times two, plus one if it can write; -2 minus that if it was let go of, so that only
    /// its number is kept.
    descriptor: AtomicI32,
    /// Whether it was written here since the last sync.
    written: AtomicBool,
    /// Whether it was written and then had to be opened again, its file system having gone: the bytes may be lost, and the
    /// next sync has to say so.
    lost: AtomicBool,
    /// Where a part of it is on the disk.
    extent: LastExtent,
}

impl Slot {
    /// [`writeback::has_lost`] of its descriptor, which `state` says. No system call where it is not open.
    fn has_lost(&self, state: i32) -> bool {
        // SAFETY: a slot's descriptor stays open as long as the slot lives.
        state >= 0 && writeback::has_lost(unsafe { BorrowedFd::borrow_raw(state >> 1) })
    }
}

/// The datafiles of one file.
#[derive(Debug)]
pub(crate) struct Striped {
    plane: Arc<DataPlane>,
    pub(crate) datafiles: Datafiles,
    slots: Vec<Slot>,
    /// Logical handle, owner and identity: what its datafiles are found and known by.
    owned: (u64, u32, Identity),
}

impl Striped {
    /// Of the file that `placement` is of. Opens nothing yet.
    ///
    /// # Errors
    /// The placement names a server that the pool does not have.
    pub(crate) fn of(plane: Arc<DataPlane>, placement: &Placement) -> Result<Self> {
        let datafiles = placement.datafiles()?;
        let mut slots = Vec::with_capacity(datafiles.table.len());
        for (index, datafile) in datafiles.table.iter().enumerate() {
            plane.server(datafile.server)?;
            let present = AtomicBool::new(placement.present.contains(index));
            slots.push(Slot { present, descriptor: AtomicI32::new(-1), ..Slot::default() });
        }
        let Placement { handle, owner, identity, .. } = *placement;
        Ok(Self { plane, datafiles, slots, owned: (handle, owner, identity) })
    }

    /// Takes over which datafiles have come to exist.
    pub(crate) fn know(&self, present: &Present) {
        for (index, slot) in self.slots.iter().enumerate() {
            if present.contains(index) {
                slot.present.store(true, Ordering::Release);
            }
        }
    }

    /// Adds the datafiles that exist, as far as is known.
    pub(crate) fn tell(&self, present: &mut Present) {
        for (index, slot) in self.slots.iter().enumerate() {
            if slot.present.load(Ordering::Acquire) {
                present.insert(index);
            }
        }
    }

    /// Indexes of the datafiles.
    fn indexes(&self) -> std::ops::Range<u16> {
        0..self.slots.len() as u16
    }

    /// Where on its server's disk byte `offset` of datafile `index` is, as the file system says, if it is open.
    pub(crate) fn disk_address(&self, index: u16, offset: u64) -> Option<u64> {
        let slot = self.slots.get(usize::from(index))?;
        let state = slot.descriptor.load(Ordering::Acquire);
        if state < 0 {
            return None;
        }
        // SAFETY: a slot's descriptor stays open as long as `self` lives.
        slot.extent.address(unsafe { BorrowedFd::borrow_raw(state >> 1) }, offset)
    }

    /// Takes over what `older` knows of syncs that are still to come. One system call for each datafile that is open, five where this does
    /// not have it.
    pub(crate) fn take_over_syncs(&self, older: &Self) {
        for (before, datafile) in older.slots.iter().zip(&older.datafiles.table) {
            let state = before.descriptor.load(Ordering::Acquire);
            let written = before.written.load(Ordering::Acquire);
            // What the disk did not take is told by this descriptor alone, which goes with `older`; also of what a program has written past
            // the mount.
            let lost = before.has_lost(state) | before.lost.load(Ordering::Acquire);
            if let Some(index) = self.datafiles.table.iter().position(|other| other == datafile) {
                self.slots[index].written.store(written, Ordering::Release);
                self.slots[index].lost.fetch_or(lost, Ordering::AcqRel);
                continue;
            }
            let is_lost = lost || (written && state >= 0 && !older.is_of_its_server(state >> 1, *datafile));
            // What has moved has moved without it: any sync tells.
            if is_lost && let Some(slot) = self.slots.iter().find(|slot| slot.present.load(Ordering::Acquire)) {
                slot.lost.store(true, Ordering::Release);
            }
        }
    }

    /// Whether the kernel has written back what was written to the datafiles, as far as it has not told otherwise yet. One system call for
    /// each, two where it is not open.
    ///
    /// # Errors
    /// [`Error::NotWrittenBack`] of the first one that it could not write back.
    pub(crate) fn check_written_back(&self) -> Result<()> {
        for index in self.indexes() {
            let Some(fd) = self.readable_datafile(index)? else { continue };
            if writeback::has_lost(fd) {
                // Who syncs by this descriptor later is told, too.
                self.slots[usize::from(index)].lost.store(true, Ordering::Release);
                return Err(Error::NotWrittenBack { server: self.server_of(index)?.name().to_owned() });
            }
        }
        Ok(())
    }

    /// Whether it has any datafile, as far as is known. O(datafiles) loads.
    pub(crate) fn has_datafile(&self) -> bool {
        self.slots.iter().any(|slot| slot.present.load(Ordering::Acquire))
    }

    /// Calls `f` with index and descriptor of each datafile that exists, for writing where that is allowed.
    pub(crate) fn for_each_present(
        &self,
        mut f: impl FnMut(u16, BorrowedFd<'_>) -> rustix::io::Result<()>,
    ) -> Result<()> {
        for index in self.indexes() {
            if let Some(fd) = self.descriptor(index, Direction::Read)? {
                let server = self.datafiles.table[usize::from(index)].server;
                // SAFETY: a slot's descriptor stays open as long as `self` lives.
                let fd = unsafe { BorrowedFd::borrow_raw(fd) };
                let done = match f(index, fd) {
                    Err(errno) if self.comes_back(index, errno) => f(index, fd),
                    done => done,
                };
                done.map_err(self.plane.server(server)?.error("change a datafile"))?;
            }
        }
        Ok(())
    }

    /// [`PlacedFile::sync`] of the datafiles that `are_meant`.
    pub(crate) fn sync_some(&self, data_only: bool, are_meant: impl Fn(&Datafile) -> bool) -> Result<()> {
        let indexes = self.indexes().filter(|&index| are_meant(&self.datafiles.table[usize::from(index)]));
        for index in indexes.clone() {
            if let Ok(Some(fd)) = self.readable_datafile(index) {
                writeback::begin(fd);
            }
        }
        let mut all: Result<()> = Ok(());
        for index in indexes {
            // Of all, whatever the first says: each is told of what it may have lost. That is told first, as no later sync tells it.
            let synced = self.sync_datafile(index, data_only);
            if synced.is_err() && !all.as_ref().is_err_and(Error::tells_of_a_loss) {
                all = synced;
            }
        }
        all
    }

    /// The datafiles that are longer than what a file of `size_bytes` has in them, and how long that is.
    pub(crate) fn longer_than(&self, size_bytes: u64) -> Result<Vec<(u16, u64)>> {
        let mut longer = Vec::new();
        self.for_each_present(|index, fd| {
            let wanted = datafile_bytes(&self.datafiles, index, size_bytes);
            if stat_datafile(fd)?.st_size as u64 > wanted {
                longer.push((index, wanted));
            }
            Ok(())
        })?;
        Ok(longer)
    }

    /// Makes the bytes of datafile `index` durable. By an error the caller is told of all that may be lost until now.
    fn sync_datafile(&self, index: u16, data_only: bool) -> Result<()> {
        let slot = &self.slots[usize::from(index)];
        let written = slot.written.swap(false, Ordering::AcqRel);
        let mut lost = slot.lost.swap(false, Ordering::AcqRel);
        let Some(fd) = self.readable_datafile(index)? else { return Ok(()) };
        let sync = || retry(|| if data_only { rustix::fs::fdatasync(fd) } else { rustix::fs::fsync(fd) });
        let done = match sync() {
            Err(errno) if self.comes_back(index, errno) => {
                // What it has not synced has gone with the old file system.
                lost |= written;
                sync()
            }
            done => done,
        };
        let kept = if lost { Err(Errno::IO) } else { Ok(()) };
        done.and(kept).map_err(self.server_of(index)?.error("sync a datafile"))
    }

    /// For a caller that has others sync the file: whether bytes written here may be lost, though a sync succeeds now, because their
    /// server died and came back, or because the kernel could not write them back and has told others. Told once, as the kernel tells of
    /// that. Call it before the sync. One system call for each datafile that is open.
    pub(crate) fn take_lost(&self) -> bool {
        let mut any = false;
        for (slot, datafile) in self.slots.iter().zip(&self.datafiles.table) {
            let state = slot.descriptor.load(Ordering::Acquire);
            let written = slot.written.swap(false, Ordering::AcqRel);
            // It may have died and come back since it was used last.
            any |= slot.lost.swap(false, Ordering::AcqRel);
            // By the descriptors of this process alone the kernel tells it of what was written by them.
            any |= slot.has_lost(state);
            any |= written && state >= 0 && !self.is_of_its_server(state >> 1, *datafile);
        }
        any
    }

    /// After such a sync: whether the kernel could not write back bytes that were written here, and may have told others in the sync. What is
    /// written by now stays marked for the next sync. One system call for each datafile that is open.
    pub(crate) fn take_not_written_back(&self) -> bool {
        self.slots.iter().fold(false, |any, slot| slot.has_lost(slot.descriptor.load(Ordering::Acquire)) | any)
    }

    /// Whether an open datafile is on its server as that stands now, or stood last: one that was removed meanwhile has not come back as
    /// another. Four system calls.
    fn is_of_its_server(&self, fd: RawFd, datafile: Datafile) -> bool {
        let Ok(server) = self.plane.server(datafile.server) else { return false };
        // One that has come back is taken over.
        let _ = server.current();
        // SAFETY: a slot's descriptor stays open as long as `self` lives.
        server.backend().is_ok_and(|backend| backend.holds(unsafe { BorrowedFd::borrow_raw(fd) }))
    }

    /// Calls `f` with index and attributes of each datafile that exists and can be reached, and the least size of the file
    /// that has it; the first error of those that cannot be reached.
    pub(crate) fn for_each_stat(&self, mut f: impl FnMut(u16, &rustix::fs::Stat, u64)) -> Result<()> {
        let mut all: Result<()> = Ok(());
        for index in self.indexes() {
            let stat = self.descriptor(index, Direction::Read).and_then(|fd| {
                let Some(fd) = fd else { return Ok(None) };
                let server = self.datafiles.table[usize::from(index)].server;
                // SAFETY: a slot's descriptor stays open as long as `self` lives.
                let fd = unsafe { BorrowedFd::borrow_raw(fd) };
                let stat = match stat_datafile(fd) {
                    Err(errno) if self.comes_back(index, errno) => stat_datafile(fd),
                    stat => stat,
                };
                Ok(Some(stat.map_err(self.plane.server(server)?.error("read the attributes of a datafile"))?))
            });
            match stat {
                Ok(Some(stat)) => {
                    let upto = crate::format::extent::file_bytes(&self.datafiles, index, stat.st_size as u64);
                    f(index, &stat, upto);
                }
                Ok(None) => {}
                // A datafile that is gone says less than a server that may come back.
                Err(error) if all.as_ref().map_or_else(Error::is_missing, |()| true) => all = Err(error),
                Err(_) => {}
            }
        }
        all
    }

    /// Calls `f` with index, descriptor and length in bytes of each datafile that exists and can be reached; the first error.
    pub(crate) fn for_each_length(
        &self,
        mut f: impl FnMut(u16, BorrowedFd<'_>, u64) -> rustix::io::Result<()>,
    ) -> Result<()> {
        let mut all = Ok(());
        for index in self.indexes() {
            let asked = self.readable_datafile(index).and_then(|fd| {
                let Some(fd) = fd else { return Ok(()) };
                let length = stat_datafile(fd).map(|stat| stat.st_size as u64);
                length.and_then(|length| f(index, fd, length)).map_err(self.server_of(index)?.error("ask a datafile"))
            });
            all = all.and(asked);
        }
        all
    }

    /// The descriptor of datafile `index`, if it exists.
    pub(crate) fn writable_datafile(&self, index: u16) -> Result<Option<BorrowedFd<'_>>> {
        let fd = self.descriptor(index, Direction::Write)?;
        // SAFETY: a slot's descriptor stays open as long as `self` lives.
        Ok(fd.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) }))
    }

    /// The descriptor of datafile `index` for reading, if it exists.
    pub(crate) fn readable_datafile(&self, index: u16) -> Result<Option<BorrowedFd<'_>>> {
        let fd = self.descriptor(index, Direction::Read)?;
        // SAFETY: a slot's descriptor stays open as long as `self` lives.
        Ok(fd.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) }))
    }

    /// The server of datafile `index`.
    pub(crate) fn server_of(&self, index: u16) -> Result<&OpenServer> {
        self.plane.server(self.datafiles.table[usize::from(index)].server)
    }

    /// The open descriptor of datafile `index`; `None` when it does not exist, so that its bytes are a hole.
    #[inline]
    fn descriptor(&self, index: u16, direction: Direction) -> Result<Option<RawFd>> {
        if direction == Direction::Write {
            self.mark_written(index);
        }
        let slot = &self.slots[usize::from(index)];
        let state = slot.descriptor.load(Ordering::Acquire);
        if state >= 0 && (state & 1 == 1 || direction == Direction::Read) {
            return Ok(Some(state >> 1));
        }
        if !slot.present.load(Ordering::Acquire) {
            return Ok(None);
        }
        self.open_slot(index, direction, state).map(Some)
    }

    /// After an error of datafile `index`: whether its file system has gone and has come back as another, so that it pays to
    /// try again. EIO says that it has gone where not even the attributes can be had, as of a file system that has shut
    /// itself down.
    #[cold]
    pub(crate) fn comes_back(&self, index: u16, errno: Errno) -> bool {
        let Some(datafile) = self.datafiles.table.get(usize::from(index)) else { return false };
        if !has_gone(errno) && (errno != Errno::IO || !self.has_died(index)) {
            return false;
        }
        if let Ok(server) = self.plane.server(datafile.server) {
            // It finds out whether the server is dead, too.
            let _ = server.current();
            self.let_go_of_dead();
        }
        self.reconnect()
    }

    fn has_died(&self, index: u16) -> bool {
        let state = self.slots[usize::from(index)].descriptor.load(Ordering::Acquire);
        // SAFETY: a slot's descriptor stays open as long as `self` lives.
        state >= 0 && rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(state >> 1) }).is_err()
    }

    /// Lets go of the datafiles on file systems that have died.
    pub(crate) fn let_go_of_dead(&self) {
        for (index, (slot, datafile)) in self.slots.iter().zip(&self.datafiles.table).enumerate() {
            let has_died = self.plane.find(datafile.server).is_some_and(OpenServer::has_died);
            let state = slot.descriptor.load(Ordering::Acquire);
            if has_died && self.has_died(index as u16) && replace_by_nothing(state >> 1) {
                slot.lost.fetch_or(slot.written.load(Ordering::Acquire), Ordering::AcqRel);
                // Should it have been opened for writing just now, that descriptor says EBADF, and is opened again.
                let _ = slot.descriptor.compare_exchange(state, -2 - state, Ordering::AcqRel, Ordering::Acquire);
            }
        }
    }

    /// After an error that says that a file system has gone: opens the datafiles of servers that have come back as another
    /// one, in the places of the descriptors of the old. Whether there is any, so that it pays to try again.
    #[cold]
    fn reconnect(&self) -> bool {
        let mut any = false;
        let identity = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
        for (index, (slot, datafile)) in self.slots.iter().zip(&self.datafiles.table).enumerate() {
            let state = slot.descriptor.load(Ordering::Acquire);
            if state < 0 {
                any |= state != -1 && self.open_slot(index as u16, Direction::Read, state).is_ok();
                continue;
            }
            // SAFETY: a slot's descriptor stays open as long as `self` lives.
            let old = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(state >> 1) }).map(identity);
            let writes = state & 1 == 1;
            let Ok((fd, _)) = self.open_datafile(*datafile, writes) else { continue };
            // SAFETY: opened just now; this is its only owner.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            if old.is_err() || old != rustix::fs::fstat(&fd).map(identity) {
                slot.lost.fetch_or(slot.written.load(Ordering::Acquire), Ordering::AcqRel);
                any |= replace(state >> 1, fd).is_ok();
            }
        }
        any
    }

    fn open_datafile(&self, datafile: Datafile, write: bool) -> Result<(RawFd, bool)> {
        let (handle, owner, identity) = self.owned;
        self.plane.open_datafile(handle, owner, identity, datafile, write)
    }

    #[cold]
    fn open_slot(&self, index: u16, direction: Direction, state: i32) -> Result<RawFd> {
        let datafile = self.datafiles.table[usize::from(index)];
        let write = direction == Direction::Write;
        let (fd, writable) = self.open_datafile(datafile, write)?;
        let slot = &self.slots[usize::from(index)];
        if state != -1 {
            let old = if state < 0 { -2 - state } else { state } & !1;
            // Open for reading only so far, or let go of: put the new descriptor in the old one's place, other threads go on
            // with it.
            // SAFETY: opened just now; this is its only owner.
            replace(old >> 1, unsafe { OwnedFd::from_raw_fd(fd) })
                .map_err(self.plane.server(datafile.server)?.error("open a datafile"))?;
            slot.descriptor.store(old | i32::from(writable), Ordering::Release);
            return Ok(old >> 1);
        }
        match slot.descriptor.compare_exchange(-1, fd << 1 | i32::from(writable), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(fd),
            Err(other) => {
                close(fd);
                Ok(other >> 1)
            }
        }
    }
}

impl PlacePath for Striped {
    #[inline]
    fn plane(&self) -> &Arc<DataPlane> {
        &self.plane
    }

    /// One load.
    #[inline]
    fn exists(&self, index: u16) -> bool {
        self.slots[usize::from(index)].present.load(Ordering::Acquire)
    }

    /// One load where that is known; nothing for what is no datafile.
    #[inline]
    fn mark_written(&self, index: u16) {
        if let Some(slot) = self.slots.get(usize::from(index))
            && !slot.written.load(Ordering::Acquire)
        {
            slot.written.store(true, Ordering::Release);
        }
    }

    #[inline(always)]
    fn place(
        &self,
        index: u16,
        server: ServerId,
        direction: Direction,
        is_direct: impl FnOnce() -> bool,
    ) -> Result<PartPlace> {
        let fd = self.descriptor(index, direction)?.unwrap_or(-1);
        Ok(PartPlace { fd, passes_cache: is_direct() && self.plane.find(server).is_some_and(OpenServer::passes_cache) })
    }

    #[inline]
    fn counts(&self, server: ServerId) -> bool {
        self.plane.find(server).is_some_and(OpenServer::is_charged)
    }
}

impl Drop for Striped {
    fn drop(&mut self) {
        for slot in &mut self.slots {
            match *slot.descriptor.get_mut() {
                -1 => {}
                state => close(if state < 0 { -2 - state } else { state } >> 1),
            }
        }
    }
}

/// Attributes of a datafile; EBADF of one that another thread has just let go of.
fn stat_datafile(fd: BorrowedFd<'_>) -> rustix::io::Result<rustix::fs::Stat> {
    let stat = rustix::fs::fstat(fd)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile { Ok(stat) } else { Err(Errno::BADF) }
}
