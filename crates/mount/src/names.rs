//! Names: lookup, create, link, rename, remove.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use stripewise_store::handle::Created;
use stripewise_store::{Inode, Store};

use crate::attr::NodeAttributes;
use crate::caller::Caller;
use crate::core::Core;
use crate::node::{KnownDirectory, KnownFile, Node, ProcName};
use crate::{Failure, lock};

/// The maker of a file, and how it is made.
#[derive(Clone, Copy, Debug)]
pub struct Maker {
    /// Type and permission bits.
    pub mode: u32,
    /// The program's umask, which counts where the directory has no default access control list.
    pub umask: u32,
    /// The program, as which it is made: by that it has its owner and group.
    pub caller: Caller,
}

/// A regular file that has just been made.
#[derive(Debug)]
pub struct Made {
    /// To which the kernel has a reference now.
    pub node: Arc<Node>,
    /// The inode's attributes.
    pub stat: Stat,
    /// The placed file.
    pub placed: Arc<Inode>,
    /// What is known of it.
    pub known: KnownFile,
}

/// The permissions of what is made: final, or to be lessened by the directory's default list when it is made.
#[derive(Clone, Copy, Debug)]
enum Permissions {
    Final(u32),
    BeforeList(u32),
}

impl Permissions {
    /// With which a regular file is made that has no name yet: we have to write to it before it is complete.
    fn at_first(self) -> Mode {
        match self {
            Permissions::Final(mode) if mode & 0o7600 == 0o600 => Mode::from_raw_mode(mode),
            Permissions::Final(_) => PRIVATE,
            Permissions::BeforeList(mode) => Mode::from_raw_mode(mode & 0o777 | 0o600),
        }
    }

    /// With which anything else is made.
    fn of_others(self) -> Mode {
        let (Permissions::Final(mode) | Permissions::BeforeList(mode)) = self;
        Mode::from_raw_mode(mode)
    }
}

/// Of a file that has a name before it is complete.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// The name by which rules and hints take a file that has none.
const UNNAMED: &str = "unnamed";

impl Core {
    /// Attributes of a file that has just been made: until the kernel has them, no other program of this mount can look
    /// its name up, so it has no writer. No system call.
    pub fn attributes_of_made(&self, made: &Made) -> NodeAttributes {
        let known = stripewise_store::Attributes::of_closed(made.known.logical, &made.stat);
        made.node.know_handle(made.known, &made.stat);
        self.attributes_of_file(&made.node, &made.stat, &known)
    }

    /// Looks `name` up; the kernel gets a reference.
    ///
    /// # Errors
    /// Those of `openat`.
    pub fn lookup(&self, parent: u64, name: &OsStr) -> Result<(Arc<Node>, NodeAttributes), Errno> {
        let parent = self.table.get(parent)?;
        self.with_attributes(self.table.lookup(&parent, name)?)
    }

    /// What has been looked up, with its attributes. The kernel has no reference if they cannot be had.
    ///
    /// # Errors
    /// As [`Core::attributes`].
    pub fn with_attributes(&self, (node, stat): (Arc<Node>, Stat)) -> Result<(Arc<Node>, NodeAttributes), Errno> {
        let attributes = self.attributes(&node, Some(stat)).inspect_err(|_| self.table.forget(node.ino, 1))?;
        Ok((node, attributes))
    }

