"""SQLite's change to `journal_mode=wal`, which it refuses or not by the order in which processes take locks: in the
same order, the same answers on the mount as beside it."""

import os
import sys
from pathlib import Path

import pytest

import stripewise

MOUNT = Path(stripewise.__file__).parent / "_bin" / "stripewise-mount"

ANSWERS = """
import os, sqlite3, subprocess, sys

OTHER = '''
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
for line in sys.stdin:
    database.execute(line).fetchall()
    print("done", flush=True)
'''

def wal():
    try:
        return database.execute("pragma journal_mode=wal").fetchone()[0]
    except sqlite3.OperationalError as error:
        return str(error)

found = []
for held in ("begin; select * from sqlite_master", "begin immediate", "begin exclusive"):
    path = os.path.join(sys.argv[1], f"database{len(found)}")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    other = subprocess.Popen([sys.executable, "-c", OTHER, path], **pipes)
    def tell(words):
        for line in words.split("; "):
            other.stdin.write(line + chr(10))
            other.stdin.flush()
            assert other.stdout.readline() == "done" + chr(10)
    database = sqlite3.connect(path, timeout=0)
    tell(held)
    found.append(wal())
    tell("commit")
    found.append(wal())
    # From now on readers and a writer do not hinder each other.
    tell("begin; create table t (i); insert into t values (1)")
    found.append(database.execute("select count(*) from sqlite_master").fetchone()[0])
    tell("commit")
    found.append(database.execute("select i from t").fetchone()[0])
    other.communicate()
    database.close()
print(found)
"""


@pytest.mark.parametrize("preload", [True, False], ids=["preload", "mount"])
def test_who_is_refused_is_the_same_as_on_the_file_system_below(pool, preload):
    beside = pool.base / "beside"
    beside.mkdir()
    expected = pool.run(sys.executable, "-c", ANSWERS, beside, preload=False).stdout
    assert expected == f"{['database is locked', 'wal', 0, 1] * 3}\n"
    assert pool.run(sys.executable, "-c", ANSWERS, pool.mount, preload=preload).stdout == expected


# Five processes turn new databases to write-ahead logging, all at the same moment, one database after the other and in
# the two directories by turns; prints the attempts and the refused ones of each directory.
RACE = """
import multiprocessing, os, sqlite3, sys

PROCESSES, ROUNDS = 5, 20
context = multiprocessing.get_context("fork")
# Where one fails, the others do not wait for it for ever.
together = context.Barrier(PROCESSES, timeout=60)
refused = [context.Value("i", 0) for _ in sys.argv[1:]]

def turn_all():
    for number in range(ROUNDS):
        for directory, count in zip(sys.argv[1:], refused):
            path = os.path.join(directory, f"database{number}")
            together.wait()
            database = sqlite3.connect(path)
            try:
                database.execute("pragma journal_mode=wal")
            except sqlite3.OperationalError as error:
                assert str(error) == "database is locked"
                with count:
                    count.value += 1
            together.wait()
            database.close()

processes = [context.Process(target=turn_all) for _ in range(PROCESSES)]
for process in processes:
    process.start()
for process in processes:
    process.join()
    assert process.exitcode == 0
print(PROCESSES * ROUNDS, *(count.value for count in refused))
"""

STEPS = """
set -eu
"$MOUNT_PROGRAM" "$POOL" "$M" -o writeback_cache
mkdir "$M/databases"
"$PYTHON" -c "$RACE" "$BESIDE" "$M/databases"
rm -r "$M/databases"
"$STRIPEWISE" umount "$M"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: `writeback_cache` is for root's mount")
def test_refusals_are_as_rare_as_beside_the_mount_where_the_kernel_keeps_files(pool, tmp_path):
    """Where calls leave the kernel half of the attempts are refused and more. What a busy machine adds is a few, on
    either side, and not each time."""
    pool.mount.mkdir(exist_ok=True)
    found = []
    for number in range(5):
        beside = tmp_path / f"beside{number}"
        beside.mkdir()
        variables = {
            "MOUNT_PROGRAM": MOUNT,
            "POOL": pool.file,
            "M": pool.mount,
            "BESIDE": beside,
            "PYTHON": sys.executable,
            "STRIPEWISE": Path(sys.executable).parent / "stripewise",
            "RACE": RACE,
        }
        steps = ["unshare", "--mount", "env", *(f"{name}={value}" for name, value in variables.items())]
        # The command itself has nothing to do: the steps stand before it.
        done = pool.stripewise("--version", prefix=[*steps, "sh", "-c", STEPS + 'exec "$@"', "sh"])
        attempts, on_disk, on_mount = map(int, done.stdout.split()[:3])
        found.append((on_disk, on_mount))
        if on_mount <= on_disk + attempts // 10:
            return
    pytest.fail(f"of {attempts} attempts were refused beside the mount and on it: {found}")
