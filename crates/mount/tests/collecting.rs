//! Datafiles of removed files that stayed behind: a server refused the removal, or the mount was killed. A mounted pool
//! collects them by itself, and nothing else.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::faulty::{Faults, Faulty};
use common::{BIN, TestPool, eventually_within};
use fuser::Errno;
use stripewise_store::Pool;
use stripewise_store::fsck::{self, CheckFinding, DamageKind};
use stripewise_store::handle::{ATTRIBUTE, Handle};

const WIDTH: usize = 4096;
/// For what a mount does of its own accord, every few seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// A mount in the foreground, which a test can kill.
struct Served {
    child: Child,
    dir: PathBuf,
    said: PathBuf,
}

impl Served {
    fn new(pool: &TestPool, name: &str) -> Served {
        Served::with(pool, name, "noatime")
    }

    fn with(pool: &TestPool, name: &str, options: &str) -> Served {
        let (dir, said) = (pool.path(name), pool.path(&format!("{name}.log")));
        fs::create_dir_all(&dir).unwrap();
        let below = fs::metadata(&dir).unwrap().dev();
        let log = File::options().create(true).append(true).open(&said).unwrap();
        let mut command = Command::new(BIN);
        command.arg("--foreground").arg(pool.file()).arg(&dir).args(["-o", options]).stdin(Stdio::null()).stderr(log);
        let mut served = Served { child: command.spawn().unwrap(), dir, said };
        eventually_within(PATIENCE, "the mount", || {
            assert!(served.child.try_wait().unwrap().is_none(), "{}", served.log());
            fs::metadata(&served.dir).is_ok_and(|found| found.dev() != below)
        });
        served
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }

    /// `kill -9`; `before_it_ends` lets go what a thread of it waits for.
    fn kill(mut self, before_it_ends: impl FnOnce()) {
        self.child.kill().unwrap();
        before_it_ends();
        self.child.wait().unwrap();
    }

    /// Unmounts, and waits until the mount has done what it had to do.
    fn unmount(mut self) {
        let done = Command::new(BIN).args(["--lazy", "--unmount"]).arg(&self.dir).status().unwrap();
        assert!(done.success());
        assert!(self.child.wait().unwrap().success(), "{}", self.log());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = Command::new(BIN).args(["--lazy", "--unmount"]).arg(&self.dir).stderr(Stdio::null()).status();
    }
}

/// A pool of which one server misbehaves when it is told to.
struct Faulted {
    // In the order in which they have to go.
    server: Option<Faulty>,
    pool: TestPool,
    faulty: &'static str,
}

impl Faulted {
    fn new(faulty: &'static str) -> Faulted {
        let pool = TestPool::new();
        fs::rename(pool.path(faulty), pool.path("below")).unwrap();
        fs::create_dir(pool.path(faulty)).unwrap();
        let mut pool = Faulted { server: None, pool, faulty };
        pool.return_to_life();
        pool
    }

    fn set(&self, change: impl FnOnce(&mut Faults)) {
        self.server.as_ref().unwrap().set(change);
    }

    fn well(&self) {
        self.server.as_ref().unwrap().well();
    }

    fn die(&mut self) {
        self.server.take().unwrap().die();
    }

    fn return_to_life(&mut self) {
        self.server = Some(Faulty::mount(&self.pool.path("below"), &self.pool.path(self.faulty)));
    }

    fn held(&self) -> usize {
        self.server.as_ref().unwrap().held()
    }

    fn datafiles(&self) -> Vec<PathBuf> {
        datafiles(&self.pool, &["s0", "s1", "s2"].map(|name| if name == self.faulty { "below" } else { name }))
    }
}

fn datafiles(pool: &TestPool, servers: &[&str]) -> Vec<PathBuf> {
    let servers = servers.iter().map(|name| pool.path(name));
    let dirs = servers.flat_map(|server| fs::read_dir(server).unwrap().flatten().map(|entry| entry.path()));
    // What goes meanwhile is gone.
    let inside = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    dirs.filter(|path| path.is_dir()).flat_map(inside).collect()
}

fn journals(pool: &TestPool) -> Vec<PathBuf> {
    fs::read_dir(pool.path("ns/removals")).unwrap().flatten().map(|entry| entry.path()).collect()
}

/// Bytes that no other file has.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn handle(pool: &TestPool, name: &str) -> Option<Handle> {
    let mut found = [0; 4096];
    let length = rustix::fs::lgetxattr(pool.path("ns/tree").join(name), ATTRIBUTE, &mut found[..]).ok()?;
    Handle::decode(&found[..length]).ok()
}

