"""Python on a pool of several users: each process has the rights of its user and no others. The mount's side is in
crates/mount/tests/users.rs."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import BIN, PATIENCE_S
from stripewise import StripewiseError, _native
from stripewise.api import hinting, placing
from stripewise.api.pools import Pool

ALICE, CAROL = 62101, 62103

PREFIX = """
import os, resource, sys, threading
from stripewise import open_pool
user, pool_file = int(sys.argv[1]), sys.argv[2]
os.setgroups([]); os.setresgid(user, user, user); os.setresuid(user, user, user)
os.umask(0o022)
pool = open_pool(pool_file)
TREE = os.path.join(os.path.dirname(pool_file), "names/tree/")
def refused(call):
    try:
        call()
    except OSError as error:
        return str(error)
    raise AssertionError("it was allowed")
"""

HINTING = """
from pathlib import Path
from stripewise import StripewiseError
from stripewise.api import hinting, placing
from stripewise.api.pools import Pool
place = lambda name: placing.place_of(Path(name), Pool.load(Path(pool_file)))
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
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
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
    for call in (
        'hinting.remove(place("d"))',
        'hinting.remove_all(place("d"))',
        'hinting.remove(place("d"), ["readahead", "layout"])',
    ):
        attempt = f"{HINTING}try:\n    {call}\nexcept StripewiseError as error:\n    print(error)"
        assert "rules.toml" in as_user(ALICE, shared, attempt)
        assert hinting.hints(place) == before, call
    as_user(ALICE, shared, f'{HINTING}hinting.remove(place("d"), ["readahead"])')
    after = hinting.hints(place)
    assert (after["hints"], after["layouts"], after["version"]) == ([], before["layouts"], before["version"] + 1)


def test_why_says_that_only_users_who_may_read_a_file_are_told_of_its_opens(shared: Path) -> None:
    mount = shared.parent / "mnt"
    subprocess.run([BIN / "stripewise", "mount", shared], check=True, timeout=PATIENCE_S)
    try:
        for name, mode in (("open", 0o644), ("secret", 0o600)):
            (mount / name).write_bytes(b"x")
            (mount / name).chmod(mode)
        script = f"""{HINTING}
for name in ("open", "secret"):
    print(hinting.refusing(place(name)))
    try:
        print(len(hinting.why(place(name))["opens"]))
    except StripewiseError as error:
        print(error)
"""
        lines = as_user(CAROL, shared, script).splitlines()
        assert lines[:3] == ["[]", "1", str([str(mount)])]
        assert lines[3].startswith("secret: only users who may read the file are told which path it takes"), lines
    finally:
        subprocess.run([BIN / "stripewise", "umount", "--lazy", mount], check=True, timeout=PATIENCE_S)


def test_a_directory_that_its_owner_may_not_write_gets_the_hints_too(shared: Path) -> None:
    as_user(ALICE, shared, "pool.mkdir('d')")
    pool = Pool.load(shared)
    said = hinting.hint(placing.place_of(Path("d"), pool), ["small=8K"])
    as_user(ALICE, shared, "for mode in (0o555, 0o0, 0o755):\n    pool.mkdir(f'd/{mode:o}', mode)")
    for mode in (0o555, 0o0, 0o755):
        assert hinting.hints(placing.place_of(Path(f"d/{mode:o}"), pool)) == said
        assert (shared.parent / "names/tree/d" / f"{mode:o}").stat().st_mode & 0o7777 == mode


def test_hints_and_rules_of_another_users_directory_are_set_and_removed_by_no_other(shared: Path) -> None:
    make = "for name, mode in ('own', 0o755), ('all', 0o777), ('sticky', 0o1777):\n    pool.mkdir(name)\n    "
    as_user(ALICE, shared, f"{make}os.chmod(TREE + name, mode)")
    pool = Pool.load(shared)
    own, everyone = (placing.place_of(Path(name), pool) for name in ("own", "all"))
    before = hinting.hint(own, ["readahead=1M", "layout=disk.0:64K"])
    for call in (
        'hinting.hint(place("own"), ["small=4K"])',
        'hinting.hint(place("own"), ["class"], pattern="*.h5")',
        'hinting.remove(place("own"), ["readahead"])',
        'hinting.remove_all(place("own"))',
        'hinting.hint(place("own"), ["layout=disk.1:64K"])',
        'hinting.remove(place("own"), ["layout"])',
        'hinting.hint(place("all"), ["layout=disk.1:64K"])',
        'hinting.hint(place("sticky"), ["small=4K"])',
    ):
        said = as_user(CAROL, shared, f"{HINTING}try:\n    {call}\nexcept StripewiseError as error:\n    print(error)")
        assert "Permission denied" in said or "not permitted" in said, f"{call}: {said}"
        assert hinting.hints(own) == before, call
    assert hinting.hints(everyone)["layouts"] == []
    as_user(CAROL, shared, f'{HINTING}hinting.hint(place("all"), ["small=4K"])')
    # She may write it, and so change what she has hinted there; the owner, too.
    as_user(ALICE, shared, f'{HINTING}hinting.hint(place("all"), ["small=16K"])')
    assert hinting.hints(everyone)["hints"] == [{"pattern": None, "optimisations": ["small=16KiB"]}]
    as_user(CAROL, shared, f'{HINTING}hinting.remove(place("all"))')
    assert (hinting.hints(everyone)["hints"], hinting.hints(everyone)["version"]) == ([], 3)


def test_a_user_who_holds_the_lock_of_a_directory_keeps_no_other_from_an_answer(shared: Path) -> None:
    as_user(ALICE, shared, "pool.mkdir('d')")
    place = placing.place_of(Path("d"), Pool.load(shared))
    before = hinting.hint(place, ["small=8K"])
    lock = "file = os.open(TREE + 'd', os.O_RDONLY)\nfcntl.flock(file, fcntl.LOCK_EX)\n"
    holds = f"{lock}print(flush=True)\ninput()"
    command = [sys.executable, "-c", "import fcntl\n" + PREFIX + holds, str(CAROL), str(shared)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as carol:
        assert carol.stdout is not None
        assert carol.stdin is not None
        carol.stdout.readline()
        for change in (lambda: hinting.hint(place, ["small=4K"]), lambda: hinting.remove_all(place)):
            with pytest.raises(StripewiseError, match="another process holds the lock of the directory d"):
                change()
        carol.stdin.write(b"\n")
    assert hinting.hints(place) == before
    hinting.remove_all(place)
    assert hinting.hints(place)["hints"] == []
