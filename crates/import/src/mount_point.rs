//! [`MountPoint`]: a file system of the machine that a log is of.

use serde::{Deserialize, Serialize};

/// Where a file system was, and of which type, as the job saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountPoint {
    /// Absolute path.
    pub path: String,
    /// Type, as the kernel names it: `lustre`, `tmpfs`, `dvs`.
    pub kind: String,
}

impl MountPoint {
    /// Of a table of lines: type, tab, path. What is no such line is passed over. O(bytes).
    pub(crate) fn of_lines(table: &[u8]) -> Vec<Self> {
        let text = String::from_utf8_lossy(table.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned();
        let lines = text.lines().filter_map(|line| line.split_once('\t'));
        let known = lines.filter(|(kind, path)| !kind.is_empty() && path.starts_with('/'));
        known.map(|(kind, path)| Self { path: path.to_owned(), kind: kind.to_owned() }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_type_and_path_are_mounts_and_the_rest_is_none() {
        let found =
            MountPoint::of_lines(b"lustre\t/scratch\nrootfs\t/\nno line\n\t/x\ntmpfs\trelative\n\0lustre\t/y\n");
        let found: Vec<(&str, &str)> = found.iter().map(|mount| (&*mount.path, &*mount.kind)).collect();
        assert_eq!(found, [("/scratch", "lustre"), ("/", "rootfs")]);
        assert_eq!(MountPoint::of_lines(b"\xff\xfe"), []);
    }
}
