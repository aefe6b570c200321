//! The time of the last read of a file. The namespace's file system keeps it by its own rules (`relatime`, `noatime`): the
//! store reads the namespace's inode, which holds none of the file's bytes, so that these rules apply.
//!
//! The time has to be right only when a program asks: a read costs a look at the kernel's coarse clock and a store in
//! memory, and only a question or a close goes to the disk. Meanwhile another process may have set the time, which
//! counts for more than a read before it: an inode whose status has changed since the last read is left as it is.

use crate::backend::plane::OpenServer;
use crate::file::inode::{Inode, NEVER};
use crate::os::sync::atomic::Ordering;
use crate::os::sys::{proc_path, retry};
use rustix::fd::{AsFd as _, BorrowedFd};
use rustix::fs::{Mode, OFlags, Stat};

/// Behind what any namespace holds of a file's bytes, and before what file systems refuse (16 TiB): a read there takes
/// nothing into memory.
const BEHIND: u64 = 1 << 40;

/// Enough for times until the year 2262; beyond, none is later than another.
fn nanoseconds(seconds: i64, nanoseconds: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

fn access(stat: &Stat) -> (i64, i64) {
    (stat.st_atime, stat.st_atime_nsec as i64)
}

impl Inode {
    /// From now on what is read of the inode's own bytes moves no time of access but by [`Inode::note_read`]: for an open that is to
    /// move none, as it reads by the descriptor of all opens. At the first call of a file that has bytes in its inode two system
    /// calls. The kernel lets the file's owner and root do so; the reads of others move it.
    pub(crate) fn read_quietly(&self) {
        let has_bytes = || self.known_file().is_ok_and(|file| file.placement().layout.head_in_inode_bytes() > 0);
        if self.is_quiet.load(Ordering::Acquire) || !has_bytes() {
            return;
        }
        let fd = self.reading_descriptor();
        let set = |flags| rustix::fs::fcntl_setfl(fd, flags | OFlags::NOATIME);
        if rustix::fs::fcntl_getfl(fd).and_then(set).is_ok() {
            self.is_quiet.store(true, Ordering::Release);
        }
    }

    /// Notes that a program has read up to byte `end`. No system call. Where all of that is in the inode, that itself was read, and
    /// knows, unless [`Inode::read_quietly`] has told it not to.
    pub fn note_read(&self, end: u64) {
        let is_in_inode = || self.known_file().is_ok_and(|file| end <= file.placement().layout.head_in_inode_bytes());
        if !self.is_quiet.load(Ordering::Acquire) && is_in_inode() {
            return;
        }
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        self.was_read_ns.store(nanoseconds(now.tv_sec, now.tv_nsec as i64), Ordering::Release);
    }

    /// A program has set the time, which counts for more than what was read before.
    pub(crate) fn forget_reads(&self) {
        self.was_read_ns.store(NEVER, Ordering::Release);
    }

    /// Puts what [`Inode::note_read`] noted into the inode; whether there was anything. One load if there was not, else
    /// two system calls.
    pub fn settle_access(&self) -> bool {
        if self.was_read_ns.load(Ordering::Acquire) == NEVER {
            return false;
        }
        let read_ns = self.was_read_ns.swap(NEVER, Ordering::AcqRel);
        // As in the kernel, no read fails because of its time.
        if read_ns != NEVER
            && let Ok(stat) = self.stat()
            && nanoseconds(stat.st_ctime, stat.st_ctime_nsec as i64) < read_ns
        {
            self.touch();
        }
        read_ns != NEVER
    }

    fn touch(&self) {
        let read = |fd: BorrowedFd<'_>| rustix::io::pread(fd, &mut [0_u8; 1], BEHIND);
        if !self.is_quiet.load(Ordering::Acquire) {
            let _ = read(self.descriptor());
            return;
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let fresh = retry(|| rustix::fs::open(proc_path(self.reading_descriptor()), flags, Mode::empty()));
        let _ = fresh.map(|fd| read(fd.as_fd()));
    }

    /// As [`Inode::settle_access`], for reads that were not reported: of the datafiles, by the kernel or by a program
    /// that knows where they are. One system call for the inode, and one for each datafile until one was read more
    /// lately.
    pub fn settle_access_past(&self) {
        if self.known_file().is_ok_and(|file| file.whole_inode().is_some()) {
            self.settle_access();
            return;
        }
        let (Ok(stat), Ok(file)) = (self.stat(), self.file()) else { return };
        let present = file.current_placement().present;
        // A time that is set to the past would else be moved by earlier reads.
        let known = access(&stat).max((stat.st_ctime, stat.st_ctime_nsec as i64));
        let is_newer = |(index, datafile): (usize, &crate::format::placement::Datafile)| {
            present.contains(index)
                && self.store.plane().server(datafile.server).and_then(OpenServer::current).is_ok_and(|backend| {
                    backend.stat(datafile.key(self.handle())).is_ok_and(|found| access(&found) > known)
                })
        };
        if file.datafiles().table.iter().enumerate().any(is_newer) {
            self.touch();
        }
        self.settle_access();
    }
}