fn check(pool: &TestPool) -> Vec<CheckFinding> {
    let told: Mutex<Vec<CheckFinding>> = Mutex::default();
    let options = fsck::CheckOptions { dry_run: true, ..fsck::CheckOptions::default() };
    fsck::check(&Pool::load(&pool.file()).unwrap(), &options, &told).unwrap();
    told.into_inner().unwrap()
}

fn assert_clean(pool: &TestPool) {
    let found = check(pool);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn what_a_server_refused_goes_when_it_can_again_while_the_mount_runs() {
    for faulty in ["s0", "s1", "s2"] {
        for fault in [Some(Errno::EROFS), Some(Errno::EIO), None] {
            let mut pool = Faulted::new(faulty);
            let mount = Served::new(&pool.pool, "mnt");
            for name in ["file", "replaced", "kept"] {
                fs::write(mount.path(name), bytes(1, 9 * WIDTH)).unwrap();
            }
            fs::write(mount.path("empty"), b"").unwrap();
            // The mount learns of a close a moment after the program. A size that it cannot settle then, for want of a
            // server, is left to the next open of the file.
            eventually_within(PATIENCE, "the closes", || {
                fs::read_dir(pool.pool.path("ns/locks")).unwrap().count() == 0
            });
            match fault {
                Some(errno) => pool.set(|faults| faults.remove = Some(errno)),
                None => pool.die(),
            }
            fs::remove_file(mount.path("file")).unwrap();
            fs::rename(mount.path("empty"), mount.path("replaced")).unwrap();
            let below = pool.pool.path("below");
            eventually_within(PATIENCE, "what the others can remove is gone", || {
                let left = pool.datafiles();
                left.len() == 5 && left.iter().filter(|path| path.starts_with(&below)).count() == 3
            });
            match fault {
                Some(_) => pool.well(),
                None => pool.return_to_life(),
            }
            eventually_within(PATIENCE, "the rest is gone", || pool.datafiles().len() == 3);
            assert!(fs::read(mount.path("kept")).unwrap() == bytes(1, 9 * WIDTH));
            mount.unmount();
            assert_eq!(journals(&pool.pool), Vec::<PathBuf>::new());
            assert_clean(&pool.pool);
        }
    }
}

/// A mount that ends while a server refuses leaves it to the next.
#[test]
fn what_a_server_refused_to_the_end_is_the_next_mounts() {
    let pool = Faulted::new("s1");
    let mount = Served::new(&pool.pool, "mnt");
    fs::write(mount.path("file"), bytes(1, 9 * WIDTH)).unwrap();
    pool.set(|faults| faults.remove = Some(Errno::EROFS));
    fs::remove_file(mount.path("file")).unwrap();
    mount.unmount();
    assert_eq!((pool.datafiles().len(), journals(&pool.pool).len()), (1, 1));
    pool.well();
    let mount = Served::new(&pool.pool, "mnt");
    eventually_within(PATIENCE, "the rest is gone", || pool.datafiles().is_empty());
    mount.unmount();
    assert_eq!(journals(&pool.pool), Vec::<PathBuf>::new());
}

/// Removes files of which no server has removed anything yet when the mount is killed: one server holds the first removal.
#[test]
fn removals_that_waited_when_the_mount_was_killed_are_finished_by_the_next() {
    const COUNT: usize = 40;
    let pool = Faulted::new("s0");
    let mount = Served::new(&pool.pool, "mnt");
    for number in 0..COUNT {
        fs::write(mount.path(&format!("gone{number}")), bytes(1, 9 * WIDTH)).unwrap();
        fs::write(mount.path(&format!("kept{number}")), bytes(number as u64, 7 * WIDTH)).unwrap();
    }
    pool.set(|faults| faults.holds_removals = true);
    for number in 0..COUNT {
        fs::remove_file(mount.path(&format!("gone{number}"))).unwrap();
    }
    eventually_within(PATIENCE, "a removal waits", || pool.held() == 1);
    mount.kill(|| pool.well());
    assert!(pool.datafiles().len() > 3 * (2 * COUNT - 2), "most of them waited");

    let mount = Served::new(&pool.pool, "mnt");
    eventually_within(PATIENCE, "all are gone", || pool.datafiles().len() == 3 * COUNT);
    for number in 0..COUNT {
        assert!(fs::read(mount.path(&format!("kept{number}"))).unwrap() == bytes(number as u64, 7 * WIDTH));
    }
    mount.unmount();
    assert_eq!(journals(&pool.pool), Vec::<PathBuf>::new());
    assert_clean(&pool.pool);
}

/// More than the journal has room for at first.
#[test]
fn thousands_of_removals_that_a_server_refuses_are_finished() {
    const COUNT: usize = 1200;
    let pool = Faulted::new("s0");
    let mount = Served::new(&pool.pool, "mnt");
    for number in 0..COUNT {
        fs::write(mount.path(&format!("{number}")), b"short").unwrap();
    }
    pool.set(|faults| faults.remove = Some(Errno::EROFS));
    for number in 0..COUNT {
        fs::remove_file(mount.path(&format!("{number}"))).unwrap();
    }
    // The thread has been through all of them: it takes those that wait in their order.
    fs::write(mount.path("last"), bytes(1, 3 * WIDTH)).unwrap();
    fs::remove_file(mount.path("last")).unwrap();
    eventually_within(PATIENCE, "the last was tried", || pool.datafiles().len() == COUNT + 1);
    mount.kill(|| ());
    let mount = Served::new(&pool.pool, "mnt");
    eventually_within(PATIENCE, "the journal was taken over", || journals(&pool.pool).len() == 1);
    assert_eq!(pool.datafiles().len(), COUNT + 1);
    pool.well();
    eventually_within(PATIENCE, "all are gone", || pool.datafiles().is_empty());
    mount.unmount();
    assert_eq!(journals(&pool.pool), Vec::<PathBuf>::new());
}

#[test]
fn a_file_that_was_open_without_a_name_when_the_mount_was_killed_is_collected_by_the_next() {
    let pool = TestPool::new();
    let mount = Served::new(&pool, "mnt");
    fs::write(mount.path("kept"), bytes(1, 9 * WIDTH)).unwrap();
    let file = File::options().read(true).write(true).create_new(true).open(mount.path("file")).unwrap();
    file.write_all_at(b"on one server", 0).unwrap();
    fs::remove_file(mount.path("file")).unwrap();
    // It gets datafiles on the other servers when it is noted already.
    file.write_all_at(&bytes(1, 9 * WIDTH), 0).unwrap();
    assert_eq!(pool.datafiles().len(), 6);
    mount.kill(|| ());
    drop(file);
    let mount = Served::new(&pool, "mnt");
    eventually_within(PATIENCE, "its datafiles are gone", || pool.datafiles().len() == 3);
    assert!(fs::read(mount.path("kept")).unwrap() == bytes(1, 9 * WIDTH));
    mount.unmount();
    assert_clean(&pool);
}

/// The datafiles of a removed file stay as long as a program of another mount has it open, which is not the one that was
/// killed; also when a third mount has taken over what that one had noted.
#[test]
fn a_removed_file_that_another_mount_reads_keeps_its_bytes() {
    let pool = TestPool::new();
    let (killed, reading) = (Served::new(&pool, "mnt"), Served::new(&pool, "reading"));
    let content = bytes(1, 9 * WIDTH);
    fs::write(killed.path("file"), &content).unwrap();
    let here = File::open(killed.path("file")).unwrap();
    let mut there = File::open(reading.path("file")).unwrap();
    fs::remove_file(killed.path("file")).unwrap();
    killed.kill(|| ());
    drop(here);
    let third = Served::new(&pool, "third");
    eventually_within(PATIENCE, "the journal was taken over", || journals(&pool).len() == 2);
    // Its thread looks at what it has taken over before it removes this.
    fs::write(third.path("other"), &content).unwrap();
    fs::remove_file(third.path("other")).unwrap();
    eventually_within(PATIENCE, "the other is gone", || pool.datafiles().len() == 3);
    let mut found = Vec::new();
    there.read_to_end(&mut found).unwrap();
    assert!(found == content);
    drop(there);
    eventually_within(PATIENCE, "its datafiles are gone", || pool.datafiles().is_empty());
    reading.unmount();
    third.unmount();
    // The third may have learnt too late that it was the only one.
    eventually_within(PATIENCE, "no journal is left", || {
        let mount = Served::new(&pool, "mnt");
        eventually_within(PATIENCE, "the journal was taken over", || journals(&pool).len() == 1);
        mount.unmount();
        journals(&pool).is_empty()
    });
}

#[test]
fn another_mount_that_runs_finishes_what_a_killed_one_had_begun() {
    let pool = Faulted::new("s1");
    let (killed, running) = (Served::new(&pool.pool, "mnt"), Served::new(&pool.pool, "running"));
    fs::write(killed.path("file"), bytes(1, 9 * WIDTH)).unwrap();
    pool.set(|faults| faults.remove = Some(Errno::EIO));
    fs::remove_file(killed.path("file")).unwrap();
    eventually_within(PATIENCE, "what the others can remove is gone", || pool.datafiles().len() == 1);
    killed.kill(|| pool.well());
    eventually_within(PATIENCE, "the rest is gone", || pool.datafiles().is_empty());
    running.unmount();
}

/// What still has a name, or has got it by an exchange, is no removal.
#[test]
fn links_and_exchanged_names_keep_their_bytes() {
    let pool = TestPool::new();
    let mount = Served::new(&pool, "mnt");
    let contents: BTreeMap<_, _> = ["a", "b", "c"].iter().zip(1..).map(|(n, s)| (*n, bytes(s, 9 * WIDTH))).collect();
    for (name, content) in &contents {
        fs::write(mount.path(name), content).unwrap();
    }
    fs::hard_link(mount.path("a"), mount.path("a2")).unwrap();
    fs::remove_file(mount.path("a")).unwrap();
    let exchange = rustix::fs::RenameFlags::EXCHANGE;
    rustix::fs::renameat_with(rustix::fs::CWD, mount.path("b"), rustix::fs::CWD, mount.path("c"), exchange).unwrap();
    fs::hard_link(mount.path("a2"), mount.path("a3")).unwrap();
    fs::rename(mount.path("b"), mount.path("a3")).unwrap();
    mount.kill(|| ());
    let mount = Served::new(&pool, "mnt");
    eventually_within(PATIENCE, "the journal was taken over", || journals(&pool).len() == 1);
    fs::write(mount.path("other"), b"other").unwrap();
    fs::remove_file(mount.path("other")).unwrap();
    eventually_within(PATIENCE, "the other is gone", || pool.datafiles().len() == 9);
    for (name, was) in [("a2", "a"), ("a3", "c"), ("c", "b")] {
        assert!(fs::read(mount.path(name)).unwrap() == contents[was], "{name}");
    }
    mount.unmount();
    assert_clean(&pool);
}

/// The name of a datafile has the random handle of its file, and not the inode's number, which the next file may get.
#[test]
fn a_file_that_gets_the_inode_number_of_a_removed_one_keeps_its_bytes() {
    let pool = Faulted::new("s1");
    let mount = Served::new(&pool.pool, "mnt");
    fs::write(mount.path("file"), bytes(1, 9 * WIDTH)).unwrap();
    let number = fs::metadata(mount.path("file")).unwrap().ino();
    pool.set(|faults| faults.remove = Some(Errno::EROFS));
    fs::remove_file(mount.path("file")).unwrap();
    mount.unmount();
    let mount = Served::new(&pool.pool, "mnt");
    // Most file systems give a free number to the next file.
    let mut names = Vec::new();
    while names.len() < 50 {
        let name = format!("new{}", names.len());
        fs::write(mount.path(&name), bytes(names.len() as u64, 9 * WIDTH)).unwrap();
        names.push(name);
        if fs::metadata(mount.path(&names[names.len() - 1])).unwrap().ino() == number {
            break;
        }
    }
    pool.well();
    eventually_within(PATIENCE, "the rest is gone", || pool.datafiles().len() == 3 * names.len());
    for (seed, name) in names.iter().enumerate() {
        assert!(fs::read(mount.path(name)).unwrap() == bytes(seed as u64, 9 * WIDTH));
    }
    mount.unmount();
    assert_clean(&pool.pool);
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum: u32, _| (sum >> 1) ^ (0x82f6_3b78 & (sum & 1).wrapping_neg()))
    })
}

