"""The whole cycle, on a small emulated pool."""

import json
import sys
from types import SimpleNamespace

import pytest

from conftest import TestPool
from stripewise.optimize import cycle
from stripewise.optimize.decide import gain

PROGRAM = """
import os, sys, threading
data = os.urandom(65536)
fd = os.open(sys.argv[1] + "/data.bin", os.O_RDWR | os.O_CREAT, 0o644)
def work(worker):
    for n in range(worker, 60, 4):
        os.pwrite(fd, data, n * 65536)
    for n in range(worker, 60, 4):
        assert os.pread(fd, 65536, n * 65536) == data
for step in range(2):
    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
print("verified", 2 * 60 * 65536, "bytes")
"""

COUNT_RUNS = """
path = sys.argv[1] + "/../runs"
open(path, "a").write("x")
runs = len(open(path).read())
"""

# Once there is a new layout: requests so small, one after the other, that no layout and no machine makes up for it.
SLOWER = """
import glob, os, sys
if glob.glob(sys.argv[1] + "/../o/*/new.layout"):
    fd = os.open(sys.argv[1] + "/data.bin", os.O_RDWR)
    for n in range(20):
        os.pwrite(fd, os.pread(fd, 64, n * 640), n * 640)
    sys.exit()
"""


@pytest.fixture
def emulated(tmp_path, stripewise):
    """Two emulated HDDs and an SSD, five times slower than real ones: their times hold beside other tests, too."""
    base = tmp_path / "emulated"
    stripewise("pool", "init", base, "--emulate", "--hdd", "2", "--ssd", "1", "--dilation", "5")
    return TestPool(base, base / "pool.toml", base / "mount", stripewise)


def optimize(pool, *options, script=PROGRAM, check=False, **more):
    command = ["optimize", "--pool", pool.file, "--directory", pool.base / "o", *options]
    return pool.stripewise(*command, "--", sys.executable, "-c", script, pool.mount, check=check, timeout=300, **more)


def regions(pool):
    document = json.loads(pool.stripewise("stat", "--pool", pool.file, "data.bin", "--json").stdout)
    return [(region["offset"], region["round"]) for region in document["regions"]]


