//! A pool in a temporary directory, and a file of it that several processes use.

use rustix::fs::{FallocateFlags, Mode, OFlags, XattrFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use shuttle::rand::{Rng, thread_rng};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stripewise_layout::{Layout, ServerId, Stripe};
use stripewise_optimisation::{OptimisationSetting, SMALL};
use stripewise_store::handle::Optimisations;
use stripewise_store::pool::{PoolSpec, ProfileSource, TierSpec};
use stripewise_store::{Collected, Inode, Pool, Store, Then};

/// Bytes of a stripe.
pub(crate) const WIDTH: u64 = 16;
/// Bytes of a stripe of a pool whose metadata tier fills, which gives room by pages.
pub(crate) const PAGE: u64 = 4096;
const SERVERS: u16 = 3;
/// The one file of a scenario.
pub(crate) const NAME: &str = "file";

/// A pool for all executions of a scenario.
#[derive(Debug)]
pub struct TestPool {
    directory: tempfile::TempDir,
    pool: Pool,
    keeps_layouts: AtomicBool,
}

impl TestPool {
    /// In memory where that keeps users' attributes, so that syncs cost nothing.
    ///
    /// # Panics
    /// It cannot be made.
    pub fn new() -> Self {
        Self::with(SERVERS, WIDTH, |_| ())
    }

    /// Another over that many servers, whose metadata tier is a file system of its own with a little room. The process must be one that
    /// may mount it.
    ///
    /// # Panics
    /// It cannot be made.
    pub fn with_small_tier(servers: u16) -> Self {
        let made = Self::with(servers, PAGE, |namespace| {
            std::fs::create_dir(namespace).expect("a directory");
            rustix::mount::mount("none", namespace, "tmpfs", MountFlags::empty(), c"size=1m").expect("a file system");
        });
        // Without this page of the load a head is as long as the hint says, however full the tier was a moment ago.
        std::fs::create_dir(made.pool.namespace.join("meta-load.2")).expect("a directory");
        made
    }

    fn with(servers: u16, width_bytes: u64, prepare: impl FnOnce(&Path)) -> Self {
        let make = |path: &Path| tempfile::Builder::new().prefix("stripewise-interleavings-").tempdir_in(path);
        let memory = make(Path::new("/dev/shm")).ok().filter(|directory| {
            rustix::fs::setxattr(directory.path(), c"user.stripewise.test", b"1", XattrFlags::empty()).is_ok()
        });
        let directory = memory.unwrap_or_else(|| make(&std::env::temp_dir()).expect("a temporary directory"));
        let base = directory.path();
        prepare(&base.join("names"));
        let servers = (0..servers).map(|number| base.join(format!("s{number}"))).collect();
        let spec = PoolSpec {
            name: "test".into(),
            mount: base.join("mount"),
            namespace: base.join("names"),
            default_width_bytes: Some(width_bytes),
            tiers: vec![TierSpec { name: "disk".into(), servers, ..TierSpec::default() }],
        };
        let pool = Pool::init(&base.join("pool.toml"), &spec).expect("a pool");
        Self { directory, pool, keeps_layouts: AtomicBool::new(false) }
    }

    /// Another, whose servers are as fast as disks.
    ///
    /// # Panics
    /// It cannot be made.
    pub fn of_disks() -> Self {
        let mut made = Self::new();
        let profile = stripewise_model::presets::device("hdd-7200").expect("a device of the model");
        made.pool.tiers[0].profile = Some((profile, ProfileSource::PoolFile));
        made
    }

    fn filler(&self) -> PathBuf {
        self.pool.namespace.join("filler")
    }

    /// Takes the room of a small metadata tier, but for this number of pages.
    pub(crate) fn fill_tier_but(&self, pages: u64) {
        let filler = std::fs::File::create(self.filler()).expect("a file");
        let free = rustix::fs::fstatvfs(&filler).expect("the file system");
        let bytes = free.f_bavail * free.f_frsize - pages * PAGE;
        rustix::fs::fallocate(&filler, FallocateFlags::empty(), 0, bytes).expect("the room");
    }

    /// Has the metadata tier keep these layouts from the first execution on, so that none of a later one needs room for them.
    pub(crate) fn keep_layouts(&self, layouts: &[Layout]) {
        if self.keeps_layouts.swap(true, Ordering::SeqCst) {
            return;
        }
        let store = Store::open(self.pool()).expect("a store");
        for layout in layouts {
            let (_fd, inode) = make(&store, NAME, layout);
            rustix::fs::unlinkat(store.tree(), NAME, rustix::fs::AtFlags::empty()).expect("the name");
            assert_eq!(store.collect(&inode).expect("collected"), Collected::Gone);
        }
    }

    /// Gives back what [`TestPool::fill_tier_but`] has taken.
    pub(crate) fn empty_tier(&self) {
        let _ = std::fs::remove_file(self.filler());
    }

    pub(crate) fn pool(&self) -> Pool {
        self.pool.clone()
    }

    fn files(&self, directory: &str) -> Vec<String> {
        let read =
            |path: &Path| std::fs::read_dir(path).map(|found| found.flatten().map(|entry| entry.path()).collect());
        let list = |path: &Path| -> Vec<_> { read(path).unwrap_or_default() };
        let inner = list(&self.directory.path().join(directory)).into_iter().flat_map(|path| match path.is_dir() {
            true => list(&path),
            false => vec![path],
        });
        inner.map(|path| path.display().to_string()).collect()
    }

    /// The datafiles on all servers.
    fn datafiles(&self) -> Vec<String> {
        let hidden = |path: &String| path.rsplit('/').next().is_some_and(|name| name.starts_with('.'));
        (0..SERVERS).flat_map(|server| self.files(&format!("s{server}"))).filter(|path| !hidden(path)).collect()
    }

    /// What a file that is gone must not leave behind.
    ///
    /// # Panics
    /// There is a lock file or a datafile.
    pub(crate) fn assert_empty(&self) {
        assert_eq!(self.files("names/locks"), [""; 0], "a lock file is left");
        assert_eq!(self.datafiles(), [""; 0], "a datafile is left");
    }
}

impl Drop for TestPool {
    fn drop(&mut self) {
        // Most are no file system of their own.
        let _ = rustix::mount::unmount(&self.pool.namespace, UnmountFlags::DETACH);
    }
}

impl Default for TestPool {
    fn default() -> Self {
        Self::new()
    }
}

/// One region over the servers `[first, first + servers)`.
pub(crate) fn layout(first: u16, servers: u16) -> Layout {
    layout_of(WIDTH, first, servers)
}

/// [`layout`] in stripes of `width_bytes`.
pub(crate) fn layout_of(width_bytes: u64, first: u16, servers: u16) -> Layout {
    let stripe = |server| Stripe { server: ServerId(server), width_bytes };
    Layout::new([(0, (first..first + servers).map(stripe).collect())]).expect("a layout")
}

/// The first two stripes in the inode, what is behind over two servers.
pub(crate) fn small() -> Layout {
    layout(0, 2).with_head_in_inode(2 * WIDTH).expect("a layout")
}

/// Makes an empty file with the name and this layout.
pub(crate) fn make(store: &Arc<Store>, name: &str, layout: &Layout) -> (OwnedFd, Arc<Inode>) {
    make_with(store, name, layout, &Optimisations::default())
}

/// [`make`] in a directory that hints these optimisations.
fn make_with(store: &Arc<Store>, name: &str, layout: &Layout, hinted: &Optimisations) -> (OwnedFd, Arc<Inode>) {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(store.tree(), name, flags, Mode::from_raw_mode(0o600)).expect("a file");
    drop(store.create(fd.as_fd(), hinted, || Ok(name.into())).expect("a handle"));
    let inode = store.inode(fd.as_fd()).expect("the file").expect("it is placed");
    inode.move_to(layout, name, &mut |_, _| true).expect("the layout");
    (fd, inode)
}

/// Makes an empty file as its directory hints: a head of `head_bytes` in the inode, what is behind on all servers.
fn make_small(store: &Arc<Store>, name: &str, head_bytes: u64) -> OwnedFd {
    let mut hinted = Optimisations::default();
    hinted.enable(SMALL.index, head_bytes).expect("a size");
    let (index, parameters) = OptimisationSetting::parse("readahead=64K:2").expect("a setting").pack();
    hinted.enable(index, parameters).expect("a setting");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(store.tree(), name, flags, Mode::from_raw_mode(0o600)).expect("a file");
    drop(store.create(fd.as_fd(), &hinted, || Ok(name.into())).expect("a handle"));
    fd
}

/// Puts `bytes` into the file. No other thread does anything.
pub(crate) fn fill(inode: &Inode, bytes: &[u8]) {
    inode.register_writer().expect("a writer");
    write(inode, bytes, 0);
    inode.release_writer().expect("released");
}

/// What a move does between two of its steps: a rest, now and then.
pub(crate) fn rests() -> Then {
    if thread_rng().gen_bool(0.3) { Then::Rest } else { Then::On }
}

/// Whether a server has a datafile of the file.
pub(crate) fn has_datafiles(store: &Store, inode: &Inode) -> bool {
    let handle = inode.handle();
    store.pool().servers.iter().any(|server| {
        let found = std::fs::read_dir(server.root.join(format!("{:02x}", handle & 0xff)));
        let is_its = |name: std::ffi::OsString| name.to_string_lossy().starts_with(&format!("{handle:016x}"));
        found.is_ok_and(|found| found.flatten().any(|entry| is_its(entry.file_name())))
    })
}

/// One file, as the processes see it that use it.
pub(crate) struct TestFile<'a> {
    pool: &'a TestPool,
    fd: OwnedFd,
    /// Of each process its own.
    pub(crate) stores: Vec<Arc<Store>>,
    pub(crate) inodes: Vec<Arc<Inode>>,
}

