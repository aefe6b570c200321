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

__all__ = ["Move", "Planned", "Teller", "Whole", "now", "of_plan"]

STATE = "moving"
"""In the pool's namespace: a line of the move that goes on. May be lost at any time."""
TELL_S = 0.2
"""Between two words of a move."""
MOST_BYTES = 1 << 16
"""Of the line that is read: more than a path takes in it."""
MOST = 1 << 64
"""Of a number of bytes, or of seconds, that is believed: any user may have written the line, and no move has more."""


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
    planned_s: float = 0.0
    """Since the first of all that is to move began."""

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
        """The same of all that is to move, at the rate of all of it so far: one file says little of the others."""
        if self.planned is None or self.planned_s <= 0 or self.planned[0] == 0:
            return None
        copied, size_bytes = self.planned
        return (size_bytes - copied) * self.planned_s / copied


@runtime_checkable
class Planned(Protocol):
    """A progress that knows what is to move in all."""

    def planned(self) -> tuple[int, int] | None:
        """What is copied of it, and how much it is, in bytes; `None` where that is not known."""
        ...


class Whole:
    """A progress of files that move one after the other, told as bytes of all of them together."""

    def __init__(self, progress: Progress) -> None:
        """Tells of each file by itself until there is a `plan`."""
        self._progress = progress
        self._path = ""
        self._before = self._done = self._size_bytes = 0

    def __call__(self, path: str, done: int, total: int) -> Then:
        """What the progress says."""
        if path != self._path or done < self._done:
            self.close()
            self._path = path
        self._done = done
        return self._progress(path, *of_plan(self.planned(), done, total))

    def plan(self, size_bytes: int) -> None:
        """Says how many bytes are to be copied from now on."""
        self._path, self._before, self._done, self._size_bytes = "", 0, 0, size_bytes

    def planned(self) -> tuple[int, int] | None:
        """What is copied of what was planned, and how much that is, in bytes; `None` where nothing was."""
        if self._size_bytes == 0:
            return None
        return min((self._before + self._done) // 2, self._size_bytes), self._size_bytes

    def close(self) -> None:
        """Ends a file: the next word is of another one."""
        self._path, self._before, self._done = "", self._before + self._done, 0


def of_plan(planned: tuple[int, int] | None, done: int, total: int) -> tuple[int, int]:
    """Bytes done and in all of what was planned, copied and read back; of the file alone where nothing was."""
    return (done, total) if planned is None or planned[1] == 0 else (2 * planned[0], 2 * planned[1])


class Teller:
    """Tells of moves, one after the other, as the callback that the mover asks before it goes on."""

    def __init__(
        self, pool: Pool, progress: Progress, clock: Callable[[], float] = time.monotonic, *, of_all: bool = False
    ) -> None:
        """`progress` says whether the move goes on. With `of_all` bytes are those of all files that move together."""
        self._file, self._progress, self._clock, self._of_all = _file(pool), progress, clock, of_all
        self._path: str | None = None
        self._done = 0
        self._began_s = self._due_s = self._plan_began_s = 0.0
        self._plan = (0, 0)
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
            line = {"path": path, "done": done, "total": total, "took_s": now_s - self._began_s, "planned": planned}
            self._tell({**line, "planned_s": self._planned_s(planned, now_s)})
        return self._progress(path, done, total)

    def _planned_s(self, planned: tuple[int, int] | None, now_s: float) -> float:
        """Since the plan was told of first: less is copied of another one, or it has another size."""
        if planned is None:
            return 0.0
        copied, size_bytes = planned
        if size_bytes != self._plan[1] or copied < self._plan[0]:
            self._plan_began_s = now_s
        self._plan = (copied, size_bytes)
        return now_s - self._plan_began_s

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
            0 <= done <= total <= MOST and 0 <= took_s <= MOST
        ):
            planned_s = _seconds(line.get("planned_s"))
            return Move(path, done / 2, total / 2, took_s, _planned(line.get("planned")), planned_s)
    return None


def _seconds(of: object) -> float:
    return float(of) if isinstance(of, int | float) and 0 <= of <= MOST else 0.0


def _planned(of: object) -> tuple[int, int] | None:
    match of:
        case [int(copied), int(planned)] if 0 <= copied <= planned <= MOST:
            return copied, planned
    return None


def _file(pool: Pool) -> Path:
    return pool.namespace / STATE
