//! Memory that the layouts of open files take, counted for the owner of the files.
//!
//! Users choose layouts, and a process of root's has files of all users open. The memory for the files of one user is
//! bounded, so that the files of the others can still be opened.

use crate::os::error::{Error, Result};
use crate::pool::layouts::memory_bytes;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};
use stripewise_layout::Layout;

/// Most memory that the layouts of one user's open files take.
const MAX_BYTES_OF_ONE: usize = 128 << 20;

/// What the open files of each user take.
#[derive(Debug, Default)]
pub(crate) struct OpenMemory {
    owners: Mutex<HashMap<u32, Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    bytes: usize,
    /// Open files by the hash of their layout, which is in memory once.
    layouts: HashMap<[u8; 32], usize>,
}

/// The share of one open file; given back with the value.
#[derive(Debug)]
pub(crate) struct Share {
    memory: Arc<OpenMemory>,
    owner: u32,
    hash: [u8; 32],
    layout_bytes: usize,
    /// Memory that the file takes beside its layout: the tables of its datafiles.
    table_bytes: usize,
}

impl OpenMemory {
    /// Counts a file of user `owner` that has the layout `layout`, of that `hash`, and takes `parts_bytes` for what is its own
    /// of it.
    ///
    /// # Errors
    /// [`Error::LayoutMemory`] when the user's open files take too much then.
    pub(crate) fn share(
        self: &Arc<Self>,
        owner: u32,
        hash: [u8; 32],
        layout: &Layout,
        parts_bytes: usize,
    ) -> Result<Share> {
        let stripes: usize = layout.regions().iter().map(|region| region.stripes().len()).sum();
        let table_bytes = stripes * size_of::<u16>() + layout.regions().len() * size_of::<u32>() + parts_bytes;
        let layout_bytes = memory_bytes(layout);
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = owners.entry(owner).or_default();
        let files = taken.layouts.get(&hash).copied().unwrap_or(0);
        let more = table_bytes + if files == 0 { layout_bytes } else { 0 };
        if taken.bytes + more > MAX_BYTES_OF_ONE {
            return Err(Error::LayoutMemory { owner, limit_bytes: MAX_BYTES_OF_ONE as u64 });
        }
        taken.bytes += more;
        taken.layouts.insert(hash, files + 1);
        Ok(Share { memory: self.clone(), owner, hash, layout_bytes, table_bytes })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut owners = self.memory.owners.lock().unwrap_or_else(PoisonError::into_inner);
        let Entry::Occupied(mut owner) = owners.entry(self.owner) else { return };
        let taken = owner.get_mut();
        taken.bytes -= self.table_bytes;
        if let Entry::Occupied(mut files) = taken.layouts.entry(self.hash) {
            *files.get_mut() -= 1;
            if *files.get() == 0 {
                files.remove();
                taken.bytes -= self.layout_bytes;
            }
        }
        if taken.layouts.is_empty() {
            owner.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::{ServerId, Stripe};

    const ALICE: u32 = 62101;
    const CAROL: u32 = 62103;

    /// 33 MB of memory.
    fn large(number: u64) -> Layout {
        let round = |width_bytes| {
            vec![Stripe { server: ServerId(0), width_bytes }, Stripe { server: ServerId(1), width_bytes }]
        };
        Layout::new((0..400_000).map(|region| (region << 20, round(region % 2 + number + 1)))).unwrap()
    }

    #[test]
    fn what_one_users_open_files_take_is_bounded_and_given_back() {
        let memory = Arc::new(OpenMemory::default());
        let share = |owner, layout: &Layout| memory.share(owner, layout.hash(), layout, 0);
        let mut layouts = Vec::new();
        let mut open = Vec::new();
        let error = loop {
            let layout = large(layouts.len() as u64);
            match share(CAROL, &layout) {
                Ok(file) => open.push(file),
                Err(error) => break error,
            }
            layouts.push(layout);
        };
        assert!(open.len() > 1 && open.len() * memory_bytes(&layouts[0]) <= MAX_BYTES_OF_ONE, "{}", open.len());
        let said = error.to_string();
        assert!(said.contains(&CAROL.to_string()) && said.contains("128.0 MiB"), "{said}");
        // Others go on, with the same layouts as well.
        drop(share(ALICE, &layouts[0]).unwrap());
        // A second file of one layout takes its tables alone; many of them count, too.
        open.pop();
        let mut again = 0;
        while let Ok(file) = share(CAROL, &layouts[0]) {
            open.push(file);
            again += 1;
            assert!(again < 100, "the tables count");
        }
        assert!(again > 3);
        open.clear();
        assert!(memory.owners.lock().unwrap().is_empty());
        drop(share(CAROL, &large(99)).unwrap());
    }
}
