//! `readahead`: what is fetched ahead of a reader is never older than what was written, and it is fetched for those that gain.

mod common;

use common::{TestPool, hint, layout, pattern};
use proptest::prelude::*;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use stripewise_control::{Door, FileId, Observer, Request, Served};
use stripewise_layout::Layout;
use stripewise_optimisation::{OptimisationSetting, READAHEAD, WRITEBEHIND};
use stripewise_store::handle::Optimisations;
use stripewise_store::{Error, File, Files, Inode, KernelPages, OpenInode, OpenTerms, PlaneOptions};

/// What does not happen within this time does not happen.
const PATIENCE: Duration = Duration::from_secs(120);

fn setting(text: &str) -> OptimisationSetting {
    OptimisationSetting::parse(text).unwrap()
}

fn open(files: &Arc<Files>, name: &str, flags: OFlags) -> File {
    files.open_file(Path::new(name), flags, Mode::from_raw_mode(0o600)).unwrap()
}

/// Opens it for reading as a mount does whose kernel may keep what it reads.
fn as_a_mount(inode: Arc<Inode>) -> OpenInode {
    let terms = OpenTerms { pages: KernelPages::MayKeep, ..OpenTerms::by_library(false, false) };
    OpenInode::opened(inode, &terms)
}

/// The first byte by itself: a file that grows past its head keeps it.
fn make(files: &Arc<Files>, name: &str, bytes: &[u8]) {
    let file = open(files, name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL);
    let (first, rest) = bytes.split_at(1);
    assert_eq!(file.write_at(&[IoSlice::new(first)], 0).unwrap(), 1);
    assert_eq!(file.write_at(&[IoSlice::new(rest)], 1).unwrap(), rest.len());
    file.close().unwrap();
}

fn read(file: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xaa; len];
    // In two buffers, as vectors come.
    let (first, second) = bytes.split_at_mut(len / 3);
    let count = file.read_at(&mut [IoSliceMut::new(first), IoSliceMut::new(second)], offset).unwrap();
    bytes.truncate(count);
    bytes
}

/// Counts what reaches the servers.
#[derive(Default)]
struct Counted {
    parts: AtomicU64,
    bytes: AtomicU64,
}

impl Observer for Counted {
    fn served(&self, _: FileId, _: &Request, served: &Served<'_>) {
        self.parts.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(served.done_bytes, Ordering::Relaxed);
    }
}

/// A pool whose servers are watched, with one file of a megabyte.
fn watched(settings: &[&str]) -> (TestPool, Arc<Files>, Arc<Counted>, Vec<u8>) {
    watched_in(TestPool::new(3), settings)
}

fn watched_in(pool: TestPool, settings: &[&str]) -> (TestPool, Arc<Files>, Arc<Counted>, Vec<u8>) {
    let counted = Arc::new(Counted::default());
    let door = Door::default().with_observer(counted.clone());
    let files = Files::open_with(pool.pool.clone(), PlaneOptions { door, ..PlaneOptions::default() }).unwrap();
    hint(&files, settings);
    let bytes = pattern(1 << 20, 7);
    make(&files, "f", &bytes);
    counted.parts.store(0, Ordering::Relaxed);
    counted.bytes.store(0, Ordering::Relaxed);
    (pool, files, counted, bytes)
}

/// Reads 2 KiB at each of `offsets`; how many parts of requests reached the servers meanwhile.
fn parts_of(offsets: impl Iterator<Item = u64>, settings: &[&str]) -> u64 {
    let (_pool, files, counted, bytes) = watched(settings);
    let file = open(&files, "f", OFlags::RDONLY);
    for offset in offsets {
        assert_eq!(read(&file, offset, 2048), bytes[offset as usize..][..2048], "at {offset}");
    }
    counted.parts.load(Ordering::Relaxed)
}

#[test]
fn a_sequential_reader_of_small_requests_is_served_from_what_was_fetched() {
    let offsets = || (0..512).map(|number| number * 2048);
    assert_eq!(parts_of(offsets(), &[]), 512);
    // Windows of 64 KiB over three servers: each has a part of 21 KiB.
    let fetched = parts_of(offsets(), &["readahead=64K"]);
    assert!(fetched <= 80, "{fetched} parts reached the servers");
    let behind_a_head = parts_of(offsets(), &["readahead=64K", "small=128K"]);
    assert!((64..=150).contains(&behind_a_head), "the head is not fetched: {behind_a_head} parts");
}