    /// Makes a regular file with a handle; the kernel gets a reference. It appears under its name only when it is
    /// complete, so no program sees it without its handle, and a crash leaves nothing. Seven system calls, one more where its
    /// permissions are not those that it can be made with.
    ///
    /// # Errors
    /// `EEXIST`, the store's, or those of the calls.
    pub fn make_file(&self, parent: &Node, name: &OsStr, maker: Maker) -> Result<Made, Failure> {
        let gives = self.directory(parent)?;
        let permissions = permissions(&gives, maker);
        let unnamed = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let made =
            self.as_caller(maker.caller, || rustix::fs::openat(&parent.fd, c".", unnamed, permissions.at_first()));
        let (fd, created, known) = match made {
            Ok(fd) => {
                let created = self.prepare_file(&fd, parent, name, (maker, permissions), &gives)?;
                let known = self.known_of(&created);
                self.name_made(&fd, parent, name, maker.caller)?;
                (fd, created, known)
            }
            // File systems without unnamed files.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let named = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let at_first = if let Permissions::Final(_) = permissions { PRIVATE } else { permissions.at_first() };
                let fd = self.as_caller(maker.caller, || rustix::fs::openat(&parent.fd, name, named, at_first))?;
                let created = self.prepare_file(&fd, parent, name, (maker, permissions), &gives).inspect_err(|_| {
                    // The caller is told why it was not made; that its empty remains could not go adds nothing.
                    let _ = self.as_caller(maker.caller, || rustix::fs::unlinkat(&parent.fd, name, AtFlags::empty()));
                })?;
                let known = self.known_of(&created);
                (fd, created, known)
            }
            Err(errno) => return Err(errno.into()),
        };
        let (place, stat) = self.place_of_made(&fd, created.real(), parent, name)?;
        // By the descriptor that it was made on: only root could open a read-only file for writing again, and
        // the store has to write its size.
        let placed = self.store.adopt(created, fd)?;
        Ok(Made { node: self.table.adopt(place, &stat), stat, placed, known })
    }

    /// What is known of a file that has got its handle and has no name yet.
    fn known_of(&self, created: &Created) -> KnownFile {
        let logical = created.logical();
        KnownFile { logical: Some(logical), is_alone: true, epoch: self.epoch_of(logical) }
    }

    /// Gives the unnamed file `fd` its name, as the caller.
    fn name_made(&self, fd: &OwnedFd, parent: &Node, name: &OsStr, caller: Caller) -> Result<(), Errno> {
        // The short way is for those who may read all; what is said there of a file that has no name says nothing.
        if self.is_root
            && (caller.uid, caller.gid) == (0, 0)
            && let linked = rustix::fs::linkat(fd, c"", &parent.fd, name, AtFlags::EMPTY_PATH)
            && linked != Err(Errno::NOENT)
        {
            return linked;
        }
        let own = ProcName::new(fd.as_fd());
        self.as_caller(caller, || {
            rustix::fs::linkat(self.table.fds(), own.number(), &parent.fd, name, AtFlags::SYMLINK_FOLLOW)
        })
    }

    /// Makes a regular file with a handle that has no name in `parent`, for a program that may give it one later; the kernel
    /// gets a reference. Its datafiles go with its last close, or if this mount is killed before, by `fsck`.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the namespace's file system has no such files; as [`Core::make_file`].
    pub fn make_unnamed(&self, parent: &Node, maker: Maker) -> Result<Made, Failure> {
        let gives = self.directory(parent)?;
        let permissions = permissions(&gives, maker);
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let make = || rustix::fs::openat(&parent.fd, c".", flags, permissions.at_first());
        let fd = self.as_caller(maker.caller, make).map_err(|errno| match errno {
            // What file systems say that do not know such files.
            Errno::ISDIR | Errno::INVAL => Errno::OPNOTSUPP,
            errno => errno,
        })?;
        let created = self.prepare_file(&fd, parent, OsStr::new(UNNAMED), (maker, permissions), &gives)?;
        let known = self.known_of(&created);
        let (place, stat) = self.own_place(&fd)?;
        let placed = self.store.adopt(created, fd)?;
        Ok(Made { node: self.table.adopt(place, &stat), stat, placed, known })
    }

    /// A descriptor of the place of the file `fd`, inode `real`, that has just got its name. By that name: by its
    /// descriptor it would be that of the unnamed file, which the kernel would keep as long, and pass whenever the
    /// directory is read.
    fn place_of_made(&self, fd: &OwnedFd, real: u64, parent: &Node, name: &OsStr) -> Result<(OwnedFd, Stat), Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if let Ok(place) = rustix::fs::openat(&parent.fd, name, flags, Mode::empty())
            && let Ok(stat) = rustix::fs::fstat(&place)
            && self.table.is_in_tree(&stat)
            && stat.st_ino == real
        {
            return Ok((place, stat));
        }
        // Another process has removed or replaced it already.
        self.own_place(fd)
    }

    /// A descriptor of the place of the file `fd`, by which it cannot be written, and what the file is now.
    fn own_place(&self, fd: &OwnedFd) -> Result<(OwnedFd, Stat), Errno> {
        let own = ProcName::new(fd.as_fd());
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let place = rustix::fs::openat(self.table.fds(), own.number(), flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&place)?;
        Ok((place, stat))
    }

    /// Handle, mode: in this order, because a handle cannot be set on a read-only file.
    fn prepare_file(
        &self,
        fd: &OwnedFd,
        parent: &Node,
        name: &OsStr,
        (maker, permissions): (Maker, Permissions),
        gives: &KnownDirectory,
    ) -> Result<Created, Failure> {
        let path = || self.table.relative_path(parent, name).map_err(stripewise_store::Error::io("make", name));
        crate::look::look_for_room(&self.store);
        let hinted = gives.hints.of_name(name.as_bytes());
        let created = self.store.create(fd.as_fd(), &hinted, path)?;
        let mode = match permissions {
            Permissions::Final(mode) if mode == created.mode() & 0o7777 => return Ok(created),
            Permissions::Final(mode) => mode,
            // The list has lessened what was asked for, but the owner's rights were more than that.
            Permissions::BeforeList(mode) => {
                let lessened = created.mode();
                (lessened & (0o077 | mode & 0o700)) | (mode & 0o7000)
            }
        };
        let program_of_group = libc::S_ISGID | libc::S_IXGRP;
        let set = || rustix::fs::fchmod(fd, Mode::from_raw_mode(mode));
        // The file is the caller's own. Its group may be the directory's: a program with that group's rights is made by
        // its members alone, while the bit of what is no program stays, as in the kernel.
        if mode & program_of_group == program_of_group {
            self.as_caller_setting(maker.caller, mode, set)?;
        } else {
            set()?;
        }
        Ok(created)
    }

    /// What the directory `parent` gives to what is made in it. Two system calls, none where it was asked less than a second ago and
    /// no process of this machine has changed it since.
    ///
    /// # Errors
    /// Its access control list cannot be read.
    fn directory(&self, parent: &Node) -> Result<Arc<KnownDirectory>, Errno> {
        // Before it is asked.
        let epoch = self.epoch_of(self.table.number(parent.ino));
        let mut known = lock(&parent.directory);
        if let Some(known) = &*known
            && epoch.is_some_and(|epoch| known.holds(epoch))
        {
            return Ok(known.clone());
        }
        let has_default_acl = self.has_acl.load(Ordering::Relaxed) && self.has_default_acl(parent)?;
        let hints = Store::hints_in(parent.fd.as_fd());
        let found = Arc::new(KnownDirectory::new(has_default_acl, hints, epoch.unwrap_or(0)));
        *known = epoch.map(|_| found.clone());
        Ok(found)
    }

    /// Makes anything but a regular file, by `make` as the caller; the kernel gets a reference. What stands under the
    /// name afterwards may be another thing, and is not changed.
    ///
    /// # Errors
    /// Those of the calls.
    pub fn make_other(
        &self,
        parent: u64,
        name: &OsStr,
        maker: Maker,
        make: impl Fn(&OwnedFd, Mode) -> Result<(), Errno>,
    ) -> Result<(Arc<Node>, NodeAttributes), Errno> {
        let parent = self.table.get(parent)?;
        let gives = self.directory(&parent)?;
        let permissions = permissions(&gives, maker).of_others();
        self.as_caller_setting(maker.caller, permissions.as_raw_mode(), || make(&parent.fd, permissions))?;
        self.with_attributes(self.table.lookup(&parent, name)?)
    }

    /// Makes a directory, with the hints of the one that it is made in. What stands under the name by now gets them where the caller
    /// could set them, also after a change of its mode: by the caller's rights, or where it is the caller's own.
    ///
    /// # Errors
    /// Those of `mkdirat`.
    pub fn make_directory(
        &self,
        parent: u64,
        name: &OsStr,
        maker: Maker,
    ) -> Result<(Arc<Node>, NodeAttributes), Errno> {
        let make = |dir: &OwnedFd, permissions| rustix::fs::mkdirat(dir, name, permissions);
        let made = self.make_other(parent, name, maker, make)?;
        let parent = self.table.get(parent)?;
        // The directory is made in any case.
        let _ = self.hand_down(maker.caller, &parent, &made.0);
        Ok(made)
    }

    fn hand_down(&self, caller: Caller, parent: &Node, made: &Node) -> Result<(), Errno> {
        let (parent, made) = (parent.fd.as_fd(), made.fd.as_fd());
        if !self.acts_for(caller) {
            return Store::hand_down_as_owner(parent, made);
        }
        match self.as_caller(caller, || Store::hand_down(parent, made)) {
            // Its mode lets its owner not write it.
            Err(Errno::ACCESS) if rustix::fs::fstat(made)?.st_uid == caller.uid => Store::hand_down(parent, made),
            done => done,
        }
    }

    /// Makes a special file (or a regular one, by [`Core::make_file`]).
    ///
    /// # Errors
    /// Those of `mknod`.
    pub fn make_node(
        &self,
        parent: u64,
        name: &OsStr,
        maker: Maker,
        rdev: u32,
    ) -> Result<(Arc<Node>, NodeAttributes), Failure> {
        let kind = FileType::from_raw_mode(maker.mode);
        if kind == FileType::RegularFile {
            let made = self.make_file(&*self.table.get(parent)?, name, maker)?;
            let attributes = self.attributes_of_made(&made);
            return Ok((made.node, attributes));
        }
        // The kernel encodes a device number in 32 bits as 12 of the major, 20 of the minor, in this interleaving.
        let device = rustix::fs::makedev((rdev & 0xf_ff00) >> 8, (rdev & 0xff) | ((rdev >> 12) & 0xf_ff00));
        let made = self.make_other(parent, name, maker, |dir, permissions| {
            rustix::fs::mknodat(dir, name, kind, permissions, device)
        });
        Ok(made?)
    }

    /// Another name for `node`; the kernel gets a reference.
    ///
    /// # Errors
    /// Those of `linkat`; ENOENT also of a file that never had a name and is not open any more: its datafiles went with the last close.
    pub fn link(
        &self,
        caller: Caller,
        ino: u64,
        parent: u64,
        name: &OsStr,
    ) -> Result<(Arc<Node>, NodeAttributes), Errno> {
        let (node, parent) = (self.table.get(ino)?, self.table.get(parent)?);
        let own = self.table.proc_name(&node);
        {
            // The last close removes datafiles under this lock: it finds the name, or this finds none.
            let slot = lock(&node.shared);
            if slot.is_none() && node.is_file() && node.stat()?.st_nlink == 0 {
                return Err(Errno::NOENT);
            }
            self.as_caller(caller, || {
                rustix::fs::linkat(self.table.fds(), own.number(), &parent.fd, name, AtFlags::SYMLINK_FOLLOW)
            })?;
        }
        self.with_attributes(self.table.lookup(&parent, name)?)
    }

    /// Removes a name, and the datafiles if it was the last of a file that is not open.
    ///
    /// # Errors
    /// Those of `unlinkat`.
    pub fn unlink(&self, caller: Caller, parent: u64, name: &OsStr) -> Result<(), Errno> {
        let parent = self.table.get(parent)?;
        let (node, stat) = self.table.peek(&parent, name)?;
        let alone = self.only_name_of_alone(&parent, name, &node, &stat);
        self.as_caller(caller, || rustix::fs::unlinkat(&parent.fd, name, AtFlags::empty()))?;
        self.collect(&node, &parent, alone);
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of `unlinkat`.
    pub fn rmdir(&self, caller: Caller, parent: u64, name: &OsStr) -> Result<(), Errno> {
        let parent = self.table.get(parent)?;
        self.as_caller(caller, || rustix::fs::unlinkat(&parent.fd, name, AtFlags::REMOVEDIR))
    }

    /// Renames, and removes the datafiles of a file whose last name was replaced.
    ///
    /// # Errors
    /// Those of `renameat2`.
    pub fn rename(
        &self,
        caller: Caller,
        from: (u64, &OsStr),
        to: (u64, &OsStr),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let (from_dir, to_dir) = (self.table.get(from.0)?, self.table.get(to.0)?);
        let rename = |flags: RenameFlags| {
            self.as_caller(caller, || match flags.is_empty() {
                true => rustix::fs::renameat(&from_dir.fd, from.1, &to_dir.fd, to.1),
                false => rustix::fs::renameat_with(&from_dir.fd, from.1, &to_dir.fd, to.1, flags),
            })
        };
        // Most renames replace nothing, and need no look at what is there. Where this fails, the usual call says why.
        let is_done = flags.is_empty() && rename(RenameFlags::NOREPLACE).is_ok();
        let replaces = !is_done && !flags.intersects(RenameFlags::NOREPLACE | RenameFlags::EXCHANGE);
        let replaced = if replaces { self.table.peek(&to_dir, to.1).ok() } else { None };
        let replaced = replaced.map(|(node, stat)| (self.only_name_of_alone(&to_dir, to.1, &node, &stat), node));
        if !is_done {
            rename(flags)?;
        }
        self.believed.has_moved(to.0, to.1);
        if flags.contains(RenameFlags::EXCHANGE) {
            self.believed.has_moved(from.0, from.1);
        }
        if let Some((alone, node)) = replaced {
            self.collect(&node, &to_dir, alone);
        }
        Ok(())
    }

    /// What is known of the file `node`, which is as `stat` says, if `name` in `parent` is its only name and it has no datafile.
    /// Without a system call if it is as it was when that was read; one if it is not, as after a rename.
    pub fn only_name_of_alone(&self, parent: &Node, name: &OsStr, node: &Node, stat: &Stat) -> Option<KnownFile> {
        if stat.st_nlink != 1 || !node.is_file() {
            return None;
        }
        if let Some(known) = self.known_file(node, stat) {
            return Some(known).filter(|file| file.is_alone && file.epoch.is_some());
        }
        let logical = node.handle()?;
        // Before the handle is read.
        let epoch = self.epoch_of(logical)?;
        let is_alone = self.store.is_alone_at(parent.fd.as_fd(), name, stat.st_ino, logical);
        is_alone.then_some(KnownFile { logical: Some(logical), is_alone, epoch: Some(epoch) })
    }

    /// Where a symbolic link points.
    ///
    /// # Errors
    /// Those of `readlinkat`.
    pub fn read_link(&self, ino: u64) -> Result<Vec<u8>, Errno> {
        let node = self.table.get(ino)?;
        Ok(rustix::fs::readlinkat(&node.fd, c"", Vec::new())?.into_bytes())
    }
}

/// What `maker` asks for in a directory that gives `gives`.
fn permissions(gives: &KnownDirectory, maker: Maker) -> Permissions {
    let mode = maker.mode & 0o7777;
    if gives.has_default_acl { Permissions::BeforeList(mode) } else { Permissions::Final(mode & !maker.umask) }
}
