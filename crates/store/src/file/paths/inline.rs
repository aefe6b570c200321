//! `inline`: the place of what the layout puts into the inode, on the metadata tier; over that of the rest.
//!
//! A file whose head is in its inode has the bytes behind it on servers: what is no part of the inode goes to the place below.

use crate::backend::emulate::Op;
use crate::backend::plane::DataPlane;
use crate::file::engine::Direction;
use crate::file::paths::place::{PartPlace, PlacePath};
use crate::format::placement::Datafiles;
use crate::os::error::{Error, Result};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use stripewise_layout::ServerId;

/// The bytes in one file's inode, and what is below.
#[derive(Debug)]
pub(crate) struct Inline<B> {
    inode: Option<Arc<OwnedFd>>,
    pub(crate) below: B,
}

impl<B> Inline<B> {
    /// Over `below`. `inode` is there if the layout puts bytes into it, and it is in this process.
    pub(crate) fn over(below: B, inode: Option<Arc<OwnedFd>>) -> Self {
        Self { inode, below }
    }

    /// The inode, if the layout puts bytes into it.
    #[inline]
    pub(crate) fn inode(&self) -> Option<BorrowedFd<'_>> {
        self.inode.as_ref().map(|inode| inode.as_fd())
    }
}

impl<B: PlacePath> Inline<B> {
    /// The descriptor of the namespace inode, whose server is connected.
    ///
    /// # Errors
    /// [`Error::Elsewhere`] where the inode is not here; those of [`crate::backend::plane::OpenServer::backend`].
    fn inode_on_meta(&self) -> Result<RawFd> {
        let inode = self.inode.as_ref().ok_or(Error::Elsewhere)?.as_raw_fd();
        self.below.plane().server(ServerId::META)?.backend()?;
        Ok(inode)
    }

    /// Counts a request that the metadata tier is to serve. An addition and the clock.
    pub(crate) fn begin(&self, file: u64) -> Option<u64> {
        self.below.plane().meta_watch().begin(file)
    }

    /// Counts that the metadata tier has served it. Three additions and the clock; one subtraction where a read met the end of the
    /// file, which costs no tier anything.
    pub(crate) fn end(&self, file: u64, op: Op, done_bytes: u64, begin_ns: u64) {
        if op == Op::Read && done_bytes == 0 {
            return self.below.plane().meta_watch().withdraw(file);
        }
        let room = || self.below.plane().meta_room();
        self.below.plane().meta_watch().end(file, op, done_bytes, begin_ns, room);
    }
}

impl<B: PlacePath> PlacePath for Inline<B> {
    #[inline]
    fn plane(&self) -> &Arc<DataPlane> {
        self.below.plane()
    }

    #[inline]
    fn exists(&self, index: u16) -> bool {
        index == Datafiles::INODE || self.below.exists(index)
    }

    /// Of the inode nothing is noted: it is synced with the names.
    #[inline]
    fn mark_written(&self, index: u16) {
        self.below.mark_written(index);
    }

    #[inline(always)]
    fn place(
        &self,
        index: u16,
        server: ServerId,
        direction: Direction,
        is_direct: impl FnOnce() -> bool,
    ) -> Result<PartPlace> {
        if index == Datafiles::INODE {
            return Ok(PartPlace { fd: self.inode_on_meta()?, passes_cache: false });
        }
        self.below.place(index, server, direction, is_direct)
    }

    #[inline]
    fn counts(&self, server: ServerId) -> bool {
        server == ServerId::META || self.below.counts(server)
    }
}
