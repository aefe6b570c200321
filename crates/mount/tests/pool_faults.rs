//! A server of a move fails in the middle of a drain, an addition, a rebalancing or a replacement: no byte is lost, what stays is named, and the
//! same command ends it when the server is well again.

mod common;

use std::collections::HashSet;
use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use common::TestPool;
use common::faulty::{Faults, Faulty};
use common::loop_disk::LoopDisk;
use fuser::Errno;
use rustix::fs::{Mode, OFlags};
use stripewise_layout::{Layout, ServerId, Stripe};
use stripewise_store::adding::add_server;
use stripewise_store::drain::{DrainOptions, DrainWatch, StayingFile, drain, replace};
use stripewise_store::fsck::{CheckFinding, CheckOptions, CheckWatch, check};
use stripewise_store::handle::Optimisations;
use stripewise_store::rebalance::{Filling, rebalance};
use stripewise_store::{Error, Inode, Pool, Store, Then};

const FILES: usize = 6;
const BYTES: usize = 60_000;
/// What moves files from `s0`, `s2` or both to `s1`, which was added, or is in the place of `s0`.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Work {
    Drain,
    Rebalance,
    Replace,
}

impl Work {
    /// Files that it leaves where they are, if it comes to an end.
    fn run(self, pool: &TestPool, watch: &mut dyn DrainWatch) -> stripewise_store::Result<Vec<StayingFile>> {
        match self {
            Work::Rebalance => {
                Ok(rebalance(&pool.file(), &Filling::default(), watch)?.expect("it is not stopped").staying)
            }
            Work::Drain => Ok(drain(&pool.file(), "hdd.0", &DrainOptions::default(), watch)?.staying),
            Work::Replace => Ok(replace(&pool.file(), "hdd.0", &pool.path("s1"), false, watch)?.1.staying),
        }
    }

    /// With `s1` as a server, or as a disk that becomes one.
    fn pool(self) -> TestPool {
        if self == Work::Replace { pool_of_two() } else { pool_of_three() }
    }
}

/// How a server fails.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    ReadOnly,
    Reads,
    Writes,
    Syncs,
    All,
}

impl Fault {
    fn strike(self, faults: &mut Faults) {
        match self {
            Fault::ReadOnly => {
                let refused = Some(Errno::EROFS);
                (faults.open, faults.write) = (refused, refused);
                (faults.create, faults.remove, faults.change) = (refused, refused, refused);
            }
            Fault::Reads => faults.read = Some(Errno::EIO),
            Fault::Writes => faults.write = Some(Errno::EIO),
            Fault::Syncs => faults.sync = Some(Errno::EIO),
            Fault::All => {
                let failed = Some(Errno::EIO);
                (faults.read, faults.write, faults.sync, faults.open) = (failed, failed, failed, failed);
                (faults.create, faults.remove, faults.change) = (failed, failed, failed);
            }
        }
    }

    fn keeps_reads(self) -> bool {
        !matches!(self, Fault::Reads | Fault::All)
    }
}

/// Does something when it is asked the `at`th time: twice a file, after it is copied and after it is read back.
struct Watch<F> {
    asked: usize,
    at: usize,
    strike: Option<F>,
    seen: HashSet<String>,
}

impl<F: FnOnce()> Watch<F> {
    fn new(at: usize, strike: F) -> Self {
        Self { asked: 0, at, strike: Some(strike), seen: HashSet::new() }
    }
}

impl<F: FnOnce()> DrainWatch for Watch<F> {
    fn progress(&mut self, path: &str, _: u64, _: u64) -> Then {
        self.asked += 1;
        self.seen.insert(path.to_owned());
        if self.asked >= self.at
            && let Some(strike) = self.strike.take()
        {
            strike();
        }
        Then::On
    }
}

fn bytes(seed: usize) -> Vec<u8> {
    (0..BYTES).map(|at| (at / 7 + at % 5 + seed * 31) as u8 | 1).collect()
}

fn name(number: usize) -> String {
    format!("f{number}")
}

fn inode(store: &Arc<Store>, name: &str) -> Arc<Inode> {
    store.existing(Path::new(name)).unwrap().expect("a placed file")
}

