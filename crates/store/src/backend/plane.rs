//! The servers of a pool, open in this process: the ground of the data plane.
//!
//! The data plane is used by the mount and inside the preload library. So it makes system calls directly (never
//! through a symbol of libc that the preload intercepts), and a request takes no lock and, up to 16 sub-requests,
//! allocates nothing.

use crate::backend::emulate::Device;
use crate::file::rights::{check_datafile, open_error};
use crate::format::identity::{Identity, Said};
use crate::format::placement::Datafile;
use crate::os::error::{Error, Result};
use crate::os::room::Room;
use crate::os::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use crate::os::sys::retry;
use crate::pool::epoch::EpochPage;
use crate::pool::namespace::{MARKER_FILE, check_marker, is_shared, marker_server, namespace_uuid};
use crate::pool::pool_file::{Pool, Server};
use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::{DupFlags, Errno};
use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock};
use stripewise_layout::ServerId;

/// `f_type` of tmpfs (linux/magic.h).
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// How to open a data plane.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlaneOptions {
    /// Every descriptor that the plane opens is moved to this number or above (the next free one), so that inside a
    /// program it stays out of the way of `close` loops and of small numbers that programs expect. 0 leaves them.
    pub descriptor_floor: i32,
}

/// The servers of a pool, open in this process.
#[derive(Debug)]
pub struct DataPlane {
    servers: Vec<ServerRoot>,
    epochs: EpochPage,
    options: PlaneOptions,
    pool_uuid: Arc<str>,
    shared: bool,
    /// How often a server's file system was found dead.
    deaths: AtomicU32,
}

/// One server's directory; opened when it is there, looked for again at each use as long as it is not.
#[derive(Debug)]
pub(crate) struct ServerRoot {
    server: Server,
    directory: AtomicI32,
    device: OnceLock<Device>,
    /// Its file system was found dead, and not found again yet.
    died: AtomicBool,
    /// Whether its file system is in memory, so that nothing waits for a device.
    in_memory: AtomicBool,
}

/// Moves a descriptor to `floor` or above.
fn lift(fd: OwnedFd, floor: i32) -> rustix::io::Result<RawFd> {
    let raw = fd.into_raw_fd();
    if raw >= floor {
        return Ok(raw);
    }
    // SAFETY: `raw` was owned just now and is not closed before the last use of this borrow.
    let lifted = rustix::io::fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(raw) }, floor);
    close(raw);
    lifted.map(IntoRawFd::into_raw_fd)
}

/// Puts `fd` in the place of the open descriptor `old`, in one step for all threads.
pub(crate) fn replace(old: RawFd, fd: OwnedFd) -> rustix::io::Result<()> {
    // SAFETY: the caller's `old` is open and stays so; `ManuallyDrop` leaves closing it to its owner.
    let mut old = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(old) });
    let fd = fd.into_raw_fd();
    // SAFETY: `fd` was owned just now and is not closed before the last use of this borrow.
    let replaced = rustix::io::dup3(unsafe { BorrowedFd::borrow_raw(fd) }, &mut old, DupFlags::CLOEXEC);
    close(fd);
    replaced
}

