"""Trace, show, plan, apply, stat: each alone, and what they refuse."""

import json
import os
import re
import shlex
import sys

import polars as pl
import pytest

from conftest import PATIENCE_S
from stripewise.cli import plan

WORKLOAD = """
import os, sys
fd = os.open(sys.argv[1] + "/data.bin", os.O_RDWR | os.O_CREAT, 0o644)
for n in range(40):
    os.pwrite(fd, bytes([n + 1]) * 4096, n * 4096)
for n in range(12):
    os.pwrite(fd, bytes([n + 1]) * 262144, (1 << 20) + n * 262144)
for again in range(3):
    for n in range(40):
        assert os.pread(fd, 4096, n * 4096) == bytes([n + 1]) * 4096
for n in range(12):
    assert os.pread(fd, 262144, (1 << 20) + n * 262144) == bytes([n + 1]) * 262144
"""

CHECK = """
import os, sys
fd = os.open(sys.argv[1] + "/data.bin", os.O_RDONLY)
for n in range(40):
    assert os.pread(fd, 4096, n * 4096) == bytes([n + 1]) * 4096
for n in range(12):
    assert os.pread(fd, 262144, (1 << 20) + n * 262144) == bytes([n + 1]) * 262144
assert os.fstat(fd).st_size == (1 << 20) + 12 * 262144
"""


@pytest.fixture
def traced(emulated):
    trace = emulated.base / "run.trace"
    command = [sys.executable, "-c", WORKLOAD, emulated.mount]
    emulated.stripewise("trace", "--pool", emulated.file, "-o", trace, "--", *command)
    return emulated, trace


def test_a_trace_has_every_request(traced):
    pool, trace = traced
    summary = json.loads(pool.stripewise("show", trace, "--json").stdout)
    file = next(file for file in summary["files"] if file["path"] == str(pool.mount / "data.bin"))
    assert (file["writes"]["requests"], file["reads"]["requests"]) == (52, 132)
    assert file["writes"]["bytes"] == 40 * 4096 + 12 * 262144
    assert file["reads"]["common_sizes"] == [[4096, 120], [262144, 12]]
    assert file["extent_bytes"] == (1 << 20) + 12 * 262144
    shown = pool.stripewise("show", trace).stdout
    assert "4KiBx120 256KiBx12" in shown
    assert "data.bin" in shown


def test_a_trace_as_tables(traced):
    pool, trace = traced
    pool.stripewise("show", trace, "--csv", pool.base / "t.csv", "--parquet", pool.base / "t.parquet")
    csv, parquet = pl.read_csv(pool.base / "t.csv"), pl.read_parquet(pool.base / "t.parquet")
    assert csv.columns == parquet.columns
    assert csv.height == parquet.height
    data = parquet.filter(pl.col("file").str.ends_with("data.bin"))
    writes = data.filter((pl.col("op") == "write") & (pl.col("api") == "POSIX"))
    assert writes["size"].sum() == 40 * 4096 + 12 * 262144
    assert (data["end_ns"] >= data["start_ns"]).all()


def test_a_trace_without_a_pool(stripewise, tmp_path):
    (tmp_path / "in").write_bytes(bytes(100_000))
    done = stripewise("trace", "-o", "t", "--", "sh", "-c", "dd if=in of=out bs=50000; exit 7", check=False)
    assert done.returncode == 7
    shown = stripewise("show", "t").stdout
    assert re.search(rf"{tmp_path}/in +read +2 .* 50000Bx2 ", shown)
    assert re.search(rf"{tmp_path}/out +write +2 .* 50000Bx2 ", shown)
    assert not list(tmp_path.glob("*.recording"))


def test_a_truncated_trace_is_named(traced):
    pool, trace = traced
    cut = pool.base / "cut.trace"
    cut.write_bytes(trace.read_bytes()[:-100])
    done = pool.stripewise("show", cut, check=False)
    assert done.returncode == 1
    assert "cut.trace is cut" in done.stderr
    damaged = bytearray(trace.read_bytes())
    damaged[5000] ^= 0xFF
    cut.write_bytes(damaged)
    done = pool.stripewise("plan", cut, "--pool", pool.file, "-o", pool.base / "l", check=False)
    assert done.returncode == 1
    assert "cut.trace is damaged" in done.stderr
    assert not (pool.base / "l").exists()


