"""`import stripewise`: traces, signatures, plans and simulations as objects with data frames."""

import html.parser
import json
import subprocess
import sys
from pathlib import Path

import darshan
import polars as pl
import pytest
import vl_convert

import stripewise as sw
from conftest import PATIENCE_S
from stripewise.api.layout_map import rows, shares

DXT = Path(darshan.__file__).parent / "tests" / "input" / "sample-dxt-simple.darshan"

WORKLOAD = """
import os, sys
fd = os.open(sys.argv[1] + "/data.bin", os.O_RDWR | os.O_CREAT, 0o644)
for n in range(40):
    os.pwrite(fd, bytes(4096), n * 4096)
for n in range(12):
    os.pwrite(fd, bytes(262144), (1 << 20) + n * 262144)
for n in reversed(range(40)):
    os.pread(fd, 4096, n * 4096)
"""

CLUSTER = """
name = "orion"
[default]
tier = "hdd"
count = 2
width = "1MiB"
[[tier]]
name = "hdd"
servers = 6
preset = "hdd-7200"
[[tier]]
name = "ssd"
servers = 2
preset = "ssd-sata"
"""


@pytest.fixture
def run(emulated):
    file = emulated.base / "run.trace"
    command = [sys.executable, "-c", WORKLOAD, emulated.mount]
    emulated.stripewise("trace", "--pool", emulated.file, "-o", file, "--", *command)
    return emulated, sw.read(file)


def test_a_trace_as_frames(run):
    pool, trace = run
    data = trace.files.filter(pl.col("path") == str(pool.mount / "data.bin")).row(0, named=True)
    assert (data["writes"], data["reads"]) == (52, 40)
    assert data["write_bytes"] == 40 * 4096 + 12 * 262144
    assert data["extent"] == (1 << 20) + 12 * 262144
    frame = trace.frame().filter((pl.col("file") == data["path"]) & (pl.col("op") == "write"))
    assert frame["size"].sum() == data["write_bytes"]
    assert trace.about["format"] == "Stripewise"


def test_every_log_has_one_schema(run):
    _, trace = run
    log = sw.read(DXT)
    assert log.frame().schema == trace.frame().schema
    assert log.files.schema == trace.files.schema
    assert log.signature().ranks.schema == trace.signature().ranks.schema
    assert log.about["format"] == "Darshan"
    assert "it names no processes" in repr(log)


def test_progress_is_told(run):
    pool, _ = run
    seen = []
    trace = sw.read(DXT, progress=lambda done, total: seen.append((done, total)))
    trace.signature(progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] == trace.frame().height
    assert sw.read(pool.base / "run.trace", progress=True).signature(progress=True).check() > 0


def test_signatures_as_frames(run):
    pool, trace = run
    signature = trace.signature()
    path = str(pool.mount / "data.bin")
    one = signature.ranks.filter(pl.col("path") == path).row(0, named=True)
    assert one["signature"] == signature.text(path, one["rank"])
    assert one["signature"].count("{WRITE,") == 2 and "{READ,159744,1,([{-4096},{4096},{40}]),1}" in one["signature"]
    expanded = signature.expand(path)
    assert expanded.group_by("op").agg(pl.len()).sort("op").rows() == [("read", 40), ("write", 52)]
    assert expanded["offset"].to_list()[:3] == [0, 4096, 8192]
    assert signature.check() == signature.files["requests"].sum() == signature.programs["requests"].sum()
    assert f"{path}: writes 160 KiB in 40 pieces of 4 KiB" in signature.words()
    assert signature.phases.filter(pl.col("path") == path)["requests"].sum() == 92
    with pytest.raises(sw.StripewiseError, match="no processes of rank 7 used it"):
        signature.text(path, 7)
    with pytest.raises(sw.StripewiseError, match="/nowhere was neither read nor written"):
        signature.expand("/nowhere")


def test_a_plan_says_why_and_is_a_layout_file(run):
    pool, trace = run
    plan = sw.plan(trace, pool=pool.file)
    frame = plan.frame()
    assert frame["path"].unique().to_list() == ["data.bin"]
    assert frame["plan_s"].sum() <= frame["default_s"].sum()
    assert frame["written_bytes"].sum() == pytest.approx(40 * 4096 + 12 * 262144)
    told = plan.explain()
    assert f"plan by {plan.document['planner']} for pool" in told
    assert "emulated servers" in told
    assert all(reason in told for reason in plan.document["comparison"]["why"])
    assert "becomes" in told
    saved = plan.save(pool.base / "new.layout")
    assert saved.read_text() == plan.layout
    pool.stripewise("apply", saved, "--pool", pool.file)
    command = ["plan", pool.base / "run.trace", "--pool", pool.file, "-o", pool.base / "same.layout"]
    again = sw.plan(trace, pool=pool.file).layout
    pool.stripewise(*command)
    assert (pool.base / "same.layout").read_text() == again


def test_the_map_of_a_plan(run):
    pool, trace = run
    plan = sw.plan(trace, pool=pool.base)
    (file,) = plan.document["files"]
    drawn = pl.DataFrame(rows(file))
    for side, low in (("before", 1.1), ("after", 0.0)):
        of_side = drawn.filter(pl.col("side") == side)
        regions = of_side.group_by("offset").agg(pl.min("low"), pl.max("high")).sort("offset")
        assert regions["offset"].to_list() == [region["offset"] for region in file["regions"]]
        assert regions["low"].to_list() == pytest.approx([low] * regions.height)
        assert regions["high"].to_list() == pytest.approx([low + 1] * regions.height)
    assert shares(["hdd.0-5:64KiB", "ssd.0-1:64KiB"]) == {"hdd": 0.75, "ssd": 0.25}
    assert shares(["my.tier.3:1MiB"]) == {"my.tier": 1.0}
    assert shares(["meta:64KiB"]) == {"meta": 1.0}
    svg = vl_convert.vegalite_to_svg(plan.plot().to_dict())
    assert "data.bin" in svg and "before" in svg and "ssd" in svg


