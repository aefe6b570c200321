"""Servers come and go, by the installed command, while real programs use the pool."""

import errno
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from conftest import BIN, PATIENCE_S
from stripewise import StripewiseError, _native
from stripewise.api import activity, adapt, pool_life, relief
from stripewise.api.pacing import Pace, Pacer
from stripewise.cli import console, draining, pool_add, pool_drain
from stripewise.pool import Pool

WRITER = """
import os, random, sys
base, stop, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.makedirs(base, exist_ok=True)
rng, number, done = random.Random(seed), 0, {}
while not os.path.exists(stop) or number < 20:
    name = f"{base}/{number % 25}"
    body = rng.randbytes(rng.randrange(1, 200_000))
    with open(name, "wb") as file:
        file.write(body[:len(body) // 2])
        file.write(body[len(body) // 2:])
    done[name] = body
    back = rng.choice(sorted(done))
    assert open(back, "rb").read() == done[back], back
    number += 1
for name, body in done.items():
    assert open(name, "rb").read() == body, name
print(number)
"""


@pytest.fixture
def mounted(pool):
    pool.stripewise("mount", pool.file)
    yield pool
    # A test may have unmounted it.
    pool.stripewise("umount", pool.mount, check=False)


def disk(pool, name):
    made = pool.base / "disks" / name
    made.mkdir()
    return made


def layouts(pool):
    """Of each file by its path; without a start of the command for each."""
    names = [path.relative_to(pool.mount) for path in pool.mount.rglob("*") if path.is_file()]
    regions = {name: _native.file_stat(str(pool.file), str(name))["regions"] for name in names}
    return {str(name): " ".join(entry for region in regions[name] for entry in region["round"]) for name in names}


def servers_of(stripewise, file, name):
    document = json.loads(stripewise("stat", "--pool", file, name, "--json").stdout)
    found = set()
    for entry in (entry for region in document["regions"] for entry in region["round"]):
        tier, numbers = entry.split(":")[0].split(".")
        first, _, last = numbers.partition("-")
        found |= {f"{tier}.{number}" for number in range(int(first), int(last or first) + 1)}
    return found


SYNCS = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
os.pwrite(file, b"x" * 1_000_000, 0)
print("written", flush=True)
for line in sys.stdin:
    os.fsync(file) if line == "sync\\n" else os.pwrite(file, line.encode(), 0)
    print("done", flush=True)