/// Writes a journal in the form that docs/format.md gives, with records of these files, their users and the generations of
/// their inodes; `boot` is that of its maker.
fn write_journal(path: &Path, pool: &TestPool, boot: &str, state: u32, files: &[(Handle, u32, u32)]) {
    let journal = File::options().create_new(true).read(true).write(true).open(path).unwrap();
    journal.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    let marker = fs::read_to_string(pool.path("ns/.stripewise")).unwrap();
    let uuid = marker.split("uuid = \"").nth(1).unwrap().split('"').next().unwrap();
    let mut header = b"SWREMOVE\0\0\0\x01".to_vec();
    header.extend(journal.metadata().unwrap().ino().to_be_bytes());
    header.extend(uuid.as_bytes());
    header.extend(boot.as_bytes());
    header.extend(crc32c(&header).to_be_bytes());
    journal.write_all_at(&header, 0).unwrap();
    for (index, (handle, uid, generation)) in files.iter().enumerate() {
        let words = |list: &[u32]| list.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
        let mut record = [handle.logical.to_be_bytes(), handle.real.to_be_bytes()].concat();
        record.extend(words(&[*generation, handle.version, *uid, *uid, 0o600, 1, handle.version, 3]));
        record.resize(120, 0);
        let record = [words(&[crc32c(&record), state]), record].concat();
        journal.write_all_at(&record, 4096 + 128 * index as u64).unwrap();
    }
    journal.set_len(64 << 10).unwrap();
}

