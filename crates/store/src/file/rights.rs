//! Owners and permissions of a file's datafiles: never wider than those of its inode.
//!
//! A datafile belongs to the owner and the group of its file and has the file's permission bits, except that its owner
//! can always read and write it (an owner can take the right at any time, and the size of a read-only file has to be
//! settled), and that it never is a program: no execute, set-user-id, set-group-id or sticky bits. A file with an
//! access control list has datafiles of its owner alone; all other users go through a mount, which obeys the list.
//!
//! The store uses what stands under a datafile's name only if it is a regular file of the file's owner. What stands
//! there before the datafile is made must also have no second name: in a pool of several users any user may have put a
//! link, a FIFO or an own file there. Any user can also write a handle that names another user's datafiles into an own
//! inode.

use crate::backend::plane::{DataPlane, NOT_REGULAR, OpenServer};
use crate::backend::{Backend, DatafileAccess};
use crate::format::identity::{Identity, Said};
use crate::format::placement::{Datafile, DatafileKey};
use crate::os::error::{Error, Result};
use crate::os::sys::{AsUser, retry};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Gid, Mode, Stat, Uid};
use rustix::io::Errno;

/// The attribute of an access control list.
const ACL: &str = "system.posix_acl_access";
/// Permission bits that a datafile can have for others than its owner.
pub(crate) const SHARED_BITS: u32 = 0o066;
/// Those that it always has.
pub(crate) const OWNER_BITS: u32 = 0o600;

/// Owner, group and mode that the datafiles of a file have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u32,
}

impl Rights {
    /// Those that belong to the inode behind `fd`. Two system calls.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> rustix::io::Result<Self> {
        let stat = rustix::fs::fstat(fd)?;
        Ok(Self::by(&stat, || rustix::fs::fgetxattr(fd, ACL, &mut [0_u8; 0][..])))
    }

    /// The same of an inode that is known by its place. One system call, if others than the owner may have any.
    pub(crate) fn at(place: &std::path::Path, stat: &Stat) -> Self {
        Self::by(stat, || rustix::fs::getxattr(place, ACL, &mut [0_u8; 0][..]))
    }

    /// Those of an inode that may have an access control list, which is not looked for: they may say more than it
    /// allows.
    pub(crate) fn without_list(stat: &Stat) -> Self {
        Self { uid: stat.st_uid, gid: stat.st_gid, mode: OWNER_BITS | stat.st_mode & SHARED_BITS }
    }

    fn by(stat: &Stat, list: impl FnOnce() -> rustix::io::Result<usize>) -> Self {
        let mut shared = stat.st_mode & SHARED_BITS;
        // A list, or it cannot be told.
        if shared != 0 && !matches!(list(), Err(Errno::NODATA | Errno::OPNOTSUPP)) {
            shared = 0;
        }
        Self { uid: stat.st_uid, gid: stat.st_gid, mode: OWNER_BITS | shared }
    }

    /// Whether a datafile has them, or is left to its owner alone because the group is not this process's to give.
    pub(crate) fn are_those_of(self, datafile: &Stat) -> bool {
        let mode = datafile.st_mode & 0o7777;
        let private = mode == OWNER_BITS && datafile.st_gid != self.gid && !rustix::process::geteuid().is_root();
        private || (datafile.st_gid, mode) == (self.gid, self.mode)
    }

    /// The same for the file's owner alone.
    pub(crate) fn private(self) -> Self {
        Self { mode: OWNER_BITS, ..self }
    }

    /// Gives them to an open datafile that has been checked; narrower ones first. Where the group is not this process's
    /// to give, the datafile is left to its owner alone. No system call beyond the `fstat` when all is as it should be.
    pub(crate) fn give(self, fd: BorrowedFd<'_>) -> rustix::io::Result<()> {
        let stat = rustix::fs::fstat(fd)?;
        let mut mode = self.mode;
        if (stat.st_uid, stat.st_gid) != (self.uid, self.gid) {
            if stat.st_mode & SHARED_BITS != 0 {
                rustix::fs::fchmod(fd, Mode::from_raw_mode(OWNER_BITS))?;
            }
            let changed = rustix::fs::fchown(fd, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)));
            match changed {
                Ok(()) => {}
                // The owner is what a datafile is known by; a group may be one that this process is not in, or that its
                // user namespace does not know.
                Err(Errno::PERM | Errno::INVAL | Errno::OVERFLOW) if stat.st_uid == self.uid => mode = OWNER_BITS,
                Err(errno) => return Err(errno),
            }
        }
        if rustix::fs::fstat(fd)?.st_mode & 0o7777 != mode {
            rustix::fs::fchmod(fd, Mode::from_raw_mode(mode))?;
        }
        Ok(())
    }
}

