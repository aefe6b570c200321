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
from stripewise.api import hinting, placing
from stripewise.api.pools import Pool

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


def test_hints_are_those_of_users_who_may_write_the_directory(shared: Path) -> None:
    """They count for files of others there, which keep their owners and rights. The pool's root is for root to hint."""
    said = as_user(
        ALICE,
        shared,
        """
from stripewise import StripewiseError
from stripewise._native import hint_set
os.umask(0)
for name, mode in (("hers", 0o755), ("all", 0o777), ("sticky", 0o1777)):
    pool.mkdir(name)
    os.chmod(os.path.join(os.path.dirname(pool_file), "names/tree", name), mode)
    hint_set(pool_file, name, None, ["small=64K"])
for place, setting in ((".", "small=64K"), ("hers", "layout=disk.0:64K")):
    try:
        hint_set(pool_file, place, None, [setting])
        raise AssertionError(f"{setting} was taken for {place}")
    except StripewiseError as error:
        print(error)
""",
    )
    assert all(word in said for word in ("change the hints of", "rules")), said
    as_user(
        CAROL,
        shared,
        """
from stripewise import StripewiseError
from stripewise._native import hint_set, file_stat, hints_of
for place in ("hers", "sticky"):
    try:
        hint_set(pool_file, place, None, ["small=4K"])
        raise AssertionError(f"a hint was taken for {place}")
    except StripewiseError:
        assert hints_of(pool_file, place)["hints"] == [{"pattern": None, "optimisations": ["small=64KiB"]}]
hint_set(pool_file, "all", None, ["small=8K"])
for place, small in (("all", "small=8KiB"), ("sticky", "small=64KiB")):
    with pool.open(f"{place}/carols", "wb") as file:
        file.write(b"carol" * 100)
    assert file_stat(pool_file, f"{place}/carols")["made_with"] == [small]
    inode = os.stat(os.path.join(os.path.dirname(pool_file), "names/tree", place, "carols"))
    assert (inode.st_uid, inode.st_mode & 0o777, inode.st_size) == (user, 0o644, 500)
    with pool.open(f"{place}/carols", "rb") as file:
        assert file.read() == b"carol" * 100
""",
    )


def test_a_removal_that_may_not_change_the_rules_changes_no_hint(shared: Path) -> None:
    """The directory is the user's own, and the rule for what is in it is root's."""
    as_user(ALICE, shared, "pool.mkdir('d')")
    place = placing.place_of(Path("d"), Pool.load(shared))
    hinting.hint(place, ["layout=disk.0:64K", "readahead=1M"])
    before = hinting.hints(place)
    assert (len(before["hints"]), len(before["layouts"])) == (1, 1)
    prefix = """
from pathlib import Path
from stripewise import StripewiseError
from stripewise.api import hinting, placing
from stripewise.api.pools import Pool
place = placing.place_of(Path("d"), Pool.load(Path(pool_file)))
"""
    for call in (
        "hinting.remove(place)",
        "hinting.remove_all(place)",
        'hinting.remove(place, ["readahead", "layout"])',
    ):
        attempt = f"{prefix}try:\n    {call}\nexcept StripewiseError as error:\n    print(error)"
        assert "rules.toml" in as_user(ALICE, shared, attempt)
        assert hinting.hints(place) == before, call
    as_user(ALICE, shared, f'{prefix}hinting.remove(place, ["readahead"])')
    after = hinting.hints(place)
    assert (after["hints"], after["layouts"], after["version"]) == ([], before["layouts"], before["version"] + 1)