fn this_boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned()
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

const ANOTHER_BOOT: &str = "00000000-0000-0000-0000-000000000000";

/// Files whose names went away behind the mount's back, so that their datafiles are orphans: by their names.
fn orphans(pool: &TestPool, names: &[&str]) -> Vec<Handle> {
    let mount = Served::new(pool, "mnt");
    names.iter().for_each(|name| fs::write(mount.path(name), bytes(1, 9 * WIDTH)).unwrap());
    mount.unmount();
    let handles = names.iter().map(|name| handle(pool, name).unwrap()).collect();
    names.iter().for_each(|name| fs::remove_file(pool.path("ns/tree").join(name)).unwrap());
    handles
}

fn is_of(datafile: &Path, handle: &Handle) -> bool {
    datafile.file_name().unwrap().to_string_lossy().starts_with(&format!("{:016x}.", handle.logical))
}

fn has_datafiles(pool: &TestPool, handle: &Handle) -> bool {
    pool.datafiles().iter().any(|path| is_of(path, handle))
}

/// What a power cut may have undone counts only if it is certain that the name is gone.
#[test]
fn after_a_power_cut_only_what_is_certain_is_collected() {
    let pool = TestPool::new();
    let found = orphans(&pool, &["seen", "certain", "left", "same boot"]);
    let [seen, certain, left, same_boot] = &found[..] else { unreachable!() };
    let path = |name: &str| pool.path("ns/removals").join(name);
    write_journal(&path("a"), &pool, ANOTHER_BOOT, 1, &[(seen.clone(), own_user(), 0)]);
    write_journal(&path("b"), &pool, ANOTHER_BOOT, 2, &[(certain.clone(), own_user(), 0)]);
    write_journal(&path("c"), &pool, ANOTHER_BOOT, 3, &[(left.clone(), own_user(), 0)]);
    write_journal(&path("d"), &pool, &this_boot(), 1, &[(same_boot.clone(), own_user(), 0)]);
    let mount = Served::new(&pool, "mnt");
    eventually_within(PATIENCE, "three are gone", || pool.datafiles().len() == 3 && journals(&pool).len() == 1);
    assert!(has_datafiles(&pool, seen));
    eventually_within(PATIENCE, "it says so", || {
        mount.log().contains("1 removals that were interrupted cannot be finished")
    });
    mount.unmount();
    assert!(check(&pool).iter().all(|finding| finding.kind == DamageKind::OrphanDatafile));
}

