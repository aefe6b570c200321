"""Two programs that read their files in order on emulated disks with a head: without turns, and orchestrated.

The disks' queues are first come, first served: the paper's vanilla system has anticipatory ones, which lose less.
"""

from __future__ import annotations

import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benches.advice import place
from benches.emulated import Devices, make_pool
from benches.frame import STRIPEWISE, Benchmark, BenchmarkError, Context, Figure, Target, checked
from stripewise import emulation, native_paths
from stripewise.api import orchestrating
from stripewise.pool import Pool

DEVICES = Devices('"hdd-7200-head"', '"ssd-sata"', hdds=6, ssds=1)
PROCESSES = 5
REQUEST = "64KiB"
FILE_MIB = 512
RUNS = 3
LEAST = 2.5
"""The paper's gain of files that are far apart, over anticipatory queues."""
PATIENCE_S = 60.0


@contextmanager
def orchestrated(pool: Pool, policy: str, *options: str) -> Iterator[None]:
    """An orchestrator is at work on the pool."""
    command = [*STRIPEWISE, "orchestrate", str(pool.file), "--policy", policy, *options]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        began = time.monotonic()
        while orchestrating.status(pool)["process"] is None:
            if process.poll() is not None or time.monotonic() - began > PATIENCE_S:
                process.kill()
                raise BenchmarkError(f"no orchestrator with {policy}")
            time.sleep(0.01)
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)


def program(pool: Pool, name: str, *options: str) -> list[object]:
    """A run of the program `name` on its own file."""
    run = [*STRIPEWISE, "run", "--quiet", "--pool", pool.file, "--program", name, "--"]
    bench = [native_paths.bench_program(), "ior", pool.mount / name, "-p", PROCESSES, "-r", REQUEST]
    return [*run, *bench, "-s", f"{FILE_MIB}MiB", "--pattern", "strided", "--barrier", "--json", *options]


def both(pool: Pool) -> tuple[float, bool]:
    """MiB per second of two programs at once, starts included, and whether the emulated servers kept their times."""
    before, ended = emulation.snapshot(pool), []

    def read(name: str) -> None:
        checked(program(pool, name, "--read"))
        ended.append(name)

    began = time.monotonic()
    threads = [threading.Thread(target=read, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took_s = time.monotonic() - began
    if len(ended) < len(threads):
        raise BenchmarkError("a program failed")
    verdict = emulation.since(before).verdict
    return 2 * FILE_MIB / took_s, verdict is not None and bool(verdict["valid"])


def run(context: Context) -> Iterator[Figure | str]:
    """Throughput of both, by policy, and the gain over no turns."""
    pool = make_pool(context.directory / "pool", DEVICES)
    region = '[[file.region]]\noffset = "0"\nround = ["hdd.0-5:64KiB"]\n'
    place(pool, f'version = 1\npool = "{pool.name}"\n[[file]]\npath = "**"\n{region}')
    for name in ("one", "two"):
        checked(program(pool, name, "--write"))
    rates: dict[str, list[float]] = {}
    for policy in ("", "reuse-distance", "even", "opportunity"):
        for number in range(context.rounds(RUNS)):
            context.say(f"{policy or 'no turns'}, run {number + 1}")
            if policy:
                with orchestrated(pool, policy):
                    rate, is_valid = both(pool)
            else:
                rate, is_valid = both(pool)
            if is_valid:
                rates.setdefault(policy, []).append(rate)
        found = rates.get(policy)
        what = f"two programs, {policy or 'no turns'}"
        if not found:
            yield Figure(what, None, "MiB/s", note="invalid: emulation error above 10 %")
            continue
        yield Figure(what, statistics.median(found), "MiB/s", min(found), max(found))
        if policy and "" in rates:
            plain = statistics.median(rates[""])
            target = Target(least=LEAST) if policy == "reuse-distance" else None
            yield Figure(f"{policy}, over no turns", statistics.median(found) / plain, target=target)
    yield "vanilla is a queue without anticipation; the paper's target of 2.5 x is over queues with it"


BENCHMARK = Benchmark("turns", "two programs in order on disks with a head, without turns and orchestrated", run)
