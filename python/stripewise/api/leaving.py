"""Files and regions that leave a tier part by part: a large one is never moved at once, nor above the limit of a day.

What a file has already left is to be known: a file that landed goes to its place from its beginning on, and the rest of
it has landed, too. The state says for each such file which part moves. The layout says whether it has.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stripewise import _native
from stripewise._native import StripewiseError
from stripewise.api import owned
from stripewise.api.moved import Watched
from stripewise.api.moving import Whole
from stripewise.api.pacing import give_turn
from stripewise.api.parting import FOREVER, MOST_DATAFILES, STEP_BYTES

if TYPE_CHECKING:
    from stripewise._native import TierPart
    from stripewise.api.pacing import Progress
    from stripewise.pool import Pool

__all__ = ["Mover", "Share", "forget_all_but", "joined", "known", "least_bytes", "share", "smallest_bytes"]

STATE = "leaving.json"
"""In the pool's namespace. May be lost: the rest of these files stays on the tier then until that is near its limit."""
MOST_KEPT = 4096
"""Files that have left in part: those that began last."""
ALIGNED_BYTES = 64 << 10
"""A part ends at a multiple of that, which is as much as a stripe has if nothing else is said."""
MOST_PARTS = 64
"""Of a file by the limits of all days: each is one of the 128 that its handle tells apart."""
MOST_STEPS = 32
"""Of a file that is moved at once."""

MOST_BYTES = 1 << 20
"""Of the state: several times what as many lines have."""

Stretch = tuple[int, int]
Leaving = tuple[str, int, int, list[Stretch], bool]
"""A file, its handle and the version of that, its stretches, and whether they go to its place."""
Known = dict[int, tuple[int, int]]
"""By the handle of a file: where the part begins that moved last, or moves now, and where it ends."""


def known(pool: Pool) -> Known:
    """The files that have left in part; none where no file says that.

    Raises `StripewiseError` where the file is there and cannot be read: what it has is not to be forgotten.
    """
    file = pool.namespace / STATE
    try:
        lines = json.loads(owned.read(file, MOST_BYTES).decode(errors="replace"))
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    except OSError as error:
        raise StripewiseError(f"{file} cannot be read: {error.strerror}") from error
    found: Known = {}
    for line in lines[-MOST_KEPT:] if isinstance(lines, list) else []:
        match line:
            case [int(handle), int(begin), int(end)] if 0 < handle < 1 << 64 and 0 <= begin < end <= FOREVER:
                found[handle] = (begin, end)
    return found


def _keep(pool: Pool, found: Known) -> None:
    """Raises `StripewiseError` where that cannot be written: what is to leave is not moved then."""
    lines = [[handle, *part] for handle, part in list(found.items())[-MOST_KEPT:]]
    owned.write(pool.namespace / STATE, json.dumps(lines))


def forget_all_but(pool: Pool, handles: Collection[int]) -> None:
    """Forgets files that have left, are removed, or got another layout: a part of them may come to the tier again.

    What could not be read is none of these.

    Where that cannot be written, as on a full disk, the next look forgets them: room can be made meanwhile.
    """
    with suppress(StripewiseError):
        begun = known(pool)
        still = {handle: part for handle, part in begun.items() if handle in handles}
        if len(still) < len(begun):
            _keep(pool, still)


def joined(parts: Iterable[TierPart], begun: Known) -> list[TierPart]:
    """The parts of a tier, where the rest of a file that has left in part counts as landed, and is one.

    It is the rest if its last region begins where a part ends, or begins, that is known: what else the file has on the
    tier waits until the rest has left. O(parts).
    """
    found: list[TierPart] = []
    rests: dict[int, TierPart] = {}
    others: list[TierPart] = []
    for part in parts:
        if part["has_landed"] or part["handle"] not in begun:
            found.append(part)
        elif part["stretch"][0] in begun[part["handle"]]:
            rests[part["handle"]] = part
        else:
            others.append(part)
    found += [part for part in others if part["handle"] not in rests]
    return found + [{**part, "has_landed": True} for part in rests.values()]


@dataclass(frozen=True)
class Share:
    """What of a part leaves now."""

    part: TierPart
    end: int

    @property
    def size_bytes(self) -> int:
        """That it copies at most."""
        return _held_bytes(self.part) if self.is_all else self.end - self.part["stretch"][0]

    @property
    def of_all(self) -> float:
        """Which share of the part that is."""
        begin, end = self.part["stretch"]
        return (self.end - begin) / max(1, end - begin)

    @property
    def is_rest(self) -> bool:
        """Whether its file has landed, and has left in part."""
        return self.part["has_landed"] and self.part["stretch"][0] > 0

    @property
    def is_all(self) -> bool:
        """Whether all that is to leave of it does."""
        return self.end >= self.part["stretch"][1]


def _held_bytes(part: TierPart) -> int:
    """What all of a part copies: no holes of it, as far as the tier's servers tell."""
    begin, end = part["stretch"]
    return end - begin - max(0, part["tier_bytes"] - sum(part["by_server"].values()))


