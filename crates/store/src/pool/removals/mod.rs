//! The journal of removals: which files have lost their last name and may still have datafiles.
//!
//! Each mount has a file of its own in `<namespace>/removals/`, locked as long as the mount lives ([`pages`]). A record states a
//! fact ([`gone`]): the inode of this number and logical handle has lost its last name, and these may be its datafiles.
//! It is written when the mount has seen that, and cleared when they are gone. So the next mount, or another that runs, can
//! finish what a mount that was killed had begun ([`dead`]), and a running one what a server refused.
//!
//! What makes it safe to remove datafiles by a record:
//!
//! - *The name is gone for good.* The kernel gives no name to an inode that has lost its last. A power cut can bring a name
//!   back, so that the namespace's file system is synced before the first datafile goes; a record of which that is not known
//!   counts only in the boot of the system in which it was written, and only while no sync has failed.
//! - *The file is not in use.* Registered writers hold its lock file, as ever. A file that was not tried before, which programs of
//!   another mount may read, waits until this mount is the pool's only one. In a shared pool, where no mount knows that of
//!   itself, the lock file alone counts, as it does for every removal.
//! - *They are its datafiles.* Their names have the random logical handle, not the inode's number, which may be used again;
//!   owner and, in a shared pool, inode and generation are compared on the datafile itself.
//! - *The record is ours.* A journal counts only for the user whose file it is, by its descriptor; a copy of it, and one from
//!   before the pool was taken over (`fsck --rebind`), does not count.

mod dead;
mod gone;
mod pages;
mod record;

pub use pages::Slot;

use crate::file::inode::Inode;
use crate::os::error::{Error, Result};
use crate::os::sync::{Mutex, guard};
use crate::pool::namespace::REMOVALS;
use crate::pool::neighbours::Neighbours;
use crate::pool::store::Store;
use gone::{Gone, Outages, RemovalOutcome, Which};
use pages::{JournalPages, Origin};
use record::{RemovalState, StoredRecord};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, Stat};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// The journal of this process. All methods may be called from any thread.
#[derive(Debug)]
pub struct Journal {
    store: Arc<Store>,
    neighbours: Arc<Neighbours>,
    directory: OwnedFd,
    boot: String,
    pages: Mutex<JournalPages>,
    /// Records to be tried again, in this order.
    left: Mutex<VecDeque<Slot>>,
    /// What was said of other journals.
    told: Mutex<HashSet<String>>,
}

