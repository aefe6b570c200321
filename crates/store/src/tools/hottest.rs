//! The heat of files: what accesses to their blocks have cost.

use crate::format::handle::{Handle, read_handle};
use crate::os::error::{Error, Result};
use crate::os::sync::{Mutex, guard};
use crate::os::sys::proc_path;
use crate::pool::heat::disks;
use crate::pool::heat_table::{HeatConfig, HeatPart, HeatTable, parts_of_others};
use crate::pool::namespace::namespace_uuid;
use crate::pool::store::Store;
use crate::tools::walk::{WalkedFile, walk};
use rustix::fd::{AsFd as _, BorrowedFd};
use rustix::fs::Stat;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Blocks that [`Store::heat`] tells of at most, where it finds them in fewer files: plans take time and memory for each.
pub const MOST_BLOCKS: usize = 1 << 17;

/// The heat of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHeat {
    /// Its logical handle, or the number of its inode if it has none.
    pub id: u64,
    /// Its path relative to the tree.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Blocks with heat and what accesses to them have cost in microseconds, in order of offset.
    pub blocks: Vec<(u64, u64)>,
}

/// The heat of a pool's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolHeat {
    /// Size of a block in bytes: that of the pool file times the power of two by which blocks were joined.
    pub block_bytes: u64,
    /// Seconds after which costs are halved.
    pub period_s: u64,
    /// Requests that found no room in the file of heat.
    pub missed: u64,
    /// The files that have heat, in order of their paths.
    pub files: Vec<FileHeat>,
    /// Files that may have heat and cannot be read, and why, in order of their paths.
    pub unreadable: Vec<(PathBuf, String)>,
}

/// The heat of a pool's blocks as the file of heat has it: also of files that are gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockHeat {
    /// Size of a block in bytes.
    pub block_bytes: u64,
    /// Seconds after which costs are halved.
    pub period_s: u64,
    /// When they are halved next, in seconds since the epoch.
    pub next_halving_s: u64,
    /// [`FileHeat::id`], number of the block, and what accesses to it have cost in microseconds.
    pub blocks: Vec<(u64, u64, u64)>,
}

/// File, block, and what accesses to it have cost in microseconds, in that order.
fn added_up(parts: Vec<HeatPart>) -> Vec<(u64, u64, u64)> {
    let of_part = |part: HeatPart| {
        let costs = (part.first_block..).zip(part.costs_us).filter(|(_, cost)| *cost > 0);
        costs.map(move |(block, cost)| (part.file, block, u64::from(cost)))
    };
    let mut blocks: Vec<_> = parts.into_iter().flat_map(of_part).collect();
    // Those of one machine are in order.
    blocks.sort();
    blocks.dedup_by(|other, one| {
        let is_same = (other.0, other.1) == (one.0, one.1);
        one.2 += if is_same { other.2 } else { 0 };
        is_same
    });
    blocks
}

/// Joins neighbouring blocks of `block_bytes` two by two, until at most `most` remain, or one a file; their size then.
/// O(blocks x log of how many lie between the first and the last of a file).
fn joined(files: &mut [FileHeat], mut block_bytes: u64, most: usize) -> u64 {
    let held = |files: &[FileHeat]| files.iter().map(|file| file.blocks.len()).sum::<usize>();
    while held(files) > most.max(files.len()) {
        block_bytes *= 2;
        for file in &mut *files {
            for (block, _) in &mut file.blocks {
                *block /= 2;
            }
            file.blocks.dedup_by(|other, one| {
                let is_same = other.0 == one.0;
                one.1 += if is_same { other.1 } else { 0 };
                is_same
            });
        }
    }
    for file in files {
        file.blocks.shrink_to_fit();
    }
    block_bytes
}

impl Store {
    /// The heat of all blocks; looks at no files but those of heat. O(their blocks).
    ///
    /// # Errors
    /// The pool file asks for no heat; its file cannot be read.
    pub fn block_heat(&self) -> Result<BlockHeat> {
        let (table, parts) = self.heat_parts()?;
        let (period_s, next_halving_s) = table.halving();
        Ok(BlockHeat { block_bytes: table.block_bytes(), period_s, next_halving_s, blocks: added_up(parts) })
    }

    /// The heat that this machine keeps, and the parts of it and of all other machines.
    fn heat_parts(&self) -> Result<(HeatTable, Vec<HeatPart>)> {
        let (table, config) = self.heat_table()?;
        let pool = self.pool();
        let mut parts = table.parts();
        parts.extend(parts_of_others(&pool.namespace, &namespace_uuid(pool)?, config));
        Ok((table, parts))
    }

