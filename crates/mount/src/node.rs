//! One inode of the namespace, and what all opens of it share.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, Stat, Statx, StatxFlags, StatxTimestamp, makedev};
use rustix::io::Errno;
use stripewise_fuse::BackingId;
use stripewise_store::hints::DirectoryHints;
use stripewise_store::{Inode, Slot};

use crate::lock;
use crate::shares::{Holders, UserShare};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// One inode of the namespace that the kernel holds references to.
#[derive(Debug)]
pub struct Node {
    /// The number the kernel and programs see.
    pub ino: u64,
    /// `O_PATH | O_NOFOLLOW` descriptor of the inode.
    pub fd: OwnedFd,
    /// Kind of file; an inode never changes it.
    pub kind: FileType,
    /// What all opens of this inode share; present while it is open.
    pub shared: Mutex<Option<Arc<SharedFile>>>,
    handle: Mutex<KnownHandle>,
    /// Of a directory, what it gave last to what was made in it.
    pub directory: Mutex<Option<Arc<KnownDirectory>>>,
    /// What the kernel keeps of its bytes counts from this value of the file's epoch counter on; see [`Node::keeps_pages_of`].
    pages: AtomicU64,
    /// Until when the kernel believes its attributes, in milliseconds of the coarse monotonic clock; see [`Node::told`].
    told_until_ms: AtomicU64,
    /// What it counts for the user who looked it up first.
    pub found_by: OnceLock<UserShare>,
}

/// What is known of a file without asking for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownFile {
    /// Logical handle; `None` of a file that has none.
    pub logical: Option<u64>,
    /// It has no datafile: its inode knows its size and time.
    pub is_alone: bool,
    /// Value of the file's epoch counter before the handle was read: as long as it has it, no process of this machine has
    /// changed the handle. `None` where that is not known, and in pools of several users.
    pub epoch: Option<u32>,
}

/// What a directory gives to what is made in it.
#[derive(Debug)]
pub struct KnownDirectory {
    /// It hands an access control list down.
    pub has_default_acl: bool,
    /// Its hints.
    pub hints: DirectoryHints,
    /// Value of its counter before it was asked.
    epoch: u32,
    /// As late as that is noticed what another machine changes.
    until: Instant,
}

impl KnownDirectory {
    /// What was found just now, after its counter was `epoch`.
    pub fn new(has_default_acl: bool, hints: DirectoryHints, epoch: u32) -> KnownDirectory {
        KnownDirectory { has_default_acl, hints, epoch, until: Instant::now() + UNSURE }
    }

    /// Whether it still holds when the counter is `epoch`.
    pub fn holds(&self, epoch: u32) -> bool {
        self.epoch == epoch && Instant::now() < self.until
    }
}

/// What was read of a node's handle.
#[derive(Debug, Default)]
struct KnownHandle {
    /// As it was read last; `None` before.
    file: Option<KnownFile>,
    /// The time of status that the inode had before it was read.
    at: Option<StatusTime>,
    /// Until when the same time of status says that nothing has changed: without end, if nothing can have changed it since
    /// without moving that.
    until: Option<Instant>,
}

type StatusTime = (i64, i64);

fn status_time(stat: &Stat) -> StatusTime {
    (stat.st_ctime, stat.st_ctime_nsec as i64)
}

/// What `fstat` says where `statx` has found `found`.
fn stat_of(found: &Statx) -> Stat {
    // SAFETY: a `Stat` is made of integers alone, for which zero is a value.
    let mut stat: Stat = unsafe { std::mem::zeroed() };
    stat.st_dev = makedev(found.stx_dev_major, found.stx_dev_minor);
    stat.st_ino = found.stx_ino;
    stat.st_mode = found.stx_mode.into();
    stat.st_nlink = found.stx_nlink as _;
    stat.st_uid = found.stx_uid;
    stat.st_gid = found.stx_gid;
    stat.st_rdev = makedev(found.stx_rdev_major, found.stx_rdev_minor);
    stat.st_size = found.stx_size as _;
    stat.st_blksize = found.stx_blksize as _;
    stat.st_blocks = found.stx_blocks as _;
    stat.st_atime = found.stx_atime.tv_sec;
    stat.st_atime_nsec = found.stx_atime.tv_nsec as _;
    stat.st_mtime = found.stx_mtime.tv_sec;
    stat.st_mtime_nsec = found.stx_mtime.tv_nsec as _;
    stat.st_ctime = found.stx_ctime.tv_sec;
    stat.st_ctime_nsec = found.stx_ctime.tv_nsec as _;
    stat
}

/// What the kernel believes for no longer is about to run out: a program that lists may look at the entries within this time.
const SOON: Duration = Duration::from_millis(250);