def test_plan_apply_stat_and_back(traced):
    pool, trace = traced
    layout = pool.base / "new.layout"
    planned = pool.stripewise("plan", trace, "--pool", pool.file, "-o", layout)
    assert "emulated servers" in planned.stdout
    assert {"default", "HARL", "plan"} <= set(planned.stdout.split())
    document = json.loads(pool.stripewise("plan", trace, "--pool", pool.file, "-o", layout, "--json").stdout)
    assert document["cost_s"]["plan"] < document["cost_s"]["default"]
    shown = pool.stripewise("show", layout).stdout
    assert "data.bin" in shown
    stripes = pool.stripewise("show", layout, "--csv", "-").stdout.splitlines()
    assert stripes[0] == "file,region,offset,slot,server,width"

    before = json.loads(pool.stripewise("stat", "--pool", pool.file, pool.mount / "data.bin", "--json").stdout)
    assert [region["round"] for region in before["regions"]] == [["hdd.0-1:64KiB", "ssd.0:64KiB"]]
    done = pool.stripewise("apply", layout, "--pool", pool.file)
    assert re.search(r"data.bin: moved .*, blake3 [0-9a-f]{64}", done.stdout)
    after = json.loads(pool.stripewise("stat", "--pool", pool.file, "data.bin", "--json").stdout)
    assert after["version"] == before["version"] + 1
    assert after["size_bytes"] == before["size_bytes"]
    wanted = json.loads(pool.stripewise("show", layout, "--json").stdout)["files"][0]["regions"]
    assert [region["round"] for region in after["regions"]] == [region["round"] for region in wanted]
    pool.python(CHECK)
    assert "nothing to move" in pool.stripewise("apply", layout, "--pool", pool.file).stdout


READER = """
import os, sys
os.mkdir(sys.argv[1] + "/runs")
with open(sys.argv[1] + "/runs/a.raw", "wb", buffering=0) as file:
    for n in range(4):
        file.write(bytes(1 << 20))
with open(sys.argv[1] + "/runs/a.raw", "rb", buffering=0) as file:
    while file.read(32768):
        pass
"""


def test_a_plan_proposes_hints_that_gain_as_commands(emulated):
    trace, layout = emulated.base / "read.trace", emulated.base / "new.layout"
    command = [sys.executable, "-c", READER, emulated.mount]
    emulated.stripewise("trace", "--pool", emulated.file, "-o", trace, "--", *command)
    asked = ("plan", trace, "--pool", emulated.file, "-o", layout, "--planner", "fixed")
    document = json.loads(emulated.stripewise(*asked, "--json").stdout)
    (hint,) = document["hints"]
    assert (hint["directory"], hint["pattern"], hint["files"]) == ("runs", None, 1)
    assert hint["now_s"] > 1.2 * hint["then_s"] > 0
    assert hint["command"] in [line.strip() for line in emulated.stripewise(*asked).stdout.splitlines()]
    program, *words = shlex.split(hint["command"])
    assert program == "stripewise"
    emulated.stripewise(*words, "--pool", emulated.file)
    shown = emulated.stripewise("hint", "runs", "--show", "--pool", emulated.file).stdout
    assert f"all names: {hint['optimisation']}" in shown
    # The same of advice, priced under its own layouts.
    asked = ("advise", trace, "--cluster", emulated.file)
    advised = json.loads(emulated.stripewise(*asked, "--json").stdout)["hints"]
    assert [each["optimisation"].split("=")[0] for each in advised if each["directory"] == "runs"] == ["readahead"]
    assert all(each["now_s"] > 1.2 * each["then_s"] > 0 for each in advised)
    said = [line.strip() for line in emulated.stripewise(*asked).stdout.splitlines()]
    assert all(each["command"] in said for each in advised)


def planner_names(pool):
    return [planner["name"] for planner in json.loads(pool.stripewise("planners", "--json").stdout)]


