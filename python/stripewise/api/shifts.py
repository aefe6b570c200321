"""Shifts: a load that has come to other places, noticed between two decisions, and its heat without that of before.

The file of heat halves what it has once a period, so that for some periods the load of before outweighs the one that
has taken its place. `Watch` looks at the file several times a period and keeps two loads apart: the one that is there,
and what has come since to other places. What has come counts only when a second look finds it again: a scan is
somewhere else at each look, and is no place to move to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from stripewise import _native
from stripewise._native import StripewiseError
from stripewise.api.heat import came as heat_came

if TYPE_CHECKING:
    from stripewise._native import BlockHeat, FileHeat, PoolHeat
    from stripewise.pool import Pool

__all__ = ["LOOKS", "Watch", "is_of"]

LOOKS = 10
"""At the heat, in a period."""
HOT = 0.8
"""The hottest parts of a load are those that have this share of it."""
LEAST = 0.4
"""Of what comes, the share that goes to the hottest parts if it is the same load: half of what is to be expected."""
LEAST_REQUESTS = 64
"""That have to come before they say anything."""
MOST = 0.5
"""Of all heat: with that share of it the new load decides by all heat what moves."""
REQUESTS_A_PART = 8
"""Of a load, in the mean: with less, chance alone would decide which parts are the hottest."""
MOST_BLOCKS = 1 << 16
"""With heat; of a pool with more no shift is noticed, and all heat counts."""
WHOLE = 64
"""Halvings of the number of parts that make a file one part."""

Load = dict[tuple[int, int], float]
"""Microseconds by file and block."""


def is_of(load: Load, young: Load, request_us: float) -> bool:
    """Whether what has come may be the same load, as far as so few requests tell. O(blocks of both)."""
    total_us, young_us = sum(load.values()), sum(young.values())
    if young_us <= 0:
        return True
    for shift in (*range(0, 32, 2), WHOLE):
        parts = _merged(load, shift)
        if total_us >= REQUESTS_A_PART * request_us * len(parts):
            break
    else:
        return True
    hot: set[tuple[int, int]] = set()
    left_us = HOT * total_us
    for part in sorted(parts, key=lambda of: -parts[of]):
        if left_us <= 0:
            break
        hot.add(part)
        left_us -= parts[part]
    found_us = sum(cost for part, cost in _merged(young, shift).items() if part in hot)
    return found_us >= LEAST * young_us


def _merged(load: Load, shift: int) -> Load:
    parts: Load = {}
    for (file, block), cost in load.items():
        part = (file, block >> shift)
        parts[part] = parts.get(part, 0.0) + cost
    return parts


def _added(one: Mapping[tuple[int, int], float], other: Mapping[tuple[int, int], float]) -> Load:
    parts = dict(one)
    for block, cost in other.items():
        parts[block] = parts.get(block, 0.0) + cost
    return parts


class Watch:
    """What the load of a pool is, look by look."""

    def __init__(
        self,
        pool: Pool,
        look: Callable[[], BlockHeat] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`look` gives the heat of all blocks."""
        slowest = max((tier.read.mean_s(0) for tier in pool.tiers if tier.read is not None), default=0.0)
        self._request_us = max(slowest * 1e6, 1.0)
        self.pool = pool
        self._look = look or (lambda: _native.pool_block_heat(str(pool.file), MOST_BLOCKS))
        self._clock = clock
        self._before: BlockHeat | None = None
        self._load: Load = {}
        self._doubted: Load = {}
        self._waiting: Load = {}
        self._since_s = self._looked_s = clock()
        self._is_alone = self._is_settled = False
        self.lasted_s: float | None = None
        """How long the load before this one lasted; none before the first shift."""

    def has_shifted(self) -> bool:
        """Looks; whether the load is now certain to be another one. Of a pool that keeps no heat never."""
        try:
            found = self._look()
        except StripewiseError:
            return False
        blocks = found["blocks"]
        if blocks is None:
            self._before, self._load, self._doubted, self._waiting = None, {}, {}, {}
            return False
        before, self._before = self._before, found
        now_s = self._clock()
        passed_s, self._looked_s = now_s - self._looked_s, now_s
        if before is None:
            self._load = {(file, block): float(cost) for file, block, cost in blocks}
            return False
        period_s = max(1, found["period_s"])
        halvings = max(0, found["next_halving_s"] - before["next_halving_s"]) // period_s
        left = 0.5**halvings
        self._load, self._doubted, self._waiting = (
            {part: cost * left for part, cost in load.items() if cost * left >= 1}
            for load in (self._load, self._doubted, self._waiting)
        )
        known = {(file, block): cost * left for file, block, cost in before["blocks"] or ()}
        came = (
            ((file, block), heat_came(known.get((file, block), 0.0), cost, passed_s / period_s))
            for file, block, cost in blocks
        )
        # The counters are whole microseconds.
        self._waiting = _added(self._waiting, {part: cost for part, cost in came if cost >= 1})
        if sum(self._waiting.values()) < LEAST_REQUESTS * self._request_us:
            return False
        young, self._waiting = self._waiting, {}
        return self._judge(young)

    def _judge(self, young: Load) -> bool:
        if is_of(self._load, young, self._request_us):
            self._load, self._doubted = _added(_added(self._load, self._doubted), young), {}
            return False
        if self._doubted and is_of(self._doubted, young, self._request_us):
            self._load, self._doubted = _added(self._doubted, young), {}
            now_s = self._clock()
            self.lasted_s, self._since_s = now_s - self._since_s, now_s
            self._is_alone, self._is_settled = True, False
            return True
        self._load, self._doubted = _added(self._load, self._doubted), young
        return False

    def settled(self) -> None:
        """By the new load alone nothing pays more: all heat counts again once most of it is of that load."""
        self._is_settled = True

    def heat(self) -> PoolHeat | None:
        """The pool's heat without that of loads before the last shift; `None`: all heat counts."""
        if not self._is_alone or self._before is None:
            return None
        heat = _native.pool_heat(str(self.pool.file), ".")
        if heat["block_bytes"] != self._before["block_bytes"]:
            return None  # Meanwhile there are more blocks than it tells of each by itself.
        load = _added(_added(self._load, self._doubted), self._waiting)
        if self._is_settled and sum(load.values()) >= MOST * sum(file["cost_us"] for file in heat["files"]):
            self._is_alone = False
            return None
        files: list[FileHeat] = []
        for file in heat["files"]:
            costs = [(block, round(load.get((file.get("id", 0), block), 0.0))) for block, _ in file["blocks"]]
            blocks = [(block, cost) for block, cost in costs if cost > 0]
            if blocks:
                files.append({**file, "blocks": blocks, "cost_us": sum(cost for _, cost in blocks)})
        heat["files"] = files
        return heat