fn read(inode: &Inode) -> stripewise_store::Result<Vec<u8>> {
    let mut found = vec![0; BYTES];
    let mut done = 0;
    while done < BYTES {
        match inode.read_at(&mut found[done..], done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    found.truncate(done);
    Ok(found)
}

fn findings(pool: &TestPool, dry_run: bool) -> Vec<CheckFinding> {
    struct Keep(Mutex<Vec<CheckFinding>>);
    impl CheckWatch for Keep {
        fn found(&self, finding: &CheckFinding) {
            self.0.lock().unwrap().push(finding.clone());
        }
    }
    let found = Keep(Mutex::default());
    check(&Pool::load(&pool.file()).unwrap(), &CheckOptions { dry_run, ..CheckOptions::default() }, &found).unwrap();
    found.0.into_inner().unwrap()
}

/// A pool of `s0` and `s2` with six files over both, to which `s1` was added.
fn pool_of_three() -> TestPool {
    let pool = pool_of_two();
    assert_eq!(add_server(&pool.file(), "hdd", &pool.path("s1")).unwrap(), "hdd.2");
    pool
}

/// A pool of `s0` and `s2` with six files over both.
fn pool_of_two() -> TestPool {
    let pool = TestPool::with("4KiB", &["s0", "s2"]);
    let store = Store::of_file(&pool.file()).unwrap();
    for number in 0..FILES {
        let flags = OFlags::RDWR | OFlags::CREATE;
        let file = rustix::fs::openat(store.tree(), name(number), flags, Mode::from_raw_mode(0o600)).unwrap();
        drop(store.create(file.as_fd(), &Optimisations::default(), || Ok(name(number).into())).unwrap());
        let inode = store.inode(file.as_fd()).unwrap().expect("a placed file");
        inode.register_writer().unwrap();
        assert_eq!(inode.write_at(&bytes(number), 0).unwrap(), BYTES);
        inode.release_writer().unwrap();
    }
    pool
}

/// Puts a file system that can fail over each of the directories.
fn faulty(pool: &TestPool) -> [(&'static str, Faulty); 3] {
    // All have equal room, as file systems without sizes.
    ["s0", "s1", "s2"].map(|name| {
        let below = pool.path(&format!("below-{name}"));
        fs::rename(pool.path(name), &below).unwrap();
        fs::create_dir(pool.path(name)).unwrap();
        (name, Faulty::mount(&below, &pool.path(name)))
    })
}

/// All files are whole, as far as they can be read while `lost` servers cannot.
fn whole(pool: &TestPool, lost: &[ServerId], what: &str) {
    let store = Store::of_file(&pool.file()).unwrap();
    for number in 0..FILES {
        let inode = inode(&store, &name(number));
        if inode.layout().unwrap().servers().iter().any(|id| lost.contains(id)) {
            continue;
        }
        let found = read(&inode).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(found == bytes(number), "{what}: file {number}");
    }
}

/// What has left the server that failed can be written, though the old bytes could not be cleared away there.
fn moved_files_can_be_written(pool: &TestPool, failed: ServerId, what: &str) {
    let store = Store::of_file(&pool.file()).unwrap();
    for number in 0..FILES {
        let inode = inode(&store, &name(number));
        if inode.layout().unwrap().servers().contains(&failed) {
            continue;
        }
        inode.register_writer().unwrap_or_else(|error| panic!("{what}: {error}"));
        let written = inode.write_at(&bytes(number)[..5000], 0);
        assert_eq!(written.unwrap_or_else(|error| panic!("{what}: {error}")), 5000, "{what}");
        inode.release_writer().unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

/// `work` is struck by `strike` when it is asked the `at`th time; whether it then named what stays.
fn struck(pool: &TestPool, work: Work, at: usize, strike: impl FnOnce(), what: &str) {
    let mut watch = Watch::new(at, strike);
    let staying = work.run(pool, &mut watch).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(watch.strike.is_none(), "{what}: the fault came");
    for staying in &staying {
        assert!(!staying.is_busy && !staying.why.is_empty(), "{what}: {staying:?}");
        let is_known = (0..FILES).any(|number| staying.path == name(number));
        assert!(is_known && (work == Work::Rebalance || staying.bytes > 0), "{what}: {staying:?}");
    }
    if work != Work::Rebalance {
        // What is not named has left the server.
        let store = Store::of_file(&pool.file()).unwrap();
        let stays = |number: usize| staying.iter().any(|file| file.path == name(number));
        for number in (0..FILES).filter(|number| !stays(*number)) {
            let layout = inode(&store, &name(number)).layout().unwrap();
            assert!(!layout.servers().contains(&ServerId(0)), "{what}: file {number} is not named");
        }
    }
}

/// The number of a server in the pool.
fn number_of(server: &str) -> ServerId {
    ServerId(["s0", "s2", "s1"].iter().position(|other| *other == server).unwrap() as u16)
}

/// Source, target and a third server fail in each way, when a file is copied and when it is read back: each way at once, as a drain
/// waits for mounts to learn of it.
fn in_the_middle_of(work: Work) {
    std::thread::scope(|scope| {
        for fault in [Fault::ReadOnly, Fault::Reads, Fault::Writes, Fault::Syncs, Fault::All] {
            scope.spawn(move || {
                for (number, failing) in ["s0", "s1", "s2"].into_iter().enumerate() {
                    fails_in_the_middle_of(work, fault, failing, 5 + (fault as usize + number) % 2);
                }
            });
        }
    });
}

fn fails_in_the_middle_of(work: Work, fault: Fault, failing: &str, at: usize) {
    let what = format!("{work:?}, {fault:?} of {failing}, asked {at} times");
    let pool = work.pool();
    let servers = faulty(&pool);
    let (_, server) = servers.iter().find(|(name, _)| *name == failing).unwrap();
    struck(&pool, work, at, || server.set(|faults| fault.strike(faults)), &what);
    let lost = [number_of(failing)];
    whole(&pool, if fault.keeps_reads() { &[] } else { &lost }, &what);
    moved_files_can_be_written(&pool, number_of(failing), &what);
    server.well();
    goes_on(&pool, work, &what);
}

/// The server is well again: the same command ends what it began, and nothing is left.
fn goes_on(pool: &TestPool, work: Work, what: &str) {
    whole(pool, &[], what);
    let staying = work.run(pool, &mut Watch::new(0, || ())).unwrap();
    assert_eq!(staying, [], "{what}");
    whole(pool, &[], what);
    findings(pool, false);
    assert_eq!(findings(pool, true), [], "{what}");
}

#[test]
fn a_server_that_fails_in_the_middle_of_a_drain_costs_no_byte() {
    in_the_middle_of(Work::Drain);
}

#[test]
fn a_server_that_fails_in_the_middle_of_a_rebalancing_costs_no_byte() {
    in_the_middle_of(Work::Rebalance);
}

#[test]
fn a_server_that_fails_in_the_middle_of_a_replacement_costs_no_byte() {
    in_the_middle_of(Work::Replace);
}

/// A disk fails while it becomes a server, and again while it is filled: the pool is as before, then no byte is lost, and the same
/// commands end it when the disk is well again.
#[test]
fn a_disk_that_fails_in_the_middle_of_an_addition_costs_no_byte() {
    for fault in [Fault::ReadOnly, Fault::Reads, Fault::Writes, Fault::Syncs, Fault::All] {
        let what = format!("{fault:?} of an added disk");
        let pool = pool_of_two();
        let servers = faulty(&pool);
        let (_, disk) = &servers[1];
        let before = fs::read_to_string(pool.file()).unwrap();
        let add = || add_server(&pool.file(), "hdd", &pool.path("s1"));
        disk.set(|faults| fault.strike(faults));
        match add() {
            // Nothing of a new directory has to be read.
            Ok(name) => assert_eq!((name.as_str(), fault), ("hdd.2", Fault::Reads), "{what}"),
            Err(error) => {
                assert!(error.to_string().contains(pool.path("s1").to_str().unwrap()), "{what}: {error}");
                assert_eq!(fs::read_to_string(pool.file()).unwrap(), before, "{what}");
            }
        }
        whole(&pool, &[], &what);
        disk.well();
        assert_eq!(add().unwrap_or_else(|error| panic!("{what}: {error}")), "hdd.2");
        struck(&pool, Work::Rebalance, 2, || disk.set(|faults| fault.strike(faults)), &what);
        let lost = [ServerId(2)];
        whole(&pool, if fault.keeps_reads() { &[] } else { &lost }, &what);
        disk.well();
        assert_eq!(add().unwrap(), "hdd.2", "{what}: it is a server already");
        goes_on(&pool, Work::Rebalance, &what);
    }
}

/// The kernel's own file systems: ext4 turns read-only by itself when it finds an error, XFS gives EIO for all when its disk fails.
#[test]
fn a_disk_that_the_kernel_gives_up_in_the_middle_costs_no_byte() {
    for kind in ["ext4", "xfs"] {
        for (work, failing) in [(Work::Drain, "s0"), (Work::Replace, "s1"), (Work::Rebalance, "s2")] {
            let what = format!("{work:?}, {kind} of {failing}");
            let pool = work.pool();
            let Some(disk) = LoopDisk::under(&pool, failing, kind) else {
                eprintln!("not tested: no {kind} on a loop device here");
                break;
            };
            struck(&pool, work, 5, || disk.fail(), &what);
            let lost = [number_of(failing)];
            whole(&pool, if kind == "ext4" { &[] } else { &lost }, &what);
            moved_files_can_be_written(&pool, number_of(failing), &what);
            disk.mount_again();
            goes_on(&pool, work, &what);
            drop(disk);
        }
    }
}

/// Its marker cannot be read, which does not say that there is none.
#[test]
fn a_check_lists_what_needs_a_disk_that_gives_errors_and_is_still_mounted() {
    let pool = pool_of_three();
    let Some(disk) = LoopDisk::under(&pool, "s0", "xfs") else {
        eprintln!("not tested: no xfs on a loop device here");
        return;
    };
    disk.fail();
    let usage = Pool::load(&pool.file()).unwrap().usage();
    let error = usage[0].error.as_deref();
    assert!(error.is_some_and(|why| why.starts_with("not there: its marker cannot be read")), "{error:?}");
    for dry_run in [true, false] {
        let found = findings(&pool, dry_run);
        let kinds = |kind: &str| found.iter().filter(|of| of.path.is_none() && of.kind.name() == kind).count();
        assert_eq!((kinds("missing-server"), kinds("server-marker")), (1, 0), "{found:?}");
        let listed: HashSet<_> = found.iter().filter_map(|finding| finding.path.clone()).collect();
        assert!(listed.len() == FILES, "each file has a stripe there: {listed:?}");
    }
}

/// A disk that keeps something else than was written: the kernel still has what was written, and the move asks the disk.
#[test]
fn a_move_is_checked_against_the_disk_and_not_against_what_the_kernel_keeps() {
    let pool = pool_of_three();
    let Some(_disk) = LoopDisk::under(&pool, "s1", "ext4") else {
        eprintln!("not tested: no ext4 on a loop device here");
        return;
    };
    let store = Store::of_file(&pool.file()).unwrap();
    let inode = inode(&store, "f3");
    let stripe = |server| Stripe { server: ServerId(server), width_bytes: 4096 };
    let onto = Layout::new([(0, vec![stripe(2)])]).unwrap();
    let mut spoiled = 0;
    let mut spoil = |done: u64, total: u64| {
        if 2 * done == total && spoiled == 0 {
            let root = fs::File::open(pool.path("s1")).unwrap();
            rustix::fs::syncfs(&root).unwrap();
            spoiled = spoil_image(&pool.path("image"), &bytes(3)[8192..9216]);
        }
        true
    };
    let error = inode.move_to(&onto, "f3", &mut spoil).unwrap_err();
    assert!(spoiled > 0, "the bytes stand on the disk");
    let Error::Move { source, .. } = &error else { panic!("{error}") };
    assert!(matches!(**source, Error::Checksum { .. }), "{error}");
    whole(&pool, &[], "the file is as it was");
    inode.move_to(&onto, "f3", &mut |_, _| true).unwrap();
    whole(&pool, &[], "it has moved");
}

/// Changes a byte of each block of the image of a file system that begins with `bytes`; how many there were.
fn spoil_image(image: &Path, bytes: &[u8]) -> usize {
    let file = fs::File::options().read(true).write(true).open(image).unwrap();
    let length = file.metadata().unwrap().len();
    let (mut block, mut count) = (vec![0; 1 << 20], 0);
    for at in (0..length).step_by(block.len()) {
        let read = file.read_at(&mut block, at).unwrap();
        for from in (0..read.saturating_sub(bytes.len())).step_by(1024) {
            if block[from..from + bytes.len()] == *bytes {
                file.write_all_at(&[!bytes[7]], at + from as u64 + 7).unwrap();
                count += 1;
            }
        }
    }
    count
}
