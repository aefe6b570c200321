"""Small files between the metadata tier and the servers, by the threshold of now.

How often a file was moved is kept here: each move makes its own threshold greater, so that a file that goes to and fro
stays on the metadata tier (Wei et al., equation 2). That count is halved with each decision.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from stripewise import _native
from stripewise._native import StripewiseError
from stripewise.api import owned
from stripewise.api.pacing import Pace, Pacer, Progress

if TYPE_CHECKING:
    from stripewise._native import DueSmallFile
    from stripewise.pool import Pool

__all__ = ["decay", "due", "step", "take"]

STATE = "small-files.json"
"""In the pool's namespace: what was moved. May be lost: files count as moved never then; that a file may come back, its
handle says."""
MOST_KEPT = 4096
"""Files of which that is kept: the last ones."""
MOST_BYTES = 1 << 20
"""Of the state: several times what as many lines have."""
MOST_FILES = 1000
"""That move with one look."""
LEAST_MOVES = 0.25
"""A file that has come back, and was moved less of late, is forgotten."""

Kept = dict[int, tuple[float, int | None]]
"""By the file's handle: how often it was moved, with decay, and its size when it was sent to the servers."""


def _kept(pool: Pool) -> Kept:
    """What was moved, the last one at the end; nothing where no file says that.

    Raises `StripewiseError` where the file is there and cannot be read: what it has is not to be forgotten.
    """
    file = pool.namespace / STATE
    try:
        lines = json.loads(owned.read(file, MOST_BYTES).decode(errors="replace"))
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    except OSError as error:
        raise StripewiseError(f"{file} cannot be read: {error.strerror}") from error
    kept: Kept = {}
    for line in lines[-MOST_KEPT:] if isinstance(lines, list) else []:
        match line:
            case [int(handle), int(moves) | float(moves), None | int() as sent_bytes] if (
                0 < handle < 1 << 64 and 0 <= moves <= 1e6 and (sent_bytes is None or 0 <= sent_bytes < 1 << 63)
            ):
                kept[handle] = (float(moves), sent_bytes)
    return kept


def _keep(pool: Pool, kept: Kept) -> None:
    """Raises `StripewiseError` where that cannot be written."""
    lines = [[handle, *of] for handle, of in list(kept.items())[-MOST_KEPT:]]
    owned.write(pool.namespace / STATE, json.dumps(lines))


def due(pool: Pool) -> list[DueSmallFile]:
    """The files that are to move now, those with the most bytes first."""
    before: Kept = {}
    with suppress(StripewiseError):
        before = _kept(pool)
    return _native.pool_due_small_files(str(pool.file), before)


def decay(pool: Pool) -> None:
    """Lets a period pass: each file counts as moved half as often as before.

    Where that cannot be read or written it counts as before: data can move all the same.
    """
    with suppress(StripewiseError):
        before = _kept(pool)
        after = {
            handle: (moves / 2, sent_bytes)
            for handle, (moves, sent_bytes) in before.items()
            if sent_bytes is not None or moves >= LEAST_MOVES
        }
        if before:
            _keep(pool, after)


def step(files: list[DueSmallFile]) -> dict[str, Any]:
    """The numbers of what is to move, as a decision keeps them."""
    leaving = [file for file in files if not file["head_bytes"]]
    return {
        "tier": "meta",
        "leaving": len(leaving),
        "returning": len(files) - len(leaving),
        "moved_bytes": sum(file["moved_bytes"] for file in files),
    }


def take(
    pool: Pool, files: list[DueSmallFile], pace: Pace, progress: Progress | None, *, most_bytes: int | None
) -> dict[str, Any]:
    """Moves the files, `most_bytes` and a thousand at most; what was done, with the numbers of the step.

    Raises `StripewiseError` where another process changes layouts of the pool.
    """
    done = step(files)
    taken: list[DueSmallFile] = []
    for file in files[:MOST_FILES]:
        if most_bytes is not None and sum(of["moved_bytes"] for of in taken) + file["moved_bytes"] > most_bytes:
            done["why"] = f"more than {most_bytes:,} bytes would be copied, which is above the limit of a day"
            break
        taken.append(file)
    heads = [(file["path"], file["handle"], file["head_bytes"]) for file in taken]
    moved = _native.pool_move_small_files(str(pool.file), heads, Pacer.of(pool, pace, progress))
    staying = [{"path": file["path"], "why": file["why"]} for file in moved["staying"]]
    kept = _kept(pool)
    stay = {file["path"] for file in staying} | set(moved["passed_over"])
    for file in taken:
        if file["path"] not in stay:
            moves, _ = kept.pop(file["handle"], (0.0, None))
            kept[file["handle"]] = (moves + 1, None if file["head_bytes"] else file["size_bytes"])
    _keep(pool, kept)
    return {**done, "moved_files": moved["moved_files"], "copied_bytes": moved["copied_bytes"], "staying": staying}
