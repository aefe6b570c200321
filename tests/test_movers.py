"""Movers on several nodes, and root beside the owner of a pool: they do not meet, and nothing changes but where bytes
are."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import BIN
from stripewise.api import adapt as adapting
from stripewise.api import asking, moving
from stripewise.api.files import open_pool
from stripewise.pool import Pool

OWNER = 62101
SIZE = 3 << 20


def content(number):
    return bytes((number * 7 + at) % 251 for at in range(251)) * (SIZE // 251)


def write(pool, numbers):
    files = open_pool(pool.file)
    for number in numbers:
        with files.open(f"f{number}", "wb") as file:
            file.write(content(number))


def landed_on(pool):
    """By file, the tier where it has landed; `None`: it has its place."""
    names = sorted(of.name for of in (pool.namespace / "tree").iterdir())
    stat = (BIN / "stripewise", "stat", "--pool", pool.file, "--json")
    documents = (subprocess.run([*stat, name], capture_output=True, text=True, check=True).stdout for name in names)
    return {name: json.loads(document)["landed_on"] for name, document in zip(names, documents, strict=True)}


def check(pool, numbers):
    """All bytes are right, and a check finds nothing."""
    files = open_pool(pool.file)
    for number in numbers:
        with files.open(f"f{number}", "rb") as file:
            assert file.read() == content(number), number
    subprocess.run([BIN / "stripewise", "fsck", pool.file, "--scrub"], check=True, capture_output=True, timeout=120)


@pytest.fixture
def landing(tmp_path, stripewise):
    """A pool where files land; it keeps no heat, so that all of them leave. Times are a hundredth of the real ones."""
    base = tmp_path / "p"
    stripewise("pool", "init", base, "--emulate", "--hdd", "2", "--ssd", "1", "--dilation", "0.01")
    file = base / "pool.toml"
    file.write_text(file.read_text().replace("[default]\n", '[default]\nland = "ssd"\n'))
    return Pool.load(file)


@contextmanager
def on_node(node, *arguments):
    """The command, on a machine of that name."""
    steps = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', node, str(BIN / "stripewise")]
    command = [*steps, *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def refusal(node, *arguments):
    with on_node(node, *arguments) as started:
        _, words = started.communicate(timeout=60)
        assert started.returncode == 1, words
        return " ".join(words.split())


def wait_for(condition, process):
    while not condition():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)


nodes = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("hostname"),
    reason="NOT RUN: only root gives a process the name of another node, with unshare and hostname",
)


@nodes
def test_movers_on_two_nodes_do_not_meet_and_each_does_some_of_the_work(landing):
    """One is in the middle of its move; the other is refused, or waits, and goes on with what has landed since."""
    write(landing, range(3))
    with on_node("one", "pool", "settle", landing.file, "--urgent", "--rate", "4MB", "--json") as first:
        wait_for(lambda: moving.now(landing) is not None, first)
        first.send_signal(signal.SIGSTOP)
        write(landing, [3, 4])
        settles = refusal("two", "pool", "settle", landing.file, "--urgent")
        assert "is adapted by another process, which settles its files itself" in settles
        assert "is adapted already" in refusal("two", "adapt", landing.file)
        with on_node("two", "pool", "drain", landing.file, "ssd.0", "--to", "hdd") as drain:
            assert "which adapts the pool, moves files now: this waits" in drain.stderr.readline()
        with on_node("two", "adapt", landing.file, "--once", "--urgent", "--json") as second:
            wait_for(lambda: asking.is_waiting(landing), second)
            first.send_signal(signal.SIGCONT)
            before, _ = first.communicate(timeout=120)
            after, words = second.communicate(timeout=120)
            assert (first.returncode, second.returncode) == (0, 0), words
    done, (decision,) = json.loads(before), [json.loads(line) for line in after.splitlines()]
    (step,) = decision["relief"]
    assert "it has ended without an answer, so that this command decides" in " ".join(words.split())
    # Each byte is copied once.
    size_bytes = len(content(0))
    assert (done["moved_files"], done["copied_bytes"]) == (3, 3 * size_bytes)
    assert (step["moved_files"], step["copied_bytes"]) == (2, 2 * size_bytes)
    assert set(landed_on(landing).values()) == {None}
    check(landing, range(5))


def moved_files(pool):
    """By all decisions so far."""
    return sum(step["moved_files"] for decision in adapting.decisions(pool) for step in decision.get("relief", []))


@nodes
def test_of_services_on_two_nodes_one_moves_and_the_other_takes_over_once_it_has_ended(landing):
    options = ("--urgent", "--period", "1", "--json")
    with on_node("one", "adapt", landing.file, *options) as first:
        wait_for(lambda: adapting.decisions(landing), first)
        assert "is adapted already" in refusal("two", "adapt", landing.file, *options)
        write(landing, [0, 1])
        wait_for(lambda: moved_files(landing) == 2, first)
        first.send_signal(signal.SIGKILL)
        first.wait(timeout=60)
    write(landing, [2, 3])
    with on_node("two", "adapt", landing.file, *options) as second:
        wait_for(lambda: moved_files(landing) == 4, second)
        second.send_signal(signal.SIGINT)
        second.communicate(timeout=60)
    assert set(landed_on(landing).values()) == {None}
    check(landing, range(4))


AS_OWNER = """
import encodings.ascii, os, sys
from pathlib import Path
from stripewise.api import adapt, pools, relief
from stripewise.api.files import open_pool
from stripewise.api.pacing import Pace
from stripewise.pool import Pool
user, base = int(sys.argv[1]), Path(sys.argv[2])
os.setgroups([]); os.setresgid(user, user, user); os.setresuid(user, user, user)
os.umask(0o022)
file = base / "pool.toml"
"""


def as_owner(base, script):
    # As root until it has begun: where Python and this checkout lie need not be open to others.
    command = [sys.executable, "-c", AS_OWNER + script, str(OWNER), str(base)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


MAKE = """
if kind == "real":
    disks = [base / f"s{number}" for number in range(3)]
    for disk in disks:
        disk.mkdir()
    tiers = pools.real_tiers({"hdd": disks[:2], "ssd": disks[2:]}, "owned")