/// Makes an empty datafile with these rights, in a shared pool bound to inode `identity`.
///
/// One that a crash left there is emptied: its present bit was not set, so it holds nothing of the file. Anything else
/// under its name is refused; for root, a link or a FIFO goes.
pub(crate) fn create_datafile(
    plane: &DataPlane,
    handle: u64,
    identity: Identity,
    datafile: Datafile,
    rights: Rights,
) -> Result<OwnedFd> {
    let server = plane.server(datafile.server)?;
    let backend = server.current()?;
    let key = datafile.key(handle);
    let error = |errno| server.open_error("create a datafile", key.path().as_str(), errno);
    let (fd, is_new) = match backend.make(key) {
        Err(Errno::EXIST) => match adopt_leftover(plane, server, key, identity, rights) {
            // A regular file may be another user's datafile, whatever this handle says; nothing else holds bytes.
            Err(Error::NotADatafile { what: NOT_REGULAR, .. }) if rustix::process::geteuid().is_root() => {
                let stat = backend.stat(key).map_err(error)?;
                unlink_as_owner(plane, backend, key, &stat).map_err(error)?;
                (backend.make(key).map_err(error)?, true)
            }
            adopted => (adopted?, false),
        },
        made => (made.map_err(error)?, true),
    };
    // Before a byte is in it, and before another user could open it.
    let bound = if plane.is_shared() { identity.bind(&fd) } else { Ok(()) };
    if let Err(errno) = bound.and_then(|()| rights.give(fd.as_fd())) {
        if is_new {
            // This user may not make it: it must not stand in the way of a user who may.
            let _ = backend.unlink(key, FileType::RegularFile);
        }
        return Err(error(errno));
    }
    Ok(fd)
}

fn adopt_leftover(
    plane: &DataPlane,
    server: &OpenServer,
    key: DatafileKey,
    identity: Identity,
    rights: Rights,
) -> Result<OwnedFd> {
    let (backend, path) = (server.backend()?, key.path());
    let error = |errno| server.open_error("create a datafile", path.as_str(), errno);
    // By name first: another user's file may not even be opened.
    let stat = backend.stat(key).map_err(error)?;
    // Root makes a datafile and then gives it away; what a crash left between the two is root's.
    let owner = if stat.st_uid == rustix::process::geteuid().as_raw() { stat.st_uid } else { rights.uid };
    server.check_datafile(path.as_str(), &stat, owner)?;
    let fd = backend.open(key, DatafileAccess::ReadWrite).map_err(error)?;
    let stat = rustix::fs::fstat(&fd).map_err(error)?;
    server.check_datafile(path.as_str(), &stat, owner)?;
    if stat.st_nlink > 1 {
        // Perhaps another file's datafile, which a user who may write it has linked here.
        return Err(server.not_a_datafile(path.as_str(), "has a second name (a hard link)"));
    }
    // One that was made and not yet bound when a crash came holds nothing.
    let fresh = stat.st_size == 0 && plane.is_shared() && identity.asked_of(&fd).map_err(error)? == Said::Nothing;
    if !fresh {
        plane.check_bound(server, path.as_str(), &fd, identity)?;
    }
    retry(|| rustix::fs::ftruncate(&fd, 0)).map_err(error)?;
    Ok(fd)
}

/// Removes the name of what `stat` describes. In a shared pool with the rights of the user whose it is: should another
/// user's file have come to stand there since, the kernel refuses.
fn unlink_as_owner(plane: &DataPlane, backend: &dyn Backend, key: DatafileKey, stat: &Stat) -> rustix::io::Result<()> {
    let _owner = plane.is_shared().then(|| AsUser::become_if_root(stat.st_uid, stat.st_gid));
    match backend.unlink(key, FileType::from_raw_mode(stat.st_mode)) {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

/// Removes a datafile if it is one of user `owner` and, in a shared pool, of inode `identity`. Something else that
/// stands there stays: a handle may name what is not its file's. A name that is not there is no error.
pub(crate) fn remove_datafile(
    plane: &DataPlane,
    handle: u64,
    datafile: Datafile,
    owner: u32,
    identity: Identity,
) -> Result<()> {
    let server = plane.server(datafile.server)?;
    let removed = remove_own(plane, server.current()?, datafile.key(handle), owner, identity);
    removed.map_err(server.error("remove a datafile"))
}

fn remove_own(
    plane: &DataPlane,
    backend: &dyn Backend,
    key: DatafileKey,
    owner: u32,
    identity: Identity,
) -> rustix::io::Result<()> {
    let stat = match backend.stat(key) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    if stat.st_uid != owner || FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(());
    }
    if plane.is_shared() {
        let opened = match backend.open(key, DatafileAccess::Read) {
            // Another user's: only that user may remove it.
            Err(Errno::ACCESS) => return Err(Errno::PERM),
            Err(Errno::NOENT) => return Ok(()),
            opened => opened?,
        };
        // Only its owner could exchange the name between this look and the removal.
        if identity.asked_of(&opened)? != Said::Same {
            return Ok(());
        }
    }
    unlink_as_owner(plane, backend, key, &stat)
}

/// What [`crate::format::handle::FORMER_OWNER`] holds.
pub(crate) fn former_owner(handle: u64, uid: u32) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&handle.to_be_bytes());
    bytes[8..].copy_from_slice(&uid.to_be_bytes());
    bytes
}
