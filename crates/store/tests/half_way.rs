//! Writes and allocations that meet a full server half-way.

mod common;

use common::{TestPool, content, create, in_own_mounts, layout, mount_tmpfs, pattern, write_all};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use stripewise_layout::Pattern;
use stripewise_store::Inode;

const SERVERS: usize = 3;
const PAGE: u64 = 4096;
/// Pages of each server's file system.
const PAGES: u64 = 64;

/// A pool whose servers have little room.
struct Small {
    pool: TestPool,
    /// A file on each server that takes the rest.
    fillers: Vec<OwnedFd>,
}

impl Small {
    fn new() -> Self {
        let pool = TestPool::with_roots(|base| {
            let roots: Vec<_> = (0..SERVERS).map(|number| base.join(format!("s{number}"))).collect();
            for root in &roots {
                std::fs::create_dir(root).unwrap();
                mount_tmpfs(root, &format!("size={}", PAGES * PAGE));
            }
            roots
        });
        let filler = |server| {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
            rustix::fs::open(pool.root(server).join(".filler"), flags, Mode::from_raw_mode(0o600)).unwrap()
        };
        Self { fillers: (0..SERVERS).map(filler).collect(), pool }
    }

    fn free_pages(&self, server: usize) -> u64 {
        rustix::fs::statvfs(self.pool.root(server)).unwrap().f_bfree
    }

    /// Leaves that many pages free, or all where there are fewer.
    fn leave(&self, server: usize, pages: u64) {
        rustix::fs::ftruncate(&self.fillers[server], 0).unwrap();
        let rest = self.free_pages(server).saturating_sub(pages);
        if rest > 0 {
            rustix::fs::fallocate(&self.fillers[server], FallocateFlags::empty(), 0, rest * PAGE).unwrap();
        }
    }
}

#[derive(Debug, Clone)]
struct Write {
    offset: u64,
    len: usize,
    /// What the servers have free before it.
    free_pages: [u64; SERVERS],
}

fn layouts() -> impl Strategy<Value = Vec<(u64, Vec<(u16, u64)>)>> {
    let round = proptest::collection::btree_map(0..SERVERS as u16, 500_u64..9000, 1..=SERVERS);
    proptest::collection::vec((4000_u64..60_000, round), 1..4).prop_map(|regions| {
        let mut offset = 0;
        let rows = regions.into_iter().map(|(len, round)| {
            let from = offset;
            offset += len;
            (from, round.into_iter().collect())
        });
        rows.collect()
    })
}

fn writes() -> impl Strategy<Value = Vec<Write>> {
    let one = (0_u64..120_000, 1_usize..150_000, proptest::array::uniform3(0_u64..16));
    let one = one.prop_map(|(offset, len, free_pages)| Write { offset, len, free_pages });
    proptest::collection::vec(one, 1..6)
}

