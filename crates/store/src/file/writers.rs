//! The writers of a file: registration, appends, the size while a file is being written, what a crash left.

use crate::file::inode::Inode;
use crate::file::lockfile::{LockFile, Purpose, Writers};
use crate::file::placed_file::PlacedFile;
use crate::os::error::{Error, Result};
use crate::os::sync::atomic::Ordering;
use crate::os::sync::guard;
use crate::pool::epoch::CountedChanges;
use crate::pool::heads::HeadsExcluded;
use rustix::fd::OwnedFd;
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stripewise_layout::MAX_OFFSET;

/// How long an open waits for another process that cuts the file off.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two of its looks.
const PAUSE: Duration = Duration::from_millis(1);

/// What has become of the datafiles of a file that has lost a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collected {
    /// It still has a name or a writer, and its datafiles.
    InUse,
    /// None is left that this user may remove.
    Gone,
    /// Those on servers that are missing are left.
    Missing,
}

/// Size and times of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Logical handle; `None` of a file that has none.
    pub handle: Option<u64>,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Time of the last change of content.
    pub mtime: Timespec,
    /// Blocks of 512 bytes: of a file with holes of [`COUNTED_BYTES`] and more those that its servers have given it, by
    /// which programs tell that it has holes; of others those that the size takes.
    pub blocks: u64,
    /// It has no datafile: its inode knows size and time, whatever writers it has.
    pub is_alone: bool,
}

/// From this size on the datafiles are asked how much space they take, of closed files with holes too: a program that
/// takes a sparse file for a full one reads all its zeros, which costs more than to ask.
pub const COUNTED_BYTES: u64 = 16 << 20;

impl Attributes {
    /// Of a file without a writer: those of its inode.
    pub fn of_closed(handle: Option<u64>, stat: &rustix::fs::Stat) -> Self {
        let size_bytes = stat.st_size as u64;
        let mtime = Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ };
        Self { handle, size_bytes, mtime, blocks: size_bytes.div_ceil(512), is_alone: false }
    }

    /// Of a file without a handle: its inode has all of it.
    pub fn of_inode(stat: &rustix::fs::Stat) -> Self {
        Self { blocks: stat.st_blocks as u64, is_alone: true, ..Self::of_closed(None, stat) }
    }

    /// Of a file that has no datafile; `None` where only the servers could say how much of it is a hole.
    pub fn of_alone(handle: Option<u64>, stat: &rustix::fs::Stat) -> Option<Self> {
        if handle.is_none() {
            return Some(Self::of_inode(stat));
        }
        let found = Self { is_alone: true, ..Self::of_closed(handle, stat) };
        (found.size_bytes < COUNTED_BYTES).then_some(found)
    }

    /// Adds what is gathered up to byte `end`, and was written last at `changed`.
    fn gather(&mut self, end: u64, changed: Timespec) {
        if end > self.size_bytes {
            self.blocks += (end - self.size_bytes).div_ceil(512);
            self.size_bytes = end;
        }
        self.mtime = newer(self.mtime, changed);
        self.is_alone = false;
    }

    /// Puts them into `stat`, which is of the file's inode.
    pub fn put_into(&self, stat: &mut rustix::fs::Stat) {
        stat.st_size = self.size_bytes as i64;
        stat.st_blocks = self.blocks as i64;
        let changed = (self.mtime.tv_sec, self.mtime.tv_nsec);
        // Writers have changed it since the inode was settled, which their last close does and which moves its time of status.
        if changed != (stat.st_mtime, stat.st_mtime_nsec as i64) && changed > (stat.st_ctime, stat.st_ctime_nsec as i64)
        {
            (stat.st_ctime, stat.st_ctime_nsec) = (self.mtime.tv_sec, self.mtime.tv_nsec as _);
        }
        (stat.st_mtime, stat.st_mtime_nsec) = (self.mtime.tv_sec, self.mtime.tv_nsec as _);
    }
}

fn newer(a: Timespec, b: Timespec) -> Timespec {
    if (a.tv_sec, a.tv_nsec) >= (b.tv_sec, b.tv_nsec) { a } else { b }
}

