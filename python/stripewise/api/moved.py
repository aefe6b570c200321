"""What `adapt` copies, kept as it copies: for the limit of a day, which counts also what a kill has cut off.

A decision has its line when all of it is done. Here is a line for each file that has moved, and for each
`RECORD_BYTES` of a large one, before the next byte is copied.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from stripewise import decided
from stripewise._native import StripewiseError
from stripewise.api import kept_lines, moving, owned
from stripewise.api.kept_lines import Kept
from stripewise.api.pacing import Progress, Then
from stripewise.pool import Pool

__all__ = [
    "ABOVE",
    "OVER",
    "REMOVED",
    "Hours",
    "Watched",
    "copied_bytes",
    "halves",
    "kept",
    "now_in_boot",
    "record",
    "records",
    "see_clock",
]

REMOVED = "it was removed, or another file has its name, as it moved"
"""Why a file has not moved."""
FILE = "adapt-moves.jsonl"
"""In the pool's namespace."""
RECORD_BYTES = 64 << 20
"""Copied of one file, at most, without a line of it."""
BOOT = Path("/proc/sys/kernel/random/boot_id")
DAY_S = 86_400
TOGETHER_S = 600
"""Lines of that time that go are remembered as one."""
MOST_REMEMBERED = 2 * DAY_S // TOGETHER_S
"""Of such sums: the last two days, and no fewer where the clock has jumped meanwhile."""
MINUTE_S = 60
"""Lines of that time count from the last of them on."""
OVER = "the hours are over in which data may move: the rest moves in the next ones"
ABOVE = (
    "what was written while it moved would be copied again, which is above the limit of a day: the next try moves half "
    "as much of it"
)
STOPPED = "stopped"
"""What a line is of a file whose move the limit has stopped."""
STOPPED_COUNTS_S = 7 * DAY_S
"""For how long such a line counts."""

Record = dict[str, Any]
"""A line of the file."""


class Hours(Protocol):
    """When data may move."""

    def allows(self, now: datetime) -> bool:
        """Whether it may at that time."""
        ...


def kept(pool: Pool) -> Kept:
    """The lines of a pool."""
    return Kept(pool.namespace / FILE, _remembered)


_boot: list[str] = []
"""Which boot of the machine this is, once it was asked for; empty where the kernel does not say."""


def now_in_boot() -> tuple[str, float]:
    """Which boot of the machine this is, and seconds since then, whatever the clock says."""
    if not _boot:
        try:
            _boot.append(BOOT.read_text(encoding="ascii").strip())
        except OSError:
            _boot.append("")
    return _boot[0], time.clock_gettime(time.CLOCK_BOOTTIME)


