//! One open of a regular file, by the mount for a program, by the library, or by an export.

use crate::file::inode::Inode;
use crate::file::paths::decide::decide;
use crate::file::paths::open_terms::OpenTerms;
use crate::file::paths::path::IoPath;
use crate::file::requests::Requests;
use crate::file::unsynced::Told;
use crate::os::error::Result;
use crate::os::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::os::sync::{Mutex, guard};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use stripewise_control::{Action, Sender};

/// A file that is open: for what, and which failed syncs it has been told of. All methods may be called from any thread.
#[derive(Debug)]
pub struct OpenInode {
    /// Of all opens of a file the same one.
    inode: Arc<Inode>,
    writes: bool,
    notes_reads: bool,
    told: Told,
    registered: AtomicBool,
    /// Bytes at the beginning of the file that it may write without being registered as a writer of the rest; 0: none.
    head_bytes: AtomicU64,
    registering: Mutex<()>,
    /// What its requests go over before they reach their places, as its handle said when it was opened.
    path: Option<Box<dyn IoPath>>,
}

impl OpenInode {
    /// Opens `inode` for the library, for writing if it `writes`. Not registered as a writer yet. `notes_reads`: what it reads moves
    /// the file's time of access.
    pub fn new(inode: Arc<Inode>, writes: bool, notes_reads: bool) -> Self {
        Self::opened(inode, &OpenTerms::by_library(writes, notes_reads))
    }

    /// Opens `inode` as `terms` says. Not registered as a writer yet. Where a kernel may keep what it reads, and the handle says so, it
    /// is told so by [`OpenInode::kept_epoch`], and the file has no writer until this is dropped.
    pub fn opened(inode: Arc<Inode>, terms: &OpenTerms) -> Self {
        let OpenTerms { writes, notes_reads, .. } = *terms;
        let told = inode.told();
        if !notes_reads {
            inode.read_quietly();
        }
        let path = decide(&inode, terms);
        Self {
            inode,
            writes,
            notes_reads,
            told,
            registered: AtomicBool::new(false),
            head_bytes: AtomicU64::new(0),
            registering: Mutex::default(),
            path,
        }
    }

    /// Where a kernel may keep what it reads, the value of the file's epoch counter; what was read before it had that value is old.
    pub fn kept_epoch(&self) -> Option<u32> {
        self.path.as_ref()?.kept_epoch()
    }

    /// The file.
    pub fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    /// Whether it is open for writing.
    pub fn writes(&self) -> bool {
        self.writes
    }

    /// Whether what it reads moves the file's time of access.
    pub fn notes_reads(&self) -> bool {
        self.notes_reads
    }

    /// Whether its requests have to pass here: what is read ahead of them, or gathered of what was written to the file, is with
    /// this process; or the gate here has to know that they are served behind others; or they leave nothing in the page caches of servers.
    pub fn has_to_pass_here(&self) -> bool {
        self.path.is_some() || self.inode.writes_behind() || self.inode.rank() > 0 || self.inode.is_direct()
    }

    /// Whether what it writes may be kept back, so that its close has to be waited for.
    pub fn writes_behind(&self) -> bool {
        self.writes && self.path.is_some()
    }

    /// Whether it is registered as a writer.
    pub fn is_registered(&self) -> bool {
        self.registered.load(Ordering::Acquire)
    }

    /// Registers it as a writer, if it is open for writing and not registered yet; whether this call has done it. One load
    /// where it has nothing to do.
    ///
    /// # Errors
    /// Those of [`Inode::register_writer`]; ETXTBSY where a kernel keeps pages of the file for an open one (hint `cached`).
    pub fn register(&self) -> Result<bool> {
        if !self.writes || self.is_registered() {
            return Ok(false);
        }
        let _one = guard(&self.registering);
        if self.is_registered() {
            return Ok(false);
        }
        self.inode.register_writer()?;
        if let Err(kept) = self.inode.wait_for_pages() {
            self.inode.release_writer()?;
            return Err(kept);
        }
        self.registered.store(true, Ordering::Release);
        Ok(true)
    }

