//! `writebehind`: what is gathered goes to the servers in whole stripes, in time, and before a sync or close returns; what cannot
//! be written is told to all that have to know.

mod common;

use common::{TestPool, layout, pattern};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::time::ClockId;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stripewise_control::{Action, Door, FileId, Gate, Observer, Request, Served};
use stripewise_optimisation::OptimisationSetting;
use stripewise_store::handle::Optimisations;
use stripewise_store::{File, Files, PlaneOptions, Store, Then};

/// What does not happen within this time does not happen.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longer than any test.
const NEVER: &str = "writebehind=64K:60s";
/// A whole piece in a pool of three servers of 4 KiB stripes: the most rounds that 64 KiB hold.
const PIECE: u64 = 60 << 10;

fn hint(files: &Files, setting: &str) {
    let mut optimisations = Optimisations::default();
    let (index, parameters) = OptimisationSetting::parse(setting).unwrap().pack();
    optimisations.enable(index, parameters).unwrap();
    files.store().change_hints(Path::new("."), |hints| hints.set(None, optimisations)).unwrap();
}

fn open(files: &Arc<Files>, flags: OFlags) -> File {
    files.open_file(Path::new("f"), flags, Mode::from_raw_mode(0o600)).unwrap()
}

fn make(files: &Arc<Files>) -> File {
    open(files, OFlags::RDWR | OFlags::CREATE)
}

fn put(file: &File, bytes: &[u8], offset: u64) {
    assert_eq!(file.write_at(&[IoSlice::new(bytes)], offset).unwrap(), bytes.len());
}

fn got(file: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xaa; len];
    let count = file.read_at(&mut [IoSliceMut::new(&mut bytes)], offset).unwrap();
    bytes.truncate(count);
    bytes
}

/// What reaches the servers, and what asks for it.
#[derive(Default)]
struct Counted {
    parts: AtomicU64,
    bytes: AtomicU64,
    asked_bytes: AtomicU64,
}

impl Observer for Counted {
    fn served(&self, _: FileId, request: &Request, served: &Served<'_>) {
        if request.action == Action::Write {
            self.parts.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(served.done_bytes, Ordering::Relaxed);
        }
    }
}

impl Gate for Counted {
    fn enter(&self, _: FileId, request: &Request) {
        self.asked_bytes.fetch_add(request.len, Ordering::Relaxed);
    }
}

fn watched(setting: &str) -> (TestPool, Arc<Files>, Arc<Counted>) {
    let pool = TestPool::new(3);
    let counted = Arc::new(Counted::default());
    let door = Door::default().with_observer(counted.clone()).with_gate(counted.clone());
    let files = Files::open_with(pool.pool.clone(), PlaneOptions { door, ..PlaneOptions::default() }).unwrap();
    hint(&files, setting);
    (pool, files, counted)
}

fn elsewhere_descriptor(pool: &TestPool) -> rustix::fd::OwnedFd {
    let path = pool.pool.namespace.join("tree/f");
    rustix::fs::open(path, OFlags::RDWR, Mode::empty()).unwrap()
}

/// As another process: nothing but what is on the servers.
fn elsewhere(pool: &TestPool) -> File {
    open(&Files::open(pool.pool.clone()).unwrap(), OFlags::RDONLY)
}

#[test]
fn small_writes_reach_the_servers_in_whole_stripes() {
    let (pool, files, counted) = watched(NEVER);
    let file = make(&files);
    let bytes = pattern(3 * PIECE as usize, 1);
    for (number, piece) in bytes.chunks(1000).enumerate() {
        put(&file, piece, number as u64 * 1000);
    }
    // Three pieces, each with one part a server.
    assert_eq!(counted.parts.load(Ordering::Relaxed), 9);
    assert_eq!(counted.bytes.load(Ordering::Relaxed), 3 * PIECE);
    assert_eq!(counted.asked_bytes.load(Ordering::Relaxed), 3 * PIECE, "each write passes the gate, once");
    assert!(got(&elsewhere(&pool), 0, bytes.len() + 1) == bytes);
    put(&file, &bytes[..10], bytes.len() as u64);
    assert_eq!(counted.parts.load(Ordering::Relaxed), 9, "the next begins");
    file.close().unwrap();
    assert_eq!(elsewhere(&pool).stat().unwrap().st_size as usize, bytes.len() + 10);
}

