//! Attributes, and how long the kernel may believe them.
//!
//! | what | attributes | name |
//! |---|---|---|
//! | file that programs write past this mount | 0 | 10 s, beside other mounts 1 s |
//! | file that is open, or has datafiles and was changed less than two seconds ago | 0.1 s, beside other mounts 0 | the same |
//! | file otherwise | 10 s, beside other mounts 0 | the same |
//! | directory, symbolic link, special file | 10 s, beside other mounts 1 s | the same |
//! | a name that does not exist | – | 10 s, beside other mounts 0 |
//!
//! 10 s are for a mount that is alone, and can have the kernel forget what it believes before another mount changes anything
//! ([`crate::believed`]): on Linux 6.2 and later, in pools of one user with names on a file system of this machine. Elsewhere a
//! mount that is alone says 1 s for what is 10 s above, and 0.1 s for files and for names that do not exist.
//!
//! With `writeback_cache`, where nothing else changes a file, its attributes hold for 1 s.
//!
//! A file that a program has open for writing and knows the places of (preload) may grow past the mount. So the
//! mount asks for its size each time, and makes the kernel forget the attributes when it tells a program the places.
//! The kernel itself knows what is written through it. A size that another mount of the pool on this machine makes, and
//! a name, is there for all mounts when the call returns; a name that it takes away or exchanges is noticed after 1 s.
//! Another machine is noticed after 0.1 s (sizes, new names) or 1 s (names that go).
//!
//! That a name does not exist is worth remembering for more than speed. A program that makes a file has the kernel look
//! its name up first; while the file is being made, a second program that opens the name finds this answer, and if it
//! no longer holds, the kernel drops it, together with the file that has been put under it meanwhile: the first
//! program's open file has no name then ("f (deleted)" in `/proc/self/fd`), though it is there for all others. An
//! instant remains, between the kernel's showing the absent name to others and its noting how long that holds, which no
//! answer can close.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::fs::{AtFlags, Gid, Mode, Stat, StatVfs, StatxTimestamp, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid};
use rustix::io::Errno;
use stripewise_fuse::{FileAttr, SetTime, Time};
use stripewise_store::neighbours::{LONG, SHORT};
use stripewise_store::{Attributes, Inode};

use crate::caller::Caller;
use crate::core::Core;
use crate::file::OpenFile;
use crate::node::{KnownFile, Node, is_settled};
use crate::{Failure, lock};

/// How long names and the attributes of all but files hold beside other mounts.
const USUAL: Duration = Duration::from_secs(1);
/// What programs are told to be a good size of a request to a file: stdio takes it for its buffer, and each
/// request costs a way through the kernel and back.
const BLOCK_BYTES: u32 = 64 << 10;

/// Attributes of a node and how long they hold.
#[derive(Clone, Copy, Debug)]
pub struct NodeAttributes {
    /// As the kernel takes them.
    pub attr: FileAttr,
    /// For how long.
    pub ttl: Duration,
}

/// What a program asked to change; `None` leaves a thing as it is.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size_bytes: Option<u64>,
    /// By an open file, which was checked when it was opened.
    pub by_handle: bool,
    /// Time of last access.
    pub atime: Option<SetTime>,
    /// Time of last change of content.
    pub mtime: Option<SetTime>,
    /// The caller; another than root loses set-user-id bits by changing the size.
    pub caller: Caller,
}

impl Change {
    fn is_none(&self) -> bool {
        let Change { mode, uid, gid, size_bytes, by_handle: _, atime, mtime, caller: _ } = self;
        mode.is_none() && uid.is_none() && gid.is_none() && size_bytes.is_none() && atime.is_none() && mtime.is_none()
    }
}

impl Core {
    /// How long what another mount may change at any time holds; nothing holds beside one. One atomic load.
    pub fn short(&self) -> Duration {
        if self.neighbours.alone() { SHORT } else { Duration::ZERO }
    }

    /// How long `name` in the directory `parent` is what the kernel is told; within [`crate::believed::Believed::answer`].
    pub fn name_holds(&self, parent: u64, name: &OsStr) -> Duration {
        if self.believed.note(&self.neighbours, parent, name) { LONG } else { USUAL }
    }

    /// How long `name` is absent in the directory `parent`; as [`Core::name_holds`].
    pub fn absence_holds(&self, parent: u64, name: &OsStr) -> Duration {
        if self.believed.note(&self.neighbours, parent, name) { LONG } else { self.short() }
    }

    /// How long attributes hold that none but another mount can change without the kernel's knowledge.
    fn of_others(&self) -> Duration {
        if self.neighbours.believes() { LONG } else { USUAL }
    }

