"""The disk of names (the namespace's) full of bytes, full of inodes, read-only, taken away: each command and the API
say so and have an end, by no signal and with no traceback, and leave nothing half-done. The mount's own side is in
crates/mount/tests/names_disk.rs."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from conftest import PATIENCE_S, Stripewise, TestPool
from stripewise import _native

LAYOUT = """
version = 1
pool = "small"
[[file]]
path = "f"
[[file.region]]
offset = "0"
round = ["disk.0:12288B", "disk.1:8192B"]
"""
GONE = "does not exist or has no .stripewise"
READ_ONLY = "Read-only file system"
FULL = "No space left on device"


class Small(TestPool):
    """A pool whose names lie on a small file system in memory."""

    __test__ = False

    @property
    def names(self) -> Path:
        return self.base / "names"

    def others(self) -> list[Path]:
        """What there is beside the names and the mount."""
        found = [path for path in self.base.rglob("*") if not path.is_relative_to(self.names)]
        return sorted(path for path in found if path != self.mount)

    def remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", self.names], check=True)

    def fill_bytes(self) -> None:
        with (self.names / "filler").open("wb", buffering=0) as file, pytest.raises(OSError, match=FULL):
            while True:
                file.write(bytes(4096))

    def fill_names(self) -> None:
        (self.names / "fillers").mkdir()
        number = 0
        with pytest.raises(OSError, match=FULL):
            while True:
                (self.names / "fillers" / str(number)).touch()
                number += 1

    def take_away(self) -> None:
        subprocess.run(["umount", "-l", self.names], check=True)

    def refused(self, words: str, *arguments: object) -> None:
        """The command fails with the words, and leaves nothing but pages in the namespace and the mount's directory."""
        before = self.others()
        done = self.stripewise(*arguments, check=False)
        assert 0 < done.returncode < 126, (arguments, done)
        assert words in done.stderr, (arguments, done.stderr)
        assert "Traceback" not in done.stderr
        assert self.others() == before, arguments


@contextmanager
def disk_of_names(directory: Path, options: str) -> Iterator[None]:
    if os.geteuid() != 0:
        pytest.skip("only root mounts a small file system: run this as root")
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", directory], check=True)
    try:
        yield
    finally:
        # What was taken away by the test is not there any more.
        subprocess.run(["umount", "-l", "-q", directory], stderr=subprocess.DEVNULL, check=False)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Small]:
    base = tmp_path / "pool"
    base.mkdir()
    with disk_of_names(base / "names", "size=3m,nr_inodes=120"):
        file = base / "pool.toml"
        tier: _native.NewTier = {
            "name": "disk",
            "servers": [str(base / "s0"), str(base / "s1")],
            "capacity_bytes": None,
            "emulate": None,
            "dilation": None,
        }
        _native.pool_init(str(file), "small", str(base / "mount"), str(base / "names" / "ns"), [tier], shared=False)
        yield Small(base, file, base / "mount", Stripewise(tmp_path))
        subprocess.run(["umount", "-l", "-q", base / "mount"], stderr=subprocess.DEVNULL, check=False)


@pytest.fixture
def used(small: Small) -> Small:
    """With a file over both servers, and all that a pool makes for itself."""
    small.python("import sys; open(sys.argv[1] + '/f', 'wb').write(b'1' * 300_000)")
    return small


def commands(small: Small) -> list[tuple[object, ...]]:
    layout = small.base.parent / "new.layout"
    layout.write_text(LAYOUT)
    return [
        ("run", "--quiet", "--pool", small.file, "--", "true"),
        ("trace", "--pool", small.file, "-o", small.base / "t.trace", "--", "cat", small.mount / "f"),
        ("apply", layout, "--pool", small.file),
        ("mount", small.file),
        ("stat", small.mount / "f", "--pool", small.file),
        ("export-tree", small.file, small.base / "copy"),
    ]


API = """
import sys
import stripewise as sw
try:
    pool = sw.open_pool(sys.argv[1])
except sw.StripewiseError as error:
    print(error)
    sys.exit()
for mode, name in (("r+b", "f"), ("wb", "new"), ("rb", "f")):
    try:
        with pool.open(name, mode) as file:
            print(len(file.read()) if mode == "rb" else file.write(b"2" * 20_000))
    except OSError as error:
        print(error)
"""