#[test]
fn large_writes_and_such_as_jump_wait_for_nothing_and_keep_their_order() {
    let (pool, files, counted) = watched(NEVER);
    let file = make(&files);
    put(&file, &[1; 5000], 100);
    put(&file, &[2; 64 << 10], 2000);
    assert_eq!(counted.bytes.load(Ordering::Relaxed), 5000 + (64 << 10), "first what was before");
    put(&file, &[3; 10], 500);
    put(&file, &[4; 10], 505);
    put(&file, &[5; 10], 0);
    let mut expected = vec![0; 2000 + (64 << 10)];
    expected[100..5100].fill(1);
    expected[2000..].fill(2);
    expected[500..510].fill(3);
    expected[505..515].fill(4);
    assert!(got(&elsewhere(&pool), 0, 1 << 20) == expected);
    expected[..10].fill(5);
    assert!(got(&file, 0, 1 << 20) == expected);
}

/// Every other request, and every question, by any open of the process.
#[test]
fn all_that_asks_in_this_process_sees_what_is_gathered() {
    let (_pool, files, _) = watched(NEVER);
    let (file, other) = (make(&files), make(&files));
    let mut end = 0;
    let mut gathered = || {
        put(&file, b"0123456789", end);
        end += 10;
        end
    };
    let end = gathered();
    assert_eq!(file.stat().unwrap().st_size as u64, end, "no datafile is there yet");
    let end = gathered();
    assert_eq!(got(&other, end - 10, 20), b"0123456789");
    let end = gathered();
    assert_eq!(other.stat().unwrap().st_size as u64, end);
    let end = gathered();
    assert_eq!(other.seek(rustix::fs::SeekFrom::End(0)).unwrap(), end);
    let end = gathered();
    assert_eq!(other.seek(rustix::fs::SeekFrom::Data(end - 1)).unwrap(), end - 1);
    let end = gathered();
    assert_eq!(files.store().status(Path::new("f")).unwrap().size_bytes, end);
    let end = gathered();
    other.truncate(end - 5).unwrap();
    assert_eq!(file.stat().unwrap().st_size as u64, end - 5);
    put(&file, b"abcde", end - 5);
    other.allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, end - 5, 4).unwrap();
    assert_eq!(got(&file, end - 5, 10), b"\0\0\0\0e");
    put(&file, b"x", end);
    let appends = open(&files, OFlags::WRONLY | OFlags::APPEND);
    put(&appends, b"y", 0);
    assert_eq!(got(&file, end, 10), b"xy");
}

#[test]
fn what_is_gathered_is_on_the_servers_after_the_delay() {
    let (pool, files, _) = watched("writebehind=64K:10ms");
    let file = make(&files);
    let other = elsewhere(&pool);
    for round in 1..=3 {
        put(&file, b"now", 3 * (round - 1));
        let began = Instant::now();
        while (other.stat().unwrap().st_size as u64) < 3 * round {
            assert!(began.elapsed() < PATIENCE, "it is kept back for ever");
            std::thread::yield_now();
        }
    }
    assert_eq!(got(&other, 0, 100), b"nownownow");
}

#[test]
fn what_was_synced_or_closed_is_there_for_all() {
    let (pool, files, _) = watched(NEVER);
    let (file, other) = (make(&files), make(&files));
    put(&file, b"first", 0);
    assert_eq!(elsewhere(&pool).stat().unwrap().st_size, 0, "it is gathered");
    other.sync(true).unwrap();
    assert_eq!(got(&elsewhere(&pool), 0, 100), b"first");
    put(&file, b"second", 5);
    drop(other);
    assert_eq!(got(&elsewhere(&pool), 0, 100), b"firstsecond", "by the close of any open");
    put(&file, b"third", 11);
    file.close().unwrap();
    assert_eq!(got(&elsewhere(&pool), 0, 100), b"firstsecondthird");
}

/// The clock of ticks has passed all times that files have when it is called: the kernel gives some that are ahead of it, and a tick
/// may leave it behind them.
fn let_the_clock_move() {
    let now = |clock| {
        let now = rustix::time::clock_gettime(clock);
        (now.tv_sec, now.tv_nsec)
    };
    let (before, began) = (now(ClockId::Realtime), Instant::now());
    while now(ClockId::RealtimeCoarse) <= before {
        assert!(began.elapsed() < PATIENCE, "the clock stands");
        std::thread::yield_now();
    }
}

fn changed(file: &File) -> (i64, i64) {
    let stat = file.stat().unwrap();
    (stat.st_mtime, stat.st_mtime_nsec as i64)
}