impl Journal {
    /// Begins a journal, for a mount whose neighbours these are.
    ///
    /// # Errors
    /// The namespace cannot be written.
    pub fn begin(store: &Arc<Store>, neighbours: Arc<Neighbours>) -> Result<Self> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot = boot.trim().to_owned();
        let directory = pages::directory(store)?;
        let pages = JournalPages::make(directory.as_fd(), Origin { pool: store.plane().pool_uuid(), boot: &boot })
            .map_err(Error::io("make a journal in", store.pool().namespace.join(REMOVALS)))?;
        Ok(Self {
            store: store.clone(),
            neighbours,
            directory,
            boot,
            pages: Mutex::new(pages),
            left: Mutex::default(),
            told: Mutex::default(),
        })
    }

    fn origin(&self) -> Origin<'_> {
        Origin { pool: self.store.plane().pool_uuid(), boot: &self.boot }
    }

    /// Notes that `inode`, whose attributes are `stat`, has lost its last name; `open`: a program here has it open. A few
    /// dozen stores and no system call, but for one or two when more files wait than ever before, by 512. `None`: there is
    /// no room for it, and what cannot be removed at once is left to `stripewise fsck`.
    pub fn note(&self, inode: &Inode, stat: &Stat, open: bool) -> Option<Slot> {
        let which = if open { Which::Possible } else { Which::Present };
        let gone = Gone::of(inode, stat, which).ok()?;
        guard(&self.pages).put(RemovalState::Seen, &gone)
    }

    /// The name does not come back: its directory is on the disk.
    pub fn certain(&self, slot: Slot) {
        guard(&self.pages).set(slot, RemovalState::Certain);
    }

    /// Syncing a directory has failed: the names that were removed may be back when its disk is.
    pub fn doubt(&self) {
        guard(&self.pages).doubt();
    }

    /// The datafiles are gone.
    pub fn clear(&self, slot: Slot) {
        guard(&self.pages).clear(slot);
    }

    /// Some datafiles of `inode` are left, or another process writes it: it is to be tried again.
    pub fn leave(&self, slot: Slot, inode: &Inode, in_use: bool) {
        // What is known now is more than what was when it was noted.
        let which = if in_use { Which::Possible } else { Which::Present };
        let gone = inode.stat().and_then(|stat| Gone::of(inode, &stat, which));
        let mut pages = guard(&self.pages);
        let state = match pages.get(slot) {
            StoredRecord::Record(RemovalState::Certain, _) if !in_use => RemovalState::Left,
            StoredRecord::Record(state, _) => state,
            StoredRecord::Nothing | StoredRecord::Damage => RemovalState::Seen,
        };
        let newer = gone.ok().and_then(|gone| pages.put(state, &gone));
        if newer.is_some() {
            pages.clear(slot);
        } else {
            pages.set(slot, state);
        }
        drop(pages);
        guard(&self.left).push_back(newer.unwrap_or(slot));
    }

    /// Whether anything is to be tried again.
    pub fn has_left(&self) -> bool {
        !guard(&self.left).is_empty()
    }

    /// Tries all that is left, once; of how many files the datafiles are gone now. A server that refuses is asked for a few
    /// files only, for others the next time. Why it refused was said when the file was removed.
    pub fn round(&self) -> usize {
        let count = guard(&self.left).len();
        let (mut gone, mut outages, mut synced) = (0, Outages::default(), None);
        for _ in 0..count {
            let Some(slot) = guard(&self.left).pop_front() else { break };
            let done = match guard(&self.pages).get(slot) {
                StoredRecord::Record(state, gone) => Some((state, gone)),
                StoredRecord::Nothing | StoredRecord::Damage => None,
            };
            let done = done.map_or(Ok(RemovalOutcome::Done), |(state, gone)| {
                self.attempt(slot, state, &gone, &mut synced, &mut outages)
            });
            if matches!(done, Ok(RemovalOutcome::Done)) {
                guard(&self.pages).clear(slot);
                gone += 1;
            } else {
                guard(&self.left).push_back(slot);
            }
        }
        gone
    }

    fn attempt(
        &self,
        slot: Slot,
        state: RemovalState,
        gone: &Gone,
        synced: &mut Option<bool>,
        outages: &mut Outages,
    ) -> Result<RemovalOutcome> {
        let tried = state == RemovalState::Left;
        if !tried && !self.store.plane().is_shared() && !self.neighbours.alone() {
            return Ok(RemovalOutcome::InUse);
        }
        if state == RemovalState::Seen {
            if !*synced.get_or_insert_with(|| self.sync_names()) {
                return Ok(RemovalOutcome::InUse);
            }
            self.certain(slot);
        }
        let outcome = gone.collect(&self.store, outages, !tried)?;
        if outcome == RemovalOutcome::Left {
            guard(&self.pages).set(slot, RemovalState::Left);
        }
        Ok(outcome)
    }

    /// Makes all names durable; whether that is certain.
    fn sync_names(&self) -> bool {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let tree = rustix::fs::openat(self.store.tree(), ".", flags, Mode::empty());
        let certain = tree.and_then(rustix::fs::syncfs).is_ok();
        if !certain {
            self.doubt();
        }
        certain
    }

    /// The process ends: no record comes any more. What is left is another mount's to finish.
    pub fn end(&self) {
        guard(&self.pages).end(self.directory.as_fd());
    }
}