def _most(servers: int) -> int:
    """In how many parts a file leaves in all: lengths are recorded of no more datafiles than these have."""
    return max(1, MOST_DATAFILES // servers)


def smallest_bytes(part: TierPart) -> int:
    """Of a part of a file that leaves by the limits of days, whatever these are.

    Of a region that has not landed only what is left of it is known, which is all of it as long as nothing has left.
    """
    begin, end = part["stretch"]
    return _aligned(-(-(end if part["has_landed"] else end - begin) // MOST_PARTS))


def least_bytes(part: TierPart, a_day: int | None, servers: int) -> int:
    """Of a part of a file that leaves by the limits of days, in a pool of as many servers.

    By the end of the file, which is the same on all days: so all parts of all days together are no more than `_most`.
    Only where all of a day's limit is less they are more, and smaller: half of that, and of a file that landed
    never more than `MOST_PARTS`.
    """
    wanted = _aligned(-(-part["stretch"][1] // _most(servers)))
    if a_day is None or wanted <= a_day:
        return wanted
    return max(smallest_bytes(part), _aligned(a_day // 2))


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNED_BYTES) * ALIGNED_BYTES


def share(part: TierPart, left: int | None, least: int) -> Share | None:
    """What of a part leaves where `left` bytes are left of a day's limit; `None`: nothing, it waits for another day.

    That is all of it, or no less than `least`.
    """
    begin, end = part["stretch"]
    if left is None or _held_bytes(part) <= left:
        return Share(part, end)
    cut = (begin + left) // ALIGNED_BYTES * ALIGNED_BYTES
    return Share(part, cut) if cut > begin and left >= least else None


class Mover:
    """Moves what leaves a tier, large parts step by step: one that is stopped, or killed, goes on from the step before.

    For one process at a time.
    """

    def __init__(self, pool: Pool, tier: str, progress: Progress, watch: Progress | None) -> None:
        """Moves nothing. What is copied is told to `progress`; `watch` may count it."""
        self._pool, self._tier, self._progress = pool, tier, progress
        self._watch = watch if isinstance(watch, Watched | Whole) else None
        self._versions: dict[int, int] = {}
        self.moved_files = self.copied_bytes = 0
        self.staying: list[dict[str, str]] = []
        self.passed_over: set[str] = set()
        """Files that had nothing to move: they are gone, others, or were changed since that was decided."""

    def move(self, shares: Iterable[Share]) -> None:
        """Moves them, in order.

        Raises `StripewiseError` where another process changes layouts of the pool.
        """
        shares = list(shares)
        if self._watch is not None:
            self._watch.plan(sum(one.size_bytes for one in shares))
        at_once: list[Share] = []
        for one in shares:
            if one.is_all and one.size_bytes <= STEP_BYTES and not one.is_rest:
                at_once.append(one)
                continue
            self._at_once(at_once)
            at_once = []
            self._in_steps(one)
        self._at_once(at_once)

    def _at_once(self, shares: list[Share]) -> None:
        """Moves parts that are not large, those of one file together."""
        files: dict[int, list[Share]] = {}
        for one in shares:
            files.setdefault(one.part["handle"], []).append(one)
        leaving = [
            self._leaving([(of.part["stretch"][0], _end(of)) for of in each], each[0]) for each in files.values()
        ]
        if leaving:
            self._relieve(leaving)

    def _leaving(self, stretches: list[Stretch], of: Share) -> Leaving:
        version = self._versions.get(of.part["handle"], of.part["version"])
        # A move counts it up.
        self._versions[of.part["handle"]] = version + 1
        return (of.part["path"], of.part["handle"], version, stretches, of.part["has_landed"])

    def _relieve(self, leaving: list[Leaving]) -> bool:
        """Whether all of them have moved."""
        give_turn(self._pool)
        done = _native.pool_relieve(str(self._pool.file), self._tier, leaving, self._progress)
        if self._watch is not None:
            self._watch.close()
        self.moved_files += done["moved_files"]
        self.copied_bytes += done["copied_bytes"]
        self.passed_over |= set(done["passed_over"])
        self.staying += [{"path": file["path"], "why": file["why"]} for file in done["staying"]]
        return done["moved_files"] == len(leaving)

    def _in_steps(self, one: Share) -> None:
        """Moves a large part, or one of which more leaves later; it counts as moved once all of it is."""
        begin, handle, moved_files = one.part["stretch"][0], one.part["handle"], self.moved_files
        # Of all of the file: what left on the days before counts, too.
        most_steps = min(MOST_STEPS, _most(len(self._pool.servers)))
        step_bytes = max(STEP_BYTES, _aligned(-(-one.part["stretch"][1] // most_steps)))
        has_moved = True
        while has_moved and begin < one.end:
            end = min(one.end, begin + step_bytes)
            if not one.is_all and one.end - end < step_bytes:
                # A rest of each day would be a part more of the file.
                end = one.end
            until = end if end < one.end else _end(one)
            if one.part["has_landed"]:
                begun = known(self._pool)
                begun.pop(handle, None)
                _keep(self._pool, {**begun, handle: (begin, until)})
            has_moved = self._relieve([self._leaving([(begin, until)], one)])
            begin = end
        self.moved_files = moved_files + (has_moved and one.is_all)
        if has_moved and one.is_all and one.part["has_landed"]:
            with suppress(StripewiseError):
                forget_all_but(self._pool, known(self._pool).keys() - {handle})


def _end(of: Share) -> int:
    """Where it ends: what comes to a file that has landed, while it leaves, goes with it."""
    return FOREVER if of.is_all and of.part["has_landed"] else of.end
