"""Python on a pool of several users: each process has the rights of its user and no others. The mount's side is in
crates/mount/tests/users.rs."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from stripewise import _native

ALICE, CAROL = 62101, 62103

PREFIX = """
import os, sys
from stripewise import open_pool
user, pool_file = int(sys.argv[1]), sys.argv[2]
os.setgroups([]); os.setresgid(user, user, user); os.setresuid(user, user, user)
os.umask(0o022)
pool = open_pool(pool_file)
def refused(call):
    try:
        call()
    except OSError as error:
        return str(error)
    raise AssertionError("it was allowed")
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root makes pools of several users: run this as root")
    # Where other users can reach it: pytest's own directories are its user's alone.
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        base.chmod(0o755)
        file = base / "pool.toml"
        tier: _native.NewTier = {
            "name": "disk",
            "servers": [str(base / f"s{number}") for number in range(3)],
            "capacity_bytes": None,
            "emulate": None,
            "dilation": None,
        }
        _native.pool_init(str(file), "users", str(base / "mnt"), str(base / "names"), [tier], shared=True)
        yield file


def as_user(user: int, pool: Path, script: str) -> str:
    # As root until it has begun: where Python and this checkout lie need not be open to others.
    command = [sys.executable, "-c", PREFIX + script, str(user), str(pool)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_each_reads_and_writes_what_the_modes_say(shared: Path) -> None:
    as_user(
        ALICE,
        shared,
        """
for name, mode in [("open", 0o644), ("secret", 0o600)]:
    with pool.open(name, "wb") as file:
        file.write(b"alice" * 100_000)
    os.chmod(os.path.join(os.path.dirname(pool_file), "names/tree", name), mode)
""",
    )
    # A mode that is changed in the tree itself reaches the datafiles when root checks.
    told: list[object] = []
    options = {"dry_run": False, "rebind": False, "forget_missing": False, "remove_orphans": False, "scrub": False}
    report = _native.pool_fsck(str(shared), **options, layouts_from=[], found=told.append, progress=lambda *_: None)
    assert report["exit_code"] in (0, 1), told
    as_user(
        CAROL,
        shared,
        """
with pool.open("open", "rb") as file:
    assert file.read() == b"alice" * 100_000
refused(lambda: pool.open("open", "r+b").write(b"carol"))
refused(lambda: pool.open("secret", "rb").read())
refused(lambda: pool.open("secret", "ab"))
with pool.open("hers", "wb") as file:
    file.write(b"carol" * 1000)
""",
    )
    as_user(
        ALICE,
        shared,
        """
for name in ("open", "secret"):
    with pool.open(name, "rb") as file:
        assert file.read() == b"alice" * 100_000
with pool.open("hers", "rb") as file:
    assert file.read() == b"carol" * 1000
""",
    )
