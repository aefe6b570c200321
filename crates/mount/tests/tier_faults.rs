//! The metadata tier turns read-only (ext4 that has found an error) or is gone (XFS that has shut itself down) in the middle of a spill, a
//! return and a write-behind: who has to know is told, and what was synced is there.

mod common;

use std::fs::{self, File};
use std::io::{self, IoSlice};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use common::loop_disk::LoopDisk;
use common::{Mounted, TestPool};
use rustix::fs::{Mode, OFlags};
use stripewise_store::drain::{DrainWatch, Drained};
use stripewise_store::small_files::{NewHead, move_small_files};
use stripewise_store::{Files, Pool, Then};

const WIDTH: usize = 4096;

/// Runs `test` on a pool with that hint for each way in which the tier fails, with the errno that it gives then.
fn on_each_failing_tier(hint: &str, test: impl Fn(&TestPool, LoopDisk, i32)) {
    for (kind, errno) in [("ext4", libc::EROFS), ("xfs", libc::EIO)] {
        let pool = TestPool::new();
        pool.hint(hint);
        match LoopDisk::under(&pool, "ns", kind) {
            Some(disk) => test(&pool, disk, errno),
            None => eprintln!("not tested: no {kind} on a loop device here"),
        }
    }
}

/// Bytes that differ everywhere.
fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7 + at / 1021) as u8 | 1).collect()
}

fn raw<T>(done: io::Result<T>) -> i32 {
    done.err().and_then(|error| error.raw_os_error()).unwrap_or(0)
}

fn close(file: File) -> i32 {
    // SAFETY: the descriptor is this function's own, and is not used again.
    if unsafe { libc::close(file.into_raw_fd()) } == 0 { 0 } else { raw::<()>(Err(io::Error::last_os_error())) }
}

fn open(mounted: &Mounted, name: &str) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(mounted.path(name)).unwrap()
}

fn synced(mounted: &Mounted, name: &str, content: &[u8]) -> File {
    let file = open(mounted, name);
    file.write_all_at(content, 0).unwrap();
    file.sync_all().unwrap();
    file
}

/// Once the disk is there again: each file begins with what was synced, and can be written.
fn are_whole(pool: &TestPool, disk: &LoopDisk, files: &[(&str, &[u8])], what: &str) {
    disk.mount_again();
    let mounted = Mounted::new(pool, "mnt", "noatime");
    for (name, content) in files {
        assert!(fs::read(mounted.path(name)).unwrap().starts_with(content), "{what}: {name}");
        let file = open(&mounted, name);
        file.write_all_at(b"on", content.len() as u64).unwrap();
        file.sync_all().unwrap();
        let found = fs::read(mounted.path(name)).unwrap();
        assert!(found.starts_with(content) && found[content.len()..].starts_with(b"on"), "{what}: {name}");
    }
}

#[test]
fn a_tier_that_fails_in_the_middle_of_a_spill_is_told_and_costs_no_synced_byte() {
    on_each_failing_tier("small=64K", |pool, disk, errno| {
        let what = format!("errno {errno}");
        let mounted = Mounted::new(pool, "mnt", "noatime");
        let content = bytes(200_000);
        let (in_head, behind) = (synced(&mounted, "head", &content[..40_000]), open(&mounted, "behind"));
        // Its head, and then its first datafiles.
        for (from, to) in [(0, 60_000), (60_000, 120_000)] {
            behind.write_all_at(&content[from..to], from as u64).unwrap();
        }
        behind.sync_all().unwrap();
        disk.fail();
        assert_eq!(raw(in_head.write_all_at(&content[40_000..], 40_000)), errno, "{what}");
        // What its servers have room for may be written; its size is the tier's to keep.
        let written = raw(behind.write_all_at(&content[120_000..], 120_000));
        assert!([0, errno].contains(&written), "{what}: {written}");
        assert_eq!(raw(behind.sync_all()), errno, "{what}");
        let closed = [close(in_head), close(behind)];
        assert!(closed.iter().all(|closed| [0, errno].contains(closed)), "{what}: {closed:?}");
        drop(mounted);
        are_whole(pool, &disk, &[("head", &content[..40_000]), ("behind", &content[..120_000])], &what);
    });
}

