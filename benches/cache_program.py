"""A load of 16 threads on the files of a mount, straight or over a cache of 1 MiB blocks in a file of the fast space.

`python -m benches.cache_program LOAD.json` prints how many seconds it took. Each request is checked: words of eight
bytes say where they stand.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benches.cache_loads import MIB, PROCESSES, WRITE
from benches.caches import CACHES, Cache

BLOCK_BYTES = MIB


def content(file: int, offset: int, size: int) -> bytes:
    """What stands there: both are multiples of eight."""
    return (np.arange(offset // 8, (offset + size) // 8, dtype=np.uint64) | np.uint64(file << 56)).tobytes()


class Files:
    """Files of a mount, opened once by each thread for what it does."""

    def __init__(self, names: list[str]) -> None:
        """None is open yet."""
        self._names = names
        self._mine = threading.local()

    def _open(self, file: int, flags: int) -> int:
        known: dict[tuple[int, int], int] = self._mine.__dict__.setdefault("known", {})
        if (file, flags) not in known:
            known[file, flags] = os.open(self._names[file], flags)
        return known[file, flags]

    def read(self, file: int, offset: int, size: int) -> bytes:
        """Raises `OSError` where not all of it comes."""
        found = os.pread(self._open(file, os.O_RDONLY), size, offset)
        if len(found) != size:
            raise OSError(f"{len(found)} of {size} bytes at {offset} of {self._names[file]}")
        return found

    def write(self, file: int, offset: int, data: bytes | bytearray) -> None:
        """Raises `OSError` where not all of it goes."""
        if os.pwrite(self._open(file, os.O_WRONLY), data, offset) != len(data):
            raise OSError(f"not all of {len(data)} bytes were written at {offset} of {self._names[file]}")


@dataclass(eq=False)
class _Block:
    """A block that the cache has."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while it changes its place, and while a request uses it there."""
    is_here: threading.Event = field(default_factory=threading.Event)
    buffer: bytearray | None = None
    """Its bytes until they are in the fast space."""
    slot: int | None = None
    is_dirty: bool = False
    has_left: bool = False


class Cached:
    """A cache's fast space: what is not there is read whole, and threads beside fill it and write back what leaves."""

    def __init__(self, cache: Cache, files: Files, sizes: list[int]) -> None:
        """The file behind the last one is the fast space."""
        self._cache, self._files, self._sizes, self._fast = cache, files, sizes, len(sizes)
        self._lock = threading.Condition()
        self._blocks: dict[int, _Block] = {}
        self._leaving: dict[int, _Block] = {}
        self._free = list(range(cache.blocks))
        self._first = [0, *np.cumsum([-(-size // BLOCK_BYTES) for size in sizes]).tolist()]
        self._fills, self._backs = (ThreadPoolExecutor(PROCESSES) for _ in range(2))

    def serve(self, file: int, offset: int, size: int, kind: int) -> None:
        """One request within a block. Raises `OSError` for what cannot be read or written."""
        index = offset // BLOCK_BYTES
        number = self._first[file] + index
        held = min(BLOCK_BYTES, self._sizes[file] - index * BLOCK_BYTES)
        with self._lock:
            while number in self._leaving:
                self._lock.wait()
            used = self._cache.use(number)
            if used.evicted is not None:
                evicted = self._leaving[used.evicted] = self._blocks.pop(used.evicted)
                self._backs.submit(self._write_back, used.evicted, evicted)
            block = self._blocks.setdefault(number, _Block())
        if not used.was_there:
            is_whole = kind == WRITE and size == held
            data = content(file, offset, size) if is_whole else self._files.read(file, index * BLOCK_BYTES, held)
            block.buffer = bytearray(data)
            block.is_here.set()
            self._fills.submit(self._fill, block)
        block.is_here.wait()
        at = offset - index * BLOCK_BYTES
        with block.lock:
            if kind == WRITE:
                block.is_dirty = True
                if block.buffer is not None:
                    block.buffer[at : at + size] = content(file, offset, size)
                elif block.slot is not None:
                    self._files.write(self._fast, block.slot * BLOCK_BYTES + at, content(file, offset, size))
                return
            buffer, slot = block.buffer, block.slot
        if buffer is not None:
            check(file, offset, bytes(buffer[at : at + size]))
        elif slot is not None:
            found = self._files.read(self._fast, slot * BLOCK_BYTES + at, size)
            # A block that has left meanwhile may have given its place to another.
            if not block.has_left:
                check(file, offset, found)

    def _fill(self, block: _Block) -> None:
        with self._lock:
            while not self._free and not block.has_left:
                self._lock.wait()
            if block.has_left:
                return
            slot = self._free.pop()
        with block.lock:
            if block.buffer is None or block.has_left:
                with self._lock:
                    self._free.append(slot)
                    self._lock.notify_all()
                return
            self._files.write(self._fast, slot * BLOCK_BYTES, block.buffer)
            block.slot, block.buffer = slot, None

    def _write_back(self, number: int, block: _Block) -> None:
        block.is_here.wait()
        with self._lock:
            block.has_left = True
            self._lock.notify_all()
        file = next(of for of in range(self._fast) if number < self._first[of + 1])
        at = (number - self._first[file]) * BLOCK_BYTES
        with block.lock:
            if block.is_dirty:
                held = min(BLOCK_BYTES, self._sizes[file] - at)
                data = block.buffer
                if data is None and block.slot is not None:
                    data = bytearray(self._files.read(self._fast, block.slot * BLOCK_BYTES, held))
                if data is not None:
                    self._files.write(file, at, data)
        with self._lock:
            del self._leaving[number]
            if block.slot is not None:
                self._free.append(block.slot)
            self._lock.notify_all()


def check(file: int, offset: int, found: bytes) -> None:
    """Raises `OSError` where the first or the last word is wrong."""
    right = content(file, offset, 8) + content(file, offset + len(found) - 8, 8)
    if found[:8] + found[-8:] != right:
        raise OSError(f"wrong bytes at {offset} of file {file}")


def main(asked: Path) -> float:
    """Seconds until all threads have ended their requests."""
    load = json.loads(asked.read_text(encoding="utf-8"))
    rows = np.load(load["rows"])
    files = Files(load["files"])
    kind = next((of for of in CACHES if of.name == load["cache"]), None)
    cached = Cached(kind(load["blocks"]), files, load["sizes"]) if kind is not None else None

    def serve(number: int) -> None:
        for file, offset, size, kind in rows[number::PROCESSES].tolist():
            if cached is not None:
                for at in (offset, *range((offset // BLOCK_BYTES + 1) * BLOCK_BYTES, offset + size, BLOCK_BYTES)):
                    end = min(offset + size, (at // BLOCK_BYTES + 1) * BLOCK_BYTES)
                    cached.serve(file, at, end - at, kind)
            elif kind == WRITE:
                files.write(file, offset, content(file, offset, size))
            else:
                check(file, offset, files.read(file, offset, size))

    began_s = time.monotonic()
    with ThreadPoolExecutor(PROCESSES) as threads:
        for done in [threads.submit(serve, number) for number in range(PROCESSES)]:
            done.result()
    return time.monotonic() - began_s


if __name__ == "__main__":
    took_s = main(Path(sys.argv[1]))
    print(json.dumps({"took_s": took_s}), flush=True)
    # What is still written back is no part of it, and is not waited for.
    os._exit(0)
