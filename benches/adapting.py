"""`stripewise adapt` on emulated pools: a layout that it finds by itself, and a load that changes all the time."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benches.advice import place
from benches.emulated import MIB, Devices, make_pool
from benches.frame import STRIPEWISE, Benchmark, BenchmarkError, Context, Figure, Target, checked, of_repetitions
from stripewise import native_paths
from stripewise.pool import Pool

EQUAL = '{ read = { startup = ["200us", "200us"], bandwidth = "85MB/s" }, write = { startup = ["200us", "200us"], bandwidth = "85MB/s" } }'  # noqa: E501
"""Song's servers: the startup of the paper, and the bandwidth at which its tables come out."""
SONG = ("song", "-p", "16", "--loops", "4")
SONG_WIDTHS = (48, 48, 48, 112)
ROUNDS = 4
"""Decisions until it gives up."""
PAIRS = 9
FILE_MIB = 48
HOT_MIB = 6
PHASES = (("64KiB", 0), ("16KiB", 3), ("256KiB", 6), ("32KiB", 1))
"""Size of requests and the eighth of the file that is hot, minute by minute."""
MINUTE_S = 40.0
"""A minute of the load, dilated."""
PERIOD_S = 10.0
"""Of `adapt` and of the heat."""


def heated(directory: Path, devices: Devices, heat: str, **options: int) -> Pool:
    """An emulated pool that keeps heat."""
    pool = make_pool(directory, devices, **options)
    pool.file.write_text(f"{pool.file.read_text(encoding='utf-8')}\n[heat]\n{heat}", encoding="utf-8")
    return Pool.load(pool.file)


def four_equal(directory: Path, heat: str) -> Pool:
    """Four servers alike, and no other."""
    checked([*STRIPEWISE, "pool", "init", directory, "--emulate", "--hdd", "4"])
    file = directory / "pool.toml"
    text = file.read_text(encoding="utf-8").replace('emulate = "hdd-7200"', f"emulate = {EQUAL}")
    file.write_text(f"{text}\n[heat]\n{heat}", encoding="utf-8")
    return Pool.load(file)


def bench(pool: Pool, *options: str, name: str = "data") -> float:
    """MiB per second of a workload on a file of the pool."""
    program = [native_paths.bench_program(), options[0], pool.mount / name, *options[1:], "--json"]
    report = json.loads(checked([*STRIPEWISE, "run", "--quiet", "--pool", pool.file, "--", *program]))
    return float(report["phases"][-1]["bytes_per_second"]) / MIB


def rounds_of(pool: Pool) -> list[list[str]]:
    """The round of each region of the file."""
    found = json.loads(checked([*STRIPEWISE, "stat", pool.mount / "data", "--pool", pool.file, "--json"]))
    text = json.dumps(found)
    return [re.findall(r'"([^"]+)"', part) for part in re.findall(r'"round": \[([^\]]*)\]', text)]


def widths_of(pool: Pool) -> tuple[int, ...]:
    """Widths in KiB of the first region's stripes, in order."""
    widths: list[int] = []
    for stripe in rounds_of(pool)[0]:
        if match := re.fullmatch(r"[^:]*?(\d+)(?:-(\d+))?:(\d+)KiB", stripe):
            first, last = int(match[1]), int(match[2] or match[1])
            widths += [int(match[3])] * (last - first + 1)
    return tuple(widths)


def adapted(pool: Pool, *options: str) -> dict[str, Any]:
    """One decision."""
    decision: dict[str, Any] = json.loads(
        checked([*STRIPEWISE, "adapt", pool.file, "--once", "--urgent", "--json", *options])
    )
    return decision


def layout(pool: Pool, stripes: str) -> str:
    """The text of a layout file with one region."""
    region = f'[[file.region]]\noffset = "0"\nround = [{stripes}]\n'
    return f'version = 1\npool = "{pool.name}"\n[[file]]\npath = "data"\n{region}'


