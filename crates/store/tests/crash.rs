//! Several processes at one file, and processes that are killed at any moment.

mod common;

use common::{TestPool, content, create, layout, pattern, write, write_all};
use rustix::fs::XattrFlags;
use rustix::process::{Pid, Signal, kill_process};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;
use stripewise_layout::MAX_OFFSET;
use stripewise_store::handle::{ATTRIBUTE, Handle};
use stripewise_store::{Inode, Pool, Store, lock_byte};

const POOL: &str = "STRIPEWISE_TEST_POOL";
const ARGUMENT: &str = "STRIPEWISE_TEST_ARGUMENT";

/// Runs test `name` of this binary again as a process of its own, which finds [`inherited`] set.
fn spawn(name: &str, pool: &TestPool, argument: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(POOL, &pool.pool.file)
        .env(ARGUMENT, argument.to_string())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

/// In a process that [`spawn`] started: the pool's store, its file `file`, and the argument.
fn inherited() -> Option<(Arc<Store>, Arc<Inode>, u64)> {
    let pool = std::env::var_os(POOL)?;
    let store = Store::open(Pool::load(Path::new(&pool)).unwrap()).unwrap();
    let inode = store.lookup(Path::new("file")).unwrap().unwrap();
    let argument = std::env::var(ARGUMENT).unwrap().parse().unwrap();
    Some((store, inode, argument))
}

fn kill(mut child: Child) {
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
}

#[test]
fn four_processes_append_and_lose_nothing() {
    const RECORDS: u64 = 150;
    if let Some((_store, inode, me)) = inherited() {
        inode.register_writer().unwrap();
        for record in 0..RECORDS {
            let len = 20 + (record * 37 + me * 11) % 200;
            let text = format!("{me} {record} {}\n", "x".repeat(len as usize));
            assert_eq!(inode.append(text.as_bytes()).unwrap().1, text.len());
        }
        inode.release_writer().unwrap();
        return;
    }
    let pool = TestPool::new(3);
    let store = pool.open();
    store
        .set_rule(&stripewise_layout::Pattern::new("file").unwrap(), &layout(&[(0, &[(0, 100), (1, 64), (2, 300)])]))
        .unwrap();
    let (_fd, inode) = create(&store, "file");
    let children: Vec<_> = (0..4).map(|me| spawn("four_processes_append_and_lose_nothing", &pool, me)).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let text = String::from_utf8(content(&inode)).unwrap();
    let mut next = [0; 4];
    for line in text.lines() {
        let mut words = line.split(' ');
        let [me, record, filling] = std::array::from_fn(|_| words.next().unwrap());
        let (me, record): (usize, u64) = (me.parse().unwrap(), record.parse().unwrap());
        assert_eq!(record, next[me], "records of one process stay in order, none is missing");
        assert_eq!(filling.len() as u64, 20 + (record * 37 + me as u64 * 11) % 200);
        next[me] += 1;
    }
    assert_eq!(next, [RECORDS; 4]);
    assert!(!inode.has_writers().unwrap());
}

#[test]
fn threads_with_one_store_append_and_lose_nothing() {
    let pool = TestPool::new(2);
    let store = pool.open();
    let (_fd, inode) = create(&store, "file");
    std::thread::scope(|scope| {
        for me in 0..4_u8 {
            let inode = &inode;
            scope.spawn(move || {
                inode.register_writer().unwrap();
                for _ in 0..100 {
                    inode.append(&[b'a' + me; 33]).unwrap();
                }
                inode.release_writer().unwrap();
            });
        }
    });
    let bytes = content(&inode);
    assert_eq!(bytes.len(), 4 * 100 * 33);
    assert!(bytes.chunks(33).all(|record| record.iter().all(|byte| *byte == record[0])));
}

#[test]
fn the_size_survives_a_killed_writer() {
    if let Some((_store, inode, _)) = inherited() {
        inode.register_writer().unwrap();
        write_all(&inode, &pattern(9000, 1), 20_000);
        std::process::abort();
    }
    let pool = TestPool::new(3);
    let store = pool.open();
    let (_fd, inode) = create(&store, "file");
    assert!(!spawn("the_size_survives_a_killed_writer", &pool, 0).wait().unwrap().success());
    assert_eq!(inode.size_bytes().unwrap(), 29_000, "before anybody put it in order");
    assert!(!inode.has_writers().unwrap());
    assert_eq!(std::fs::read_dir(pool.pool.namespace.join("locks")).unwrap().count(), 0);
    // Now the inode itself has it.
    let real = std::fs::metadata(pool.pool.namespace.join("tree/file")).unwrap();
    assert_eq!(real.len(), 29_000);
    assert!(content(&inode)[20_000..] == pattern(9000, 1));
}

/// Counts files below the servers' directories whose name begins with the file's handle.
fn datafiles(pool: &TestPool, inode: &Inode) -> usize {
    let prefix = format!("{:016x}.", inode.handle());
    let inner = format!("{:02x}", inode.handle() & 0xff);
    let roots = pool.pool.servers.iter().map(|server| server.root.join(&inner));
    let names = roots.filter_map(|root| std::fs::read_dir(root).ok()).flatten();
    names.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(&prefix)).count()
}

