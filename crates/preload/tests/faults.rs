//! A server that dies and comes back under a program that goes past the mount.

mod common;
#[allow(dead_code, reason = "this test uses its part")]
#[path = "../../mount/tests/common/faulty.rs"]
mod faulty;
#[allow(dead_code, reason = "this test uses its part")]
#[path = "../../mount/tests/common/loop_disk.rs"]
mod loop_disk;

use std::process::{Child, Command, Stdio};

use common::worker::{GOES_PAST_THE_MOUNT, Worker};
use common::{TestPool, mount_program, succeeded};
use faulty::Faulty;
use fuser::Errno;
use loop_disk::LoopDisk;
use stripewise_layout::{Layout, ServerId};
use stripewise_store::{Error, Store};

fn need(program: &str) {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    assert!(found.is_ok_and(|status| status.success()), "this test needs `{program}`: install it");
}

fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !done() {
        assert!(begin.elapsed().as_secs() < 60, "{what} did not come about");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// A mounted pool whose server s1 can fail.
fn with_faulty() -> (TestPool, Faulty) {
    let pool = TestPool::new();
    std::fs::rename(pool.path("s1"), pool.path("below")).unwrap();
    std::fs::create_dir(pool.path("s1")).unwrap();
    let server = Faulty::mount(&pool.path("below"), &pool.path("s1"));
    let mounted = Command::new(mount_program()).arg(pool.path("pool.toml")).stdin(Stdio::null()).output().unwrap();
    succeeded("mount", &mounted);
    (pool, server)
}

#[test]
fn a_write_that_fails_half_way_leaves_no_longer_file() {
    let (pool, server) = with_faulty();
    let mut worker = Worker::start(&pool);
    for (number, fault) in [Errno::ENOSPC, Errno::EDQUOT, Errno::EROFS, Errno::EIO].into_iter().enumerate() {
        let fd = worker.ask(&format!("os.open('file{number}', os.O_CREAT | os.O_RDWR)"));
        assert_eq!(worker.ask(&format!("os.pwrite({fd}, b'o' * 12288, 0)")), "12288");
        assert_eq!(worker.ask(&format!("os.ftruncate({fd}, 5000)")), "None");
        assert_eq!(worker.ask(GOES_PAST_THE_MOUNT), "True");
        server.set(|faults| (faults.write, faults.create) = (Some(fault), Some(fault)));
        let told = format!("-{}", fault.code());
        // At an offset, and where the descriptor is.
        assert_eq!(worker.ask(&format!("os.pwrite({fd}, b'n' * 36864, 0)")), "4096");
        assert_eq!(worker.ask(&format!("os.fstat({fd}).st_size")), "5000");
        assert_eq!(worker.ask(&format!("os.pwrite({fd}, b'n' * 36864, 8192)")), "8192");
        assert_eq!(worker.ask(&format!("os.fstat({fd}).st_size")), "16384");
        assert_eq!(worker.ask(&format!("os.lseek({fd}, 16384, 0)")), "16384");
        assert_eq!(worker.ask(&format!("os.write({fd}, b'n' * 36864)")), told);
        assert_eq!(worker.ask(&format!("os.lseek({fd}, 0, 1)")), "16384");
        assert_eq!(worker.ask(&format!("os.fstat({fd}).st_size")), "16384");
        server.well();
        assert_eq!(worker.ask(&format!("os.close({fd})")), "None");
        let found = std::fs::read(pool.path(&format!("mnt/file{number}"))).unwrap();
        let expected = [&[b'n'; 4096][..], &[b'o'; 904], &[0; 3192], &[b'n'; 8192]].concat();
        assert!(found == expected, "{fault:?}");
    }
    drop(worker);
}

#[test]
fn a_server_that_died_comes_back_under_a_running_program() {
    let (pool, server) = with_faulty();
    let mount = || Faulty::mount(&pool.path("below"), &pool.path("s1"));

    let mut worker = Worker::start(&pool);
    let fd = worker.ask("os.open('file', os.O_CREAT | os.O_RDWR)");
    let other = worker.ask("os.open('file', os.O_RDWR)");
    assert_eq!(worker.ask(&format!("os.pwrite({fd}, b'ab' * 6144, 0)")), "12288");
    assert_eq!(worker.ask(GOES_PAST_THE_MOUNT), "True", "the program goes past the mount");
    assert_eq!(worker.ask(&format!("os.fsync({fd})")), "None");
    assert_eq!(worker.ask(&format!("os.pwrite({fd}, b'unsynced', 4096)")), "8");

    server.die();
    let eio = format!("-{}", libc::EIO);
    assert_eq!(worker.ask(&format!("os.pread({fd}, 10, 4096)")), eio);
    assert_eq!(worker.ask(&format!("os.pwrite({fd}, b'lost', 4096)")), eio);
    assert_eq!(worker.ask(&format!("os.pread({fd}, 4, 0)")), "b'abab'");
    assert_eq!(worker.ask(&format!("os.pread({fd}, 4, 8192)")), "b'abab'");

    let server = mount();
    assert_eq!(worker.ask(&format!("len(os.pread({fd}, 20000, 0))")), "12288");
    assert_eq!(worker.ask(&format!("os.pread({fd}, 10, 4096)")), "b'unsyncedab'");
    assert_eq!(worker.ask(&format!("os.fsync({fd})")), eio, "what was not synced when the server died may be lost");
    assert_eq!(worker.ask(&format!("os.fsync({fd})")), "None");
    assert_eq!(worker.ask(&format!("os.fsync({other})")), eio, "and to each that has it open");
    assert_eq!(worker.ask(&format!("os.fsync({other})")), "None");
    assert_eq!(worker.ask(&format!("os.pwrite({fd}, b'again', 4096)")), "5");
    assert_eq!(worker.ask(&format!("os.pread({fd}, 5, 4096)")), "b'again'");
    drop(worker);
    assert_eq!(&std::fs::read(pool.path("mnt/file")).unwrap()[4096..4104], b"againced");
    drop(server);
}

/// What was written past the mount when the server died is told by the next sync, though nothing else came to it since.
#[test]
fn a_sync_is_the_first_to_find_a_server_that_died_and_came_back() {
    let (pool, server) = with_faulty();
    let mut worker = Worker::start(&pool);
    let fd = worker.ask("os.open('file', os.O_CREAT | os.O_RDWR)");
    assert_eq!(worker.ask(&format!("os.pwrite({fd}, b'ab' * 6144, 0)")), "12288");
    assert_eq!(worker.ask(&format!("os.fsync({fd})")), "None");
    assert_eq!(worker.ask(&format!("os.pwrite({fd}, b'unsynced', 4096)")), "8");
    assert_eq!(worker.ask(GOES_PAST_THE_MOUNT), "True");
    server.die();
    let server = Faulty::mount(&pool.path("below"), &pool.path("s1"));
    assert_eq!(worker.ask(&format!("os.fsync({fd})")), format!("-{}", libc::EIO));
    assert_eq!(worker.ask(&format!("os.fsync({fd})")), "None");
    drop(worker);
    drop(server);
}

/// What another thread writes while a sync returns is not made durable by that.
#[test]
fn what_is_written_while_a_sync_returns_is_told_when_its_server_dies() {
    let (pool, server) = with_faulty();
    let mut worker = Worker::start(&pool);
    let fd = worker.ask("os.open('file', os.O_CREAT | os.O_RDWR)");
    assert_eq!(worker.ask(&format!("os.pwrite({fd}, b'ab' * 6144, 0)")), "12288");
    assert_eq!(worker.ask(GOES_PAST_THE_MOUNT), "True");
    let process = worker.ask(TRACEABLE);
    let held = Held::at(&process, "exit");
    let sync = format!(
        "threading.Thread(target=lambda: (globals().update(at=threading.get_native_id()), os.fsync({fd}), globals().update(at=0))).start()"
    );
    assert_eq!(worker.ask(&sync), "None");
    let mut thread = String::new();
    common::eventually("the sync is held", || {
        thread = worker.ask("globals().get('at')");
        thread.parse::<u32>().is_ok() && is_held(&format!("{process}/task/{thread}"))
    });
    assert_eq!(worker.ask(&format!("os.pwrite({fd}, b'unsynced', 4096)")), "8");
    drop(held);
    common::eventually("the sync has ended", || worker.ask("at") == "0");
    server.die();
    let server = Faulty::mount(&pool.path("below"), &pool.path("s1"));
    assert_eq!(worker.ask(&format!("os.fsync({fd})")), format!("-{}", libc::EIO));
    drop(worker);
    drop(server);
}

/// The kernel tells each open file of what a disk did not take, and a file that is opened after one was told not any more: the mount, which
/// opens a datafile for the sync, would not be told of what was written past it.
#[test]
fn a_sync_tells_of_what_the_disk_did_not_take_though_others_were_told_before_or_meanwhile() {
    for is_late in [false, true] {
        a_sync_tells_of_what_the_disk_did_not_take_though_others_were_told(is_late);
    }
}

/// A line for a [`Worker`]: its number, once it lets any process of its user trace it, as Linux' Yama has each say of itself.
const TRACEABLE: &str = "(ctypes.CDLL(None).prctl(0x59616d61, ctypes.c_ulong(2**64 - 1), 0, 0, 0), os.getpid())[1]";

/// A tracer that holds each `fsync` of a process, where it enters the kernel or leaves it, until this is dropped.
struct Held(Child);

impl Held {
    fn at(process: &str, place: &str) -> Held {
        let inject = format!("inject=fsync:delay_{place}=600s");
        let hold = ["-f", "-o", "/dev/null", "-e", "trace=fsync", "-e", &inject, "-p", process];
        let held = Held(Command::new("strace").args(hold).stderr(Stdio::null()).spawn().expect("strace is installed"));
        common::eventually("the process is traced", || status_of(process, "TracerPid") != "0");
        held
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let tracer = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(tracer, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

/// Whether a thread stands in `fsync`, and its tracer holds it there.
fn is_held(thread: &str) -> bool {
    // The kernel tells the number of a call that a thread waits in.
    let call = std::fs::read_to_string(format!("/proc/{thread}/syscall")).unwrap_or_default();
    status_of(thread, "State").starts_with('t') && call.starts_with(&format!("{} ", libc::SYS_fsync))
}

fn status_of(process: &str, what: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':')).expect("the kernel tells");
    line.trim().to_owned()
}

fn a_sync_tells_of_what_the_disk_did_not_take_though_others_were_told(is_late: bool) {
    let pool = TestPool::new();
    let Some(disk) = LoopDisk::thin(&pool, "s1") else {
        eprintln!("not tested: no ext4 on a loop device here");
        return;
    };
    let mounted = Command::new(mount_program()).arg(pool.path("pool.toml")).stdin(Stdio::null()).output().unwrap();
    succeeded("mount", &mounted);
    let mut worker = Worker::start(&pool);
    let fd = worker.ask("os.open('file', os.O_CREAT | os.O_RDWR)");
    let write = |number: u8| format!("os.pwrite({fd}, b'{number}' * 6291456, {number} * 6291456)");
    assert_eq!(worker.ask(&write(0)), "6291456");
    disk.write_back();
    disk.fill();
    assert_eq!(worker.ask(&write(1)), "6291456");
    assert_eq!(worker.ask(GOES_PAST_THE_MOUNT), "True");
    let store = Store::of_file(&pool.path("pool.toml")).unwrap();
    let inode = store.existing("file".as_ref()).unwrap().unwrap();
    let tell_another = || {
        disk.write_back();
        let other = Layout::striped([ServerId(0)], 4096).unwrap();
        let error = inode.move_to(&other, "file", &mut |_, _| true).unwrap_err();
        assert!(matches!(error.cause(), Error::NotWrittenBack { .. }), "{error}");
    };
    let sync = format!("os.fsync({fd})");
    let told = if is_late {
        let process = worker.ask(TRACEABLE);
        let held = Held::at(&process, "enter");
        std::thread::scope(|scope| {
            let told = scope.spawn(|| worker.ask(&sync));
            common::eventually("the sync is held", || is_held(&process));
            tell_another();
            drop(held);
            told.join().unwrap()
        })
    } else {
        tell_another();
        worker.ask(&sync)
    };
    assert_eq!(told, format!("-{}", libc::EIO), "late: {is_late}");
    disk.relieve();
    assert_eq!(worker.ask(&write(1)), "6291456");
    assert_eq!(worker.ask(&format!("os.fsync({fd})")), "None");
    drop(worker);
    drop(inode);
}

#[test]
fn bytes_of_a_datafile_that_was_cut_short_are_errors_under_a_program_that_goes_past_the_mount() {
    let pool = TestPool::new();
    let mounted = Command::new(mount_program()).arg(pool.path("pool.toml")).stdin(Stdio::null()).output().unwrap();
    succeeded("mount", &mounted);
    {
        let mut writer = Worker::start(&pool);
        let fd = writer.ask("os.open('file', os.O_CREAT | os.O_RDWR)");
        assert_eq!(writer.ask(&format!("os.pwrite({fd}, b'ab' * 18432, 0)")), "36864");
        assert_eq!(writer.ask(&format!("os.ftruncate({fd}, 60000)")), "None");
        assert_eq!(writer.ask(&format!("os.close({fd})")), "None");
        // The close has been told to the mount when another open and close are.
        assert_eq!(writer.ask("os.close(os.open('file', os.O_RDWR))"), "None");
    }
    let datafile = |server: &str| {
        let inner = std::fs::read_dir(pool.path(server)).unwrap().flatten().map(|entry| entry.path());
        let inner = inner.filter(|path| path.file_name().is_some_and(|name| name.len() == 2));
        inner.flat_map(|path| std::fs::read_dir(path).unwrap().flatten()).next().unwrap().path()
    };
    let record = || rustix::fs::getxattr(pool.path("ns/tree/file"), "user.stripewise.lengths", &mut [0; 1024][..]);
    common::eventually("the last close is recorded", || record().is_ok());
    std::fs::OpenOptions::new().write(true).open(datafile("s1")).unwrap().set_len(4096).unwrap();
    let mut worker = Worker::start(&pool);
    let fd = worker.ask("os.open('file', os.O_RDONLY)");
    let eio = format!("-{}", libc::EIO);
    for stripe in 0..9 {
        let answer = worker.ask(&format!("os.pread({fd}, 2, {})", stripe * 4096));
        let is_lost = stripe % 3 == 1 && stripe >= 3;
        assert_eq!(answer, if is_lost { &*eio } else { "b'ab'" }, "stripe {stripe}");
    }
    assert_eq!(worker.ask(&format!("os.pread({fd}, 20, 40000) == bytes(20)")), "True", "a hole is a hole");
    drop(worker);
}
