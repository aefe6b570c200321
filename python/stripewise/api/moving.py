"""The move that goes on in a pool, told to other processes: which file, how far, how fast.

The process that moves data locks a small file of the namespace and writes there how far it is. The lock ends with the
process, so that what a kill has left is not taken for a move.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from stripewise.api import owned

if TYPE_CHECKING:
    from pathlib import Path

    from stripewise.api.pacing import Progress, Then
    from stripewise.pool import Pool

__all__ = ["Move", "Planned", "Teller", "now"]

STATE = "moving"
"""In the pool's namespace: a line of the move that goes on. May be lost at any time."""
TELL_S = 0.2
"""Between two words of a move."""
MOST_BYTES = 1 << 16
"""Of the line that is read: more than a path takes in it."""


@dataclass(frozen=True)
class Move:
    """A file that is moved now. A drain, a replacement and a rebalancing count the bytes of all their files."""

    path: str
    copied_bytes: float
    """Each byte is copied and read back: both count half."""
    all_bytes: float
    took_s: float
    """Since the move of what is counted began."""
    planned: tuple[int, int] | None = None
    """What is copied of all that is to move, this file's included, and how much that is, in bytes; if that is known."""

    @property
    def bytes_per_s(self) -> float | None:
        """Since it began; `None` where nothing is copied so far."""
        return self.copied_bytes / self.took_s if self.took_s > 0 and self.copied_bytes > 0 else None

    @property
    def left_s(self) -> float | None:
        """How long it takes from now on at that rate, if that is known."""
        rate = self.bytes_per_s
        return None if rate is None else (self.all_bytes - self.copied_bytes) / rate

    @property
    def all_left_s(self) -> float | None:
        """The same of all that is to move."""
        rate = self.bytes_per_s
        return None if rate is None or self.planned is None else (self.planned[1] - self.planned[0]) / rate


@runtime_checkable
class Planned(Protocol):
    """A progress that knows what is to move in all."""

    def planned(self) -> tuple[int, int] | None:
        """What is copied of it, and how much it is, in bytes; `None` where that is not known."""
        ...


class Teller:
    """Tells of moves, one after the other, as the callback that the mover asks before it goes on."""

    def __init__(
        self, pool: Pool, progress: Progress, clock: Callable[[], float] = time.monotonic, *, of_all: bool = False
    ) -> None:
        """`progress` says whether the move goes on. With `of_all` bytes are those of all files that move together."""
        self._file, self._progress, self._clock, self._of_all = _file(pool), progress, clock, of_all
        self._path: str | None = None
        self._done = 0
        self._began_s = self._due_s = 0.0
        self._descriptor: int | None = None

    def __call__(self, path: str, done: int, total: int) -> Then:
        """What the progress says. A clock is read, and five times a second a line written."""
        now_s = self._clock()
        if self._path is None or not (self._of_all or (path == self._path and done >= self._done)):
            self._began_s = now_s
        if path != self._path or done < self._done:
            self._path, self._due_s = path, now_s
        self._done = done
        if now_s >= self._due_s:
            self._due_s = now_s + TELL_S
            planned = self._progress.planned() if isinstance(self._progress, Planned) else None
            took_s = now_s - self._began_s
            self._tell({"path": path, "done": done, "total": total, "took_s": took_s, "planned": planned})
        return self._progress(path, done, total)

    def _tell(self, line: dict[str, object]) -> None:
        """Writes the line, unless another process tells of its move; a move does not fail by that."""
        try:
            if self._descriptor is None:
                self._descriptor = self._opened()
            if self._descriptor is not None:
                # What stands behind the line is left of a longer one.
                os.pwrite(self._descriptor, json.dumps(line).encode() + b"\n", 0)
        except OSError:
            return

    def _opened(self) -> int | None:
        descriptor = owned.opened(self._file, os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)  # Another one tells, or looks just now.
            return None
        weakref.finalize(self, os.close, descriptor)
        return descriptor


def now(pool: Pool) -> Move | None:
    """The move that goes on; `None` where there is none, or it cannot be known. What is no number is not believed."""
    try:
        descriptor = owned.opened_to_read(_file(pool))
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(os.pread(descriptor, MOST_BYTES, 0))
    except OSError:
        return None
    else:
        return None  # No process moves anything.
    finally:
        os.close(descriptor)


def _read(text: bytes) -> Move | None:
    try:
        line = json.loads(text.partition(b"\n")[0])
    except (ValueError, RecursionError):
        return None
    match line:
        case {"path": str(path), "done": int(done), "total": int(total), "took_s": int(took_s) | float(took_s)} if (
            0 <= done <= total and took_s >= 0
        ):
            return Move(path, done / 2, total / 2, took_s, _planned(line.get("planned")))
    return None


def _planned(of: object) -> tuple[int, int] | None:
    match of:
        case [int(copied), int(planned)] if 0 <= copied <= planned:
            return copied, planned
    return None


def _file(pool: Pool) -> Path:
    return pool.namespace / STATE
