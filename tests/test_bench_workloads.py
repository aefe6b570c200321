"""`stripewise bench`: each workload through real MPI, on a plain directory and on a pool with a random layout."""

import csv
import json
import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from conftest import BIN, PATIENCE_S
from test_mpi import random_layout

KIB = 1024

# Name, options, bytes that the file has. Each is small, and uneven where it may be.
WORKLOADS = {
    "ior": (["ior", "-p", 4, "-r", "20KiB", "-s", "1600KiB", "--api", "mpi-io"], 1600 * KIB),
    "ior-collective": (
        ["ior", "-p", 4, "-r", "20KiB", "-s", "1600KiB", "--pattern", "strided", "--api", "mpi-io", "--collective"],
        1600 * KIB,
    ),
    "btio": (["btio", "-p", 4, "--grid", 21, "--steps", 3], 21**3 * 40 * 3),
    "btio-16": (["btio", "-p", 16, "--grid", 14, "--steps", 2], 14**3 * 40 * 2),
    "btio-independent": (["btio", "-p", 4, "--grid", 12, "--steps", 2, "--independent"], 12**3 * 40 * 2),
    # 2 x 1 tiles across the width, each sharing elements with the next.
    "mpi-tile-io": (["mpi-tile-io", "--tile", "37x20", "--overlap", "3x1", "--frames", 3], 71 * 39 * 64 * 3),
    "mpi-tile-io-collective": (
        ["mpi-tile-io", "--tile", "37x20", "--overlap", "3x1", "--frames", 3, "--collective"],
        71 * 39 * 64 * 3,
    ),
    "mpi-io-test": (["mpi-io-test", "-s", "4MiB", "--barrier"], 12 * 5 * 64 * KIB),
    "noncontig": (["noncontig", "-p", 4, "-s", "2MiB", "--buffer", "512KiB"], 2048 * KIB),
    "noncontig-collective": (
        ["noncontig", "-p", 4, "-s", "2MiB", "--buffer", "512KiB", "--width", 4, "--collective"],
        2048 * KIB,
    ),
    "hpio": (
        ["hpio", "-p", 3, "--region-count", 48, "--region-size", "10000"],
        48 * 3 * 10_010 - 10,
    ),
    "hpio-collective": (
        ["hpio", "-p", 3, "--region-count", 48, "--region-size", "10000", "--collective"],
        48 * 3 * 10_010 - 10,
    ),
    "hpio-contiguous": (
        ["hpio", "-p", 3, "--region-count", 48, "--region-size", "10000", "--file-regions", "contiguous"],
        48 * 3 * 10_000,
    ),
    "hpio-memory-contiguous": (
        ["hpio", "-p", 3, "--region-count", 48, "--region-size", "10000", "--memory-regions", "contiguous"],
        48 * 3 * 10_010 - 10,
    ),
    "song": (["song", "-p", 3, "--loops", 2, "--api", "mpi-io"], 3 * 2 * 256 * KIB),
    "lanl-app1": (["lanl-app1", "-p", 3, "--loops", 3, "--api", "mpi-io"], 3 * 3 * 256 * KIB),
}


def has_gaps(name):
    return name.startswith("hpio") and name != "hpio-contiguous"


def without_gaps(name, data):
    """The bytes that are written: ROMIO leaves whatever it had between hpio's regions."""
    if not has_gaps(name):
        return data
    return b"".join(data[start : start + 10_000] for start in range(0, len(data), 10_010))


def report_of(done):
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", WORKLOADS)
def test_mpi_puts_every_byte_where_plain_calls_do(name, stripewise, tmp_path):
    """What a view means to the MPI library is what it means to us: the same file by MPI-IO and by pwrite."""
    (workload, *options), size = WORKLOADS[name]
    plain_options = [option for option in options if option not in ("mpi-io", "--api", "--collective", "--independent")]
    checks = ["--verify", "inline", "--read-shift", 1, "--json"]
    report = report_of(stripewise("bench", workload, tmp_path / "mpi", *options, *checks, check=False))
    assert report["api"] == "mpi-io"
    assert "MPI" in report["mpi_library"]
    assert report["verified_bytes"] == report["phases"][1]["bytes"]
    stripewise("bench", workload, tmp_path / "plain", *plain_options, "--api", "pread", "--write", "--verify")
    written, plain = (tmp_path / "mpi").read_bytes(), (tmp_path / "plain").read_bytes()
    assert len(written) == size
    assert without_gaps(name, written) == without_gaps(name, plain)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_pool_has_the_same_bytes(name, pool, tmp_path):
    """Every rank checks what another one wrote, then a process without the preload library reads the whole file."""
    (workload, *options), size = WORKLOADS[name]
    plain_options = [option for option in options if option not in ("mpi-io", "--api", "--collective", "--independent")]
    file = pool.mount / "shared"
    pool.apply(random_layout(name))
    command = ["stripewise", "bench", workload, file, *options, "--verify", "--read-shift", 1, "--json"]
    report = report_of(pool.run(*command, check=False))
    covered = size - (48 * 3 - 1) * 10 if has_gaps(name) else size
    assert report["verified_bytes"] == covered
    pool.stripewise("bench", workload, tmp_path / "plain", *plain_options, "--api", "pread", "--write", "--verify")
    pool.run("cp", file, tmp_path / "copy", preload=False)
    written, plain = (tmp_path / "copy").read_bytes(), (tmp_path / "plain").read_bytes()
    assert len(written) == size
    assert without_gaps(name, written) == without_gaps(name, plain)