def test_every_planner_makes_layouts_that_can_be_applied(traced):
    pool, trace = traced
    names = planner_names(pool)
    assert names[:2] == ["auto", "fixed"]
    for name in names:
        layout = pool.base / f"{name}.layout"
        done = pool.stripewise("plan", trace, "--pool", pool.file, "-o", layout, "--planner", name, "--json")
        document = json.loads(done.stdout)
        assert name in (document["planner"], "auto")
        assert document["cost_s"]["plan"] > 0
        pool.stripewise("apply", layout, "--pool", pool.file)
        pool.python(CHECK)


def test_auto_says_who_won_and_by_how_much(traced):
    pool, trace = traced
    layout = pool.base / "auto.layout"
    done = pool.stripewise("plan", trace, "--pool", pool.file, "-o", layout, "--json")
    document = json.loads(done.stdout)
    compared = {row["planner"]: row for row in document["comparison"]["planners"]}
    assert ["auto", *compared] == planner_names(pool)
    best = compared[document["planner"]]
    assert best["predicted_s"] == document["cost_s"]["plan"] <= compared["fixed"]["predicted_s"]
    assert best["simulated_s"] <= min(row["simulated_s"] for row in compared.values() if row["simulated_s"]) * 1.001
    for row in compared.values():
        if row["predicted_s"] is not None:
            assert row["predicted_loss"] == pytest.approx(row["predicted_s"] / best["predicted_s"] - 1)
    assert any("beside fixed" in reason and "busy for" in reason for reason in document["comparison"]["why"])
    shown = pool.stripewise("plan", trace, "--pool", pool.file, "-o", layout).stdout
    assert "lost by" in shown
    assert re.search(rf"^{document['planner']} .* taken *$", shown, flags=re.MULTILINE)
    assert re.search(r"^fixed .*( %|x slower) \(predicted\) *$", shown, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (0.0, "0.0 % (simulated)"),
        (-0.0004, "0.0 % (simulated)"),
        (-0.031, "-3.1 % (simulated)"),
        (0.994, "99.4 % (simulated)"),
        (1.0, "2.0x slower (simulated)"),
        (10.94, "12x slower (simulated)"),
        (4999.0, "5,000x slower (simulated)"),
    ],
)
def test_what_is_lost_is_a_share_and_from_twice_as_long_on_a_ratio(loss, words):
    row = {"excess_bytes": 0, "error": None, "simulated_loss": loss, "predicted_loss": 0.25}
    assert plan._loss(row) == f"{words}, 25.0 % (predicted)"
    assert plan._loss({**row, "simulated_loss": None}) == "25.0 % (predicted)"


def test_the_limit_on_regions_and_unknown_planners(traced):
    pool, trace = traced
    layout = pool.base / "few.layout"
    for name in planner_names(pool):
        pool.stripewise("plan", trace, "--pool", pool.file, "-o", layout, "--planner", name, "--max-regions", 1)
        regions = json.loads(pool.stripewise("show", layout, "--json").stdout)["files"]
        assert all(len(file["regions"]) == 1 for file in regions)
    done = pool.stripewise("plan", trace, "--pool", pool.file, "-o", layout, "--planner", "other", check=False)
    assert done.returncode == 1
    assert "no planner 'other'; there is auto, fixed, " in done.stderr
    done = pool.stripewise("plan", trace, "--pool", pool.file, "-o", layout, "--max-regions", 0, check=False)
    assert done.returncode == 2


def test_planners_are_listed_with_their_sources(stripewise):
    shown = stripewise("planners").stdout
    assert shown.split()[:2] == ["planner", "what"]
    for name, source in (("auto", "docs/planners.md"), ("harl-paper", "He et al."), ("2-d", "Chen et al.")):
        assert re.search(rf"^{name} .*{source}", shown, flags=re.MULTILINE)


def test_planning_what_is_not_on_the_pool_says_where_to_look(traced):
    pool, trace = traced
    done = pool.stripewise("plan", trace, "--pool", pool.file, "-o", "l", "--root", "/nowhere", check=False)
    assert done.returncode == 1
    assert "--root" in done.stderr