/// A journal in which nothing is sure: of another pool, a copy, and from before a sync that failed.
#[test]
fn a_journal_that_was_copied_or_is_another_pools_counts_for_nothing() {
    let pool = TestPool::new();
    let found = orphans(&pool, &["copied", "foreign", "doubtful", "control"]);
    let path = |name: &str| pool.path("ns/removals").join(name);
    write_journal(&path("original"), &pool, &this_boot(), 2, &[(found[0].clone(), own_user(), 0)]);
    fs::copy(path("original"), path("copy")).unwrap();
    fs::remove_file(path("original")).unwrap();
    let other = TestPool::new();
    write_journal(&path("foreign"), &other, &this_boot(), 2, &[(found[1].clone(), own_user(), 0)]);
    write_journal(&path("doubtful"), &pool, &this_boot(), 1, &[(found[2].clone(), own_user(), 0)]);
    File::options().write(true).open(path("doubtful")).unwrap().write_all_at(&[1], 4095).unwrap();
    write_journal(&path("control"), &pool, &this_boot(), 2, &[(found[3].clone(), own_user(), 0)]);
    let mount = Served::new(&pool, "mnt");
    eventually_within(PATIENCE, "that of the control is gone", || {
        pool.datafiles().len() == 9 && journals(&pool).len() == 1
    });
    assert!(found[..3].iter().all(|handle| has_datafiles(&pool, handle)));
    mount.unmount();
}

