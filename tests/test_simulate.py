"""`stripewise simulate`: what it prints, that it can be worked out, and what it refuses."""

import json
import re
import sys
from pathlib import Path

import darshan
import numpy as np
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
    shown = simulate("--layout", layout, env={"COLUMNS": "80"}).stdout
    assert f"layout / present: {ratio:.2f}x" in shown
    assert re.search(r"^hdd\.0 +\d+ ", shown, flags=re.MULTILINE)


def test_a_file_without_a_handle_is_served_by_the_metadata_tier(traced):
    pool, simulate = traced
    _native.pool_write_profile(str(pool.file), "meta", FIXED, [2e-3, 2e-3, 2e-9])
    tree = next(path for disk in pool.servers() for path in disk.glob(".*-names")) / "tree"
    (tree / "data.bin").unlink()
    (tree / "data.bin").write_bytes(b"")
    document = as_json(simulate("--layout", pool.base / "ssd.layout", "--json"))
    meta = document["present"]["servers"][-1]
    assert (meta["name"], meta["requests"], meta["bytes"]) == ("meta", 28, 20 * 131072 + 8 * 65536)
    # As on the one server of the other layout, which has the same profile.
    assert document["ratio"]["mean"] == pytest.approx(1.0, rel=1e-9)
    assert [server["name"] for server in document["layout"]["servers"]] == ["hdd.0", "hdd.1", "hdd.2", "ssd.0"]
    assert re.search(r"^meta +28 ", simulate().stdout, flags=re.MULTILINE)


def test_an_emulated_metadata_tier_serves_the_names_of_the_trace(traced):
    pool, simulate = traced
    plain = as_json(simulate("--json"))["present"]
    assert [server["name"] for server in plain["servers"]] == ["hdd.0", "hdd.1", "hdd.2", "ssd.0"]
    op = '{ startup = ["50ms", "50ms"], bandwidth = "1GB/s" }'
    with pool.file.open("a") as file:
        file.write(f"\n[meta.emulate]\nread = {op}\nwrite = {op}\nat_once = 2\n")
    found = as_json(simulate("--json"))["present"]
    meta = found["servers"][-1]
    assert (meta["name"], meta["bytes"]) == ("meta", 0) and meta["requests"] > 0
    assert found["makespan_s"]["mean"] >= plain["makespan_s"]["mean"] + 50e-3


def test_a_real_metadata_tier_serves_the_names_of_the_trace_at_their_measured_cost(pool):
    for tier in ("hdd", "ssd"):
        _native.pool_write_profile(str(pool.file), tier, FIXED, [2e-3, 2e-3, 2e-9])
    trace = pool.base / "run.trace"
    script = 'cd "$1"; for n in 1 2 3; do echo bytes > $n; mv $n a$n; cat a$n; rm a$n; done'
    pool.stripewise("trace", "--pool", pool.file, "-o", trace, "--", "sh", "-c", script, "sh", pool.mount)

    def took_s():
        present = as_json(pool.stripewise("simulate", trace, "--pool", pool.file, "--json"))["present"]
        return present["makespan_s"]["mean"], present["servers"][-1]

    assert took_s()[1]["name"] == "ssd.0"
    # The tier serves one at a time, and nothing else takes as long: looks and changes count apart.
    _native.pool_write_names(str(pool.file), [0.0, 0.0], [1.0, 1.0])
    changes_s, meta = took_s()
    changes = round(changes_s)
    assert meta["name"] == "meta" and changes_s == pytest.approx(changes, abs=0.2)
    # Each file is made and removed; a rename is of one of its two names, or of both.
    assert changes >= 6
    _native.pool_write_names(str(pool.file), [1.0, 1.0], [0.0, 0.0])
    assert took_s()[0] == pytest.approx(meta["requests"] - changes, abs=0.2)


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


