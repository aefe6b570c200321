//! One regular file of a pool: its bytes and its placement. Writers, sizes and changes of size are in
//! [`crate::file::writers`] and [`crate::file::resize`].
//!
//! Every regular file has a layout. One without a handle has the layout `[meta]`: all of its bytes are the inode's own. No
//! datafile can come to it, so that its writers need not register and its size is always the inode's.

use crate::file::handle_buffer::HandleBuffer;
use crate::file::lockfile::{LockFile, Purpose, Writers};
use crate::file::paths::gathered::GatheredWrites;
use crate::file::paths::record::{PathKind, PathState};
use crate::file::paths::together::ReadTogether;
use crate::file::placed_file::{MoveBeside, PlacedFile};
use crate::file::placements::Placements;
use crate::file::rights::create_datafile;
use crate::file::unsynced::{Failures, Told};
use crate::format::generations::GenerationMap;
use crate::format::handle::{ATTRIBUTE, Created, Handle, Present, read_handle};
use crate::format::identity::Identity;
use crate::format::placement::{Datafile, Placement};
use crate::format::surplus::Surplus;
use crate::os::error::{Error, Result};
use crate::os::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use crate::os::sync::{Mutex, MutexGuard, RwLock, guard};
use crate::os::sys::{proc_path, retry};
use crate::pool::epoch::CountedChanges;
use crate::pool::open_pool::OpenPool;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{OFlags, XattrFlags};
use rustix::io::Errno;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, PoisonError};
use stripewise_control::Sender;
use stripewise_layout::{Layout, MAX_OFFSET, ServerId};

/// What [`Inode::note_read`] notes of a file that was not read.
pub(crate) const NEVER: i64 = i64::MIN;

/// An open pool, and its files that this process has open.
#[derive(Debug)]
pub struct Store {
    pool: Arc<OpenPool>,
    /// The files in use.
    pub(crate) buffer: HandleBuffer<Inode>,
    /// The deaths of servers after which all open files have let go of what is dead.
    deaths: AtomicU32,
    /// What makes room on a full disk, if something in this process can.
    room_maker: OnceLock<RoomMaker>,
}

/// Makes room on full disks; whether it has.
struct RoomMaker(Box<dyn Fn() -> bool + Send + Sync>);

impl std::fmt::Debug for RoomMaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RoomMaker")
    }
}

impl Deref for Store {
    type Target = Arc<OpenPool>;

    fn deref(&self) -> &Arc<OpenPool> {
        &self.pool
    }
}

impl Store {
    /// The store of `pool`, in which nothing is open yet.
    pub(crate) fn of(pool: Arc<OpenPool>) -> Self {
        Self { pool, buffer: HandleBuffer::default(), deaths: AtomicU32::new(0), room_maker: OnceLock::new() }
    }

    /// Has `make_room` called where bytes that the store has kept back find a disk full; it says whether it has made room. The
    /// first that comes stays.
    pub fn set_room_maker(&self, make_room: impl Fn() -> bool + Send + Sync + 'static) {
        // A second one is as good.
        let _ = self.room_maker.set(RoomMaker(Box::new(make_room)));
    }

    /// After `error`: whether a disk was full that has room now.
    pub(crate) fn make_room(&self, error: &Error) -> bool {
        let is_full = matches!(error.errno(), Errno::NOSPC | Errno::DQUOT);
        is_full && self.room_maker.get().is_some_and(|maker| maker.0())
    }

    /// After an error: if a server's file system was found dead, all open files let go of it, so that it can be mounted
    /// again. One load a server when none was. Not for those who hold a lock of the store.
    #[cold]
    pub(crate) fn let_go_of_dead(&self) {
        let deaths = self.plane().deaths();
        if self.deaths.swap(deaths, Ordering::AcqRel) == deaths {
            return;
        }
        let open = self.buffer.lock().all();
        open.iter().for_each(|inode| inode.let_go_of_dead());
    }
}

