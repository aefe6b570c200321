"""Files whose handles have what this release does not understand, by all ways in. The store's side is in
crates/store/tests/later_releases.rs."""

import errno
import os
import struct

import pytest

from stripewise.api.files import open_pool
from stripewise.api.pools import Pool

PROGRAM = """
import errno, os, sys
path, can_write = sys.argv[1] + "/f", sys.argv[2] == "True"
data = open(path, "rb", 0).read()
assert os.stat(path).st_size == len(data) == 300_000
assert data == bytes(range(250)) * 1200
def attempt(call):
    try:
        call()
    except OSError as error:
        assert not can_write and error.errno == errno.EROFS, error
    else:
        assert can_write
def write():
    with open(path, "r+b", 0) as file:
        file.seek(250)
        file.write(bytes(range(250)))
attempt(write)
attempt(lambda: os.truncate(path, 300_000))
attempt(lambda: os.close(os.open(path, os.O_WRONLY | os.O_APPEND)))
if not can_write:
    attempt(lambda: open(path, "wb"))
assert open(path, "rb", 0).read() == data
"""


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def enable(inode, index, parameters):
    """Puts an optimisation into the handle of a file that has none, as a later release may do."""
    handle = os.getxattr(inode, "user.stripewise")[:-4]
    at = 4 + 1 + 1 + 8 + 8 + 4
    assert handle[at : at + 4] == bytes(4)
    words = struct.pack(">IQ", 1 << index, index << 59 | parameters)
    changed = handle[:at] + words + handle[at + 4 :]
    os.setxattr(inode, "user.stripewise", changed + struct.pack(">I", crc32c(changed)))


@pytest.mark.parametrize(
    ("index", "parameters", "named"),
    [
        (30, 7, "optimisation 30 is not known to this release of Stripewise"),
        (9, 7, "optimisation 9 is not known to this release of Stripewise"),
        (1, 1 << 41, "readahead: depth=2: it must be"),
        (0, 1, "small: size=1 byte"),
    ],
)
def test_such_a_file_is_read_by_all_ways_and_written_where_that_breaks_nothing(pool, index, parameters, named):
    data, can_write = bytes(range(250)) * 1200, index < 16
    names = next(pool.servers()[3].glob(".*-names")) / "tree"
    with open_pool(pool.file).open("f", "wb") as file:
        file.write(data)
    enable(names / "f", index, parameters)
    pool.stripewise("mount", pool.file)
    try:
        for preload in (False, True):
            pool.python(PROGRAM, str(can_write), preload=preload)
        files = open_pool(pool.file)
        with files.open("f", "rb") as file:
            assert file.read() == data
        if can_write:
            with files.open("f", "r+b") as file:
                file.write(data[:100])
        else:
            with pytest.raises(OSError, match="optimisation 30 of a later release of Stripewise") as refused:
                files.open("f", "r+b")
            assert refused.value.errno == errno.EROFS
        assert named.split(":")[0] in pool.stripewise("stat", pool.mount / "f").stdout
        layout = (
            f'version = 1\npool = "{Pool.load(pool.file).name}"\n[[file]]\npath = "f"\n[[file.region]]\noffset = "0"\n'
            'round = ["hdd.0:4KiB"]\n'
        )
        (pool.base / "one.layout").write_text(layout)
        moved = pool.stripewise("apply", pool.base / "one.layout", "--pool", pool.file, check=False)
        assert (moved.returncode == 0) == can_write, moved.stderr
        assert can_write or "optimisation 30 of a later release" in moved.stderr
        assert (pool.mount / "f").read_bytes() == data
        (pool.mount / "f").rename(pool.mount / "g")
        assert (pool.mount / "g").read_bytes() == data
    finally:
        pool.stripewise("umount", "--lazy", pool.mount)
    assert pool.stripewise("fsck", pool.file).returncode == 0
    open_pool(pool.file).remove("g")
    assert pool.stripewise("fsck", pool.file).returncode == 0