impl<'a> TestFile<'a> {
    /// An empty file with this layout, and what each process has of it.
    pub(crate) fn make(pool: &'a TestPool, layout: &Layout, processes: usize) -> Self {
        Self::make_with(pool, layout, processes, &Optimisations::default())
    }

    /// An empty file that its directory's hint has given a head of `head_bytes`, and what each process has of it.
    pub(crate) fn make_small(pool: &'a TestPool, head_bytes: u64, processes: usize) -> Self {
        let stores: Vec<_> = (0..processes).map(|_| Store::open(pool.pool()).expect("a store")).collect();
        let fd = make_small(&stores[0], NAME, head_bytes);
        let inode = |store: &Arc<Store>| store.inode(fd.as_fd()).expect("the file").expect("it is placed");
        let inodes = stores.iter().map(inode).collect();
        Self { pool, fd, stores, inodes }
    }

    /// [`TestFile::make`] in a directory that hints these optimisations.
    pub(crate) fn make_with(pool: &'a TestPool, layout: &Layout, processes: usize, hinted: &Optimisations) -> Self {
        let stores: Vec<_> = (0..processes).map(|_| Store::open(pool.pool()).expect("a store")).collect();
        let fd = make_with(&stores[0], NAME, layout, hinted).0;
        let inode = |store: &Arc<Store>| store.inode(fd.as_fd()).expect("the file").expect("it is placed");
        let inodes = stores.iter().map(inode).collect();
        Self { pool, fd, stores, inodes }
    }