#[test]
fn a_strided_reader_is_served_from_what_was_fetched_forwards_and_backwards() {
    let (_pool, files, counted, bytes) = watched(&["readahead=64K"]);
    let parts = || counted.parts.load(Ordering::Relaxed);
    let forwards: Vec<u64> = (0..64).map(|number| number * 16384).collect();
    let backwards: Vec<u64> = forwards.iter().rev().copied().collect();
    for offsets in [forwards, backwards] {
        let file = open(&files, "f", OFlags::RDONLY);
        let before = parts();
        for (asked, offset) in (1..).zip(offsets) {
            assert_eq!(read(&file, offset, 2048), bytes[offset as usize..][..2048], "at {offset}");
            // Each piece is read once, by the program or ahead of it. Threads that get no processor find nothing to do, and
            // their work waits: a reader that does not wait for them here is soon without one.
            let begin = Instant::now();
            while (4..48).contains(&asked) && parts() - before <= asked {
                assert!(begin.elapsed() < PATIENCE, "nothing was fetched behind {offset}");
                std::thread::yield_now();
            }
        }
    }
    assert!(parts() <= 170, "{} parts of 128 requests", parts());
}

/// Reads 2 KiB at each of `offsets` by 16 opens in turn, as programs of one job do; how many parts of requests reached the servers.
fn parts_together(offsets: impl Iterator<Item = u64>, settings: &[&str]) -> u64 {
    let (_pool, files, counted, bytes) = watched(settings);
    let opens: Vec<File> = (0..16).map(|_| open(&files, "f", OFlags::RDONLY)).collect();
    for (file, offset) in opens.iter().cycle().zip(offsets) {
        assert_eq!(read(file, offset, 2048), bytes[offset as usize..][..2048], "at {offset}");
    }
    counted.parts.load(Ordering::Relaxed)
}

#[test]
fn two_pieces_in_a_row_of_one_reader_are_no_stream_of_its_own() {
    let (_pool, files, counted, bytes) = watched(&["readahead=64K"]);
    let opens: Vec<File> = (0..16).map(|_| open(&files, "f", OFlags::RDONLY)).collect();
    for piece in 0..512 {
        let offset = piece * 2048;
        // One by one until it shows that all are in order, then in pairs.
        let reader = if piece < 32 { piece } else { piece / 2 };
        let found = read(&opens[reader % 16], offset as u64, 2048);
        assert_eq!(found, bytes[offset..][..2048], "at {offset}");
    }
    let read_bytes = counted.bytes.load(Ordering::Relaxed);
    assert!(read_bytes < bytes.len() as u64 * 5 / 4, "{read_bytes} bytes of {}", bytes.len());
}

#[test]
fn readers_that_drift_apart_are_served_from_what_was_fetched_once() {
    let (_pool, files, counted, bytes) = watched(&["readahead=64K"]);
    let opens: Vec<File> = (0..16).map(|_| open(&files, "f", OFlags::RDONLY)).collect();
    let mut next: Vec<usize> = (0..16).collect();
    let mut read_next = |reader: usize| {
        let offset = next[reader] * 2048;
        let found = read(&opens[reader], offset as u64, 2048);
        assert_eq!(found, bytes[offset..][..2048], "at {offset}");
        next[reader] += 16;
    };
    // All in order, until that shows; then one runs ahead by 112 pieces of 2 KiB, three windows and a half, then half of them, and
    // the others come up; and again.
    (0..2).for_each(|_| (0..16).for_each(&mut read_next));
    for _ in 0..4 {
        (0..7).for_each(|_| read_next(3));
        (0..7).for_each(|_| (8..16).for_each(&mut read_next));
        (0..7).for_each(|_| (0..8).filter(|reader| *reader != 3).for_each(&mut read_next));
    }
    let read_bytes = counted.bytes.load(Ordering::Relaxed);
    assert!(read_bytes < bytes.len() as u64 * 5 / 4, "{read_bytes} bytes of {}", bytes.len());
    let parts = counted.parts.load(Ordering::Relaxed);
    assert!(parts <= 140, "{parts} parts reached the servers");
}

