//! Small helpers over direct system calls. Nothing here goes through a symbol of libc that the preload intercepts.

use crate::os::error::{Error, Result};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::path::Arg as _;
use std::ffi::{CStr, OsStr};
use std::path::{Path, PathBuf};

/// `f_type` of file systems that one machine has for itself (linux/magic.h): on another, what is put into a mapped file is seen late,
/// and its locks may not be.
const LOCAL: &[u32] = &[
    0x0000_ef53, // ext2, ext3, ext4
    0x0102_1994, // tmpfs
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0xf2f5_2010, // F2FS
    0x2fc1_2fc1, // ZFS
    0xca45_1a4e, // bcachefs
    0x794c_7630, // overlayfs
];

/// Whether one machine has the file system of `file` for itself. One system call.
pub(crate) fn is_local(file: impl AsFd) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| LOCAL.contains(&(found.f_type as u32)))
}

/// `N` random bytes from the kernel.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        // Up to 256 bytes getrandom cannot fail once the kernel's pool is ready, only be interrupted before that.
        if let Ok(count) = rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            filled += count;
        }
    }
    bytes
}

/// Runs a system call again as long as a signal interrupts it.
pub(crate) fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// When a file was read and changed last.
pub(crate) fn times_of(stat: &Stat) -> Timestamps {
    let time = |tv_sec, ns| Timespec { tv_sec, tv_nsec: ns };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec as _),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec as _),
    }
}

/// The name under which an open descriptor can be opened again.
pub(crate) fn proc_path(fd: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// `getxattrat`, which the library does not know; it has this number on all processors.
const SYS_GETXATTRAT: libc::c_long = 464;

/// The argument of `getxattrat` (`struct xattr_args`).
#[repr(C)]
struct XattrArguments {
    value: u64,
    size: u32,
    flags: u32,
}

/// The extended attribute `attribute` of what `dir` (O_PATH, too) has under `name`, of a link itself: its length. Linux 6.13.
pub(crate) fn getxattr_at(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    attribute: &str,
    value: &mut [u8],
) -> rustix::io::Result<usize> {
    let size = u32::try_from(value.len()).unwrap_or(u32::MAX);
    let mut arguments = XattrArguments { value: value.as_mut_ptr() as u64, size, flags: 0 };
    let (dir, flags) = (dir.as_raw_fd(), libc::AT_SYMLINK_NOFOLLOW);
    let bytes = size_of::<XattrArguments>();
    let mut get = |name: &CStr, attribute: &CStr| {
        let (name, attribute) = (name.as_ptr(), attribute.as_ptr());
        // SAFETY: the names end with a zero byte, the arguments have as many bytes as is said, and the kernel writes no more than
        // `size` bytes to `value`.
        let length = unsafe { libc::syscall(SYS_GETXATTRAT, dir, name, flags, attribute, &raw mut arguments, bytes) };
        usize::try_from(length).map_err(|_| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    };
    name.into_with_c_str(|name| attribute.into_with_c_str(|attribute| get(name, attribute)))
}

/// Opens a directory without access to it, as a starting point for names.
pub(crate) fn open_directory(path: &Path) -> rustix::io::Result<OwnedFd> {
    retry(|| rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()))
}

/// Whether the kernel can share pages of an open file. It cannot where the file system keeps none (ENODEV).
pub(crate) fn maps(file: impl AsFd) -> bool {
    const PAGE_BYTES: usize = 4096;
    let (anywhere, read, shared) = (std::ptr::null_mut(), ProtFlags::READ, MapFlags::SHARED);
    // SAFETY: a new mapping, at an address of the kernel's choice.
    match unsafe { rustix::mm::mmap(anywhere, PAGE_BYTES, read, shared, file, 0) } {
        Ok(address) => {
            // SAFETY: just mapped, and used by no other code.
            let _ = unsafe { rustix::mm::munmap(address, PAGE_BYTES) };
            true
        }
        Err(errno) => errno != Errno::NODEV,
    }
}

/// Reads all of an open file, from where it stands; EFBIG above `limit` bytes.
pub(crate) fn read_all(file: impl AsFd, limit: usize) -> rustix::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut chunk = [0; 8192];
    loop {
        match retry(|| rustix::io::read(&file, &mut chunk))? {
            0 => return Ok(out),
            count if out.len() + count > limit => return Err(Errno::FBIG),
            count => out.extend_from_slice(&chunk[..count]),
        }
    }
}

/// Reads the regular file `path` below `dir`; EFBIG above `limit` bytes, EINVAL for what is no regular file. Does not
/// wait, and follows no link at the end of the path.
pub(crate) fn read_file_at(
    dir: impl AsFd,
    path: impl rustix::path::Arg + Copy,
    limit: usize,
) -> rustix::io::Result<Vec<u8>> {
    read_regular(dir, path, OFlags::NOFOLLOW, limit)
}