MPI_PROGRAM = """
import sys
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, ranks = comm.Get_rank(), comm.Get_size()
file = MPI.File.Open(comm, sys.argv[1] + "/shared", MPI.MODE_CREATE | MPI.MODE_RDWR)
# What the ranks bring is interleaved: one aggregator writes it, in calls of all.
columns = MPI.BYTE.Create_vector(16, 4096, 4096 * ranks).Commit()
def together(number):
    file.Set_view(number * 65536 * ranks + rank * 4096, MPI.BYTE, columns)
    file.Write_all(np.full(65536, rank + 1, np.uint8))
    file.Set_view(0, MPI.BYTE, MPI.BYTE)
for number in range(12):
    together(number)
comm.Barrier()
# Another rank reads alone, and the first one.
buffer = np.empty(65536, np.uint8)
if rank == ranks - 1:
    for number in range(9):
        file.Read_at(number * 65536, buffer)
together(12)
if rank == 0:
    file.Read_at(0, buffer)
together(13)
file.Close()
# Calls of one rank alone are of no interest.
own = MPI.File.Open(MPI.COMM_SELF, f"{sys.argv[1]}/own.{rank}", MPI.MODE_CREATE | MPI.MODE_RDWR)
own.Write_at_all(0, buffer)
own.Close()
"""


def fix_profiles(pool):
    for tier in ("hdd", "ssd"):
        _native.pool_write_profile(str(pool.file), tier, FIXED, FIXED)


def replayed(pool, *command):
    """A real program, traced and simulated on what it ran on; and what the trace itself says of its requests."""
    trace = pool.base / "run.trace"
    pool.stripewise("trace", "--pool", pool.file, "-o", trace, "--", *command)
    document = as_json(pool.stripewise("simulate", trace, "--pool", pool.file, "--json", "--repeat", 1))
    recorded = _native.Trace(str(trace))
    of_pool = [number for number, file in enumerate(recorded.files()) if file.is_relative_to(pool.mount)]
    columns = recorded.columns(requests_only=True)
    mine = np.isin(columns["file"], of_pool)
    return document, {name: column[mine] for name, column in columns.items()}


def test_ranks_wait_for_each_other_where_the_program_made_them(pool):
    """Nothing overlaps: all wait for the aggregator, then for those who read; only at the end all write at once."""
    fix_profiles(pool)
    document, requests = replayed(pool, "mpiexec", "-n", "4", sys.executable, write(pool, MPI_PROGRAM), pool.mount)
    assert document["collectives"] == 14 + 4
    assert (document["processes"], document["requests"]) == (4, 14 + 10 + 4) == (4, len(requests["size"]))
    present = document["present"]
    assert present["written_bytes"] == 4 * 14 * 65536 + 4 * 65536
    assert present["read_bytes"] == 10 * 65536
    assert present["read_bytes"] + present["written_bytes"] == requests["size"].sum()
    # A call's 256 KiB are a piece of 64 KiB on each of the four servers; the last four go to the same server.
    piece_s = 1e-3 + 65536e-9
    assert present["makespan_s"]["mean"] == pytest.approx((14 + 10 + 4) * piece_s, abs=1e-7)
    assert present["makespan_s"]["mean"] < document["traced_s"]


def test_the_calls_of_btio_are_counted(pool):
    fix_profiles(pool)
    bench = ["stripewise", "bench", "btio", pool.mount / "bt.out", "--class", "S", "--steps", "5", "--processes", "4"]
    document, requests = replayed(pool, *bench)
    # Five steps are written, then read; one aggregator moves each as a whole.
    assert document["collectives"] == 10
    assert document["requests"] == len(requests["size"]) == 10
    present = document["present"]
    assert present["read_bytes"] == present["written_bytes"] == 5 * 12**3 * 40
    # By 4 ranks, of which three only take part.
    assert document["processes"] == 4


@pytest.mark.parametrize("collective", [True, False], ids=["collective", "independent"])
def test_the_calls_of_ior_are_counted(pool, collective):
    fix_profiles(pool)
    sizes = ["--processes", "4", "--request-size", "64KiB", "--file-size", "16MiB"]
    options = ["--api", "mpi-io", *(["--collective"] if collective else []), *sizes]
    document, requests = replayed(pool, "stripewise", "bench", "ior", pool.mount / "ior.dat", *options)
    assert document["collectives"] == (2 * 64 if collective else 0)
    assert document["requests"] == len(requests["size"]) == 2 * 256
    assert document["present"]["read_bytes"] == document["present"]["written_bytes"] == 16 << 20


def test_phases_of_programs_without_mpi_end_where_nothing_is_under_way(emulated):
    """Four processes write, meet, and read: barriers are in no trace, the quiet moment between the phases is."""
    sizes = ["--processes", "4", "--request-size", "64KiB", "--file-size", "8MiB"]
    document, _ = replayed(emulated, "stripewise", "bench", "ior", emulated.mount / "ior.dat", *sizes)
    assert (document["collectives"], document["phases"]) == (0, 2)