else:
    tiers = pools.emulated_tiers(base, {"hdd": 2, "ssd": 1})
pools.make(file, "owned", tiers, mount=base / "mount", dilation=0.01)
file.write_text(file.read_text().replace("[default]\\n", '[default]\\nland = "ssd"\\n'))
"""

LAND = """
os.umask(0)
files = open_pool(file)
for number, mode in enumerate((0o600, 0o640, 0o666, 0o755)):
    with files.open_raw(f"{round}-{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode) as out:
        out.write(bytes(range(250)) * 4000)
"""

GO_ON = """
files = open_pool(file)
for name in files.listdir():
    with files.open(name, "r+b") as known:
        assert known.read() == bytes(range(250)) * 4000
        known.seek(500_000)
        known.write(bytes(range(250)) * 4000)
        known.truncate(500_000)
    with files.open(name, "ab") as known:
        known.write(bytes(range(250)) * 2000)
"""


def rights(base):
    """By path, of all that the pool has: who it belongs to; of the files of its tree mode and times as well."""
    tree = Pool.load(base / "pool.toml").namespace / "tree"
    found = {}
    for place in base.rglob("*"):
        state = place.lstat()
        found[place] = (state.st_uid, state.st_gid)
        if place.parent == tree:
            found[place] += (state.st_mode, state.st_atime_ns, state.st_mtime_ns)
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT RUN: only root moves the files of another user")
@pytest.mark.parametrize(
    ("kind", "command"),
    [("real", ("pool", "settle", "--hot")), ("emulated", ("adapt", "--once"))],
    ids=["real", "emulated"],
)
def test_what_root_moves_stays_its_owner_s_who_goes_on(kind, command):
    # Where other users can reach it: pytest's own directories are its user's alone.
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        os.chown(base, OWNER, OWNER)
        as_owner(base, f"kind = '{kind}'" + MAKE)
        pool = Pool.load(base / "pool.toml")
        tree = pool.namespace / "tree"
        for turn in range(2):
            as_owner(base, f"round = {turn}" + LAND)
            before = rights(base)
            subprocess.run([BIN / "stripewise", *command, pool.file, "--urgent"], check=True, timeout=120)
            assert set(landed_on(pool).values()) == {None}
            after = rights(base)
            assert {of: after[of] for of in tree.iterdir()} == {of: before[of] for of in tree.iterdir()}
            assert {of: whose for of, whose in after.items() if whose[:2] != (OWNER, OWNER)} == {}
            as_owner(base, GO_ON)
            # And the owner moves files as ever.
            as_owner(base, f"round = '{turn}b'" + LAND)
            alone = "with adapt.alone(pool):\n    print(relief.settle(pool, pace=Pace(urgent=True))['moved_files'])"
            assert as_owner(base, f"pool = Pool.load(file)\n{alone}") == "4\n"
            as_owner(base, GO_ON)
        subprocess.run([BIN / "stripewise", "fsck", pool.file], check=True, timeout=120)


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT RUN: only root moves the files of another user")
def test_the_owner_writes_a_file_while_root_moves_it():
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        os.chown(base, OWNER, OWNER)
        as_owner(base, "kind = 'real'" + MAKE)
        as_owner(base, "round = 0" + LAND)
        pool = Pool.load(base / "pool.toml")
        settle = [BIN / "stripewise", "pool", "settle", pool.file, "--urgent"]
        with subprocess.Popen([*settle, "--rate", "200KB"], stderr=subprocess.PIPE, text=True) as mover:
            wait_for(lambda: (move := moving.now(pool)) is not None and move.copied_bytes > 0, mover)
            as_owner(base, GO_ON)
            mover.send_signal(signal.SIGINT)
            mover.communicate(timeout=60)
        # What gave way moves later.
        subprocess.run(settle, check=True, timeout=120)
        assert set(landed_on(pool).values()) == {None}
        assert {of for of, whose in rights(base).items() if whose[:2] != (OWNER, OWNER)} == set()
        as_owner(base, GO_ON)
        subprocess.run([BIN / "stripewise", "fsck", pool.file], check=True, timeout=120)