/// Keeps a file from switching to other places, as well as that can be had ([`Inode::no_change`]).
pub(crate) struct NoChange {
    /// `None`: there was no lock file, or it could not be locked.
    lock: Option<LockFile>,
    /// It is there, and could not be locked.
    was_refused: bool,
    /// Value of the file's epoch counter before the look for the lock file.
    epoch: u32,
}

/// The structural lock of a file: it has no writer, and none can come.
pub(crate) struct StructuralLock<'a> {
    pub(crate) lock: LockFile,
    /// Whether the inode's size is the file's: not when a writer crashed and a server is missing now.
    pub(crate) settled: Result<()>,
    /// No writer of the head alone either.
    pub(crate) _heads: HeadsExcluded<'a>,
}

impl Inode {
    /// Registers one more writer of this process: call it once for each descriptor opened for writing. Waits while the
    /// file's layout is being changed; a move that gives way ends then. If the last one to write it crashed, puts the file in
    /// order first.
    ///
    /// # Errors
    /// Those of the namespace and the servers; [`Error::LaterOptimisation`].
    pub fn register_writer(&self) -> Result<()> {
        self.check_changeable()?;
        let mut writers = guard(&self.writers);
        if writers.count == 0 {
            // It waits until there is one.
            if let Some((lock, since)) = self.registration(true)? {
                self.keep_registration(&mut writers, lock, since)?;
            }
        }
        writers.count += 1;
        Ok(())
    }

    /// [`Inode::register_writer`] if no change of the layout makes it wait; whether it is registered. A cut does, to its end.
    ///
    /// # Errors
    /// As [`Inode::register_writer`].
    pub fn try_register_writer(&self) -> Result<bool> {
        self.check_changeable()?;
        let mut writers = guard(&self.writers);
        if writers.count == 0 {
            let Some((lock, since)) = self.registration(false)? else { return Ok(false) };
            self.keep_registration(&mut writers, lock, since)?;
        }
        writers.count += 1;
        Ok(true)
    }

    pub(crate) fn open_lock(&self) -> Result<(LockFile, bool)> {
        if !self.has_handle() {
            return Ok((LockFile::without_handle(self.handle()), false));
        }
        LockFile::open(
            self.store.plane(),
            self.store.locks(),
            self.handle(),
            self.identity(),
            || self.rights(),
            || self.opens_a_datafile(),
        )
    }

    /// Whether some datafile of the handle is this file's: there, its owner's, and in a shared pool bound to its inode.
    fn opens_a_datafile(&self) -> bool {
        let Ok(file) = self.file() else { return false };
        let placement = file.current_placement();
        let opens = |datafile| {
            let (owner, identity) = (placement.owner, placement.identity);
            let opened = self.store.plane().open_datafile(self.handle(), owner, identity, datafile, false);
            opened.map(|(fd, _)| crate::os::descriptors::close(fd)).is_ok()
        };
        let mut datafiles = file.datafiles().table.iter().enumerate();
        datafiles.any(|(index, datafile)| placement.present.contains(index) && opens(*datafile))
    }

    /// The lock file with the shared lock of a writer, and the value of the epoch counter from before. `None` only if `wait` was not asked
    /// for: the layout is being changed.
    fn registration(&self, wait: bool) -> Result<Option<(LockFile, u32)>> {
        let locks = self.store.locks();
        loop {
            let since = self.epoch();
            let (lock, created) = self.open_lock()?;
            let is_alone = (!created || self.has_datafiles()?) && lock.try_exclusive(Purpose::Writers)?;
            if is_alone {
                if !lock.is_current(locks) {
                    continue;
                }
                // The file exists and no process holds it: a writer crashed, or a server is missing and may still be.
                let _ = self.put_in_order(&lock, created)?;
            }
            let has_waited = wait && lock.lock_as_writer()?;
            if !wait && !lock.try_shared(Purpose::Writers)? {
                return Ok(None);
            }
            if lock.is_current(locks) {
                if !is_alone && self.has_handle() && (!created || self.is_known_stale()) {
                    self.finish_beside(&lock, has_waited)?;
                }
                self.tell_readers_ahead();
                return Ok(Some((lock, since)));
            }
        }
    }

