//! The data plane by itself, as the preload uses it, and beside moves.

mod common;

use common::{TestPool, content, create, layout, pattern, request, write, write_all};
use proptest::prelude::*;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use stripewise_control::Action;
use stripewise_layout::Pattern;
use stripewise_store::fsck::{CheckFinding, CheckOptions, check};
use stripewise_store::pool::{PoolSpec, TierSpec};
use stripewise_store::{
    DataPlane, Error, Inode, PlacedFile, Placement, PlaneOptions, Pool, Store, Then, TransferOutcome,
};

/// The placement as it arrives in another process.
fn arrive(inode: &Inode) -> Placement {
    Placement::from_bytes(&inode.placement().unwrap().to_bytes()).unwrap()
}

/// Reads `len` bytes at `offset` as the preload does; the size comes from the mount.
fn read(file: &PlacedFile, inode: &Inode, offset: u64, len: usize) -> Result<Vec<u8>, TransferOutcome> {
    let mut out = vec![0xee; len];
    match file
        .read_at(
            &request(Action::Read, offset, len),
            &mut [IoSliceMut::new(&mut out)],
            offset,
            &mut || inode.size_bytes(),
            &mut |_, _| Ok(()),
        )
        .unwrap()
    {
        TransferOutcome::Done(count) => {
            out.truncate(count);
            Ok(out)
        }
        other => Err(other),
    }
}

#[test]
fn what_one_way_writes_the_other_reads() {
    let pool = TestPool::new(3);
    let store = pool.open();
    let (_fd, inode) = create(&store, "file");
    inode.register_writer().unwrap();
    let plane = DataPlane::open(&pool.pool, PlaneOptions { descriptor_floor: 200, ..PlaneOptions::default() }).unwrap();
    let file = PlacedFile::new(plane, arrive(&inode), None).unwrap();

    // Nothing exists yet: holes to read, and a write that asks for its datafiles.
    assert_eq!(read(&file, &inode, 0, 100), Ok(vec![]));
    let bytes = pattern(10_000, 1);
    let TransferOutcome::Absent(indexes) =
        file.write_at(&request(Action::Write, 0, bytes.len()), &[IoSlice::new(&bytes)], 0).unwrap()
    else {
        panic!()
    };
    assert_eq!(indexes[..], [0, 1, 2]);
    inode.ensure_datafiles(file.placement().version, &indexes).unwrap();
    assert_eq!(
        file.write_at(&request(Action::Write, 0, bytes.len()), &[IoSlice::new(&bytes)], 0).unwrap(),
        TransferOutcome::Stale
    );
    assert!(file.refresh(&arrive(&inode)));
    assert_eq!(
        file.write_at(&request(Action::Write, 0, bytes.len()), &[IoSlice::new(&bytes)], 0).unwrap(),
        TransferOutcome::Done(10_000)
    );
    assert!(content(&inode) == bytes);

    // The other way round, with a hole between.
    write_all(&inode, b"end", 20_000);
    let mut expected = bytes.clone();
    expected.resize(20_000, 0);
    expected.extend(b"end");
    assert_eq!(read(&file, &inode, 0, 30_000).unwrap(), expected);
    inode.release_writer().unwrap();

    // A move: this placement ends, its successor serves.
    inode.move_to(&layout(&[(0, &[(2, 777)])]), "file", &mut |_, _| true).unwrap();
    assert_eq!(read(&file, &inode, 0, 10), Err(TransferOutcome::Stale));
    assert!(!file.refresh(&arrive(&inode)), "another version needs another file");
    let plane = DataPlane::open(&pool.pool, PlaneOptions::default()).unwrap();
    let file = PlacedFile::new(plane, arrive(&inode), None).unwrap();
    assert_eq!(read(&file, &inode, 0, 30_000).unwrap(), expected);
}

