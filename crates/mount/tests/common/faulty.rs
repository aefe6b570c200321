//! A server's directory that misbehaves when a test tells it to: a FUSE file system of the tests' own over a plain
//! directory. What fails below the store fails by the kernel's own answer, not by a stand-in for the kernel.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    AccessFlags, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

/// What goes wrong; nothing by default.
#[derive(Debug, Default)]
pub struct Faults {
    /// Reads of file contents give this.
    pub read: Option<Errno>,
    /// Reads of this stretch of any file give EIO: bad sectors.
    pub bad: Option<std::ops::Range<u64>>,
    /// Writes of file contents give this.
    pub write: Option<Errno>,
    /// `fsync` gives this.
    pub sync: Option<Errno>,
    /// Opening files for writing gives this.
    pub open: Option<Errno>,
    /// Making files gives this.
    pub create: Option<Errno>,
    /// Removing files gives this.
    pub remove: Option<Errno>,
    /// Changing attributes, and the size among them, gives this.
    pub change: Option<Errno>,
    /// One change of attributes, counted from the next one (0), gives this.
    pub one_change: Option<(usize, Errno)>,
    /// A read or write moves at most that many bytes.
    pub at_most_bytes: Option<usize>,
    /// Every second read or write is interrupted before it did anything.
    pub interrupts: bool,
    /// Requests for contents wait until this is taken back.
    pub holds: bool,
    /// Removals of files do.
    pub holds_removals: bool,
    /// Requests for the free space wait until this is taken back.
    pub holds_statfs: bool,
    /// Requests that wait now.
    pub held: usize,
    calls: u64,
}

impl Faults {
    /// What the change of attributes that comes now gives.
    fn of_change(&mut self) -> Option<Errno> {
        let one = match self.one_change.take() {
            Some((0, errno)) => Some(errno),
            later => {
                self.one_change = later.map(|(before, errno)| (before - 1, errno));
                None
            }
        };
        self.change.or(one)
    }
}

#[derive(Debug, Default)]
struct Switch {
    faults: Mutex<Faults>,
    changed: Condvar,
}

/// What a request for contents waits for, beside what goes wrong.
pub trait Pace: Send + Sync {
    /// Returns when the device has served `bytes` bytes at `offset` of file `node`.
    fn serve(&self, node: u64, offset: u64, bytes: u64, writes: bool);
}

/// Takes no time.
struct AtOnce;

impl Pace for AtOnce {
    fn serve(&self, _node: u64, _offset: u64, _bytes: u64, _writes: bool) {}
}

/// The file system, mounted on a server's directory; gone with the value.
pub struct Faulty {
    switch: Arc<Switch>,
    root: PathBuf,
    session: Option<fuser::BackgroundSession>,
}

impl Faulty {
    /// Mounts the directory `below` on `root`.
    pub fn mount(below: &Path, root: &Path) -> Faulty {
        Faulty::with(below, root, Box::new(AtOnce), 8, FopenFlags::FOPEN_DIRECT_IO)
    }

    /// The same on a device that takes its time, for up to `threads` requests at once.
    pub fn paced(below: &Path, root: &Path, pace: Box<dyn Pace>, threads: usize) -> Faulty {
        // The queue is the device's, and not the kernel's lock of a file.
        let opened_with = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        Faulty::with(below, root, pace, threads, opened_with)
    }

    fn with(below: &Path, root: &Path, pace: Box<dyn Pace>, threads: usize, opened_with: FopenFlags) -> Faulty {
        let switch = Arc::new(Switch::default());
        let nodes = Mutex::new(Nodes::new(below));
        let fs = Fs { switch: switch.clone(), nodes, files: Mutex::default(), pace, opened_with };
        let mut config = Config::default();
        // It runs several requests at once: one that is held must not hold the others.
        config.n_threads = Some(threads);
        config.mount_options = vec![MountOption::FSName("faulty".to_owned())];
        let session = fuser::spawn_mount(fs, root, &config).expect("mounting the misbehaving server");
        Faulty { switch, root: root.to_owned(), session: Some(session) }
    }

    /// Changes what goes wrong.
    pub fn set(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.switch.faults.lock().unwrap_or_else(PoisonError::into_inner));
        self.switch.changed.notify_all();
    }

    /// Nothing goes wrong from now on.
    pub fn well(&self) {
        self.set(|faults| *faults = Faults { held: faults.held, ..Faults::default() });
    }

    /// Requests that wait now.
    pub fn held(&self) -> usize {
        self.switch.faults.lock().unwrap().held
    }

    /// The server dies: processes with open files of it get ENOTCONN, and its directory is empty.
    pub fn die(mut self) {
        abort(&self.root);
        drop(self.session.take());
    }
}