#[test]
fn strange_things_among_the_journals_are_named_and_left_alone() {
    let pool = TestPool::new();
    let control = orphans(&pool, &["control"]);
    let path = |name: &str| pool.path("ns/removals").join(name);
    fs::write(path("random"), bytes(7, 100_000)).unwrap();
    fs::write(path("short"), b"SWREMOVE").unwrap();
    File::create(path("long")).unwrap().set_len(1 << 40).unwrap();
    fs::create_dir(path("directory")).unwrap();
    symlink("random", path("link")).unwrap();
    let (here, fifo) = (rustix::fs::CWD, rustix::fs::FileType::Fifo);
    rustix::fs::mknodat(here, path("fifo"), fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    write_journal(&path("writable"), &pool, &this_boot(), 2, &[]);
    fs::set_permissions(path("writable"), fs::Permissions::from_mode(0o666)).unwrap();
    write_journal(&path("linked"), &pool, &this_boot(), 2, &[]);
    fs::hard_link(path("linked"), path("second name")).unwrap();
    // Made by a mount that was killed while it made it.
    fs::write(path("unfinished"), b"").unwrap();
    File::create(path("zeros")).unwrap().set_len(64 << 10).unwrap();
    for name in ["unfinished", "zeros"] {
        fs::set_permissions(path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    // A record of random bytes beside a good one.
    write_journal(&path("damaged"), &pool, &this_boot(), 2, &[(control[0].clone(), own_user(), 0)]);
    File::options().write(true).open(path("damaged")).unwrap().write_all_at(&bytes(8, 128), 8192).unwrap();
    let strange = ["random", "short", "long", "directory", "link", "fifo", "writable", "linked", "second name"];

    let mount = Served::new(&pool, "mnt");
    eventually_within(PATIENCE, "the good record was collected", || pool.datafiles().is_empty());
    eventually_within(PATIENCE, "the rest is left", || journals(&pool).len() == strange.len() + 1);
    for name in strange {
        let line = format!("{} is no journal of removals", path(name).display());
        eventually_within(PATIENCE, &line, || mount.log().matches(&line).count() == 1);
        assert!(path(name).symlink_metadata().is_ok(), "{name}");
    }
    eventually_within(PATIENCE, "the damage is told", || {
        mount.log().contains("1 removals that were interrupted cannot be finished")
    });
    mount.unmount();
    assert_clean(&pool);
}

/// Whatever a user of a shared pool writes into the directory of journals, root's mount removes nothing by it.
#[test]
fn a_journal_of_another_user_counts_for_nothing() {
    const MALLORY: u32 = 62301;
    let pool = TestPool::shared();
    let mount = Served::with(&pool, "mnt", "allow_other");
    for name in ["victim", "mistaken", "orphan"] {
        fs::write(mount.path(name), bytes(1, 9 * WIDTH)).unwrap();
    }
    mount.unmount();
    let fact = |name: &str, uid: u32| {
        let handle = handle(&pool, name).unwrap();
        let own = pool.datafiles().into_iter().find(|path| is_of(path, &handle)).unwrap();
        let mut bound = [0; 12];
        assert_eq!(rustix::fs::getxattr(own, "user.stripewise.inode", &mut bound[..]), Ok(12));
        (handle, uid, u32::from_be_bytes(*bound.last_chunk().unwrap()))
    };
    let path = |name: &str| pool.path("ns/removals").join(name);
    let directory = fs::metadata(pool.path("ns/removals")).unwrap();
    assert_eq!((directory.uid(), directory.permissions().mode() & 0o7777), (0, 0o1777));
    write_journal(&path("planted"), &pool, &this_boot(), 3, &[fact("victim", 0)]);
    std::os::unix::fs::chown(path("planted"), Some(MALLORY), Some(MALLORY)).unwrap();
    symlink(path("planted"), path("link")).unwrap();
    std::os::unix::fs::lchown(path("link"), Some(MALLORY), Some(MALLORY)).unwrap();
    // Root's own, of a file of another owner, and of another inode with its number.
    let (known, uid, generation) = fact("mistaken", 0);
    let wrong = [(known.clone(), MALLORY, generation), (known, uid, generation ^ 1)];
    write_journal(&path("mistaken"), &pool, &this_boot(), 3, &wrong);
    // In the same form it is obeyed where it is right.
    write_journal(&path("right"), &pool, &this_boot(), 3, &[fact("orphan", 0)]);
    fs::remove_file(pool.path("ns/tree/orphan")).unwrap();

    let mount = Served::with(&pool, "mnt", "allow_other");
    eventually_within(PATIENCE, "root's own are taken over", || !path("mistaken").exists() && !path("right").exists());
    eventually_within(PATIENCE, "the orphan is gone", || pool.datafiles().len() == 6);
    fs::write(mount.path("other"), b"other").unwrap();
    fs::remove_file(mount.path("other")).unwrap();
    eventually_within(PATIENCE, "the other is gone", || pool.datafiles().len() == 6);
    for name in ["victim", "mistaken"] {
        assert!(fs::read(mount.path(name)).unwrap() == bytes(1, 9 * WIDTH), "{name}");
    }
    assert!(path("planted").exists() && path("link").symlink_metadata().is_ok());
    mount.unmount();
}

/// A mount that is read-only removes nothing.
#[test]
fn a_read_only_mount_collects_nothing() {
    let pool = TestPool::new();
    let found = orphans(&pool, &["file"]);
    write_journal(&pool.path("ns/removals/a"), &pool, &this_boot(), 2, &[(found[0].clone(), own_user(), 0)]);
    let mount = Served::with(&pool, "mnt", "ro");
    assert_eq!(fs::read_dir(&mount.dir).unwrap().count(), 0);
    mount.unmount();
    assert_eq!((pool.datafiles().len(), journals(&pool).len()), (3, 1));
}

/// A check of the pool takes what a journal names for what it is without it, and the next mount has nothing to do.
#[test]
fn a_check_that_comes_first_keeps_orphans_as_ever() {
    let pool = TestPool::new();
    let found = orphans(&pool, &["file"]);
    write_journal(&pool.path("ns/removals/a"), &pool, &this_boot(), 2, &[(found[0].clone(), own_user(), 0)]);
    let told: Mutex<Vec<CheckFinding>> = Mutex::default();
    fsck::check(&Pool::load(&pool.file()).unwrap(), &fsck::CheckOptions::default(), &told).unwrap();
    let told = told.into_inner().unwrap();
    assert!(told.len() == 3 && told.iter().all(|finding| finding.kind == DamageKind::OrphanDatafile), "{told:?}");
    let mount = Served::new(&pool, "mnt");
    eventually_within(PATIENCE, "the journal was taken over", || journals(&pool).len() == 1);
    mount.unmount();
    assert_eq!(journals(&pool), Vec::<PathBuf>::new());
    let kept = ["s0", "s1", "s2"].map(|server| fs::read_dir(pool.path(server).join("lost+found")).unwrap().count());
    assert_eq!(kept, [1; 3]);
    assert_clean(&pool);
}

/// What a thread of [`killed_at_random_times`] knows of the names that are its own.
#[derive(Default)]
struct Known {
    /// Name and seed of the bytes.
    names: BTreeMap<String, u64>,
    /// Names that a call was changing when the mount was killed, and seeds of which they may have the bytes; `None`: they may
    /// be gone.
    doubtful: BTreeMap<String, BTreeSet<Option<u64>>>,
    /// Handles of files that lost a name in such a call.
    in_flight: BTreeSet<u64>,
}

/// Makes, links, renames and removes files in a directory of its own until the mount is killed.
fn work(pool: &TestPool, mount: &Path, own: &str, seed: u64, killed: &AtomicBool) -> Known {
    let mut known = Known::default();
    let mut chance = seed;
    let mut next = |below: u64| {
        chance = chance.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (chance >> 33) % below
    };
    let path = |name: &str| mount.join(own).join(name);
    for number in 0.. {
        let (one, two) = (format!("n{}", next(6)), format!("n{}", next(6)));
        let (was_one, was_two) = (known.names.get(&one).copied(), known.names.get(&two).copied());
        let logical = |name: &str| handle(pool, &format!("{own}/{name}")).map(|handle| handle.logical);
        let victims: Vec<u64> = [&one, &two].into_iter().filter_map(|name| logical(name)).collect();
        let made = seed << 20 | number;
        // The name, its content after the call and which names it changes.
        let (done, after): (std::io::Result<()>, Vec<(&String, Option<u64>)>) = match (next(5), was_one) {
            (0 | 1, None) => {
                let done = File::create_new(path(&one)).and_then(|file| {
                    known.doubtful.insert(one.clone(), [None, Some(made)].into());
                    file.write_all_at(&bytes(made, 5 * WIDTH), 0)
                });
                (done, vec![(&one, Some(made))])
            }
            (0 | 1, Some(_)) if one != two && was_two.is_none() => {
                (fs::hard_link(path(&one), path(&two)), vec![(&two, was_one)])
            }
            (2, Some(_)) if one != two && was_one != was_two => {
                (fs::rename(path(&one), path(&two)), vec![(&one, None), (&two, was_one)])
            }
            (3, Some(_)) => (fs::remove_file(path(&one)), vec![(&one, None)]),
            (4, Some(_)) => {
                // Removed while it is open.
                let open = File::open(path(&one));
                let done = open.and_then(|open| fs::remove_file(path(&one)).map(|()| drop(open)));
                (done, vec![(&one, None)])
            }
            _ => continue,
        };
        match done {
            Ok(()) => {
                known.doubtful.clear();
                for (name, content) in after {
                    match content {
                        Some(content) => known.names.insert(name.clone(), content),
                        None => known.names.remove(name),
                    };
                }
            }
            Err(error) => {
                assert!(killed.load(Ordering::Acquire), "{error}: {one} {two}");
                for (name, content) in after {
                    let before = known.names.remove(name);
                    known.doubtful.entry(name.clone()).or_default().extend([before, content]);
                }
                known.in_flight.extend(victims);
                break;
            }
        }
    }
    known
}

/// `kill -9` while threads make, link, rename and remove: after the next mount there is no datafile without a file, but of
/// those that were losing their name in a call that did not return; and each file that has a name has its bytes.
#[test]
fn killed_at_random_times() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 6;
    for round in 0..ROUNDS {
        let pool = Arc::new(TestPool::new());
        let mount = Served::new(&pool, "mnt");
        let killed = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (pool, dir, killed) = (pool.clone(), mount.dir.clone(), killed.clone());
                let own = format!("d{thread}");
                fs::create_dir(mount.path(&own)).unwrap();
                std::thread::spawn(move || work(&pool, &dir, &own, 1 + round * THREADS + thread, &killed))
            })
            .collect();
        // As long as some work takes: no duration is asserted.
        std::thread::sleep(Duration::from_millis(150 + 130 * round));
        killed.store(true, Ordering::Release);
        mount.kill(|| ());
        let known: Vec<Known> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();

        let mount = Served::new(&pool, "mnt");
        eventually_within(PATIENCE, "the journal was taken over", || journals(&pool).len() == 1);
        for (thread, known) in known.iter().enumerate() {
            let own = format!("d{thread}");
            let found: BTreeSet<String> = fs::read_dir(mount.path(&own))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            for (name, seed) in &known.names {
                assert!(found.contains(name), "{own}/{name} is lost");
                assert!(fs::read(mount.path(&own).join(name)).unwrap() == bytes(*seed, 5 * WIDTH), "{own}/{name}");
            }
            for name in found.iter().filter(|name| !known.names.contains_key(*name)) {
                let may = known.doubtful.get(name).unwrap_or_else(|| panic!("{own}/{name} is back"));
                let content = fs::read(mount.path(&own).join(name)).unwrap();
                // One that was being written has what was written, and zeros.
                let fits = |seed: &Option<u64>| {
                    let all = seed.map(|seed| bytes(seed, 5 * WIDTH)).unwrap_or_default();
                    content.len() <= all.len()
                        && content.iter().zip(&all).all(|(found, put)| *found == *put || *found == 0)
                };
                assert!(may.iter().any(fits), "{own}/{name}");
            }
        }
        // What waits for its removal is removed before the mount ends.
        mount.unmount();
        assert_eq!(journals(&pool), Vec::<PathBuf>::new());
        let in_flight: BTreeSet<u64> = known.iter().flat_map(|known| known.in_flight.iter().copied()).collect();
        for finding in check(&pool).iter().filter(|finding| finding.kind == DamageKind::OrphanDatafile) {
            let object = finding.object.as_ref().unwrap();
            let logical = u64::from_str_radix(&object[3..19], 16).unwrap();
            assert!(in_flight.contains(&logical), "{finding:?}");
        }
    }
}