/// The file is a vector of bytes. A write that fails keeps a prefix of its bytes, which it tells; behind that the old
/// size stays, and each byte is the old one or the new. All else is as before.
#[test]
fn a_write_that_fails_keeps_a_prefix() {
    if in_own_mounts("a_write_that_fails_keeps_a_prefix") {
        return;
    }
    let small = Small::new();
    let mut runner = TestRunner::new(Config { cases: 300, failure_persistence: None, ..Config::default() });
    let partly = std::cell::Cell::new(0);
    let all = runner.run(&(layouts(), writes(), any::<bool>()), |(rows, writes, syncs)| {
        let rows: Vec<(u64, &[(u16, u64)])> = rows.iter().map(|(offset, round)| (*offset, &round[..])).collect();
        let store = small.pool.open();
        store.set_rule(&Pattern::new("file").unwrap(), &layout(&rows)).unwrap();
        (0..SERVERS).for_each(|server| small.leave(server, PAGES));
        let (_fd, inode) = create(&store, "file");
        inode.register_writer().unwrap();
        let mut model: Vec<u8> = Vec::new();
        for (number, write) in writes.iter().enumerate() {
            for (server, pages) in write.free_pages.iter().enumerate() {
                small.leave(server, *pages);
            }
            let bytes = pattern(write.len, number as u64);
            let (from, to) = (write.offset as usize, write.offset as usize + write.len);
            let kept = match inode.write_at(&bytes, write.offset) {
                Ok(count) => from + count,
                Err(error) => {
                    prop_assert_eq!(error.errno(), Errno::NOSPC);
                    from
                }
            };
            partly.set(partly.get() + u32::from(from < kept && kept < to));
            if syncs {
                inode.sync(false).unwrap();
            }
            let found = content(&inode);
            let old_len = model.len();
            if kept > from && kept > model.len() {
                model.resize(kept, 0);
            }
            prop_assert_eq!(found.len(), model.len(), "size after {:?}", write);
            if kept > from {
                model[from..kept].copy_from_slice(&bytes[..kept - from]);
            }
            for at in kept..to.min(old_len) {
                if found[at] == bytes[at - from] {
                    model[at] = found[at];
                }
            }
            let wrong = (0..model.len()).find(|&at| found[at] != model[at]);
            prop_assert_eq!(wrong, None, "first wrong byte after {:?}, kept to {}", write, kept);
        }
        inode.release_writer().unwrap();
        let found = content(&inode);
        prop_assert!(found == model, "after the close");
        rustix::fs::unlinkat(store.tree(), "file", rustix::fs::AtFlags::empty()).unwrap();
        prop_assert_eq!(store.collect(&inode).unwrap(), stripewise_store::Collected::Gone);
        Ok(())
    });
    all.unwrap();
    assert!(partly.get() > 50, "only {} writes were cut short: nothing was tested", partly.get());
}

/// Another writer of the file may have written there.
#[test]
fn nothing_is_cut_off_while_another_process_writes() {
    if in_own_mounts("nothing_is_cut_off_while_another_process_writes") {
        return;
    }
    let small = Small::new();
    let (store, elsewhere) = (small.pool.open(), small.pool.open());
    let (_fd, inode) = create(&store, "file");
    inode.register_writer().unwrap();
    write_all(&inode, &pattern(3 * 4096, 1), 0);
    let other = elsewhere.lookup(Path::new("file")).unwrap().unwrap();
    other.register_writer().unwrap();
    write_all(&other, &pattern(100, 2), 11 * 4096);
    small.leave(1, 0);
    let bytes = pattern(9 * 4096, 3);
    assert_eq!(inode.write_at(&bytes, 3 * 4096).unwrap(), 4096);
    let found = content(&other);
    assert!(found[11 * 4096..] == pattern(100, 2), "another's bytes");
    assert!(found[3 * 4096..4 * 4096] == bytes[..4096]);
    other.release_writer().unwrap();
    inode.release_writer().unwrap();
}

#[test]
fn an_allocation_that_fails_gives_back_what_it_took() {
    if in_own_mounts("an_allocation_that_fails_gives_back_what_it_took") {
        return;
    }
    let small = Small::new();
    let store = small.pool.open();
    let (_fd, inode) = create(&store, "file");
    inode.register_writer().unwrap();
    for size in [0, 10_000] {
        let bytes = pattern(size, 1);
        write_all(&inode, &bytes, 0);
        small.leave(2, 3);
        let before: Vec<_> = (0..SERVERS).map(|server| small.free_pages(server)).collect();
        for mode in [FallocateFlags::empty(), FallocateFlags::KEEP_SIZE] {
            let error = inode.allocate(mode, 0, 60 * 4096).unwrap_err();
            assert_eq!(error.errno(), Errno::NOSPC);
            assert!(content(&inode) == bytes, "{mode:?}");
            let after: Vec<_> = (0..SERVERS).map(|server| small.free_pages(server)).collect();
            assert_eq!(after, before, "free pages, {mode:?}");
        }
    }
    // What was promised before stays.
    inode.allocate(FallocateFlags::KEEP_SIZE, 0, 10 * 4096).unwrap();
    let kept = small.free_pages(0);
    inode.allocate(FallocateFlags::KEEP_SIZE, 0, 60 * 4096).unwrap_err();
    assert!(small.free_pages(0) <= kept);
    inode.release_writer().unwrap();
}