    /// As [`OpenInode::register`], for a change that ends at byte `end` of the file. Where that is in a head that is all of the
    /// file so far, it becomes no writer of the rest: the file stays one inode, without a lock file. Where it is the first change of
    /// the file and ends behind its head, the file has no head from then on. Three loads and one for each server where it has nothing
    /// to do.
    ///
    /// # Errors
    /// Those of [`Inode::register_writer`].
    pub fn register_up_to(&self, end: u64) -> Result<bool> {
        let is_in_head = || {
            let head_bytes = self.head_bytes.load(Ordering::Acquire);
            head_bytes > 0 && end <= head_bytes && self.inode.is_in_lone_head(end)
        };
        if !self.writes || self.is_registered() || is_in_head() {
            return Ok(false);
        }
        {
            let _one = guard(&self.registering);
            if self.head_bytes.load(Ordering::Acquire) == 0 && !self.is_registered() {
                // Where a kernel may keep its pages, they are waited for before it is a writer.
                if !self.inode.is_cached() && self.inode.register_past_head(end)? {
                    self.registered.store(true, Ordering::Release);
                    self.inode.note_past_head(true);
                    return Ok(true);
                }
                let head_bytes = self.inode.register_head()?.unwrap_or(0);
                self.head_bytes.store(head_bytes, Ordering::Release);
            }
        }
        if is_in_head() {
            return Ok(false);
        }
        let registers = self.register()?;
        self.inode.note_past_head(false);
        Ok(registers)
    }

    /// After a truncation that the open began with, before any thread has it: what it writes first decides whether the file keeps its
    /// head. The next change registers it again, so that its bytes may change their place meanwhile. One system call of a file that is
    /// no more than its head.
    pub fn begin_anew(&self) {
        if self.head_bytes.swap(0, Ordering::AcqRel) > 0 {
            // What is not settled now is by the next change, which registers it again.
            let _ = self.inode.release_head();
        }
    }

    /// Undoes [`OpenInode::register`] and [`OpenInode::register_up_to`], as far as it is registered.
    ///
    /// # Errors
    /// Those of [`Inode::release_writer`].
    pub fn release(&self) -> Result<()> {
        let is_of_head = self.head_bytes.swap(0, Ordering::AcqRel) > 0;
        let released = if is_of_head { self.inode.release_head() } else { Ok(()) };
        if self.registered.swap(false, Ordering::AcqRel) { self.inode.release_writer().and(released) } else { released }
    }

    /// The requests of `sender`. Those that write need [`OpenInode::register`] first.
    pub fn sent_by(&self, sender: Sender) -> Requests<'_> {
        self.inode.sent_by(sender)
    }

    /// Reads at `offset`; fewer bytes than asked for only at the end of the file. Holes are zeros.
    ///
    /// # Errors
    /// Those of the servers.
    pub fn read_at(&self, sender: Sender, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        let requests = self.sent_by(sender);
        let count = match &self.path {
            None => requests.read_vectored_at(bufs, offset),
            Some(path) => path.read(requests, bufs, offset),
        }?;
        if self.notes_reads {
            self.inode.note_read(offset.saturating_add(count as u64));
        }
        Ok(count)
    }

    /// Writes at `offset`, which may lie beyond the end; how many bytes. It must be registered, as by
    /// [`OpenInode::register_up_to`].
    ///
    /// # Errors
    /// Those of the servers. Of bytes that are kept back, the next sync, or [`OpenInode::flush`], tells.
    pub fn write_at(&self, sender: Sender, bufs: &[IoSlice<'_>], offset: u64) -> Result<usize> {
        let requests = self.sent_by(sender);
        match &self.path {
            // A piece is put on the servers by a writer of the rest.
            Some(path) if self.is_registered() => path.write(requests, bufs, offset),
            _ => requests.write_vectored_at(bufs, offset),
        }
    }

    /// Puts on the servers what was kept back of what was written to the file, for a program that closes a descriptor of it.
    ///
    /// # Errors
    /// What was kept back could not be written, and this open has not been told of that by a sync. Each close of one of its
    /// descriptors says so: the first may be that of a child which knows nothing of the file.
    pub fn flush(&self) -> Result<()> {
        if self.writes_behind() { self.inode.flush_for(&self.told) } else { Ok(()) }
    }

    /// Makes everything written so far durable (`data_only`: as fdatasync).
    ///
    /// # Errors
    /// Those of the servers; that of another's sync that has failed since this open was last told of one, once.
    pub fn sync(&self, sender: Sender, data_only: bool) -> Result<()> {
        self.sent_by(sender).enter(Action::Sync, 0, 0);
        self.make_durable(data_only)
    }

    /// [`OpenInode::sync`] as a part of a request that the gate has let pass.
    ///
    /// # Errors
    /// As [`OpenInode::sync`].
    pub fn make_durable(&self, data_only: bool) -> Result<()> {
        self.inode.sync_for(&self.told, data_only)
    }
}
