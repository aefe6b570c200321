//! Open files without a mount: a file without a handle is served as one whose layout says that all is in its inode.

mod common;

use common::{TestPool, create, layout, pattern};
use rustix::fd::AsFd as _;
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stripewise_control::{Sender, Way};
use stripewise_layout::{Layout, Pattern};
use stripewise_store::pool::ProfileSource;
use stripewise_store::{Error, File, Files, OpenInode, Pool};

const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// A pool with the empty files `without`, which has no handle, and `with`, whose handle names the layout `[meta]`.
fn two_files() -> (TestPool, Arc<Files>) {
    let pool = TestPool::new(2);
    let files = Files::open(pool.open().pool().clone()).unwrap();
    files.store().set_rule(&Pattern::new("with").unwrap(), &layout(&[(0, &[(u16::MAX, 64 << 10)])])).unwrap();
    files.open_file(Path::new("with"), OFlags::WRONLY | OFlags::CREATE, MODE).unwrap().close().unwrap();
    std::fs::write(pool.pool.namespace.join("tree/without"), "").unwrap();
    (pool, files)
}

fn read(file: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    let count = file.read_at(&mut [IoSliceMut::new(&mut bytes)], offset).unwrap();
    bytes.truncate(count);
    bytes
}

/// What a program sees of a file after it has done something with it.
fn seen(files: &Arc<Files>, name: &str) -> Vec<String> {
    let mut seen = Vec::new();
    let open = |flags| files.open_file(Path::new(name), flags, MODE).unwrap();
    let file = open(OFlags::RDWR);
    seen.push(format!("{:?}", file.layout().unwrap()));
    seen.push(format!("{:?}", file.write(&[IoSlice::new(&pattern(5000, 1)), IoSlice::new(b"end")])));
    seen.push(format!("{:?}", file.write_at(&[IoSlice::new(b"far")], 1 << 20)));
    let at = |seen: &mut Vec<String>, file: &File, to| {
        seen.push(format!("{:?}", file.seek(to).map_err(|error| error.errno())))
    };
    for to in [
        SeekFrom::Data(10),
        SeekFrom::Hole(0),
        SeekFrom::Data(64 << 10),
        SeekFrom::Hole(2 << 20),
        SeekFrom::End(-3),
        SeekFrom::Current(1),
    ] {
        at(&mut seen, &file, to);
    }
    seen.push(format!("{:?}", [read(&file, 4990, 100), read(&file, 1 << 20, 100), read(&file, 2 << 20, 5)]));
    let appends = open(OFlags::WRONLY | OFlags::APPEND);
    seen.push(format!("{:?}", appends.write(&[IoSlice::new(b"one "), IoSlice::new(b"record")])));
    at(&mut seen, &appends, SeekFrom::Current(0));
    seen.push(format!("{:?}", appends.write_at(&[IoSlice::new(b"two")], 0)));
    seen.push(format!("{:?}", appends.read_at(&mut [IoSliceMut::new(&mut [0])], 0).unwrap_err().errno()));
    file.allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096).unwrap();
    file.allocate(FallocateFlags::empty(), 2 << 20, 100).unwrap();
    seen.push(format!("{} {}", file.stat().unwrap().st_size, files.stat(Path::new(name), true).unwrap().st_size));
    file.truncate(1 << 20).unwrap();
    file.sync(true).unwrap();
    file.sync(false).unwrap();
    let reads = open(OFlags::RDONLY);
    seen.push(format!("{:?}", blake3::hash(&read(&reads, 0, 2 << 20))));
    seen.push(format!("{:?}", reads.write_at(&[IoSlice::new(b"x")], 0).unwrap_err().errno()));
    [file, appends, reads].into_iter().for_each(|file| file.close().unwrap());
    drop(open(OFlags::RDWR | OFlags::TRUNC));
    seen.push(format!("{}", files.stat(Path::new(name), true).unwrap().st_size));
    let last = open(OFlags::RDWR);
    files.unlink(Path::new(name)).unwrap();
    seen.push(format!("{:?}", last.write_at(&[IoSlice::new(b"x")], 0)));
    last.close().unwrap();
    seen
}

#[test]
fn a_file_without_a_handle_is_one_with_the_layout_meta() {
    let (_pool, files) = two_files();
    let (with, without) = (seen(&files, "with"), seen(&files, "without"));
    assert_eq!(with, without);
    assert_eq!(without[0], format!("{:?}", Layout::in_inode()));
}

