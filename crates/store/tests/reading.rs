//! Reading what was written: large requests over many rounds, and descriptors that cannot write. Operations at random are in
//! crates/conformance.

mod common;

use common::{TestPool, content, create, pattern};
use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags};

/// The sizes that the issue names: widths of 4 KiB to 16 MiB, some 100 MB, one request over many rounds.
#[test]
fn wide_stripes_and_large_requests() {
    let pool = TestPool::new(3);
    let store = pool.open();
    let wide = common::layout(&[
        (0, &[(0, 4096), (1, 65536), (2, 16 << 20)]),
        (33_000_001, &[(2, 4096)]),
        (35_000_000, &[(1, 12_345), (0, 1 << 20)]),
    ]);
    store.set_rule(&stripewise_layout::Pattern::new("**").unwrap(), &wide).unwrap();
    let (_fd, inode) = create(&store, "big");
    let bytes = pattern(50_000_000, 7);
    common::write(&inode, &bytes, 0);
    assert!(content(&inode) == bytes);
    inode.move_to(&pool.pool.default_layout(), "big", &mut |_, _| true).unwrap();
    assert!(content(&inode) == bytes);
}

#[test]
fn a_read_only_descriptor_is_enough_to_read() {
    let pool = TestPool::new(2);
    let store = pool.open();
    let (_fd, inode) = create(&store, "file");
    common::write(&inode, b"hello", 10_000);
    drop(inode);
    let fd = rustix::fs::openat(store.tree(), "file", OFlags::RDONLY, Mode::empty()).unwrap();
    let inode = store.inode(fd.as_fd()).unwrap().unwrap();
    let mut buf = [1; 20];
    assert_eq!(inode.read_at(&mut buf, 9_995).unwrap(), 10);
    assert_eq!(&buf[..10], b"\0\0\0\0\0hello");
}
