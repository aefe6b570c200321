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
use crate::file::inode::Inode;
use crate::format::handle::FORMER_OWNER;
use crate::format::identity::{Identity, Said};
use crate::format::placement::{Datafile, DatafileKey};
use crate::os::error::{Error, Result};
use crate::os::sys::{AsUser, retry};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Gid, Mode, Stat, Uid, XattrFlags};
use rustix::io::Errno;

/// The attribute of an access control list.
const ACL: &str = "system.posix_acl_access";
/// Permission bits that a datafile can have for others than its owner.
const SHARED_BITS: u32 = 0o066;
/// Those that it always has.
const OWNER_BITS: u32 = 0o600;

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

/// What [`FORMER_OWNER`] holds.
pub(crate) fn former_owner(handle: u64, uid: u32) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&handle.to_be_bytes());
    bytes[8..].copy_from_slice(&uid.to_be_bytes());
    bytes
}

impl Inode {
    /// The rights that the file's datafiles have by its inode now.
    pub(crate) fn rights(&self) -> Result<Rights> {
        Rights::of(self.descriptor()).map_err(self.failed("read the attributes of"))
    }

    /// Changes owner, group or permissions of the file, by `change` (a `chmod` to `mode` of its inode or, with `None`, a change
    /// of its access control list), and has the datafiles follow: all of them or, after an error, none. `undo` takes
    /// back what `change` did.
    ///
    /// At no time, also after a crash, do the datafiles allow more than the inode does: what the new mode takes away is
    /// taken from the datafiles first, what it adds is added last.
    ///
    /// # Errors
    /// Those of the datafiles, and of `change` as they are. A datafile that cannot be opened, of a missing server say,
    /// is one unless the mode concerns no datafile. Inode and datafiles are then as they were; where that fails as well
    /// the datafiles allow less.
    pub fn change_mode(
        &self,
        mode: Option<u32>,
        change: impl FnOnce() -> Result<(), Errno>,
        undo: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<()> {
        let before = self.rights()?;
        let asked = mode.unwrap_or(0) & SHARED_BITS | OWNER_BITS;
        let datafiles = self.hold_datafiles(before.uid, mode.is_some() && asked == before.mode)?;
        let narrow = Rights { mode: before.mode & asked, ..before };
        // What is only to be widened shows first that it can be changed at all.
        let widens = mode.is_none() || asked != before.mode;
        let ready = if narrow == before && widens { datafiles.probe() } else { datafiles.give(narrow) };
        let done = ready.and_then(|()| change().map_err(self.failed("change the mode of")));
        if let Err(error) = done {
            datafiles.restore();
            return Err(error);
        }
        let followed = self.rights().and_then(|after| datafiles.give(after));
        let Err(error) = followed else { return Ok(()) };
        // They allow less than either mode before the inode has its old one again.
        let narrowed = datafiles.give(narrow);
        if undo().is_ok() && narrowed.is_ok() && self.rights().is_ok_and(|now| now == before) {
            datafiles.restore();
        }
        Err(error)
    }

    /// Changes owner or group of the file by `change` (a `chown` of its inode) and has the datafiles follow: all of
    /// them or, after an error, none. Meanwhile they are their owner's alone. `undo` takes back what `change` did.
    ///
    /// # Errors
    /// As [`Inode::change_mode`]; a missing server always is one. Where undoing fails as well, the file is refused
    /// (EIO) until `stripewise fsck` by root.
    pub fn change_owner(
        &self,
        change: impl FnOnce() -> Result<(), Errno>,
        undo: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<()> {
        let before = self.rights()?;
        let datafiles = self.hold_datafiles(before.uid, false)?;
        let gives_away = self.store.plane().is_shared() && crate::pool::shared::is_root();
        if gives_away {
            // The old owner could remove that user's copy of the layout.
            self.store.layouts.put(self.layout()?.as_ref())?;
        }
        if let Err(error) = datafiles.shut() {
            datafiles.restore();
            return Err(error);
        }
        if self.store.plane().is_shared() {
            self.note_former_owner(before.uid);
        }
        if let Err(errno) = change() {
            datafiles.restore();
            return Err(self.failed("change the owner of")(errno));
        }
        let followed = self.rights().and_then(|after| Ok((after, datafiles.give(after)?)));
        if followed.is_err() {
            // The datafiles first: as long as they are not the inode's owner's, they are refused.
            let restored = datafiles.give(before.private());
            if restored.is_err()
                && gives_away
                && let Ok(after) = self.rights()
            {
                self.note_former_owner(after.uid);
            }
            if undo().is_ok() && restored.is_ok() && self.rights().is_ok_and(|now| now == before) {
                datafiles.restore();
            }
        }
        self.bump_epoch();
        followed.map(drop)
    }

    /// Notes on the inode whose the file was, before it is given away. Best effort: without it, a crash leaves the
    /// datafiles for root to give away by hand.
    fn note_former_owner(&self, uid: u32) {
        let former = former_owner(self.handle(), uid);
        let _ = rustix::fs::fsetxattr(self.descriptor(), FORMER_OWNER, &former, XattrFlags::empty());
    }

    /// Opens all datafiles that exist, which have to be `owner`'s. One that is lost is left out: there is nothing to
    /// protect. `if_possible`: so are those that cannot be opened.
    fn hold_datafiles(&self, owner: u32, if_possible: bool) -> Result<HeldDatafiles<'_>> {
        let file = self.file()?;
        let placement = file.current_placement();
        let plane = self.store.plane();
        let mut held = Vec::new();
        for (index, datafile) in file.datafiles().table.iter().enumerate() {
            if !placement.present.contains(index) {
                continue;
            }
            let fd = match plane.open_datafile(self.handle(), owner, placement.identity, *datafile, false) {
                Ok((fd, _)) => fd,
                Err(Error::MissingDatafile { .. }) => continue,
                Err(_) if if_possible => continue,
                Err(error) => return Err(error),
            };
            // SAFETY: opened just now, and owned by nothing else.
            let fd = unsafe { <OwnedFd as rustix::fd::FromRawFd>::from_raw_fd(fd) };
            let server = plane.server(datafile.server)?;
            let stat = rustix::fs::fstat(&fd).map_err(server.error(CHANGE))?;
            let before = Rights { uid: stat.st_uid, gid: stat.st_gid, mode: stat.st_mode & 0o7777 };
            held.push(HeldDatafile { server, fd, before });
        }
        Ok(HeldDatafiles(held))
    }
}

/// What changes of rights are called in errors.
const CHANGE: &str = "change the owner or mode of a datafile";

/// The datafiles of a file, open, while their rights change.
struct HeldDatafiles<'a>(Vec<HeldDatafile<'a>>);