#[test]
fn what_several_opens_read_together_is_fetched_once() {
    let in_order = || (0..512_u64).map(|number| number * 2048);
    assert_eq!(parts_together(in_order(), &[]), 512);
    let fetched = parts_together(in_order(), &["readahead=64K"]);
    assert!(fetched <= 100, "{fetched} parts reached the servers");
    // Each eight in the opposite order, as those come that are not equally fast.
    let nearly = parts_together((0..512_u64).map(|number| (number ^ 7) * 2048), &["readahead=64K"]);
    assert!(nearly <= 120, "{nearly} parts reached the servers");
    // Two streams, and one of four requests for any place of what the second one comes to.
    let mixed = parts_together(
        (0..512_u64).map(|number| match number % 4 {
            0 | 2 => number / 2 * 2048,
            1 => (256 + number / 4) * 2048,
            _ => (384 + number * number * 31 % 127) * 2048,
        }),
        &["readahead=64K"],
    );
    assert!(mixed <= 250, "{mixed} parts reached the servers");
}

#[test]
fn next_to_nothing_is_fetched_together_for_random_readers_or_the_same_again() {
    let random = (0..300_u64).map(|number| (number * number * 31 + number * 7919) % 509 * 2048);
    let parts = parts_together(random, &["readahead=64K"]);
    assert!((290..=310).contains(&parts), "{parts} parts of 300 requests");
    let again = (0..300_u64).map(|number| number % 2 * 5 * 2048);
    assert_eq!(parts_together(again, &["readahead=64K"]), 300);
}

#[test]
fn nothing_is_fetched_for_a_random_reader_or_while_the_file_has_a_writer() {
    let random = || (0..300_u64).map(|number| number * 7919 % 511 * 2048);
    assert_eq!(parts_of(random(), &["readahead=64K"]), 300);
    let (_pool, files, counted, bytes) = watched(&["readahead=64K"]);
    let writer = open(&files, "f", OFlags::WRONLY);
    let file = open(&files, "f", OFlags::RDONLY);
    for offset in (0..100).map(|number| number * 2048) {
        assert_eq!(read(&file, offset, 2048), bytes[offset as usize..][..2048]);
    }
    assert_eq!(counted.parts.load(Ordering::Relaxed), 100);
    writer.close().unwrap();
    for offset in (100..512).map(|number| number * 2048) {
        assert_eq!(read(&file, offset, 2048), bytes[offset as usize..][..2048]);
    }
    let parts = counted.parts.load(Ordering::Relaxed);
    assert!(parts < 250, "it is fetched again once the writer has gone: {parts}");
}

#[test]
fn blocks_of_which_much_is_asked_for_in_no_order_are_fetched_once() {
    let (_pool, files, counted, bytes) = watched_in(TestPool::as_fast_as("hdd-7200", 3), &["readahead=64K"]);
    let opens: Vec<File> = (0..3).map(|_| open(&files, "f", OFlags::RDONLY)).collect();
    for number in 0..300 {
        let offset = number * 7919 % 511 * 2048;
        assert_eq!(read(&opens[number % 3], offset as u64, 2048), bytes[offset..][..2048], "at {offset}");
    }
    let parts = counted.parts.load(Ordering::Relaxed);
    // There are 16 blocks of three parts, and three pieces cost as much as one of them.
    assert!((16 * 3..=150).contains(&parts), "{parts} parts of 300 requests");
}

#[test]
fn the_last_block_of_a_file_serves_what_is_before_its_end() {
    let (_pool, files, counted, bytes) = watched_in(TestPool::as_fast_as("hdd-7200", 3), &["readahead=64K"]);
    let mut longer = bytes.clone();
    longer.extend(pattern(5000, 3));
    make(&files, "g", &longer);
    let end = longer.len() as u64;
    let file = open(&files, "g", OFlags::RDONLY);
    for number in 0..200 {
        // In no order, in the last block, and behind the end now and then.
        let offset = end - 4900 + number * 37 % 71 * 60;
        let right = &longer[offset as usize..][..2048.min((end - offset) as usize)];
        assert_eq!(read(&file, offset, 2048), right, "at {offset}");
    }
    let reach_the_end = (0..200).filter(|number| end - 4900 + number * 37 % 71 * 60 + 2048 > end).count() as u64;
    let parts = counted.parts.load(Ordering::Relaxed);
    assert!(parts < 2 * reach_the_end + 40, "{parts} parts, {reach_the_end} requests reach the end");
}