"""


@pytest.mark.parametrize("options", [[], ["--no-preload"]])
@pytest.mark.parametrize("writes_again", [True, False])
def test_a_sync_after_the_file_has_left_a_server_that_is_gone_finds_nothing_lost(pool, options, writes_again):
    """What was written before the move, and not synced by its writer, the mover has synced."""
    command = [BIN / "stripewise", "run", "--quiet", *options, "--pool", pool.file, "--"]
    command += [sys.executable, "-c", SYNCS, pool.mount / "file"]
    program = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def said(line=None):
        if line is not None:
            program.stdin.write(f"{line}\n")
            program.stdin.flush()
        return program.stdout.readline()

    try:
        assert said() == "written\n"
        pool.stripewise("pool", "drain", pool.file, "hdd.1", "--urgent")
        assert not writes_again or said("more") == "done\n"
        pool.stripewise("pool", "remove", pool.file, "hdd.1")
        assert said("sync") == "done\n"
    finally:
        program.stdin.close()
        program.wait(PATIENCE_S)
    assert program.returncode == 0


def test_programs_go_on_while_servers_come_and_go(mounted):
    """Python programs, cp, SQLite and a log: through the mount, and past it under the preload."""
    pool, stop = mounted, mounted.base / "stop"
    (pool.mount / "kept").write_bytes(random.Random(1).randbytes(3_000_000))
    database = pool.mount / "data.db"
    with sqlite3.connect(database) as connection:
        connection.execute("create table numbers (number integer)")
    connection.close()
    script = pool.base / "writer.py"
    script.write_text(WRITER)
    plain = [sys.executable, script, pool.mount / "plain", stop, "1"]
    past = [BIN / "stripewise", "run", "--quiet", "--pool", pool.file, "--"]
    past += [sys.executable, script, pool.mount / "past", stop, "2"]
    programs = [
        subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) for command in (plain, past)
    ]
    rows = 0
    try:
        for step in (
            ["add", pool.file, disk(pool, "d5"), "--tier", "hdd"],
            ["drain", pool.file, "hdd.0", "--wait", "--urgent"],
            ["remove", pool.file, "hdd.0"],
            ["replace", pool.file, "hdd.1", disk(pool, "d6"), "--wait", "--urgent"],
        ):
            subprocess.run(["cp", pool.mount / "kept", pool.mount / f"copy{rows}"], check=True)
            with sqlite3.connect(database) as connection:
                connection.executemany("insert into numbers values (?)", [(number,) for number in range(100)])
            connection.close()
            rows += 100
            pool.stripewise("pool", *step)
    finally:
        stop.touch()
        outputs = [program.communicate(timeout=PATIENCE_S)[0] for program in programs]
    assert [program.returncode for program in programs] == [0, 0], outputs
    with sqlite3.connect(database) as connection:
        assert connection.execute("select count(*), sum(number) from numbers").fetchone() == (rows, rows * 99 // 2)
    connection.close()
    kept = (pool.mount / "kept").read_bytes()
    assert kept == random.Random(1).randbytes(3_000_000)
    assert all(path.read_bytes() == kept for path in pool.mount.glob("copy*"))
    (pool.mount / "last").write_bytes(kept)
    found = layouts(pool)
    assert not [name for name, rounds in found.items() if "hdd.0" in rounds or "hdd.1:" in rounds]
    # hdd.2 was there, hdd.3 and hdd.4 came: the mount has learnt of them.
    assert found["last"].split() == ["hdd.2:64KiB", "ssd.0:64KiB", "hdd.3-4:64KiB"]
    assert [path.name for path in pool.servers() if not list(path.iterdir())] == ["d0", "d1"]
    pool.stripewise("umount", pool.mount)
    checked = pool.stripewise("fsck", pool.file)
    assert checked.stdout.endswith("; clean\n")
    recovered = pool.base / "recovered"
    subprocess.run([sys.executable, Path(__file__).parents[1] / "docs/recover.py", pool.file, recovered], check=True)
    assert (recovered / "last").read_bytes() == kept


def test_a_drain_that_is_interrupted_says_that_it_goes_on(pool):
    pool.python("import sys; open(f'{sys.argv[1]}/f', 'wb').write(bytes(range(256)) * 200_000)")
    code = (
        "import os, signal, sys; from stripewise import _native; from stripewise.cli import draining\n"
        "def at_once(*_): os.kill(os.getpid(), signal.SIGINT); return True\n"
        "with draining.moving('draining'):\n"
        "    _native.pool_drain(sys.argv[1], 'hdd.1', to=None, wait=False, dry_run=False,\n"
        "                       progress=at_once)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, pool.file], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode in (1, -signal.SIGINT, 130)
    assert "the same command goes on" in done.stderr
    shown = pool.stripewise("pool", "show", pool.file).stdout
    assert "draining" in shown
    assert pool.run("wc", "-c", pool.mount / "f").stdout.split()[0] == str(256 * 200_000)
    assert "moved 1 file from hdd.1" in pool.stripewise("pool", "drain", pool.file, "hdd.1").stdout
    plan = pool.stripewise("pool", "drain", pool.file, "hdd.1", "--dry-run").stdout
    assert plan.startswith("would move 0 files")


def test_each_step_of_a_replacement_has_a_turn_of_its_own(pool):
    pool.python("import sys; open(f'{sys.argv[1]}/f', 'wb').write(bytes(range(256)) * 2000)")
    disk = pool.base / "new"
    disk.mkdir()
    states = []

    def turn(step):
        # Each step may have to wait, and is called again; what was done before it stays done.
        states.append({server.name: server.state for server in Pool.load(pool.file).servers})
        return step()

    new, done = pool_life.replace(Pool.load(pool.file), "hdd.1", disk, turn=turn)
    assert [state.get(new) for state in states] == [None, "used"] and states[1]["hdd.1"] == "draining"
    assert (done["moved_files"], done["staying"]) == (1, [])
    assert "hdd.1" not in {server.name for server in Pool.load(pool.file).servers}
    assert pool.run("wc", "-c", pool.mount / "f").stdout.split()[0] == str(256 * 2000)


def test_a_drain_is_taken_back_and_no_known_server_replaces_another(pool):
    pool.python("import sys; open(f'{sys.argv[1]}/f', 'wb').write(bytes(range(256)) * 2000)")
    refused = pool.stripewise("pool", "drain", pool.file, "hdd.1", "--cancel", check=False)
    assert refused.returncode == 1 and "hdd.1 is not drained" in refused.stderr
    pool.stripewise("pool", "drain", pool.file, "hdd.1")
    mixed = pool.stripewise("pool", "drain", pool.file, "hdd.1", "--cancel", "--wait", check=False)
    assert mixed.returncode == console.EXIT_USAGE and "--cancel moves nothing" in mixed.stderr
    assert "hdd.1 takes files again" in pool.stripewise("pool", "drain", pool.file, "hdd.1", "--cancel").stdout
    assert "draining" not in pool.stripewise("pool", "show", pool.file).stdout
    for server, why in ((0, "is the directory of hdd.0 itself"), (2, "is hdd.2 of the pool already")):
        disk = pool.servers()[server]
        wrong = pool.stripewise("pool", "replace", pool.file, "hdd.0", disk, check=False)
        assert wrong.returncode == 1 and why in wrong.stderr, wrong.stderr
    pool.python("import sys; assert open(f'{sys.argv[1]}/f', 'rb').read() == bytes(range(256)) * 2000")


def test_what_stays_is_named_and_the_exit_code_says_so(mounted):
    (mounted.mount / "d").mkdir()
    # What has a part in its inode does not move beside a writer.
    mounted.stripewise("hint", "--pool", mounted.file, "d", "small=64K")
    with (mounted.mount / "d/busy").open("wb", buffering=0) as busy:
        busy.write(bytes(1000))
        busy.write(bytes(99_000))
        stays = mounted.stripewise("pool", "drain", mounted.file, "hdd.2", check=False)
        assert stays.returncode == 1
        assert "d/busy: stays on hdd.2" in stays.stdout and "open for writing" in stays.stdout
        refused = mounted.stripewise("pool", "remove", mounted.file, "hdd.2", check=False)
        assert refused.returncode == 1 and "1 file has its place there, such as d/busy" in refused.stderr
    document = json.loads(mounted.stripewise("pool", "drain", mounted.file, "hdd.2", "--json").stdout)
    assert (document["moved_files"], document["staying"]) == (1, [])
    assert "hdd.2 is removed" in mounted.stripewise("pool", "remove", mounted.file, "hdd.2").stdout


def test_files_that_cannot_move_are_listed_and_the_others_move(pool):
    pool.python("import sys; open(f'{sys.argv[1]}/f', 'wb').write(bytes(range(256)) * 2000)")
    root = next(pool.servers()[1].iterdir())
    root.rename(root.with_name("broken"))
    pool.stripewise("pool", "remove", pool.file, "hdd.1", "--lost", check=False)
    pool.python("import sys; open(f'{sys.argv[1]}/young', 'wb').write(bytes(range(256)) * 2000)")
    planned = pool.stripewise("pool", "drain", pool.file, "hdd.0", "--dry-run", check=False)
    assert planned.returncode == 1 and "would move 1 file from hdd.0" in planned.stdout
    done = pool.stripewise("pool", "drain", pool.file, "hdd.0", check=False)
    assert done.returncode == 1 and "moved 1 file from hdd.0" in done.stdout
    for said in (planned.stdout, done.stdout):
        assert "f: stays on hdd.0 with 128 KiB, bytes 0-65535, 262144-327679" in said
        assert "server hdd.1 is missing" in said
    assert "hdd.0" not in servers_of(pool.stripewise, pool.file, "young")


def test_a_disk_that_died_is_given_up_with_a_list(pool):
    pool.python("import sys; open(f'{sys.argv[1]}/f', 'wb').write(bytes(range(256)) * 2000)")
    root = next(pool.servers()[1].iterdir())
    refused = pool.stripewise("pool", "remove", pool.file, "hdd.1", "--lost", check=False)
    assert refused.returncode == 1 and "hdd.1 is there" in refused.stderr
    root.rename(root.with_name("broken"))
    lost = pool.stripewise("pool", "remove", pool.file, "hdd.1", "--lost", check=False)
    assert lost.returncode == 1
    assert "f: has lost 128 KiB, bytes 65536-131071, 327680-393215, but for holes\n" in lost.stdout
    assert "moved 0 files from hdd.1; 1 file has lost bytes, 0 files stay\n" in lost.stdout
    assert "remove each first" in lost.stderr
    assert "hdd.1 is removed" in lost.stdout
    pool.python("import sys; assert open(f'{sys.argv[1]}/f', 'rb').read(65536) == bytes(range(256)) * 256")
    failed = pool.run("sh", "-c", f"cat {pool.mount}/f > /dev/null", check=False)
    assert failed.returncode == 1 and "Input/output error" in failed.stderr
    checked = pool.stripewise("fsck", pool.file, check=False)
    assert "bytes 65536-131071, 327680-393215" in checked.stdout + checked.stderr
    pool.python("import sys; open(f'{sys.argv[1]}/young', 'wb').write(bytes(300_000))")


def test_a_file_that_had_no_name_while_its_server_went_gets_another_place_once_it_has_one(mounted):
    """No list of files has it, so that no drain finds it; it has no byte on the server, so that nothing is refused."""
    pool = mounted
    file = os.open(pool.mount, os.O_RDWR | os.O_TMPFILE, 0o644)
    try:
        os.pwrite(file, b"kept", 0)
        pool.stripewise("pool", "drain", pool.file, "hdd.1", "--urgent")
        pool.stripewise("pool", "remove", pool.file, "hdd.1")
        subprocess.run(["ln", "-L", f"/proc/{os.getpid()}/fd/{file}", pool.mount / "named"], check=True)
        with pytest.raises(OSError, match="Input/output error"):
            os.pwrite(file, b"lost", 64 << 10)
    finally:
        os.close(file)
    given_up = pool.stripewise("pool", "remove", pool.file, "hdd.1", "--lost")
    assert given_up.stdout.startswith("moved 1 file from hdd.1")
    assert "hdd.1" not in servers_of(pool.stripewise, pool.file, "named")
    with (pool.mount / "named").open("r+b") as named:
        named.seek(64 << 10)
        named.write(b"more")
    assert (pool.mount / "named").read_bytes() == b"kept" + bytes((64 << 10) - 4) + b"more"


def test_what_cannot_all_be_added_or_does_not_fit_changes_nothing(pool):
    pool.python("import sys; open(f'{sys.argv[1]}/f', 'wb').write(bytes(range(256)) * 2000)")
    before = pool.file.read_text()
    new = disk(pool, "d5")
    tier = pool.stripewise("pool", "add", pool.file, new, pool.servers()[0], "--tier", "ssd", check=False)
    assert tier.returncode == 1 and "is already the directory of hdd.0" in " ".join(tier.stderr.split())
    assert pool.file.read_text() == before and not list(new.iterdir())
    small = before.replace('name = "hdd"', 'name = "hdd"\ncapacity = "40KB"')
    assert small != before
    pool.file.write_text(small)
    refused = pool.stripewise("pool", "replace", pool.file, "hdd.1", new, check=False)
    assert refused.returncode == 1 and "f does not fit" in " ".join(refused.stderr.split())
    assert pool.file.read_text() == small and not list(new.iterdir())


def test_an_added_server_is_filled_as_far_as_that_gains(tmp_path, stripewise, monkeypatch):
    """What has heat moves where the planners find that it pays; of the rest the server gets its share."""
    base = tmp_path / "p"
    stripewise("pool", "init", base, "--emulate", "--hdd", "1", "--dilation", "0.001")
    file = base / "pool.toml"
    file.write_text(file.read_text() + '\n[heat]\nperiod = "31000000s"\n')
    write = "import sys\nfor name in ('hot', *sys.argv[2:]):\n"
    write += "    open(f'{sys.argv[1]}/{name}', 'wb').write(bytes(range(256)) * 8000)\n"
    cold = [f"cold{number}" for number in range(4)]
    stripewise("run", "--quiet", "--pool", file, "--", "python3", "-c", write, base / "mount", *cold)
    heat = {"block_bytes": 1 << 16, "period_s": 600, "missed": 0, "files": []}
    monkeypatch.setattr(pool_life._native, "pool_heat", lambda *_: heat)

    def servers(name):
        return servers_of(stripewise, file, name)

    def hot(cost_us):
        blocks = [(number, cost_us // 32) for number in range(32)]
        return [{"path": "hot", "size_bytes": 256 * 8000, "cost_us": cost_us, "blocks": blocks}]

    def fill(directory, files, period_s):
        (tmp_path / directory).mkdir()
        heat.update(files=files, period_s=period_s)
        names = [of.server for of in pool_life.add(Pool.load(file), [tmp_path / directory], "hdd")]
        return names, pool_life.fill(Pool.load(file), names, pace=Pace(urgent=True))

    # Little heat, of half a year, does not pay for a move.
    names, filled = fill("one", hot(64), 15_000_000)
    assert names == ["hdd.1"] and filled.decision["verdict"] == "kept"
    assert servers("hot") == {"hdd.0"}
    assert filled.evened["moved_files"] >= 2 and filled.evened["staying"] == []
    assert any("hdd.1" in servers(name) for name in cold)
    # Much heat does.
    names, filled = fill("two", hot(600_000_000), 600)
    assert names == ["hdd.2"] and filled.decision["verdict"] == "moved", filled.decision
    assert len(servers("hot")) > 1
    again = pool_life.fill(Pool.load(file), names, pace=Pace(urgent=True))
    assert again.evened["moved_files"] == 0, "it is filled"
    assert "clean" in stripewise("fsck", file).stdout


def test_files_stay_where_they_are_without_filling(pool):
    pool.python("import sys; open(f'{sys.argv[1]}/f', 'wb').write(bytes(range(256)) * 8000)")
    added = pool.stripewise("pool", "add", pool.file, disk(pool, "d5"), "--tier", "hdd", "--no-fill").stdout
    assert added.endswith("d5 is server hdd.3\n") and "hdd.3" not in servers_of(pool.stripewise, pool.file, "f")
    again = pool.stripewise("pool", "add", pool.file, pool.base / "disks/d5", "--tier", "hdd").stdout
    assert "d5 is hdd.3 already" in again and "moved 1 file" in again, "it goes on"
    assert "hdd.3" in servers_of(pool.stripewise, pool.file, "f")


def test_a_directory_that_is_named_twice_is_one_server(pool):
    new, other = disk(pool, "d5"), disk(pool, "d6")
    link = pool.base / "link"
    link.symlink_to(new)
    added = pool.stripewise("pool", "add", pool.file, new, link, other, new, "--tier", "hdd", "--no-fill").stdout
    assert added == f"{new} is server hdd.3\n{other} is server hdd.4\n"


def test_a_server_whose_directory_was_named_by_a_link_is_there_already(stripewise, tmp_path):
    """The pool file has the path of the link."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    stripewise("pool", "init", "--hdd", "link", "--name", "linked")
    for name in ("link", "real"):
        said = stripewise("pool", "add", "linked.toml", name, "--tier", "hdd", "--no-fill").stdout
        assert said == f"{name} is hdd.0 already\n"
    assert [server.name for server in Pool.load(tmp_path / "linked.toml").servers] == ["hdd.0"]


