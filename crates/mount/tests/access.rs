//! Times of access: a file that was read says so, as it does on the namespace's own file system.

mod common;

use std::process::Command;

use common::{Mounted, TestPool, need, succeeded};

/// What moves the time of access of a file, one line each: asked for while the file is open (`OPEN`), and after its
/// close, which the mount may hear of a little later: what has to come, by `EXPECTED`, is waited for.
const CASES: &str = r#"
import mmap, os, time
OLD = 10**18
EXPECTED = os.environ.get("EXPECTED", "").splitlines()

def waits(name):
    # The kernel does not ask again for a moment.
    words = [line.removeprefix(f"{name} ").split() for line in EXPECTED if line.startswith(f"{name} ")]
    known = next((of for of in words if set(of) <= {"True", "False"}), [])
    return [60 if word == "True" else 0.2 for word in known] or [0.2, 0.2]

def seen(path, at, patience_s):
    until = time.monotonic() + patience_s
    while (now := os.stat(path).st_atime_ns) == at and time.monotonic() < until:
        time.sleep(0.02)
    assert now == at or abs(now / 1e9 - time.time()) < 60, now
    return now != at

def case(name, use, flags=os.O_RDONLY, at=OLD):
    with open("f", "wb") as f:
        f.write(b"x" * 20000)
    os.utime("f", ns=(OLD, OLD + 10**9))
    time.sleep(0.02)  # longer than the kernel's clock of files stands still: a time that was set counts for more
    fd = os.open("f", flags)
    use(fd)
    moved = [seen(fd, at, waits(name)[0])] if os.environ.get("OPEN") else []
    os.close(fd)
    moved.append(seen("f", at, waits(name)[-1]))
    os.unlink("f")
    print(name, *moved)

def map_read(fd):
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as m:
        return m[5000]

def set_after(fd):
    os.read(fd, 9)
    os.utime("f", ns=(OLD - 7, OLD))

def beside_one_without(fd):
    other = os.open("f", os.O_RDONLY | os.O_NOATIME)
    os.read(other, 10)
    os.close(other)
    os.read(fd, 10)

out = os.open("other", os.O_RDWR | os.O_CREAT)
case("nothing", lambda fd: None)
case("size", lambda fd: os.fstat(fd).st_size)
case("read", lambda fd: os.read(fd, 20000))
case("pread", lambda fd: os.pread(fd, 10, 9000))
case("readv", lambda fd: os.preadv(fd, [bytearray(4096)] * 4, 0))
case("map", map_read)
case("sendfile", lambda fd: os.sendfile(out, fd, 0, 9000))
case("copy", lambda fd: os.copy_file_range(fd, out, 9000, 0, 0))
case("no access time", lambda fd: os.read(fd, 10), os.O_RDONLY | os.O_NOATIME)
case("beside one without", beside_one_without)
case("set after a read", set_after, at=OLD - 7)
case("write", lambda fd: os.pwrite(fd, b"y" * 9000, 0), os.O_WRONLY)
case("cut", lambda fd: os.ftruncate(fd, 5000), os.O_WRONLY)
if os.environ.get("BOTH"):
    case("read and write", lambda fd: (os.pwrite(fd, b"y", 0), os.pread(fd, 9, 0)), os.O_RDWR)
    case("write beside reads", lambda fd: os.pwrite(fd, b"y", 0), os.O_RDWR)
"#;

/// The cases in a directory.
fn cases(command: &mut Command, variables: &[&str]) -> String {
    need("python3");
    for variable in variables {
        command.env(variable, "1");
    }
    succeeded("the cases", &command.output().unwrap())
}

fn beside(pool: &TestPool, variables: &[&str]) -> String {
    cases(Command::new("python3").args(["-c", CASES]).current_dir(pool.path("out")), variables)
}

fn on(mounted: &Mounted, variables: &[&str], expected: &str) -> String {
    let mut command = Command::new("python3");
    command.args(["-c", CASES]).current_dir(mounted.path(".")).env("EXPECTED", expected);
    cases(&mut command, variables)
}

/// How the cases end, on a mount of the pool with these options as beside it.
fn as_beside(pool: &TestPool, options: &str, variables: &[&str]) -> String {
    let expected = beside(pool, variables);
    assert_eq!(on(&Mounted::new(pool, "mnt", options), variables, &expected), expected);
    expected
}

const EXACT: [&str; 2] = ["OPEN", "BOTH"];

#[test]
fn reading_a_striped_file_moves_its_time_of_access() {
    let pool = TestPool::new();
    let found = as_beside(&pool, "rw", &EXACT);
    assert!(found.contains("read True True") && found.contains("nothing False False"), "{found}");
}

#[test]
fn reading_a_file_that_the_mount_serves_alone_moves_it_too() {
    let pool = TestPool::with("1MiB", &["s0"]);
    as_beside(&pool, "nopassthrough", &EXACT);
}

/// The bytes are in the inode, whose time of access the kernel moves by itself.
#[test]
fn reading_a_file_in_its_inode_moves_it_too() {
    let pool = TestPool::new();
    pool.hint("small=64K");
    as_beside(&pool, "rw", &EXACT);
}

#[test]
fn what_the_kernel_reads_itself_is_seen_at_the_close() {
    let pool = TestPool::with("1MiB", &["s0"]);
    as_beside(&pool, "rw", &[]);
}

/// The kernel answers reads from the pages it keeps without telling the mount, and fills pages that no program read.
#[test]
fn with_pages_that_are_kept_it_never_moves_without_a_read() {
    let pool = TestPool::new();
    let (expected, found) = (beside(&pool, &EXACT), on(&Mounted::new(&pool, "mnt", "writeback_cache"), &EXACT, ""));
    for (expected, found) in expected.lines().zip(found.lines()) {
        assert!(expected == found || expected.contains("True"), "{expected} became {found}");
    }
}

#[test]
fn a_mount_without_access_times_moves_none() {
    for (options, in_inodes) in [("noatime", false), ("nopassthrough,noatime", false), ("noatime", true)] {
        let pool = TestPool::new();
        if in_inodes {
            pool.hint("small=64K");
        }
        let found = on(&Mounted::new(&pool, "mnt", options), &EXACT, "");
        assert!(!found.contains("True"), "{options}, in inodes: {in_inodes}: {found}");
    }
}
