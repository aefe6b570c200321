"""Running programs on a pool: exit codes, messages, and the bytes of real programs."""

import hashlib
import os
import shlex
import subprocess
import sys

import pytest

from conftest import BIN, PATIENCE_S, Stripewise

PRELOAD = pytest.mark.parametrize("preload", [True, False], ids=["preload", "mount"])


def test_exit_codes_are_the_programs_own(pool):
    for code in (0, 1, 3, 42, 255):
        assert pool.run("sh", "-c", f"exit {code}", check=False).returncode == code
    assert pool.run("sh", "-c", "kill -TERM $$", check=False).returncode == 128 + 15


def test_a_program_that_does_not_exist_is_127(pool):
    done = pool.run("no-such-program", check=False)
    assert done.returncode == 127
    assert done.stderr == "error: program 'no-such-program' not found in PATH\n"
    assert pool.run("./no/such/path", check=False).returncode == 127


def test_a_file_that_is_no_program_is_126(pool, tmp_path):
    plain = tmp_path / "plain.txt"
    plain.write_text("text")
    done = pool.run(plain, check=False)
    assert done.returncode == 126
    assert "chmod +x" in done.stderr


def test_options_after_the_program_are_the_programs(pool):
    done = pool.stripewise("run", "--pool", pool.file, sys.executable, "-c", "print('--pool')")
    assert done.stdout == "--pool\n"


def test_nothing_is_coloured_where_nobody_looks(pool):
    for command in (["pool", "show", pool.file], ["run", "--pool", pool.file, "nothing-here"], ["show", "missing"]):
        done = pool.stripewise(*command, check=False, env={"NO_COLOR": "1", "TERM": "xterm-256color"})
        assert "\x1b" not in done.stdout + done.stderr


def test_a_missing_server_directory_is_named_and_nothing_is_lost(pool):
    pool.run("sh", "-c", f"head -c 1000000 /dev/urandom > {pool.mount}/file; md5sum < {pool.mount}/file > sum")
    gone = next(pool.servers()[1].iterdir())
    away = gone.with_name("away")
    gone.rename(away)
    done = pool.run("md5sum", pool.mount / "file", check=False)
    assert done.returncode != 0
    away.rename(gone)
    after = pool.run("sh", "-c", f"md5sum < {pool.mount}/file")
    assert after.stdout == (pool.base / "sum").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a read-only mount of a server")
def test_a_read_only_server_refuses_writes_and_keeps_its_bytes(pool):
    pool.run("sh", "-c", f"head -c 1000000 /dev/zero | tr '\\0' x > {pool.mount}/file")
    server = next(pool.servers()[0].iterdir())
    read_only = f'mount --bind {server} {server} && mount -o remount,ro,bind {server} && exec "$@"'
    prefix = ["unshare", "--mount", "sh", "-c", read_only, "sh"]
    done = pool.run("sh", "-c", f"echo new > {pool.mount}/file", check=False, prefix=prefix)
    assert done.returncode != 0
    assert pool.run("sh", "-c", f"tr -d x < {pool.mount}/file | wc -c").stdout.strip() in ("0", "4")
    assert "read-only" in pool.stripewise("pool", "show", pool.file, prefix=prefix).stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system under a server")
@PRELOAD
def test_a_full_server_fails_the_write_and_keeps_what_was_there(pool, preload, tmp_path):
    pool.run("sh", "-c", f"head -c 200000 /dev/zero | tr '\\0' x > {pool.mount}/before")
    server = next(pool.servers()[0].iterdir())
    small = tmp_path / "small"
    small.mkdir()
    mount_small = (
        f"mount -t tmpfs -o size=400k tmpfs {small} && cp -a {server}/. {small} && mount --bind {small} {server} "
        '&& exec "$@"'
    )
    script = f"""
        dd if=/dev/zero of={pool.mount}/big bs=64k count=64 status=none; echo "dd $?"
        tr -d x < {pool.mount}/before | wc -c
        wc -c < {pool.mount}/before
    """
    prefix = ["unshare", "--mount", "sh", "-c", mount_small, "sh"]
    done = pool.run("sh", "-c", script, preload=preload, prefix=prefix)
    assert done.stdout.split() == ["dd", "1", "0", "200000"]
    assert "No space left on device" in done.stderr


def test_a_damaged_handle_is_named_and_its_bytes_come_back_with_it(pool):
    pool.run("sh", "-c", f"seq 100000 > {pool.mount}/file")
    file = pool.base / "disks" / "d3" / ".test-names" / "tree" / "file"
    handle = os.getxattr(file, "user.stripewise")
    os.setxattr(file, "user.stripewise", handle[:40] + bytes([handle[40] ^ 1]) + handle[41:])
    done = pool.run("cat", pool.mount / "file", check=False)
    assert done.returncode != 0
    assert done.stdout == ""
    done = pool.stripewise("stat", "--pool", pool.file, "file", check=False)
    assert done.returncode == 1
    assert "handle" in done.stderr
    os.setxattr(file, "user.stripewise", handle)
    assert pool.run("sh", "-c", f"seq 100000 | cmp - {pool.mount}/file").returncode == 0


