//! `-o writeback_cache`: the kernel keeps what programs write, and the mount is the only way in.

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};

use common::{BIN, Mounted, TestPool, eventually, succeeded};
use stripewise_store::{Files, Pool, Store};

const OPTION: &str = "writeback_cache";

/// What the servers have of a file.
fn below(pool: &TestPool, name: &str) -> Vec<u8> {
    let store = Store::open(Pool::load(&pool.file()).unwrap()).unwrap();
    let inode = store.lookup(name.as_ref()).unwrap().unwrap();
    let mut bytes = vec![0; inode.size_bytes().unwrap() as usize];
    assert_eq!(inode.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| ((at * 2_654_435_761) >> 13) as u8 | 1).collect()
}

/// What it is for: many small writes come to the servers as few large ones. What programs see is what was written, at
/// once; the servers have it after `fsync`, after a close and after an unmount.
#[test]
fn what_is_written_is_kept_and_handed_on_by_fsync_close_and_unmount() {
    let pool = TestPool::new();
    let mounted = Mounted::new(&pool, "mnt", OPTION);
    let content = pattern(100_000);
    // The kernel may hand on at any time, but not each time at once: then this option were none.
    let kept = (0..50).any(|number| {
        let name = format!("kept{number}");
        let mut file = File::create(mounted.path(&name)).unwrap();
        file.write_all(b"a little").unwrap();
        below(&pool, &name).is_empty()
    });
    assert!(kept);
    let mut file = File::create(mounted.path("f")).unwrap();
    content.chunks(77).for_each(|chunk| file.write_all(chunk).unwrap());
    assert!(fs::read(mounted.path("f")).unwrap() == content, "another open file of the same mount");
    assert_eq!(fs::metadata(mounted.path("f")).unwrap().len(), content.len() as u64);
    file.sync_all().unwrap();
    assert!(below(&pool, "f") == content);
    file.write_all(b"more").unwrap();
    drop(file);
    assert!(below(&pool, "f") == [&content[..], b"more"].concat());

    // Opened for writing only, parts of a page: the kernel reads what is around them.
    let file = File::options().write(true).open(mounted.path("f")).unwrap();
    file.write_all_at(b"part", 50_001).unwrap();
    let plain = mounted.path("plain");
    fs::write(pool.path("ns/tree/plain"), &content).unwrap();
    File::options().write(true).open(&plain).unwrap().write_all_at(b"part", 50_001).unwrap();
    let unmounted = Command::new("umount").arg("-l").arg(&mounted.dir).status().unwrap();
    assert!(unmounted.success());
    drop(file);
    let expected = [&content[..50_001], b"part", &content[50_005..]].concat();
    eventually("the end of the mount", || below(&pool, "f") == [&expected[..], b"more"].concat());
    assert!(fs::read(pool.path("ns/tree/plain")).unwrap() == expected);
}

/// A server that is told to end goes on for files that are open; told twice, it has the kernel hand on what it keeps of
/// them.
#[test]
fn a_server_that_is_told_to_end_loses_nothing() {
    let pool = TestPool::new();
    let mut server = Command::new(BIN);
    server.args(["--foreground", "-o", OPTION]).arg(pool.file()).stdin(Stdio::null());
    let mut server = server.spawn().unwrap();
    let there = || stripewise_mount::mounted_at(&pool.mnt().canonicalize().unwrap()).unwrap().is_some();
    eventually("the mount", there);
    let content = pattern(300_000);
    let mut file = File::create(pool.mnt().join("f")).unwrap();
    file.write_all(&content).unwrap();
    // SAFETY: our own child, not yet waited for.
    let end = || unsafe { libc::kill(server.id() as i32, libc::SIGTERM) };
    end();
    eventually("that it has gone from the tree", || !there());
    end();
    assert!(server.wait().unwrap().success());
    assert!(below(&pool, "f") == content);
    drop(file);
}

#[test]
fn times_sizes_and_modes_are_those_of_the_last_change() {
    let pool = TestPool::new();
    let mounted = Mounted::new(&pool, "mnt", OPTION);
    let path = mounted.path("f");
    fs::write(&path, pattern(9000)).unwrap();
    let times = |path: &std::path::Path| fs::metadata(path).map(|found| (found.mtime(), found.mtime_nsec())).unwrap();
    let before = times(&path);
    // As `cp -p` does: written, given a time, closed.
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"x", 20_000).unwrap();
    assert!(times(&path) > before);
    file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_nanos(1_234_567_890_123)).unwrap();
    drop(file);
    assert_eq!(times(&path), (1234, 567_890_123));
    // The kernel does without asking for the size of a file that it has; another mount later has to find it.
    let file = File::options().append(true).open(&path).unwrap();
    (&file).write_all(b"end").unwrap();
    let last = times(&path);
    file.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
    drop((file, mounted));
    let there = || stripewise_mount::mounted_at(&pool.mnt().canonicalize().unwrap()).unwrap().is_some();
    eventually("the end of the mount", || !there());
    eventually("the last release", || Files::open(Pool::load(&pool.file()).unwrap()).is_ok());
    assert_eq!(pool.sh("stat -c '%s %a' f; tail -c 3 f"), "20004 640\nend");
    assert_eq!(pool.python("print(os.stat('f').st_mtime_ns)").trim(), format!("{}{:09}", last.0, last.1));
}

