"""How exactly emulated servers keep their times, on a busy machine too."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from benches.emulated import MIB, PROCESSES, Devices, make_pool, run_workload
from benches.frame import STRIPEWISE, Benchmark, BenchmarkError, Context, Figure, Target, checked, of_repetitions
from stripewise import _native, emulation
from stripewise.pool import Pool

DISKS = Devices(hdd='"hdd-7200"', ssd='"ssd-sata"')
RANKS = Path(__file__).with_name("spinning_ranks.py")
MOST = Target(most=10.0)


def run(context: Context) -> Iterator[Figure]:
    """Requests over all servers, and requests to the fastest only, where an error weighs most."""
    mixed = make_pool(context.directory / "mixed", DISKS)
    flash = make_pool(context.directory / "flash", DISKS)
    layout = flash.file.with_name("flash.layout")
    layout.write_text(
        f'version = 1\npool = "{flash.name}"\n\n[[file]]\npath = "*"\n\n[[file.region]]\noffset = "0"\n'
        'round = ["ssd.0-1:512KiB"]\n',
        encoding="utf-8",
    )
    checked([*STRIPEWISE, "apply", layout, "--pool", flash.file])
    for name, pool in (("all servers", mixed), ("SSDs only", flash)):
        volume = ["--file-size", f"{(64 if context.quick else 256) * MIB}B"]

        def load(pool: Pool = pool, volume: list[str] = volume) -> _native.EmulationVerdict:
            return run_workload(pool, *volume).emulation

        yield from _figures(context, f"{PROCESSES} processes, {name}", load)

        def ranks(pool: Pool = pool) -> _native.EmulationVerdict:
            return _spinning(pool)

        yield from _figures(context, f"2 MPI ranks, 14 more spin in a barrier, {name}", ranks)


def _figures(context: Context, name: str, load: Callable[[], _native.EmulationVerdict]) -> Iterator[Figure]:
    context.say(name)
    verdicts = [load() for _ in range(context.rounds(3))]
    errors = [100 * (verdict["median"] or 0.0) for verdict in verdicts]
    tails = max(verdict["p99"] or 0.0 for verdict in verdicts)
    note = f"99th percentile {100 * tails:.1f} %, {sum(verdict['requests'] for verdict in verdicts)} requests"
    yield of_repetitions(f"{name}: median error", errors, unit="%", target=MOST, note=note)
    overshoot = [1e6 * (verdict["median_overshoot_s"] or 0.0) for verdict in verdicts]
    yield of_repetitions(f"{name}: median overshoot", overshoot, unit="us")


def _spinning(pool: Pool) -> _native.EmulationVerdict:
    before = emulation.snapshot(pool)
    program = [
        Path(sys.executable).parent / "mpiexec",
        "-n",
        str(PROCESSES),
        sys.executable,
        RANKS,
        pool.mount / "ranks.dat",
    ]
    checked([*STRIPEWISE, "run", "--quiet", "--pool", pool.file, "--", *program])
    verdict = emulation.since(before).verdict
    if verdict is None or verdict["median"] is None:
        raise BenchmarkError(f"no request reached the emulated servers of {pool.file}")
    return verdict


BENCHMARK = Benchmark("emulation", "measured minus drawn service time of emulated servers, over drawn", run)
