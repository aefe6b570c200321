//! Moves a file beside its writers.
//!
//! The mover is registered as one of the writers and tells the others of the move by [`Purpose::Place`] of the lock file and the epoch
//! counter: from then on they mark what they write ([`crate::file::writers_beside`]), and none goes past the mount. What was marked
//! is copied again, until that is little. Then the mover keeps appends and changes of the handle out, has writers wait by
//! [`Purpose::Lease`], copies what was marked last, and switches. A write that had begun before finds another epoch and is made again,
//! at the new places.
//!
//! Killed at any moment it leaves the file whole: its locks end with it, and the handle says from the beginning that there may be
//! something to clear away, and never that something is to be cut off, as writers may have made the file longer.
//!
//! Not moved so: what is kept in the inode, files of shared pools (other users' marks would have to be believed), and files that
//! a writer needs where they are ([`Inode::try_hold_place`]).

use crate::file::inode::Inode;
use crate::file::lockfile::{LockFile, Purpose};
use crate::file::marks::{BLOCK, joined};
use crate::file::moving::{Move, Moved, bytes_of};
use crate::file::steps::Steps;
use crate::os::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Instant;
use stripewise_layout::{Layout, MAX_OFFSET, ServerId};

/// Asked after each step, with the bytes of the next one and what a writer that has to wait holds meanwhile.
pub(crate) type GoOn<'a> = dyn FnMut(&Move<'_>, u64, Option<&LockFile>) -> Result<()> + 'a;

/// How often what was written meanwhile is copied before the move is given up: the writers are faster than it.
const PASSES: u32 = 12;

/// What a try to switch came to.
enum Switched {
    Yes,
    /// These parts are too much to have writers wait for.
    TooMuch(Vec<(u64, u64)>),
    /// The file cannot be moved beside its writers any more.
    Never,
}

/// A move beside writers under way.
struct Beside<'a> {
    inode: &'a Inode,
    /// Of its own open file description, so that the writers of this process are others, too.
    lock: LockFile,
    hash: [u8; 32],
    name: &'a str,
}

/// Whether a part of the file is in its inode.
fn has_inode(layout: &Layout) -> bool {
    layout.regions().iter().any(|region| region.stripes()[0].server == ServerId::META)
}

impl Inode {
    /// Moves the file, which has writers, to `layout`, which is kept as `hash`. `None`: it cannot be moved beside them, and is as it was.
    pub(crate) fn move_beside_writers(
        &self,
        hash: [u8; 32],
        layout: &Arc<Layout>,
        name: &str,
        go_on: &mut GoOn<'_>,
    ) -> Result<Option<Moved>> {
        if self.store.plane().is_shared() || has_inode(layout) || !self.try_register_writer()? {
            return Ok(None);
        }
        let moved = self.move_registered(hash, layout, name, go_on);
        // The last one of the writers settles the file, which may be this one.
        let released = self.release_writer();
        moved.and_then(|moved| released.map(|()| moved))
    }

    /// Whether a move to `layout` would find a writer, and could not go on beside it: the file is kept in its place.
    ///
    /// # Errors
    /// The locks cannot be had.
    pub(crate) fn is_kept_from(&self, layout: &Layout) -> Result<bool> {
        if !self.is_held()? {
            return Ok(false);
        }
        if self.store.plane().is_shared() || has_inode(layout) || has_inode(&*self.layout()?) {
            return Ok(true);
        }
        let lock = LockFile::open_existing(self.store.locks(), self.handle())?;
        lock.map_or(Ok(false), |lock| Ok(lock.is_held(Purpose::Place)? || lock.is_held(Purpose::Unmarked)?))
    }

    fn move_registered(
        &self,
        hash: [u8; 32],
        layout: &Arc<Layout>,
        name: &str,
        go_on: &mut GoOn<'_>,
    ) -> Result<Option<Moved>> {
        if has_inode(&*self.layout()?) {
            return Ok(None);
        }
        let Some(lock) = LockFile::open_existing(self.store.locks(), self.handle())? else { return Ok(None) };
        if !lock.is_current(self.store.locks())
            || !lock.try_exclusive(Purpose::Place)?
            || lock.is_held(Purpose::Unmarked)?
        {
            return Ok(None);
        }
        lock.forget_marks()?;
        let beside = Beside { inode: self, lock, hash, name };
        let moved = beside.run(layout, go_on);
        // In this order: who reads the placement from now on finds no move.
        drop(beside);
        self.bump_epoch();
        moved
    }
}

