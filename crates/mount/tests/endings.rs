//! What is left of a mount: its end, which `umount` waits for, and its process's death, after which it is cleared.

mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use common::{BIN, TestPool, eventually, need, succeeded};
use rustix::process::{Pid, Signal, kill_process};

fn run(args: &[&dyn AsRef<std::ffi::OsStr>]) -> Output {
    Command::new(BIN).args(args.iter().map(|arg| arg.as_ref())).stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What umount says where something is in the mount for an instant: a process that another test has just forked has its
/// descriptors until it executes its program, and others on this machine may look at all mounts.
const BUSY: &str = "still use it";

/// `stripewise-mount --unmount` of what no test uses.
fn unmount(dir: &Path) -> Output {
    loop {
        let output = run(&[&"--unmount", &dir]);
        if !said(&output).contains(BUSY) {
            return output;
        }
    }
}

/// The same, begun, and the first line that it says.
fn begin_unmount(dir: &Path) -> (Child, BufReader<ChildStderr>, String) {
    loop {
        // What a shell starts in the background ignores Ctrl-C, and hands that on to all that it starts.
        let mut command = Command::new("env");
        command.args(["--default-signal=INT", BIN, "--unmount"]).arg(dir);
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut err = BufReader::new(process.stderr.take().unwrap());
        let mut line = String::new();
        err.read_line(&mut line).unwrap();
        if !line.contains(BUSY) {
            return (process, err, line);
        }
        process.wait().unwrap();
    }
}

fn mounts_at(dir: &Path) -> usize {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().filter(|line| line.split(' ').nth(4).is_some_and(|point| Path::new(point) == dir)).count()
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

/// A mount whose process is this test's child.
struct Served {
    process: Child,
    dir: PathBuf,
}

impl Served {
    fn new(pool: &TestPool, options: &str) -> Served {
        let dir = pool.mnt().canonicalize().unwrap();
        let mut command = Command::new(BIN);
        command.arg("--foreground").arg(pool.file()).args(["-o", options]).stdin(Stdio::null());
        let process = command.spawn().unwrap();
        eventually("the mount", || mounts_at(&dir) == 1);
        // It stands before the process has greeted the kernel. One that is unmounted before that has failed.
        fs::metadata(&dir).unwrap();
        Served { process, dir }
    }

    fn die(&mut self) {
        self.process.kill().unwrap();
        assert_eq!(self.process.wait().unwrap().signal(), Some(libc::SIGKILL));
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // In a test that failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn the_next_mount_clears_one_that_died_with_files_open_and_programs_waiting() {
    let pool = TestPool::new();
    let mut served = Served::new(&pool, "noatime");
    fs::write(served.dir.join("f"), vec![7; 30_000]).unwrap();
    let mut open = File::open(served.dir.join("f")).unwrap();
    let mut inside = Command::new("cat").current_dir(&served.dir).stdin(Stdio::piped()).spawn().unwrap();
    signal(served.process.id(), Signal::STOP);
    // It waits for an answer, or comes later and finds the mount dead.
    let mut waiting = Command::new("cat").arg(served.dir.join("f")).stdout(Stdio::null()).spawn().unwrap();
    served.die();
    assert!(!waiting.wait().unwrap().success());

    let output = run(&[&pool.file()]);
    succeeded("mount", &output);
    assert!(said(&output).contains("cleared the mount of pool `scratch`"), "{}", said(&output));
    assert_eq!(mounts_at(&served.dir), 1);
    assert_eq!(fs::read(served.dir.join("f")).unwrap(), vec![7; 30_000]);
    assert_eq!(open.read(&mut [0; 10]).unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
    drop(inside.stdin.take());
    assert!(inside.wait().unwrap().success());
    let output = unmount(&served.dir);
    succeeded("unmount", &output);
    assert_eq!((said(&output).as_str(), mounts_at(&served.dir)), ("", 0));
}

#[test]
fn unmounting_clears_one_that_died_with_files_open() {
    let pool = TestPool::new();
    for options in [&["--unmount"][..], &["--lazy", "--unmount"]] {
        let mut served = Served::new(&pool, "noatime");
        fs::write(served.dir.join("f"), vec![1; 12_345]).unwrap();
        let _open = File::open(served.dir.join("f")).unwrap();
        served.die();
        let output = Command::new(BIN).args(options).arg(&served.dir).output().unwrap();
        succeeded("unmount", &output);
        assert_eq!(mounts_at(&served.dir), 0);
        assert_eq!(said(&output).contains("had died before"), options.len() == 1, "{}", said(&output));
        assert_eq!(pool.sh("stat -c %s f; wc -c < f"), "12345\n12345\n");
    }
}

/// A link leads there as well, and mounts that were made one over the other go together.
#[test]
fn a_dead_mount_behind_a_link_and_two_of_them() {
    let pool = TestPool::new();
    let mut served = Served::new(&pool, "noatime");
    served.die();
    let twin =
        "exec 3<> /dev/fuse; mount -i -t fuse.stripewise -o fd=3,rootmode=40000,user_id=0,group_id=0 scratch \"$1\"";
    succeeded(twin, &Command::new("sh").args(["-euc", twin, "sh"]).arg(&served.dir).output().unwrap());
    assert_eq!(mounts_at(&served.dir), 2);
    std::os::unix::fs::symlink(&served.dir, pool.path("link")).unwrap();
    succeeded("mount", &run(&[&pool.file(), &pool.path("link")]));
    assert_eq!(mounts_at(&served.dir), 1);
    succeeded("unmount", &unmount(&pool.path("link")));
    assert_eq!(mounts_at(&served.dir), 0);
}

#[test]
fn a_dead_mount_of_another_pool_or_another_kind_stays() {
    let pool = TestPool::new();
    let mut served = Served::new(&pool, "fsname=other");
    served.die();
    let below = served.dir.join("below");
    for dir in [&served.dir, &below] {
        let output = run(&[&pool.file(), dir]);
        assert_eq!(output.status.code(), Some(1));
        let text = said(&output);
        assert!(text.contains("pool `other` whose process has died") && text.contains("stripewise umount"), "{text}");
    }
    assert_eq!(mounts_at(&served.dir), 1);
    succeeded("unmount", &unmount(&served.dir));

    let foreign =
        "exec 3<> /dev/fuse; mount -i -t fuse.other -o fd=3,rootmode=40000,user_id=0,group_id=0 scratch \"$1\"";
    succeeded(foreign, &Command::new("sh").args(["-euc", foreign, "sh"]).arg(&served.dir).output().unwrap());
    for arguments in [&[&pool.file() as &dyn AsRef<std::ffi::OsStr>][..], &[&"--unmount", &served.dir]] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(mounts_at(&served.dir), 1, "{}", said(&output));
    }
}

#[test]
fn a_private_run_goes_on_where_a_mount_has_died() {
    let pool = TestPool::new();
    let mut served = Served::new(&pool, "noatime");
    fs::write(served.dir.join("f"), vec![7; 30_000]).unwrap();
    served.die();
    let output = pool.private(&["sh", "-c", "cd \"$M\"; wc -c < f; echo more >> f"]).output().unwrap();
    assert_eq!(succeeded("private", &output), "30000\n");
    assert!(said(&output).contains("has died") && said(&output).contains("umount"), "{}", said(&output));
    assert_eq!(mounts_at(&served.dir), 1, "what others see is theirs to clear");
    succeeded("mount", &run(&[&pool.file()]));
    assert_eq!(fs::metadata(served.dir.join("f")).unwrap().len(), 30_005);
    succeeded("unmount", &unmount(&served.dir));
}

/// A process with a copy of all mounts, private to it, until it is dropped: what is unmounted elsewhere is still served.
struct Copy {
    process: Child,
}

impl Copy {
    fn new() -> Copy {
        need("unshare");
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", "echo ready; read word"]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Copy { process }
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

#[test]
fn unmounting_returns_when_the_process_has_ended() {
    let pool = TestPool::new();
    let mut served = Served::new(&pool, "noatime");
    let copy = Copy::new();
    let (mut unmounting, mut err, line) = begin_unmount(&served.dir);
    assert!(line.contains(&format!("waiting for process {}", served.process.id())), "{line}");
    assert_eq!(mounts_at(&served.dir), 0);
    assert!(unmounting.try_wait().unwrap().is_none() && served.process.try_wait().unwrap().is_none());
    drop(copy);
    assert!(unmounting.wait().unwrap().success());
    // It has ended, not only begun to.
    assert!(served.process.try_wait().unwrap().is_some_and(|status| status.success()));
    let mut rest = String::new();
    err.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}

#[test]
fn the_wait_has_a_bound_and_ends_by_ctrl_c() {
    let pool = TestPool::new();
    let mut served = Served::new(&pool, "noatime");
    let copy = Copy::new();
    let (mut unmounting, _err, line) = begin_unmount(&served.dir);
    assert!(line.contains("Ctrl-C"), "{line}");
    signal(unmounting.id(), Signal::INT);
    assert_eq!(unmounting.wait().unwrap().signal(), Some(libc::SIGINT));
    assert!(served.process.try_wait().unwrap().is_none());
    drop(copy);
    assert!(served.process.wait().unwrap().success());

    let mut served = Served::new(&pool, "noatime");
    let copy = Copy::new();
    let mut output = run(&[&"--wait", &"0", &"--unmount", &served.dir]);
    while said(&output).contains(BUSY) {
        output = run(&[&"--wait", &"0", &"--unmount", &served.dir]);
    }
    assert_eq!(output.status.code(), Some(1));
    let pid = format!("process {}", served.process.id());
    assert!(said(&output).contains(&pid) && said(&output).contains("has not ended in 0 s"), "{}", said(&output));
    assert_eq!(mounts_at(&served.dir), 0);
    drop(copy);
    assert!(served.process.wait().unwrap().success());
}

#[test]
fn a_stopped_process_is_waited_for_and_detached_without_a_word_by_lazy() {
    let pool = TestPool::new();
    let mut served = Served::new(&pool, "noatime");
    signal(served.process.id(), Signal::STOP);
    let (mut unmounting, mut err, line) = begin_unmount(&served.dir);
    assert!(line.contains("waiting for an answer"), "{line}");
    signal(served.process.id(), Signal::CONT);
    let mut rest = String::new();
    err.read_to_string(&mut rest).unwrap();
    if !unmounting.wait().unwrap().success() {
        // Others whom the stopped process kept waiting were in the mount still.
        assert!(rest.contains(BUSY), "{rest}");
        succeeded("unmount", &unmount(&served.dir));
    }
    assert!(served.process.try_wait().unwrap().is_some_and(|status| status.success()));

    let mut served = Served::new(&pool, "noatime");
    signal(served.process.id(), Signal::STOP);
    succeeded("unmount", &run(&[&"--lazy", &"--unmount", &served.dir]));
    assert_eq!(mounts_at(&served.dir), 0);
    signal(served.process.id(), Signal::CONT);
    assert!(served.process.wait().unwrap().success());
}

#[test]
fn a_mount_that_is_bound_elsewhere_goes_on_there() {
    let pool = TestPool::new();
    let mut served = Served::new(&pool, "noatime");
    fs::create_dir(pool.path("second")).unwrap();
    let second = pool.path("second").canonicalize().unwrap();
    let bind = Command::new("mount").arg("--bind").arg(&served.dir).arg(&second).output().unwrap();
    succeeded("mount --bind", &bind);
    let output = unmount(&served.dir);
    succeeded("unmount", &output);
    assert!(said(&output).contains(&format!("goes on at {}", second.display())), "{}", said(&output));
    fs::File::create(second.join("f")).unwrap().write_all(b"written").unwrap();
    succeeded("unmount", &unmount(&second));
    assert!(served.process.try_wait().unwrap().is_some_and(|status| status.success()));
}
