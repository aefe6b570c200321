"""Simulated against measured, and the cost model against the simulator: the table of docs/accuracy.md.

python -m benches.accuracy [--seed N] [--quick] [--model-only] [-o FILE]

Every run draws its own cells (request size, processes, operation, layout) by a seed that it prints.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from benches.frame import Benchmark, BenchmarkError, Context, Figure, Target, checked
from stripewise import _native, native_paths
from stripewise.reproduce import measure, placement
from stripewise.reproduce.cluster import KIB, MIB, Devices, Operation, Tier
from stripewise.reproduce.experiment import counted
from stripewise.reproduce.workload import Ior, Op
from stripewise.units import exact_bytes

DEVICES = Devices(
    "4 HDDs (4-12 ms, 80 KB/ms), 2 SSDs (0.08-0.12 ms, 400 KB/ms)",
    (
        Tier("hdd", 4, Operation(4, 12, 80), Operation(4, 12, 80)),
        Tier("ssd", 2, Operation(0.08, 0.12, 400), Operation(0.08, 0.12, 400)),
    ),
    None,
)
MEASURED_CELLS = 14
MODEL_CELLS = 60
"""Without those that are measured, too."""
RUNS = 5
SIMULATIONS = 9
RUN_S = 1.2
"""About how long a measured run takes; a cell has as many requests as that takes."""
FASTEST = 100 * MIB
"""Bytes per second: cells that are faster are measured in slow motion, or the processes' own work would weigh."""
LEAST_REQUESTS, MOST_BYTES = 12, 256 * MIB
"""Requests of a process, and bytes of a file."""
MEDIAN_TARGET, WORST_TARGET = 10.0, 20.0
"""Errors in percent."""
KINDS = ("one width", "a width a tier", "regions", "a width a server")
STEP = 4 * KIB


