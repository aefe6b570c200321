"""`open_pool`: Python's own file objects over the store. Operations at random are in crates/conformance."""

import errno
import io
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import stripewise as sw
from stripewise import _native


@pytest.fixture
def pool(tmp_path: Path) -> sw.PoolFiles:
    file = tmp_path / "pool.toml"
    servers = [str(tmp_path / f"s{number}") for number in range(3)]
    tier: _native.NewTier = {
        "name": "disk",
        "servers": servers,
        "capacity_bytes": None,
        "emulate": None,
        "dilation": None,
    }
    _native.pool_init(str(file), "files", str(tmp_path / "mnt"), str(tmp_path / "names"), [tier])
    return sw.open_pool(file)


def test_modes_are_those_of_open(pool: sw.PoolFiles) -> None:
    with pool.open("text", "w", encoding="utf-8") as file:
        file.write("eins\nzwei\n")
    with pool.open("text", "a", encoding="utf-8") as file:
        file.write("drei\n")
    with pool.open("text", encoding="utf-8") as file:
        assert list(file) == ["eins\n", "zwei\n", "drei\n"]
    with pytest.raises(FileExistsError):
        pool.open("text", "x")
    with pool.open("text", "r+b") as file:
        file.seek(5)
        file.write(b"ZWEI")
        file.seek(0)
        assert file.read() == b"eins\nZWEI\ndrei\n"
    for mode in ["", "rw", "rbt", "b", "rr", "q"]:
        with pytest.raises(ValueError, match="mode"):
            pool.open("text", mode)


def test_reading_moves_the_time_of_access(pool: sw.PoolFiles, tmp_path: Path) -> None:
    with pool.open("f", "wb") as file:
        file.write(b"x" * 9000)
    old = 10**18
    os.utime(tmp_path / "names/tree/f", ns=(old, old + 10**9))
    time.sleep(0.02)  # longer than the kernel's clock of files stands still
    with pool.open("f", "rb"):
        pass
    assert pool.stat("f").st_atime_ns == old
    with pool.open("f", "rb") as file:
        file.read(1)
    assert pool.stat("f").st_atime_ns > old + 10**9


def test_a_damaged_handle_is_told_with_the_file(pool: sw.PoolFiles, tmp_path: Path) -> None:
    file = pool.open("made-just-now", "wb", buffering=0)
    file.write(b"x" * 9000)
    inode = tmp_path / "names/tree/made-just-now"
    handle = os.getxattr(inode, "user.stripewise")
    os.setxattr(inode, "user.stripewise", b"junk")
    for change in (
        lambda: file.truncate(1),
        lambda: pool.open("made-just-now", "rb"),
        lambda: pool.stat("made-just-now"),
    ):
        with pytest.raises(
            OSError, match="made-just-now: damaged handle: it does not begin with SWEH; run `stripewise fsck`"
        ):
            change()
    os.setxattr(inode, "user.stripewise", handle)
    file.close()
    assert pool.stat("made-just-now").st_size == 9000


REMOVE = """
import sys, stripewise as sw
pool = sw.open_pool(sys.argv[1])
pool.mkdir("d")
for name in ("d/old", "d/new", "d/gone"):
    with pool.open(name, "wb") as file:
        file.write(b"x" * 300_000)
pool.rename("d/new", "d/old")
pool.remove("d/gone")
"""


