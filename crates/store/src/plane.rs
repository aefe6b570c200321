//! The data plane: reads and writes of placed files straight on the servers' datafiles.
//!
//! It is used by the mount and inside the preload library. So it makes system calls directly (never through a symbol
//! of libc that the preload intercepts), and a request takes no lock and, up to 16 sub-requests, allocates nothing.

use crate::emulate::Device;
use crate::epoch::EpochPage;
use crate::error::{Error, Result};
use crate::placement::{Datafiles, Placement};
use crate::pool::Pool;
use rustix::fd::{BorrowedFd, OwnedFd};
use smallvec::SmallVec;
use std::io::{IoSlice, IoSliceMut};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32};

/// How to open a data plane.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlaneOptions {
    /// Every descriptor that the plane opens is moved to this number or above (the next free one), so that inside a
    /// program it stays out of the way of `close` loops and of small numbers that programs expect. 0 leaves them.
    pub descriptor_floor: i32,
}

/// The servers of a pool, open in this process.
#[derive(Debug)]
pub struct DataPlane {
    servers: Vec<(PathBuf, Option<Device>)>,
    epochs: EpochPage,
    options: PlaneOptions,
}

/// What a read or a write came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// That many bytes were read or written; fewer than asked for at the end of the file, or as POSIX allows.
    Done(usize),
    /// The file's placement changed: fetch it again, [`PlacedFile::refresh`] or replace the `PlacedFile`, and retry.
    Stale,
    /// A write needs datafiles that do not exist yet (indexes in the placement's table): have them made
    /// (`Inode::ensure_datafiles`, or the mount's ioctl), then go on as for `Stale`.
    Absent(SmallVec<[u16; 16]>),
    /// Some of the bytes live in the namespace inode, which this `PlacedFile` does not hold: use the mount.
    Inode,
}

impl DataPlane {
    /// Opens the servers' directories and the epoch page of `pool`. A server that is not there is noted, and gives
    /// [`Error::MissingServer`] when it is needed; it is looked for again at each use.
    pub fn open(pool: &Pool, options: PlaneOptions) -> Result<Arc<Self>> {
        todo!()
    }

    /// The epoch counter of a file now. One atomic load.
    pub fn epoch(&self, handle: u64) -> u32 {
        todo!()
    }
}

/// One placed file, as far as its bytes go. Shared by all threads.
#[derive(Debug)]
pub struct PlacedFile {
    plane: Arc<DataPlane>,
}

impl PlacedFile {
    /// Prepares to serve `placement`. `inode` is the namespace inode for regions of the metadata tier; the preload has
    /// none and gets [`Outcome::Inode`] for requests that touch them. Opens nothing yet. Fails when the layout names a
    /// server that the pool does not have.
    pub fn new(plane: Arc<DataPlane>, placement: Placement, inode: Option<OwnedFd>) -> Result<Self> {
        todo!()
    }

    /// The placement that is served.
    pub fn placement(&self) -> &Placement {
        todo!()
    }

    /// Takes over a newer placement of the same version (datafiles that came to exist), keeping what is open. `false`
    /// when the version differs: build a new `PlacedFile` then.
    pub fn refresh(&self, newer: &Placement) -> bool {
        todo!()
    }

    /// Whether the placement changed since it was fetched. One atomic load; `read_at` and `write_at` check it
    /// themselves.
    pub fn is_stale(&self) -> bool {
        todo!()
    }

    /// Reads into `bufs` from file offset `offset`. Holes read as zeros; `size` is called only when some server had
    /// fewer bytes than wanted, and says how large the file is, so that the end is told from a hole. Bytes of `bufs`
    /// behind the count that is returned are left as they were, except that they may hold bytes of the file.
    pub fn read_at(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        offset: u64,
        size: &mut dyn FnMut() -> Result<u64>,
    ) -> Result<Outcome> {
        todo!()
    }

    /// Writes `bufs` at file offset `offset`. All of it, unless an error comes after the first bytes (then what was
    /// written contiguously from `offset` is returned, if it is not 0). Offsets beyond 2^63-1 give EFBIG.
    pub fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<Outcome> {
        todo!()
    }
}
