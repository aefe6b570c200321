//! Layouts whose first bytes are in the file's inode.

use crate::layout::{Layout, LayoutError, ServerId, Stripe};

impl Layout {
    /// The same layout, but with the first `head_bytes` bytes of the file in its inode on the metadata tier. What comes behind
    /// is where it was: the position of a byte in its round is counted from the start of the file. O(regions x stripes).
    ///
    /// # Errors
    /// `head_bytes` is 0, or beyond the greatest offset.
    pub fn with_head_in_inode(&self, head_bytes: u64) -> Result<Self, LayoutError> {
        if self.head_in_inode_bytes() >= head_bytes && head_bytes > 0 {
            return Ok(self.clone());
        }
        let head = (0, vec![Stripe { server: ServerId::META, width_bytes: head_bytes }]);
        let cut = (head_bytes, self.regions()[self.region_at(head_bytes)].stripes().to_vec());
        let behind = self.regions().iter().filter(|region| region.offset() > head_bytes);
        let behind = behind.map(|region| (region.offset(), region.stripes().to_vec()));
        Self::new([head, cut].into_iter().chain(behind))
    }

    /// How many of the first bytes are in the inode; `MAX_OFFSET + 1` where all are. O(1).
    pub fn head_in_inode_bytes(&self) -> u64 {
        if self.regions()[0].stripes()[0].server == ServerId::META { self.region_end(0) } else { 0 }
    }
}