fn read_regular(
    dir: impl AsFd,
    path: impl rustix::path::Arg + Copy,
    links: OFlags,
    limit: usize,
) -> rustix::io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = retry(|| rustix::fs::openat(&dir, path, flags | links, Mode::empty()))?;
    if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    read_all(file, limit)
}

/// Writes all of `bytes` to an open file, from where it stands.
pub(crate) fn write_all(file: impl AsFd, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        let count = retry(|| rustix::io::write(&file, bytes))?;
        bytes = &bytes[count..];
    }
    Ok(())
}

/// Makes directory `path` and those above it, with `mode` for the last; durably, as far as those above may be read.
pub(crate) fn make_directories(path: &Path, mode: Mode) -> rustix::io::Result<()> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let made = match rustix::fs::mkdir(path, mode) {
        Err(Errno::NOENT) => {
            make_directories(parent, Mode::from_raw_mode(0o755))?;
            rustix::fs::mkdir(path, mode)
        }
        Err(Errno::EXIST) => return open_directory(path).map(drop),
        other => other,
    };
    made.inspect(|()| {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let _ = sync_directory(CWD, parent);
    })
}

/// Makes or opens the directory `path` and gives it `mode`, whatever the umask.
pub(crate) fn make_directory(path: &Path, mode: u32) -> Result<()> {
    let error = || Error::io("make directory", path);
    let mode = Mode::from_raw_mode(mode);
    make_directories(path, mode).map_err(error())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(error())?;
    rustix::fs::fchmod(&fd, mode).map_err(error())
}

/// Sets a user attribute on a directory and removes it.
pub(crate) fn probe_attributes(directory: &Path) -> rustix::io::Result<()> {
    const PROBE: &str = "user.stripewise.probe";
    rustix::fs::setxattr(directory, PROBE, b"1", rustix::fs::XattrFlags::empty())?;
    rustix::fs::removexattr(directory, PROBE)
}

/// Replaces the file `name` in `dir` by one with `bytes`, durably: a reader sees the old content or the new.
pub(crate) fn replace_file(dir: impl AsFd, name: &str, bytes: &[u8], mode: Mode) -> rustix::io::Result<()> {
    let temporary = format!(".{name}.{:016x}", u64::from_ne_bytes(random()));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = made_as_owner(&dir, || rustix::fs::openat(&dir, temporary.as_str(), flags, mode))?;
    // A check that finds the file takes it for forgotten when it is not locked.
    let _ = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
    // Whatever the umask: others of a shared pool read markers, layouts and rules.
    let written = write_all(&file, bytes).and_then(|()| rustix::fs::fchmod(&file, mode));
    let written = written.and_then(|()| rustix::fs::fsync(&file));
    let renamed = written.and_then(|()| rustix::fs::renameat(&dir, temporary.as_str(), &dir, name));
    if renamed.is_err() {
        let _ = rustix::fs::unlinkat(&dir, temporary.as_str(), AtFlags::empty());
    }
    renamed.and_then(|()| sync_directory(&dir, "."))
}

/// Has `make` make something in `directory`. What root makes belongs to the owner of the directory: a pool of one user is of no use to
/// that user with files of root's in it. A thread that acts as another user already ([`AsUser`]) goes on as that one. A system call more,
/// three for root, and nine where the owner is another.
pub(crate) fn made_as_owner<T>(
    directory: impl AsFd,
    make: impl FnMut() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    if !acts_as_root() {
        return retry(make);
    }
    let owner = rustix::fs::fstat(directory)?;
    let _as_owner = (owner.st_uid != 0).then(|| AsUser::become_if_root(owner.st_uid, owner.st_gid));
    retry(make)
}

/// Whether this thread acts on file systems as root. A system call, two for root.
fn acts_as_root() -> bool {
    // SAFETY: with a number that is no user's the call changes nothing, and gives the user that the thread acts as.
    rustix::process::geteuid().is_root() && unsafe { libc::syscall(libc::SYS_setfsuid, u32::MAX) } == 0
}