/// One regular file, shared by all opens in this process (of a file without a handle: by those that have it from one another). All
/// methods may be called from any thread.
#[derive(Debug)]
pub struct Inode {
    pub(crate) store: Arc<Store>,
    /// Logical handle; `None` for a file that has none.
    handle: Option<u64>,
    real: u64,
    fd: Arc<OwnedFd>,
    /// What the file's datafiles are bound to in a shared pool.
    identity: Identity,
    /// Whether `fd` can write.
    fd_writes: bool,
    /// A descriptor that can write, if one came after an `fd` that cannot.
    writable: OnceLock<Arc<OwnedFd>>,
    file: RwLock<Arc<PlacedFile>>,
    pub(crate) writers: Mutex<Writers>,
    /// The lock file of `writers` once more, for who has the mutex of those already.
    pub(crate) registered: Mutex<Option<Arc<LockFile>>>,
    /// One append at a time in this process; the lock file's append lock does the same between processes.
    pub(crate) appending: Mutex<()>,
    /// The same for changes of the handle.
    changing: Mutex<()>,
    /// What a write that failed half-way has left is being cut off ([`crate::file::cut_back`]).
    pub(crate) cutting: AtomicBool,
    /// Another process was seen to cut the file off, or to have died in that, and this one, a writer, has not waited for it yet.
    pub(crate) is_cut_beside: AtomicBool,
    /// Syncs that failed.
    pub(crate) failures: Failures,
    /// What this process keeps back of what was written.
    pub(crate) gathered: GatheredWrites,
    /// What its opens read together.
    pub(crate) together: ReadTogether,
    /// Datafiles whose names are known to be durable. The maker of one may be gone, or another process.
    durable: Mutex<Vec<Datafile>>,
    /// Whether it had no datafile when it was opened here, and no lengths have been recorded since: there is no record to
    /// read.
    pub(crate) unrecorded: AtomicBool,
    /// When it was read last, since its time of access was put into the inode; [`NEVER`] if it was not.
    pub(crate) was_read_ns: AtomicI64,
    /// Whether `fd` was told that reads by it move no time of access.
    pub(crate) is_quiet: AtomicBool,
}

/// The right to change a file's handle, until it is dropped.
pub(crate) struct HandleGuard<'a> {
    _local: MutexGuard<'a, ()>,
    lock: Arc<LockFile>,
}

impl Drop for HandleGuard<'_> {
    fn drop(&mut self) {
        // If it fails, closing the lock file will do.
        let _ = self.lock.unlock(Purpose::Handle);
    }
}

impl Inode {
    pub(crate) fn new(store: Arc<Store>, handle: u64, real: u64, fd: OwnedFd, fd_writes: bool) -> Result<Self> {
        let fd = Arc::new(fd);
        let epoch = store.plane().epoch(handle);
        let (file, truncating_to) = load(&store, (handle, epoch), real, &fd)?;
        let inode = Self::of(store, Some(handle), real, file, fd, fd_writes);
        if truncating_to.is_some()
            && let Err(error) = inode.check_changeable().and_then(|()| inode.finish_without_writers().map(drop))
        {
            inode.unless_cut(error)?;
        }
        Ok(inode)
    }

    /// `error`, for which a change that was interrupted cannot be finished, if bytes may be missing. A move has left every byte in its
    /// place; only what it freed cannot be cleared away. Of a truncation some bytes may be gone and others not.
    pub(crate) fn unless_cut(&self, error: Error) -> Result<()> {
        let to_bytes = self.read_handle()?.truncating_to.unwrap_or(u64::MAX);
        if self.stat()?.st_size as u64 > to_bytes { Err(error) } else { Ok(()) }
    }

    /// As [`Inode::new`], without finishing what was interrupted.
    pub(crate) fn under_lock(store: Arc<Store>, handle: u64, real: u64, fd: OwnedFd, fd_writes: bool) -> Result<Self> {
        let fd = Arc::new(fd);
        let epoch = store.plane().epoch(handle);
        let file = load(&store, (handle, epoch), real, &fd)?.0;
        Ok(Self::of(store, Some(handle), real, file, fd, fd_writes))
    }

    /// As [`Inode::new`], of a file whose `handle` was read by `fd` when its counter was `epoch`. One system call in a shared pool.
    pub(crate) fn known(
        store: Arc<Store>,
        (handle, epoch): (Handle, u32),
        owner: u32,
        fd: OwnedFd,
        fd_writes: bool,
    ) -> Result<Self> {
        let (fd, logical, real) = (Arc::new(fd), handle.logical, handle.real);
        let layout = store.layouts.get_for(&handle.layout, owner)?;
        store.check_layout(&layout)?;
        let file = place(&store, handle, layout, identity_of(&store, &fd, real)?, owner, epoch, || Ok(fd.clone()))?;
        Ok(Self::of(store, Some(logical), real, file, fd, fd_writes))
    }

    /// As [`Inode::new`], of a file that has no handle. No system call.
    pub(crate) fn without_handle(store: Arc<Store>, real: u64, fd: OwnedFd, fd_writes: bool) -> Result<Self> {
        let fd = Arc::new(fd);
        let file = in_inode(&store, real, &fd)?;
        Ok(Self::of(store, None, real, file, fd, fd_writes))
    }

