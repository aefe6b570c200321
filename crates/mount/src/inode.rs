//! The inode table: one `O_PATH` descriptor for every inode the kernel knows.
//!
//! The number the kernel uses for a node is the inode's own number in the namespace, so `st_ino` stays the same over
//! forget and lookup (git and tar compare it). The descriptor keeps the inode allocated, so its number cannot be
//! used again while the kernel still knows it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::lock;
use crate::node::{Node, ProcName};
use crate::room::InodeRoom;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The kernel's number of the root.
pub const ROOT_INO: u64 = 1;

const SHARDS: usize = 64;

/// Where rules take a file for, the directory of which has a path that is too long to be told.
const TOO_DEEP: &str = "...";

#[derive(Debug)]
struct Known {
    node: Arc<Node>,
    /// References the kernel holds; it gives them back by forget.
    lookups: u64,
    /// Which of the inodes came first: by their number in order of coming, or of last having been asked to go.
    since: u64,
}

/// All the nodes the kernel knows, by number.
#[derive(Debug)]
pub struct Table {
    root: Arc<Node>,
    root_dev: u64,
    root_real_ino: u64,
    root_path: PathBuf,
    proc_fds: OwnedFd,
    shards: Vec<Mutex<HashMap<u64, Known>>>,
    clock: AtomicU64,
    /// How many there may be.
    pub room: InodeRoom,
}

