//! Servers that fail, fill up, stall, die and come back under a running mount, as programs see it.

mod common;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use common::faulty::{Faults, Faulty};
use common::loop_disk::LoopDisk;
use common::{Mounted, TestPool, eventually};
use fuser::Errno;

const WIDTH: usize = 4096;

/// A pool of which a server, s1 mostly, misbehaves when it is told to, and its mount.
struct Pool {
    // In the order in which they have to go.
    mounted: Mounted,
    server: Option<Faulty>,
    pool: TestPool,
    faulty: &'static str,
}

impl Pool {
    fn new() -> Pool {
        Pool::with_faulty("s1")
    }

    fn with_faulty(faulty: &'static str) -> Pool {
        let pool = TestPool::new();
        fs::rename(pool.path(faulty), pool.path("below")).unwrap();
        fs::create_dir(pool.path(faulty)).unwrap();
        let server = Faulty::mount(&pool.path("below"), &pool.path(faulty));
        let mounted = Mounted::new(&pool, "mnt", "noatime");
        Pool { mounted, server: Some(server), pool, faulty }
    }

    fn set(&self, change: impl FnOnce(&mut Faults)) {
        self.server.as_ref().unwrap().set(change);
    }

    fn well(&self) {
        self.server.as_ref().unwrap().well();
    }

    /// A file of that many bytes, closed, open again for reading and writing.
    fn file(&self, name: &str, bytes: &[u8]) -> File {
        fs::write(self.mounted.path(name), bytes).unwrap();
        self.open(name)
    }

    fn open(&self, name: &str) -> File {
        File::options().read(true).write(true).open(self.mounted.path(name)).unwrap()
    }

    fn die(&mut self) {
        self.server.take().unwrap().die();
    }

    fn return_to_life(&mut self) {
        self.server = Some(Faulty::mount(&self.pool.path("below"), &self.pool.path(self.faulty)));
    }
}

fn bytes(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn gives<T>(result: io::Result<T>, errno: i32) {
    let error = result.map(drop).expect_err("this should have failed");
    assert_eq!(error.raw_os_error(), Some(errno), "{error}");
}

/// Reads one stripe, whose number says on which server: 0 s0, 1 s1, 2 s2, 3 s0 ...
fn stripe(file: &File, number: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; WIDTH];
    file.read_exact_at(&mut buffer, (number * WIDTH) as u64)?;
    Ok(buffer)
}

/// The bytes of all servers but s1 are there, those of s1 are an error.
fn only_its_bytes_are_lost(file: &File, content: &[u8]) {
    for (number, expected) in content.chunks(WIDTH).enumerate() {
        match number % 3 {
            1 => gives(stripe(file, number), libc::EIO),
            _ => assert!(stripe(file, number).unwrap() == expected),
        }
    }
}

#[test]
fn a_failing_server_costs_exactly_its_bytes() {
    let pool = Pool::new();
    let mut content = bytes(9 * WIDTH);
    let file = pool.file("file", &content);
    pool.set(|faults| {
        (faults.read, faults.write, faults.sync) = (Some(Errno::EIO), Some(Errno::EIO), Some(Errno::EIO))
    });
    only_its_bytes_are_lost(&file, &content);
    gives(fs::read(pool.mounted.path("file")), libc::EIO);
    gives(file.write_at(b"lost", WIDTH as u64), libc::EIO);
    assert_eq!(file.write_at(b"kept", 0).unwrap(), 4);
    content[..4].copy_from_slice(b"kept");
    gives(file.sync_all(), libc::EIO);
    pool.well();
    file.sync_all().unwrap();
    assert!(fs::read(pool.mounted.path("file")).unwrap() == content);
}

#[test]
fn short_transfers_and_interrupts_are_gone_on_with() {
    let pool = Pool::new();
    let content = bytes(25 * WIDTH + 77);
    pool.set(|faults| (faults.at_most_bytes, faults.interrupts) = (Some(100), true));
    let file = pool.file("file", &content);
    assert!(fs::read(pool.mounted.path("file")).unwrap() == content);
    let mut all = vec![0; content.len()];
    assert_eq!(file.read_at(&mut all, 0).unwrap(), content.len(), "in one call");
    file.sync_all().unwrap();
    pool.well();
    assert!(fs::read(pool.mounted.path("file")).unwrap() == content);
}