    /// As [`Inode::new`], of a file that has just been made on `fd`.
    pub(crate) fn created(store: Arc<Store>, created: Created, fd: OwnedFd) -> Result<Self> {
        let Created { handle, layout, owner, mode: _ } = created;
        let (logical, real) = (handle.logical, handle.real);
        // No other thread knows the handle yet, so none has changed it.
        let epoch = store.plane().epoch(logical);
        let fd = Arc::new(fd);
        let file = place(&store, handle, layout, identity_of(&store, &fd, real)?, owner, epoch, || Ok(fd.clone()))?;
        Ok(Self::of(store, Some(logical), real, file, fd, true))
    }

    fn of(
        store: Arc<Store>,
        handle: Option<u64>,
        real: u64,
        file: PlacedFile,
        fd: Arc<OwnedFd>,
        fd_writes: bool,
    ) -> Self {
        let unrecorded = file.placement().present.is_empty();
        Self {
            store,
            handle,
            real,
            fd,
            identity: file.placement().identity,
            fd_writes,
            writable: OnceLock::new(),
            file: RwLock::new(Arc::new(file)),
            writers: Mutex::default(),
            registered: Mutex::default(),
            appending: Mutex::default(),
            changing: Mutex::default(),
            cutting: AtomicBool::new(false),
            is_cut_beside: AtomicBool::new(false),
            failures: Failures::default(),
            gathered: GatheredWrites::default(),
            together: ReadTogether::default(),
            durable: Mutex::default(),
            unrecorded: AtomicBool::new(unrecorded),
            was_read_ns: AtomicI64::new(NEVER),
            is_quiet: AtomicBool::new(false),
        }
    }

    /// Whether it has a descriptor that can write.
    pub(crate) fn can_write(&self) -> bool {
        self.fd_writes || self.writable.get().is_some()
    }

    /// Takes a descriptor that can write, by which bytes of the inode are written from now on.
    ///
    /// # Errors
    /// Those of reading the handle of a file that has bytes in its inode.
    pub(crate) fn offer_descriptor(&self, fd: OwnedFd) -> Result<()> {
        let fd = Arc::new(fd);
        if self.has_bytes_in_inode() {
            // What is out of date is read again by who uses it.
            let (_, newer) = self.look_by(&fd)?;
            let mut file = self.file.write().unwrap_or_else(PoisonError::into_inner);
            newer.take_over_syncs(&file);
            *file = Arc::new(newer);
        }
        // Only now: a thread that finds it must also find the file that can be written. The first one is equal.
        let _ = self.writable.set(fd);
        Ok(())
    }