    /// How long attributes of files hold; `is_final`: nothing will change those of this one before it is opened.
    fn of_files(&self, is_final: bool) -> Duration {
        match (is_final && self.neighbours.believes(), self.writeback) {
            (true, _) => LONG,
            // With writeback_cache the kernel owns size and times, and would ask before each write.
            (false, true) => USUAL,
            (false, false) => self.short(),
        }
    }

    /// The file of `node`: the open one, or one made for this question; `None` where that is no regular file. For one that
    /// `changes` its bytes they can be written.
    ///
    /// # Errors
    /// As `Store::file`.
    pub fn regular(&self, node: &Node, changes: bool) -> Result<Option<Arc<Inode>>, Failure> {
        if !node.is_file() {
            return Ok(None);
        }
        let open = lock(&node.shared).clone();
        let Some(shared) = open else { return Ok(Some(self.store.file(node.fd.as_fd(), changes)?)) };
        if changes {
            shared.file.open_to_change(node.fd.as_fd())?;
        }
        Ok(Some(shared.file.clone()))
    }

    /// Attributes of `node`; `stat` if they are just known. Four system calls for a file without a writer, one less if it is
    /// open, or has not changed since they were asked for last. Of one without a datafile two, and one.
    ///
    /// # Errors
    /// Those of `fstat`. A handle or a server that fails is no error here: a damaged file can be listed and removed,
    /// with the attributes of its inode.
    pub fn attributes(&self, node: &Node, stat: Option<Stat>) -> Result<NodeAttributes, Errno> {
        let open = if node.is_file() { lock(&node.shared).clone() } else { None };
        let was_read = open.as_ref().is_some_and(|shared| shared.file.settle_access());
        let stat = stat.filter(|_| !was_read).map_or_else(|| node.stat(), Ok)?;
        if !node.is_file() {
            return Ok(NodeAttributes { attr: file_attr(node.ino, &stat), ttl: self.of_others() });
        }
        let known = match &open {
            Some(shared) => shared.file.attributes(),
            None => self.attributes_of_closed(node, &stat),
        };
        let mut found = match known {
            Ok(known) => {
                // The last close may have just put the size and times of datafiles. Without one the inode has them always.
                let is_final = open.is_none() && (known.is_alone || is_settled(&stat));
                NodeAttributes { ttl: self.of_files(is_final), ..self.attributes_of_file(node, &stat, &known) }
            }
            Err(failure) => {
                self.report(node, "asking for the size", &Failure::Store(failure));
                NodeAttributes { attr: file_attr(node.ino, &stat), ttl: Duration::ZERO }
            }
        };
        // Only now: a program that was told meanwhile where its bytes are has made the kernel forget; that must not be
        // undone.
        if lock(&node.shared).as_ref().is_some_and(|shared| shared.grows_past_the_mount.load(Ordering::Acquire)) {
            found.ttl = Duration::ZERO;
        }
        Ok(found)
    }

    /// What the store says of a file that is not open here. Without a system call if it was one without a datafile before.
    fn attributes_of_closed(&self, node: &Node, stat: &Stat) -> Result<Attributes, stripewise_store::Error> {
        let known = self.known_file(node, stat);
        let alone = known.filter(|file| file.is_alone).and_then(|file| Attributes::of_alone(file.logical, stat));
        if let Some(alone) = alone {
            return Ok(alone);
        }
        // Before the handle is read; what changes it later moves a time of status that is not of just now.
        let before = node.handle().map(|logical| (logical, self.epoch_of(logical)));
        let found = self.store.attributes(node.fd.as_fd(), stat, known.and_then(|file| file.logical))?;
        if known.is_none() {
            let Attributes { handle: logical, is_alone, .. } = found;
            let epoch = match before {
                Some((read, epoch)) if Some(read) == logical => epoch,
                _ if is_settled(stat) => logical.and_then(|logical| self.epoch_of(logical)),
                _ => None,
            };
            node.know_handle(KnownFile { logical, is_alone, epoch }, stat);
        }
        Ok(found)
    }

    /// What is known of the file `node`, whose inode is as `stat` says, without a system call.
    pub fn known_file(&self, node: &Node, stat: &Stat) -> Option<KnownFile> {
        node.handle_in(stat, self.neighbours.is_local(), |logical| self.store.plane().epoch(logical))
    }

    /// The counter of a file whose changes, by any process of this machine, it tells.
    pub fn epoch_of(&self, logical: u64) -> Option<u32> {
        let plane = self.store.plane();
        (!plane.is_shared()).then(|| plane.epoch(logical))
    }

