//! Two mounts of one pool, each with a serving process of its own: what one does, the other sees.

mod common;

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{TryRecvError, channel};

use common::{Mounted, TestPool, eventually};
use rustix::fs::{AtFlags, Mode, Timespec, Timestamps};
use rustix::io::Errno;
use stripewise_layout::{Layout, ServerId};
use stripewise_store::{Error, Files, Pool, Store};

/// The ways of serving one file: over three servers; by the kernel through both mounts, by the kernel through neither,
/// by the kernel through one of them.
const WAYS: [(&[&str], [&str; 2]); 4] = [
    (&["s0", "s1", "s2"], ["rw", "rw"]),
    (&["s0"], ["rw", "rw"]),
    (&["s0"], ["nopassthrough", "nopassthrough"]),
    (&["s0"], ["rw", "nopassthrough"]),
];

fn two_mounts(servers: &[&str], options: [&str; 2]) -> (TestPool, [Mounted; 2]) {
    let pool = TestPool::with("4KiB", servers);
    let mounts = [Mounted::new(&pool, "mnt", options[0]), Mounted::new(&pool, "other", options[1])];
    (pool, mounts)
}

const APPENDERS: usize = 6;
const RECORDS: usize = 25;
const RECORD_BYTES: usize = 50;

/// What an appender finds, and how it goes about it.
#[derive(Clone, Copy, Debug)]
enum Race {
    /// All make the file at once.
    Create,
    /// A program reads the empty file through one mount, so that this mount has no datafile to give to the kernel.
    WhileRead,
    /// The file is opened for each record, so that registrations of writers come and go.
    Reopen,
    /// The file ends in a hole.
    Hole,
}

/// Appends from both mounts; the bytes of the hole in front, and what each mount reads then.
fn race(mounts: &[Mounted; 2], name: &str, race: Race) -> (usize, [Vec<u8>; 2]) {
    let mut hole = 0;
    let _reader = match race {
        Race::Create | Race::Reopen => None,
        Race::WhileRead => {
            File::create(mounts[1].path(name)).unwrap();
            Some(File::open(mounts[0].path(name)).unwrap())
        }
        Race::Hole => {
            hole = 9001;
            File::create(mounts[0].path(name)).unwrap().set_len(hole as u64).unwrap();
            None
        }
    };
    let together = Barrier::new(APPENDERS);
    let append = |who: usize| {
        let path = mounts[who % 2].path(name);
        let open = || File::options().append(true).create(true).open(&path).unwrap();
        together.wait();
        let mut log = open();
        for number in 0..RECORDS {
            if matches!(race, Race::Reopen) {
                log = open();
            }
            let record = format!("{who} {number:03} {:1$}\n", "", RECORD_BYTES - 7);
            assert_eq!(log.write(record.as_bytes()).unwrap(), RECORD_BYTES);
        }
    };
    std::thread::scope(|scope| {
        for who in 0..APPENDERS {
            scope.spawn(move || append(who));
        }
    });
    (hole, [0, 1].map(|side: usize| fs::read(mounts[side].path(name)).unwrap()))
}

/// Fails unless `log` holds every record once, and those of one appender in their order.
fn check(log: &[u8], hole: usize, what: &str) {
    assert!(log.len() >= hole && log[..hole].iter().all(|byte| *byte == 0), "{what}: the hole is not zeros");
    let mut next = [0; APPENDERS];
    for record in log[hole..].chunks(RECORD_BYTES) {
        let text = std::str::from_utf8(record).unwrap();
        let mut words = text.split_whitespace().map(|word| word.parse::<usize>());
        let (Some(Ok(who)), Some(Ok(number)), None) = (words.next(), words.next(), words.next()) else {
            panic!("{what}: {text:?} is no record: two were written over each other")
        };
        assert_eq!(number, next[who], "{what}: of appender {who}");
        next[who] += 1;
    }
    assert_eq!(
        next,
        [RECORDS; APPENDERS],
        "{what}: {} of {} bytes",
        log.len(),
        hole + APPENDERS * RECORDS * RECORD_BYTES
    );
}