def loop(context: Context) -> Iterator[Figure | str]:
    """Song's loop from 64 KiB on each of four servers: with the paper's rule, and with the best of all planners."""
    for planner in ("equal-depth-paper", "auto"):
        heat = 'block = "4KiB"\nperiod = "60s"\n'
        pool = four_equal(context.directory / planner, heat)
        stripes = ", ".join(f'"hdd.{number}:64KiB"' for number in range(4))
        place(pool, layout(pool, stripes).replace('"data"', '"**"'))
        bench(pool, *SONG, "--write")
        began = statistics.median(bench(pool, *SONG, "--read") for _ in range(context.rounds(3)))
        decisions: list[dict[str, Any]] = []
        for number in range(ROUNDS):
            decisions.append(adapted(pool, "--planner", planner))
            said = decisions[-1].get("why", f"moved {decisions[-1].get('copied_bytes', 0):,} bytes")
            context.say(f"{planner}, decision {number + 1}: {said}; {rounds_of(pool)}")
            if decisions[-1]["verdict"] == "kept":
                break
            bench(pool, *SONG, "--read")
        reached = widths_of(pool)
        best = ", ".join(f'"hdd.{number}:{width}KiB"' for number, width in enumerate(SONG_WIDTHS))
        place(pool, layout(pool, best).replace('"data"', '"set"'))
        bench(pool, *SONG, "--write", name="set")
        # One after the other, as both change with the machine.
        pairs = [
            (bench(pool, *SONG, "--read"), bench(pool, *SONG, "--read", name="set"))
            for _ in range(context.rounds(PAIRS))
        ]
        target = Target(least=1.0) if planner == "equal-depth-paper" else None
        is_reached = float(sorted(reached) == sorted(SONG_WIDTHS))
        note = ",".join(map(str, reached)) + " KiB in the first region"
        yield Figure(f"{planner}: (48,48,48,112) reached", is_reached, "", target=target, note=note)
        yield of_repetitions(f"{planner}: MiB/s over 64 KiB x 4", [rate / began for rate, _ in pairs])
        yield of_repetitions(
            f"{planner}: MiB/s over (48,48,48,112) as it is set",
            [rate / of_set for rate, of_set in pairs],
            target=Target(least=0.95),
        )


