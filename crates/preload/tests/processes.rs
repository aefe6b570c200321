//! Processes, threads, signals and other libraries: the library is right, or out of the way.

mod common;

use common::{TestPool, both_ways, compile, need, succeeded};

both_ways! {
    threads_never_see_another_files_bytes,
    handlers_may_do_anything_in_the_middle_of_anything,
    programs_that_close_everything_go_on,
    descriptors_closed_behind_libcs_back_are_found_out,
    memory_that_is_not_there_is_an_error,
    descriptors_go_through_fork_spawn_and_exec,
    copies_of_a_descriptor_are_the_same_file,
}

/// Runs the part `what` of `processes.c`.
fn in_c(preload: bool, what: &str) {
    let pool = TestPool::new();
    let program = pool.path("out/processes");
    compile("processes.c", &program);
    let (program, mount) = (program.to_str().expect("text"), pool.path("mnt"));
    let output = pool.command(preload, &[program, what, mount.to_str().expect("text")]).output().expect("the program");
    succeeded(what, &output);
}

fn threads_never_see_another_files_bytes(preload: bool) {
    in_c(preload, "threads");
}

fn handlers_may_do_anything_in_the_middle_of_anything(preload: bool) {
    in_c(preload, "handlers");
}

fn programs_that_close_everything_go_on(preload: bool) {
    in_c(preload, "close-all");
}

fn descriptors_closed_behind_libcs_back_are_found_out(preload: bool) {
    in_c(preload, "behind");
}

fn memory_that_is_not_there_is_an_error(preload: bool) {
    in_c(preload, "memory");
}

/// What a program does with the descriptor whose number it gets: a copy that other processes have a hand in, too.
const USE: &str = r#"
import os, sys
def past_the_mount():
    links = ('/proc/self/fd/' + fd for fd in os.listdir('/proc/self/fd'))
    return any('/s0/' in os.readlink(link) for link in links if os.path.lexists(link))
def use(fd, letter):
    at = os.lseek(fd, 0, os.SEEK_CUR)
    assert os.read(fd, 5000) == DATA[at:at + 5000] and os.lseek(fd, 0, os.SEEK_CUR) == at + 5000
    assert os.pread(fd, 9000, 30000) == DATA[30000:39000]
    assert os.pwrite(fd, letter, 60000 + letter[0]) == 1
DATA = b''.join(b'%07d\n' % i for i in range(7500))
"#;

fn descriptors_go_through_fork_spawn_and_exec(preload: bool) {
    let pool = TestPool::new();
    std::fs::write(pool.path("out/use.py"), USE).expect("a script");
    pool.python(
        preload,
        r#"
sys.path.insert(0, os.environ['OUT'])
import subprocess
from use import *
def child(letter, fd):
    """The program text of a child that uses `fd`."""
    return f"import sys; sys.path.insert(0, {os.environ['OUT']!r}); from use import *; import os; use({fd}, {letter!r});" + \
        f"assert past_the_mount() == ('LD_PRELOAD' in os.environ), 'past the mount'; os._exit(7)"
open('f', 'wb').write(DATA)
fd = os.open('f', os.O_RDWR); os.set_inheritable(fd, True)
log = os.open('log', os.O_WRONLY | os.O_CREAT | os.O_APPEND); os.set_inheritable(log, True)
use(fd, b'a')
def ended(pid): return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
def run(how, letter):
    program = [sys.executable, '-c', child(letter, fd)]
    if how == 'fork':
        pid = os.fork()
        if pid == 0: use(fd, letter); os.write(log, letter * 3000); os._exit(7)
    elif how == 'exec':
        pid = os.fork()
        if pid == 0: os.execv(sys.executable, program)
    elif how == 'spawn': pid = os.posix_spawn(sys.executable, program, os.environ)
    elif how == 'spawn as 0':
        program[2] = child(letter, 0)
        pid = os.posix_spawn(sys.executable, program, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, fd, 0)])
    elif how == 'env -i': pid = os.posix_spawn('/usr/bin/env', ['env', '-i'] + program, {})
    elif how == 'vfork': return subprocess.run(program, close_fds=False).returncode
    elif how == 'stdin': program[2] = child(letter, 0); return subprocess.run(program, stdin=fd).returncode
    return ended(pid)
