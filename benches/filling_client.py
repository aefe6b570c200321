"""One client of `filling`, a process: python -m benches.filling_client STEP SHAPE DIRECTORY FILES SEED.

`write` makes files of a shape at full speed, once it has said `ready` and got a line, and prints as JSON how many
writes failed for want of room, and how long the files are that are shorter for that. `read` gets these lengths as that
line, and reads all back.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

APPEND_BYTES = 1 << 10
GROWTH_BYTES = 4 << 10
FILE_BYTES = {"4 KiB": 4 << 10, "64 KiB": 64 << 10, "appends": 64 << 10, "grown later": 64 << 10}
"""Of a file of each shape, in the end."""


class Writer:
    """Writes files, and knows which were too long for the pool."""

    def __init__(self, directory: Path, seed: int) -> None:
        """Writes below `directory` what `seed` makes it."""
        self.directory, self.seed = directory, seed
        self.failed = 0
        self.shorter: dict[str, int] = {}

    def path(self, number: int) -> Path:
        """Of a file; a directory has no more than a thousand."""
        return self.directory / f"{number // 1000}" / f"{number}"

    def write(self, number: int, data: bytes, piece_bytes: int) -> None:
        """Makes a file, or appends to it, piece by piece; what has no room is left out."""
        name = str(self.path(number))
        try:
            file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            self._count(error)
            self.shorter.setdefault(str(number), 0)
            return
        try:
            for begin in range(0, len(data), piece_bytes):
                if os.write(file, data[begin : begin + piece_bytes]) != min(piece_bytes, len(data) - begin):
                    raise OSError(errno.ENOSPC, "a part of it was written")
        except OSError as error:
            self._count(error)
            self.shorter[str(number)] = os.fstat(file).st_size
        finally:
            os.close(file)

    def _count(self, error: OSError) -> None:
        if error.errno != errno.ENOSPC:
            raise error
        self.failed += 1


def content(size: int, number: int, seed: int) -> bytes:
    """That of a file: no piece of it is that of another."""
    return b"".join(
        (seed << 56 | number << 24 | offset).to_bytes(8, "little") * 128 for offset in range(0, size, APPEND_BYTES)
    )


def _whole(size: int, piece_bytes: int) -> Callable[[Writer, int], None]:
    def write(writer: Writer, files: int) -> None:
        for number in range(files):
            writer.write(number, content(size, number, writer.seed), piece_bytes)

    return write


def _later(size: int) -> Callable[[Writer, int], None]:
    """All files get their first bytes before any of them gets more."""

    def write(writer: Writer, files: int) -> None:
        for begin in range(0, size, GROWTH_BYTES):
            for number in range(files):
                if str(number) not in writer.shorter:
                    data = content(begin + GROWTH_BYTES, number, writer.seed)[begin:]
                    writer.write(number, data, GROWTH_BYTES)

    return write


SHAPES: Mapping[str, Callable[[Writer, int], None]] = {
    "4 KiB": _whole(FILE_BYTES["4 KiB"], FILE_BYTES["4 KiB"]),
    "64 KiB": _whole(FILE_BYTES["64 KiB"], FILE_BYTES["64 KiB"]),
    "appends": _whole(FILE_BYTES["appends"], APPEND_BYTES),
    "grown later": _later(FILE_BYTES["grown later"]),
}


def _read(writer: Writer, shape: str, files: int, shorter: Mapping[str, int]) -> int:
    """How many files are not as they were written."""
    wrong = 0
    for number in range(files):
        expected = content(FILE_BYTES[shape], number, writer.seed)
        path = writer.path(number)
        found = path.read_bytes() if path.exists() else b""
        wrong += found != expected[: shorter.get(str(number), len(expected))]
    return wrong


def main() -> None:
    """Does a step."""
    step, shape, place, count, seed = sys.argv[1:]
    files, writer = int(count), Writer(Path(place), int(seed))
    if step == "write":
        for number in range(0, files, 1000):
            writer.path(number).parent.mkdir(parents=True)
    print("ready", flush=True)
    line = sys.stdin.readline()
    if step == "write":
        SHAPES[shape](writer, files)
        print(json.dumps({"failed": writer.failed, "shorter": writer.shorter}))
    else:
        print(json.dumps({"wrong": _read(writer, shape, files, json.loads(line))}))


if __name__ == "__main__":
    main()
