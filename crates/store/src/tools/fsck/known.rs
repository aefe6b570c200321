//! What the datafiles of all files are called, in 32 bytes a file.

use crate::format::handle::{Handle, Present};
use crate::format::placement::{Datafile, Datafiles};
use crate::os::sync::{Mutex, guard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stripewise_layout::ServerId;

/// Layout of a file whose datafiles do not fit into a record.
const LARGE: u32 = FOREIGN - 1;
/// Layout of a file whose datafiles are unknown.
const UNKNOWN: u32 = FOREIGN - 2;
/// Bit of a record's layout: the handle is another inode's.
const FOREIGN: u32 = 1 << 31;

/// One placed file.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlacedRecord {
    pub(super) logical: u64,
    /// The inode; that which its handle names, if `bound`.
    pub(super) inode: u64,
    /// Which datafiles exist.
    present: u64,
    generation: u32,
    /// Index of the layout, with the top bit for a handle of another inode.
    layout: u32,
}

impl PlacedRecord {
    /// Whether the handle is of this very inode.
    pub(super) fn is_bound(&self) -> bool {
        self.layout & FOREIGN == 0
    }
}

/// What a datafile is to the files that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    /// No file has its handle.
    Orphan,
    /// The file's handle lists it.
    Listed,
    /// The file could have it, its handle does not list it.
    Unlisted,
    /// The file has no datafile of this generation there.
    Leftover,
    /// It cannot be said: the file's layout is not known.
    Unknown,
}

/// Datafiles of files with more than 64 of them, or several generations.
type Large = HashMap<u64, (Vec<Datafile>, Present)>;

/// Index of each layout, and its servers in order of its datafiles.
type Layouts = (HashMap<[u8; 32], u32>, Vec<Arc<Vec<ServerId>>>);

/// Collects records from several threads.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    records: Mutex<Vec<PlacedRecord>>,
    layouts: Mutex<Layouts>,
    large: Mutex<Large>,
    damaged: AtomicBool,
    unbound: AtomicBool,
}

impl Gathering {
    /// Notes that there is a handle which cannot be read.
    pub(super) fn note_damaged(&self) {
        self.damaged.store(true, Ordering::Relaxed);
    }

    /// Notes that there is a file whose datafiles are bound to another inode.
    pub(super) fn note_unbound(&self) {
        self.unbound.store(true, Ordering::Relaxed);
    }

    /// Notes a file whose datafiles are not known.
    pub(super) fn add_unknown(&self, logical: u64, inode: u64, bound: bool) {
        self.push(logical, inode, 0, 0, UNKNOWN, bound);
    }

    /// Notes a file.
    pub(super) fn add(&self, handle: &Handle, datafiles: &Datafiles, inode: u64) {
        let bound = handle.real == inode;
        let generations = handle.generations.entries();
        let bits = handle.present.as_bytes();
        if generations.len() > 1 || datafiles.table.len() > 64 || bits.len() > 8 {
            guard(&self.large).insert(handle.logical, (datafiles.table.clone(), handle.present.clone()));
            return self.push(handle.logical, inode, 0, 0, LARGE, bound);
        }
        let mut layouts = guard(&self.layouts);
        let (indexes, servers) = &mut *layouts;
        let index = *indexes.entry(handle.layout).or_insert_with(|| {
            servers.push(Arc::new(datafiles.table.iter().map(|datafile| datafile.server).collect()));
            servers.len() as u32 - 1
        });
        drop(layouts);
        let mut present = [0; 8];
        present[..bits.len()].copy_from_slice(bits);
        self.push(handle.logical, inode, u64::from_le_bytes(present), generations[0].generation, index, bound);
    }

    fn push(&self, logical: u64, inode: u64, present: u64, generation: u32, layout: u32, bound: bool) {
        let layout = if bound { layout } else { layout | FOREIGN };
        guard(&self.records).push(PlacedRecord { logical, inode, present, generation, layout });
    }

    /// Done: sorts the records.
    pub(super) fn finish(self) -> KnownFiles {
        let mut records = self.records.into_inner().unwrap_or_default();
        records.sort_unstable_by_key(|record| (record.logical, !record.is_bound(), record.inode));
        // A file with several names was seen at each.
        records.dedup_by_key(|record| (record.logical, record.inode));
        let layouts = self.layouts.into_inner().unwrap_or_default().1;
        let large = self.large.into_inner().unwrap_or_default();
        KnownFiles { records, layouts, large, damaged: self.damaged.into_inner(), unbound: self.unbound.into_inner() }
    }
}

/// All placed files.
#[derive(Debug, Default)]
pub(super) struct KnownFiles {
    /// In order of handle; a handle's own inode first.
    pub(super) records: Vec<PlacedRecord>,
    layouts: Vec<Arc<Vec<ServerId>>>,
    large: Large,
    /// Whether there are handles that cannot be read.
    pub(super) damaged: bool,
    /// Whether there are files whose datafiles are bound to another inode.
    unbound: bool,
}

impl KnownFiles {
    /// All files that have that handle. O(log files).
    pub(super) fn of(&self, logical: u64) -> &[PlacedRecord] {
        let from = self.records.partition_point(|record| record.logical < logical);
        let count = self.records[from..].iter().take_while(|record| record.logical == logical).count();
        &self.records[from..from + count]
    }

    /// Whether some handle cannot be read, or is not of the inode that carries it.
    pub(super) fn has_doubtful(&self) -> bool {
        self.damaged || self.unbound || self.records.iter().any(|record| !record.is_bound())
    }

    /// Whether several inodes have the same handle.
    pub(super) fn has_twins(&self) -> bool {
        self.records.windows(2).any(|pair| pair[0].logical == pair[1].logical)
    }

    /// Adds a file that has got a handle of its own.
    pub(super) fn add(&mut self, handle: &Handle, datafiles: &Datafiles) {
        let gathering = Gathering::default();
        gathering.add(handle, datafiles, handle.real);
        let other = gathering.finish();
        let first_layout = self.layouts.len() as u32;
        for mut record in other.records {
            if record.layout < other.layouts.len() as u32 {
                record.layout += first_layout;
            }
            let at = self.records.partition_point(|known| known.logical < record.logical);
            self.records.insert(at, record);
        }
        self.layouts.extend(other.layouts);
        self.large.extend(other.large);
    }

    /// What datafile `generation` of `logical` on `server` is. O(log files + servers).
    pub(super) fn naming(&self, logical: u64, server: ServerId, generation: u32) -> Naming {
        let Some(record) = self.of(logical).first() else { return Naming::Orphan };
        let listed = |yes| if yes { Naming::Listed } else { Naming::Unlisted };
        match record.layout & !FOREIGN {
            UNKNOWN => Naming::Unknown,
            LARGE => {
                let Some((table, present)) = self.large.get(&logical) else { return Naming::Unknown };
                match table.iter().position(|datafile| *datafile == Datafile { server, generation }) {
                    Some(index) => listed(present.contains(index)),
                    None => Naming::Leftover,
                }
            }
            layout => match self.layouts[layout as usize].iter().position(|other| *other == server) {
                Some(index) if generation == record.generation => listed(record.present & 1 << index != 0),
                _ => Naming::Leftover,
            },
        }
    }
}
