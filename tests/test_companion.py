"""A mount with a process beside it that adapts the pool or serves its metrics, and ends with it."""

import errno
import json
import os
import signal
import sys
import time
import urllib.request
from dataclasses import asdict
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from conftest import PATIENCE_S, with_a_stuck_planner
from stripewise import StripewiseError
from stripewise.api import adapt as adapting
from stripewise.api import adapt_service, companion
from stripewise.api.pacing import Pace
from stripewise.cli import console
from stripewise.pool import Pool


@pytest.fixture
def heated(tmp_path, stripewise):
    base = tmp_path / "p"
    stripewise("pool", "init", base, "--emulate", "--hdd", "1", "--ssd", "1", "--dilation", "0.01")
    file = base / "pool.toml"
    file.write_text(file.read_text() + "\n[heat]\n")
    yield file
    stripewise("umount", file, check=False)


def eventually(done):
    end_s = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < end_s, "it did not come about"
        time.sleep(0.05)


def processes(name, file):
    """Those of a program that serve the pool."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(word.endswith(name) for word in words) and os.fsencode(file) in words:
                found.append(int(entry.name))
    return found


def beside(file):
    """The processes beside mounts of the pool."""
    return processes(b"stripewise.api.companion", file)


def latencies(text):
    """Of each server and kind: bounds with the requests up to each, requests in all, seconds in all."""
    families = {family.name: family for family in text_string_to_metric_families(text)}
    family = families["stripewise_server_latency_seconds"]
    assert family.type == "histogram"
    found = {}
    for sample in family.samples:
        of = found.setdefault((sample.labels["server"], sample.labels["op"]), {"bucket": []})
        what = sample.name.removeprefix("stripewise_server_latency_seconds_")
        if what == "bucket":
            of["bucket"].append((float(sample.labels["le"]), sample.value))
        else:
            of[what] = sample.value
    return {key: (of["bucket"], of["count"], of["sum"]) for key, of in found.items()}


def test_it_decides_and_serves_until_the_mount_ends(heated, stripewise):
    said = stripewise("mount", heated, "--adapt", "--metrics", "0").stderr
    url = next(word for word in said.split() if word.startswith("http://127.0.0.1:"))
    (heated.parent / "mount" / "file").write_bytes(bytes(300_000))
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        text = answer.read().decode()
    assert 'stripewise_server_requests_total{server="ssd.0"}' in text and "stripewise_adapt_decisions_total" in text
    histograms = latencies(text)
    assert histograms and all(op == "write" for _, op in histograms), "nothing was read"
    for buckets, count, total_s in histograms.values():
        bounds, counts = zip(*buckets, strict=True)
        assert bounds == (*(2.0**power * 1e-9 for power in range(10, 35)), float("inf"))
        assert sorted(counts) == list(counts) and counts[-1] == count > 0
        # No bucket has less time than its lower bound says.
        parts = [after - before for before, after in pairwise((0, *counts))]
        assert total_s >= sum(part * bound for part, bound in zip(parts[1:], bounds, strict=False))
    pool = Pool.load(heated)
    eventually(lambda: adapting.decisions(pool))
    for command in (["adapt", heated], ["mount", heated, "--adapt"]):
        refused = stripewise(*command, check=False)
        assert refused.returncode == 1 and "adapted already" in refused.stderr
    # Its next decision is due in ten minutes.
    asked = stripewise("adapt", heated, "--once", "--json")
    assert "is asked to decide now" in asked.stderr
    assert json.loads(asked.stdout) == adapting.decisions(pool)[-1]
    assert "nothing moved" in stripewise("adapt", heated, "--once").stdout
    stripewise("adapt", heated, "--dry-run")
    assert len(beside(heated)) == 1
    stripewise("umount", heated)
    eventually(lambda: not beside(heated))
    stripewise("adapt", heated, "--once")  # The right to adapt is free.


def test_it_ends_with_the_mount_while_it_plans(heated, stripewise, tmp_path):
    """The next mount is adapted, too: the process beside the last one has the right to it no more."""
    write = "import sys; open(sys.argv[1] + '/file', 'wb').write(bytes(300_000))"
    stripewise("run", "--quiet", "--pool", heated, "--", sys.executable, "-c", write, heated.parent / "mount")
    variables, begun = with_a_stuck_planner(tmp_path)
    stripewise("mount", heated, "--adapt", env=variables)
    try:
        eventually(begun.exists)
        stripewise("umount", heated)
        eventually(lambda: not beside(heated))
        stripewise("mount", heated, "--adapt")
        stripewise("umount", heated)
    finally:
        for process in beside(heated):
            os.kill(process, signal.SIGKILL)


def test_what_keeps_it_from_beginning_is_said_before_anything_is_mounted(heated, stripewise, pool):
    mount = pool.mount
    no_heat = stripewise("mount", pool.file, "--adapt", check=False)
    assert no_heat.returncode == 1 and ("calibrate" in no_heat.stderr or "keeps no heat" in no_heat.stderr)
    address = stripewise("mount", heated, "--metrics", "nowhere", check=False)
    assert address.returncode == console.EXIT_USAGE and "write [HOST:]PORT" in address.stderr
    host = stripewise("mount", heated, "--metrics", "..:9123", check=False)
    assert host.returncode == console.EXIT_USAGE and "'..' is no name of a host for the metrics" in host.stderr
    assert not mount.is_mount() and not (heated.parent / "mount").is_mount()
    assert not beside(heated) and not beside(pool.file)


def test_what_it_did_not_expect_is_kept_as_a_decision_and_it_goes_on(heated, monkeypatch):
    def decide(*_, **__):
        raise ValueError("a fault")

    monkeypatch.setattr(adapt_service.Rounds, "decide", decide)
    pool = Pool.load(heated)
    companion._adapt(pool, adapt_service.Wanted(period_s=0.0), lambda *_: len(adapting.decisions(pool)) < 2)
    found = [(of["verdict"], of["why"]) for of in adapting.decisions(pool)]
    assert found == [("failed", "unexpected ValueError: a fault")] * 2


def test_the_process_beside_a_mount_keeps_to_the_limits(heated, stripewise):
    pool = Pool.load(heated)
    later = datetime.now().hour + 2
    hours = f"{later % 24}-{(later + 1) % 24}"
    heated.write_text(heated.read_text().replace("[default]\n", '[default]\nland = "ssd"\n'))
    refused = stripewise("mount", heated, "--hours", hours, check=False)
    assert refused.returncode == console.EXIT_USAGE and "--hours says what --adapt may move" in refused.stderr
    refused = stripewise("mount", heated, "--adapt", "--hours", "22", check=False)
    assert refused.returncode == console.EXIT_USAGE and "write two hours" in refused.stderr
    assert not pool.mount.is_mount()
    stripewise("mount", heated, "--adapt", "--hours", hours)
    (pool.mount / "young").write_bytes(bytes(300_000))
    asked = stripewise("adapt", heated, "--once", "--json")
    assert json.loads(asked.stdout)["relief"][0]["why"] == "data does not move at this hour"
    stripewise("umount", heated)
    eventually(lambda: not beside(heated))
    stripewise("mount", heated, "--adapt", "--limit", "1KB", "--rate", "50MB")

    def is_held_by_the_limit():
        why = json.loads(stripewise("adapt", heated, "--once", "--json").stdout)["relief"][0]["why"]
        # Of other tests beside this one.
        assert "the servers are busy" in why or "more than the 1,000 bytes that are left" in why
        return "more than" in why

    eventually(is_held_by_the_limit)


def test_a_service_gets_from_the_mount_what_was_asked_for():
    wanted = adapt_service.Wanted(adapting.Limits(1.5, 7, (22, 6)), "fixed", Pace(8, urgent=True), 0.0, 9.0)
    for one in (wanted, adapt_service.Wanted()):
        assert companion._wanted(json.loads(json.dumps(asdict(one)))) == one


def test_a_mount_that_fails_leaves_none_beside_it(heated, stripewise, tmp_path):
    stripewise("mount", heated)
    again = stripewise("mount", heated, tmp_path / "missing", "--metrics", "0", check=False)
    assert again.returncode == 1
    eventually(lambda: not beside(heated))


def test_it_believes_no_module_of_the_directory_where_it_begins_and_lets_go_of_it(heated, stripewise, tmp_path):
    """Others may write there."""
    for name in ("stripewise", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(1)\n")
    stripewise("mount", heated, "--metrics", "0")
    (process,) = beside(heated)
    assert Path(f"/proc/{process}/cwd").readlink() == Path("/")


def test_it_ends_with_a_mount_whose_process_has_died_and_the_next_mount_takes_its_place(heated, stripewise):
    said = stripewise("mount", heated, "--adapt", "--metrics", "0").stderr
    port = next(word for word in said.split() if word.startswith("http://127.0.0.1:")).split(":")[2].split("/")[0]
    for process in processes(b"stripewise-mount", heated):
        os.kill(process, signal.SIGKILL)
    again = stripewise("mount", heated, "--adapt", "--metrics", port)
    assert "its process had died" in again.stderr and f":{port}/" in again.stderr
    eventually(lambda: len(beside(heated)) == 1)
    assert Pool.load(heated).mount.is_mount()


def test_what_a_mount_that_has_just_ended_has_is_waited_for():
    taken = StripewiseError("taken")
    taken.__cause__ = OSError(errno.EADDRINUSE, "taken")
    for error in (adapting.AdaptedError("adapted"), taken):
        tries = [error, error, None]

        def begin(tries=tries):
            if (raised := tries.pop(0)) is not None:
                raise raised
            return "begun"

        assert companion._begun(begin, lambda: 0.0) == "begun"
        clock = iter([0.0, companion.ENDS_S])
        with pytest.raises(StripewiseError):
            companion._begun(lambda error=error: (_ for _ in ()).throw(error), lambda clock=clock: next(clock))
    with pytest.raises(StripewiseError, match="no address"):
        companion._begun(lambda: (_ for _ in ()).throw(StripewiseError("no address")), lambda: 0.0)
