"""How data moves beside programs: it rests while the servers are busy for others, and keeps to a rate."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stripewise._native import StripewiseError
from stripewise.api import activity, moving
from stripewise.pool import Pool

__all__ = ["Pace", "Pacer", "Progress", "Then", "give_turn"]

Then = bool | Literal["rest"]
"""Whether to go on; or to copy nothing for a moment, and ask again."""
Progress = Callable[[str, int, int], Then]
"""Called with a file's name, bytes done and bytes in all, copied and read back; returning `False` stops the move."""

BUSY = 0.1
"""A server that others keep busy for more than this share of the time is not idle."""
SHARE = 0.1
"""Of the time, for a move while others are served: they lose less, as for most of it the move waits for its turn."""
LOOK_S = 0.5
"""A move of that long stops for a look at the servers."""
REST_S = 0.05
"""Such a stop, in which all that the servers do is for others."""
TURNS_S = 5.0
"""As often what adapts a pool lets a command in that waits."""
TURN_S = 0.15
"""For that long no step begins then: a command that waits tries some times in it."""


@dataclass
class Due:
    """When a rate allows the next byte: what one move had too early counts for the next one."""

    at_s: float = -math.inf


_dues: dict[Path, Due] = {}
"""By pool file, of all moves of this process."""
_turns: dict[Path, float] = {}
"""By pool file, when a command that waits was let in last."""


def give_turn(
    pool: Pool, clock: Callable[[], float] = time.monotonic, wait: Callable[[float], None] = time.sleep
) -> None:
    """Before a step of what adapts a pool, which has the lock for its time: now and then waits for a moment.

    The lock is free for some milliseconds between two steps, which a command that waits for it seldom meets.
    """
    if clock() - _turns.setdefault(pool.file, clock()) >= TURNS_S:
        wait(TURN_S)
        _turns[pool.file] = clock()


@dataclass(frozen=True)
class Pace:
    """How fast data may move."""

    rate_bytes_per_s: int | None = None
    """Most bytes that are copied in a second."""
    urgent: bool = False
    """Whether it does not rest while others are served."""


class Pacer:
    """The pace of one move after the other, as the callback that the mover asks before it goes on.

    While the move rests, all that the servers do is for others: so the rests tell how busy these are.
    """

    def __init__(
        self,
        pace: Pace,
        busy_s: Callable[[], dict[str, float]],
        progress: Progress,
        clock: Callable[[], float] = time.monotonic,
        due: Due | None = None,
        *,
        of_all: bool = False,
        hurries: Callable[[], bool] | None = None,
    ) -> None:
        """`busy_s` gives for each server how long it has been busy so far; `due` is of the moves before, if any.

        With `of_all` the mover counts the bytes of all its files together, and not those of each file. While it
        `hurries` it rests for its rate alone.
        """
        self._pace, self._busy_s, self._progress, self._clock = pace, busy_s, progress, clock
        self._moving_since_s = clock() - LOOK_S
        self._hurries = hurries
        self._busy_since_s: float | None = None
        self._rest: tuple[float, float, dict[str, float]] | None = None
        self._path, self._done, self._of_all = "", 0, of_all
        self._due = Due() if due is None else due
        self._due.at_s = max(self._due.at_s, clock())

    @classmethod
    def of(
        cls,
        pool: Pool,
        pace: Pace,
        progress: Progress | None,
        *,
        of_all: bool = False,
        hurries: Callable[[], bool] | None = None,
    ) -> Pacer:
        """On the servers of a pool, and told to `top`. Servers that the kernel does not count for are idle.

        With `of_all` for a mover that counts the bytes of all its files together.
        """
        sources = activity.sources(pool)

        def busy_s() -> dict[str, float]:
            try:
                return {server: done.busy_s for server, done in activity.done(pool, sources).items()}
            except StripewiseError:
                return {}  # A server has gone: the mover says so itself.

        teller = moving.Teller(pool, progress or (lambda *_: True), of_all=of_all)
        return cls(pace, busy_s, teller, due=_dues.setdefault(pool.file, Due()), of_all=of_all, hurries=hurries)

    def __call__(self, path: str, done: int, total: int) -> Then:
        """Whether the move goes on, rests, or stops as the progress says."""
        if not self._progress(path, done, total):
            return False
        now_s = self._clock()
        if self._rest is not None:
            began_s, until_s, before = self._rest
            if now_s < until_s:
                return "rest"
            if not self._share(before, now_s - began_s) > BUSY:
                self._busy_since_s = None
            elif self._busy_since_s is None:
                self._busy_since_s = began_s
            self._rest, self._moving_since_s = None, now_s
            return True
        rest_s = max(self._for_others_s(now_s), self._for_rate_s(now_s, path, done))
        if rest_s < REST_S:
            return True
        self._rest = (now_s, now_s + rest_s, self._busy_s())
        return "rest"

    @property
    def is_urgent(self) -> bool:
        """Whether it rests for no program."""
        return self._pace.urgent

    def busy_for_s(self) -> float:
        """For how long all looks have found the servers busy for others; 0 if the last one has not."""
        return 0.0 if self._busy_since_s is None else self._clock() - self._busy_since_s

    def finds_others_busy(self, wait: Callable[[float], None] = time.sleep) -> bool:
        """Whether a look at the servers of that long, while nothing moves, finds them busy for others."""
        began_s, before = self._clock(), self._busy_s()
        wait(REST_S)
        return self._share(before, self._clock() - began_s) > BUSY

    def _share(self, before: dict[str, float], passed_s: float) -> float:
        now = self._busy_s()
        return max((now[server] - before[server] for server in now.keys() & before.keys()), default=0.0) / passed_s

    def _for_others_s(self, now_s: float) -> float:
        moving_s = now_s - self._moving_since_s
        if self._pace.urgent or (self._hurries is not None and self._hurries()):
            # No look is made, so that none counts.
            self._busy_since_s = None
            return 0.0
        if self._busy_since_s is not None:
            return moving_s * (1 / SHARE - 1)
        return REST_S if moving_s >= LOOK_S else 0.0

    def _for_rate_s(self, now_s: float, path: str, done: int) -> float:
        rate = self._pace.rate_bytes_per_s
        if self._of_all:
            # A file that could not move counts no more.
            more = max(done - self._done, 0)
        else:
            # What was done of another file before does not count for this one.
            more = done - self._done if path == self._path and done >= self._done else done
        self._path, self._done = path, done
        if rate is None:
            return 0.0
        # A second that was not used is no reason to be faster later. Each byte is copied and read back.
        self._due.at_s = max(self._due.at_s, now_s - 1.0) + more / 2 / rate
        return self._due.at_s - now_s
