"""Logs of other tools: every command takes them as they are, and imported; both give the same."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import darshan
import polars as pl
import pytest

from conftest import BIN

(DXT,) = Path(darshan.__file__).parent.rglob("sample-dxt-simple.darshan")

CSV = "file,op,offset,size,rank,start_ns,end_ns\n" + "".join(
    f"/data/{'ab'[i % 2]},{'write' if i < 200 else 'read'},{i % 200 << 16},65536,{i % 4},{i * 1000},{i * 1000 + 900}\n"
    for i in range(400)
)

STRACE = "".join(
    f'71  1795289336.{i:06d} pwrite64(3</data/s>, ""..., 4096, {i * 4096}) = 4096 <0.000002>\n' for i in range(1000)
)


@pytest.fixture
def logs(tmp_path):
    (tmp_path / "run.csv").write_text(CSV)
    (tmp_path / "run.strace").write_text(STRACE)
    return {"Darshan": DXT, "CSV": tmp_path / "run.csv", "strace": tmp_path / "run.strace"}


def said(path, done):
    """What stderr says of a log, without its name."""
    return done.stderr.replace(str(path), "LOG")


@pytest.mark.parametrize("format", ["Darshan", "CSV", "strace"])
def test_a_log_and_its_import_show_the_same(stripewise, logs, format, tmp_path):
    log, table = logs[format], tmp_path / "T"
    done = stripewise("import", log, "-o", table)
    of_log, of_table = stripewise("show", log, "--json"), stripewise("show", table, "--json")
    assert of_log.stdout == of_table.stdout
    summary = json.loads(of_log.stdout)
    assert summary["about"]["format"] == format
    assert f"imported {summary['records']} records of {len(summary['files'])} files into {table}" in done.stdout
    assert summary["about"]["lacks"]
    for lack in summary["about"]["lacks"]:
        for each in (done, of_log, of_table):
            assert lack["words"] in each.stderr
    assert said(log, of_log) == said(table, of_table)
    assert not list(tmp_path.glob(".*")), "nothing else stays"


@pytest.mark.parametrize("format", ["CSV", "strace"])
def test_a_log_and_its_import_plan_and_simulate_the_same(stripewise, logs, format, tmp_path):
    log, table = logs[format], tmp_path / "T"
    stripewise("pool", "init", tmp_path / "p", "--hdd", "3", "--ssd", "1", "--emulate")
    pool = ["--pool", tmp_path / "p" / "pool.toml", "--root", "/data", "--json"]
    stripewise("import", log, "-o", table)
    for command in (
        ["plan", "-o", tmp_path / "layout"],
        ["simulate", "--layout", tmp_path / "layout", "--repeat", "2"],
    ):
        printed = [json.loads(stripewise(command[0], path, *command[1:], *pool).stdout) for path in (log, table)]
        assert printed[0] == printed[1]
        assert printed[0]["about"]["format"] == format


def test_a_table_is_read_by_others_in_the_columns_of_show(stripewise, logs, tmp_path):
    table = tmp_path / "T"
    stripewise("import", logs["Darshan"], "-o", table)
    stripewise("show", logs["Darshan"], "--csv", tmp_path / "t.csv", "--parquet", tmp_path / "t.parquet")
    whole = pl.concat(pl.read_parquet(path) for path in sorted((table / "requests").iterdir()))
    shown = pl.read_parquet(tmp_path / "t.parquet")
    order = shown.columns
    assert whole.sort(order).equals(shown.sort(order))
    assert pl.read_csv(tmp_path / "t.csv", schema=shown.schema).equals(shown)
    printed = stripewise("show", table, "--csv", "-").stdout
    assert printed == (tmp_path / "t.csv").read_text()
    assert dict(shown.schema) == {
        "program": pl.String,
        "rank": pl.UInt32,
        "pid": pl.UInt32,
        "tid": pl.UInt32,
        "file": pl.String,
        "api": pl.String,
        "op": pl.String,
        "offset": pl.UInt64,
        "size": pl.UInt64,
        "start_ns": pl.UInt64,
        "end_ns": pl.UInt64,
        "flags": pl.UInt16,
    }
    files = pl.read_parquet(table / "files.parquet")
    assert set(shown["file"]) <= set(files["path"])
    for name in ("programs", "processes", "counters", "lustre"):
        assert pl.read_parquet(table / f"{name}.parquet").columns


def test_tables_that_others_wrote_are_logs(stripewise, tmp_path):
    frame = pl.DataFrame(
        {"op": ["read", "write"], "size": [10, 20], "offset": [0, 5], "file": ["/a", "/b"], "x": [1, 2]}
    )
    frame.write_csv(tmp_path / "t.csv")
    shown = []
    for compression in ("uncompressed", "snappy", "zstd", "lz4", "gzip"):
        frame.write_parquet(tmp_path / "t.parquet", compression=compression)
        shown.append(json.loads(stripewise("show", tmp_path / "t.parquet", "--json").stdout))
    shown.append(json.loads(stripewise("show", tmp_path / "t.csv", "--json").stdout))
    for summary in shown:
        assert [file["path"] for file in summary["files"]] == ["/a", "/b"]
        assert [file["reads"]["bytes"] + file["writes"]["bytes"] for file in summary["files"]] == [10, 20]
        assert {lack["name"] for lack in summary["about"]["lacks"]} >= {"ranks", "pids", "times", "durations"}


def test_errors_name_what_is_wrong_and_nothing_half_done_stays(stripewise, logs, tmp_path):
    table = tmp_path / "T"

    def refused(*command, **options):
        done = stripewise(*command, check=False, **options)
        assert done.returncode == 1, done.stderr
        assert not list(tmp_path.glob(".*.new"))
        return done.stderr

    assert "No such file" in refused("import", tmp_path / "none", "-o", table)
    (tmp_path / "letter").write_text("Dear all,\n")
    assert "is no log that Stripewise knows" in refused("import", tmp_path / "letter", "-o", table)
    (tmp_path / "cut").write_bytes(DXT.read_bytes()[:900])
    cut = refused("import", tmp_path / "cut", "-o", table)
    assert "the file has 900 of" in cut and cut.count("copy it again") == 1, cut
    assert "cannot write" in refused("import", logs["CSV"], "-o", tmp_path / "none" / "T")
    # What a full disk is: writing fails within a file.
    assert "set TMPDIR" in refused("import", logs["strace"], "-o", table, prefix=["prlimit", "--fsize=20000"])
    assert "nothing is left of it" in refused("import", DXT, "-o", table, prefix=["prlimit", "--fsize=6000"])
    assert not table.exists()
    stripewise("import", logs["CSV"], "-o", table)
    assert "exists already" in refused("import", logs["CSV"], "-o", table)
    partition = table / "requests" / "file-1.parquet"
    whole = bytearray(partition.read_bytes())
    whole[len(whole) // 2] ^= 1
    partition.write_bytes(whole)
    assert "file-1.parquet is damaged: it does not match its check sum; import the log again" in refused("show", table)
    partition.unlink()
    assert "No such file" in refused("show", table)


def test_memory_does_not_grow_with_the_log(stripewise, tmp_path):
    lines, at_once = 2_000_000, 100_000
    with (tmp_path / "large.strace").open("w") as log:
        for first in range(0, lines, at_once):
            log.write(
                "".join(
                    f'7{i % 8}  1795289336.{i % 1000000:06d} pwrite64(3</data/file.{i % 16}>, ""..., 4096, {i * 4096}) '
                    "= 4096 <0.000002>\n"
                    for i in range(first, first + at_once)
                )
            )
    # Memory that is no file's, on the way and at the end; the rows alone are 112 MB.
    script = """
