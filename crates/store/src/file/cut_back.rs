//! Cuts off what a write that failed half-way has left beyond the bytes that count.
//!
//! A request writes to each of its servers in one go. Where one server has no space, others have taken bytes beyond the
//! first missing one. Inside the old size these bytes are old or new, as after any failed overwrite. Beyond the old
//! size they would make the file longer than what was written, with zeros in between.
//!
//! The cut must not remove bytes of another writer, and writers take no lock. So a cut needs that this process
//! knows all other writers of the file ([`Inode::without_writers`]). These read the file's epoch counter after each
//! write. If it has changed, a cut may have taken those bytes along, and the writer writes them again. Without a cut, a
//! write costs one atomic load more.

use crate::file::inode::Inode;
use crate::file::lockfile::Purpose;
use crate::file::placed_file::PlacedFile;
use crate::format::extent::{datafile_bytes, file_bytes};
use crate::format::surplus::{DatafileWrite, Surplus};
use crate::os::error::Result;
use crate::os::sync::atomic::{AtomicBool, Ordering};
use crate::os::sys::retry;
use rustix::fd::BorrowedFd;
use rustix::fs::SeekFrom;
use std::sync::atomic::fence;
use stripewise_layout::{Region, ServerId};

/// Set as long as it lives.
pub(crate) struct Flag<'a>(&'a AtomicBool);

impl<'a> Flag<'a> {
    pub(crate) fn set(flag: &'a AtomicBool) -> Self {
        flag.store(true, Ordering::SeqCst);
        Self(flag)
    }
}

impl Drop for Flag<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl Inode {
    /// Does `work` while no writer's bytes can come to lie in a datafile and be counted as written, unless another
    /// process is registered as a writer: then nothing is done. The caller must be registered.
    ///
    /// The writers are then threads of this process, and programs that it lets past the mount. One that began before this
    /// finds another epoch after the write and writes again; one that comes now waits ([`Inode::wait_for_cut`]).
    pub(crate) fn without_writers(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let lock = self.registered_lock()?;
        let _change = self.change_handle()?;
        if !lock.try_exclusive(Purpose::Writers)? {
            return Ok(());
        }
        let done = {
            let _flag = Flag::set(&self.cutting);
            self.bump_epoch();
            // What a writer has written before it looked at the epoch is seen from here on.
            fence(Ordering::SeqCst);
            work()
        };
        // An own lock is exchanged, also while others wait for it.
        lock.try_shared(Purpose::Writers)?;
        done
    }

    /// Waits while the file is being cut back. One atomic load when it is not. The caller need not be registered.
    pub(crate) fn wait_for_cut(&self) {
        while self.cutting.load(Ordering::SeqCst) {
            drop(self.one_change());
        }
    }

    /// Cuts off what a write that failed half-way has left behind the file's end as it was before, and behind what was
    /// written of it. Nothing is done where another process is registered as a writer, or has made a datafile longer
    /// than the write did. The caller must be registered as a writer.
    ///
    /// # Errors
    /// A datafile could not be cut; the others are.
    pub fn cut_back(&self, surplus: &Surplus) -> Result<()> {
        self.without_writers(|| self.cut_surplus(surplus, false))
    }

    /// [`Inode::cut_back`] of an append, for a registered writer that keeps appends out: also where another process is registered as a
    /// writer, which waits as for a truncation. In a shared pool, in which some see no change of this one, nothing is done there.
    ///
    /// # Errors
    /// As [`Inode::cut_back`].
    pub(crate) fn cut_back_append(&self, surplus: &Surplus) -> Result<()> {
        if self.store.plane().is_shared() {
            return self.cut_back(surplus);
        }
        let _change = self.change_handle_in_order()?;
        let lock = self.registered_lock()?;
        // A kill before all is cut leaves the rest, as after any write that failed.
        lock.lock(Purpose::Cut, true)?;
        let done = {
            let _flag = Flag::set(&self.cutting);
            self.bump_epoch();
            // What a writer has written before it looked at the epoch is seen from here on.
            fence(Ordering::SeqCst);
            self.cut_surplus(surplus, true)
        };
        lock.unlock(Purpose::Cut)?;
        done
    }

    /// While no writer's bytes can come to be counted as written. `is_stored`: another process may have put the size with the surplus into
    /// the inode.
    fn cut_surplus(&self, surplus: &Surplus, is_stored: bool) -> Result<()> {
        let file = self.file()?;
        if file.placement().version != surplus.version {
            return Ok(());
        }
        let inode_bytes = self.stat()?.st_size as u64;
        let (end, all_told) = Self::end_without(&file, surplus);
        // Of bytes that are in the inode its size tells, and of those on a server that cannot be asked. All other sizes that come to it
        // while appends are kept out come from lengths of datafiles.
        let is_in_inode = |region: &Region| region.stripes()[0].server == ServerId::META;
        let mut behind_head = file.placement().layout.regions().iter().skip(1);
        let is_stored = is_stored
            && all_told
            && surplus.kept_to >= file.placement().layout.head_in_inode_bytes()
            && !behind_head.any(is_in_inode);
        let end = if is_stored { end } else { end.max(inode_bytes) };
        self.lower_lengths(&file, end)?;
        self.end_move_beside(&file)?;
        let mut all = Ok(());
        for part in &surplus.parts {
            all = all.and(self.cut_datafile(&file, part.index, end));
        }
        if is_stored && end < inode_bytes {
            all = all.and(self.truncate_inode(end));
        }
        all
    }

    /// Size of the file without the surplus, as far as its datafiles say, and whether all have said so.
    fn end_without(file: &PlacedFile, surplus: &Surplus) -> (u64, bool) {
        let mut end = surplus.kept_to;
        // A server that is missing has nothing of what is to be cut.
        let all = file.striped().for_each_length(|index, fd, length| {
            let part = surplus.parts.iter().find(|part| part.index == index);
            let own = part.map_or(Ok(length), |part| length_without(part, fd, length))?;
            end = end.max(file_bytes(file.datafiles(), index, own));
            Ok(())
        });
        (end, all.is_ok())
    }

    fn cut_datafile(&self, file: &PlacedFile, index: u16, end: u64) -> Result<()> {
        if usize::from(index) >= file.datafiles().table.len() {
            return Ok(());
        }
        let Some(fd) = file.striped().writable_datafile(index)? else { return Ok(()) };
        let error = file.striped().server_of(index)?.error("cut a datafile");
        let to = datafile_bytes(file.datafiles(), index, end);
        if rustix::fs::fstat(fd).map_err(error)?.st_size as u64 > to {
            retry(|| rustix::fs::ftruncate(fd, to)).map_err(error)?;
        }
        Ok(())
    }
}

/// How long a datafile of `length` bytes would be without the write.
fn length_without(part: &DatafileWrite, fd: BorrowedFd<'_>, length: u64) -> rustix::io::Result<u64> {
    if length > part.to.max(part.before_bytes) {
        // Another writer's.
        return Ok(length);
    }
    if part.before_bytes >= part.from {
        return Ok(part.before_bytes.min(length));
    }
    // Between the two, another may have written meanwhile.
    match rustix::fs::seek(fd, SeekFrom::Data(part.before_bytes)) {
        Ok(data) if data >= part.from => Ok(part.before_bytes),
        Err(rustix::io::Errno::NXIO) => Ok(part.before_bytes),
        _ => Ok(part.from.min(length)),
    }
}
