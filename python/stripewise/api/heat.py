"""Heat: what accesses to each part of a file have cost of late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stripewise import _native
from stripewise.places import Place

if TYPE_CHECKING:
    from stripewise._native import FileHeat, PoolHeat
    from stripewise.pool import Pool

__all__ = ["FileHeat", "HotFile", "PoolHeat", "columns", "hottest", "of"]


@dataclass(frozen=True)
class HotFile:
    """A file with its heat."""

    path: str
    cost_us: int
    parts: list[float]
    """Of parts of equal length, in order: microseconds a byte."""


def of(place: Place) -> PoolHeat:
    """The heat of the file at a place, or of all files of a directory.

    Raises `StripewiseError` where the pool keeps no heat.
    """
    return _native.pool_heat(str(place.pool.file), place.name)


def hottest(pool: Pool, most: int, parts: int) -> list[HotFile]:
    """The hottest files of a pool, the hottest first, each in that many parts; none of a pool that keeps no heat.

    O(blocks with heat, and files that have some).
    """
    if not pool.keeps_heat:
        return []
    known = _native.pool_heat(str(pool.file), ".")
    files = sorted(known["files"], key=lambda file: -file["cost_us"])[:most]
    return [HotFile(of["path"], of["cost_us"], columns(of, known["block_bytes"], parts)) for of in files]


def columns(file: FileHeat, block_bytes: int, count: int) -> list[float]:
    """The heat of `count` parts of a file of equal length, in order: microseconds a byte."""
    size_bytes = max(1, file["size_bytes"])
    width_bytes = size_bytes / count
    costs = [0.0] * count
    for block, cost_us in file["blocks"]:
        begin, end = block * block_bytes, min((block + 1) * block_bytes, size_bytes)
        first, last = int(begin / width_bytes), min(count - 1, int((end - 1) / width_bytes))
        for column in range(first, last + 1):
            inside = min(end, (column + 1) * width_bytes) - max(begin, column * width_bytes)
            costs[column] += cost_us * max(0.0, inside) / max(1, end - begin)
    return [cost / width_bytes for cost in costs]
