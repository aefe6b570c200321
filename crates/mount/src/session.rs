//! Mounting and serving.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use stripewise_control::Door;
use stripewise_fuse::{FuseDevice, Notifier, Session, SessionOptions, escaped, mount_by_helper};
use stripewise_store::PlaneOptions;
use stripewise_store::{Pool, Store};

use crate::core::Core;
use crate::error::MountError;
use crate::fs::PoolFs;
use crate::log;
use crate::mounts::{FS_TYPE, HeldDirectory, MountEntry, mount_around, mounted_at};
use crate::options::MountOptions;
use crate::unmount::detach_dead;

/// How often a remount that is refused as busy is tried again.
const REMOUNT_TRIES: usize = 100;
const REMOUNT_PAUSE: Duration = Duration::from_millis(20);
/// How long is waited at most until all threads serve a mount, and it has asked itself: that takes milliseconds, but for programs that
/// keep the threads waiting.
const MOST_OF_BEGIN: Duration = Duration::from_secs(1);
/// Set by tests: with `1` requests travel by the device where they would by `io_uring`, and with `0` the mount fails where they
/// would travel by the device.
const DEVICE_ALONE: &str = "STRIPEWISE_FUSE_DEVICE";

/// A pool being served on a mount point.
#[derive(Debug)]
pub struct Serving {
    core: Arc<Core>,
    dir: PathBuf,
    threads: Option<JoinHandle<io::Result<()>>>,
    /// Its other end closes with the last thread that serves.
    end: io::PipeReader,
}

impl Serving {
    /// Mounts `pool` on `dir` and starts the threads that serve it; returns when the mount is there. Requests on the bytes
    /// of files go through `door`.
    ///
    /// # Errors
    /// Those of [`MountError`] that concern the pool, FUSE and the mount point.
    pub fn start(pool: Pool, dir: &Path, options: &MountOptions, door: Door) -> Result<Serving, MountError> {
        let dir = check_mount_point(&pool, dir, options)?;
        if options.writeback_cache && !is_root_of_the_machine() {
            let reason = "the kernel writes back as root, whom only root's mount serves: mount it as root".to_owned();
            return Err(MountError::WritebackCache { reason });
        }
        raise_open_files();
        respect_quotas();
        // The kernel has applied the program's umask; ours must not be applied again.
        rustix::process::umask(rustix::fs::Mode::empty());
        let source = options.source.clone().unwrap_or_else(|| pool.name.clone().into());
        let threads = options.threads.unwrap_or_else(|| default_threads(&pool));
        let store = Store::open_with(pool, PlaneOptions { door, ..PlaneOptions::default() })?;
        if options.flags.contains(MountFlags::STRICTATIME) && !moves_access_times(store.tree())? {
            let namespace = store.pool().namespace.display();
            let reason = format!(
                "times of access move by the rules of the file system of {namespace}, which moves them at times only (as \
                 root, `mount -o remount,strictatime` of that file system, or leave the option out)"
            );
            return Err(MountError::AccessTimes { reason });
        }
        let core = Arc::new(Core::new(store, options)?);
        let removals = Arc::downgrade(&core.removals);
        core.store.set_room_maker(move || removals.upgrade().is_some_and(|removals| removals.make_room()));
        // What the other mounts' kernels were told before they knew of us must not outlive our first change.
        core.neighbours.wait_for_others();
        let fs = Arc::new(PoolFs::new(core.clone()));
        let device = mount_on(&dir, &source, options)?;
        // The kernel itself keeps out users without allow_other, and checks permissions of every file. Where it lets root in,
        // the mount of a user does not.
        let only =
            if is_direct(options) || options.allow_other { None } else { Some(rustix::process::geteuid().as_raw()) };
        let most_descriptors = core.table.room.for_transports();
        let by_ring = !is_device_alone("1");
        let served = SessionOptions { threads, clone_fd: options.clone_fd, by_ring, most_descriptors, only };
        let session = begin(&fs, device, served).inspect_err(|_| detach(&dir))?;
        core.set_travel(session.travel().clone());
        let notifier = Notifier::new(session.device().clone());
        core.set_notifier(notifier.clone());
        core.linger.watch(session.device().as_fd());
        // A read-only mount removes nothing.
        if !options.flags.contains(MountFlags::RDONLY) {
            core.collect_interrupted();
        }
        crate::newcomers::start(&core, notifier.clone()).map_err(MountError::system("starting a thread"))?;
        crate::prune::start(&core, notifier).map_err(MountError::system("starting a thread"))?;
        let (end, open) = io::pipe().map_err(MountError::system("making a pipe"))?;
        let (mount_point, (begun, has_begun)) = (dir.clone(), mpsc::channel());
        let serve = move || {
            let _open = open;
            // It may have been waited for long enough.
            session.run(&fs, &mount_point, move || {
                let _ = begun.send(());
            })
        };
        let threads = std::thread::Builder::new().name("serve".to_owned()).spawn(serve);
        let threads = threads.map_err(MountError::system("starting a thread"))?;
        // Where programs keep all threads waiting, the mount is there all the same.
        let _ = has_begun.recv_timeout(MOST_OF_BEGIN);
        Ok(Serving { core, dir, threads: Some(threads), end })
    }

