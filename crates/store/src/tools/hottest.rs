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
    /// Size of a block in bytes.
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

impl Store {
    /// The heat of all blocks; looks at no files but those of heat. O(their blocks).
    ///
    /// # Errors
    /// The pool file asks for no heat; its file cannot be read.
    pub fn block_heat(&self) -> Result<BlockHeat> {
        let (table, parts) = self.heat_parts()?;
        let (period_s, next_halving_s) = table.halving();
        Ok(BlockHeat { period_s, next_halving_s, blocks: added_up(parts) })
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
    /// gone, is not believed. One file that cannot be read keeps no other from being known. O(files of the tree).
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