#[test]
fn bytes_of_the_inode_are_left_to_the_mount() {
    let pool = TestPool::new(2);
    let store = pool.open();
    store
        .set_rule(&Pattern::new("*").unwrap(), &layout(&[(0, &[(u16::MAX, 1)]), (5000, &[(1, 64), (0, 64)])]))
        .unwrap();
    let (_fd, inode) = create(&store, "small");
    let bytes = pattern(9000, 2);
    write(&inode, &bytes, 0);
    assert_eq!(std::fs::read(pool.pool.namespace.join("tree/small")).unwrap()[..5000], bytes[..5000]);
    let file = PlacedFile::new(store.plane().clone(), arrive(&inode), None).unwrap();
    let mut size = || inode.size_bytes();
    let read_inode = file.read_at(
        &request(Action::Read, 4000, 2000),
        &mut [IoSliceMut::new(&mut [0; 2000])],
        4000,
        &mut size,
        &mut |_, _| Ok(()),
    );
    assert!(matches!(read_inode, Err(Error::Elsewhere)), "{read_inode:?}");
    assert_eq!(read(&file, &inode, 5000, 9000).unwrap(), bytes[5000..]);
    let written = file.write_at(&request(Action::Write, 4999, 1), &[IoSlice::new(b"x")], 4999);
    assert!(matches!(written, Err(Error::Elsewhere)), "{written:?}");
}

#[test]
fn descriptors_stay_above_the_floor() {
    let pool = TestPool::new(2);
    let store = pool.open();
    let (_fd, inode) = create(&store, "file");
    write(&inode, &pattern(9000, 2), 0);
    let numbers = || {
        let names = std::fs::read_dir("/proc/self/fd").unwrap();
        let numbers = names.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse::<i32>().unwrap());
        numbers.filter(|number| *number >= 700).count()
    };
    let plane = DataPlane::open(&pool.pool, PlaneOptions { descriptor_floor: 700, ..PlaneOptions::default() }).unwrap();
    let file = PlacedFile::new(plane, arrive(&inode), None).unwrap();
    read(&file, &inode, 0, 9000).unwrap();
    assert_eq!(numbers(), 4, "two servers' directories, two datafiles");
    drop(file);
    assert_eq!(numbers(), 0, "all closed again");
}