    /// What the kernel is told of a file: `stat` of its inode, with the size, times and blocks that are `known`.
    pub fn attributes_of_file(&self, node: &Node, stat: &Stat, known: &Attributes) -> NodeAttributes {
        let mut stat = *stat;
        known.put_into(&mut stat);
        let mut attr = file_attr(node.ino, &stat);
        attr.blksize = BLOCK_BYTES;
        NodeAttributes { attr, ttl: self.of_files(false) }
    }

    /// Changes attributes as the caller, in the order in which a failure leaves the least behind. Mode, owner and group
    /// are changed all or not at all, with those of the datafiles.
    ///
    /// # Errors
    /// Those of the calls; a size that was changed before times could not be stays changed.
    pub fn change(&self, node: &Node, change: &Change) -> Result<(), Failure> {
        if change.is_none() {
            return self.no_change(node, change.caller);
        }
        let is_of_bytes = change.size_bytes.is_some() || change.atime.is_some() || change.mtime.is_some();
        // The kernel looks for the name again then: another file may have it. Programs of another mount may still read this one.
        if is_of_bytes && self.is_nameless(node) {
            return Err(Errno::STALE.into());
        }
        let done = self.change_now(node, change);
        if is_of_bytes && done.is_err() && self.is_nameless(node) { Err(Errno::STALE.into()) } else { done }
    }

    fn change_now(&self, node: &Node, change: &Change) -> Result<(), Failure> {
        let file = self.regular(node, change.size_bytes.is_some())?;
        let file = file.as_deref();
        let changes_owner = change.uid.is_some() || change.gid.is_some();
        if change.mode.is_some() || changes_owner {
            let before = node.stat()?;
            if let Some(mode) = change.mode {
                self.change_mode(node, file, mode, change.caller, &before)?;
            }
            if changes_owner && let Err(failure) = self.change_owner(node, file, change, &before) {
                if change.mode.is_some() {
                    // One change for the caller, so that it is all undone.
                    let _ = self.change_mode(node, file, before.st_mode, change.caller, &before);
                }
                return Err(failure);
            }
        }
        if let Some(size) = change.size_bytes {
            if !change.by_handle {
                self.check_open(change.caller, node, libc::O_WRONLY)?;
            }
            if let Some(inode) = file {
                inode.sent_by(change.caller.sender()).truncate(size)?;
                inode.settle_whole()?;
            }
            if change.caller.uid != 0 {
                self.drop_set_id(node, change.caller)?;
            }
        }
        if change.atime.is_some() || change.mtime.is_some() {
            let times = Timestamps { last_access: timespec(change.atime), last_modification: timespec(change.mtime) };
            // The kernel that keeps what is written hands times on as any user, and with a size they are the change's
            // own.
            if !self.writeback && change.size_bytes.is_none() {
                let own = || rustix::fs::utimensat(&node.fd, c"", &times, AtFlags::EMPTY_PATH);
                self.as_caller(change.caller, own)?;
            }
            match file {
                Some(inode) => inode.set_times(&times)?,
                None => rustix::fs::utimensat(&node.fd, c"", &times, AtFlags::EMPTY_PATH)?,
            }
        }
        Ok(())
    }

    /// A request to change nothing. The kernel takes set-id bits itself on most file systems, and leaves it to FUSE
    /// servers: so comes what it would have changed before `caller` writes a file that the kernel serves itself, or
    /// whose pages it keeps, and a `chown` that names neither user nor group, which the kernel lets any user make.
    fn no_change(&self, node: &Node, caller: Caller) -> Result<(), Failure> {
        if caller.uid == 0 || !node.is_file() {
            return Ok(());
        }
        let may_be_written = lock(&node.shared).as_ref().is_some_and(|shared| shared.is_open_for_writing());
        if may_be_written || node.stat()?.st_uid == caller.uid {
            self.drop_set_id(node, caller)?;
        }
        Ok(())
    }

    /// `chmod` as the caller, of a node that is as `before` says.
    fn change_mode(
        &self,
        node: &Node,
        file: Option<&Inode>,
        mode: u32,
        caller: Caller,
        before: &Stat,
    ) -> Result<(), Failure> {
        if node.kind == rustix::fs::FileType::Symlink {
            return Err(Errno::OPNOTSUPP.into());
        }
        let chmod =
            || self.as_caller_setting(caller, mode, || self.table.chmod(node, Mode::from_raw_mode(mode & 0o7777)));
        match file {
            Some(inode) => Ok(inode.change_mode(Some(mode), chmod, || self.restore_mode(node, before))?),
            None => Ok(chmod()?),
        }
    }

