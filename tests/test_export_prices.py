"""What a translation costs: native prices against the cost model's own, and the choice that they lead to."""

import json
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from native_readers import beegfs_of_existing
from stripewise import _native, exporters
from stripewise.exporters import pricing
from stripewise.exporters.exporter import Hashed, Region, Rounds, Source
from test_export import document_of

HDD = {"name": "hdd", "servers": 3, "read": (1e-3, 3e-3, 1e-8), "write": (2e-3, 4e-3, 2e-8), "network_s_per_byte": 5e-9}
SSD = {"name": "ssd", "servers": 2, "read": (1e-4, 2e-4, 2e-9), "write": (1e-4, 2e-4, 3e-9), "network_s_per_byte": 0.0}
CLUSTER = [HDD, SSD]


def steps(*requests):
    """One row a request: file, offset, size, kind."""
    columns = list(zip(*requests, strict=True))
    types = {"file": np.uint32, "offset": np.uint64, "size": np.uint64, "kind": np.uint8}
    rows = len(requests)
    given = {name: np.array(column, of) for (name, of), column in zip(types.items(), columns, strict=True)}
    return {"process": np.zeros(rows, np.uint32), "think_s": np.zeros(rows), **given}


stripes = st.tuples(st.integers(0, 4), st.integers(1, 1 << 20))
rounds = st.lists(stripes, min_size=1, max_size=5, unique_by=lambda stripe: stripe[0])
requests = st.tuples(st.integers(0, 1), st.integers(0, 1 << 24), st.integers(0, 1 << 23), st.integers(0, 1))


@given(
    st.lists(st.dictionaries(st.integers(1, 1 << 23), rounds, max_size=3), min_size=2, max_size=2),
    rounds,
    st.lists(requests, min_size=1, max_size=20),
    st.floats(1, 64),
)
@settings(max_examples=200)
def test_without_repeats_the_price_is_that_of_a_layout(later, first, asked, processes):
    layouts = [[(0, first), *sorted(regions.items())] for regions in later]
    table = steps((0, 0, 1, 0), (1, 0, 1, 0), *asked)
    priced = _native.price_generated(CLUSTER, layouts, table, processes)["theta_s"]
    assert _native.price_native(CLUSTER, layouts, table, processes) == pytest.approx(priced, rel=1e-9)


def test_a_repeated_server_pays_a_startup_for_each_object():
    table = steps((0, 0, 300_000, 0))
    once = _native.price_native(CLUSTER, [[(0, [(0, 200_000), (3, 100_000)])]], table, 1.0)
    twice = _native.price_native(CLUSTER, [[(0, [(0, 100_000), (0, 100_000), (3, 100_000)])]], table, 1.0)
    # The second object's mean startup; the other server has long ended.
    assert twice - once == pytest.approx(2e-3, rel=1e-9)
    # As a bottleneck too: twice the startups with very many processes.
    busy = [_native.price_native(CLUSTER, [[(0, [(0, 100_000)] * n)]], table, 1e9) for n in (1, 3)]
    assert busy[1] - busy[0] == pytest.approx(2 * 2e-3, rel=1e-6)


def test_a_hash_over_one_server_is_that_server_and_over_many_it_is_uneven():
    table = steps(*[(0, n << 20, 1 << 20, n % 2) for n in range(64)])
    hashed = {"unit_bytes": 1 << 18, "count": 1, "object_bytes": 1 << 22, "servers": [4]}
    plain = _native.price_native(CLUSTER, [[(0, [(4, 1 << 18)])]], table, 8.0)
    assert _native.price_native(CLUSTER, [hashed], table, 8.0) == pytest.approx(plain, rel=1e-9)
    spread = {**hashed, "count": 3, "servers": [0, 1, 2]}
    even = _native.price_native(CLUSTER, [[(0, [(n, 1 << 18) for n in range(3)])]], table, 1e6)
    uneven = _native.price_native(CLUSTER, [spread], table, 1e6)
    assert even < uneven < 3 * even


