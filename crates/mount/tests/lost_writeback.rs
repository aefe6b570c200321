//! A server's disk that takes what is written and cannot write it back: the kernel tells each open file of that once, and drops the
//! bytes. The writer is told, whether its file has moved meanwhile or not, and no move takes what the disk has in their place.

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use common::loop_disk::LoopDisk;
use common::{Mounted, TestPool};
use stripewise_layout::{Layout, ServerId, Stripe};
use stripewise_store::drain::{DrainOptions, DrainWatch, drain};
use stripewise_store::{Error, Inode, Store, Then};

/// Synced before the disk is full, and written after it is, each.
const BYTES: usize = 6 << 20;

fn bytes(seed: usize) -> Vec<u8> {
    (0..BYTES).map(|at| (at / 7 + at % 5 + seed * 31) as u8 | 1).collect()
}

fn inode(pool: &TestPool, name: &str) -> Arc<Inode> {
    let store = Store::of_file(&pool.file()).unwrap();
    store.existing(Path::new(name)).unwrap().expect("a placed file")
}

/// All of it on one server.
fn on(server: u16) -> Layout {
    Layout::new([(0, vec![Stripe { server: ServerId(server), width_bytes: 4096 }])]).unwrap()
}

/// Has `test` work on a file whose second half the disk of `s1` did not take, with what wrote it.
fn when_lost(options: &str, test: impl FnOnce(&TestPool, &LoopDisk, &File)) {
    let pool = TestPool::new();
    let Some(disk) = LoopDisk::thin(&pool, "s1") else {
        eprintln!("not tested: no ext4 on a loop device here");
        return;
    };
    let mounted = Mounted::new(&pool, "mnt", options);
    let writer = File::options().read(true).write(true).create_new(true).open(mounted.path("f")).unwrap();
    writer.write_all_at(&bytes(1), 0).unwrap();
    writer.sync_all().unwrap();
    disk.write_back();
    disk.fill();
    writer.write_all_at(&bytes(2), BYTES as u64).unwrap();
    disk.write_back();
    test(&pool, &disk, &writer);
    drop(writer);
    drop(mounted);
}

fn is_told(writer: &File, options: &str) {
    let told = writer.sync_all().unwrap_err();
    assert!([Some(libc::EIO), Some(libc::ENOSPC)].contains(&told.raw_os_error()), "{options}: {told}");
}

/// Once the disk has room: what is written again is kept, and moves.
fn goes_on(pool: &TestPool, disk: &LoopDisk, writer: &File) {
    disk.relieve();
    writer.write_all_at(&bytes(2), BYTES as u64).unwrap();
    writer.sync_all().unwrap();
    inode(pool, "f").move_to(&on(2), "f", &mut |_, _| true).unwrap();
    disk.write_back();
    let mut found = vec![0; 2 * BYTES];
    writer.read_exact_at(&mut found, 0).unwrap();
    assert!(found == [bytes(1), bytes(2)].concat());
}

#[test]
fn a_file_with_bytes_that_its_disk_did_not_take_does_not_move_and_its_writer_is_told() {
    for options in ["noatime", "noatime,nopassthrough"] {
        when_lost(options, |pool, disk, writer| {
            let error = inode(pool, "f").move_to(&on(0), "f", &mut |_, _| true).unwrap_err();
            let Error::Move { source, .. } = &error else { panic!("{options}: {error}") };
            assert!(matches!(**source, Error::NotWrittenBack { .. }), "{options}: {error}");
            let layout = inode(pool, "f").layout().unwrap();
            assert_eq!(layout.regions()[0].stripes().len(), 3, "{options}: the file is where it was");
            is_told(writer, options);
            goes_on(pool, disk, writer);
        });
    }
}

/// A drain tries a file again and again, and the kernel tells of it once.
#[test]
fn a_drain_leaves_the_file_where_it_is_and_names_it() {
    struct Quiet;
    impl DrainWatch for Quiet {
        fn progress(&mut self, _: &str, _: u64, _: u64) -> Then {
            Then::On
        }
    }
    when_lost("noatime,nopassthrough", |pool, disk, writer| {
        let server = Store::of_file(&pool.file()).unwrap().pool().servers[1].name.clone();
        let drained = drain(&pool.file(), &server, &DrainOptions::default(), &mut Quiet).unwrap();
        let [file] = &drained.staying[..] else { panic!("{drained:?}") };
        assert!(file.path == "f" && file.why.contains("has not taken all that was written"), "{}", file.why);
        assert!(names(&inode(pool, "f").layout().unwrap(), ServerId(1)));
        is_told(writer, "drain");
        goes_on(pool, disk, writer);
    });
}

fn names(layout: &Layout, server: ServerId) -> bool {
    layout.servers().contains(&server)
}

/// The mover has told of it once, and the next one finds nothing any more: the writer is told by its next sync all the same.
#[test]
fn a_writer_is_told_after_a_move_that_follows_one_that_was_refused() {
    for options in ["noatime", "noatime,nopassthrough"] {
        when_lost(options, |pool, disk, writer| {
            let file = inode(pool, "f");
            file.move_to(&on(0), "f", &mut |_, _| true).unwrap_err();
            inode(pool, "f").move_to(&on(0), "f", &mut |_, _| true).unwrap();
            is_told(writer, options);
            goes_on(pool, disk, writer);
        });
    }
}
