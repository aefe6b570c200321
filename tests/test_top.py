"""`stripewise top`: figures of emulated servers and of devices, and what cannot be known."""

import itertools
import os
import re
import signal
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conftest import PATIENCE_S
from stripewise import devices
from stripewise.api import activity, hinting, orchestrating, placing
from stripewise.api.activity import Done
from stripewise.api.files import open_pool
from stripewise.api.pools import Pool


def rows(printed):
    lines = [line.split() for line in printed.splitlines() if re.match(r"(hdd|ssd)\.\d ", line)]
    return {row[0]: row for row in reversed(lines)}  # Notes come below the table.


def test_servers_on_a_disk_have_its_figures(pool):
    device = devices.of(pool.base)
    if isinstance(device, str) or device.counters() is None:
        pytest.skip(f"the tests' directory {device}")
    printed = pool.stripewise("top", "--pool", pool.file, "--once").stdout
    assert "devices since the machine started" in printed
    shown = rows(printed)
    assert sorted(shown) == ["hdd.0", "hdd.1", "hdd.2", "ssd.0"]
    assert all(row[1] == device.name for row in shown.values())
    assert int(shown["hdd.0"][2].replace(",", "")) > 0
    assert f"hdd.0, hdd.1, hdd.2, ssd.0, meta are on one device, {device.name}" in printed
    assert re.search(rf"^meta +{device.name} +\d", printed, flags=re.MULTILINE)


def test_the_metadata_tier_is_shown_once_it_has_served_small_files(pool):
    assert "small files" not in pool.stripewise("top", "--pool", pool.file, "--once").stdout
    loaded = Pool.load(pool.file)
    hinting.hint(placing.place_of(Path(), loaded), ["small=64K"])
    until_s = time.monotonic() + PATIENCE_S
    files = open_pool(pool.file)
    number = 0
    # A second ends with a file that is made after it.
    while not any(period["served"] for period in activity.meta_load(loaded)["periods"]):
        assert time.monotonic() < until_s, "no second of the metadata tier was counted"
        with files.open(f"f{number}", "xb") as file:
            file.write(b"bytes")
        number += 1
    printed = pool.stripewise("top", "--pool", pool.file, "--once").stdout
    counted = r"^metadata tier, .* ago: [\d,]+ requests in a second, [\d,]+ of them on names, \d+ waiting, "
    assert re.search(counted, printed, flags=re.MULTILINE)
    # What it can serve was never measured.
    assert re.search(r"^small files: [\d.]+% of what `small` hints; load unknown$", printed, flags=re.MULTILINE)


SLOW_META = """
[meta.emulate]
read = { startup = ["15ms", "25ms"], bandwidth = "100MB/s" }
write = { startup = ["15ms", "25ms"], bandwidth = "100MB/s" }
"""


@pytest.fixture
def slow_meta(tmp_path, stripewise):
    """A mounted pool whose metadata tier can serve some fifty requests a second: any machine keeps it busy."""
    base = tmp_path / "slow"
    stripewise("pool", "init", base, "--emulate", "--hdd", "1")
    file = base / "pool.toml"
    file.write_text(file.read_text() + SLOW_META)
    loaded = Pool.load(file)
    hinting.hint(placing.place_of(Path(), loaded), ["small=64K"])
    stripewise("mount", file)
    yield loaded
    stripewise("umount", "--lazy", file)


def test_a_known_load_is_shown_with_its_prediction_and_the_threshold(slow_meta, stripewise):
    """Of real requests through a mount, enough for the threshold to fall."""

    def expected():
        found = activity.meta_load(slow_meta)
        last, now = [of for of in found["periods"] if of["served"] or of["waiting"]][-1], found["periods"][-1]
        predicted = f"load {last['load']:.2f}, next {now['bls_esm']:.2f} by BLS-ESM, {now['esm']:.2f} by ESM"
        return last, now, f"small files: {now['share']:.1%} of what `small` hints; {predicted}"

    def write(number):
        (slow_meta.mount / f"f{number}").write_bytes(bytes(8192))

    until_s = time.monotonic() + PATIENCE_S
    with ThreadPoolExecutor(4) as pool:
        # One always waits for the tier, so that it has no rest.
        for begin in itertools.count(step=4):
            if any(period["share"] < 1 for period in activity.meta_load(slow_meta)["periods"]):
                break
            assert time.monotonic() < until_s, "a tier that has no rest lowers no threshold"
            list(pool.map(write, range(begin, begin + 4)))
    assert activity.meta_load(slow_meta)["is_known"]
    while True:
        # A second may end while the command looks.
        before = expected()
        printed = stripewise("top", "--pool", slow_meta.file, "--once").stdout
        if expected() == before:
            break
        assert time.monotonic() < until_s + PATIENCE_S
    last, now, line = before
    assert line in printed.splitlines()
    assert "load unknown" not in printed
    assert 0 < last["load"] <= 1.5 and now["esm"] > 0 and 0 < now["share"] <= 1
    counted = rf"^metadata tier, .* ago: {last['served']:,} requests in a second, {last['names']:,} of them on names, "
    assert re.search(counted, printed, flags=re.MULTILINE)


