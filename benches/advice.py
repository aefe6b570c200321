"""Advice against what it brings: workloads on emulated pools, advised on from a log, applied, measured again."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from benches.emulated import Devices, make_pool
from benches.frame import STRIPEWISE, Benchmark, BenchmarkError, Context, Figure, Target, checked
from stripewise import _native, emulation, native_paths, tables
from stripewise.pool import Pool

DEVICES = Devices('"hdd-7200"', '"ssd-sata"', hdds=4, ssds=2)
ROUNDS = 5
TRIES = 3
"""Runs until the emulated servers keep their times."""
LEAST = 0.97
BAD_GAIN = 1.3


@dataclass(frozen=True)
class Case:
    """A workload and the layout that its files have before."""

    name: str
    workload: tuple[str, ...]
    layout: str
    is_bad: bool = True
    """More than the least gain is expected."""


CASES = (
    Case("random, on one disk", ("ior", "-p", "8", "-r", "256KiB", "-s", "16MiB"), '"hdd.0:1MiB"'),
    Case("sequential, narrow stripes", ("ior", "-p", "8", "-r", "128KiB", "-s", "16MiB", "--pattern", "sequential"),
         '"hdd.0-3:16KiB"'),
    Case("strided, disks alone", ("ior", "-p", "8", "-r", "64KiB", "-s", "8MiB", "--pattern", "strided"),
         '"hdd.0-3:64KiB"'),
    Case("file per process, on two disks", ("ior", "-p", "8", "-r", "256KiB", "-s", "2MiB", "--file-per-process"),
         '"hdd.0-1:64KiB"'),
    Case("large requests, flash alone", ("ior", "-p", "16", "-r", "1MiB", "-s", "64MiB"), '"ssd.0-1:1MiB"', False),
    Case("btio", ("btio", "-p", "4", "--grid", "24", "--steps", "3", "--api", "pread"), '"hdd.0-3:64KiB"'),
    Case("mpi-tile-io", ("mpi-tile-io", "--tiles", "2x2", "--tile", "8x16", "--element", "4KiB", "--overlap", "0x0",
                         "--api", "pread"), '"hdd.0-3:64KiB", "ssd.0-1:64KiB"'),
    Case("noncontig", ("noncontig", "-p", "4", "-s", "4MiB", "--width", "16KiB", "--api", "pread"), '"hdd.1:64KiB"'),
    Case("hpio", ("hpio", "-p", "4", "--region-count", "64", "--region-size", "32KiB", "--api", "pread"),
         '"hdd.0-3:16KiB"'),
    Case("song", ("song", "-p", "8", "--loops", "8"), '"hdd.0-3:64KiB", "ssd.0-1:64KiB"', False),
    Case("lanl-app1", ("lanl-app1", "-p", "8", "--loops", "8"), '"hdd.2:64KiB"'),
)  # fmt: skip


def place(pool: Pool, text: str) -> None:
    """Gives the files that there are, and those to come, the layouts of the layout file's text."""
    file = pool.file.parent / "set.layout"
    file.write_text(text, encoding="utf-8")
    _native.layout_apply(str(file), str(pool.file), True, lambda *_: True)


def before(case: Case, pool: Pool) -> str:
    """The text of the case's present layout."""
    region = f'[[file.region]]\noffset = "0"\nround = [{case.layout}]\n'
    return f'version = 1\npool = "{pool.name}"\n[[file]]\npath = "**"\n{region}'


