"""The tier where new files land, while data moves: it may fill to its mark, and beyond, before that has moved."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from stripewise import _native
from stripewise._native import StripewiseError
from stripewise.api import relief, swaps
from stripewise.pool import Pool, Tier

__all__ = ["LOOK_S", "LOOK_SHARE", "Filling", "may_be_above"]

LOOK_S = 5.0
"""Between two looks at how full the tier is."""
LOOK_SHARE = 0.05
"""Of the time, at most, for looks at all files, where the file systems alone do not tell."""
HURRY_SHARE = 0.5
"""Of the room above the mark: a tier that has no more of it left would be full before a move that rests has ended."""


def may_be_above(tier: Tier, mark: float) -> bool:
    """Whether a server of a tier may be fuller than the mark, as its file systems tell. A system call for each.

    A server has no more bytes of files than its disk has in all.
    """
    if tier.capacity_bytes is not None:
        return True
    for server in swaps.usable(tier):
        try:
            disk = os.statvfs(server.path)
        except OSError:
            continue  # It has gone.
        used = disk.f_blocks - disk.f_bfree
        if used > mark * (used + disk.f_bavail):
            return True
    return False


class Filling:
    """Looks at the tier while data moves. For what moves beside a mark: a decision, or one relief between two."""

    def __init__(self, pool: Pool, tier: Tier, mark: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Looks at nothing so far."""
        self._pool, self._tier, self._mark, self._clock = pool, tier, mark, clock
        self._due_s = clock()
        self._is_above: bool | None = None
        self._hurries = False
        self._why: str | None = None
        self._why_scarce: str | None = None

    @classmethod
    def of(cls, pool: Pool, clock: Callable[[], float] = time.monotonic) -> Filling | None:
        """Of the tier of a pool; `None` where no file lands."""
        tier = next((tier for tier in pool.tiers if tier.name == pool.land), None)
        return None if tier is None or pool.land_mark is None else cls(pool, tier, pool.land_mark, clock)

    def is_above(self, copying_bytes: int = 0) -> bool:
        """Whether servers of the tier are fuller than the mark, by more than what is being copied, maybe to these."""
        self._look(copying_bytes)
        return self._is_above is True

    def hurries(self) -> bool:
        """Whether room is so scarce that a move does not rest: from half of what is above the mark to the mark.

        To be asked while a file moves, of which two copies may be on the tier: of a tier below the mark it looks at
        nothing.
        """
        if self._is_above is not False:
            self._look()
        return self._hurries

    def why_ended(self, copying_bytes: int = 0) -> str | None:
        """Why a move ends that makes room: the tier was below the mark, as by `is_above`, and has filled to it."""
        self._look(copying_bytes)
        return self._why

    def why_scarce(self, copying_bytes: int = 0) -> str | None:
        """Why any other move ends: room has become scarce since the first look, as by `hurries`, and still is.

        One that ended at the mark would seldom move a file: what is hot fills the tier up to that.
        """
        self._look(copying_bytes)
        return self._why_scarce if self._hurries else None

    def look_now(self) -> None:
        """Looks, also where it is not time for that: what made room has ended."""
        self._due_s = self._clock()
        self._look()

    def _look(self, copying_bytes: int = 0) -> None:
        """Looks if it is time for that. A look that fails changes nothing: the move says so itself."""
        began_s = self._clock()
        if began_s < self._due_s:
            return
        try:
            is_above, has_half = self._found(copying_bytes)
        except StripewiseError:
            self._due_s = began_s + LOOK_S
            return
        self._due_s = began_s + max(LOOK_S, (self._clock() - began_s) / LOOK_SHARE)
        hurries = is_above and (self._hurries or not has_half)
        if is_above and self._is_above is False:
            self._why = f"{self._tier.name} has filled to its mark meanwhile: what makes room there goes first"
        if hurries and not self._hurries and self._is_above is not None:
            self._why_scarce = f"{self._tier.name} is nearly full meanwhile: what makes room there goes first"
        self._is_above, self._hurries = is_above, hurries

    def _found(self, copying_bytes: int) -> tuple[bool, bool]:
        """Whether servers are above the mark, but for that, and whether each has half of the room above it left."""
        if not may_be_above(self._tier, self._mark):
            return False, True
        rooms = _native.pool_tier_rooms(str(self._pool.file), self._tier.name)
        half = self._mark + (1 - self._mark) * HURRY_SHARE
        return sum(relief.needed(rooms, self._mark).values()) > copying_bytes, not relief.needed(rooms, half)
