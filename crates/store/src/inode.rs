//! One placed file of a pool.

use crate::error::Result;
use crate::placement::Placement;
use rustix::fs::{FallocateFlags, Timespec, Timestamps};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use stripewise_layout::Layout;

/// Size and times of a placed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Time of the last change of content.
    pub mtime: Timespec,
    /// Blocks of 512 bytes that the size takes, holes included.
    pub blocks: u64,
}

/// One placed file, shared by all who have it open in this process. All methods may be called from any thread.
#[derive(Debug)]
pub struct Inode {}

impl Inode {
    /// Logical handle.
    pub fn handle(&self) -> u64 {
        todo!()
    }

    /// The placement now (read again when it changed). `bypass` is set; the mount clears it where it must.
    pub fn placement(&self) -> Result<Placement> {
        todo!()
    }

    /// The layout now.
    pub fn layout(&self) -> Result<Arc<Layout>> {
        todo!()
    }

    /// Reads at `offset`; fewer bytes than asked for only at the end of the file. Holes are zeros.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        todo!()
    }

    /// [`Inode::read_at`] into several buffers.
    pub fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        todo!()
    }

    /// Writes at `offset`, which may lie beyond the end. The caller must be registered as a writer.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        todo!()
    }

    /// [`Inode::write_at`] from several buffers.
    pub fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<usize> {
        todo!()
    }

    /// Writes at the end of the file, whoever else appends; the offset where the bytes went, and how many. The caller must be
    /// registered as a writer.
    pub fn append(&self, buf: &[u8]) -> Result<(u64, usize)> {
        todo!()
    }

    /// Size and modification time now. A closed file costs one `fstat` and one look for its lock file; while a writer is registered
    /// anywhere, the datafiles are asked.
    pub fn attributes(&self) -> Result<Attributes> {
        todo!()
    }

    /// Sets access and modification time (also of the datafiles, so that the last close keeps them).
    pub fn set_times(&self, times: &Timestamps) -> Result<()> {
        todo!()
    }

    /// Gives the datafiles to the owner that the inode has now; call it after `fchown` of the inode.
    pub fn follow_owner(&self) -> Result<()> {
        todo!()
    }

    /// Sets the size. Needs no registration: it registers itself meanwhile.
    pub fn truncate(&self, size_bytes: u64) -> Result<()> {
        todo!()
    }

    /// Makes everything written so far durable (`data_only`: as fdatasync).
    pub fn sync(&self, data_only: bool) -> Result<()> {
        todo!()
    }

    /// `fallocate`: mode 0, `KEEP_SIZE`, `PUNCH_HOLE | KEEP_SIZE`; other modes give EOPNOTSUPP. Needs registration.
    pub fn allocate(&self, mode: FallocateFlags, offset: u64, len: u64) -> Result<()> {
        todo!()
    }

    /// First offset at or after `offset` that may hold data (SEEK_DATA); ENXIO when there is none.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        todo!()
    }

    /// First offset at or after `offset` that is a hole, at latest the size (SEEK_HOLE); ENXIO beyond the end.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        todo!()
    }

    /// Registers one more writer of this process: call it once for each descriptor opened for writing. Waits while
    /// the file's layout is being changed.
    pub fn register_writer(&self) -> Result<()> {
        todo!()
    }

    /// Undoes one [`Inode::register_writer`]. The last writer of all processes puts size and mtime into the inode.
    pub fn release_writer(&self) -> Result<()> {
        todo!()
    }

    /// Whether any process is registered as a writer.
    pub fn has_writers(&self) -> Result<bool> {
        todo!()
    }

    /// Creates the datafiles with these indexes (of the handle's `version`) and sets their present bits. `Ok` as well when they exist
    /// or the version has moved on: fetch the placement again afterwards.
    pub fn ensure_datafiles(&self, version: u32, indexes: &[u16]) -> Result<()> {
        todo!()
    }

    /// Tells all holders of a placement of this file to fetch it again.
    pub fn bump_epoch(&self) {
        todo!()
    }
}
