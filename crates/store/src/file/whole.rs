//! Files whose bytes all lie in one datafile (a file per process on one server, for one): the kernel itself can serve
//! them, if it is given that datafile.

use crate::backend::emulate::Op;
use crate::file::inode::Inode;
use crate::file::paths::direct::Direct;
use crate::file::placed_file::PlacedFile;
use crate::os::error::{Error, Result};
use crate::os::sync::atomic::Ordering;
use crate::os::sys::{proc_path, retry};
use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::{Errno, ReadWriteFlags};
use std::io::IoSlice;
use stripewise_control::Request;
use stripewise_layout::ServerId;

impl Inode {
    /// Whether the kernel can serve the file by itself, by what [`Inode::served_by`] gives: it [`Inode::is_whole`], or its layout puts
    /// every byte into the inode, and no other can come in its place. Not on an emulated server, and not where requests are to leave
    /// nothing in page caches. As [`Inode::is_whole`].
    pub fn can_be_served_by_kernel(&self) -> Result<bool> {
        if self.has_handle() {
            Ok(self.is_whole()? && !self.is_direct())
        } else {
            Ok(self.store.plane().has_plain_inodes())
        }
    }

    /// The descriptor by which the kernel can serve the file ([`Inode::can_be_served_by_kernel`]): of its inode a place alone, else as
    /// [`Inode::whole_datafile`], with what that asks of the caller.
    pub fn served_by(&self, make: bool) -> Result<Option<OwnedFd>> {
        if self.has_handle() {
            return self.whole_datafile(make);
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let place = rustix::fs::open(proc_path(self.reading_descriptor()), flags, Mode::empty());
        Ok(Some(place.map_err(self.failed("open"))?))
    }

    /// Whether some of its requests are direct: a kernel that serves the file itself keeps their pages.
    pub(crate) fn is_direct(&self) -> bool {
        self.known_file().is_ok_and(|file| file.direct() != Direct::NEVER)
    }

    /// Whether every byte of the file has its own offset in one datafile, which the kernel can serve by itself (not on an
    /// emulated server). O(regions), no system call once the server is open.
    pub fn is_whole(&self) -> Result<bool> {
        let file = self.file()?;
        if !file.is_one_datafile() {
            return Ok(false);
        }
        let server = self.store.plane().server(file.datafiles().table[0].server)?;
        server.backend()?;
        Ok(server.limits().is_plain)
    }

    /// The datafile of a file that [`Inode::is_whole`], open for reading and writing, as long as the file; made if
    /// there is none and `make` says so. `None`: no such file, or no datafile. The file's times stay.
    ///
    /// The caller must be registered as a writer, and stay it as long as the datafile is used: then no byte moves to
    /// another place. A file that is being moved beside its writers is none such. After a change of size by [`Inode::truncate`] or [`Inode::allocate`] it must be called again.
    pub fn whole_datafile(&self, make: bool) -> Result<Option<OwnedFd>> {
        if self.is_whole()? && self.try_hold_place()? { self.long_datafile(make) } else { Ok(None) }
    }

    /// [`Inode::whole_datafile`] for one who does not write there.
    fn long_datafile(&self, make: bool) -> Result<Option<OwnedFd>> {
        self.put_gathered()?;
        let inode_before = self.stat()?;
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
            let (fd, _) =
                self.store.plane().open_datafile(self.handle(), placement.owner, placement.identity, datafile, true)?;
            // SAFETY: opened just now; this is its only owner.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            let error = self.store.plane().server(datafile.server)?.error("extend a datafile");
            let found = rustix::fs::fstat(&fd).map_err(error)?;
            let extended = match self.extend_whole(&file, fd.as_fd(), error) {
                // What is lost is for the store to tell.
                Err(Error::ShortDatafile { .. }) => return Ok(None),
                extended => extended?,
            };
            // A new or short datafile was not written to: its time must not make the file look changed.
            if extended || found.st_size == 0 {
                // No program sets it meanwhile; one that has done so since counts for more.
                let _change = self.change_handle()?;
                let now = self.stat()?;
                let changed = |stat: &Stat| Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ };
                let is_set = changed(&now) != changed(&inode_before);
                let mtime = if is_set { changed(&now) } else { before.mtime };
                let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
                let times = Timestamps { last_access: omit, last_modification: mtime };
                rustix::fs::futimens(&fd, &times).map_err(error)?;
            }
            return Ok(Some(fd));
        }
    }

    /// After a change of size by [`Inode::truncate`] or [`Inode::allocate`]: a kernel that reads and writes a datafile
    /// itself, under a mount here or elsewhere, takes the datafile's size for the file's.
    pub fn settle_whole(&self) -> Result<()> {
        if self.is_whole()? && self.try_register_writer()? {
            let settled = self.attributes().and_then(|now| self.long_datafile(now.size_bytes > 0));
            self.release_writer()?;
            settled?;
        }
        Ok(())
    }

    /// Makes the datafile of a whole file as long as the file; whether it was shorter. Never shortens it when bytes are
    /// appended meanwhile, and never undoes a truncation: that holds the same lock as we until inode and datafile
    /// agree.
    ///
    /// # Errors
    /// It is shorter than was recorded: zeros would take the place of what is lost.
    fn extend_whole(
        &self,
        file: &PlacedFile,
        datafile: BorrowedFd<'_>,
        error: impl Fn(Errno) -> Error + Copy,
    ) -> Result<bool> {
        let length = || rustix::fs::fstat(datafile).map(|stat| stat.st_size).map_err(error);
        if length()? >= self.stat()?.st_size {
            return Ok(false);
        }
        let _change = self.change_handle()?;
        let size = self.stat()?.st_size;
        let found = length()?;
        if found >= size {
            return Ok(false);
        }
        self.check_hole(file, 0, found as u64)?;
        // Giving the last byte its place extends, if the file still is shorter when the kernel has its lock; setting
        // the length would cut off what was appended since we asked.
        let last = size as u64 - 1;
        match retry(|| rustix::fs::fallocate(datafile, FallocateFlags::empty(), last, 1)) {
            // A file system that cannot, or a full one: there is no other call that only ever extends.
            Err(Errno::OPNOTSUPP | Errno::NOSPC | Errno::DQUOT) => {
                retry(|| rustix::fs::ftruncate(datafile, size as u64)).map_err(error)?
            }
            done => done.map_err(error)?,
        }
        Ok(true)
    }

    /// [`Inode::append`] to a file that [`Inode::is_whole`], or whose bytes are all the inode's own: the kernel finds the
    /// end and writes there in one, for all that append to the datafile. The caller holds `self.appending`, for the
    /// descriptor's offset is used. Four system calls, two where the inode has the bytes; one less if the caller does not
    /// ask where they went.
    pub(crate) fn append_whole(&self, request: &Request, buf: &[u8], asks_where: bool) -> Result<(u64, usize)> {
        let _in_flight = self.store.plane().door().send(request);
        loop {
            let file = self.file()?;
            if self.is_cut_beside.load(Ordering::Acquire) && self.registration_now().is_some() {
                self.wait_for_cut_beside(false)?;
                continue;
            }
            if let Some(inode) = file.whole_inode() {
                let meta = self.store.plane().server(ServerId::META)?;
                meta.backend()?;
                let begin_ns = file.places().begin(file.placement().handle);
                let service = meta.device().map(|device| (device, device.reserve(Op::Write, buf.len() as u64)));
                let done = append_to(&file, inode, request, buf, asks_where);
                if let Some((device, ticket)) = service {
                    device.finish(ticket);
                }
                if let Some(begin_ns) = begin_ns {
                    file.places().end(
                        file.placement().handle,
                        Op::Write,
                        done.as_ref().map_or(0, |(_, put)| *put as u64),
                        begin_ns,
                    );
                }
                return done.map_err(self.failed("append to"));
            }
            let Some(fd) = file.striped().writable_datafile(0)? else {
                self.ensure_datafiles(file.placement().version, &[0])?;
                continue;
            };
            let error = self.store.plane().server(file.datafiles().table[0].server)?.error("append to a datafile");
            self.extend_whole(&file, fd, error)?;
            return append_to(&file, fd, request, buf, asks_where).map_err(error);
        }
    }
}

/// Appends by the kernel, and tells the observers: where the bytes went, if the caller `asks_where`, and how many. The
/// descriptor's offset is used.
fn append_to(
    file: &PlacedFile,
    fd: BorrowedFd<'_>,
    request: &Request,
    buf: &[u8],
    asks_where: bool,
) -> rustix::io::Result<(u64, usize)> {
    let begin_ns = file.begin_observed();
    // -1: at the descriptor's own offset, which the append leaves behind its last byte.
    let put = retry(|| rustix::io::pwritev2(fd, &[IoSlice::new(buf)], u64::MAX, ReadWriteFlags::APPEND))?;
    if !asks_where && begin_ns.is_none() {
        return Ok((0, put));
    }
    let at = rustix::fs::seek(fd, SeekFrom::Current(0))? - put as u64;
    file.appended(request, at, put as u64, begin_ns);
    Ok((at, put))
}
