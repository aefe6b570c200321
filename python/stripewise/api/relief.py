"""Tiers that get full: new files that landed on one go to their place, and what gains least there makes room.

What stays on a tier gains what its heat would cost more elsewhere. The least gain per byte leaves first, of what has
bytes on a server that needs room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stripewise import _native
from stripewise._native import StripewiseError
from stripewise.api import leaving, moved, swaps
from stripewise.api.moving import Whole
from stripewise.api.namespace import names_stay
from stripewise.api.pacing import Pace, Pacer, Progress
from stripewise.units import seconds

if TYPE_CHECKING:
    from stripewise._native import FileHeat, PoolHeat, StayingFile, TierPart, TierRoom
    from stripewise.api.filling import Filling
    from stripewise.pool import Pool, Tier

__all__ = ["Step", "landed", "lands_nowhere", "needed", "reserves_bytes", "settle", "steps", "take"]

ONCE = 0.5
"""A file that landed is hot if its heat is more than this part of what it costs to write it once: one that was only
written has less after a period."""
BUSY_S = 60.0
"""After that time in which the servers were busy for programs a move ends that is not due."""
RESERVES = 2
"""A tier on which no file lands is relieved when a server has only its reserve left, until it has that many."""


@dataclass(frozen=True)
class _Candidate:
    part: TierPart
    gain_s: float
    """What staying gains in a period, by heat and profiles."""
    heat_us: float
    """Of what is on the tier."""
    is_hot: bool

    def bytes_on(self, servers: Collection[str]) -> int:
        """Its bytes on these servers of the tier."""
        return sum(count for server, count in self.part["by_server"].items() if server in servers)


@dataclass(frozen=True)
class Step:
    """What is to leave a tier, and why."""

    tier: str
    used_bytes: int
    size_bytes: int
    needed_bytes: int
    """What has to leave for each server of the tier to be below its limit."""
    leaving: tuple[_Candidate, ...]
    kept_hot: int
    """Files that landed and stay, since they are hot."""
    begun: frozenset[int] | None = None
    """Handles of files of which a part has left, whether the rest leaves or stays, or could not be read; `None`: it is
    unknown which these are."""
    unread: tuple[StayingFile, ...] = ()
    """Files that could not be read, whatever they have on the tier."""

    @property
    def is_full(self) -> bool:
        """Whether the tier is near its limit."""
        return self.needed_bytes > 0

    def document(self) -> dict[str, Any]:
        """Its numbers, as a decision keeps them."""
        return {
            "tier": self.tier,
            "used_bytes": self.used_bytes,
            "size_bytes": self.size_bytes,
            "needed_bytes": self.needed_bytes,
            "leaving_bytes": sum(sum(of.part["by_server"].values()) for of in self.leaving),
            "leaving_landed": sum(of.part["has_landed"] for of in self.leaving),
            "leaving_regions": sum(not of.part["has_landed"] for of in self.leaving),
            "kept_hot": self.kept_hot,
            "lost_gain_s": sum(of.gain_s for of in self.leaving),
        }


def steps(pool: Pool, heat: PoolHeat | None, *, all_landed: bool = False) -> list[Step]:
    """What should leave each tier now.

    That is what has landed and is not hot, or all of it with `all_landed`, and the least gain per byte where the tier
    is near its limit. The slowest tier is relieved of nothing but what has landed there.
    """
    found = []
    for tier in pool.tiers:
        dearer = _dearer(pool, tier)
        if tier.name == pool.land or (dearer > 1 and heat is not None):
            step = _step(pool, tier, heat, dearer, all_landed=all_landed)
            if step.leaving or step.is_full or step.kept_hot:
                found.append(step)
    return found


def lands_nowhere(pool: Pool) -> str | None:
    """Why no new file can land on the tier where files land; `None` where one can. A system call for each server."""
    tier = next((tier for tier in pool.tiers if tier.name == pool.land), None)
    if tier is None or swaps.usable(tier):
        return None
    is_used = any(server.state == "used" for server in tier.servers)
    return f"{tier.name} has no server {'that is there' if is_used else 'in use'}"


def landed(pool: Pool, heat: PoolHeat | None, *, all_landed: bool = False) -> Step:
    """As `steps`, for the tier alone on which files land, which the pool has to have."""
    tier = next(tier for tier in pool.tiers if tier.name == pool.land)
    return _step(pool, tier, heat, _dearer(pool, tier), all_landed=all_landed)


def _step(pool: Pool, tier: Tier, heat: PoolHeat | None, dearer: float, *, all_landed: bool) -> Step:
    begun = _begun(pool) if tier.name == pool.land else {}
    known = _native.pool_tier_parts(str(pool.file), tier.name, begun or {})
    block_bytes = heat["block_bytes"] if heat is not None else pool.default_width_bytes
    once_s = max((of.write.mean_s(block_bytes) for of in pool.tiers if of.write is not None), default=0.0)
    # In a pool that was never calibrated no heat says more than that a file was written once.
    hot = {file["path"]: file for file in heat["files"]} if heat is not None and once_s > 0 else {}
    parts = leaving.joined(known["parts"], begun or {})
    candidates = [_candidate(part, hot.get(part["path"]), (block_bytes, once_s), dearer) for part in parts]
    room = needed(known["rooms"], pool.land_mark if tier.name == pool.land else None)
    candidates.sort(key=lambda of: _first(of, room))
    going: list[_Candidate] = []
    left, kept_hot = dict(room), 0
    for of in candidates:
        has_landed = of.part["has_landed"]
        makes_room = any(left.get(server, 0) > 0 for server, count in of.part["by_server"].items() if count)
        if (has_landed and (all_landed or not of.is_hot)) or makes_room:
            going.append(of)
            for server, count in of.part["by_server"].items():
                left[server] = left.get(server, 0) - count
        else:
            kept_hot += has_landed
    used_bytes = sum(room["used_bytes"] for room in known["rooms"])
    size_bytes = used_bytes + sum(room["free_bytes"] for room in known["rooms"])
    still = None if begun is None else frozenset(known["begun"])
    unread = tuple(known["unread"])
    return Step(tier.name, used_bytes, size_bytes, sum(room.values()), tuple(going), kept_hot, still, unread)


def _begun(pool: Pool) -> leaving.Known | None:
    """The files that have left in part; `None` where that cannot be read: then their rests are as other regions."""
    try:
        return leaving.known(pool)
    except StripewiseError:
        return None


def _candidate(part: TierPart, file: FileHeat | None, block: tuple[int, float], dearer: float) -> _Candidate:
    """`block` is its bytes, and what a write of it costs on the slowest tier in seconds: heat has its prices."""
    block_bytes, once_s = block
    begin, end = part["stretch"]
    heat_us = 0.0
    for number, cost_us in file["blocks"] if file is not None else ():
        first, last = number * block_bytes, (number + 1) * block_bytes
        inside = min(last, end) - max(first, begin)
        if inside > 0 and file is not None:
            # Regions that share a block share its heat. The last block of a file has no more bytes than the file.
            heat_us += cost_us * inside / max(inside, min(last, file["size_bytes"]) - first)
    share = part["tier_bytes"] / max(1, end - begin)
    # Of the sum of all periods' halves, the last period has about half.
    gain_s = heat_us / 2e6 * share * (1 - 1 / dearer) if dearer > 1 else 0.0
    once_us = -(-(end - begin) // block_bytes) * once_s * 1e6
    return _Candidate(part, gain_s, heat_us * share, is_hot=heat_us > ONCE * once_us)


def _first(of: _Candidate, needed: Mapping[str, int]) -> tuple[float, float, str, tuple[int, int]]:
    """What leaves first: the least gain for each byte of room where it is needed; of equal ones what copies least."""
    room_bytes = of.bytes_on(needed) or sum(of.part["by_server"].values()) or 1
    return (of.gain_s / room_bytes, of.part["tier_bytes"] / room_bytes, of.part["path"], of.part["stretch"])


def needed(rooms: list[TierRoom], mark: float | None) -> dict[str, int]:
    """What has to leave each server that is near its limit, by name."""
    if mark is not None:
        over = {of["server"]: round(of["used_bytes"] - mark * (of["used_bytes"] + of["free_bytes"])) for of in rooms}
        return {server: count for server, count in over.items() if count > 0}
    reserves = list(zip(rooms, reserves_bytes(rooms), strict=True))
    if all(room["free_bytes"] >= reserve for room, reserve in reserves):
        return {}
    lacks = {room["server"]: RESERVES * reserve - room["free_bytes"] for room, reserve in reserves}
    return {server: count for server, count in lacks.items() if count > 0}


def reserves_bytes(rooms: list[TierRoom]) -> list[int]:
    """What each server of a tier has to keep free of what the tier may hold.

    Plans fill a tier to its capacity: the reserve is on the disk, where there may be more than the capacity leaves.
    """
    return [max(0, room["reserve_bytes"] - (room["on_disk_bytes"] - room["free_bytes"])) for room in rooms]


def _dearer(pool: Pool, tier: Tier) -> float:
    """How many times as much a read of a default width costs on the slowest other tier; 0 where there is none."""
    own = tier.read
    others = [of.read.mean_s(pool.default_width_bytes) for of in pool.tiers if of is not tier and of.read is not None]
    return max(others, default=0.0) / own.mean_s(pool.default_width_bytes) if own is not None else 0.0


def take(
    pool: Pool,
    step: Step,
    pace: Pace,
    progress: Progress | None,
    *,
    most_bytes: int | None = None,
    a_day: int | None = None,
    filling: Filling | None = None,
) -> dict[str, Any]:
    """Moves what is leaving, `most_bytes` at most; what was done, with the numbers of the step.

    From a tier near its limit what makes most room moves first, so that room is there soon: what leaves, and what a
    limit lets leave, is decided by gain.

    What is larger than that leaves in part, if the part is no less than `leaving.least_bytes` of what may be copied
    `a_day`. A file that the limit has stopped leaves last, and in smaller parts. While programs keep the servers busy,
    nothing moves from a tier that is below its limit, unless the pace is urgent. With `filling`, which looks at the
    tier where files land, a move does not rest where that would be full before it has ended; and one that is `Watched`
    ends when programs have kept the servers busy for `BUSY_S`, and the tier is below its mark.
    """
    done = {**step.document(), "moved_files": 0, "copied_bytes": 0, "staying": []}
    lands = filling if step.tier == pool.land else None
    pacer = Pacer.of(pool, pace, progress, hurries=None if lands is None else lands.hurries)
    if step.leaving and not step.is_full and not pace.urgent and pacer.finds_others_busy():
        return {**done, "why": "the servers are busy for programs, and the tier has room"}
    shares: list[tuple[_Candidate, leaving.Share]] = []
    left, halves = most_bytes, moved.halves(pool) if most_bytes is not None else {}
    for of in sorted(step.leaving, key=lambda of: of.part["path"] in halves):
        share = leaving.share(of.part, _at_most(of.part, left, halves), _least(pool, of.part, a_day, halves))
        if share is not None:
            shares.append((of, share))
            left = None if left is None else left - share.size_bytes
    whole = sum(share.is_all for _, share in shares)
    if most_bytes is not None and (above := len(step.leaving) - whole):
        done["why"] = (
            f"{above:,} of {len(step.leaving):,} would copy more than the {most_bytes:,} bytes that "
            f"are left, which is above the limit of a day; {len(shares) - whole:,} of them left in part"
        )
        done["why"] += _needs_more(pool, step, shares, a_day)
    if step.tier == pool.land and step.begun is not None:
        leaving.forget_all_but(pool, step.begun)
    if step.is_full:
        shares.sort(key=lambda of: (of[0].part["path"] in halves, -_room_bytes(of[1])))
    mover = leaving.Mover(pool, step.tier, pacer, progress)
    with _ended_if_busy(progress, pacer, lands):
        mover.move(share for _, share in shares)
    stay = {file["path"] for file in mover.staying} | mover.passed_over
    gone = [(of, share) for of, share in shares if of.part["path"] not in stay]
    return {
        **done,
        "moved_files": mover.moved_files,
        "copied_bytes": mover.copied_bytes,
        "moved_heat_s": sum(of.heat_us * share.of_all for of, share in gone) / 1e6,
        "staying": mover.staying,
    }


@contextmanager
def _ended_if_busy(progress: Progress | None, pacer: Pacer, filling: Filling | None) -> Iterator[None]:
    """Ends what moves meanwhile between two files if the servers are busy for long, and the tier has room."""
    if filling is None or pacer.is_urgent or not isinstance(progress, moved.Watched):
        yield
        return

    def why(copying_bytes: int) -> str | None:
        if pacer.busy_for_s() < BUSY_S or filling.is_above(copying_bytes):
            return None
        return f"programs keep the servers busy for {seconds(BUSY_S)} now, and the tier has room"

    progress.ends.append(why)
    try:
        yield
    finally:
        progress.ends.remove(why)


def _room_bytes(of: leaving.Share) -> float:
    """What leaves the tier's servers with it."""
    return sum(of.part["by_server"].values()) * of.of_all