/// Milliseconds of the coarse monotonic clock. No system call.
pub fn coarse_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    now.tv_sec.cast_unsigned() * 1000 + now.tv_nsec.cast_unsigned() / 1_000_000
}

/// A value of a counter is known.
const HAS_PAGES: u64 = 1 << 32;

/// Changes within this time may share one timestamp.
const UNSURE_S: i64 = 1;
const UNSURE: Duration = Duration::from_secs(UNSURE_S as u64);

/// Whether nothing can change the inode any more without moving its time of status.
pub fn is_settled(stat: &Stat) -> bool {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    stat.st_ctime < now.tv_sec - UNSURE_S
}

impl Node {
    /// A node that nothing has open.
    pub fn new(ino: u64, fd: OwnedFd, stat: &Stat) -> Node {
        let kind = FileType::from_raw_mode(stat.st_mode);
        Node {
            ino,
            fd,
            kind,
            shared: Mutex::new(None),
            handle: Mutex::default(),
            directory: Mutex::default(),
            pages: AtomicU64::new(0),
            told_until_ms: AtomicU64::new(0),
            found_by: OnceLock::new(),
        }
    }

    /// Attributes as the namespace has them. One system call.
    pub fn stat(&self) -> Result<Stat, Errno> {
        rustix::fs::fstat(&self.fd)
    }

    /// The same, and when the inode was made, if the namespace's file system knows. One system call.
    pub fn stat_with_birth(&self) -> Result<(Stat, Option<StatxTimestamp>), Errno> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let found = rustix::fs::statx(&self.fd, c"", AtFlags::EMPTY_PATH, wanted)?;
        let is_known = found.stx_mask & StatxFlags::BTIME.bits() != 0;
        Ok((stat_of(&found), is_known.then_some(found.stx_btime)))
    }

    /// Whether all that the kernel keeps of its bytes was read since the file's epoch counter has the value `epoch`.
    pub fn keeps_pages_of(&self, epoch: u32) -> bool {
        self.pages.load(Ordering::Acquire) == HAS_PAGES | u64::from(epoch)
    }

    /// The kernel reads for an open file to which it was told that older pages than of `epoch` do not count: they are gone now.
    pub fn has_pages_of(&self, epoch: u32) {
        self.pages.store(HAS_PAGES | u64::from(epoch), Ordering::Release);
    }

    /// The kernel is told its attributes, which it believes for `holds`. No system call.
    pub fn told(&self, holds: Duration) {
        let until_ms = if holds > SOON { coarse_ms() + holds.as_millis() as u64 } else { 0 };
        self.told_until_ms.store(until_ms, Ordering::Relaxed);
    }

    /// The kernel may ask for its attributes anew: they change, or it was made to forget them.
    pub fn untold(&self) {
        self.told_until_ms.store(0, Ordering::Relaxed);
    }

    /// Whether the kernel has its attributes at `now_ms` of [`coarse_ms`], and believes them for a while. A guess that costs requests
    /// where it is wrong, and nothing else: the kernel asks for what it does not have.
    pub fn is_told(&self, now_ms: u64) -> bool {
        self.told_until_ms.load(Ordering::Relaxed) > now_ms + SOON.as_millis() as u64
    }

    /// Notes what the handle says of the file, which was read after `stat` was.
    pub fn know_handle(&self, file: KnownFile, stat: &Stat) {
        // What another machine does within the same time of status is noticed as late as names that go.
        let until = if is_settled(stat) { None } else { Some(Instant::now() + UNSURE) };
        *lock(&self.handle) = KnownHandle { file: Some(file), at: Some(status_time(stat)), until };
    }

    /// What is known of the file if nothing has changed it: as the inode is as it was when that was read, and where its time of
    /// status does not tell, its counter by `epoch`. Where `is_local`, that no other machine can change anything, the counter alone
    /// says so: a rename and a change of mode move the time of status, too.
    pub fn handle_in(&self, stat: &Stat, is_local: bool, epoch: impl FnOnce(u64) -> u32) -> Option<KnownFile> {
        let known = lock(&self.handle);
        let file = known.file?;
        let is_as_it_was = known.at == Some(status_time(stat));
        if is_as_it_was && known.until.is_none() {
            return Some(file);
        }
        let is_same = || file.logical.zip(file.epoch).is_some_and(|(logical, before)| before == epoch(logical));
        let counts = is_local || (is_as_it_was && known.until.is_some_and(|until| Instant::now() < until));
        (counts && is_same()).then_some(file)
    }

    /// The logical handle of the file, if it has one and that was read before. A file keeps it, but a user can exchange it: it
    /// says where to look, and not whose a thing is.
    pub fn handle(&self) -> Option<u64> {
        lock(&self.handle).file.and_then(|file| file.logical)
    }

    /// True for a regular file: the only kind that has a layout.
    pub fn is_file(&self) -> bool {
        self.kind == FileType::RegularFile
    }
}