#[test]
fn the_time_of_change_is_that_of_the_last_write_whenever_it_reaches_the_servers() {
    let (pool, files, counted) = watched(NEVER);
    let (file, other) = (make(&files), make(&files));
    let made = changed(&file);
    let_the_clock_move();
    put(&file, b"first", 0);
    let first = changed(&file);
    assert!(first > made);
    let_the_clock_move();
    put(&file, b"second", 5);
    let second = changed(&other);
    assert!(second > first && other.stat().unwrap().st_size == 11);
    assert_eq!(counted.bytes.load(Ordering::Relaxed), 0, "who asks does not disturb it");
    let_the_clock_move();
    file.sync(true).unwrap();
    assert_eq!([changed(&file), changed(&elsewhere(&pool))], [second; 2]);

    // A program sets the time: what it has written before does not move it, what it writes later does.
    put(&file, b"third", 11);
    let named = rustix::fs::Timespec { tv_sec: 1_000_000_000, tv_nsec: 5 };
    let times = rustix::fs::Timestamps { last_access: named, last_modification: named };
    files.store().inode(elsewhere_descriptor(&pool).as_fd()).unwrap().unwrap().set_times(&times).unwrap();
    assert_eq!(changed(&file), (1_000_000_000, 5));
    file.sync(false).unwrap();
    assert_eq!(changed(&elsewhere(&pool)), (1_000_000_000, 5));
    put(&file, b"fourth", 16);
    let fourth = changed(&file);
    assert!(fourth > second);
    let_the_clock_move();
    for open in [file, other] {
        open.close().unwrap();
    }
    assert_eq!(changed(&elsewhere(&pool)), fourth);
    assert_eq!(got(&elsewhere(&pool), 0, 100), b"firstsecondthirdfourth");
}

#[test]
fn opens_that_want_their_bytes_written_at_once_gather_nothing() {
    let (pool, files, _) = watched(NEVER);
    drop(make(&files));
    for (end, flags) in [OFlags::SYNC, OFlags::DSYNC, OFlags::DIRECT, OFlags::APPEND].into_iter().enumerate() {
        let file = open(&files, OFlags::WRONLY | flags);
        put(&file, b"x", end as u64);
        assert_eq!(elsewhere(&pool).stat().unwrap().st_size, end as i64 + 1, "{flags:?}");
    }
}

/// A server that is away for a while: nothing is lost, and who would have to see what is kept back is told that it cannot.
#[test]
fn what_cannot_be_written_is_kept_for_when_it_can() {
    for setting in [NEVER, "writebehind=64K:10ms"] {
        let (pool, files, _) = watched(setting);
        let away = pool.directory.path().join("away");
        // While all servers are there: a new file would avoid the one that is away.
        let (file, other) = (make(&files), open(&files, OFlags::RDONLY));
        std::fs::rename(pool.root(1), &away).unwrap();
        let bytes = pattern(10_000, 3);
        put(&file, &bytes, 0);
        let mut buffer = [0; 8];
        for round in 0..2 {
            let read = other.read_at(&mut [IoSliceMut::new(&mut buffer)], 0);
            assert_eq!(read.map_err(|error| error.errno()), Err(Errno::IO), "{setting}: read {round}");
        }
        assert_eq!(other.stat().unwrap().st_size, 10_000);
        std::fs::rename(&away, pool.root(1)).unwrap();
        if setting == NEVER {
            file.sync(true).unwrap();
        }
        let began = Instant::now();
        while got(&elsewhere(&pool), 0, 20_000) != bytes {
            assert!(setting != NEVER && began.elapsed() < PATIENCE, "{setting}: it does not come");
            std::thread::yield_now();
        }
        file.close().unwrap();
        other.close().unwrap();
        assert_eq!(got(&elsewhere(&pool), 0, 20_000), bytes);
    }
}

/// The next write tells, too; what is cut off needs no server.
#[test]
fn a_write_tells_of_what_is_given_up_and_what_is_cut_off_is_not_missed() {
    let (pool, files, _) = watched(NEVER);
    let file = make(&files);
    put(&file, b"0123", 0);
    file.sync(true).unwrap();
    let away = pool.directory.path().join("away");
    std::fs::rename(pool.root(1), &away).unwrap();
    put(&file, &[1; 10], 4096);
    assert_eq!(file.write_at(&[IoSlice::new(b"elsewhere")], 0).unwrap_err().errno(), Errno::IO);
    assert_eq!(file.sync(true).unwrap_err().errno(), Errno::IO);
    file.close().unwrap();
    let file = make(&files);
    put(&file, &[1; 10], 4096);
    file.truncate(4).unwrap();
    file.sync(true).unwrap();
    std::fs::rename(&away, pool.root(1)).unwrap();
    file.close().unwrap();
    assert_eq!(got(&elsewhere(&pool), 0, 100), b"0123");
}

