"""An MPI program in which two ranks write and read while the others spin in a barrier: mpiexec -n 16 python FILE."""

import os
import random
import sys

from mpi4py import MPI

REQUEST_BYTES = 128 << 10
REQUESTS = 200
WORKERS = 2


def main() -> None:
    """Each working rank has a half of the file."""
    comm = MPI.COMM_WORLD
    comm.Barrier()
    if comm.rank < WORKERS:
        file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
        numbers = list(range(comm.rank * REQUESTS, (comm.rank + 1) * REQUESTS))
        random.Random(comm.rank).shuffle(numbers)
        for number in numbers:
            os.pwrite(file, bytes([number % 251]) * REQUEST_BYTES, number * REQUEST_BYTES)
        for number in numbers:
            if os.pread(file, REQUEST_BYTES, number * REQUEST_BYTES) != bytes([number % 251]) * REQUEST_BYTES:
                raise SystemExit(f"request {number}: read something else than was written")
        os.close(file)
    comm.Barrier()


main()
