"""Programs that run at once: `simulate --schedule`, and `advise` with several logs."""

import json
import sys

import pytest

from stripewise import StripewiseError, _native
from stripewise.api import together as api
from stripewise.api import trace as traces

WRITER = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
for n in range(40):
    os.pwrite(fd, bytes(131072), n * 131072)
"""

FIXED = [1e-3, 1e-3, 1e-9]
"""A startup of just 1 ms and a nanosecond a byte: everything can be worked out."""


@pytest.fixture
def recorded(pool):
    for tier in ("hdd", "ssd"):
        _native.pool_write_profile(str(pool.file), tier, FIXED, FIXED)
    found = []
    for name in ("one", "two"):
        trace = pool.base / f"{name}.trace"
        command = [sys.executable, "-c", WRITER, pool.mount / name]
        pool.stripewise("trace", "--pool", pool.file, "-o", trace, "--", *command)
        found.append(trace)
    return pool, found


def test_programs_alone_and_together_are_worked_out(recorded):
    pool, found = recorded
    # Of one run each figure follows from others; of several the mean of ratios is not the ratio of means.
    asked = ("--schedule", "all", "--repeat", 1, "--json")
    document = json.loads(pool.stripewise("simulate", *found, "--pool", pool.file, *asked).stdout)
    served_s = 40 * (1e-3 + 65536e-9)
    moved = 40 * 131072
    assert [one["name"] for one in document["programs"]] == ["one", "two"]
    for one in document["programs"]:
        # What the program spent between requests comes on top.
        assert one["alone_s"]["mean"] >= served_s - 1e-6
        assert (one["bytes"], one["processes"], one["begin_s"]) == (moved, 1, 0)
    rows = {row["policy"]: row for row in document["policies"]}
    assert next(iter(rows)) == "none"
    assert set(rows) == {"none", "even", "reuse-distance", "set-10", "opportunity"}
    none = rows["none"]
    # Both are served from the same servers, one request of each in flight.
    assert none["throughput"]["mean"] == pytest.approx(2 * moved / none["makespan_s"]["mean"], rel=1e-6)
    for row in rows.values():
        worst = max(slowdown["mean"] for slowdown in row["slowdowns"])
        assert 1.0 - 1e-9 <= worst < 2.1 + sum(row["waited_s"]) / served_s
        assert 0.5 - 1e-9 <= row["fairness"]["mean"] <= 1.0 + 1e-9
        for one, took, slowdown in zip(document["programs"], row["took_s"], row["slowdowns"], strict=True):
            assert slowdown["mean"] == pytest.approx(took["mean"] / one["alone_s"]["mean"], rel=1e-6)


def test_tables_name_programs_and_policies(recorded):
    pool, found = recorded
    out = pool.stripewise("simulate", *found, "--pool", pool.file, "--schedule", "even", "--window", 100).stdout
    assert "one" in out and "two" in out and "even" in out and "none" in out and "opportunity" not in out


@pytest.fixture
def timed(recorded):
    """The same requests at times that are written down: a program that stood still for long takes long in any turn."""
    pool, _ = recorded
    logs = []
    for name in ("one", "two"):
        rows = ["file,op,offset,size,rank,start_ns,end_ns"]
        for number in range(40):
            begin_ns = number * 1_300_000
            rows.append(f"{pool.mount / name},write,{number << 17},{1 << 17},0,{begin_ns},{begin_ns + 1_200_000}")
        logs.append(pool.base / f"{name}.csv")
        logs[-1].write_text("\n".join(rows) + "\n")
    return pool, logs


def test_weights_and_limits_are_those_of_orchestrate(timed):
    pool, found = timed
    asked = ("simulate", *found, "--pool", pool.file, "--schedule", "even", "--window", 10, "--repeat", 1, "--json")

    def took(*rules):
        document = json.loads(pool.stripewise(*asked, *rules).stdout)
        return [estimate["mean"] for estimate in document["policies"][1]["took_s"]]

    one, two = took("--weight", "one=5")
    assert one < 0.9 * two
    one, two = took("--weight", "two=5")
    assert two < 0.9 * one
    # 5 MiB at 2 MiB a second, but for the first window, which passes freely.
    free, limited = took("--limit", "two=2MiB/s")
    assert limited > 2 * free


def test_advice_on_logs_of_one_time(recorded):
    pool, found = recorded
    document = json.loads(pool.stripewise("advise", *found, "--cluster", pool.file, "--json").stdout)
    # The second was started when the first had ended.
    assert document["pairs"] == []
    assert document["programs"][1]["begin_s"] > 0
    same = json.loads(pool.stripewise("advise", found[0], found[0], "--cluster", pool.file, "--json").stdout)
    (pair,) = same["pairs"]
    assert pair["programs"] == ["one", "one-2"]
    assert pair["overlap_s"] > 0 and pair["servers"]
    assert all(slowdown["mean"] >= 1.0 for slowdown in pair["slowdowns"])
    out = pool.stripewise("advise", found[0], found[0], "--cluster", pool.file).stdout
    assert "one and one-2" in out and ("help" in out)


def test_what_does_not_go_together_is_refused(recorded):
    pool, found = recorded

    def refused(*arguments, code=2):
        done = pool.stripewise(*arguments, check=False)
        assert done.returncode == code, done.stderr
        return done.stderr

    assert "--schedule" in refused("simulate", *found, "--pool", pool.file)
    assert "--schedule" in refused("simulate", found[0], "--pool", pool.file, "--schedule", "even")
    assert "'odd'" in refused("simulate", *found, "--pool", pool.file, "--schedule", "odd", code=1)
    assert "window" in refused("simulate", *found, "--pool", pool.file, "--schedule", "even", "--window", 0, code=1)
    turns = ("simulate", *found, "--pool", pool.file, "--schedule", "even")
    for rule, *words in (
        ("--weight=one", "'one'", "NAME=VALUE"),
        ("--weight=one=much", "'one=much'"),
        ("--weight=one=0", "weight 0 of 'one'", "0.001 to 1000"),
        ("--weight=one=nan", "'one'", "0.001 to 1000"),
        ("--weight=three=2", "'three'", "one, two"),
        ("--limit=two=0", "0 bytes", "'two'"),
        ("--limit=two=fast", "'two=fast'"),
    ):
        said = refused(*turns, rule, code=1)
        assert all(word in said for word in words), said
    assert "--schedule" in refused("simulate", found[0], "--pool", pool.file, "--weight", "one=2")
    assert "--cluster" in refused("advise", *found)
    assert "--output" in refused("advise", *found, "--cluster", pool.file, "-o", pool.base / "x.layout")
    with pytest.raises(StripewiseError, match="two traces"):
        api.together({"one": traces.read(found[0])}, pool=pool.file)


def outcome(policy, *slowdowns):
    return {"policy": policy, "slowdowns": [{"mean": slowdown, "half_width": None} for slowdown in slowdowns]}


def test_a_policy_helps_that_slows_less_and_none_more():
    def helping(*others):
        best = api.helping_policy({"policies": [outcome("none", 2.0, 2.0), *others]})
        return None if best is None else best["policy"]

    assert helping(outcome("even", 2.0, 2.0)) is None
    assert helping(outcome("even", 1.5, 1.9), outcome("set-10", 1.2, 1.2)) == "set-10"
    assert helping(outcome("even", 1.0, 3.0)) is None
