//! Requests on a file's bytes, by who sends them. All go through the door of the data plane.

use crate::file::inode::{ByHandle, Cuts, Inode};
use crate::file::lockfile::Purpose;
use crate::file::placements;
use crate::os::error::{Error, Result};
use crate::os::sync::guard;
use rustix::fs::FallocateFlags;
use std::io::{IoSlice, IoSliceMut};
use stripewise_control::{Action, FileId, Request, Sender, Way};
use stripewise_layout::Layout;

/// The requests of one sender on one file.
#[derive(Debug, Clone, Copy)]
pub struct Requests<'a> {
    inode: &'a Inode,
    sender: Sender,
    /// The gate has let the request pass that these are parts of.
    are_admitted: bool,
    /// They put what was gathered on the servers.
    are_gathered: bool,
}

/// The store's own interface.
pub(crate) const LIBRARY: Sender = Sender::this_process(Way::Library);

impl Inode {
    /// The requests of `sender`.
    pub fn sent_by(&self, sender: Sender) -> Requests<'_> {
        Requests { inode: self, sender, are_admitted: false, are_gathered: false }
    }

    /// The requests of `sender`, as parts of one that the gate has let pass.
    pub(crate) fn admitted(&self, sender: Sender) -> Requests<'_> {
        Requests { inode: self, sender, are_admitted: true, are_gathered: false }
    }

    /// The requests that put on the servers what was gathered of the writes of `sender`, which the gate has let pass.
    pub(crate) fn gathered_by(&self, sender: Sender) -> Requests<'_> {
        Requests { inode: self, sender, are_admitted: true, are_gathered: true }
    }

    /// [`Requests::read_at`] of this process.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.sent_by(LIBRARY).read_at(buf, offset)
    }

    /// [`Requests::write_at`] of this process.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        self.sent_by(LIBRARY).write_at(buf, offset)
    }

    /// [`Requests::append`] of this process.
    pub fn append(&self, buf: &[u8]) -> Result<(u64, usize)> {
        self.sent_by(LIBRARY).append(buf)
    }
}