    /// Whether it has lost its last name, or has none yet. One system call.
    pub fn is_nameless(&self) -> bool {
        self.stat().is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// Whether its layout puts bytes into the inode. No system call.
    fn has_bytes_in_inode(&self) -> bool {
        self.file.read().unwrap_or_else(PoisonError::into_inner).inode().is_some()
    }

    /// Whether this release can change the file's bytes and keep what its handle promises of them. No system call where its places are
    /// known.
    ///
    /// # Errors
    /// [`Error::LaterOptimisation`].
    pub(crate) fn check_changeable(&self) -> Result<()> {
        // A handle that cannot be read is told of by what reads it next.
        let promise = self.known_file().ok().and_then(|file| file.unknown_promise());
        promise.map_or(Ok(()), |index| Err(Error::LaterOptimisation { path: self.label(), index }))
    }

    /// Has a descriptor that can write what the layout puts into the inode, for a program that is to change the file, which `place`
    /// (O_PATH) stands for. A lock and one load where there is one, two where there is nothing in the inode.
    ///
    /// # Errors
    /// Those of `open`: ETXTBSY while the file is run as a program past the mount, EROFS, EACCES. EROFS also where its handle has an
    /// optimisation of a later release that a change could break.
    pub fn open_to_change(&self, place: BorrowedFd<'_>) -> Result<()> {
        self.check_changeable()?;
        if self.can_write() || !self.has_bytes_in_inode() {
            return Ok(());
        }
        let opened = crate::backend::meta::open_as(&proc_path(place), OFlags::RDWR);
        self.offer_descriptor(opened.map_err(self.failed("open"))?)
    }

    /// Logical handle; `None` of a file that has none.
    pub(crate) fn logical(&self) -> Option<u64> {
        self.handle
    }

    /// Logical handle; of a file that has none, the number of its inode.
    pub fn handle(&self) -> u64 {
        self.handle.unwrap_or(self.real)
    }

    /// Whether it has a handle. One that has none can have no other layout than `[meta]`.
    pub fn has_handle(&self) -> bool {
        self.handle.is_some()
    }

    /// Most descriptors that it holds besides that of its place: of the inode, of its lock file, and one on each server; of a file
    /// without a handle that of the inode.
    pub fn most_descriptors(&self) -> usize {
        if self.has_handle() { 2 + self.store.pool().servers.len() } else { 1 }
    }

    /// Handle and inode: what tells the file from all others, also from one into which its handle was written.
    pub(crate) fn key(&self) -> (u64, u64) {
        (self.handle(), self.real)
    }

    /// What the file's datafiles are bound to in a shared pool.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// What has become of a path of its last open, for writing if it `writes`. One load where that is noted already.
    pub(crate) fn note_path(&self, writes: bool, kind: PathKind, state: PathState) {
        self.store.buffer.opens.note(self.key(), writes, kind, state);
    }

    /// The program of its last open, for writing if it `writes`, is told where the bytes are. One load where that is noted already.
    pub fn note_past_the_mount(&self, writes: bool) {
        self.store.buffer.opens.note_past(self.key(), writes);
    }

    /// Notes of the last open for writing that its bytes go to servers, too, or all of them where the file is `without_head`.
    pub(crate) fn note_past_head(&self, without_head: bool) {
        self.store.buffer.opens.note_past_head(self.key(), without_head);
    }

    /// What errors call the file.
    fn label(&self) -> PathBuf {
        std::fs::read_link(proc_path(self.fd.as_fd()))
            .unwrap_or_else(|_| format!("handle {:016x}", self.handle()).into())
    }

    pub(crate) fn failed(&self, action: &'static str) -> impl Fn(Errno) -> Error + Copy + '_ {
        move |errno| Error::Io { action, path: self.label(), errno }
    }

    /// An error of this inode for an operation that the store refuses with `errno`.
    pub(crate) fn refused(&self, action: &'static str, reason: &'static str, errno: Errno) -> Error {
        Error::Refused { action, path: self.label(), reason, errno }
    }

    /// The descriptor by which the bytes are read that are in the inode.
    pub(crate) fn reading_descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The best descriptor of the namespace inode.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.writable.get().unwrap_or(&self.fd).as_fd()
    }

    pub(crate) fn stat(&self) -> Result<rustix::fs::Stat> {
        rustix::fs::fstat(&self.fd).map_err(self.failed("read the attributes of"))
    }

    /// Reads and checks the handle.
    pub(crate) fn read_handle(&self) -> Result<Handle> {
        let path = proc_path(self.fd.as_fd());
        match read_handle(&path, self.real)? {
            Some(handle) if Some(handle.logical) == self.handle => Ok(handle),
            _ => Err(Error::Invalid(format!(
                "{}: its handle was exchanged; run `stripewise fsck`",
                self.label().display()
            ))),
        }
    }

    /// Writes the handle and tells all holders of a placement. Only under a [`HandleGuard`] or the structural lock.
    pub(crate) fn write_handle(&self, handle: &Handle) -> Result<()> {
        self.set_handle(handle)?;
        self.bump_epoch();
        Ok(())
    }

    /// [`Inode::write_handle`] of a move, which leaves all bytes of the file as they are.
    pub(crate) fn write_moved_handle(&self, handle: &Handle) -> Result<()> {
        self.set_handle(handle)?;
        self.store.plane().bump_epoch_for_move(self.handle());
        Ok(())
    }

    fn set_handle(&self, handle: &Handle) -> Result<()> {
        let bytes = handle.encode()?;
        let set = || rustix::fs::fsetxattr(self.descriptor(), ATTRIBUTE, &bytes, XattrFlags::REPLACE);
        self.as_writable(set).map_err(self.failed("change the handle of"))
    }

    /// Tells all holders of a placement of this file to fetch it again.
    pub fn bump_epoch(&self) {
        self.store.plane().bump_epoch(self.handle());
    }

    /// Value of its epoch counter now. One load, two for a user of a shared pool.
    pub(crate) fn epoch(&self) -> u32 {
        self.store.plane().epoch(self.handle())
    }

    /// What is counted now of changes of its bytes. One load.
    pub(crate) fn counted(&self) -> CountedChanges {
        self.store.plane().counted(self.handle())
    }

    /// Whether the file has only been moved since then. One load.
    pub(crate) fn has_same_bytes(&self, since: CountedChanges) -> bool {
        self.counted() == since
    }

    /// The file as the data plane knows it now.
    pub(crate) fn file(&self) -> Result<Arc<PlacedFile>> {
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner).clone();
        if file.is_stale() || self.changed_elsewhere(&file)? { self.reload() } else { Ok(file) }
    }

