//! Errors of mounting, in words for the user.

use std::path::PathBuf;

/// A mount, an unmount or a private run that could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The pool file or one of its directories is not usable.
    #[error("{0}")]
    Store(#[from] stripewise_store::Error),
    /// There is no FUSE on this machine.
    #[error(
        "/dev/fuse does not exist: this kernel or container has no FUSE (try `modprobe fuse`, or start the container with `--device /dev/fuse`)"
    )]
    NoFuse,
    /// FUSE is there, but not for this user.
    #[error(
        "/dev/fuse cannot be opened: {source} (a container needs `--device /dev/fuse`; on a host, the device should have mode 0666)"
    )]
    FuseDenied {
        /// What the kernel said.
        source: std::io::Error,
    },
    /// mount(2) refused.
    #[error("cannot mount on {dir}: {source}{remedy}")]
    Mount {
        /// The mount point.
        dir: PathBuf,
        /// What the kernel or fusermount3 said.
        source: std::io::Error,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The mount point is no directory, or cannot be reached.
    #[error("mount point {dir}: {source} (make it with `mkdir -p {dir}`, or name another directory)")]
    MountPoint {
        /// The mount point.
        dir: PathBuf,
        /// What is wrong with it.
        source: std::io::Error,
    },
    /// The mount point has files in it, which the mount would hide.
    #[error("mount point {dir} is not empty: its files would be hidden (name another directory, or use `-o nonempty`)")]
    NotEmpty {
        /// The mount point.
        dir: PathBuf,
    },
    /// Something of ours is mounted there.
    #[error("a pool named `{pool}` is mounted on {dir} already (`stripewise-mount --unmount {dir}` ends it)")]
    Mounted {
        /// The mount point.
        dir: PathBuf,
        /// Name of the pool mounted there.
        pool: String,
    },
    /// The process of the mount has died, and it is not for this pool or this user to clear it.
    #[error(
        "{dir} is a mount of pool `{pool}` whose process has died{reason} (run `stripewise umount {dir}` as the user who mounted it, or as root)"
    )]
    Dead {
        /// The mount point.
        dir: PathBuf,
        /// Name of the pool that was mounted there.
        pool: String,
        /// Why it was not cleared.
        reason: String,
    },
    /// The process of a mount does not identify itself.
    #[error(
        "{dir}: the process that serves it has not answered in {waited_s} s; it may be stopped, or wait for a server (`--lazy` detaches the mount without asking it)"
    )]
    Silent {
        /// The mount point.
        dir: PathBuf,
        /// How long it was waited for, in seconds.
        waited_s: u64,
    },
    /// What was unmounted goes on being served.
    #[error(
        "{dir} is unmounted, but process {pid}, which served it, has not ended in {waited_s} s: it puts what is left on the servers, or the pool is still mounted in another mount namespace (`grep -l stripewise /proc/*/mounts`); wait for its end before you take servers away"
    )]
    StillServed {
        /// The mount point that was.
        dir: PathBuf,
        /// The process.
        pid: u64,
        /// How long it was waited for, in seconds.
        waited_s: u64,
    },
    /// Nothing is mounted where something should be unmounted.
    #[error("nothing is mounted on {dir} (see `grep stripewise /proc/mounts`)")]
    NotMounted {
        /// The directory named.
        dir: PathBuf,
    },
    /// Unmounting was refused.
    #[error(
        "cannot unmount {dir}: {source} (programs still use it: `fuser -vm {dir}` lists them; `--lazy` detaches it now and ends it when they do)"
    )]
    Unmount {
        /// The mount point.
        dir: PathBuf,
        /// What the kernel or fusermount3 said.
        source: std::io::Error,
    },
    /// No mount namespace can be had.
    #[error(
        "a private mount needs a mount namespace, and this machine does not allow one: {source} (allow user namespaces: sysctl user.max_user_namespaces and, where present, kernel.unprivileged_userns_clone=1 and kernel.apparmor_restrict_unprivileged_userns=0; or mount the pool once with `stripewise-mount POOL`, then no namespace is needed)"
    )]
    NoNamespace {
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A way of calling that mount(8) does not use.
    #[error(
        "unexpected: {word} (as a helper of mount(8), this program is called with POOL.toml DIR [-sfnv] [-o OPTIONS] [-t TYPE])"
    )]
    HelperCall {
        /// What was not expected.
        word: String,
    },
    /// Remounting was refused.
    #[error("cannot change the options of the mount on {dir}: {source}")]
    Remount {
        /// The mount point.
        dir: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A remount changes what the kernel does, and not who may use the mount.
    #[error(
        "the mount on {dir} has the option {}allow_other, and a remount cannot change who may use it: unmount it, and mount it with the \
         other one",
        if *is_for_others { "" } else { "no" }
    )]
    RemountUsers {
        /// The mount point.
        dir: PathBuf,
        /// Users other than its own may use it.
        is_for_others: bool,
    },
    /// The kernel cannot be given what programs write to keep.
    #[error("mount option `writeback_cache`: {reason}")]
    WritebackCache {
        /// Why not, and what to do.
        reason: String,
    },
    /// Times of access that the file system of the names does not move.
    #[error("mount option `strictatime`: {reason}")]
    AccessTimes {
        /// Why not, and what to do.
        reason: String,
    },
    /// An unknown option.
    #[error(
        "mount option `{option}` is not known (ro, nosuid, nodev, noexec, noatime, sync, allow_other, nonempty, nopassthrough, writeback_cache, max_read=BYTES, threads=N, clone_fd, fsname=NAME, remount are)"
    )]
    UnknownOption {
        /// As given.
        option: String,
    },
    /// An option whose value is out of bounds.
    #[error("mount option `{option}`: its value must be a number from {min} to {max}")]
    BadOption {
        /// As given.
        option: String,
        /// Smallest value allowed.
        min: u32,
        /// Largest value allowed.
        max: u32,
    },
    /// A system call that should not fail.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: &'static str,
        /// What the kernel said.
        source: std::io::Error,
    },
}

impl MountError {
    /// Names what was being done when a system call failed.
    pub(crate) fn system<E: Into<std::io::Error>>(what: &'static str) -> impl FnOnce(E) -> MountError {
        move |source| MountError::System { what, source: source.into() }
    }
}
