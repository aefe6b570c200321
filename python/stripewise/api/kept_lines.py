"""Files of lines that a pool keeps of what was decided and moved: they grow to a bound, and no further.

A file that has reached it becomes the old one, in the place of the one before. The new one begins with what has to be
known of the lines that go. One process writes at a time (`adapt.alone`).
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stripewise import decided
from stripewise._native import StripewiseError
from stripewise.api import owned
from stripewise.api.json_text import json_text

__all__ = ["MOST_READ_BYTES", "Kept", "unreadable"]

MOST_BYTES = 8 << 20
"""Of a file before it becomes the old one."""
MOST_NAMED = 1000
"""Files that a line names in one list; of more the line has the first ones, and how many it leaves out."""
MOST_LINE_BYTES = 4 << 20
"""Of a line: one that would be longer names fewer files."""
MOST_READ_BYTES = 16 << 20
"""Of a file: it has less than that, whatever its last line is."""
TRIES = 5
"""To read the lines while files become old ones: one does so once in hundreds of lines, or more."""

Line = dict[str, Any]


@dataclass(frozen=True)
class Kept:
    """Lines in a file of a pool's namespace, and in the one before it."""

    file: Path
    remembered: Callable[[Sequence[Line], Sequence[Line]], list[Line]]
    """What the next file begins with, of the lines of the old file, which go, and of those of this one."""

    @property
    def old(self) -> Path:
        """The file before this one."""
        return self.file.with_name(f"{self.file.name}.old")

    @property
    def _new(self) -> Path:
        return self.file.with_name(f"{self.file.name}.new")

    def append(self, line: Mapping[str, Any]) -> None:
        """Adds a line with the time of now, unless it has one: a system call to write, and four around it.

        Raises `OSError` where not all of it can be written, and `StripewiseError` where the lines before it have to be
        read for that and cannot be.
        """
        # A line that a kill has cut takes no other with it.
        text = f"\n{_text({'time_s': time.time(), **line})}\n".encode()
        self._make_room()
        descriptor = owned.opened(self.file, os.O_WRONLY | os.O_APPEND)
        try:
            while text:
                text = text[os.write(descriptor, text) :]
        finally:
            os.close(descriptor)

    def _make_room(self) -> None:
        """Lets a file that has reached its bound become the old one.

        A kill between any two steps loses no line but those that go: where there is no file, the next one is there.
        """
        try:
            if self.file.lstat().st_size < MOST_BYTES:
                return
        except FileNotFoundError:
            with suppress(FileNotFoundError):
                self._new.rename(self.file)
            return
        remembered = self.remembered(self.of_file(self.old), self.of_file(self.file))
        text = "".join(f"{_text(line)}\n" for line in remembered)
        descriptor = owned.opened(self._new, os.O_WRONLY | os.O_TRUNC)
        with os.fdopen(descriptor, "w", encoding="utf-8") as new:
            new.write(text)
            new.flush()
            os.fsync(descriptor)
        self.file.rename(self.old)
        self._new.rename(self.file)

    def newest(self) -> Path:
        """The file that has the last lines, also where a kill has kept it from its name. There may be none."""
        return self.file if os.path.lexists(self.file) or not os.path.lexists(self._new) else self._new

    def of_file(self, file: Path, since_s: float = 0.0) -> list[Line]:
        """Lines of one of the files, the oldest first, no older than that; none where there is no such file.

        Raises `StripewiseError` where the file is there and cannot be read.
        """
        return decided.lines(_read(file)[1], since_s)

    def lines(self, since_s: float = 0.0) -> list[Line]:
        """All lines that are kept, the oldest first, no older than that. O(bytes of the files).

        Each is there once, also where the file becomes the old one meanwhile. Raises `StripewiseError` where a file is
        there and cannot be read.
        """
        for _ in range(TRIES):
            before, old = _read(self.old)
            newest, text = _read(self.newest())
            # Where the old file is still the same one, what was read as the newest is what comes after it.
            if _number(self.old) == before and (newest is not None or before is None):
                break
        return [*decided.lines(old, since_s), *decided.lines(text, since_s)]

    def stamp(self) -> tuple[int, int, int] | None:
        """Differs once there is another line; `None` where there is no file."""
        try:
            stat = self.newest().lstat()
        except OSError:
            return None
        return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _read(file: Path) -> tuple[int | None, bytes]:
    """The number of a file and what is in it; no number and nothing where there is none."""
    try:
        descriptor = owned.opened_to_read(file)
        try:
            return os.fstat(descriptor).st_ino, owned.rest(descriptor, MOST_READ_BYTES)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return None, b""
    except OSError as error:
        raise unreadable(file, error) from error


def unreadable(file: Path, error: OSError) -> StripewiseError:
    """What says that a file is there and cannot be read: what it has is not taken for nothing."""
    return StripewiseError(f"{file} cannot be read: {error.strerror}")


def _number(file: Path) -> int | None:
    try:
        return file.lstat().st_ino
    except FileNotFoundError:
        return None


def _text(line: Line) -> str:
    """A line as it is kept, with fewer names where it would be longer than `MOST_LINE_BYTES`.

    Raises `OSError` where it is longer without any.
    """
    most = MOST_NAMED
    while len(text := json_text(_bounded(line, most))) > MOST_LINE_BYTES:
        if not most:
            raise OSError(errno.EFBIG, f"the line would have {len(text):,} bytes, more than {MOST_LINE_BYTES:,}")
        most //= 2
    return text


def _bounded(of: Any, most: int) -> Any:  # noqa: ANN401
    """A line whose lists of files have the first `most`, and whose list of hints has the last ones."""
    if isinstance(of, Mapping):
        found = {key: _bounded(value, most) for key, value in of.items()}
        for key in ("skipped", "staying", "hints"):
            if isinstance(found.get(key), list) and len(found[key]) > most:
                names = found[key]
                found["left_out"] = len(names) - most
                found[key] = names[len(names) - most :] if key == "hints" else names[:most]
        return found
    return [_bounded(one, most) for one in of] if isinstance(of, list) else of