/// The datafiles of a file on two servers, which share their directories with those of no other, with their bytes.
fn datafiles_of(pool: &TestPool, inode: &Inode) -> Vec<(PathBuf, Vec<u8>)> {
    let inner = format!("{:02x}", inode.handle() & 0xff);
    let directories = (0..2).map(|server| pool.root(server).join(&inner));
    let old = directories.flat_map(|directory| std::fs::read_dir(directory).unwrap()).map(|entry| {
        let path = entry.unwrap().path();
        (path.clone(), std::fs::read(path).unwrap())
    });
    old.collect()
}

#[test]
fn a_mover_killed_at_any_time_leaves_the_bytes() {
    let layouts = || {
        [
            layout(&[(0, &[(0, 4096), (1, 65536)])]),
            layout(&[(0, &[(0, 4096), (1, 65536)]), (500_000, &[(2, 1000), (3, 3000), (0, 5000)])]),
            layout(&[(0, &[(0, 4096), (1, 65536)]), (200_000, &[(2, 7000)]), (500_000, &[(0, 4096), (1, 65536)])]),
            layout(&[(0, &[(3, 70_000)]), (700_000, &[(1, 512), (2, 512)])]),
            layout(&[(0, &[(u16::MAX, 4096)]), (300_000, &[(2, 1000), (3, 3000), (0, 5000)])]),
        ]
    };
    if let Some((_store, inode, start)) = inherited() {
        for round in start as usize.. {
            inode.move_to(&layouts()[round % 5], "file", &mut |_, _| true).unwrap();
        }
    }
    let pool = TestPool::new(4);
    let store = pool.open();
    let (_fd, inode) = create(&store, "file");
    let bytes = pattern(1_000_003, 3);
    write(&inode, &bytes, 0);
    let mut seen = std::collections::HashSet::new();
    // On a busy machine a first move takes longer than all of these pauses.
    for round in 0..2_500_u64 {
        if round >= 25 && seen.len() > 1 {
            break;
        }
        let child = spawn("a_mover_killed_at_any_time_leaves_the_bytes", &pool, round % 5);
        std::thread::sleep(Duration::from_micros((8_000 + round * 3_331 % 60_000) * (1 + round / 25)));
        kill(child);
        assert!(content(&inode) == bytes, "round {round}");
        seen.insert(inode.layout().unwrap().to_bytes());
        // The next writer that registers puts it in order.
        inode.register_writer().unwrap();
        inode.release_writer().unwrap();
        assert!(content(&inode) == bytes, "round {round}, in order");
        let placement = inode.placement().unwrap();
        let table = placement.datafiles().unwrap().table;
        let present = (0..table.len()).filter(|&index| placement.present.contains(index)).count();
        assert_eq!(datafiles(&pool, &inode), present, "round {round}: leftovers");
        assert_eq!(inode.size_bytes().unwrap() as usize, bytes.len());
    }
    assert!(seen.len() > 1, "the moves were killed before the first one ended: the test tested nothing");
}

