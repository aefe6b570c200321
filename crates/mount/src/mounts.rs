//! What is mounted where: a reader of `/proc/self/mountinfo`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use stripewise_store::Pool;

/// The type under which the kernel lists our mounts.
pub const FS_TYPE: &str = "fuse.stripewise";

/// One line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// The kernel's number of the mount; one that has gone gives it to a later one.
    pub id: u64,
    /// Device number of what is mounted, `major:minor`: the same wherever else that is mounted.
    pub device: String,
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// Type of the file system, `fuse.stripewise` for ours.
    pub fs_type: String,
    /// What is mounted: the pool's name for ours.
    pub source: OsString,
    /// User and group whose mount it is, as FUSE lists them.
    pub owner: Option<(u32, u32)>,
    /// Other users may use it (`allow_other`).
    pub is_for_others: bool,
}

impl MountEntry {
    /// Whether it is a mount of ours.
    pub fn is_ours(&self) -> bool {
        self.fs_type == FS_TYPE
    }

    /// Whether it is one of this pool: its source is the pool's name, or (mounted by mount(8)) its file.
    pub fn is_of(&self, pool: &Pool) -> bool {
        let same_file =
            |other: &Path| other.canonicalize().is_ok_and(|other| pool.file.canonicalize().ok() == Some(other));
        self.is_ours() && (self.source == OsStr::new(&pool.name) || same_file(Path::new(&self.source)))
    }
}

/// What programs see at a path, held without a request to the file system there: it may be one whose server has died.
#[derive(Debug)]
pub struct HeldDirectory {
    fd: OwnedFd,
    /// Its path without links.
    pub path: PathBuf,
}

impl HeldDirectory {
    /// Holds the directory at `path`. What is mounted there is in use, to umount(2), as long as it is held.
    ///
    /// # Errors
    /// There is none, it is no directory, or it lies below a mount whose server has died (`ENOTCONN`).
    pub fn open(path: &Path) -> io::Result<HeldDirectory> {
        let fd = loop {
            match rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
                // As in `is_dead`.
                Err(Errno::CANCELED) => {}
                opened => break opened?,
            }
        };
        let path = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
        Ok(HeldDirectory { fd, path })
    }

    /// A second hold on the same.
    ///
    /// # Errors
    /// Those of dup(2).
    pub fn try_clone(&self) -> io::Result<HeldDirectory> {
        Ok(HeldDirectory { fd: self.fd.try_clone()?, path: self.path.clone() })
    }

    /// The mount whose root this is, if it is one.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn mount(&self) -> io::Result<Option<MountEntry>> {
        let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", self.fd.as_raw_fd()))?;
        let id = about.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
        Ok(table()?.into_iter().find(|entry| Some(entry.id) == id && entry.mount_point == self.path))
    }

    /// Whether the server of the file system here has died. One that lives and does not answer is waited for.
    pub fn is_dead(&self) -> bool {
        loop {
            match rustix::fs::fstatfs(&self.fd) {
                // The server has died while it had our request; or its threads have, and the kernel has not ended the
                // connection yet: each request takes one of what they have left behind (an entry of io_uring), until none is left
                // and the next waits for that end.
                Err(Errno::CONNABORTED | Errno::CANCELED) => {}
                answer => return answer.is_err_and(|errno| errno == Errno::NOTCONN),
            }
        }
    }

    /// A path to what is held, whatever is mounted at its old path by now.
    pub fn held_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }
}

/// The mount that programs see at `dir`, if `dir` is a mount point: the last one mounted there.
///
/// # Errors
/// `/proc` cannot be read.
pub fn mounted_at(dir: &Path) -> io::Result<Option<MountEntry>> {
    Ok(table()?.into_iter().rfind(|entry| entry.mount_point == dir))
}

/// The mount of ours that `path` lies in, by the words of the path alone.
pub fn mount_around(path: &Path) -> Option<MountEntry> {
    let path = std::path::absolute(path).ok()?;
    let around = table().ok()?.into_iter().filter(|entry| entry.is_ours() && path.starts_with(&entry.mount_point));
    around.max_by_key(|entry| entry.mount_point.as_os_str().len())
}

/// All mounts, in the order in which they were made.
///
/// # Errors
/// `/proc` cannot be read.
pub fn table() -> io::Result<Vec<MountEntry>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// A line is `id parent major:minor root mountpoint options [tags…] - type source super-options`.
fn parse(line: &[u8]) -> Option<MountEntry> {
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let mut fields = line.split(|byte| *byte == b' ');
    let id = text(fields.next()?).parse().ok()?;
    let device = text(fields.nth(1)?);
    let mount_point = PathBuf::from(unescape(fields.nth(1)?));
    fields.find(|field| *field == b"-")?;
    let fs_type = text(fields.next()?);
    let source = unescape(fields.next()?);
    let options = text(fields.next().unwrap_or_default());
    let number = |name: &str| options.split(',').find_map(|option| option.strip_prefix(name)?.parse().ok());
    let owner = number("user_id=").zip(number("group_id="));
    let is_for_others = options.split(',').any(|option| option == "allow_other");
    Some(MountEntry { id, device, mount_point, fs_type, source, owner, is_for_others })
}

/// Spaces, tabs, newlines and backslashes are written as `\ooo`.
fn unescape(field: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|digits| first == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        if let Some(digits) = octal {
            plain.push(digits.iter().fold(0u8, |byte, digit| (byte << 3) | (digit - b'0')));
            rest = &tail[3..];
        } else {
            plain.push(first);
            rest = tail;
        }
    }
    OsString::from_vec(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_tags_and_an_escaped_space() {
        let line = br"97 30 0:53 / /data/my\040pool rw,nosuid shared:57 master:2 - fuse.stripewise scratch rw,user_id=7,group_id=8,default_permissions";
        let entry = parse(line).unwrap();
        assert_eq!((entry.id, entry.device.as_str(), entry.owner), (97, "0:53", Some((7, 8))));
        assert_eq!(entry.mount_point, Path::new("/data/my pool"));
        assert_eq!(entry.fs_type, FS_TYPE);
        assert_eq!(entry.source, "scratch");
    }

    #[test]
    fn a_line_without_tags_and_lines_that_are_no_entries() {
        let entry = parse(b"22 28 0:20 / /sys rw,relatime - sysfs sysfs rw").unwrap();
        assert_eq!((entry.mount_point.as_path(), entry.fs_type.as_str()), (Path::new("/sys"), "sysfs"));
        assert_eq!(entry.owner, None);
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"22 28 0:20 / /sys rw,relatime"), None);
    }

    #[test]
    fn the_root_is_a_mount_point_and_a_new_directory_is_not() {
        assert!(mounted_at(Path::new("/")).unwrap().is_some());
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(mounted_at(dir.path()).unwrap(), None);
    }
}