impl<'a> Requests<'a> {
    fn places(&self, cuts: Cuts) -> ByHandle<'a> {
        ByHandle { inode: self.inode, cuts, sender: self.sender, is_admitted: self.are_admitted }
    }

    /// What was gathered before comes first. One load where nothing is.
    #[inline]
    fn put_gathered(&self) -> Result<()> {
        if self.are_gathered { Ok(()) } else { self.inode.put_gathered() }
    }

    /// [`Requests::put_gathered`] before a write, whose program is told by it of what is given up.
    #[inline]
    fn put_gathered_or_give_up(&self) -> Result<()> {
        if self.are_gathered { Ok(()) } else { self.inode.put_gathered_or_give_up() }
    }

    /// Who sends them.
    pub(crate) fn sender(&self) -> Sender {
        self.sender
    }

    /// Waits at the gate, with no lock that others wait for; what follows is a part of that request.
    pub(crate) fn admit(self, action: Action, offset: u64, len: u64) -> Self {
        self.enter(action, offset, len);
        Self { are_admitted: true, ..self }
    }

    /// Reads at `offset`; fewer bytes than asked for only at the end of the file. Holes are zeros.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.read_vectored_at(&mut [IoSliceMut::new(buf)], offset)
    }

    /// [`Requests::read_at`] into several buffers.
    pub fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        self.put_gathered()?;
        placements::read(&self.places(Cuts::Write), bufs, offset).inspect_err(|_| self.inode.store.let_go_of_dead())
    }

    /// Writes at `offset`, which may lie beyond the end. The file must be registered for writing.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        self.write_vectored_at(&[IoSlice::new(buf)], offset)
    }

    /// [`Requests::write_at`] from several buffers.
    pub fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<usize> {
        self.write_cut_by(bufs, offset, Cuts::Write)
    }

    fn write_cut_by(&self, bufs: &[IoSlice<'_>], offset: u64, cuts: Cuts) -> Result<usize> {
        self.put_gathered_or_give_up()?;
        if !self.are_gathered {
            self.inode.leave_reserve_free(|| bufs.iter().fold(offset, |end, buf| end.saturating_add(buf.len() as u64)));
        }
        placements::write(&self.places(cuts), bufs, offset)
            .or_else(|error| self.write_off_full_tier(bufs, offset, cuts, error))
            .inspect_err(|_| self.inode.store.let_go_of_dead())
    }

    /// The write that has failed with `error`, once more where the file has left the metadata tier, which has no room for it.
    #[cold]
    fn write_off_full_tier(&self, bufs: &[IoSlice<'_>], offset: u64, cuts: Cuts, error: Error) -> Result<usize> {
        if !self.inode.leaves_full_tier(&error) {
            return Err(error);
        }
        placements::write(&Requests { are_admitted: true, ..*self }.places(cuts), bufs, offset)
    }

    /// Writes all of `buf` at `offset`, as [`Requests::write_at`] does; where a server fails, the stripes of all others are
    /// written all the same. For pages that a kernel writes back, which cannot be told that only a part was written. The
    /// file must be registered for writing.
    ///
    /// # Errors
    /// The first of those that kept a part of it from being written.
    pub fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        // A kernel's pages are written all the same.
        let mut all = self.put_gathered_or_give_up();
        // What it fails with is found out below, stripe by stripe. Nothing is cut off: the kernel that keeps the pages says
        // where the file ends.
        let mut done = placements::write(&self.places(Cuts::Nothing), &[IoSlice::new(buf)], offset).unwrap_or(0);
        let rest = Requests { are_admitted: true, ..*self };
        while done < buf.len() {
            let at = offset + done as u64;
            let in_stripe = stripe_end(&self.inode.file()?.datafiles().placed, at) - at;
            let end = done + in_stripe.min((buf.len() - done) as u64) as usize;
            match rest.write_at(&buf[done..end], at) {
                Ok(count) => done += count,
                Err(error) => {
                    all = all.and(Err(error));
                    done = end;
                }
            }
        }
        all
    }

    /// Writes at the end of the file, also beside other appenders; the offset where the bytes went, and how many. The file must be
    /// registered for writing.
    ///
    /// Where the kernel of some mount may write the file's datafile itself, it knows nothing of the store's locks, and the
    /// only end that all appenders agree on is the one that the kernel finds under its own lock of the datafile. A file
    /// over several datafiles is only ever appended to by the store, under the append lock of its lock file.
    pub fn append(&self, buf: &[u8]) -> Result<(u64, usize)> {
        self.append_by(buf, true)
    }

    /// [`Requests::append`] for a caller that does not ask where the bytes went, which may cost a system call.
    ///
    /// # Errors
    /// As [`Requests::append`].
    pub fn append_blindly(&self, buf: &[u8]) -> Result<usize> {
        Ok(self.append_by(buf, false)?.1)
    }

    /// The offset counts only if the caller `asks_where`.
    fn append_by(&self, buf: &[u8], asks_where: bool) -> Result<(u64, usize)> {
        let inode = self.inode;
        let request = self.enter(Action::Append, 0, buf.len() as u64);
        self.put_gathered_or_give_up()?;
        loop {
            let is_whole = inode.is_whole()?;
            if is_whole {
                // The kernel appends once, where it finds the end; a move cannot have it written again. Waits without the lock below.
                inode.hold_place()?;
            }
            let _local = guard(&inode.appending);
            if inode.file()?.whole_inode().is_some() || is_whole && inode.is_whole()? {
                return inode.append_whole(&request, buf, asks_where);
            }
            let lock = inode.registered_lock()?;
            lock.lock(Purpose::Append, true)?;
            // While this is locked no move switches.
            let done = match inode.is_whole() {
                Ok(true) => None,
                Ok(false) => Some(Requests { are_admitted: true, ..*self }.append_locked(buf)),
                Err(error) => Some(Err(error)),
            };
            lock.unlock(Purpose::Append)?;
            if let Some(done) = done {
                return done;
            }
        }
    }

    /// Waits at the gate, with no lock that others wait for. One comparison where there is none.
    pub(crate) fn enter(&self, action: Action, offset: u64, len: u64) -> Request {
        let request = Request { sender: self.sender, action, offset, len, rank: self.inode.rank() };
        if !self.are_admitted {
            self.inode.store.plane().door().enter(FileId(self.inode.handle()), &request);
        }
        request
    }

    /// Sets the size. Needs no registration.
    ///
    /// # Errors
    /// EFBIG; those of the servers.
    pub fn truncate(&self, size_bytes: u64) -> Result<()> {
        self.enter(Action::Truncate, size_bytes, 0);
        // What is cut off needs no room on a full disk.
        let is_cut = self.inode.cut_gathered(size_bytes);
        self.put_gathered().and_then(|()| self.inode.truncate(size_bytes)).inspect_err(|error| {
            if is_cut {
                self.inode.note_lost(error.errno());
            }
        })?;
        self.inode.store.plane().door().cut(FileId(self.inode.handle()), size_bytes);
        Ok(())
    }

    /// `fallocate`: mode 0, `PUNCH_HOLE | KEEP_SIZE`, `ZERO_RANGE`, the first and the last also with `KEEP_SIZE`; where all
    /// bytes are the inode's own, each mode that its file system has. The file must be registered for writing.
    ///
    /// # Errors
    /// EOPNOTSUPP for other modes; those of the servers.
    pub fn allocate(&self, mode: FallocateFlags, offset: u64, len: u64) -> Result<()> {
        self.enter(Action::Allocate, offset, len);
        self.put_gathered()?;
        self.inode.leave_reserve_free(|| offset.saturating_add(len));
        let allocate = || self.inode.allocate(mode, offset, len);
        allocate().or_else(|error| if self.inode.leaves_full_tier(&error) { allocate() } else { Err(error) })
    }

    fn append_locked(&self, buf: &[u8]) -> Result<(u64, usize)> {
        // A cut that a process has died in comes first: it says where the file ends.
        self.inode.to_write(false)?;
        let end = self.inode.certain_size_bytes()?;
        self.write_cut_by(&[IoSlice::new(buf)], end, Cuts::Append).map(|count| (end, count))
    }
}

/// Where the stripe ends that holds byte `offset` of the file.
pub(crate) fn stripe_end(layout: &Layout, offset: u64) -> u64 {
    let region = layout.region_at(offset);
    let row = &layout.regions()[region];
    let slot = row.slot_at(offset);
    let begin = offset - offset % row.round_bytes() + row.start_of(slot);
    begin.saturating_add(row.stripes()[slot].width_bytes).min(layout.region_end(region))
}
