//! Whether a file is on the file system whose commands would lay it out anew, by the job's table of mounts.

use crate::cluster_file::FileSystem;
use std::path::Path;
use stripewise_import::MountPoint;

/// Directories that no parallel file system is mounted on.
const LOCAL: [&str; 7] = ["/dev", "/proc", "/run", "/sys", "/tmp", "/var", "/usr"];

/// Types of file systems that are a node's own.
const LOCAL_KINDS: [&str; 12] =
    ["btrfs", "devtmpfs", "ext3", "ext4", "overlay", "proc", "ramfs", "rootfs", "squashfs", "sysfs", "tmpfs", "xfs"];

/// Whether `path`, of which nothing else is known, may be on `file_system`: by the mount that it is below, or where the
/// log has no mount above it, by its name. The machine of a log may have no such file system, and its files be looked at
/// as if they were on one: then all may be that are not a node's own. O(mounts).
pub(crate) fn may_be_on(path: &Path, mounts: &[MountPoint], file_system: FileSystem) -> bool {
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.path));
    match above.max_by_key(|mount| mount.path.len()) {
        Some(mount) if mounts.iter().any(|mount| is_of(&mount.kind, file_system)) => is_of(&mount.kind, file_system),
        Some(mount) => !LOCAL_KINDS.contains(&&*mount.kind),
        None => !LOCAL.iter().any(|directory| path.starts_with(directory)),
    }
}

/// Whether an interpreter makes the file anew by itself.
pub(crate) fn is_made_by_tools(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "pyc")
}

fn is_of(kind: &str, file_system: FileSystem) -> bool {
    match file_system {
        FileSystem::Lustre => kind == "lustre",
        FileSystem::BeeGfs => kind.starts_with("beegfs"),
        FileSystem::CephFs => kind.starts_with("ceph") || kind == "fuse.ceph-fuse",
        FileSystem::OrangeFs => kind.starts_with("pvfs2") || kind == "orangefs",
    }
}

/// Whether names were replaced by numbers, as Darshan does on request: then no command can name a file. One such name
/// may be a program's own.
pub(crate) fn are_anonymous<'p>(paths: impl Iterator<Item = &'p Path>) -> bool {
    let is_number = |path: &Path| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        name.len() >= 7 && name.iter().all(u8::is_ascii_digit)
    };
    let mut numbers = paths.map(is_number).peekable();
    numbers.peek().is_some() && numbers.all(|is_number| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(kind: &str, path: &str) -> MountPoint {
        MountPoint { path: path.into(), kind: kind.into() }
    }

    #[test]
    fn the_longest_mount_says_what_a_file_is_on() {
        let mounts = [mount("overlay", "/"), mount("lustre", "/scratch"), mount("tmpfs", "/scratch/me/ram")];
        let on = |path: &str| may_be_on(Path::new(path), &mounts, FileSystem::Lustre);
        assert!(on("/scratch/me/a") && on("/scratch"));
        assert!(!on("/scratch/me/ram/a") && !on("/home/a") && !on("/scratch2/a"));
        // The machine has no BeeGFS: what is not a node's own is looked at as if it were on one.
        let on = |path: &str| may_be_on(Path::new(path), &mounts, FileSystem::BeeGfs);
        assert!(on("/scratch/me/a") && !on("/scratch/me/ram/a") && !on("/home/a"));
    }

    #[test]
    fn without_mounts_directories_of_every_node_are_its_own() {
        let on = |path: &str| may_be_on(Path::new(path), &[], FileSystem::Lustre);
        assert!(on("/lustre/a") && on("a") && on("/tmpfiles/a"));
        assert!(!on("/dev/shm/a") && !on("/tmp/a") && !on("/usr/lib/a.so"));
        assert!(is_made_by_tools(Path::new("/lustre/x/__pycache__/m.pyc")) && !is_made_by_tools(Path::new("m.py")));
    }

    #[test]
    fn names_that_are_all_numbers_were_replaced() {
        let all = |paths: &[&'static str]| are_anonymous(paths.iter().map(|path| Path::new(*path)));
        assert!(all(&["/lus/theta-fs0/3981085427", "2446001947"]));
        assert!(!all(&["/data/3981085427", "/data/out.h5"]) && !all(&["/data/0001"]) && !all(&[]));
    }
}
