//! An open file of a pool, for programs that need no mount.

use crate::file::files::{Files, has_no_name};
use crate::file::inode::Inode;
use crate::file::open_inode::OpenInode;
use crate::file::paths::open_terms::OpenTerms;
use crate::file::requests::{LIBRARY, Requests};
use crate::os::error::{Error, Result};
use crate::os::sync::{Mutex, guard};
use crate::os::sys::{proc_path, retry};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FallocateFlags, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stripewise_layout::{Layout, MAX_OFFSET};
use stripewise_model::Op;

/// An open file: its bytes, and an offset of its own as an open file description has. All methods may be called from
/// any thread; those that move the offset take turns.
#[derive(Debug)]
pub struct File {
    files: Arc<Files>,
    fd: Arc<OwnedFd>,
    open: OpenInode,
    /// Whether [`File::close`] has left the file.
    is_closed: bool,
    flags: OFlags,
    offset: Mutex<u64>,
    path: PathBuf,
}

impl Files {
    /// Opens a file as `open` does: with `O_CREAT` it gets the layout that the pool's rules have for its path, and
    /// `mode` less the process's umask. Of other flags `O_EXCL`, `O_TRUNC`, `O_APPEND`, `O_NOFOLLOW` and
    /// `O_NOATIME` count. A directory cannot be opened.
    ///
    /// # Errors
    /// Those of `open`; the handle is damaged.
    pub fn open_file(self: &Arc<Self>, path: &Path, flags: OFlags, mode: Mode) -> Result<File> {
        let failed = |errno| Error::io("open", path)(errno);
        let exclusive = flags.contains(OFlags::CREATE | OFlags::EXCL);
        let follow = flags & OFlags::NOFOLLOW;
        loop {
            if !exclusive {
                let _served = self.serve_names(Op::Read)?;
                match self.beneath(path, OFlags::PATH | follow, Mode::empty()) {
                    Ok(found) => match File::open(self.clone(), (found.as_fd(), false), flags, path) {
                        Err(_) if flags.contains(OFlags::CREATE) && has_no_name(&found) => continue,
                        opened => return opened,
                    },
                    Err(Errno::NOENT) if flags.contains(OFlags::CREATE) => {}
                    Err(errno) => return Err(failed(errno)),
                }
            }
            match self.make(path, mode) {
                Ok(made) => match File::open(self.clone(), (made.as_fd(), true), flags - OFlags::TRUNC, path) {
                    Err(_) if has_no_name(&made) => {}
                    opened => return opened,
                },
                // Another was quicker, or the name is a symbolic link to what does not exist yet.
                Err(error) if error.errno() == Errno::EXIST && !exclusive => {
                    let Some(target) = self.dangling(path)? else { continue };
                    return self.open_file(&target, flags, mode);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl File {
    /// Opens what `found` stands for, a file that was made just now if it `is_new`: what has no bytes has none to lose, so that its first
    /// change registers it as a writer. `path` stands in errors.
    fn open(files: Arc<Files>, (found, is_new): (BorrowedFd<'_>, bool), flags: OFlags, path: &Path) -> Result<Self> {
        let failed = |errno| Error::io("open", path)(errno);
        let stat = rustix::fs::fstat(found).map_err(failed)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(failed(Errno::ISDIR)),
            FileType::Symlink => return Err(failed(Errno::LOOP)),
            _ => return Err(failed(Errno::OPNOTSUPP)),
        }
        let access = flags & OFlags::ACCMODE;
        // With the rights that the inode's mode gives; an appending descriptor would ignore offsets.
        let own = access | OFlags::CLOEXEC | OFlags::NOCTTY;
        let fd = Arc::new(retry(|| rustix::fs::open(proc_path(found), own, Mode::empty())).map_err(failed)?);
        let inode = files.store().file(fd.as_fd(), access != OFlags::RDONLY || flags.contains(OFlags::TRUNC))?;
        files.note_open(&inode)?;
        let terms = OpenTerms {
            at_once: flags.intersects(OFlags::DIRECT | OFlags::SYNC | OFlags::DSYNC),
            appends: flags.contains(OFlags::APPEND),
            ..OpenTerms::by_library(access != OFlags::RDONLY, !flags.contains(OFlags::NOATIME))
        };
        let open = OpenInode::opened(inode, &terms);
        let path = path.to_owned();
        let mut file = Self { files, fd, open, is_closed: true, flags, offset: Mutex::new(0), path };
        if (!is_new || file.inode().is_cached())
            && let Err(error) = file.open.register_up_to(0)
        {
            return file.files.note_close(file.inode()).and(Err(error));
        }
        file.is_closed = false;
        if flags.contains(OFlags::TRUNC) {
            file.set_size(0)?;
            file.open.begin_anew();
        }
        Ok(file)
    }

    /// Whether it is open for reading.
    pub fn reads(&self) -> bool {
        self.flags & OFlags::ACCMODE != OFlags::WRONLY
    }

    /// Whether it is open for writing.
    pub fn writes(&self) -> bool {
        self.open.writes()
    }

    /// Whether every write goes to the end.
    pub fn appends(&self) -> bool {
        self.flags.contains(OFlags::APPEND)
    }

    /// The path that it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The layout; `[meta]` of a file without a handle.
    ///
    /// # Errors
    /// The handle is damaged.
    pub fn layout(&self) -> Result<Arc<Layout>> {
        self.inode().layout()
    }

    fn failed(&self, action: &'static str) -> impl Fn(Errno) -> Error + '_ {
        move |errno| Error::io(action, &self.path)(errno)
    }

    fn inode(&self) -> &Inode {
        self.open.inode()
    }

    fn requests(&self) -> Requests<'_> {
        self.open.sent_by(LIBRARY)
    }

    fn readable(&self) -> Result<()> {
        if self.reads() { Ok(()) } else { Err(self.failed("read")(Errno::BADF)) }
    }

    fn writable(&self) -> Result<()> {
        if self.writes() { Ok(()) } else { Err(self.failed("write")(Errno::BADF)) }
    }

    /// Reads at `offset`; fewer bytes than asked for only at the end. Holes are zeros.
    ///
    /// # Errors
    /// EBADF, EINVAL beyond 2^63-1, those of the servers.
    pub fn read_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        self.readable()?;
        self.within(offset, bufs.iter().map(|buf| buf.len()))?;
        self.open.read_at(LIBRARY, bufs, offset)
    }

    /// Writes at `offset`, or at the end if it [appends](File::appends), as the kernel does.
    ///
    /// # Errors
    /// EBADF, EINVAL and EFBIG beyond 2^63-1, those of the servers.
    pub fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<usize> {
        self.put(bufs, offset).map(|(_, count)| count)
    }

    /// Offsets and lengths are those of a system call.
    fn within(&self, offset: u64, lens: impl Iterator<Item = usize>) -> Result<()> {
        let end = lens.fold(offset, |end, len| end.saturating_add(len as u64));
        if end <= MAX_OFFSET { Ok(()) } else { Err(self.failed("go beyond offset 2^63-1 of")(Errno::INVAL)) }
    }

    /// Where the bytes went, and how many.
    fn put(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(u64, usize)> {
        self.writable()?;
        self.within(offset, bufs.iter().map(|buf| buf.len()))?;
        if bufs.iter().all(|buf| buf.is_empty()) {
            return Ok((offset, 0));
        }
        let requests = self.requests();
        if !self.appends() {
            let end = bufs.iter().fold(offset, |end, buf| end.saturating_add(buf.len() as u64));
            self.open.register_up_to(end)?;
            let count = match self.flags.intersects(OFlags::DIRECT | OFlags::SYNC | OFlags::DSYNC) {
                true => requests.write_vectored_at(bufs, offset)?,
                false => self.open.write_at(LIBRARY, bufs, offset)?,
            };
            return Ok((offset, count));
        }
        self.open.register()?;
        match bufs {
            [one] => requests.append(one),
            // One record, so one write.
            many => requests.append(&many.iter().flat_map(|buf| buf.iter().copied()).collect::<Vec<u8>>()),
        }
    }

    /// Reads at the file's offset, and moves it.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read(&self, bufs: &mut [IoSliceMut<'_>]) -> Result<usize> {
        let mut offset = guard(&self.offset);
        let count = self.read_at(bufs, *offset)?;
        *offset += count as u64;
        Ok(count)
    }

    /// Writes at the file's offset, and moves it; at the end if it [appends](File::appends).
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn write(&self, bufs: &[IoSlice<'_>]) -> Result<usize> {
        let mut offset = guard(&self.offset);
        let (at, count) = self.put(bufs, *offset)?;
        if count > 0 {
            *offset = at + count as u64;
        }
        Ok(count)
    }

    /// Moves the file's offset; where it is then.
    ///
    /// # Errors
    /// EINVAL before the beginning or beyond 2^63-1; ENXIO where there is no data or hole.
    pub fn seek(&self, to: SeekFrom) -> Result<u64> {
        let mut offset = guard(&self.offset);
        let from = |base: u64, by: i64| base.checked_add_signed(by).filter(|&target| target <= MAX_OFFSET);
        let target = match to {
            SeekFrom::Start(target) => (target <= MAX_OFFSET).then_some(target),
            SeekFrom::Current(by) => from(*offset, by),
            SeekFrom::End(by) => from(self.inode().certain_size_bytes()?, by),
            SeekFrom::Data(at) => Some(self.inode().seek_data(at)?),
            SeekFrom::Hole(at) => Some(self.inode().seek_hole(at)?),
        };
        *offset = target.ok_or_else(|| self.failed("seek in")(Errno::INVAL))?;
        Ok(*offset)
    }

    /// Sets the size.
    ///
    /// # Errors
    /// EINVAL if it is not open for writing; those of the servers.
    pub fn truncate(&self, size_bytes: u64) -> Result<()> {
        if !self.writes() {
            return Err(self.failed("set the size of")(Errno::INVAL));
        }
        self.set_size(size_bytes)
    }

    fn set_size(&self, size_bytes: u64) -> Result<()> {
        self.requests().truncate(size_bytes).and_then(|()| self.inode().settle_whole())
    }

    /// `fallocate`.
    ///
    /// # Errors
    /// EOPNOTSUPP for modes that the store does not have; those of the servers.
    pub fn allocate(&self, mode: FallocateFlags, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Err(self.failed("allocate no bytes for")(Errno::INVAL));
        }
        if !self.writes() {
            return Err(self.failed("allocate space for")(Errno::BADF));
        }
        self.open.register()?;
        self.requests().allocate(mode, offset, len).and_then(|()| self.inode().settle_whole())
    }

    /// Makes everything written so far durable (`data_only`: as fdatasync).
    ///
    /// # Errors
    /// Those of the servers.
    pub fn sync(&self, data_only: bool) -> Result<()> {
        self.open.sync(LIBRARY, data_only)
    }

    /// Attributes, with the size and time that the file has over all servers.
    ///
    /// # Errors
    /// Those of `fstat`.
    pub fn stat(&self) -> Result<Stat> {
        self.inode().settle_access();
        self.files.stat_of(self.fd.as_fd())
    }

    /// Closes it and tells of what went wrong, which dropping it does not.
    ///
    /// # Errors
    /// The last writer could not put the size into the inode: the next one does it. What was kept back of what was written (hint
    /// `writebehind`) could not be written: it is lost.
    pub fn close(mut self) -> Result<()> {
        self.leave()
    }

    fn leave(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_closed, true) {
            return Ok(());
        }
        let flushed = self.open.flush();
        self.inode().settle_access();
        flushed.and(self.open.release()).and(self.files.note_close(self.inode()))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // A drop reports no error; what the last writer leaves undone, the next one does.
        let _ = self.leave();
    }
}
