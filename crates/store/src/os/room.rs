//! How much room the file system of a server has.

use rustix::fd::{AsFd as _, BorrowedFd};
use rustix::fs::StatVfsMountFlags;
use std::fs::File;
use std::path::Path;

/// New files leave out a server with less room than this part of its file system, and planners leave it free …
const RESERVED_PART: u64 = 100;
/// … or, where that is more, this many bytes and stripes of the default width, which is a file's share …
const RESERVED_BYTES: u64 = 16 << 20;
const RESERVED_STRIPES: u64 = 4;
/// … but of a small file system no more than this part.
const MOST_RESERVED_PART: u64 = 16;

/// What a server's file system has. One without sizes (`statvfs` says 0 blocks) is taken to have room without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Its device. Servers on one device share its room.
    pub device: u64,
    /// Bytes in all; 0 where it does not say.
    pub total_bytes: u64,
    /// Bytes that are free, for root at least; 0 where it is read-only.
    pub free_bytes: u64,
    /// Bytes that an ordinary user can still write; 0 where it is read-only.
    pub available_bytes: u64,
    /// Whether it is read-only.
    pub is_read_only: bool,
    /// Whether it can hold no more files, however small.
    pub has_no_inode: bool,
}

impl Room {
    /// The room of the file system that `directory` is on. Two system calls.
    pub(crate) fn of(directory: BorrowedFd<'_>) -> rustix::io::Result<Self> {
        let (stat, space) = (rustix::fs::fstat(directory)?, rustix::fs::fstatvfs(directory)?);
        let is_read_only = space.f_flag.contains(StatVfsMountFlags::RDONLY);
        let bytes = |blocks: u64| if is_read_only { 0 } else { blocks.saturating_mul(space.f_frsize) };
        let is_known = space.f_blocks > 0;
        let used_blocks = space.f_blocks.saturating_sub(space.f_bfree);
        // What a read-only file system has free counts as nothing.
        let total_blocks = if is_read_only { used_blocks } else { space.f_blocks };
        Ok(Self {
            device: stat.st_dev,
            total_bytes: total_blocks.saturating_mul(space.f_frsize),
            free_bytes: if is_known { bytes(space.f_bfree) } else { u64::MAX },
            available_bytes: if is_known || is_read_only { bytes(space.f_bavail) } else { u64::MAX },
            is_read_only,
            has_no_inode: space.f_files > 0 && space.f_favail == 0,
        })
    }

    /// The room of the file system that the directory `path` is on.
    ///
    /// # Errors
    /// It cannot be opened, or its file system does not answer.
    pub fn at(path: &Path) -> std::io::Result<Self> {
        Ok(Self::of(File::open(path)?.as_fd())?)
    }

    /// Bytes that new files and plans leave free on it, in a pool whose default width is `width_bytes`.
    pub fn reserve_bytes(&self, width_bytes: u64) -> u64 {
        let share = RESERVED_BYTES.max(width_bytes.saturating_mul(RESERVED_STRIPES));
        (self.total_bytes / RESERVED_PART).max(share.min(self.total_bytes / MOST_RESERVED_PART))
    }

    /// Bytes that can still be written before only the reserve is left.
    pub fn spare_bytes(&self, width_bytes: u64) -> u64 {
        self.available_bytes.saturating_sub(self.reserve_bytes(width_bytes))
    }
}
