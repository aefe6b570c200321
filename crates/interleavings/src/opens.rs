//! The mount's open files: what opens of one inode share, and when the store is told.

use crate::lock;
use crate::pools::{NAME, TestPool, fill, has_datafiles, layout, make};
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Mutex;
use shuttle::thread;
use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use stripewise_control::{Sender, Way};
use stripewise_mount::MountOptions;
use stripewise_mount::parts::{Backing, Core, Failure, Node, OpenFile, ROOT_INO};
use stripewise_store::{Inode, Store};

const THREADS: usize = 3;
const PROGRAM: Sender = Sender::thread(Way::Mount, 1);
const FIRST_BYTES: usize = 40;

struct Mount {
    core: Core,
    node: Arc<Node>,
    inode: Arc<Inode>,
    /// One more than the kernel was given and has not given back.
    given: Arc<()>,
    /// What the kernel has open.
    opens: Mutex<Vec<Arc<OpenFile>>>,
    /// Some opens truncate the file.
    truncates: bool,
}

impl Mount {
    /// Serves the pool, in which one placed file is made.
    fn begin(pool: &TestPool) -> Arc<Self> {
        let store = Store::open(pool.pool()).expect("a store");
        // Whole on one server, so that the kernel can serve it, or not.
        let inode = make(&store, NAME, &layout(0, thread_rng().gen_range(1..=2))).1;
        fill(&inode, &[7; FIRST_BYTES]);
        let mut options = MountOptions::defaults(false);
        if thread_rng().gen_bool(0.2) {
            options.add("writeback_cache").expect("an option");
        }
        let core = Core::new(store, &options).expect("a mount");
        core.passthrough.store(!core.writeback && thread_rng().gen_bool(0.8), SeqCst);
        let root = core.table.get(ROOT_INO).expect("the root");
        let node = core.table.lookup(&root, OsStr::new(NAME)).expect("the file").0;
        if thread_rng().gen_bool(0.7) {
            core.collect_interrupted();
        }
        let truncates = thread_rng().gen_bool(0.4);
        Arc::new(Self { core, node, inode, given: Arc::default(), opens: Mutex::default(), truncates })
    }

    /// What `open` of a program comes to; `None` when the last name has gone. `made` if the program has just made the file.
    fn open(&self, flags: i32, made: Option<Arc<Inode>>) -> Option<Arc<OpenFile>> {
        let backing = |_: &_| thread_rng().gen_bool(0.8).then(|| Backing::Counted(self.given.clone()));
        match self.core.open(PROGRAM, self.node.clone(), flags, made, backing) {
            Ok(open) => {
                self.assert_there();
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

    /// An open file has its datafiles, unless it was truncated.
    fn assert_there(&self) {
        let is_there = self.truncates || has_datafiles(&self.core.store, &self.inode);
        assert!(is_there, "the datafiles of an open file are gone");
    }

    fn close(&self, open: &OpenFile) {
        self.assert_there();
        lock(&self.opens).retain(|other| !std::ptr::eq(&raw const **other, open));
        self.core.close(open);
    }

    fn opens_and_uses(self: &Arc<Self>) {
        let writes = thread_rng().gen_bool(0.6);
        let truncates = if self.truncates && thread_rng().gen_bool(0.4) { libc::O_TRUNC } else { 0 };
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
        open.let_past_the_mount(&self.core).expect("a placement");
        if open.writes() {
            let append = if thread_rng().gen_bool(0.3) { OFlags::APPEND } else { OFlags::empty() };
            open.write(PROGRAM, b"bytes", 0, append).expect("written");
        }
        let mut found = [0; 5];
        let count = open.read_at(PROGRAM, &mut found, 0).expect("read");
        let is_known = found[..count].iter().zip(b"bytes").all(|(found, written)| found == written || *found == 7);
        assert!(self.truncates || (is_known && count == 5), "bytes of an open file");
    }

    fn unlink(&self) {
        let root = self.core.table.get(ROOT_INO).expect("the root");
        // The kernel looks the name up first, and the mount does so again.
        self.core.attributes(&self.node, None).expect("attributes");
        let stat = self.node.stat().expect("attributes");
        let alone = self.core.only_name_of_alone(&root, OsStr::new(NAME), &self.node, &stat);
        rustix::fs::unlinkat(&root.fd, NAME, AtFlags::empty()).expect("the name");
        self.core.collect(&self.node, &root, alone);
    }

    /// Takes the name away if that has not been done.
    ///
    /// # Panics
    /// Something is left of the opens, or of the file at last.
    fn end(&self, pool: &TestPool, unlinked: bool) {
        assert_eq!(self.core.opened.load(SeqCst), 0, "files count as open that are closed");
        assert!(lock(&self.node.shared).is_none(), "a closed file is kept");
        assert!(!self.inode.has_writers().expect("an answer"), "a closed file has a writer");
        assert_eq!(Arc::strong_count(&self.given), 1, "the kernel keeps a file");
        self.core.removals.finish(&self.core.store);
        if !unlinked {
            self.assert_there();
            self.unlink();
            self.core.removals.finish(&self.core.store);
        }
        pool.assert_empty();
    }
}

/// Programs open and close one file, which may lose its name meanwhile. What they write is registered, once for each open;
/// the kernel is given one file for all of them; datafiles go when it has lost its name and the last has closed it, and
/// always then.
///
/// # Panics
/// That is not so.
pub fn opens_and_closes(pool: &TestPool) {
    let mount = Mount::begin(pool);
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
    mount.end(pool, unlinks);
}

/// The mount ends while programs close their files: each registration is given back once.
///
/// # Panics
/// That is not so.
pub fn the_end_of_the_mount_and_late_closes(pool: &TestPool) {
    let mount = Mount::begin(pool);
    let opens: Vec<_> = (0..THREADS).filter_map(|_| mount.open(libc::O_RDWR, None)).collect();
    let unlinks = thread_rng().gen_bool(0.5);
    if unlinks {
        mount.unlink();
    }
    // The mount serves no more calls of programs.
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
    mount.end(pool, unlinks);
}
