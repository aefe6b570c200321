//! A process killed at any instruction between reserve and completion leaves the queue usable and nothing behind.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use stripewise_layout::ServerId;
use stripewise_store::emulate::{Device, EmulateConfig, Op, OpProfile, Profile, QUEUE_FILE, sleep_until};

const SERVERS: usize = 4;
/// Points at which a process is killed, spread over the instructions of its requests.
const KILLS: u64 = 1000;
/// Parts of the points that are tried at once.
const PARTS: u64 = 2;

static BLOCK: [u8; 4096] = [7; 4096];

/// One request on all servers as the store makes it: reserve, real I/O, one sleep, complete. Allocates nothing: it runs
/// in a forked child.
fn request(devices: &[Device; SERVERS], file: &File) {
    let tickets: [_; SERVERS] = std::array::from_fn(|i| devices[i].reserve(Op::Write, 4096));
    for i in 0..SERVERS {
        let _ = rustix::io::pwrite(file, &BLOCK, 4096 * i as u64);
    }
    let deadline_ns = tickets.iter().map(|ticket| ticket.deadline_ns).max().unwrap_or(0);
    let now_ns = sleep_until(deadline_ns);
    for (device, ticket) in devices.iter().zip(&tickets) {
        device.complete(ticket, deadline_ns, now_ns);
    }
}

/// A child that stops, makes `requests`, stops again and ends.
fn traced_child(devices: &[Device; SERVERS], file: &File, requests: usize) -> libc::pid_t {
    // SAFETY: between fork and `_exit` the child makes only calls that allocate nothing and take no lock.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: asks to be traced by the parent and stops itself; no memory is involved.
        unsafe {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
        }
        (0..requests).for_each(|_| request(devices, file));
        // SAFETY: as above; `_exit` runs no handlers of the parent's.
        unsafe {
            libc::raise(libc::SIGSTOP);
            libc::_exit(0);
        }
    }
    assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
    assert_eq!(stop_signal(child), Some(libc::SIGSTOP), "the child may not be traced here");
    child
}

/// Waits for the child; the signal that it stopped by, `None` when it ended.
fn stop_signal(child: libc::pid_t) -> Option<i32> {
    let mut status = 0;
    // SAFETY: `status` is a valid place for the status of a child of this thread.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child, "waitpid: {}", std::io::Error::last_os_error());
    libc::WIFSTOPPED(status).then(|| libc::WSTOPSIG(status))
}

fn single_step(child: libc::pid_t) -> Option<i32> {
    // SAFETY: the child is stopped and traced by this thread.
    let stepped = unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, child, 0, 0) };
    assert_eq!(stepped, 0, "ptrace: {}", std::io::Error::last_os_error());
    stop_signal(child)
}

fn kill(child: libc::pid_t) {
    // SAFETY: the child is this test's own and not yet waited for.
    unsafe { libc::kill(child, libc::SIGKILL) };
    while stop_signal(child).is_some() {}
}

fn listing(directory: &Path) -> BTreeSet<String> {
    std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Takes back what the dead reserved, so that the test need not wait for it.
fn empty_the_queue(directory: &Path) {
    const NEXT_FREE_AT: u64 = 64;
    let queue = File::options().write(true).open(directory.join(QUEUE_FILE)).unwrap();
    queue.write_all_at(&[0; 8], NEXT_FREE_AT).unwrap();
}

#[test]
fn killed_anywhere() {
    // Each has servers and children of its own, and steps wait for one another: two take half the time on two
    // processors.
    std::thread::scope(|threads| {
        for part in 0..PARTS {
            threads.spawn(move || killed_at_every(part));
        }
    });
}

/// Kills a process at the points of that part.
fn killed_at_every(part: u64) {
    let directories: [_; SERVERS] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    // Longer than it takes to step to the sleep, so that the sleep is among the points.
    let service = OpProfile { startup_min_s: 0.008, startup_max_s: 0.008, transfer_s_per_byte: 0.0, head: None };
    let profile = Profile { read: service, write: service, network_s_per_byte: 0.0 };
    let config = EmulateConfig { profile, dilation: 1.0, seed: 1, disk: None, at_once: 1 };
    let open = || -> [Device; SERVERS] {
        std::array::from_fn(|i| {
            Device::open(File::open(directories[i].path()).unwrap(), ServerId(i as u16), &config).unwrap()
        })
    };
    let devices = open();
    let data_directory = tempfile::tempdir().unwrap();
    let file = File::create_new(data_directory.path().join("datafile")).unwrap();

    // As many requests as have an instruction for every kill: one, or two when the compiler did well.
    let (mut requests, mut instructions) = (0, 0_u64);
    while instructions < KILLS {
        requests += 1;
        instructions = 0;
        let child = traced_child(&devices, &file, requests);
        while single_step(child) == Some(libc::SIGTRAP) {
            instructions += 1;
        }
        kill(child);
    }

    let before = devices[0].statistics();
    let mut ended_early = 0;
    for point in (part..KILLS).step_by(PARTS as usize) {
        let mut steps = instructions * point / KILLS;
        loop {
            let child = traced_child(&devices, &file, requests);
            let killed_on_its_way = (0..steps).all(|_| single_step(child) == Some(libc::SIGTRAP));
            kill(child);
            if killed_on_its_way {
                break;
            }
            // A slow machine: the deadline was past, so there was no sleep and the request had fewer instructions.
            ended_early += 1;
            steps = steps * 9 / 10;
        }
        // Another process's device: served after what the dead one reserved, and never far off.
        for (device, directory) in devices.iter().zip(&directories) {
            let ticket = device.reserve(Op::Read, 0);
            assert!(ticket.start_ns - ticket.arrival_ns < 1_000_000_000, "killed at {steps}: {ticket:?}");
            device.complete(&ticket, ticket.deadline_ns, ticket.deadline_ns);
            empty_the_queue(directory.path());
        }
    }
    let done = devices[0].statistics().since(&before);
    assert_eq!(done.read.requests, KILLS / PARTS);
    assert!(done.write.requests <= KILLS / PARTS * requests as u64 + ended_early, "{done:?}");

    // A process that opens the queues now gets through, and no process holds a lock on them.
    let devices = open();
    // SAFETY: the child allocates nothing and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        request(&devices, &file);
        // SAFETY: ends the child only.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    for directory in &directories {
        let queue = File::open(directory.path().join(QUEUE_FILE)).unwrap();
        // SAFETY: `flock` on a descriptor that is open.
        assert_eq!(unsafe { libc::flock(queue.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }, 0);
        assert_eq!(listing(directory.path()), BTreeSet::from([QUEUE_FILE.to_owned()]));
    }
    assert_eq!(listing(data_directory.path()), BTreeSet::from(["datafile".to_owned()]));
    // What processes share is the queues' pages: no shared object has another name, in /dev/shm or without one.
    for mapping in std::fs::read_to_string("/proc/self/maps").unwrap().lines() {
        let fields: Vec<&str> = mapping.split_whitespace().collect();
        assert!(!fields[1].ends_with('s') || fields[5].ends_with("/queue"), "{mapping}");
    }
}
