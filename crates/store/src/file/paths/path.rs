//! What a path is.

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
