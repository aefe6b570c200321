"""Logs of other tools to a table on disk: rate and memory, beside PyDarshan's own way to a table."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from benches.frame import STRIPEWISE, Benchmark, BenchmarkError, Context, Figure, MissingError, Target, of_repetitions
from stripewise._native import Trace

LARGE = "hdf5-collective-1024-ranks-lustre.darshan"
ROWS_PER_S = 1e6
MEGABYTES = 300.0
PYDARSHAN = """
import darshan, pandas, sys
report = darshan.DarshanReport(sys.argv[1], read_all=False)
report.mod_read_all_dxt_records("DXT_POSIX")
frames = []
for record in report.records["DXT_POSIX"].to_df():
    for op in ("write", "read"):
        frames.append(record[f"{op}_segments"].assign(op=op, rank=record["rank"], id=record["id"]))
print(len(pandas.concat(frames)))
"""


@dataclass(frozen=True)
class Ended:
    """What a command took."""

    wall_s: float
    processor_s: float
    peak_bytes: int


def run(context: Context) -> Iterator[Figure | str]:
    """The large Darshan log by our command and by PyDarshan, then a generated log of strace."""
    log = Path(os.environ.get("STRIPEWISE_TEST_DATA", "none")) / "darshan" / LARGE
    if not log.is_file():
        raise MissingError(f"STRIPEWISE_TEST_DATA names no folder with darshan/{LARGE}")
    times = context.rounds(7)
    rows = Trace(str(log)).record_count()
    context.say(f"importing {rows:,} rows of Darshan")
    ours = [_import(log, context.disk / f"darshan.{turn}") for turn in range(times)]
    target = Target(least=ROWS_PER_S)
    rates = [rows / ended.wall_s for ended in ours]
    yield of_repetitions("Darshan to a table on disk, the whole command", rates, unit="rows/s", target=target)
    rates = [rows / ended.processor_s for ended in ours]
    yield of_repetitions("the same for each second of the processor", rates, unit="rows/s")
    within = [rows / _within(log, context.disk / f"within.{turn}") for turn in range(times)]
    yield of_repetitions("the same within a running Python", within, unit="rows/s", target=target)
    peak = max(ended.peak_bytes for ended in ours) / 1e6
    yield Figure("peak memory of the command", peak, "MB", target=Target(most=MEGABYTES))
    context.say("the same by PyDarshan")
    theirs = measured([sys.executable, "-c", PYDARSHAN, str(log)])
    yield Figure("PyDarshan: to_df, concat, a table in memory", rows / theirs.wall_s, "rows/s")
    yield Figure("peak memory of it", theirs.peak_bytes / 1e6, "MB")
    yield of_repetitions("our rate / PyDarshan's", [theirs.wall_s / ended.wall_s for ended in ours])

    lines = 200_000 if context.quick else 2_000_000
    context.say(f"importing {lines:,} lines of strace")
    strace = context.disk / "run.strace"
    _write_strace(strace, lines)
    ours = [_import(strace, context.disk / f"strace.{turn}") for turn in range(context.rounds(3))]
    rates = [lines / ended.wall_s for ended in ours]
    yield of_repetitions("strace to a table on disk, the whole command", rates, unit="lines/s")
    rates = [lines / _read(strace) for _ in range(context.rounds(3))]
    yield of_repetitions("strace to a trace", rates, unit="lines/s", target=Target(least=ROWS_PER_S))
    peak = max(ended.peak_bytes for ended in ours) / 1e6
    yield f"peak memory of importing strace: {peak:.0f} MB, {lines * 56 / 1e6:.0f} MB of it pages of the temporary file"


def _import(log: Path, table: Path) -> Ended:
    return measured([*STRIPEWISE, "import", str(log), "-o", str(table)])


def _within(log: Path, table: Path) -> float:
    begin_s = perf_counter()
    Trace(str(log)).save(str(table))
    return perf_counter() - begin_s


def _read(log: Path) -> float:
    begin_s = perf_counter()
    Trace(str(log))
    return perf_counter() - begin_s


def measured(command: Sequence[str]) -> Ended:
    """Runs a command to its end; what it prints is dropped."""
    begin_s = perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall_s = perf_counter() - begin_s
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise BenchmarkError(f"exit code {process.returncode} of: {' '.join(command)}")
    return Ended(wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def _write_strace(path: Path, lines: int) -> None:
    with path.open("w") as log:
        for i in range(lines):
            log.write(
                f"7{i % 8}  {1795289336 + i // 1000000}.{i % 1000000:06d} pwrite64(3</data/file.{i % 16}>, "
                f'""..., 4096, {i * 4096}) = 4096 <0.000002>\n'
            )


BENCHMARK = Benchmark("importing", "logs of other tools to a table on disk", run)
