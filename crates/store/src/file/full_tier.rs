//! What becomes of a small file that grows on a metadata tier that has no room for it: it leaves the tier.
//!
//! The threshold shrinks before the tier is full, but heads that were given before keep growing, as fast as programs write. So a
//! write by which a head grows while the tier has only its reserve left, and one that finds no room at all, send the file to the
//! servers as `adapt` would have done later, by the mover and its order of steps: a crash finds the head in the inode or on the
//! servers, and never a part. The layout without a head is the pool's own, so that the tier needs
//! no room for it, and has what the head took once the file has left.
//!
//! The file has a writer meanwhile: this one. So it has to be known that there is no other. Other processes are kept out by the locks of
//! heads and of writers, which this process exchanges for exclusive ones; where another has them too, the write fails. Threads of this process, and
//! programs that it lets past the mount, write once more by the new places, as beside a cut ([`crate::file::cut_back`]).

use crate::file::cut_back::Flag;
use crate::file::inode::Inode;
use crate::file::lockfile::{LockFile, Purpose, Writers};
use crate::file::moving::Move;
use crate::file::steps::Steps;
use crate::format::handle::Handle;
use crate::format::parser;
use crate::os::error::{Error, Result};
use crate::os::sync::atomic::Ordering;
use crate::os::sync::guard;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::fence;
use stripewise_layout::{Layout, ServerId};

/// Stands in errors, which no program sees: it is told that the tier is full.
const NAME: &str = "a small file";

impl Inode {
    /// After a write or an allocation has failed with `error`: whether the file has left the metadata tier, as that has no room for more of its head. Then
    /// those who wrote the head alone are registered as writers, until the last of them goes: what they write now has its places on the
    /// servers. Copies the head; syncs it.
    ///
    /// `false` where the failure is of a server; the file is not small, or of a shared pool; another process writes it; no server takes
    /// the head.
    #[cold]
    pub(crate) fn leaves_full_tier(&self, error: &Error) -> bool {
        self.is_of_full_tier(error)
            && !self.store.plane().is_shared()
            && !self.is_cached()
            && self.leave_tier().is_ok_and(|left| left)
    }

    /// Before a write or an allocation up to `end`: where the metadata tier has only its reserve left and the file's head would grow, the
    /// file leaves the tier, as by [`Inode::leaves_full_tier`]. Where it cannot, the head grows on into the reserve, which is for names
    /// and for such files. One load where there is room.
    #[inline]
    pub(crate) fn leave_reserve_free(&self, end: impl FnOnce() -> u64) {
        if self.store.plane().meta_watch().had_only_reserve() {
            self.leave_filling_tier(end());
        }
    }

    #[cold]
    fn leave_filling_tier(&self, end: u64) {
        let plane = self.store.plane();
        let may_leave = !plane.is_shared() && !self.is_cached() && self.grows_in_inode(end);
        if may_leave && plane.meta_watch().has_only_reserve(|| plane.meta_room()) {
            // What the write itself fails with is told.
            let _ = self.leave_tier();
        }
    }

    /// Whether a change up to `end` makes the head longer that the hint `small` has given the file. One system call.
    fn grows_in_inode(&self, end: u64) -> bool {
        let Ok(file) = self.known_file() else { return false };
        let head_bytes = file.placement().layout.head_in_inode_bytes();
        let has_head = self.has_handle() && file.asked().small_bytes.is_some() && head_bytes > 0;
        has_head && self.stat().is_ok_and(|stat| (stat.st_size as u64) < end.min(head_bytes))
    }

    /// Whether `error` says that the metadata tier has no room. The offset does not tell: the file may have left since.
    fn is_of_full_tier(&self, error: &Error) -> bool {
        let (Error::Full { server, .. } | Error::Server { server, errno: Errno::DQUOT, .. }) = error else {
            return false;
        };
        self.store.plane().server(ServerId::META).is_ok_and(|tier| tier.name() == server)
    }

    fn leave_tier(&self) -> Result<bool> {
        // In this order, as those who put a size into the inode.
        let _change = self.one_change();
        let mut writers = guard(&self.writers);
        // Another thread, whose write failed too, has had it leave meanwhile.
        if self.layout()?.head_in_inode_bytes() == 0 {
            return Ok(true);
        }
        let Some(heads) = self.store.heads.exclude(self.handle())? else { return Ok(false) };
        let left = match writers.lock.clone() {
            Some(lock) => self.leave_tier_registered(&lock),
            None => self.leave_tier_and_register(&mut writers),
        };
        if matches!(left, Ok(true)) && writers.heads > 0 && !writers.are_registered {
            (writers.count, writers.are_registered) = (writers.count + 1, true);
        }
        if writers.heads > 0 {
            heads.share_again();
        }
        left
    }

    /// By a process that is registered as a writer under `lock`.
    fn leave_tier_registered(&self, lock: &LockFile) -> Result<bool> {
        if !lock.try_exclusive(Purpose::Writers)? {
            return Ok(false);
        }
        let left = self.leave_tier_locked(lock);
        // An own lock is exchanged, also while others wait for it.
        lock.try_shared(Purpose::Writers)?;
        left
    }

    /// By a process that writes the head alone. Its new lock file stays where the file has left.
    fn leave_tier_and_register(&self, writers: &mut Writers) -> Result<bool> {
        let (lock, _) = self.open_lock()?;
        if !lock.try_exclusive(Purpose::Writers)? || !lock.is_current(self.store.locks()) {
            return Ok(false);
        }
        let left = self.leave_tier_locked(&lock);
        if !matches!(left, Ok(true)) {
            lock.remove(self.store.locks())?;
            return left;
        }
        let since = self.epoch();
        // From the exclusive lock to that of a writer without a moment between them: no other process can change the file.
        lock.try_shared(Purpose::Writers)?;
        self.keep_registration(writers, lock, since)?;
        Ok(true)
    }

    /// By the holder of the exclusive lock of the writers, and of all that keeps threads of this process from changing the handle.
    fn leave_tier_locked(&self, lock: &LockFile) -> Result<bool> {
        // A write that is under way finds another epoch at its end; one that comes now waits ([`Inode::wait_for_cut`]).
        let _flag = Flag::set(&self.cutting);
        self.bump_epoch();
        // What a writer has written before it looked at the epoch is seen from here on.
        fence(Ordering::SeqCst);
        self.put_in_order(lock, true)??;
        let handle = self.read_handle()?;
        if parser::small_bytes(&handle.optimisations).is_none() {
            return Ok(false);
        }
        let without_head = self.store.with_head(&*self.layout()?, 0)?;
        self.store.check_new_layout(&without_head)?;
        let hash = self.store.layouts.put(&without_head)?;
        let layout = self.store.layouts.get(&hash)?;
        // Not as a file whose bytes are still ([`Purpose::Still`]): it has writers, and what is fetched ahead now would be old.
        self.move_off_tier(handle, (hash, layout), lock).map(|()| true)
    }

    fn move_off_tier(&self, handle: Handle, (hash, layout): ([u8; 32], Arc<Layout>), lock: &LockFile) -> Result<()> {
        let mut moving = Move::alone(self, lock, handle, layout, self.stat()?.st_size as u64)?;
        moving.by_threshold();
        let steps = Steps::new(false, moving.servers());
        while moving.step(&steps)? {}
        moving.finish(hash, NAME).map(|_| ())
    }
}