def test_a_directory_within_the_pool_s_own_mount_or_names_is_no_server_whatever_links_lead_there(stripewise, tmp_path):
    """What the mount writes to such a server waits for the mount, and no signal ends it."""
    (tmp_path / "real" / "disk").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    stripewise("pool", "init", "--hdd", "link/disk", "--name", "linked", "--mount", "link/mount")
    (tmp_path / "real/mount/sub").mkdir(parents=True)
    within = ["--hdd", "real/mount/sub", "--name", "within", "--mount", "link/mount"]
    refused = stripewise("pool", "init", *within, check=False)
    assert refused.returncode == 1 and "lies inside the mount (" in " ".join(refused.stderr.split())
    assert not (tmp_path / "within.toml").exists() and not list((tmp_path / "real/mount/sub").iterdir())
    names = tmp_path / "real/disk/.linked-names/tree/sub"
    names.mkdir()
    before = (tmp_path / "linked.toml").read_text()
    for inside, what in (("real/mount", "mount"), ("real/mount/sub", "mount"), (names, "namespace")):
        for command in (["add", "linked.toml", inside, "--tier", "hdd"], ["replace", "linked.toml", "hdd.0", inside]):
            refused = stripewise("pool", *command, check=False)
            assert refused.returncode == 1, refused.stdout
            assert f"lies inside the {what} (" in " ".join(refused.stderr.split()), refused.stderr
    assert (tmp_path / "linked.toml").read_text() == before