#[test]
fn a_server_that_stalls_stops_nobody_else() {
    let pool = Pool::new();
    let content = bytes(6 * WIDTH);
    let file = pool.file("file", &content);
    pool.set(|faults| faults.holds = true);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| stripe(&file, 1).unwrap());
        let writer = scope.spawn(|| pool.open("file").write_at(b"late", 4 * WIDTH as u64).unwrap());
        eventually("two requests that wait", || pool.server.as_ref().unwrap().held() == 2);
        // All of this is done while they wait; a test that hangs here has failed.
        assert!(stripe(&file, 0).unwrap() == content[..WIDTH]);
        assert_eq!(file.write_at(b"now", 5 * WIDTH as u64).unwrap(), 3);
        fs::write(pool.mounted.path("small"), &content[..WIDTH]).unwrap();
        assert!(fs::read(pool.mounted.path("small")).unwrap() == content[..WIDTH]);
        assert_eq!(fs::metadata(pool.mounted.path("file")).unwrap().len(), content.len() as u64);
        assert_eq!(fs::read_dir(&pool.mounted.dir).unwrap().count(), 2);
        assert!(!reader.is_finished() && !writer.is_finished());
        pool.well();
        assert!(reader.join().unwrap() == content[WIDTH..2 * WIDTH]);
        assert_eq!(writer.join().unwrap(), 4);
    });
    assert!(stripe(&file, 4).unwrap().starts_with(b"late"));
}

/// Files are made by what was known of its room before.
#[test]
fn a_server_that_does_not_say_what_it_has_free_stops_no_file_from_being_made() {
    let pool = Pool::new();
    pool.set(|faults| faults.holds_statfs = true);
    // A test that hangs here has failed.
    for name in ["first", "second"] {
        fs::write(pool.mounted.path(name), b"small").unwrap();
    }
    assert!(fs::read(pool.mounted.path("first")).unwrap() == b"small");
    pool.well();
    fs::write(pool.mounted.path("large"), bytes(3 * WIDTH)).unwrap();
    assert!(fs::read(pool.mounted.path("large")).unwrap() == bytes(3 * WIDTH));
}

#[test]
fn a_server_that_died_comes_back_without_a_restart() {
    let mut pool = Pool::new();
    let mut content = bytes(9 * WIDTH);
    let file = pool.file("file", &content);
    // Its datafiles are open in the mount.
    assert!(stripe(&file, 1).unwrap() == content[WIDTH..2 * WIDTH]);
    file.write_at(b"synced", WIDTH as u64).unwrap();
    content[WIDTH..WIDTH + 6].copy_from_slice(b"synced");
    file.sync_all().unwrap();
    // Made now: a file that is made while a server is away leaves it out.
    let new = File::create(pool.mounted.path("new")).unwrap();
    pool.die();
    only_its_bytes_are_lost(&file, &content);
    gives(file.write_at(b"lost", WIDTH as u64), libc::EIO);
    assert_eq!(file.write_at(b"kept", 0).unwrap(), 4);
    content[..4].copy_from_slice(b"kept");
    gives(file.sync_all(), libc::EIO);
    // The empty directory that it left is not taken for it.
    assert_eq!(new.write_at(&content[..WIDTH], 0).unwrap(), WIDTH);
    gives(new.write_at(&content[WIDTH..2 * WIDTH], WIDTH as u64), libc::EIO);
    assert_eq!(fs::read_dir(pool.pool.path("s1")).unwrap().count(), 0);
    fs::remove_file(pool.mounted.path("new")).unwrap();

    pool.return_to_life();
    let mut all = vec![0; content.len()];
    assert_eq!(file.read_at(&mut all, 0).unwrap(), content.len(), "by the first request");
    assert!(all == content);
    file.write_at(b"again", WIDTH as u64).unwrap();
    content[WIDTH..WIDTH + 5].copy_from_slice(b"again");
    file.sync_all().unwrap();
    drop((file, new));
    assert!(fs::read(pool.mounted.path("file")).unwrap() == content);
}

/// What was written and not synced when its server died may be lost, though the server is back: a process has to be
/// told.
#[test]
fn a_sync_tells_of_a_server_that_died_and_came_back() {
    let mut pool = Pool::new();
    let content = bytes(3 * WIDTH);
    let file = pool.file("file", &content);
    file.write_at(b"unsynced", WIDTH as u64).unwrap();
    pool.die();
    pool.return_to_life();
    assert_eq!(stripe(&file, 1).unwrap().len(), WIDTH);
    gives(file.sync_all(), libc::EIO);
    file.sync_all().unwrap();
}