/// Two programs on the one mount, by system calls, maps, appends and past the kernel's pages.
#[test]
fn programs_on_the_one_mount_see_each_others_writes() {
    for servers in [&["s0", "s1", "s2"][..], &["s1"]] {
        let pool = TestPool::with("4KiB", servers);
        let mounted = Mounted::new(&pool, "mnt", OPTION);
        let script = "
import os, mmap
fd = os.open('f', os.O_RDWR | os.O_CREAT); os.ftruncate(fd, 50000); m = mmap.mmap(fd, 50000)
m[4090:4100] = b'0123456789'; assert os.pread(fd, 10, 4090) == b'0123456789'
os.pwrite(fd, b'abc', 20000); assert m[19999:20004] == b'\\0abc\\0'
def child(work):
    if (pid := os.fork()) == 0:
        work(); os._exit(0)
    return pid
def wait(*pids):
    for pid in pids: assert os.waitpid(pid, 0)[1] == 0
def other():
    n = mmap.mmap(os.open('f', os.O_RDWR), 50000); assert n[4090:4100] == b'0123456789'; n[49990:] = b'x' * 10
wait(child(other)); assert m[49990:] == b'x' * 10 and os.pread(fd, 3, 20000) == b'abc'
# Past the pages: reads and writes of O_DIRECT.
direct = os.open('f', os.O_RDWR | os.O_DIRECT); buffer = mmap.mmap(-1, 4096)
os.pwrite(fd, b'before', 8192); assert os.preadv(direct, [buffer], 8192) == 4096 and buffer[:6] == b'before'
buffer[:6] = b'behind'; os.pwritev(direct, [buffer], 8192); assert os.pread(fd, 6, 8192) == b'behind' and m[8192:8198] == b'behind'
os.ftruncate(fd, 100); os.ftruncate(fd, 30000); assert os.pread(fd, 30000, 100) == bytes(29900)
def append(who):
    log = os.open('log', os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for i in range(200): record = b'%d %d ' % (who, i) + b'x' * (37 + who * 61) + b'\\n'; assert os.write(log, record) == len(record)
wait(*[child(lambda: append(who)) for who in range(4)])
seen = {}
for line in open('log'):
    who, i, pad = line.split(); assert len(pad) == 37 + int(who) * 61 and seen.get(who, -1) + 1 == int(i), line
    seen[who] = int(i)
assert seen == {str(who): 199 for who in range(4)}, seen
# Who looks for data finds all that is there.
sparse = os.open('sparse', os.O_RDWR | os.O_CREAT); os.pwrite(sparse, b'data', 1 << 30)
assert os.lseek(sparse, 0, os.SEEK_DATA) <= 1 << 30 and os.lseek(sparse, 1 << 30, os.SEEK_HOLE) == (1 << 30) + 4
os.copy_file_range(fd, sparse, 6, 8192, 5); assert os.pread(sparse, 6, 5) == os.pread(fd, 6, 8192)
";
        let output = Command::new("python3").args(["-c", script]).current_dir(&mounted.dir).output().unwrap();
        succeeded(script, &output);
    }
}

#[test]
fn the_mount_is_the_only_way_in() {
    let pool = TestPool::new();
    let mount = |name: &str, options: &str| {
        fs::create_dir_all(pool.path(name)).unwrap();
        let mut command = Command::new(BIN);
        command.arg(pool.file()).arg(pool.path(name)).args(["-o", options]).stdin(Stdio::null());
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let mounted = Mounted::new(&pool, "mnt", OPTION);
    let (done, said) = mount("other", "rw");
    assert!(!done && said.contains("writeback_cache") && said.contains("unmount"), "{said}");
    let error = Files::open(Pool::load(&pool.file()).unwrap()).unwrap_err().to_string();
    assert!(error.contains("writeback_cache"), "{error}");
    drop(mounted);
    eventually("an ordinary mount", || mount("other", "rw").0);
    let (done, said) = mount("mnt", OPTION);
    assert!(!done && said.contains("in use by another"), "{said}");
    succeeded("unmount", &Command::new(BIN).arg("--unmount").arg(pool.path("other")).output().unwrap());

    let shared = TestPool::shared();
    let output = Command::new(BIN).arg(shared.file()).args(["-o", OPTION]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("several users"), "{said}");
}
