//! A directory that is exported, and its copy.

use super::attributes;
use super::run::Export;
use crate::os::error::{Error, Result};
use crate::tools::directories::{Directory, why};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::Stat;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory of the pool and the one that it becomes.
pub(super) struct Pair<'a> {
    pub(super) export: &'a Export<'a>,
    /// It gets its attributes after all that is in it: they may let this export in no more.
    pub(super) above: Option<Arc<Pair<'a>>>,
    pub(super) from: Arc<Directory>,
    pub(super) to: Arc<Directory>,
    /// blake3 of all names from the top to here.
    pub(super) way: [u8; 32],
    pub(super) stat: Stat,
}

impl Pair<'_> {
    /// The directory of the pool.
    pub(super) fn from(&self) -> Result<Arc<OwnedFd>> {
        self.from.fd().map_err(|errno| failure("open", &self.path(), errno))
    }

    /// The directory that it becomes.
    pub(super) fn to(&self) -> Result<Arc<OwnedFd>> {
        self.to.fd().map_err(|errno| failure("open the copy of", &self.path(), errno))
    }

    /// Relative to the tree, as [`Directory::path`] tells it.
    pub(super) fn path(&self) -> PathBuf {
        self.from.path()
    }

    /// The error of `action` on its entry `name`.
    pub(super) fn failed(&self, action: &'static str, name: &OsStr) -> impl FnOnce(Errno) -> Error {
        move |errno| failure(action, &self.path().join(name), errno)
    }

    /// All that is in it is done: nothing changes its times any more.
    fn finish(&self) {
        if self.export.options.verify_only || self.export.go_on().is_err() {
            return;
        }
        let mtime = attributes::times(&self.stat).last_modification;
        let both = self.from.fd().and_then(|from| Ok((from, self.to.fd()?)));
        let done =
            both.and_then(|(from, to)| attributes::copy(self.export, from.as_fd(), &self.stat, mtime, to.as_fd()));
        if let Err(errno) = done {
            self.export.fail(&self.path(), &format!("its attributes: {}", why(errno)));
        }
    }
}

impl Drop for Pair<'_> {
    /// The last user of the directory is done with it, and perhaps with those above it. One after the other: a stack
    /// would not hold a call for each level.
    fn drop(&mut self) {
        let mut above = self.above.take();
        self.finish();
        while let Some(mut last) = above.and_then(Arc::into_inner) {
            // Without any above it, it is finished where it is dropped: at the end of this turn.
            above = last.above.take();
        }
    }
}

pub(super) fn failure(action: &'static str, path: &Path, errno: Errno) -> Error {
    match errno {
        Errno::XDEV | Errno::STALE => Error::Invalid(why(errno)),
        errno => Error::io(action, path)(errno),
    }
}