#[test]
fn a_file_that_is_optimised_is_read_ahead_from_its_next_open_on() {
    let (pool, files, counted, mut bytes) = watched(&[]);
    let other = Files::open(pool.pool.clone()).unwrap();
    let parts = || counted.parts.load(Ordering::Relaxed);
    let read_all = |file: &File, bytes: &[u8]| {
        let before = parts();
        for offset in (0..512).map(|number| number * 2048) {
            assert!(read(file, offset, 2048) == bytes[offset as usize..][..2048], "at {offset}");
        }
        parts() - before
    };
    let before = open(&files, "f", OFlags::RDONLY);
    let knew = open(&other, "f", OFlags::RDONLY);
    assert_eq!((read_all(&before, &bytes), read(&knew, 0, 2048).len()), (512, 2048));
    let store = files.store();
    let optimise = |text: &str| store.optimise(Path::new("f"), &setting(text)).map_err(|error| error.errno());
    let writer = open(&other, "f", OFlags::WRONLY);
    assert_eq!(optimise("readahead=64K"), Err(rustix::io::Errno::BUSY), "it has a writer");
    writer.close().unwrap();
    let times = |of: &Files| of.store().lookup(Path::new("f")).unwrap().unwrap().attributes().unwrap().mtime;
    let mtime = times(&files);
    assert_eq!((optimise("readahead=64K"), optimise("readahead=8M")), (Ok(true), Ok(false)), "the first one stays");
    assert!(optimise("small=64K").is_err(), "it says where bytes are");
    assert_eq!(times(&files), mtime);
    assert_eq!(read_all(&before, &bytes), 512, "it is open as it was");
    let after = open(&files, "f", OFlags::RDONLY);
    let fetched = read_all(&after, &bytes);
    assert!(fetched <= 80, "{fetched} parts reached the servers");
    // One who knew the file before writes it, behind what was read and before what was fetched ends.
    assert_eq!(read(&after, 0, 2048).len() + read(&after, 2048, 2048).len(), 4096);
    let writer = open(&other, "f", OFlags::WRONLY);
    assert_eq!(writer.write_at(&[IoSlice::new(&[0x77; 2048])], 4096).unwrap(), 2048);
    writer.close().unwrap();
    bytes[4096..6144].fill(0x77);
    assert!(read(&after, 4096, 2048) == bytes[4096..6144]);
    // It loses the hint while it is open, and has been fetched: what is written later is seen nevertheless.
    let again = read_all(&after, &bytes);
    assert!(again <= 80, "{again} parts reached the servers");
    let version = |of: &Files| of.store().lookup(Path::new("f")).unwrap().unwrap().placement().unwrap().version;
    let before = version(&files);
    let unhint = |indices: Option<&[u32]>| store.unhint_file(Path::new("f"), indices).map_err(|error| error.errno());
    assert_eq!(unhint(Some(&[READAHEAD.index, WRITEBEHIND.index])), Ok(false), "it has one of them alone");
    assert_eq!((version(&files), unhint(Some(&[READAHEAD.index])), unhint(None)), (before, Ok(true), Ok(false)));
    assert_eq!((version(&files), version(&other)), (before + 1, before + 1));
    let writer = open(&other, "f", OFlags::WRONLY);
    for offset in (0..512).map(|number| number * 2048) {
        assert!(read(&after, offset, 2048) == bytes[offset as usize..][..2048], "at {offset}");
        assert_eq!(writer.write_at(&[IoSlice::new(&[0x33; 2048])], offset).unwrap(), 2048);
        assert!(read(&after, offset, 2048) == [0x33; 2048], "at {offset}");
    }
    writer.close().unwrap();
}

