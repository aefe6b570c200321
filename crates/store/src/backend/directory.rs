//! A server that is a directory: on a local disk, or on any mounted file system.
//!
//! ```text
//! ROOT/.stripewise               the marker: which server of which pool it is
//!      hh/HANDLE.GENERATION      a datafile, in one of 256 directories by the low byte of its handle
//!      lost+found/               what a check keeps
//!      queue                     of an emulated server
//! ```
//! All names are looked up below the open directory, never by the server's path; no link is followed.

use crate::backend::emulate::QUEUE_FILE;
use crate::backend::server::{
    Backend, DatafileAccess, Found, KEPT, Kind, Listing, Server, ServerLimits, Setting, Site, Upkeep, missing,
};
use crate::format::marker::{MARKER_FILE, check_marker, marker_server};
use crate::format::placement::DatafileKey;
use crate::os::descriptors::{close, lift, replace, replace_by_nothing};
use crate::os::direct;
use crate::os::error::{Error, Result};
use crate::os::room::Room;
use crate::os::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use crate::os::sys::{
    made_as_owner, make_directories, make_directory, maps, open_directory, probe_attributes, read_file_at,
    replace_file, retry, sync_directory, sync_file_system,
};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Access as Test, AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::path::PathBuf;
use std::sync::Arc;

/// `f_type` of tmpfs (linux/magic.h).
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
/// A datafile is opened without waiting and without following a link, whatever stands under its name.
const DATAFILE: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW).union(OFlags::NOCTTY).union(OFlags::NONBLOCK);
/// Directories of datafiles, by the low byte of the handle.
const SHELVES: u16 = 256;
/// Mode of one that is made with the first datafile in it.
const SHELF_MODE: Mode = Mode::from_raw_mode(0o711);
/// Mode of one of a shared pool: names cannot be listed, so that only users who may read a file know its handle.
const SHARED_SHELF_MODE: u32 = 0o1733;

/// The directory of a server; opened when it is there, looked for again at each use as long as it is not.
#[derive(Debug)]
struct Directory {
    server: Server,
    /// Uuid of the pool that the marker has to name; `None` if the marker is not asked.
    pool_uuid: Option<Arc<str>>,
    /// Its descriptor has this number or a higher one.
    descriptor_floor: i32,
    /// Descriptor (O_PATH), or -1.
    open: AtomicI32,
    /// Its file system was found dead, and not found again yet.
    died: AtomicBool,
    /// How often that was.
    deaths: AtomicU32,
}

/// The kind `directory` of the pool file.
pub(super) const KIND: Kind = Kind { name: "directory", open, site };

/// Opens nothing yet.
pub(super) fn open(server: &Server, setting: &Setting) -> Box<dyn Backend> {
    Box::new(Directory {
        server: server.clone(),
        pool_uuid: setting.pool_uuid.clone(),
        descriptor_floor: setting.descriptor_floor,
        open: AtomicI32::new(-1),
        died: AtomicBool::new(false),
        deaths: AtomicU32::new(0),
    })
}

/// Where the directory is, or will be.
struct Place {
    root: PathBuf,
}

/// The directory's path.
pub(super) fn site(server: &Server) -> Box<dyn Site> {
    Box::new(Place { root: server.root.clone() })
}

impl Site for Place {
    fn make(&self, for_several: bool) -> Result<()> {
        if for_several {
            return make_directory(&self.root, 0o711);
        }
        make_directories(&self.root, Mode::from_raw_mode(0o700)).map_err(Error::io("make directory", &self.root))
    }

    fn make_shared(&self) -> Result<()> {
        let make = |low| make_directory(&self.root.join(shelf_name(low)), SHARED_SHELF_MODE);
        (0..=u8::MAX).try_for_each(make)
    }

    fn probe_binding(&self) -> rustix::io::Result<()> {
        probe_attributes(&self.root)
    }

    fn marker(&self) -> rustix::io::Result<Vec<u8>> {
        read_file_at(open_directory(&self.root)?, MARKER_FILE, 4096)
    }