    /// What `poll` says of it is that the mount has ended: it was unmounted.
    pub fn end(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    /// Files that programs hold open on this mount.
    pub fn open_files(&self) -> usize {
        self.core.open_files()
    }

    /// Takes the mount out of the tree of names. Programs that hold files open go on being served.
    pub fn detach(&self) {
        detach(&self.dir);
    }

    /// Waits until the mount has ended and puts sizes and times of what was still open.
    ///
    /// # Errors
    /// What made the threads end other than an unmount.
    pub fn wait(mut self) -> Result<(), MountError> {
        let Some(threads) = self.threads.take() else { return Ok(()) };
        let result = threads.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the mount panicked")));
        self.core.finish();
        result.map_err(MountError::system("serving the mount"))
    }

    /// Ends the mount now: puts sizes and times of what is still open and detaches.
    pub fn stop(self) {
        self.core.finish();
        detach(&self.dir);
    }
}

fn is_device_alone(value: &str) -> bool {
    std::env::var_os(DEVICE_ALONE).is_some_and(|given| given == value)
}

/// Begins to serve the mount behind `device`.
fn begin(fs: &PoolFs, device: FuseDevice, options: SessionOptions) -> Result<Session, MountError> {
    let failed = MountError::system("starting FUSE");
    let session = match Session::begin(device, options, |kernel| fs.negotiate(kernel)) {
        Ok(session) => session,
        Err(error) => return Err(failed(error)),
    };
    let travel = session.travel();
    if is_device_alone("0") && !travel.is_by_ring() {
        let reason = format!("requests would travel by {travel}, and {DEVICE_ALONE}=0 forbids that");
        return Err(failed(io::Error::new(io::ErrorKind::Unsupported, reason)));
    }
    Ok(session)
}

/// Root, and not in a user namespace of an unprivileged user's.
fn is_root_of_the_machine() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    rustix::process::geteuid().is_root() && map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Whether each read of a file on the file system of `place` moves its time of access.
fn moves_access_times(place: impl AsFd) -> Result<bool, MountError> {
    let found = rustix::fs::fstatvfs(place).map_err(MountError::system("asking for the options of a file system"))?;
    Ok(!found.f_flag.intersects(StatVfsMountFlags::NOATIME | StatVfsMountFlags::RELATIME))
}

/// A thread waits for the servers of its request, so that there have to be enough for all servers to have work. An
/// emulated server's wait is all there is to it: as many as a job may have processes.
fn default_threads(pool: &Pool) -> usize {
    if pool.servers.iter().any(|server| server.emulate.is_some()) {
        return 64;
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    processors.max(4 * pool.servers.len()).clamp(8, 64)
}

/// Checks that `dir` is a directory on which this pool can be mounted; its path without links. A mount of this pool
/// whose process has died is taken away first.
fn check_mount_point(pool: &Pool, dir: &Path, options: &MountOptions) -> Result<PathBuf, MountError> {
    let wrong = |source| MountError::MountPoint { dir: dir.to_owned(), source };
    loop {
        let place = match HeldDirectory::open(dir) {
            Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
                return Err(mount_around(dir).map_or_else(|| wrong(error), |entry| dead(&entry, "")));
            }
            place => place.map_err(wrong)?,
        };
        if let Some(entry) = place.mount().map_err(wrong)?.filter(MountEntry::is_ours) {
            if !place.is_dead() {
                let pool = entry.source.to_string_lossy().into_owned();
                return Err(MountError::Mounted { dir: place.path, pool });
            }
            if !entry.is_of(pool) {
                return Err(dead(&entry, ", and which is another pool"));
            }
            match detach_dead(place) {
                Ok(()) if options.own_namespace => {}
                Ok(()) => {
                    let (pool, dir) = (entry.source.to_string_lossy(), entry.mount_point.display());
                    log::error(&format!("cleared the mount of pool `{pool}` on {dir}: its process had died"));
                }
                Err(_) if options.own_namespace => return Ok(entry.mount_point),
                Err(error) => return Err(dead(&entry, &format!(": {error}"))),
            }
            continue;
        }
        let mut entries = std::fs::read_dir(&place.path).map_err(wrong)?;
        if !options.nonempty && entries.next().is_some() {
            return Err(MountError::NotEmpty { dir: place.path });
        }
        return Ok(place.path);
    }
}

fn dead(entry: &MountEntry, reason: &str) -> MountError {
    let pool = entry.source.to_string_lossy().into_owned();
    MountError::Dead { dir: entry.mount_point.clone(), pool, reason: reason.to_owned() }
}

/// Whether this process mounts by itself, and not by a program that may.
fn is_direct(options: &MountOptions) -> bool {
    rustix::process::geteuid().is_root() || options.own_namespace
}

/// Mounts on `dir`; the connection.
fn mount_on(dir: &Path, source: &OsStr, options: &MountOptions) -> Result<FuseDevice, MountError> {
    let device = open_fuse()?;
    if is_direct(options) {
        mount_direct(&device, dir, source, options)?;
        return Ok(device);
    }
    mount_by_helper(dir, &helper_options(source, options)).map_err(|source| MountError::Mount {
        dir: dir.to_owned(),
        source,
        remedy: " (without root this needs fusermount3, of the package fuse3, set-user-id root)",
    })
}

fn open_fuse() -> Result<FuseDevice, MountError> {
    FuseDevice::open().map_err(|source| match source.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => MountError::NoFuse,
        _ => MountError::FuseDenied { source },
    })
}

