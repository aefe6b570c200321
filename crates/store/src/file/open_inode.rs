//! One open of a regular file, by the mount for a program, by the library, or by an export.

use crate::file::inode::Inode;
use crate::file::paths::path::IoPath;
use crate::file::paths::placed::PlacedPath;
use crate::file::paths::readahead::ReadAhead;
use crate::file::requests::Requests;
use crate::file::unsynced::Told;
use crate::os::error::Result;
use crate::os::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::os::sync::{Mutex, guard};
use std::io::IoSliceMut;
use std::sync::Arc;
use stripewise_control::{Action, Sender};

/// A file that is open: for what, and which failed syncs it has been told of. All methods may be called from any thread.
#[derive(Debug)]
pub struct OpenInode {
    /// Of all opens of a file the same one, but of a file without a handle this open's own, with its own descriptor.
    inode: Arc<Inode>,
    writes: bool,
    notes_reads: bool,
    told: Told,
    registered: AtomicBool,
    /// Bytes at the beginning of the file that it may write without being registered as a writer of the rest; 0: none.
    head_bytes: AtomicU64,
    registering: Mutex<()>,
    /// What its reads go over before they reach their places, as its handle said when it was opened.
    path: Option<Box<dyn IoPath>>,
}

/// The path of the reads of one open, by the handle; `None`: straight to the places. An open for writing would only see that
/// the file has a writer.
fn path_of(inode: &Arc<Inode>, writes: bool) -> Option<Box<dyn IoPath>> {
    if writes || inode.store.plane().is_shared() {
        return None;
    }
    let hint = inode.known_file().ok()?.read_ahead()?;
    Some(Box::new(ReadAhead::over(PlacedPath, inode.clone(), hint)))
}

impl OpenInode {
    /// Opens `inode`, for writing if it `writes`. Not registered as a writer yet. `notes_reads`: what it reads moves the
    /// file's time of access.
    pub fn new(inode: Arc<Inode>, writes: bool, notes_reads: bool) -> Self {
        let told = inode.told();
        let path = path_of(&inode, writes);
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

    /// Whether its reads have to pass here: what is read ahead of them is with this process.
    pub fn reads_ahead(&self) -> bool {
        self.path.is_some()
    }

    /// Whether it is registered as a writer.
    pub fn is_registered(&self) -> bool {
        self.registered.load(Ordering::Acquire)
    }

    /// Registers it as a writer, if it is open for writing and not registered yet; whether this call has done it. One load
    /// where it has nothing to do.
    ///
    /// # Errors
    /// Those of [`Inode::register_writer`].
    pub fn register(&self) -> Result<bool> {
        if !self.writes || self.is_registered() {
            return Ok(false);
        }
        let _one = guard(&self.registering);
        if self.is_registered() {
            return Ok(false);
        }
        self.inode.register_writer()?;
        self.registered.store(true, Ordering::Release);
        Ok(true)
    }

    /// As [`OpenInode::register`], for a change that ends at byte `end` of the file. Where that is in a head that is all of the
    /// file so far, it becomes no writer of the rest: the file stays one inode, without a lock file. Three loads and one for each
    /// server where it has nothing to do.
    ///
    /// # Errors
    /// Those of [`Inode::register_writer`].
    pub fn register_up_to(&self, end: u64) -> Result<bool> {
        let is_in_head = || {
            let head_bytes = self.head_bytes.load(Ordering::Acquire);
            head_bytes > 0 && end <= head_bytes && self.inode.has_head_alone()
        };
        if !self.writes || self.is_registered() || is_in_head() {
            return Ok(false);
        }
        {
            let _one = guard(&self.registering);
            if self.head_bytes.load(Ordering::Acquire) == 0 && !self.is_registered() {
                let head_bytes = self.inode.register_head()?.unwrap_or(0);
                self.head_bytes.store(head_bytes, Ordering::Release);
            }
        }
        if is_in_head() { Ok(false) } else { self.register() }
    }

    /// Undoes [`OpenInode::register`] and [`OpenInode::register_up_to`], as far as it is registered.
    ///
    /// # Errors
    /// Those of [`Inode::release_writer`].
    pub fn release(&self) -> Result<()> {
        if self.head_bytes.swap(0, Ordering::AcqRel) > 0 {
            self.inode.release_head();
        }
        if self.registered.swap(false, Ordering::AcqRel) { self.inode.release_writer() } else { Ok(()) }
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