ways = ['fork', 'exec', 'spawn', 'spawn as 0', 'env -i', 'vfork', 'stdin']
for number, how in enumerate(ways):
    letter = bytes([98 + number])
    assert run(how, letter) == 7, how
    assert os.lseek(fd, 0, os.SEEK_CUR) == 5000 * (number + 2), how
    assert os.pread(fd, 1, 60000 + letter[0]) == letter, how
# The offset is one for all; a shell's children take turns, one of them without the library.
os.lseek(fd, 0, os.SEEK_SET)
turns = "head -c 8 >/dev/null; env -u LD_PRELOAD dd bs=8 count=1 status=none; dd bs=8 count=2 status=none"
out = subprocess.run(['sh', '-c', turns], stdin=fd, stdout=subprocess.PIPE).stdout
assert out.endswith(b'\n') and len(out) == 24, out
# Descriptors that are closed at exec are not there.
os.set_inheritable(fd, False)
check = f"import os\ntry: os.fstat({fd})\nexcept OSError: os._exit(9)"
assert ended(os.posix_spawn(sys.executable, [sys.executable, '-c', check], os.environ)) == 9
# A child that makes a shared descriptor append.
import fcntl
fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
size = os.fstat(fd).st_size
os.lseek(fd, 0, 0); assert os.write(fd, b'at the end') == 10
assert os.pread(fd, 20, size) == b'at the end'
"#,
    );
}

fn copies_of_a_descriptor_are_the_same_file(preload: bool) {
    let pool = TestPool::new();
    std::fs::write(pool.path("out/use.py"), USE).expect("a script");
    pool.python(
        preload,
        r#"
sys.path.insert(0, os.environ['OUT'])
import ctypes, fcntl, signal, socket, subprocess
from use import *
libc = ctypes.CDLL(None, use_errno=True)
for name in ('f', 'g'):
    open(name, 'wb').write(DATA if name == 'f' else bytes(60000))
fd, other = os.open('f', os.O_RDWR), os.open('g', os.O_RDWR)
copies = [os.dup(fd), os.dup2(fd, 200), os.dup2(fd, other), fcntl.fcntl(fd, fcntl.F_DUPFD, 300),
          fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 300), libc.dup3(fd, 400, os.O_CLOEXEC)]
for number, copy in enumerate(copies):
    os.lseek(fd, number * 1000, os.SEEK_SET); use(copy, bytes([65 + number]))
    assert os.pread(fd, 1, 60065 + number) == bytes([65 + number])
os.close(fd)
use(copies[0], b'a')
assert os.open('g', os.O_RDONLY) == fd and os.pread(fd, 9, 0) == bytes(9)
# By message, to another process and back to this one; from a process that lets itself be looked into.
ours, theirs = socket.socketpair()
socket.send_fds(ours, [b'x'], [copies[0], fd, copies[1]])
got = socket.recv_fds(theirs, 1, 3)[1]
os.lseek(copies[0], 0, os.SEEK_SET)
use(got[0], b'b'); use(got[2], b'c'); assert os.pread(got[1], 9, 0) == bytes(9)
assert os.pread(copies[0], 2, 60000 + ord('b')) == b'bc'
pid = os.fork()
if pid == 0:
    socket.send_fds(theirs, [b'y'], [copies[0]]); signal.pause()
back = socket.recv_fds(ours, 1, 1)[1][0]
use(back, b'd')
pidfd = os.pidfd_open(pid)
taken = libc.syscall(438, pidfd, copies[0], 0)
if taken >= 0: use(taken, b'e'); assert os.pread(copies[0], 1, 60000 + ord('e')) == b'e'
os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0)
for copy in set(copies + got + [back]): os.close(copy)
# Numbers beyond the table, and the number of a copy that goes to another file.
import resource
high = min(70000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1)
fd = os.open('f', os.O_RDWR); os.dup2(fd, high); use(high, b'z')
os.dup2(os.open('g', os.O_RDWR), high); assert os.pread(high, 9, 0) == bytes(9)
"#,
    );
}

