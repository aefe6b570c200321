"""Moves whose switch the disk of the namespace does not confirm, by the installed command; strace makes the faults."""

import json
import os

import pytest

import stripewise as package
from stripewise.pool import Pool

BYTES = 300_000


def content(pool):
    with package.open_pool(pool.file).open("f", "rb") as file:
        return file.read()


@pytest.mark.parametrize("syncs", range(1, 4))
@pytest.mark.parametrize("changes", [2, 3, None])
def test_whichever_sync_or_change_of_the_file_fails_it_is_whole_and_named(pool, syncs, changes):
    """`changes`: that change of its attributes is the first that is refused; without one none is."""
    body = os.urandom(BYTES)
    with package.open_pool(pool.file).open("f", "wb") as file:
        file.write(body)
    inode = Pool.load(pool.file).namespace / "tree" / "f"
    faults = [f"inject=fsync:error=EIO:when={syncs}"]
    faults += [f"inject=fsetxattr:error=EROFS:when={changes}+"] if changes else []
    tracer = ["strace", "-f", "-qq", "-o", pool.base / "trace", "-P", inode, "-e", "trace=fsync,fsetxattr"]
    tracer += [word for fault in faults for word in ("-e", fault)]
    drain = ("pool", "drain", pool.file, "hdd.0", "--json")
    done = pool.stripewise(*drain, prefix=list(map(str, tracer)), check=False)
    trace = (pool.base / "trace").read_text()
    said = json.loads(done.stdout) if done.stdout.strip() else {}
    assert content(pool) == body, trace
    if done.returncode == 0:
        assert said["staying"] == [] and said["moved_files"] == 1, trace
    elif said:
        assert [file["path"] for file in said["staying"]] == ["f"], trace
        assert all(file["why"] for file in said["staying"])
    assert "INJECTED" in trace
    pool.stripewise(*drain)
    assert content(pool) == body
    # Exit code 0: there is nothing to mend.
    pool.stripewise("fsck", pool.file, "--dry-run")
