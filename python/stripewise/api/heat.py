"""Heat: what accesses to each part of a file have cost of late."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stripewise import _native, places
from stripewise.places import Place

if TYPE_CHECKING:
    from stripewise._native import FileHeat, PoolHeat
    from stripewise.pool import Pool

__all__ = ["FileHeat", "HotFile", "PoolHeat", "came", "columns", "hottest", "of"]

FULL_US = (1 << 32) - 1
"""At which the counter of a block stops."""


@dataclass(frozen=True)
class HotFile:
    """A file with its heat."""

    path: str
    cost_us: int
    parts: list[float]
    """Of parts of equal length, in order: microseconds a byte."""


def of(place: Place) -> PoolHeat:
    """The heat of the file at a place, or of all files of a directory; a link is followed in its pool.

    Raises `StripewiseError` where the pool keeps no heat, or nothing is at the place.
    """
    place = places.followed(place)
    found = _native.pool_heat(str(place.pool.file), place.name)
    if not found["files"]:
        # Where nothing is, an error says so.
        _native.file_stat(str(place.pool.file), place.name or ".")
    return found


def hottest(pool: Pool, most: int, parts: int) -> list[HotFile]:
    """The hottest files of a pool, the hottest first, each in that many parts; none of a pool that keeps no heat.

    O(blocks with heat, and files that have some).
    """
    if not pool.keeps_heat:
        return []
    known = _native.pool_heat(str(pool.file), ".")
    files = sorted(known["files"], key=lambda file: -file["cost_us"])[:most]
    return [HotFile(of["path"], of["cost_us"], columns(of, known["block_bytes"], parts)) for of in files]


def came(known_us: float, cost_us: float, periods: float) -> float:
    """What has come to a block in a part of a period, whose counter had `known_us` before and has `cost_us` now.

    One that has stopped does not tell. As it is halved once a period, at least half of it comes in each.
    """
    more_us = cost_us - known_us
    return more_us if cost_us < FULL_US else max(more_us, FULL_US / 2 * min(1.0, periods))


def columns(file: FileHeat, block_bytes: int, count: int) -> list[float]:
    """The heat of `count` parts of a file of equal length, in order: microseconds a byte."""
    size_bytes = max(1, file["size_bytes"])
    width_bytes = size_bytes / count
    costs = [0.0] * count
    for block, cost_us in file["blocks"]:
        begin, end = block * block_bytes, min((block + 1) * block_bytes, size_bytes)
        first, last = int(begin / width_bytes), min(count, math.ceil(end / width_bytes)) - 1
        for column in range(first, last + 1):
            inside = min(end, (column + 1) * width_bytes) - max(begin, column * width_bytes)
            costs[column] += cost_us * max(0.0, inside) / max(1, end - begin)
    return [cost / width_bytes for cost in costs]