#[test]
fn appends_through_two_mounts_lose_no_record() {
    for (servers, options) in WAYS {
        let (_pool, mounts) = two_mounts(servers, options);
        for kind in [Race::Create, Race::WhileRead, Race::Reopen, Race::Hole] {
            for round in 0..25 {
                let what = format!("{} servers, {options:?}, {kind:?}, round {round}", servers.len());
                let (hole, logs) = race(&mounts, &format!("{kind:?}{round}"), kind);
                logs.iter().for_each(|log| check(log, hole, &what));
            }
        }
    }
}

/// Size by name, by an open descriptor, by seeking, and the end by reading: each through the other mount, right after
/// the change, and with the old size known there just before.
#[test]
fn sizes_of_one_mount_are_there_in_the_other_at_once() {
    for (servers, options) in WAYS {
        let (_pool, mounts) = two_mounts(servers, options);
        for (round, (from, to)) in [(0, 1), (1, 0)].into_iter().cycle().take(20).enumerate() {
            let name = format!("f{round}");
            let mut writer = File::create(mounts[from].path(&name)).unwrap();
            let mut reader = File::open(mounts[to].path(&name)).unwrap();
            let mut check = |size: u64, what: &str| {
                let what = format!("{} servers, {options:?}, round {round}, {what}", servers.len());
                assert_eq!(fs::metadata(mounts[to].path(&name)).unwrap().len(), size, "{what}: stat");
                assert_eq!(reader.metadata().unwrap().len(), size, "{what}: fstat");
                assert_eq!(reader.seek(SeekFrom::End(0)).unwrap(), size, "{what}: SEEK_END");
                assert_eq!(reader.read(&mut [0; 10]).unwrap(), 0, "{what}: read at the end");
                let seek = |from| rustix::fs::seek(reader.as_fd(), from);
                assert_eq!(seek(rustix::fs::SeekFrom::Hole(0)).ok(), (size > 0).then_some(size), "{what}: SEEK_HOLE");
                assert_eq!(seek(rustix::fs::SeekFrom::Data(size)), Err(rustix::io::Errno::NXIO), "{what}: SEEK_DATA");
                assert_eq!(fs::read(mounts[to].path(&name)).unwrap().len() as u64, size, "{what}: read");
                // Reading makes the kernel ask for all attributes again; with this it knows them.
                assert_eq!(fs::metadata(mounts[to].path(&name)).unwrap().len(), size, "{what}: stat again");
            };
            check(0, "new");
            writer.write_all(&[1; 5000]).unwrap();
            check(5000, "written");
            writer.write_all(&[1; 9000]).unwrap();
            check(14_000, "written on");
            drop(writer);
            check(14_000, "closed");
            File::options().append(true).open(mounts[from].path(&name)).unwrap().write_all(&[1; 100]).unwrap();
            check(14_100, "appended and closed");
            fs::write(mounts[from].path(&name), [1; 70]).unwrap();
            check(70, "written anew");
        }
    }
}

/// A mount knows more of a file that was not used for a while, and must still notice that it is written.
#[test]
fn sizes_of_an_old_file_are_there_in_the_other_at_once() {
    for (servers, options) in WAYS {
        let (_pool, mounts) = two_mounts(servers, options);
        let of = |side: usize| fs::metadata(mounts[side].path("f")).unwrap();
        fs::write(mounts[0].path("f"), [1; 5000]).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(2500));
        for _ in 0..3 {
            assert_eq!([of(0).len(), of(1).len()], [5000; 2]);
        }
        let mut writer = File::options().append(true).open(mounts[0].path("f")).unwrap();
        writer.write_all(&[1; 9000]).unwrap();
        assert_eq!([of(0).len(), of(1).len()], [14_000; 2], "{options:?}: being written");
        drop(writer);
        for _ in 0..3 {
            assert_eq!([of(0).len(), of(1).len()], [14_000; 2], "{options:?}: written");
        }
        assert_eq!(of(0).modified().unwrap(), of(1).modified().unwrap());
    }
}