    fn write_marker(&self, text: &str) -> rustix::io::Result<()> {
        replace_file(open_directory(&self.root)?, MARKER_FILE, text.as_bytes(), Mode::from_raw_mode(0o644))
    }

    fn unmake(&self) -> rustix::io::Result<()> {
        let directory = match open_directory(&self.root) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            opened => opened?,
        };
        for shelf in 0..SHELVES {
            // One that is not empty has something that is not the store's.
            let _ = rustix::fs::unlinkat(&directory, shelf_name(shelf as u8), AtFlags::REMOVEDIR);
        }
        for name in [QUEUE_FILE, MARKER_FILE] {
            match rustix::fs::unlinkat(&directory, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        // Where the disk itself is mounted there, or others have put something there, it stays.
        let _ = rustix::fs::rmdir(&self.root);
        Ok(())
    }
}

/// Whether the kernel keeps pages of files there, and so can read ahead of a request. A file system without pages of its own
/// (FUSE with direct I/O) reads once more for each request what advice has made the kernel read, and maps no file.
fn keeps_pages(directory: BorrowedFd<'_>) -> bool {
    let marker = retry(|| rustix::fs::openat(directory, MARKER_FILE, DATAFILE, Mode::empty()));
    marker.map_or(true, |marker| maps(&marker))
}

/// Whether the file system takes requests that leave nothing in its page cache.
fn passes_cache(directory: BorrowedFd<'_>) -> bool {
    let marker = retry(|| rustix::fs::openat(directory, MARKER_FILE, DATAFILE, Mode::empty()));
    marker.is_ok_and(|marker| direct::is_taken(marker.as_fd()))
}

/// The name of the directory of datafiles with that low byte.
fn shelf_name(low: u8) -> String {
    format!("{low:02x}")
}

/// Handle and generation of a datafile's name.
fn parse(name: &str) -> Option<DatafileKey> {
    let digits = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit));
    let (handle, generation) = name.split_once('.')?;
    if handle.len() != 16 || generation.len() != 8 || !digits(handle) || !digits(generation) {
        return None;
    }
    let handle = u64::from_str_radix(handle, 16).ok()?;
    Some(DatafileKey { handle, generation: u32::from_str_radix(generation, 16).ok()? })
}

/// Moves `from` to `to`, which must be free.
fn rename(directory: BorrowedFd<'_>, from: &CStr, to: &CStr) -> rustix::io::Result<()> {
    match rustix::fs::renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE) {
        // A file system that knows no such rename. No other process makes the name: a check makes that of what it
        // keeps, and holds the file's lock while it makes that of a datafile.
        Err(Errno::INVAL | Errno::NOSYS) => match rustix::fs::statat(directory, to, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => rustix::fs::renameat(directory, from, directory, to),
            Ok(_) => Err(Errno::EXIST),
            Err(errno) => Err(errno),
        },
        done => done,
    }
}

