//! `/dev/fuse` and its ioctls.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

/// `FUSE_DEV_IOC_CLONE`: this descriptor is of the connection of that number's.
const CLONE: libc::Ioctl = 0x8004_e500_u32 as libc::Ioctl;
/// `FUSE_DEV_IOC_BACKING_OPEN`.
const BACKING_OPEN: libc::Ioctl = 0x4010_e501;
/// `FUSE_DEV_IOC_BACKING_CLOSE`.
const BACKING_CLOSE: libc::Ioctl = 0x4004_e502;

/// A descriptor of a connection to the kernel. The connection ends with the last of them.
#[derive(Debug)]
pub struct FuseDevice {
    fd: OwnedFd,
}

/// `fuse_backing_map`.
#[repr(C)]
struct BackingMap {
    fd: i32,
    flags: u32,
    padding: u64,
}

impl AsFd for FuseDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl FuseDevice {
    /// The connection of a mount that `fd` was given to.
    pub fn new(fd: OwnedFd) -> FuseDevice {
        FuseDevice { fd }
    }

    /// Opens the device; the connection begins with a mount.
    ///
    /// # Errors
    /// Those of `open`: there is no FUSE, or not for this user.
    pub fn open() -> io::Result<FuseDevice> {
        Ok(FuseDevice::new(File::options().read(true).write(true).open("/dev/fuse")?.into()))
    }

    /// Another descriptor of the connection, with requests of its own in progress.
    ///
    /// # Errors
    /// Those of `open` and of the ioctl.
    pub fn another(&self) -> io::Result<FuseDevice> {
        let device = FuseDevice::open()?;
        let number = self.fd.as_raw_fd();
        // SAFETY: the descriptor is open, and the kernel reads one number.
        if unsafe { libc::ioctl(device.fd.as_raw_fd(), CLONE, &number) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(device)
    }

    /// Gives the kernel the file `fd` to read and write by.
    ///
    /// # Errors
    /// Those of the ioctl: no privilege, or a file system that is stacked.
    pub fn open_backing(self: &Arc<Self>, fd: BorrowedFd<'_>) -> io::Result<BackingId> {
        let map = BackingMap { fd: fd.as_raw_fd(), flags: 0, padding: 0 };
        // SAFETY: both descriptors are open, and the kernel reads one structure.
        let id = unsafe { libc::ioctl(self.fd.as_raw_fd(), BACKING_OPEN, &map) };
        if id < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(BackingId { device: Arc::downgrade(self), id })
    }
}

/// A file that the kernel has to read and write by, until this is dropped. (A file that is open stays so.)
#[derive(Debug)]
pub struct BackingId {
    device: Weak<FuseDevice>,
    id: i32,
}

impl BackingId {
    /// The number that a reply to an open names.
    pub fn number(&self) -> i32 {
        self.id
    }
}

impl Drop for BackingId {
    fn drop(&mut self) {
        if let Some(device) = self.device.upgrade() {
            // SAFETY: the descriptor is open, and the kernel reads one number. It knows the number: it gave it.
            unsafe { libc::ioctl(device.fd.as_raw_fd(), BACKING_CLOSE, &self.id) };
        }
    }
}
