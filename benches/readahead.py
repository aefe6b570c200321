"""One program that reads 64 KiB at a time from six emulated disks, with the hint `readahead` and without."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benches.frame import STRIPEWISE, Benchmark, BenchmarkError, Context, Figure, Target, checked, of_repetitions
from benches.fuse_mounts import pool_mounted
from stripewise import emulation
from stripewise.pool import Pool

DISKS = 6
BYTES_PER_S = DISKS * 80_000_000
"""What the disks give together, once they transfer."""
REQUEST_BYTES = 64 << 10
PLAIN_BYTES = 16 << 20
"""Of the file without the hint: one disk works at a time, as slowly at the end as at the beginning."""
RANDOM_REQUESTS = 100
AHEAD, PLAIN = "ahead", "plain"


@dataclass(frozen=True)
class Case:
    """A kind of disks, and what is fetched ahead of it."""

    device: str
    hint: str
    file_bytes: int


CASES = (Case("hdd-7200-head", "readahead=8M", 384 << 20), Case("hdd-7200", "readahead=64M", 1 << 30))


def run(context: Context) -> Iterator[Figure | str]:
    """For each kind of disks: sequential reads, and reads at random places, in turn with the hint and without."""
    if context.quick:
        yield from _figures(context, replace(CASES[0], file_bytes=32 << 20))
        return
    for case in CASES:
        yield from _figures(context, case)


def _figures(context: Context, case: Case) -> Iterator[Figure | str]:
    pool = pool_of_disks(context.directory / case.device, case.device)
    with pool_mounted(pool.file, pool.mount):
        files = {kind: pool.mount / kind / "data" for kind in (AHEAD, PLAIN)}
        for kind, file in files.items():
            file.parent.mkdir()
            if kind == AHEAD:
                checked([*STRIPEWISE, "hint", file.parent, case.hint])
            with file.open("wb", buffering=0) as out:
                for number in range(case.file_bytes // (1 << 20)):
                    out.write(_piece(number))
        rates, ratios, kept = [], [], []
        for number in range(context.rounds(5)):
            before = emulation.snapshot(pool)
            rates.append(
                {AHEAD: _sequential(files[AHEAD], case.file_bytes), PLAIN: _sequential(files[PLAIN], PLAIN_BYTES)}
            )
            kept.append(emulation.since(before).verdict)
            took = {kind: _random(files[kind], case.file_bytes, number) for kind in _order(number)}
            ratios.append(took[PLAIN] / took[AHEAD])
    if not all(verdict is not None and verdict["valid"] for verdict in kept):
        yield f"{case.device}: the emulated disks did not keep their times in each round"
    what = f"64 KiB requests, six {case.device}, {case.hint}"
    plain = statistics.median(of[PLAIN] for of in rates) / BYTES_PER_S
    yield of_repetitions(
        f"{what}: sequential, share of the summed bandwidth",
        [of[AHEAD] / BYTES_PER_S for of in rates],
        target=Target(least=0.9),
        note=f"{plain:.3f} without the hint",
    )
    yield of_repetitions(f"{what}: random, speed with / without", ratios, target=Target(least=0.97))


def _order(number: int) -> Sequence[str]:
    return (AHEAD, PLAIN) if number % 2 == 0 else (PLAIN, AHEAD)


def pool_of_disks(directory: Path, device: str) -> Pool:
    """A pool of six emulated disks of that preset below `directory`."""
    checked([*STRIPEWISE, "pool", "init", directory, "--emulate", "--hdd", str(DISKS)])
    file = directory / "pool.toml"
    text = file.read_text(encoding="utf-8").replace('emulate = "hdd-7200"', f'emulate = "{device}"')
    file.write_text(text, encoding="utf-8")
    return Pool.load(file)


def _piece(number: int) -> bytes:
    """A megabyte of a file, of which each request tells where it is from."""
    return number.to_bytes(8, "little") * (1 << 17)


def _sequential(file: Path, size: int) -> float:
    """Bytes a second."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        began = time.monotonic()
        for offset in range(0, size, REQUEST_BYTES):
            _check(os.pread(descriptor, REQUEST_BYTES, offset), offset)
        return size / (time.monotonic() - began)
    finally:
        os.close(descriptor)


def _random(file: Path, size: int, seed: int) -> float:
    """Seconds for requests at places that are the same for each file."""
    places = [
        offset * REQUEST_BYTES for offset in random.Random(seed).sample(range(size // REQUEST_BYTES), RANDOM_REQUESTS)
    ]
    descriptor = os.open(file, os.O_RDONLY)
    try:
        began = time.monotonic()
        for offset in places:
            _check(os.pread(descriptor, REQUEST_BYTES, offset), offset)
        return time.monotonic() - began
    finally:
        os.close(descriptor)


def _check(found: bytes, offset: int) -> None:
    number = (offset >> 20).to_bytes(8, "little")
    if len(found) != REQUEST_BYTES or found[:8] != number or found[-8:] != number:
        raise BenchmarkError(f"wrong bytes at {offset}")


BENCHMARK = Benchmark("readahead", "small requests of one program, read ahead on six emulated disks", run)