/// Ends the connection of the FUSE mount on `root`, as the death of its server does, and takes the mount away.
fn abort(root: &Path) {
    use rustix::mount::{UnmountFlags, unmount};
    // Where it is busy it stays, but its connection ends.
    if unmount(root, UnmountFlags::FORCE).is_err() {
        unmount(root, UnmountFlags::DETACH).unwrap();
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        self.well();
        if self.session.is_some() {
            // A test that failed still has files open there.
            let _ = rustix::mount::unmount(&self.root, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

/// Nodes by number, as paths. Only files are renamed below a server's directory.
struct Nodes {
    paths: HashMap<u64, PathBuf>,
    numbers: HashMap<PathBuf, u64>,
}

impl Nodes {
    fn new(root: &Path) -> Nodes {
        let number = INodeNo::ROOT.0;
        Nodes { paths: [(number, root.to_owned())].into(), numbers: [(root.to_owned(), number)].into() }
    }

    fn number(&mut self, path: &Path) -> u64 {
        let next = self.paths.len() as u64 + INodeNo::ROOT.0;
        let number = *self.numbers.entry(path.to_owned()).or_insert(next);
        self.paths.insert(number, path.to_owned());
        number
    }

    /// The node of `from` stands at `to` from now on.
    fn renamed(&mut self, from: &Path, to: &Path) {
        if let Some(number) = self.numbers.remove(from) {
            self.numbers.insert(to.to_owned(), number);
            self.paths.insert(number, to.to_owned());
        }
    }
}

struct Fs {
    switch: Arc<Switch>,
    nodes: Mutex<Nodes>,
    files: Mutex<HashMap<u64, Arc<File>>>,
    pace: Box<dyn Pace>,
    opened_with: FopenFlags,
}

/// Nothing is remembered by the kernel, so that a fault is seen at once.
const TTL: Duration = Duration::ZERO;

fn errno(error: std::io::Error) -> Errno {
    Errno::from_i32(error.raw_os_error().unwrap_or(libc::EIO))
}

fn time(seconds: i64, nanoseconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::new(seconds as u64, nanoseconds as u32)
}

fn attributes(number: u64, found: &Metadata) -> FileAttr {
    let kind = found.file_type();
    FileAttr {
        ino: INodeNo(number),
        size: found.size(),
        blocks: found.blocks(),
        atime: time(found.atime(), found.atime_nsec()),
        mtime: time(found.mtime(), found.mtime_nsec()),
        ctime: time(found.ctime(), found.ctime_nsec()),
        crtime: UNIX_EPOCH,
        kind: match () {
            () if kind.is_dir() => FileType::Directory,
            () if kind.is_symlink() => FileType::Symlink,
            () if kind.is_fifo() => FileType::NamedPipe,
            () => FileType::RegularFile,
        },
        perm: (found.permissions().mode() & 0o7777) as u16,
        nlink: found.nlink() as u32,
        uid: found.uid(),
        gid: found.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Fs {
    fn path(&self, number: INodeNo) -> PathBuf {
        self.nodes.lock().unwrap().paths[&number.0].clone()
    }

    fn found(&self, path: &Path) -> Result<FileAttr, Errno> {
        let found = path.symlink_metadata().map_err(errno)?;
        Ok(attributes(self.nodes.lock().unwrap().number(path), &found))
    }

    fn file(&self, handle: FileHandle) -> Arc<File> {
        self.files.lock().unwrap()[&handle.0].clone()
    }

    fn keep(&self, file: File) -> FileHandle {
        let mut files = self.files.lock().unwrap();
        let handle = files.keys().max().map_or(1, |last| last + 1);
        files.insert(handle, Arc::new(file));
        FileHandle(handle)
    }

    /// How many of `wanted` bytes a request may move, after it waited if it has to.
    fn admit(&self, wanted: usize, fault: impl Fn(&Faults) -> Option<Errno>) -> Result<usize, Errno> {
        let mut faults = self.switch.faults.lock().unwrap();
        faults.held += 1;
        while faults.holds {
            faults = self.switch.changed.wait(faults).unwrap();
        }
        faults.held -= 1;
        faults.calls += 1;
        if faults.interrupts && faults.calls.is_multiple_of(2) {
            return Err(Errno::EINTR);
        }
        fault(&faults).map_or(Ok(wanted.min(faults.at_most_bytes.unwrap_or(wanted))), Err)
    }
}

impl Filesystem for Fs {
    fn statfs(&self, _request: &Request, _node: INodeNo, reply: ReplyStatfs) {
        let mut faults = self.switch.faults.lock().unwrap();
        while faults.holds_statfs {
            faults = self.switch.changed.wait(faults).unwrap();
        }
        // Without sizes.
        reply.statfs(0, 0, 0, 0, 0, 512, 255, 0);
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.found(&self.path(parent).join(name)) {
            Ok(found) => reply.entry(&TTL, &found, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn getattr(&self, _request: &Request, node: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        // A file without a name is known to processes that have it open.
        let found = match handle {
            Some(handle) => self.file(handle).metadata().map(|found| attributes(node.0, &found)).map_err(errno),
            None => self.found(&self.path(node)),
        };
        match found {
            Ok(found) => reply.attr(&TTL, &found),
            Err(errno) => reply.error(errno),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if let Some(errno) = self.switch.faults.lock().unwrap().of_change() {
            return reply.error(errno);
        }
        let path = self.path(node);
        let set = (|| {
            if let Some(mode) = mode {
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode & 0o7777))?;
            }
            if uid.is_some() || gid.is_some() {
                std::os::unix::fs::lchown(&path, uid, gid)?;
            }
            if size.is_some() || atime.is_some() || mtime.is_some() {
                let file = File::options().write(true).open(&path)?;
                if let Some(size) = size {
                    file.set_len(size)?;
                }
                let at = |time| match time {
                    TimeOrNow::SpecificTime(time) => time,
                    TimeOrNow::Now => SystemTime::now(),
                };
                let mut times = std::fs::FileTimes::new();
                times = atime.map_or(times, |time| times.set_accessed(at(time)));
                times = mtime.map_or(times, |time| times.set_modified(at(time)));
                file.set_times(times)?;
            }
            Ok(())
        })();
        match set.map_err(errno).and_then(|()| self.found(&path)) {
            Ok(found) => reply.attr(&TTL, &found),
            Err(errno) => reply.error(errno),
        }
    }

    fn mkdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let path = self.path(parent).join(name);
        let made = std::fs::DirBuilder::new().mode(mode).create(&path).map_err(errno);
        match made.and_then(|()| self.found(&path)) {
            Ok(found) => reply.entry(&TTL, &found, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut faults = self.switch.faults.lock().unwrap();
        faults.held += 1;
        while faults.holds_removals {
            faults = self.switch.changed.wait(faults).unwrap();
        }
        faults.held -= 1;
        let refused = faults.remove;
        drop(faults);
        let removed = match refused {
            Some(errno) => Err(errno),
            None => std::fs::remove_file(self.path(parent).join(name)).map_err(errno),
        };
        match removed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let (from, to) = (self.path(parent).join(name), self.path(new_parent).join(new_name));
        match std::fs::rename(&from, &to) {
            Ok(()) => {
                self.nodes.lock().unwrap().renamed(&from, &to);
                reply.ok();
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn open(&self, _request: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let writes = flags.0 & libc::O_ACCMODE != libc::O_RDONLY;
        let refused = writes.then(|| self.switch.faults.lock().unwrap().open).flatten();
        let opened = match refused {
            Some(errno) => Err(errno),
            None => File::options().read(true).write(writes).open(self.path(node)).map_err(errno),
        };
        match opened {
            // Every read and write of the store comes here.
            Ok(file) => reply.opened(self.keep(file), self.opened_with),
            Err(errno) => reply.error(errno),
        }
    }

    fn create(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let path = self.path(parent).join(name);
        let made = match self.switch.faults.lock().unwrap().create {
            Some(errno) => Err(errno),
            None => File::options().read(true).write(true).create(true).mode(mode).open(&path).map_err(errno),
        };
        match made.and_then(|file| Ok((file, self.found(&path)?))) {
            Ok((file, found)) => {
                let handle = self.keep(file);
                reply.created(&TTL, &found, Generation(0), handle, self.opened_with);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _request: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let touches = |bad: &std::ops::Range<u64>| offset < bad.end && bad.start < offset + u64::from(size);
        let is_bad = |faults: &Faults| faults.bad.as_ref().is_some_and(touches).then_some(Errno::EIO);
        let read = self.admit(size as usize, |faults| faults.read.or(is_bad(faults))).and_then(|count| {
            let mut bytes = vec![0; count];
            let got = self.file(handle).read_at(&mut bytes, offset).map_err(errno)?;
            bytes.truncate(got);
            if got > 0 {
                self.pace.serve(node.0, offset, got as u64, false);
            }
            Ok(bytes)
        });
        match read {
            Ok(bytes) => reply.data(&bytes),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _request: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self
            .admit(data.len(), |faults| faults.write)
            .and_then(|count| self.file(handle).write_at(&data[..count], offset).map_err(errno));
        if let Ok(count) = written {
            self.pace.serve(node.0, offset, count as u64, true);
        }
        match written {
            Ok(count) => reply.written(count as u32),
            Err(errno) => reply.error(errno),
        }
    }

    fn fsync(&self, _request: &Request, _node: INodeNo, handle: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        match self.admit(0, |faults| faults.sync).and_then(|_| self.file(handle).sync_all().map_err(errno)) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn release(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.files.lock().unwrap().remove(&handle.0);
        reply.ok();
    }

    fn opendir(&self, _request: &Request, _node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn readdir(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: fuser::ReplyDirectory,
    ) {
        let entries = match std::fs::read_dir(self.path(node)) {
            Ok(entries) => entries,
            Err(error) => return reply.error(errno(error)),
        };
        for (index, entry) in entries.flatten().enumerate().skip(offset as usize) {
            let number = self.nodes.lock().unwrap().number(&entry.path());
            let kind = if entry.path().is_dir() { FileType::Directory } else { FileType::RegularFile };
            if reply.add(INodeNo(number), index as u64 + 1, kind, entry.file_name()) {
                break;
            }
        }
        reply.ok();
    }

    fn fsyncdir(&self, _request: &Request, node: INodeNo, _handle: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        match File::open(self.path(node)).and_then(|dir| dir.sync_all()) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn access(&self, _request: &Request, _node: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.ok();
    }
}
