//! Reading directories.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Dir, DirEntry, OFlags};
use rustix::io::Errno;
use stripewise_fuse::{DirectoryEntries, EntryReply};

use crate::attr::{NodeAttributes, file_attr};
use crate::core::Core;
use crate::lock;
use crate::node::{Node, coarse_ms};
use crate::shares::UserShare;
use crate::sync::Mutex;

/// An offset that no entry has.
const NOWHERE: u64 = u64::MAX;

/// An open directory.
#[derive(Debug)]
pub struct OpenDir {
    node: Arc<Node>,
    /// What it counts for its user.
    share: UserShare,
    /// One reader at a time.
    stream: Mutex<Stream>,
}

/// What has been read of a directory and not been given out yet, so that the next request goes on from there.
#[derive(Debug)]
struct Stream {
    dir: Dir,
    /// The offset behind what was given out last.
    offset: u64,
    /// The entry there, for which the last request had no more room.
    next: Option<DirEntry>,
}

impl OpenDir {
    /// Opens a directory for reading.
    ///
    /// # Errors
    /// Those of `open`.
    /// `ENFILE`: the user has more open than are free.
    pub fn open(core: &Core, user: u32, ino: u64) -> Result<Arc<OpenDir>, Errno> {
        let share = core.opens.take(user, 1)?;
        let node = core.table.get(ino)?;
        let dir = Dir::new(core.table.reopen(&node, OFlags::RDONLY | OFlags::DIRECTORY)?)?;
        Ok(Arc::new(OpenDir { node, share, stream: Mutex::new(Stream { dir, offset: 0, next: None }) }))
    }

    /// Makes its entries durable.
    ///
    /// # Errors
    /// Those of `fsync`.
    pub fn sync(&self, data_only: bool) -> Result<(), Errno> {
        let stream = lock(&self.stream);
        let fd = stream.dir.fd()?;
        if data_only { rustix::fs::fdatasync(fd) } else { rustix::fs::fsync(fd) }
    }

    /// Gives the entries behind `offset` (0, or what an entry said) to `add` until it has no more room. Offset 0 begins
    /// anew, with what is there by now; so does any but the next.
    fn entries(
        &self,
        offset: u64,
        mut add: impl FnMut(&OsStr, u64, rustix::fs::FileType, u64) -> bool,
    ) -> Result<(), Errno> {
        let mut stream = lock(&self.stream);
        if offset == 0 || offset != stream.offset {
            stream.dir.seek(offset.cast_signed())?;
            (stream.offset, stream.next) = (offset, None);
        }
        loop {
            let entry = match stream.next.take() {
                Some(entry) => entry,
                None => match stream.dir.read() {
                    // A stream that has failed says from then on that it has ended: the next request begins anew.
                    Some(entry) => entry.inspect_err(|_| stream.offset = NOWHERE)?,
                    None => return Ok(()),
                },
            };
            let next = entry.offset().cast_unsigned();
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if add(name, entry.ino(), entry.file_type(), next) {
                stream.next = Some(entry);
                return Ok(());
            }
            stream.offset = next;
        }
    }

    /// Names and kinds.
    ///
    /// # Errors
    /// Those of `getdents`.
    pub fn read(&self, core: &Core, offset: u64, reply: &mut DirectoryEntries) -> Result<(), Errno> {
        self.entries(offset, |name, ino, file_type, next| {
            reply.add(core.table.number(ino), next, file_type.as_raw_mode(), name)
        })
    }

    /// Names with attributes; the kernel gets a reference to each but `.` and `..`. Where it has the attributes of an entry and
    /// believes them for a while it gets the name alone, without a system call.
    ///
    /// The attributes of an entry may not be had (no descriptor is left). Then the answer ends before it, and the kernel asks
    /// on from there, for names alone unless the program looks at attributes too.
    ///
    /// # Errors
    /// Those of `getdents`; of the first entry, if its attributes cannot be had: rather than that its name is missing. An
    /// entry that has gone meanwhile is left out, and so is one of another file system, which cannot be looked up.
    pub fn read_plus(&self, core: &Core, offset: u64, reply: &mut DirectoryEntries) -> Result<(), Errno> {
        let mut some = false;
        let mut failed = Ok(());
        let now_ms = coarse_ms();
        self.entries(offset, |name, ino, kind, next| {
            let number = core.table.number(ino);
            if core.table.get(number).is_ok_and(|node| node.is_told(now_ms)) {
                some = true;
                return reply.add_bare(number, next, kind.as_raw_mode(), name);
            }
            let added = self.add_plus(core, name, ino, next, reply);
            let ends = match added {
                Err(Errno::NOENT | Errno::XDEV) => return false,
                Ok(full) => full,
                Err(errno) => {
                    failed = if some { Ok(()) } else { Err(errno) };
                    true
                }
            };
            some = true;
            ends
        })?;
        failed
    }

    /// Adds an entry with its attributes; whether there was no room.
    fn add_plus(
        &self,
        core: &Core,
        name: &OsStr,
        ino: u64,
        next: u64,
        reply: &mut DirectoryEntries,
    ) -> Result<bool, Errno> {
        if name == "." || name == ".." {
            // The kernel looks at the number and kind of these two only.
            let mut attr = file_attr(core.table.number(ino), &self.node.stat()?);
            attr.mode = libc::S_IFDIR | attr.mode & 0o7777;
            let entry = EntryReply { attr, name_holds: Duration::ZERO, attr_holds: Duration::ZERO };
            return Ok(reply.add_plus(&entry, next, name));
        }
        core.admit(self.share.user())?;
        let found = core.table.lookup_listed(&self.node, name, ino)?;
        let (node, NodeAttributes { attr, ttl }) = core.with_attributes(found)?;
        core.count_node(&node, self.share.user());
        let name_holds = core.name_holds(self.node.ino, name);
        let full = reply.add_plus(&EntryReply { attr, name_holds, attr_holds: ttl }, next, name);
        if full {
            core.table.forget(node.ino, 1);
        } else {
            node.told(ttl);
        }
        Ok(full)
    }
}