def test_planning_on_an_uncalibrated_pool_says_what_to_run(traced, pool):
    _, trace = traced
    done = pool.stripewise("plan", trace, "--pool", pool.file, "-o", "l", check=False)
    assert done.returncode == 1
    assert "stripewise pool calibrate" in done.stderr


LAYOUT = """version = 1
pool = "test"

[[file]]
path = "PATH"

[[file.region]]
offset = "0"
round = ROUND
"""


def layout(path="data.bin", round='["ssd.0:4KiB", "hdd.0-2:12KiB"]'):
    return LAYOUT.replace("PATH", path).replace("ROUND", round)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (layout(round='["hdd.7:64KiB"]'), 9, "no server hdd.7"),
        (layout(round='["nvme.0:64KiB"]'), 9, "no tier 'nvme'"),
        (layout(round='["hdd.0:64Kib"]'), 9, "'64Kib'"),
        (layout(round='["hdd.0:0"]'), 9, "width is 0"),
        (layout(round='["hdd.0:4KiB", "hdd.0-1:4KiB"]'), 9, "hdd.0 stands twice"),
        (layout(path="/data.bin"), 5, "relative to the pool's mount"),
        (layout().replace("round", "rounds"), 9, "rounds"),
        (layout().replace('"test"', '"other"'), None, "is for pool 'other'"),
    ],
)
def test_a_wrong_layout_file_changes_nothing(pool, text, line, said):
    pool.python(WORKLOAD)
    before = pool.stripewise("stat", "--pool", pool.file, "data.bin").stdout
    file = pool.base / "wrong.layout"
    file.write_text(text)
    done = pool.stripewise("apply", file, "--pool", pool.file, check=False)
    assert done.returncode == 1
    assert said in done.stderr
    if line:
        assert f"wrong.layout:{line}:" in done.stderr
    assert pool.stripewise("stat", "--pool", pool.file, "data.bin").stdout == before
    assert pool.python(CHECK).returncode == 0


def test_rules_are_for_files_to_come_and_patterns_for_those_there(pool):
    pool.run(
        "sh", "-c", f"cd {pool.mount}; mkdir -p out/deep; seq 50000 > out/a.dat; seq 50000 > out/deep/b.dat; touch x"
    )
    done = pool.apply(layout(path="out/**/*.dat"))
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["out/a.dat", "out/deep/b.dat", "out/**/*.dat"]
    pool.run("sh", "-c", f"cd {pool.mount}; seq 9 > out/later.dat; seq 50000 | cmp - out/deep/b.dat")
    for name in ("out/a.dat", "out/deep/b.dat", "out/later.dat"):
        shown = pool.stripewise("stat", "--pool", pool.file, name).stdout
        assert "ssd.0:4KiB hdd.0-2:12KiB" in shown
    assert "hdd.0-2:64KiB ssd.0:64KiB" in pool.stripewise("stat", "--pool", pool.file, "x").stdout


def test_a_file_that_is_being_written_is_moved_beside_its_writer(pool):
    script = f"""
        exec 3> {pool.mount}/data.bin
        echo begun >&3
        stripewise apply {pool.base}/l --pool {pool.file} > applied && echo done
        echo ended >&3
        exec 3>&-
        cat {pool.mount}/data.bin
    """
    (pool.base / "l").write_text(layout())
    done = pool.run("sh", "-c", script)
    assert done.stdout == "done\nbegun\nended\n"
    stat = json.loads(pool.stripewise("stat", "--pool", pool.file, "data.bin", "--json").stdout)
    assert {stripe.split(":")[0] for region in stat["regions"] for stripe in region["round"]} >= {"ssd.0"}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system under a server")
