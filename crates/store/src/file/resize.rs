//! Changes of a file's size and space, and what finishes one that a crash interrupted.

use crate::file::cut_back::Flag;
use crate::file::inode::{HandleGuard, Inode};
use crate::file::lockfile::{LockFile, Purpose};
use crate::file::placed_file::{MoveBeside, PlacedFile};
use crate::file::rights::remove_datafile;
use crate::file::writers::Collected;
use crate::format::extent::gaps;
use crate::format::handle::Handle;
use crate::format::placement::{Datafile, Datafiles};
use crate::os::error::{Error, Result};
use crate::os::sync::atomic::Ordering;
use crate::os::sys::{retry, times_of};
use rustix::fd::BorrowedFd;
use rustix::fs::{FallocateFlags, SeekFrom, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use stripewise_layout::{MAX_OFFSET, ServerId};

/// Fails, before anything is cut, where a datafile cannot be: its time is set to what it is, which a file system that
/// has become read-only, has failed or has gone refuses as it would refuse the cut.
fn check_cuttable(file: &PlacedFile, longer: &[(u16, u64)]) -> Result<()> {
    for (index, _) in longer {
        let Some(fd) = file.striped().writable_datafile(*index)? else { continue };
        let same_time = || {
            let stat = rustix::fs::fstat(fd)?;
            let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
            let mtime = Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ };
            rustix::fs::futimens(fd, &Timestamps { last_access: omit, last_modification: mtime })
        };
        match same_time() {
            // Another user's file, which this one may write: only an owner names a time.
            Err(Errno::PERM | Errno::ACCESS) => {}
            done => done.map_err(file.striped().server_of(*index)?.error("cut a datafile"))?,
        }
    }
    Ok(())
}

/// Runs `work`, which changes what is behind `fd`, and gives that back its times, as far as this user may name a time.
fn keeping_times(fd: BorrowedFd<'_>, work: impl FnOnce() -> rustix::io::Result<()>) -> rustix::io::Result<()> {
    let before = times_of(&rustix::fs::fstat(fd)?);
    work()?;
    let _ = rustix::fs::futimens(fd, &before);
    Ok(())
}

/// A datafile as it was before an allocation.
struct Taken {
    index: u16,
    /// Its bytes.
    length: u64,
    /// Whether no space behind its end was its own: what is there afterwards the allocation has taken.
    had_nothing_behind: bool,
}

impl Taken {
    fn before(index: u16, stat: &rustix::fs::Stat) -> Self {
        let (length, space) = (stat.st_size as u64, 512 * stat.st_blocks as u64);
        Self { index, length, had_nothing_behind: space <= length.next_multiple_of(4096) }
    }
}

/// The generations that the last changes of layout may have left, where they cannot be listed.
fn recent_generations(handle: &Handle) -> impl Iterator<Item = u32> + use<> {
    const CHANGES: u32 = 16;
    let next = handle.version.wrapping_add(1);
    (0..=CHANGES).map(move |back| next.wrapping_sub(back))
}

impl Inode {
    fn too_large(&self) -> Error {
        self.failed("go beyond offset 2^63-1 of")(Errno::FBIG)
    }

    /// Sets the size. Needs no registration: it registers itself meanwhile.
    pub fn truncate(&self, size_bytes: u64) -> Result<()> {
        if size_bytes > MAX_OFFSET {
            return Err(self.too_large());
        }
        if self.truncate_head(size_bytes)? {
            return Ok(());
        }
        self.with_registration(|| {
            self.wait_for_pages()?;
            self.without_appends(|| self.truncate_registered(size_bytes))
        })
    }