def test_a_better_layout_is_kept_and_can_be_taken_back_later(emulated):
    done = optimize(emulated, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["kept"] and report["emulated"]
    assert report["gain"]["low"] > 1
    assert len(report["runs"]["before"]) == 2 and len(report["runs"]["after"]) >= 2
    # What the program checked in every run, and the file that was moved.
    runs = len(report["runs"]["before"]) + len(report["runs"]["after"])
    assert report["verified_bytes"] >= runs * 2 * 60 * 65536
    for run in report["runs"]["before"] + report["runs"]["after"]:
        assert run["io"]["both"]["bytes"] == 4 * 60 * 65536
        assert run["emulation"]["valid"]
    rows = report["regions"]
    assert {row["op"] for row in rows} == {"read", "write"}
    assert sum(row["bytes"] for row in rows) == 4 * 60 * 65536
    assert regions(emulated) == [(row["offset"], row["layout_after"]) for row in rows if row["op"] == "read"]
    previous = report["files"]["previous_layout"]
    emulated.stripewise("apply", previous, "--pool", emulated.file)
    assert regions(emulated) == [(0, ["hdd.0-1:64KiB", "ssd.0:64KiB"])]


def test_real_devices_are_calibrated_and_their_page_cache_is_accounted_for(pool):
    pool.stripewise("pool", "calibrate", pool.file, "--seconds", "2")
    done = optimize(pool, "--json", "--max-runs", "3")
    report = json.loads(done.stdout)
    # Directories of one disk: which layout is faster is chance, but the verdict, the exit code and the files agree.
    assert done.returncode == (0 if report["kept"] else 3), done.stderr
    assert not report["emulated"]
    assert report["cache"].startswith("page cache emptied before each run")
    runs = report["runs"]["before"] + report["runs"]["after"]
    assert all(run["io"]["both"]["bytes"] == 4 * 60 * 65536 for run in runs)
    # Within a run the program reads what it just wrote; what that took from memory is said, not left out.
    assert all(0 <= run["read_from_cache_bytes"] <= 2 * 60 * 65536 for run in runs)
    if not report["kept"]:
        assert regions(pool) == [(0, ["hdd.0-2:64KiB", "ssd.0:64KiB"])]
    size = pool.python("import sys; print(len(open(sys.argv[1] + '/data.bin', 'rb').read()))").stdout
    assert int(size) == 60 * 65536


def test_the_printed_report_ends_with_the_gain(emulated):
    done = optimize(emulated)
    assert done.returncode == 0, done.stderr
    last = done.stdout.rstrip().splitlines()[-1]
    assert last.startswith("measured gain ")
    assert "reads " in last and "writes " in last and "predicted " in last and last.endswith("MiB verified")
    assert "emulated servers" in done.stdout
    assert "emulation error median" in done.stderr


def test_a_layout_that_is_not_faster_is_taken_back_exactly(emulated):
    emulated.run(sys.executable, "-c", PROGRAM, emulated.mount)
    before = emulated.stripewise("stat", "--pool", emulated.file, "data.bin", "--json").stdout
    rules = emulated.base / "namespace" / "rules.toml"
    known = rules.read_bytes() if rules.exists() else None
    done = optimize(emulated, "--json", "--max-runs", "2", script=SLOWER + PROGRAM)
    assert done.returncode == 3, done.stderr
    report = json.loads(done.stdout)
    assert not report["kept"]
    # Two runs of each are not clear where the machine stood still during one.
    assert report["why"].startswith(("slower (0.", "not faster beyond noise (0.")), report["why"]
    assert regions(emulated) == [(0, ["hdd.0-1:64KiB", "ssd.0:64KiB"])]
    assert json.loads(before)["size_bytes"] == 60 * 65536
    if known is not None:
        assert rules.read_bytes() == known
    else:
        assert not rules.exists() or "data.bin" not in rules.read_text()


@pytest.mark.parametrize(
    ("io", "wall_s", "kept", "why"),
    [
        ([2.0, 2.02], [3.0, 3.03], True, "faster (2.00x, "),
        ([2.0, 2.02], [12.0, 12.1], False, "I/O is faster (2.00x, "),
        ([0.5, 0.51], [3.0, 3.03], False, "slower (0.50x, "),
        ([0.5, 4.0], [3.0, 3.03], False, "not faster beyond noise (1.4"),
    ],
)
def test_a_layout_is_kept_where_the_io_is_faster_and_the_program_no_slower(io, wall_s, kept, why):
    io_gain = gain([1.0, 1.01], io)
    wall_gain = gain([1 / 3.0, 1 / 3.03], [1 / took_s for took_s in wall_s])
    outcome = SimpleNamespace(io_gain=io_gain, wall_gain=wall_gain, after=io, kept=False, why="")
    cycle._Cycle._decide(SimpleNamespace(outcome=outcome))
    assert outcome.kept is kept and outcome.why.startswith(why)
    assert ("the whole program is slower (0.25x)" in outcome.why) == (wall_s[0] > 10)


def test_a_failing_program_ends_it_with_its_own_code(emulated):
    done = optimize(emulated, script="raise SystemExit(9)")
    assert done.returncode == 9
    assert "failed with exit code 9" in done.stderr
    assert done.stdout == ""


def test_a_program_that_fails_on_the_new_layout_leaves_the_old_one(emulated):
    script = (
        PROGRAM
        + """
runs = sys.argv[1] + "/../runs"
open(runs, "a").write("x")
sys.exit(5 if len(open(runs).read()) > 2 else 0)
"""
    )
    done = optimize(emulated, script=script)
    assert done.returncode == 5
    assert regions(emulated) == [(0, ["hdd.0-1:64KiB", "ssd.0:64KiB"])]


def test_a_program_that_does_nothing_on_the_pool_is_told_so(emulated):
    done = optimize(emulated, script="print('nothing')")
    assert done.returncode == 1
    assert "read and wrote nothing below" in done.stderr


def test_a_missing_program_is_127(emulated):
    done = emulated.stripewise("optimize", "--pool", emulated.file, "no-such-program", check=False)
    assert done.returncode == 127


def test_ctrl_c_leaves_every_file_whole_and_says_the_way_back(emulated):
    interrupt = "import signal, time\nif runs > 2: os.killpg(0, signal.SIGINT); time.sleep(5)"
    # A session of its own: the signal goes to the group, as from a terminal, and must not end the tests.
    done = optimize(emulated, script=PROGRAM + COUNT_RUNS + interrupt, prefix=["setsid", "--wait"])
    assert done.returncode == 130
    previous = next((emulated.base / "o").glob("*/previous.layout"))
    assert f"`stripewise apply {previous} --pool {emulated.file}` brings the previous layout back" in done.stderr
    emulated.stripewise("apply", previous, "--pool", emulated.file)
    assert regions(emulated) == [(0, ["hdd.0-1:64KiB", "ssd.0:64KiB"])]