/// Puts what can be neither read, written nor looked into in the place of the open descriptor `old`: EBADF and ENOTDIR
/// from now on. Whether that was done.
pub(crate) fn replace_by_nothing(old: RawFd) -> bool {
    let nothing = rustix::fs::open(c"/dev/null", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    nothing.and_then(|nothing| replace(old, nothing)).is_ok()
}

/// Closes a descriptor by the system call itself (an `OwnedFd` would go through `close` of libc).
pub(crate) fn close(fd: RawFd) {
    // SAFETY: callers own `fd` and do not use it again.
    unsafe { rustix::io::close(fd) };
}

impl DataPlane {
    /// Opens the servers' directories and the epoch page of `pool`. A server that is not there is noted, and gives
    /// [`Error::MissingServer`] when it is needed; it is looked for again at each use.
    pub fn open(pool: &Pool, options: PlaneOptions) -> Result<Arc<Self>> {
        let servers = pool.servers.iter().map(|server| ServerRoot {
            server: server.clone(),
            directory: AtomicI32::new(-1),
            device: OnceLock::new(),
            died: AtomicBool::new(false),
            in_memory: AtomicBool::new(false),
        });
        let pool_uuid = namespace_uuid(pool)?.into();
        let shared = is_shared(pool)?;
        if shared {
            crate::pool::shared::check(pool)?;
        }
        let plane = Self {
            servers: servers.collect(),
            epochs: EpochPage::open(&pool.namespace, shared)?,
            options,
            pool_uuid,
            shared,
            deaths: AtomicU32::new(0),
        };
        for root in &plane.servers {
            // One that is missing is reported when it is used.
            let _ = plane.directory(root);
        }
        Ok(Arc::new(plane))
    }

    /// Whether several users use the pool directly.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Whether changes of a file's placement by its owner are seen in the epoch counters: not of another user's file in
    /// a shared pool. Such a file is read and written through a mount, which looks at its handle each time.
    pub fn sees_changes_of(&self, owner: u32) -> bool {
        !self.shared || owner == rustix::process::geteuid().as_raw()
    }

    /// The pool's uuid.
    pub fn pool_uuid(&self) -> &Arc<str> {
        &self.pool_uuid
    }

    /// The epoch counter of a file now. One atomic load.
    #[inline]
    pub fn epoch(&self, handle: u64) -> u32 {
        self.epochs.get(handle)
    }

    /// Tells all holders of a placement of this file to fetch it again.
    pub fn bump_epoch(&self, handle: u64) {
        self.epochs.bump(handle);
    }

    /// The server of that id; an error when the pool has none.
    pub(crate) fn server(&self, id: ServerId) -> Result<&ServerRoot> {
        self.servers.get(id.index()).ok_or_else(|| {
            let last = self.servers.last().map_or("", |root| &root.server.name);
            Error::Invalid(format!("the file's layout names server {id}, the pool's last one is {last}"))
        })
    }

    /// All servers.
    pub(crate) fn servers(&self) -> &[ServerRoot] {
        &self.servers
    }

    /// The open directory of a server, with its marker checked when it was opened. One atomic load.
    pub(crate) fn directory<'a>(&self, root: &'a ServerRoot) -> Result<BorrowedFd<'a>> {
        let open = root.directory.load(Ordering::Acquire);
        if open >= 0 {
            // SAFETY: once set, the descriptor stays open until `root` is dropped.
            return Ok(unsafe { BorrowedFd::borrow_raw(open) });
        }
        let fd = self.open_marked(root)?;
        if let Some(config) = &root.server.emulate {
            let device = Device::open(&fd, root.server.id, config).map_err(|error| root.missing(error.to_string()))?;
            // The first one is equal.
            let _ = root.device.set(device);
        }
        let in_memory = rustix::fs::fstatfs(&fd).is_ok_and(|stat| stat.f_type == TMPFS_MAGIC);
        root.in_memory.store(in_memory, Ordering::Relaxed);
        let fd = lift(fd, self.options.descriptor_floor).map_err(root.error("open"))?;
        let open = match root.directory.compare_exchange(-1, fd, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => fd,
            Err(other) => {
                close(fd);
                other
            }
        };
        // SAFETY: as above.
        Ok(unsafe { BorrowedFd::borrow_raw(open) })
    }

    /// Opens the directory that stands at a server's path now, and checks its marker.
    fn open_marked(&self, root: &ServerRoot) -> Result<OwnedFd> {
        let fd = crate::os::sys::open_directory(&root.server.root).map_err(|errno| root.missing(errno.to_string()))?;
        match crate::os::sys::read_file_at(&fd, MARKER_FILE, 4096) {
            Ok(text) => check_marker(&text, &self.pool_uuid, &marker_server(&root.server.name, root.server.id))
                .map_err(|reason| root.missing(reason))?,
            Err(errno) => return Err(root.missing(format!("no marker file {MARKER_FILE}: {errno}"))),
        }
        Ok(fd)
    }

    /// [`DataPlane::directory`], for those who open, make or remove names there: the one that stands at the server's
    /// path now. A disk that was unmounted, a file server that died, a directory that was moved away and restored is
    /// found again, and nothing is written into what is no longer the server. Two system calls.
    pub(crate) fn current_directory<'a>(&self, root: &'a ServerRoot) -> Result<BorrowedFd<'a>> {
        let directory = self.directory(root)?;
        let identity = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
        let known = rustix::fs::fstat(directory).map(identity);
        let there = rustix::fs::stat(&root.server.root).map(identity);
        if known.is_ok() && known == there {
            return Ok(directory);
        }
        if known.is_err() {
            self.let_go(root);
        }
        let found = self.open_marked(root)?;
        // In the old one's place: other threads go on with its number.
        replace(directory.as_raw_fd(), found).map_err(root.error("open"))?;
        root.died.store(false, Ordering::Release);
        Ok(directory)
    }

    /// Lets go of the directory of a server whose file system has died. As long as anything of it is open, to mount the
    /// same disk again gives the dead file system again.
    pub(crate) fn let_go(&self, root: &ServerRoot) {
        let directory = root.directory.load(Ordering::Acquire);
        if directory >= 0 && !root.died.swap(true, Ordering::AcqRel) {
            replace_by_nothing(directory);
            self.deaths.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// How often a server's file system was found dead: what else is open on it is to be let go of.
    pub(crate) fn deaths(&self) -> u32 {
        self.deaths.load(Ordering::Acquire)
    }

    /// Opens a datafile of `handle`, which must belong to user `owner` and in a shared pool to inode `identity`, for
    /// reading and writing or, where that is not allowed and `write` not needed, for reading only. Returns the
    /// descriptor and whether it can write.
    pub(crate) fn open_datafile(
        &self,
        handle: u64,
        owner: u32,
        identity: Identity,
        datafile: Datafile,
        write: bool,
    ) -> Result<(RawFd, bool)> {
        let root = self.server(datafile.server)?;
        let directory = self.current_directory(root)?;
        let path = datafile.path(handle);
        let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::NONBLOCK;
        let open = |mode| retry(|| rustix::fs::openat(directory, path.as_c_str(), mode | flags, Mode::empty()));
        let (fd, writable) = match open(OFlags::RDWR) {
            Err(Errno::ACCESS | Errno::ROFS | Errno::PERM) if !write => (open(OFlags::RDONLY), false),
            other => (other, true),
        };
        let fd = match fd {
            Ok(fd) => fd,
            Err(Errno::NOENT) => {
                // A server that lost its mount shows an empty directory: say that instead.
                let marker = rustix::fs::accessat(
                    directory,
                    MARKER_FILE,
                    rustix::fs::Access::EXISTS,
                    rustix::fs::AtFlags::empty(),
                );
                let server = root.server.name.clone();
                return Err(match marker {
                    Ok(()) => Error::MissingDatafile { server, datafile: path.as_str().to_owned() },
                    Err(errno) => root.missing(format!("its marker file is gone: {errno}")),
                });
            }
            Err(errno) => return Err(open_error(root, "open a datafile", path.as_str(), errno)),
        };
        let stat = rustix::fs::fstat(&fd).map_err(root.error("open a datafile"))?;
        check_datafile(root, path.as_str(), &stat, owner)?;
        self.check_bound(root, path.as_str(), &fd, identity)?;
        let fd = lift(fd, self.options.descriptor_floor).map_err(root.error("open a datafile"))?;
        Ok((fd, writable))
    }
}

impl DataPlane {
    /// Refuses an open datafile of a shared pool that is not bound to that inode.
    pub(crate) fn check_bound(
        &self,
        root: &ServerRoot,
        path: &str,
        datafile: &OwnedFd,
        identity: Identity,
    ) -> Result<()> {
        if !self.shared || identity.asked_of(datafile).map_err(root.error("open a datafile"))? == Said::Same {
            return Ok(());
        }
        Err(Error::UnboundDatafile { server: root.name().to_owned(), datafile: path.to_owned(), inode: identity.inode })
    }
}

impl ServerRoot {
    /// Its name, as in `hdd.0`.
    pub(crate) fn name(&self) -> &str {
        &self.server.name
    }

    /// Whether its file system was found dead, and not found again yet.
    pub(crate) fn has_died(&self) -> bool {
        self.died.load(Ordering::Acquire)
    }

    /// Its id.
    pub(crate) fn id(&self) -> ServerId {
        self.server.id
    }

    /// Whether reads may wait for a real device, so that it pays to ask for several at once. An emulated server's
    /// waiting comes after the real reads.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        !self.in_memory.load(Ordering::Relaxed) && self.device.get().is_none()
    }

    /// The device that it stands for, if it is emulated. Known once its directory is open.
    #[inline]
    pub(crate) fn device(&self) -> Option<&Device> {
        self.device.get()
    }

    fn missing(&self, reason: String) -> Error {
        Error::MissingServer { server: self.server.name.clone(), root: self.server.root.clone(), reason }
    }

    /// An [`Error::Server`] of this server, for `map_err`; [`Error::Full`] when it has no space.
    pub(crate) fn error(&self, action: &'static str) -> impl Fn(Errno) -> Error + Copy + '_ {
        move |errno| {
            let server = self.server.name.clone();
            if errno != Errno::NOSPC {
                return Error::Server { action, server, errno };
            }
            let open = self.directory.load(Ordering::Acquire);
            // SAFETY: once set, the descriptor stays open until `self` is dropped.
            let room = (open >= 0).then(|| Room::of(unsafe { BorrowedFd::borrow_raw(open) }).ok()).flatten();
            Error::Full { action, server, root: self.server.root.clone(), room }
        }
    }
}

impl Drop for ServerRoot {
    fn drop(&mut self) {
        let fd = *self.directory.get_mut();
        if fd >= 0 {
            close(fd);
        }
    }
}
