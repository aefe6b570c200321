//! The FUSE file system: the way in that serves everything.
//!
//! Names, permissions, links and directories are those of the pool's namespace, an ordinary directory tree: every
//! request about them goes to the same call on an `O_PATH` descriptor. Bytes of all files go through the store: of
//! *placed* files (those with a handle) to the servers, of *plain* ones to the inode itself. Where it can, the kernel serves a
//! file without us.
//!
//! ```text
//! main.rs       command line: mount, unmount, private run
//! helper.rs     the command line of mount(8)
//! session.rs    mount(2) or fusermount3, threads
//! unmount.rs    umount(2) or fusermount3, also of what has died
//! mounts.rs     what is mounted where, also where the process behind it has died
//! server.rs     which process serves a mount, and its end
//! private.rs    a program with a mount of its own (namespaces)
//! core.rs       the state of a mount, which the operations below are on
//! fs.rs         FUSE requests → the operations below; no panic gets out of it
//! caller.rs     the calling program
//! believed.rs   names that the kernel believes for long while no other mount is there
//! newcomers.rs  its end, when another comes
//! node.rs       one inode, and what all opens of it share
//! inode.rs      the inodes the kernel knows
//! workers.rs    which threads wait for requests
//! crowd.rs      how many of them, and when they go before programs
//! linger.rs     looking for the next request before sleeping
//! room.rs       how many inodes the kernel may know
//! prune.rs      asking it to drop some
//! shares.rs     how many descriptors each user may hold
//! names.rs      lookup, create, link, rename, unlink
//! removals.rs   datafiles of files without a name go when that is on the disk
//! attr.rs       attributes, and how long the kernel may believe them
//! file.rs       open files
//! dir.rs        directories
//! lookers.rs    which programs look at the names that they list
//! xattr.rs      extended attributes, ours hidden
//! control.rs    the ioctls of the preload
//! caller.rs     what the user behind a request may do
//! ```

mod attr;
mod believed;
mod caller;
mod charged;
mod control;
mod core;
mod crowd;
mod dir;
mod error;
mod file;
mod fs;
mod helper;
mod inode;
mod linger;
pub mod log;
mod look;
mod lookers;
mod mounts;
mod names;
mod newcomers;
mod node;
mod observers;
mod options;
mod private;
mod prune;
mod removals;
mod room;
mod server;
mod session;
mod shares;
mod sync;
mod turns;
mod unmount;
mod workers;
mod xattr;

use std::sync::PoisonError;

use rustix::io::Errno;

use sync::{Mutex, MutexGuard};

pub use error::MountError;
pub use helper::{HelperCall, is_helper};
pub use mounts::{FS_TYPE, MountEntry, mounted_at};
pub use observers::observed;
pub use options::MountOptions;
pub use private::run_private;
pub use session::{Serving, remount};
pub use turns::door;
pub use unmount::unmount;

/// Locks though another thread has panicked with the lock held: every change under our locks is a single step, and a
/// mount that goes on is worth more than one that stops.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What `crates/interleavings` puts under schedules.
#[cfg(feature = "shuttle")]
pub mod parts {
    pub use crate::Failure;
    pub use crate::core::Core;
    pub use crate::file::OpenFile;
    pub use crate::inode::{ROOT_INO, Table};
    pub use crate::node::{Backing, Node};
    pub use crate::removals::Removals;
    pub use crate::room::InodeRoom;
    pub use crate::workers::Workers;
}

/// Why a request failed.
#[derive(Debug)]
pub enum Failure {
    /// The kernel's answer, passed on.
    Errno(Errno),
    /// The store's, which says more than its errno.
    Store(stripewise_store::Error),
}

impl Failure {
    /// Whether a disk, or what a user may take of it, was full.
    fn is_full(&self) -> bool {
        let errno = match self {
            Failure::Errno(errno) => *errno,
            Failure::Store(error) => error.errno(),
        };
        matches!(errno, Errno::NOSPC | Errno::DQUOT)
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure::Errno(errno)
    }
}

impl From<stripewise_store::Error> for Failure {
    fn from(error: stripewise_store::Error) -> Failure {
        Failure::Store(error)
    }
}
