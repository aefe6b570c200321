//! The store against a `Vec<u8>`: whatever is done to a file, on whatever layout, it reads back as the vector does.

mod common;

use common::{TestPool, content, create, pattern};
use proptest::prelude::*;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use stripewise_layout::{Layout, ServerId, Stripe};
use stripewise_store::{Inode, Store};

const SERVERS: u16 = 8;
/// Files stay below this size; widths and regions are small enough that each request meets many borders.
const MAX_SIZE: u64 = 60_000;

#[derive(Debug, Clone)]
enum Step {
    Write { offset: u64, len: usize, cut: usize },
    Read { offset: u64, len: usize, cut: usize },
    Append { len: usize },
    Truncate { size: u64 },
    Punch { offset: u64, len: u64 },
    Allocate { offset: u64, len: u64, keep: bool },
    Move { layout: Layout },
    Reopen,
    CloseWriter,
    Sync,
}

fn layouts() -> impl Strategy<Value = Layout> {
    let width = prop_oneof![1_u64..64, 500_u64..600, Just(4096_u64), 1_u64..20_000];
    let round = proptest::collection::vec((0..SERVERS, width), 1..=usize::from(SERVERS));
    let region = (1_u64..20_000, round, prop::bool::weighted(0.2));
    proptest::collection::vec(region, 1..6).prop_map(|regions| {
        let mut offset = 0;
        let mut rows = Vec::new();
        for (len, round, meta) in regions {
            let mut stripes: Vec<Stripe> = Vec::new();
            for (server, width_bytes) in round {
                if stripes.iter().all(|stripe| stripe.server != ServerId(server)) {
                    stripes.push(Stripe { server: ServerId(server), width_bytes });
                }
            }
            if meta {
                stripes = vec![Stripe { server: ServerId::META, width_bytes: 4096 }];
            }
            rows.push((offset, stripes));
            offset += len;
        }
        Layout::new(rows).unwrap()
    })
}

fn steps() -> impl Strategy<Value = Step> {
    let place = (0..MAX_SIZE, 0_usize..20_000, 0_usize..20_000);
    prop_oneof![
        6 => place.clone().prop_map(|(offset, len, cut)| Step::Write { offset, len, cut }),
        6 => place.prop_map(|(offset, len, cut)| Step::Read { offset, len, cut }),
        2 => (0_usize..5000).prop_map(|len| Step::Append { len }),
        3 => (0..MAX_SIZE).prop_map(|size| Step::Truncate { size }),
        1 => (0..MAX_SIZE, 1_u64..20_000).prop_map(|(offset, len)| Step::Punch { offset, len }),
        1 => (0..MAX_SIZE, 1_u64..20_000, any::<bool>())
            .prop_map(|(offset, len, keep)| Step::Allocate { offset, len, keep }),
        3 => layouts().prop_map(|layout| Step::Move { layout }),
        1 => Just(Step::Reopen),
        1 => Just(Step::CloseWriter),
        1 => Just(Step::Sync),
    ]
}

/// A file and what should be in it.
struct Checked {
    store: Arc<Store>,
    fd: OwnedFd,
    inode: Arc<Inode>,
    registered: bool,
    model: Vec<u8>,
    seed: u64,
}

impl Checked {
    fn register(&mut self, wanted: bool) {
        if wanted && !self.registered {
            self.inode.register_writer().unwrap();
        } else if !wanted && self.registered {
            self.inode.release_writer().unwrap();
        }
        self.registered = wanted;
    }

