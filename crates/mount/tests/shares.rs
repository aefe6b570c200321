//! One user who takes all descriptors of root's mount that can be had: the others go on, and what is closed is free again.

mod common;

use common::{BIN, TestPool, eventually, need, succeeded};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const GREEDY: u32 = 62111;
const OTHER: u32 = 62112;
const ROOT: u32 = 0;
/// Of the mount's process, where a test does not say otherwise.
const DESCRIPTORS: u32 = 1024;

/// Opens files with bytes on a server, as many as have room in the descriptors for opens; none waits for long.
const OPEN_MANY: &str = r#"
import time
opened = []
for number in range(60):
    began = time.monotonic()
    opened.append(os.open(f"{M}/many{number}", os.O_CREAT | os.O_RDWR, 0o600))
    os.write(opened[-1], b"x" * 20000)
    took = time.monotonic() - began
    assert took < 60, took
for fd in opened: assert os.pread(fd, 20001, 0) == b"x" * 20000
"#;

/// A pool with a mount for all users, of a process with a bound of descriptors that it cannot raise.
struct Mount {
    pool: TestPool,
}

impl Mount {
    fn new() -> Mount {
        Mount::with(DESCRIPTORS)
    }

    fn with(descriptors: u32) -> Mount {
        ["python3", "prlimit", "setpriv"].into_iter().for_each(need);
        let pool = TestPool::new();
        let open_to_all = |path: &str, mode| {
            std::fs::set_permissions(pool.path(path), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        open_to_all("", 0o755);
        let limit = format!("--nofile={descriptors}:{descriptors}");
        let output = Command::new("prlimit")
            .args([limit.as_str(), "setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource", BIN])
            .arg(pool.file())
            .arg(pool.path("mnt"))
            .args(["-o", "allow_other"])
            .stdin(Stdio::null())
            .output();
        succeeded("mount", &output.unwrap());
        open_to_all("mnt", 0o1777);
        Mount { pool }
    }

    fn command(&self, user: u32, script: &str) -> Command {
        let preamble = format!(
            "import errno, fcntl, os, resource, shutil, sys\n\
             most = min(20_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1])\nresource.setrlimit(resource.RLIMIT_NOFILE, (most, most))\n\
             os.setgroups([])\nos.setresgid({user}, {user}, {user})\n\
             os.setresuid({user}, {user}, {user})\nM = {:?}\n",
            self.pool.path("mnt"),
        );
        let mut command = Command::new("python3");
        command.args(["-c", &(preamble + script)]);
        command
    }

    fn run(&self, user: u32, script: &str) -> Output {
        self.command(user, script).stdin(Stdio::null()).output().unwrap()
    }

    fn ok(&self, user: u32, script: &str) -> String {
        succeeded(script, &self.run(user, script))
    }

    /// Descriptors of the mount's process.
    fn descriptors(&self) -> usize {
        let mount = self.pool.path("mnt");
        let is_it = |process: &Path| {
            let command = std::fs::read(process.join("cmdline")).unwrap_or_default();
            let mut words = command.split(|byte| *byte == 0);
            words.next() == Some(BIN.as_bytes()) && words.any(|word| word == mount.as_os_str().as_encoded_bytes())
        };
        let processes = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
        let process = processes.into_iter().find(|process| is_it(process)).expect("the mount's process");
        std::fs::read_dir(process.join("fd")).unwrap().count()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new(BIN).args(["--lazy", "--unmount"]).arg(self.pool.path("mnt")).output();
    }
}

/// Takes files, opens of one file, directories and a lock on each, until none can be had, says how many and holds them.
const TAKE_ALL: &str = r#"
os.mkdir(f"{M}/greedy")
held = []
def take_all(take, most=100000):
    count = 0
    while count < most:
        try: held.append(take(count))
        except OSError as error:
            assert error.errno == errno.ENFILE, error
            return count
        count += 1
    return count
WRITE = os.O_CREAT | os.O_RDWR
def a_file(count):
    fd = os.open(f"{M}/greedy/{count}", WRITE, 0o600)
    os.write(fd, b"x" * 20000)
    return fd
files = take_all(a_file, 20)
again = take_all(lambda count: os.open(f"{M}/greedy/0", os.O_RDONLY), 50)
directories = take_all(lambda count: os.open(f"{M}/greedy", os.O_RDONLY | os.O_DIRECTORY))
assert (files, again) == (20, 50) and directories >= 20, (files, again, directories)
# What is open goes on being served.
for fd in held[:files]:
    assert os.pread(fd, 20001, 0) == b"x" * 20000
    os.lockf(fd, os.F_LOCK, 0)
print(directories, flush=True)
sys.stdin.read()
"#;

/// What each of the others does meanwhile.
const WORK: &str = r#"
top = f"{M}/of{os.getuid()}"
os.mkdir(top)
fds = []
for number in range(8):
    path = f"{top}/{number}"
    fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    os.write(fd, b"%d" % number * 30000)
    fds.append(fd)
assert sorted(os.listdir(top)) == [str(number) for number in range(8)]
for number, fd in enumerate(fds):
    assert os.pread(fd, 40000, 0) == b"%d" % number * 30000
    os.close(fd)
os.rename(f"{top}/0", f"{top}/renamed")
os.symlink("renamed", f"{top}/link")
assert open(f"{top}/link", "rb").read() == b"0" * 30000
for name in os.listdir(top):
    os.unlink(f"{top}/{name}")
os.rmdir(top)
"#;

fn begin(command: &mut Command) -> (Child, String) {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let line = next_line(&mut child);
    (child, line)
}

/// What a program says next.
fn next_line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    if line.is_empty() {
        let mut said = String::new();
        child.stderr.as_mut().unwrap().read_to_string(&mut said).unwrap();
        panic!("{said}");
    }
    line
}

fn end(mut child: Child) {
    child.stdin.take().unwrap().flush().unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn one_user_who_takes_all_that_can_be_had_stops_no_other() {
    let mount = Mount::new();
    mount.ok(OTHER, WORK);
    let before = mount.descriptors();
    let (greedy, first) = begin(&mut mount.command(GREEDY, TAKE_ALL));
    for user in [OTHER, ROOT] {
        mount.ok(user, WORK);
    }
    // Another process of the same user gets none either.
    let more = r#"
try: os.open(f"{M}/greedy/0", os.O_RDONLY)
except OSError as error: assert error.errno == errno.ENFILE, error
else: raise AssertionError("one more")
"#;
    mount.ok(GREEDY, more);
    end(greedy);
    eventually("what was taken is free", || mount.descriptors() < before + 100);
    mount.ok(GREEDY, "shutil.rmtree(f'{M}/greedy')");
    let (greedy, again) = begin(&mut mount.command(GREEDY, TAKE_ALL));
    let count = |told: String| told.trim().parse::<u32>().unwrap();
    // What was closed last may count for a moment yet.
    assert!(count(again) + 20 >= count(first));
    end(greedy);
}

#[test]
fn fifteen_thousand_descriptors_or_four_thousand_open_files_of_one_user_stop_no_other() {
    // As many as root may give here: of fewer than 60,000 or so the user gets less than what is asked for.
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let descriptors = hard.min(131_072) as u32;
    let mount = Mount::with(descriptors);
    let take = format!(
        r#"
os.mkdir(f"{{M}}/greedy")
def take_all(take, most):
    taken = []
    try:
        while len(taken) < most: taken.append(take(len(taken)))
    except OSError as error:
        assert error.errno == errno.ENFILE and {descriptors} < 131_072, (len(taken), error)
    return taken
def a_file(count):
    fd = os.open(f"{{M}}/greedy/{{count}}", os.O_CREAT | os.O_RDWR, 0o600)
    os.write(fd, b"x" * 20000)
    return fd
files = take_all(a_file, 4000)
assert len(files) >= 50, len(files)
print("files", flush=True)
sys.stdin.readline()
for fd in files[1:]: os.close(fd)
again = take_all(lambda count: os.open(f"{{M}}/greedy/0", os.O_RDONLY), 15000)
assert len(again) >= 200, len(again)
print("descriptors", flush=True)
sys.stdin.read()
"#
    );
    let mut command = mount.command(GREEDY, &take);
    let (mut greedy, said) = begin(&mut command);
    assert_eq!(said, "files\n");
    for user in [OTHER, ROOT] {
        mount.ok(user, WORK);
    }
    greedy.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    assert_eq!(next_line(&mut greedy), "descriptors\n");
    for user in [OTHER, ROOT] {
        mount.ok(user, WORK);
    }
    end(greedy);
}

#[test]
fn inodes_that_a_user_keeps_without_opening_them_stop_no_other() {
    let mount = Mount::new();
    let keep_all = r#"
os.mkdir(f"{M}/greedy")
held = []
try:
    for number in range(3000):
        path = f"{M}/greedy/{number}"
        os.mkdir(path)
        held.append(os.open(path, os.O_PATH))
except OSError as error:
    assert error.errno == errno.ENFILE, error
else:
    print("no bound is known to this kernel", flush=True)
print(len(held), flush=True)
sys.stdin.read()
"#;
    let (greedy, held) = begin(&mut mount.command(GREEDY, keep_all));
    if held.starts_with("no") {
        eprintln!("left out: {held}");
        return;
    }
    assert!(held.trim().parse::<u32>().unwrap() >= 300, "{held}");
    for user in [OTHER, ROOT] {
        mount.ok(user, WORK);
    }
    // Those that are set aside for opens are lent to no inode of another user.
    mount.ok(ROOT, OPEN_MANY);
    end(greedy);
}

#[test]
fn what_is_lent_to_inodes_is_there_for_opens_again() {
    let mount = Mount::new();
    mount.ok(
        ROOT,
        r#"
for number in range(1500): os.mkdir(f"{M}/{number}")
for number in range(1500): os.stat(f"{M}/{number}")
"#,
    );
    mount.ok(ROOT, OPEN_MANY);
}

#[test]
fn waits_for_locks_hold_no_thread_of_the_mount() {
    let mount = Mount::new();
    // More than the mount has threads.
    let wait = r#"
fd = os.open(f"{M}/locked", os.O_CREAT | os.O_RDWR, 0o600)
os.lockf(fd, os.F_LOCK, 0)
fcntl.flock(fd, fcntl.LOCK_EX)
waiters = []
for number in range(100):
    pid = os.fork()
    if pid == 0:
        own = os.open(f"{M}/locked", os.O_RDWR)
        if number % 2: os.lockf(own, os.F_LOCK, 0)
        else: fcntl.flock(own, fcntl.LOCK_EX)
        os._exit(0)
    waiters.append(pid)
def waits(pid):
    with open("/proc/locks") as locks:
        return any("->" in line and f" {pid} " in line for line in locks)
while not all(map(waits, waiters)): pass
print("all wait", flush=True)
sys.stdin.read()
os.lockf(fd, os.F_ULOCK, 0)
fcntl.flock(fd, fcntl.LOCK_UN)
os.close(fd)
for pid in waiters: assert os.waitpid(pid, 0)[1] == 0
"#;
    let (greedy, _) = begin(&mut mount.command(GREEDY, wait));
    for user in [OTHER, ROOT] {
        mount.ok(user, WORK);
    }
    end(greedy);
}
