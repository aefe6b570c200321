"""From one decision of `adapt` to the next: promotions, and looks for a load that has come to other places."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stripewise.api import adapt, asking, landing, promotion, shifts
from stripewise.api.pacing import Pace

if TYPE_CHECKING:
    from stripewise.api.pacing import Progress
    from stripewise.pool import Pool

__all__ = ["Rounds"]

SHORT_S = 1.0
"""Between two looks at what does not wait for a period, and does not come with a promotion."""


class Rounds:
    """Decisions, and what happens between them. For one process at a time (`adapt.alone`)."""

    def __init__(self, pool: Pool, promote_s: float, pace: Pace = Pace()) -> None:
        """The load of now is the first. Looks at what got hot each `promote_s` seconds, or with 0 never.

        Raises `StripewiseError` for servers that were not calibrated, unless files land and the pool keeps no heat.
        """
        adapt.require_profiles(pool)
        self._watch = shifts.Watch(pool)
        self._watch.has_shifted()
        self._pace = pace
        self._promoter: promotion.Promoter | None = None
        if promote_s > 0:
            self._promoter = promotion.Promoter(pool, promote_s, adapt.move_s_per_byte(pool), pace)
        self._promoted: dict[str, Any] = {}
        self._pool, self._mark = pool, landing.Mark(pace)
        self._relieved: dict[str, Any] = {}
        self._decided_s: float | None = None

    def decide(
        self,
        pool: Pool,
        limits: adapt.Limits,
        *,
        planner: str = "auto",
        dry_run: bool = False,
        progress: Progress | None = None,
        asked: Sequence[str] = (),
    ) -> adapt.Decision:
        """`adapt.reconsider` by the heat of the load that is there, with no longer horizon than what is hot lasts.

        Raises `StripewiseError` as it does; what was promoted is told with the next decision then.
        """
        horizon_s = min(limits.horizon_s, self._watch.lasted_s or math.inf)
        self._watch.pool = self._pool = pool
        if self._promoter is not None:
            self._promoter.pool, self._promoter.move_s_per_byte = pool, adapt.move_s_per_byte(pool)
            self._promoted = _added(self._promoted, self._promoter.promoted())
            if self._decided_s is not None:
                horizon_s = min(horizon_s, self._promoter.lasts_s(time.monotonic() - self._decided_s))
        self._relieved = _added(self._relieved, self._mark.relieved())
        self._decided_s = time.monotonic()
        heat = self._watch.heat()
        decision = adapt.reconsider(
            pool,
            replace(limits, horizon_s=horizon_s),
            planner=planner,
            heat=heat,
            dry_run=dry_run,
            pace=self._pace,
            progress=progress,
            promoted=self._promoted,
            relieved=self._relieved,
            asked=asked,
        )
        self._promoted, self._relieved = {}, {}
        if heat is not None and not adapt.pays(decision):
            self._watch.settled()
        return decision

    def until_due(
        self,
        period_s: float,
        limits: adapt.Limits,
        progress: Progress | None = None,
        goes_on: Callable[[], bool] = lambda: True,
    ) -> Iterator[dict[str, Any]]:
        """Waits until the next decision is due, and yields what each promotion did, and each relief at the mark.

        It is due after a period, when the load has come to other places, when a command asks for it, or when it no
        longer `goes_on`, which is asked before each look.
        """
        looks = min(shifts.LOOKS, int(period_s))
        for _ in range(looks):
            yield from self._until_look(period_s / looks, limits, progress, goes_on)
            if not goes_on() or asking.is_waiting(self._pool):
                return
            if self._watch.has_shifted():
                if self._promoter is not None:
                    self._promoter.has_shifted()
                return

    def _until_look(
        self, seconds: float, limits: adapt.Limits, progress: Progress | None, goes_on: Callable[[], bool]
    ) -> Iterator[dict[str, Any]]:
        until_s = time.monotonic() + seconds
        while goes_on() and (left_s := until_s - time.monotonic()) > 0:
            if self._promoter is None:
                time.sleep(min(SHORT_S, left_s))
            else:
                yield from self._promoter.run(min(SHORT_S, left_s), limits, self._copied_bytes, progress, goes_on)
            if not goes_on():
                return
            relieved = self._mark.look(self._pool, limits, self._copied_bytes, progress)
            if relieved is not None:
                yield relieved
            if asking.is_waiting(self._pool):
                return

    def _copied_bytes(self) -> int:
        return adapt.copied_today(self._watch.pool)


def _added(before: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The sums of what was done before a decision that has failed, and since; the last forecast."""
    found = {**before, **more}
    for of in (before.keys() & more.keys()) - {"decay"}:
        found[of] = before[of] + more[of]
    return found
