"""SQLite's change to `journal_mode=wal`, which it refuses or not by the order in which processes take locks: in the
same order, the same answers on the mount as beside it."""

import sys

import pytest

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
