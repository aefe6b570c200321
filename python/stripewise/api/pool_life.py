"""The servers of a pool come and go, while programs use it."""

from __future__ import annotations

import tomllib
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from stripewise import _native, devices
from stripewise._native import StripewiseError
from stripewise.api import adapt, apart, owned, pools, swaps
from stripewise.api.namespace import names_stay
from stripewise.api.pacing import Pace, Pacer, Progress
from stripewise.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stripewise._native import Drained, Rebalanced, StayingFile
    from stripewise.pool import Server

__all__ = [
    "Added",
    "Drained",
    "Filled",
    "Pace",
    "Progress",
    "Rebalanced",
    "StayingFile",
    "Turn",
    "add",
    "at_once",
    "drain",
    "fill",
    "rebalance",
    "remove",
    "replace",
    "take_back",
    "tier_for",
]


T = TypeVar("T")


class Turn(Protocol):
    """Does a step that is refused while another process moves files of the pool: then nothing of it is done."""

    def __call__(self, step: Callable[[], T], /) -> T:
        """What the step has done."""


def at_once(step: Callable[[], T], /) -> T:
    """Does the step, or is refused."""
    return step()


def tier_for(pool: Pool, disk: Path) -> str:
    """The tier that a directory on a disk belongs to: the only one, or that of the disk's kind.

    Raises `StripewiseError` where it cannot be told.
    """
    names = [tier.name for tier in pool.tiers]
    if len(names) == 1:
        return names[0]
    kind = devices.kind_of(disk)
    if kind not in names:
        what = "its kind is unknown" if kind is None else f"its kind is {kind}"
        raise StripewiseError(
            f"cannot tell to which tier {disk} belongs, {what}; name one of {', '.join(names)} with --tier"
        )
    return kind


def directory_on(pool: Pool, disk: Path) -> Path:
    """Where a server of the pool keeps to on a disk, as `pools.make` places it.

    Of a server that the pool has it is the path that the pool file says, whatever links lead there. Raises
    `StripewiseError` for what is no directory, for one inside the pool's mount or namespace, or around them, and for
    one that another pool has a server in, or that lies inside the directory of a server, or around one of this pool's.
    """
    try:
        if not disk.is_dir():
            raise StripewiseError(f"{disk} is not a directory; make it, or mount its disk, first")
        found = disk.resolve() / f".{pool.name}"
        known = next((server.path for server in pool.servers if server.path.resolve() == found), None)
        if known is None:
            _check_apart(pool, disk, found)
    except OSError as error:
        raise StripewiseError(
            f"{disk} cannot be looked at: {error.strerror}; check its disk, or name another"
        ) from error
    return known or found


def _check_apart(pool: Pool, disk: Path, found: Path) -> None:
    """Refuses a directory that lies inside a directory of the pool itself, or around one, whatever links lead there.

    What a mount would write to a server inside itself waits for that mount for good. So a directory on any mount of a
    pool is refused, which another mount or a bind mount may show elsewhere: two pools could each have a server on the
    other one's.
    """
    for name, own in (("the namespace", pool.namespace), ("the mount", pool.mount)):
        whole = own.resolve()
        if found.is_relative_to(whole) or whole.is_relative_to(found):
            raise StripewiseError(
                f"{found} lies inside {name} ({own}), or around it: name a directory of its own, best on a disk of "
                "its own"
            )
    pools.check_on_a_disk(disk)
    apart.check(pool, disk)


LONGEST_BYTES = 16 << 20
"""Of a pool file."""


@dataclass(frozen=True)
class Added:
    """A directory that was to be added."""

    directory: Path
    server: str
    is_new: bool
    """Whether it was none of the pool's servers before."""


def add(pool: Pool, disks: Sequence[Path], tier: str | None = None) -> list[Added]:
    """Adds servers in the directories `disks` to a tier, all or none; each directory once.

    One that is a server already stays one, so that the same call goes on after a kill. Raises `StripewiseError` where
    the disk of such a server is not there, and where a directory is another pool's, or lies inside one of the pool's
    own, around one, or inside another one of `disks`.
    """
    before = {server.path: (server, of.name) for of in pool.tiers for server in of.servers}
    roots: dict[Path, Path] = {}
    for disk in disks:
        roots.setdefault(directory_on(pool, disk), disk)
    pools.check_each_apart([disk for root, disk in roots.items() if root not in before])
    for root, disk in roots.items():
        if root in before and not swaps.is_there(before[root][0]):
            name = before[root][0].name
            raise StripewiseError(
                f"{disk} is {name} already, and its disk is not there: {root / swaps.MARKER} is missing; mount the "
                f"disk, or, if it has died, give it up by `stripewise pool remove {pool.file} {name} --lost`"
            )
    asked = []
    for root, disk in roots.items():
        own = before[root][1] if root in before else None
        asked.append((tier or own or tier_for(pool, disk), str(root)))
    names = _native.pool_add(str(pool.file), asked)
    each = zip(roots.items(), names, strict=True)
    return [Added(disk, name, is_new=root not in before) for (root, disk), name in each]


@dataclass(frozen=True)
class Filled:
    """How new servers were filled."""

    decision: adapt.Decision | None
    """What was decided by heat; `None` where none is known, or `stripewise adapt` decides."""
    evened: Rebalanced
    """What of the files without heat moved."""