@dataclass
class Reading:
    """A load that reads at random in a part of the file, for as long as it is told."""

    pool: Pool
    rates: list[tuple[float, float]] = field(default_factory=list)
    """When a run ended, and its MiB per second."""

    def read(self, phase: tuple[str, int], seconds: float) -> None:
        """Reads in runs of about a second."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.rates.append((time.monotonic(), read_hot(self.pool, phase)))


def read_hot(pool: Pool, phase: tuple[str, int]) -> float:
    """One run of a phase: 8 processes at random places of the hot part. MiB per second."""
    size, eighth = phase
    first = eighth * FILE_MIB // 8
    region = f"{first}MiB:{HOT_MIB}MiB:{size}:1"
    return bench(pool, "ior", "-p", "8", "--region", region, "--bytes", f"{HOT_MIB}MiB", "--read")


@contextmanager
def adapting(pool: Pool, *options: str) -> Iterator[list[dict[str, Any]]]:
    """`adapt` is at work, with the priority of its systemd unit; its decisions as they come."""
    command = ["nice", "-n", "10", *STRIPEWISE, "adapt", str(pool.file), "--json", *options]
    decisions: list[dict[str, Any]] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        stdout = process.stdout
        if stdout is None:
            raise BenchmarkError("adapt has no output")

        def take() -> None:
            text = ""
            decoder = json.JSONDecoder()
            for line in stdout:
                text += line
                try:
                    decision, end = decoder.raw_decode(text.lstrip())
                except ValueError:
                    continue
                text = text.lstrip()[end:]
                decisions.append({**decision, "at_s": time.monotonic()})

        reader = threading.Thread(target=take)
        reader.start()
        try:
            yield decisions
        finally:
            process.terminate()
            reader.join()


def best_static(context: Context, pool: Pool, phase: tuple[str, int]) -> float:
    """MiB per second of a phase under the layout that `plan` makes from a trace of it."""
    trace, planned = context.directory / "hot.trace", context.directory / "hot.layout"
    size, eighth = phase
    region = f"{eighth * FILE_MIB // 8}MiB:{HOT_MIB}MiB:{size}:1"
    program = [native_paths.bench_program(), "ior", pool.mount / "data", "-p", "8", "--region", region]
    program += ["--bytes", f"{HOT_MIB}MiB", "--read"]
    checked([*STRIPEWISE, "trace", "--pool", pool.file, "-o", trace, "--", *program])
    checked([*STRIPEWISE, "plan", trace, "--pool", pool.file, "-o", planned])
    checked([*STRIPEWISE, "apply", planned, "--pool", pool.file])
    return statistics.median(read_hot(pool, phase) for _ in range(3))


def shift(context: Context) -> Iterator[Figure | str]:
    """A load that changes its hot part and the size of its requests every minute."""
    phases: Sequence[tuple[str, int]] = PHASES[:2] if context.quick else PHASES
    heat = f'block = "64KiB"\nperiod = "{PERIOD_S:.0f}s"\n'
    devices = Devices('"hdd-7200"', '"ssd-sata"', hdds=4, ssds=2)
    room = (HOT_MIB + 2) * MIB // 2
    static = heated(context.directory / "static", devices, heat, ssd_bytes=room)
    moving = heated(context.directory / "moving", devices, heat, ssd_bytes=room)
    stripes = ", ".join(f'"hdd.{number}:64KiB"' for number in range(4))
    for pool in (static, moving):
        place(pool, layout(pool, stripes).replace('"data"', '"**"'))
        bench(pool, "ior", "-p", "8", "-r", "1MiB", "-s", f"{FILE_MIB}MiB", "--pattern", "sequential", "--write")
    plain = {phase: statistics.median(read_hot(static, phase) for _ in range(3)) for phase in phases}
    best = {phase: best_static(context, static, phase) for phase in phases}
    load = Reading(moving)
    with adapting(moving, "--period", f"{PERIOD_S:.0f}", "--horizon", "0.1") as decisions:
        spans = []
        for phase in phases:
            context.say(f"{phase}: {plain[phase]:.1f} MiB/s on disks, {best[phase]:.1f} under its best layout")
            begin_s = time.monotonic()
            load.read(phase, MINUTE_S)
            spans.append((phase, begin_s, time.monotonic()))
    back, least, moved = [], [], [one for one in decisions if one["verdict"] in ("moved", "promoted")]
    for phase, begin_s, end_s in spans:
        rates = [(at_s, rate) for at_s, rate in load.rates if begin_s < at_s <= end_s]
        late = [rate for at_s, rate in rates if at_s > begin_s + 2 * PERIOD_S]
        back.append(statistics.median(late) / best[phase] if late else 0.0)
        early = [rate for at_s, rate in rates if at_s <= begin_s + 2 * PERIOD_S]
        least.append(statistics.median(early) / plain[phase] if early else 0.0)
        context.say(f"{phase}: {back[-1]:.2f} of the best, while moving {least[-1]:.2f} of disks; {rates}")
    for one in decisions:
        said = one.get("why") or f"{one['copied_bytes'] / MIB:.1f} MiB by {one.get('by', 'promotion')}"
        context.say(f"{one['at_s'] - spans[0][1]:.1f} s: {one['verdict']}, {said}")
    yield of_repetitions(
        "after two periods, of the best static layout of that minute", back, target=Target(least=0.9), note="per minute"
    )
    yield of_repetitions("in the first two periods, of the layout on disks", least, target=Target(least=0.95))
    yield from while_moving(moved, spans, load.rates, plain)
    copied = sum(one.get("copied_bytes", 0) for one in moved)
    # In and out again, but for the first.
    minimum = (2 * len(phases) - 1) * HOT_MIB * MIB
    yield Figure("bytes moved, of the hot parts in and out", copied / minimum, note=f"{len(moved)} moves")


def while_moving(
    moved: list[dict[str, Any]],
    spans: list[tuple[tuple[str, int], float, float]],
    rates: list[tuple[float, float]],
    plain: dict[tuple[str, int], float],
) -> Iterator[Figure]:
    """The load while data moved, of the same load on disks: the least of all moves, and the worst run of a second."""
    found = []
    begins_s = [one["time_s"] - time.time() + time.monotonic() for one in moved]
    for begin_s, end_s in zip(begins_s, (one["at_s"] for one in moved), strict=True):
        # A run counts if it ended while the move went on, from the decision to the last switch.
        runs = [
            rate / plain[phase]
            for phase, first_s, last_s in spans
            for at_s, rate in rates
            if first_s < at_s <= last_s and begin_s < at_s <= end_s
        ]
        if runs:
            found.append(runs)
    if found:
        worst = min(min(runs) for runs in found)
        least = min(statistics.mean(runs) for runs in found)
        note = f"worst run {worst:.2f} x, {sum(map(len, found))} runs"
        yield Figure("while a move went on, of the layout on disks", least, target=Target(least=0.95), note=note)
    # How far single runs of a second are from the median by themselves.
    still = [
        rate / plain[phase]
        for phase, first_s, last_s in spans
        for at_s, rate in rates
        if first_s < at_s < min([last_s, *(begin_s for begin_s in begins_s if begin_s > first_s)])
    ]
    if still:
        note = f"the worst of {len(still)} runs; their mean is {statistics.mean(still):.2f} x"
        yield Figure("before a move of that minute began, of the layout on disks", min(still), note=note)


BENCHMARKS = (
    Benchmark("adapt-loop", "Song's loop from equal stripes, adapted by itself", loop),
    Benchmark("adapt-shift", "a load that changes its hot part every minute, adapted meanwhile", shift),
)
