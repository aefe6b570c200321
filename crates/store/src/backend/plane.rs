//! The servers of a pool, open in this process: the ground of the data plane.
//!
//! The data plane is used by the mount and inside the preload library. So it makes system calls directly (never
//! through a symbol of libc that the preload intercepts), and a request takes no lock and, up to 16 sub-requests,
//! allocates nothing.

use crate::backend::emulate::{Device, Op};
use crate::backend::{Backend, DatafileAccess, Server, ServerLimits, Setting};
use crate::format::identity::{Identity, Said};
use crate::format::placement::{Datafile, DatafileKey};
use crate::os::descriptors::lift;
use crate::os::error::{Error, Result};
use crate::os::room::Room;
use crate::pool::epoch::{CountedChanges, EpochPage};
use crate::pool::meta_watch::MetaWatch;
use crate::pool::namespace::{is_shared, namespace_uuid};
use crate::pool::pool_file::Pool;
use rustix::fd::{OwnedFd, RawFd};
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use stripewise_control::Door;
use stripewise_layout::ServerId;

/// What errors say of something else than a file in a datafile's place.
pub(crate) const NOT_REGULAR: &str = "is not a regular file";

/// Servers that a pool can get while a process uses it; for more, the process has to open the pool again.
const MAX_ADDED: usize = 64;

/// How to open a data plane.
#[derive(Debug, Clone, Default)]
pub struct PlaneOptions {
    /// Every descriptor that the plane opens is moved to this number or above (the next free one), so that inside a
    /// program it stays out of the way of `close` loops and of small numbers that programs expect. 0 leaves them.
    pub descriptor_floor: i32,
    /// What every request on the bytes of files goes through.
    pub door: Door,
}

/// The servers of a pool, open in this process.
#[derive(Debug)]
pub struct DataPlane {
    servers: Vec<OpenServer>,
    /// Those that the pool got since, by their ids behind the others'.
    added: [OnceLock<OpenServer>; MAX_ADDED],
    pool_file: PathBuf,
    meta: OpenServer,
    meta_watch: MetaWatch,
    epochs: EpochPage,
    options: PlaneOptions,
    pool_uuid: Arc<str>,
    shared: bool,
}

/// An operation on names that the metadata tier serves until this is dropped.
#[must_use]
#[derive(Debug)]
pub struct ServedName<'a> {
    plane: &'a DataPlane,
    op: Op,
    of: u64,
    /// `None`: this process cannot count.
    began_ns: Option<u64>,
}

impl Drop for ServedName<'_> {
    fn drop(&mut self) {
        if let Some(began_ns) = self.began_ns {
            self.plane.meta_watch.end_name(self.of, self.op, began_ns, || self.plane.meta_room());
        }
    }
}

/// One server; opened when it is there, looked for again at each use as long as it is not.
#[derive(Debug)]
pub(crate) struct OpenServer {
    backend: Box<dyn Backend>,
    /// Known once it was there: what requests ask of it.
    limits: OnceLock<ServerLimits>,
}

impl DataPlane {
    /// Opens the servers and the epoch page of `pool`. A server that is not there is noted, and gives
    /// [`Error::MissingServer`] when it is needed; it is looked for again at each use.
    pub fn open(pool: &Pool, options: PlaneOptions) -> Result<Arc<Self>> {
        let pool_uuid: Arc<str> = namespace_uuid(pool)?.into();
        let shared = is_shared(pool)?;
        if shared {
            crate::pool::shared::check(pool)?;
        }
        let setting = Setting { pool_uuid: Some(pool_uuid.clone()), descriptor_floor: options.descriptor_floor };
        let open = |server: &Server| OpenServer::new(server, &setting);
        let plane = Self {
            servers: pool.servers.iter().map(open).collect(),
            added: [const { OnceLock::new() }; MAX_ADDED],
            pool_file: pool.file.clone(),
            meta: open(&pool.meta.server),
            meta_watch: MetaWatch::new(pool, shared),
            epochs: EpochPage::open(&pool.namespace, shared)?,
            options,
            pool_uuid,
            shared,
        };
        for server in &plane.servers {
            // One that is missing is reported when it is used.
            let _ = server.backend();
        }
        Ok(Arc::new(plane))
    }