def test_a_directory_of_the_pool_s_mount_is_no_server_wherever_it_is_bound(mounted):
    bound = mounted.base / "bound"
    bound.mkdir()
    (mounted.mount / "sub").mkdir()
    if subprocess.run(["mount", "--bind", mounted.mount / "sub", bound], check=False).returncode:
        pytest.skip("this user may not bind directories")
    try:
        refused = mounted.stripewise("pool", "add", mounted.file, bound, "--tier", "hdd", check=False)
    finally:
        subprocess.run(["umount", bound], check=True)
    assert refused.returncode == 1 and "lies on a mount of pool" in " ".join(refused.stderr.split())
    assert len(Pool.load(mounted.file).servers) == 4


def test_a_directory_on_the_mount_of_another_pool_is_no_server(mounted, tmp_path):
    (mounted.mount / "sub").mkdir()
    disk = tmp_path / "disk"
    disk.mkdir()
    made = ["pool", "init", "--hdd", disk, "--name", "other", "--output", tmp_path / "other.toml"]
    refused = mounted.stripewise(*made, "--hdd", mounted.mount / "sub", check=False)
    assert refused.returncode == 1 and "lies on a mount of pool" in " ".join(refused.stderr.split()), refused.stderr
    mounted.stripewise(*made)
    refused = mounted.stripewise("pool", "add", tmp_path / "other.toml", mounted.mount / "sub", check=False)
    assert refused.returncode == 1 and "lies on a mount of pool" in " ".join(refused.stderr.split()), refused.stderr
    assert len(Pool.load(tmp_path / "other.toml").servers) == 1


