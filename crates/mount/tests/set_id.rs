//! Set-user-id and set-group-id bits of a file that another user changes, by every call that changes bytes, with a descriptor
//! that is older than the bits and one that is younger: as on the file system of the namespace.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use common::{Mounted, TestPool, need, succeeded};

/// One line for each call, mode and user: what the call said, and the file's mode afterwards.
const CASES: &str = r#"
import ctypes, itertools, os, sys
DIR, OWNER, OTHER = sys.argv[1], 62101, 62102
libc = ctypes.CDLL(None, use_errno=True)
KEEP, PUNCH, ZERO = 1, 2, 16
def allocate(mode):
    def call(fd):
        if libc.fallocate(fd, mode, ctypes.c_long(0), ctypes.c_long(4096)): raise OSError(ctypes.get_errno(), 'fallocate')
    return call
def copy(fd):
    source = os.open(DIR + '/source', os.O_RDONLY)
    assert os.copy_file_range(source, fd, 100, 0, 50) == 100
calls = {f'allocate {mode}': allocate(mode) for mode in (0, KEEP, PUNCH | KEEP, ZERO, ZERO | KEEP)}
calls |= {'copy': copy, 'write': lambda fd: os.pwrite(fd, b'x', 5000), 'truncate': lambda fd: os.ftruncate(fd, 77)}
open(DIR + '/source', 'wb').write(b's' * 9000)
os.chmod(DIR + '/source', 0o644)
def made(mode):
    path = DIR + '/file'
    if os.path.exists(path): os.unlink(path)
    open(path, 'wb').write(b'f' * 9000)
    os.chown(path, OWNER, OWNER)
    os.chmod(path, mode)
    return path
for mode, user in itertools.product((0o6777, 0o4777, 0o2777), (OWNER, OTHER)):
    # Never opened: a mount cannot tell this call from a write where a program has the file open, and it learns of a close later.
    path = DIR + f'/chown-{mode:o}-{user}'
    os.mknod(path, 0o644)
    os.chown(path, OWNER, OWNER)
    os.chmod(path, mode)
    os.setgroups([]); os.setegid(user); os.seteuid(user)
    try: os.chown(path, -1, -1)
    # A file system of the kernel's own refuses it to others; here they change nothing.
    except PermissionError: assert user == OTHER
    os.seteuid(0); os.setegid(0)
    print('chown that names nothing', oct(mode), user, oct(os.stat(path).st_mode & 0o7777))
def opened_as(user, path):
    # Not a process of its own: the descriptor is to be older than the bits.
    os.setegid(user); os.seteuid(user)
    fd = os.open(path, os.O_RDWR)
    os.pwrite(fd, b'first', 0)
    os.seteuid(0); os.setegid(0)
    return fd
for (name, call), mode, user in itertools.product(calls.items(), (0o6777, 0o4777, 0o2777), (OWNER, OTHER, 0)):
    path = made(0o777)
    fd = opened_as(user, path)
    os.chmod(path, mode)
    os.setgroups([]); os.setegid(user); os.seteuid(user)
    call(fd)
    os.seteuid(0); os.setegid(0); os.close(fd)
    print('opened before', name, oct(mode), user, oct(os.stat(path).st_mode & 0o7777))
for (name, call), mode, user in itertools.product(calls.items(), (0o6777, 0o4777, 0o2777), (OWNER, OTHER, 0)):
    path = made(mode)
    child = os.fork()
    if child == 0:
        answer = 1
        try:
            os.setgroups([]); os.setresgid(user, user, user); os.setresuid(user, user, user)
            call(os.open(path, os.O_RDWR))
            answer = 0
        except OSError as error:
            answer = error.errno
        finally:
            os._exit(answer)
    answer = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(name, oct(mode), user, answer, oct(os.stat(path).st_mode & 0o7777))
"#;

fn cases(dir: &std::path::Path) -> String {
    fs::create_dir(dir).unwrap();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("timeout");
    let output = command.args(["60", "python3", "-c", CASES]).arg(dir).stdin(Stdio::null()).output().unwrap();
    succeeded("the calls", &output)
}

fn bits_go_as_in_the_namespace(servers: &[&str], options: &str) {
    need("python3");
    assert!(rustix::process::geteuid().is_root(), "this test acts as several users: run it as root");
    let pool = TestPool::with("4KiB", servers);
    let mounted = Mounted::new(&pool, "mnt", options);
    for path in [pool.path("."), pool.path("out")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let (bare, ours) = (cases(&pool.path("out/cases")), cases(&mounted.path("cases")));
    assert_eq!(bare.lines().count(), 150);
    let wrong: Vec<_> = bare.lines().zip(ours.lines()).filter(|(bare, ours)| bare != ours).collect();
    assert!(wrong.is_empty(), "with {options}; the namespace's file system, then the mount: {wrong:#?}");
}

#[test]
fn on_several_servers() {
    bits_go_as_in_the_namespace(&["s0", "s1", "s2"], "suid,allow_other");
}

#[test]
fn in_one_datafile() {
    bits_go_as_in_the_namespace(&["s0"], "suid,allow_other,nopassthrough");
}

#[test]
fn where_the_kernel_may_serve_the_file() {
    bits_go_as_in_the_namespace(&["s0"], "suid,allow_other");
}

#[test]
fn where_the_kernel_keeps_what_is_written() {
    bits_go_as_in_the_namespace(&["s0", "s1", "s2"], "suid,allow_other,writeback_cache");
}
