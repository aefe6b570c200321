"""Real MPI programs, traced on emulated servers and simulated on the same: calls, bytes and time of both."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benches.emulated import Devices, make_pool
from benches.frame import STRIPEWISE, Benchmark, BenchmarkError, Context, Figure, Target, checked, of_repetitions
from stripewise import _native, emulation
from stripewise.pool import Pool

DEVICES = Devices('"hdd-7200"', '"ssd-sata"', hdds=4, ssds=2)
RUNS = 3
WORST_ERROR = 15.0
"""Of the simulated time, in percent of the measured one."""
MIXED = """
import sys
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, ranks = comm.Get_rank(), comm.Get_size()
file = MPI.File.Open(comm, sys.argv[1], MPI.MODE_CREATE | MPI.MODE_RDWR)
columns = MPI.BYTE.Create_vector(64, 4096, 4096 * ranks).Commit()
for number in range(20):
    file.Set_view(number * 262144 * ranks + rank * 4096, MPI.BYTE, columns)
    file.Write_all(np.full(262144, rank + 1, np.uint8))
file.Set_view(0, MPI.BYTE, MPI.BYTE)
comm.Barrier()
buffer = np.empty(65536, np.uint8)
for number in range(40):
    file.Read_at((number * ranks + rank) * 65536, buffer)
comm.Barrier()
own = np.empty(1 << 20, np.uint8)
for number in range(10):
    file.Read_at_all(rank << 20, own)
file.Close()
"""


def programs(pool: Pool, program: Path, quick: bool) -> dict[str, tuple[Sequence[object], int]]:
    """The command of each, and the data calls that it makes together."""
    file = pool.mount / "replayed.dat"
    steps, size = (5, "4MiB") if quick else (20, "32MiB")
    ior = ["stripewise", "bench", "ior", file, "--processes", "4", "--request-size", "128KiB", "--file-size", size]
    bytes_of = {"4MiB": 4 << 20, "32MiB": 32 << 20}[size]
    return {
        "BTIO, 4 ranks, collective": (
            ["stripewise", "bench", "btio", file, "--class", "W", "--steps", str(steps), "--processes", "4"],
            2 * steps,
        ),
        "IOR, 4 ranks, collective": ([*ior, "--api", "mpi-io", "--collective"], 2 * bytes_of // (128 << 10) // 4),
        "IOR, 4 ranks, independent": ([*ior, "--api", "mpi-io"], 0),
        "IOR, 4 processes, POSIX": (ior, 0),
        "mpi4py, 4 ranks, both and barriers": (["mpiexec", "-n", "4", sys.executable, program, file], 30),
    }


def run(context: Context) -> Iterator[Figure | str]:
    """Errors of the simulated time; counts that differ are no figure but an error."""
    pool = make_pool(context.directory / "pool", DEVICES)
    program = context.directory / "mixed.py"
    program.write_text(MIXED, encoding="utf-8")
    for name, (command, calls) in programs(pool, program, context.quick).items():
        errors, without = [], []
        median: float | None = None
        for number in range(context.rounds(RUNS)):
            context.say(f"{name}: run {number + 1}")
            trace = context.directory / "run.trace"
            before = emulation.snapshot(pool)
            checked([*STRIPEWISE, "trace", "--pool", pool.file, "-o", trace, "--", *command])
            verdict = emulation.since(before).verdict
            median = verdict["median"] if verdict else None
            thinking = simulated(pool, trace, "--think")
            same(name, trace, pool, thinking, calls)
            errors.append(error(thinking))
            without.append(error(simulated(pool, trace)))
            (pool.mount / "replayed.dat").unlink(missing_ok=True)
        shown = "unknown" if median is None else f"{median:.1%}"
        yield of_repetitions(
            f"{name}: simulated time against the trace's, with think times",
            errors,
            unit="%",
            target=Target(least=-WORST_ERROR, most=WORST_ERROR),
            note=f"{calls} collective calls found; emulation error {shown}",
        )
        yield of_repetitions(f"{name}: the same without think times", without, unit="%")


def simulated(pool: Pool, trace: Path, *options: str) -> _native.SimulationDocument:
    """The trace on the pool that it ran on, with the layout that the file has there."""
    document: _native.SimulationDocument = json.loads(
        checked([*STRIPEWISE, "simulate", trace, "--pool", pool.file, "--json", *options])
    )
    return document


def error(document: _native.SimulationDocument) -> float:
    """Of the simulated time, in percent of the time in the trace."""
    return 100 * (document["present"]["makespan_s"]["mean"] / document["traced_s"] - 1)


def same(name: str, trace: Path, pool: Pool, document: _native.SimulationDocument, calls: int) -> None:
    """Raises `BenchmarkError` where requests, bytes or collective calls are not those of the trace."""
    recorded = _native.Trace(str(trace))
    ours = [number for number, file in enumerate(recorded.files()) if Path(file).is_relative_to(pool.mount)]
    columns = recorded.columns(requests_only=True)
    sizes = columns["size"][np.isin(columns["file"], ours)]
    present = document["present"]
    found = (document["collectives"], document["requests"], present["read_bytes"] + present["written_bytes"])
    expected = (calls, len(sizes), int(sizes.sum()))
    if found != expected:
        raise BenchmarkError(f"{name}: calls, requests, bytes simulated {found}, in the trace {expected}")


BENCHMARK = Benchmark("replay", "simulated against traced: real MPI programs on emulated servers", run)
