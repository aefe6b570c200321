//! `cached`: what programs read of a data set stays in the kernel of their mount, from one open to the next.
//!
//! A kernel's pages are out of reach of all other ways in. So as long as a file is open whose pages a kernel keeps, it has no writer:
//! who opens it for writing, or cuts it, is refused with ETXTBSY, as for a program that runs. What is left of the pages after that
//! counts for a later open if the file's epoch counter has the value that it had: a writer of such a file counts it up before
//! it changes a byte.
//!
//! Who keeps and who writes cannot miss each other: the one takes a lock ([`crate::pool::heads`]) and then looks for writers, the
//! other registers and then looks for the lock. Where both come at once, the pages are not kept, and the writer, which waits a
//! moment, goes on.
//!
//! Opens for reading alone have this path, in mounts. Not of the head that an inode keeps, whose writers register elsewhere, and not
//! in a pool of several users, whose counters do not tell of all writers.

use crate::file::inode::Inode;
use crate::file::paths::open_terms::{KernelPages, OpenTerms};
use crate::file::paths::path::IoPath;
use crate::file::paths::record::NotTaken;
use crate::file::requests::Requests;
use crate::os::error::Result;
use crate::os::sync::guard;
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a writer waits for those who keep the file's pages. A kernel tells of a close after the program has gone on.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(1);

/// The path of one open file, over another. The pages are kept until it is dropped.
#[derive(Debug)]
pub(crate) struct Cached {
    below: Box<dyn IoPath>,
    inode: Arc<Inode>,
    epoch: u32,
}

impl Cached {
    /// Its part of the decision for an open of `inode`: why its pages may not be kept, or the path over the others, by `below`. Three
    /// system calls where they may.
    pub(crate) fn decide(
        inode: &Arc<Inode>,
        terms: &OpenTerms,
        below: impl FnOnce() -> Box<dyn IoPath>,
    ) -> Result<Self, NotTaken> {
        match terms.pages {
            _ if terms.writes => return Err(NotTaken::ForWriting),
            KernelPages::NoMount => return Err(NotTaken::NoMount),
            KernelPages::ServesItself => return Err(NotTaken::KernelServes),
            KernelPages::WritesBack => return Err(NotTaken::WritesBack),
            KernelPages::PastThem => return Err(NotTaken::PastPages),
            KernelPages::MayKeep => {}
        }
        let epoch = inode.keep_pages()?;
        Ok(Self { below: below(), inode: inode.clone(), epoch })
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        self.inode.let_go_of_pages();
    }
}

impl IoPath for Cached {
    fn read(&self, requests: Requests<'_>, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        self.below.read(requests, bufs, offset)
    }

    fn write(&self, requests: Requests<'_>, bufs: &[IoSlice<'_>], offset: u64) -> Result<usize> {
        self.below.write(requests, bufs, offset)
    }

    fn kept_epoch(&self) -> Option<u32> {
        Some(self.epoch)
    }
}

impl Inode {
    /// Whether its handle asks for its pages to be kept. No system call where its places are known.
    pub fn is_cached(&self) -> bool {
        self.known_file().is_ok_and(|file| file.cached().is_some())
    }

    /// Keeps writers away until [`Inode::let_go_of_pages`]; the value of the file's epoch counter then. Else why not: it has a writer,
    /// or is none whose pages may be kept.
    fn keep_pages(&self) -> Result<u32, NotTaken> {
        let file = self.known_file().map_err(|_| NotTaken::Unhinted)?;
        let hint = file.cached().ok_or(NotTaken::Unhinted)?;
        if self.store.plane().is_shared() {
            return Err(NotTaken::SharedPool);
        }
        if file.placement().layout.head_in_inode_bytes() > 0 {
            return Err(NotTaken::InInode);
        }
        {
            let mut writers = guard(&self.writers);
            let has_writers = writers.count > 0 || writers.heads > 0;
            if has_writers || (writers.kept == 0 && !self.store.heads.try_keep(self.handle())) {
                return Err(NotTaken::Writer);
            }
            writers.kept += 1;
        }
        let fits = || self.stat().is_ok_and(|stat| stat.st_size as u64 <= hint.most_bytes);
        let epoch = match self.epoch_without_writers() {
            Ok(Some(epoch)) if fits() => Ok(epoch),
            Ok(Some(_)) => Err(NotTaken::TooLarge),
            // Where it cannot be found out, it may have one.
            Ok(None) | Err(_) => Err(NotTaken::Writer),
        };
        if epoch.is_err() {
            self.let_go_of_pages();
        }
        epoch
    }

    fn let_go_of_pages(&self) {
        let mut writers = guard(&self.writers);
        writers.kept = writers.kept.saturating_sub(1);
        if writers.kept == 0 {
            self.store.heads.let_go(self.handle());
        }
    }

    /// For who is registered as a writer and has not changed a byte: waits until no kernel keeps the pages of an open file. One load
    /// of files without the hint, else one system call.
    ///
    /// # Errors
    /// ETXTBSY: one still does.
    pub(crate) fn wait_for_pages(&self) -> Result<()> {
        if !self.is_cached() {
            return Ok(());
        }
        let began = Instant::now();
        while guard(&self.writers).kept > 0 || self.store.heads.is_kept(self.handle())? {
            if began.elapsed() >= PATIENCE {
                let reason = "a program has it open on a mount whose kernel keeps what it has read (hint `cached`)";
                return Err(self.refused("write", reason, Errno::TXTBSY));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}