@PRELOAD
def test_copies_are_exact(pool, tmp_path, preload):
    source = tmp_path / "source"
    source.write_bytes(os.urandom(3_000_017))
    script = f"""
        set -e
        cp {source} {pool.mount}/cp
        dd if={source} of={pool.mount}/dd bs=4097 status=none
        cat {source} > {pool.mount}/cat
        cd {pool.mount}
        tar cf archive.tar cp dd cat
        mkdir unpacked
        tar xf archive.tar -C unpacked
        ls > listing
        md5sum cp dd cat unpacked/cp unpacked/dd unpacked/cat
        cat listing
    """
    lines = pool.run("sh", "-c", script, preload=preload).stdout.split("\n")
    expected = hashlib.md5(source.read_bytes()).hexdigest()
    assert [line.split()[0] for line in lines[:6]] == [expected] * 6
    assert lines[6:] == ["archive.tar", "cat", "cp", "dd", "listing", "unpacked", ""]


def test_what_one_way_wrote_the_other_reads(pool):
    pool.run("sh", "-c", f"seq 200000 > {pool.mount}/numbers", preload=True)
    expected = hashlib.md5("".join(f"{n}\n" for n in range(1, 200001)).encode()).hexdigest()
    assert pool.run("md5sum", pool.mount / "numbers", preload=False).stdout.split()[0] == expected
    pool.run("sh", "-c", f"seq 200000 > {pool.mount}/others", preload=False)
    assert pool.run("md5sum", pool.mount / "others", preload=True).stdout.split()[0] == expected


@PRELOAD
def test_four_processes_that_append_lose_no_record(pool, preload):
    script = f"""
        for i in 1 2 3 4; do
            (for n in $(seq 200); do echo "$i:$n:$(printf %0100d $n)" >> {pool.mount}/log; done) &
        done
        wait
        sort {pool.mount}/log | uniq | wc -l
        wc -l < {pool.mount}/log
    """
    assert pool.run("sh", "-c", script, preload=preload).stdout.split() == ["800", "800"]


@PRELOAD
def test_git_works(pool, preload):
    script = f"""
        set -e
        cd {pool.mount}
        git init -q repository
        cd repository
        git config user.email tests@example.org
        git config user.name Tests
        for n in 1 2 3; do
            seq $((n * 5000)) > file$n
            git add file$n
            git commit -q -m "number $n"
        done
        git gc -q
        git fsck --strict
        git clone -q . ../clone
        git log --oneline | wc -l
        cmp file3 ../clone/file3
        git status --porcelain
    """
    assert pool.run("sh", "-c", script, preload=preload).stdout.split() == ["3"]


SQLITE = """
import sqlite3, sys, multiprocessing

path = sys.argv[1] + "/" + sys.argv[2] + ".db"

def insert(worker):
    connection = sqlite3.connect(path, timeout=60)
    for n in range(50):
        with connection:
            connection.execute("insert into t values (?, ?, ?)", (worker, n, bytes([worker]) * 3000))
    connection.close()

connection = sqlite3.connect(path, timeout=60)
mode = connection.execute(f"pragma journal_mode={sys.argv[2]}").fetchone()[0]
connection.execute("create table t (worker, n, blob)")
connection.commit()
connection.close()
workers = [multiprocessing.Process(target=insert, args=(worker,)) for worker in range(3)]
[worker.start() for worker in workers]
[worker.join() for worker in workers]
connection = sqlite3.connect(path)
print(mode, connection.execute("select count(*), count(distinct worker * 1000 + n) from t").fetchone(),
      connection.execute("pragma integrity_check").fetchone()[0],
      connection.execute("select count(*) from t where blob <> zeroblob(0) and length(blob) = 3000").fetchone()[0])
"""


@PRELOAD
@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_sqlite_works_with_three_writers(pool, preload, mode):
    done = pool.python(SQLITE, mode, preload=preload)
    assert done.stdout == f"{mode} (150, 150) ok 150\n"


def test_the_sqlite_shell_works(pool):
    script = "create table t(x); insert into t values (1),(2); select sum(x) from t;"
    assert pool.run("sqlite3", pool.mount / "shell.db", script).stdout == "3\n"


H5PY = """
import sys, h5py, numpy as np
path = sys.argv[1] + "/data.h5"
values = np.random.default_rng(7).integers(0, 2**31, (300, 1000))
with h5py.File(path, "w") as file:
    file.create_dataset("plain", data=values)
    file.create_dataset("chunked", data=values, chunks=(16, 64), compression="gzip")
    file.attrs["name"] = "stripewise"
with h5py.File(path, "r+") as file:
    file["plain"][10:20] = -values[10:20]
with h5py.File(path) as file:
    changed = values.copy()
    changed[10:20] *= -1
    print(np.array_equal(file["plain"][:], changed), np.array_equal(file["chunked"][:], values), file.attrs["name"])
"""


@PRELOAD
def test_h5py_works(pool, preload):
    assert pool.python(H5PY, preload=preload).stdout == "True True stripewise\n"