/// Makes directory `name`. Before something is moved into it, it is on the disk: a power cut must not leave the one
/// without the other.
fn make_durable(directory: BorrowedFd<'_>, name: &str, mode: Mode) -> rustix::io::Result<()> {
    match made_as_owner(directory, || rustix::fs::mkdirat(directory, name, mode)) {
        Ok(()) => sync_directory(directory, "."),
        Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Makes a file without a name: by `O_TMPFILE`, or unlinked at once where the file system has none.
fn unnamed(directory: &OwnedFd, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    match rustix::fs::openat(directory, ".", flags | OFlags::TMPFILE, mode) {
        // EINVAL may be O_DIRECT's refusal as well: the second way then gives it again.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {}
        other => return other,
    }
    let random = u64::from_ne_bytes(crate::os::sys::random());
    let name = format!(".calibrate.{}.{random:x}", std::process::id());
    let file = rustix::fs::openat(directory, name.as_str(), flags | OFlags::CREATE | OFlags::EXCL, mode);
    // Some file systems refuse O_DIRECT after they have made the file.
    match rustix::fs::unlinkat(directory, name.as_str(), AtFlags::empty()) {
        Ok(()) => file,
        Err(errno) => file.and(Err(errno)),
    }
}

impl Directory {
    /// The open directory; ENOTCONN before [`Backend::connect`] has found it. One atomic load.
    fn fd(&self) -> rustix::io::Result<BorrowedFd<'_>> {
        let open = self.open.load(Ordering::Acquire);
        if open < 0 {
            return Err(Errno::NOTCONN);
        }
        // SAFETY: once set, the descriptor stays open until `self` is dropped.
        Ok(unsafe { BorrowedFd::borrow_raw(open) })
    }

    fn missing(&self, reason: impl Into<String>) -> Error {
        missing(&self.server, reason)
    }

    fn failed(&self, errno: Errno) -> Error {
        Error::Server { action: "open", server: self.server.name.clone(), errno }
    }

    /// Opens the directory that stands at the server's path now, and checks its marker.
    fn open_marked(&self) -> Result<OwnedFd> {
        let fd = open_directory(&self.server.root).map_err(|errno| self.missing(errno.to_string()))?;
        let Some(uuid) = &self.pool_uuid else { return Ok(fd) };
        let text = read_file_at(&fd, MARKER_FILE, 4096).map_err(|errno| {
            let what = if errno == Errno::NOENT { "no marker file" } else { "cannot read the marker file" };
            self.missing(format!("{what} {MARKER_FILE}: {errno}"))
        })?;
        let own = marker_server(&self.server.name, self.server.id);
        check_marker(&text, uuid, &own).map_err(|reason| self.missing(reason))?;
        Ok(fd)
    }

    /// Lets go of the directory, as its file system has died. As long as anything of it is open, to mount the same disk
    /// again gives the dead file system again.
    fn let_go(&self) {
        let open = self.open.load(Ordering::Acquire);
        if open >= 0 && !self.died.swap(true, Ordering::AcqRel) {
            replace_by_nothing(open);
            self.deaths.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The entries of directory `path` below the server's, but `.` and `..`.
    fn entries(&self, path: &str) -> rustix::io::Result<impl Iterator<Item = rustix::io::Result<CString>> + use<>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = retry(|| rustix::fs::openat(self.fd()?, path, flags, Mode::empty()))?;
        let names = Dir::new(directory)?.map(|entry| entry.map(|entry| entry.file_name().to_owned()));
        Ok(names.filter(|name| !name.as_ref().is_ok_and(|name| matches!(name.to_bytes(), b"." | b".."))))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let open = *self.open.get_mut();
        if open >= 0 {
            close(open);
        }
    }
}

impl Backend for Directory {
    fn server(&self) -> &Server {
        &self.server
    }

    fn limits(&self) -> ServerLimits {
        let Ok(directory) = self.fd() else { return ServerLimits::NONE };
        let in_memory = rustix::fs::fstatfs(directory).is_ok_and(|stat| stat.f_type == TMPFS_MAGIC);
        let in_turn = !keeps_pages(directory);
        let passes_cache = !in_memory && passes_cache(directory);
        ServerLimits { takes_advice: !in_memory && !in_turn, passes_cache, in_turn, ..ServerLimits::NONE }
    }

    fn connect(&self) -> Result<()> {
        if self.open.load(Ordering::Acquire) >= 0 {
            return Ok(());
        }
        let fd = lift(self.open_marked()?, self.descriptor_floor).map_err(|errno| self.failed(errno))?;
        if self.open.compare_exchange(-1, fd, Ordering::AcqRel, Ordering::Acquire).is_err() {
            close(fd);
        }
        Ok(())
    }

    /// Two system calls when nothing has changed.
    fn look_again(&self) -> Result<()> {
        let directory = self.fd().map_err(|errno| self.failed(errno))?;
        let identity = |stat: Stat| (stat.st_dev, stat.st_ino);
        let known = rustix::fs::fstat(directory).map(identity);
        let there = rustix::fs::stat(&self.server.root).map(identity);
        if known.is_ok() && known == there {
            return Ok(());
        }
        if known.is_err() {
            self.let_go();
        }
        let found = self.open_marked()?;
        // In the old one's place: other threads go on with its number.
        replace(directory.as_raw_fd(), found).map_err(|errno| self.failed(errno))?;
        self.died.store(false, Ordering::Release);
        Ok(())
    }

    fn has_died(&self) -> bool {
        self.died.load(Ordering::Acquire)
    }

    fn deaths(&self) -> u32 {
        self.deaths.load(Ordering::Acquire)
    }

    fn is_marked(&self) -> rustix::io::Result<()> {
        rustix::fs::accessat(self.fd()?, MARKER_FILE, Test::EXISTS, AtFlags::empty())
    }

    fn holds(&self, datafile: BorrowedFd<'_>) -> bool {
        let device = |fd| rustix::fs::fstat(fd).map(|stat| stat.st_dev);
        let (own, its) = (self.fd().and_then(device), device(datafile));
        own.is_ok() && own == its
    }

    fn make(&self, key: DatafileKey) -> rustix::io::Result<OwnedFd> {
        let (directory, path) = (self.fd()?, key.path());
        let new = DATAFILE | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let make = || retry(|| rustix::fs::openat(directory, path.as_c_str(), new, Mode::from_raw_mode(0o600)));
        match make() {
            // The first datafile of its shelf.
            Err(Errno::NOENT) => {}
            made => return made,
        }
        match made_as_owner(directory, || rustix::fs::mkdirat(directory, path.directory(), SHELF_MODE)) {
            Ok(()) | Err(Errno::EXIST) => make(),
            Err(errno) => Err(errno),
        }
    }

    fn open(&self, key: DatafileKey, access: DatafileAccess) -> rustix::io::Result<OwnedFd> {
        let (directory, path) = (self.fd()?, key.path());
        let mode = match access {
            DatafileAccess::Read => OFlags::RDONLY,
            DatafileAccess::ReadWrite => OFlags::RDWR,
        };
        retry(|| rustix::fs::openat(directory, path.as_c_str(), mode | DATAFILE, Mode::empty()))
    }

    fn stat(&self, key: DatafileKey) -> rustix::io::Result<Stat> {
        rustix::fs::statat(self.fd()?, key.path().as_c_str(), AtFlags::SYMLINK_NOFOLLOW)
    }

    fn unlink(&self, key: DatafileKey, what: FileType) -> rustix::io::Result<()> {
        let flags = if what == FileType::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        rustix::fs::unlinkat(self.fd()?, key.path().as_c_str(), flags)
    }

    fn sync_names(&self, key: DatafileKey) -> rustix::io::Result<()> {
        let directory = self.fd()?;
        let names = sync_directory(directory, key.path().directory()).and_then(|()| sync_directory(directory, "."));
        match names {
            // A shared pool's, which only root may list: the whole file system then.
            Err(Errno::ACCESS) => sync_file_system(directory, MARKER_FILE),
            done => done,
        }
    }

    fn generations(&self, handle: u64) -> rustix::io::Result<Option<Vec<u32>>> {
        let entries = match self.entries(&shelf_name(handle as u8)) {
            Ok(entries) => entries,
            Err(Errno::NOENT) => return Ok(Some(Vec::new())),
            Err(Errno::ACCESS) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        let mut found = Vec::new();
        for name in entries {
            let key = name?.to_str().ok().and_then(parse);
            found.extend(key.filter(|key| key.handle == handle).map(|key| key.generation));
        }
        Ok(Some(found))
    }

    fn place(&self, key: DatafileKey) -> PathBuf {
        self.server.root.join(key.path().as_str())
    }

    fn room(&self) -> rustix::io::Result<Room> {
        Room::of(self.fd()?)
    }

    fn own_directory(&self) -> rustix::io::Result<BorrowedFd<'_>> {
        self.fd()
    }

    fn scratch(&self, direct: bool) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let readable = rustix::fs::openat(self.fd()?, ".", flags, Mode::empty())?;
        unnamed(&readable, if direct { OFlags::DIRECT } else { OFlags::empty() })
    }

    fn upkeep(&self) -> &dyn Upkeep {
        self
    }
}

impl Upkeep for Directory {
    fn parts(&self) -> u16 {
        SHELVES
    }

    fn part_name(&self, part: u16) -> String {
        shelf_name(part as u8)
    }

    fn list(&self, part: u16) -> Listing<'_, Found> {
        let low = part as u8;
        let shelf = shelf_name(low);
        let entries = match self.entries(&shelf) {
            Ok(entries) => entries,
            Err(Errno::NOENT) => return Ok(Box::new(std::iter::empty())),
            Err(errno) => return Err(errno),
        };
        let found = move |name: CString| {
            let name = name.to_string_lossy();
            match parse(&name) {
                Some(key) if key.handle as u8 == low => Found::Datafile(key),
                Some(key) => Found::Elsewhere(key, format!("{shelf}/{name}")),
                None => Found::Unknown(format!("{shelf}/{name}")),
            }
        };
        Ok(Box::new(entries.map(move |name| name.map(&found))))
    }

    fn strangers(&self) -> Listing<'_, String> {
        let is_own = |name: &str| {
            let shelf = name.len() == 2 && u8::from_str_radix(name, 16).is_ok();
            shelf || [MARKER_FILE, QUEUE_FILE, KEPT].contains(&name)
        };
        let names = self.entries(".")?.map(|name| name.map(|name| name.to_string_lossy().into_owned()));
        Ok(Box::new(names.filter(move |name| !name.as_ref().is_ok_and(|name| is_own(name)))))
    }

    fn keep(&self, key: DatafileKey, from: Option<&str>, kept: &str) -> rustix::io::Result<()> {
        let directory = self.fd()?;
        make_durable(directory, KEPT, Mode::from_raw_mode(0o700))?;
        let from = from.map_or_else(|| key.path().as_c_str().to_owned(), |from| CString::new(from).unwrap_or_default());
        rename(directory, &from, &CString::new(kept).unwrap_or_default())
    }

    fn has_kept(&self, kept: &str) -> bool {
        self.fd().is_ok_and(|directory| rustix::fs::statat(directory, kept, AtFlags::SYMLINK_NOFOLLOW).is_ok())
    }

    fn put_right(&self, key: DatafileKey, from: &str) -> rustix::io::Result<()> {
        let (directory, path) = (self.fd()?, key.path());
        make_durable(directory, path.directory(), SHELF_MODE)?;
        rename(directory, &CString::new(from).unwrap_or_default(), path.as_c_str())
    }

    fn is_guarded(&self, key: DatafileKey) -> bool {
        let only_owner_writes = |name| {
            let stat = self.fd().and_then(|directory| rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW));
            stat.is_ok_and(|stat| stat.st_mode & 0o022 == 0)
        };
        only_owner_writes(".") && only_owner_writes(key.path().directory())
    }

    fn sync(&self) -> rustix::io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(self.fd()?, ".", flags, Mode::empty()).and_then(rustix::fs::syncfs)
    }

    fn allocated_bytes(&self, except: &[u64]) -> u64 {
        let mut bytes = 0;
        for shelf in self.entries(".").into_iter().flatten().flatten() {
            let Ok(shelf) = shelf.to_str() else { continue };
            for name in self.entries(shelf).into_iter().flatten().flatten() {
                let handle = name.to_str().ok().and_then(parse).map(|key| key.handle);
                if handle.is_some_and(|handle| except.contains(&handle)) {
                    continue;
                }
                let path = format!("{shelf}/{}", name.to_string_lossy());
                let stat = self.fd().and_then(|fd| rustix::fs::statat(fd, path, AtFlags::SYMLINK_NOFOLLOW));
                bytes += stat.map_or(0, |stat| 512 * stat.st_blocks as u64);
            }
        }
        bytes
    }
}