def api(small: Small) -> list[str]:
    command = [sys.executable, "-c", API, str(small.file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done
    return done.stdout.splitlines()


def is_whole(small: Small) -> None:
    """All that was written is there, and the pool works as ever."""
    small.python(
        "import sys; name = sys.argv[1] + '/f'; data = open(name, 'rb').read()\n"
        "assert data.replace(b'2', b'1') == b'1' * 300_000, len(data)\n"
        "open(name, 'wb').write(b'3' * 200_000); assert open(name, 'rb').read() == b'3' * 200_000"
    )
    assert small.stripewise("fsck", small.file).returncode == 0


def test_a_full_disk_before_the_first_use(small):
    small.fill_bytes()
    for command in commands(small):
        small.refused(FULL, *command)
    assert FULL in api(small)[0]
    (small.names / "filler").unlink()
    small.python("import sys; open(sys.argv[1] + '/f', 'wb').write(b'1' * 300_000)")
    is_whole(small)


def test_a_full_disk_in_use(used):
    used.fill_bytes()
    used.refused(FULL, *commands(used)[2])
    used.run("cat", used.mount / "f")
    assert api(used)[-1] == "300000"
    (used.names / "filler").unlink()
    is_whole(used)


@pytest.mark.parametrize("preload", [True, False], ids=["preload", "mount"])
@pytest.mark.parametrize("mounted", [True, False], ids=["mounted", "private"])
def test_a_disk_full_of_inodes(used, preload, mounted):
    if mounted:
        used.stripewise("mount", used.file)
    used.fill_names()
    script = """
import sys, errno
for mode, name in (("r+b", "f"), ("ab", "f"), ("wb", "new")):
    try:
        open(f"{sys.argv[1]}/{name}", mode).write(b"x")
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
    else:
        raise AssertionError("there was room for the lock file")
assert open(sys.argv[1] + "/f", "rb").read() == b"1" * 300_000
"""
    used.python(script, preload=preload)
    used.refused(FULL, *commands(used)[2])
    assert [FULL in line for line in api(used)] == [True, True, False]
    used.stripewise(*commands(used)[1])
    if mounted:
        used.stripewise("umount", used.file)
    for filler in (used.names / "fillers").iterdir():
        filler.unlink()
    is_whole(used)


def test_a_read_only_disk(used):
    used.remount("ro")
    for command in commands(used):
        used.refused(READ_ONLY, *command)
    assert READ_ONLY in api(used)[0]
    used.remount("rw")
    is_whole(used)


def test_a_disk_that_was_taken_away(used):
    used.take_away()
    for command in commands(used):
        used.refused(GONE, *command)
    assert GONE in api(used)[0]


@pytest.mark.parametrize("preload", [True, False], ids=["preload", "mount"])
def test_a_disk_that_was_taken_away_from_under_a_mount(used, preload):
    """What has it open goes on; the preload, which does not find it, leaves all to the mount."""
    used.stripewise("mount", used.file)
    used.take_away()
    script = """
import sys
name = sys.argv[1] + "/f"
assert open(name, "rb").read() == b"1" * 300_000
open(name, "ab").write(b"2" * 1000)
assert open(name, "rb").read() == b"1" * 300_000 + b"2" * 1000
"""
    used.python(script, preload=preload)
    used.stripewise("umount", used.file)


@pytest.mark.parametrize("state", ["bytes", "inodes", "read-only"])
def test_making_a_pool(tmp_path, stripewise, state):
    base = tmp_path / "base"
    (base / "slow").mkdir(parents=True)
    fast = base / "fast"
    options = {"bytes": "size=64k", "inodes": "size=1m,nr_inodes=6", "read-only": "size=1m"}
    with disk_of_names(fast, options[state]):
        small = Small(base, base / "pool.toml", base / "mount", stripewise)
        if state == "bytes":
            with (fast / "filler").open("wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(bytes(4096))
        elif state == "read-only":
            subprocess.run(["mount", "-o", "remount,ro", fast], check=True)
        command = ("pool", "init", "--name", "x", "-o", small.file, "--mount", small.mount, "--hdd", base / "slow")
        failed = stripewise(*command, "--ssd", fast, check=False)
        assert failed.returncode == 1
        assert (READ_ONLY if state == "read-only" else FULL) in failed.stderr
        assert "Traceback" not in failed.stderr
        assert not small.file.exists()
        # What it has begun does not stand in the way of the next.
        if state == "bytes":
            (fast / "filler").unlink()
        subprocess.run(["mount", "-o", "remount,rw,size=3m,nr_inodes=120", fast], check=True)
        stripewise(*command, "--ssd", fast)
        small.python("import sys; open(sys.argv[1] + '/f', 'wb').write(b'1' * 300_000)")
        is_whole(small)