@pytest.mark.parametrize("command", [["add"], ["replace", "hdd.0"]])
def test_a_directory_of_another_pool_or_inside_a_server_s_is_no_server(stripewise, tmp_path, command):
    """A server keeps to a hidden directory of its pool's name, so that the paths of both do not meet."""
    one, two, free = (tmp_path / name for name in ("one", "two", "free"))
    for directory in (one / "inside", two / "inside", free):
        directory.mkdir(parents=True)
    file = tmp_path / "pool.toml"
    stripewise("pool", "init", "--hdd", one, "--name", "own", "--output", file)
    stripewise("pool", "init", "--hdd", two, "--name", "other", "--output", tmp_path / "other.toml")
    # What is no marker, and what would be waited for, says nothing.
    (free / ".odd").mkdir()
    os.mkfifo(free / ".odd" / ".stripewise")
    (free / ".odder").mkdir()
    (free / ".odder" / ".stripewise").write_bytes(b"\xff")
    before = file.read_text()
    for directory, said in (
        (one / "inside", f"lies inside hdd.0 ({one}), on the same disk"),
        (two, f"belongs to another pool, 'other' ({two / '.other'})"),
        (two / "inside", f"lies inside {two}, which belongs to another pool, 'other'"),
        (tmp_path, f"lies around hdd.0 ({one}), on the same disk"),
    ):
        refused = stripewise("pool", *command[:1], file, *command[1:], directory, check=False)
        assert refused.returncode == 1 and said in " ".join(refused.stderr.split()), refused.stderr
        assert file.read_text() == before and not [entry for entry in directory.iterdir() if entry.name == ".own"]
    # A directory with nothing of a pool in it is free, and so is that of the names of this one.
    stripewise("pool", "add", file, free)
    assert "hdd.1" in [server.name for server in Pool.load(file).servers]