    fn truncate_registered(&self, size_bytes: u64) -> Result<()> {
        let _change = self.change_handle_in_order()?;
        let mut file = self.file()?;
        // A mover that was killed after its switch may have told of nothing.
        if self.has_handle() && self.read_handle()?.version != file.placement().version {
            self.reload()?;
            file = self.file()?;
        }
        let longer = file.striped().longer_than(size_bytes)?;
        // Also where only a hole at the end is cut: the copy reaches to the old end.
        if file.move_beside() != MoveBeside::No && (!longer.is_empty() || self.stat()?.st_size as u64 > size_bytes) {
            self.end_move_beside(&file)?;
        }
        if !longer.is_empty() {
            check_cuttable(&file, &longer)?;
        }
        // Also where nothing is cut: of datafiles that are shorter than was recorded, no more than this is missing now.
        self.lower_lengths(&file, size_bytes)?;
        if longer.is_empty() {
            return self.truncate_inode(size_bytes);
        }
        if file.is_one_datafile() {
            // The kernel cuts it at once: a process that is killed before has cut nothing, and no later one has to know. One that
            // writes it past the store could not be told.
            let done = self.truncate_inode(size_bytes).and_then(|()| self.trim(&file, size_bytes));
            self.bump_epoch();
            return done;
        }
        let mut handle = self.read_handle()?;
        // Of a move beside writers, or its death: there is more to clear away, and nothing to cut.
        let noted = handle.truncating_to.filter(|&to| to == MAX_OFFSET);
        handle.truncating_to = Some(size_bytes);
        let lock = self.registered_lock()?;
        // In this order: a writer that begins now waits, and should this process die it finishes the truncation before it writes. So do
        // the threads of this process, and programs that it lets past the mount.
        lock.lock(Purpose::Cut, true)?;
        let _flag = Flag::set(&self.cutting);
        self.bump_epoch();
        let done = self.write_handle(&handle).and_then(|()| {
            let done = self.cut(&file, size_bytes);
            // Where a disk has failed, too: a later process must not cut off what is written behind the
            // new end from now on: it would take this change for that of a killed process.
            handle.truncating_to = noted;
            let is_noted =
                self.write_handle(&handle).inspect_err(|_| self.is_cut_beside.store(true, Ordering::Release));
            done.and(is_noted)
        });
        lock.unlock(Purpose::Cut)?;
        done
    }

    /// Finishes the cut of a process that has died in it, before this one, which has the right to change the handle, changes a byte. What
    /// else there is to clear away is left to a writer without others. The file's lock file is `lock`.
    pub(crate) fn finish_cut_of_dead(&self, lock: &LockFile) -> Result<()> {
        if !self.has_handle() {
            return Ok(());
        }
        let mut handle = self.read_handle()?;
        let Some(size_bytes) = handle.cut_at() else { return Ok(()) };
        // It may have died before it told of its change: what is known here may be the old layout.
        self.bump_epoch();
        // In a shared pool no move is beside writers, and the lock file may be another user's.
        if !self.store.plane().is_shared() && lock.is_exclusive(Purpose::Place)? {
            lock.end_move()?;
        }
        self.finish_cut(&*self.file()?, size_bytes)?;
        handle.truncating_to = Some(MAX_OFFSET);
        self.write_handle(&handle)?;
        // It was seen once more meanwhile.
        self.is_cut_beside.store(false, Ordering::Release);
        Ok(())
    }

