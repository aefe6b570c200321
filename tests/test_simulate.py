"""`stripewise simulate`: what it prints, that it can be worked out, and what it refuses."""

import json
import re
import sys

import pytest

from stripewise import _native

WORKLOAD = """
import os, sys
fd = os.open(sys.argv[1] + "/data.bin", os.O_RDWR | os.O_CREAT, 0o644)
for n in range(20):
    os.pwrite(fd, bytes(131072), n * 131072)
for n in (3, 17, 0, 9, 12, 1, 19, 6):
    os.pread(fd, 65536, n * 131072)
"""

LAYOUT = """
version = 1
pool = "test"
[[file]]
path = "data.bin"
[[file.region]]
offset = "0"
round = ["ssd.0:64KiB"]
"""

FIXED = [1e-3, 1e-3, 1e-9]
"""A startup of just 1 ms and a nanosecond a byte: everything can be worked out."""


@pytest.fixture
def traced(pool):
    for tier in ("hdd", "ssd"):
        _native.pool_write_profile(str(pool.file), tier, FIXED, [2e-3, 2e-3, 2e-9])
    trace = pool.base / "run.trace"
    pool.stripewise("trace", "--pool", pool.file, "-o", trace, "--", sys.executable, "-c", WORKLOAD, pool.mount)
    (pool.base / "ssd.layout").write_text(LAYOUT)

    def simulate(*arguments, **options):
        return pool.stripewise("simulate", trace, "--pool", pool.file, *arguments, **options)

    return pool, simulate


def as_json(done):
    return json.loads(done.stdout)


def test_one_process_is_worked_out(traced):
    _, simulate = traced
    document = as_json(simulate("--repeat", 2, "--json"))
    present = document["present"]
    # Each write of 128 KiB is two pieces of 64 KiB side by side, each read is one.
    took_s = 20 * (2e-3 + 65536 * 2e-9) + 8 * (1e-3 + 65536 * 1e-9)
    assert present["makespan_s"]["mean"] == pytest.approx(took_s, abs=1e-7)
    assert present["makespan_s"]["half_width"] == 0
    moved = 20 * 131072 + 8 * 65536
    assert present["read_bytes"] + present["written_bytes"] == moved
    assert present["throughput"]["mean"] == pytest.approx(moved / took_s, rel=1e-6)
    assert present["reads"]["max_s"] == pytest.approx(1e-3 + 65536e-9, rel=1e-3)
    assert (document["requests"], present["sub_requests"], document["processes"]) == (28, 48, 1)
    assert sum(server["requests"] for server in present["servers"]) == 48
    assert sum(server["bytes"] for server in present["servers"]) == moved
    assert document["layout"] is document["ratio"] is None


def test_a_layout_is_compared_with_the_present_one(traced):
    pool, simulate = traced
    layout = pool.base / "ssd.layout"
    document = as_json(simulate("--layout", layout, "--json"))
    # On one server a write is one piece of 128 KiB.
    took_s = 20 * (2e-3 + 131072 * 2e-9) + 8 * (1e-3 + 65536 * 1e-9)
    assert document["layout"]["makespan_s"]["mean"] == pytest.approx(took_s, abs=1e-7)
    ratio = document["present"]["makespan_s"]["mean"] / took_s
    assert document["ratio"]["mean"] == pytest.approx(ratio, rel=1e-6)
    assert document["layout"]["servers"][3]["requests"] == 28
    shown = simulate("--layout", layout).stdout
    assert f"layout / present: {ratio:.2f}x" in shown
    assert re.search(r"^hdd\.0 +\d+ ", shown, flags=re.MULTILINE)


