//! What the kernel is told without having asked.

use std::io::IoSlice;
use std::sync::Arc;

use rustix::io::Errno;

use crate::connection::FuseDevice;
use crate::replies::{Out, header};

/// `FUSE_NOTIFY_INVAL_INODE`.
const INVAL_INODE: i32 = 2;
/// `FUSE_NOTIFY_INVAL_ENTRY`, with `FUSE_EXPIRE_ONLY` (7.38).
const INVAL_ENTRY: i32 = 3;
const EXPIRE_ONLY: u32 = 1;
/// `FUSE_NOTIFY_PRUNE` (7.45).
const PRUNE: i32 = 9;

/// Tells the kernel of changes that it has not made.
#[derive(Clone, Debug)]
pub struct Notifier {
    device: Arc<FuseDevice>,
}

impl Notifier {
    /// By this connection.
    pub fn new(device: Arc<FuseDevice>) -> Notifier {
        Notifier { device }
    }

    /// The kernel forgets the attributes of an inode, and with an offset from 0 its pages from there on, as many bytes as
    /// `length` says, or all (0).
    ///
    /// # Errors
    /// Those of the kernel; `ENOENT`: it does not know the inode.
    pub fn forget_inode(&self, ino: u64, offset: i64, length: i64) -> Result<(), Errno> {
        let mut out = Out::<24>::new();
        out.u64(ino).u64(offset.cast_unsigned()).u64(length.cast_unsigned());
        self.tell(INVAL_INODE, &[&out.done()])
    }

    /// The kernel looks `name` of the directory `parent` up before it is used next, also where it knows that there is none. It
    /// waits for calls that change the directory. A kernel without [`crate::init::HAS_EXPIRE_ONLY`] would drop the name itself.
    ///
    /// # Errors
    /// Those of the kernel; `ENOENT`: it does not know the name.
    pub fn expire_name(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        let mut out = Out::<16>::new();
        out.u64(parent).u32(name.len() as u32).u32(EXPIRE_ONLY);
        self.tell(INVAL_ENTRY, &[&out.done(), name, b"\0"])
    }

    /// Asks the kernel to drop those of `inodes` that are in no use.
    ///
    /// # Errors
    /// Those of the kernel; `EINVAL` of one before Linux 6.18.
    pub fn prune(&self, inodes: &[u64]) -> Result<(), Errno> {
        let numbers: Vec<u8> = inodes.iter().flat_map(|ino| ino.to_ne_bytes()).collect();
        let mut out = Out::<16>::new();
        out.u32(inodes.len() as u32).zeros(12);
        self.tell(PRUNE, &[&out.done(), &numbers])
    }

    fn tell(&self, code: i32, parts: &[&[u8]]) -> Result<(), Errno> {
        let head = header(parts.iter().map(|part| part.len()).sum(), code, 0);
        let mut slices = vec![IoSlice::new(&head)];
        slices.extend(parts.iter().map(|part| IoSlice::new(part)));
        rustix::io::writev(&*self.device, &slices).map(drop)
    }
}