def _remembered(lines: Sequence[Record], _: Sequence[Record]) -> list[Record]:
    """What was copied of late, by `TOGETHER_S`: for the limit. It counts from the last of these lines on."""
    sums: dict[int, Record] = {}
    for line in lines:
        copied = _copied_bytes(line)
        if copied is not None:
            together = sums.setdefault(int(line["time_s"] // TOGETHER_S), {"what": "copied", "copied_bytes": 0})
            together |= {key: line[key] for key in ("time_s", "boot", "boot_s") if key in line}
            together["copied_bytes"] += copied
    return list(sums.values())[-MOST_REMEMBERED:]


def _copied_bytes(line: Record) -> int | None:
    """What a line says was copied; `None` for one of something else."""
    copied = line.get("copied_bytes")
    return copied if line.get("what") == "copied" and isinstance(copied, int) else None


def record(pool: Pool, line: Mapping[str, Any]) -> None:
    """Keeps a line with the time of now.

    Raises `StripewiseError` where that fails: what cannot be counted may not be copied.
    """
    if line.get("what") == "copied":
        boot, boot_s = now_in_boot()
        line = {**line, "boot": boot, "boot_s": boot_s}
    try:
        kept(pool).append(line)
    except OSError as error:
        file = pool.namespace / FILE
        raise StripewiseError(f"{file} cannot be written, so that nothing may move: {error.strerror}") from error


def records(pool: Pool) -> list[Record]:
    """All lines that are kept, the oldest first. O(bytes of the files)."""
    return kept(pool).lines()


def halves(pool: Pool) -> dict[str, int]:
    """By file that the limit has stopped of late: half of what the first pass was to copy then.

    O(bytes of the files).
    """
    since_s = time.time() - STOPPED_COUNTS_S
    lines = (line for line in records(pool) if line.get("what") == STOPPED and line["time_s"] > since_s)
    planned = ((line.get("path"), line.get("planned_bytes")) for line in lines)
    return {path: size // 2 for path, size in planned if isinstance(path, str) and isinstance(size, int)}


@dataclass
class _Known:
    """What was read of a file so far."""

    inode: int = 0
    at: int = 0
    copied: list[tuple[float, float, int]] = field(default_factory=list)
    """When, in seconds since this boot of the machine (0: in another one), and bytes, in the order of the lines.

    Those of a minute are one.
    """

    def add(self, lines: list[Record]) -> None:
        boot, _ = now_in_boot()
        for line in lines:
            time_s, copied = line["time_s"], _copied_bytes(line) or 0
            boot_s = decided.number(line, "boot_s") if boot and line.get("boot") == boot else None
            if self.copied and self.copied[-1][0] // MINUTE_S == time_s // MINUTE_S:
                before_s, before_boot_s, before = self.copied.pop()
                time_s, copied, boot_s = max(time_s, before_s), before + copied, max(boot_s or 0.0, before_boot_s)
            self.copied.append((time_s, boot_s or 0.0, copied))

    def since(self, since_s: float) -> int:
        """The bytes of lines that are no older. O(minutes with a line).

        A line of the future is one of a clock that was ahead: it is as old as the next one, or as of now where none
        follows. One of a clock that was behind, or before it was put ahead, is as old as this boot of the machine says.
        """
        found, next_s = 0, time.time()
        now_s, (_, now_boot_s) = next_s, now_in_boot()
        for time_s, boot_s, copied in reversed(self.copied):
            if time_s <= now_s:
                next_s = time_s
            # A name space of another time may be ahead.
            is_of_late = boot_s > 0 and now_boot_s - (now_s - since_s) < boot_s <= now_boot_s
            if next_s > since_s or is_of_late:
                found += copied
        return found


_known: dict[Path, _Known] = {}


def copied_bytes(pool: Pool, since_s: float) -> int:
    """What was copied since then, as far as lines are kept. O(minutes with a line), and lines since the last time.

    Raises `StripewiseError` where the lines are there and cannot be read: what may be copied is not known then.
    """
    of, file = kept(pool), pool.namespace / FILE
    newest = of.newest()
    try:
        opened = owned.opened_to_read(newest)
        try:
            state = os.fstat(opened)
            known = _known.get(file)
            # A file that was removed may have left its number to the next one.
            if known is None or known.inode != state.st_ino or known.at > state.st_size:
                known = _Known(state.st_ino)
                known.add(of.of_file(of.old))
                _known[file] = known
            text = owned.rest(opened, kept_lines.MOST_READ_BYTES, known.at)
        finally:
            os.close(opened)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise kept_lines.unreadable(newest, error) from error
    whole = text[: text.rfind(b"\n") + 1]
    known.at += len(whole)
    known.add(decided.lines(whole))
    return known.since(since_s)


def see_clock(pool: Pool) -> None:
    """Keeps that the clock was put back, if the last line is of the future: that counts for a day from now on.

    Raises `StripewiseError` where the line cannot be written.
    """
    copied_bytes(pool, time.time())
    known = _known.get(pool.namespace / FILE)
    if known is not None and known.copied and known.copied[-1][0] > time.time():
        record(pool, {"what": "put back"})


class Watched:
    """The progress of moves: what is copied has its lines, and a move stops when the hours are over, or at the limit.

    A file with writers is copied in passes: all of it, then what was written meanwhile, and so on. A pass that is above
    the limit is stopped by its first word, some hundredths of a second after its first byte. Of what was planned, the
    progress is told of all bytes together.
    """

    def __init__(
        self,
        pool: Pool,
        hours: Hours | None,
        progress: Progress | None,
        left_bytes: Callable[[], float] | None = None,
        ends: Sequence[Callable[[int], str | None]] = (),
    ) -> None:
        """Counts from nothing; without `hours` and `left_bytes` nothing stops it but the progress.

        `left_bytes` says how much more than what has lines may be copied now. It is asked where that decides. `ends`
        say between two files why the next one does not move, of which at most as many bytes are copied as they are
        given.
        """
        self._pool, self._hours, self._left_bytes = pool, hours, left_bytes
        self._progress: Callable[[str, int, int], Then] = progress or (lambda *_: True)
        self.ends = list(ends)
        self._path = ""
        self._copied = self._recorded = self._done = 0
        self._pass_at = self._total = self._first_bytes = 0
        """Where the pass of now began and ends, and what the first pass copies."""
        self._most_bytes = 0.0
        """That may be copied in all, as far as was asked."""
        self.why: str | None = None
        """Why it has stopped a move, if it has stopped the last one."""
        self.recorded_bytes = 0
        """In all, and so what was copied, once it is closed."""
        self._planned: tuple[int, int] | None = None

    def __call__(self, path: str, done: int, total: int) -> Then:
        """Whether the move goes on."""
        is_next = path != self._path or done < self._done
        if is_next:
            self.close()
            self._path, self._first_bytes, self.why = path, total - total // 2, None
        elif total > self._total:
            self._pass_at = self._total
        self._total, self._done = total, done
        # Each byte of a pass is copied and read back: no more than half of them is copied.
        of_pass = total - self._pass_at
        self._copied = self._pass_at // 2 + min(done - self._pass_at, of_pass - of_pass // 2)
        ends = done >= total
        if ends or self._copied - self._recorded >= RECORD_BYTES:
            self._keep()
        # A copy that is done becomes the file.
        if not ends and self._hours is not None and not self._hours.allows(datetime.now()):
            self.why = OVER
            return False
        if is_next:
            self.why = next((why for end in self.ends if (why := end(done)) is not None), None)
            if self.why is not None:
                return False
        if self._is_above_the_limit(total - total // 2):
            record(self._pool, {"what": STOPPED, "path": path, "planned_bytes": self._first_bytes})
            self.why = ABOVE
            return False
        return self._progress(path, *moving.of_plan(self.planned(), done, total))

    def _is_above_the_limit(self, size_bytes: int) -> bool:
        """Whether less may be copied than what is copied of this file by the end of the pass."""
        more = size_bytes - self._recorded
        if self._left_bytes is None or self.recorded_bytes + more <= self._most_bytes:
            return False
        self._keep()
        self._most_bytes = self.recorded_bytes + self._left_bytes()
        return self.recorded_bytes + size_bytes - self._recorded > self._most_bytes

    def plan(self, size_bytes: int) -> None:
        """Says how many bytes are to be copied from now on."""
        self.close()
        self._planned, self.why = (self.recorded_bytes, size_bytes), None

    def planned(self) -> tuple[int, int] | None:
        """What is copied of what was planned last, and how much that is; `None` where nothing was."""
        if self._planned is None:
            return None
        before_bytes, size_bytes = self._planned
        # Of the file that moves now, reading back counts half, as in what is told of it.
        copied = self.recorded_bytes - before_bytes - self._recorded + self._done // 2
        return min(copied, size_bytes), size_bytes

    def close(self) -> None:
        """Keeps what has no line yet. For the end of a move, also of one that was stopped."""
        self._keep()
        self._path, self._copied, self._recorded, self._done = "", 0, 0, 0
        self._pass_at = self._total = 0

    def _keep(self) -> None:
        more = self._copied - self._recorded
        if more > 0:
            record(self._pool, {"what": "copied", "path": self._path, "copied_bytes": more})
            self._recorded = self._copied
            self.recorded_bytes += more