def test_the_time_line_adds_up(traced):
    _, simulate = traced
    present = as_json(simulate("--json"))["present"]
    timeline = present["timeline"]
    assert sum(timeline["read_bytes"]) == present["read_bytes"]
    assert sum(timeline["written_bytes"]) == present["written_bytes"]
    for bins, server in zip(timeline["servers"], present["servers"], strict=True):
        assert bins["name"] == server["name"]
        assert sum(bins["bytes"]) == server["bytes"]
        assert all(0 <= busy <= 1.0001 for busy in bins["busy"])
    drawn = simulate("--timeline").stdout
    assert len(re.findall(r"^(?:hdd\.[012]|ssd\.0) +[ ▁▂▃▄▅▆▇█]+$", drawn, flags=re.MULTILINE)) == 4


def test_seeds_repeat_and_draw(emulated):
    trace = emulated.base / "run.trace"
    command = [sys.executable, "-c", WORKLOAD, emulated.mount]
    emulated.stripewise("trace", "--pool", emulated.file, "-o", trace, "--", *command)

    def simulate(*arguments):
        return emulated.stripewise("simulate", trace, "--pool", emulated.file, *arguments).stdout

    assert simulate("--seed", 3) == simulate("--seed", 3)
    assert simulate("--seed", 3) != simulate("--seed", 4)
    assert "emulated servers" in simulate()
    several = json.loads(simulate("--json", "--repeat", 6))["present"]["throughput"]
    assert 0 < several["half_width"] < 0.5 * several["mean"]
    assert json.loads(simulate("--json", "--repeat", 1))["present"]["throughput"]["half_width"] is None


def test_links_queues_and_the_metadata_server_take_their_time(traced):
    _, simulate = traced

    def took_s(*arguments):
        return as_json(simulate("--json", "--repeat", 1, *arguments))["present"]["makespan_s"]["mean"]

    plain = took_s()
    # One process at a time and a queue of one: no discipline can do better or worse.
    assert took_s("--queue", "elevator") == plain
    # 100 MB/s are 10 ns a byte: a piece needs 0.65536 ms more, both pieces of a write share the node's link.
    piece_s = 65536e-8
    assert took_s("--link", "100MB/s") == pytest.approx(plain + 28 * piece_s, abs=1e-6)
    assert took_s("--client-link", "100MB/s") == pytest.approx(plain + 48 * piece_s, abs=1e-6)
    assert took_s("--latency", "1ms") == pytest.approx(plain + 28 * 2e-3, abs=1e-6)
    assert took_s("--metadata", "50ms") >= plain + 50e-3
    # Sequential pieces need no seek; those of other servers' disks are not in between.
    assert took_s("--seek", "hdd=1GB", "--seek", "ssd=1GB") < plain
    document = as_json(simulate("--json", "--client-link", "1GB/s", "--queue", "hdd=anticipatory", "--wait", "1ms"))
    assert len(document["present"]["nodes"]) == document["nodes"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--queue", "lifo"], "--queue lifo: there is fifo, elevator and anticipatory"),
        (["--queue", "tape=fifo"], "pool 'test' has no tier tape; there is hdd, ssd"),
        (["--seek", "hdd=far"], "--seek: "),
        (["--link", "fast"], "--link: "),
        (["--latency", "long"], "--latency: "),
        (["--root", "/nowhere"], "no read or write of a file below /nowhere"),
    ],
)
def test_what_cannot_be_simulated_is_named(traced, arguments, message):
    _, simulate = traced
    done = simulate(*arguments, check=False)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stdout == ""


def test_a_layout_of_other_files_is_refused(traced):
    pool, simulate = traced
    other = pool.base / "other.layout"
    other.write_text(LAYOUT.replace("data.bin", "else.bin"))
    done = simulate("--layout", other, check=False)
    assert done.returncode == 1
    assert "names no file that the trace reads or writes" in done.stderr


def test_a_pool_without_profiles_is_sent_to_calibration(pool):
    trace = pool.base / "run.trace"
    pool.stripewise("trace", "--pool", pool.file, "-o", trace, "--", sys.executable, "-c", WORKLOAD, pool.mount)
    done = pool.stripewise("simulate", trace, "--pool", pool.file, check=False)
    assert done.returncode == 1
    assert "pool calibrate" in done.stderr