#[test]
fn the_optimisations_of_a_file_are_changed_all_or_none() {
    let pool = TestPool::new(2);
    let files = Files::open(pool.pool.clone()).unwrap();
    let flags = OFlags::RDWR | OFlags::CREATE;
    let file = files.open_file(Path::new("f"), flags, Mode::from_raw_mode(0o600)).unwrap();
    assert_eq!(file.write_at(&[IoSlice::new(&[7; 20_000])], 0).unwrap(), 20_000);
    let store = files.store();
    let handle = || {
        let placed = store.status(Path::new("f")).unwrap().placed.unwrap();
        (placed.placement.version, placed.made_with)
    };
    let before = handle();
    let of = |texts: &[&str]| {
        let mut optimisations = Optimisations::default();
        for (index, parameters) in texts.iter().map(|text| setting(text).pack()) {
            optimisations.enable(index, parameters).unwrap();
        }
        optimisations
    };
    let hint = |texts: &[&str]| store.hint_file(Path::new("f"), &of(texts)).map_err(|error| error.errno());
    assert_eq!(hint(&["class=2"]), Err(Errno::BUSY), "it has a writer");
    file.close().unwrap();
    assert_eq!(hint(&["class=2", "small=64K"]), Err(Errno::INVAL), "one of them says where bytes are");
    assert_eq!(handle(), before);
    hint(&["class=2", "cached=1M"]).unwrap();
    assert_eq!(handle(), (before.0 + 1, of(&["class=2", "cached=1M"])));
    hint(&["class=2"]).unwrap();
    assert_eq!(handle().0, before.0 + 1, "it has that already");
    hint(&["class=3", "direct"]).unwrap();
    assert_eq!(handle(), (before.0 + 2, of(&["class=3", "cached=1M", "direct"])));
    // As a mount opens it, whose kernel keeps its pages.
    let inode = store.lookup(Path::new("f")).unwrap().unwrap();
    let kept = as_a_mount(inode.clone());
    assert!(kept.kept_epoch().is_some());
    let elsewhere = pool.open();
    for store in [store, &elsewhere] {
        let error = store.unhint_file(Path::new("f"), None).unwrap_err();
        assert_eq!((error.errno(), handle().0), (Errno::TXTBSY, before.0 + 2), "{error}");
    }
    hint(&["class=4"]).unwrap();
    drop(kept);
    assert!(elsewhere.unhint_file(Path::new("f"), None).unwrap());
    assert_eq!(handle(), (before.0 + 4, Optimisations::default()));
    assert!(!as_a_mount(inode).has_to_pass_here());
    for nothing in ["none", "."] {
        assert!(store.hint_file(Path::new(nothing), &of(&["class"])).is_err());
    }
}

#[test]
fn a_file_without_writers_is_read_ahead_while_it_is_moved() {
    let (pool, files, counted, bytes) = watched(&["readahead=64K"]);
    let other = Files::open(pool.pool.clone()).unwrap();
    let moved = other.store().lookup(Path::new("f")).unwrap().unwrap();
    let file = open(&files, "f", OFlags::RDONLY);
    let (mut at, mut steps) = (0_usize, 0);
    let to = layout(&[(0, &[(1, 4096)])]);
    // Some pieces after each step of the move.
    let report = moved.move_to(&to, "f", &mut |_, _| {
        steps += 1;
        for _ in 0..64 {
            if at < bytes.len() / 2 {
                assert!(read(&file, at as u64, 2048) == bytes[at..][..2048], "at {at}");
                at += 2048;
            }
        }
        true
    });
    assert!(report.unwrap().copied_bytes > 0 && at >= 64 * 2048, "{steps} steps");
    let parts = counted.parts.load(Ordering::Relaxed);
    assert!(parts < at as u64 / 2048 / 2, "{parts} parts of {} requests reached the servers", at / 2048);
}