    /// [`Inode::file`] without a system call, if no process whose changes this one sees has changed it since.
    pub(crate) fn known_file(&self) -> Result<Arc<PlacedFile>> {
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner).clone();
        if file.is_stale() { self.reload() } else { Ok(file) }
    }

    /// Whether the handle of another user's file in a shared pool is another than `file` was made from: its changes are not in
    /// the epoch counters that this process believes. One load for all other files.
    pub(crate) fn changed_elsewhere(&self, file: &PlacedFile) -> Result<bool> {
        if !self.has_handle() || self.store.plane().sees_changes_of(file.placement().owner) {
            return Ok(false);
        }
        let mut bytes = [0; crate::format::handle::MAX_BYTES];
        let length = rustix::fs::fgetxattr(self.descriptor(), ATTRIBUTE, &mut bytes[..]);
        // What is no handle fails when it is read again.
        Ok(length.ok().and_then(|length| crate::format::handle::checksum(&bytes[..length])) != file.handle_sum())
    }

    /// As [`Placements::to_write`].
    pub(crate) fn to_write(&self, alone: bool) -> Result<(Arc<PlacedFile>, u32)> {
        loop {
            let epoch = self.epoch();
            if !alone {
                self.wait_for_cut();
            }
            let file = self.file()?;
            // No writer of datafiles has left it to who writes the head alone.
            if self.is_cut_beside.load(Ordering::Acquire) && self.registration_now().is_some() {
                self.wait_for_cut_beside(alone)?;
                continue;
            }
            if file.move_beside() != MoveBeside::Switches {
                return Ok((file, epoch));
            }
            if alone {
                // No move switches beside who has the right to change the file: it has ended, or its process has died.
                self.reload()?;
            } else {
                self.wait_for_switch()?;
            }
        }
    }

    /// Lets go of the datafiles on file systems that have died.
    pub(crate) fn let_go_of_dead(&self) {
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner).clone();
        file.let_go_of_dead();
    }

    /// The file as it is, by a descriptor `fd` of the inode, and the value that its epoch counter has had before. What another process
    /// does to it meanwhile is seen, or counts up.
    fn look_by(&self, fd: &Arc<OwnedFd>) -> Result<(u32, PlacedFile)> {
        let epoch = self.epoch();
        // A process that dies in its cut after this look is found in the handle.
        let is_cut_now = self.is_cut_now()?;
        // The handle of a mover that has switched and died is there by now.
        let moves = self.move_beside()?;
        let (newer, truncating_to) = match self.handle {
            Some(handle) => load(&self.store, (handle, epoch), self.real, fd)?,
            None => (in_inode(&self.store, self.real, fd)?, None),
        };
        let is_cut = truncating_to.is_some_and(|to| to < MAX_OFFSET);
        if is_cut_now || (is_cut && self.registration_now().is_some()) {
            self.is_cut_beside.store(true, Ordering::Release);
        }
        newer.set_move_beside(moves);
        Ok((epoch, newer))
    }

    /// Whether what is known of its places is out of date. No system call.
    pub(crate) fn is_known_stale(&self) -> bool {
        self.file.read().unwrap_or_else(PoisonError::into_inner).is_stale()
    }

    /// Reads the placement again after it changed.
    #[cold]
    pub(crate) fn reload(&self) -> Result<Arc<PlacedFile>> {
        loop {
            let (epoch, newer) = self.look_by(self.writable.get().unwrap_or(&self.fd))?;
            let mut file = self.file.write().unwrap_or_else(PoisonError::into_inner);
            if !newer.is_of(epoch) && !self.store.plane().is_shared() {
                // What another thread has read since must not be undone. In a shared pool a user can change the counter all the time, and
                // nothing moves beside writers.
                continue;
            }
            if file.refresh_beside(newer.placement(), newer.move_beside()) {
                // Only now: a thread that finds it equal must also find what it says.
                file.set_handle_sum(newer.handle_sum());
                return Ok(file.clone());
            }
            newer.take_over_syncs(&file);
            *file = Arc::new(newer);
            let now = file.clone();
            drop(file);
            if self.registration_now().is_some() {
                // What this process writes now others have to read there, even if the mover died before it told them all.
                self.bump_epoch();
            }
            return Ok(now);
        }
    }

    /// The placement now (read again when it changed). `bypass` is set unless the file is being moved beside its writers, or another process
    /// cuts it off; the mount clears it where it must.
    pub fn placement(&self) -> Result<Placement> {
        self.placement_for(false)
    }

    /// [`Inode::placement`] for a program that `writes`, or one that reads: a writer waits for a process that cuts the file off, and goes
    /// past the mount afterwards as before.
    ///
    /// # Errors
    /// Those of reading the handle, and of the servers that are to take what was gathered.
    pub fn placement_for(&self, writes: bool) -> Result<Placement> {
        // Who asks goes there itself.
        self.put_gathered()?;
        loop {
            let epoch = self.store.plane().epoch(self.handle());
            // A program that is told now may write without asking again. (A reader, which waits for no other, is not told to write.)
            self.wait_for_cut();
            let file = self.file()?;
            if writes
                && self.is_cut_beside.load(Ordering::Acquire)
                && self.registration_now().is_some()
                && self.wait_for_cut_beside(false).is_ok()
            {
                continue;
            }
            let mut placement = file.current_placement();
            // Who goes there itself marks nothing.
            placement.bypass &= file.move_beside() == MoveBeside::No && !self.is_cut_beside.load(Ordering::Acquire);
            if placement.epoch == epoch {
                return Ok(placement);
            }
        }
    }

    /// The layout now.
    pub fn layout(&self) -> Result<Arc<Layout>> {
        Ok(self.file()?.placement().layout.clone())
    }

    /// Takes the right to change the handle. The file must be registered for writing.
    pub(crate) fn change_handle(&self) -> Result<HandleGuard<'_>> {
        let local = guard(&self.changing);
        let lock = self.registered_lock()?;
        lock.lock(Purpose::Handle, true)?;
        Ok(HandleGuard { _local: local, lock })
    }

    /// Waits for the thread of this process that changes the handle, if one does, and keeps all others from it.
    pub(crate) fn one_change(&self) -> MutexGuard<'_, ()> {
        guard(&self.changing)
    }

    /// Creates the datafiles with these indexes (of the handle's `version`) and sets their present bits. `Ok` as well
    /// when they exist or the version has moved on: fetch the placement again afterwards. The caller must be
    /// registered as a writer.
    pub fn ensure_datafiles(&self, version: u32, indexes: &[u16]) -> Result<()> {
        let guard_of_handle = self.change_handle()?;
        let mut handle = self.read_handle()?;
        if handle.version != version {
            return Ok(());
        }
        let rights = self.rights()?;
        let layout = self.store.layouts.get_for(&handle.layout, rights.uid)?;
        let datafiles = crate::format::placement::Datafiles::new(&layout, &handle.generations)?;
        let is_first = handle.present.is_empty() && layout.head_in_inode_bytes() > 0;
        let _settled = is_first.then(|| self.store.heads.settle_lone(self.handle())).transpose()?;
        let mut made = Ok(());
        for &index in indexes {
            let Some(datafile) = datafiles.table.get(usize::from(index)) else {
                let count = datafiles.table.len();
                made = Err(Error::Invalid(format!("datafile {index} of a file that has {count}")));
                break;
            };
            if !handle.present.contains(usize::from(index)) {
                made = create_datafile(self.store.plane(), self.handle(), self.identity, *datafile, rights).map(drop);
                if made.is_err() {
                    break;
                }
                guard(&self.durable).retain(|other| other != datafile);
                handle.present.insert(usize::from(index));
            }
        }
        // Those that were made are the file's, though another could not be: they go when it goes.
        self.write_handle(&handle).and(made)?;
        drop(guard_of_handle);
        Ok(())
    }

    /// Makes everything written so far durable (`data_only`: as fdatasync). An error is noted for all that have the file open
    /// ([`Inode::sync_for`]).
    pub fn sync(&self, data_only: bool) -> Result<()> {
        self.sync_once(data_only).inspect_err(|error| {
            self.note_lost(error.errno());
            self.store.let_go_of_dead();
        })
    }

    /// Whether its handle asks for its writes to be gathered. No system call where its places are known.
    pub fn writes_behind(&self) -> bool {
        self.known_file().is_ok_and(|file| file.write_behind().is_some())
    }

    /// How far behind its requests are served where the door has a gate; 0: with all others. One comparison without a gate; no
    /// system call where its places are known.
    pub(crate) fn rank(&self) -> u8 {
        if !self.store.plane().door().has_gate() {
            return 0;
        }
        self.known_file().map_or(0, |file| file.class().rank())
    }

    /// For a file that is opened now: it is told of nothing that failed before.
    pub(crate) fn told(&self) -> Told {
        self.failures.told()
    }

    /// [`Inode::sync`] for an open file that has been `told` of what failed so far.
    ///
    /// # Errors
    /// Those of the servers; that of another's sync that has failed since, once.
    pub(crate) fn sync_for(&self, told: &Told, data_only: bool) -> Result<()> {
        let done = self.sync(data_only);
        let failed = self.failures.tell(told);
        done?;
        self.kept(failed)
    }

    /// Puts on the servers what was gathered, for an open file that was `told` of what failed so far. It is not told by this, and what
    /// cannot be put there stays gathered: the close may be that of a child which has come by the descriptor.
    ///
    /// # Errors
    /// Those of the servers; what failed before, and the open file has not been told of.
    pub(crate) fn flush_for(&self, told: &Told) -> Result<()> {
        let put = self.put_gathered();
        put.and(self.kept(self.failures.untold(told)))
    }

    fn kept(&self, failed: Option<Errno>) -> Result<()> {
        failed.map_or(Ok(()), |errno| Err(self.failed("keep what was written to")(errno)))
    }

    /// Notes that bytes of the file may be lost: each that has it open is told by its next sync.
    pub fn note_lost(&self, errno: Errno) {
        self.failures.note(errno);
    }

    fn sync_once(&self, data_only: bool) -> Result<()> {
        self.put_gathered_or_give_up()?;
        loop {
            let file = self.file()?;
            if file.whole_inode().is_some() {
                // A handle has to be durable, too.
                return match data_only && !self.has_handle() {
                    true => retry(|| rustix::fs::fdatasync(self.descriptor())).map_err(self.failed("sync")),
                    false => self.sync_inode(),
                };
            }
            match self.sync_places(&file, data_only) {
                // What a disk has not taken may not have moved either.
                Err(error) if error.tells_of_a_loss() => return Err(error),
                // What has moved is durable where it is now; its datafiles may be gone.
                Err(_) if self.has_moved_from(&file)? => {}
                // What these could not keep, the places that have come meanwhile have been told of.
                Ok(()) if !Arc::ptr_eq(&file, &self.file()?) => {}
                synced => break synced?,
            }
        }
        // The size must not depend on the lock file's surviving a power failure.
        self.store_size()?;
        self.sync_inode()
    }

    /// Makes the datafiles and their names durable.
    fn sync_places(&self, file: &PlacedFile, data_only: bool) -> Result<()> {
        file.sync(data_only)?;
        let present = file.current_placement().present;
        for (index, datafile) in file.datafiles().table.iter().enumerate() {
            if present.contains(index) && !guard(&self.durable).contains(datafile) {
                sync_names(&self.store, self.handle(), *datafile)?;
                guard(&self.durable).push(*datafile);
            }
        }
        Ok(())
    }

    /// Makes the inode itself durable: its handle, its size, what the metadata tier holds of it.
    pub fn sync_inode(&self) -> Result<()> {
        retry(|| rustix::fs::fsync(self.descriptor())).map_err(self.failed("sync"))
    }
}