impl Table {
    /// A table whose root is the directory `tree`, for as many nodes as there is room for.
    ///
    /// # Errors
    /// `tree` cannot be opened, or `/proc` is not mounted.
    pub fn new(tree: BorrowedFd<'_>, room: InodeRoom) -> Result<Table, Errno> {
        let fd = rustix::fs::openat(tree, c".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        let proc_fds = rustix::fs::openat(
            CWD,
            c"/proc/self/fd",
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let root_path = link_target(&proc_fds, &fd)?;
        let root = Node::new(ROOT_INO, fd, &stat);
        Ok(Table {
            root: Arc::new(root),
            root_dev: stat.st_dev,
            root_real_ino: stat.st_ino,
            root_path,
            proc_fds,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            clock: AtomicU64::new(0),
            room,
        })
    }

    fn shard(&self, ino: u64) -> &Mutex<HashMap<u64, Known>> {
        &self.shards[ino as usize % SHARDS]
    }

    /// The number the kernel sees for an inode of the namespace: its own, but 1 always is the root. And back.
    pub fn number(&self, real_ino: u64) -> u64 {
        if real_ino == self.root_real_ino {
            ROOT_INO
        } else if real_ino == ROOT_INO {
            self.root_real_ino
        } else {
            real_ino
        }
    }

    /// Whether an inode is one of the tree's own file system, and not of one that is mounted in it.
    pub fn is_in_tree(&self, stat: &Stat) -> bool {
        stat.st_dev == self.root_dev
    }

    /// The node the kernel calls `ino`. One short lock.
    ///
    /// # Errors
    /// `ESTALE` for a number the kernel was not given.
    pub fn get(&self, ino: u64) -> Result<Arc<Node>, Errno> {
        if ino == ROOT_INO {
            return Ok(self.root.clone());
        }
        lock(self.shard(ino)).get(&ino).map(|known| known.node.clone()).ok_or(Errno::STALE)
    }

    /// The node `name` of the directory `parent`, with its attributes, without giving the kernel a reference: one it knows, for one
    /// system call, or one that lives as long as the caller holds it.
    ///
    /// # Errors
    /// Those of `openat`; `EXDEV` where another file system is mounted inside the namespace (inode numbers of two
    /// file systems can be the same).
    pub fn peek(&self, parent: &Node, name: &OsStr) -> Result<(Arc<Node>, Stat), Errno> {
        let stat = rustix::fs::statat(&parent.fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if !self.is_in_tree(&stat) {
            return Err(Errno::XDEV);
        }
        match self.get(self.number(stat.st_ino)) {
            Err(_) => {
                let (fd, stat) = self.open_path(parent, name)?;
                // It may be another by now, or one that the kernel knows.
                let ino = self.number(stat.st_ino);
                Ok((self.get(ino).unwrap_or_else(|_| Arc::new(Node::new(ino, fd, &stat))), stat))
            }
            Ok(known) => Ok((known, stat)),
        }
    }

    /// Looks `name` up in `parent` and counts one reference of the kernel. One system call and one short lock where the
    /// kernel knows the inode, as it mostly does when it asks again; else three.
    ///
    /// # Errors
    /// As [`Table::peek`].
    pub fn lookup(&self, parent: &Node, name: &OsStr) -> Result<(Arc<Node>, Stat), Errno> {
        let stat = rustix::fs::statat(&parent.fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let ino = self.number(stat.st_ino);
        if self.is_in_tree(&stat)
            && let Some(known) = lock(self.shard(ino)).get_mut(&ino)
        {
            known.lookups += 1;
            return Ok((known.node.clone(), stat));
        }
        self.lookup_new(parent, name)
    }

    /// [`Table::lookup`] of a name that a listing has just given, with the inode number `listed`: two system calls
    /// where the kernel does not know that inode.
    ///
    /// # Errors
    /// As [`Table::peek`].
    pub fn lookup_listed(&self, parent: &Node, name: &OsStr, listed: u64) -> Result<(Arc<Node>, Stat), Errno> {
        if self.get(self.number(listed)).is_ok() { self.lookup(parent, name) } else { self.lookup_new(parent, name) }
    }

    fn lookup_new(&self, parent: &Node, name: &OsStr) -> Result<(Arc<Node>, Stat), Errno> {
        let (fd, stat) = self.open_path(parent, name)?;
        Ok((self.adopt(fd, &stat), stat))
    }

    /// Takes an `O_PATH` descriptor of the inode `stat` describes into the table and counts one reference of the
    /// kernel.
    pub fn adopt(&self, fd: OwnedFd, stat: &Stat) -> Arc<Node> {
        let ino = self.number(stat.st_ino);
        if ino == ROOT_INO {
            return self.root.clone();
        }
        match lock(self.shard(ino)).entry(ino) {
            Entry::Occupied(mut known) => {
                known.get_mut().lookups += 1;
                known.get().node.clone()
            }
            Entry::Vacant(free) => {
                let node = Arc::new(Node::new(ino, fd, stat));
                free.insert(Known {
                    node: node.clone(),
                    lookups: 1,
                    since: self.clock.fetch_add(1, Ordering::Relaxed),
                });
                self.room.add();
                node
            }
        }
    }

    fn open_path(&self, parent: &Node, name: &OsStr) -> Result<(OwnedFd, Stat), Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = self.room.open(|| rustix::fs::openat(&parent.fd, name, flags, Mode::empty()))?;
        let stat = rustix::fs::fstat(&fd)?;
        if !self.is_in_tree(&stat) {
            return Err(Errno::XDEV);
        }
        Ok((fd, stat))
    }

    /// The kernel gives back `lookups` references.
    pub fn forget(&self, ino: u64, lookups: u64) {
        if ino == ROOT_INO {
            return;
        }
        let mut shard = lock(self.shard(ino));
        if let Entry::Occupied(mut known) = shard.entry(ino) {
            let left = known.get().lookups.saturating_sub(lookups);
            if left == 0 {
                let gone = known.remove();
                self.room.remove();
                // Closing a descriptor can be slow; do it without the lock.
                drop(shard);
                drop(gone);
            } else {
                known.get_mut().lookups = left;
            }
        }
    }

    /// That many of every thousand nodes: the oldest that are not open, for the kernel to drop. Each counts as new
    /// then, so that what is in use is not asked for again and again.
    pub fn oldest(&self, per_mille: usize) -> Vec<u64> {
        let mut oldest = Vec::new();
        for shard in &self.shards {
            let mut shard = lock(shard);
            let wanted = (shard.len() * per_mille).div_ceil(1000);
            let mut ages: Vec<(u64, u64)> = shard.iter().map(|(&ino, known)| (known.since, ino)).collect();
            if wanted < ages.len() {
                ages.select_nth_unstable(wanted);
            }
            for (_, ino) in ages.into_iter().take(wanted) {
                let Some(known) = shard.get_mut(&ino) else { continue };
                known.since = self.clock.fetch_add(1, Ordering::Relaxed);
                if known.node.shared.try_lock().is_ok_and(|shared| shared.is_none()) {
                    oldest.push(ino);
                }
            }
        }
        oldest
    }

    /// Every node in the table: for the end of the mount.
    pub fn all(&self) -> Vec<Arc<Node>> {
        self.shards
            .iter()
            .flat_map(|shard| lock(shard).values().map(|known| known.node.clone()).collect::<Vec<_>>())
            .collect()
    }

    /// Opens a node with real flags through `/proc`, which works whatever its present name is.
    ///
    /// # Errors
    /// Those of `openat`.
    pub fn reopen(&self, node: &Node, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = (flags - OFlags::NOFOLLOW - OFlags::CREATE - OFlags::EXCL) | OFlags::CLOEXEC;
        rustix::fs::openat(&self.proc_fds, ProcName::new(node.fd.as_fd()).number(), flags, Mode::empty())
    }

    /// The name by which `node` can be given to calls that take a path and follow links.
    pub fn proc_name(&self, node: &Node) -> ProcName {
        ProcName::new(node.fd.as_fd())
    }

    /// The directory `/proc/self/fd`.
    pub fn fds(&self) -> BorrowedFd<'_> {
        self.proc_fds.as_fd()
    }

    /// Changes the mode of a node.
    ///
    /// # Errors
    /// Those of `fchmodat`.
    pub fn chmod(&self, node: &Node, mode: Mode) -> Result<(), Errno> {
        rustix::fs::chmodat(&self.proc_fds, self.proc_name(node).number(), mode, AtFlags::empty())
    }

    /// The path of `name` in `parent` relative to the root of the tree, from the kernel's own knowledge of where the
    /// directory is now. Of a directory with a path that the kernel does not tell (4096 bytes and more) it is
    /// [`TOO_DEEP`].
    ///
    /// # Errors
    /// `ENOENT` when the directory has been removed.
    pub fn relative_path(&self, parent: &Node, name: &OsStr) -> Result<PathBuf, Errno> {
        let parent = match link_target(&self.proc_fds, &parent.fd) {
            Err(Errno::NAMETOOLONG) => return Ok(Path::new(TOO_DEEP).join(name)),
            parent => parent?,
        };
        let parent = parent.strip_prefix(&self.root_path).map_err(|_| Errno::NOENT)?;
        Ok(parent.join(name))
    }

    /// The present path of a node as the namespace has it, for messages.
    pub fn describe(&self, node: &Node) -> String {
        link_target(&self.proc_fds, &node.fd)
            .map(|path| path.display().to_string())
            .unwrap_or_else(|_| format!("inode {}", node.ino))
    }
}

fn link_target(proc_fds: &OwnedFd, fd: &OwnedFd) -> Result<PathBuf, Errno> {
    let target = rustix::fs::readlinkat(proc_fds, ProcName::new(fd.as_fd()).number(), Vec::new())?;
    Ok(PathBuf::from(std::ffi::OsString::from_vec(target.into_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::KnownFile;

    fn tree() -> (tempfile::TempDir, Table) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("sub/file"), b"x").unwrap();
        let table = Table::new(std::fs::File::open(dir.path()).unwrap().as_fd(), InodeRoom::new(1024)).unwrap();
        (dir, table)
    }

    #[test]
    fn a_node_lives_until_every_reference_is_given_back() {
        let (_dir, table) = tree();
        let root = table.get(ROOT_INO).unwrap();
        let (sub, _) = table.lookup(&root, OsStr::new("sub")).unwrap();
        let (again, _) = table.lookup(&root, OsStr::new("sub")).unwrap();
        assert!(Arc::ptr_eq(&sub, &again));
        table.forget(sub.ino, 1);
        assert!(table.get(sub.ino).is_ok());
        table.forget(sub.ino, 1);
        assert_eq!(table.get(sub.ino).unwrap_err(), Errno::STALE);
    }

    #[test]
    fn a_listed_name_is_looked_up_as_what_it_is_by_now() {
        let (dir, table) = tree();
        let root = table.get(ROOT_INO).unwrap();
        let sub = table.lookup(&root, OsStr::new("sub")).unwrap().0;
        let (file, stat) = table.lookup_listed(&sub, OsStr::new("file"), 1).unwrap();
        let (again, _) = table.lookup_listed(&sub, OsStr::new("file"), stat.st_ino).unwrap();
        assert!(Arc::ptr_eq(&file, &again));
        std::fs::write(dir.path().join("sub/other"), b"").unwrap();
        std::fs::rename(dir.path().join("sub/other"), dir.path().join("sub/file")).unwrap();
        let (new, _) = table.lookup_listed(&sub, OsStr::new("file"), stat.st_ino).unwrap();
        assert_ne!(new.ino, file.ino);
        // Each lookup counts.
        table.forget(file.ino, 1);
        assert!(table.get(file.ino).is_ok());
        table.forget(file.ino, 1);
        assert_eq!(table.get(file.ino).unwrap_err(), Errno::STALE);
        let gone = table.lookup_listed(&sub, OsStr::new("gone"), new.ino).unwrap_err();
        assert_eq!(gone, Errno::NOENT);
    }

    #[test]
    fn a_handle_is_known_as_long_as_the_inode_stays_as_it_was() {
        let (_dir, table) = tree();
        let root = table.get(ROOT_INO).unwrap();
        let sub = table.lookup(&root, OsStr::new("sub")).unwrap().0;
        let (node, found) = table.lookup(&sub, OsStr::new("file")).unwrap();
        // However long this takes, it has changed just now; and in `old` it has not.
        let mut fresh = found;
        fresh.st_ctime += 1000;
        let of = |logical, epoch| KnownFile { logical: Some(logical), is_alone: true, epoch };
        let without = KnownFile { logical: None, is_alone: true, epoch: None };
        let in_stat = |stat: &Stat| node.handle_in(stat, false, |_| 3);
        assert_eq!((node.handle(), in_stat(&fresh)), (None, None));
        // What has changed just now may change again at the same time: only its counter tells.
        node.know_handle(of(7, None), &fresh);
        assert_eq!((node.handle(), in_stat(&fresh)), (Some(7), None));
        node.know_handle(of(7, Some(2)), &fresh);
        assert_eq!(in_stat(&fresh), None);
        node.know_handle(of(7, Some(3)), &fresh);
        assert_eq!(in_stat(&fresh), Some(of(7, Some(3))));
        let mut renamed = fresh;
        renamed.st_ctime_nsec += 1;
        assert_eq!((in_stat(&renamed), node.handle_in(&renamed, true, |_| 3)), (None, Some(of(7, Some(3)))));
        assert_eq!(node.handle_in(&renamed, true, |_| 4), None);
        node.know_handle(of(7, None), &fresh);
        assert_eq!(node.handle_in(&renamed, true, |_| 3), None);
        node.know_handle(without, &fresh);
        assert_eq!((in_stat(&fresh), node.handle_in(&renamed, true, |_| 3)), (None, None));
        let mut old = found;
        old.st_ctime -= 10;
        node.know_handle(of(8, None), &old);
        assert_eq!((in_stat(&fresh), in_stat(&old)), (None, Some(of(8, None))));
        let mut changed = old;
        changed.st_ctime_nsec += 1;
        assert_eq!(in_stat(&changed), None);
        node.know_handle(without, &old);
        assert_eq!((node.handle(), in_stat(&old)), (None, Some(without)));
        // What may change at the same time counts for a while where another machine can change it, and for good where none can.
        node.know_handle(of(7, Some(3)), &fresh);
        std::thread::sleep(std::time::Duration::from_millis(1100));
        assert_eq!((in_stat(&fresh), node.handle_in(&fresh, true, |_| 3)), (None, Some(of(7, Some(3)))));
        assert_eq!(node.handle_in(&fresh, true, |_| 4), None);
    }

    #[test]
    fn forgetting_too_much_or_the_root_harms_nothing() {
        let (_dir, table) = tree();
        let root = table.get(ROOT_INO).unwrap();
        let (sub, _) = table.lookup(&root, OsStr::new("sub")).unwrap();
        table.forget(sub.ino, u64::MAX);
        table.forget(sub.ino, 1);
        table.forget(ROOT_INO, 100);
        assert!(table.get(ROOT_INO).is_ok());
    }

    #[test]
    fn the_oldest_are_asked_to_go_first_and_then_count_as_new() {
        let (dir, table) = tree();
        let root = table.get(ROOT_INO).unwrap();
        let names: Vec<String> = (0..4 * SHARDS).map(|number| format!("file-{number}")).collect();
        let mut inos = Vec::new();
        for name in &names {
            std::fs::write(dir.path().join(name), b"").unwrap();
            inos.push(table.lookup(&root, OsStr::new(name)).unwrap().0.ino);
        }
        // One of each part of the table: the first that came into it, then the second.
        for turn in 0..2 {
            let oldest = table.oldest(1);
            for part in 0..SHARDS as u64 {
                let came: Vec<u64> = inos.iter().copied().filter(|ino| ino % SHARDS as u64 == part).collect();
                let asked = oldest.iter().copied().find(|ino| ino % SHARDS as u64 == part);
                assert_eq!(asked, came.get(turn % came.len().max(1)).copied());
            }
        }
        assert_eq!(table.oldest(1000).len(), inos.len());
    }

    #[test]
    fn the_path_follows_a_renamed_directory() {
        let (dir, table) = tree();
        let root = table.get(ROOT_INO).unwrap();
        let (sub, _) = table.lookup(&root, OsStr::new("sub")).unwrap();
        assert_eq!(table.relative_path(&sub, OsStr::new("file")).unwrap(), Path::new("sub/file"));
        std::fs::rename(dir.path().join("sub"), dir.path().join("moved")).unwrap();
        assert_eq!(table.relative_path(&sub, OsStr::new("file")).unwrap(), Path::new("moved/file"));
        assert_eq!(table.relative_path(&root, OsStr::new("top")).unwrap(), Path::new("top"));
    }

    #[test]
    fn dot_dot_of_the_tree_does_not_leave_a_node_behind() {
        let (_dir, table) = tree();
        let root = table.get(ROOT_INO).unwrap();
        let (sub, _) = table.lookup(&root, OsStr::new("sub")).unwrap();
        let up = table.peek(&sub, OsStr::new("..")).unwrap().0;
        assert_eq!(up.ino, ROOT_INO);
    }

    #[test]
    fn numbers_are_the_namespaces_own_but_one_is_the_root() {
        let (dir, table) = tree();
        use std::os::unix::fs::MetadataExt;
        let real = std::fs::metadata(dir.path()).unwrap().ino();
        assert_eq!(table.number(real), ROOT_INO);
        assert_eq!(table.number(ROOT_INO), real);
        assert_eq!(table.number(real + 12345), real + 12345);
    }
}
