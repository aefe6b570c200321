"""One program that writes 4 KiB at a time to six emulated disks, with the hint `writebehind` and without."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from benches.frame import STRIPEWISE, Benchmark, BenchmarkError, Context, Figure, checked, of_repetitions
from benches.fuse_mounts import pool_mounted
from benches.readahead import BYTES_PER_S, pool_of_disks
from stripewise import emulation

REQUEST_BYTES = 4 << 10
PLAIN_BYTES = 1 << 20
"""Of the file without the hint: each request costs a disk its startup."""
DEVICE, HINT = "hdd-7200", "writebehind=16M"


def run(context: Context) -> Iterator[Figure | str]:
    """Sequential writes with one `fsync` at the end, in turn with the hint and without."""
    behind_bytes = (32 if context.quick else 192) << 20
    pool = pool_of_disks(context.directory / DEVICE, DEVICE)
    with pool_mounted(pool.file, pool.mount):
        directory = pool.mount / "behind"
        directory.mkdir()
        checked([*STRIPEWISE, "hint", directory, HINT])
        behind, plain, kept = [], [], []
        for number in range(context.rounds(5)):
            before = emulation.snapshot(pool)
            behind.append(_written(directory / f"{number}", behind_bytes))
            plain.append(_written(pool.mount / f"{number}", PLAIN_BYTES))
            kept.append(emulation.since(before).verdict)
    if not all(verdict is not None and verdict["valid"] for verdict in kept):
        yield f"{DEVICE}: the emulated disks did not keep their times in each round"
    what = f"4 KiB requests, six {DEVICE}, {HINT}: sequential writes and fsync"
    share = statistics.median(plain) / BYTES_PER_S
    yield of_repetitions(
        f"{what}, share of the summed bandwidth",
        [rate / BYTES_PER_S for rate in behind],
        note=f"{share:.5f} without the hint",
    )
    yield of_repetitions(f"{what}, with / without", [a / b for a, b in zip(behind, plain, strict=True)])


def _written(file: Path, size: int) -> float:
    """Bytes a second until all is synced; the file has the bytes then."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT)
    try:
        began = time.monotonic()
        for offset in range(0, size, REQUEST_BYTES):
            os.pwrite(descriptor, _piece(offset), offset)
        os.fsync(descriptor)
        rate = size / (time.monotonic() - began)
    finally:
        os.close(descriptor)
    with file.open("rb", buffering=8 << 20) as found:
        if any(found.read(REQUEST_BYTES) != _piece(offset) for offset in range(0, size, REQUEST_BYTES)):
            raise BenchmarkError(f"wrong bytes in {file}")
    file.unlink()
    return rate


def _piece(offset: int) -> bytes:
    return offset.to_bytes(8, "little") * (REQUEST_BYTES // 8)


BENCHMARK = Benchmark("writebehind", "small requests of one program, gathered for six emulated disks", run)
