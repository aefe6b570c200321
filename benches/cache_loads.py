"""Ten loads for caches and for `adapt`: requests of 16 processes on files larger than the fast space.

Each is drawn with a seed of its own, so that all ways serve the same requests in the same order.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

KIB = 1 << 10
MIB = 1 << 20
PROCESSES = 16
FAST_BYTES = 64 * MIB
"""All of the fast space."""
DATA_MIB = 512
READ, WRITE = 0, 1

Rows = npt.NDArray[np.int64]
"""File, offset, size and kind: a row a request, in the order in which they are sent."""


@dataclass(frozen=True)
class Load:
    """Requests, and the files that they are for."""

    name: str
    what: str
    """Its parameters, in words."""
    sizes: tuple[int, ...]
    """Bytes of each file."""
    rows: Rows

    @property
    def bytes(self) -> int:
        """Read and written in all."""
        return int(self.rows[:, 2].sum())


def rows_of(file: object, offset: object, size: object, kind: object = READ) -> Rows:
    """Requests by column; one value stands for all rows."""
    return np.stack(
        np.broadcast_arrays(*(np.asarray(column, dtype=np.int64) for column in (file, offset, size, kind))), 1
    )


def zipf(random: np.random.Generator, values: int, exponent: float, count: int) -> npt.NDArray[np.int64]:
    """Places of a Zipf distribution, 0 the most frequent."""
    weights = np.arange(1, values + 1) ** -exponent
    return random.choice(values, size=count, p=weights / weights.sum())


def _sequential(begin: int, end: int, size: int) -> npt.NDArray[np.int64]:
    return np.arange(begin, end, size, dtype=np.int64)


def _zipf_shift(random: np.random.Generator, count: int, exponent: float, shifts: int) -> Rows:
    parts = []
    for _ in range(shifts):
        objects = random.permutation(DATA_MIB)[zipf(random, DATA_MIB, exponent, count // shifts)]
        within = random.integers(0, MIB // (64 * KIB), count // shifts)
        parts.append(rows_of(0, objects * MIB + within * 64 * KIB, 64 * KIB))
    return np.concatenate(parts)


def zipf_flat(random: np.random.Generator, count: int) -> Rows:
    """Objects of 1 MiB, half of the requests for a fifth of them."""
    return _zipf_shift(random, count, 0.8, 4)


def zipf_steep(random: np.random.Generator, count: int) -> Rows:
    """The same, but most are for a few."""
    return _zipf_shift(random, count, 1.2, 4)


def _mixed(random: np.random.Generator, rare: Rows, often: Rows, part: float) -> Rows:
    """`often` in place of the given part of the requests of `rare`, in the order of both."""
    takes = random.random(len(rare)) < part
    rows = rare.copy()
    rows[takes] = often[: int(takes.sum())]
    # What was displaced is not lost: the scan goes on where it was.
    rows[~takes] = rare[: int((~takes).sum())]
    return rows


def _scan(count: int, size: int) -> Rows:
    places = DATA_MIB * MIB // size
    return rows_of(0, np.arange(count) % places * size, size)


def scan_hot(random: np.random.Generator, count: int) -> Rows:
    """Half of the requests scan all, half are for 40 MiB."""
    hot = rows_of(0, 100 * MIB + random.integers(0, 40 * 16, count) * 64 * KIB, 64 * KIB)
    return _mixed(random, _scan(count, 64 * KIB), hot, 0.5)


def scan_often(random: np.random.Generator, count: int) -> Rows:
    """Nine of ten scan in pieces of 256 KiB, one is for 16 MiB."""
    count //= 3
    hot = rows_of(0, 300 * MIB + random.integers(0, 16 * 16, count) * 64 * KIB, 64 * KIB)
    return _mixed(random, _scan(count, 256 * KIB), hot, 0.1)


def _loop(count: int, mib: int, size: int) -> Rows:
    return rows_of(0, 64 * MIB + np.arange(count) % (mib * MIB // size) * size, size)


def loop_near(_: np.random.Generator, count: int) -> Rows:
    """A loop half as large again as the fast space."""
    return _loop(count // 2, 96, 128 * KIB)


def loop_far(_: np.random.Generator, count: int) -> Rows:
    """A loop four times as large as it."""
    return _loop(count // 2, 256, 128 * KIB)


SOURCES = 96
HEADERS_MIB = 24


def build_tree(random: np.random.Generator, count: int) -> Rows:
    """Builds of a tree: each source once, headers again and again, objects written, and read by the link."""
    rows: list[Rows] = []
    length = 0
    while length < count:
        for source in random.permutation(SOURCES):
            source_rows = rows_of(2 + source, _sequential(0, 256 * KIB, 64 * KIB), 64 * KIB)
            headers = rows_of(0, random.integers(0, HEADERS_MIB * 64, 40) * 16 * KIB, 16 * KIB)
            written = rows_of(1, source * 512 * KIB + _sequential(0, 512 * KIB, 64 * KIB), 64 * KIB, WRITE)
            rows += [source_rows, headers, written]
        rows.append(
            np.concatenate(
                [
                    rows_of(1, source * 512 * KIB + _sequential(0, 512 * KIB, 128 * KIB), 128 * KIB)
                    for source in range(SOURCES)
                ]
            )
        )
        length = sum(map(len, rows))
    return np.concatenate(rows)[:count]


def db_zipf(random: np.random.Generator, count: int) -> Rows:
    """Pages of 16 KiB, popular ones next to each other by 4 MiB, a fifth of the requests writes."""
    extents = random.permutation(DATA_MIB // 4)[zipf(random, DATA_MIB // 4, 1.0, count)]
    pages = random.integers(0, 256, count)
    writes = random.random(count) < 0.2
    return rows_of(0, extents * 4 * MIB + pages * 16 * KIB, 16 * KIB, np.where(writes, WRITE, READ))


def db_index(random: np.random.Generator, count: int) -> Rows:
    """An index of 48 MiB that is read three times for each page of the heap; one page of four is written."""
    index = rows_of(0, random.integers(0, 48 * 128, count) * 8 * KIB, 8 * KIB)
    heap = rows_of(1, random.integers(0, 464 * 128, count) * 8 * KIB, 8 * KIB, random.random(count) < 0.25)
    return _mixed(random, heap, index, 0.75)


def checkpoint(random: np.random.Generator, count: int) -> Rows:
    """16 processes read input at random, write 128 MiB to one of two files in turn, and read each third one back."""
    rows: list[Rows] = []
    length, number = 0, 0
    while length < count // 4:
        rows.append(rows_of(0, random.integers(0, 256, 512) * MIB + random.integers(0, 4, 512) * 256 * KIB, 256 * KIB))
        order = np.arange(128).reshape(PROCESSES, -1).T.ravel() * MIB
        rows.append(rows_of(1 + number % 2, order, MIB, WRITE))
        if number % 3 == 2:
            rows.append(rows_of(1 + number % 2, order, MIB, READ))
        number += 1
        length = sum(map(len, rows))
    return np.concatenate(rows)[: count // 4]


def loads(count: int) -> Iterable[Load]:
    """All ten. `count` is the number of requests of those with small ones."""
    one = (DATA_MIB * MIB,)
    tree = (HEADERS_MIB * MIB, SOURCES * 512 * KIB, *([256 * KIB] * SOURCES))
    made: tuple[tuple[str, str, tuple[int, ...], Callable[[np.random.Generator, int], Rows]], ...] = (
        ("zipf-flat", "objects of 1 MiB by Zipf 0.8, others in each quarter, 64 KiB", one, zipf_flat),
        ("zipf-steep", "objects of 1 MiB by Zipf 1.2, others in each quarter, 64 KiB", one, zipf_steep),
        ("scan-hot", "half scans 512 MiB, half in 40 MiB at random, 64 KiB", one, scan_hot),
        ("scan-often", "nine of ten scan in 256 KiB, one in 16 MiB at random in 64 KiB", one, scan_often),
        ("loop-near", "a loop over 96 MiB in 128 KiB", one, loop_near),
        ("loop-far", "a loop over 256 MiB in 128 KiB", one, loop_far),
        ("build-tree", "headers of 24 MiB, 96 sources of 256 KiB, objects of 48 MiB in one file", tree, build_tree),
        ("db-zipf", "pages of 16 KiB, extents of 4 MiB by Zipf 1.0, a fifth writes", one, db_zipf),
        ("db-index", "three of 48 MiB of index, one of 464 MiB of heap, 8 KiB", (48 * MIB, 464 * MIB), db_index),
        (
            "checkpoint",
            "input of 256 MiB, 128 MiB written in turn to two files",
            (256 * MIB,) + (128 * MIB,) * 2,
            checkpoint,
        ),
    )
    for name, what, sizes, make in made:
        random = np.random.default_rng(zlib.crc32(name.encode()))
        yield Load(name, what, sizes, make(random, count))