/// What becomes of what servers have taken behind the bytes that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cuts {
    /// It stays.
    Nothing,
    /// It is cut off, unless another process writes the file.
    Write,
    /// It is cut off: the next record must not begin behind it.
    Append,
}

/// How the store's own requests find a file's bytes: by its handle.
pub(crate) struct ByHandle<'a> {
    pub(crate) inode: &'a Inode,
    pub(crate) cuts: Cuts,
    pub(crate) sender: Sender,
    /// The gate has let it pass already.
    pub(crate) is_admitted: bool,
}

impl<'a> Placements for ByHandle<'a> {
    type Found = Arc<PlacedFile>;
    type Alone = HandleGuard<'a>;

    fn current(&self) -> Result<Arc<PlacedFile>> {
        self.inode.file()
    }

    fn to_write(&self, alone: bool) -> Result<(Arc<PlacedFile>, u32)> {
        self.inode.to_write(alone)
    }

    fn mark(&self, offset: u64, len: u64) -> Result<()> {
        self.inode.mark_beside(offset, len)
    }

    fn renew(&self, _file: &PlacedFile) -> Result<()> {
        self.inode.reload().map(drop)
    }

    fn has_changed(&self, file: &PlacedFile) -> Result<bool> {
        self.inode.changed_elsewhere(file)
    }

