"""MPI-IO on random layouts, independent and collective: a rank checks every byte that another one wrote."""

import random
import sys

import pytest

PROGRAM = """
import sys
import numpy as np
from mpi4py import MPI

path, seed, collective = sys.argv[1] + "/shared", int(sys.argv[2]), sys.argv[3] == "collective"
comm = MPI.COMM_WORLD
rank, ranks = comm.Get_rank(), comm.Get_size()
layout = np.random.default_rng(seed)
sizes = layout.integers(1, 200_000, size=60)
starts = np.concatenate([[0], np.cumsum(sizes)])
owner = layout.integers(0, ranks, size=60)

def content(number):
    return np.random.default_rng(seed * 1000 + number).integers(0, 256, sizes[number], dtype=np.uint8)

file = MPI.File.Open(comm, path, MPI.MODE_CREATE | MPI.MODE_RDWR)
for number in range(60):
    mine = content(number) if owner[number] == rank else np.empty(0, np.uint8)
    if collective:
        file.Write_at_all(int(starts[number]), mine)
    elif len(mine):
        file.Write_at(int(starts[number]), mine)
file.Sync()
comm.Barrier()
wrong = 0
for number in range(60):
    reader = (owner[number] + 1) % ranks
    buffer = np.zeros(sizes[number] if reader == rank else 0, np.uint8)
    if collective:
        file.Read_at_all(int(starts[number]), buffer)
    elif len(buffer):
        file.Read_at(int(starts[number]), buffer)
    if len(buffer):
        wrong += int(np.count_nonzero(buffer != content(number)))
comm.Barrier()

# A strided view: every rank its own columns, as collective buffering and data sieving see them.
columns, rows = 7, 300
kind = MPI.BYTE.Create_vector(rows, columns, columns * ranks).Commit()
base = 1 << 24
file.Set_view(base + rank * columns, MPI.BYTE, kind)
own = np.full(rows * columns, rank + 1, np.uint8)
(file.Write_all if collective else file.Write)(own)
file.Set_view(0, MPI.BYTE, MPI.BYTE)
file.Sync()
comm.Barrier()
whole = np.zeros(rows * columns * ranks, np.uint8)
file.Read_at(base, whole)
expected = np.tile(np.repeat(np.arange(1, ranks + 1, dtype=np.uint8), columns), rows)
wrong += int(np.count_nonzero(whole != expected))
file.Close()
total = comm.reduce(wrong)
if rank == 0:
    print("wrong", total)
"""


def random_layout(seed):
    """Up to four regions, each on some of the servers, widths from 4 KiB to 16 MiB, not only powers of two."""
    rng = random.Random(seed)
    regions = []
    offset = 0
    for _ in range(rng.randint(1, 4)):
        servers = rng.sample(["hdd.0", "hdd.1", "hdd.2", "ssd.0"], rng.randint(1, 4))
        widths = [f"{server}:{rng.choice([4096, 12288, 65536, 100_000, 1 << 20, 16 << 20])}B" for server in servers]
        regions.append(f'[[file.region]]\noffset = "{offset}"\nround = {widths!r}\n'.replace("'", '"'))
        offset += rng.randint(1, 3_000_000)
    return 'version = 1\npool = "test"\n[[file]]\npath = "shared"\n' + "\n".join(regions)


@pytest.mark.parametrize("preload", [True, False], ids=["preload", "mount"])
@pytest.mark.parametrize("kind", ["independent", "collective"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_byte_is_right(pool, seed, kind, preload):
    pool.apply(random_layout(seed))
    program = pool.base / "program.py"
    program.write_text(PROGRAM)
    command = ["mpiexec", "-n", "4", sys.executable, program, pool.mount, str(seed), kind]
    assert pool.run(*command, preload=preload).stdout == "wrong 0\n"
    pool.apply(random_layout(seed + 100))
    other = pool.run("md5sum", pool.mount / "shared", preload=not preload).stdout
    assert other == pool.run("md5sum", pool.mount / "shared", preload=preload).stdout