    fn heat_table(&self) -> Result<(HeatTable, HeatConfig)> {
        let pool = self.pool();
        let config = pool.heat.ok_or_else(|| {
            Error::Invalid(format!(
                "pool '{}' keeps no heat: write a table [heat] into {}, and mount the pool again",
                pool.name,
                pool.file.display()
            ))
        })?;
        let table = HeatTable::open(&pool.namespace, &namespace_uuid(pool)?, config, disks(pool))?;
        table.halve_if_due();
        Ok((table, config))
    }

    /// The heat of the files whose path relative to the tree `wanted` accepts. Heat behind the end of a file, or of a file that is
    /// gone, is not believed. One file that cannot be read keeps no other from being known. Of more than [`MOST_BLOCKS`] blocks
    /// neighbours are joined. O(files of the tree, and blocks with heat log of them).
    ///
    /// # Errors
    /// The pool file asks for no heat; its file or the tree cannot be read.
    pub fn heat(self: &Arc<Self>, wanted: &(dyn Fn(&Path) -> bool + Sync)) -> Result<PoolHeat> {
        let (table, parts) = self.heat_parts()?;
        let (block_bytes, (period_s, _)) = (table.block_bytes(), table.halving());
        let mut known: HashMap<u64, Vec<(u64, u64)>> = HashMap::new();
        for (file, block, cost) in added_up(parts) {
            known.entry(file).or_default().push((block, cost));
        }
        let tree = rustix::io::fcntl_dupfd_cloexec(self.tree(), 0).map_err(Error::io("open", "tree"))?;
        let (files, seen) = (Mutex::new(Vec::new()), Mutex::new(HashSet::new()));
        let unreadable = Mutex::new(Vec::new());
        let visit = |entry: &WalkedFile<'_>| {
            let path = entry.path();
            if !wanted(&path) {
                return Ok(true);
            }
            let Ok(fd) = entry.open() else { return Ok(true) };
            let Ok(stat) = rustix::fs::fstat(&fd) else { return Ok(true) };
            let Ok(handle) = read_handle(&proc_path(fd.as_fd()), stat.st_ino) else { return Ok(true) };
            let id = handle.as_ref().map_or(stat.st_ino, |handle| handle.logical);
            // Another file may have a copy of its handle.
            if let Some(blocks) = known.get(&id)
                && guard(&seen).insert((id, stat.st_ino))
            {
                let size_bytes = match self.size_of_readable(fd.as_fd(), &stat, handle.as_ref()) {
                    Ok(size_bytes) => size_bytes,
                    Err(error) => {
                        guard(&unreadable).push((path, error.to_string()));
                        return Ok(true);
                    }
                };
                let inside = |(block, _): &&(u64, u64)| block.saturating_mul(block_bytes) < size_bytes;
                let blocks: Vec<(u64, u64)> = blocks.iter().filter(inside).copied().collect();
                if !blocks.is_empty() {
                    guard(&files).push(FileHeat { id, path, size_bytes, blocks });
                }
            }
            Ok(true)
        };
        walk(&tree, 2, &visit, &|_, _| ())?;
        let mut files = files.into_inner().unwrap_or_default();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let mut unreadable = unreadable.into_inner().unwrap_or_default();
        unreadable.sort();
        let block_bytes = joined(&mut files, block_bytes, MOST_BLOCKS);
        Ok(PoolHeat { block_bytes, period_s, missed: table.missed(), files, unreadable })
    }

    /// The size in bytes of a file whose layout can be read.
    fn size_of_readable(self: &Arc<Self>, fd: BorrowedFd<'_>, stat: &Stat, handle: Option<&Handle>) -> Result<u64> {
        if let Some(handle) = handle {
            self.layouts.get_for(&handle.layout, stat.st_uid)?;
        }
        Ok(self.attributes(fd, stat, None)?.size_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::{FileHeat, joined};
    use std::path::PathBuf;

    fn file(blocks: &[(u64, u64)]) -> FileHeat {
        FileHeat { id: 1, path: PathBuf::from("of"), size_bytes: 1 << 40, blocks: blocks.to_vec() }
    }

    #[test]
    fn blocks_are_joined_until_they_are_few_or_one_a_file_and_no_cost_is_lost() {
        let blocks = [(0, 1), (1, 2), (2, 4), (7, 8), (1 << 30, 16)];
        let mut files = [file(&blocks), file(&[(5, 32)])];
        assert_eq!((joined(&mut files, 4096, 6), files[0].blocks.len()), (4096, 5));
        assert_eq!(joined(&mut files, 4096, 5), 8192);
        assert_eq!(files[0].blocks, [(0, 3), (1, 4), (3, 8), (1 << 29, 16)]);
        assert_eq!(files[1].blocks, [(2, 32)]);
        assert_eq!(joined(&mut files, 8192, 1), 8192 << 30);
        assert_eq!([&files[0].blocks, &files[1].blocks], [&[(0, 31)], &[(0, 32)]]);
    }
}