#[test]
fn what_was_fetched_stays_where_the_file_is_moved() {
    let (pool, files, counted, bytes) = watched(&["readahead=64K"]);
    let other = Files::open(pool.pool.clone()).unwrap();
    let moved = other.store().lookup(Path::new("f")).unwrap().unwrap();
    let file = open(&files, "f", OFlags::RDONLY);
    for piece in 0..bytes.len() / 2048 {
        if piece % 64 == 63 {
            let to = layout(&[(0, &[(piece as u16 / 64 % 3, 4096)])]);
            moved.move_to(&to, "f", &mut |_, _| true).unwrap();
        }
        let at = piece * 2048;
        assert!(read(&file, at as u64, 2048) == bytes[at..][..2048], "at {at}");
    }
    let read_bytes = counted.bytes.load(Ordering::Relaxed) as usize;
    assert!(read_bytes <= bytes.len() + (64 << 10), "{read_bytes} of {} bytes", bytes.len());
}

#[test]
fn what_is_behind_the_end_is_not_fetched_again_and_again() {
    let (_pool, files, counted, bytes) = watched(&["readahead=64K"]);
    let file = open(&files, "f", OFlags::RDONLY);
    let mut found = Vec::new();
    loop {
        let more = read(&file, found.len() as u64, 3000);
        if more.is_empty() {
            break;
        }
        found.extend(more);
    }
    assert_eq!(found, bytes);
    let fetched = counted.bytes.load(Ordering::Relaxed);
    assert!(fetched < bytes.len() as u64 + 4 * 65536, "{fetched} bytes of {}", bytes.len());
}

#[test]
fn a_lost_datafile_is_told_to_the_reader() {
    let (pool, files, _, bytes) = watched(&["readahead=64K"]);
    drop(files);
    let files = Files::open(pool.pool.clone()).unwrap();
    let file = open(&files, "f", OFlags::RDONLY);
    std::fs::rename(pool.root(1), pool.directory.path().join("away")).unwrap();
    let mut found = 0;
    let failed = loop {
        let mut piece = vec![0; 2048];
        match file.read_at(&mut [IoSliceMut::new(&mut piece)], found) {
            Ok(count) => assert_eq!(piece[..count], bytes[found as usize..][..count], "at {found}"),
            Err(error) => break error,
        }
        found += 2048;
        assert!(found <= 8192, "the second stripe is on the server that has gone");
    };
    assert!(matches!(failed, Error::MissingServer { .. }), "{failed}");
}

/// What happens to the file.
#[derive(Debug, Clone)]
enum Step {
    /// The reader reads pieces one after the other from where it is.
    Run {
        pieces: usize,
        len: usize,
    },
    /// It reads pieces at equal distances.
    Strides {
        from: u64,
        distance: i64,
        len: usize,
        pieces: usize,
    },
    /// They read pieces in no order.
    Dense {
        from: u64,
        len: usize,
        pieces: usize,
    },
    /// Several opens read pieces one behind the other in turn, each `drift` pieces behind the one before it.
    Together {
        from: u64,
        len: usize,
        pieces: usize,
        drift: usize,
    },
    Seek(u64),
    /// Another process opens the file, writes and closes it.
    Write {
        at: u64,
        len: usize,
    },
    /// It opens it and keeps it open.
    Hold,
    /// By what it holds, if it does.
    WriteHeld {
        at: u64,
        len: usize,
    },
    Release,
    Truncate(u64),
    Punch {
        at: u64,
        len: u64,
    },
    Move(usize),
    /// The other process gives the file the optimisation, if it has none, and the readers open it again.
    Optimise,
}

const MOST: u64 = 400_000;

fn step() -> impl Strategy<Value = Step> {
    let at = || 0..MOST;
    let len = || 1_usize..9000;
    prop_oneof![
        6 => (1_usize..30, len()).prop_map(|(pieces, len)| Step::Run { pieces, len }),
        2 => (at(), -40_000_i64..40_000, len(), 3_usize..12)
            .prop_map(|(from, distance, len, pieces)| Step::Strides { from, distance, len, pieces }),
        3 => (at(), len(), 8_usize..80, prop_oneof![Just(0), 0_usize..40])
            .prop_map(|(from, len, pieces, drift)| Step::Together { from, len, pieces, drift }),
        3 => (at(), 1_usize..9000, 4_usize..40).prop_map(|(from, len, pieces)| Step::Dense { from, len, pieces }),
        1 => prop_oneof![Just(0), at()].prop_map(Step::Seek),
        3 => (at(), 1_usize..50_000).prop_map(|(at, len)| Step::Write { at, len }),
        1 => Just(Step::Hold),
        3 => (at(), 1_usize..20_000).prop_map(|(at, len)| Step::WriteHeld { at, len }),
        2 => Just(Step::Release),
        1 => at().prop_map(Step::Truncate),
        1 => (at(), 1_u64..50_000).prop_map(|(at, len)| Step::Punch { at, len }),
        1 => (0_usize..3).prop_map(Step::Move),
        1 => Just(Step::Optimise),
    ]
}

