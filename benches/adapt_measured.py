"""`adapt` and the best cache of 1 MiB blocks on emulated pools, as real programs: three loads of `adapt-caches`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import numpy as np

from benches import adapt_caches, cache_program, emulated
from benches.cache_loads import FAST_BYTES, MIB, Load, loads
from benches.caches import CACHES
from benches.frame import ROOT, STRIPEWISE, Benchmark, BenchmarkError, Context, Figure, Target, checked, of_repetitions
from benches.fuse_mounts import pool_mounted
from stripewise import _native, emulation, layouts
from stripewise.pool import Pool

COUNTS = {"scan-hot": 20_000, "loop-far": 20_000, "db-index": 8_000}
"""Of requests of the smallest size: each load takes the cache less than 20 s in the simulator."""
PERIOD_S, HORIZON_H = 5, 0.2
"""As in the simulator: 144 periods."""
LEARNS_FROM = 4096
"""Requests of the load, by which `adapt` chooses the hints of the pools that are measured."""
PIECE = 8 * MIB
DEVICES = emulated.Devices('"hdd-7200"', '"ssd-sata"', hdds=adapt_caches.HDDS, ssds=adapt_caches.SSDS)


def measured(context: Context) -> Iterator[Figure | str]:
    """Pairs of runs in turn, beside what the simulator says of the same requests."""
    for name, count in COUNTS.items():
        load = next(of for of in loads(count // 10 if context.quick else count) if of.name == name)
        simulated = context.directory / f"{name}-simulated"
        pool = adapt_caches.make_pool(simulated, load)
        cluster = adapt_caches.devices(pool)
        caches = {kind.name: adapt_caches.cached_s(cluster, load, kind, mounted=False)[0] for kind in CACHES}
        best = min(caches, key=lambda of: caches[of])
        ours_s = adapt_caches.adapted_s(cluster, adapt_caches.Adapted(pool, load))
        hints = hinted(context.directory / f"{name}-hints", load)
        context.say(f"{name}: adapt has hinted {' '.join(hints) or 'nothing'}")
        ratios, seconds = [], []
        for number in range(context.rounds(3)):
            ways = [("adapt", None), ("cache", best)]
            took = {
                way: run(context.directory / f"{name}-{number}-{way}", load, cache, hints)
                for way, cache in (ways if number % 2 == 0 else reversed(ways))
            }
            ratios.append(took["cache"][0] / took["adapt"][0])
            seconds.append(f"{took['cache'][0]:.1f} / {took['adapt'][0]:.1f} s")
            errors = [f"{way} {100 * error:.0f} %" for way, (_, error) in took.items()]
            context.say(f"{name}: {best} {seconds[-1]} adapt; emulation errors (median): {', '.join(errors)}")
        note = f"{best} / adapt {'; '.join(seconds)}; the simulator says {caches[best] / ours_s:.2f}: "
        note += f"{caches[best]:.1f} / {ours_s:.1f} s; adapt has hinted {' '.join(hints) or 'nothing'}"
        yield of_repetitions(f"{name}: adapt over {best}", ratios, target=Target(least=adapt_caches.LEAST), note=note)


def run(directory: Path, load: Load, cache: str | None, hints: list[str]) -> tuple[float, float]:
    """Seconds of the load on a new pool, over a cache or with `adapt` beside it, and the emulation's median error.

    The files of our pool are made with the `hints`.
    """
    pool, asked = prepared(directory, load, cache, hints)
    with pool_mounted(pool.file, pool.mount):
        before = emulation.snapshot(pool)
        with beside(pool) if cache is None else pool_alone():
            done = checked([sys.executable, "-m", "benches.cache_program", asked], cwd=ROOT)
        verdict = emulation.since(before).verdict
    emptied(directory)
    return float(json.loads(done)["took_s"]), (verdict["median"] or 0.0) if verdict is not None else 0.0


def hinted(directory: Path, load: Load) -> list[str]:
    """What `adapt` hints for files that are read as the load begins: by two decisions, the first of which is early."""
    pool, asked = prepared(directory, Load(load.name, load.what, load.sizes, load.rows[:LEARNS_FROM]), None, [])
    # Data may move in an hour that is far off: hints are set at any hour.
    later = datetime.now().hour + 12
    with pool_mounted(pool.file, pool.mount):
        checked([sys.executable, "-m", "benches.cache_program", asked], cwd=ROOT)
        for _ in range(2):
            checked(
                [*STRIPEWISE, "adapt", pool.file, "--once", "--hours", f"{later % 24}-{(later + 1) % 24}"], cwd=ROOT
            )
    found = _native.hints_of(str(pool.file), ".")["hints"]
    emptied(directory)
    return [setting for hint in found for setting in hint["optimisations"]]


def prepared(directory: Path, load: Load, cache: str | None, hints: list[str]) -> tuple[Pool, Path]:
    """A new pool with the load's files, and what `cache_program` is asked."""
    room = None if cache else FAST_BYTES // adapt_caches.SSDS
    pool = emulated.make_pool(directory, DEVICES, room)
    names = [f"f{number:02}" for number in range(len(load.sizes))]
    text = adapt_caches.first_layout(pool.name, len(load.sizes))
    if cache is not None:
        stripes = ", ".join(f'"ssd.{number}:64KiB"' for number in range(adapt_caches.SSDS))
        text += f'[[file]]\npath = "fast"\n[[file.region]]\noffset = "0"\nround = [{stripes}]\n'
        names.append("fast")
    first = directory / "first.layout"
    first.write_text(text, encoding="utf-8")
    layouts.apply(first, pool.file)
    asked = directory / "load.json"
    np.save(directory / "rows.npy", load.rows)
    document: dict[str, object] = {"cache": cache, "blocks": FAST_BYTES // MIB, "sizes": list(load.sizes)}
    document |= {"rows": str(directory / "rows.npy"), "files": [str(pool.mount / of) for of in names]}
    asked.write_text(json.dumps(document), encoding="utf-8")
    with pool_mounted(pool.file, pool.mount):
        if cache is None and hints:
            checked([*STRIPEWISE, "hint", pool.mount, *hints])
        fill(pool, names, load)
    # What was written to make the files is not hot.
    with pool.file.open("a", encoding="utf-8") as out:
        out.write(f'\n[heat]\nblock = "1MiB"\nperiod = "{PERIOD_S}s"\n' if cache is None else "")
    return pool, asked


def emptied(directory: Path) -> None:
    """Removes the large files below it."""
    for path in directory.rglob("*"):
        if path.is_file() and path.stat().st_size > MIB:
            path.unlink()


def fill(pool: Pool, names: list[str], load: Load) -> None:
    """Writes all files: what stands in them is known, or zeros in the cache's fast space."""
    sizes = [*load.sizes, FAST_BYTES]
    with ThreadPoolExecutor(4) as threads:
        for number, name in enumerate(names):
            with (pool.mount / name).open("wb", buffering=0) as out:
                ends = [(at, min(at + PIECE, sizes[number])) for at in range(0, sizes[number], PIECE)]
                for done in [threads.submit(_put, out.fileno(), number, *piece) for piece in ends]:
                    done.result()


def _put(descriptor: int, number: int, begin: int, end: int) -> None:
    if os.pwrite(descriptor, cache_program.content(number, begin, end - begin), begin) != end - begin:
        raise BenchmarkError(f"file {number} could not be written at {begin}")


@contextmanager
def pool_alone() -> Iterator[None]:
    """Nothing is beside the load."""
    yield


@contextmanager
def beside(pool: Pool) -> Iterator[None]:
    """`adapt` is at work, as in the simulator."""
    options = ["--period", str(PERIOD_S), "--horizon", str(HORIZON_H), "--urgent", "--json"]
    with (
        (pool.file.parent / "adapt.log").open("w", encoding="utf-8") as log,
        subprocess.Popen([*STRIPEWISE, "adapt", str(pool.file), *options], stdout=log, stderr=log) as process,
    ):
        try:
            time.sleep(2.0)
            if process.poll() is not None:
                raise BenchmarkError((pool.file.parent / "adapt.log").read_text(encoding="utf-8"))
            yield
        finally:
            process.terminate()


BENCHMARK = Benchmark("adapt-measured", "adapt against the best cache as a program, three loads, emulated", measured)