def _at_most(part: TierPart, left: int | None, halves: Mapping[str, int]) -> int | None:
    """How much of it may leave where `left` bytes are left: of a file that the limit has stopped, half of then."""
    half = halves.get(part["path"])
    if left is None or half is None:
        return left
    return min(left, max(half, leaving.smallest_bytes(part)))


def _least(pool: Pool, part: TierPart, a_day: int | None, halves: Mapping[str, int]) -> int:
    """How much of it leaves at least, if not all: of a file that the limit has stopped, less."""
    if part["path"] in halves:
        return leaving.smallest_bytes(part)
    return leaving.least_bytes(part, a_day, len(pool.servers))


def _needs_more(pool: Pool, step: Step, shares: list[tuple[_Candidate, leaving.Share]], a_day: int | None) -> str:
    """Which limit of a day lets the largest file go, of those that cannot leave by this one on any day; or nothing."""
    going = {id(of) for of, _ in shares}
    waiting = [of.part for of in step.leaving if id(of) not in going]
    least = {part["path"]: leaving.least_bytes(part, a_day, len(pool.servers)) for part in waiting}
    never = {path: least_bytes for path, least_bytes in least.items() if a_day is not None and least_bytes > a_day}
    if not never:
        return ""
    return (
        f"; of these, {len(never):,} cannot leave in {leaving.MOST_PARTS} parts by the limit of {a_day:,} bytes a day: "
        f"with one of {max(never.values()):,} they can"
    )


def settle(
    pool: Pool,
    *,
    everything: bool = False,
    dry_run: bool = False,
    pace: Pace = Pace(),
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Moves new files from the tier on which they landed to their place, once; hot ones only with `everything`.

    Raises `StripewiseError` where the pool has no such tier.
    """
    if pool.land is None:
        raise StripewiseError(
            f"files of pool '{pool.name}' are made in their place at once: write land = \"TIER\" below [default] in "
            f"{pool.file}, and they land there first"
        )
    heat = _native.pool_heat(str(pool.file), ".") if pool.keeps_heat else None
    step = landed(pool, heat, all_landed=everything)
    if dry_run:
        return {**step.document(), "staying": list(step.unread)}
    with names_stay(pool):
        done = take(pool, step, pace, None if progress is None else Whole(progress))
    return {**done, "staying": [*step.unread, *done["staying"]]}
