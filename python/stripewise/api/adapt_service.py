"""`adapt` as a service, in the foreground or beside a mount: a decision a period, and what happens between two.

What fails is a decision, too, and the next period tries again. Only a pool file that is gone ends it. A server that is
not there may be one whose file system is mounted late: nothing moves meanwhile, for some time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from stripewise._native import StripewiseError
from stripewise.api import adapt, asking, promotion
from stripewise.api.between import Rounds
from stripewise.api.pacing import Pace, Progress
from stripewise.pool import Pool
from stripewise.units import seconds

__all__ = ["PERIOD_S", "Wanted", "require", "run"]

PERIOD_S = 600.0
"""Between two decisions, if not told otherwise."""
LOOK_S = 1.0
"""Between two looks whether it goes on, while it waits."""
AWAY_S = 600.0
"""For how long nothing moves as a server is away: then its disk may be dead, and the rest of the pool goes on."""


@dataclass(frozen=True)
class Wanted:
    """What a service was asked for."""

    limits: adapt.Limits = field(default_factory=adapt.Limits)
    planner: str = "auto"
    pace: Pace = field(default_factory=Pace)
    promote_s: float = promotion.LOOK_S
    period_s: float = PERIOD_S


def require(pool: Pool) -> None:
    """Raises `StripewiseError` where no decision can ever be made: heat without profiles, or neither heat nor land."""
    adapt.require_profiles(pool)
    if not pool.keeps_heat and pool.land is None:
        raise StripewiseError(f"pool '{pool.name}' keeps no heat: write a table [heat] into {pool.file}")


class _Away:
    """The servers that are not there, and for how long; one that comes and goes has no time of its own each time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since_s: dict[str, float] = {}
        self._before_s: dict[str, float] = {}
        """For how long they were away before."""
        self._back_s: dict[str, float] = {}
        """When those came back that have not been there for `AWAY_S` since."""

    def waited_for(self, pool: Pool) -> dict[str, float]:
        """For which servers it waits, and for how many seconds at most. A system call for each server."""
        now_s, away = self._clock(), adapt.away(pool)
        for name in self._since_s.keys() - away:
            self._before_s[name] = self._before_s.get(name, 0.0) + now_s - self._since_s[name]
            self._back_s[name] = now_s
        self._since_s = {name: self._since_s.get(name, now_s) for name in away}
        self._back_s = {name: back_s for name, back_s in self._back_s.items() if name not in away}
        for name in [name for name, back_s in self._back_s.items() if now_s - back_s >= AWAY_S]:
            del self._back_s[name], self._before_s[name]
        left_s = {
            name: AWAY_S - self._before_s.get(name, 0.0) - (now_s - since_s) for name, since_s in self._since_s.items()
        }
        return {name: left for name, left in left_s.items() if left > 0}

    def wait(self, pool: Pool, names: dict[str, float], longest_s: float, goes_on: Callable[[], bool]) -> None:
        """Waits until one of them is there, or for as long as these say, or until a command asks for a decision."""
        _wait(
            pool,
            min(longest_s, max(names.values())),
            lambda: goes_on() and self.waited_for(pool).keys() >= names.keys(),
        )


def run(
    file: Path,
    wanted: Wanted,
    moving: Callable[[], AbstractContextManager[Progress | None]] = nullcontext,
    goes_on: Callable[[], bool] = lambda: True,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[adapt.Decision]:
    """Yields each decision, also one that has failed, and what was done between two, while it `goes_on`.

    `moving` shows a decision's moves, and may stop one. The pool is read anew for each decision. Raises
    `StripewiseError` when its file is gone. For one process at a time (`adapt.alone`).
    """
    rounds: Rounds | None = None
    pool, away = Pool.load(file), _Away(clock)
    while goes_on():
        asked = asking.take(pool)
        longest_s = math.inf
        try:
            pool = Pool.load(pool.file)
            if names := away.waited_for(pool):
                why = f"{_for(names)}; what is there is read and written as ever"
                decision = adapt.held_back(pool, why, asked)
            else:
                if rounds is None:
                    rounds = Rounds(pool, wanted.promote_s, wanted.pace)
                with moving() as progress:
                    decision = rounds.decide(
                        pool, wanted.limits, planner=wanted.planner, progress=progress, asked=asked
                    )
        except Exception as error:
            # Looks between two decisions would end at once while it waits for a server.
            names, longest_s = away.waited_for(pool), wanted.period_s
            decision = _failed(pool, StripewiseError(f"{_for(names)}; {error}") if names else error, asked)
        yield decision
        if names:
            away.wait(pool, names, longest_s, goes_on)
            continue
        if rounds is None:
            _wait(pool, wanted.period_s, goes_on)
            continue
        try:
            all_there = partial(_are_all_there, pool, away, goes_on)
            yield from rounds.until_due(wanted.period_s, wanted.limits, lambda *_: goes_on(), all_there)
        except Exception as error:
            yield _failed(pool, error)
            _wait(pool, wanted.period_s, goes_on)


def _are_all_there(pool: Pool, away: _Away, goes_on: Callable[[], bool]) -> bool:
    """Whether it goes on, and waits for no server. A system call for each server."""
    return goes_on() and not away.waited_for(pool)


def _for(names: dict[str, float]) -> str:
    """Why nothing is decided while servers are away."""
    servers, are = " and ".join(names), "is" if len(names) == 1 else "are"
    return (
        f"{servers} {are} not there: nothing moves until {'it is' if len(names) == 1 else 'they are'}, or for "
        f"{seconds(max(names.values()))}"
    )


def _failed(pool: Pool, error: Exception, asked: Sequence[str] = ()) -> adapt.Decision:
    decision = adapt.failed(pool, error, asked)
    if not pool.file.exists():
        raise StripewiseError(f"{pool.file} is gone, so that the pool cannot be adapted any more") from error
    return decision


def _wait(pool: Pool, seconds: float, goes_on: Callable[[], bool]) -> None:
    """Waits for that long, or until a command asks for a decision: that is looked for after a sleep, never before."""
    due_s = time.monotonic() + seconds
    while goes_on() and (left_s := due_s - time.monotonic()) > 0:
        time.sleep(min(LOOK_S, left_s))
        if asking.is_waiting(pool):
            return
