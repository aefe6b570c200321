"""What adapting may put on a tier: on the one where files land no more than its mark says.

What is above the mark is for files that land. Were it filled, the tier would be relieved of it at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from stripewise import _native
from stripewise.api import parting, relief
from stripewise.api.least_moves import FILE
from stripewise.api.shares import shares

if TYPE_CHECKING:
    from stripewise._native import ForecastFile, ForecastRegion, PoolHeat, TierParts, TierRoom
    from stripewise.api.forecasts import Forecast
    from stripewise.pool import Pool

__all__ = ["left_bytes", "mark", "more_bytes", "within"]


def mark(pool: Pool, tier: str) -> float:
    """The share of a tier that adapting may fill: all of it where no file lands."""
    return pool.land_mark if tier == pool.land and pool.land_mark is not None else 1.0


def left_bytes(pool: Pool, tier: str, known: TierParts) -> int:
    """How much more files may have on a tier: as much on each server as the smallest has. Less than 0: they have more.

    Reserves are left free, what is above the mark, and a stripe on each server: regions need not have as much on each.
    What files take of a disk is more than their bytes, in blocks, and programs may have filled a server unevenly, or
    above the capacity of the tier: no more comes than what is free.
    """
    rooms = known["rooms"]
    if not rooms:
        return 0
    least = min(_most_bytes(room, reserve, mark(pool, tier)) for room, reserve in _reserved(rooms))
    most_bytes = max(0, least - pool.default_width_bytes) * len(rooms)
    left_bytes = most_bytes - sum(sum(part["by_server"].values()) for part in known["parts"])
    return min(left_bytes, min(room["free_bytes"] for room in rooms) * len(rooms))


def _reserved(rooms: list[TierRoom]) -> Iterable[tuple[TierRoom, int]]:
    return zip(rooms, relief.reserves_bytes(rooms), strict=True)


def _most_bytes(room: TierRoom, reserve_bytes: int, share: float) -> int:
    in_all = room["used_bytes"] + room["free_bytes"]
    return min(in_all - reserve_bytes, int(in_all * share))


def within(pool: Pool, heat: PoolHeat, layout: str, each: Sequence[Forecast]) -> str:
    """A layout file that brings no more to the tier where files land than its mark has room for: what is hottest.

    `each` is the forecast of each of its files. The rest of what would come stays where it is. O(parts log of them).
    """
    if pool.land is None or f'"{pool.land}.' not in layout:
        return layout
    left = left_bytes(pool, pool.land, _native.pool_tier_parts(str(pool.file), pool.land))
    files = [of.file for of in each if of.file is not None]
    # Of those that cannot move the decision says why.
    others = "".join(of.block for of in each if of.why is not None)
    hot = parting.Hot.of(heat)
    coming = [(_more_bytes(file, part, pool.land), part) for file in files for part in _parts(file, hot)]
    if sum(more for more, _ in coming) <= max(0, left):
        return layout
    taken = []
    coming.sort(key=lambda of: (of[0] > 0, -of[1].heat_us / max(1, of[0])))
    for more, part in coming:
        if more <= max(0, left):
            left -= more
            taken.append(part)
    return layout.partition(FILE)[0] + parting.chosen(files, taken) + others


def more_bytes(file: ForecastFile, tiers: Iterable[str]) -> int:
    """How much more of a file tiers have then; less than 0: it frees room there."""
    whole = parting.Part(file["path"], 0, file["size_bytes"], 0.0)
    return sum(_more_bytes(file, whole, tier) for tier in tiers)


def _parts(file: ForecastFile, hot: parting.Hot) -> list[parting.Part]:
    """Also of a file without heat, which makes room for the others."""
    if file["path"] in hot.files:
        return parting.parts(file, hot)
    changed = parting.changes(file, file["size_bytes"])
    return [parting.Part(file["path"], begin, end, 0.0) for begin, end in changed]


def _more_bytes(file: ForecastFile, part: parting.Part, tier: str) -> int:
    """How much more the tier has of a part then."""
    return _tier_bytes(file["after"], part, tier) - _tier_bytes(file["before"], part, tier)


def _tier_bytes(regions: Sequence[ForecastRegion], part: parting.Part, tier: str) -> int:
    ends = [*(region["offset"] for region in regions), parting.FOREVER]
    found = 0.0
    for region, (begin, end) in zip(regions, pairwise(ends), strict=True):
        inside = min(end, part.end) - max(begin, part.begin)
        if inside > 0:
            found += inside * shares(region["round"]).get(tier, 0.0)
    return round(found)
