//! Changes of owner, group and mode of a file, which its datafiles follow ([`crate::file::rights`]).

use crate::backend::plane::OpenServer;
use crate::file::inode::Inode;
use crate::file::placed_file::PlacedFile;
use crate::file::rights::{OWNER_BITS, Rights, SHARED_BITS, former_owner};
use crate::file::writers::NoChange;
use crate::format::handle::FORMER_OWNER;
use crate::os::error::{Error, Result};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, XattrFlags};
use rustix::io::Errno;
use std::sync::Arc;

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
        let file = self.file()?;
        let kept = self.no_change();
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
        let Err(error) = followed else { return self.follow_a_move(file, kept, before.uid) };
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
        let file = self.file()?;
        let kept = self.no_change();
        let before = self.rights()?;
        let datafiles = self.hold_datafiles(before.uid, false)?;
        // A file without a handle has no copy of a layout, and nothing that could be left another user's.
        let is_bound = self.has_handle() && self.store.plane().is_shared();
        let gives_away = is_bound && crate::pool::shared::is_root();
        if gives_away {
            // The old owner could remove that user's copy of the layout.
            self.store.layouts.put(self.layout()?.as_ref())?;
        }
        if let Err(error) = datafiles.shut() {
            datafiles.restore();
            return Err(error);
        }
        if is_bound {
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
        // A `chown` to the owner and group that it has, as `tar` makes one of each file, moves nothing that others know of it.
        if followed.as_ref().map_or(true, |(after, ())| *after != before) {
            self.bump_epoch();
        }
        followed.and_then(|_| self.follow_a_move(file, kept, before.uid))
    }

    /// After a change of rights that has succeeded, which began when this was the `file` and `kept` was had: where a move that began
    /// meanwhile, or a first write, has read the rights before, its datafiles are given them, too. They are the `former` owner's then.
    fn follow_a_move(&self, mut file: Arc<PlacedFile>, mut kept: NoChange, former: u32) -> Result<()> {
        while self.may_have_changed(&file, &kept)? {
            drop(kept);
            file = self.file()?;
            kept = self.no_change();
            let rights = self.rights()?;
            self.hold_datafiles(former, true)?.give(rights)?;
            if rights.uid != former {
                self.hold_datafiles(rights.uid, true)?.give(rights)?;
            }
        }
        Ok(())
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