def test_apply_refuses_before_it_begins_what_does_not_fit(pool):
    pool.run("sh", "-c", f"cd {pool.mount}; seq 200 > a.bin; head -c 1000000 /dev/urandom > b.bin; md5sum b.bin > SUM")
    (pool.base / "l").write_text(layout(path="*.bin", round='["hdd.0:64KiB"]'))
    server, small = next(pool.servers()[0].iterdir()), pool.base / "small"
    small.mkdir()
    mount_small = (
        f"mount -t tmpfs -o size=600k tmpfs {small} && cp -a {server}/. {small} && mount --bind {small} {server} "
        '&& exec "$@"'
    )
    prefix = ["unshare", "--mount", "sh", "-c", mount_small, "sh"]
    done = pool.stripewise("apply", pool.base / "l", "--pool", pool.file, check=False, prefix=prefix)
    assert done.returncode == 1
    said = " ".join(done.stderr.split())
    assert "b.bin does not fit" in said
    assert "hdd.0" in said
    assert "Nothing was moved" in said
    # Neither the one that would have fitted.
    for name in ("a.bin", "b.bin"):
        shown = pool.stripewise("stat", "--pool", pool.file, name).stdout
        assert "hdd.0-2:64KiB ssd.0:64KiB" in shown
    pool.run("sh", "-c", f"cd {pool.mount}; md5sum -c SUM")


def test_stat_refuses_what_is_not_on_the_pool(pool):
    done = pool.stripewise("stat", "--pool", pool.file, "/etc/hostname", check=False)
    assert done.returncode == 1
    assert "is not below" in done.stderr
    done = pool.stripewise("stat", "--pool", pool.file, "missing", check=False)
    assert done.returncode == 1
    assert "missing" in done.stderr


def test_top_counts_what_the_emulated_servers_did(traced):
    pool, _ = traced
    printed = pool.stripewise("top", "--pool", pool.file, "--once").stdout
    assert "emulated servers" in printed
    rows = {line.split()[0]: line.split() for line in printed.splitlines() if line.startswith(("hdd.", "ssd."))}
    assert set(rows) == {"hdd.0", "hdd.1", "ssd.0"}
    assert all(row[1] == "emulated" and int(row[2].replace(",", "")) > 0 for row in rows.values())


def test_calibration_finds_the_numbers_of_the_emulation(emulated):
    text = emulated.file.read_text().replace("[[tier]]", "# kept\n[[tier]]", 1)
    emulated.file.write_text(text)
    measured = json.loads(
        emulated.stripewise("pool", "calibrate", emulated.file, "--seconds", "4", "--json", timeout=PATIENCE_S).stdout
    )
    hdd = next(tier for tier in measured if tier["name"] == "hdd")
    low, high, per_byte = hdd["read"]
    assert low == pytest.approx(4e-3, rel=0.25)
    assert high == pytest.approx(12e-3, rel=0.25)
    assert 1 / per_byte == pytest.approx(80e6, rel=0.25)
    written = emulated.file.read_text()
    assert written.count("[tier.read]") == 2
    assert "# kept" in written
    assert "as calibrated" in emulated.stripewise("pool", "show", emulated.file).stdout


def test_many_files_are_few_lines(pool):
    program = "import os, sys\nfor i in range(60): open(f'{sys.argv[1]}/many{i:02}.dat', 'wb').write(b'x' * 70_000)"
    pool.stripewise(
        "trace", "--pool", pool.file, "-o", pool.base / "many.trace", "--", sys.executable, "-c", program, pool.mount
    )
    signed = pool.stripewise("signature", pool.base / "many.trace")
    # Files that are used alike are one row, with its words below it.
    assert 1 <= signed.stdout.count(".dat") <= 4 and len(signed.stdout.splitlines()) < 12 + 4
    assert "60" in signed.stdout.split()
    assert pool.stripewise("signature", pool.base / "many.trace", "--all").stdout.count(".dat") >= 60
    assert len(json.loads(pool.stripewise("signature", pool.base / "many.trace", "--json").stdout)["files"]) == 60

    applied = pool.apply(layout(path="**"))
    assert len(applied.stdout.splitlines()) == 21
    assert "and 41 more files and rules were set: --all lists them" in applied.stderr
    assert re.fullmatch(r"60 files: moved .*, kept .*; 1 rules for files to come", applied.stdout.splitlines()[-1])
    every = pool.stripewise("apply", pool.base / "test.layout", "--pool", pool.file, "--all")
    assert all(f"many{number:02}.dat: nothing to move" in every.stdout for number in range(60))
