//! How much room the file system of a server has.

use rustix::fd::BorrowedFd;
use rustix::fs::StatVfsMountFlags;

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
}