def names_served(pool):
    """Operations on names that the metadata tier has served, by the page of its load: those that look, and changes."""
    words = struct.unpack("=64Q", (pool.namespace / "meta-load.2").read_bytes()[192:704])
    return sum(words[6::8]), sum(words[7::8])


@pytest.mark.parametrize("preload", [False, True])
def test_names_of_programs_are_load_of_a_real_metadata_tier(pool, preload):
    loaded = Pool.load(pool.file)
    script = 'cd "$1"; mkdir d; echo bytes > d/a; mv d/a d/b; ls -l d; cat d/b; rm d/b; rmdir d'
    pool.run("sh", "-c", script, "sh", pool.mount, preload=preload)
    looks, changes = names_served(loaded)
    # Made, renamed and removed: a directory and a file. How often the kernel looks is its own matter.
    assert looks >= 3 and changes == 5


def test_servers_in_memory_are_listed_with_the_reason(stripewise, tmp_path):
    shm = Path("/dev/shm") / f"stripewise-top-{os.getpid()}"
    shm.mkdir()
    try:
        stripewise("pool", "init", "-o", "memory.toml", "--ssd", shm)
        printed = stripewise("top", "--pool", "memory.toml", "--once").stdout
        assert rows(printed)["ssd.0"][1:] == ["-"] * 6
        assert "ssd.0, meta is on tmpfs, which has no block device: nothing counts what it does" in printed
        subprocess.run(["rm", "-r", shm], check=True)
        printed = stripewise("top", "--pool", "memory.toml", "--once").stdout
        assert "ssd.0, meta cannot be reached: No such file or directory" in printed
    finally:
        subprocess.run(["rm", "-rf", shm], check=True)


def test_updates_go_to_a_pipe_until_it_is_interrupted(emulated):
    """A table after each interval; Ctrl-C is the way to end it, not a failure."""
    command = [sys.executable, "-m", "stripewise", "top", "--pool", str(emulated.file), "--interval", "0.1"]

    def hears_interrupts():
        # What runs in the background of a script ignores them.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hears_interrupts
    )
    titles = 0
    for line in running.stdout:
        titles += "Ctrl-C ends" in line
        if titles == 2:
            break
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, said) == (0, "")


def sysfs(tmp_path, text):
    directory = tmp_path / "8:1"
    directory.mkdir()
    (directory / "stat").write_text(text)
    return devices.Device("sda1", directory)


def test_counters_of_a_device(tmp_path):
    device = sysfs(tmp_path, "  100 1 2000 300   40 5 600 70    2 800 900 0 0 0 0 0 0\n")
    assert device.counters() == devices.Counters(100, 1_024_000, 40, 307_200, 0.8, 0.9)


@pytest.mark.parametrize("text", ["", "1 2 3", "a b c d e f g h i j k"])
def test_a_device_that_counts_nothing(tmp_path, text):
    assert sysfs(tmp_path, text).counters() is None
    assert devices.Device("gone", tmp_path / "gone").counters() is None


def test_a_counter_that_began_anew_gives_no_negative_rate():
    done = Done(10, 100, 100, 1.0, 2.0)
    assert done.since(Done(4, 40, 100, 0.5, 1.0)) == Done(6, 60, 0, 0.5, 1.0)
    assert done.since(Done(11, 0, 0, 0.0, 0.0)) == Done(0, 0, 0, 0.0, 0.0)


def told(told_s, programs, servers):
    node = {"name": "n2", "is_here": False, "programs": programs, "servers": servers}
    return {"nodes_told_s": told_s, "nodes": [node, {"name": "n1", "is_here": True}]}


def test_rates_of_other_nodes_are_from_one_word_of_the_orchestrator_to_the_next():
    def program(done):
        return {"name": "sim", "user": 5, "bytes": done}

    def server(requests, done):
        return {"server": "hdd.0", "requests": requests, "bytes": done}

    first = told(10.0, [program(100)], [server(1, 100)])
    rates = orchestrating.NodeRates(first)
    rates.take(first)
    assert (rates.programs, rates.servers) == ({}, {})
    second = told(12.0, [program(500), {"name": "new", "user": 5, "bytes": 50}], [server(5, 500)])
    for _ in range(2):  # The same again is no news.
        rates.take(second)
        assert rates.programs == {"n2": {("sim", 5): 200.0, ("new", 5): 25.0}}
        assert rates.servers == {("n2", "hdd.0"): (2.0, 200.0)}
    # A program that was forgotten takes nothing away.
    rates.take(told(13.0, [], [server(2, 50)]))
    assert rates.servers == {("n2", "hdd.0"): (0.0, 0.0)}
    rates.take(None)