    /// The door that requests go through.
    #[inline]
    pub fn door(&self) -> &Door {
        &self.options.door
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

    /// As [`DataPlane::bump_epoch`], after a change that has left all bytes of the file as they were.
    pub(crate) fn bump_epoch_for_move(&self, handle: u64) {
        self.epochs.bump_for_move(handle);
    }

    /// What is counted now of changes of a file's bytes. One atomic load.
    #[inline]
    pub(crate) fn counted(&self, handle: u64) -> CountedChanges {
        self.epochs.counted(handle)
    }

    /// The server of that id, if the pool has one; the metadata tier is one.
    #[inline]
    pub(crate) fn find(&self, id: ServerId) -> Option<&OpenServer> {
        if id == ServerId::META {
            return Some(&self.meta);
        }
        self.servers.get(id.index()).or_else(|| self.find_added(id))
    }

    /// A server that the pool got since it was opened. Reads the pool file the first time that one is asked for.
    #[cold]
    fn find_added(&self, id: ServerId) -> Option<&OpenServer> {
        let slot = self.added.get(id.index() - self.servers.len())?;
        if let Some(known) = slot.get() {
            return Some(known);
        }
        let pool = Pool::load(&self.pool_file).ok()?;
        let server = pool.server(id)?;
        let setting =
            Setting { pool_uuid: Some(self.pool_uuid.clone()), descriptor_floor: self.options.descriptor_floor };
        Some(slot.get_or_init(|| OpenServer::new(server, &setting)))
    }

    /// The server of that id; an error when the pool has none.
    pub(crate) fn server(&self, id: ServerId) -> Result<&OpenServer> {
        self.find(id).ok_or_else(|| {
            let last = self.servers().last().map_or("", OpenServer::name);
            Error::Invalid(format!(
                "the file's layout names server {id}, the last one that is known here is {last}: if the pool got it since, mount \
                 the pool again"
            ))
        })
    }

    /// The load of the metadata tier.
    pub(crate) fn meta_watch(&self) -> &MetaWatch {
        &self.meta_watch
    }

    /// The room of the metadata tier; `None` where it does not say.
    pub(crate) fn meta_room(&self) -> Option<Room> {
        self.meta.current().ok()?.room().ok()
    }

    /// Whether the kernel may read and write the bytes of inodes by itself.
    pub(crate) fn has_plain_inodes(&self) -> bool {
        self.meta.limits().is_plain
    }

    /// Whether the metadata tier is emulated, so that operations on names take time of it.
    fn charges_names(&self) -> bool {
        self.meta.limits().is_charged
    }

    /// An operation on names begins: counts in the load of the metadata tier until what is returned is dropped. Where the tier is
    /// emulated, waits first until it has served it, for the startup of `op`. Whatever is `of` one number shares a line of counts:
    /// inodes are spread so. Four additions and the clock twice, together some 100 ns, of a real tier.
    ///
    /// # Errors
    /// The queue of the emulated tier cannot be used.
    pub fn serve_names(&self, op: Op, of: u64) -> Result<ServedName<'_>> {
        let served = ServedName { plane: self, op, of, began_ns: self.meta_watch.begin_name(of) };
        if self.charges_names() {
            self.meta.backend()?;
            if let Some(device) = self.meta.device() {
                device.serve_names(op);
            }
        }
        Ok(served)
    }