fn layouts() -> [Layout; 3] {
    [
        layout(&[(0, &[(0, 4096), (1, 4096), (2, 4096)])]),
        layout(&[(0, &[(1, 4096)])]),
        layout(&[(0, &[(65535, 4096)]), (16384, &[(0, 8192), (2, 4096)]), (98304, &[(1, 65536)])]),
    ]
}

/// The pool, as two processes have it open.
fn processes() -> &'static (TestPool, Arc<Files>, Arc<Files>) {
    static PROCESSES: OnceLock<(TestPool, Arc<Files>, Arc<Files>)> = OnceLock::new();
    PROCESSES.get_or_init(|| {
        let pool = TestPool::as_fast_as("hdd-7200", 3);
        let files = || Files::open(pool.pool.clone()).unwrap();
        let (one, other) = (files(), files());
        (pool, one, other)
    })
}

/// The file as two processes see it, and in memory.
struct Trial<'a> {
    readers: [File; 3],
    cursor: u64,
    one: &'a Arc<Files>,
    other: &'a Arc<Files>,
    held: Option<File>,
    model: Vec<u8>,
    drawn: u8,
}

impl Trial<'_> {
    fn look(&self, offset: u64, len: usize) -> usize {
        self.look_by(&self.readers[0], offset, len)
    }

    fn look_by(&self, reader: &File, offset: u64, len: usize) -> usize {
        let from = (offset as usize).min(self.model.len());
        let right = &self.model[from..(from + len).min(self.model.len())];
        let found = read(reader, offset, len);
        assert!(found == right, "{len} bytes at {offset}: {} came, first wrong {:?}", found.len(), {
            found.iter().zip(right).position(|(found, right)| found != right)
        });
        found.len()
    }

    fn write(&mut self, file: &File, at: u64, len: usize) {
        self.drawn = self.drawn.wrapping_add(1);
        let bytes = vec![self.drawn; len];
        assert_eq!(file.write_at(&[IoSlice::new(&bytes)], at).unwrap(), len);
        let (from, to) = (at as usize, at as usize + len);
        self.model.resize(self.model.len().max(to), 0);
        self.model[from..to].copy_from_slice(&bytes);
    }

    fn open(&self) -> File {
        open(self.other, "f", OFlags::RDWR)
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Run { pieces, len } => {
                for _ in 0..pieces {
                    self.cursor += self.look(self.cursor, len) as u64;
                }
            }
            Step::Strides { from, distance, len, pieces } => {
                for number in 0..pieces {
                    if let Some(at) = from.checked_add_signed(distance * number as i64) {
                        self.look(at, len);
                    }
                }
            }
            Step::Dense { from, len, pieces } => {
                for number in 0..pieces {
                    let at = from + (number * number * 7919 % 60_000) as u64;
                    self.look_by(&self.readers[number % self.readers.len()], at, len);
                }
            }
            Step::Together { from, len, pieces, drift } => {
                let readers = self.readers.len();
                for number in 0..pieces + (readers - 1) * drift {
                    let behind = number % readers * drift;
                    if (behind..pieces + behind).contains(&number) {
                        let at = from + ((number - behind) * len) as u64;
                        self.look_by(&self.readers[number % readers], at, len);
                    }
                }
            }
            Step::Seek(to) => self.cursor = to,
            Step::Write { at, len } => {
                let file = self.open();
                self.write(&file, at, len);
                file.close().unwrap();
            }
            Step::Hold => self.held = Some(self.open()),
            Step::WriteHeld { at, len } => {
                if let Some(file) = self.held.take() {
                    self.write(&file, at, len);
                    self.held = Some(file);
                }
            }
            Step::Release => self.held = None,
            Step::Truncate(size) => {
                self.open().truncate(size).unwrap();
                self.model.resize(size as usize, 0);
            }
            Step::Punch { at, len } => {
                self.open().allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, len).unwrap();
                let end = self.model.len();
                self.model[(at as usize).min(end)..((at + len) as usize).min(end)].fill(0);
            }
            Step::Move(number) => {
                let inode = self.other.store().lookup(Path::new("f")).unwrap().unwrap();
                match inode.move_to(&layouts()[number], "f", &mut |_, _| true) {
                    Ok(_) | Err(Error::Busy { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            Step::Optimise => match self.other.store().optimise(Path::new("f"), &setting("readahead=64K:2")) {
                Ok(_) => self.readers = [0; 3].map(|_| open(self.one, "f", OFlags::RDONLY)),
                Err(error) => assert_eq!(error.errno(), rustix::io::Errno::BUSY, "{error}"),
            },
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// A reader sees every write that has returned, whatever was fetched before; also where the first bytes are in the inode.
    #[test]
    fn a_reader_sees_every_write_of_another_process(head: bool, late: bool, depth in 1_u32..4, steps in prop::collection::vec(step(), 1..25)) {
        let (_, one, other) = processes();
        let window = format!("readahead=64K:{depth}");
        let settings = [&window, "small=16K"];
        hint(one, &settings[usize::from(late)..if head { 2 } else { 1 }]);
        // Left by a case that failed.
        let _ = one.unlink(Path::new("f"));
        let model = pattern(150_000, 1);
        make(one, "f", &model);
        let readers = [0; 3].map(|_| open(one, "f", OFlags::RDONLY));
        let mut trial = Trial { readers, cursor: 0, one, other, held: None, model, drawn: 0 };
        steps.iter().for_each(|step| trial.step(step));
        trial.look(0, MOST as usize + 60_000);
        drop(trial);
        one.unlink(Path::new("f")).unwrap();
    }
}

/// `cached`, of two processes, and of two opens in one.
#[test]
fn who_keeps_pages_has_no_writer() {
    let pool = TestPool::new(3);
    let [reads, writes] = [0; 2].map(|_| Files::open(pool.pool.clone()).unwrap());
    hint(&reads, &["cached=8K"]);
    make(&reads, "f", &pattern(8000, 1));
    let inode = |files: &Files, name: &str| files.store().lookup(Path::new(name)).unwrap().unwrap();
    let keeps = |name: &str| as_a_mount(inode(&reads, name));
    let of = |files: &Arc<Files>| OpenInode::new(inode(files, "f"), true, false);
    let refused = |open: &OpenInode| open.register().map_err(|error| error.errno()) == Err(rustix::io::Errno::TXTBSY);

    let (first, second) = (keeps("f"), keeps("f"));
    let epoch = first.kept_epoch();
    assert!(epoch.is_some() && second.kept_epoch() == epoch);
    drop(first);
    assert!(refused(&of(&writes)) && refused(&of(&reads)));
    let cut = inode(&writes, "f").truncate(10).unwrap_err();
    assert_eq!((cut.errno(), second.inode().size_bytes().unwrap()), (rustix::io::Errno::TXTBSY, 8000));
    drop(second);
    for files in [&writes, &reads] {
        let before = keeps("f").kept_epoch();
        assert!(before.is_some());
        let writer = of(files);
        writer.register().unwrap();
        assert_eq!(keeps("f").kept_epoch(), None, "it has a writer");
        writer.release().unwrap();
        assert!(keeps("f").kept_epoch().is_some_and(|after| Some(after) != before));
    }
    // What was refused has left nothing behind, nor has what is let go of.
    inode(&writes, "f").truncate(8193).unwrap();
    assert_eq!(keeps("f").kept_epoch(), None, "it is too large");
    inode(&writes, "f").truncate(8192).unwrap();
    assert!(keeps("f").kept_epoch().is_some());
    hint(&reads, &["cached", "small=4K"]);
    make(&reads, "head", &pattern(10_000, 1));
    assert_eq!(keeps("head").kept_epoch(), None, "its head has other writers");
    hint(&reads, &[]);
    make(&reads, "plain", &pattern(8000, 1));
    assert_eq!(keeps("plain").kept_epoch(), None);
}