    fn make(&self, file: &PlacedFile, indexes: &[u16]) -> Result<()> {
        self.inode.ensure_datafiles(file.placement().version, indexes)
    }

    fn size_bytes(&self) -> Result<u64> {
        self.inode.put_size_bytes()
    }

    fn check_hole(&self, file: &PlacedFile, index: u16, position: u64) -> Result<()> {
        self.inode.check_hole(file, index, position)
    }

    fn cut_back(&self, surplus: &Surplus) -> Result<()> {
        // The write has failed in any case. What cannot be cut off stays, as where others write.
        let _ = match self.cuts {
            Cuts::Nothing => Ok(()),
            Cuts::Write => self.inode.cut_back(surplus),
            Cuts::Append => self.inode.cut_back_append(surplus),
        };
        Ok(())
    }

    fn alone(&self) -> Result<HandleGuard<'a>> {
        self.inode.change_handle()
    }

    fn sender(&self) -> Sender {
        self.sender
    }

    fn is_admitted(&self) -> bool {
        self.is_admitted
    }
}

/// Prepares to serve a file without a handle. No datafile has to belong to its owner.
fn in_inode(store: &Arc<Store>, real: u64, fd: &Arc<OwnedFd>) -> Result<PlacedFile> {
    let placement = Placement {
        pool: store.plane().pool_uuid().clone(),
        handle: real,
        version: 1,
        epoch: store.plane().epoch(real),
        owner: 0,
        identity: Identity::without_generation(real),
        bypass: false,
        generations: GenerationMap::whole(1),
        present: Present::default(),
        layout: store.in_inode().clone(),
    };
    PlacedFile::new(store.plane().clone(), placement, Some(fd.clone()))
}

