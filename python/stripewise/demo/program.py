"""An MPI program as scientists write them: 16 processes, one shared file, MPI-IO. It knows nothing of Stripewise.

The file has five regions, as a simulation's output has its header, index, meshes and fields. Each region has its own
request size and its own heat (how often it is read). All ranks write their requests in random order, then read what
other ranks wrote and check every byte. The last line printed by rank 0 is `verified N bytes`.

    mpiexec -n 16 python program.py FILE [SCALE]

SCALE is the file's size in MiB, 256 when it is left out; a multiple of 64.
"""

import sys
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True)
class Part:
    """A region of the file that is used in one way."""

    name: str
    share: float
    """Of the whole file's bytes."""
    request_bytes: int
    reads: int
    """How often each byte is read after it was written."""


PARTS = (
    Part("header", 1 / 64, 4 * KIB, 1),
    Part("fields", 3 / 8, 1024 * KIB, 1),
    Part("index", 7 / 64, 64 * KIB, 3),
    Part("mesh", 1 / 4, 256 * KIB, 1),
    Part("halo", 1 / 4, 512 * KIB, 2),
)


def pattern(offset: int, length: int) -> npt.NDArray[np.uint64]:
    """What the file holds at `[offset, offset + length)`: a different word at every 8 bytes of it."""
    first = offset // 8
    words = np.arange(first, first + length // 8, dtype=np.uint64)
    return words * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(0x5DEECE66D)


def wait_for_all(comm: MPI.Comm) -> None:
    """A barrier that leaves the cores to ranks that still work: there are more ranks here than cores."""
    arrived = comm.Ibarrier()
    while not arrived.Test():
        time.sleep(0.001)


def own_requests(part_bytes: int, request_bytes: int, rank: int, ranks: int) -> range:
    """Numbers of the requests of a part that are `rank`'s: each rank has one contiguous segment."""
    total = part_bytes // request_bytes
    return range(total * rank // ranks, total * (rank + 1) // ranks)


def main() -> None:
    """Writes, reads and checks the file."""
    comm = MPI.COMM_WORLD
    rank, ranks = comm.Get_rank(), comm.Get_size()
    path = sys.argv[1]
    file_bytes = int(sys.argv[2] if len(sys.argv) > 2 else 256) * MIB
    if file_bytes % (64 * MIB):
        raise SystemExit("SCALE must be a multiple of 64 (MiB)")
    random = np.random.default_rng(rank)

    file = MPI.File.Open(comm, path, MPI.MODE_CREATE | MPI.MODE_RDWR)
    start = 0
    verified = 0
    for part in PARTS:
        length = int(part.share * file_bytes)
        mine = own_requests(length, part.request_bytes, rank, ranks)
        for number in random.permutation(mine):
            offset = start + int(number) * part.request_bytes
            file.Write_at(offset, pattern(offset, part.request_bytes))
        wait_for_all(comm)
        buffer = np.empty(part.request_bytes // 8, dtype=np.uint64)
        for again in range(part.reads):
            theirs = own_requests(length, part.request_bytes, (rank + 1 + again) % ranks, ranks)
            for number in random.permutation(theirs):
                offset = start + int(number) * part.request_bytes
                file.Read_at(offset, buffer)
                if not np.array_equal(buffer, pattern(offset, part.request_bytes)):
                    print(
                        f"rank {rank}: wrong bytes in [{offset}, {offset + part.request_bytes}) of {path}", flush=True
                    )
                    comm.Abort(1)
                verified += part.request_bytes
        wait_for_all(comm)
        start += length
    file.Close()

    total = comm.reduce(verified)
    if rank == 0:
        print(f"verified {total} bytes", flush=True)


if __name__ == "__main__":
    main()
