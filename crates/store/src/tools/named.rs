//! Files by the names that a list of them has: text, which stands for any bytes, and a handle.

use crate::file::inode::Inode;
use crate::os::error::{Error, Result};
use crate::os::sync::{Mutex, guard};
use crate::pool::store::Store;
use crate::tools::walk::{WalkedFile, walk};
use rustix::fd::AsFd as _;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Finds files of a tree.
pub(crate) struct NamedFiles<'a> {
    store: &'a Arc<Store>,
    /// Files whose names are no text, by how they read and by their handles, of which another file may have a copy; looked for once.
    others: OnceCell<HashMap<(String, u64), PathBuf>>,
}

impl<'a> NamedFiles<'a> {
    /// Those of a pool.
    pub(crate) fn of(store: &'a Arc<Store>) -> Self {
        Self { store, others: OnceCell::new() }
    }

    /// The file with that handle at `path`, which is relative to the tree and has U+FFFD where the name is no text; `None`: it is another
    /// one, or gone. O(files of the tree) for the first one whose name is no text.
    ///
    /// # Errors
    /// The file, or the tree, cannot be read.
    pub(crate) fn find(&self, path: &str, handle: u64) -> Result<Option<(PathBuf, Arc<Inode>)>> {
        let found = |path: &Path| -> Result<Option<(PathBuf, Arc<Inode>)>> {
            let inode = self.store.existing_to_move(path)?.filter(|inode| inode.handle() == handle);
            Ok(inode.map(|inode| (path.to_owned(), inode)))
        };
        if !path.contains(char::REPLACEMENT_CHARACTER) {
            return found(Path::new(path));
        }
        if self.others.get().is_none() {
            let _ = self.others.set(self.names_that_are_no_text()?);
        }
        let key = (path.to_owned(), handle);
        self.others.get().and_then(|others| others.get(&key)).map_or(Ok(None), |path| found(path))
    }

    fn names_that_are_no_text(&self) -> Result<HashMap<(String, u64), PathBuf>> {
        let tree = rustix::io::fcntl_dupfd_cloexec(self.store.tree(), 0).map_err(Error::io("open", "tree"))?;
        let others = Mutex::new(HashMap::new());
        let visit = |entry: &WalkedFile<'_>| {
            let path = entry.path();
            let name = path.to_string_lossy();
            if name.contains(char::REPLACEMENT_CHARACTER)
                && let Ok(fd) = entry.open()
                && let Ok(Some(inode)) = self.store.inode(fd.as_fd())
            {
                guard(&others).insert((name.into_owned(), inode.handle()), path);
            }
            Ok(true)
        };
        walk(&tree, 2, &visit, &|_, _| ())?;
        Ok(others.into_inner().unwrap_or_default())
    }
}