@dataclass(frozen=True)
class Cell:
    """A workload under a layout."""

    kind: str
    request_bytes: int
    processes: int
    op: Op
    shape: tuple[tuple[float, tuple[int, ...]], ...]
    """Regions: where each begins as a share of the file, and the width in bytes of every server."""
    requests: int = 64
    """Of each process."""
    dilation: int = 1
    """All times of the emulated servers are multiplied by it where the cell is measured."""

    @property
    def workload(self) -> Ior:
        """IOR at random offsets, once through the file."""
        size = self.processes * self.requests * self.request_bytes
        return Ior.uniform(self.processes, self.request_bytes, size)

    @property
    def layout(self) -> _native.Regions:
        """For a file of this size."""
        size = self.workload.bytes
        regions: dict[int, list[tuple[int, int]]] = {}
        for share, widths in self.shape:
            ((_, stripes),) = placement.widths(widths)
            regions[int(share * size) // STEP * STEP] = stripes
        return sorted(regions.items())

    @property
    def text(self) -> str:
        """In a table."""
        slow = f", times x {self.dilation}" if self.dilation > 1 else ""
        return f"{exact_bytes(self.request_bytes)} {self.op}, p = {self.processes}{slow}"


@dataclass(frozen=True)
class Predicted:
    """A cell with what the cost model and the simulator say, in bytes per second."""

    cell: Cell
    model: float
    simulated: float
    spread: float
    """Greatest over least of the simulations, which differ by their seeds, less 1."""
    latency_share: float
    """Of theta that is latency; the rest is the busiest server's time."""

    @property
    def error(self) -> float:
        """Of the model, in percent."""
        return 100 * (self.model / self.simulated - 1)


@dataclass(frozen=True)
class Measured:
    """A cell that was also measured."""

    predicted: Predicted
    rates: tuple[float, ...]
    """Bytes per second, one a run."""
    emulation_error: float
    """Median of the runs' medians: by how much emulated servers overshot."""
    load: float
    """Of the machine after the runs, its own processes included: processes that ran or wanted to."""

    @property
    def median(self) -> float:
        """Of the runs."""
        return statistics.median(self.rates)

    @property
    def error(self) -> float:
        """Of the simulation, in percent."""
        return 100 * (self.predicted.simulated / self.median - 1)


One = TypeVar("One", Predicted, Measured)


def draw(count: int, seed: int) -> list[Cell]:
    """Every kind of layout as often as any other, reads and writes in turn, all else at random."""
    random_ = random.Random(seed)
    cells = []
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        request = random_.choice((64, 128, 256, 512, 1024)) * KIB
        op: Op = "read" if number // len(KINDS) % 2 == 0 else "write"
        processes = random_.choice((1, 2, 4, 8, 16))
        cells.append(Cell(kind, request, processes, op, _shape(kind, random_)))
    return cells


def _shape(kind: str, random_: random.Random) -> tuple[tuple[float, tuple[int, ...]], ...]:
    slow, fast = DEVICES.tiers

    def width(least: int = 1) -> int:
        return random_.choice([n for n in (0, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if n >= least]) * KIB

    if kind == "one width":
        return ((0.0, (width(8),) * DEVICES.servers),)
    if kind == "a width a tier":
        return ((0.0, (width(0),) * slow.servers + (width(16),) * fast.servers),)
    if kind == "a width a server":
        return ((0.0, tuple(random_.randrange(1, 65) * STEP for _ in range(DEVICES.servers))),)
    cuts = sorted(random_.uniform(0.1, 0.9) for _ in range(random_.randrange(1, 4)))
    inner = ("one width", "a width a tier", "a width a server")
    return tuple((share, _shape(random_.choice(inner), random_)[0][1]) for share in (0.0, *cuts))


def sized(cell: Cell) -> Cell:
    """With as many requests as a run of the usual length takes, by the cost model."""
    theta_s = _price(cell)["theta_s"]
    dilation = 1
    while cell.request_bytes / theta_s / dilation > FASTEST:
        dilation *= 2
    wanted = int(RUN_S / (theta_s * dilation) / cell.processes)
    room = MOST_BYTES // (cell.processes * cell.request_bytes)
    return replace(cell, requests=max(LEAST_REQUESTS, min(wanted, room)), dilation=dilation)


def _price(cell: Cell) -> _native.Price:
    steps = cell.workload.steps(cell.op, 1)
    return _native.price_generated(DEVICES.native(), [cell.layout], steps, cell.processes)


def simulated(cell: Cell, count: int) -> list[float]:
    """Bytes per second, with other offsets and startups each time; emulated servers have no links."""
    layout = [cell.layout]
    native = DEVICES.native()
    found = []
    for seed in range(1, count + 1):
        steps = cell.workload.steps(cell.op, seed)
        outcome = _native.simulate_generated(native, layout, steps, seed=seed, network="device")
        found.append(outcome["bytes_per_s"])
    return found


def predict(cell: Cell) -> Predicted:
    """What the model and the simulator say of a cell."""
    price = _price(cell)
    rates = simulated(cell, SIMULATIONS)
    return Predicted(
        cell=cell,
        model=cell.request_bytes / price["theta_s"],
        simulated=statistics.median(rates),
        spread=max(rates) / min(rates) - 1,
        latency_share=price["latency_s"] / cell.processes / price["theta_s"],
    )


@dataclass(frozen=True)
class Late:
    """A cell that has no figure: the emulated servers could not keep their times."""

    cell: Cell
    why: str


def measured(predicted: Sequence[Predicted], context: Context) -> Iterator[Measured | Late]:
    """Real processes on pools of emulated servers, a file a cell; each is checked once, then measured unchecked."""
    pools: dict[int, measure.EmulatedPool] = {}
    for number, one in enumerate(predicted):
        cell, file = one.cell, f"cell-{number}.dat"
        context.say(f"cell {number + 1} of {len(predicted)}: {cell.text}, {cell.kind}")
        if cell.dilation not in pools:
            where = context.directory / f"accuracy-{cell.dilation}"
            pools[cell.dilation] = measure.EmulatedPool(where, DEVICES, cell.dilation)
        pool = pools[cell.dilation]
        pool.place({file: cell.layout})
        try:
            if cell.op == "read":
                pool.write_once(file, cell.workload)
            pool.run(file, cell.workload, cell.op)
            runs = [pool.run(file, cell.workload, cell.op, check=False) for _ in range(context.rounds(RUNS))]
        except measure.InvalidRunError as error:
            yield Late(cell, str(error))
            continue
        finally:
            pool.remove(file)
        overshot = statistics.median(run.error for run in runs)
        yield Measured(one, tuple(run.bytes_per_s for run in runs), overshot, os.getloadavg()[0])


# Why


def why_model(one: Predicted) -> str:
    """What explains a difference between model and simulator: each cause with its size, the largest first."""
    cell = one.cell
    longer = replace(cell, requests=cell.requests * 8)
    rates = simulated(longer, 3)
    # More requests have other regions in absolute terms, so the model is asked again.
    steady = 100 * (cell.request_bytes / _price(longer)["theta_s"] / statistics.median(rates) - 1)
    causes = [
        (
            abs(one.error - steady),
            f"{cell.requests} requests a process: with 8 times as many the difference is {steady:+.1f} %, as the end, "
            "when some processes are done and servers idle, weighs less",
        ),
        (100 * one.spread / 2, f"chance: simulations with other seeds differ by {100 * one.spread:.1f} %"),
        (
            abs(steady) * min(1.0, 4 * one.latency_share * (1 - one.latency_share)),
            f"{100 * one.latency_share:.0f} % of the model's time is latency and the rest the busiest server's: "
            "between the two extremes, where it is exact, the model adds what partly overlaps",
        ),
    ]
    return _ranked(causes)


def why_measured(one: Measured, context: Context) -> str:
    """The same for a difference between simulator and measurement."""
    cell, rates = one.predicted.cell, one.rates
    runs = 100 * (max(rates) / min(rates) - 1)
    plain = without_servers(cell, context)
    own = 100 * one.median / cell.dilation / plain
    seeds = 100 * one.predicted.spread
    causes = [
        (
            own,
            f"the requests' own work, which no server's time has in it: the same processes on a plain file in memory "
            f"reach {_rate(plain)} MiB/s on this machine's {os.cpu_count()} processors: {own:.1f} % of the time here",
        ),
        (
            100 * one.emulation_error,
            f"emulated servers overshot the times they were to keep by {100 * one.emulation_error:.1f} %",
        ),
        (
            seeds / 2,
            f"chance: simulations of these {cell.processes} x {cell.requests} requests differ by {seeds:.1f} % by seed",
        ),
        (runs / 2, f"the measured runs differ among themselves by {runs:.1f} %"),
    ]
    processors = os.cpu_count() or 1
    if one.load > processors:
        # Its cost between two requests has not been measured: it is what the other causes leave unexplained.
        why = (
            f"other work on the machine: a load of {one.load:.1f} on {processors} processors, where each waits its turn"
        )
        causes.append((abs(one.error), why))
    return _ranked(causes)


def without_servers(cell: Cell, context: Context) -> float:
    """Bytes per second of the cell's processes on a plain file in memory."""
    name, *options = cell.workload.arguments()
    file = context.directory / "plain.dat"
    command = [native_paths.bench_program(), name, file, *options, "--json", "--remove"]
    phases = json.loads(checked(command))["phases"]
    return float(next(phase["bytes_per_second"] for phase in phases if phase["op"] == cell.op))


def _ranked(causes: list[tuple[float, str]]) -> str:
    return "; ".join(text for _, text in sorted(causes, key=lambda cause: -cause[0]))


# The page


def worst(items: Sequence[One]) -> One:
    """The one of the greatest error, whichever way."""
    return max(items, key=lambda one: abs(one.error))


def median_error(items: Sequence[One]) -> float:
    """Of the errors without their signs, in percent."""
    return statistics.median(abs(one.error) for one in items)


def page(
    seed: int, cells: Sequence[Predicted], done: Sequence[Measured], late: Sequence[Late], context: Context
) -> str:
    """docs/accuracy.md."""
    made = time.strftime("%Y-%m-%d %H:%M")
    lines = [
        "# Accuracy of the predictions",
        "",
        f"Made by `make accuracy` on {made} with seed {seed} (`python -m benches.accuracy --seed {seed}` draws the same"
        f" cells), on {platform.system()} {platform.release()}, {os.cpu_count()} processors, load "
        f"{os.getloadavg()[0]:.1f} at the end."
        + (" **Quick: one run a cell, no figures to quote.**" if context.quick else ""),
        "",
        f"Every cell is processes at random offsets of one file, each in its own part, on {DEVICES.name}. Layouts, "
        "request sizes and numbers of processes are drawn anew by every run.",
        "",
    ]
    if done:
        lines += _measured_part(done, late, context)
    lines += _model_part(cells)
    return "\n".join(lines)


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / MIB:.1f}"


def _summary(items: Sequence[One]) -> str:
    most, middle = abs(worst(items).error), median_error(items)
    met = [
        ("yes" if value <= target else "**no**") for value, target in ((middle, MEDIAN_TARGET), (most, WORST_TARGET))
    ]
    return (
        f"Median error {middle:.1f} % (target: under {MEDIAN_TARGET:.0f} %, met: {met[0]}), worst {most:.1f} % "
        f"(target: under {WORST_TARGET:.0f} %, met: {met[1]})."
    )


def _measured_part(done: Sequence[Measured], late: Sequence[Late], context: Context) -> list[str]:
    bad = worst(done)
    number = list(done).index(bad) + 1
    lines = [
        "## Simulated against measured",
        "",
        "Measured: real processes of `stripewise bench` under `stripewise run` on **emulated** servers, the median of "
        f"{counted(len(done[0].rates))} (least to greatest); each cell's bytes checked once; fast cells in slow "
        f"motion. Simulated: the median of {SIMULATIONS} seeds; neither knows of the other's draws. MiB/s.",
        "",
        _summary(done),
        "",
        "| cell | requests | layout | simulated | measured | error | emulation error |",
        "|---|---|---|---|---|---|---|",
    ]
    for place, one in enumerate(done, 1):
        cell = one.predicted.cell
        rates = f"{_rate(one.median)} ({_rate(min(one.rates))} to {_rate(max(one.rates))})"
        lines.append(
            f"| {place}. {cell.text} | {cell.processes} x {cell.requests} | {cell.kind}: "
            f"{placement.text(cell.layout, DEVICES)} | {_rate(one.predicted.simulated)} | {rates} | {one.error:+.1f} % "
            f"| {100 * one.emulation_error:.1f} % |"
        )
    why = why_measured(bad, context)
    if late:
        lines += ["", "Not counted, as the emulated servers could not keep their times:", ""]
        lines += [f"- {one.cell.text}, {one.cell.kind}: {one.why}" for one in late]
    return [*lines, "", f"The worst is cell {number} ({bad.predicted.cell.text}, {bad.error:+.1f} %): {why}.", ""]


def _model_part(cells: Sequence[Predicted]) -> list[str]:
    bad = worst(cells)
    listed = sorted(cells, key=lambda one: -abs(one.error))[:LISTED]
    lines = [
        "## The cost model against the simulator",
        "",
        "The model that the planner searches with (theta: mean latency and the busiest server, `docs/architecture.md`) "
        f"on {len(cells)} cells, those above among them, and the simulator (median of {SIMULATIONS} seeds). MiB/s.",
        "",
        _summary(cells),
        "",
        "| layouts | cells | median error | worst error |",
        "|---|---|---|---|",
    ]
    for kind in KINDS:
        own = [one for one in cells if one.cell.kind == kind]
        lines.append(f"| {kind} | {len(own)} | {median_error(own):.1f} % | {worst(own).error:+.1f} % |")
    lines += [
        "",
        f"The {len(listed)} worst:",
        "",
        "| cell | requests | layout | model | simulated | error |",
        "|---|---|---|---|---|---|",
    ]
    for one in listed:
        cell = one.cell
        lines.append(
            f"| {cell.text} | {cell.processes} x {cell.requests} | {cell.kind}: {placement.text(cell.layout, DEVICES)} "
            f"| {_rate(one.model)} | {_rate(one.simulated)} | {one.error:+.1f} % |"
        )
    return [*lines, "", f"The worst is {bad.cell.text}, {bad.cell.kind} ({bad.error:+.1f} %): {why_model(bad)}.", ""]


LISTED = 8


def collect(context: Context, seed: int, model_only: bool) -> tuple[list[Predicted], list[Measured], list[Late]]:
    """Draws, predicts and measures."""
    context.say(f"seed {seed}")
    cells = [predict(sized(cell)) for cell in draw(MEASURED_CELLS + MODEL_CELLS, seed)]
    if model_only:
        return cells, [], []
    found = list(measured(cells[:MEASURED_CELLS], context))
    done = [one for one in found if isinstance(one, Measured)]
    late = [one for one in found if isinstance(one, Late)]
    if not done:
        raise BenchmarkError(f"no cell could be measured: {late[0].why}")
    return cells, done, late


def run(context: Context) -> Iterator[Figure | str]:
    """The figures of the page; `make accuracy` writes it."""
    seed = secrets.randbelow(10**6)
    cells, done, late = collect(context, seed, model_only=False)
    yield f"seed {seed}: {len(done)} cells measured, {len(cells)} priced and simulated"
    yield from (f"INVALID, not counted: {one.cell.text}, {one.cell.kind}: {one.why}" for one in late)
    errors = {
        "simulated against measured": (median_error(done), worst(done).error),
        "model against simulator": (median_error(cells), worst(cells).error),
    }
    for name, (middle, most) in errors.items():
        yield Figure(f"{name}: median error", middle, "%", target=Target(most=MEDIAN_TARGET))
        yield Figure(f"{name}: worst error", abs(most), "%", target=Target(most=WORST_TARGET))
    off, bad = worst(cells), worst(done)
    cell = bad.predicted.cell
    yield f"worst against measured: {cell.text}, {cell.kind}: {why_measured(bad, context)}"
    yield f"worst against the simulator: {off.cell.text}, {off.cell.kind}: {why_model(off)}"


def main() -> int:
    """Writes the page."""
    parser = argparse.ArgumentParser(prog="python -m benches.accuracy", description="Makes docs/accuracy.md.")
    parser.add_argument("--seed", type=int, metavar="N", help="Of the cells; drawn and printed when left out.")
    parser.add_argument("--quick", action="store_true", help="One run a cell.")
    parser.add_argument("--model-only", action="store_true", help="Measure nothing.")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="Where the page goes; standard output.")
    options = parser.parse_args()
    seed = secrets.randbelow(10**6) if options.seed is None else options.seed
    with measure.directory(None) as directory, tempfile.TemporaryDirectory() as disk:
        context = Context(directory, Path(disk), options.quick, lambda text: print(text, file=sys.stderr, flush=True))
        cells, done, late = collect(context, seed, options.model_only)
        text = page(seed, cells, done, late, context)
    if options.output is None:
        print(text)
    else:
        options.output.write_text(text, encoding="utf-8")
    return 0


BENCHMARK = Benchmark("accuracy", "simulated against measured, and the cost model against the simulator", run)

if __name__ == "__main__":
    raise SystemExit(main())
