//! Where datafiles lie on an emulated disk, for an observer.

use rustix::fd::AsFd;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::mm::ProtFlags;

use super::disk::DiskConfig;
use super::disk_page::DiskPage;
use super::disk_queue::disk_position;
use super::queue::{DISK_PAGE_AT, QUEUE_FILE};
use crate::os::shared_pages::SharedPage;

/// The addresses of one disk, as its page has them at the time.
pub struct DiskAddresses {
    page: SharedPage<DiskPage>,
    config: DiskConfig,
}

impl DiskAddresses {
    /// Of the server whose directory that is; `None` where it has no page of a disk yet. Some system calls.
    pub fn open(directory: impl AsFd, config: &DiskConfig) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = rustix::fs::openat(directory, QUEUE_FILE, flags, Mode::empty()).ok()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        let end = DISK_PAGE_AT + size_of::<DiskPage>() as u64;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || (stat.st_size as u64) < end {
            return None;
        }
        let page: SharedPage<DiskPage> = SharedPage::map(file.as_fd(), DISK_PAGE_AT, ProtFlags::READ).ok()?;
        page.is_set_up().then_some(Self { page, config: *config })
    }

    /// Where a byte of a datafile ([`datafile_key`](super::datafile_key)) is on the disk; `None` before its first request.
    /// Some loads.
    pub fn of(&self, datafile: u64, offset: u64) -> Option<u64> {
        let number = self.page.place(datafile)?;
        Some(disk_position(&self.config, datafile, offset, |_| Some(number)))
    }
}