    /// All servers that have datafiles, as far as they are known here.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &OpenServer> {
        self.servers.iter().chain(self.added.iter().filter_map(OnceLock::get))
    }

    /// How often a server's file system was found dead: what else is open on it is to be let go of.
    pub(crate) fn deaths(&self) -> u32 {
        self.servers().fold(0, |deaths, server| deaths.wrapping_add(server.backend.deaths()))
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
        let server = self.server(datafile.server)?;
        let backend = server.current()?;
        let (key, path) = (datafile.key(handle), datafile.path(handle));
        let (fd, writable) = match backend.open(key, DatafileAccess::ReadWrite) {
            Err(Errno::ACCESS | Errno::ROFS | Errno::PERM) if !write => {
                (backend.open(key, DatafileAccess::Read), false)
            }
            other => (other, true),
        };
        let fd = match fd {
            Ok(fd) => fd,
            Err(Errno::NOENT) => {
                // A server that lost its mount shows an empty directory: say that instead.
                let name = server.name().to_owned();
                return Err(match backend.is_marked() {
                    Ok(()) => Error::MissingDatafile { server: name, datafile: path.as_str().to_owned() },
                    Err(errno) => server.missing(format!("its marker file is gone: {errno}")),
                });
            }
            Err(errno) => return Err(server.open_error("open a datafile", path.as_str(), errno)),
        };
        let stat = rustix::fs::fstat(&fd).map_err(server.error("open a datafile"))?;
        server.check_datafile(path.as_str(), &stat, owner)?;
        self.check_bound(server, path.as_str(), &fd, identity)?;
        let fd = lift(fd, self.options.descriptor_floor).map_err(server.error("open a datafile"))?;
        Ok((fd, writable))
    }
}

impl DataPlane {
    /// Refuses an open datafile of a shared pool that is not bound to that inode.
    pub(crate) fn check_bound(
        &self,
        server: &OpenServer,
        path: &str,
        datafile: &OwnedFd,
        identity: Identity,
    ) -> Result<()> {
        if !self.shared || identity.asked_of(datafile).map_err(server.error("open a datafile"))? == Said::Same {
            return Ok(());
        }
        Err(Error::UnboundDatafile {
            server: server.name().to_owned(),
            datafile: path.to_owned(),
            inode: identity.inode,
        })
    }
}

impl OpenServer {
    fn new(server: &Server, setting: &Setting) -> Self {
        Self { backend: crate::backend::of(server, setting), limits: OnceLock::new() }
    }

    /// Its name, as in `hdd.0`.
    pub(crate) fn name(&self) -> &str {
        &self.backend.server().name
    }

    /// Its id.
    pub(crate) fn id(&self) -> ServerId {
        self.backend.server().id
    }

    /// Where a datafile is, for people; also on a server that is not there.
    pub(crate) fn place(&self, key: DatafileKey) -> PathBuf {
        self.backend.place(key)
    }

    /// Its backend, connected. One load once it was there.
    pub(crate) fn backend(&self) -> Result<&dyn Backend> {
        if self.limits.get().is_none() {
            self.backend.connect()?;
            let _ = self.limits.set(self.backend.limits());
        }
        Ok(&*self.backend)
    }

    /// [`OpenServer::backend`] as it stands now: for what opens, makes or removes names there.
    pub(crate) fn current(&self) -> Result<&dyn Backend> {
        let backend = self.backend()?;
        backend.look_again()?;
        Ok(backend)
    }

    /// Whether its file system was found dead, and not found again yet.
    pub(crate) fn has_died(&self) -> bool {
        self.backend.has_died()
    }

    /// What it can do, as far as that is known before it was there.
    pub(crate) fn limits(&self) -> ServerLimits {
        self.limits.get().copied().unwrap_or_else(|| self.backend.limits())
    }

    /// Whether reads may wait for a real device that the kernel can be told of before, so that several work at once.
    #[inline]
    pub(crate) fn takes_advice(&self) -> bool {
        self.limits.get().is_none_or(|limits| limits.takes_advice)
    }

    /// Whether a request can be kept from leaving its bytes in the server's page cache. Known once it was there.
    #[inline]
    pub(crate) fn passes_cache(&self) -> bool {
        self.limits.get().is_some_and(|limits| limits.passes_cache)
    }

    /// Whether the store is to charge what it serves, as an emulated device's. Known once it was there.
    #[inline]
    pub(crate) fn is_charged(&self) -> bool {
        self.limits.get().is_some_and(|limits| limits.is_charged)
    }

