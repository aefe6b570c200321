//! Writers of a file's head alone: of the bytes that its inode keeps.

use crate::file::inode::Inode;
use crate::file::lockfile::{LockFile, Purpose, Writers};
use crate::file::placed_file::PlacedFile;
use crate::file::writers::StructuralLock;
use crate::format::generations::GenerationMap;
use crate::format::handle::Handle;
use crate::format::parser;
use crate::os::error::Result;
use crate::os::sync::{MutexGuard, guard};
use crate::os::sys::retry;
use crate::pool::heads::HeadsExcluded;

impl Inode {
    /// Bytes of the head of a file that has a handle and no datafile; 0 of all others. O(datafiles) loads.
    fn lone_head_bytes(&self) -> Result<u64> {
        let file = if self.has_handle() { self.file()? } else { return Ok(0) };
        // What must not be changed here has no writer of its head either.
        let has_none = file.striped().has_datafile() || file.unknown_promise().is_some();
        Ok(if has_none { 0 } else { file.placement().layout.head_in_inode_bytes() })
    }

    /// Whether the file has no datafile yet, as far as is known without a system call.
    pub(crate) fn has_head_alone(&self) -> bool {
        self.known_file().is_ok_and(|file| !file.striped().has_datafile())
    }

    /// Whether the file has no datafile yet, and what ends at byte `end` is in its inode, as far as is known without a system call.
    pub(crate) fn is_in_lone_head(&self, end: u64) -> bool {
        let is_in =
            |file: &PlacedFile| !file.striped().has_datafile() && end <= file.placement().layout.head_in_inode_bytes();
        self.known_file().is_ok_and(|file| is_in(&file))
    }

    /// Whether the file has no datafile: what its inode says of size and time is right. `false` where that is not known without a
    /// system call.
    pub fn is_alone(&self) -> bool {
        !self.has_handle() || (!self.store.plane().is_shared() && self.has_head_alone())
    }

    /// Registers one more writer that writes no byte behind the head, whose size in bytes it gives. `None`: it must be
    /// registered as any writer, since the file has no head, has datafiles or another writer, or is being moved. Its layout
    /// stays until [`Inode::release_head`]. Two system calls for the first one of this process.
    ///
    /// # Errors
    /// The handle cannot be read.
    pub(crate) fn register_head(&self) -> Result<Option<u64>> {
        if self.lone_head_bytes()? == 0 {
            return Ok(None);
        }
        let mut writers = guard(&self.writers);
        let locks = &self.store.heads;
        if writers.heads == 0 && !locks.try_shared(self.handle()) {
            return Ok(None);
        }
        // What was known before the lock may be the old layout; what is there now stays.
        let head_bytes = self.lone_head_bytes().and_then(|bytes| {
            let is_written = bytes > 0 && LockFile::exists(self.store.locks(), self.handle())?;
            Ok(if is_written { 0 } else { bytes })
        });
        match head_bytes {
            Ok(bytes) if bytes > 0 => {
                writers.heads += 1;
                Ok(Some(bytes))
            }
            other => {
                if writers.heads == 0 {
                    locks.unlock(self.handle());
                }
                other.map(|_| None)
            }
        }
    }

    /// Registers a writer whose first change ends at byte `end`, where that is behind a head of which no byte is written and no other
    /// writer knows: the head goes with it, so that the bytes of a file that was never small are all on the servers, and no reader of
    /// it asks the metadata tier for a part. `false`: it is to be registered as any other. Not in a shared pool. Two system calls where
    /// there is such a head, ten where it goes.
    ///
    /// A file that was made by a rule keeps what that names. What it was made with still says how long the head was: by that the file
    /// comes back when it is cut short ([`Store::due_small_files`](crate::pool::store::Store::due_small_files)).
    ///
    /// # Errors
    /// Those of a registration.
    pub(crate) fn register_past_head(&self, end: u64) -> Result<bool> {
        let head_bytes = self.lone_head_bytes()?;
        if head_bytes == 0 || end <= head_bytes || self.store.plane().is_shared() {
            return Ok(false);
        }
        let mut writers = guard(&self.writers);
        if writers.heads > 0 || writers.count > 0 || self.untouched_head()?.is_none() {
            return Ok(false);
        }
        let Some(StructuralLock { lock, _heads, .. }) = self.structural_lock(&writers)? else { return Ok(false) };
        // Where it cannot go it stays, and its bytes are written to it.
        let _ = self.leave_untouched_head();
        let since = self.epoch();
        // From the exclusive lock to that of a writer without a moment between them: no other process can change the file.
        if !lock.try_shared(Purpose::Writers)? {
            return Ok(false);
        }
        self.keep_registration(&mut writers, lock, since)?;
        writers.count += 1;
        drop(writers);
        self.tell_readers_ahead();
        Ok(true)
    }

