//! Files whose handles say more than this release understands: they are read on their plain path, and are not written where that could
//! break what a later release promises of their bytes.

mod common;

use common::life::findings;
use common::{TestPool, hint, layout, pattern};
use rustix::fs::{Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::Arc;
use stripewise_optimisation::{CACHED, READAHEAD, SMALL, WRITEBEHIND};
use stripewise_store::fsck::DamageKind;
use stripewise_store::handle::{ATTRIBUTE, Handle};
use stripewise_store::{Error, Files};

const BYTES: usize = 30_000;

fn open(files: &Arc<Files>, flags: OFlags) -> stripewise_store::Result<stripewise_store::File> {
    files.open_file(Path::new("f"), flags, Mode::from_raw_mode(0o600))
}

/// A pool with a file, whose handle then has `index` with `parameters`.
fn with(index: u32, parameters: u64) -> TestPool {
    let pool = TestPool::new(3);
    let file = open(&Files::open(pool.pool.clone()).unwrap(), OFlags::RDWR | OFlags::CREATE).unwrap();
    assert_eq!(file.write_at(&[IoSlice::new(&pattern(BYTES, 1))], 0).unwrap(), BYTES);
    file.close().unwrap();
    change_handle(&pool, |handle| handle.optimisations.enable(index, parameters).unwrap());
    pool
}

fn change_handle(pool: &TestPool, change: impl FnOnce(&mut Handle)) {
    let inode = pool.pool.namespace.join("tree/f");
    let mut bytes = [0; 4096];
    let length = rustix::fs::getxattr(&inode, ATTRIBUTE, &mut bytes[..]).unwrap();
    let mut handle = Handle::decode(&bytes[..length]).unwrap();
    change(&mut handle);
    rustix::fs::setxattr(&inode, ATTRIBUTE, &handle.encode().unwrap(), XattrFlags::REPLACE).unwrap();
}

fn is_read(files: &Arc<Files>) {
    let file = open(files, OFlags::RDONLY).unwrap();
    let mut bytes = vec![0; BYTES + 1];
    assert_eq!(file.read_at(&mut [IoSliceMut::new(&mut bytes)], 0).unwrap(), BYTES);
    assert_eq!(bytes[..BYTES], pattern(BYTES, 1));
    assert_eq!(file.stat().unwrap().st_size as usize, BYTES);
    file.close().unwrap();
}

#[test]
fn what_says_only_how_requests_are_served_changes_nothing_where_it_is_not_understood() {
    let longer_than_any = READAHEAD.parameters[0].most + 4096;
    let unusable = [(15, 7), (READAHEAD.index, longer_than_any), (READAHEAD.index, 1 << 58), (SMALL.index, 1)];
    for (index, parameters) in unusable.into_iter().chain([(CACHED.index, 1 << 55), (WRITEBEHIND.index, 0)]) {
        let pool = with(index, parameters);
        let files = Files::open(pool.pool.clone()).unwrap();
        is_read(&files);
        let file = open(&files, OFlags::RDWR).unwrap();
        assert_eq!(file.write_at(&[IoSlice::new(&pattern(BYTES, 1)[5..])], 5).unwrap(), BYTES - 5);
        file.truncate(BYTES as u64 + 1).unwrap();
        file.truncate(BYTES as u64).unwrap();
        file.close().unwrap();
        let inode = files.store().lookup(Path::new("f")).unwrap().unwrap();
        inode.move_to(&layout(&[(0, &[(1, 4096)])]), "f", &mut |_, _| true).unwrap();
        is_read(&files);
        let made_with = files.store().status(Path::new("f")).unwrap().placed.unwrap().made_with;
        assert_eq!(made_with.parameters(index), Some(parameters), "it is kept for the release that understands it");
        assert!(findings(&pool).is_empty(), "{:?}", findings(&pool));
    }
}

#[test]
fn what_promises_something_of_the_bytes_keeps_the_file_from_being_changed() {
    let pool = with(30, 7);
    let files = Files::open(pool.pool.clone()).unwrap();
    is_read(&files);
    let refused = |done: stripewise_store::Result<()>| {
        let error = done.unwrap_err();
        assert_eq!(error.errno(), Errno::ROFS);
        let said = error.to_string();
        assert!(said.contains("tree/f: ") && said.contains("optimisation 30 of a later release"), "{said}");
        is_read(&files);
    };
    for flags in [OFlags::RDWR, OFlags::WRONLY | OFlags::APPEND, OFlags::RDWR | OFlags::TRUNC] {
        refused(open(&files, flags).map(drop));
    }
    let inode = files.store().lookup(Path::new("f")).unwrap().unwrap();
    refused(inode.register_writer());
    refused(inode.try_register_writer().map(drop));
    refused(inode.truncate(10));
    let to = layout(&[(0, &[(1, 4096)])]);
    refused(inode.move_to(&to, "f", &mut |_, _| true).map(drop));
    drop(inode);
    assert!(findings(&pool).is_empty(), "{:?}", findings(&pool));
    // What its own release has left half-way stays for that release, too.
    change_handle(&pool, |handle| handle.truncating_to = Some(100));
    let half = Files::open(pool.pool.clone()).unwrap();
    assert!(matches!(open(&half, OFlags::RDONLY), Err(Error::LaterOptimisation { index: 30, .. })));
    let told = findings(&pool);
    assert_eq!(told.iter().map(|finding| finding.kind).collect::<Vec<_>>(), [DamageKind::LaterHandle], "{told:?}");
    change_handle(&pool, |handle| handle.truncating_to = None);
    is_read(&Files::open(pool.pool.clone()).unwrap());
    files.unlink(Path::new("f")).unwrap();
    assert!(findings(&pool).is_empty(), "{:?}", findings(&pool));
}

/// Its head is in the inode, whose writers need no lock file.
#[test]
fn the_head_of_such_a_file_is_not_written_either() {
    let pool = TestPool::new(3);
    let files = Files::open(pool.pool.clone()).unwrap();
    hint(&files, &["small=64K"]);
    let file = open(&files, OFlags::RDWR | OFlags::CREATE).unwrap();
    assert_eq!(file.write_at(&[IoSlice::new(&pattern(BYTES, 1))], 0).unwrap(), BYTES);
    file.close().unwrap();
    change_handle(&pool, |handle| handle.optimisations.enable(30, 7).unwrap());
    let files = Files::open(pool.pool.clone()).unwrap();
    is_read(&files);
    assert_eq!(open(&files, OFlags::RDWR).map(drop).unwrap_err().errno(), Errno::ROFS);
    let inode = files.store().lookup(Path::new("f")).unwrap().unwrap();
    assert_eq!(inode.truncate(5).unwrap_err().errno(), Errno::ROFS);
    is_read(&files);
}