/// A file by which the kernel reads and writes without asking us, until this is dropped.
#[derive(Debug)]
pub enum Backing {
    /// The kernel's.
    Kernel(BackingId),
    /// Of a schedule, which counts those that there are.
    #[cfg(feature = "shuttle")]
    Counted(Arc<()>),
}

/// What all opens of one inode share.
#[derive(Debug)]
pub struct SharedFile {
    /// The file.
    pub file: Arc<Inode>,
    /// By which the kernel reads and writes without asking us: the inode or the datafile that has all of the file's bytes. All
    /// opens of one inode have to use the same one.
    pub backing: Option<Backing>,
    /// Of a file with a backing: `true` as long as it is registered as written, so that its layout stays.
    pub pinned: AtomicBool,
    /// Opens on this mount; changed only under the node's lock.
    pub opens: AtomicUsize,
    /// Those of them that may write.
    pub writable: AtomicUsize,
    /// Those of them by which a program is being run.
    pub running: AtomicUsize,
    /// Those of them that are registered as writers.
    pub writers: AtomicUsize,
    /// A program that may write the file has been told where its bytes are.
    pub grows_past_the_mount: AtomicBool,
    /// How it lost its last name, through this mount, while it was open.
    pub lost_name: Mutex<Option<LostName>>,
    /// The kernel has pages of the file (a program maps it, or splices from it), so no program may go past the
    /// mount until the last close.
    pub mapped: AtomicBool,
    /// The file may have capabilities (`security.capability`), which the first write has to take.
    pub may_have_capabilities: AtomicBool,
    /// The users who have it open.
    pub holders: Arc<Holders>,
}

/// How a file lost its last name.
#[derive(Debug)]
pub struct LostName {
    /// The directory that had it.
    pub directory: Arc<Node>,
    /// Where the journal of removals says so.
    pub noted: Option<Slot>,
}

impl SharedFile {
    /// Whether a program has it open for writing.
    pub fn is_open_for_writing(&self) -> bool {
        self.writable.load(Ordering::Acquire) > 0
    }

    /// Notes that the kernel has pages of this file. One load when that is known already. Pages of a backing file are
    /// the datafile's own, the same for all opens.
    pub fn set_mapped(&self) {
        if self.backing.is_none() && !self.mapped.load(Ordering::Acquire) && !self.mapped.swap(true, Ordering::AcqRel) {
            self.file.bump_epoch();
        }
    }
}

const FDS: &[u8] = b"/proc/self/fd/";

/// The name of a descriptor in `/proc/self/fd`, without an allocation.
#[derive(Clone, Copy, Debug)]
pub struct ProcName {
    path: [u8; FDS.len() + 11],
}

impl ProcName {
    /// The name of `fd`.
    pub fn new(fd: BorrowedFd<'_>) -> ProcName {
        let mut digits = [0; 10];
        let mut start = digits.len();
        let mut number = fd.as_raw_fd() as u32;
        loop {
            start -= 1;
            digits[start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        let digits = &digits[start..];
        let mut name = ProcName { path: [0; FDS.len() + 11] };
        name.path[..FDS.len()].copy_from_slice(FDS);
        name.path[FDS.len()..FDS.len() + digits.len()].copy_from_slice(digits);
        name
    }

    /// The number alone: the name below `/proc/self/fd`.
    pub fn number(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.path[FDS.len()..]).expect("a number has at most 10 of the 11 bytes")
    }

    /// The whole path.
    pub fn path(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.path).expect("a number has at most 10 of the 11 bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_calls_tell_the_same_of_an_inode() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![1; 10_000]).unwrap();
        for path in [file.path(), std::path::Path::new("/dev/null"), std::path::Path::new("/proc/self")] {
            let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::NOFOLLOW;
            let fd = rustix::fs::open(path, flags, rustix::fs::Mode::empty()).unwrap();
            let stat = rustix::fs::fstat(&fd).unwrap();
            let (found, _) = Node::new(1, fd, &stat).stat_with_birth().unwrap();
            assert_eq!(format!("{found:?}"), format!("{stat:?}"), "{}", path.display());
        }
    }

    #[test]
    fn names_of_descriptors_are_decimal() {
        // SAFETY: the descriptors are only numbers here; nothing is done with them.
        let name = |fd| unsafe { ProcName::new(BorrowedFd::borrow_raw(fd)) };
        assert_eq!(name(0).number(), c"0");
        assert_eq!(name(1048576).number(), c"1048576");
        assert_eq!(name(i32::MAX).path(), c"/proc/self/fd/2147483647");
    }
}
