//! What the writers of a file do while it is moved beside them ([`crate::file::beside`]).
//!
//! A move tells of itself by the file's epoch counter, and each process that is registered as a writer looks at the lock file when it
//! reads the placement again. While bytes are copied it marks what it writes ([`crate::file::marks`]). While the move switches its
//! writers wait; one that began before finds another epoch after its write, and writes again. Without a move a write costs one load.

use crate::file::inode::Inode;
use crate::file::lockfile::{LockFile, Purpose, Writers};
use crate::file::placed_file::{MoveBeside, PlacedFile};
use crate::os::error::Result;
use crate::os::sync::guard;
use std::sync::Arc;

impl Inode {
    /// Takes `lock`, by which this process is registered as a writer from now on. `since`: the value of the epoch counter before it had
    /// that.
    pub(crate) fn keep_registration(&self, writers: &mut Writers, lock: LockFile, since: u32) -> Result<()> {
        let lock = Arc::new(lock);
        *guard(&self.registered) = Some(lock.clone());
        // In this order: a move or a cut that begins after this look tells of itself.
        match lock.is_exclusive(Purpose::Place) {
            Ok(false) if self.epoch() == since => {}
            // What was read when this was no writer may not tell of them. Those that know the placement by this process, too.
            Ok(_) => self.bump_epoch(),
            Err(error) => {
                *guard(&self.registered) = None;
                return Err(error);
            }
        }
        writers.lock = Some(lock);
        Ok(())
    }

    /// The lock file under which this process is registered as a writer, if it is. No lock is held afterwards: a move of this process may
    /// need it while another thread waits for that move.
    pub(crate) fn registration_now(&self) -> Option<Arc<LockFile>> {
        guard(&self.registered).clone()
    }

    /// Whether the file is being moved beside its writers, of which this process is one. One system call, two if it is; none in a shared
    /// pool, where no such move is, and who may write a file could hold its locks on purpose.
    pub(crate) fn move_beside(&self) -> Result<MoveBeside> {
        if self.store.plane().is_shared() {
            return Ok(MoveBeside::No);
        }
        let Some(lock) = self.registration_now() else { return Ok(MoveBeside::No) };
        Ok(match lock.is_exclusive(Purpose::Place)? {
            false => MoveBeside::No,
            true if lock.is_exclusive(Purpose::Lease)? => MoveBeside::Switches,
            true => MoveBeside::Copies,
        })
    }

    /// Waits until a move beside this writer has switched, or its process has died, and reads the placement again.
    pub(crate) fn wait_for_switch(&self) -> Result<()> {
        if let Some(lock) = self.registration_now() {
            lock.lock(Purpose::Lease, false)?;
            lock.unlock(Purpose::Lease)?;
        }
        self.reload().map(drop)
    }

    /// Notes for a move beside writers that `[offset, offset + len)` has changed. One system call.
    pub(crate) fn mark_beside(&self, offset: u64, len: u64) -> Result<()> {
        self.registration_now().map_or(Ok(()), |lock| lock.mark(offset, len))
    }

    /// After bytes of `file` were cut off, by the holder of the right to change the handle: a move beside writers ends, and none begins
    /// until this process is no writer any more.
    pub(crate) fn end_move_beside(&self, file: &PlacedFile) -> Result<()> {
        if file.move_beside() == MoveBeside::No {
            return Ok(());
        }
        self.registration_now().map_or(Ok(()), |lock| lock.end_move())
    }

    /// Whether `file` is not where the file is any more.
    pub(crate) fn has_moved_from(&self, file: &PlacedFile) -> Result<bool> {
        Ok(file.is_stale() && self.file()?.placement().version != file.placement().version)
    }

    /// Keeps the file's bytes where they are as long as this process is registered as a writer, unless the file is being moved beside its
    /// writers; whether it does. One system call the first time.
    pub(crate) fn try_hold_place(&self) -> Result<bool> {
        let mut writers = guard(&self.writers);
        let Some(lock) = writers.lock.clone().filter(|_| !writers.holds_place) else { return Ok(writers.holds_place) };
        let holds = lock.try_shared(Purpose::Place)?;
        writers.holds_place = holds;
        drop(writers);
        // A move that was seen under way has ended; if its process died just after the switch it told of none.
        if holds && self.known_file()?.move_beside() != MoveBeside::No {
            self.reload()?;
        }
        Ok(holds)
    }

    /// [`Inode::try_hold_place`] that waits for a move, which gives way.
    pub(crate) fn hold_place(&self) -> Result<()> {
        while !self.try_hold_place()? {
            self.registered_lock()?.lock_place()?;
        }
        Ok(())
    }
}