impl Beside<'_> {
    fn run(&self, layout: &Arc<Layout>, go_on: &mut GoOn<'_>) -> Result<Option<Moved>> {
        self.inode.check_named()?;
        let (handle, was_noted) = {
            let _change = self.inode.change_handle()?;
            let mut handle = self.inode.read_handle()?;
            if handle.layout == self.hash {
                return Ok(Some(Moved::nothing(self.inode.put_size_bytes()?)));
            }
            // A process that has cut the file off since this is one of its writers has died over it: who writes next finishes that.
            if handle.cut_at().is_some() {
                return Ok(None);
            }
            let was_noted = handle.truncating_to.is_some();
            // After a crash the next writer clears away what this has made. It also tells the writers of the move.
            handle.truncating_to = Some(MAX_OFFSET);
            self.inode.write_handle(&handle)?;
            (handle, was_noted)
        };
        // What is written from now on is marked.
        fence(Ordering::SeqCst);
        let moved =
            Move::beside(self.inode, handle, layout.clone()).and_then(|mut moving| self.passes(&mut moving, go_on));
        if !matches!(moved, Ok(Some(_)) | Err(Error::Unsure { .. })) {
            let _change = self.inode.change_handle()?;
            let mut handle = self.inode.read_handle()?;
            // What could not be removed stays noted, and so does the cut of a process that has died over it.
            if handle.layout != self.hash
                && self.inode.remove_strangers(&handle, false).is_ok()
                && handle.cut_at().is_none()
            {
                // What a mover that died has left in datafiles that stay is still to be freed.
                handle.truncating_to = was_noted.then_some(MAX_OFFSET);
                self.inode.write_handle(&handle)?;
            }
        }
        moved
    }

    fn passes(&self, moving: &mut Move<'_>, go_on: &mut GoOn<'_>) -> Result<Option<Moved>> {
        let mut steps = Steps::new(true, moving.servers());
        for pass in 0..PASSES {
            loop {
                let began = Instant::now();
                if !moving.step(&steps)? {
                    break;
                }
                steps.took(began.elapsed());
                go_on(moving, steps.bytes(), Some(&self.lock))?;
            }
            moving.check(self.name)?;
            // A step is fitted to the time that one takes; here it is copied and read back, and the handle is written.
            let most_bytes = (steps.bytes() / 4).max(2 * BLOCK);
            let Some(marked) = self.lock.take_marks()? else { return Ok(None) };
            let Some(mut parts) = moving.renew(&marked)? else { return Ok(None) };
            // At first only where nothing has to be copied while writers wait; most files are not written all the time.
            if bytes_of(&parts) <= if pass < PASSES / 2 { 0 } else { most_bytes } {
                match self.switch(moving, marked, most_bytes, &steps)? {
                    Switched::Yes => return Ok(Some(moving.done(moving.check(self.name)?))),
                    Switched::TooMuch(more) => parts = more,
                    Switched::Never => return Ok(None),
                }
            }
            moving.begin_pass(parts, false);
        }
        Ok(None)
    }

    /// Has writers wait, copies what they `marked` and have marked since, and switches.
    fn switch(
        &self,
        moving: &mut Move<'_>,
        marked: Vec<(u64, u64)>,
        most_bytes: u64,
        steps: &Steps,
    ) -> Result<Switched> {
        let inode = self.inode;
        // Before writers wait: one that appends waits with the lock of appends.
        inode.without_appends(|| {
            let _change = inode.change_handle()?;
            self.lock.lock(Purpose::Lease, true)?;
            inode.bump_epoch();
            // What a writer has marked before it looked at the counter is seen from here on.
            fence(Ordering::SeqCst);
            let switched = self.switch_alone(moving, marked, most_bytes, steps);
            if matches!(switched, Ok(Switched::Yes)) {
                // The move is done; what cannot be cleared away now is left to the next writer.
                moving.clear();
            }
            self.lock.unlock(Purpose::Lease)?;
            inode.bump_epoch();
            switched
        })
    }

    fn switch_alone(
        &self,
        moving: &mut Move<'_>,
        marked: Vec<(u64, u64)>,
        most_bytes: u64,
        steps: &Steps,
    ) -> Result<Switched> {
        if self.lock.is_held(Purpose::Unmarked)? {
            return Ok(Switched::Never);
        }
        self.inode.check_named()?;
        let Some(since) = self.lock.take_marks()? else { return Ok(Switched::Never) };
        let Some(parts) = moving.renew(&joined(marked, since))? else { return Ok(Switched::Never) };
        if bytes_of(&parts) > most_bytes {
            return Ok(Switched::TooMuch(parts));
        }
        moving.begin_pass(parts, true);
        while moving.step(steps)? {}
        moving.check(self.name)?;
        moving.switch(self.hash)?;
        Ok(Switched::Yes)
    }
}
