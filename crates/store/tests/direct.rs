//! `direct`: what large requests move leaves nothing in the page caches of the servers, and is the same bytes as ever.

mod common;

use common::{TestPool, hint, layout, pattern};
use rustix::fs::{Mode, OFlags};
use rustix::io::ReadWriteFlags;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stripewise_store::{File, Files};

/// The kernel drops written pages when their writing has ended, in the background.
const PATIENCE: Duration = Duration::from_secs(120);
const SIZE: usize = 3 << 20;

/// `struct cachestat` of linux/mman.h.
#[repr(C)]
#[derive(Default)]
struct Cached {
    pages: u64,
    dirty: u64,
    written: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Pages of `file` in the page cache; `None` where the kernel does not tell (Linux 6.5 does).
fn cached_pages(file: &std::fs::File) -> Option<u64> {
    const CACHESTAT: i64 = 451;
    let (range, mut found) = ([0_u64; 2], Cached::default());
    // SAFETY: the kernel reads two numbers of the range and writes the five of `found`.
    let result = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), &raw mut found, 0) };
    (result == 0).then_some(found.pages)
}

/// Whether the file system of `directory` has requests that leave nothing, and the kernel tells what is cached.
fn is_testable(directory: &Path) -> bool {
    let path = directory.join("probe");
    std::fs::write(&path, b"x").unwrap();
    let file = std::fs::File::open(&path).unwrap();
    let flags = ReadWriteFlags::from_bits_retain(0x80);
    let takes = rustix::io::preadv2(&file, &mut [IoSliceMut::new(&mut [0])], 0, flags).is_ok();
    let is_testable = takes && cached_pages(&file).is_some();
    if !is_testable {
        eprintln!("NOT RUN: the file system of {} keeps what every request moves", directory.display());
    }
    is_testable
}

/// A pool in which what is cached shows what requests leave; `None` where no request can leave nothing.
fn testable() -> Option<(TestPool, Arc<Files>)> {
    let pool = TestPool::new(3);
    let files = Files::open(pool.pool.clone()).unwrap();
    is_testable(pool.directory.path()).then_some((pool, files))
}

/// Pages of the datafiles of all servers that are cached.
fn cached(pool: &TestPool) -> u64 {
    let files = (0..pool.pool.servers.len()).flat_map(|server| {
        let shelves = std::fs::read_dir(pool.root(server)).unwrap().map(|entry| entry.unwrap().path());
        shelves.filter(|path| path.is_dir()).flat_map(|shelf| std::fs::read_dir(shelf).unwrap()).collect::<Vec<_>>()
    });
    files.map(|file| cached_pages(&std::fs::File::open(file.unwrap().path()).unwrap()).unwrap()).sum()
}