    /// For a writer that has the shared lock of `lock` and has not changed a byte yet: a process may have died in the middle of its change,
    /// most of all one for which it `has_waited`, since that takes its lock file away when it comes to its end. Two system calls where
    /// none has.
    fn finish_beside(&self, lock: &LockFile, has_waited: bool) -> Result<()> {
        // Before the handle is read: a process that dies in its cut after this look is found there.
        let is_cut_now = lock.is_exclusive(Purpose::Cut)?;
        if !has_waited && !is_cut_now && self.read_handle()?.truncating_to.is_none() {
            return Ok(());
        }
        lock.lock(Purpose::Handle, true)?;
        let done = self.finish_cut_of_dead(lock).and_then(|()| self.note_remains(has_waited));
        lock.unlock(Purpose::Handle)?;
        done
    }

    /// By who may change the handle: the next writer without others looks for what a dead process has made, if there `may_be` something
    /// that the handle does not tell of.
    fn note_remains(&self, may_be: bool) -> Result<()> {
        let mut handle = self.read_handle()?;
        if handle.truncating_to.is_none() && may_be {
            handle.truncating_to = Some(MAX_OFFSET);
            return self.write_handle(&handle);
        }
        // A mover has switched, or not, and may have died before it told of that.
        self.bump_epoch();
        Ok(())
    }

    /// This process is registered as a writer now, and has not changed a byte yet: what others have read ahead of their programs, or
    /// their kernels keep, counts no longer. One load of files without these hints.
    pub(crate) fn tell_readers_ahead(&self) {
        if self.has_handle()
            && !self.known_file().is_ok_and(|file| file.read_ahead().is_none() && file.cached().is_none())
        {
            self.bump_epoch();
        }
    }

    /// The value of the file's epoch counter at a moment at which no process was registered as a writer of what its servers have;
    /// `None`: one is, or was when it died. A writer that registers later counts it up before it changes a byte, if the file is one
    /// that is read ahead. One system call.
    pub(crate) fn epoch_without_writers(&self) -> Result<Option<u32>> {
        // In this order: a writer that comes in between is found, or counts it up.
        let epoch = self.epoch();
        Ok(if self.may_be_written()? { None } else { Some(epoch) })
    }

    /// What is counted at a moment as that of [`Inode::epoch_without_writers`], where a move of a file without writers is no writer: it
    /// leaves the bytes as they are. One system call, or four of a file that has a writer or is moved.
    pub(crate) fn counted_with_still_bytes(&self) -> Result<Option<CountedChanges>> {
        let counted = self.counted();
        if !self.may_be_written()? {
            return Ok(Some(counted));
        }
        let lock = if self.has_handle() { LockFile::open_existing(self.store.locks(), self.handle())? } else { None };
        let is_still = lock.map_or(Ok(false), |lock| lock.is_held(Purpose::Still))?;
        Ok(is_still.then_some(counted))
    }

    /// Undoes one [`Inode::register_writer`]. The last writer of all processes puts size and mtime into the inode.
    pub fn release_writer(&self) -> Result<()> {
        // What cannot be put on the servers is noted for those who have the file open.
        let put = self.put_gathered_or_give_up();
        self.rest_gathered();
        self.leave_as_writer().and(put)
    }

    fn leave_as_writer(&self) -> Result<()> {
        let mut writers = guard(&self.writers);
        match (writers.count, &writers.lock) {
            (0, _) | (_, None) => return Err(Error::Invalid("a writer was released that was not registered".into())),
            (1, Some(lock)) => {
                let done = self.leave(lock);
                *guard(&self.registered) = None;
                self.is_cut_beside.store(false, Ordering::Release);
                // Closing the lock file ends the registration in any case.
                *writers = Writers { heads: writers.heads, kept: writers.kept, ..Writers::default() };
                return done;
            }
            _ => writers.count -= 1,
        }
        Ok(())
    }