/// Another puts the size that it finds in the middle of an append into the inode.
fn leaves_nothing_behind_beside_syncs(appends: &Inode, writes: &Inode, base: u64, record: &[u8]) {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                writes.sync(false).unwrap();
            }
        });
        let after_an_append = |_| {
            appends.truncate(base).unwrap();
            assert_eq!(appends.append(record).unwrap(), (base, PAGE as usize));
            writes.size_bytes().unwrap()
        };
        let sizes: Vec<_> = (0..300).map(after_an_append).collect();
        is_done.store(true, Ordering::Relaxed);
        assert!(sizes.iter().all(|&size| size == base + PAGE), "bytes are left behind: {sizes:?}");
    });
}

/// Another process has the file open, too, and knows nothing of the append. What that leaves behind its bytes that count goes; what the
/// other writes there meanwhile stays.
#[test]
fn an_append_that_fails_beside_another_process_leaves_nothing_behind_and_takes_nothing_of_its_bytes() {
    const NAME: &str =
        "an_append_that_fails_beside_another_process_leaves_nothing_behind_and_takes_nothing_of_its_bytes";
    const ROUNDS: usize = 300;
    if in_own_mounts(NAME) {
        return;
    }
    let small = Small::new();
    let round = 3 * PAGE;
    let (_fd, appends) = create(&small.pool.open(), "file");
    appends.move_to(&layout(&[(0, &[(0, PAGE), (1, PAGE), (2, PAGE)])]), "file", &mut |_, _| true).unwrap();
    let writes = small.pool.open().lookup(Path::new("file")).unwrap().unwrap();
    for inode in [&appends, &writes] {
        inode.register_writer().unwrap();
    }
    let begin = pattern(2 * round as usize, 1);
    write_all(&appends, &begin, 0);
    small.leave(1, 0);
    // One stripe has room, the second has not. The fourth comes to its server with the first.
    let record = pattern(2 * round as usize, 2);
    assert_eq!(appends.append(&record).unwrap(), (2 * round, PAGE as usize));
    assert_eq!(writes.size_bytes().unwrap(), 2 * round + PAGE);
    assert_eq!(appends.append(&record).unwrap_err().errno(), Errno::NOSPC);
    assert_eq!(writes.size_bytes().unwrap(), 2 * round + PAGE);
    // What the other writes is where there is room: far behind, or in a stripe of the record that the append does not come to.
    let base = 2 * round;
    let places = [10 * round, 2 * round + 2 * PAGE];
    let (is_done, tries) = (AtomicBool::new(false), AtomicUsize::new(0));
    let lost = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                if let Ok((_, count)) = appends.append(&record) {
                    assert!(count < record.len(), "a record has found room");
                }
                tries.fetch_add(1, Ordering::Relaxed);
            }
        });
        let lost = (0..ROUNDS).filter(|number| {
            let (bytes, at) = (pattern(PAGE as usize, *number as u64), places[number % 2]);
            writes.truncate(base).unwrap();
            write_all(&writes, &bytes, at);
            // The append that is under way comes to its end.
            let before = tries.load(Ordering::Relaxed);
            while tries.load(Ordering::Relaxed) < before + 2 {
                std::thread::yield_now();
            }
            let mut found = vec![0; bytes.len()];
            writes.read_at(&mut found, at).unwrap() != bytes.len() || found != bytes
        });
        let lost = lost.count();
        is_done.store(true, Ordering::Relaxed);
        lost
    });
    assert_eq!(lost, 0, "of {ROUNDS} writes that were acknowledged");
    leaves_nothing_behind_beside_syncs(&appends, &writes, base, &record);
    writes.truncate(base).unwrap();
    for inode in [&appends, &writes] {
        inode.release_writer().unwrap();
    }
    assert!(content(&writes) == begin);
}
