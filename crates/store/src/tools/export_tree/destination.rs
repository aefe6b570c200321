//! The directory that an export writes, and what it keeps there until it is done.
//!
//! ```text
//! DEST/.stripewise-export/   made by `mkdir` in an empty DEST: it marks DEST as an export's
//!                         pool          the pool's uuid
//!                         journal       what is done and on the disk
//!                         part-INODE    a file that is being written
//!                         link-INODE    a file with several names, until all are made
//! ```
//! All names are made relative to open directories, one component at a time, and none is followed: whatever others put
//! there meanwhile, nothing outside DEST is written.

use super::journal::ExportJournal;
use crate::os::error::{Error, Result};
use crate::os::sync::Mutex;
use crate::os::sys::{proc_path, read_file_at, replace_file, retry};
use crate::pool::pool_file::Pool;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Name of the directory of an export under way, in the directory that it writes.
pub(super) const STATE: &str = ".stripewise-export";
const POOL: &str = "pool";
const JOURNAL: &str = "journal";

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The directory that is written.
pub(super) struct Destination {
    pub(super) root: OwnedFd,
    path: PathBuf,
    /// `None` when nothing is written.
    state: Option<OwnedFd>,
    pub(super) journal: Mutex<ExportJournal>,
}

/// Opens directory `name` of `parent`, which is no symbolic link.
pub(super) fn open_directory(parent: impl AsFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    retry(|| rustix::fs::openat(&parent, name, DIRECTORY, Mode::empty()))
}

/// Opens directory `name` of `parent`, made if it is not there.
pub(super) fn make_directory(parent: impl AsFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    match rustix::fs::mkdirat(&parent, name, Mode::RWXU) {
        Ok(()) => {}
        Err(Errno::EXIST) => {
            // A stopped export may have given it its mode, which may not let us write.
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let place = retry(|| rustix::fs::openat(&parent, name, flags, Mode::empty()))?;
            rustix::fs::chmod(proc_path(place.as_fd()), Mode::RWXU)?;
        }
        Err(errno) => return Err(errno),
    }
    open_directory(parent, name)
}

impl Destination {
    /// The directory of a finished export, to be compared.
    pub(super) fn open_finished(path: &Path) -> Result<Self> {
        let root = open_directory(CWD, path.as_os_str()).map_err(Error::io("open", path))?;
        Ok(Self { root, path: path.to_owned(), state: None, journal: Mutex::new(ExportJournal::none()) })
    }

    /// The directory to write, made if it is not there.
    pub(super) fn open(path: &Path, pool: &Pool, uuid: &str) -> Result<Self> {
        match rustix::fs::mkdir(path, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(Error::io("make directory", path)(errno)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = retry(|| rustix::fs::openat(CWD, path, flags, Mode::empty())).map_err(Error::io("open", path))?;
        let inside = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let own = pool.own_directories().chain([&*pool.mount]);
        for directory in own.filter_map(|directory| std::fs::canonicalize(directory).ok()) {
            if inside.starts_with(&directory) {
                let message = format!("{} is inside {} of the pool itself", path.display(), directory.display());
                return Err(Error::Invalid(format!("{message}; choose a directory elsewhere")));
            }
        }
        let failed = || Error::io("write", path.join(STATE));
        let state = match open_directory(&root, STATE.as_ref()) {
            Ok(state) => state,
            Err(Errno::NOENT) => {
                if !is_empty(&root).map_err(Error::io("read", path))? {
                    return Err(Error::Invalid(format!(
                        "{} is not empty, and no export under way is there: choose a new directory, or compare with \
                         --verify-only",
                        path.display()
                    )));
                }
                make_directory(&root, STATE.as_ref()).map_err(failed())?
            }
            Err(errno) => return Err(failed()(errno)),
        };
        match read_file_at(&state, POOL, 64) {
            Ok(other) if other != uuid.as_bytes() => {
                let message = format!("{} holds an unfinished export of another pool", path.display());
                return Err(Error::Invalid(format!("{message}; choose another directory")));
            }
            Ok(_) => {}
            Err(Errno::NOENT) => {
                replace_file(&state, POOL, uuid.as_bytes(), Mode::from_raw_mode(0o600)).map_err(failed())?;
            }
            Err(errno) => return Err(failed()(errno)),
        }
        let lock = rustix::fs::flock(&state, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        if lock == Err(Errno::WOULDBLOCK) {
            return Err(Error::Invalid(format!("another export into {} is running", path.display())));
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = retry(|| rustix::fs::openat(&state, JOURNAL, flags, Mode::from_raw_mode(0o600)));
        let journal = file.and_then(ExportJournal::open).map_err(failed())?;
        Ok(Self { root, path: path.to_owned(), state: Some(state), journal: Mutex::new(journal) })
    }

    /// The directory of the export under way. Only where something is written.
    pub(super) fn state(&self) -> BorrowedFd<'_> {
        self.state.as_ref().unwrap_or(&self.root).as_fd()
    }

    /// Ends an export: what it kept goes, unless something failed and it can be resumed.
    pub(super) fn finish(&self, whole: bool) -> Result<()> {
        let failed = || Error::io("finish the export in", self.path.clone());
        crate::os::sync::guard(&self.journal).sync(self.root.as_fd()).map_err(failed())?;
        if !whole {
            return Ok(());
        }
        // It has the pool's mode by now, which may not let us write.
        rustix::fs::fchmod(&self.root, Mode::RWXU).map_err(failed())?;
        let state = self.state();
        let entries = open_directory(state, ".".as_ref()).and_then(Dir::new).map_err(failed())?;
        for entry in entries {
            let entry = entry.map_err(failed())?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                rustix::fs::unlinkat(state, entry.file_name(), AtFlags::empty()).map_err(failed())?;
            }
        }
        rustix::fs::unlinkat(&self.root, STATE, AtFlags::REMOVEDIR).map_err(failed())
    }
}

fn is_empty(directory: &OwnedFd) -> rustix::io::Result<bool> {
    for entry in Dir::read_from(directory)? {
        // A fresh file system is as good as empty.
        if !matches!(entry?.file_name().to_bytes(), b"." | b".." | b"lost+found") {
            return Ok(false);
        }
    }
    Ok(true)
}
