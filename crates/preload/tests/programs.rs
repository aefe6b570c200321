//! Real programs under the library, on a pool: they do what they do without it.

mod common;

use common::TestPool;

#[test]
fn copies_archives_and_comparisons() {
    let pool = TestPool::new();
    pool.sh("seq 1 60000 > $OUT/in
         cp $OUT/in a; cmp $OUT/in a; cp a b; cmp a b
         dd if=a of=c bs=1000 status=none; cmp a c
         dd if=a of=c bs=4096 skip=3 seek=3 conv=notrunc status=none; cmp a c
         dd if=/dev/zero of=d bs=64k count=3 oflag=append conv=notrunc status=none; test $(stat -c %s d) = 196608
         cat a b > e; test $(stat -c %s e) = $(( $(stat -c %s a) * 2 )); ls > listing; grep -q listing listing
         mkdir t; cp a t/1; cp b t/2; tar -cf t.tar t; tar -df t.tar; tar -xf t.tar -C $OUT; diff -r t $OUT/t
         sed -i 's/^5$/five/' t/1; grep -q five t/1; sort -r a -o a; sort -n a | cmp - b
         gzip -k b; gzip -dc b.gz | cmp - b");
}

#[test]
fn git_works() {
    let pool = TestPool::new();
    pool.sh("git config --global user.email a@b; git config --global user.name n
         git init -q r; cd r
         for i in 1 2 3 4 5; do seq 1 $((i * 3000)) > f$i; done
         git add .; git commit -qm one; seq 5 9000 > f2; git commit -qam two
         git clone -q . ../r2; cd ../r2; git fsck --full --strict; git gc -q; git fsck --full
         test -z \"$(git status --porcelain)\"; diff -r -x .git . ../r");
}

#[test]
fn sqlite_keeps_its_data_with_a_journal_and_with_wal() {
    let pool = TestPool::new();
    pool.python(
        true,
        r#"
import sqlite3
for mode in ('delete', 'wal'):
    base = sqlite3.connect(f'{mode}.db')
    assert base.execute(f'pragma journal_mode={mode}').fetchone()[0] == mode
    base.execute('create table t (a integer primary key, b text)')
    for i in range(20):
        with base:
            base.executemany('insert into t (b) values (?)', [(str(i) * 500,) for _ in range(50)])
    other = sqlite3.connect(f'{mode}.db')
    assert other.execute('select count(*), sum(length(b)) from t').fetchone() == base.execute('select count(*), sum(length(b)) from t').fetchone()
    assert base.execute('pragma integrity_check').fetchone()[0] == 'ok'
    base.close(); other.close()
"#,
    );
}

#[test]
fn fio_verifies_what_it_wrote() {
    let pool = TestPool::new();
    for (engine, more) in
        [("psync", ""), ("sync", "--direct=0"), ("pvsync2", ""), ("mmap", ""), ("psync", "--numjobs=2 --thread")]
    {
        pool.sh(&format!(
            "fio --name=v --directory=. --size=2m --bsrange=1k-64k --rw=randrw --verify=crc32c --do_verify=1 \
             --verify_fatal=1 --ioengine={engine} {more} > $OUT/fio.log 2>&1 || {{ cat $OUT/fio.log >&2; exit 1; }}
             rm -f v.*"
        ));
    }
}

#[test]
fn python_files_and_subprocesses() {
    let pool = TestPool::new();
    pool.python(
        true,
        r#"
import subprocess, tempfile, shutil
with open('text', 'w') as f:
    for i in range(10000):
        print(i, file=f)
assert sum(int(line) for line in open('text')) == sum(range(10000))
with open('text', 'r+b') as f:
    f.seek(100); f.write(b'#' * 9000); f.seek(0); head = f.read(9200)
    assert head[100:9100] == b'#' * 9000
with open('out', 'wb') as f:
    f.write(b'before\n'); f.flush()
    subprocess.run(['echo', 'child'], stdout=f, check=True)
    subprocess.run('echo shell', shell=True, stdout=f, close_fds=True, check=True)
    f.seek(0, 2); f.write(b'after\n')
assert open('out', 'rb').read() == b'before\nchild\nshell\nafter\n'
shutil.copy('text', 'copy'); assert open('copy', 'rb').read() == open('text', 'rb').read()
with tempfile.NamedTemporaryFile(dir='.') as f:
    f.write(b'x' * 50000); f.flush(); assert os.path.getsize(f.name) == 50000
subprocess.run(['cat'], stdin=open('copy', 'rb'), stdout=open('catted', 'wb'), check=True)
assert open('catted', 'rb').read() == open('copy', 'rb').read()
"#,
    );
}

/// The exit code and the output are the program's own; an unusable pool or trace directory changes nothing.
#[test]
fn what_the_environment_gets_wrong_does_not_reach_the_program() {
    let (pool, other) = (TestPool::new(), TestPool::new());
    let other = other.path("pool.toml");
    let other = other.to_str().expect("text");
    for (name, value) in [
        ("STRIPEWISE_POOL", "/nonexistent/pool.toml"),
        ("STRIPEWISE_POOL", "/dev/null"),
        ("STRIPEWISE_POOL", other),
        ("STRIPEWISE_MOUNT", ""),
        ("STRIPEWISE_MOUNT", "relative"),
        ("STRIPEWISE_MOUNT", "/"),
        ("STRIPEWISE_TRACE", "/nonexistent"),
        ("STRIPEWISE_TRACE", "/proc"),
    ] {
        let output = pool
            .command(true, &["sh", "-c", "seq 1 5000 > $M/f; seq 1 5000 | cmp - $M/f && echo same; exit 3"])
            .env(name, value)
            .output()
            .expect("sh");
        assert_eq!(output.status.code(), Some(3), "{name}={value}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "same\n", "{name}={value}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{name}={value}");
    }
}

#[test]
fn a_file_that_was_read_past_the_mount_says_so_after_its_close() {
    let pool = TestPool::new();
    pool.python(
        true,
        r#"
import os, time
OLD = 10**18
def moved(use, patience_s):
    with open('f', 'wb') as f:
        f.write(b'x' * 20000)
    os.utime('f', ns=(OLD, OLD + 10**9))
    time.sleep(0.02)
    fd = os.open('f', os.O_RDONLY)
    use(fd)
    os.close(fd)
    until = time.monotonic() + patience_s
    while os.stat('f').st_atime_ns == OLD and time.monotonic() < until:
        time.sleep(0.02)
    return os.stat('f').st_atime_ns != OLD
assert moved(lambda fd: os.pread(fd, 9, 9000), 60)
assert moved(lambda fd: os.read(fd, 20000), 60)
assert not moved(lambda fd: os.fstat(fd), 0.5)
"#,
    );
}

/// Files that are left to the mount because they are mapped keep their places among the open files as long as they have
/// descriptors, and no other file gets them.
#[test]
fn mapped_files_keep_their_bytes_when_others_are_opened() {
    let pool = TestPool::new();
    pool.python(
        true,
        r#"
import mmap, os
MAPPED, OTHERS = 100, 300
def content(number):
    return b'%6d' % number * 2000
def check(number, fd):
    found = os.pread(fd, 6, 6000)
    assert found == b'%6d' % number, f'file {number} has the bytes {found}'
for number in range(MAPPED + OTHERS):
    with open(str(number), 'wb') as f:
        f.write(content(number))
fds = [os.open(str(number), os.O_RDWR) for number in range(MAPPED)]
maps = [mmap.mmap(fd, 0) for fd in fds]
for _ in range(5):
    for number, fd in enumerate(fds):
        check(number, fd)
fds += [os.open(str(number), os.O_RDWR) for number in range(MAPPED, MAPPED + OTHERS)]
for number, fd in enumerate(fds):
    check(number, fd)
    os.pwrite(fd, b'%6d' % number, 6000)
for number in range(MAPPED + OTHERS):
    with open(str(number), 'rb') as f:
        assert f.read() == content(number), number
"#,
    );
}
