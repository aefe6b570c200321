"""IOrchestrator's figures: real MPI programs on emulated disks with anticipatory queues, as they are and orchestrated.

Vanilla is the anticipatory queue alone, as Linux's CFQ was in the paper.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from benches.advice import place
from benches.emulated import Devices, make_pool
from benches.frame import ROOT, STRIPEWISE, Benchmark, BenchmarkError, Context, Figure, Target, of_repetitions
from benches.turns import orchestrated
from stripewise import emulation
from stripewise.api import together
from stripewise.api import trace as traces
from stripewise.api.trace import Trace
from stripewise.pool import Pool

RANKS = 5
SERVERS = 6
DILATION = 2.0
"""All times of the disks, and the windows: this machine's own times are to matter less."""
PATIENCE_S = 600.0
GB = 10**9
FILE_MIB = 256
SHORT = {"noncontig": 12, "mpi-tile-io": 6}
"""MiB of programs whose runs take a few seconds: pairs of them differ by a tenth."""
PAIRS = 3
SHORT_PAIRS = 9
CONFIDENCE = 0.95


def disk(distance_bytes: int) -> str:
    """A disk of 500 GB and 7200 rpm: next track 1 ms, full stroke 16.7 ms, 80 MB/s."""
    op = '{ startup = ["1ms", "25ms"], sequential_startup = "100us", bandwidth = "80MB/s" }'
    shape = f'queue = "anticipatory", size = "500GB", file_distance = "{distance_bytes}B", rotation = "8.3ms"'
    return f"{{ read = {op}, write = {op}, dilation = {DILATION!r}, disk = {{ {shape} }} }}"


run_numbers = itertools.count(1)
"""Each run's programs are new ones, as a launcher's are: pages have no figures of former runs of them."""


@dataclass(frozen=True)
class Job:
    """One MPI program."""

    kind: str
    op: str
    mib: int = FILE_MIB
    barrier: bool = True
    burst: int = 0
    """Requests of a rank before each pause."""
    think_s: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """Of jobs that ran at once."""

    mib_per_s: float
    """All bytes, from the first begin to the last end."""
    each_s: tuple[float, ...]
    is_valid: bool
    together_mib_per_s: float
    """Of all, from the first begin until the first of them ends."""


def pool_with(directory: Path, distance_bytes: int) -> Pool:
    """Six disks on which files begin that far from each other, and files in stripes of 64 KiB."""
    pool = make_pool(directory, Devices(disk(distance_bytes), '"ssd-sata"', hdds=SERVERS, ssds=1))
    region = f'[[file.region]]\noffset = "0"\nround = ["hdd.0-{SERVERS - 1}:64KiB"]\n'
    place(pool, f'version = 1\npool = "{pool.name}"\n[[file]]\npath = "**"\n{region}')
    return pool