/// As above, where nothing else has come to that server since.
#[test]
fn a_sync_is_the_first_to_find_a_server_that_died_and_came_back() {
    let mut pool = Pool::new();
    let file = pool.file("file", &bytes(3 * WIDTH));
    assert_eq!(stripe(&file, 1).unwrap().len(), WIDTH);
    file.sync_all().unwrap();
    file.write_at(b"unsynced", WIDTH as u64).unwrap();
    pool.die();
    pool.return_to_life();
    gives(file.sync_all(), libc::EIO);
    file.sync_all().unwrap();
}

/// Each that has the file open is told of a sync that failed, whichever asked for it, and told once; one that comes
/// later is not.
#[test]
fn a_sync_that_failed_is_told_to_all_that_have_the_file_open() {
    let pool = Pool::new();
    let content = bytes(3 * WIDTH);
    let (one, two) = (pool.file("file", &content), pool.open("file"));
    one.write_at(b"one", WIDTH as u64).unwrap();
    two.write_at(b"two", WIDTH as u64 + 3).unwrap();
    pool.set(|faults| faults.sync = Some(Errno::EIO));
    gives(one.sync_data(), libc::EIO);
    pool.well();
    let later = pool.open("file");
    later.sync_all().unwrap();
    one.sync_all().unwrap();
    gives(two.sync_all(), libc::EIO);
    two.sync_all().unwrap();
}

#[test]
fn a_full_server_is_told_to_the_writer_and_the_file_can_go() {
    no_room(Errno::ENOSPC, libc::ENOSPC);
}

/// As the server's file system says it to a user over quota: the kernel's errno goes to the program as it is.
#[test]
fn a_quota_is_told_to_the_writer_and_the_file_can_go() {
    no_room(Errno::EDQUOT, libc::EDQUOT);
}

fn no_room(fault: Errno, errno: i32) {
    let pool = Pool::new();
    let content = bytes(6 * WIDTH);
    let mut file = pool.file("file", &content);
    pool.set(|faults| (faults.write, faults.create) = (Some(fault), Some(fault)));
    gives(file.write_at(b"no room", WIDTH as u64), errno);
    gives(fs::write(pool.mounted.path("other"), &content), errno);
    // Nothing of a record that does not fit is left, and the next one that does stands at the end.
    let mut appender = File::options().append(true).open(pool.mounted.path("file")).unwrap();
    let record = vec![7; 2 * WIDTH];
    let taken = io::Write::write(&mut appender, &record).unwrap();
    assert_eq!(taken, WIDTH, "the stripe on s0, before that on s1");
    gives(io::Write::write(&mut appender, b"on s1"), errno);
    assert!(fs::read(pool.mounted.path("file")).unwrap() == [&content[..], &record[..taken]].concat());
    let mut all = Vec::new();
    io::Read::read_to_end(&mut file, &mut all).unwrap();
    assert!(all == [&content[..], &record[..taken]].concat());
    assert!(content.starts_with(&fs::read(pool.mounted.path("other")).unwrap()), "as much as was taken");
    drop((file, appender));
    for name in ["file", "other"] {
        fs::remove_file(pool.mounted.path(name)).unwrap();
    }
    eventually("the datafiles are gone", || datafiles(&pool).is_empty());
}

fn datafiles(pool: &Pool) -> Vec<PathBuf> {
    let servers = ["s0", "s1", "s2"].map(|name| if name == pool.faulty { "below" } else { name });
    let servers = servers.map(|name| pool.pool.path(name));
    let dirs = servers.iter().flat_map(|server| fs::read_dir(server).unwrap().flatten().map(|entry| entry.path()));
    dirs.filter(|path| path.is_dir()).flat_map(|dir| fs::read_dir(dir).unwrap().flatten().map(|e| e.path())).collect()
}

#[test]
fn a_read_only_server_can_be_read() {
    let pool = Pool::new();
    let mut content = bytes(6 * WIDTH);
    drop(pool.file("file", &content));
    pool.set(|faults| faults.write = Some(Errno::EROFS));
    pool.set(|faults| (faults.open, faults.create) = (Some(Errno::EROFS), Some(Errno::EROFS)));
    let file = pool.open("file");
    assert!(stripe(&file, 1).unwrap() == content[WIDTH..2 * WIDTH]);
    gives(file.write_at(b"no", WIDTH as u64), libc::EROFS);
    assert_eq!(file.write_at(b"yes", 0).unwrap(), 3);
    content[..3].copy_from_slice(b"yes");
    drop(file);
    assert!(fs::read(pool.mounted.path("file")).unwrap() == content);
}