def test_requests_of_any_length_are_priced_in_no_time():
    table = steps((0, 0, (1 << 63) - 1, 0), (0, (1 << 63) - 1, 1 << 40, 1))
    hashed = {"unit_bytes": 65536, "count": 7, "object_bytes": 1 << 22, "servers": [0, 1, 2]}
    assert _native.price_native(CLUSTER, [hashed], table, 4.0) > 1e6
    assert _native.price_native(CLUSTER, [[(0, [(0, 1), (0, 1)])]], table, 4.0) > 1e6


@pytest.mark.parametrize(
    ("placed", "message"),
    [
        ([(0, [(9, 65536)])], "server 9 has no profile"),
        ([(0, [(0, 0)])], "width 0"),
        ([], "at least one region"),
        ({"unit_bytes": 0, "count": 1, "object_bytes": 1, "servers": [0]}, "no layout"),
        ({"unit_bytes": 1, "count": 1, "object_bytes": 1, "servers": []}, "no layout"),
    ],
)
def test_what_is_no_layout_has_no_price(placed, message):
    with pytest.raises(_native.StripewiseError, match=message):
        _native.price_native(CLUSTER, [placed], steps((0, 0, 10, 0)), 1.0)


def test_the_stand_in_is_the_same_every_time_and_within_its_regions():
    regions = (
        Region(0, 1000, (("hdd.0", 64),)),
        Region(1000, 5000, (("ssd.0", 1 << 40),)),
        Region(5000, None, (("hdd.1", 7),)),
    )
    source = Source("f", "f", False, regions)
    first, second = pricing.stand_in(source).steps, pricing.stand_in(source).steps
    for column in first:
        assert (first[column] == second[column]).all()
    for region in regions:
        begun = (first["offset"] >= region.start) & (first["offset"] < (region.end or 1 << 62))
        assert begun.sum() == 4 * pricing.STAND_IN_REQUESTS
        assert (first["offset"][begun] + first["size"][begun] <= (region.end or 1 << 62)).all()


def tier(of, capacity_bytes):
    """As `cluster_load` has it."""
    keys = ("startup_min_s", "startup_max_s", "bandwidth_bytes_per_s")
    costs = {op: dict(zip(keys, (*of[op][:2], 1 / of[op][2]), strict=True)) for op in ("read", "write")}
    return {**of, **costs, "preset": None, "capacity_bytes": capacity_bytes, "pool": None}


def test_a_tier_without_room_is_not_taken():
    """Both regions on SSDs would be faster; with 1 MB of them the file stays where it fits."""
    document = document_of("f", (0, [("hdd.0", 65536), ("hdd.1", 65536), ("hdd.2", 65536), ("ssd.0", 131072)]))
    table = steps(*[(0, n * 131072, 131072, n % 2) for n in range(64)])
    chosen = {}
    workloads = {"f": pricing.Workload(table, 4.0, 1)}
    for room in (None, 500_000):
        cluster = {"name": "p", "kind": "pool", "file_system": "beegfs", "tiers": [tier(HDD, None), tier(SSD, room)]}
        cluster["default"] = {"tier": None, "count": 5, "width_bytes": 65536}
        (file,) = exporters.export(document, cluster=cluster, workloads=workloads).files
        chosen[room is not None] = (file.native.pool, file.loss_ratio)
    assert chosen[False][0] == "ssd" and chosen[False][1] < 1
    assert chosen[True][0] == "hdd" and chosen[True][1] > chosen[False][1]


def test_bytes_by_tier_add_up():
    rounds = Rounds(((0, (("meta", 100),)), (100, (("hdd.0", 1), ("ssd.0", 3))), (300, (("hdd.1", 5),))))
    assert pricing.bytes_by_tier(rounds, 400) == [("meta", 100.0), ("hdd", 50.0 + 100.0), ("ssd", 150.0)]
    assert pricing.bytes_by_tier(rounds, 150) == [("meta", 100.0), ("hdd", 12.5), ("ssd", 37.5)]
    assert pricing.bytes_by_tier(Hashed(1, 1, 1, ("ssd.0", "ssd.1")), 7) == [("ssd", 7.0)]


# Traces and cluster files