def at_once(pool: Pool, jobs: Sequence[Job], scratch: Path, *, record: int | None = None) -> Outcome:
    """Runs jobs, each on its own file, which begin together; with `record` that job alone, and its trace is kept."""
    scratch.mkdir(parents=True, exist_ok=True)
    go = scratch / "go"
    go.unlink(missing_ok=True)
    started, before, run_number = [], emulation.snapshot(pool), next(run_numbers)
    for number, job in enumerate(jobs):
        if record not in (None, number):
            continue
        ready = scratch / f"ready-{number}"
        ready.unlink(missing_ok=True)
        how = ["run", "--quiet"] if record is None else ["trace", "-o", scratch / f"job-{number}.trace"]
        run = [*STRIPEWISE, *how, "--pool", pool.file, "--program", f"job-{number}.{run_number}", "--"]
        mpi = [
            Path(sys.executable).parent / "mpiexec",
            "-n",
            RANKS,
            sys.executable,
            ROOT / "benches" / "mpi_programs.py",
        ]
        asked = [job.kind, job.op, pool.mount / f"file-{number}", job.mib << 20, ready, go]
        pauses = ["--burst", job.burst, "--think", job.think_s] if job.burst else []
        command = [str(part) for part in [*run, *mpi, *asked, *(["--barrier"] if job.barrier else []), *pauses]]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        started.append((process, ready))
    began = time.monotonic()
    while not all(ready.exists() for _, ready in started):
        if time.monotonic() - began > PATIENCE_S or any(process.poll() for process, _ in started):
            break
        time.sleep(0.01)
    go.touch()
    said = [process.communicate(timeout=PATIENCE_S) for process, _ in started]
    if any(process.returncode for process, _ in started):
        raise BenchmarkError("\n".join(err for _, err in said))
    # What `trace` says stands on lines of its own.
    found = [json.loads(next(line for line in out.splitlines() if line.startswith("{"))) for out, _ in said]
    verdict = emulation.since(before).verdict
    begin_s, first_s = min(one["begin_s"] for one in found), min(one["end_s"] for one in found)
    took_s = max(one["end_s"] for one in found) - begin_s
    return Outcome(
        sum(one["bytes"] for one in found) / took_s / 2**20,
        tuple(one["end_s"] - one["begin_s"] for one in found),
        verdict is not None and bool(verdict["valid"]),
        sum(moved_by(rank, first_s) for one in found for rank in one["moved"]) / (first_s - begin_s) / 2**20,
    )


def moved_by(rank: Sequence[tuple[int, int]], until_s: float) -> int:
    """Bytes that a rank had moved by then, to a tenth of a second."""
    return max((moved for tenth, moved in rank if tenth < int(until_s * 10)), default=0)


def window() -> list[str]:
    """The paper's window, in the disks' time."""
    return ["--window", f"{500 * DILATION:.0f}"]