#[test]
fn a_file_without_a_handle_stays_where_it_is() {
    let (pool, files) = two_files();
    let place = files.store().open_place(Path::new("without")).unwrap();
    let inode = files.store().file(place.as_fd(), false).unwrap();
    assert!(!inode.has_handle() && files.inode(Path::new("without")).unwrap().is_none());
    let moved = inode.move_to(&pool.pool.default_layout(), "without", &mut |_, _| true);
    assert!(matches!(moved, Err(Error::NotPlaced { .. })), "{moved:?}");
}

/// A program that runs cannot be written, not even by those who read it meanwhile; afterwards they can write it. What only reads a
/// file without a handle keeps no process from running it.
#[test]
fn an_inode_that_was_read_while_it_was_run_can_be_written_afterwards() {
    let (pool, files) = two_files();
    for name in ["with", "without"] {
        let path = pool.pool.namespace.join("tree").join(name);
        std::fs::copy("/bin/sleep", &path).unwrap();
        let run = || std::process::Command::new(&path).arg("1000").spawn().unwrap();
        let end = |mut program: std::process::Child| {
            program.kill().unwrap();
            program.wait().unwrap();
        };
        let mut program = run();
        let place = files.store().open_place(Path::new(name)).unwrap();
        let inode = files.store().file(place.as_fd(), false).unwrap();
        assert_eq!(inode.open_to_change(place.as_fd()).unwrap_err().errno(), Errno::TXTBSY);
        assert_eq!(files.open_file(Path::new(name), OFlags::WRONLY, MODE).unwrap_err().errno(), Errno::TXTBSY);
        if !inode.has_handle() {
            end(program);
            program = run();
        }
        end(program);
        inode.open_to_change(place.as_fd()).unwrap();
        let (reader, writer) = (OpenInode::new(inode.clone(), false, true), OpenInode::new(inode, true, true));
        writer.register().unwrap();
        let sender = Sender::thread(Way::Library, 0);
        assert_eq!(writer.write_at(sender, &[IoSlice::new(b"written")], 1).unwrap(), 7);
        let mut bytes = [0; 8];
        assert_eq!(reader.read_at(sender, &mut [IoSliceMut::new(&mut bytes)], 0).unwrap(), 8);
        assert_eq!(&bytes, b"\x7fwritten");
        writer.release().unwrap();
    }
}

/// Each request on the bytes of inodes is charged once, whatever the way: one buffer, several, an append, or a region beside
/// others.
#[test]
fn an_emulated_metadata_tier_serves_what_inodes_hold() {
    let pool = TestPool::new(2);
    let file = &pool.pool.file;
    let op = "{ startup = [\"0.1ms\", \"0.1ms\"], bandwidth = \"1GB/s\" }";
    let text =
        format!("{}\n[meta]\nemulate = {{ read = {op}, write = {op} }}\n", std::fs::read_to_string(file).unwrap());
    std::fs::write(file, text).unwrap();
    let emulated = Pool::load(file).unwrap();
    assert_eq!(emulated.meta.profile.1, ProfileSource::Emulation);
    let files = Files::open(emulated.clone()).unwrap();
    let mixed = layout(&[(0, &[(u16::MAX, 4096)]), (8192, &[(0, 4096), (1, 4096)])]);
    files.store().set_rule(&Pattern::new("with").unwrap(), &layout(&[(0, &[(u16::MAX, 64 << 10)])])).unwrap();
    files.store().set_rule(&Pattern::new("mixed").unwrap(), &mixed).unwrap();
    std::fs::write(pool.pool.namespace.join("tree/without"), "").unwrap();
    let statistics = || {
        let [(name, done)] = &emulated.emulation_statistics().unwrap()[..] else { panic!("one server is emulated") };
        assert_eq!(name, "meta");
        (done.read.requests, done.read.bytes, done.write.requests, done.write.bytes)
    };
    let (mut before, bytes) = (statistics(), pattern(16_384, 1));
    assert_eq!(before, (0, 0, 0, 0));
    let mut since = || {
        let now = statistics();
        let since = (now.0 - before.0, now.1 - before.1, now.2 - before.2, now.3 - before.3);
        before = now;
        since
    };
    for name in ["without", "with"] {
        let open = |flags| files.open_file(Path::new(name), OFlags::CREATE | flags, MODE).unwrap();
        let (file, appending) = (open(OFlags::RDWR), open(OFlags::WRONLY | OFlags::APPEND));
        // Operations on names are charged, too.
        since();
        file.write_at(&[IoSlice::new(&bytes[..10_000])], 0).unwrap();
        file.write_at(&[IoSlice::new(&bytes[10_000..11_000]), IoSlice::new(&bytes[11_000..12_000])], 10_000).unwrap();
        appending.write(&[IoSlice::new(&bytes[12_000..])]).unwrap();
        assert_eq!(since(), (0, 0, 3, 16_384), "{name}");
        assert!(read(&file, 0, 16_384) == bytes);
        assert_eq!(since(), (1, 16_384, 0, 0), "{name}");
    }
    let file = files.open_file(Path::new("mixed"), OFlags::CREATE | OFlags::RDWR, MODE).unwrap();
    since();
    file.write_at(&[IoSlice::new(&bytes)], 0).unwrap();
    assert!(read(&file, 0, 16_384) == bytes);
    assert_eq!(since(), (1, 8192, 1, 8192));
}