def test_an_empty_name_is_not_the_working_directory(pool):
    """It is what a variable of a shell leaves that is not set."""
    before, new = pool.file.read_text(), disk(pool, "new")
    for command in (["add", pool.file, ""], ["add", pool.file, new, ""], ["replace", pool.file, "hdd.0", ""]):
        refused = pool.stripewise("pool", *command, check=False)
        assert refused.returncode == console.EXIT_USAGE and "the directory is empty" in " ".join(refused.stderr.split())
        assert pool.file.read_text() == before and not list(new.iterdir())


def test_no_server_of_a_new_pool_lies_inside_another_one(stripewise, tmp_path):
    (tmp_path / "one" / "inside").mkdir(parents=True)
    made = ("pool", "init", "--hdd", tmp_path / "one", "--ssd", tmp_path / "one" / "inside", "--output")
    refused = stripewise(*made, tmp_path / "pool.toml", check=False)
    assert refused.returncode == 1 and "lies inside" in refused.stderr
    assert not (tmp_path / "pool.toml").exists() and len(list((tmp_path / "one").iterdir())) == 1


def test_a_disk_that_fails_every_look_keeps_no_command_from_the_other_disks(pool, monkeypatch):
    """A file system that has shut down, as XFS does, opens its directory and says nothing of it."""
    loaded, look = Pool.load(pool.file), os.fstat
    root = str(loaded.servers[1].path)

    def failing(descriptor):
        if str(Path(f"/proc/self/fd/{descriptor}").readlink()) == root:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return look(descriptor)

    monkeypatch.setattr(os, "fstat", failing)
    source = next(of for of in activity.sources(loaded) if of.server == loaded.servers[1].name)
    assert (source.device, source.unknown) == (None, "cannot be reached: Input/output error")
    assert pool_life.drain(loaded, "hdd.0")["staying"] == []
    assert pool_life.remove(loaded, "hdd.0")["staying"] == []


@pytest.mark.parametrize("command", ["remove", "replace"])
def test_the_disk_of_the_names_is_told_of_when_its_last_server_goes(stripewise, tmp_path, command):
    """Its user unmounts it otherwise, and the pool has no names."""
    file, there, other = tmp_path / "pool.toml", tmp_path / "there", tmp_path / "other"
    there.mkdir()
    other.mkdir()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        assert Path(elsewhere).stat().st_dev != there.stat().st_dev
        stripewise("pool", "init", "--hdd", elsewhere, "--hdd", there, "--name", "own", "--output", file)
        if command == "remove":
            stripewise("pool", "drain", file, "hdd.1")
            silent = stripewise("pool", "remove", file, "hdd.1")
            assert "the names of the pool" not in silent.stderr, "the disk of hdd.1 has no names"
            stripewise("pool", "add", file, other, "--tier", "hdd")
            stripewise("pool", "drain", file, "hdd.0")
            done = stripewise("pool", "remove", file, "hdd.0")
        else:
            done = stripewise("pool", "replace", file, "hdd.0", other)
        said = " ".join(done.stderr.split())
        assert f"still on that disk, in {elsewhere}/.own-names: leave it mounted" in said


def test_no_name_of_a_file_makes_a_line_of_its_own(capsys):
    path = "a\nhdd.1 is removed"
    staying = {"path": path, "why": f"cannot move {path}", "bytes": 0, "stretches": [], "left_out": 0}
    done = {"moved_files": 0, "copied_bytes": 0, "rules": 0, "staying": [staying]}
    draining.report(done, "hdd.1", everything=False)
    draining.report_rebalanced({**done, "servers": []}, dry_run=False, everything=False)
    lines = capsys.readouterr().out.splitlines()
    assert not [line for line in lines if line.startswith("hdd.1 is removed")]
    assert sum("cannot move a\\nhdd.1 is removed" in line for line in lines) == 2


def test_a_terminal_stops_no_process_while_it_moves_files():
    """A program that opens the file that is being moved for writing would wait for good."""
    stops = (signal.SIGTSTP, signal.SIGTTOU)
    before = [signal.getsignal(number) for number in stops]
    for moving in (draining.moving("draining"), console.moving()):
        with moving:
            assert [signal.getsignal(number) for number in stops] == [signal.SIG_IGN] * 2
        assert [signal.getsignal(number) for number in stops] == before


