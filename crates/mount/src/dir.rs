//! Reading directories.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex};

use fuser::{FileType, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use rustix::fs::{OFlags, RawDir, SeekFrom};
use rustix::io::Errno;

use crate::attr::{Attributes, file_attr, kind};
use crate::fs::Core;
use crate::inode::Node;
use crate::lock;

/// As much as the kernel asks for at once, more or less.
const BUFFER_BYTES: usize = 8 << 10;

/// An open directory.
#[derive(Debug)]
pub struct OpenDir {
    node: Arc<Node>,
    /// The descriptor has one position, so one reader at a time.
    fd: Mutex<OwnedFd>,
}

impl OpenDir {
    /// Opens a directory for reading.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open(core: &Core, ino: u64) -> Result<Arc<OpenDir>, Errno> {
        let node = core.table.get(ino)?;
        let fd = core.table.reopen(&node, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(Arc::new(OpenDir { node, fd: Mutex::new(fd) }))
    }

    /// Makes its entries durable.
    ///
    /// # Errors
    /// Those of `fsync`.
    pub fn sync(&self, data_only: bool) -> Result<(), Errno> {
        let fd = lock(&self.fd);
        if data_only { rustix::fs::fdatasync(&*fd) } else { rustix::fs::fsync(&*fd) }
    }

    /// Gives the entries behind `offset` (0, or what an entry said) to `add` until it has no more room.
    fn entries(
        &self,
        offset: u64,
        mut add: impl FnMut(&OsStr, u64, rustix::fs::FileType, u64) -> bool,
    ) -> Result<(), Errno> {
        let fd = lock(&self.fd);
        rustix::fs::seek(&*fd, SeekFrom::Start(offset))?;
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut dir = RawDir::new(&*fd, &mut buffer);
        while let Some(entry) = dir.next() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if add(name, entry.ino(), entry.file_type(), entry.next_entry_cookie()) {
                break;
            }
        }
        Ok(())
    }

    /// Names and kinds.
    ///
    /// # Errors
    /// Those of `getdents`.
    pub fn read(&self, core: &Core, offset: u64, reply: &mut ReplyDirectory) -> Result<(), Errno> {
        self.entries(offset, |name, ino, file_type, next| {
            reply.add(INodeNo(core.table.number(ino)), next, kind(file_type), name)
        })
    }

    /// Names with attributes; the kernel gets a reference to each but `.` and `..`.
    ///
    /// The attributes of an entry may not be had (no descriptor is left). Then the answer ends before it, and the kernel asks
    /// on from there, for names alone unless the program looks at attributes too.
    ///
    /// # Errors
    /// Those of `getdents`; of the first entry, if its attributes cannot be had: rather than that its name is missing. An
    /// entry that has gone meanwhile is left out, and so is one of another file system, which cannot be looked up.
    pub fn read_plus(&self, core: &Core, offset: u64, reply: &mut ReplyDirectoryPlus) -> Result<(), Errno> {
        let mut some = false;
        let mut failed = Ok(());
        self.entries(offset, |name, ino, _, next| {
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
        reply: &mut ReplyDirectoryPlus,
    ) -> Result<bool, Errno> {
        if name == "." || name == ".." {
            // The kernel looks at the number and kind of these two only.
            let mut attr = file_attr(core.table.number(ino), &self.node.stat()?);
            attr.kind = FileType::Directory;
            return Ok(reply.add(attr.ino, next, name, &std::time::Duration::ZERO, &attr, Generation(0)));
        }
        let (node, Attributes { attr, ttl }) = core.lookup(self.node.ino, name)?;
        let full = reply.add(attr.ino, next, name, &ttl, &attr, Generation(0));
        if full {
            core.table.forget(node.ino, 1);
        }
        Ok(full)
    }
}