struct HeldDatafile<'a> {
    server: &'a OpenServer,
    fd: OwnedFd,
    /// Its rights when it was opened.
    before: Rights,
}

impl HeldDatafile<'_> {
    fn set_mode(&self, mode: u32) -> Result<()> {
        rustix::fs::fchmod(&self.fd, Mode::from_raw_mode(mode)).map_err(self.server.error(CHANGE))
    }
}

impl HeldDatafiles<'_> {
    /// Gives `rights` to all, up to the first that fails.
    fn give(&self, rights: Rights) -> Result<()> {
        self.0.iter().try_for_each(|held| rights.give(held.fd.as_fd()).map_err(held.server.error(CHANGE)))
    }

    /// Shows that the rights of all can be changed, by giving them the mode that they have.
    fn probe(&self) -> Result<()> {
        self.0.iter().try_for_each(|held| held.set_mode(held.before.mode))
    }

    /// Leaves all to their owner alone, and shows that they can be changed where they are that already.
    fn shut(&self) -> Result<()> {
        self.0.iter().try_for_each(|held| held.set_mode(OWNER_BITS))
    }

    /// Gives all the rights that they had. Best effort, after a failure: `stripewise fsck` does what is left to do.
    fn restore(&self) {
        for held in &self.0 {
            let _ = held.before.give(held.fd.as_fd());
        }
    }
}
