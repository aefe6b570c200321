//! What a path is.
//!
//! There are two kinds. What an open asks for beside its bytes stands over them as an [`IoPath`]: it sees the requests of one open, and
//! decides whether and when they go on. Where the bytes are is a
//! [`crate::file::paths::place::PlacePath`]: `inline` for those in the inode, over `striped` for those on
//! servers. A request is split by the layout in one place ([`crate::file::placed_file`]), and its parts go to the place of their region. They
//! cannot be split above that: all parts of a request are of one snapshot of the placement and of one look at the epoch counter, a write
//! is cut back as a whole where a part of it fails, and all servers are told of their parts before the first is waited for. So a place
//! says what the engine needs for a part, and moves no byte by itself. It is chosen by one comparison, without a virtual call.
//!
//! `direct` and `class` are neither: each is one comparison with a number of the file, in a file of its own.

use crate::file::requests::Requests;
use crate::os::error::Result;
use std::io::{IoSlice, IoSliceMut};

/// A way for the requests of one open file to its bytes: straight to their places, or over another path that it adds
/// something to. All methods may be called from any thread.
pub(crate) trait IoPath: std::fmt::Debug + Send + Sync {
    /// [`Requests::read_vectored_at`].
    ///
    /// # Errors
    /// Those of the servers.
    fn read(&self, requests: Requests<'_>, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize>;

    /// [`Requests::write_vectored_at`]. The file must be registered for writing.
    ///
    /// # Errors
    /// Those of the servers.
    fn write(&self, requests: Requests<'_>, bufs: &[IoSlice<'_>], offset: u64) -> Result<usize>;

    /// Where a kernel may keep what it reads: the value of the file's epoch counter by which it knows old pages.
    fn kept_epoch(&self) -> Option<u32> {
        None
    }
}
