//! A gate that holds the requests of one program, and lets all others pass.

mod common;

use common::{TestPool, succeeded};
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use stripewise_control::{Door, FileId, Gate, Program, Request};
use stripewise_mount::{MountOptions, Serving};
use stripewise_store::Pool;

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