    /// The device that it stands for, if it is emulated. Known once it was there.
    #[inline]
    pub(crate) fn device(&self) -> Option<&Device> {
        if self.is_charged() { self.backend.device() } else { None }
    }

    fn missing(&self, reason: String) -> Error {
        crate::backend::missing(self.backend.server(), reason)
    }

    /// Refuses what stands under a datafile's name and is not one of user `owner`.
    pub(crate) fn check_datafile(&self, path: &str, stat: &Stat, owner: u32) -> Result<()> {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile if stat.st_uid == owner => Ok(()),
            FileType::RegularFile => Err(Error::ForeignDatafile {
                server: self.name().to_owned(),
                datafile: path.to_owned(),
                found: stat.st_uid,
                expected: owner,
            }),
            _ => Err(self.not_a_datafile(path, NOT_REGULAR)),
        }
    }

    pub(crate) fn not_a_datafile(&self, path: &str, what: &'static str) -> Error {
        Error::NotADatafile { server: self.name().to_owned(), datafile: path.to_owned(), what }
    }

    /// What opening a datafile's name failed with, in words where something else stands there.
    pub(crate) fn open_error(&self, action: &'static str, path: &str, errno: Errno) -> Error {
        match errno {
            Errno::LOOP | Errno::ISDIR | Errno::NXIO | Errno::NODEV | Errno::NOTDIR => {
                self.not_a_datafile(path, NOT_REGULAR)
            }
            errno => self.error(action)(errno),
        }
    }

    /// An [`Error::Server`] of this server, for `map_err`; [`Error::Full`] when it has no space.
    pub(crate) fn error(&self, action: &'static str) -> impl Fn(Errno) -> Error + Copy + '_ {
        move |errno| {
            let server = self.name().to_owned();
            if errno != Errno::NOSPC {
                return Error::Server { action, server, errno };
            }
            Error::Full { action, server, root: self.backend.server().root.clone(), room: self.backend.room().ok() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::pool_file::{PoolSpec, TierSpec};

    #[test]
    fn operations_on_names_are_load_of_the_tier_while_they_last() {
        let directory = tempfile::tempdir().unwrap();
        let (base, file) = (directory.path(), directory.path().join("pool.toml"));
        let tier = TierSpec { name: "mem".into(), servers: vec![base.join("s")], ..TierSpec::default() };
        let (mount, namespace) = (base.join("mount"), base.join("names"));
        let spec = PoolSpec { name: "p".into(), mount, namespace, default_width_bytes: None, tiers: vec![tier] };
        Pool::init(&file, &spec).unwrap();
        let open = || DataPlane::open(&Pool::load(&file).unwrap(), PlaneOptions::default()).unwrap();
        // Begun; requests on bytes, and their bytes; names that were looked at and changed.
        let counted = |plane: &DataPlane| {
            let counted = plane.meta_watch().load().unwrap().counted();
            (counted[0], counted[1] + counted[2] + counted[3] + counted[4], counted[6], counted[7])
        };
        let serve = |plane: &DataPlane| {
            for (of, op) in [Op::Read, Op::Write, Op::Write].into_iter().enumerate() {
                drop(plane.serve_names(op, of as u64).unwrap());
            }
        };
        let plane = open();
        serve(&plane);
        assert_eq!(counted(&plane), (3, 0, 1, 2));
        let waits = plane.serve_names(Op::Read, 5).unwrap();
        assert_eq!(counted(&plane), (4, 0, 1, 2));
        drop(waits);
        assert_eq!(counted(&plane), (4, 0, 2, 2));
        let op = "{ startup = [\"10us\", \"10us\"], bandwidth = \"1GB/s\" }";
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{text}\n[meta]\nemulate = {{ read = {op}, write = {op} }}\n")).unwrap();
        let plane = open();
        serve(&plane);
        assert_eq!(counted(&plane), (7, 0, 3, 4), "of all processes");
    }
}