def pairs(
    context: Context, pool: Pool, jobs: Sequence[Job], policies: Sequence[str], runs: int
) -> dict[str, list[Outcome]]:
    """Outcomes by policy, of which `""` is vanilla; every other round runs them backwards."""
    outcomes: dict[str, list[Outcome]] = {policy: [] for policy in ["", *policies]}
    for number in range(context.rounds(runs)):
        for policy, found in list(outcomes.items())[:: -1 if number % 2 else 1]:
            with orchestrated(pool, policy, *window()) if policy else nullcontext():
                outcome = at_once(pool, jobs, context.directory / "scratch")
            context.say(f"run {number + 1}, {policy or 'vanilla'}: {outcome.mib_per_s:.2f} MiB/s {outcome.is_valid}")
            found.append(outcome)
    return outcomes


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Between which values the median of all such values is, with `CONFIDENCE` at least; `None` for fewer than six.

    A value is below that median with a probability of a half, whatever the distribution is.
    """
    ordered, outside, rank = sorted(values), 0.0, -1
    while rank < len(ordered) // 2:
        outside += 2 * math.comb(len(ordered), rank + 1) / 2 ** len(ordered)
        if outside > 1 - CONFIDENCE:
            break
        rank += 1
    return None if rank < 0 else (ordered[rank], ordered[-1 - rank])


def compared(
    what: str,
    outcomes: dict[str, list[Outcome]],
    policy: str,
    target: Target | None = None,
    rate: Callable[[Outcome], float] = lambda outcome: outcome.mib_per_s,
) -> Figure:
    """What a policy gains over vanilla, run by run."""
    both = zip(outcomes[""], outcomes[policy], strict=True)
    ratios = [rate(mine) / rate(plain) for plain, mine in both if plain.is_valid and mine.is_valid]
    if not ratios:
        return Figure(f"{what}: {policy} / vanilla", None, target=target, note="invalid: emulation error above 10 %")
    within = interval(ratios)
    note = f"{len(ratios)} valid pairs" + (f", median within {within[0]:.3f} to {within[1]:.3f}" if within else "")
    return of_repetitions(f"{what}: {policy} / vanilla", ratios, target=target, note=note)


def prepared(context: Context, name: str, jobs: Sequence[Job], distance_bytes: int) -> Pool:
    """A pool on which the files of jobs are written."""
    pool = pool_with(context.directory / name, distance_bytes)
    longest = [Job("mpi-io-test", "write", job.mib + 1, barrier=False) for job in jobs]
    # One after the other: so they lie on the disks in order.
    for number in range(len(jobs)):
        at_once(pool, longest[: number + 1], context.directory / "scratch")
    return pool


def fig8(context: Context) -> Iterator[Figure | str]:
    """Two mpi-io-test that read files 0 to 30 GB apart."""
    jobs = [Job("mpi-io-test", "read")] * 2
    rates = {}
    share = (FILE_MIB + 1 << 20) // SERVERS // 65536 * 65536 + 65536
    for apart in (0, 30) if context.quick else (0, 10, 20, 30):
        pool = prepared(context, f"fig8-{apart}", jobs, share + apart * GB)
        outcomes = pairs(context, pool, jobs, ["reuse-distance"], PAIRS)
        target = Target(least=2.5) if apart == 30 else None
        yield compared(f"fig8: {apart} GB apart", outcomes, "reuse-distance", target)
        for policy, found in outcomes.items():
            valid = [one.mib_per_s for one in found if one.is_valid]
            if valid:
                rates[policy, apart] = statistics.median(valid)
                yield of_repetitions(f"fig8: {apart} GB apart, {policy or 'vanilla'}", valid, unit="MiB/s")
    for policy, target in (("", None), ("reuse-distance", Target(least=0.95))):
        if (policy, 0) in rates and (policy, 30) in rates:
            what = f"fig8: {policy or 'vanilla'}, 30 GB / 0 GB"
            yield Figure(what, rates[policy, 30] / rates[policy, 0], target=target)
    yield "the paper: vanilla loses 48 % from 0 to 30 GB, IOrchestrator 5 %, and is 2.5 x as fast at 30 GB"


def fig2(context: Context) -> Iterator[Figure | str]:
    """Two instances of each of five programs."""
    ratios = []
    kinds = ("mpi-io-test", "ior-mpi-io", "noncontig", "hpio", "mpi-tile-io")
    for kind in kinds:
        mib = SHORT.get(kind, FILE_MIB)
        for op in ("read",) if context.quick else ("read", "write"):
            jobs = [Job(kind, op, mib)] * 2
            pool = prepared(context, f"fig2-{kind}-{op}", jobs, 10 * GB)
            outcomes = pairs(context, pool, jobs, ["reuse-distance"], SHORT_PAIRS if kind in SHORT else PAIRS)
            figure = compared(f"fig2: {kind}, {op}s", outcomes, "reuse-distance", Target(least=0.97))
            yield figure
            if figure.value is not None:
                ratios.append(figure.value)
    if ratios:
        yield Figure("fig2: mean", statistics.mean(ratios), target=Target(least=1.43))
    yield "the paper: 43 % in the mean, up to 89 %; ior-mpi-io as without"


def fairness(outcome: Outcome, alone_s: Sequence[float]) -> float:
    """Jain's index of the slowdowns."""
    slow = [took_s / own_s for took_s, own_s in zip(outcome.each_s, alone_s, strict=True)]
    return sum(slow) ** 2 / len(slow) / sum(one * one for one in slow)


