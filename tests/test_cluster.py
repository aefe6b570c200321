"""Cluster files, and planning on the servers that they describe."""

import sys

import pytest

from stripewise import StripewiseError, _native

CLUSTER = """
name = "orion"
file_system = "lustre"
[default]
tier = "hdd"
count = 2
width = "1MiB"
[[tier]]
name = "hdd"
servers = 6
preset = "hdd-7200"
capacity = "10TB"
pool = "hdd_pool"
[[tier]]
name = "ssd"
servers = 2
network = "1GB/s"
[tier.read]
startup = ["80us", "120us"]
bandwidth = "400MB/s"
[tier.write]
startup = ["80us", "120us"]
bandwidth = "400MB/s"
"""

WORKLOAD = """
import os, sys
for name in ("a", "b"):
    fd = os.open(f"{sys.argv[1]}/{name}.bin", os.O_RDWR | os.O_CREAT, 0o644)
    for n in range(40):
        os.pwrite(fd, bytes(65536), n * 65536)
"""


@pytest.fixture
def cluster_file(tmp_path):
    file = tmp_path / "orion.toml"
    file.write_text(CLUSTER)
    return file


@pytest.fixture
def trace(pool):
    file = pool.base / "run.trace"
    pool.stripewise("trace", "--pool", pool.file, "-o", file, "--", sys.executable, "-c", WORKLOAD, pool.mount)
    return _native.Trace(str(file))


def test_a_cluster_file_is_read(cluster_file):
    info = _native.cluster_load(str(cluster_file))
    assert (info["name"], info["kind"], info["file_system"]) == ("orion", "cluster", "lustre")
    assert info["default"] == {"tier": "hdd", "count": 2, "width_bytes": 1 << 20}
    hdd, ssd = info["tiers"]
    assert (hdd["name"], hdd["servers"], hdd["preset"], hdd["pool"]) == ("hdd", 6, "hdd-7200", "hdd_pool")
    assert hdd["capacity_bytes"] == 10_000_000_000_000
    assert hdd["read"] == {
        "startup_min_s": pytest.approx(4e-3),
        "startup_max_s": pytest.approx(12e-3),
        "sequential_startup_s": None,
        "ahead_bytes": 0,
        "bandwidth_bytes_per_s": pytest.approx(80e6),
    }
    assert ssd["preset"] is None and ssd["network_s_per_byte"] == pytest.approx(1e-9)


@pytest.mark.parametrize(
    ("line", "instead", "wanted"),
    [
        ('preset = "hdd-7200"', 'presets = "hdd-7200"', ":11: unknown field `presets`"),
        ("servers = 6", "servers = 0", ":10: tier.servers = 0: write a number of servers from 1 to 4096"),
        ('"lustre"', '"zfs"', ':3: file_system = "zfs": there is lustre, beegfs, cephfs, orangefs'),
        ("[default]", "[default", ":4: "),
    ],
)
def test_a_mistake_names_line_value_and_remedy(cluster_file, line, instead, wanted):
    assert line in CLUSTER
    cluster_file.write_text(CLUSTER.replace(line, instead, 1))
    with pytest.raises(StripewiseError) as error:
        _native.cluster_load(str(cluster_file))
    assert f"{cluster_file}{wanted}" in str(error.value)


def test_a_pool_file_is_taken_in_its_place(emulated):
    for path in (emulated.file, emulated.base):
        info = _native.cluster_load(str(path))
        assert info["kind"] == "pool"
        assert info["default"] == {"tier": None, "count": 3, "width_bytes": 65536}
        assert [(tier["name"], tier["servers"]) for tier in info["tiers"]] == [("hdd", 2), ("ssd", 1)]


def test_any_trace_is_planned_on_a_cluster(trace, cluster_file, tmp_path, pool):
    document = _native.plan_on_cluster(trace, str(cluster_file))
    assert document["root"] == str(pool.mount)
    assert [file["path"] for file in document["files"]] == ["a.bin", "b.bin"]
    before = [file["regions"][0]["round_before"] for file in document["files"]]
    assert before == [["hdd.0-1:1MiB"], ["hdd.2-3:1MiB"]]
    assert document["cost_s"]["plan"] <= document["cost_s"]["default"]
    (tmp_path / "new.layout").write_text(document["layout"])
    layout = _native.layout_read(str(tmp_path / "new.layout"))
    assert layout["pool"] == "orion"
    assert [file["path"] for file in layout["files"]] == ["a.bin", "b.bin"]


def test_planning_is_the_same_code_on_a_pool_and_on_the_cluster_it_is(emulated):
    file = emulated.base / "run.trace"
    emulated.stripewise(
        "trace", "--pool", emulated.file, "-o", file, "--", sys.executable, "-c", WORKLOAD, emulated.mount
    )
    trace = _native.Trace(str(file))
    planned = _native.plan(trace, str(emulated.file), str(emulated.mount))
    described = _native.plan_on_cluster(trace, str(emulated.file), root=str(emulated.mount))
    assert described.pop("root") == str(emulated.mount)
    # Only the pool knows how large its files are.
    assert described["layout"] == planned["layout"]
    assert described["comparison"] == planned["comparison"]


def test_a_directory_without_requests_is_refused(trace, cluster_file):
    with pytest.raises(StripewiseError, match="no read or write of a file below /nowhere; name the directory"):
        _native.plan_on_cluster(trace, str(cluster_file), root="/nowhere")


def test_plan_takes_a_cluster_file(stripewise, cluster_file, tmp_path):
    log, layout = tmp_path / "run.csv", tmp_path / "new.layout"
    rows = (f"/data/a,write,{n << 20},{1 << 20},{n % 4},{n * 10**7},{n * 10**7 + 3 * 10**7}\n" for n in range(64))
    log.write_text("file,op,offset,size,pid,start_ns,end_ns\n" + "".join(rows))
    planned = stripewise("plan", log, "--cluster", cluster_file, "-o", layout)
    assert (
        planned.stdout.startswith("job: run (4 processes)")
        and "\nplan by " in planned.stdout
        and "for cluster 'orion'" in planned.stdout
    )
    assert f"stripewise export {layout} --cluster {cluster_file}" in planned.stderr
    assert "lfs setstripe" in stripewise("export", layout, "--cluster", cluster_file).stdout
    for both in [[], ["--pool", cluster_file, "--cluster", cluster_file]]:
        failed = stripewise("plan", log, *both, "-o", layout, check=False)
        assert failed.returncode == 2 and "--pool POOL or --cluster CLUSTER" in failed.stderr
