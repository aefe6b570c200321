//! The store: the files of a pool, as the mount, the command line and the Python module use them.

use crate::error::Result;
use crate::inode::Inode;
use crate::plane::DataPlane;
use crate::pool::Pool;
use rustix::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

/// An open pool.
#[derive(Debug)]
pub struct Store {}

impl Store {
    /// Opens a pool: its namespace, servers and epoch page. A missing server is no error here.
    pub fn open(pool: Pool) -> Result<Arc<Self>> {
        todo!()
    }

    /// The pool.
    pub fn pool(&self) -> &Pool {
        todo!()
    }

    /// The data plane.
    pub fn plane(&self) -> &Arc<DataPlane> {
        todo!()
    }

    /// Descriptor (O_PATH|O_DIRECTORY) of the directory that holds the names (`<namespace>/tree`).
    pub fn tree(&self) -> BorrowedFd<'_> {
        todo!()
    }

    /// Gives the fresh, empty regular file `fd` (open for writing, in the tree) its handle: layout by the first rule that matches
    /// `path` (relative to the tree), else the pool's default. Call it before the file gets its final mode: a user
    /// attribute cannot be set on a read-only file. The inode's owner must be final too.
    pub fn create(&self, fd: BorrowedFd<'_>, path: &Path) -> Result<()> {
        todo!()
    }

    /// The placed file behind `fd`, an open descriptor (any mode, O_PATH too) of a regular file in the tree. `None`: a
    /// plain file without a handle, its bytes are the inode's own. One `Inode` per file and process, shared.
    ///
    /// Pass a descriptor that is open for reading and writing where there is one: it is duplicated and kept; otherwise the
    /// inode is opened again through /proc with what its mode allows.
    pub fn inode(self: &Arc<Self>, fd: BorrowedFd<'_>) -> Result<Option<Arc<Inode>>> {
        todo!()
    }

    /// Removes the datafiles of `inode` if it has no name left and nobody is registered as a writer. `false`: it still
    /// has a name or a writer. Call it after unlink or rename-over, and after the last close, once nobody holds the
    /// file open any more.
    pub fn collect(&self, inode: &Inode) -> Result<bool> {
        todo!()
    }
}