    fn leave(&self, lock: &LockFile) -> Result<()> {
        // Two that leave at once would each see the other's registration: one after the other.
        lock.lock(Purpose::Handle, true)?;
        // With a server missing, the lock file stays and says that the size is not settled.
        if lock.try_exclusive(Purpose::Writers)? && self.is_settled(&self.settle()?) {
            return lock.remove(self.store.locks());
        }
        lock.unlock(Purpose::Writers)?;
        lock.unlock(Purpose::Handle)
    }

    /// Runs `work` registered as a writer.
    pub(crate) fn with_registration<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.register_writer()?;
        let done = work();
        let released = self.release_writer();
        done.and_then(|value| released.map(|()| value))
    }

    /// The lock file under which this process is registered.
    pub(crate) fn registered_lock(&self) -> Result<Arc<LockFile>> {
        let lock = guard(&self.writers).lock.clone();
        lock.ok_or_else(|| self.refused("write", "not registered as a writer", Errno::BADF))
    }

    /// Runs `work` while no thread and no other process of this node appends: an append writes where it has found the end. The caller is
    /// registered.
    pub(crate) fn without_appends<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let _here = guard(&self.appending);
        let lock = self.registered_lock()?;
        lock.lock(Purpose::Append, true)?;
        let done = work();
        lock.unlock(Purpose::Append)?;
        done
    }

    /// Takes the structural lock: no writer anywhere, none can come. `None`: there is a writer. The `Writers` of this process
    /// must be locked by the caller.
    pub(crate) fn structural_lock(&self, writers: &Writers) -> Result<Option<StructuralLock<'_>>> {
        let locks = self.store.locks();
        if writers.count > 0 {
            return Ok(None);
        }
        let Some(heads) = self.exclude_heads(writers.heads)? else { return Ok(None) };
        loop {
            let (lock, created) = self.open_lock()?;
            if !lock.try_exclusive(Purpose::Writers)? {
                return Ok(None);
            }
            if lock.is_current(locks) {
                let settled = self.put_in_order(&lock, created)?;
                return Ok(Some(StructuralLock { lock, settled, _heads: heads }));
            }
        }
    }

    /// Whether the lock file is of no use any more: the file is settled, or has lost its name and then its datafiles.
    fn is_settled(&self, settled: &Result<()>) -> bool {
        settled.is_ok() || (settled.as_ref().is_err_and(Error::is_missing) && self.is_nameless())
    }

    /// For the holder of the structural `lock`: as `settled`. Where the file is not in order its lock file stays and says so, but for a file
    /// whose datafiles others have removed, as it has no name.
    pub(crate) fn in_order(&self, lock: &LockFile, settled: Result<()>) -> Result<()> {
        if settled.is_err() && self.is_settled(&settled) {
            lock.remove(self.store.locks())?;
        }
        settled
    }

    /// Whether the inode may not know yet how long the file is. Of a file without a handle always: the inode is asked each
    /// time.
    fn may_be_written(&self) -> Result<bool> {
        Ok(!self.has_handle() || LockFile::exists(self.store.locks(), self.handle())?)
    }

    /// Whether any process is registered as a writer.
    pub fn has_writers(&self) -> Result<bool> {
        let writers = guard(&self.writers);
        if writers.count > 0 || self.exclude_heads(writers.heads)?.is_none() {
            return Ok(true);
        }
        if !self.may_be_written()? {
            return Ok(false);
        }
        let (lock, _) = self.open_lock()?;
        let free = lock.try_exclusive(Purpose::Writers)?;
        if free && lock.is_current(self.store.locks()) {
            let settled = self.put_in_order(&lock, false)?;
            if self.in_order(&lock, settled).is_ok() {
                lock.remove(self.store.locks())?;
            }
        }
        Ok(!free)
    }

    /// Whether any process is registered as a writer or changes the layout. Settles nothing and removes nothing.
    pub fn is_held(&self) -> Result<bool> {
        if self.exclude_heads(guard(&self.writers).heads)?.is_none() {
            return Ok(true);
        }
        let lock = LockFile::open_existing(self.store.locks(), self.handle())?;
        lock.map_or(Ok(false), |lock| Ok(!lock.try_exclusive(Purpose::Writers)?))
    }

    /// Finishes a change that a crash has interrupted, if the file has no writer; whether it has none.
    pub(crate) fn finish_without_writers(&self) -> Result<bool> {
        let writers = guard(&self.writers);
        match self.structural_lock(&writers)? {
            Some(StructuralLock { lock, settled: Ok(()), .. }) => lock.remove(self.store.locks()).map(|()| true),
            Some(_) => Ok(true),
            None => Ok(false),
        }
    }

    /// Finishes the cut of a process that has died in it: who reads the file would find some of what is cut off gone, and some not. May
    /// wait for a cut whose process lives, and so is not for the holder of a lock of the store.
    pub(crate) fn finish_cut_of_another(&self) -> Result<()> {
        if self.read_handle()?.cut_at().is_none() {
            return Ok(());
        }
        let finish = || if self.finish_without_writers()? { Ok(()) } else { self.finish_cut_beside_writers() };
        self.check_changeable().and_then(|()| finish()).or_else(|error| self.unless_cut(error))
    }

    /// Of a file whose writers have not written since. Waits for a cut whose process lives, but not for ever: that process may be stopped,
    /// and ends its cut itself. In a shared pool it is left to the next writer.
    fn finish_cut_beside_writers(&self) -> Result<()> {
        if self.store.plane().is_shared() || self.read_handle()?.cut_at().is_none() {
            return Ok(());
        }
        let Some(lock) = LockFile::open_existing(self.store.locks(), self.handle())? else { return Ok(()) };
        let began = Instant::now();
        while !lock.try_exclusive(Purpose::Handle)? {
            if began.elapsed() >= PATIENCE {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        // Else another has put the file in order meanwhile.
        let done = if lock.is_current(self.store.locks()) { self.finish_cut_of_dead(&lock) } else { Ok(()) };
        lock.unlock(Purpose::Handle)?;
        done
    }

    /// As [`Inode::recover`]. A file whose lock file was `created` just now may be the worse for a power cut.
    pub(crate) fn put_in_order(&self, lock: &LockFile, created: bool) -> Result<Result<()>> {
        // Others may have written it meanwhile.
        self.unrecorded.store(false, Ordering::Release);
        // A program may set the times or the mode, which needs no registration: what is read here is written back.
        lock.lock(Purpose::Handle, true)?;
        let done = if created && self.read_handle()?.truncating_to.is_none() { self.settle() } else { self.recover() };
        lock.unlock(Purpose::Handle)?;
        done
    }

    /// Puts the file in order after a crash. Under the exclusive lock of the writers. As [`Inode::settle`].
    fn recover(&self) -> Result<Result<()>> {
        // The process that crashed may have changed the handle and not told of it: what is known here of the file may
        // be the old layout.
        self.bump_epoch();
        self.finish_change()?;
        self.settle()
    }

    /// Puts the file in order. For the holder of its structural lock.
    ///
    /// # Errors
    /// Also when a server is missing, so that the size is not known.
    pub(crate) fn recover_under_lock(&self) -> Result<()> {
        self.recover()??;
        self.sync_inode()
    }

    /// Whether there is a datafile that may reach beyond the inode's size. A writer that ended well has left none, but
    /// a power cut may have taken its size in the inode, and its lock file too. Then bytes behind the end would be
    /// found in what must be a hole as soon as the file grows.
    fn has_datafiles(&self) -> Result<bool> {
        Ok(!self.file()?.current_placement().present.is_empty())
    }

    /// Writes size and mtime into the inode, whether it has holes, and how long its datafiles are, as the last writer
    /// does. The inner error is of a server that could not be asked: the file may be longer.
    fn settle(&self) -> Result<Result<()>> {
        let file = self.file()?;
        // Without datafiles the inode's own size and time are right, and a writer of the head may be changing them.
        let has_datafiles = file.striped().has_datafile();
        let mut lengths: SmallVec<[(u16, u64); 8]> = SmallVec::new();
        // Before the look: what a program sets meanwhile is not taken for what was not settled.
        let stat = self.stat()?;
        let (attributes, _, all) = self.look_at_datafiles(&file, |index, bytes| lengths.push((index, bytes)))?;
        let longer = has_datafiles && attributes.size_bytes > stat.st_size as u64;
        if longer {
            rustix::fs::ftruncate(self.descriptor(), attributes.size_bytes).map_err(self.failed("set the size of"))?;
        }
        let inode = Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ };
        if longer || (has_datafiles && inode != attributes.mtime) {
            self.set_mtime(attributes.mtime)?;
        }
        if all.is_ok() && attributes.size_bytes >= COUNTED_BYTES {
            let sparse = attributes.blocks < attributes.size_bytes.div_ceil(512);
            let mut handle = self.read_handle()?;
            if handle.sparse != sparse {
                handle.sparse = sparse;
                self.write_handle(&handle)?;
            }
        }
        // Best effort: a file without a record is as good, and no more than that is known of it.
        let _ = self.raise_lengths(&file, &lengths);
        Ok(all)
    }

    /// Writes a size that has grown into the inode. Two system calls where it has not.
    pub fn store_size(&self) -> Result<()> {
        if self.size_bytes()? <= self.stat()?.st_size as u64 {
            return Ok(());
        }
        self.with_registration(|| {
            // A size that another process sets meanwhile must not be undone.
            let _change = self.change_handle()?;
            // What is read here is written back: no other thread may set the times meanwhile.
            let _alone = guard(&self.writers);
            let (now, _) = self.open_attributes()?;
            // Without datafiles the inode's own size is right.
            if self.has_datafiles()? && now.size_bytes > self.stat()?.st_size as u64 {
                rustix::fs::ftruncate(self.descriptor(), now.size_bytes).map_err(self.failed("set the size of"))?;
                self.set_mtime(now.mtime)?;
            }
            Ok(())
        })
    }

    /// Puts the time of the last write into the inode. Only the file's owner can name a time; other
    /// writers can only set the current time.
    fn set_mtime(&self, mtime: Timespec) -> Result<()> {
        let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let times = Timestamps { last_access: omit, last_modification: mtime };
        let set = match rustix::fs::futimens(self.descriptor(), &times) {
            Err(Errno::PERM | Errno::ACCESS) => {
                let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
                rustix::fs::futimens(self.descriptor(), &Timestamps { last_access: now, last_modification: now })
            }
            set => set,
        };
        set.map_err(self.failed("set the time of"))
    }

    /// Size and mtime of a file that may be being written: of the inode and all datafiles. A server that is missing
    /// cannot say anything; it is the inner error.
    pub(crate) fn open_attributes(&self) -> Result<(Attributes, Result<()>)> {
        self.look_where_it_is().map(|(attributes, _, all)| (attributes, all))
    }

    /// [`Inode::look_at_datafiles`] of the places that the file has at the end of the look.
    fn look_where_it_is(&self) -> Result<(Attributes, bool, Result<()>)> {
        loop {
            let file = self.file()?;
            let found = self.look_at_datafiles(&file, |_, _| ())?;
            if !self.has_moved_from(&file)? {
                return Ok(found);
            }
        }
    }

    /// [`Inode::open_attributes`] by `file`, and whether the inode was changed after each of its datafiles; `length` is called
    /// with index and length in bytes of each datafile.
    fn look_at_datafiles(
        &self,
        file: &PlacedFile,
        mut length: impl FnMut(u16, u64),
    ) -> Result<(Attributes, bool, Result<()>)> {
        let stat = self.stat()?;
        let mut size_bytes = stat.st_size as u64;
        let inode = Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ };
        let mut written: Option<Timespec> = None;
        let mut blocks = stat.st_blocks as u64;
        let all = file.striped().for_each_stat(|index, stat, end| {
            length(index, stat.st_size as u64);
            size_bytes = size_bytes.max(end);
            blocks += stat.st_blocks as u64;
            let datafile = Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ };
            written = Some(written.map_or(datafile, |written| newer(written, datafile)));
        });
        let newest_is_inode = written.is_some_and(|written| newer(written, inode) != written);
        let mtime = written.map_or(inode, |written| newer(written, inode));
        // What a server that is missing has is not nothing.
        if size_bytes < COUNTED_BYTES || all.is_err() {
            blocks = size_bytes.div_ceil(512);
        }
        Ok((Attributes { handle: self.logical(), size_bytes, mtime, blocks, is_alone: false }, newest_is_inode, all))
    }

    /// Size and modification time now. A file that has no datafile costs one `fstat`, a closed one a look for its lock file besides;
    /// while a writer is registered anywhere, and of a file with holes of [`COUNTED_BYTES`] and more, the datafiles are asked.
    /// Where the inode was changed after all datafiles, the lock file is opened besides.
    pub fn attributes(&self) -> Result<Attributes> {
        // Before the servers are asked: what goes to them meanwhile is counted twice, and not missed.
        let gathered = self.gathered_end();
        let mut found = self.put_attributes()?;
        if let Some((end, changed)) = gathered {
            found.gather(end, changed);
        }
        Ok(found)
    }

    /// [`Inode::attributes`] of what is on the servers.
    fn put_attributes(&self) -> Result<Attributes> {
        // A writer that makes the first datafile tells so before it writes a byte there.
        if self.is_alone()
            && let Some(found) = Attributes::of_alone(self.logical(), &self.stat()?)
        {
            return Ok(found);
        }
        if self.may_be_written()? {
            let (found, newest_is_inode, _) = self.look_where_it_is()?;
            // The last writer puts the size into the inode, and after it the time that the file has: between the two the
            // inode tells when that was.
            if !newest_is_inode {
                return Ok(found);
            }
            let Ok(_no_change_begins) = self.after_a_change() else { return Ok(found) };
            if self.may_be_written()? {
                return Ok(self.open_attributes()?.0);
            }
        }
        let closed = Attributes::of_closed(self.logical(), &self.stat()?);
        let counted = closed.size_bytes >= COUNTED_BYTES && self.read_handle()?.sparse;
        Ok(if counted { self.with_blocks(closed) } else { closed })
    }

    /// Waits until no process changes the handle or settles the file. While what is returned lives no change begins; `None`: the
    /// last writer has settled the file and is gone.
    ///
    /// # Errors
    /// This process may not open the lock file, or another user holds the lock for long.
    fn after_a_change(&self) -> Result<Option<LockFile>> {
        let Some(mut lock) = LockFile::open_existing(self.store.locks(), self.handle())? else { return Ok(None) };
        if self.store.plane().is_shared() {
            lock.wait_briefly_for(self.rights()?.uid);
        }
        lock.lock(Purpose::Handle, false)?;
        Ok(Some(lock))
    }

    /// Keeps a file that has a writer, or is being moved, from switching to other places, as well as that can be had, until what is
    /// returned is dropped. One system call where there is no writer.
    pub(crate) fn no_change(&self) -> NoChange {
        let epoch = self.epoch();
        // One that has gone since is as one that was not there: what comes after it makes another one.
        let had = if self.has_lock_file() { self.after_a_change() } else { Ok(None) };
        let was_refused = had.is_err();
        NoChange { lock: had.ok().flatten(), was_refused, epoch }
    }

    fn has_lock_file(&self) -> bool {
        self.has_handle() && LockFile::exists(self.store.locks(), self.handle()).unwrap_or(false)
    }

    /// Whether `file`, which was looked at before `kept` was asked for, may have switched to other places, or may be about to without
    /// regard to what was done since. One system call where there is no writer, else two.
    pub(crate) fn may_have_changed(&self, file: &PlacedFile, kept: &NoChange) -> Result<bool> {
        let is_kept = match &kept.lock {
            Some(lock) => lock.is_current(self.store.locks()),
            // One that could not be had before is not had by another try.
            None => kept.was_refused || (!self.has_lock_file() && self.epoch() == kept.epoch),
        };
        Ok(!is_kept || self.has_moved_from(file)?)
    }

    /// Attributes of a closed file with the blocks that the datafiles have now. Whatever fails costs no more than that.
    pub(crate) fn with_blocks(&self, closed: Attributes) -> Attributes {
        match self.open_attributes() {
            Ok((counted, Ok(()))) if counted.size_bytes == closed.size_bytes => {
                Attributes { blocks: counted.blocks, ..closed }
            }
            _ => closed,
        }
    }

    /// Size now, in bytes, as far as the servers that are there know; see [`Inode::attributes`].
    pub fn size_bytes(&self) -> Result<u64> {
        Ok(self.attributes()?.size_bytes)
    }

    /// Size now, in bytes, for those who would lose bytes by a size that is too small.
    ///
    /// # Errors
    /// A server is missing while the file is being written, or since its writer crashed: its end is unknown.
    pub fn certain_size_bytes(&self) -> Result<u64> {
        let gathered = self.gathered_end().map_or(0, |(end, _)| end);
        Ok(gathered.max(self.put_size_bytes()?))
    }

    /// [`Inode::certain_size_bytes`] of what is on the servers.
    pub(crate) fn put_size_bytes(&self) -> Result<u64> {
        if self.may_be_written()? {
            let (attributes, all) = self.open_attributes()?;
            return all.map(|()| attributes.size_bytes);
        }
        Ok(self.stat()?.st_size as u64)
    }

    /// Sets access and modification time (also of the datafiles, so that the last close keeps them).
    pub fn set_times(&self, times: &Timestamps) -> Result<()> {
        self.put_gathered()?;
        if times.last_access.tv_nsec != UTIME_OMIT {
            self.forget_reads();
        }
        loop {
            let known = self.file()?;
            // Neither a last writer that leaves just now (the kernel tells of a close after the program has gone on) nor a move that
            // switches may put back the time that it has read before.
            let kept = self.no_change();
            let file = if kept.lock.is_some() { self.file()? } else { known };
            // None of this process comes or goes where others cannot be kept out.
            let _alone = kept.lock.is_none().then(|| guard(&self.writers));
            let done = self.put_times_on(&file, times);
            if !self.may_have_changed(&file, &kept)? {
                return done;
            }
        }
    }

    fn put_times_on(&self, file: &PlacedFile, times: &Timestamps) -> Result<()> {
        let placement = file.current_placement();
        for (index, datafile) in file.datafiles().table.iter().enumerate() {
            if placement.present.contains(index) {
                let server = self.store.plane().server(datafile.server)?;
                let (fd, _) = self.store.plane().open_datafile(
                    self.handle(),
                    placement.owner,
                    placement.identity,
                    *datafile,
                    false,
                )?;
                // SAFETY: opened just now; this is its only owner.
                let fd = unsafe { <OwnedFd as rustix::fd::FromRawFd>::from_raw_fd(fd) };
                rustix::fs::futimens(&fd, times).map_err(server.error("set the times of a datafile"))?;
            }
        }
        rustix::fs::futimens(self.descriptor(), times).map_err(self.failed("set the times of"))
    }

    /// Removes the datafiles and the lock file of a file without a name and without writers.
    pub(crate) fn collect(&self) -> Result<Collected> {
        let writers = guard(&self.writers);
        if self.stat()?.st_nlink > 0 {
            return Ok(Collected::InUse);
        }
        let Some(StructuralLock { lock, _heads, .. }) = self.structural_lock(&writers)? else {
            return Ok(Collected::InUse);
        };
        let removed = self.remove_datafiles();
        lock.remove(self.store.locks())?;
        match removed {
            // A user who removes another user's file from an own directory cannot remove its datafiles; `stripewise
            // fsck` as root does.
            Err(error) if self.store.plane().is_shared() && matches!(error.errno(), Errno::PERM | Errno::ACCESS) => {
                Ok(Collected::Gone)
            }
            removed => removed,
        }
    }
}