/// A name that was not there a moment ago, as one mount's kernel knows well, is there when the other mount has made it.
#[test]
fn names_of_one_mount_are_there_in_the_other_at_once() {
    let pool = TestPool::new();
    let one = Mounted::new(&pool, "mnt", "rw");
    assert!(!one.path("first").exists());
    let two = Mounted::new(&pool, "other", "rw");
    assert!(!one.path("later").exists());
    fs::write(two.path("first"), b"x").unwrap();
    assert!(one.path("first").exists());
    let mounts = [one, two];
    for (round, (from, to)) in [(0, 1), (1, 0)].into_iter().cycle().take(50).enumerate() {
        let (made, seen) = (mounts[from].path(&round.to_string()), mounts[to].path(&round.to_string()));
        assert!(!seen.exists());
        match round / 2 % 3 {
            0 => fs::write(&made, b"bytes").unwrap(),
            1 => fs::create_dir(&made).unwrap(),
            _ => fs::hard_link(mounts[from].path("first"), &made).unwrap(),
        }
        assert!(seen.exists(), "round {round}");
    }
    // With the neighbour gone, its changes are all there.
    let [one, two] = mounts;
    assert!(!one.path("last").exists());
    fs::write(two.path("last"), b"x").unwrap();
    drop(two);
    assert_eq!(fs::read(one.path("last")).unwrap(), b"x");
}

/// As long as a mount is alone, its kernel asks for no name for seconds. Before another is there it has forgotten all that: what is
/// changed then (here before, in the namespace, of which no mount knows) it sees at once.
#[test]
fn what_a_mount_alone_believes_is_asked_for_anew_when_another_has_come() {
    let pool = TestPool::new();
    let one = Mounted::new(&pool, "mnt", "rw");
    let believes = || fs::read(pool.path("ns/mounts")).unwrap()[4..8] != [0; 4];
    eventually("the mount knows that it is alone", believes);
    for name in ["removed", "moved", "exchanged", "other", "listed", "replaced"] {
        fs::write(one.path(name), name).unwrap();
    }
    fs::create_dir_all(one.path("dir/inner")).unwrap();
    fs::hard_link(one.path("removed"), one.path("link")).unwrap();
    fs::rename(one.path("moved"), one.path("dir/to")).unwrap();
    let exchange = rustix::fs::RenameFlags::EXCHANGE;
    rustix::fs::renameat_with(rustix::fs::CWD, one.path("exchanged"), rustix::fs::CWD, one.path("other"), exchange)
        .unwrap();
    assert!(!one.path("absent").exists());
    // With attributes: the kernel learns the names so, too.
    let listed = fs::read_dir(one.path("")).unwrap().filter(|entry| entry.as_ref().unwrap().metadata().is_ok());
    assert_eq!(listed.count(), 7);
    let tree = pool.path("ns/tree");
    for name in ["removed", "link", "dir/to", "exchanged", "other", "listed"] {
        assert!(one.path(name).exists());
        fs::remove_file(tree.join(name)).unwrap();
    }
    fs::rename(tree.join("dir/inner"), tree.join("absent")).unwrap();
    fs::write(tree.join("new"), "another").unwrap();
    fs::rename(tree.join("new"), tree.join("replaced")).unwrap();
    fs::set_permissions(tree.join("dir"), fs::Permissions::from_mode(0o710)).unwrap();
    let two = Mounted::new(&pool, "other", "rw");
    assert!(!believes());
    for name in ["removed", "link", "dir/to", "exchanged", "other", "listed", "dir/inner"] {
        assert!(!one.path(name).exists(), "{name}");
    }
    assert!(one.path("absent").is_dir());
    assert_eq!(fs::read(one.path("replaced")).unwrap(), b"another");
    assert_eq!(fs::metadata(one.path("dir")).unwrap().mode() & 0o777, 0o710);
    // Alone again, and beside a program that needs no mount.
    drop(two);
    eventually("the mount knows that it is alone again", believes);
    assert!(one.path("replaced").exists() && !one.path("later").exists());
    let files = stripewise_store::Files::open(Pool::load(&pool.file()).unwrap()).unwrap();
    files.rename("replaced".as_ref(), "later".as_ref(), rustix::fs::RenameFlags::empty()).unwrap();
    assert!(!one.path("replaced").exists() && one.path("later").exists());
}

