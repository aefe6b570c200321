"""One job has one figure for now and one for then, whichever command is asked; each says how it was got."""

import json
import re
import sys
from pathlib import Path

import darshan
import pytest

import stripewise as sw
from stripewise.api.alike import planned_alike
from stripewise.exporters import export
from stripewise.heading import now_then
from stripewise.units import mib_per_s

INPUT = Path(darshan.__file__).parent / "tests" / "input"

CLUSTER = """
name = "orion"
file_system = "lustre"
[default]
tier = "hdd"
count = 1
width = "1MiB"
[[tier]]
name = "hdd"
servers = 6
preset = "hdd-7200"
"""

WORKLOAD = """
import os, sys
fd = os.open(f"{sys.argv[1]}/one.bin", os.O_RDWR | os.O_CREAT, 0o644)
for n in range(64):
    os.pwrite(fd, bytes(16384), n * 16384)
"""


@pytest.fixture
def job(tmp_path):
    """Four processes write one file in large pieces, each after the other, as strace tells it; and the servers."""
    log = tmp_path / "run.strace"
    log.write_text(
        "".join(
            f"{100 + n % 4} {1700000000 + n // 4 * 0.0501:.6f} "
            f'pwrite64(3</data/big.dat>, ""..., 8388608, {n * 8388608}) = 8388608 <0.050000>\n'
            for n in range(1024)
        )
    )
    cluster = tmp_path / "orion.toml"
    cluster.write_text(CLUSTER)
    return log, cluster


def figures(now_then):
    return [now_then[name] for name in ("measured_bytes_per_s", "now_bytes_per_s", "then_bytes_per_s")]


def test_every_command_has_the_same_figures_of_one_job(job, stripewise, tmp_path):
    log, cluster = job
    layout = tmp_path / "new.layout"
    advised = json.loads(stripewise("advise", log, "--cluster", cluster, "-o", layout, "--json").stdout)
    told = figures(advised["now_then"])
    assert told[0] == pytest.approx(640 << 20) and 0.5 < told[1] / told[0] < 2 and told[2] > told[1]

    # The layout that is written is not what Lustre's command sets, where that cannot express it.
    (of_file,) = advised["native"]["files"]
    if not of_file["losses"]:
        simulated = json.loads(stripewise("simulate", log, "--cluster", cluster, "--layout", layout, "--json").stdout)
        assert figures(simulated["now_then"]) == pytest.approx(told)

    # In Python, and there of a plan, too.
    trace = sw.read(log)
    advice = sw.advise(trace, cluster=cluster)
    assert figures(advice.now_then) == pytest.approx(told)
    plan = sw.plan(trace, cluster=cluster)
    assert figures(plan.now_then)[:2] == pytest.approx(told[:2])
    assert figures(sw.simulate(trace, cluster=cluster, layout=plan).now_then) == pytest.approx(figures(plan.now_then))
    saved = plan.save(tmp_path / "plan.layout")
    text = stripewise("simulate", log, "--cluster", cluster, "--layout", saved).stdout
    assert all(line in text and line in plan.explain() for line in (*plan.heading, plan.then))
    assert plan.now_then["how"] in plan.heading[-1]

    # On a page.
    page = tmp_path / "page.html"
    stripewise("report", log, "-o", page, "--cluster", cluster, "--layout", saved)
    shown = re.sub("<[^>]*>", "", page.read_text())
    assert plan.heading[-1] in shown
    stripewise("report", log, "-o", page, "--cluster", cluster)
    shown = re.sub("<[^>]*>", "", page.read_text())
    assert f"predicted: {mib_per_s(told[1])} MiB/s" in shown
    assert all(line.split("&")[0] in shown for line in advice.heading[1:3]) and advice.then in shown


def test_a_kind_of_files_that_is_all_there_is_has_the_figure_of_all(tmp_path):
    """Counters of many ranks stand for requests of one, whose times add up to far more than the slowest rank took."""
    cluster = tmp_path / "orion.toml"
    cluster.write_text(CLUSTER)
    for name in ("sample.darshan", "sample-goodost.darshan"):
        document = sw.advise(sw.read(INPUT / name), cluster=cluster).document
        (kind,) = document["files"]
        assert kind["present"]["bytes_per_s"] == pytest.approx(document["total"]["present_bytes_per_s"]), name


