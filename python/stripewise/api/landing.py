"""The mark of the tier where new files land, looked at between two decisions: files may come faster than these."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from stripewise import _native
from stripewise._native import StripewiseError
from stripewise.api import adapt, moved, relief
from stripewise.api.filling import LOOK_S, LOOK_SHARE, Filling, may_be_above
from stripewise.api.pacing import Pace, Progress
from stripewise.pool import Pool

__all__ = ["Mark"]

AGAIN_S = 30.0
"""After a look that has found the tier above the mark, and could move nothing."""


@dataclass
class Mark:
    """Relieves the tier as soon as it is fuller than its mark. For one process at a time (`adapt.alone`)."""

    pace: Pace
    clock: Callable[[], float] = time.monotonic
    _due_s: float = 0.0
    _relieved: dict[str, float] = field(default_factory=dict)

    def look(
        self,
        pool: Pool,
        limits: adapt.Limits,
        copied_bytes: Callable[[], int],
        progress: Progress | None = None,
    ) -> adapt.Decision | None:
        """Looks if it is time for that; what it moved, which the pool keeps, or `None`: nothing.

        A look that fails, as of a pool whose server is away, moves nothing: the next decision says why.
        """
        began_s = self.clock()
        if pool.land is None or pool.land_mark is None or began_s < self._due_s or not limits.allows(datetime.now()):
            return None
        self._due_s = began_s + LOOK_S
        tier = next(tier for tier in pool.tiers if tier.name == pool.land)
        if not may_be_above(tier, pool.land_mark):
            return None
        try:
            heat = _native.pool_heat(str(pool.file), ".") if pool.keeps_heat else None
            step = relief.landed(pool, heat)
            self._due_s = began_s + max(LOOK_S, (self.clock() - began_s) / LOOK_SHARE)
            return self._relieve(pool, step, limits, copied_bytes, progress) if step.is_full else None
        except StripewiseError:
            self._due_s = self.clock() + AGAIN_S
            return None

    def _relieve(
        self,
        pool: Pool,
        step: relief.Step,
        limits: adapt.Limits,
        copied_bytes: Callable[[], int],
        progress: Progress | None,
    ) -> adapt.Decision | None:
        began_s = self.clock()
        filling = Filling.of(pool, self.clock)
        ends = [] if filling is None else [filling.why_ended]
        watch = moved.Watched(pool, limits, progress, partial(limits.left_bytes, copied_bytes), ends)
        left = None if limits.day_bytes is None else max(0, limits.day_bytes - copied_bytes())
        try:
            take = partial(relief.take, pool, step, self.pace, watch, filling=filling)
            take = partial(take, most_bytes=left, a_day=limits.day_bytes)
            done = adapt.taken(watch, step.document(), take)
        finally:
            watch.close()
        if not done.get("copied_bytes"):
            self._due_s = self.clock() + AGAIN_S
            return None
        for key, more in (
            ("times", 1),
            ("copied_bytes", done["copied_bytes"]),
            ("moved_heat_s", done.get("moved_heat_s", 0.0)),
            ("recorded_bytes", watch.recorded_bytes),
        ):
            self._relieved[key] = self._relieved.get(key, 0) + more
        line = {"verdict": "relieved", "relief": [done], "took_s": self.clock() - began_s}
        moved.record(pool, {"what": "relieved", **line})
        return {"time_s": time.time(), **line}

    def relieved(self) -> Mapping[str, Any]:
        """What was moved since this was asked last, in all: for the line of the next decision."""
        found, self._relieved = self._relieved, {}
        return found
