//! The data plane by itself, as the preload uses it, and beside moves.

mod common;

use common::{TestPool, content, create, layout, pattern, request, write, write_all};
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stripewise_control::Action;
use stripewise_layout::Pattern;
use stripewise_store::pool::{PoolSpec, TierSpec};
use stripewise_store::{DataPlane, Error, Inode, PlacedFile, Placement, PlaneOptions, Pool, Store, TransferOutcome};

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
        ];
        for round in 0..30 {
            inode.move_to(&layouts[round % 3], "file", &mut |_, _| true).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            assert!(thread.join().unwrap() > 0);
        }
    });
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