/// The tier fails when a move has done its first step.
struct FailsThen<'a> {
    disk: &'a LoopDisk,
    has_failed: bool,
}

impl DrainWatch for FailsThen<'_> {
    fn progress(&mut self, _: &str, done: u64, _: u64) -> Then {
        if done > 0 && !self.has_failed {
            self.disk.fail();
            self.has_failed = true;
        }
        Then::On
    }
}

struct On;

impl DrainWatch for On {
    fn progress(&mut self, _: &str, _: u64, _: u64) -> Then {
        Then::On
    }
}

fn is_told(moved: Result<Drained, stripewise_store::Error>, errno: i32) -> bool {
    let why = io::Error::from_raw_os_error(errno).to_string();
    match moved {
        Ok(moved) => moved.moved_files == 0 && moved.staying.len() == 1 && moved.staying[0].why.contains(&why),
        Err(error) => error.errno().raw_os_error() == errno,
    }
}

#[test]
fn a_tier_that_fails_in_the_middle_of_a_move_of_a_small_file_costs_no_byte() {
    for (name, head_bytes) in [("returns", 8 << 20), ("leaves", 0)] {
        on_each_failing_tier("small=8M", |pool, disk, errno| {
            let what = format!("errno {errno}");
            let content = bytes(3 << 20);
            let files = Files::open(Pool::load(&pool.file()).unwrap()).unwrap();
            make_synced(&files, name, &content);
            let handle = files.store().existing(Path::new(name)).unwrap().unwrap().handle();
            let head = |head_bytes| NewHead { path: name.into(), handle, head_bytes };
            if head_bytes > 0 {
                let sent = move_small_files(&pool.file(), &[head(0)], &mut On).unwrap();
                assert_eq!(sent.moved_files, 1, "{what}: {:?}", sent.staying);
            }
            let mut fails = FailsThen { disk: &disk, has_failed: false };
            let moved = move_small_files(&pool.file(), &[head(head_bytes)], &mut fails);
            assert!(fails.has_failed, "{what}: {name} is in the middle of a move");
            assert!(is_told(moved, errno), "{what}: {name}");
            drop(files);
            are_whole(pool, &disk, &[(name, &content)], &what);
        });
    }
}

fn make_synced(files: &Arc<Files>, name: &str, content: &[u8]) {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    let file = files.open_file(Path::new(name), flags, Mode::from_raw_mode(0o600)).unwrap();
    assert_eq!(file.write_at(&[IoSlice::new(content)], 0).unwrap(), content.len());
    file.sync(false).unwrap();
    file.close().unwrap();
}

#[test]
fn a_tier_that_fails_before_what_is_gathered_is_written_is_told_to_sync_and_close() {
    on_each_failing_tier("writebehind=64K:60s", |pool, disk, errno| {
        let what = format!("errno {errno}");
        let mounted = Mounted::new(pool, "mnt", "noatime");
        let content = bytes(9 * WIDTH);
        // One has all its datafiles, so that its size alone is the tier's; the others have one, and need more.
        let longer = synced(&mounted, "longer", &content[..4 * WIDTH]);
        let [syncs, closes] = ["syncs", "closes"].map(|name| synced(&mounted, name, &content[..100]));
        disk.fail();
        for (file, from) in [(&longer, 4 * WIDTH), (&syncs, 100), (&closes, 100)] {
            for at in (from..9 * WIDTH).step_by(WIDTH) {
                let end = (at + WIDTH).min(content.len());
                file.write_all_at(&content[at..end], at as u64).unwrap();
            }
        }
        assert_eq!(raw(longer.sync_all()), errno, "{what}");
        assert_eq!(raw(syncs.sync_data()), errno, "{what}");
        assert_eq!(close(closes), errno, "{what}");
        let closed = [close(longer), close(syncs)];
        assert!(closed.iter().all(|closed| [0, errno].contains(closed)), "{what}: {closed:?}");
        drop(mounted);
        let files = [("longer", &content[..4 * WIDTH]), ("syncs", &content[..100]), ("closes", &content[..100])];
        are_whole(pool, &disk, &files, &what);
    });
}