#[test]
fn a_change_of_owner_that_changes_none_has_no_process_look_again() {
    let pool = TestPool::new(2);
    let files = Files::open(pool.pool.clone()).unwrap();
    let file = files.open_file(Path::new("f"), OFlags::RDWR | OFlags::CREATE, MODE).unwrap();
    file.write_at(&[IoSlice::new(b"some bytes")], 0).unwrap();
    let inode = files.inode(Path::new("f")).unwrap().unwrap();
    let epoch = || inode.placement().unwrap().epoch;
    let before = epoch();
    inode.change_owner(|| Ok(()), || unreachable!()).unwrap();
    assert_eq!(epoch(), before);
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root gives files away");
        return;
    }
    let give = || {
        std::os::unix::fs::chown(pool.pool.namespace.join("tree/f"), Some(1234), Some(1234)).unwrap();
        Ok(())
    };
    inode.change_owner(give, || unreachable!()).unwrap();
    assert_ne!(epoch(), before);
    assert_eq!(file.read_at(&mut [IoSliceMut::new(&mut [0; 10])], 0).unwrap(), 10);
}

/// Another process makes datafiles, or moves the file, while it is given away: all datafiles are the new owner's in the end.
#[test]
fn a_file_that_is_given_away_takes_along_what_is_made_meanwhile() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root gives files away");
        return;
    }
    for moves in [false, true] {
        let pool = TestPool::new(3);
        let files = Files::open(pool.pool.clone()).unwrap();
        let file = files.open_file(Path::new("f"), OFlags::RDWR | OFlags::CREATE, MODE).unwrap();
        let bytes = pattern(30_000, 1);
        if moves {
            file.write_at(&[IoSlice::new(&bytes)], 0).unwrap();
        }
        file.close().unwrap();
        let inode = files.inode(Path::new("f")).unwrap().unwrap();
        let give = || {
            let other = pool.open().lookup(Path::new("f")).unwrap().unwrap();
            if moves {
                other.move_to(&common::layout(&[(0, &[(2, 4096)])]), "f", &mut |_, _| true).unwrap();
            } else {
                common::write(&other, &bytes, 0);
            }
            std::os::unix::fs::chown(pool.pool.namespace.join("tree/f"), Some(1234), Some(1234)).unwrap();
            Ok(())
        };
        inode.change_owner(give, || unreachable!()).unwrap();
        let opened = Files::open(pool.pool.clone()).unwrap().open_file(Path::new("f"), OFlags::RDONLY, MODE).unwrap();
        let mut found = vec![0; 40_000];
        assert_eq!(opened.read_at(&mut [IoSliceMut::new(&mut found)], 0).unwrap(), bytes.len());
        assert!(found[..bytes.len()] == bytes);
    }
}

/// Another process cuts the file off again and again: a writer that asks for the places meanwhile waits for that, and goes there itself
/// afterwards as before.
#[test]
fn a_cut_of_another_takes_no_writer_from_its_way_past_the_mount() {
    let pool = TestPool::new(2);
    let [here, there] = [pool.open(), pool.open()];
    let (fd, inode) = create(&here, "a");
    let other = there.inode(fd.as_fd()).unwrap().unwrap();
    inode.register_writer().unwrap();
    common::write_all(&inode, &pattern(100_000, 3), 0);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..300 {
                other.truncate([100_000, 20_000][round % 2]).unwrap();
                common::write(&other, &pattern(100_000, 3), 0);
            }
            is_done.store(true, Ordering::Release);
        });
        while !is_done.load(Ordering::Acquire) {
            assert!(inode.placement_for(true).unwrap().bypass);
        }
    });
    inode.release_writer().unwrap();
}