/// A mover is killed when it has switched the handle and has not reported it: programs with the file open know the old
/// layout, by which nothing must be freed.
#[test]
fn a_move_that_nobody_was_told_of_is_finished_by_its_own_layout() {
    let pool = TestPool::new(2);
    let (here, elsewhere) = (pool.open(), pool.open());
    let (fd, inode) = create(&here, "file");
    inode.move_to(&layout(&[(0, &[(0, 4096), (1, 4096)])]), "file", &mut |_, _| true).unwrap();
    let bytes = pattern(100_000, 3);
    write(&inode, &bytes, 0);
    assert!(content(&inode) == bytes);
    let epochs = std::fs::read(pool.pool.namespace.join("epoch")).unwrap();
    let old = datafiles_of(&pool, &inode);
    let other = elsewhere.lookup(Path::new("file")).unwrap().unwrap();
    other.move_to(&layout(&[(0, &[(u16::MAX, 4096)])]), "file", &mut |_, _| true).unwrap();

    // As it was just after the switch.
    let mut attribute = [0; 4096];
    let length = rustix::fs::fgetxattr(&fd, ATTRIBUTE, &mut attribute[..]).unwrap();
    let mut handle = Handle::decode(&attribute[..length]).unwrap();
    handle.truncating_to = Some(bytes.len() as u64);
    rustix::fs::fsetxattr(&fd, ATTRIBUTE, &handle.encode().unwrap(), XattrFlags::REPLACE).unwrap();
    for (path, content) in &old {
        std::fs::write(path, content).unwrap();
    }
    std::fs::write(pool.pool.namespace.join(format!("locks/{:016x}", inode.handle())), b"").unwrap();
    set_epochs(&pool, &epochs);

    inode.register_writer().unwrap();
    inode.release_writer().unwrap();
    assert!(content(&inode) == bytes);
    assert!(content(&other) == bytes);
    assert_eq!(datafiles(&pool, &inode), 0, "the old generation is gone");
}

/// Puts the counters of all files back, or on.
fn set_epochs(pool: &TestPool, epochs: &[u8]) {
    // In place, for it is mapped.
    let page = std::fs::File::options().write(true).open(pool.pool.namespace.join("epoch")).unwrap();
    page.write_all_at(epochs, 0).unwrap();
}

/// Has the handle of the file behind `fd` say what `change` makes of it, and tells the file's users, as a process does that dies then.
fn change_handle(pool: &TestPool, fd: &OwnedFd, change: impl FnOnce(&mut Handle)) {
    let mut attribute = [0; 4096];
    let length = rustix::fs::fgetxattr(fd, ATTRIBUTE, &mut attribute[..]).unwrap();
    let mut handle = Handle::decode(&attribute[..length]).unwrap();
    change(&mut handle);
    rustix::fs::fsetxattr(fd, ATTRIBUTE, &handle.encode().unwrap(), XattrFlags::REPLACE).unwrap();
    let mut epochs = std::fs::read(pool.pool.namespace.join("epoch")).unwrap();
    for counter in epochs.chunks_exact_mut(4) {
        let next = u32::from_ne_bytes(counter.try_into().unwrap()).wrapping_add(1);
        counter.copy_from_slice(&next.to_ne_bytes());
    }
    set_epochs(pool, &epochs);
}

/// Two writers wait for a mover, which is killed when it has switched: the file is cut off where it ended then, and what they write
/// behind that stays.
#[test]
fn who_waits_for_a_mover_that_is_killed_finishes_it_first() {
    let pool = TestPool::new(2);
    let (store, other) = (pool.open(), pool.open());
    let (fd, inode) = create(&store, "file");
    let bytes = pattern(100_000, 3);
    write(&inode, &bytes, 0);
    let lock = pool.pool.namespace.join(format!("locks/{:016x}", inode.handle()));
    let mover = std::fs::File::options().write(true).create_new(true).open(lock).unwrap();
    lock_byte(mover.as_fd(), 0, libc::F_WRLCK, false).unwrap();
    let writers = [inode.clone(), other.lookup(Path::new("file")).unwrap().unwrap()];
    std::thread::scope(|scope| {
        for (number, writer) in writers.iter().enumerate() {
            scope.spawn(move || write(writer, &pattern(30_000, 7), 90_000 + 30_000 * number as u64));
        }
        std::thread::sleep(Duration::from_millis(200));
        change_handle(&pool, &fd, |handle| handle.truncating_to = Some(100_000));
        drop(mover);
    });
    let whole = [&bytes[..90_000], &pattern(30_000, 7), &pattern(30_000, 7)].concat();
    assert!(content(&inode) == whole);
    // The next writer clears away the rest, and cuts nothing off.
    write(&inode, &whole[..10], 0);
    assert!(content(&inode) == whole);
    assert!(content(&pool.open().lookup(Path::new("file")).unwrap().unwrap()) == whole);
}