def fig7(context: Context) -> Iterator[Figure | str]:
    """Three different programs at once, under all policies.

    The paper's throughput is that of the system while all three are at work. Until the last has ended all have moved
    the same bytes under each policy, and no turns are faster than one program after the other.
    """
    jobs = [Job("mpi-io-test", "read"), Job("noncontig", "read", SHORT["noncontig"]), Job("hpio", "read")]
    pool = prepared(context, "fig7", jobs, 10 * GB)
    alone_s = [at_once(pool, [job], context.directory / "scratch").each_s[0] for job in jobs]
    outcomes = pairs(context, pool, jobs, ["even", "reuse-distance", "set-10", "opportunity"], PAIRS)
    targets = {"even": Target(least=1.17), "reuse-distance": Target(least=1.45)}
    for policy in list(outcomes)[1:]:
        figure = "fig7: three programs, until the first ends"
        yield compared(figure, outcomes, policy, targets.get(policy), lambda one: one.together_mib_per_s)
        yield compared("fig7: three programs, to the end", outcomes, policy)
        firsts = [jobs[one.each_s.index(min(one.each_s))].kind for one in outcomes[policy]]
        yield f"fig7: {policy}: the first that ended: {', '.join(firsts)}"
    valid = [one.mib_per_s for one in outcomes[""] if one.is_valid]
    if valid:
        in_turn = sum(job.mib for job in jobs) / sum(alone_s)
        yield Figure("fig7: one program after the other / vanilla to the end", in_turn / statistics.median(valid))
    for policy, found in outcomes.items():
        indices = [fairness(one, alone_s) for one in found if one.is_valid]
        if indices:
            yield of_repetitions(f"fig7: Jain's index of slowdowns, {policy or 'vanilla'}", indices, unit="")
    yield "the paper: even slices 17 % over vanilla, by reuse distance 30 % more"


def fig9(context: Context) -> Iterator[Figure | str]:
    """Windows of 125 to 1000 ms."""
    jobs = [Job("mpi-io-test", "read")] * 2
    pool = prepared(context, "fig9", jobs, 10 * GB)
    paper = {125: 40.2, 250: 48.5, 500: 58.6, 1000: 59.6}
    rates: dict[int, list[float]] = {0: [], **{ms: [] for ms in paper}}
    for _ in range(context.rounds(3)):
        for ms, found in rates.items():
            options = ["--window", f"{ms * DILATION:.0f}"]
            with orchestrated(pool, "reuse-distance", *options) if ms else nullcontext():
                outcome = at_once(pool, jobs, context.directory / "scratch")
            if outcome.is_valid:
                found.append(outcome.mib_per_s)
    for ms, gained in paper.items():
        if rates[ms] and rates[0]:
            plain = statistics.median(rates[0])
            gains = [100 * (rate / plain - 1) for rate in rates[ms]]
            yield of_repetitions(f"fig9: window of {ms} ms, gain", gains, unit="%", note=f"the paper: {gained} %")


@dataclass(frozen=True)
class ConcurrentPolicy:
    """What a policy made of jobs."""

    mib_per_s: float
    worst: float
    """How many times as long as alone the job takes that is slowed most."""


def recorded(context: Context, pool: Pool, jobs: Sequence[Job]) -> tuple[dict[str, Trace], list[float]]:
    """Runs each job alone: traces by name, and how long each took."""
    scratch = context.directory / "scratch"
    alone_s = [at_once(pool, jobs, scratch, record=number).each_s[0] for number in range(len(jobs))]
    return {f"job-{number}": traces.read(scratch / f"job-{number}.trace") for number in range(len(jobs))}, alone_s


def simulated(pool: Pool, programs: dict[str, Trace], policies: Sequence[str]) -> dict[str, ConcurrentPolicy]:
    """What the simulator makes of programs that begin at once, by policy; `""` is vanilla."""
    window_s = 0.5 * DILATION
    found = together.together(programs, pool=pool, policies_tried=policies, window_s=window_s)
    return {
        "" if row["policy"] == "none" else row["policy"]: ConcurrentPolicy(
            row["throughput"]["mean"] / 2**20, together.worst_slowdown(row)
        )
        for row in found["policies"]
    }


def beside(context: Context) -> Iterator[Figure | str]:
    """What the simulator says of two recorded programs, beside what they did."""
    jobs = [Job("mpi-io-test", "read", 32 if context.quick else 96)] * 2
    pool = prepared(context, "simulated", jobs, 30 * GB)
    policies = ["reuse-distance"]
    programs, _ = recorded(context, pool, jobs)
    said = simulated(pool, programs, policies)
    outcomes = pairs(context, pool, jobs, policies, 3)
    for policy, found in outcomes.items():
        label = policy or "vanilla"
        valid = [one.mib_per_s for one in found if one.is_valid]
        yield Figure(f"simulated: {label}", said[policy].mib_per_s, "MiB/s")
        if valid:
            yield of_repetitions(f"measured: {label}", valid, unit="MiB/s")
            yield Figure(f"simulated / measured: {label}", said[policy].mib_per_s / statistics.median(valid))
    yield compared("measured gain", outcomes, policies[0])
    yield Figure(f"simulated gain: {policies[0]} / vanilla", said[policies[0]].mib_per_s / said[""].mib_per_s)


