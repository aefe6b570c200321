//! Reading directories.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FileType, OFlags, RawDir, RawDirEntry, SeekFrom};
use rustix::io::Errno;
use stripewise_fuse::{DirectoryEntries, EntryReply};

use crate::attr::{NodeAttributes, file_attr};
use crate::core::Core;
use crate::lock;
use crate::node::{Node, coarse_ms};
use crate::shares::UserShare;
use crate::sync::Mutex;

/// Bytes that are read of a directory at once: about what the kernel has room for in an answer.
const READ_BYTES: usize = 32 << 10;

/// An open directory.
#[derive(Debug)]
pub struct OpenDir {
    node: Arc<Node>,
    /// What it counts for its user.
    share: UserShare,
    /// One reader at a time.
    stream: Mutex<Stream>,
}

/// How far a directory has been read and given out, so that the next request goes on from there.
#[derive(Debug)]
struct Stream {
    directory: OwnedFd,
    /// The offset behind what was given out last.
    offset: u64,
    rest: Rest,
}

/// Entries that were read behind those given out, for which the last request had no more room.
#[derive(Debug, Default)]
struct Rest {
    entries: VecDeque<Entry>,
    /// Their names, one behind the other, and how many bytes of that were given out.
    names: Vec<u8>,
    given: usize,
}

/// An entry but its name.
#[derive(Clone, Copy, Debug)]
struct Entry {
    ino: u64,
    kind: FileType,
    /// The offset behind it.
    next: u64,
    name_bytes: u16,
}

impl Entry {
    fn of<'a>(entry: &'a RawDirEntry<'_>) -> (Entry, &'a [u8]) {
        let name = entry.file_name().to_bytes();
        let next = entry.next_entry_cookie();
        // The kernel's structure has 16 bits for its own length, with the name.
        (Entry { ino: entry.ino(), kind: entry.file_type(), next, name_bytes: name.len() as u16 }, name)
    }
}

impl Rest {
    fn push(&mut self, entry: Entry, name: &[u8]) {
        self.names.extend_from_slice(name);
        self.entries.push_back(entry);
    }

    /// The first of them.
    fn first(&self) -> Option<(Entry, &[u8])> {
        let entry = *self.entries.front()?;
        Some((entry, &self.names[self.given..][..usize::from(entry.name_bytes)]))
    }

    /// The first one is given out.
    fn pop(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.given += usize::from(entry.name_bytes);
        }
        if self.entries.is_empty() {
            self.clear();
        }
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.names.clear();
        self.given = 0;
    }
}

impl OpenDir {
    /// Opens a directory for reading.
    ///
    /// # Errors
    /// Those of `open`.
    /// `ENFILE`: the user has more open than are free.
    pub fn open(core: &Core, user: u32, ino: u64) -> Result<Arc<OpenDir>, Errno> {
        let share = core.admit_open(user, 1)?;
        let node = core.table.get(ino)?;
        let directory = core.table.reopen(&node, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(Arc::new(OpenDir {
            node,
            share,
            stream: Mutex::new(Stream { directory, offset: 0, rest: Rest::default() }),
        }))
    }

    /// Makes its entries durable.
    ///
    /// # Errors
    /// Those of `fsync`.
    pub fn sync(&self, data_only: bool) -> Result<(), Errno> {
        let stream = lock(&self.stream);
        let directory = &stream.directory;
        if data_only { rustix::fs::fdatasync(directory) } else { rustix::fs::fsync(directory) }
    }

    /// Gives the entries behind `offset` (0, or what an entry said) to `add` until it has no more room. Offset 0 begins
    /// anew, with what is there by now; so does any but the next. After an error the next request tries the same once more.
    /// No allocation but for entries that find no room.
    fn entries(&self, offset: u64, mut add: impl FnMut(&OsStr, Entry) -> bool) -> Result<(), Errno> {
        let mut stream = lock(&self.stream);
        let Stream { directory, offset: at, rest } = &mut *stream;
        if offset == 0 || offset != *at {
            rustix::fs::seek(&*directory, SeekFrom::Start(offset))?;
            rest.clear();
            *at = offset;
        }
        while let Some((entry, name)) = rest.first() {
            if add(OsStr::from_bytes(name), entry) {
                return Ok(());
            }
            *at = entry.next;
            rest.pop();
        }
        loop {
            let mut room = [const { MaybeUninit::uninit() }; READ_BYTES];
            let mut read = RawDir::new(&*directory, &mut room);
            let (mut some, mut full) = (false, false);
            while let Some(entry) = read.next() {
                let entry = match entry {
                    // The directory was removed.
                    Err(Errno::NOENT) => return Ok(()),
                    entry => entry?,
                };
                let (entry, name) = Entry::of(&entry);
                full = full || add(OsStr::from_bytes(name), entry);
                if full {
                    rest.push(entry, name);
                } else {
                    *at = entry.next;
                }
                some = true;
                if read.is_buffer_empty() {
                    break;
                }
            }
            if full || !some {
                return Ok(());
            }
        }
    }

    /// Names and kinds.
    ///
    /// # Errors
    /// Those of `getdents`.
    pub fn read(&self, core: &Core, offset: u64, reply: &mut DirectoryEntries) -> Result<(), Errno> {
        let read = self.entries(offset, |name, Entry { ino, kind, next, .. }| {
            reply.add(core.table.number(ino), next, kind.as_raw_mode(), name)
        });
        unless_given(read, reply)
    }

    /// Names with attributes; the kernel gets a reference to each but `.` and `..`. Where it has the attributes of an entry and
    /// believes them for a while it gets the name alone, without a system call. At the beginning there are no more attributes than a
    /// program needs that is not known to look at them ([`crate::lookers`]).
    ///
    /// The attributes of an entry may not be had (no descriptor is left). Then the answer ends before it, and the kernel asks
    /// on from there, for names alone unless the program looks at attributes too.
    ///
    /// # Errors
    /// Those of `getdents`; of the first entry, if its attributes cannot be had: rather than that its name is missing. An
    /// entry that has gone meanwhile is left out, and so is one of another file system, which cannot be looked up.
    pub fn read_plus(&self, core: &Core, program: u32, offset: u64, reply: &mut DirectoryEntries) -> Result<(), Errno> {
        // The kernel asks so at the beginning of each list, and further on where the program has looked at attributes.
        let mut left = if offset == 0 { core.lookers.first_of(program) } else { usize::MAX };
        let mut failed = Ok(());
        let now_ms = coarse_ms();
        let read = self.entries(offset, |name, Entry { ino, kind, next, .. }| {
            let number = core.table.number(ino);
            if core.table.get(number).is_ok_and(|node| node.is_told(now_ms)) {
                return reply.add_bare(number, next, kind.as_raw_mode(), name);
            }
            if left == 0 {
                core.lookers.ends_short(program, self.node.ino);
                return true;
            }
            match self.add_plus(core, name, ino, next, reply) {
                // Not counted: an answer without any entry would be the end of the list.
                Err(Errno::NOENT | Errno::XDEV) => false,
                Ok(full) => {
                    left -= 1;
                    full
                }
                Err(errno) => {
                    failed = Err(errno);
                    true
                }
            }
        });
        unless_given(read.and(failed), reply)
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

/// An error, unless there are entries to give: these are given first, as the kernel has references to them then, and the next request
/// finds the error again.
fn unless_given(read: Result<(), Errno>, reply: &DirectoryEntries) -> Result<(), Errno> {
    if reply.bytes().is_empty() { read } else { Ok(()) }
}