    fn fresh(&mut self, len: usize) -> Vec<u8> {
        self.seed += 1;
        pattern(len, self.seed)
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) {
        if !bytes.is_empty() && self.model.len() < offset + bytes.len() {
            self.model.resize(offset + bytes.len(), 0);
        }
        if !bytes.is_empty() {
            self.model[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
    }

    fn apply(&mut self, pool: &TestPool, step: Step) {
        match step {
            Step::Write { offset, len, cut } => {
                self.register(true);
                let bytes = self.fresh(len);
                let (a, b) = bytes.split_at(cut.min(len));
                let bufs = [IoSlice::new(a), IoSlice::new(&[]), IoSlice::new(b)];
                assert_eq!(self.inode.write_vectored_at(&bufs, offset).unwrap(), len);
                self.put(offset as usize, &bytes);
            }
            Step::Read { offset, len, cut } => {
                let mut bytes = vec![0xee; len];
                let (a, b) = bytes.split_at_mut(cut.min(len));
                let mut bufs = [IoSliceMut::new(a), IoSliceMut::new(b)];
                let count = self.inode.read_vectored_at(&mut bufs, offset).unwrap();
                let expected = self.model.get(offset as usize..).unwrap_or_default();
                let expected = &expected[..expected.len().min(len)];
                assert_eq!(count, expected.len());
                assert!(bytes[..count] == *expected, "read of {len} at {offset}");
            }
            Step::Append { len } => {
                self.register(true);
                let bytes = self.fresh(len);
                let (at, count) = self.inode.append(&bytes).unwrap();
                assert_eq!((at as usize, count), (self.model.len(), len));
                self.put(at as usize, &bytes);
            }
            Step::Truncate { size } => {
                self.inode.truncate(size).unwrap();
                self.model.resize(size as usize, 0);
            }
            Step::Punch { offset, len } => {
                self.register(true);
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                self.inode.allocate(mode, offset, len).unwrap();
                let end = self.model.len().min((offset + len) as usize);
                if (offset as usize) < end {
                    self.model[offset as usize..end].fill(0);
                }
            }
            Step::Allocate { offset, len, keep } => {
                self.register(true);
                let mode = if keep { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
                self.inode.allocate(mode, offset, len).unwrap();
                if !keep && self.model.len() < (offset + len) as usize {
                    self.model.resize((offset + len) as usize, 0);
                }
            }
            Step::Move { layout } => {
                self.register(false);
                let moved = self.inode.move_to(&layout, "file", &mut |_, _| true).unwrap();
                assert_eq!((moved.copied_bytes + moved.kept_bytes) as usize, self.model.len());
                assert_eq!(*self.inode.layout().unwrap(), layout);
            }
            Step::Reopen => {
                self.register(false);
                self.store = pool.open();
                self.inode = self.store.inode(self.fd.as_fd()).unwrap().unwrap();
            }
            Step::CloseWriter => self.register(false),
            Step::Sync => self.inode.sync(false).unwrap(),
        }
        assert_eq!(self.inode.size_bytes().unwrap() as usize, self.model.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_file_is_what_was_done_to_it(first in layouts(), steps in proptest::collection::vec(steps(), 1..40)) {
        let pool = TestPool::new(usize::from(SERVERS));
        let store = pool.open();
        store.set_rule(&stripewise_layout::Pattern::new("file").unwrap(), &first).unwrap();
        let (fd, inode) = create(&store, "file");
        prop_assert_eq!(&*inode.layout().unwrap(), &first);
        let mut file = Checked { store, fd, inode, registered: false, model: Vec::new(), seed: 0 };
        for step in steps {
            file.apply(&pool, step);
        }
        file.register(false);
        prop_assert!(content(&file.inode) == file.model);
        // A second process sees the same, and nothing that is not named lies about.
        let store = pool.open();
        let inode = store.inode(file.fd.as_fd()).unwrap().unwrap();
        prop_assert!(content(&inode) == file.model);
        prop_assert!(!inode.has_writers().unwrap());
        rustix::fs::unlinkat(store.tree(), "file", rustix::fs::AtFlags::empty()).unwrap();
        prop_assert!(store.collect(&inode).unwrap());
        for server in 0..usize::from(SERVERS) {
            for directory in std::fs::read_dir(pool.root(server)).unwrap() {
                let path = directory.unwrap().path();
                if path.is_dir() {
                    prop_assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
                }
            }
        }
        let locks = pool.pool.namespace.join("locks");
        prop_assert_eq!(std::fs::read_dir(locks).unwrap().count(), 0);
    }
}

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