/// A mover is killed when it has switched the handle beside a writer, and before it has told of it: readers that know the former places
/// learn of the new ones before the writer changes a byte there.
#[test]
fn what_is_written_after_a_mover_was_killed_is_read_by_who_knows_the_former_places() {
    for is_registered in [true, false] {
        let pool = TestPool::new(2);
        let (store, readers, movers) = (pool.open(), pool.open(), pool.open());
        let (fd, inode) = create(&store, "file");
        inode.move_to(&layout(&[(0, &[(0, 4096), (1, 4096)])]), "file", &mut |_, _| true).unwrap();
        inode.register_writer().unwrap();
        write_all(&inode, &pattern(100_000, 3), 0);
        let reader = readers.lookup(Path::new("file")).unwrap().unwrap();
        change_handle(&pool, &fd, |_| ());
        assert!(content(&reader) == pattern(100_000, 3));
        let epochs = std::fs::read(pool.pool.namespace.join("epoch")).unwrap();
        let old = datafiles_of(&pool, &inode);
        let mover = movers.lookup(Path::new("file")).unwrap().unwrap();
        mover.move_to(&layout(&[(0, &[(1, 65_536)])]), "file", &mut |_, _| true).unwrap();

        // As it was just after the switch.
        change_handle(&pool, &fd, |handle| handle.truncating_to = Some(MAX_OFFSET));
        for (path, content) in &old {
            std::fs::write(path, content).unwrap();
        }
        set_epochs(&pool, &epochs);

        let young = pattern(100_000, 4);
        if is_registered {
            write_all(&inode, &young, 0);
        } else {
            let writer = pool.open().lookup(Path::new("file")).unwrap().unwrap();
            write(&writer, &young, 0);
        }
        assert!(content(&reader) == young, "registered before: {is_registered}");
        inode.release_writer().unwrap();
        assert!(content(&inode) == young);
    }
}

/// A process is killed in the middle of a truncation beside a writer of another one: what that writes afterwards stays.
#[test]
fn what_is_written_beside_a_truncation_that_was_killed_stays() {
    let pool = TestPool::new(2);
    let (store, other) = (pool.open(), pool.open());
    let (fd, inode) = create(&store, "file");
    let bytes = pattern(100_000, 3);
    write(&inode, &bytes, 0);
    let writer = other.lookup(Path::new("file")).unwrap().unwrap();
    writer.register_writer().unwrap();
    write_all(&writer, &bytes[..10], 0);
    change_handle(&pool, &fd, |handle| handle.truncating_to = Some(50_000));
    write_all(&writer, &bytes[60_000..90_000], 60_000);
    let whole = [&bytes[..50_000], &[0; 10_000], &bytes[60_000..90_000]].concat();
    assert!(content(&writer) == whole);
    writer.release_writer().unwrap();
    write(&inode, &whole[..10], 0);
    assert!(content(&inode) == whole);
}

#[test]
fn a_truncation_killed_at_any_time_is_whole() {
    let bytes = pattern(300_000, 5);
    if let Some((_store, inode, seed)) = inherited() {
        for round in seed.. {
            inode.truncate(round * 7919 % 300_000).unwrap();
            write(&inode, &bytes, 0);
        }
    }
    let pool = TestPool::new(4);
    let store = pool.open();
    let (_fd, inode) = create(&store, "file");
    for round in 0..20_u64 {
        let child = spawn("a_truncation_killed_at_any_time_is_whole", &pool, round * 13);
        std::thread::sleep(Duration::from_micros(8_000 + round * 3_331 % 30_000));
        kill(child);
        assert!(!inode.has_writers().unwrap());
        let found = content(&inode);
        assert!(found.len() <= bytes.len());
        assert!(found.iter().zip(&bytes).all(|(found, put)| found == put || *found == 0), "round {round}");
        // What was cut off does not come back.
        inode.truncate(10_000.min(found.len() as u64)).unwrap();
        inode.truncate(300_000).unwrap();
        assert!(content(&inode)[10_000..].iter().all(|&byte| byte == 0), "round {round}");
    }
}
