//! Pages that a kernel writes back: the kernel takes no answer that only a part of them was written.

use crate::file::inode::{ByHandle, Inode};
use crate::file::placements;
use crate::os::error::Result;
use std::io::IoSlice;
use stripewise_layout::Layout;

/// Where the stripe ends that holds byte `offset` of the file.
fn stripe_end(layout: &Layout, offset: u64) -> u64 {
    let region = layout.region_at(offset);
    let row = &layout.regions()[region];
    let slot = row.slot_at(offset);
    let begin = offset - offset % row.round_bytes() + row.start_of(slot);
    begin.saturating_add(row.stripes()[slot].width_bytes).min(layout.region_end(region))
}

impl Inode {
    /// Writes all of `buf` at `offset`, as [`Inode::write_at`] does; where a server fails, the stripes of all others are
    /// written all the same. The caller must be registered as a writer.
    ///
    /// # Errors
    /// The first of those that kept a part of it from being written.
    pub fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        // The errors are found out below, stripe by stripe. Nothing is cut off: the kernel, which keeps pages, says
        // where the file ends.
        let places = ByHandle { inode: self, cuts: false };
        let mut done = placements::write(&places, &[IoSlice::new(buf)], offset).unwrap_or(0);
        let mut all = Ok(());
        while done < buf.len() {
            let at = offset + done as u64;
            let in_stripe = stripe_end(self.file()?.placement().layout.as_ref(), at) - at;
            let end = done + in_stripe.min((buf.len() - done) as u64) as usize;
            match self.write_at(&buf[done..end], at) {
                Ok(count) => done += count,
                Err(error) => {
                    all = all.and(Err(error));
                    done = end;
                }
            }
        }
        all
    }
}
