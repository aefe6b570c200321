//! Writers of a file's head alone: they need no lock file, and no layout changes under them.

mod common;

use common::{TestPool, layout, pattern};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use stripewise_layout::Pattern;
use stripewise_store::{Files, OpenInode, Store};

/// Bytes of the head.
const HEAD: u64 = 8192;

/// A file `f` with a head, and these bytes.
fn make(pool: &TestPool, bytes: &[u8]) {
    let store = pool.open();
    let with_head = store.default_layout().with_head_in_inode(HEAD).unwrap();
    store.set_rule(&Pattern::new("f").unwrap(), &with_head).unwrap();
    let (_, inode) = common::create(&store, "f");
    common::write(&inode, bytes, 0);
}

/// Names in the directory of lock files.
fn lock_files(pool: &TestPool) -> usize {
    std::fs::read_dir(pool.pool.namespace.join("locks")).unwrap().count()
}

fn open(store: &Arc<Store>, name: &str) -> OpenInode {
    OpenInode::new(store.lookup(Path::new(name)).unwrap().unwrap(), true, false)
}

#[test]
fn a_writer_of_the_head_needs_no_lock_file_and_keeps_the_layout() {
    let pool = TestPool::new(2);
    make(&pool, b"");
    let (store, other) = (pool.open(), pool.open());
    let bytes = pattern(20_000, 3);
    let striped = layout(&[(0, &[(0, 4096), (1, 4096)])]);
    let moved = || {
        let inode = other.lookup(Path::new("f")).unwrap().unwrap();
        inode.move_to(&striped, "f", &mut |_, _| true).map(|_| ())
    };
    let writer = open(&store, "f");
    assert!(!writer.register_up_to(8192).unwrap(), "it is no writer of the rest");
    writer.inode().write_at(&bytes[..8192], 0).unwrap();
    assert_eq!((lock_files(&pool), writer.inode().has_writers().unwrap()), (0, true));
    assert!(other.lookup(Path::new("f")).unwrap().unwrap().is_held().unwrap());
    assert!(moved().unwrap_err().to_string().contains("open for writing"), "another process sees it");
    let inode = writer.inode().clone();
    assert!(inode.move_to(&striped, "f", &mut |_, _| true).is_err(), "and so does this one");
    assert_eq!(lock_files(&pool), 0, "what was refused has left nothing");
    // Behind the border it is a writer as any other.
    assert!(writer.register_up_to(8193).unwrap());
    assert_eq!(lock_files(&pool), 1);
    inode.write_at(&bytes[8192..], 8192).unwrap();
    writer.release().unwrap();
    assert_eq!((lock_files(&pool), inode.has_writers().unwrap()), (0, false));
    moved().unwrap();
    assert_eq!(common::content(&inode), bytes);
    // It has no head any more.
    assert!(writer.register_up_to(1).unwrap());
    writer.release().unwrap();
}

#[test]
fn a_file_that_another_process_moves_gets_no_writer_of_its_head() {
    let pool = TestPool::new(2);
    let bytes = pattern(8000, 4);
    make(&pool, &bytes);
    let (store, other) = (pool.open(), pool.open());
    let writer = open(&store, "f");
    let mut asked = false;
    let inode = other.lookup(Path::new("f")).unwrap().unwrap();
    let done = inode.move_to(&layout(&[(0, &[(0, 4096)])]), "f", &mut |_, _| {
        // It would have to wait, so that it tries without waiting.
        asked = !writer.inode().try_register_writer().unwrap();
        true
    });
    done.unwrap();
    assert!(asked);
    assert!(writer.register_up_to(100).unwrap(), "the file has no head any more");
    writer.inode().write_at(b"new", 0).unwrap();
    writer.release().unwrap();
    assert_eq!(&common::content(&inode)[..4], [b"new", &bytes[3..4]].concat());
}

#[test]
fn a_truncation_within_the_head_needs_no_lock_file() {
    let pool = TestPool::new(2);
    let bytes = pattern(30_000, 5);
    make(&pool, &bytes[..5000]);
    let store = pool.open();
    let inode = store.lookup(Path::new("f")).unwrap().unwrap();
    inode.truncate(10).unwrap();
    assert_eq!(common::content(&inode), &bytes[..10]);
    // Longer than the head, but in no datafile: a hole.
    inode.truncate(20_000).unwrap();
    inode.truncate(8192).unwrap();
    assert_eq!(common::content(&inode)[..12], [&bytes[..10], &[0, 0]].concat());
    // With datafiles all of it is cut.
    common::write(&inode, &bytes, 0);
    inode.truncate(10).unwrap();
    inode.truncate(30_000).unwrap();
    assert_eq!(common::content(&inode), [&bytes[..10], &[0; 29_990]].concat());
    assert_eq!(lock_files(&pool), 0);
}

/// By the store's own interface, as `import stripewise` uses it.
#[test]
fn an_open_file_becomes_a_writer_of_the_rest_when_it_has_to() {
    let pool = TestPool::new(2);
    let bytes = pattern(20_000, 6);
    make(&pool, &bytes[..100]);
    let files = Files::open(pool.pool.clone()).unwrap();
    let write = |flags, offset: u64, from: usize, to: usize| {
        let file = files.open_file(Path::new("f"), flags, Mode::empty()).unwrap();
        assert_eq!(file.write_at(&[IoSlice::new(&bytes[from..to])], offset).unwrap(), to - from);
        (lock_files(&pool), file)
    };
    let (locks, file) = write(OFlags::RDWR, 100, 100, 8192);
    assert_eq!(locks, 0);
    file.truncate(8000).unwrap();
    assert_eq!(lock_files(&pool), 0);
    file.close().unwrap();
    let (locks, appending) = write(OFlags::WRONLY | OFlags::APPEND, 0, 8000, 12_000);
    assert_eq!(locks, 1);
    let (locks, beside) = write(OFlags::WRONLY, 12_000, 12_000, 20_000);
    assert_eq!(locks, 1);
    appending.close().unwrap();
    beside.close().unwrap();
    let (locks, allocating) = write(OFlags::RDWR, 0, 0, 10);
    assert_eq!(locks, 1, "it has datafiles");
    allocating.allocate(FallocateFlags::KEEP_SIZE, 0, 30_000).unwrap();
    allocating.close().unwrap();
    assert_eq!(lock_files(&pool), 0);
    let inode = files.inode(Path::new("f")).unwrap().unwrap();
    assert_eq!(common::content(&inode), bytes);
}
