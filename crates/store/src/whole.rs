//! Files whose bytes all lie in one datafile (a file per process on one server, for one): the kernel itself can serve
//! them, if it is given that datafile.

use crate::error::Result;
use crate::inode::Inode;
use rustix::fd::{FromRawFd, OwnedFd};
use rustix::fs::{Timespec, Timestamps, UTIME_OMIT};
use stripewise_layout::ServerId;

impl Inode {
    /// Whether every byte of the file has its own offset in one datafile, on a server that answers at its own speed
    /// (not an emulated one). O(regions), no system call once the server is open.
    pub fn is_whole(&self) -> Result<bool> {
        let file = self.file()?;
        let [datafile] = file.datafiles().table[..] else { return Ok(false) };
        // With nothing in the inode either, the bytes before an offset in the file are those before it in the datafile.
        if file.placement().layout.regions().iter().any(|region| region.stripes()[0].server == ServerId::META) {
            return Ok(false);
        }
        let server = self.store.plane().server(datafile.server)?;
        // By opening its directory it is known whether it is emulated.
        self.store.plane().directory(server)?;
        Ok(server.device().is_none())
    }

    /// The datafile of a file that [`Inode::is_whole`], open for reading and writing, as long as the file; made if there
    /// is none and `make` says so. `None`: no such file, or no datafile. The file's times stay.
    ///
    /// The caller must be registered as a writer, and stay it as long as the datafile is used: then no byte moves to
    /// another place. After a change of size by [`Inode::truncate`] or [`Inode::allocate`] it must be called again.
    pub fn whole_datafile(&self, make: bool) -> Result<Option<OwnedFd>> {
        let before = self.attributes()?;
        loop {
            let file = self.file()?;
            if !self.is_whole()? {
                return Ok(None);
            }
            let placement = file.current_placement();
            if !placement.present.contains(0) {
                if !make {
                    return Ok(None);
                }
                self.ensure_datafiles(placement.version, &[0])?;
                continue;
            }
            let datafile = file.datafiles().table[0];
            let (fd, _) = self.store.plane().open_datafile(self.handle(), placement.owner, datafile, true)?;
            // SAFETY: opened just now, and owned by nobody else.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            let error = self.store.plane().server(datafile.server)?.error("extend a datafile");
            let stat = rustix::fs::fstat(&fd).map_err(error)?;
            // A new or short datafile was not written to: its time must not make the file look changed.
            if (stat.st_size as u64) < before.size_bytes {
                rustix::fs::ftruncate(&fd, before.size_bytes).map_err(error)?;
            }
            if stat.st_size == 0 || (stat.st_size as u64) < before.size_bytes {
                let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
                let times = Timestamps { last_access: omit, last_modification: before.mtime };
                rustix::fs::futimens(&fd, &times).map_err(error)?;
            }
            return Ok(Some(fd));
        }
    }
}
