//! A mount that ends in the middle of requests, by either transport: aborted, unmounted by force, or its process killed. What a
//! program was told to be written or made is there in the next mount, and each program gets an answer.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use common::{BIN, Mounted, TestPool, by_both_transports, eventually_within, succeeded};
use rustix::fs::{Mode, OFlags};

const WRITERS: u64 = 4;
/// Over several stripes of 4 KiB, and no multiple of one.
const RECORD_BYTES: usize = 9_000;
/// Records, and names, of each writer that are acknowledged before the end comes; others are under way.
const LEAST_RECORDS: u64 = 12;
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug)]
enum End {
    /// The administrator ends the connection.
    Abort,
    /// `umount -f -l`.
    Force,
    /// The process that serves is killed.
    Kill,
}

/// A mount served by a child of this test.
struct Served {
    process: Child,
    dir: PathBuf,
    connection: u32,
}

impl Served {
    fn new(pool: &TestPool, device_alone: &str) -> Served {
        let (dir, before) = (pool.mnt(), fs::metadata(pool.mnt()).unwrap().dev());
        let mut command = Command::new(BIN);
        command.arg("--foreground").arg(pool.file()).env("STRIPEWISE_FUSE_DEVICE", device_alone);
        let process = command.args(["-o", "nopassthrough"]).stdin(Stdio::null()).spawn().unwrap();
        let is_there = || fs::metadata(&dir).is_ok_and(|found| found.dev() != before);
        eventually_within(PATIENCE, "the mount", is_there);
        let connection = rustix::fs::minor(fs::metadata(&dir).unwrap().dev());
        Served { process, dir, connection }
    }

    fn end(&mut self, end: End) {
        match end {
            End::Abort => self.abort(),
            End::Force => {
                use rustix::mount::{UnmountFlags, unmount};
                unmount(&self.dir, UnmountFlags::FORCE | UnmountFlags::DETACH).unwrap();
            }
            End::Kill => self.process.kill().unwrap(),
        }
    }

    fn abort(&self) {
        use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
        // Not every machine has it mounted.
        let control = tempfile::tempdir().unwrap();
        mount("fusectl", control.path(), "fusectl", MountFlags::empty(), None).unwrap();
        let aborted = fs::write(control.path().join(format!("{}/abort", self.connection)), "1");
        unmount(control.path(), UnmountFlags::DETACH).unwrap();
        aborted.unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // In a test that failed. Its writers may wait for what is killed here.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A thread that writes records and makes names until it is refused.
struct Writer {
    acknowledged: Arc<AtomicU64>,
    thread: JoinHandle<Option<i32>>,
}

fn record(writer: u64, number: u64) -> Vec<u8> {
    (0..RECORD_BYTES as u64).map(|at| (writer * 31 + number * 7 + at % 251) as u8).collect()
}

fn name(writer: u64, number: u64) -> String {
    format!("made-{writer}-{number}")
}

/// Makes a file in the open directory `dir`: behind its path another is when the mount has gone.
fn make(dir: &File, name: &str) -> std::io::Result<File> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    Ok(rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o644))?.into())
}

impl Writer {
    fn begin(dir: &Path, writer: u64) -> Writer {
        let (dir, acknowledged) = (File::open(dir).unwrap(), Arc::new(AtomicU64::new(0)));
        let counter = acknowledged.clone();
        let thread = std::thread::spawn(move || {
            let write = || {
                let file = make(&dir, &format!("records-{writer}"))?;
                for number in 0_u64.. {
                    file.write_all_at(&record(writer, number), number * RECORD_BYTES as u64)?;
                    make(&dir, &name(writer, number))?;
                    counter.store(number + 1, Ordering::Release);
                }
                Ok::<_, std::io::Error>(())
            };
            write().unwrap_err().raw_os_error()
        });
        Writer { acknowledged, thread }
    }
}

fn nothing_is_lost(device_alone: &str, end: End) {
    let pool = TestPool::new();
    let mut served = Served::new(&pool, device_alone);
    let writers: Vec<Writer> = (0..WRITERS).map(|writer| Writer::begin(&served.dir, writer)).collect();
    let enough = |writer: &Writer| writer.acknowledged.load(Ordering::Acquire) >= LEAST_RECORDS;
    eventually_within(PATIENCE, "writing", || writers.iter().all(enough));
    served.end(end);
    let mut acknowledged = Vec::new();
    for writer in writers {
        let errno = writer.thread.join().unwrap().unwrap();
        let gone = [libc::ENOTCONN, libc::ECONNABORTED, libc::ECANCELED];
        assert!(gone.contains(&errno), "{end:?}: a writer got errno {errno}");
        acknowledged.push(writer.acknowledged.load(Ordering::Acquire));
    }
    eventually_within(PATIENCE, "the end of the process", || served.process.try_wait().unwrap().is_some());
    // The next mount takes the dead one away.
    let again = Command::new(BIN).arg(pool.file()).args(["-o", "nopassthrough"]).stdin(Stdio::null()).output();
    succeeded("mount", &again.unwrap());
    let next = Mounted { dir: pool.mnt() };
    for (writer, &records) in (0..).zip(&acknowledged) {
        let bytes = fs::read(next.path(&format!("records-{writer}"))).unwrap();
        for number in 0..records {
            let at = number as usize * RECORD_BYTES;
            let there = bytes.get(at..at + RECORD_BYTES) == Some(&record(writer, number));
            assert!(there, "{end:?}: record {number} of {records} of writer {writer}, of {} bytes", bytes.len());
            assert!(next.path(&name(writer, number)).exists(), "{end:?}: name {number} of {records} of {writer}");
        }
    }
}

#[test]
fn an_aborted_connection_loses_nothing_that_was_acknowledged() {
    by_both_transports(|device_alone| nothing_is_lost(device_alone, End::Abort));
}

#[test]
fn an_unmount_by_force_loses_nothing_that_was_acknowledged() {
    by_both_transports(|device_alone| nothing_is_lost(device_alone, End::Force));
}

#[test]
fn a_killed_process_loses_nothing_that_was_acknowledged() {
    by_both_transports(|device_alone| nothing_is_lost(device_alone, End::Kill));
}