import re, sys
from stripewise._native import Trace
def anonymous(*_):
    kib = int(re.search(r"RssAnon:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
    seen.append(kib >> 10)
seen = []
anonymous()
for log, table in zip(sys.argv[1:], sys.argv[2:]):
    trace = Trace(log, anonymous)
    trace.save(table, anonymous)
    anonymous()
print(len(seen), max(seen) - seen[0], trace.record_count())
"""
    paths = [tmp_path / name for name in ("large.strace", "T", "U")]
    done = subprocess.run([sys.executable, "-c", script, *paths], capture_output=True, text=True, check=True)
    samples, grown_mib, records = map(int, done.stdout.split())
    assert (records, samples > 100) == (lines, True)
    assert grown_mib < 48, f"{grown_mib} MiB"
    assert pl.scan_parquet(tmp_path / "T" / "requests" / "*.parquet").select(pl.len()).collect().item() == lines


def test_what_a_killed_import_left_goes_with_the_next_one(stripewise, tmp_path):
    rows = "".join(f"/data/{number % 500},write,{number},1\n" for number in range(100_000))
    (tmp_path / "run.csv").write_text("file,op,offset,size\n" + rows)
    for _ in range(20):
        with subprocess.Popen([BIN / "stripewise", "import", "run.csv", "-o", "T"], cwd=tmp_path) as run:
            while not (left := list(tmp_path.glob(".T.*.new"))) and run.poll() is None:
                time.sleep(0.001)
            run.kill()
        if left and not (tmp_path / "T").exists():
            break
        shutil.rmtree(tmp_path / "T", ignore_errors=True)
    assert left[0].is_dir(), "it was never killed in the middle"
    stripewise("import", "run.csv", "-o", "T")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["T", "run.csv"]
    assert stripewise("show", "T", "--json").returncode == 0


@pytest.mark.parametrize("command", ["show", "signature", "advise"])
def test_a_fifo_is_refused_and_not_waited_for(stripewise, tmp_path, command):
    os.mkfifo(tmp_path / "fifo")
    for path in ("fifo", "/dev/null"):
        done = stripewise(command, path, check=False)
        assert (done.returncode, done.stdout) == (1, "") and path in done.stderr and "Traceback" not in done.stderr
        assert "not a regular file" in done.stderr
