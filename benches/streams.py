"""Sequential and strided streams on emulated disks with a head: the simulated time against that of the traced run."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from benches.advice import place
from benches.emulated import Devices, make_pool
from benches.frame import STRIPEWISE, Benchmark, BenchmarkError, Context, Figure, Target, checked
from stripewise import emulation, native_paths
from stripewise.pool import Pool

DEVICES = Devices('"hdd-7200-head"', '"ssd-sata"', hdds=4, ssds=2)
RUNS = 3
TRIES = 3
"""Runs until the emulated servers keep their times."""
MOST_ERROR = 10.0
"""Of the simulated time in percent of the measured one, in the median over the cells."""

LAYOUTS = {
    "64 KiB on all": '"hdd.0-3:64KiB", "ssd.0-1:64KiB"',
    "64 KiB on disks": '"hdd.0-3:64KiB"',
    "1 MiB on disks": '"hdd.0-3:1MiB"',
    "one disk": '"hdd.0:1MiB"',
}


@dataclass(frozen=True)
class Cell:
    """A stream under a layout."""

    pattern: str
    processes: int
    request: str
    size: str
    layout: str

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.pattern}, p = {self.processes}, {self.request}, {self.layout}"


CELLS = tuple(
    Cell(pattern, processes, request, size, layout)
    for pattern in ("sequential", "strided")
    for processes, request, size in ((1, "256KiB", "64MiB"), (4, "64KiB", "24MiB"), (8, "256KiB", "48MiB"))
    for layout in LAYOUTS
)


def errors(cell: Cell, pool: Pool, context: Context) -> list[float]:
    """Of the simulated time, in percent of the traced one: of each run that the emulated servers kept the times of."""
    region = f'[[file.region]]\noffset = "0"\nround = [{LAYOUTS[cell.layout]}]\n'
    place(pool, f'version = 1\npool = "{pool.name}"\n[[file]]\npath = "**"\n{region}')
    trace, file = context.directory / "stream.trace", pool.mount / "stream.dat"
    program = [native_paths.bench_program(), "ior", file, "-p", str(cell.processes), "-r", cell.request]
    program += ["-s", cell.size, "--pattern", cell.pattern]
    found: list[float] = []
    for _ in range(TRIES * context.rounds(RUNS)):
        before = emulation.snapshot(pool)
        checked([*STRIPEWISE, "trace", "--pool", pool.file, "-o", trace, "--", *program])
        verdict = emulation.since(before).verdict
        command = [*STRIPEWISE, "simulate", trace, "--pool", pool.file, "--json"]
        document = json.loads(checked(command))
        file.unlink(missing_ok=True)
        if verdict is not None and verdict["valid"]:
            found.append(100 * (document["present"]["makespan_s"]["mean"] / document["traced_s"] - 1))
        if len(found) == context.rounds(RUNS):
            return found
    raise BenchmarkError(f"{cell.text}: the emulated servers did not keep their times")


def run(context: Context) -> Iterator[Figure | str]:
    """A figure a cell, and the median of their errors."""
    pool = make_pool(context.directory / "pool", DEVICES)
    medians = []
    for number, cell in enumerate(CELLS[::5] if context.quick else CELLS):
        context.say(f"cell {number + 1}: {cell.text}")
        try:
            found = errors(cell, pool, context)
        except BenchmarkError as error:
            yield str(error)
            continue
        median = statistics.median(found)
        medians.append(abs(median))
        yield Figure(f"{cell.text}: simulated time", median, "%", min(found), max(found))
    if not medians:
        raise BenchmarkError("no cell has a figure")
    target = Target(most=MOST_ERROR)
    yield Figure(f"error of {len(medians)} cells, median", statistics.median(medians), "%", target=target)
    yield Figure("error, greatest", max(medians), "%")


BENCHMARK = Benchmark("streams", "sequential and strided streams on emulated disks with a head, simulated", run)
