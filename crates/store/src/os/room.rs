//! How much room the file system of a server has.

use rustix::fd::{AsFd as _, BorrowedFd};
use rustix::fs::StatVfsMountFlags;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// New files leave out a server with less room than this part of what users can have of its file system, and planners leave it free …
const RESERVED_PART: u64 = 100;
/// … or, where that is more, this many bytes and stripes of the default width, which is a file's share …
const RESERVED_BYTES: u64 = 16 << 20;
const RESERVED_STRIPES: u64 = 4;
/// … but of a small file system no more than this part.
const MOST_RESERVED_PART: u64 = 16;

/// Servers are asked for their room at most this often …
const SHORTEST: Duration = Duration::from_millis(1);
/// … and, when files are made, at least this often.
pub(crate) const LONGEST: Duration = Duration::from_secs(1);
/// No server is taken to fill up faster: how long until the next look depends on it.
const FASTEST_BYTES_PER_S: u64 = 8 << 30;

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

    /// Bytes that are used or that an ordinary user can still write: what a file system keeps for root or for itself is no room of its
    /// users, and may be most of it. 0 where it does not say.
    pub fn usable_bytes(&self) -> u64 {
        let used_bytes = self.total_bytes.saturating_sub(self.free_bytes);
        self.total_bytes.min(used_bytes.saturating_add(self.available_bytes))
    }

    /// Bytes that new files and plans leave free on it, in a pool whose default width is `width_bytes`.
    pub fn reserve_bytes(&self, width_bytes: u64) -> u64 {
        let share = RESERVED_BYTES.max(width_bytes.saturating_mul(RESERVED_STRIPES));
        let usable_bytes = self.usable_bytes();
        (usable_bytes / RESERVED_PART).max(share.min(usable_bytes / MOST_RESERVED_PART))
    }

    /// Bytes that can still be written before only the reserve is left.
    pub fn spare_bytes(&self, width_bytes: u64) -> u64 {
        self.available_bytes.saturating_sub(self.reserve_bytes(width_bytes))
    }
}

/// How long until a server with this many bytes to spare can be full; of one that has none, as long as a look is good at most.
pub(crate) fn until_filled(spare_bytes: u64) -> Duration {
    match spare_bytes {
        0 => LONGEST,
        spare => Duration::from_secs_f64(spare as f64 / FASTEST_BYTES_PER_S as f64).clamp(SHORTEST, LONGEST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(total_bytes: u64, free_bytes: u64, available_bytes: u64) -> Room {
        Room { device: 1, total_bytes, free_bytes, available_bytes, is_read_only: false, has_no_inode: false }
    }

    #[test]
    fn what_a_file_system_keeps_for_root_counts_as_no_room_of_its_users() {
        const GIB: u64 = 1 << 30;
        let kept = room(252 * GIB, 175 * GIB, 15 * GIB);
        assert_eq!(kept.usable_bytes(), 92 * GIB);
        assert_eq!(kept.reserve_bytes(64 << 10), room(92 * GIB, 15 * GIB, 15 * GIB).reserve_bytes(64 << 10));
        assert!(kept.spare_bytes(64 << 10) > 14 * GIB);
        assert_eq!(room(0, u64::MAX, u64::MAX).usable_bytes(), 0, "it does not say");
        assert_eq!(room(100 * GIB, 0, 0).usable_bytes(), 100 * GIB);
    }
}