    /// [`Inode::change_handle`] after the cut of a process that has died in it: else that would be finished later, with what comes now.
    pub(crate) fn change_handle_in_order(&self) -> Result<HandleGuard<'_>> {
        let change = self.change_handle()?;
        self.finish_cut_of_dead(&*self.registered_lock()?)?;
        Ok(change)
    }

    /// Whether another process cuts the file off, of whose writers this one is. One system call, none where it is no writer.
    pub(crate) fn is_cut_now(&self) -> Result<bool> {
        self.registration_now().map_or(Ok(false), |lock| lock.is_exclusive(Purpose::Cut))
    }

    /// Waits for another process that cuts the file off, and finishes what it cannot. `alone`: the caller has the right to change the
    /// handle.
    #[cold]
    pub(crate) fn wait_for_cut_beside(&self, alone: bool) -> Result<()> {
        let _change = if alone { None } else { Some(self.change_handle()?) };
        self.finish_cut_of_dead(&*self.registered_lock()?)?;
        // Only now, as no other begins meanwhile: a thread that finds it writes what is not cut off.
        self.is_cut_beside.store(false, Ordering::Release);
        Ok(())
    }

    /// Cuts the file off at `size_bytes`, its inode last: where no datafile could be cut the file is as before. The
    /// handle says so already.
    fn cut(&self, file: &PlacedFile, size_bytes: u64) -> Result<()> {
        // The inode may not know yet how far the file reached, nor that it ends here: cutting alone would leave it
        // ending with whatever byte comes before.
        if (self.stat()?.st_size as u64) < size_bytes {
            self.truncate_inode(size_bytes)?;
        }
        self.trim(file, size_bytes)?;
        self.truncate_inode(size_bytes)
    }

    /// Shortens the datafiles to what a file of `size_bytes` has in them. The handle says so already.
    ///
    /// What is cut off must not be gone on one disk while another still says that the file is longer, so that the
    /// handle is made durable first; and it must not come back behind a new end after the handle forgot the truncation,
    /// so that what was cut is made durable before that. Nothing is synced where nothing is cut.
    fn trim(&self, file: &PlacedFile, size_bytes: u64) -> Result<()> {
        let longer = file.striped().longer_than(size_bytes)?;
        if longer.is_empty() {
            return Ok(());
        }
        self.sync_inode()?;
        let cut = longer.iter().map(|&(index, to)| Ok((index, to, file.striped().writable_datafile(index)?)));
        let cut = cut.collect::<Result<Vec<_>>>()?;
        for (index, to, fd) in &cut {
            let Some(fd) = fd else { continue };
            retry(|| rustix::fs::ftruncate(fd, *to))
                .map_err(file.striped().server_of(*index)?.error("cut a datafile"))?;
        }
        for (index, _, fd) in &cut {
            let Some(fd) = fd else { continue };
            let synced = retry(|| rustix::fs::fdatasync(fd));
            // What could not be written back here is told by no later sync of the same descriptor.
            synced
                .inspect_err(|errno| self.note_lost(*errno))
                .map_err(file.striped().server_of(*index)?.error("sync a datafile"))?;
        }
        Ok(())
    }

    pub(crate) fn truncate_inode(&self, size_bytes: u64) -> Result<()> {
        retry(|| rustix::fs::ftruncate(self.descriptor(), size_bytes)).map_err(self.failed("set the size of"))
    }

    /// Finishes a truncation or a move that a crash interrupted, and removes datafiles that the handle does not name.
    /// Under the exclusive lock of the writers.
    pub(crate) fn finish_change(&self) -> Result<()> {
        self.finish(false)
    }

    /// [`Inode::finish_change`] of a move, by the process that has made it: nothing of the file is cut off.
    pub(crate) fn finish_move(&self) -> Result<()> {
        self.finish(true)
    }

    /// `is_durable`: the caller has synced the handle.
    fn finish(&self, is_durable: bool) -> Result<()> {
        let mut handle = self.read_handle()?;
        if let Some(size_bytes) = handle.truncating_to {
            if !is_durable {
                self.sync_inode()?;
            }
            let file = self.file()?;
            self.finish_cut(&file, size_bytes)?;
            self.free_gaps(&file)?;
        }
        let removed = self.remove_strangers(&handle, is_durable);
        if handle.truncating_to.is_some() {
            // Only now: what is left by a kill before this stays noted.
            handle.truncating_to = None;
            if is_durable { self.write_moved_handle(&handle)? } else { self.write_handle(&handle)? }
        }
        removed
    }

    /// Cuts off what a truncation to `size_bytes` has left, and what regions that have moved left at the ends of datafiles. The latter is
    /// no change of the file.
    fn finish_cut(&self, file: &PlacedFile, size_bytes: u64) -> Result<()> {
        let inode_bytes = self.stat()?.st_size as u64;
        let longer = file.striped().longer_than(size_bytes)?;
        if inode_bytes <= size_bytes && longer.is_empty() {
            return Ok(());
        }
        self.lower_lengths(file, size_bytes)?;
        // A move beside writers names the greatest offset, which is not the size of the file.
        if inode_bytes != size_bytes && size_bytes < MAX_OFFSET {
            return self.cut(file, size_bytes);
        }
        let mut before = Vec::new();
        for (index, _) in longer {
            let Some(fd) = file.striped().readable_datafile(index)? else { continue };
            let stat = rustix::fs::fstat(fd).map_err(file.striped().server_of(index)?.error("cut a datafile"))?;
            before.push((fd, times_of(&stat)));
        }
        self.trim(file, size_bytes)?;
        for (fd, times) in before {
            // As far as this user may name a time.
            let _ = rustix::fs::futimens(fd, &times);
        }
        Ok(())
    }

    /// Frees what regions that have moved left behind: in datafiles that are still used, and in the inode. That is no change of the
    /// file: what is freed keeps its times, which no program may set meanwhile.
    fn free_gaps(&self, file: &PlacedFile) -> Result<()> {
        let layout = &file.placement().layout;
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let free = |fd: BorrowedFd<'_>, from: u64, to: u64| match rustix::fs::fallocate(fd, punch, from, to - from) {
            // A file system without holes keeps the space, and so does one with a bad place there; nothing reads it.
            Err(Errno::OPNOTSUPP | Errno::IO) => Ok(()),
            other => other,
        };
        file.striped().for_each_present(|index, fd| {
            let mut gaps = gaps(file.datafiles(), index).peekable();
            if gaps.peek().is_none() {
                return Ok(());
            }
            match keeping_times(fd, || gaps.try_for_each(|(from, to)| free(fd, from, to))) {
                // And so does one that has turned read-only: the datafile may be open for reading alone.
                Err(Errno::ROFS | Errno::BADF) => Ok(()),
                done => done,
            }
        })?;
        let stat = self.stat()?;
        // An attribute of its own takes blocks, too.
        let has_bytes = || rustix::fs::seek(self.descriptor(), SeekFrom::Data(0)).is_ok();
        if stat.st_blocks == 0 || !has_bytes() {
            return Ok(());
        }
        let freed = keeping_times(self.descriptor(), || {
            for (index, region) in layout.regions().iter().enumerate() {
                let to = layout.region_end(index).min(stat.st_size as u64);
                if region.stripes()[0].server != ServerId::META && region.offset() < to {
                    free(self.descriptor(), region.offset(), to)?;
                }
            }
            Ok(())
        });
        freed.map_err(self.failed("free space of"))
    }

    /// Removes this file's datafiles of generations and servers that `handle` does not name: leftovers of a move that
    /// was interrupted. Servers that are missing are left out. Unless `is_durable`, the handle is synced first: else the disk may come back
    /// with one that names them. Where one of the file's own is gone, they stay: they may be all that is left of its bytes.
    pub(crate) fn remove_strangers(&self, handle: &Handle, mut is_durable: bool) -> Result<()> {
        let owner = self.stat()?.st_uid;
        let layout = self.store.layouts.get_for(&handle.layout, owner)?;
        let datafiles = Datafiles::new(&layout, &handle.generations)?;
        for server in self.store.plane().servers() {
            let Ok(backend) = server.current() else { continue };
            let found = backend.generations(self.handle()).map_err(server.error("look for leftovers"))?;
            let found = found.unwrap_or_else(|| recent_generations(handle).collect());
            for datafile in found.into_iter().map(|generation| Datafile { server: server.id(), generation }) {
                if !datafiles.table.contains(&datafile) {
                    if !is_durable {
                        self.sync_inode()?;
                        is_durable = true;
                        if self.first_gone(&datafiles.table, &handle.present, Error::is_missing)?.is_some() {
                            return Ok(());
                        }
                    }
                    // Another user's stays: it is not this file's, whatever its name says.
                    match remove_datafile(self.store.plane(), self.handle(), datafile, owner, self.identity()) {
                        // Nothing can be made there either that it would be taken for.
                        Err(Error::Server { errno: Errno::ROFS, .. }) => {}
                        removed => removed?,
                    }
                }
            }
        }
        Ok(())
    }

    /// Removes the datafiles that a move from `old` to `new` has left without a byte, also where a server's cannot be listed. What cannot be
    /// removed is left to the next writer.
    pub(crate) fn remove_those_behind(&self, old: &PlacedFile, new: &PlacedFile) {
        let Ok(owner) = self.stat().map(|stat| stat.st_uid) else { return };
        let present = old.current_placement().present;
        for (index, datafile) in old.datafiles().table.iter().enumerate() {
            if present.contains(index) && !new.datafiles().table.contains(datafile) {
                let _ = remove_datafile(self.store.plane(), self.handle(), *datafile, owner, self.identity());
            }
        }
    }

    /// Removes the datafiles of a file that has no name any more, of every server that lets it; the first error of
    /// those that do not. What is on a missing server stays there.
    pub(crate) fn remove_datafiles(&self) -> Result<Collected> {
        let owner = self.stat()?.st_uid;
        let file = self.file()?;
        let placement = file.current_placement();
        let (mut all, mut collected) = (Ok(()), Collected::Gone);
        for (index, datafile) in file.datafiles().table.iter().enumerate() {
            if placement.present.contains(index) {
                match remove_datafile(self.store.plane(), self.handle(), *datafile, owner, self.identity()) {
                    Err(Error::MissingServer { .. }) => collected = Collected::Missing,
                    removed => all = all.and(removed),
                }
            }
        }
        all.map(|()| collected)
    }

    /// `fallocate`: mode 0, `PUNCH_HOLE | KEEP_SIZE`, `ZERO_RANGE`, the first and the last also with `KEEP_SIZE`; other
    /// modes give EOPNOTSUPP. The caller must be registered as a writer.
    pub fn allocate(&self, mode: FallocateFlags, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Err(self.failed("fallocate no bytes of")(Errno::INVAL));
        }
        if self.file()?.whole_inode().is_some() {
            // No other place depends on the inode's, so that it may be changed in every mode that its file system has.
            return retry(|| rustix::fs::fallocate(self.descriptor(), mode, offset, len))
                .map_err(self.failed("fallocate"));
        }
        let rest = mode - FallocateFlags::ZERO_RANGE;
        if rest != mode && (rest.is_empty() || rest == FallocateFlags::KEEP_SIZE) {
            // As a hole and the space for it again: file systems that cannot zero a range have these two.
            self.allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len)?;
            return self.allocate(rest, offset, len);
        }
        let punch = mode == FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if !punch && mode != FallocateFlags::KEEP_SIZE && !mode.is_empty() {
            return Err(self.refused("fallocate", "this mode is not supported", Errno::OPNOTSUPP));
        }
        let end = offset.checked_add(len).filter(|&end| end <= MAX_OFFSET).ok_or_else(|| self.too_large())?;
        // Of the datafiles the size stays: it would count for the file's.
        let kept = mode | FallocateFlags::KEEP_SIZE;
        loop {
            let (file, epoch) = self.to_write(false)?;
            let absent = file.absent(offset, len);
            if !punch && !absent.is_empty() {
                self.ensure_datafiles(file.placement().version, &absent)?;
                continue;
            }
            let done = self.allocate_in(&file, kept, offset, len);
            if file.move_beside() != MoveBeside::No {
                // Behind the end nothing is copied, however far a program goes.
                let size_bytes = self.put_size_bytes().unwrap_or(MAX_OFFSET);
                self.mark_beside(offset, len.min(size_bytes.saturating_sub(offset)))?;
            }
            match done {
                // The counter tells nothing here: what was taken and is given back changes it, too.
                Err(error) if !self.has_moved_from(&file)? => return Err(error),
                Ok(()) if file.is_of(epoch) || self.store.plane().is_shared() => break,
                // Again where the bytes are now: also what was freed where they were is no hole there.
                _ => {}
            }
        }
        if mode.is_empty() { self.grow(end) } else { Ok(()) }
    }

    /// Allocates or frees space in the datafiles of `file`, and in the inode what it has. The `mode` keeps their size.
    fn allocate_in(&self, file: &PlacedFile, mode: FallocateFlags, offset: u64, len: u64) -> Result<()> {
        let punch = mode.contains(FallocateFlags::PUNCH_HOLE);
        let mut taken: Vec<Taken> = Vec::new();
        for sub in file.datafiles().placed.split(offset, len) {
            if sub.server == ServerId::META {
                let tier = self.store.plane().server(ServerId::META)?;
                retry(|| rustix::fs::fallocate(self.descriptor(), mode, sub.from, sub.to - sub.from))
                    .map_err(tier.error("allocate space"))?;
            } else if let Some(fd) = file.writable_descriptor(&sub)? {
                let error = self.store.plane().server(sub.server)?.error("allocate space");
                let index = file.datafiles().index(sub.region, sub.slot);
                if !punch && taken.iter().all(|taken| taken.index != index) {
                    taken.push(Taken::before(index, &rustix::fs::fstat(fd).map_err(error)?));
                }
                if let Err(errno) = retry(|| rustix::fs::fallocate(fd, mode, sub.datafile_offset, sub.len)) {
                    // It has failed in any case; what cannot be given back is the file's, and goes with it.
                    let _ = self.give_back(file, &taken);
                    return Err(error(errno));
                }
            }
        }
        Ok(())
    }

    /// Gives back the space behind the ends of datafiles that an allocation has taken before it failed.
    fn give_back(&self, file: &PlacedFile, taken: &[Taken]) -> Result<()> {
        // A kernel that serves the file itself may write it, and is not among the writers that are known here.
        if self.is_whole()? {
            return Ok(());
        }
        self.without_writers(|| {
            for taken in taken.iter().filter(|taken| taken.had_nothing_behind) {
                let Some(fd) = file.striped().writable_datafile(taken.index)? else { continue };
                let error = file.striped().server_of(taken.index)?.error("give space back");
                if rustix::fs::fstat(fd).map_err(error)?.st_size as u64 == taken.length {
                    retry(|| rustix::fs::ftruncate(fd, taken.length)).map_err(error)?;
                }
            }
            Ok(())
        })
    }

    /// Makes the file at least this large. Cuts nothing off that is written behind that meanwhile.
    fn grow(&self, size_bytes: u64) -> Result<()> {
        // An append that fails cuts off what it has put behind the end that it has found.
        self.without_appends(|| {
            let _change = self.change_handle_in_order()?;
            if size_bytes <= self.layout()?.head_in_inode_bytes() {
                // Writers of the head take no lock. An allocation never makes the inode shorter.
                let last = || rustix::fs::fallocate(self.descriptor(), FallocateFlags::empty(), size_bytes - 1, 1);
                return retry(last).map_err(self.failed("set the size of"));
            }
            if (self.stat()?.st_size as u64) < size_bytes { self.truncate_inode(size_bytes) } else { Ok(()) }
        })
    }
}