/// Of two servers that cannot take their bytes: what can be written is, each open is told once, and nothing is kept back from
/// then on.
#[test]
fn what_cannot_be_written_is_told_to_each_open_once() {
    let (pool, files, counted) = watched(NEVER);
    let (writes, syncs, closes) = (make(&files), make(&files), make(&files));
    let bytes = pattern(3 * 4096, 2);
    put(&writes, &bytes[..10], 0);
    put(&writes, &bytes[10..], 10);
    let away = pool.directory.path().join("away");
    std::fs::rename(pool.root(1), &away).unwrap();
    let failed = writes.sync(true).unwrap_err();
    assert_eq!(failed.errno(), Errno::IO, "{failed}");
    assert_eq!(syncs.sync(true).unwrap_err().errno(), Errno::IO);
    syncs.sync(true).unwrap();
    writes.sync(true).unwrap();
    assert_eq!(closes.close().unwrap_err().errno(), Errno::IO);
    make(&files).close().unwrap();

    // As without the hint: the write itself fails.
    assert_eq!(writes.write_at(&[IoSlice::new(b"more")], 4096).unwrap_err().errno(), Errno::IO);
    std::fs::rename(&away, pool.root(1)).unwrap();
    let before = counted.bytes.load(Ordering::Relaxed);
    put(&writes, b"more", 4096);
    assert_eq!(counted.bytes.load(Ordering::Relaxed), before + 4);
    let mut expected = bytes;
    expected[4096..2 * 4096].fill(0);
    expected[4096..4100].copy_from_slice(b"more");
    assert!(got(&writes, 0, 1 << 20) == expected, "the bytes of the other servers are there");
    writes.close().unwrap();
}

/// The head in the inode has writers that register elsewhere: it is never kept back.
#[test]
fn a_file_that_is_its_head_alone_stays_one() {
    let pool = TestPool::new(3);
    let files = Files::open(pool.pool.clone()).unwrap();
    let mut optimisations = Optimisations::default();
    for setting in ["small=4K", NEVER] {
        let (index, parameters) = OptimisationSetting::parse(setting).unwrap().pack();
        optimisations.enable(index, parameters).unwrap();
    }
    files.store().change_hints(Path::new("."), |hints| hints.set(None, optimisations)).unwrap();
    let file = make(&files);
    put(&file, &[1; 4000], 0);
    assert_eq!(elsewhere(&pool).stat().unwrap().st_size, 4000);
    put(&file, &[2; 4000], 4000);
    assert_eq!(elsewhere(&pool).stat().unwrap().st_size, 4096, "what is behind it is kept back");
    file.close().unwrap();
    let expected = [[1; 4000], [2; 4000]].concat();
    assert!(got(&elsewhere(&pool), 0, 1 << 20) == expected);
}

/// Moves the file `f` of a pool when a part of it is written, once.
struct Moves {
    pool: stripewise_store::Pool,
    is_due: AtomicBool,
}

impl Observer for Moves {
    fn served(&self, _: FileId, request: &Request, _: &Served<'_>) {
        if request.action == Action::Write && self.is_due.swap(false, Ordering::Relaxed) {
            let inode = Store::open(self.pool.clone()).unwrap().lookup(Path::new("f")).unwrap().unwrap();
            inode.move_watched(&layout(&[(0, &[(2, 4096)])]), "f", true, &mut |_, _| Then::On).unwrap();
        }
    }
}

/// A file whose datafiles are fewer after a move: what was gathered is put once.
#[test]
fn a_piece_that_is_put_while_its_file_moves_is_put_once() {
    let pool = TestPool::new(3);
    let moves = Arc::new(Moves { pool: pool.pool.clone(), is_due: AtomicBool::new(false) });
    let door = Door::default().with_observer(moves.clone());
    let files = Files::open_with(pool.pool.clone(), PlaneOptions { door, ..PlaneOptions::default() }).unwrap();
    hint(&files, NEVER);
    let file = make(&files);
    put(&file, &pattern(30_000, 1), 0);
    file.sync(false).unwrap();
    put(&file, &pattern(30_000, 2), 0);
    moves.is_due.store(true, Ordering::Relaxed);
    file.sync(false).unwrap();
    assert!(!moves.is_due.load(Ordering::Relaxed));
    let other = open(&Files::open(pool.pool.clone()).unwrap(), OFlags::RDWR);
    put(&other, &pattern(30_000, 3), 0);
    other.close().unwrap();
    file.close().unwrap();
    assert!(got(&elsewhere(&pool), 0, 40_000) == pattern(30_000, 3));
}