PYTHON_FILES = """
import mmap, os, sys
path = sys.argv[1] + "/python"
data = bytes(range(256)) * 4000
with open(path, "wb") as file:
    file.write(data)
    file.seek(-10, 2)
    file.write(b"0123456789ABC")
    file.truncate(len(data) + 1)
with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
    assert mapped[:256] == bytes(range(256))
    mapped[1000:1004] = b"mmap"
    mapped.flush()
    assert os.pread(file.fileno(), 4, 1000) == b"mmap"
    os.pwritev(file.fileno(), [b"one", b"two"], 5)
    assert mapped[5:11] == b"onetwo"
fd = os.open(path, os.O_RDWR)
copy = os.dup(fd)
os.lseek(copy, 1000, os.SEEK_SET)
assert os.read(fd, 4) == b"mmap"
assert os.lseek(copy, 0, os.SEEK_CUR) == 1004
if os.fork() == 0:
    os.read(fd, 96)
    os._exit(0)
os.wait()
assert os.lseek(fd, 0, os.SEEK_CUR) == 1100
os.ftruncate(fd, 50)
assert os.fstat(copy).st_size == 50 and os.stat(path).st_size == 50
os.rename(path, path + "2")
assert os.pread(fd, 6, 5) == b"onetwo"
print("ok")
"""


@PRELOAD
def test_python_files_mmap_dup_and_fork(pool, preload):
    assert pool.python(PYTHON_FILES, preload=preload).stdout == "ok\n"


@pytest.mark.parametrize("engine", ["psync", "pvsync2", "sync"])
def test_fio_verifies(pool, engine):
    job = ["--name=v", f"--directory={pool.mount}", "--size=4M", "--rw=randrw", "--bsrange=512-96k", "--verify=crc32c"]
    done = pool.run("fio", *job, f"--ioengine={engine}", "--verify_fatal=1", "--do_verify=1", "--output-format=terse")
    assert done.returncode == 0


def test_the_working_directory_may_be_on_the_pool(pool):
    pool.run("sh", "-c", f"echo content > {pool.mount}/file")
    inside = Stripewise(pool.mount)
    assert inside("run", "--quiet", "--pool", pool.file, "cat", "file").stdout == "content\n"


# Each way runs a program: with the fast path, without it, recorded, and (the last) several times to compare.
WAYS = pytest.mark.parametrize(
    "way", [["run"], ["run", "--no-preload"], ["trace", "-o", "t"], ["optimize"]], ids=" ".join
)


def on_the_pool(pool, way):
    """The words that run a program of the shell's on the pool."""
    return " ".join(map(shlex.quote, [str(BIN / "stripewise"), *way, "--pool", str(pool.file), "--"]))


@WAYS
def test_inherited_descriptors_stay(emulated, way):
    writes = f"head -c 100000 /dev/zero > {emulated.mount}/f; head -c 100000 {emulated.mount}/f > /dev/null"
    program = shlex.quote(f"echo content >&7; {writes}")
    script = f"{on_the_pool(emulated, way)} sh -c {program} 7> seen 1>&2; sort -u seen"
    done = subprocess.run(["bash", "-c", script], cwd=emulated.base, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stdout == "content\n", done.stderr


def test_the_library_knows_how_many_filters_there_were(pool):
    count = 'grep -q "^Seccomp_filters:[[:space:]]*$STRIPEWISE_FILTERS$" /proc/self/status'
    assert pool.run("sh", "-c", f'[ -n "$STRIPEWISE_FILTERS" ] && {count}').returncode == 0


def test_a_substituted_process_is_there(pool):
    script = f"{on_the_pool(pool, ['run'])} cat <(echo hi)"
    done = subprocess.run(["bash", "-c", script], cwd=pool.base, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (0, "hi\n"), done.stderr


def test_the_job_server_of_make_is_there(pool):
    (pool.base / "inner.mk").write_text("all: a b\na b:\n\t@echo $@\n")
    (pool.base / "Makefile").write_text(f"all:\n\t+@{on_the_pool(pool, ['run'])} $(MAKE) -f inner.mk\n")
    # By descriptors, as all versions of make do it or can do it.
    said = subprocess.run(["make", "--version"], capture_output=True, text=True, timeout=PATIENCE_S)
    version = said.stdout.split()[2]
    style = ["--jobserver-style=pipe"] if tuple(map(int, version.split(".")[:2])) >= (4, 4) else []
    done = subprocess.run(["make", "-j2", *style], cwd=pool.base, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert {"a", "b"} <= set(done.stdout.split())


def test_mpi_starts_each_rank_on_the_pool(pool):
    # In one write: what two ranks print piece by piece can come mixed.
    ranks = (
        "import os; from mpi4py import MPI; w = MPI.COMM_WORLD\n"
        "os.write(1, b'%d %d\\n' % (w.allreduce(w.Get_rank() + 1), w.Get_size()))"
    )
    command = [BIN / "mpiexec", "-n", "2", BIN / "stripewise", "run", "--pool", pool.file, "--", sys.executable, "-c"]
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        [*map(str, command), ranks], cwd=pool.base, env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["3 2", "3 2"]), done.stdout + done.stderr
