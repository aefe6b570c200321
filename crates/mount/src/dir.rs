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
    /// # Errors
    /// Those of `getdents`; an entry that has gone meanwhile is left out.
    pub fn read_plus(&self, core: &Core, offset: u64, reply: &mut ReplyDirectoryPlus) -> Result<(), Errno> {
        self.entries(offset, |name, ino, _, next| {
            if name == "." || name == ".." {
                // The kernel looks at the number and kind of these two only.
                let Ok(stat) = self.node.stat() else { return false };
                let mut attr = file_attr(core.table.number(ino), &stat);
                attr.kind = FileType::Directory;
                return reply.add(attr.ino, next, name, &std::time::Duration::ZERO, &attr, Generation(0));
            }
            let Ok((node, Attributes { attr, ttl })) = core.lookup(self.node.ino, name) else { return false };
            let full = reply.add(attr.ino, next, name, &ttl, &attr, Generation(0));
            if full {
                core.table.forget(node.ino, 1);
            }
            full
        })
    }
}
