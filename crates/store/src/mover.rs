//! The mover: gives an existing file another layout, crash-safe.

use crate::error::Result;
use crate::inode::Inode;
use std::sync::Arc;
use stripewise_layout::Layout;

/// What a move did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Bytes that were copied to other places.
    pub copied_bytes: u64,
    /// Bytes that stayed where they were.
    pub kept_bytes: u64,
    /// blake3 of the whole content, read back through the new layout.
    pub checksum: [u8; 32],
}

impl Inode {
    /// Moves the file to `layout`. `name` stands in errors. `progress(done_bytes, total_bytes)` is called now and then; `false` from it
    /// stops the move, leaving the file as it was.
    ///
    /// Fails with [`crate::Error::Busy`] while a writer is registered anywhere. On any failure the file keeps its old layout and
    /// nothing of the new one is left.
    pub fn move_to(
        self: &Arc<Self>,
        layout: Layout,
        name: &str,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Moved> {
        todo!()
    }
}
