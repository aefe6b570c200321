//! What a place of bytes is: where the paths of a request end ([`crate::file::paths::path`]).

use crate::backend::plane::DataPlane;
use crate::file::engine::Direction;
use crate::os::error::Result;
use rustix::fd::RawFd;
use std::sync::Arc;
use stripewise_layout::ServerId;

/// What the engine needs to know of the place of a part of a request.
pub(crate) struct PartPlace {
    /// Its descriptor; -1 where there is no datafile, so that the bytes are a hole.
    pub(crate) fd: RawFd,
    /// Whether the part leaves nothing in a page cache.
    pub(crate) passes_cache: bool,
}

/// The places of one kind at which the bytes of a file are. A place is told by its index in the placement's table of datafiles, or by
/// that of the inode.
pub(crate) trait PlacePath: std::fmt::Debug + Send + Sync {
    /// The servers, and their door.
    fn plane(&self) -> &Arc<DataPlane>;

    /// Whether the place exists, as far as is known.
    fn exists(&self, index: u16) -> bool;

    /// Notes that bytes of it were written, which a sync has to make durable.
    fn mark_written(&self, index: u16);

    /// The place of a part of a request, which is opened where it is not; `is_direct`: whether the request is to leave nothing in
    /// page caches.
    ///
    /// # Errors
    /// It cannot be opened; [`crate::os::error::Error::Elsewhere`]: it is the inode, which is not here.
    fn place(
        &self,
        index: u16,
        server: ServerId,
        direction: Direction,
        is_direct: impl FnOnce() -> bool,
    ) -> Result<PartPlace>;

    /// Whether there is more to do for a part on that server than to move its bytes: it is charged, or counted.
    fn counts(&self, server: ServerId) -> bool;
}