/// First, middle or last: the others give their space back.
#[test]
fn a_server_that_cannot_remove_keeps_its_own_datafiles_alone() {
    for faulty in ["s0", "s1", "s2"] {
        for fault in [Errno::EROFS, Errno::EIO] {
            let pool = Pool::with_faulty(faulty);
            drop(pool.file("file", &bytes(9 * WIDTH)));
            drop(pool.file("replaced", &bytes(9 * WIDTH)));
            fs::write(pool.mounted.path("empty"), b"").unwrap();
            assert_eq!(datafiles(&pool).len(), 6);
            pool.set(|faults| faults.remove = Some(fault));
            fs::remove_file(pool.mounted.path("file")).unwrap();
            fs::rename(pool.mounted.path("empty"), pool.mounted.path("replaced")).unwrap();
            let below = pool.pool.path("below");
            eventually("only its datafiles are left", || {
                let left = datafiles(&pool);
                left.len() == 2 && left.iter().all(|path| path.starts_with(&below))
            });
            eventually("no lock file is left", || fs::read_dir(pool.pool.path("ns/locks")).unwrap().next().is_none());
        }
    }
}

#[test]
fn a_directory_that_is_taken_away_comes_back_without_a_restart() {
    let pool = TestPool::new();
    let mounted = Mounted::new(&pool, "mnt", "noatime");
    let content = bytes(9 * WIDTH);
    fs::write(mounted.path("file"), &content).unwrap();
    // Made now: a file that is made while a server is away leaves it out.
    let mut new = File::create(mounted.path("new")).unwrap();
    fs::rename(pool.path("s1"), pool.path("away")).unwrap();
    // The mount learns of a close a moment after the program, and until then has the datafiles open.
    eventually("the close", || stripe(&File::open(mounted.path("file")).unwrap(), 1).is_err());
    let file = File::options().read(true).write(true).open(mounted.path("file")).unwrap();
    only_its_bytes_are_lost(&file, &content);
    // Nor is an empty directory in its place written into.
    fs::create_dir(pool.path("s1")).unwrap();
    gives(io::Write::write_all(&mut new, &content), libc::EIO);
    assert_eq!(fs::read_dir(pool.path("s1")).unwrap().count(), 0);
    fs::remove_dir(pool.path("s1")).unwrap();
    // A copy of it, as a restored backup is: other inodes under the same names.
    let copied = std::process::Command::new("cp").arg("-a").args([pool.path("away"), pool.path("s1")]).status();
    assert!(copied.unwrap().success());
    fs::remove_dir_all(pool.path("away")).unwrap();
    for (number, expected) in content.chunks(WIDTH).enumerate() {
        assert!(stripe(&file, number).unwrap() == expected);
    }
    fs::write(mounted.path("new"), &content).unwrap();
    assert!(fs::read(mounted.path("new")).unwrap() == content);
}

