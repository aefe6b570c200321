"""What one mount sends to the servers for the requests of several processes: its hints `readahead` and `writebehind`.

As in `crates/store/src/file/paths`: `pattern.rs` (`ReadFront`), `windows.rs`, `together.rs`, `dense.rs`
(`mount_blocks`), `readahead.rs` and `writebehind.rs`, for opens of which each has some of the pieces. A window is
read by the process whose request comes to it, as the block of a cache is, and not by a thread before that. A file has
a writer from a write of it to its next read, before which the writer closes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from benches.cache_loads import MIB, PROCESSES, READ, WRITE, Rows
from benches.mount_blocks import Blocks

HINTS = "readahead=8M:2 writebehind=4M"
"""As `stripewise hint` has them."""
WINDOW_BYTES, DEPTH = 8 * MIB, 2
GATHERED_BYTES, DELAY_S = 4 * MIB, 1.0
MOST_STREAMS, MOST_OTHERS = 8, 512
PIECES, MOST_AHEAD, FIRST, FRONT = 128, 48, 16, 16
WINDOWS_KEPT, DRIFT_BYTES = 4, 64 * MIB
IDLE, NEARLY_ASKED, GIVEN_UP, LAST = 16, 512, 1024, 8

Request = tuple[int, int, int, int, int]
"""Process, file, offset, size and kind."""


@dataclass
class _Window:
    """What was fetched at once, and how it has been used."""

    begin: int
    end: int
    used: int
    asked: int = 0
    pieces: set[int] = field(default_factory=set)
    """Offsets of those that were asked for."""

    @property
    def left(self) -> int:
        """Bytes that were not asked for."""
        return self.end - self.begin - self.asked

    def note(self, offset: int, size: int) -> int | None:
        """How many bytes of a piece are here and were not asked for before; `None`: it is none of this window."""
        here = min(self.end, offset + size) - max(self.begin, offset)
        if here <= 0:
            return None
        new = 0 if offset in self.pieces else min(here, self.left)
        self.pieces.add(offset)
        self.asked += new
        return new


@dataclass
class _Stream:
    """`ReadFront`, with what was fetched for it (`KeptWindows`)."""

    size: int
    end: int
    used: int
    origin: int
    asked: int = 1
    requests: int = 1
    again: int = 0
    goes_on: bool = False
    windows: list[_Window] = field(default_factory=list)
    step: int = 0
    noted: int = 0
    fetched_bytes: int = 0
    used_bytes: int = 0
    left_of_last: tuple[int, int] = (0, 1)
    """What was not asked for of the last window that was given up, or was asked for as a whole; its length."""

    def note(self, offset: int, size: int) -> bool:
        """Whether a request is one of its pieces."""
        if size != self.size or (offset - self.end) % size:
            return False
        pieces = (offset - self.end) // size
        is_near = -PIECES <= pieces < MOST_AHEAD
        if not is_near and not self.has_fetched(offset, size):
            return False
        if is_near:
            self._move(offset, pieces)
        found = [(window, window.note(offset, size)) for window in self.windows]
        here = [(window, new) for window, new in found if new is not None]
        for window, new in here:
            self.used_bytes += new
            if new:
                window.used = self.noted + 1
        self.noted += not here or any(new for _, new in here)
        return True

    def has_fetched(self, offset: int, size: int) -> bool:
        """Whether a request is for what was fetched for it, or will be next."""
        is_piece = size == self.size and (offset - self.end) % size == 0
        return is_piece and bool(self.windows) and self.windows[0].begin <= offset < self.windows[-1].end + self.step

    def _move(self, offset: int, pieces: int) -> None:
        if pieces < 0:
            self.again += self.asked >> (-pieces - 1) & 1
            self.asked |= 1 << (-pieces - 1)
        else:
            self.asked = (self.asked << (pieces + 1) | 1) & ((1 << PIECES) - 1)
            self.end = offset + self.size
        self.requests += 1
        if self.requests == FRONT:
            moved = (self.end - self.origin) // self.size
            self.goes_on = FRONT // 2 <= moved <= 2 * FRONT and self.again <= FRONT // 4
            self.requests, self.again, self.origin = 0, 0, self.end

    @property
    def is_known(self) -> bool:
        """Whether several opens have read it in order."""
        return bool(self.windows) or self.goes_on

    def fetch(self, offset: int, size_of_file: int) -> list[tuple[int, int]]:
        """The windows that are fetched now, begin and end."""
        is_dense = (self.asked & ((1 << FRONT) - 1)).bit_count() >= FRONT // 2 or self.asked.bit_count() >= PIECES // 2
        if not self.windows and not (self.goes_on and is_dense):
            return []
        found = []
        while sum(window.begin > offset for window in self.windows) < DEPTH:
            is_used = 2 * self.used_bytes >= self.fetched_bytes
            step = min(max(2 * FIRST * self.size, self.step * (2 if is_used else 1)), WINDOW_BYTES)
            kept = max(WINDOWS_KEPT * step, DRIFT_BYTES) if is_used else WINDOWS_KEPT * step
            most = (DEPTH - 1) * step + kept
            had_some = bool(self.windows)
            self._make_room(most)
            if had_some and not self.windows:
                self._begin_anew(offset)
                break
            if self._kept() > most:
                break
            begin = self.windows[-1].end if self.windows else self.end
            end = min(begin + step, size_of_file)
            if begin >= end:
                break
            self.step = step
            self.fetched_bytes += end - begin
            self.windows.append(_Window(begin, end, self.noted))
            found.append((begin, end))
        return found

    def _kept(self) -> int:
        return sum(window.end - window.begin for window in self.windows)

    def _begin_anew(self, offset: int) -> None:
        self.asked, self.requests, self.again, self.goes_on = 1, 1, 0, False
        self.end, self.origin = offset + self.size, offset

    def _let_go(self) -> None:
        self.windows, self.step, self.fetched_bytes, self.used_bytes = [], 0, 0, 0
        self.left_of_last = (0, 1)

    def _make_room(self, most: int) -> None:
        while len(self.windows) > 1:
            first = self.windows[0]
            size, idle, is_full = first.end - first.begin, self.noted - first.used, self._kept() > most
            is_given_up = is_full and idle > GIVEN_UP
            if is_given_up and first.left > size // 2:
                self._let_go()
                return
            usual = self.left_of_last[0] * size // self.left_of_last[1]
            is_nearly_done = is_full and idle > NEARLY_ASKED and first.left <= usual + size // LAST
            if not is_given_up and not is_nearly_done and not (first.left == 0 and idle > IDLE):
                return
            if is_given_up or first.left == 0:
                self.left_of_last = (first.left, size)
            self.windows.pop(0)


class Mount:
    """A mount of a pool whose files were made with the hints."""

    def __init__(self, sizes: tuple[int, ...], price_s: Callable[[int, int, int], float]) -> None:
        """Of files of these sizes, none of which is open.

        `price_s` is how long servers work for a read, by file, offset and size.
        """
        self._sizes = sizes
        self._streams: list[list[_Stream]] = [[] for _ in sizes]
        self._blocks = [Blocks(partial(price_s, file)) for file in range(len(sizes))]
        self._gathered: dict[int, tuple[int, int]] = {}
        self._since_s: dict[int, float] = {}
        self._requests = 0
        self._now_s = 0.0

    def sent(self, rows: Rows, now_s: float) -> list[Request]:
        """What it sends for requests that come in this order, from then on; first what was gathered for long enough."""
        found: list[Request] = []
        for file in [of for of in self._gathered if now_s - self._since_s[of] >= DELAY_S]:
            self._put(0, file, found)
        self._now_s = now_s
        for number, (file, offset, size, kind) in enumerate(rows.tolist()):
            process = number % PROCESSES
            if kind == WRITE:
                self._write(process, (file, offset, size), found)
            else:
                self._put(process, file, found)
                self._read(process, (file, offset, size), found)
        return found

    def rest(self) -> list[Request]:
        """What is still gathered in the end."""
        found: list[Request] = []
        for file in list(self._gathered):
            self._put(0, file, found)
        return found

    def _write(self, process: int, request: tuple[int, int, int], found: list[Request]) -> None:
        file, offset, size = request
        self._streams[file] = []
        self._blocks[file].let_go()
        begin, end = self._gathered.get(file, (offset, offset))
        if end != offset or size >= GATHERED_BYTES:
            self._put(process, file, found)
            begin = offset
        if size >= GATHERED_BYTES:
            found.append((process, file, offset, size, WRITE))
            return
        if file not in self._gathered:
            self._since_s[file] = self._now_s
        self._gathered[file] = (begin, offset + size)
        if offset + size - begin >= GATHERED_BYTES:
            self._put(process, file, found)

    def _put(self, process: int, file: int, found: list[Request]) -> None:
        if file in self._gathered:
            begin, end = self._gathered.pop(file)
            found.append((process, file, begin, end - begin, WRITE))

    def _read(self, process: int, request: tuple[int, int, int], found: list[Request]) -> None:
        file, offset, size = request
        self._requests += 1
        streams = self._streams[file]
        fetched_first = sorted(streams, key=lambda of: not of.has_fetched(offset, size))
        stream = next((of for of in fetched_first if of.note(offset, size)), None)
        if stream is None:
            stream = _Stream(size, offset + size, self._requests, offset)
        else:
            streams.remove(stream)
        stream.used = self._requests
        others = [of for of in streams if self._requests - of.used <= MOST_OTHERS]
        while len(others) >= MOST_STREAMS:
            others.remove(next((of for of in reversed(others) if not of.is_known), others[-1]))
        self._streams[file] = [stream, *others]
        was_fetched = any(window.begin <= offset and offset + size <= window.end for window in stream.windows)
        fetched = stream.fetch(offset, self._sizes[file])
        is_kept, block = (False, None) if stream.windows else self._blocks[file].note(offset, size)
        if block is not None:
            found.append((process, file, block, min(MIB, self._sizes[file] - block), READ))
        elif not is_kept and not was_fetched:
            found.append((process, file, offset, size, READ))
        found += [(process, file, begin, end - begin, READ) for begin, end in fetched]