fn mount_direct(device: &FuseDevice, dir: &Path, source: &OsStr, options: &MountOptions) -> Result<(), MountError> {
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_fd().as_raw_fd(),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw()
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    if let Some(bytes) = options.max_read_bytes {
        data.push_str(&format!(",max_read={bytes}"));
    }
    let data = CString::new(data).expect("made of numbers and names");
    rustix::mount::mount(source, dir, FS_TYPE, options.flags, data.as_c_str()).map_err(|errno| {
        let remedy = match errno {
            Errno::PERM => " (mounting needs CAP_SYS_ADMIN: in a container, `--cap-add SYS_ADMIN`)",
            Errno::NODEV => " (this kernel has no FUSE: try `modprobe fuse`)",
            Errno::BUSY => " (something else is mounted there)",
            _ => "",
        };
        MountError::Mount { dir: dir.to_owned(), source: errno.into(), remedy }
    })
}

/// The same options in the words of fusermount3.
fn helper_options(source: &OsStr, options: &MountOptions) -> Vec<String> {
    let name = format!("fsname={}", escaped(source));
    let mut list = vec![name, "subtype=stripewise".to_owned(), "default_permissions".to_owned()];
    for (flag, option) in [
        (MountFlags::RDONLY, "ro"),
        (MountFlags::NOEXEC, "noexec"),
        (MountFlags::NOATIME, "noatime"),
        (MountFlags::SYNCHRONOUS, "sync"),
        (MountFlags::DIRSYNC, "dirsync"),
    ] {
        if options.flags.contains(flag) {
            list.push(option.to_owned());
        }
    }
    if let Some(bytes) = options.max_read_bytes {
        list.push(format!("max_read={bytes}"));
    }
    if options.allow_other {
        list.push("allow_other".to_owned());
    }
    list
}

