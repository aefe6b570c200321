//! A gate that holds the requests of one program and lets all others pass, and one that notes what passes it.

mod common;

use common::{TestPool, succeeded};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use stripewise_control::{Action, Door, FileId, Gate, Program, Request};
use stripewise_mount::{MountOptions, Serving};
use stripewise_store::ioctl::{PLACEMENT, PlacementPage};
use stripewise_store::{Placement, Pool};

const HOLD: Duration = Duration::from_millis(10);

#[derive(Default)]
struct HoldsOne {
    process: AtomicU32,
    held: AtomicUsize,
    passed: AtomicUsize,
}

impl Gate for HoldsOne {
    fn enter(&self, _: FileId, request: &Request) {
        if request.sender.program() == Program::of_process(self.process.load(Ordering::Relaxed)) {
            self.held.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(HOLD);
        } else {
            self.passed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A program that waits for a line before it writes ten blocks to `name`, and appends two.
fn writer(pool: &TestPool, name: &str) -> Command {
    let script = format!(
        "read line; exec python3 -c 'import os\nf = os.open(\"{name}\", os.O_RDWR | os.O_CREAT)\nfor n in range(10): \
         os.pwrite(f, bytes([n]) * 4096, n * 4096)\nf = os.open(\"{name}\", os.O_RDWR | os.O_APPEND)\nfor n in range(2): \
         os.write(f, b\"end\")'"
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(pool.path("mnt")).stdin(Stdio::piped());
    command
}

#[test]
fn the_requests_of_one_program_wait_and_those_of_another_do_not() {
    let pool = TestPool::new();
    let gate = Arc::new(HoldsOne::default());
    let door = Door::default().with_gate(gate.clone());
    let loaded = Pool::load(&pool.file()).unwrap();
    let options = MountOptions::defaults(rustix::process::geteuid().is_root());
    let serving = Serving::start(loaded, &pool.path("mnt"), &options, door).unwrap();

    let mut held = writer(&pool, "held").spawn().unwrap();
    gate.process.store(held.id(), Ordering::Relaxed);
    let begin = Instant::now();
    held.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(held.wait().unwrap().success());
    assert!(begin.elapsed() >= 12 * HOLD);
    assert_eq!((gate.held.load(Ordering::Relaxed), gate.passed.load(Ordering::Relaxed)), (12, 0));

    let mut other = writer(&pool, "other").spawn().unwrap();
    other.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(other.wait().unwrap().success());
    assert_eq!((gate.held.load(Ordering::Relaxed), gate.passed.load(Ordering::Relaxed)), (12, 12));

    let same = Command::new("cmp").args(["held", "other"]).current_dir(pool.path("mnt")).output().unwrap();
    succeeded("cmp", &same);
    serving.stop();
}

/// What passes, by the action, the offset and the length of each request.
#[derive(Default)]
struct Notes(Mutex<Vec<(Action, u64, u64)>>);

impl Gate for Notes {
    fn enter(&self, _: FileId, request: &Request) {
        self.0.lock().unwrap().push((request.action, request.offset, request.len));
    }
}

/// Each kind of request on the bytes of a file.
const ALL_REQUESTS: &str = "\
import os, sys
f = os.open(sys.argv[1], os.O_RDWR)
os.pwrite(f, b'x' * 5000, 10)
os.pread(f, 100, 20)
os.ftruncate(f, 50)
os.posix_fallocate(f, 0, 200)
os.fsync(f)
os.fdatasync(f)
g = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
os.write(g, b'end')
os.close(os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC))
os.truncate(sys.argv[1], 7)
";

#[test]
fn every_request_on_the_bytes_of_a_file_passes() {
    let pool = TestPool::new();
    std::fs::write(pool.path("ns/tree/without_handle"), "").unwrap();
    let gate = Arc::new(Notes::default());
    let door = Door::default().with_gate(gate.clone());
    let options = MountOptions::defaults(rustix::process::geteuid().is_root());
    let serving = Serving::start(Pool::load(&pool.file()).unwrap(), &pool.path("mnt"), &options, door).unwrap();
    File::create(pool.path("mnt/with_handle")).unwrap();
    for name in ["with_handle", "without_handle"] {
        gate.0.lock().unwrap().clear();
        let mut program = Command::new("python3");
        succeeded(name, &program.args(["-c", ALL_REQUESTS, name]).current_dir(pool.path("mnt")).output().unwrap());
        let expected = [
            (Action::Write, 10, 5000),
            (Action::Read, 20, 100),
            (Action::Truncate, 50, 0),
            (Action::Allocate, 0, 200),
            (Action::Sync, 0, 0),
            (Action::Sync, 0, 0),
            (Action::Append, 0, 3),
            (Action::Truncate, 0, 0),
            (Action::Truncate, 7, 0),
        ];
        assert_eq!(*gate.0.lock().unwrap(), expected, "{name}");
        assert_eq!(std::fs::metadata(pool.path("mnt").join(name)).unwrap().len(), 7);
    }
    serving.stop();
}

#[test]
fn no_program_goes_past_a_mount_with_a_gate() {
    let pool = TestPool::new();
    let told_of_places = |door| {
        let options = MountOptions::defaults(rustix::process::geteuid().is_root());
        let serving = Serving::start(Pool::load(&pool.file()).unwrap(), &pool.path("mnt"), &options, door).unwrap();
        let file = File::create(pool.path("mnt/f")).unwrap();
        let mut page = PlacementPage::request(0);
        // SAFETY: the command reads and writes as many bytes as its payload has, which `page` is.
        let done = unsafe { libc::ioctl(file.as_raw_fd(), u64::from(PLACEMENT), &raw mut page) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        drop(file);
        serving.stop();
        Placement::from_bytes(page.filled().unwrap()).unwrap().bypass
    };
    assert!(told_of_places(Door::default()));
    assert!(!told_of_places(Door::default().with_gate(Arc::new(Notes::default()))));
}
