//! The mount's open files: what opens of one inode share, and when the store is told.

use crate::file::OpenFile;
use crate::fs::Core;
use crate::inode::{Node, ROOT_INO, Table};
use crate::prune::InodeRoom;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicUsize};
use crate::{BackingId, Failure, Inode, Journal, Store, lock};
use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

const NAME: &str = "file";
const THREADS: usize = 3;

struct Mount {
    core: Core,
    node: Arc<Node>,
    inode: Arc<Inode>,
    /// How many files the kernel was given and has not given back.
    given: Arc<std::sync::atomic::AtomicUsize>,
    /// What the kernel has open.
    opens: Mutex<Vec<Arc<OpenFile>>>,
}

impl Mount {
    /// Serves `directory`, in which one placed file is made.
    fn begin(directory: &Path) -> Arc<Self> {
        File::create(directory.join(NAME)).expect("a file");
        let inode = Arc::new(Inode { whole: thread_rng().gen_bool(0.5), ..Inode::default() });
        let tree = File::open(directory).expect("the directory");
        let core = Core {
            store: Arc::new(Store { file: Some(inode.clone()), ..Store::default() }),
            removals: Arc::default(),
            table: Table::new(tree.as_fd(), InodeRoom::new(64)).expect("a table"),
            opened: AtomicUsize::new(0),
            passthrough: AtomicBool::new(thread_rng().gen_bool(0.8)),
            writeback: thread_rng().gen_bool(0.2),
            notes_access: true,
        };
        let root = core.table.get(ROOT_INO).expect("the root");
        let node = core.table.lookup(&root, OsStr::new(NAME)).expect("the file").0;
        if thread_rng().gen_bool(0.7) {
            core.removals.begin(&core.store, Journal::default());
        }
        Arc::new(Self { core, node, inode, given: Arc::default(), opens: Mutex::default() })
    }

    /// What `open` of a program comes to; `None` when the last name has gone. `made` if the program has just made the
    /// file.
    fn open(&self, flags: i32, made: Option<Arc<Inode>>) -> Option<Arc<OpenFile>> {
        let backing = |_: &_| thread_rng().gen_bool(0.8).then(|| BackingId::new(&self.given));
        match self.core.open(self.node.clone(), flags, made, backing) {
            Ok(open) => {
                self.inode.programs.fetch_add(1, Relaxed);
                assert!(!self.inode.collected.load(Relaxed), "a file was opened whose datafiles are gone");
                let mut opens = lock(&self.opens);
                let same = |other: &Arc<OpenFile>| Arc::ptr_eq(&other.shared, &open.shared);
                assert!(opens.iter().all(same), "two opens of a file share nothing");
                opens.push(open.clone());
                Some(open)
            }
            Err(Failure::Errno(Errno::STALE)) => None,
            Err(failure) => panic!("open: {failure:?}"),
        }
    }

    fn close(&self, open: &OpenFile) {
        self.inode.programs.fetch_sub(1, Relaxed);
        lock(&self.opens).retain(|other| !std::ptr::eq(&raw const **other, open));
        self.core.close(open);
    }

    fn opens_and_uses(self: &Arc<Self>) {
        let writes = thread_rng().gen_bool(0.6);
        let truncates = if thread_rng().gen_bool(0.2) { libc::O_TRUNC } else { 0 };
        if let Some(open) = self.open(if writes { libc::O_RDWR | truncates } else { libc::O_RDONLY }, None) {
            self.uses(&open);
        }
    }

    /// A program reads or writes the file in two threads, and closes it.
    fn uses(self: &Arc<Self>, open: &Arc<OpenFile>) {
        let other = {
            let (open, mount) = (open.clone(), self.clone());
            thread::spawn(move || mount.reads_or_writes(&open))
        };
        self.reads_or_writes(open);
        other.join().expect("a thread");
        self.close(open);
    }

    fn reads_or_writes(&self, open: &OpenFile) {
        open.let_past_the_mount(&self.core, &self.inode).expect("a placement");
        if open.writes {
            open.write(b"bytes", 0, thread_rng().gen_bool(0.3)).expect("written");
        }
        open.read_at(&mut [0; 5], 0).expect("read");
    }

    fn unlink(&self) {
        let root = self.core.table.get(ROOT_INO).expect("the root");
        rustix::fs::unlinkat(&root.fd, NAME, AtFlags::empty()).expect("the name");
        self.core.collect(&self.node, &root);
    }

    /// # Panics
    /// Something is left of the opens.
    fn assert_closed(&self, unlinked: bool) {
        assert_eq!(self.core.opened.load(SeqCst), 0, "files count as open that are closed");
        assert!(lock(&self.node.shared).is_none(), "a closed file is kept");
        assert_eq!(self.inode.count_writers(), 0, "a closed file has a writer");
        assert_eq!(self.given.load(Relaxed), 0, "the kernel keeps a file");
        self.core.removals.finish();
        let collected = self.inode.collected.load(Relaxed);
        assert_eq!(collected, unlinked, "a file has lost its name: {unlinked}, its datafiles: {collected}");
    }
}

/// Programs open and close one file, which may lose its name meanwhile. What they write is registered, once for each
/// open; the kernel is given one file for all of them; datafiles go when it has lost its name and the last has closed
/// it, and always then.
///
/// # Panics
/// That is not so.
pub fn opens_and_closes(directory: &Path) {
    let mount = Mount::begin(directory);
    let unlinks = thread_rng().gen_bool(0.5);
    // The first write registers the maker of the file.
    let maker = thread_rng().gen_bool(0.5).then(|| mount.open(libc::O_RDWR, Some(mount.inode.clone()))).flatten();
    let mut threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let (mount, made) = (mount.clone(), maker.clone().filter(|_| number == 0));
            thread::spawn(move || made.map_or_else(|| mount.opens_and_uses(), |made| mount.uses(&made)))
        })
        .collect();
    if unlinks {
        let mount = mount.clone();
        threads.push(thread::spawn(move || mount.unlink()));
    }
    drop(maker);
    threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
    mount.assert_closed(unlinks);
    let _ = rustix::fs::unlinkat(CWD, directory.join(NAME), AtFlags::empty());
}

/// The mount ends while programs close their files: each registration is given back once.
///
/// # Panics
/// That is not so.
pub fn the_end_of_the_mount_and_late_closes(directory: &Path) {
    let mount = Mount::begin(directory);
    let opens: Vec<_> = (0..THREADS).filter_map(|_| mount.open(libc::O_RDWR, None)).collect();
    let unlinks = thread_rng().gen_bool(0.5);
    if unlinks {
        mount.unlink();
    }
    // The mount serves no more calls of programs.
    mount.inode.programs.store(0, Relaxed);
    lock(&mount.opens).clear();
    let threads: Vec<_> = opens
        .into_iter()
        .map(|open| {
            let mount = mount.clone();
            thread::spawn(move || mount.core.close(&open))
        })
        .collect();
    // `close_all` would go through its table until all programs have closed.
    mount.core.close_for_good(&mount.node);
    threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
    mount.assert_closed(unlinks);
    assert!(!mount.inode.synced.load(Relaxed), "the directory that had the name is not known any more");
    let _ = rustix::fs::unlinkat(CWD, directory.join(NAME), AtFlags::empty());
}