/// Reads a file's placement and prepares to serve it; with it, what the handle says of a change under way.
/// The value of its epoch counter comes from before: a change after that is seen as one.
fn load(
    store: &Arc<Store>,
    (logical, epoch): (u64, u32),
    real: u64,
    fd: &OwnedFd,
) -> Result<(PlacedFile, Option<u64>)> {
    let path = proc_path(fd.as_fd());
    let owner = rustix::fs::fstat(fd).map_err(Error::io("read", &path))?.st_uid;
    let handle = match read_handle(&path, real)? {
        Some(handle) if handle.logical == logical => handle,
        _ => return Err(Error::Invalid(format!("handle {logical:016x} was exchanged; run `stripewise fsck`"))),
    };
    let truncating_to = handle.truncating_to;
    let layout = store.layouts.get_for(&handle.layout, owner)?;
    store.check_layout(&layout)?;
    let file = place(store, handle, layout, identity_of(store, fd, real)?, owner, epoch, || {
        // Of whichever kind the file was opened with: a write to a descriptor for reading gives EBADF.
        let inode = crate::backend::meta::open(&path).map(|(inode, _)| inode);
        inode.or_else(|_| fd.try_clone().map_err(|_| Errno::MFILE)).map(Arc::new).map_err(Error::io("open", &path))
    })?;
    Ok((file, truncating_to))
}

/// What the datafiles of the inode behind `fd` are bound to. One system call in a shared pool, none in others.
fn identity_of(store: &Store, fd: &OwnedFd, real: u64) -> Result<Identity> {
    if store.plane().is_shared() { Identity::of(fd.as_fd(), real) } else { Ok(Identity::without_generation(real)) }
}

/// Prepares to serve a file with this handle and layout. `inode` gives a descriptor for the bytes that the inode itself
/// holds. No system call where there are none.
fn place(
    store: &Store,
    handle: Handle,
    layout: Arc<Layout>,
    identity: Identity,
    owner: u32,
    epoch: u32,
    inode: impl FnOnce() -> Result<Arc<OwnedFd>>,
) -> Result<PlacedFile> {
    let sum = crate::format::handle::checksum(&handle.encode()?);
    let needs_inode = layout.regions().iter().any(|region| region.stripes()[0].server == ServerId::META);
    let inode = needs_inode.then(inode).transpose()?;
    let parts_bytes = handle.generations.memory_bytes(&layout);
    let share = store.open_memory.share(owner, handle.layout, &layout, parts_bytes)?;
    let placement = Placement {
        pool: store.plane().pool_uuid().clone(),
        handle: handle.logical,
        version: handle.version,
        epoch,
        owner,
        identity,
        bypass: true,
        generations: handle.generations,
        present: handle.present,
        layout,
    };
    let mut file = PlacedFile::new(store.plane().clone(), placement, inode)?;
    file.keep_share(share);
    file.set_paths(&handle.optimisations);
    file.set_handle_sum(sum);
    Ok(file)
}

/// Makes the name of a datafile durable.
pub(crate) fn sync_names(store: &Store, handle: u64, datafile: Datafile) -> Result<()> {
    let server = store.plane().server(datafile.server)?;
    server.current()?.sync_names(datafile.key(handle)).map_err(server.error("sync a directory"))
}
