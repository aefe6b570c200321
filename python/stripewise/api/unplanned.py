"""Files that keep a plan from being made: in a shared pool any user may have such a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stripewise import _native
from stripewise._native import StripewiseError

if TYPE_CHECKING:
    from stripewise._native import PoolHeat
    from stripewise.pool import Pool

__all__ = ["without"]

MOST_HOLES = 0.5
"""Of a file: where more of it are holes, a plan counts far more bytes than it has."""


def without(pool: Pool, heat: PoolHeat) -> tuple[PoolHeat, list[dict[str, str]]]:
    """The heat of files that can be planned, and those that may keep a plan from being made, with the reason.

    O(files with heat), some system calls for each: for a plan that has failed.
    """
    whys = {file["path"]: why for file in heat["files"] if (why := _why(pool, file["path"])) is not None}
    able = [file for file in heat["files"] if file["path"] not in whys]
    return {**heat, "files": able}, [{"path": path, "why": why} for path, why in whys.items()]


def _why(pool: Pool, path: str) -> str | None:
    """What keeps a file from being planned; `None`: nothing that is known."""
    try:
        stat = _native.file_stat(str(pool.file), path)
    except StripewiseError as error:
        return f"no place can be planned for it: {error}"
    rounds = [of.partition(":")[0] for region in stat.get("regions", ()) for of in region["round"]]
    if pool.meta.name in rounds:
        return None  # What is in the inode is in no datafile.
    size_bytes = stat["size_bytes"]
    held_bytes = sum(of["allocated_bytes"] or 0 for of in stat.get("datafiles", ()))
    if size_bytes - held_bytes > MOST_HOLES * size_bytes:
        return f"a plan counts its {size_bytes:,} bytes, of which the servers hold {held_bytes:,}: the rest are holes"
    return None
