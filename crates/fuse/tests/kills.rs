//! A process that is killed while it begins to serve leaves nothing that waits. By itself: a process that is started would hold the
//! files of other tests for a moment, whose mounts were busy then.

use std::io::Read;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use stripewise_fuse::{Call, FileAttr, FuseDevice, FuseServer, Reply, RequestHeader, Session, SessionOptions};

/// Threads of each queue.
const THREADS: usize = 3;
/// Longer than any of this takes on any machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Where the process mounts that is to be killed.
const KILLED: &str = "STRIPEWISE_TEST_KILLED";
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// One directory. Who asks for the attribute `user.wait` gets no answer.
struct Root;

impl FuseServer for Root {
    fn serve(&self, request: &RequestHeader, call: Call<'_>, reply: Reply<'_>) {
        match call {
            Call::GetAttr => {
                let attr = FileAttr { ino: request.ino, mode: libc::S_IFDIR | 0o755, nlink: 2, ..FileAttr::default() };
                reply.attr(&attr, Duration::ZERO);
            }
            Call::GetXattr { name, .. } if name == "user.wait" => loop {
                std::thread::park();
            },
            Call::GetXattr { .. } => reply.error(Errno::NODATA),
            _ => reply.error(Errno::NOSYS),
        }
    }

    fn forget(&self, _ino: u64, _lookups: u64) {}
}

/// Mounts on `dir` and serves until it is killed.
fn serve(dir: &Path) {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    let device = FuseDevice::open().unwrap();
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0\0", device.as_fd().as_raw_fd());
    let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes()).unwrap();
    eprint!("!");
    mount("test", dir, "fuse", MountFlags::empty(), options).unwrap();
    let options = SessionOptions { threads: THREADS, clone_fd: false, by_ring: true, most_descriptors: 64, only: None };
    let session = Session::begin(device, options, |_| Ok(())).unwrap();
    assert!(session.travel().is_by_ring(), "{}", session.travel());
    session.run(&Arc::new(Root), dir, || ()).unwrap();
}

/// Runs the test below as a process of its own, until it is about to mount on `dir`.
fn start(dir: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["a_mount_that_is_killed_as_it_begins_leaves_nothing_that_waits", "--exact", "--nocapture"]);
    let mut child = command.env(KILLED, dir).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    child.stderr.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    child
}

/// Asks for what is mounted on `dir`, from `processor`, until it is over; with `waits` for an answer that comes with the end alone.
fn ask_until(over: &AtomicBool, dir: &Path, processor: usize, waits: bool) {
    let mut only = CpuSet::new();
    only.set(processor);
    sched_setaffinity(None, &only).unwrap();
    while !over.load(Ordering::Acquire) {
        let name = if waits { "user.wait" } else { "user.absent" };
        let _ = rustix::fs::getxattr(dir, name, &mut [0_u8; 8]);
        let _ = rustix::fs::stat(dir);
    }
}

/// Waits until the process has ended; whether it has.
fn ends(child: &mut Child) -> bool {
    let until = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

#[test]
fn a_mount_that_is_killed_as_it_begins_leaves_nothing_that_waits() {
    if let Some(dir) = std::env::var_os(KILLED) {
        return serve(Path::new(&dir));
    }
    let is_on = std::fs::read_to_string(SWITCH).is_ok_and(|text| text.trim() == "Y");
    if !rustix::process::geteuid().is_root() || !is_on {
        eprintln!("NOT RUN: as root, `echo Y > {SWITCH}` has the kernel offer io_uring");
        return;
    }
    let allowed = sched_getaffinity(None).unwrap();
    let processors: Vec<_> = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).collect();
    let rounds = if std::env::var_os("STRIPEWISE_LONG_TESTS").is_some() { 200 } else { 40 };
    let mut seed = 1_u64;
    for round in 0..rounds {
        let dir = tempfile::tempdir().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let (tell, told) = mpsc::channel();
        let asking: Vec<_> = (0..2 * THREADS)
            .map(|number| {
                let (over, dir, tell) = (over.clone(), dir.path().to_owned(), tell.clone());
                let processor = processors[number % processors.len()];
                std::thread::spawn(move || {
                    ask_until(&over, &dir, processor, number < 2);
                    tell.send(()).unwrap();
                })
            })
            .collect();
        let mut child = start(dir.path());
        // Up to 50 ms, most of them in the first millisecond, in which the queues get their entries.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let part = (seed >> 40) as f64 / (1_u64 << 24) as f64;
        std::thread::sleep(Duration::from_millis(50).mul_f64(part.powi(4)));
        child.kill().unwrap();
        let ended = ends(&mut child);
        if !ended {
            // It would wait, with all that asks it, for longer than the tests.
            let _ = unmount(dir.path(), UnmountFlags::DETACH | UnmountFlags::FORCE);
        }
        over.store(true, Ordering::Release);
        let until = Instant::now() + PATIENCE;
        let answered = |_: &&_| told.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok();
        let answered = asking.iter().filter(answered).count();
        // The process by which a mount asks itself may see its end a moment later than the threads here.
        let mut unmounted = unmount(dir.path(), UnmountFlags::empty());
        while unmounted == Err(Errno::BUSY) && Instant::now() < until {
            std::thread::yield_now();
            unmounted = unmount(dir.path(), UnmountFlags::empty());
        }
        assert!(ended, "round {round}: the process that was killed has not ended");
        assert_eq!(answered, asking.len(), "round {round}: threads whose requests have an answer");
        // Or it was not there yet.
        assert!(matches!(unmounted, Ok(()) | Err(Errno::INVAL)), "round {round}: {unmounted:?}");
        asking.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