def fill(
    pool: Pool,
    servers: list[str],
    *,
    pace: Pace = Pace(),
    progress: Progress | None = None,
    turn: Turn = at_once,
) -> Filled:
    """Fills new servers as far as that gains, by files that are there.

    Files with heat move where the planners find that it pays, as `adapt` decides once. Of all others the servers get
    their share, until they are as full as the mean of their tier, by `turn`. Stopped, the same call goes on with it.
    """
    pool = Pool.load(pool.file)
    heat = _native.pool_heat(str(pool.file), ".") if pool.keeps_heat and _is_calibrated(pool) else None
    hot = {file["path"] for file in heat["files"]} if heat is not None else set()
    decision = None
    with ExitStack() as stack:
        try:
            stack.enter_context(adapt.alone(pool))
        except StripewiseError:
            # One that adapts the pool finds the servers in its next period.
            heat = None
        if heat is not None and hot:
            decision = adapt.reconsider(pool, adapt.Limits(), heat=heat, pace=pace, progress=progress)
    paced = _paced(pool, pace, progress)

    def evened() -> Rebalanced:
        with names_stay(pool):
            return _native.pool_rebalance(str(pool.file), takers=servers, keep=hot, dry_run=False, progress=paced)

    return Filled(decision, turn(evened))


def _paced(pool: Pool, pace: Pace, progress: Progress | None) -> Pacer:
    """For what counts the bytes of all its files together."""
    return Pacer.of(pool, pace, progress, of_all=True)


def _is_calibrated(pool: Pool) -> bool:
    return all(tier.profile_source != "none" for tier in pool.tiers)


def drain(
    pool: Pool,
    server: str,
    *,
    to: str | None = None,
    wait: bool = False,
    dry_run: bool = False,
    pace: Pace = Pace(),
    progress: Progress | None = None,
) -> Drained:
    """Moves all files from a server to the others of its tier, or of the tier `to`; new files leave it out.

    Files that a program keeps in their place stay, unless it should `wait` for them. Stopped, the same call goes on
    with it. Raises `StripewiseError` where not all fit; then nothing was changed.
    """
    paced = _paced(pool, pace, progress)
    with names_stay(pool):
        return _native.pool_drain(str(pool.file), server, to=to, wait=wait, dry_run=dry_run, progress=paced)


def take_back(pool: Pool, server: str) -> None:
    """Takes a drain back: the server gets new files again, and what has moved stays where it is.

    Raises `StripewiseError` where it is not drained.
    """
    _native.pool_take_back(str(pool.file), server)


def remove(
    pool: Pool, server: str, *, lost: bool = False, pace: Pace = Pace(), progress: Progress | None = None
) -> Drained:
    """Removes a server that has no bytes; with `lost` one that is not there any more, whose files it lists.

    Raises `StripewiseError` where the server has bytes, or with `lost` is there.
    """
    with names_stay(pool):
        return _native.pool_remove(str(pool.file), server, lost, _paced(pool, pace, progress))


def replace(
    pool: Pool,
    server: str,
    disk: Path,
    *,
    wait: bool = False,
    pace: Pace = Pace(),
    progress: Progress | None = None,
    turn: Turn = at_once,
) -> tuple[str, Drained]:
    """Puts a new server on `disk` in the place of another one: adds it, moves all files there and removes the old one.

    The new server's name, and what was done: the old one stays where files stay on it. The same call goes on with it.
    Each of these two steps is done by `turn`.
    Raises `StripewiseError` where not all that can move fits, or `disk` is a server that was not added for this;
    then nothing was changed.
    """
    tier = next((tier.name for tier in pool.tiers if server in [of.name for of in tier.servers]), None)
    paced = _paced(pool, pace, progress)
    if tier is None:
        found = _in_place_of(pool, server)
        if found is None or found.path.resolve() != disk.resolve() / f".{pool.name}":
            names = ", ".join(of.name for of in pool.servers)
            by = "" if found is None else f" any more, {found.name} ({found.path}) is in its place"
            raise StripewiseError(f"{server} is none of the pool's servers{by}; name one of {names}")
        # It was done before; a kill may have left the old one's directory.
        return found.name, turn(lambda: _removed(pool, server, paced))
    root = str(directory_on(pool, disk))

    def moved() -> tuple[str, Drained]:
        with names_stay(pool):
            return _native.pool_replace(str(pool.file), server, root, wait=wait, progress=paced)

    new, done = turn(moved)
    if done["staying"]:
        return new, done
    removed = turn(lambda: _removed(pool, server, paced))
    return new, removed if removed["staying"] else done


def _removed(pool: Pool, server: str, paced: Pacer) -> Drained:
    with names_stay(pool):
        return _native.pool_remove(str(pool.file), server, False, paced)


def _in_place_of(pool: Pool, server: str) -> Server | None:
    """The server that `replace` has put in the place of one that is removed; `None` where it was not replaced.

    A `Pool` has nothing of removed servers. The owner of its file may have changed that since it was read.
    """
    tier, _, number = server.rpartition(".")
    if not number.isdecimal():
        return None
    try:
        document = tomllib.loads(owned.read(pool.file.resolve(), LONGEST_BYTES).decode())
        (servers,) = (of["servers"] for of in document["tier"] if of["name"] == tier)
        by = servers[int(number)]["replaced_by"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return next((of for of in pool.servers if of.id == by and of.state == "used"), None)


def rebalance(
    pool: Pool, *, dry_run: bool = False, pace: Pace = Pace(), progress: Progress | None = None
) -> Rebalanced:
    """Fills the servers of each tier alike, as far as that can be done by moving each file once at most."""
    paced = _paced(pool, pace, progress)
    with names_stay(pool):
        return _native.pool_rebalance(str(pool.file), takers=[], keep=set(), dry_run=dry_run, progress=paced)