#[test]
fn readers_go_on_while_a_file_moves() {
    let pool = TestPool::new(4);
    let store = pool.open();
    let (_fd, inode) = create(&store, "file");
    let bytes = pattern(400_000, 9);
    write(&inode, &bytes, 0);
    let stop = AtomicBool::new(false);
    let readers: Vec<(Arc<Store>, Arc<Inode>)> = (0..2)
        .map(|_| {
            let store = pool.open();
            let inode = store.lookup(Path::new("file")).unwrap().unwrap();
            (store, inode)
        })
        .collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = readers
            .iter()
            .map(|(_, reader)| {
                let (stop, bytes) = (&stop, &bytes);
                scope.spawn(move || {
                    let mut rounds = 0;
                    while !stop.load(Ordering::Relaxed) {
                        assert!(content(reader) == *bytes);
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        let layouts = [
            layout(&[(0, &[(3, 1000), (2, 3000)])]),
            layout(&[(0, &[(3, 1000), (2, 3000)]), (100_000, &[(u16::MAX, 1)]), (200_000, &[(0, 512), (1, 9)])]),
            layout(&[(0, &[(3, 1000), (2, 3000)]), (150_000, &[(0, 100_000)])]),
            layout(&[(0, &[(3, 1000), (2, 3000)]), (30_000, &[(1, 100)]), (90_000, &[(3, 1000), (2, 3000)])]),
        ];
        for round in 0..30 {
            inode.move_to(&layouts[round % 4], "file", &mut |_, _| true).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            assert!(thread.join().unwrap() > 0);
        }
    });
}

/// Names of all datafiles of a server with the numbers of their inodes, and the space that they take in bytes.
fn datafiles_on(pool: &TestPool, server: usize) -> (Vec<(String, u64)>, u64) {
    let directories = std::fs::read_dir(pool.root(server)).unwrap().map(|entry| entry.unwrap().path());
    let files = directories.filter(|path| path.is_dir()).flat_map(|path| std::fs::read_dir(path).unwrap());
    let mut taken_bytes = 0;
    let mut names: Vec<_> = files
        .map(|entry| {
            let (entry, stat) = (entry.as_ref().unwrap(), entry.as_ref().unwrap().metadata().unwrap());
            taken_bytes += stat.blocks() * 512;
            (entry.file_name().into_string().unwrap(), stat.ino())
        })
        .collect();
    names.sort();
    (names, taken_bytes)
}

/// A part in the middle of a region goes elsewhere and comes back: nothing else is copied, each datafile around it stays, and
/// its space is given back.
#[test]
fn only_the_part_that_changes_is_copied() {
    const MIB: u64 = 1 << 20;
    let pool = TestPool::new(3);
    let store = pool.open();
    let (_fd, inode) = create(&store, "file");
    let whole: &[(u16, u64)] = &[(0, 65_536), (1, 65_536)];
    inode.move_to(&layout(&[(0, whole)]), "file", &mut |_, _| true).unwrap();
    let mut bytes = pattern(8 * MIB as usize + 5, 3);
    write(&inode, &bytes, 0);
    let (before, taken_bytes) = datafiles_on(&pool, 0);
    let split = layout(&[(0, whole), (2 * MIB, &[(2, 4096)]), (4 * MIB, whole)]);
    let reader = store.lookup(Path::new("file")).unwrap().unwrap();
    let forecast = store.check_moves([("file", &*inode, &split)]).unwrap();
    assert_eq!(forecast.moved_bytes, [2 * MIB]);
    let moved = inode.move_to(&split, "file", &mut |_, _| true).unwrap();
    assert_eq!((moved.copied_bytes, moved.kept_bytes), (2 * MIB, 6 * MIB + 5));
    assert!(content(&reader) == bytes);
    let (names, split_bytes) = datafiles_on(&pool, 0);
    assert_eq!(names, before, "the datafile is the one that was there");
    assert_eq!(split_bytes, taken_bytes - MIB, "what has gone gives its space back");
    // Behind the cut the file goes on growing where it was, and is cut there.
    let young = pattern(300_000, 5);
    write(&inode, &young, bytes.len() as u64);
    bytes.extend(young);
    assert!(content(&reader) == bytes);
    inode.truncate(8 * MIB + 4).unwrap();
    bytes.truncate(8 * MIB as usize + 4);
    let moved = inode.move_to(&layout(&[(0, whole)]), "file", &mut |_, _| true).unwrap();
    assert_eq!(moved.copied_bytes, 2 * MIB);
    assert!(content(&reader) == bytes);
    assert_eq!(datafiles_on(&pool, 0).0.len(), 2, "one for what has come back");
    assert!(datafiles_on(&pool, 2).0.is_empty());
    assert!(inode.is_held().is_ok_and(|held| !held));
    let again = inode.move_to(&layout(&[(0, whole)]), "file", &mut |_, _| true).unwrap();
    assert_eq!(again.copied_bytes, 0);
}

/// Times that a move is asked what to do next before a writer that does not come fails the test.
const PATIENCE: u32 = 3000;

/// In another process than the mover's: opens the file for writing, and writes.
fn write_from_elsewhere(store: &Arc<Store>, bytes: &[u8], at: u64) {
    let writer = store.lookup(Path::new("file")).unwrap().unwrap();
    writer.register_writer().unwrap();
    write_all(&writer, bytes, at);
    writer.release_writer().unwrap();
}

/// A move rests until a writer of another process comes, gives way to it and leaves nothing; then it is done.
#[test]
fn a_move_gives_way_to_a_writer_that_comes() {
    let pool = TestPool::new(3);
    let (store, other) = (pool.open(), pool.open());
    store.set_rule(&Pattern::new("*").unwrap(), &layout(&[(0, &[(0, 4096), (1, 4096)])])).unwrap();
    let (_fd, inode) = create(&store, "file");
    let mut bytes = pattern(5_000_000, 9);
    write(&inode, &bytes, 0);
    let before = inode.layout().unwrap();
    let (new, young) = (layout(&[(0, &[(2, 777)])]), pattern(70_000, 3));
    std::thread::scope(|scope| {
        let mut asked = 0;
        let error = inode
            .move_watched(&new, "file", true, &mut |done, total| {
                assert!(done <= total && total == 10_000_000);
                if asked == 0 {
                    scope.spawn(|| write_from_elsewhere(&other, &young, 1_000_000));
                }
                asked += 1;
                if asked < PATIENCE { Then::Rest } else { Then::Stop }
            })
            .unwrap_err();
        assert!(matches!(error.cause(), Error::Busy { .. }), "{error}");
    });
    bytes[1_000_000..1_070_000].copy_from_slice(&young);
    assert!(content(&inode) == bytes);
    assert_eq!(inode.layout().unwrap(), before);
    assert!(inode.allocated().unwrap().iter().all(|(server, _)| server.0 < 2));
    assert!(!inode.is_held().unwrap(), "nothing is left of both");
    inode.move_watched(&new, "file", true, &mut |_, _| Then::On).unwrap();
    assert!(content(&inode) == bytes);
}

/// A move that does not give way is waited for, also while it rests.
#[test]
fn a_writer_waits_for_a_move_that_does_not_give_way() {
    let pool = TestPool::new(2);
    let (store, other) = (pool.open(), pool.open());
    let (_fd, inode) = create(&store, "file");
    let mut bytes = pattern(200_000, 9);
    write(&inode, &bytes, 0);
    std::thread::scope(|scope| {
        let mut asked = 0;
        let moved = inode.move_watched(&layout(&[(0, &[(1, 777)])]), "file", false, &mut |_, _| {
            if asked == 0 {
                scope.spawn(|| write_from_elsewhere(&other, b"young", 100_000));
            }
            asked += 1;
            if asked < 20 { Then::Rest } else { Then::On }
        });
        assert_eq!(moved.unwrap().copied_bytes, 200_000);
    });
    bytes[100_000..100_005].copy_from_slice(b"young");
    assert!(content(&inode) == bytes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Writers of another process come at any step of moves that give way, rest and are stopped: no byte is lost.
    #[test]
    fn writers_lose_nothing_beside_moves_that_give_way(
        size in 1_usize..3_000_000,
        moves in proptest::collection::vec((0_u32..8, 0_u32..6, 0_u64..3_000_000, 1_usize..100_000, any::<bool>()), 1..5),
    ) {
        let pool = TestPool::new(3);
        let (store, other) = (pool.open(), pool.open());
        let (_fd, inode) = create(&store, "file");
        let mut bytes = pattern(size, 1);
        write(&inode, &bytes, 0);
        for (number, (comes, rests, at, len, stops)) in moves.into_iter().enumerate() {
            let new = layout(&[(0, &[(number as u16 % 3, 4096 + number as u64)])]);
            let young = pattern(len, 7 + number as u64);
            let written = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let mut asked = 0;
                let done = inode.move_watched(&new, "file", true, &mut |_, _| {
                    if asked == comes {
                        scope.spawn(|| {
                            write_from_elsewhere(&other, &young, at);
                            written.store(true, Ordering::Release);
                        });
                    }
                    asked += 1;
                    match asked {
                        _ if asked <= rests => Then::Rest,
                        _ if stops => Then::Stop,
                        _ => Then::On,
                    }
                });
                if let Err(error) = done {
                    assert!(error.errno() == Errno::BUSY || error.to_string().contains("was stopped"), "{error}");
                }
            });
            if written.into_inner() {
                let end = at as usize + len;
                bytes.resize(bytes.len().max(end), 0);
                bytes[at as usize..end].copy_from_slice(&young);
            }
            assert!(content(&inode) == bytes, "after move {number}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, ..ProptestConfig::default() })]

    /// Two processes have the file open for writing all the time, and write and free at any step of its moves: each move is done, and
    /// no byte is lost.
    #[test]
    fn moves_go_on_beside_writers(
        size in 1_usize..3_000_000,
        moves in proptest::collection::vec(proptest::collection::vec((0_u64..3_000_000, 1_usize..200_000, 0_u8..4), 1..6), 1..5),
    ) {
        let pool = TestPool::new(3);
        let (store, other) = (pool.open(), pool.open());
        let (_fd, inode) = create(&store, "file");
        let mut bytes = pattern(size, 1);
        let elsewhere = other.lookup(Path::new("file")).unwrap().unwrap();
        [&inode, &elsewhere].iter().for_each(|writer| writer.register_writer().unwrap());
        write_all(&inode, &bytes, 0);
        for (number, writes) in moves.into_iter().enumerate() {
            let number = number as u64;
            let stripes = [(number as u16 % 3, 4096 + number), ((number as u16 + 1) % 3, 5000)];
            let new = layout(&[(0, &stripes[..1]), (1 << 20, &stripes)]);
            let mut left = writes.into_iter();
            let moved = inode.move_watched(&new, "file", true, &mut |done, total| {
                assert!(done <= total);
                let Some((at, len, how)) = left.next() else { return Then::On };
                let (writer, end) = (if how % 2 == 0 { &inode } else { &elsewhere }, at as usize + len);
                if how == 3 {
                    writer.allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, len as u64).unwrap();
                    let end = end.min(bytes.len());
                    bytes[end.min(at as usize)..end].fill(0);
                } else {
                    let young = pattern(len, number + at);
                    write_all(writer, &young, at);
                    bytes.resize(bytes.len().max(end), 0);
                    bytes[at as usize..end].copy_from_slice(&young);
                }
                Then::Rest
            });
            moved.unwrap();
            assert_eq!(*elsewhere.layout().unwrap(), new);
            assert!(content(&inode) == bytes && content(&elsewhere) == bytes, "after move {number}");
            assert_eq!(elsewhere.size_bytes().unwrap(), bytes.len() as u64);
        }
        [&inode, &elsewhere].iter().for_each(|writer| writer.release_writer().unwrap());
        assert!(!inode.is_held().unwrap() && content(&pool.open().lookup(Path::new("file")).unwrap().unwrap()) == bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// A process writes, cuts, lengthens, closes and opens a file at any step of its moves, which may stay where it is: its bytes and its
    /// size are those of a plain file.
    #[test]
    fn a_file_that_moves_is_what_its_writers_made_of_it(
        size in 1_usize..2_000_000,
        moves in proptest::collection::vec(proptest::collection::vec((0_u64..2_500_000, 1_usize..100_000, 0_u8..6), 1..7), 1..5),
    ) {
        let pool = TestPool::new(3);
        let (store, other) = (pool.open(), pool.open());
        let (_fd, inode) = create(&store, "file");
        let mut bytes = pattern(size, 1);
        write(&inode, &bytes, 0);
        let writer = other.lookup(Path::new("file")).unwrap().unwrap();
        writer.register_writer().unwrap();
        let mut is_open = true;
        for (number, work) in moves.into_iter().enumerate() {
            let stripes = [(number as u16 % 3, 4096 + number as u64), ((number as u16 + 1) % 3, 5000)];
            let new = layout(&[(0, &stripes[..1]), (1 << 20, &stripes)]);
            let mut left = work.into_iter();
            let moved = inode.move_watched(&new, "file", true, &mut |_, _| {
                let Some((at, len, how)) = left.next() else { return Then::On };
                match how {
                    0 | 1 if is_open => {
                        let (young, end) = (pattern(len, number as u64 + at), at as usize + len);
                        write_all(&writer, &young, at);
                        bytes.resize(bytes.len().max(end), 0);
                        bytes[at as usize..end].copy_from_slice(&young);
                    }
                    2 | 3 if is_open => {
                        writer.truncate(at).unwrap();
                        bytes.resize(at as usize, 0);
                    }
                    4 if is_open => {
                        writer.release_writer().unwrap();
                        is_open = false;
                    }
                    // Beside a move of a file without writers it would wait for this very thread.
                    5 if !is_open && inode.is_held().unwrap() => {
                        writer.register_writer().unwrap();
                        is_open = true;
                    }
                    _ => {}
                }
                Then::On
            });
            if let Err(error) = moved {
                assert_eq!(error.errno(), Errno::BUSY, "{error}");
            }
            assert!(content(&inode) == bytes && content(&writer) == bytes, "after move {number}");
            if !is_open {
                writer.register_writer().unwrap();
                is_open = true;
            }
        }
        writer.release_writer().unwrap();
        assert!(content(&pool.open().lookup(Path::new("file")).unwrap().unwrap()) == bytes);
    }
}

#[test]
fn zeros_at_the_end_of_a_file_that_moves_beside_its_writer_stay() {
    let pool = TestPool::new(3);
    let (_fd, inode) = create(&pool.open(), "file");
    inode.register_writer().unwrap();
    let mut bytes = pattern(1_000_000, 1);
    bytes.resize(1_200_000, 0);
    write_all(&inode, &bytes, 0);
    for server in [2, 1] {
        inode.move_watched(&layout(&[(0, &[(server, 777)])]), "file", true, &mut |_, _| Then::On).unwrap();
        assert_eq!(inode.size_bytes().unwrap(), 1_200_000);
        assert!(content(&inode) == bytes);
    }
    inode.release_writer().unwrap();
}

/// Nor does the mover read them, also where the writer fills one meanwhile, or punches far behind the end.
#[test]
fn holes_stay_holes_beside_a_writer() {
    let pool = TestPool::new(3);
    let (_fd, inode) = create(&pool.open(), "file");
    inode.register_writer().unwrap();
    let size = 64 << 20;
    inode.truncate(size).unwrap();
    let mut bytes = vec![0; size as usize];
    for at in [0, 20 << 20, 63 << 20] {
        bytes[at..at + 100_000].copy_from_slice(&pattern(100_000, at as u64));
        write_all(&inode, &bytes[at..at + 100_000], at as u64);
    }
    let elsewhere = pool.open().lookup(Path::new("file")).unwrap().unwrap();
    elsewhere.register_writer().unwrap();
    let (is_begun, at) = (AtomicBool::new(false), 40 << 20);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let moved = inode.move_watched(&layout(&[(0, &[(2, 7777)])]), "file", true, &mut |_, _| {
        if !is_begun.swap(true, Ordering::Relaxed) {
            write_all(&elsewhere, &pattern(5000, 4), at as u64);
            elsewhere.allocate(punch, 63 << 20, 1 << 43).unwrap();
            // Not every file system has so large files.
            let _ = elsewhere.allocate(punch, 1 << 40, 1 << 61);
        }
        Then::On
    });
    bytes[at..at + 5000].copy_from_slice(&pattern(5000, 4));
    bytes[63 << 20..].fill(0);
    let moved = moved.unwrap();
    assert!(is_begun.into_inner() && moved.copied_bytes < 2 << 20, "{moved:?}");
    let locks = std::fs::read_dir(pool.pool.namespace.join("locks")).unwrap();
    let marks: Vec<u64> = locks.map(|of| of.unwrap().metadata().unwrap().len()).collect();
    assert!(marks.iter().all(|&count| count <= size >> 16), "{marks:?}");
    elsewhere.release_writer().unwrap();
    inode.release_writer().unwrap();
    assert!(content(&pool.open().lookup(Path::new("file")).unwrap().unwrap()) == bytes);
}

/// What cannot be copied again is not moved under its writer.
#[test]
fn a_file_that_is_cut_while_it_moves_stays() {
    let pool = TestPool::new(3);
    let (store, other) = (pool.open(), pool.open());
    let (_fd, inode) = create(&store, "file");
    let bytes = pattern(1_000_000, 9);
    let elsewhere = other.lookup(Path::new("file")).unwrap().unwrap();
    elsewhere.register_writer().unwrap();
    write_all(&elsewhere, &bytes, 0);
    let (before, new) = (inode.layout().unwrap(), layout(&[(0, &[(2, 777)])]));
    let mut is_cut = false;
    let error = inode
        .move_watched(&new, "file", true, &mut |_, _| {
            if !std::mem::replace(&mut is_cut, true) {
                elsewhere.truncate(300_000).unwrap();
                elsewhere.truncate(400_000).unwrap();
            }
            Then::On
        })
        .unwrap_err();
    assert!(is_cut && matches!(error, Error::Busy { .. }), "{error}");
    assert!(matches!(inode.move_to(&new, "file", &mut |_, _| true), Err(Error::Busy { .. })), "as long as it is open");
    let expected = [&bytes[..300_000], &[0; 100_000]].concat();
    assert!(content(&inode) == expected && content(&elsewhere) == expected);
    assert_eq!(inode.layout().unwrap(), before);
    elsewhere.release_writer().unwrap();
    inode.move_to(&new, "file", &mut |_, _| true).unwrap();
    assert!(content(&inode) == expected);
}

/// A process cuts a file off while it moves, and is a writer of it no more when the move would switch: nothing comes back.
#[test]
fn a_cut_while_a_file_moves_stays_also_when_its_writer_has_gone() {
    for (size, longer, cut) in [(1_000_000, 1_000_000, 300_000), (100_000, 3_000_000, 2_000_000)] {
        for others in [false, true] {
            let pool = TestPool::new(3);
            let (store, other) = (pool.open(), pool.open());
            let (_fd, inode) = create(&store, "file");
            let elsewhere = other.lookup(Path::new("file")).unwrap().unwrap();
            elsewhere.register_writer().unwrap();
            write_all(&elsewhere, &pattern(size, 9), 0);
            elsewhere.truncate(longer).unwrap();
            let mut is_cut = false;
            let moved = inode.move_watched(&layout(&[(0, &[(2, 777)])]), "file", true, &mut |_, _| {
                if !std::mem::replace(&mut is_cut, true) {
                    if others {
                        let third = pool.open().lookup(Path::new("file")).unwrap().unwrap();
                        third.truncate(cut).unwrap();
                    } else {
                        elsewhere.truncate(cut).unwrap();
                        elsewhere.release_writer().unwrap();
                    }
                }
                Then::On
            });
            assert!(is_cut && matches!(moved, Err(Error::Busy { .. })), "{moved:?}");
            let mut expected = pattern(size, 9);
            expected.resize(cut as usize, 0);
            for process in [&inode, &elsewhere] {
                assert_eq!(process.size_bytes().unwrap(), cut);
                assert!(content(process) == expected);
            }
            if others {
                elsewhere.release_writer().unwrap();
            }
            inode.move_to(&layout(&[(0, &[(2, 777)])]), "file", &mut |_, _| true).unwrap();
            assert!(content(&pool.open().lookup(Path::new("file")).unwrap().unwrap()) == expected);
        }
    }
}

/// What a move that was killed has left is all there is of the bytes, where the file's own datafiles have gone.
#[test]
fn leftovers_stay_where_a_datafile_of_the_file_has_gone() {
    let pool = TestPool::new(2);
    let store = pool.open();
    let (_fd, inode) = create(&store, "file");
    inode.move_to(&layout(&[(0, &[(0, 4096)])]), "file", &mut |_, _| true).unwrap();
    write(&inode, &pattern(50_000, 3), 0);
    let datafile = |server: usize, generation: u32| {
        let handle = inode.handle();
        pool.root(server).join(format!("{:02x}/{handle:016x}.{generation:08x}", handle & 0xff))
    };
    let found = (1..5).map(|generation| datafile(0, generation)).find(|path| path.exists()).unwrap();
    let version = inode.placement().unwrap().version;
    std::fs::create_dir_all(datafile(1, version + 1).parent().unwrap()).unwrap();
    std::fs::rename(found, datafile(1, version + 1)).unwrap();
    let error = inode.move_to(&layout(&[(0, &[(1, 4096)])]), "file", &mut |_, _| true).unwrap_err();
    assert!(error.to_string().contains("is missing"), "{error}");
    let other = pool.open().lookup(Path::new("file")).unwrap().unwrap();
    other.register_writer().unwrap();
    let _ = other.release_writer();
    assert!(std::fs::read(datafile(1, version + 1)).unwrap() == pattern(50_000, 3));
}

/// A process that has moved a file beside its writers dies: the writers go on, and who comes after them clears away what it has left.
#[test]
fn a_move_beside_writers_that_dies_leaves_the_file_to_them() {
    let pool = TestPool::new(3);
    let (store, other) = (pool.open(), pool.open());
    let (_fd, inode) = create(&store, "file");
    let mut bytes = pattern(1_000_000, 9);
    inode.register_writer().unwrap();
    write_all(&inode, &bytes, 0);
    let mover = other.lookup(Path::new("file")).unwrap().unwrap();
    let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        mover.move_watched(&layout(&[(0, &[(2, 777)])]), "file", true, &mut |_, _| panic!("in the middle of a move"))
    }));
    assert!(died.is_err());
    drop((mover, other));
    let young = pattern(2_000_000, 3);
    write_all(&inode, &young, 500_000);
    bytes.truncate(500_000);
    bytes.extend(young);
    inode.truncate(2_400_000).unwrap();
    bytes.truncate(2_400_000);
    inode.release_writer().unwrap();
    let after = pool.open().lookup(Path::new("file")).unwrap().unwrap();
    assert!(content(&after) == bytes && !after.is_held().unwrap());
    let options = CheckOptions { dry_run: true, ..CheckOptions::default() };
    let found: Mutex<Vec<CheckFinding>> = Mutex::default();
    check(&pool.pool, &options, &found).unwrap();
    assert!(found.lock().unwrap().is_empty(), "{found:?}");
}

#[test]
fn emulated_servers_charge_what_was_transferred() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path();
    let tier = TierSpec {
        name: "ssd".into(),
        servers: vec![base.join("a"), base.join("b")],
        emulate: Some("nvme".into()),
        ..TierSpec::default()
    };
    let spec = PoolSpec {
        name: "test".into(),
        mount: base.join("mount"),
        namespace: base.join("names"),
        default_width_bytes: Some(4096),
        tiers: vec![tier],
    };
    let pool = Pool::init(&base.join("pool.toml"), &spec).unwrap();
    let store = Store::open(pool.clone()).unwrap();
    let (_fd, inode) = create(&store, "file");
    let bytes = pattern(4096 * 4, 1);
    write(&inode, &bytes, 0);
    let mut buf = vec![0; 1 << 20];
    assert_eq!(inode.read_at(&mut buf, 4096).unwrap(), 4096 * 3);
    assert!(buf[..4096 * 3] == bytes[4096..]);
    assert_eq!(inode.read_at(&mut buf, 4096 * 4).unwrap(), 0, "the end of the file");
    for (server, reads) in pool.servers.iter().zip([(1, 4096), (1, 2 * 4096)]) {
        let directory = std::fs::File::open(&server.root).unwrap();
        let statistics = stripewise_store::emulate::Device::observe(&directory).unwrap().unwrap();
        assert_eq!((statistics.write.requests, statistics.write.bytes), (1, 2 * 4096));
        assert_eq!((statistics.read.requests, statistics.read.bytes), reads);
    }
}
