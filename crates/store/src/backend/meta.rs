//! The metadata tier as a server: the inode of a file keeps bytes of its own, at their own offsets.
//!
//! It has no datafiles to make, list or remove: an inode is found by the file's own name, and goes with it. That the namespace
//! is there it leaves to the backend `directory`, which it asks only where it needs the directory itself.

use super::directory;
use super::server::{Backend, DatafileAccess, Found, Kind, Listing, Server, ServerLimits, Setting, Upkeep};
use crate::format::placement::DatafileKey;
use crate::os::error::Result;
use crate::os::room::Room;
use crate::os::sys::retry;
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::{Errno, Result as Io};
use std::path::{Path, PathBuf};

/// Directory of the names, in the namespace: the inodes are there.
pub(crate) const TREE: &str = "tree";

/// What it can do: its stripe stands alone in its region, because a byte has the same offset in the inode as in the
/// file.
pub(super) const LIMITS: ServerLimits = ServerLimits { most_stripes: 1, ..ServerLimits::NONE };

/// The kind of the one server `meta`.
pub(super) const KIND: Kind = Kind { name: "inode", open: open_tier, site: directory::site };

/// A descriptor of our own for the bytes of the inode at `path` (a name in /proc), and whether it can write.
pub(crate) fn open(path: &Path) -> Io<(OwnedFd, bool)> {
    match open_as(path, OFlags::RDWR) {
        Err(Errno::ACCESS | Errno::ROFS | Errno::PERM | Errno::TXTBSY) => Ok((open_as(path, OFlags::RDONLY)?, false)),
        opened => Ok((opened?, true)),
    }
}

/// As [`open`], for `access` alone.
pub(crate) fn open_as(path: &Path, access: OFlags) -> Io<OwnedFd> {
    // NONBLOCK: its owner may hold a lease on it, for which the kernel would have us wait.
    let flags = OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    retry(|| rustix::fs::open(path, access | flags, Mode::empty()))
}

#[derive(Debug)]
struct MetadataTier {
    /// The directory of the namespace.
    namespace: Box<dyn Backend>,
}

/// Opens nothing yet.
fn open_tier(server: &Server, setting: &Setting) -> Box<dyn Backend> {
    // The marker there is the namespace's, which is checked with the pool.
    Box::new(MetadataTier { namespace: directory::open(server, &Setting { pool_uuid: None, ..setting.clone() }) })
}

impl MetadataTier {
    fn namespace(&self) -> Io<&dyn Backend> {
        self.namespace.connect().map_err(|error| error.errno())?;
        Ok(&*self.namespace)
    }
}

impl Backend for MetadataTier {
    fn server(&self) -> &Server {
        self.namespace.server()
    }

    fn limits(&self) -> ServerLimits {
        LIMITS
    }

    /// Nothing: a request has its inode.
    fn connect(&self) -> Result<()> {
        Ok(())
    }

    fn look_again(&self) -> Result<()> {
        self.namespace.connect()?;
        self.namespace.look_again()
    }

    fn has_died(&self) -> bool {
        self.namespace.has_died()
    }

    fn deaths(&self) -> u32 {
        self.namespace.deaths()
    }

    fn is_marked(&self) -> Io<()> {
        self.namespace()?.is_marked()
    }

    fn holds(&self, datafile: BorrowedFd<'_>) -> bool {
        self.namespace().is_ok_and(|namespace| namespace.holds(datafile))
    }

    fn make(&self, _key: DatafileKey) -> Io<OwnedFd> {
        Err(Errno::OPNOTSUPP)
    }

    fn open(&self, _key: DatafileKey, _access: DatafileAccess) -> Io<OwnedFd> {
        Err(Errno::NOENT)
    }

    fn stat(&self, _key: DatafileKey) -> Io<Stat> {
        Err(Errno::NOENT)
    }

    fn unlink(&self, _key: DatafileKey, _what: FileType) -> Io<()> {
        Err(Errno::NOENT)
    }

    fn sync_names(&self, _key: DatafileKey) -> Io<()> {
        Ok(())
    }

    fn generations(&self, _handle: u64) -> Io<Option<Vec<u32>>> {
        Ok(Some(Vec::new()))
    }

    fn place(&self, _key: DatafileKey) -> PathBuf {
        self.server().root.join(TREE)
    }

    fn room(&self) -> Io<Room> {
        let directory = self.namespace()?.own_directory()?;
        let tree = rustix::fs::openat(directory, TREE, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        Room::of(tree.as_fd())
    }

    fn own_directory(&self) -> Io<BorrowedFd<'_>> {
        self.namespace()?.own_directory()
    }

    fn scratch(&self, direct: bool) -> Io<OwnedFd> {
        self.namespace()?.scratch(direct)
    }

    fn upkeep(&self) -> &dyn Upkeep {
        self
    }
}

/// A check of the pool goes through the names, and with them through the inodes: there is nothing else.
impl Upkeep for MetadataTier {
    fn parts(&self) -> u16 {
        0
    }

    fn part_name(&self, _part: u16) -> String {
        TREE.into()
    }

    fn list(&self, _part: u16) -> Listing<'_, Found> {
        Ok(Box::new(std::iter::empty()))
    }

    fn strangers(&self) -> Listing<'_, String> {
        Ok(Box::new(std::iter::empty()))
    }

    fn keep(&self, _key: DatafileKey, _from: Option<&str>, _kept: &str) -> Io<()> {
        Err(Errno::NOENT)
    }

    fn has_kept(&self, _kept: &str) -> bool {
        false
    }

    fn put_right(&self, _key: DatafileKey, _from: &str) -> Io<()> {
        Err(Errno::NOENT)
    }

    fn is_guarded(&self, _key: DatafileKey) -> bool {
        true
    }

    fn sync(&self) -> Io<()> {
        self.namespace()?.upkeep().sync()
    }

    fn allocated_bytes(&self, _except: &[u64]) -> u64 {
        0
    }
}
