"""Signatures: of real logs and of programs that do known things; the command; the page of docs/."""

import json
import os
import re
import sys
from pathlib import Path

import darshan
import numpy as np
import polars as pl
import pytest

from stripewise import StripewiseError, _native

FOLDERS = [Path(darshan.__file__).parent] + [
    Path(os.environ[name]) for name in ["STRIPEWISE_TEST_DATA"] if name in os.environ
]
LOGS = sorted(log for folder in FOLDERS for log in folder.rglob("*.darshan"))
PAGE = Path(__file__).parent.parent / "docs" / "signature.md"
OFFSET_UNKNOWN = 32

PROGRAM = """
import os, random, sys
random.seed(1)
K, M = 1 << 10, 1 << 20

def go(name, steps):
    fd = os.open(os.path.join(sys.argv[1], name), os.O_RDWR | os.O_CREAT, 0o644)
    os.ftruncate(fd, 64 * M)
    for op, offset, size in steps:
        assert (os.pwrite(fd, b"x" * size, offset) if op == "W" else len(os.pread(fd, size, offset))) == size
    os.close(fd)

go("contiguous", [("W", i * 4 * K, 4 * K) for i in range(100)])
go("strided", [("R", i * 64 * K, 100) for i in range(100)])
go("backwards", [("R", (99 - i) * 64 * K, 100) for i in range(100)])
go("cube", [("R", a * 8 * M + b * M + c * 8 * K, 64) for a in range(6) for b in range(5) for c in range(10)])
go("both", [("W", i * 4 * K, 4 * K) for i in range(50)] + [("R", (49 - i) * M, 512) for i in range(50)])
near = [("R", i * 32 * K, 512) for i in range(400)]
for stray in (77, 191, 333):
    near[stray] = ("W", 3, 7)
go("near", near)
go("random", [("R", random.randrange(63 * M), random.randrange(1, 5000)) for i in range(300)])
"""


def rows_of(trace):
    """Requests at known offsets, in order of process and start, in the plainest way."""
    frame = pl.DataFrame(trace.columns(requests_only=True))
    frame = frame.filter(pl.col("flags") & OFFSET_UNKNOWN == 0)
    order = ["file", "program", "rank", "pid", "start_ns"]
    writes = {number: name == "write" for number, name in trace.names()["op"].items()}
    frame = frame.with_columns(write=pl.col("op").replace_strict(writes, return_dtype=pl.Boolean).cast(pl.UInt8))
    return frame.sort(order, maintain_order=True)


def expanded_equals_trace(trace):
    signed = _native.TraceSignature(trace)
    rows = rows_of(trace)
    processes = signed.processes()
    parts = rows.partition_by("file", "program", "rank", "pid", maintain_order=True)
    assert len(parts) == len(processes)
    programs = trace.programs()
    for part, process in zip(parts, processes, strict=True):
        first = part.row(0, named=True)
        known = (first["file"], programs[first["program"]], first["rank"], first["pid"])
        assert known == (process["file"], process["program"], process["rank"], process["pid"])
        expanded = signed.expand(process["file"], process["process"])
        for column in ("write", "offset", "size"):
            assert np.array_equal(part[column].to_numpy(), expanded[column]), (known, column)
        assert process["requests"] == part.height
        if process["parts"] <= 1000:
            again = _native.signature_expand(signed.text(process["file"], process["process"]), part.height + 1)
            assert all(np.array_equal(again[column], expanded[column]) for column in expanded)
    assert signed.check() == rows.height
    assert sum(file["requests"] for file in signed.files()) == rows.height
    assert sum(program["requests"] for program in signed.programs()) == rows.height
    return rows.height


@pytest.mark.parametrize("log", LOGS, ids=lambda log: f"{log.parent.name}-{log.stem}"[:60])
def test_signatures_of_real_logs_expand_to_their_requests(log):
    expanded_equals_trace(_native.Trace(str(log)))


@pytest.fixture
def traced(stripewise, tmp_path):
    trace = tmp_path / "run.trace"
    stripewise("trace", "-o", trace, "--", sys.executable, "-c", PROGRAM, tmp_path)
    return trace


def test_what_a_program_does_is_found(traced, stripewise, tmp_path):
    assert expanded_equals_trace(_native.Trace(str(traced))) == 1400
    document = json.loads(stripewise("signature", traced, "--json", "--file", f"{tmp_path}/*").stdout)
    files = {Path(file["path"]).name: file for file in document["files"]}
    texts = {Path(process["path"]).name: process["signature"] for process in document["processes"]}
    expected = {
        "contiguous": ("contiguous", "writes 400 KiB in 100 pieces of 4 KiB, from 0 B"),
        "strided": ("fixed-strided", "reads 100 B at stride 64 KiB, 100 times, from 0 B"),
        "backwards": (
            "negative-strided",
            "reads 100 B at stride -64 KiB, 100 times, from 6,336 KiB",
        ),
        "cube": (
            "kd-strided",
            "reads 64 B at stride 8 KiB, 10 times, from 0 B, that 5 times at stride 1 MiB, "
            "that 6 times at stride 8 MiB",
        ),
        "both": (
            "combination",
            "writes 200 KiB in 50 pieces of 4 KiB, from 0 B, then reads 512 B at stride -1 MiB, 50 times, from 49 MiB",
        ),
        "near": (
            "fixed-strided",
            "reads 512 B at stride 32 KiB, 397 times, from 0 B, in 4 stretches, and 3 other accesses",
        ),
    }
    for name, (spatial, words) in expected.items():
        assert (files[name]["spatial"], files[name]["words"]) == (spatial, words)
    assert files["random"]["spatial"] == "random-strided"
    assert files["random"]["ratio"] < 1.5
    assert texts["cube"] == "{READ,0,3,([{8388608},{},{6}],[{1048576},{},{5}],[{8192},{64},{10}]),1}"
    assert files["cube"]["ratio"] == 2 * 300 / 10  # start, depth, repetitions and seven in the levels
    assert document["about"]["format"] == "Stripewise"