/// Whether no more than `pages` are cached in the end.
fn comes_to(pool: &TestPool, pages: u64) -> bool {
    let began = Instant::now();
    while cached(pool) > pages {
        if began.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

fn open(files: &Arc<Files>, name: &str, flags: OFlags) -> File {
    files.open_file(Path::new(name), flags, Mode::from_raw_mode(0o600)).unwrap()
}

fn read(file: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xaa; len];
    let count = file.read_at(&mut [IoSliceMut::new(&mut bytes)], offset).unwrap();
    bytes.truncate(count);
    bytes
}

/// Writes all of the file by requests of `request_bytes`, and syncs it.
fn write(files: &Arc<Files>, name: &str, bytes: &[u8], request_bytes: usize) {
    let file = open(files, name, OFlags::RDWR | OFlags::CREATE);
    for (number, piece) in bytes.chunks(request_bytes).enumerate() {
        let offset = (number * request_bytes) as u64;
        assert_eq!(file.write_at(&[IoSlice::new(piece)], offset).unwrap(), piece.len());
    }
    file.sync(false).unwrap();
    file.close().unwrap();
}

#[test]
fn large_requests_leave_no_page() {
    let Some((pool, files)) = testable() else { return };
    hint(&files, &["direct=512K"]);
    let bytes = pattern(SIZE, 3);
    write(&files, "f", &bytes, 1 << 20);
    assert!(comes_to(&pool, 0), "{} pages of large writes", cached(&pool));
    let file = open(&files, "f", OFlags::RDWR);
    assert_eq!(read(&file, 0, SIZE), bytes);
    assert!(comes_to(&pool, 0), "{} pages of a large read", cached(&pool));
    assert_eq!(read(&file, 4096, 64 << 10), bytes[4096..][..64 << 10]);
    assert!(cached(&pool) >= 16, "{} pages of a small read", cached(&pool));
    assert_eq!(read(&file, 1, SIZE), bytes[1..], "what is cached is served from there");
}

/// Requests that begin and end anywhere, one over the other: the bytes are those of the last, in the file and on the disk.
#[test]
fn requests_are_where_they_are_written() {
    let Some((pool, files)) = testable() else { return };
    hint(&files, &["direct=4K"]);
    let mut bytes = pattern(SIZE - 4321, 4);
    write(&files, "f", &bytes, (1 << 20) - 12);
    let file = open(&files, "f", OFlags::RDWR);
    for (number, (offset, len)) in [(7, 1 << 20), (1_000_003, 70_001), (SIZE - 9000, 20_000)].into_iter().enumerate() {
        let new = pattern(len, 100 + number as u64);
        assert_eq!(file.write_at(&[IoSlice::new(&new[..33]), IoSlice::new(&new[33..])], offset as u64).unwrap(), len);
        bytes.resize(bytes.len().max(offset + len), 0);
        bytes[offset..offset + len].copy_from_slice(&new);
        assert_eq!(read(&file, 0, SIZE << 1), bytes);
    }
    file.sync(false).unwrap();
    file.close().unwrap();
    drop(files);
    let files = Files::open(pool.pool.clone()).unwrap();
    assert_eq!(read(&open(&files, "f", OFlags::RDONLY), 0, SIZE << 1), bytes);
}

#[test]
fn what_is_fetched_ahead_and_gathered_leaves_no_page_either() {
    let Some((pool, files)) = testable() else { return };
    hint(&files, &["direct=512K", "readahead=1M", "writebehind=1M"]);
    let bytes = pattern(SIZE, 5);
    write(&files, "f", &bytes, 16 << 10);
    // What is written before others come behind it is written at once, and a piece may begin within its last page.
    assert!(comes_to(&pool, 16), "{} pages of gathered writes", cached(&pool));
    let file = open(&files, "f", OFlags::RDONLY);
    for (number, piece) in bytes.chunks(16 << 10).enumerate() {
        assert_eq!(read(&file, (number * (16 << 10)) as u64, 16 << 10), piece);
    }
    // What is read before the stream is recognised is no window, and the first windows are small.
    assert!(comes_to(&pool, 256), "{} pages of windows", cached(&pool));
}

#[test]
fn files_without_the_hint_keep_their_pages_and_a_moved_file_keeps_the_hint() {
    let Some((pool, files)) = testable() else { return };
    let bytes = pattern(SIZE, 9);
    write(&files, "without", &bytes, 1 << 20);
    assert!(cached(&pool) >= (SIZE / 4096) as u64, "{} pages", cached(&pool));
    hint(&files, &["direct=4K"]);
    write(&files, "f", &bytes, 1 << 20);
    let inode = files.store().existing(Path::new("f")).unwrap().unwrap();
    inode.move_to(&layout(&[(0, &[(1, 65536), (2, 65536)])]), "f", &mut |_, _| true).unwrap();
    assert_eq!(files.store().path_taken(Path::new("f")).unwrap().direct_least_bytes, Some(4096));
    assert_eq!(read(&open(&files, "f", OFlags::RDONLY), 0, SIZE), bytes);
}
