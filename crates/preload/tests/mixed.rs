//! Processes under the library and others without it on the same files at the same time. Operations at random, one after
//! the other, are in crates/conformance.

mod common;

use common::TestPool;

/// A process that carries out lines of Python as they come, and answers each with its value.
const WORKER: &str = r#"
import os, sys, mmap
for line in sys.stdin:
    value = eval(line)
    sys.stdout.write(repr(value) + "\n")
    sys.stdout.flush()
"#;

/// Starts workers; 0 and 2 run under the library, 1 does not.
const WORKERS: &str = r#"
import subprocess
def start(preload):
    environment = dict(os.environ)
    environment.pop('LD_PRELOAD', None)
    if preload:
        environment['LD_PRELOAD'] = os.environ['LIB']
    return subprocess.Popen([sys.executable, '-c', WORKER], env=environment, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
workers = [start(True), start(False), start(True)]
def ask(worker, line):
    workers[worker].stdin.write(line + "\n")
    workers[worker].stdin.flush()
    return eval(workers[worker].stdout.readline())
def bypassed(worker):
    """Whether the worker has datafiles of its own open."""
    return ask(worker, "any('/s0/' in os.readlink('/proc/self/fd/' + fd) for fd in os.listdir('/proc/self/fd') if os.path.lexists('/proc/self/fd/' + fd))")
"#;

fn run(script: &str) {
    let pool = TestPool::new();
    pool.python(false, &format!("WORKER = r'''{WORKER}'''\n{WORKERS}\n{script}"));
}

#[test]
fn a_mapping_sees_writes_and_its_own_are_seen() {
    run(r#"
for mapper in (1, 2):
    name = f'map{mapper}'
    writer = ask(0, f"os.open({name!r}, os.O_CREAT | os.O_RDWR)")
    assert ask(0, f"os.pwrite({writer}, b'x' * 50000, 0)") == 50000
    assert bypassed(0)
    fd = ask(2, f"os.open({name!r}, os.O_RDWR)")
    assert ask(2, f"os.pread({fd}, 3, 0)") == b'xxx'
    assert ask(2, f"globals().update(m=mmap.mmap({fd}, 50000)) or m[40000:40003]") == b'xxx'
    for at in range(0, 50000, 5000):
        assert ask(0, f"os.pwrite({writer}, b'written', {at})") == 7
        assert ask(2, f"m[{at}:{at} + 7]") == b'written', at
        assert ask(2, f"m.__setitem__(slice({at} + 10, {at} + 16), b'mapped') or m.flush()") is None
        assert ask(0, f"os.pread({writer}, 6, {at} + 10)") == b'mapped', at
    ask(2, "m.close()")
    ask(2, f"os.close({fd})")
    ask(0, f"os.close({writer})")
"#);
}

#[test]
fn appends_of_four_processes_lose_nothing() {
    run(r#"
import threading
workers.append(start(False))
def append(w):
    fd = ask(w, "os.open('log', os.O_CREAT | os.O_WRONLY | os.O_APPEND)")
    for i in range(100):
        record = f'{w}:{i:04}:'.encode() + b'.' * (100 + 37 * i % 5000) + b'\n'
        assert ask(w, f"os.write({fd}, {record!r})") == len(record)
threads = [threading.Thread(target=append, args=(w,)) for w in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
lines = open('log', 'rb').read().split(b'\n')
assert lines.pop() == b''
assert len(lines) == 400
assert sorted(line[:7] for line in lines) == sorted(f'{w}:{i:04}:'.encode()[:7] for w in range(4) for i in range(100))
"#);
}

#[test]
fn processes_that_share_an_offset_do_not_overlap() {
    let pool = TestPool::new();
    // Each process writes records through one open file description; all must be there, none torn.
    pool.python(
        true,
        r#"
fd = os.open('shared', os.O_CREAT | os.O_RDWR)
children = []
for child in range(4):
    pid = os.fork()
    if pid == 0:
        mine = os.dup(fd)
        for i in range(500):
            record = bytes([65 + child]) * 999 + b'\n'
            assert os.write(mine if i % 2 else fd, record) == 1000
        os._exit(0)
    children.append(pid)
for pid in children:
    assert os.waitpid(pid, 0)[1] == 0
assert os.lseek(fd, 0, os.SEEK_CUR) == 2000000
data = os.pread(fd, 3000000, 0)
assert len(data) == 2000000
counts = {}
for at in range(0, len(data), 1000):
    record = data[at:at + 1000]
    assert record == record[:1] * 999 + b'\n', at
    counts[record[:1]] = counts.get(record[:1], 0) + 1
assert counts == {b'A': 500, b'B': 500, b'C': 500, b'D': 500}, counts
"#,
    );
    // A shell and its children take turns on one description, through exec.
    pool.sh("{ echo one; printf 'two\\n' | cat; seq 3 5; echo six >&1; } > turns
         printf 'one\\ntwo\\n3\\n4\\n5\\nsix\\n' | cmp - turns
         seq 1 20000 > numbers
         { head -c 8000 > /dev/null; dd bs=1 count=3 status=none > /dev/null; cat > rest; } < numbers
         seq 1 20000 | tail -c +8004 | cmp - rest
         { while read line; do echo \"$line\"; done; } < numbers | cmp - numbers");
}

#[test]
fn a_file_unlinked_or_replaced_while_open_stays_itself() {
    let pool = TestPool::new();
    pool.python(
        true,
        r#"
fd = os.open('a', os.O_CREAT | os.O_RDWR)
os.write(fd, b'a' * 20000)
os.unlink('a')
other = os.open('a', os.O_CREAT | os.O_RDWR)
os.write(other, b'b' * 20000)
assert os.pread(fd, 30000, 0) == b'a' * 20000
os.rename('a', 'b')
os.pwrite(other, b'c' * 10000, 5000)
assert open('b', 'rb').read() == b'b' * 5000 + b'c' * 10000 + b'b' * 5000
os.truncate('b', 7000)
assert os.pread(other, 30000, 0) == b'b' * 5000 + b'c' * 2000
fresh = os.open('b', os.O_RDWR | os.O_TRUNC)
assert os.pread(other, 30000, 0) == b''
os.pwrite(fresh, b'd', 9999)
assert os.pread(other, 30000, 0) == bytes(9999) + b'd'
"#,
    );
}
