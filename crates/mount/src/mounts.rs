//! What is mounted where: a reader of `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The type under which the kernel lists our mounts.
pub const FS_TYPE: &str = "fuse.stripewise";

/// One line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// Type of the file system, `fuse.stripewise` for ours.
    pub fs_type: String,
    /// What is mounted: the pool's name for ours.
    pub source: OsString,
}

/// The mount that programs see at `dir`, if `dir` is a mount point: the last one mounted there.
///
/// # Errors
/// `/proc` cannot be read.
pub fn mounted_at(dir: &Path) -> io::Result<Option<MountEntry>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(parse).rfind(|entry| entry.mount_point == dir))
}

/// A line is `id parent major:minor root mountpoint options [tags…] - type source super-options`.
fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mount_point = PathBuf::from(unescape(fields.nth(4)?));
    fields.find(|field| *field == b"-")?;
    let fs_type = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = unescape(fields.next()?);
    Some(MountEntry { mount_point, fs_type, source })
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
        let line =
            br"97 30 0:53 / /data/my\040pool rw,nosuid shared:57 master:2 - fuse.stripewise scratch rw,user_id=0";
        let entry = parse(line).unwrap();
        assert_eq!(entry.mount_point, Path::new("/data/my pool"));
        assert_eq!(entry.fs_type, FS_TYPE);
        assert_eq!(entry.source, "scratch");
    }

    #[test]
    fn a_line_without_tags_and_lines_that_are_no_entries() {
        let entry = parse(b"22 28 0:20 / /sys rw,relatime - sysfs sysfs rw").unwrap();
        assert_eq!((entry.mount_point.as_path(), entry.fs_type.as_str()), (Path::new("/sys"), "sysfs"));
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