    /// Puts `bytes` into the file. No other thread runs.
    pub(crate) fn fill(&self, bytes: &[u8]) {
        fill(&self.inodes[0], bytes);
    }

    /// The file's inode in the namespace.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// # Panics
    /// A datafile has other permission bits for others than its owner than the inode.
    pub(crate) fn assert_rights(&self) {
        let mode = |stat: rustix::fs::Stat| stat.st_mode & 0o066;
        let inode = mode(rustix::fs::fstat(&self.fd).expect("attributes"));
        for datafile in self.pool.datafiles() {
            let found = mode(rustix::fs::stat(&datafile).expect("attributes"));
            assert_eq!(
                found, inode,
                "the permissions of {datafile}, and those of its inode, in octal: {found:o} {inode:o}"
            );
        }
    }

    /// What the inode says and what is in the file, once it has no writer; then the file is removed.
    ///
    /// # Panics
    /// It is not in order, or something is left of it.
    pub(crate) fn end(self) -> Vec<u8> {
        self.assert_closed();
        // An observer that has seen nothing of it.
        let store = Store::open(self.pool.pool()).expect("a store");
        let inode = store.inode(self.fd.as_fd()).expect("the file").expect("it is placed");
        let size = rustix::fs::fstat(&self.fd).expect("attributes").st_size as usize;
        let mut bytes = vec![0; size + 1];
        let count = read(&inode, &mut bytes);
        assert_eq!(count, size, "bytes in the file, and its size");
        bytes.truncate(size);
        // What was cut off does not come back.
        let longer = 4 * WIDTH as usize + size;
        inode.truncate(longer as u64).expect("a size");
        let mut again = vec![1; longer];
        assert_eq!(read(&inode, &mut again), longer, "bytes in the file that was made longer");
        assert!(again.starts_with(&bytes) && again[size..].iter().all(|byte| *byte == 0), "bytes came back: {again:?}");
        rustix::fs::unlinkat(store.tree(), NAME, rustix::fs::AtFlags::empty()).expect("the name");
        let collected = store.collect(&inode).expect("collected");
        assert_eq!(collected, Collected::Gone, "a file that no store has open is not collected");
        self.pool.assert_empty();
        bytes
    }

    /// Waits until none but this has the file, also no thread of a store that reads ahead. What ends a schedule stops such threads where
    /// they are, and one that has the last reference to a store would end that, for which it needs locks that another may hold.
    pub(crate) fn wait_for_the_last(&self) {
        while self.inodes.iter().any(|inode| Arc::strong_count(inode) > 1) {
            shuttle::thread::yield_now();
        }
    }

    /// # Panics
    /// A writer is still registered.
    pub(crate) fn assert_closed(&self) {
        assert_eq!(self.pool.files("names/locks"), [""; 0], "the last writer has left the lock file");
        for inode in &self.inodes {
            assert!(!inode.has_writers().expect("an answer"), "a writer is left");
        }
    }
}

/// Writes all of `bytes`.
pub(crate) fn write(inode: &Inode, bytes: &[u8], offset: u64) {
    let mut done = 0;
    while done < bytes.len() {
        done += inode.write_at(&bytes[done..], offset + done as u64).expect("written");
    }
}

/// Reads as much of `into` as there is; how much.
pub(crate) fn read(inode: &Inode, into: &mut [u8]) -> usize {
    let mut done = 0;
    while done < into.len() {
        match inode.read_at(&mut into[done..], done as u64).expect("read") {
            0 => break,
            count => done += count,
        }
    }
    done
}
