"""MPI programs of IOrchestrator's benchmarks.

mpiexec -n 5 python FILE KIND read|write FILE BYTES READY GO [--barrier] [--burst N --think SECONDS]

Each moves BYTES of the file in all. Rank 0 makes the file READY when all ranks have opened, and all begin when the file
GO is there. Rank 0 prints when the ranks began and ended, by the clock that all programs of a machine share, and how
many bytes each had moved by the end of each tenth of a second.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from mpi4py import MPI

SEGMENT = 64 << 10
SPACING = 10
COLUMN = 16 << 10
TILE = 8 << 10
OVERLAP = 64
KINDS = ("mpi-io-test", "ior-mpi-io", "noncontig", "hpio", "mpi-tile-io")
POLL_S = 50e-6
TENTHS = 10


def requests(kind: str, rank: int, ranks: int, total: int) -> Iterator[tuple[int, int]]:
    """Offsets and sizes of a rank's requests: all ranks make the same number of them."""
    size = {"noncontig": COLUMN, "mpi-tile-io": TILE}.get(kind, SEGMENT)
    for number in range(total // size // ranks):
        turn = number * ranks + rank
        if kind == "ior-mpi-io":
            yield (rank * (total // ranks // size) + number) * size, size
        elif kind == "hpio":
            yield turn * (size + SPACING), size
        elif kind == "mpi-tile-io":
            yield max(turn * (size - OVERLAP), 0), size
        else:
            yield turn * size, size


def meet(comm: MPI.Intracomm) -> None:
    """A barrier whose ranks sleep: spinning ones would take the processors from the others."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(POLL_S)


def main() -> None:
    """Reads or writes, request by request."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("op", choices=("read", "write"))
    parser.add_argument("file")
    parser.add_argument("bytes", type=int)
    parser.add_argument("ready", type=Path)
    parser.add_argument("go", type=Path)
    parser.add_argument("--barrier", action="store_true")
    parser.add_argument("--burst", type=int, default=0, help="Requests of a rank before each pause; 0: no pause.")
    parser.add_argument("--think", type=float, default=0.0, help="Seconds of a pause.")
    asked = parser.parse_args()
    comm = MPI.COMM_WORLD
    # Each request of the program is one of the file system.
    info = MPI.Info.Create({"romio_ds_read": "disable", "romio_ds_write": "disable"})
    file = MPI.File.Open(comm, asked.file, MPI.MODE_CREATE | MPI.MODE_RDWR, info)
    buffer = np.full(SEGMENT, comm.rank + 1, np.uint8)
    meet(comm)
    if comm.rank == 0:
        asked.ready.touch()
    while not asked.go.exists():
        time.sleep(1e-3)
    began_s, moved = time.monotonic(), 0
    by_tenth: dict[int, int] = {}
    for number, (offset, size) in enumerate(requests(asked.kind, comm.rank, comm.size, asked.bytes)):
        if asked.burst and number and number % asked.burst == 0:
            time.sleep(asked.think)
        part = buffer[:size]
        if asked.op == "write":
            file.Write_at(offset, part)
        else:
            file.Read_at(offset, part)
        moved += size
        by_tenth[int(time.monotonic() * TENTHS)] = moved
        if asked.barrier:
            meet(comm)
    spans = comm.gather((began_s, time.monotonic(), moved, list(by_tenth.items())))
    if spans is not None:
        begin, end, parts, tenths = zip(*spans, strict=True)
        print(json.dumps({"begin_s": min(begin), "end_s": max(end), "bytes": sum(parts), "moved": tenths}))
    file.Close()


main()