def test_bytes_stay_until_the_name_is_certain_to_be_gone(pool: sw.PoolFiles, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    watch = ["strace", "-f", "-y", "-o", str(trace), "-e", "trace=fsync,renameat,renameat2,unlinkat"]
    subprocess.run([*watch, sys.executable, "-c", REMOVE, str(tmp_path / "pool.toml")], check=True)
    calls = []
    for line in trace.read_text(encoding="utf-8").splitlines():
        if re.search(r'rename.*"new".*"old"|unlinkat.*"gone"', line):
            calls.append("name")
        elif re.search(r"fsync\(\d+<.*/names/tree/d>\)", line):
            calls.append("sync")
        elif re.search(r"unlinkat\(\d+<.*/s\d.*\.0000", line):
            calls.append("datafile")
    once = ["name", "sync", *["datafile"] * 3]
    assert calls == once * 2


def test_large_files_lie_on_all_servers_and_come_back(pool: sw.PoolFiles) -> None:
    data = np.random.default_rng(1).integers(0, 2**60, 1 << 17)
    with pool.open("array", "wb") as file:
        np.save(file, data)
    with pool.open("array", "rb") as file:
        assert (np.load(file) == data).all()
    with pool.open("array", "rb", buffering=0) as raw:
        assert isinstance(raw, sw.PoolFile)
        assert [server for server, _ in raw.layout[0][1]] == ["disk.0", "disk.1", "disk.2"]
        into = np.zeros(1 << 17, dtype=data.dtype)
        raw.seek(raw.stat().st_size - into.nbytes)
        assert raw.readinto(into) == into.nbytes
        assert (into == data).all()


def test_offsets_sizes_and_closing(pool: sw.PoolFiles) -> None:
    with pool.open("file", "w+b", buffering=0) as raw:
        assert isinstance(raw, sw.PoolFile)
        assert raw.pwrite(b"end", (5 << 30)) == 3
        assert raw.tell() == 0
        assert raw.truncate(5 << 30) == 5 << 30
        assert raw.pread(10, (5 << 30) - 4) == bytes(4)
        assert raw.pwritev([b"ab", b"", b"cd"], 100) == 4
        parts = [bytearray(3), bytearray(3)]
        assert raw.preadv(parts, 99) == 6
        assert parts == [b"\0ab", b"cd\0"]
        raw.fsync()
    assert raw.closed
    with pytest.raises(ValueError, match="closed"):
        raw.pread(1, 0)
    with pool.open("file", "rb", buffering=0) as raw, pytest.raises(io.UnsupportedOperation):
        raw.fileno()


def test_errors_are_those_of_the_system_and_name_the_file(pool: sw.PoolFiles, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        pool.open("nothing")
    pool.mkdir("directory")
    with pytest.raises(IsADirectoryError):
        pool.open("directory", "rb")
    for outside in ["../names", "directory/../../x"]:
        with pytest.raises(OSError, match=outside) as refused:
            pool.open(outside, "rb")
        assert refused.value.errno == errno.EXDEV
    with pytest.raises(ValueError, match="not below the mount"):
        pool.open("/etc/passwd")
    with pytest.raises(sw.StripewiseError, match="none"):
        sw.open_pool(tmp_path / "none.toml")
    with pool.open("file", "wb", buffering=0) as raw, pytest.raises(OSError, match="file") as refused:
        raw.pread(1, 0)  # type: ignore[attr-defined]
    assert refused.value.errno == errno.EBADF


def test_a_file_without_a_handle_has_the_layout_meta(pool: sw.PoolFiles, tmp_path: Path) -> None:
    (tmp_path / "names/tree/f").write_bytes(b"beside the store")
    with pool.open("f", "r+b") as file:
        assert file.raw.layout == [(0, [("meta", 65536)])]
        assert file.read() == b"beside the store"
    with pool.open("f", "ab") as file:
        file.write(b", and through it")
    assert (tmp_path / "names/tree/f").read_bytes() == b"beside the store, and through it"


def test_a_removed_file_lives_until_its_close(pool: sw.PoolFiles, tmp_path: Path) -> None:
    datafiles = [tmp_path / f"s{number}" for number in range(3)]
    with pool.open(tmp_path / "mnt" / "file", "w+b", buffering=0) as raw:
        raw.write(b"x" * 500_000)
        pool.rename("file", "other")
        assert pool.listdir() == ["other"]
        pool.remove("other")
        assert pool.listdir() == []
        assert raw.pread(3, 499_998) == b"xx"  # type: ignore[attr-defined]
        assert any(path.is_file() for root in datafiles for path in root.glob("??/*"))
    assert not any(path.is_file() for root in datafiles for path in root.glob("??/*"))
