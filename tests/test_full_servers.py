"""A server that is really full, under programs that keep their bytes in pages: what they were told is kept, is kept."""

import os
import sys
from pathlib import Path

import pytest

import stripewise

PACKAGE = Path(stripewise.__file__).parent
MOUNT = PACKAGE / "_bin" / "stripewise-mount"
LIBRARY = PACKAGE / "_lib" / "libstripewise_preload.abi3.so"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system under a server")

# Puts a small file system under the server, mounts the pool, lets the first program write and, under another mount, the
# second look.
STEPS = """
set -eu
mount -t tmpfs -o size=200k tmpfs "$SMALL"
cp -a "$SERVER/." "$SMALL"
mount --bind "$SMALL" "$SERVER"
"$MOUNT_PROGRAM" "$POOL" "$M" -o "$OPTIONS"
env $PRELOAD "$PYTHON" -c "$WRITES" || echo "writer $?"
"$STRIPEWISE" umount "$M"
"$MOUNT_PROGRAM" "$POOL" "$M" -o "$OPTIONS"
"$PYTHON" -c "$LOOKS"
"$STRIPEWISE" umount "$M"
"""


@pytest.fixture
def small(pool, tmp_path):
    """Runs two programs on a pool with a server of 200 KiB; what they print."""

    def run(writes, looks, options="noatime", preload=False, **environment):
        directory = tmp_path / "small"
        directory.mkdir()
        past = f"LD_PRELOAD={LIBRARY} STRIPEWISE_POOL={pool.file} STRIPEWISE_MOUNT={pool.mount}"
        variables = {
            "SMALL": str(directory),
            "SERVER": str(next(pool.servers()[1].iterdir())),
            "POOL": str(pool.file),
            "M": str(pool.mount),
            "OPTIONS": options,
            "PRELOAD": past if preload else "",
            "MOUNT_PROGRAM": str(MOUNT),
            "PYTHON": sys.executable,
            "STRIPEWISE": str(Path(sys.executable).parent / "stripewise"),
            "WRITES": writes,
            "LOOKS": looks,
            **environment,
        }
        pool.mount.mkdir(exist_ok=True)
        steps = ["unshare", "--mount", "env", *(f"{name}={value}" for name, value in variables.items())]
        # The command itself has nothing to do: the steps stand before it.
        done = pool.stripewise("--version", prefix=[*steps, "sh", "-c", STEPS + 'exec "$@"', "sh"], check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


# Each number that is printed was committed. It ends by an error or by SIGBUS.
COMMITS = """
import os, lmdb
environment = lmdb.open(os.environ["M"] + "/db", map_size=64 << 20, writemap=True, map_async=False)
for number in range(100_000):
    with environment.begin(write=True) as transaction:
        transaction.put(b"%08d" % number, b"%08d" % number * 400)
    print(number, flush=True)
"""

COMMITTED = """
import os, lmdb
environment = lmdb.open(os.environ["M"] + "/db", map_size=64 << 20, readonly=True, lock=False)
with environment.begin() as transaction:
    for number in range(100_000):
        if transaction.get(b"%08d" % number) != b"%08d" % number * 400:
            break
print("found", number)
"""


@pytest.mark.parametrize(
    ("options", "preload"), [("noatime", False), ("noatime", True), ("writeback_cache", False)], ids=str
)
def test_a_database_in_a_map_loses_no_commit(small, options, preload):
    lines = small(COMMITS, COMMITTED, options, preload).split()
    committed = [int(word) for word in lines[: lines.index("writer")]]
    assert len(committed) > 20, "it met the full server before it wrote anything"
    assert committed == list(range(len(committed)))
    found = int(lines[lines.index("found") + 1])
    assert found >= len(committed), f"{len(committed)} commits were told of, {found} are there"


COPIES = """
import os, subprocess
mount = os.environ["M"]
source = os.environ["SOURCE"]
def run(name, *commands):
    codes = [subprocess.run(command, stderr=subprocess.DEVNULL).returncode for command in commands]
    print(name, "failed" if any(codes) else "done")
run("small", ["dd", "if=" + source, "of=" + mount + "/small", "bs=4k", "count=10", "conv=fsync", "status=none"])
run("cp", ["cp", source, mount + "/cp"], ["sync", "-f", mount + "/cp"])
run("dd", ["dd", "if=" + source, "of=" + mount + "/dd", "bs=64k", "conv=fsync", "status=none"])
def fsync():
    fd = os.open(mount + "/fsync", os.O_CREAT | os.O_WRONLY)
    content = memoryview(open(source, "rb").read())
    while content:
        content = content[os.write(fd, content):]
    os.fsync(fd)
try:
    fsync()
    print("fsync done")
except OSError as error:
    print("fsync failed")
"""

COPIED = """
import os
source = open(os.environ["SOURCE"], "rb").read()
for name, length in [("small", 40960), ("cp", len(source)), ("dd", len(source)), ("fsync", len(source))]:
    try:
        found = open(os.environ["M"] + "/" + name, "rb").read()
    except OSError:
        found = b""
    print(name, "whole" if found == source[:length] else "not-whole")
"""


@pytest.mark.parametrize("options", ["noatime", "writeback_cache"])
def test_programs_that_sync_are_told_of_a_full_server(small, tmp_path, options):
    source = tmp_path / "source"
    source.write_bytes(os.urandom(3 << 20))
    told = small(COPIES, COPIED, options, SOURCE=str(source)).split()
    pairs = list(zip(told[::2], told[1::2], strict=True))
    said, found = dict(pairs[:4]), dict(pairs[4:])
    assert said["small"] == "done"
    for name in ("small", "cp", "dd", "fsync"):
        assert said[name] == "failed" or found[name] == "whole", (name, told)
    assert "failed" in (said["cp"], said["dd"], said["fsync"]), "the server was never full"


REMOVES = """
import os
os.chdir(os.environ["M"])
def write(length):
    fd = os.open("file", os.O_CREAT | os.O_WRONLY)
    written = 0
    try:
        while written < length:
            written += os.write(fd, bytes(min(length - written, 65536)))
    finally:
        os.close(fd)
        print(written, flush=True)
try:
    write(64 << 20)
except OSError as error:
    print("full", error.errno)
room = os.stat("file").st_size
os.unlink("file")
for _ in range(30):
    write(room * 3 // 4)
    os.unlink("file")
print("all")
"""


def test_who_removes_a_file_has_its_room_at_once(small):
    told = small(REMOVES, "print('looked')").split()
    assert "full" in told, "the server was never full"
    assert "all" in told and "writer" not in told, told