/// Opens the file `path`. With [`OFlags::CREATE`] it is made where there is none, as by [`made_as_owner`]: three system calls more then.
///
/// # Errors
/// Those of `open`; as root EMLINK for another name of a file that does not belong to the owner of the directory, who may have made it.
pub(crate) fn open_or_make(path: &Path, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match retry(|| rustix::fs::open(path, flags.difference(OFlags::CREATE), mode)) {
        Err(Errno::NOENT) if flags.contains(OFlags::CREATE) => {}
        Ok(file) if rustix::process::geteuid().is_root() => {
            let stat = rustix::fs::fstat(&file)?;
            let is_strange = stat.st_nlink > 1 && rustix::fs::stat(parent)?.st_uid != stat.st_uid;
            return if is_strange { Err(Errno::MLINK) } else { Ok(file) };
        }
        opened => return opened,
    }
    let (directory, name) = (open_directory(parent)?, path.file_name().ok_or(Errno::ISDIR)?);
    made_as_owner(&directory, || rustix::fs::openat(&directory, name, flags, mode))
}

/// [`open_or_make`] of the file `name` in `directory`.
pub(crate) fn open_or_make_at(
    directory: impl AsFd,
    name: &str,
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    let open = |flags| rustix::fs::openat(&directory, name, flags, mode);
    match retry(|| open(flags.difference(OFlags::CREATE))) {
        Err(Errno::NOENT) if flags.contains(OFlags::CREATE) => made_as_owner(&directory, || open(flags)),
        opened => opened,
    }
}

/// Makes the file `path` with `bytes`, durably; EEXIST if there is one. It has its name when it has its bytes, where
/// the file system has files without a name.
pub(crate) fn create_file(path: &Path, bytes: &[u8], mode: Mode) -> rustix::io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let unnamed = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = match retry(|| rustix::fs::open(parent, unnamed, mode)) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let file = retry(|| rustix::fs::open(path, new, mode))?;
            write_all(&file, bytes).and_then(|()| rustix::fs::fsync(&file))?;
            return sync_directory(CWD, parent);
        }
        file => file?,
    };
    write_all(&file, bytes).and_then(|()| rustix::fs::fsync(&file))?;
    let place = proc_path(file.as_fd());
    rustix::fs::linkat(CWD, &place, CWD, path, AtFlags::SYMLINK_FOLLOW)?;
    sync_directory(CWD, parent)
}

/// Makes the names in directory `path` below `dir` durable.
pub(crate) fn sync_directory(dir: impl AsFd, path: impl rustix::path::Arg + Copy) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = retry(|| rustix::fs::openat(&dir, path, flags, Mode::empty()))?;
    retry(|| rustix::fs::fsync(&directory))
}

/// Makes all of the file system durable on which the file `path` below `dir` is.
pub(crate) fn sync_file_system(dir: impl AsFd, path: &str) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = retry(|| rustix::fs::openat(&dir, path, flags, Mode::empty()))?;
    retry(|| rustix::fs::syncfs(&file))
}

/// [`read_file_at`] of a path that a person has named, which may be a link; the path stands in the error.
pub(crate) fn read_file(path: &Path, limit: usize) -> Result<Vec<u8>> {
    read_regular(CWD, path, OFlags::empty(), limit).map_err(Error::io("read", path))
}

/// This thread acts on file systems as another user (or root with another group), until this is dropped; root only.
/// What the kernel then allows is what it allows that user, at the very moment of the call.
#[derive(Debug)]
pub struct AsUser {
    /// What to give back: user, group and supplementary groups; `None` when nothing was changed.
    before: Option<(libc::c_long, libc::c_long, Vec<libc::gid_t>)>,
}

impl AsUser {
    /// Becomes `uid` with `gid` and no other group, if this process is root and user or group is another.
    pub fn become_if_root(uid: u32, gid: u32) -> Self {
        Self::with_groups(uid, gid, &[])
    }

    /// [`AsUser::become_if_root`] with supplementary groups.
    pub fn with_groups(uid: u32, gid: u32, others: &[u32]) -> Self {
        if (uid, gid) == (0, 0) || !rustix::process::geteuid().is_root() {
            return Self { before: None };
        }
        let groups: Vec<libc::gid_t> =
            rustix::process::getgroups().unwrap_or_default().into_iter().map(rustix::process::Gid::as_raw).collect();
        // The system calls themselves: libc's setgroups would change all threads.
        // SAFETY: the list lives through the call; none of these calls touches other memory.
        let (user, group) = unsafe {
            libc::syscall(libc::SYS_setgroups, others.len(), others.as_ptr());
            let group = libc::syscall(libc::SYS_setfsgid, gid);
            (libc::syscall(libc::SYS_setfsuid, uid), group)
        };
        Self { before: Some((user, group, groups)) }
    }
}

impl Drop for AsUser {
    fn drop(&mut self) {
        let Some((user, group, groups)) = &self.before else { return };
        // The user first: with it comes the right to do the rest.
        // SAFETY: as above.
        unsafe {
            libc::syscall(libc::SYS_setfsuid, *user);
            libc::syscall(libc::SYS_setfsgid, *group);
            libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr());
        }
    }
}