@pytest.mark.parametrize("way", ["directory", "pool"])
def test_a_wrong_byte_ends_the_run(way, pool, tmp_path):
    file = (pool.mount if way == "pool" else tmp_path) / "shared"
    pool.apply(random_layout(7))
    bench = ["stripewise", "bench", "noncontig", file, "-p", "4", "-s", "2MiB", "--buffer", "512KiB"]
    pool.run(*bench, "--write", "--verify")
    flip = (
        "import sys; f = open(sys.argv[2], 'r+b'); f.seek(1234567); old = f.read(1)[0]; f.seek(1234567); "
        "f.write(bytes([old ^ 1])); f.close(); print(f'{old:02x} {old ^ 1:02x}')"
    )
    old, new = pool.python(flip, file).stdout.split()
    for collective in ([], ["--collective"]):
        done = pool.run(*bench, "--read", "--verify", "inline", *collective, check=False)
        assert done.returncode == 1
        assert done.stdout == ""
        assert "VERIFICATION FAILED" in done.stderr
        assert f"{file} at offset 1234567: expected [{old}" in done.stderr
        assert f"found [{new}" in done.stderr


def recorded(pool, trace, operation):
    """Offsets and sizes of the MPI-IO calls of each rank, in the order of their start."""
    text = pool.stripewise("show", trace, "--csv", "-").stdout
    calls = defaultdict(list)
    rows = [row for row in csv.DictReader(text.splitlines()) if row["api"] == "MPI-IO" and row["op"] == operation]
    for row in sorted(rows, key=lambda row: int(row["start_ns"])):
        calls[int(row["rank"])].append((int(row["offset"]), int(row["size"])))
    return calls


def traced(pool, *command):
    trace = pool.base / "run.trace"
    pool.stripewise("trace", "--pool", pool.file, "-o", trace, "--", "stripewise", "bench", *command)
    return trace


def test_the_trace_has_the_requests_of_mpi_io_test(pool):
    trace = traced(pool, "mpi-io-test", pool.mount / "shared", "-s", "2MiB", "--read-shift", 1)
    rounds = (2 << 20) // (5 * 64 * KIB)
    for operation, shift in (("write", 0), ("read", 1)):
        expected = {
            rank: [((number * 5 + (rank + shift) % 5) * 64 * KIB, 64 * KIB) for number in range(rounds)]
            for rank in range(5)
        }
        assert recorded(pool, trace, operation) == expected


@pytest.mark.parametrize("collective", [False, True], ids=["independent", "collective"])
def test_the_trace_has_the_requests_of_noncontig(pool, collective):
    options = ["-p", 4, "-s", "1MiB", "--width", 512, "--buffer", "256KiB", *(["--collective"] if collective else [])]
    trace = traced(pool, "noncontig", pool.mount / "shared", *options)
    # 128 rows of 4 columns at once, so a request is 64 KiB of a column and begins 256 KiB after the one before it.
    expected = {rank: [(number * 256 * KIB + rank * 512, 64 * KIB) for number in range(4)] for rank in range(4)}
    for operation in ("write", "read"):
        assert recorded(pool, trace, operation) == expected


def test_ranks_may_be_started_by_hand(stripewise, tmp_path):
    def by_hand(ranks):
        command = [BIN / "mpiexec", "-n", str(ranks), BIN / "stripewise", "bench", "mpi-io-test", tmp_path / "file"]
        options = ["-p", "2", "--instances", "2", "-s", "1MiB", "--verify"]
        return subprocess.run([*command, *options], capture_output=True, text=True, timeout=PATIENCE_S)

    done = by_hand(4)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("mpi-io-test: 2 instances of 2 processes") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"file.0", "file.1"}
    wrong = by_hand(3)
    assert wrong.returncode != 0
    assert "MPI has 3 ranks and the run 4 processes" in wrong.stderr


def test_an_mpi_library_of_another_abi_is_refused(stripewise, tmp_path):
    library = BIN.parent / "lib" / "libmpi_abi.so.1"
    assert library.exists()
    done = stripewise("bench", "mpi-io-test", tmp_path / "file", "--mpi-library", library, check=False)
    assert done.returncode == 1
    assert "standard ABI" in done.stderr
    assert "--mpi-library" in done.stderr
    assert not (tmp_path / "file").exists()


def shown_commands():
    page = (Path(__file__).parent.parent / "docs" / "workloads.md").read_text()
    return re.findall(r"`stripewise (bench [a-z0-9-]+ FILE[^`]*)`", page)


def test_the_papers_command_lines_are_understood(stripewise, tmp_path):
    """Each is worked out to its last process, which `--mpiexec` then cannot start."""
    commands = shown_commands()
    assert {command.split()[1] for command in commands} == {options[0] for options, _ in WORKLOADS.values()}
    for command in commands:
        words = command.replace("FILE", str(tmp_path / "file")).split()
        api = [] if "--api" in words else ["--api", "mpi-io"]
        done = stripewise(*words, *api, "--mpiexec", "/no/mpiexec", check=False)
        assert (done.returncode, done.stderr) == (1, "stripewise-bench: no --mpiexec /no/mpiexec\n"), command


def test_hints_reach_the_library(pool):
    """Without data sieving a rank writes its column block by block: the trace has one system call for each row."""

    def writes(*hints):
        file = pool.mount / f"shared{len(hints)}"
        trace = traced(pool, "noncontig", file, "-p", 2, "-s", "64KiB", "--write", *hints)
        rows = csv.DictReader(pool.stripewise("show", trace, "--csv", "-").stdout.splitlines())
        return [row for row in rows if row["file"] == str(file) and row["api"] == "POSIX" and row["op"] == "write"]

    assert len(writes("--hint", "romio_ds_write=disable")) == 2 * 64
    assert len(writes()) < 2 * 64