def run(case: Case, pool: Pool, trace: Path | None = None) -> float:
    """Bytes per second over the workload's phases. Raises `BenchmarkError` where the emulation kept no times."""
    name, *options = case.workload
    way = ["run", "--quiet", "--pool", pool.file] if trace is None else ["trace", "--pool", pool.file, "-o", trace]
    program = [native_paths.bench_program(), name, pool.mount / "case.dat", *options, "--json"]
    why = ""
    for _ in range(TRIES):
        earlier = emulation.snapshot(pool)
        phases = json.loads(checked([*STRIPEWISE, *way, "--", *program]))["phases"]
        verdict = emulation.since(earlier).verdict
        if verdict is not None and (verdict["valid"] or trace is not None):
            moved: list[float] = [float(phase["bytes"]) for phase in phases]
            took: list[float] = [phase["bytes"] / phase["bytes_per_second"] for phase in phases]
            return sum(moved) / sum(took)
        why = verdict["text"] if verdict else "no request reached the emulated servers"
    raise BenchmarkError(f"{case.name}: no figure after {TRIES} runs: {why}")


def reduced(trace: Path, out: Path) -> None:
    """What Darshan's extended tracing would have kept: reads and writes, a rank for each process, nothing else."""
    columns = ["rank", "file", "api", "op", "offset", "size", "start_ns", "end_ns"]
    frame = tables.of_trace(_native.Trace(str(trace))).filter(pl.col("op").is_in(["read", "write"]))
    frame.with_columns(pl.struct("rank", "pid").rank("dense").sub(1).alias("rank")).select(columns).write_csv(out)


def compare(case: Case, number: int, context: Context) -> Iterator[Figure | str]:
    """One case: two pools alike, one keeps the present layout, the other gets what is advised."""
    base = context.directory / f"advice-{number}"
    kept, changed = (make_pool(base / which, DEVICES) for which in ("kept", "changed"))
    for pool in (kept, changed):
        place(pool, before(case, pool))
    trace, log, layout = base / "run.trace", base / "run.csv", base / "advised.layout"
    run(case, changed, trace)
    reduced(trace, log)
    advise = [*STRIPEWISE, "advise", log, "--cluster", changed.file, "-o", layout, "--json"]
    document = json.loads(checked(advise))
    gain = document["total"]["gain"]
    if not document["total"]["change"]:
        yield f"{case.name}: no change advised"
        return
    checked([*STRIPEWISE, "apply", layout, "--pool", changed.file])
    run(case, kept)
    ratios = []
    for turn in range(context.rounds(ROUNDS)):
        # In turns, so that what else the machine does meets both.
        order = (kept, changed) if turn % 2 == 0 else (changed, kept)
        rates = {pool.file: run(case, pool) for pool in order}
        ratios.append(rates[changed.file] / rates[kept.file])
    measured = statistics.median(ratios)
    inside = gain["low"] <= measured <= gain["high"]
    note = (
        f"predicted {gain['ratio']:.2f} ({gain['low']:.2f} to {gain['high']:.2f}): {'inside' if inside else 'OUTSIDE'}"
    )
    target = Target(least=BAD_GAIN if case.is_bad else LEAST)
    yield Figure(case.name, measured, "x", min(ratios), max(ratios), target, note)


def measure(context: Context) -> Iterator[Figure | str]:
    """Every case, and how many were inside the interval and not slower."""
    inside, slower, bad, compared = 0, 0, 0, 0
    for number, case in enumerate(CASES):
        context.say(f"case {number + 1} of {len(CASES)}: {case.name}")
        try:
            for item in compare(case, number, context):
                yield item
                if isinstance(item, Figure) and item.value is not None:
                    compared += 1
                    inside += item.note.endswith(": inside")
                    slower += item.value < LEAST
                    bad += case.is_bad and item.value >= BAD_GAIN
        except BenchmarkError as error:
            yield str(error)
    if compared:
        yield Figure("inside the interval, of those compared", inside / compared, "", target=Target(least=0.8))
        yield Figure(f"slower than before by more than 3 %, of {compared}", float(slower), "", target=Target(most=0.0))
        yield Figure(f"bad layouts that gained {BAD_GAIN} or more", float(bad), "", target=Target(least=5.0))


BENCHMARK = Benchmark(
    "advice", "what is advised from a reduced log, applied and measured, against its interval", measure
)