/// A mount that comes while a file is open writes it; the first one's open file reads that, though its own programs write
/// another part of the file meanwhile (a kernel that keeps pages overlooks then that they are old). Placed files, and one
/// that was put into the namespace.
#[test]
fn what_another_mount_writes_is_read_at_once_while_this_one_writes_elsewhere() {
    const LENGTH: u64 = 65_536;
    const ROUNDS: u64 = 500;
    for (servers, options) in WAYS {
        for is_placed in [true, false] {
            let pool = TestPool::with("4KiB", servers);
            let one = Mounted::new(&pool, "mnt", options[0]);
            let path = if is_placed { one.path("f") } else { pool.path("ns/tree/f") };
            fs::write(path, [0; LENGTH as usize]).unwrap();
            let open = |mount: &Mounted| {
                let mut as_databases_are = File::options();
                as_databases_are.read(true).write(true).custom_flags(libc::O_NOFOLLOW);
                as_databases_are.open(mount.path("f")).unwrap()
            };
            let number_in = |file: &File| {
                let mut bytes = [0; 8];
                file.read_exact_at(&mut bytes, 0).unwrap();
                u64::from_ne_bytes(bytes)
            };
            let here = open(&one);
            assert_eq!(number_in(&here), 0);
            let two = Mounted::new(&pool, "other", options[1]);
            let there = open(&two);
            let size = || here.metadata().unwrap().len();
            let what = |number| format!("{servers:?}, {options:?}, placed: {is_placed}, number {number}");
            std::thread::scope(|scope| {
                let (going_on, asked) = channel::<()>();
                scope.spawn(|| {
                    let (asked, here) = (asked, open(&one));
                    while asked.try_recv() == Err(TryRecvError::Empty) {
                        here.write_all_at(&[1; 100], 40_000).unwrap();
                    }
                });
                for number in 1..=ROUNDS {
                    there.write_all_at(&number.to_ne_bytes(), 0).unwrap();
                    assert_eq!(number_in(&here), number, "{}", what(number));
                    there.write_all_at(b"x", LENGTH + number).unwrap();
                    let mut last = [0];
                    here.read_exact_at(&mut last, LENGTH + number).unwrap();
                    assert_eq!((last, size()), (*b"x", LENGTH + number + 1), "{}", what(number));
                }
                drop(going_on);
            });
            for number in ROUNDS..ROUNDS + 20 {
                assert_eq!(size(), LENGTH + number + 1, "{}", what(number));
                there.write_all_at(b"x", LENGTH + number + 1).unwrap();
            }
        }
    }
}

/// One way in, by which times and modes of a file are set: a mount, or `import stripewise`.
trait Sets: Sync {
    fn set(&self, name: &str, time: Timespec, mode: u32);

    /// Time and mode now.
    fn look(&self, name: &str) -> (Timespec, u32);
}

fn both(last_modification: Timespec) -> Timestamps {
    Timestamps { last_access: last_modification, last_modification }
}

impl Sets for Mounted {
    fn set(&self, name: &str, time: Timespec, mode: u32) {
        rustix::fs::utimensat(rustix::fs::CWD, self.path(name), &both(time), AtFlags::empty()).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn look(&self, name: &str) -> (Timespec, u32) {
        let found = fs::metadata(self.path(name)).unwrap();
        (Timespec { tv_sec: found.mtime(), tv_nsec: found.mtime_nsec() as _ }, found.mode() & 0o777)
    }
}

impl Sets for std::sync::Arc<Files> {
    fn set(&self, name: &str, time: Timespec, mode: u32) {
        self.set_times(Path::new(name), &both(time)).unwrap();
        self.change_mode(Path::new(name), Mode::from_raw_mode(mode)).unwrap();
    }