def test_simulating_a_plan(run):
    pool, trace = run
    plan = sw.plan(trace, pool=pool.file, planner="server-widths")
    simulated = sw.simulate(trace, pool=pool.file, layout=plan, repeat=2)
    frame = simulated.frame()
    assert frame["side"].to_list() == ["present", "layout"]
    rates = dict(zip(frame["side"], frame["bytes_per_s"], strict=True))
    assert simulated.ratio == pytest.approx(rates["layout"] / rates["present"], rel=0.05)
    assert simulated.servers.filter(pl.col("side") == "layout")["bytes"].sum() >= 92 * 4096
    assert set(simulated.timeline["server"]) == set(simulated.servers["server"])
    assert "hdd.0" in vl_convert.vegalite_to_svg(simulated.plot().to_dict())
    saved = plan.save(pool.base / "new.layout")
    assert sw.simulate(trace, pool=pool.file, layout=saved, repeat=2).frame().equals(frame)
    alone = sw.simulate(trace, pool=pool.file, repeat=1)
    assert alone.ratio is None and alone.frame().height == 1
    with pytest.raises(sw.StripewiseError, match="there is no option 'queues'; there is queue,"):
        sw.simulate(trace, pool=pool.file, around={"queues": []})


def test_a_cluster_in_place_of_a_pool(run, tmp_path):
    _, trace = run
    file = tmp_path / "orion.toml"
    file.write_text(CLUSTER)
    plan = sw.plan(trace, cluster=file)
    assert "cluster 'orion'" in plan.explain()
    assert 'pool = "orion"' in plan.layout
    simulated = sw.simulate(trace, cluster=file, layout=plan, repeat=2)
    assert {name.split(".")[0] for name in simulated.servers["server"]} == {"hdd", "ssd"}
    for named in ({}, {"pool": file, "cluster": file}):
        with pytest.raises(sw.StripewiseError, match="name either a pool"):
            sw.plan(trace, **named)


def test_advice(run, stripewise, tmp_path):
    _, trace = run
    file = tmp_path / "orion.toml"
    file.write_text(CLUSTER)
    advice = sw.advise(trace, cluster=file)
    total = advice.document["total"]
    assert advice.files["files"].sum() == total["files"] == 1
    assert advice.files.filter(pl.col("change") & pl.col("recommended").is_null()).height == 0
    told = advice.explain()
    assert "on 'orion'" in told
    assert all(words in told for words in advice.findings["words"])
    assert all(reason in told for reason in total["reasons"])
    assert advice.save(tmp_path / "advised.layout").read_text() == advice.layout
    assert "<table" in advice._repr_html_()
    assert advice.native is None, "the cluster file does not name a file system"
    file.write_text(CLUSTER.replace('"orion"', '"orion"\nfile_system = "lustre"'))
    written = tmp_path / "large.csv"
    rows = (f"/data/a,write,{n << 25},{1 << 25},{n % 4},{n * 10**8},{n * 10**8 + 3 * 10**8}\n" for n in range(64))
    written.write_text("file,op,offset,size,pid,start_ns,end_ns\n" + "".join(rows))
    advice = sw.advise(sw.read(written), cluster=file)
    assert advice.document["total"]["change"]
    printed = stripewise("advise", written, "--cluster", file, "--json").stdout
    assert advice.native.as_dict() == json.loads(printed)["native"]
    assert "lfs" in advice.native.exported.script()
    with pytest.raises(sw.StripewiseError, match=r"nowhere\.toml"):
        sw.advise(trace, cluster=tmp_path / "nowhere.toml")


class Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.seen = [], set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass


def test_each_object_shows_itself_in_a_notebook(run, tmp_path):
    pool, trace = run
    plan = sw.plan(trace, pool=pool.file, planner="fixed")
    for shown in (trace, trace.signature(), plan, sw.simulate(trace, pool=pool.file, layout=plan, repeat=1)):
        tags = Tags()
        tags.feed(shown._repr_html_())
        assert {"p", "table", "td"} <= tags.seen
        assert repr(shown).startswith("<") and "\n" not in repr(shown)
    odd = tmp_path / "<b>&.trace"
    odd.write_bytes((pool.base / "run.trace").read_bytes())
    assert "&lt;b&gt;&amp;.trace" in sw.read(odd)._repr_html_()
    assert "vega-lite" in plan.plot()._repr_mimebundle_()["text/html"]


def python(script, *arguments):
    return subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=PATIENCE_S
    )


def test_the_command_line_loads_no_frames_and_no_plots():
    done = python(
        "import sys, stripewise.cli; print([n for n in ('polars', 'altair') if n in sys.modules]); "
        "import stripewise as sw; assert set(sw.__all__) <= set(dir(sw)); log = sw.read(sys.argv[1]); "
        "print('polars' in sys.modules); log.frame(); print('polars' in sys.modules)",
        DXT,
    )
    assert done.stdout.splitlines() == ["[]", "False", "True"], done.stderr
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        sw.nothing  # noqa: B018