def test_a_server_whose_disk_is_away_is_not_added_again(pool):
    """Its directory is the empty one over which the disk is mounted."""
    own, new = pool.servers()[1], disk(pool, "d5")
    before = pool.file.read_text()
    (own / ".test").rename(pool.base / "away")
    refused = pool.stripewise("pool", "add", pool.file, own, new, check=False)
    said = " ".join(refused.stderr.split())
    assert refused.returncode == 1 and f"{own} is hdd.1 already, and its disk is not there" in said
    assert "mount the disk" in said and "hdd.1 --lost" in said
    assert pool.file.read_text() == before and not list(new.iterdir()) and not list(own.iterdir())
    (pool.base / "away").rename(own / ".test")
    # The kind of the disk is not asked for: a server stays in its tier.
    assert "is hdd.1 already" in pool.stripewise("pool", "add", pool.file, own, "--no-fill").stdout


def test_what_the_life_of_a_pool_prints_as_json_is_one_document(pool):
    """Whatever was done; a command that decides again and again prints lines."""
    pool.python("import sys; open(f'{sys.argv[1]}/f', 'wb').write(bytes(range(256)) * 8000)")
    new, other = disk(pool, "d5"), disk(pool, "d6")

    def document(*arguments):
        return json.loads(pool.stripewise("pool", arguments[0], pool.file, *arguments[1:], "--json").stdout)

    server = {"server": "hdd.3", "directory": str(new)}
    added = {"servers": [{**server, "is_new": True}], "decision": None, "evened": None}
    assert document("add", new, "--tier", "hdd", "--no-fill") == added
    filled = document("add", new, "--tier", "hdd")
    assert filled["servers"] == [{**server, "is_new": False}] and filled["evened"]["moved_files"] == 1
    assert document("rebalance", "--dry-run")["dry_run"]
    assert document("drain", "hdd.0", "--dry-run")["moved_files"] == document("drain", "hdd.0")["moved_files"] == 1
    assert document("remove", "hdd.0")["staying"] == []
    assert document("replace", "hdd.1", other)["new"] == "hdd.4"
    # A kill at the end of either may have come before this could be said.
    assert document("remove", "hdd.0")["staying"] == []
    assert document("replace", "hdd.1", other)["new"] == "hdd.4"
    # That one is of another tier.
    wrong = pool.stripewise("pool", "replace", pool.file, "hdd.1", pool.servers()[3], check=False)
    assert wrong.returncode == 1 and "hdd.1 is none of the pool's servers any more, hdd.4 (" in wrong.stderr
    # A later one of its tier is not in its place, nor is any in that of one that was drained.
    for gone, there in (("hdd.1", new), ("hdd.0", other)):
        wrong = pool.stripewise("pool", "replace", pool.file, gone, there, check=False)
        assert wrong.returncode == 1 and f"{gone} is none of the pool's servers" in wrong.stderr, wrong.stdout
    assert pool.stripewise("heat", ".", "--pool", pool.file, "--json", check=False).stdout == "", "it keeps no heat"
    assert len(document("show")["tiers"]) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["drain", "POOL", "hdd.9"], "hdd.9 is none of the pool's servers; name one of hdd.0, hdd.1, hdd.2, ssd.0"),
        (["drain", "POOL", "ssd.0"], "tier ssd has no other server in use"),
        (["drain", "POOL", "meta"], "none of the pool's servers"),
        (["add", "POOL", "nowhere"], "nowhere is not a directory"),
        (["add", "POOL", "disks/d0"], "is already the directory of hdd.0"),
        (["replace", "POOL", "hdd.9", "disks"], "hdd.9 is none of the pool's servers"),
        (["remove", "POOL", "tape.0"], "tape.0 is none of the pool's servers"),
        (["drain", "POOL", "hdd.1", "--rate", "0"], "--rate 0: nothing would be copied"),
        (["rebalance", "POOL", "--rate", "fast"], "--rate fast: "),
        (["add", "POOL", "disks/new", "--rate", "fast"], "--rate fast: "),
        (["add", "POOL", "disks/new", "disks/new/inside"], "disks/new/inside lies inside disks/new, on the same disk"),
    ],
)
def test_what_cannot_be_done_changes_nothing(pool, arguments, said):
    (disk(pool, "new") / "inside").mkdir()
    before = pool.file.read_text()
    tier = ["--tier", "ssd"] if arguments[0] == "add" else []
    done = pool.stripewise(
        "pool", *(str(pool.file) if word == "POOL" else word for word in arguments), *tier, check=False
    )
    assert done.returncode == (console.EXIT_USAGE if "--rate" in arguments else console.EXIT_FAILED)
    assert said in " ".join(done.stderr.split())
    assert pool.file.read_text() == before


class Timed(Pacer):
    """Time passes by its rests alone."""

    now_s = 0.0

    def __init__(self, pace, busy_s, progress, **options):
        super().__init__(pace, busy_s, progress, lambda: Timed.now_s, **options)

    def __call__(self, path, done, total):
        then = super().__call__(path, done, total)
        Timed.now_s += 0.1 if then == "rest" else 0.0
        return then


