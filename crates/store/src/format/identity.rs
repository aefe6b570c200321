//! The binding of a datafile of a shared pool to its inode, in an attribute of the datafile.
//!
//! A user who may *write* a file can set its handle, and so name datafiles of another file of the same owner there. Only a
//! user who may write *that datafile* can set its attribute, and only writers of its file may. So the store reads the
//! attribute on the open descriptor each time it uses a datafile in a pool of several users. In a pool of one user only
//! its owner reaches the tree, and the store reads nothing.

use crate::os::error::{Error, Result};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl};
use std::ffi::CStr;

/// The attribute of a datafile.
const ATTRIBUTE: &CStr = c"user.stripewise.inode";
/// `FS_IOC_GETVERSION` of linux/fs.h: `_IOR('v', 1, long)`, of which the kernel fills the first four bytes.
const GET_GENERATION: Opcode = 2 << 30 | (size_of::<libc::c_long>() as Opcode) << 16 | (b'v' as Opcode) << 8 | 1;

/// An inode of the namespace, told from those that had its number before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Number of the inode.
    pub inode: u64,
    /// Its generation, which changes when the number is used again; 0 where the file system does not tell.
    pub generation: u32,
}

/// What the attribute of a datafile says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// It is that inode's.
    Same,
    /// There is none.
    Nothing,
    /// It is another inode's.
    Another,
}

impl Identity {
    /// That of inode `inode`, which is open as `fd` (not as a place only). One system call.
    pub(crate) fn of(fd: BorrowedFd<'_>, inode: u64) -> Result<Self> {
        let mut words = [0_u32; 2];
        // SAFETY: the call writes an `int` or, by its number, at most a `long` into the two words.
        let asked = unsafe { ioctl(fd, Updater::<{ GET_GENERATION }, [u32; 2]>::new(&mut words)) };
        match asked {
            Ok(()) => Ok(Self { inode, generation: words[0] }),
            Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => Ok(Self::without_generation(inode)),
            Err(errno) => Err(Error::io("read the generation of", crate::os::sys::proc_path(fd))(errno)),
        }
    }

    /// For pools of one user, where nothing is asked.
    pub(crate) fn without_generation(inode: u64) -> Self {
        Self { inode, generation: 0 }
    }

    fn bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.inode.to_be_bytes());
        bytes[8..].copy_from_slice(&self.generation.to_be_bytes());
        bytes
    }

    /// Binds an open datafile to the inode.
    pub(crate) fn bind(self, datafile: impl AsFd) -> rustix::io::Result<()> {
        rustix::fs::fsetxattr(datafile, ATTRIBUTE, &self.bytes(), XattrFlags::empty())
    }

    /// Whose an open datafile is. One system call.
    pub(crate) fn asked_of(self, datafile: impl AsFd) -> rustix::io::Result<Said> {
        let mut found = [0; 16];
        match rustix::fs::fgetxattr(datafile, ATTRIBUTE, &mut found[..]) {
            Ok(length) if found[..length] == self.bytes() => Ok(Said::Same),
            Ok(_) | Err(Errno::RANGE) => Ok(Said::Another),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(Said::Nothing),
            Err(errno) => Err(errno),
        }
    }
}
