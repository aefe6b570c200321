"""What else is on the disk of a server: another pool's server, another server of the pool, the names of the pool."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path

from stripewise._native import StripewiseError
from stripewise.api import swaps
from stripewise.pool import Pool

__all__ = ["check", "has_names_alone"]

LONGEST = 4096
"""Bytes of a marker that are read."""
NAMESPACE = "namespace"
"""What a marker calls the directory of a pool's names, which is no server."""


def check(pool: Pool, disk: Path) -> None:
    """Refuses a directory that another pool's server is in, and one inside the directory of any pool's server.

    So is one around the directory of one of the pool's own. A server of a pool keeps to a hidden directory in the one
    that a person names, so that the path of the hidden one alone does not say so. What is mounted below a server's disk
    is a disk of its own. Raises `OSError` where `disk` cannot be looked at. O(entries of it and of the directories
    above, and servers).
    """
    _check_below(pool, disk)
    whole = disk.resolve()
    device = whole.stat().st_dev
    own = {server.path.resolve(): server.name for server in pool.servers}
    ours = (_marker(pool.namespace) or {}).get("uuid")
    for place in (whole, *whole.parents):
        if place.stat().st_dev != device:
            return
        for root, marker in _marked(place):
            if place != whole and root in own:
                raise StripewiseError(
                    f"{disk} lies inside {own[root]} ({place}), on the same disk: name a directory on a disk of its own"
                )
            if marker.get("uuid") == ours or marker.get("server") == NAMESPACE:
                continue
            what = "belongs to" if place == whole else f"lies inside {place}, which belongs to"
            raise StripewiseError(
                f"{disk} {what} another pool, '{marker.get('pool')}' ({root}): name a directory of its own, best on a "
                "disk of its own"
            )


def _check_below(pool: Pool, disk: Path) -> None:
    whole = disk.resolve()
    device = whole.stat().st_dev
    for server in pool.servers:
        place = server.path.parent.resolve()
        if place != whole and place.is_relative_to(whole) and _is_on(place, device):
            raise StripewiseError(
                f"{disk} lies around {server.name} ({place}), on the same disk: name a directory on a disk of its own"
            )


def _is_on(place: Path, device: int) -> bool:
    """Whether a directory is on a device; one that cannot be looked at, as of a disk that has gone, is not."""
    try:
        return place.stat().st_dev == device
    except OSError:
        return False


def has_names_alone(pool: Pool, server: str) -> bool:
    """Whether the pool's names are on the disk of a server, and no other server: with that server gone, they stay.

    Emulated servers are on no disk of their own. A system call for each server.
    """
    disks = {of.name: of.path.parent for tier in pool.tiers if not tier.emulated for of in tier.servers}
    if server not in disks:
        return False
    try:
        device = disks.pop(server).stat().st_dev
        return pool.namespace.stat().st_dev == device and all(disk.stat().st_dev != device for disk in disks.values())
    except OSError:
        return False


def _marked(place: Path) -> Iterator[tuple[Path, dict[str, object]]]:
    """The hidden directories of pools in a directory, with what their markers say; what cannot be read has none."""
    try:
        with os.scandir(place) as entries:
            hidden = [entry.path for entry in entries if entry.name.startswith(".")]
    except OSError:
        return
    for path in sorted(hidden):
        marker = _marker(Path(path))
        if marker is not None:
            yield Path(path), marker


def _marker(root: Path) -> dict[str, object] | None:
    """Other users may have put anything there, so that nothing but a file is opened, and nothing is waited for."""
    try:
        opened = os.open(root / swaps.MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            return None
        found = tomllib.loads(os.read(opened, LONGEST).decode())
    except (OSError, ValueError):
        return None
    finally:
        os.close(opened)
    return found if {"pool", "uuid", "server"} <= found.keys() else None