    fn look(&self, name: &str) -> (Timespec, u32) {
        let found = self.stat(Path::new(name), true).unwrap();
        (Timespec { tv_sec: found.st_mtime, tv_nsec: found.st_mtime_nsec as _ }, found.st_mode & 0o777)
    }
}

/// Moves each of the files from layout to layout; one that has a writer stays out of its inode.
fn moves(pool: &TestPool, names: &[&str]) {
    const ROUNDS: usize = 30;
    let store = Store::of_file(&pool.file()).unwrap();
    let striped = |servers: &[u16]| Layout::striped(servers.iter().map(|&id| ServerId(id)), 4096).unwrap();
    let layouts = [
        striped(&[0]),
        striped(&[1, 2]),
        striped(&[2]).with_head_in_inode(8192).unwrap(),
        striped(&[0, 1]).with_head_in_inode(4096).unwrap(),
    ];
    for round in 0..ROUNDS {
        for name in names {
            let inode = store.lookup(Path::new(name)).unwrap().unwrap();
            match inode.move_to(&layouts[round % layouts.len()], name, &mut |_, _| true) {
                Ok(_) => {}
                Err(error) => assert_eq!(error.errno(), Errno::BUSY, "{name} in round {round}: {error}"),
            }
        }
    }
}

#[test]
fn times_and_modes_that_are_set_while_files_move() {
    let (pool, mounts) = two_mounts(&["s0", "s1", "s2"], ["rw", "rw"]);
    let library = Files::open(Pool::load(&pool.file()).unwrap()).unwrap();
    let ways: [(&str, &dyn Sets); 4] =
        [("closed", &mounts[0]), ("open", &mounts[1]), ("library", &library), ("elsewhere", &mounts[1])];
    let names = ways.map(|(name, _)| name);
    names.iter().for_each(|name| fs::write(mounts[0].path(name), vec![7; 100_000]).unwrap());
    let held = ["open", "elsewhere"].map(|name| File::options().write(true).open(mounts[0].path(name)).unwrap());
    let stop = AtomicBool::new(false);
    let last = std::thread::scope(|scope| {
        let threads = ways.map(|(name, way)| {
            let stop = &stop;
            scope.spawn(move || {
                for number in 0_i64.. {
                    // Back and forth, and all of it before the last write.
                    let time = Timespec { tv_sec: 1_000_000_000 + number * 7_919 % 10_007, tv_nsec: 5 };
                    let mode = [0o600, 0o644, 0o666][number as usize % 3];
                    way.set(name, time, mode);
                    assert_eq!(way.look(name), (time, mode), "{name}, change {number}");
                    if stop.load(Ordering::Acquire) {
                        return (time, mode);
                    }
                }
                unreachable!("a change has no last number")
            })
        });
        moves(&pool, &names);
        stop.store(true, Ordering::Release);
        threads.map(|thread| thread.join().unwrap())
    });
    drop(held);
    let store = Store::of_file(&pool.file()).unwrap();
    for (name, expected) in names.iter().zip(last) {
        let handle = format!("{:016x}", store.lookup(Path::new(name)).unwrap().unwrap().handle());
        for datafile in pool.datafiles() {
            let is_its = datafile.file_name().unwrap().to_string_lossy().starts_with(&handle);
            let mode = fs::metadata(&datafile).unwrap().mode() & 0o777;
            assert!(!is_its || mode == expected.1 & 0o066 | 0o600, "{name} {:o}: {mode:o}", expected.1);
        }
        for mount in &mounts {
            eventually("what was set last", || mount.look(name) == expected);
            assert_eq!(fs::read(mount.path(name)).unwrap(), vec![7; 100_000]);
        }
        assert_eq!(library.look(name), expected);
    }
}

/// Changes of a file by its name: of its size, and of its times.
fn changes() -> [fn(&Path) -> rustix::io::Result<()>; 2] {
    let cut = |path: &Path| {
        let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: the path is a string that lives until the call returns.
        if unsafe { libc::truncate(path.as_ptr(), 0) } == 0 {
            return Ok(());
        }
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap())
    };
    let set = |path: &Path| {
        let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(rustix::fs::CWD, path, &times, AtFlags::empty())
    };
    [cut, set]
}

/// Waits until the pool has no file any more.
fn nothing_is_left(pool: &TestPool) {
    let locks = || fs::read_dir(pool.path("ns/locks")).unwrap().count();
    eventually("nothing is left", || pool.datafiles().is_empty() && locks() == 0);
}