def test_why_servers_are_not_fitted_is_said(job, tmp_path):
    log, cluster = job
    document = sw.advise(sw.read(log), cluster=cluster).document
    assert now_then(document)["how"] == "simulated with servers fitted to the log"
    # As where the files got other layouts since.
    assert "older than the layouts that its files have now" in now_then({**document, "reproduced": None})["how"]
    untimed = tmp_path / "untimed.csv"
    untimed.write_text("file,op,offset,size\n/data/a,write,0,1048576\n")
    assert "does not time requests" in sw.advise(sw.read(untimed), cluster=cluster).now_then["how"]
    alone = sw.advise(sw.read(untimed))
    assert alone.now_then["now_bytes_per_s"] is None and "neither times requests nor names" in alone.now_then["how"]


def test_files_that_no_command_can_name_are_said_to_be_the_reason(stripewise, tmp_path):
    """A plan for them may gain by the same model."""
    log, cluster = tmp_path / "anonymous.strace", tmp_path / "orion.toml"
    strace(log, [("/1234567890", 8 << 20, 0.05)] * 200)
    cluster.write_text(CLUSTER)
    shown = stripewise("advise", log, "--cluster", cluster).stdout
    assert "\nlayout: none is looked for: the files have no names that a layout file or a command could use" in shown
    advice = sw.advise(sw.read(log), cluster=cluster)
    assert [file["named"] for file in advice.document["files"]] == [False] and advice.unchanged in repr(advice)


def test_what_the_commands_set_is_what_is_priced(job):
    log, cluster = job
    advice = sw.advise(sw.read(log), cluster=cluster)
    text = advice.native.exported.layout_text()
    layout = sw.simulate(sw.read(log), cluster=cluster, layout=_saved(log.parent / "set.layout", text))
    assert figures(advice.now_then) == pytest.approx(figures(layout.now_then))
    assert advice.then.endswith("with the commands below")


def test_a_pool_and_its_plan_have_the_same_figures(emulated, tmp_path):
    trace, layout = tmp_path / "run.trace", tmp_path / "new.layout"
    run = [sys.executable, "-c", WORKLOAD, emulated.mount]
    emulated.stripewise("trace", "--pool", emulated.file, "-o", trace, "--", *run)
    ask = emulated.stripewise
    planned = json.loads(ask("plan", trace, "--pool", emulated.file, "-o", layout, "--json").stdout)
    advised = json.loads(ask("advise", trace, "--cluster", emulated.file, "--json").stdout)
    simulated = json.loads(ask("simulate", trace, "--pool", emulated.file, "--layout", layout, "--json").stdout)
    assert figures(planned["now_then"])[:2] == pytest.approx(figures(advised["now_then"])[:2])
    assert figures(planned["now_then"]) == pytest.approx(figures(simulated["now_then"]))
    assert planned["now_then"]["how"] == advised["now_then"]["how"] == simulated["now_then"]["how"]


def strace(path, calls):
    """A log of calls: file, bytes, seconds each, one after the other, of one process."""
    lines, start_s = [], 1700000000.0
    for name, size, took_s in calls:
        lines.append(f'100 {start_s:.6f} pwrite64(3<{name}>, ""..., {size}, 0) = {size} <{took_s:.6f}>\n')
        start_s += took_s
    path.write_text("".join(lines))
    return path


def test_every_command_opens_with_the_job(job, stripewise, tmp_path):
    log, cluster = job
    opening = sw.advise(sw.read(log), cluster=cluster).heading
    told = opening[:3]
    assert [line.split(":")[0] for line in told] == ["job", "moved", "I/O"]
    assert sw.read(log).heading == told
    for command in ("show", "signature"):
        assert stripewise(command, log).stdout.splitlines()[:4] == [*told, ""], command
        assert json.loads(stripewise(command, log, "--json").stdout)["job"]["written_bytes"] == 8 << 30
    assert stripewise("signature", log, "--file", "big.dat").stdout.splitlines()[:3] == told
    compared = stripewise("compare", log, log).stdout.splitlines()
    assert [line.strip() for line in compared if line.startswith("  ")][:6] == told * 2
    page = tmp_path / "page.html"
    stripewise("report", log, "-o", page)
    shown = re.sub("<[^>]*>", "", page.read_text())
    assert all(line in shown for line in told)
    for command in (
        ("plan", log, "--cluster", cluster, "-o", tmp_path / "a.layout"),
        ("simulate", log, "--cluster", cluster),
        ("compare", tmp_path / "a.layout", tmp_path / "a.layout", "--trace", log, "--cluster", cluster),
    ):
        assert stripewise(*command).stdout.splitlines()[:4] == opening, command