CLUSTER = """
name = "test"
file_system = "lustre"
[default]
tier = "hdd"
count = 1
width = "1MiB"
[[tier]]
name = "hdd"
servers = 3
[tier.read]
startup = ["1ms", "1ms"]
bandwidth = "1GB/s"
[tier.write]
startup = ["1ms", "1ms"]
bandwidth = "1GB/s"
[[tier]]
name = "ssd"
servers = 1
preset = "nvme"
"""


def test_a_trace_is_simulated_on_a_cluster_that_is_not_there(traced):
    pool, _ = traced
    cluster = pool.base / "cluster.toml"
    cluster.write_text(CLUSTER)

    def simulate(*arguments, **options):
        trace = pool.base / "run.trace"
        return pool.stripewise("simulate", trace, "--cluster", cluster, "--root", pool.mount, *arguments, **options)

    document = as_json(simulate("--json", "--repeat", 1))
    # Files have the cluster's default layout: one server of three, whatever they have in the pool.
    took_s = 20 * (1e-3 + 131072e-9) + 8 * (1e-3 + 65536e-9)
    assert document["present"]["makespan_s"]["mean"] == pytest.approx(took_s, abs=1e-7)
    assert [server["requests"] for server in document["present"]["servers"]] == [28, 0, 0, 0]
    replayed = (
        "\nsimulated on cluster 'test' as described, not fitted to the log, 5 runs\n1 process, 28 requests, 1 phase; "
    )
    assert replayed in simulate().stdout
    document = as_json(simulate("--json", "--layout", pool.base / "ssd.layout"))
    assert [server["requests"] for server in document["layout"]["servers"]] == [0, 0, 0, 28]
    assert document["ratio"]["mean"] > 1
    # Without a root: the directory of all files, of which there are more than the pool's.
    everything = as_json(pool.stripewise("simulate", pool.base / "run.trace", "--cluster", cluster, "--json"))
    assert everything["requests"] >= 28
    other = pool.base / "other.layout"
    other.write_text(LAYOUT.replace('pool = "test"', 'pool = "else"'))
    done = simulate("--layout", other, check=False)
    assert done.returncode == 1 and "is for pool 'else', not for 'test'" in done.stderr


def test_a_pool_or_a_cluster_must_be_named(traced):
    pool, _ = traced
    done = pool.stripewise("simulate", pool.base / "run.trace", check=False)
    assert done.returncode == 2 and "--pool POOL or --cluster CLUSTER" in done.stderr


def test_a_log_of_another_tool_is_simulated(stripewise, tmp_path):
    """The example logs that come with PyDarshan have what they have: all of their bytes move."""
    logs = Path(darshan.__file__).parent / "examples" / "example_logs"
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(CLUSTER)
    log = logs / "ior_hdf5_example.darshan"
    done = stripewise("simulate", log, "--cluster", cluster, "--json", "--repeat", 1)
    document = as_json(done)
    ours = tuple(document["files"])
    files = [file for file in as_json(stripewise("show", log, "--json"))["files"] if file["path"].endswith(ours)]
    read, written = (sum(file[op]["bytes"] for file in files) for op in ("reads", "writes"))
    assert (document["present"]["read_bytes"], document["present"]["written_bytes"]) == (read, written)
    assert read + written > 0 and document["about"]["format"]


def write(pool, program):
    file = pool.base / "program.py"
    file.write_text(program)
    return file


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


def test_the_emulated_disks_of_a_pool_are_simulated_without_being_asked_for(emulated):
    trace = emulated.base / "run.trace"
    emulated.stripewise(
        "trace", "--pool", emulated.file, "-o", trace, "--", sys.executable, "-c", WORKLOAD, emulated.mount
    )

    def simulate(*options):
        done = emulated.stripewise("simulate", trace, "--pool", emulated.file, "--seed", 7, "--json", *options)
        document = as_json(done)
        return document["present"]["makespan_s"]

    plain, asked = simulate(), simulate("--queue", "hdd=elevator", "--seek", "hdd=1TB")
    assert plain != asked
    text = emulated.file.read_text()
    disk = '{ preset = "hdd-7200", disk = { queue = "elevator", size = "1TB" } }'
    emulated.file.write_text(text.replace('emulate = "hdd-7200"', f"emulate = {disk}"))
    assert simulate() == asked
    assert simulate("--queue", "hdd=fifo") == simulate("--queue", "hdd=fifo", "--seek", "hdd=1TB")