/// Each of `libraries` before ours and behind it.
#[test]
fn other_preloaded_libraries_in_both_orders() {
    let pool = TestPool::new();
    let directory = "/usr/lib/x86_64-linux-gnu";
    let others = [
        ("libjemalloc2", format!("{directory}/libjemalloc.so.2")),
        ("faketime", format!("{directory}/faketime/libfaketime.so.1")),
        ("fakeroot", format!("{directory}/libfakeroot/libfakeroot-sysv.so")),
        ("coreutils", "/usr/libexec/coreutils/libstdbuf.so".to_owned()),
    ];
    for (package, other) in &others {
        assert!(std::path::Path::new(other).exists(), "this test needs {other}: install the package {package}");
        for ours_first in [true, false] {
            let both = if ours_first { format!("$LIB:{other}") } else { format!("{other}:$LIB") };
            pool.script(
                false,
                &format!(
                    "export LD_PRELOAD={both} FAKETIME='2001-02-03 04:05:06' _STDBUF_O=L
                     seq 1 60000 > a; cp a b; cmp a b; tar -cf c.tar a b; tar -xOf c.tar b | cmp - a; sort -rn a | sort -n | cmp - b
                     python3 - <<'END'
import os, threading
fd = os.open('a', os.O_RDWR)
expected = b''.join(b'%d\\n' % i for i in range(1, 60001))
def work():
    for at in range(0, 300000, 7777):
        assert os.pread(fd, 9999, at) == expected[at:at + 9999]
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
links = [os.readlink('/proc/self/fd/' + fd) for fd in os.listdir('/proc/self/fd') if os.path.lexists('/proc/self/fd/' + fd)]
assert any('/s0/' in link for link in links), ('not past the mount', links)
if os.fork() == 0:
    os.pwrite(fd, b'child', 100000); os._exit(0)
os.wait(); assert os.pread(fd, 5, 100000) == b'child'
END
                     rm a b c.tar"
                ),
            );
        }
    }
}

/// Static programs, setuid programs, cleaned environments, instructions of a program's own and io_uring, each with
/// programs under the library on the same files.
#[test]
fn what_it_cannot_be_put_into_goes_through_the_mount() {
    need("fio");
    let pool = TestPool::new();
    let source = pool.path("out/plain.c");
    // Copies its input to its output, and says whether the library is in it.
    let text = "#include <unistd.h>\n#include <stdlib.h>\nint main(void) { static char b[7000]; long n;
        while ((n = read(0, b, sizeof b)) > 0) for (long d = 0, w; d < n; d += w) if ((w = write(1, b + d, n - d)) < 0) return 1;
        return n < 0 ? 2 : 0; }";
    std::fs::write(&source, text).expect("a source");
    for (name, flags) in [("static", "-static"), ("dynamic", "-O0")] {
        let mut build = std::process::Command::new("cc");
        build.args([flags, "-o"]).arg(pool.path(&format!("out/{name}"))).arg(&source);
        assert!(build.status().expect("cc").success(), "{name} does not build");
    }
    pool.script(
        true,
        "seq 1 50000 > a; ulimit -c 0
         $OUT/static < a > b; cmp a b; $OUT/dynamic < b > c; cmp a c; env -i $OUT/dynamic < a > d; cmp a d
         # Only the library stays, or only what it reads.
         env -i LD_PRELOAD=$LIB $OUT/dynamic < a > e; cmp a e
         env -i STRIPEWISE_POOL=$STRIPEWISE_POOL STRIPEWISE_MOUNT=$STRIPEWISE_MOUNT $OUT/dynamic < a > e; cmp a e
         # As another user than the one that started it: the loader ignores the library.
         if [ $(id -u) = 0 ]; then
             cp $OUT/dynamic suid; chown 65534 suid; chmod 4755 suid; ./suid < a > f; cmp a f
         fi
         # Both in turn on one descriptor, and on one file at once.
         (head -c 1000 > /dev/null; $OUT/static > g; cat > h) < a; test $(cat g | wc -c) -gt 0
         { $OUT/static < a; cat a; env -i cat a; } > i; cat a a a | cmp - i
         for engine in io_uring libaio; do
             fio --name=r --filename=u --size=3m --bsrange=4k-40k --rw=randwrite --verify=crc32c --do_verify=0 \\
                 --ioengine=$engine --iodepth=8 --randseed=3 --fallocate=none > $OUT/fio.log
             for reader in psync mmap; do
                 fio --name=r --filename=u --size=3m --bsrange=4k-40k --rw=randwrite --verify=crc32c --verify_only \\
                     --verify_fatal=1 --ioengine=$reader --randseed=3 --fallocate=none > $OUT/fio.log
             done
         done",
    );
}