def test_plans_and_simulations_have_files_that_are_alike_in_one_row(stripewise, tmp_path, job):
    calls = [("/data/small.dat", 1 << 20, 0.01)] + [(f"/data/out.{n}.h5", 4 << 20, 0.04) for n in range(12)]
    log, (_, cluster) = strace(tmp_path / "many.strace", calls), job
    asked = ("plan", log, "--cluster", cluster, "-o", tmp_path / "many.layout", "--planner", "fixed")
    shown = stripewise(*asked).stdout
    titles = [line.strip() for line in shown.splitlines() if line.strip().startswith(("out.", "small.dat"))]
    # By default each file begins on the next server.
    assert titles == ["out.*.h5 (12), on other servers each", "small.dat"], "the largest first"
    assert "48.0 MiB" in shown
    alone = stripewise(*asked, "--all").stdout
    titles = [line.strip() for line in alone.splitlines() if line.strip().startswith(("out.", "small.dat"))]
    assert titles[0].startswith("out.") and len(titles) == 13 and titles[-1] == "small.dat"
    explained = sw.plan(sw.read(log), cluster=cluster, planner="fixed").explain()
    named = [line for line in explained.splitlines() if line.startswith(("out.", "small.dat"))]
    assert named[0].startswith("out.*.h5 (12 files, on other servers each)") and named[-1].startswith("small.dat")
    assert len(named) == 2
    simulated = stripewise("simulate", log, "--cluster", cluster).stdout.splitlines()
    (at,) = [number for number, line in enumerate(simulated) if line.startswith("files ")]
    assert simulated[at + 1].startswith("out.*.h* (12)") and simulated[at + 2].startswith("small.dat")


def test_files_on_other_servers_each_are_alike_and_it_is_said():
    def region(server):
        cost = {"default": 2.0, "harl": 1.5, "plan": 1.0}
        of = {"offset": 0, "end": 8, "round_before": ["hdd.0-3:4KiB"], "round": [server], "requests": 1.0}
        return {**of, "cost_s": cost, "read_bytes": 8.0, "write_bytes": 0.0}

    files = [{"path": f"a.{n}", "regions": [region(f"ssd.{n}:64KiB")]} for n in range(3)]
    other = {"path": "a.9", "regions": [region("hdd.0:64KiB")]}
    rows = planned_alike([other, *files])
    assert [(row.path, len(row.files), row.spread) for row in rows] == [("a.*", 3, True), ("a.9", 1, False)]
    (joined,) = rows[0].regions
    assert joined["cost_s"] == {"default": 6.0, "harl": 4.5, "plan": 3.0} and rows[0].sizes_bytes == [24]
    assert [row.path for row in planned_alike(files, apart=True)] == ["a.0", "a.1", "a.2"]


def test_files_that_a_directory_sets_together_are_priced_where_each_is():
    regions = [
        f'[[file]]\npath = "d/f{n}"\n[[file.region]]\noffset = "0"\nround = ["hdd.{n % 4}:1MiB"]' for n in range(12)
    ]
    document = sw._native.layout_parse("\n".join(['version = 1\npool = "p"', *regions]))
    exported = export(document, to="lustre", pool_map={"hdd": ""})
    assert len(exported.files) == 1 and exported.files[0].is_directory
    found = sw._native.layout_parse(exported.layout_text())["files"]
    assert [(file["path"], file["regions"][0]["round"]) for file in found] == [
        (f"d/f{n}", [f"hdd.{n % 4}:1MiB"]) for n in range(12)
    ]


def _saved(path, text):
    path.write_text(text)
    return path