    /// The handle of a file to which the hint `small` has given a head that has no byte yet.
    fn untouched_head(&self) -> Result<Option<Handle>> {
        let handle = self.read_handle()?;
        let is_empty = handle.present.is_empty() && handle.truncating_to.is_none() && self.stat()?.st_size == 0;
        Ok(Some(handle).filter(|handle| is_empty && parser::small_bytes(&handle.optimisations).is_some()))
    }

    /// Gives a file with an untouched head the layout behind it from its first byte on. By the holder of the structural lock: what was
    /// seen before it was taken may have changed. No datafile is there, and those that come are of a new generation: after a power
    /// cut both handles are right, as the file is empty by each.
    fn leave_untouched_head(&self) -> Result<()> {
        let Some(mut handle) = self.untouched_head()? else { return Ok(()) };
        let with_head = self.layout()?;
        let layout = self.store.with_head(&with_head, 0)?;
        handle.layout = self.store.layouts.put(&layout)?;
        handle.version = handle.version.wrapping_add(1);
        handle.generations = GenerationMap::whole(handle.version);
        self.write_handle(&handle)
    }

    /// Undoes one [`Inode::register_head`].
    ///
    /// # Errors
    /// The file has left a full metadata tier, and those of [`Inode::release_writer`].
    pub(crate) fn release_head(&self) -> Result<()> {
        let writers = guard(&self.writers);
        let left = writers.heads.saturating_sub(1);
        self.leave_heads(writers, left)
    }

    /// Undoes all [`Inode::register_head`] of this process: for the end of a mount.
    ///
    /// # Errors
    /// As [`Inode::release_head`].
    pub fn release_heads(&self) -> Result<()> {
        self.leave_heads(guard(&self.writers), 0)
    }

    /// Sets how many there are to `left`. The last one takes the registration along that all have since the file has left a full tier.
    fn leave_heads(&self, mut writers: MutexGuard<'_, Writers>, left: usize) -> Result<()> {
        if writers.heads > 0 && left == 0 {
            self.store.heads.unlock(self.handle());
        }
        writers.heads = left;
        let is_registered = left == 0 && std::mem::take(&mut writers.are_registered);
        drop(writers);
        if is_registered { self.release_writer() } else { Ok(()) }
    }

    /// Keeps all others from writing the head alone; `None` where one does, also in this process.
    ///
    /// # Errors
    /// The locks cannot be had.
    pub(crate) fn exclude_heads(&self, heads_of_this_process: usize) -> Result<Option<HeadsExcluded<'_>>> {
        if heads_of_this_process > 0 { Ok(None) } else { self.store.heads.exclude(self.handle()) }
    }

    /// Sets the size of a file that is no more than its head, before and afterwards; `false`: it is another. Six system calls,
    /// three of a file that this process writes so already.
    ///
    /// # Errors
    /// Those of `ftruncate`.
    pub(crate) fn truncate_head(&self, size_bytes: u64) -> Result<bool> {
        let Some(head_bytes) = self.register_head()? else { return Ok(false) };
        let done = if size_bytes <= head_bytes { self.cut_lone_head(size_bytes) } else { Ok(false) };
        let released = self.release_head();
        done.and_then(|done| released.map(|()| done))
    }

    /// Sets the size where the head is still all of the file. Its first datafile cannot come meanwhile: a writer behind the head,
    /// whose bytes the inode's size alone would not cut off, may have come after this one registered.
    fn cut_lone_head(&self, size_bytes: u64) -> Result<bool> {
        let _one = self.one_change();
        let _settled = self.store.heads.settle_lone(self.handle())?;
        if self.lone_head_bytes()? < size_bytes.max(1) {
            return Ok(false);
        }
        retry(|| rustix::fs::ftruncate(self.descriptor(), size_bytes)).map_err(self.failed("set the size of"))?;
        Ok(true)
    }
}