/// Takes a mount out of the tree of names, as root or by fusermount3; nothing to say if it is gone already.
fn detach(dir: &Path) {
    if rustix::mount::unmount(dir, UnmountFlags::DETACH) == Err(Errno::PERM) {
        // Best effort at the end of a mount: no caller is left to get an error.
        let _ = Command::new("fusermount3").args(["-u", "-z", "-q", "--"]).arg(dir).status();
    }
}

/// Changes the kernel's options of the mount on `dir` (`ro`, `noexec` …) to these; those of the serving process stay.
///
/// # Errors
/// Nothing of ours is mounted there, or the kernel refuses: files are open for writing, or the caller is not root.
pub fn remount(dir: &Path, options: &MountOptions) -> Result<(), MountError> {
    let nothing = || MountError::NotMounted { dir: dir.to_owned() };
    let real = HeldDirectory::open(dir).map_err(|_| nothing())?.path;
    let entry = mounted_at(&real).map_err(MountError::system("reading the mount table"))?;
    let entry = entry.filter(MountEntry::is_ours).ok_or_else(nothing)?;
    // mount(8) hands on what stands in fstab, which mostly is as it was.
    if options.asked_allow_other.is_some_and(|asked| asked != entry.is_for_others) {
        return Err(MountError::RemountUsers { dir: real, is_for_others: entry.is_for_others });
    }
    if options.flags.contains(MountFlags::STRICTATIME) {
        let opened = File::open(&real).map_err(MountError::system("opening the mount"))?;
        if !moves_access_times(&opened)? {
            let reason =
                "it is to be given when the pool is mounted (unmount it, and mount it with the option)".to_owned();
            return Err(MountError::AccessTimes { reason });
        }
    }
    // A file that was removed while open keeps a mount writable until its close has been told to its server, which is a
    // moment after the program's own close.
    let mut tries = REMOUNT_TRIES;
    loop {
        match rustix::mount::mount_remount(&real, options.flags, c"") {
            Err(Errno::BUSY) if tries > 0 => tries -= 1,
            done => return done.map_err(|errno| MountError::Remount { dir: real, source: errno.into() }),
        }
        std::thread::sleep(REMOUNT_PAUSE);
    }
}

/// Root may write past a quota, and we write what others ask for: so we give that right up. Threads made from now on do
/// not have it either, nor has the kernel when it serves a file in our place.
fn respect_quotas() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let Ok(mut sets) = capabilities(None) else { return };
    if sets.effective.contains(CapabilitySet::SYS_RESOURCE) {
        sets.effective.remove(CapabilitySet::SYS_RESOURCE);
        // Giving a right up cannot be refused.
        let _ = set_capabilities(None, sets);
    }
}

/// Open files cost descriptors, and every inode that the kernel knows does, so the limit goes as high as it may.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let most = std::fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|text| text.trim().parse().ok());
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: most, maximum: most };
    if most.is_some() && setrlimit(Resource::Nofile, raised).is_ok() {
        return;
    }
    // Without privilege up to the hard limit; should that fail too, the mount works for fewer files.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