/// A change of a file by its name meets the removal of that, which this mount or the other makes: it finds the file or none, and nothing of
/// the file is left.
#[test]
fn a_change_of_a_file_whose_name_goes_finds_the_file_or_none() {
    let (pool, mounts) = two_mounts(&["s0", "s1", "s2"], ["rw", "rw"]);
    for number in 0..100 {
        let change = changes()[number % 2];
        let name = format!("f{number}");
        let [here, other] = [0, 1].map(|mount: usize| mounts[mount].path(&name));
        // One after the other: this mount's kernel believes in the name. The last close of a program that had the file open here would reach
        // this mount after that program: the file would still be open here, and its change one of an open file.
        fs::write(&other, vec![1; 20_000]).unwrap();
        fs::metadata(&here).unwrap();
        fs::remove_file(&other).unwrap();
        assert_eq!(change(&here), Err(Errno::NOENT), "{number}: after the other mount");
        // At once.
        fs::write(&here, vec![1; 20_000]).unwrap();
        let remover = if number % 4 < 2 { here.clone() } else { other };
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                barrier.wait();
                fs::remove_file(&remover).unwrap();
            });
            barrier.wait();
            let done = change(&here);
            assert!([Ok(()), Err(Errno::NOENT)].contains(&done), "{number}: {done:?}");
        });
    }
    nothing_is_left(&pool);
}

/// A file loses its name while a mover has it, which ends over that; what the mover and its writer have kept from the one that took the name
/// away goes.
#[test]
fn a_file_that_is_removed_while_it_moves_leaves_nothing() {
    let (pool, mounts) = two_mounts(&["s0", "s1", "s2"], ["rw", "rw"]);
    let store = Store::of_file(&pool.file()).unwrap();
    let other = Layout::striped([ServerId(2), ServerId(0)], 8192).unwrap();
    for (name, is_written) in [("still", false), ("written", true)] {
        let path = mounts[0].path(name);
        fs::write(&path, vec![1; 2_000_000]).unwrap();
        let writer = is_written.then(|| File::options().write(true).open(&path).unwrap());
        let inode = store.lookup(Path::new(name)).unwrap().unwrap();
        let (mut is_there, mut writer) = (true, writer);
        let moved = inode.move_to(&other, name, &mut |_, _| {
            if std::mem::take(&mut is_there) {
                fs::remove_file(&path).unwrap();
                drop(writer.take());
                // The mount tries to remove it now, and finds it moving.
                std::thread::sleep(std::time::Duration::from_millis(300));
            }
            true
        });
        assert!(matches!(moved, Err(Error::Nameless { .. })), "{name}: {moved:?}");
        drop(inode);
        nothing_is_left(&pool);
    }
}

/// A program of the other mount has the file open, from which that mount has taken the name: it reads all of it, also bytes of which its
/// mount has opened no datafile yet.
#[test]
fn a_change_by_a_name_that_has_gone_leaves_the_bytes_to_those_who_read_them() {
    let (_pool, mounts) = two_mounts(&["s0", "s1", "s2"], ["rw", "rw"]);
    for (number, change) in changes().into_iter().enumerate() {
        for replaces in [false, true] {
            let name = format!("f{number}{replaces}");
            let [here, other] = [0, 1].map(|mount: usize| mounts[mount].path(&name));
            let bytes = vec![7; 100_000];
            // Through this mount the file has not been open: what closes it there may reach the mount late.
            fs::write(&other, &bytes).unwrap();
            fs::metadata(&here).unwrap();
            let mut reader = File::open(&other).unwrap();
            if replaces {
                let young = mounts[1].path("young");
                fs::write(&young, "young").unwrap();
                fs::rename(&young, &other).unwrap();
            } else {
                fs::remove_file(&other).unwrap();
            }
            assert_eq!(change(&here).is_ok(), replaces, "{name}");
            // What this mount has to remove goes at once.
            std::thread::sleep(std::time::Duration::from_millis(300));
            let mut found = Vec::new();
            reader.read_to_end(&mut found).unwrap();
            assert!(found == bytes, "{name}: {} bytes", found.len());
        }
    }
}
