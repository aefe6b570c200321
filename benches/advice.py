"""Advice against what it brings: workloads on emulated pools, advised on from a log, applied, measured again."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from benches.emulated import MIB, Devices, make_pool
from benches.frame import STRIPEWISE, Benchmark, BenchmarkError, Context, Figure, Target, checked
from stripewise import _native, emulation, native_paths, tables
from stripewise.pool import Pool

ROUNDS = 5
TRIES = 3
"""Runs until the emulated servers keep their times."""
LEAST = 0.97
BAD_GAIN = 1.3


@dataclass(frozen=True)
class Case:
    """A workload, and the layout that its files have before."""

    name: str
    workload: tuple[str, ...]
    layout: str
    ssd_bytes: int | None = None
    """What each SSD may hold; without a limit the advice is to move everything to flash."""
    slow: int = 1
    """The servers need this many times as long as those that they stand for: MPI's ranks spin where they wait, and what
    they take of each other's processors is not the servers' time."""
    is_bad: bool = True
    """The layout is chosen to be bad: at least `BAD_GAIN` is to be gained."""


DISK, DISKS = '"hdd.0:1MiB"', '"hdd.0-3:64KiB"'
NARROW = '"hdd.0-3:16KiB"'
EVERYWHERE = '"hdd.0-3:64KiB", "ssd.0-1:64KiB"'
CASES = (
    Case("random, on one disk", ("ior", "-p", "8", "-r", "256KiB", "-s", "16MiB"), DISK, 2 * MIB),
    Case("sequential, narrow stripes", ("ior", "-p", "8", "-r", "128KiB", "-s", "16MiB", "--pattern", "sequential"),
         NARROW, 2 * MIB),
    Case("strided, disks alone", ("ior", "-p", "8", "-r", "64KiB", "-s", "12MiB", "--pattern", "strided"), DISKS,
         3 * MIB, slow=2, is_bad=False),
    Case("file per process, on two disks", ("ior", "-p", "8", "-r", "256KiB", "-s", "2MiB", "--file-per-process"),
         '"hdd.0-1:64KiB"', 2 * MIB),
    Case("a hot eighth", ("ior", "-p", "8", "--region", "0:14MiB:128KiB:0.5", "--region", "14MiB:2MiB:64KiB:4"), DISKS,
         MIB, slow=2),
    Case("large requests, everywhere", ("ior", "-p", "16", "-r", "1MiB", "-s", "64MiB"), EVERYWHERE, 8 * MIB,
         is_bad=False),
    Case("large requests, flash alone", ("ior", "-p", "16", "-r", "1MiB", "-s", "64MiB"), '"ssd.0-1:1MiB"',
         is_bad=False),
    Case("song", ("song", "-p", "8", "--loop", "24x1KiB,64KiB", "--loops", "2"), EVERYWHERE, MIB // 4, slow=4,
         is_bad=False),
    Case("lanl-app1", ("lanl-app1", "-p", "8", "--loops", "8"), '"hdd.2:64KiB"', 2 * MIB),
    Case("btio, collective MPI-IO", ("btio", "-p", "4", "--grid", "48", "--steps", "3"), '"hdd.2:64KiB"',
         3 * MIB // 2, 8),
    Case("mpi-tile-io, MPI-IO", ("mpi-tile-io", "--tiles", "2x2", "--tile", "8x32", "--element", "4KiB", "--overlap",
                                 "0x0", "--frames", "2"), EVERYWHERE, MIB, 2, is_bad=False),
    Case("mpi-io-test, MPI-IO", ("mpi-io-test", "-p", "4", "-s", "6MiB"), '"hdd.1:64KiB"', MIB // 2, 2),
    Case("noncontig, collective MPI-IO", ("noncontig", "-p", "4", "-s", "16MiB", "--width", "16KiB", "--collective"),
         '"hdd.0-1:64KiB"', 2 * MIB, 8),
    Case("hpio, MPI-IO", ("hpio", "-p", "4", "--region-count", "64", "--region-size", "32KiB"), NARROW, MIB, 2),
    Case("strided, MPI-IO, without limits", ("ior", "-p", "4", "-r", "256KiB", "-s", "8MiB", "--pattern", "strided",
                                             "--api", "mpi-io"), DISKS, None, 2),
)  # fmt: skip


def devices(slow: int) -> Devices:
    """Of the presets' times, each `slow` times as long."""

    def device(startup_us: tuple[int, int], mb_per_s: int) -> str:
        startup = ", ".join(f'"{us * slow}us"' for us in startup_us)
        op = f'{{ startup = [{startup}], bandwidth = "{1000 * mb_per_s // slow}kB/s" }}'
        return f"{{ read = {op}, write = {op} }}"

    return Devices(device((4000, 12000), 80), device((80, 120), 400), hdds=4, ssds=2)


def place(pool: Pool, text: str) -> None:
    """Gives the files that there are, and those to come, the layouts of the layout file's text."""
    file = pool.file.parent / "set.layout"
    file.write_text(text, encoding="utf-8")
    _native.layout_apply(str(file), str(pool.file), rules=True, waits=False, gives_way=False, progress=lambda *_: True)


def before(case: Case, pool: Pool) -> str:
    """The text of the case's present layout."""
    region = f'[[file.region]]\noffset = "0"\nround = [{case.layout}]\n'
    return f'version = 1\npool = "{pool.name}"\n[[file]]\npath = "**"\n{region}'


def run(case: Case, pool: Pool, trace: Path | None = None) -> float:
    """Bytes per second over the workload's phases, on new files: what MPI-IO reads to write a part differs on old ones.

    Raises `BenchmarkError` where the emulation kept no times.
    """
    name, *options = case.workload
    way = ["run", "--quiet", "--pool", pool.file] if trace is None else ["trace", "--pool", pool.file, "-o", trace]
    program = [native_paths.bench_program(), name, pool.mount / "case.dat", *options, "--remove", "--json"]
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
    kept, changed = (make_pool(base / which, devices(case.slow), case.ssd_bytes) for which in ("kept", "changed"))
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
    context.say(f"{measured:.2f} x measured, {note}")
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