WORKLOAD = """
import os, sys
fd = os.open(sys.argv[1] + "/data.bin", os.O_RDWR | os.O_CREAT, 0o644)
for n in range(24):
    os.pwrite(fd, bytes(196608), n * 196608)
for n in (3, 17, 0, 9, 12, 1, 19, 6):
    os.pread(fd, 65536, n * 196608)
"""
LAYOUT = """
version = 1
pool = "{pool}"
[[file]]
path = "*.bin"
[[file.region]]
offset = "0"
round = ["hdd.0-1:64KiB"]
[[file.region]]
offset = "1MiB"
round = ["hdd.0-1:64KiB", "ssd.0:64KiB"]
"""


def test_a_trace_decides(emulated):
    trace, layout = emulated.base / "run.trace", emulated.base / "new.layout"
    program = [sys.executable, "-c", WORKLOAD, emulated.mount]
    emulated.stripewise("trace", "--pool", emulated.file, "-o", trace, "--", *program)
    layout.write_text(LAYOUT.format(pool="emulated"))

    def ratio(*arguments):
        arguments = ("export", layout, "--to", "beegfs", "--pool", emulated.file, "--json", *arguments)
        document = json.loads(emulated.stripewise(*arguments).stdout)
        (file,) = document["files"]
        return document["workload"], file["loss_ratio"], file["commands"][0]["arguments"]

    words, with_trace, taken = ratio("--trace", trace)
    assert words == f"{pricing.OF_TRACE}, on emulated servers"
    stand_in, made_up, first = ratio()
    assert stand_in == f"{pricing.STAND_IN}, on emulated servers"
    assert with_trace != made_up
    # One file is not many processes: on the SSD alone its requests are fastest; the layout's own tier comes first.
    assert taken[-2:] == ["ssd", "."] and first[-2:] == ["hdd", "."]
    options = ("--to", "beegfs", "--pool", emulated.file, "--trace", trace, "--trace-root", "/nowhere")
    done = emulated.stripewise("export", layout, *options, check=False)
    assert done.returncode == 1
    assert "no read or write of a file of the layout below /nowhere" in done.stderr


CLUSTER_FILE = """
name = "orion"
file_system = "beegfs"
[default]
tier = "hdd"
count = 3
width = "512KiB"
[[tier]]
name = "hdd"
servers = 6
preset = "hdd-7200"
pool = "disk_pool"
[[tier]]
name = "ssd"
servers = 3
preset = "ssd-sata"
"""


def test_a_cluster_file_names_file_system_pools_and_the_present_layout(tmp_path, stripewise):
    cluster, layout = tmp_path / "orion.toml", tmp_path / "new.layout"
    cluster.write_text(CLUSTER_FILE)
    head = 'version = 1\npool = "orion"\n'
    file = '[[file]]\npath = "{path}"\n[[file.region]]\noffset = "0"\nround = ["{round}"]\n'
    rounds = {"pool": "ssd.0-2:512KiB", "same": "hdd.0-2:512KiB", "width": "ssd.0-2:1MiB"}
    layout.write_text(head + "".join(file.format(path=path, round=round) for path, round in rounds.items()))
    done = json.loads(stripewise("export", layout, "--cluster", cluster, "--existing", "--json").stdout)
    commands = {file["pattern"]: [c["shell"] for c in file["commands"]] for file in done["files"]}
    assert done["to"] == "beegfs"
    assert commands["pool"] == ["beegfs entry migrate --from-pools disk_pool --pool ssd pool"]
    assert commands["same"] == []
    assert commands["width"][1] == (
        "beegfs entry create file --chunk-size 1Mi --num-targets 3 --pool ssd .stripewise-new.width"
    )
    present = exporters.Present("disk_pool", 3, 512 << 10)
    described = _native.cluster_load(str(cluster))
    read = exporters.export(_native.layout_read(str(layout)), cluster=described, existing=True)
    for file in read.files[:2]:
        assert beegfs_of_existing(file.commands, present) == file.native
    mapped = stripewise("export", layout, "--cluster", cluster, "--pool-map", "ssd=flash", "--to", "lustre").stdout
    assert "-p flash pool" in mapped and "-p disk_pool same" in mapped


def test_a_pool_without_profiles_is_not_priced(pool):
    layout = pool.base / "new.layout"
    layout.write_text(LAYOUT.format(pool="test"))
    done = pool.stripewise("export", layout, "--to", "cephfs", "--pool", pool.file)
    assert "has no profile: what is lost is not priced" in done.stderr
    assert "predicted" not in done.stdout