@pytest.mark.parametrize("work", ["drain", "replace"])
def test_a_rate_is_kept_over_many_files(mounted, monkeypatch, work):
    for number in range(20):
        (mounted.mount / f"f{number}").write_bytes(bytes([number]) * 400_000)
    monkeypatch.setattr(pool_life, "Pacer", Timed)
    pool, pace = Pool.load(mounted.file), Pace(rate_bytes_per_s=1_000_000, urgent=True)
    began_s = Timed.now_s
    if work == "drain":
        done = pool_life.drain(pool, "hdd.0", pace=pace)
    else:
        _, done = pool_life.replace(pool, "hdd.0", disk(mounted, "new"), pace=pace)
    assert done["moved_files"] == 20
    assert 1 < done["copied_bytes"] / 1e6 - 1 < Timed.now_s - began_s < 1.5 * done["copied_bytes"] / 1e6 + 1


@pytest.mark.parametrize("what", ["drain", "rebalance", "add", "replace", "settle"])
def test_a_namespace_that_goes_while_files_move_is_no_end_of_that(pool, what):
    if what == "settle":
        pool.file.write_text(pool.file.read_text().replace("[default]\n", '[default]\nland = "ssd"\n'))
    make = 'for n in 1 2 3 4; do head -c 300000 /dev/urandom > "$0/$n"; done; cat "$0"/[1-4] > "$0.sum"'
    pool.stripewise("run", "--quiet", "--pool", pool.file, "--", "sh", "-c", make, pool.mount)
    loaded, new = Pool.load(pool.file), disk(pool, "new")
    if what in ("rebalance", "add"):
        pool_life.add(loaded, [new], "hdd")
    works = {
        "drain": lambda progress: pool_life.drain(loaded, "hdd.0", progress=progress),
        "rebalance": lambda progress: pool_life.rebalance(loaded, progress=progress),
        "add": lambda progress: pool_life.fill(loaded, ["hdd.3"], progress=progress),
        "settle": lambda progress: relief.settle(loaded, pace=Pace(urgent=True), progress=progress),
        "replace": lambda progress: pool_life.replace(loaded, "hdd.0", new, progress=progress),
    }
    away = loaded.namespace.with_name("away")

    def goes(path, done, total):
        if loaded.namespace.exists():
            loaded.namespace.rename(away)
        return True

    with pytest.raises(StripewiseError) as failed:
        works[what](goes)
    assert str(loaded.namespace) in str(failed.value)
    away.rename(loaded.namespace)
    done = works[what](lambda *_: True)
    if what == "drain":
        assert done["staying"] == []
        regions = [_native.file_stat(str(pool.file), name)["regions"] for name in "1234"]
        assert "hdd.0" not in str(regions)
    look = 'cat "$0"/[1-4] | cmp - "$0.sum"'
    pool.stripewise("run", "--quiet", "--pool", pool.file, "--", "sh", "-c", look, pool.mount)


@pytest.mark.parametrize(
    ("command", "step", "before", "said"),
    [
        ("add", "pool_rebalance", lambda *_: [], "what was done stays, and the same command goes on"),
        ("drain", "pool_drain", None, "nothing was changed"),
    ],
)
def test_a_command_that_is_interrupted_as_it_waits_says_what_has_changed(
    pool, monkeypatch, capsys, command, step, before, said
):
    """`pool add` said that nothing was changed when it had added a server, and waited to fill it."""

    def refused(*_, **__):
        raise StripewiseError(f"{adapt.OTHERS_MOVE} in pool")

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_native, step, refused)
    if before is not None:
        monkeypatch.setattr(pool_life, command, before)
    monkeypatch.setattr(adapt, "moves_now", lambda *_: 1)
    monkeypatch.setattr(draining.time, "sleep", interrupted)
    with pytest.raises(SystemExit) as ended:
        if command == "add":
            pool_add.pool_add(pool.file, [pool.servers()[0]])
        else:
            pool_drain.pool_drain(pool.file, "hdd.0")
    assert ended.value.code == console.EXIT_INTERRUPTED
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_wait_for_a_turn_goes_on_where_the_lock_was_given_back_before_its_holder_was_asked_for(monkeypatch):
    """After some seconds beside a busy service the command ended with "process unknown, for 0 s now"."""
    known, unknown = (f"{adapt.OTHERS_MOVE} in pool 'test': process {of}, for 0 s now" for of in (7, "unknown"))
    refusals = [known, unknown, known, unknown, unknown, known]

    def work():
        if refusals:
            raise StripewiseError(refusals.pop(0))
        return "done"

    monkeypatch.setattr(draining, "TURN_S", 0.0)
    monkeypatch.setattr(adapt, "moves_now", lambda _, error: 7 if "process 7" in str(error) else None)
    assert draining.in_turn(None, work) == "done"
    refusals += [unknown] * draining.TRIES
    with pytest.raises(StripewiseError, match="process unknown"):
        draining.in_turn(None, work)
    assert not refusals, "another command is not waited for"
    refusals += ["no such server", known]
    with pytest.raises(StripewiseError, match="no such server"):
        draining.in_turn(None, work)
    assert refusals == [known]
