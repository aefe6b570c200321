//! The datafiles of files that have lost their last name: they go when that is on the disk, and not before.
//!
//! A power cut may bring back a name whose removal had not reached the disk, and its bytes must be there then: above all
//! when the name was replaced by a rename, by which a program was promised one content or the other. So a thread of its
//! own syncs the directories first, once for all that was removed meanwhile, and no program waits for a disk.

use std::sync::{Arc, PoisonError};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use stripewise_store::{Inode, Store};

use crate::inode::{Node, ProcName};
use crate::sync::{Condvar, Mutex, thread};
use crate::{lock, log};

/// Most files that wait at once: each holds a descriptor. Who removes one more waits for the disk.
const MOST_WAITING: usize = 1024;

/// A file without a name that nobody has open here; or `None`: one that has lost a name and has others, in directories that
/// may be synced without this one. When it loses the last of them, all must be certain to be gone.
#[derive(Debug)]
struct Removal {
    inode: Option<Arc<Inode>>,
    /// The directory that had its name. `None`: another took the name away, or this mount just now and has not come to say so;
    /// then the file itself is synced, and journals take the name with it.
    directory: Option<Arc<Node>>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<Removal>,
    /// The thread has taken some that are not done.
    busy: bool,
    /// Whether there is a thread; unknown before the first removal.
    thread: Option<bool>,
}

/// Files whose datafiles are to be removed.
#[derive(Debug, Default)]
pub struct Removals {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Removals {
    /// Removes the datafiles of `inode` as soon as it is certain that its name, which was in `directory`, does not come
    /// back. Waits only when very many wait already.
    pub fn add(self: &Arc<Self>, store: &Arc<Store>, inode: Arc<Inode>, directory: Option<Arc<Node>>) {
        self.push(store, Removal { inode: Some(inode), directory });
    }

    /// Makes certain that a name which was in `directory` does not come back, before any datafiles go that are added later.
    pub fn forget_name(self: &Arc<Self>, store: &Arc<Store>, directory: Arc<Node>) {
        self.push(store, Removal { inode: None, directory: Some(directory) });
    }

    fn push(self: &Arc<Self>, store: &Arc<Store>, removal: Removal) {
        let mut queue = lock(&self.queue);
        if !*queue.thread.get_or_insert_with(|| self.start(store)) {
            return;
        }
        let mut queue = self
            .changed
            .wait_while(queue, |queue| queue.waiting.len() >= MOST_WAITING)
            .unwrap_or_else(PoisonError::into_inner);
        queue.waiting.push(removal);
        self.changed.notify_all();
    }

    /// Starts the thread; whether that worked.
    fn start(self: &Arc<Self>, store: &Arc<Store>) -> bool {
        let (removals, store) = (self.clone(), store.clone());
        let started = thread::Builder::new().name("remove".to_owned()).spawn(move || removals.run(&store));
        let error = |error| log::error(&format!("no thread to remove datafiles ({error}): `stripewise fsck` will"));
        started.map_err(error).is_ok()
    }

    /// Waits until nothing is left to remove.
    pub fn finish(&self) {
        let under_way = |queue: &mut Queue| queue.busy || !queue.waiting.is_empty();
        drop(self.changed.wait_while(lock(&self.queue), under_way));
    }

    fn run(&self, store: &Store) {
        loop {
            let queue = lock(&self.queue);
            let mut queue = self
                .changed
                .wait_while(queue, |queue| queue.waiting.is_empty())
                .unwrap_or_else(PoisonError::into_inner);
            let taken = std::mem::take(&mut queue.waiting);
            queue.busy = true;
            self.changed.notify_all();
            drop(queue);
            remove(store, &taken);
            drop(taken);
            lock(&self.queue).busy = false;
            self.changed.notify_all();
        }
    }
}

fn remove(store: &Store, taken: &[Removal]) {
    let mut synced: Vec<(u64, bool)> = Vec::new();
    for Removal { inode, directory } in taken {
        let certain = match directory {
            None => inode.as_ref().is_none_or(|inode| inode.sync_inode().is_ok()),
            Some(directory) => match synced.iter().find(|(ino, _)| *ino == directory.ino) {
                Some((_, certain)) => *certain,
                None => {
                    let certain = sync(directory).is_ok();
                    synced.push((directory.ino, certain));
                    certain
                }
            },
        };
        let removed = inode.as_ref().filter(|_| certain).map(|inode| store.collect(inode));
        if let Some(Err(error)) = removed {
            log::error(&format!("removing datafiles: {error}; `stripewise fsck` removes them"));
        }
    }
}

/// Makes the names in a directory durable. One that is gone itself has none.
fn sync(directory: &Node) -> Result<(), Errno> {
    use std::os::fd::AsFd;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(ProcName::new(directory.fd.as_fd()).path(), flags, Mode::empty())?;
    rustix::fs::fsync(&directory)
}
