//! Real programs on a private mount: what they wrote is what they and others read.

mod common;

use common::{TestPool, need};

#[test]
fn copies_keep_every_byte() {
    let pool = TestPool::new();
    pool.sh("seq 1 60000 > $OUT/in
         cp $OUT/in a; cmp $OUT/in a
         cp a b; cmp a b
         dd if=a of=c bs=1000 status=none; cmp a c
         dd if=$OUT/in of=d bs=64k status=none; cmp a d
         dd if=a of=d bs=4096 skip=3 seek=3 conv=notrunc status=none; cmp a d
         cat a > e; cmp a e
         mv e f; cmp a f; test ! -e e
         cp -r . $OUT/back; cmp a $OUT/back/f");
    assert!(pool.datafiles().len() > 3, "the files should lie on the servers");
}

#[test]
fn tar_out_and_in_is_the_same_tree() {
    let pool = TestPool::new();
    pool.sh("mkdir -p t/sub/deep t/empty
         for i in 1 2 3 4 5 6 7 8 9; do seq 1 $((i * 777)) > t/sub/f$i; done
         : > t/nothing
         ln -s ../f1 t/sub/deep/link; ln t/sub/f1 t/hard; chmod 600 t/sub/f2; chmod 444 t/sub/f3
         mkfifo t/pipe
         tar -cf $OUT/t.tar t
         mkdir back; tar -xpf $OUT/t.tar -C back
         diff -r --no-dereference -x pipe t back/t
         test -p back/t/pipe; test back/t/sub/f1 -ef back/t/hard
         test \"$(stat -c '%a %Y %s' t/sub/f3)\" = \"$(stat -c '%a %Y %s' back/t/sub/f3)\"
         tar -df $OUT/t.tar
         tar -xf $OUT/t.tar -C $OUT; diff -r --no-dereference -x pipe t $OUT/t
         tar -cf t2.tar t; tar -df t2.tar");
}

#[test]
fn git_works() {
    need("git");
    let pool = TestPool::new();
    pool.sh("git config --global user.email a@b; git config --global user.name n
         git init -q r; cd r
         for i in 1 2 3 4 5; do seq 1 $((i * 3000)) > f$i; done
         git add .; git commit -qm one
         seq 5 9000 > f2; git commit -qam two
         git clone -q . ../r2; cd ../r2
         git fsck --full --strict; git gc -q; git fsck --full
         test -z \"$(git status --porcelain)\"
         diff -r -x .git . ../r
         git clone -q . $OUT/r3; diff -r -x .git . $OUT/r3");
}

/// An open that only cuts reaches the mount before the kernel has looked whether the file is being run.
#[test]
fn a_program_that_runs_is_neither_written_nor_cut() {
    need("python3");
    let pool = TestPool::new();
    let script = "import errno, os, shutil, subprocess, time
shutil.copy(shutil.which('sleep'), 'program')
size = os.path.getsize('program')
running = subprocess.Popen(['./program', '600'])
for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC):
    try:
        os.open('program', flags)
        raise SystemExit(f'opened with flags {flags:#x}')
    except OSError as error:
        assert error.errno == errno.ETXTBSY, error
assert os.path.getsize('program') == size
running.terminate()
assert running.wait() == -15
until = time.monotonic() + 60
while True:
    try:
        os.close(os.open('program', os.O_RDONLY | os.O_TRUNC))
        break
    except OSError as error:
        # The mount is told of the end after the one who waits for it.
        assert error.errno == errno.ETXTBSY and time.monotonic() < until, error
assert os.path.getsize('program') == 0";
    std::fs::write(pool.path("out/run.py"), script).unwrap();
    pool.sh("python3 $OUT/run.py");
}

/// All opens of a file without a handle share what the mount has of it, and the file can still be run past the mount by others while
/// programs of the mount read it.
#[test]
fn a_file_without_a_handle_is_one_for_all_its_opens() {
    need("python3");
    let pool = TestPool::new();
    let script = "import errno, os, shutil, subprocess, sys
past = sys.argv[1]
shutil.copy(shutil.which('sleep'), past)
reads = os.open('program', os.O_RDONLY)
assert os.pread(reads, 4, 0) == b'\\x7fELF'
running = subprocess.Popen([past, '600'])
for flags in (os.O_WRONLY, os.O_RDWR | os.O_APPEND, os.O_RDONLY | os.O_TRUNC):
    try:
        os.open('program', flags)
        raise SystemExit(f'opened with flags {flags:#x}')
    except OSError as error:
        assert error.errno == errno.ETXTBSY, error
running.kill()
running.wait()
writes = os.open('program', os.O_WRONLY)
os.pwrite(writes, b'written', 1)
os.fsync(writes)
assert os.pread(reads, 8, 0) == b'\\x7fwritten'
quiet = os.open('program', os.O_RDONLY | os.O_NOATIME)
assert os.pread(quiet, 8, 0) == b'\\x7fwritten'
os.close(os.open('program', os.O_RDONLY | os.O_TRUNC))
assert os.pread(reads, 8, 0) == b'' and os.fstat(reads).st_size == 0
appends = os.open('program', os.O_WRONLY | os.O_APPEND)
os.unlink('program')
os.write(appends, b'end')
assert os.pread(reads, 8, 0) == b'end' and os.fstat(reads).st_nlink == 0
os.truncate(f'/proc/self/fd/{reads}', 1)
assert os.pread(reads, 8, 0) == b'e' and os.fstat(writes).st_size == 1";
    std::fs::write(pool.path("out/shared.py"), script).unwrap();
    pool.sh("python3 $OUT/shared.py $OUT/../ns/tree/program");
}

#[test]
fn sqlite_in_wal_mode_by_two_processes() {
    need("sqlite3");
    let pool = TestPool::new();
    let out = pool.sh(
        "sqlite3 db 'pragma journal_mode=wal; create table t(i integer primary key, who int, pad text);' > /dev/null
         insert() {
             i=0
             while [ $i -lt 20 ]; do
                 echo \"pragma busy_timeout=20000; insert into t(who, pad) values($1, hex(randomblob(500)));\"
                 i=$((i + 1))
             done | sqlite3 db > /dev/null
         }
         insert 1 & one=$!
         insert 2 & two=$!
         wait $one; wait $two
         sqlite3 db 'pragma integrity_check; select count(*), count(distinct who) from t;'",
    );
    assert_eq!(out, "ok\n40|2\n");
}

#[test]
fn shared_maps_and_system_calls_see_each_other() {
    let pool = TestPool::new();
    pool.python(
        "
import mmap
fd = os.open('f', os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 50000)
m = mmap.mmap(fd, 50000)
m[4090:4100] = b'0123456789'
assert os.pread(fd, 10, 4090) == b'0123456789'
os.pwrite(fd, b'abc', 20000)
assert m[19999:20004] == b'\\0abc\\0'
child = os.fork()
if child == 0:
    n = mmap.mmap(os.open('f', os.O_RDWR), 50000)
    assert n[4090:4100] == b'0123456789'
    n[49990:50000] = b'x' * 10
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert m[49990:50000] == b'x' * 10
m.flush(); m.close(); os.close(fd)
data = open('f', 'rb').read()
assert len(data) == 50000 and data[4090:4100] == b'0123456789' and data.endswith(b'x' * 10)
",
    );
    pool.python("data = open('f', 'rb').read(); assert data[20000:20003] == b'abc' and data[49990:] == b'x' * 10");
}

#[test]
fn programs_run_from_the_mount_and_write_their_output_there() {
    let pool = TestPool::new();
    let out = pool.sh("cp \"$(command -v ls)\" myls; ./myls > listing; cat listing
         printf '#!/bin/sh\\necho script $1\\n' > s; chmod +x s; ./s ran >> log; ./s again >> log; cat log");
    assert_eq!(out, "listing\nmyls\nscript ran\nscript again\n");
}

#[test]
fn fio_verifies_what_it_wrote() {
    need("fio");
    let pool = TestPool::with_width("12KiB");
    for (engine, pattern) in [("psync", "randwrite"), ("mmap", "randwrite"), ("libaio", "rw"), ("pvsync2", "write")] {
        pool.sh(&format!(
            "fio --name=v --directory=. --ioengine={engine} --rw={pattern} --bsrange=512-40k --bs_unaligned=0 --size=6m \
             --numjobs=2 --verify=crc32c --do_verify=1 --verify_fatal=1 --output=$OUT/fio-{engine} --randseed=7 \
             --fallocate=none --iodepth=4 || {{ cat $OUT/fio-{engine}; exit 1; }}"
        ));
    }
}

#[test]
fn four_processes_append_and_lose_no_record() {
    let pool = TestPool::new();
    pool.python(
        "
children = []
for who in range(4):
    child = os.fork()
    if child == 0:
        fd = os.open('log', os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        for i in range(250):
            record = b'%d %d ' % (who, i) + b'x' * (37 + who * 61) + b'\\n'
            assert os.write(fd, record) == len(record)
        os._exit(0)
    children.append(child)
for child in children:
    assert os.waitpid(child, 0)[1] == 0
seen = {}
for line in open('log'):
    who, i, pad = line.split()
    assert len(pad) == 37 + int(who) * 61, line
    assert seen.get(who, -1) + 1 == int(i), line
    seen[who] = int(i)
assert seen == {str(who): 249 for who in range(4)}, seen
",
    );
}

#[test]
fn files_without_a_name_live_until_their_last_close() {
    let pool = TestPool::new();
    pool.python(
        "
open('f', 'wb').write(b'old' * 5000)
f = open('f', 'r+b')
os.unlink('f')
assert not os.path.exists('f') and os.fstat(f.fileno()).st_nlink == 0
f.seek(0, 2); f.write(b'more'); f.flush(); f.seek(0)
assert f.read() == b'old' * 5000 + b'more'
again = open('/proc/self/fd/%d' % f.fileno(), 'rb')
f.close()
assert again.read() == b'old' * 5000 + b'more'
again.close()

open('a', 'wb').write(b'a' * 9000); open('b', 'wb').write(b'b' * 9000)
b = open('b', 'rb')
os.rename('a', 'b')
assert b.read() == b'b' * 9000 and open('b', 'rb').read() == b'a' * 9000
b.close()
",
    );
    // What remains are the datafiles of `b`, formerly `a`: 9000 bytes lie on three servers.
    assert_eq!(pool.datafiles().len(), 3, "{:?}", pool.datafiles());
    pool.sh("rm b");
    assert_eq!(pool.datafiles().len(), 0);
}

#[test]
fn replaced_and_exchanged_names() {
    let pool = TestPool::new();
    pool.python(
        "
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def renameat2(a, b, flags):
    return 0 if libc.renameat2(-100, a, -100, b, flags) == 0 else ctypes.get_errno()
open('a', 'wb').write(b'a' * 5000); open('b', 'wb').write(b'b' * 5000)
assert renameat2(b'a', b'b', 1) == errno.EEXIST
assert renameat2(b'a', b'b', 2) == 0
assert open('a', 'rb').read() == b'b' * 5000 and open('b', 'rb').read() == b'a' * 5000
assert renameat2(b'a', b'c', 1) == 0 and sorted(os.listdir('.')) == ['b', 'c']
os.mkdir('d'); os.rename('b', 'd/b')
assert open('d/b', 'rb').read() == b'a' * 5000
try: os.rmdir('d'); assert False
except OSError as e: assert e.errno == errno.ENOTEMPTY
",
    );
}

#[test]
fn truncation_up_and_down_and_holes() {
    let pool = TestPool::new();
    pool.python(
        "
f = open('f', 'w+b', buffering=0)
f.write(bytes(range(256)) * 200)
f.truncate(30001); assert os.fstat(f.fileno()).st_size == 30001
f.truncate(70000); assert os.fstat(f.fileno()).st_size == 70000
data = os.pread(f.fileno(), 100000, 0)
assert len(data) == 70000 and data[:30001] == (bytes(range(256)) * 200)[:30001] and not any(data[30001:])
f.truncate(0); f.truncate(10); assert os.pread(f.fileno(), 99, 0) == bytes(10)
os.pwrite(f.fileno(), b'end', 1 << 32)
assert os.fstat(f.fileno()).st_size == (1 << 32) + 3
assert os.pread(f.fileno(), 10, (1 << 32) - 2) == b'\\0\\0end' and os.pread(f.fileno(), 10, (1 << 32) + 3) == b''
assert os.lseek(f.fileno(), 0, os.SEEK_END) == (1 << 32) + 3
assert os.lseek(f.fileno(), 1 << 20, os.SEEK_DATA) == 1 << 32
assert os.lseek(f.fileno(), 1 << 20, os.SEEK_HOLE) == 1 << 20
assert os.lseek(f.fileno(), 1 << 32, os.SEEK_HOLE) == (1 << 32) + 3
assert os.lseek(f.fileno(), 5, os.SEEK_HOLE) == 5
os.pwrite(f.fileno(), b'x' * 4096, 0); assert os.lseek(f.fileno(), 5, os.SEEK_HOLE) == 4096
assert os.lseek(f.fileno(), 4096, os.SEEK_DATA) == 1 << 32
try: os.lseek(f.fileno(), 1 << 33, os.SEEK_DATA); assert False
except OSError as e: assert e.errno == errno.ENXIO
f.close()
assert os.stat('f').st_size == (1 << 32) + 3
os.truncate('f', 5); assert open('f', 'rb').read() == b'xxxxx'
open('f', 'wb').close(); assert os.stat('f').st_size == 0
",
    );
    pool.python("assert os.stat('f').st_size == 0");
}

#[test]
fn times_that_were_set_outlive_the_close() {
    let pool = TestPool::new();
    pool.sh("seq 1 9999 > $OUT/in; touch -d '2001-02-03 04:05:06.789 UTC' $OUT/in
         cp -p $OUT/in a; tar -C $OUT -cf - in | tar -xf -
         test \"$(stat -c %y $OUT/in)\" = \"$(stat -c %y a)\"; test \"$(stat -c %Y $OUT/in)\" = \"$(stat -c %Y in)\"");
    let script = "
f = open('f', 'wb'); f.write(b'x' * 20000); f.flush()
os.utime(f.fileno(), ns=(5, 981173106789000000)); f.close()
assert os.stat('f').st_mtime_ns == 981173106789000000
before = os.stat('f').st_mtime_ns
g = open('f', 'r+b'); g.close()
assert os.stat('f').st_mtime_ns == before
";
    pool.python(script);
    pool.sh("test $(stat -c %Y f) = 981173106; test $(stat -c %Y a) = 981173106; echo y >> f; test $(stat -c %Y f) -gt 981173106");
}

#[test]
fn links_modes_owners_and_attributes() {
    let pool = TestPool::new();
    pool.python(
        "
open('f', 'wb').write(b'x' * 10000)
os.link('f', 'g'); os.symlink('f', 's'); os.symlink('nowhere', 'dangling')
assert os.stat('f').st_ino == os.stat('g').st_ino == os.stat('s').st_ino and os.stat('f').st_nlink == 2
assert os.readlink('s') == 'f' and os.readlink('dangling') == 'nowhere' and open('s', 'rb').read() == b'x' * 10000
os.unlink('f'); assert open('g', 'rb').read() == b'x' * 10000
os.chmod('g', 0o640); assert os.stat('g').st_mode & 0o7777 == 0o640
if os.getuid() == 0:
    os.chown('g', 12, 34); assert (os.stat('g').st_uid, os.stat('g').st_gid) == (12, 34)
    assert open('g', 'rb').read() == b'x' * 10000
os.setxattr('g', 'user.note', b'value'); assert os.listxattr('g') == ['user.note']
assert os.getxattr('g', 'user.note') == b'value'
for action in (lambda: os.getxattr('g', 'user.stripewise'),):
    try: action(); assert False
    except OSError as e: assert e.errno == errno.ENODATA
for action in (lambda: os.setxattr('g', 'user.stripewise', b'x'), lambda: os.removexattr('g', 'user.stripewise')):
    try: action(); assert False
    except OSError as e: assert e.errno == errno.EPERM
os.removexattr('g', 'user.note'); assert os.listxattr('g') == []
assert os.access('g', os.R_OK)
v = os.statvfs('.'); assert v.f_blocks > 0 and v.f_bavail <= v.f_blocks
",
    );
}

#[test]
fn a_large_directory_is_listed_once_each_and_emptied() {
    let pool = TestPool::new();
    pool.python(
        "
os.mkdir('d')
names = {'file-with-a-name-of-some-length-%d' % i for i in range(1500)}
for name in names: os.mknod('d/' + name)
listed = os.listdir('d'); assert len(listed) == 1500 and set(listed) == names
assert {e.name for e in os.scandir('d') if e.is_file()} == names
fd = os.open('d', os.O_RDONLY); os.fsync(fd); os.close(fd)
for name in names: os.unlink('d/' + name)
assert os.listdir('d') == []
os.rmdir('d')
",
    );
}

#[test]
fn locks_hold_between_processes() {
    let pool = TestPool::new();
    pool.python(
        "
import fcntl
f = open('f', 'w'); fcntl.flock(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_EX, 10, 0)
child = os.fork()
if child == 0:
    g = open('f', 'r+')
    for lock in (lambda: fcntl.flock(g, fcntl.LOCK_SH | fcntl.LOCK_NB),
                 lambda: fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 5)):
        try: lock(); os._exit(1)
        except BlockingIOError: pass
    fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 10)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
",
    );
}

#[test]
fn requests_larger_than_the_kernel_passes_on_at_once() {
    let pool = TestPool::with_width("64KiB");
    pool.python(
        "
data = os.urandom(5 << 20)
fd = os.open('f', os.O_RDWR | os.O_CREAT)
assert os.write(fd, data) == len(data)
assert os.pread(fd, len(data) + 1000, 0) == data
assert os.preadv(fd, [bytearray(100), bytearray(3 << 20)], 7) == 100 + (3 << 20)
os.fsync(fd); os.fdatasync(fd); os.posix_fallocate(fd, 0, 6 << 20)
assert os.fstat(fd).st_size == 6 << 20
out = os.open('copy', os.O_RDWR | os.O_CREAT)
done = 0
while done < len(data):
    done += os.copy_file_range(fd, out, len(data) - done, done, done)
assert os.pread(out, len(data) + 1, 0) == data
pipe = os.open('sent', os.O_RDWR | os.O_CREAT)
done = 0
while done < len(data): done += os.sendfile(pipe, fd, done, len(data) - done)
assert os.pread(pipe, len(data) + 1, 0) == data
",
    );
}

#[test]
fn a_plain_file_stays_plain_and_is_served() {
    let pool = TestPool::new();
    std::fs::write(pool.path("ns/tree/plain"), b"plain bytes").unwrap();
    pool.python(
        "
import mmap
assert open('plain', 'rb').read() == b'plain bytes'
with open('plain', 'r+b') as f:
    f.seek(0, 2); f.write(b', more'); f.flush()
    m = mmap.mmap(f.fileno(), 0); m[0:5] = b'PLAIN'; m.flush()
    assert os.stat('plain').st_size == 17
with open('plain', 'ab') as f: f.write(b'!')
assert open('plain', 'rb').read() == b'PLAIN bytes, more!'
open('plain', 'wb').write(b'short')
assert os.stat('plain').st_size == 5
os.utime('plain', ns=(1000, 2000)); assert os.stat('plain').st_mtime_ns == 2000
",
    );
    assert_eq!(std::fs::read(pool.path("ns/tree/plain")).unwrap(), b"short");
    assert_eq!(pool.datafiles().len(), 0);
}

/// On one server a file is one datafile, which the kernel may serve itself.
#[test]
fn a_file_on_one_server_behaves_like_any_other() {
    let pool = TestPool::with("64KiB", &["s1"]);
    pool.python(
        "
import mmap
f = os.open('f', os.O_RDWR | os.O_CREAT)
os.ftruncate(f, 10000); assert os.pread(f, 20000, 0) == bytes(10000)
a = os.open('f', os.O_WRONLY | os.O_APPEND); os.write(a, b'end')
assert os.fstat(f).st_size == 10003 and os.pread(f, 99, 9999) == b'\\0end'
os.ftruncate(f, 5); os.write(a, b'more'); assert os.pread(f, 99, 0) == b'\\0' * 5 + b'more'
os.posix_fallocate(f, 0, 100); os.write(a, b'!'); assert os.fstat(f).st_size == 101
m = mmap.mmap(f, 101); m[50:53] = b'map'; assert os.pread(f, 3, 50) == b'map'
os.pwrite(f, b'sys', 60); assert m[60:63] == b'sys'
r = os.open('f', os.O_RDONLY); t = os.open('f', os.O_RDWR | os.O_TRUNC)
assert os.read(r, 10) == b'' and os.fstat(r).st_size == 0
os.pwrite(t, b'x' * 5000, 0)
os.utime(t, ns=(1000, 2000))
for fd in (f, a, r, t): os.close(fd)
assert os.stat('f').st_mtime_ns == 2000
for mode in ('rb', 'r+b'):
    with open('f', mode) as g: assert g.read() == b'x' * 5000
    assert os.stat('f').st_mtime_ns == 2000
open('empty', 'wb').close(); os.utime('empty', ns=(1000, 2000)); open('empty', 'r+b').close(); open('empty', 'rb').close()
assert os.stat('empty').st_mtime_ns == 2000
g = open('f', 'rb'); os.unlink('f'); assert g.read() == b'x' * 5000; g.close()
os.unlink('empty')
",
    );
    assert_eq!(pool.datafiles().len(), 0);
    pool.sh("seq 1 60000 > a; cp a b; cmp a b; head -c 3 /dev/zero >> b; ! cmp -s a b; truncate -s -3 b; cmp a b
         tail -c 5 b > c; test \"$(cat c)\" = 0000; rm a b c");
    assert_eq!(pool.datafiles().len(), 0);
}

/// As on the namespace's file system: what changes a file's bytes or owner takes its capabilities, also as root, and in a
/// file on one server, which the kernel may serve itself; nothing else does, the late end of a close neither.
#[test]
fn a_change_of_bytes_takes_the_capabilities_of_a_file() {
    for servers in [&["s0", "s1", "s2"][..], &["s1"]] {
        TestPool::with("4KiB", servers).python(
            "
import struct
CAPABILITY = 'security.capability'
changes = {
    'nothing': lambda f: None, 'read': lambda f: os.pread(f, 10, 0), 'write': lambda f: os.pwrite(f, b'x', 0),
    'second write': lambda f: (os.pwrite(f, b'x', 0), give('f'), os.pwrite(f, b'x', 0)),
    'shorter': lambda f: os.ftruncate(f, 5), 'longer': lambda f: os.ftruncate(f, 99999),
    'allocate': lambda f: os.posix_fallocate(f, 0, 99999), 'owner': lambda f: os.fchown(f, 7, 7),
    'mode': lambda f: os.fchmod(f, 0o700), 'times': lambda f: os.utime(f),
    'copy': lambda f: os.copy_file_range(f, f, 10, 0, 5000),
    'truncating open': lambda f: os.close(os.open('f', os.O_WRONLY | os.O_TRUNC)),
    'append': lambda f: os.write(os.open('f', os.O_WRONLY | os.O_APPEND), b'x'),
}
def give(name): os.setxattr(name, CAPABILITY, struct.pack('<5I', 0x02000001, 1 << 13, 0, 0, 0))
def left(change):
    f = os.open('f', os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o755); os.pwrite(f, b'x' * 9000, 0)
    give('f'); change(f); os.close(f)
    return CAPABILITY in os.listxattr('f')
mount = {name: left(change) for name, change in changes.items()}
os.chdir(os.environ['OUT'])
plain = {name: left(change) for name, change in changes.items()}
assert mount == plain, (mount, plain)
assert plain['read'] and not plain['write'] and not plain['second write']
",
        );
    }
}

#[test]
fn a_file_without_a_name_is_written_read_and_given_a_name() {
    let pool = TestPool::new();
    pool.python(
        "
import tempfile, time
data = bytes(range(251)) * 200
os.mkdir('d'); os.umask(0o027)
here = os.open('.', os.O_RDONLY | os.O_DIRECTORY)
# Without a directory's descriptor Python calls link(), which does not follow.
def give_name(f, name): os.link(f'/proc/self/fd/{f}', name, dst_dir_fd=here, follow_symlinks=True)
f = os.open('d', os.O_TMPFILE | os.O_RDWR, 0o666)
assert os.listdir('d') == [] and os.listdir('.') == ['d'] and os.fstat(f).st_nlink == 0
assert os.fstat(f).st_mode == 0o100640, oct(os.fstat(f).st_mode)
assert os.pwrite(f, data, 0) == len(data) and os.pread(f, 99999, 0) == data
# The same file by another open of it.
again = os.open(f'/proc/self/fd/{f}', os.O_RDONLY)
assert os.pread(again, 100, 30000) == data[30000:30100]
os.close(again)
give_name(f, 'named')
assert os.fstat(f).st_nlink == 1 and os.stat('named').st_ino == os.fstat(f).st_ino
os.pwrite(f, b'more', len(data)); os.close(f)
assert open('named', 'rb').read() == data + b'more' and os.listdir('d') == []
# Of this one no name can be made.
f = os.open('d', os.O_TMPFILE | os.O_WRONLY | os.O_EXCL, 0o600)
os.write(f, data)
try: give_name(f, 'never'); assert False
except FileNotFoundError: pass
os.close(f)
try: os.open('named', os.O_TMPFILE | os.O_RDWR, 0o600); assert False
except NotADirectoryError: pass
# Once the last is closed its bytes go, and no name can be made by what is left; before that it is whole.
for n in range(30):
    f = os.open('d', os.O_TMPFILE | os.O_RDWR)
    os.write(f, data); place = os.open(f'/proc/self/fd/{f}', os.O_PATH); os.close(f)
    if n % 2: time.sleep(0.02)
    try: give_name(place, 'late')
    except FileNotFoundError: pass
    else: assert open('late', 'rb').read() == data; os.unlink('late')
    os.close(place)
with tempfile.TemporaryFile(dir='.') as f:
    f.write(b'x' * 9000); f.seek(0); assert f.read() == b'x' * 9000 and os.fstat(f.fileno()).st_nlink == 0
assert sorted(os.listdir('.')) == ['d', 'named']
",
    );
    // The unnamed ones have left nothing on the servers, and the named one is whole.
    pool.python("assert len(open('named', 'rb').read()) == 251 * 200 + 4");
    assert_eq!(pool.datafiles().len(), 3, "those of the one file that has a name");
}

#[test]
fn programs_are_told_when_a_file_was_made() {
    let pool = TestPool::new();
    let tree = pool.path("ns/tree");
    // The namespace's file system knows, and says so to the nanosecond.
    pool.sh(&format!(
        "echo a > f; mkdir d; touch -d 2001-01-01 f
for name in f d; do
    born=$(stat -c %w $name); test \"$born\" = \"$(stat -c %w {}/$name)\" || {{ echo $name: $born; exit 1; }}
done
test $(stat -c %s f) = 2 -a $(stat -c %Y f) -lt 1000000000",
        tree.display()
    ));
}

/// No FUSE server gets these requests, or can answer them; the errors are those by which programs go other ways.
#[test]
fn extents_clones_and_inode_flags_are_refused_as_programs_expect() {
    let pool = TestPool::new();
    pool.python(
        "
import fcntl, struct
open('a', 'wb').write(b'a' * 9000)
a, b = os.open('a', os.O_RDWR), os.open('b', os.O_RDWR | os.O_CREAT)
def refused(request, argument):
    try:
        fcntl.ioctl(a, request, argument)
    except OSError as error:
        return error.errno
extents = struct.pack('=QQIIII', 0, 9000, 0, 0, 0, 0)
assert refused(0xC020660B, extents) == errno.EOPNOTSUPP
assert refused(0x40049409, b) == errno.EOPNOTSUPP
assert refused(0x80086601, bytearray(8)) == errno.ENOTTY
assert refused(0x801C581F, bytearray(28)) == errno.ENOTTY
",
    );
    pool.sh("cp --reflink=auto a c && cmp a c");
}

#[test]
fn a_missing_server_fails_exactly_its_bytes() {
    let pool = TestPool::new();
    pool.python("open('f', 'wb').write(bytes(range(1, 13)) * 2048)");
    std::fs::rename(pool.path("s1"), pool.path("gone")).unwrap();
    let script = "
f = os.open('f', os.O_RDONLY)
assert os.fstat(f).st_size == 24576
for i in range(6):
    try:
        data = os.pread(f, 4096, i * 4096)
        assert i % 3 != 1 and data == (bytes(range(1, 13)) * 2048)[i * 4096:(i + 1) * 4096], i
    except OSError as e:
        assert i % 3 == 1 and e.errno == errno.EIO, (i, e)
";
    let script = format!("import os, errno\nos.chdir(os.environ['M'])\n{script}");
    let output = pool.private(&["python3", "-c", &script]).output().unwrap();
    common::succeeded(&script, &output);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("hdd.1") && said.contains("s1"), "the message should name the server: {said}");
    std::fs::rename(pool.path("gone"), pool.path("s1")).unwrap();
    pool.python("assert open('f', 'rb').read() == bytes(range(1, 13)) * 2048");
}

#[test]
fn a_damaged_handle_is_an_error_and_can_be_removed() {
    let pool = TestPool::new();
    pool.sh("seq 1 9999 > f; seq 1 9999 > g");
    let path = pool.path("ns/tree/f");
    rustix::fs::setxattr(&path, "user.stripewise", b"nonsense", rustix::fs::XattrFlags::REPLACE).unwrap();
    pool.python(
        "
assert sorted(os.listdir('.')) == ['f', 'g'] and os.stat('f')
try: open('f', 'rb'); assert False
except OSError as e: assert e.errno == errno.EIO
assert len(open('g', 'rb').read()) == 48888
os.unlink('f'); assert os.listdir('.') == ['g']
",
    );
}
