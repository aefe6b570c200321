"""How a pool adapts, looked at again and again: what is hot, what was decided, what moves, what that has gained."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stripewise._native import StripewiseError
from stripewise.api import adapt, heat, measured, moving

if TYPE_CHECKING:
    from stripewise.api.adapt import Decision
    from stripewise.api.heat import HotFile
    from stripewise.api.measured import Gain
    from stripewise.api.moving import Move
    from stripewise.pool import Pool

__all__ = ["Seen", "Watch"]

MOST_FILES = 3
PARTS = 32
"""Of a file, whose heat is told apart."""
SHARE = 0.05
"""Of the time, at most, for looks at the heat: in a pool of many files one takes long."""


@dataclass(frozen=True)
class Seen:
    """What a look has found."""

    hottest: list[HotFile]
    decision: Decision | None
    """The last one."""
    move: Move | None
    """The one that goes on now."""
    gain: Gain | None
    """Of the last move that is done."""
    is_adapted: bool
    """Whether a process adapts the pool now."""


class Watch:
    """Looks at a pool, no more often than the looks are cheap."""

    def __init__(self, pool: Pool) -> None:
        """Nothing is looked at before `look`."""
        self.pool = pool
        """That is looked at: its file may have changed since the last look."""
        self._hottest: list[HotFile] = []
        self._due_s = 0.0
        self._stamp: tuple[int, int, int] | None = None
        self._decisions: list[Decision] = []

    def look(self) -> Seen:
        """What there is to see now; what cannot be read is left out, as by a user who may not."""
        self._look_at_heat()
        self._look_at_decisions()
        last = self._decisions[-1] if self._decisions else None
        gain = measured.gain_of_last_move(self._decisions)
        return Seen(self._hottest, last, moving.now(self.pool), gain, adapt.is_adapted(self.pool))

    def _look_at_heat(self) -> None:
        began_s = time.monotonic()
        if began_s < self._due_s:
            return
        try:
            self._hottest = heat.hottest(self.pool, MOST_FILES, PARTS)
        except StripewiseError:
            self._hottest = []
        now_s = time.monotonic()
        self._due_s = now_s + (now_s - began_s) * (1 / SHARE - 1)

    def _look_at_decisions(self) -> None:
        """Reads them all, where there is another one."""
        try:
            stamp = adapt.kept(self.pool).stamp()
            if stamp != self._stamp:
                self._decisions, self._stamp = adapt.decisions(self.pool), stamp
        except (OSError, StripewiseError):
            self._decisions, self._stamp = [], None