def bursts(context: Context) -> Iterator[Figure | str]:
    """Programs that compute between bursts of requests, under three policies, measured and simulated."""
    scale = 1 if context.quick else 3
    # Bursts of 0.3, 1 and 3 s of the disks' time on their own, about, and pauses as long.
    jobs = [
        Job("mpi-io-test", "read", 16 * scale, burst=8, think_s=0.3 * DILATION),
        Job("mpi-io-test", "read", 24 * scale, burst=32, think_s=1.0 * DILATION),
        Job("mpi-io-test", "read", 32 * scale, burst=96, think_s=3.0 * DILATION),
    ]
    policies = ["reuse-distance", "set-10", "opportunity"]
    pool = prepared(context, "bursts", jobs, 10 * GB)
    programs, alone_s = recorded(context, pool, jobs)
    said = simulated(pool, programs, policies)
    did: dict[str, ConcurrentPolicy] = {}
    for policy, found in pairs(context, pool, jobs, policies, 3).items():
        valid = [one for one in found if one.is_valid]
        if valid:
            worst = [max(took_s / own_s for took_s, own_s in zip(one.each_s, alone_s, strict=True)) for one in valid]
            rates = [one.mib_per_s for one in valid]
            did[policy] = ConcurrentPolicy(statistics.median(rates), statistics.median(worst))
            yield of_repetitions(f"measured: {policy or 'vanilla'}", rates, unit="MiB/s")
            yield of_repetitions(f"measured: {policy or 'vanilla'}, worst slowdown", worst)
    for policy, row in said.items():
        yield Figure(f"simulated: {policy or 'vanilla'}", row.mib_per_s, "MiB/s")
        yield Figure(f"simulated: {policy or 'vanilla'}, worst slowdown", row.worst)
    for how, rows in (("measured", did), ("simulated", said)):
        if all(policy in rows for policy in policies):
            yield from _judged(how, rows)


def _judged(how: str, rows: dict[str, ConcurrentPolicy]) -> Iterator[Figure]:
    """`opportunity` against the other two."""
    mine, paper, sets = rows["opportunity"], rows["reuse-distance"], rows["set-10"]
    yield Figure(f"{how}: opportunity / reuse-distance", mine.mib_per_s / paper.mib_per_s, target=Target(least=1.0))
    yield Figure(
        f"{how}: worst slowdown, opportunity / reuse-distance", mine.worst / paper.worst, target=Target(most=0.5)
    )
    yield Figure(f"{how}: opportunity / set-10", mine.mib_per_s / sets.mib_per_s, target=Target(least=1.0))
    yield Figure(f"{how}: worst slowdown, opportunity / set-10", mine.worst / sets.worst, target=Target(most=1.0))


FIGURES = {"fig8": fig8, "fig2": fig2, "fig7": fig7, "fig9": fig9, "simulated": beside, "bursts": bursts}


def benchmark(name: str, title: str) -> Benchmark:
    """The benchmark of a figure."""
    return Benchmark(f"iorch-{name}", title, FIGURES[name])


BENCHMARKS = (
    benchmark("fig8", "two MPI programs on files 0 to 30 GB apart, vanilla and orchestrated"),
    benchmark("fig2", "two instances of five MPI programs, vanilla and orchestrated"),
    benchmark("fig7", "three MPI programs, vanilla and by policy"),
    benchmark("fig9", "two MPI programs, by length of the window"),
    benchmark("simulated", "two MPI programs as the simulator has them, beside what was measured"),
    benchmark("bursts", "three MPI programs with pauses, by policy, measured and simulated"),
)