    /// `chown` as the caller, of a node that is as `before` says.
    fn change_owner(&self, node: &Node, file: Option<&Inode>, change: &Change, before: &Stat) -> Result<(), Failure> {
        let give = |uid: Option<u32>, gid: Option<u32>| {
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            rustix::fs::chownat(&node.fd, c"", uid, gid, AtFlags::EMPTY_PATH)
        };
        // Without the file's group the kernel would take the set-group-id bit, too.
        let chown = || self.with_all_groups(change.caller, || give(change.uid, change.gid));
        let Some(inode) = file else { return Ok(chown()?) };
        let undo = || {
            let old = |changed: Option<u32>, old| changed.is_some().then_some(old);
            give(old(change.uid, before.st_uid), old(change.gid, before.st_gid))?;
            // A change of owner takes set-id bits. (File capabilities are gone before: the kernel removes them first.)
            self.restore_mode(node, before)
        };
        Ok(inode.change_owner(chown, undo)?)
    }

    /// Gives a node the mode that it had, if its owner is the one it had.
    ///
    /// # Errors
    /// Those of `chmod`.
    pub fn restore_mode(&self, node: &Node, before: &Stat) -> Result<(), Errno> {
        self.as_owner(before, || self.table.chmod(node, Mode::from_raw_mode(before.st_mode & 0o7777)))
    }

    /// Takes what a change of bytes by `caller` takes, in calls with which the kernel does not say whether it does:
    /// file capabilities, and from another than root the bits of [`Core::drop_set_id`]. Before the change.
    ///
    /// # Errors
    /// Those of the two.
    pub fn drop_before_change(&self, file: &OpenFile, caller: Caller) -> Result<(), Failure> {
        self.drop_capabilities(&file.node, &file.shared)?;
        if caller.uid != 0 { Ok(self.drop_set_id(&file.node, caller)?) } else { Ok(()) }
    }

    /// Takes the set-user-id bit, and the set-group-id bit of a program or where the caller is not in the group, as the
    /// kernel does when another than root writes. One system call when there are none.
    ///
    /// # Errors
    /// Those of `fstat` and `chmod`.
    pub fn drop_set_id(&self, node: &Node, caller: Caller) -> Result<(), Errno> {
        let stat = node.stat()?;
        let mode = stat.st_mode;
        let mut kept = mode & 0o7777 & !libc::S_ISUID;
        if mode & libc::S_ISGID != 0 && (mode & libc::S_IXGRP != 0 || !caller.is_in(stat.st_gid)) {
            kept &= !libc::S_ISGID;
        }
        if kept == mode & 0o7777 {
            return Ok(());
        }
        // As the owner that was found: should the file be another's by now, the call fails.
        self.as_owner(&stat, || self.table.chmod(node, Mode::from_raw_mode(kept)))?;
        // The kernel, which asked for this, remembers the mode that the file had.
        self.forget_attributes(node);
        Ok(())
    }

    /// Space of the pool, in units of the namespace's file system: what the servers have, and what can still be written
    /// to files of the default layout. The namespace's own where no server says. Inodes are the namespace's.
    ///
    /// # Errors
    /// The namespace cannot be asked; a missing server counts as nothing.
    pub fn space(&self) -> Result<StatVfs, Errno> {
        let mut total = rustix::fs::fstatvfs(self.store.tree())?;
        if let Some(space) = self.store.space() {
            let unit = total.f_frsize.max(1);
            let blocks = |bytes: u64| bytes / unit;
            let (all, free, available) = (space.total_bytes, space.free_bytes, space.available_bytes);
            (total.f_blocks, total.f_bfree, total.f_bavail) = (blocks(all), blocks(free), blocks(available));
        }
        Ok(total)
    }
}

/// Attributes of an inode of the namespace, under the number the kernel knows it by.
pub fn file_attr(ino: u64, stat: &Stat) -> FileAttr {
    FileAttr {
        ino,
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec as i64),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec as i64),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec as i64),
        mode: stat.st_mode,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: stat.st_blksize as u32,
    }
}

/// When an inode was made, for the kernel.
pub fn birth(made: StatxTimestamp) -> Time {
    time(made.tv_sec, made.tv_nsec.into())
}

fn time(seconds: i64, nanoseconds: i64) -> Time {
    Time { seconds, nanoseconds: nanoseconds.clamp(0, 999_999_999) as u32 }
}

fn timespec(time: Option<SetTime>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(SetTime::At(time)) => Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_their_nanoseconds_also_before_1970() {
        for (seconds, nanoseconds) in [(0, 0), (1_700_000_000, 123_456_789), (i64::MAX, 999_999_999), (-1, 12_345_679)]
        {
            let back = timespec(Some(SetTime::At(time(seconds, nanoseconds))));
            assert_eq!((back.tv_sec, back.tv_nsec), (seconds, nanoseconds));
        }
        assert_eq!(time(i64::MIN, 0), Time { seconds: i64::MIN, nanoseconds: 0 });
    }
}