def test_the_table_and_a_closer_look(traced, stripewise, tmp_path):
    shown = stripewise("signature", traced, "--check")
    assert "reads 100 B at stride -64 KiB, 100 times, from 6,336 KiB" in shown.stdout
    assert "{READ, <negative-strided,1>, <single>, <fixed small>," in shown.stdout
    assert re.search(r"checked: the signatures expand to exactly the [\d,]+ requests", shown.stderr)
    closer = stripewise("signature", traced, "--file", "cube").stdout
    assert "{READ,0,3,([{8388608},{},{6}],[{1048576},{},{5}],[{8192},{64},{10}]),1}" in closer
    assert "backwards" not in closer
    cut = stripewise("signature", traced, "--file", "near").stdout
    assert "; ... (7 parts)" in cut
    wrong = stripewise("signature", traced, "--file", "nowhere.h5", check=False)
    assert wrong.returncode == 1
    assert "--file nowhere.h5" in wrong.stderr
    wrong = stripewise("signature", traced, "--rank", "5", check=False)
    assert wrong.returncode == 1
    assert "rank 5" in wrong.stderr


def test_ranks_and_what_a_log_lacks(stripewise):
    log = next(log for log in LOGS if log.name == "sample-dxt-simple.darshan")
    shown = stripewise("signature", log)
    assert "it names no processes" in shown.stderr
    document = json.loads(stripewise("signature", log, "--json").stdout)
    assert "it names no processes" in [lack["words"] for lack in document["about"]["lacks"]]
    rank = document["processes"][-1]["rank"]
    one = json.loads(stripewise("signature", log, "--json", "--rank", rank).stdout)
    assert one["processes"] == [process for process in document["processes"] if process["rank"] == rank]


def test_requests_made_up_from_counters_are_said_to_be(stripewise):
    def files(name):
        log = next(log for log in LOGS if log.name == name)
        return json.loads(stripewise("signature", log, "--json").stdout)["files"]

    counted = files("sample-badost.darshan")
    assert len(counted) > 2000
    assert all(file["made_up"] == file["words"].endswith("(made up to agree with counters)") for file in counted)
    assert sum(file["made_up"] for file in counted) > 2000
    assert [file["made_up"] for file in files("sample-dxt-simple.darshan")].count(False) > 0


def test_a_file_whose_offsets_are_not_known_is_told(stripewise, tmp_path):
    log = tmp_path / "append.strace"
    opened = '7 1.0 openat(AT_FDCWD, "/data/app.log", O_WRONLY|O_CREAT|O_APPEND, 0644) = 3 <0.000010>\n'
    log.write_text(opened + "".join(f'7 1.{n:03} write(3, ""..., 4096) = 4096 <0.000010>\n' for n in range(1, 65)))
    for arguments in [(), ("--file", "app.log"), ("--all",)]:
        shown = stripewise("signature", log, *arguments)
        assert "/data/app.log: 64 requests, at offsets that the log does not have" in shown.stdout, arguments
        assert "64 requests are left out" in shown.stderr


def test_progress_ends_the_work_with_what_it_raises(traced):
    trace = _native.Trace(str(traced))
    seen = []
    _native.TraceSignature(trace, lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] > 0

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _native.TraceSignature(trace, stop)


def test_a_file_or_process_that_is_not_there(traced):
    signed = _native.TraceSignature(_native.Trace(str(traced)))
    with pytest.raises(StripewiseError, match="neither read nor written"):
        signed.text(10_000, 0)
    with pytest.raises(StripewiseError, match="counted from 0: there is no 99"):
        signed.text(signed.files()[0]["file"], 99)
    with pytest.raises(StripewiseError, match="byte 1 of the signature"):
        _native.signature_expand("{SEEK,0", 10)


def test_the_signatures_of_the_page_are_what_it_says():
    """Each row: a signature, and the offsets that it expands to."""
    rows = re.findall(r"^\| `(\{.*\})` \| `([\d, .RW+]+)` \|", PAGE.read_text(), flags=re.MULTILINE)
    assert len(rows) >= 6
    for text, shown in rows:
        expanded = _native.signature_expand(text, 100)
        accesses = [
            f"{'W' if write else 'R'}{offset}+{size}"
            for write, offset, size in zip(expanded["write"], expanded["offset"], expanded["size"], strict=True)
        ]
        assert shown.split(" ") == accesses, text
