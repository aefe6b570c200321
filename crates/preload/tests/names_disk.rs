//! The namespace's own disk, full of bytes, full of inodes, taken away, under programs that go past the mount: they go on with
//! what they have open, and what cannot be had is the error of the call that asks for it. The disk is a small file system in
//! memory, which only root can mount.

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::worker::{GOES_PAST_THE_MOUNT, Worker};
use common::{TestPool, mount_program, succeeded};

/// A mounted pool whose namespace is a disk of its own.
struct Small {
    pool: TestPool,
}

impl Small {
    fn new() -> Small {
        assert!(rustix::process::geteuid().is_root(), "this test mounts a small file system: run it as root");
        let small = Small { pool: TestPool::new() };
        let copy = small.pool.path("copy");
        fs::rename(small.names(), &copy).unwrap();
        fs::create_dir(small.names()).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=4m,nr_inodes=120", "tmpfs"]).arg(small.names());
        succeeded("mount", &mount.output().unwrap());
        let copied = Command::new("cp").args(["-a", "--"]).arg(copy.join(".")).arg(small.names()).output();
        succeeded("cp", &copied.unwrap());
        let mounted = Command::new(mount_program()).arg(small.pool.path("pool.toml")).stdin(Stdio::null()).output();
        succeeded("mount", &mounted.unwrap());
        small
    }

    fn names(&self) -> PathBuf {
        self.pool.path("ns")
    }

    /// A program that has `file` open, all of its datafiles by itself, and its descriptor.
    fn writer(&self) -> (Worker, String) {
        let mut worker = Worker::start(&self.pool);
        let fd = worker.ask("os.open('file', os.O_CREAT | os.O_RDWR)");
        assert_eq!(worker.ask(&format!("os.pwrite({fd}, b'ab' * 6144, 0)")), "12288");
        assert_eq!(worker.ask(GOES_PAST_THE_MOUNT), "True");
        (worker, fd)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        for name in ["mnt", "ns"] {
            let _ = Command::new("umount").args(["-l", "-q"]).arg(self.pool.path(name)).stderr(Stdio::null()).status();
        }
    }
}

/// What `worker` has open goes on: within the file and beyond its end.
fn goes_on(worker: &mut Worker, fd: &str) {
    assert_eq!(worker.ask(&format!("os.pwrite({fd}, b'within', 4096)")), "6");
    assert_eq!(worker.ask(&format!("os.pwrite({fd}, b'beyond', 100000)")), "6");
    assert_eq!(worker.ask(&format!("os.pread({fd}, 8, 4096)")), "b'withinab'");
    assert_eq!(worker.ask(&format!("os.pread({fd}, 8, 100000)")), "b'beyond'");
    assert_eq!(worker.ask(&format!("os.fstat({fd}).st_size")), "100006");
    assert_eq!(worker.ask(&format!("os.fsync({fd})")), "None");
}

#[test]
fn a_disk_full_of_inodes_refuses_what_needs_one() {
    let small = Small::new();
    let (mut worker, fd) = small.writer();
    fs::write(small.pool.path("mnt/other"), vec![7; 30_000]).unwrap();
    // Its lock file goes when the mount has served the close.
    while fs::read_dir(small.names().join("locks")).unwrap().count() > 1 {
        std::thread::yield_now();
    }
    let fillers = small.names().join("fillers");
    fs::create_dir(&fillers).unwrap();
    let error = (0..).find_map(|number| File::create(fillers.join(number.to_string())).err()).unwrap();
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));

    goes_on(&mut worker, &fd);
    let refused = format!("-{}", libc::ENOSPC);
    let mut late = Worker::start(&small.pool);
    // More calls than the mount has threads.
    for worker in [&mut worker, &mut late] {
        for _ in 0..12 {
            assert_eq!(worker.ask("os.open('new', os.O_CREAT | os.O_RDWR)"), refused);
            assert_eq!(worker.ask("os.open('other', os.O_RDWR)"), refused);
        }
        assert_eq!(worker.ask("open('other', 'rb').read() == bytes([7]) * 30000"), "True");
        assert_eq!(worker.ask("open('file', 'rb').read()[4096:4102]"), "b'within'");
    }
    fs::remove_dir_all(&fillers).unwrap();
    let mut worker = Worker::start(&small.pool);
    assert_eq!(worker.ask("open('other', 'r+b').write(b'again')"), "5");
    assert_eq!(worker.ask("open('other', 'rb').read(7)"), "b'again\\x07\\x07'");
}

#[test]
fn a_disk_full_of_bytes_kills_no_program() {
    let small = Small::new();
    let (mut worker, fd) = small.writer();
    let mut filler = File::create(small.names().join("filler")).unwrap();
    while filler.write_all(&[1; 4096]).is_ok() {}
    goes_on(&mut worker, &fd);
    let mut late = Worker::start(&small.pool);
    assert_eq!(late.ask("open('file', 'rb').read()[4096:4102]"), "b'within'");
    let late_fd = late.ask("os.open('file', os.O_RDWR)");
    goes_on(&mut late, &late_fd);
    assert_eq!(late.ask(GOES_PAST_THE_MOUNT), "True");
}

#[test]
fn a_disk_that_was_taken_away_leaves_all_to_the_mount() {
    let small = Small::new();
    let (mut worker, fd) = small.writer();
    succeeded("umount", &Command::new("umount").arg("-l").arg(small.names()).output().unwrap());
    goes_on(&mut worker, &fd);
    let mut late = Worker::start(&small.pool);
    let late_fd = late.ask("os.open('file', os.O_RDWR)");
    goes_on(&mut late, &late_fd);
    assert_eq!(late.ask(GOES_PAST_THE_MOUNT), "False", "it finds no pool");
    assert_eq!(worker.ask(&format!("os.pwrite({fd}, b'seen', 8192)")), "4");
    assert_eq!(late.ask(&format!("os.pread({late_fd}, 4, 8192)")), "b'seen'");
}