/// Names that are there are listed, whether or not their attributes can be had: here the mount has no descriptor left.
#[test]
fn a_listing_has_every_name_when_descriptors_have_run_out() {
    let pool = TestPool::new();
    let mut server = std::process::Command::new(common::BIN).arg("--foreground").arg(pool.file()).spawn().unwrap();
    let dir = pool.path("ns/tree/dir");
    fs::create_dir(&dir).unwrap();
    let mut names: Vec<String> = (0..300).map(|number| format!("file-{number:03}")).collect();
    names.iter().for_each(|name| fs::write(dir.join(name), b"").unwrap());
    let place = pool.mnt().join("dir");
    eventually("the mount", || place.exists());
    let list = rustix::fs::open(&place, rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
    // Of util-linux: the soft limit of another process.
    let limit = |most: &str| {
        let mut command = std::process::Command::new("prlimit");
        let status = command.args(["--pid", &server.id().to_string(), &format!("--nofile={most}:")]).status();
        assert!(status.unwrap().success());
    };
    limit("3");
    let found = rustix::fs::Dir::new(list).unwrap().map(|entry| entry.unwrap().file_name().to_owned());
    let mut found: Vec<String> = found.map(|name| name.into_string().unwrap()).collect();
    limit("1000");
    found.sort();
    names.extend([".".into(), "..".into()]);
    names.sort();
    assert_eq!(found, names);
    // SAFETY: our own child, not yet waited for.
    unsafe { libc::kill(server.id() as i32, libc::SIGTERM) };
    assert!(server.wait().unwrap().success());
}

/// A new file with that content, which its servers have.
fn synced(mounted: &Mounted, name: &str, content: &[u8]) -> File {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(mounted.path(name)).unwrap();
    file.write_at(content, 0).unwrap();
    file.sync_all().unwrap();
    file
}

/// As long as anything of it is open, to mount the disk again gives the dead file system again.
#[test]
fn a_file_system_that_shut_itself_down_is_mounted_again_without_a_restart() {
    let pool = TestPool::new();
    let Some(disk) = LoopDisk::under(&pool, "s1", "xfs") else {
        eprintln!("not tested: no XFS on a loop device here");
        return;
    };
    let mounted = Mounted::new(&pool, "mnt", "noatime");
    let mut content = bytes(9 * WIDTH);
    let open = |name: &str| synced(&mounted, name, &content);
    // No program asks for anything of the second before the disk is back.
    let (file, idle) = (open("file"), open("idle"));
    fs::write(mounted.path("closed"), &content).unwrap();
    File::open(mounted.path("closed")).unwrap().sync_all().unwrap();
    file.write_at(b"unsynced", WIDTH as u64).unwrap();
    idle.write_at(b"unsynced", WIDTH as u64).unwrap();
    disk.fail();
    only_its_bytes_are_lost(&file, &content);
    gives(file.write_at(b"no", WIDTH as u64), libc::EIO);
    file.write_at(b"kept", 0).unwrap();
    content[..4].copy_from_slice(b"kept");

    disk.mount_again();
    for (file, first) in [(&file, &b"kept"[..]), (&idle, &b""[..])] {
        let mut found = vec![0; content.len()];
        assert_eq!(file.read_at(&mut found, 0).unwrap(), content.len());
        assert!(found[..first.len()] == *first && found[4..WIDTH] == content[4..WIDTH]);
        let stripe = &found[WIDTH..2 * WIDTH];
        assert!(stripe[..8] == content[WIDTH..WIDTH + 8] || stripe[..8] == *b"unsynced");
        assert!(stripe[8..] == content[WIDTH + 8..2 * WIDTH] && found[2 * WIDTH..] == content[2 * WIDTH..]);
        gives(file.sync_all(), libc::EIO);
        file.sync_all().unwrap();
        file.write_at(b"again...", WIDTH as u64).unwrap();
        file.sync_all().unwrap();
        assert!(stripe_starts_with(file, b"again..."));
    }
    fs::write(mounted.path("new"), &content).unwrap();
    assert!(fs::read(mounted.path("new")).unwrap() == content);
    assert!(fs::read(mounted.path("closed")).unwrap()[4..] == content[4..]);
    drop((file, idle));
    assert_eq!(fs::read(mounted.path("file")).unwrap().len(), content.len());
    drop(mounted);
    drop(disk);
}

/// What the mount counts of the tier is in mapped pages of it.
#[test]
fn a_metadata_tier_that_shuts_itself_down_is_told_and_the_mount_goes_on() {
    let pool = TestPool::new();
    let Some(disk) = LoopDisk::under(&pool, "ns", "xfs") else {
        eprintln!("not tested: no XFS on a loop device here");
        return;
    };
    let mounted = Mounted::new(&pool, "mnt", "noatime");
    let content = bytes(9 * WIDTH);
    let open = |name: &str| synced(&mounted, name, &content);
    let (file, other) = (open("file"), open("other"));
    // Its pages are clean: each has to be noted as changed before it can be.
    assert!(std::process::Command::new("sync").arg("--file-system").arg(pool.path("ns")).status().unwrap().success());
    disk.fail();
    for _ in 0..3 {
        let mut found = vec![0; content.len()];
        assert_eq!(file.read_at(&mut found, 0).unwrap(), content.len());
        assert!(found == content);
        gives(file.set_len(10), libc::EIO);
        gives(file.sync_all(), libc::EIO);
        gives(File::create(mounted.path("new")), libc::EIO);
        gives(fs::rename(mounted.path("file"), mounted.path("moved")), libc::EIO);
        gives(fs::remove_file(mounted.path("other")), libc::EIO);
    }
    drop((file, other));
    gives(File::create(mounted.path("new")), libc::EIO);
    drop(mounted);
    disk.mount_again();
    let mounted = Mounted::new(&pool, "mnt", "noatime");
    assert!(fs::read(mounted.path("file")).unwrap() == content);
    assert!(fs::read(mounted.path("other")).unwrap() == content);
    fs::write(mounted.path("new"), &content).unwrap();
    drop(mounted);
    drop(disk);
}

fn stripe_starts_with(file: &File, bytes: &[u8]) -> bool {
    stripe(file, 1).unwrap().starts_with(bytes)
}
