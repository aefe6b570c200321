"""One client of `wei-fig2` and `wei-fig3`, a process: python -m benches.wei_client KIND DIRECTORY SECONDS SEED [PORT].

It says `ready`, waits for a line, works for that time, and prints what it did as JSON.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

SMALL_BYTES = 64 << 10
"""Files up to that size are small ones."""
SIZES = tuple(4096 << power for power in range(11))
WEIGHTS = tuple(2.0 ** (-power / 2) for power in range(11))
"""How often a file of each size is used: 4 KiB 32 times as often as 4 MiB."""
THINK_S = 0.2
"""Mean pause of a client between its rounds."""


class Spent(TypedDict):
    """What was done of a kind, and the time that it took the client."""

    count: int
    """Operations, or bytes."""
    took_s: float


Done = dict[str, Spent]


def _content(size: int, seed: int) -> bytes:
    return (seed.to_bytes(8, "little") * (size // 8 + 1))[:size]


def _timed(done: Done, kind: str, count: int, work: Callable[[], None]) -> None:
    began = time.monotonic()
    work()
    spent = done.setdefault(kind, {"count": 0, "took_s": 0.0})
    spent["count"] += count
    spent["took_s"] += time.monotonic() - began


def _mixed(directory: Path, seconds: float, seed: int) -> Done:
    """Rounds of operations on names and one file that is made, read and removed."""
    own = directory / f"client{seed}"
    own.mkdir()
    choose = random.Random(seed)
    done: Done = {}
    ends = time.monotonic() + seconds
    number = 0
    time.sleep(choose.uniform(0, 2 * THINK_S))
    while time.monotonic() < ends:
        number += 1
        first, second = own / f"a{number}", own / f"b{number}"

        def names(first: Path = first, second: Path = second) -> None:
            os.close(os.open(first, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            second.exists()
            first.rename(second)
            second.unlink()

        _timed(done, "names", 4, names)
        size = choose.choices(SIZES, WEIGHTS)[0]
        file, content = own / f"f{number}", _content(size, seed * 1_000_003 + number)

        def use(file: Path = file, content: bytes = content) -> None:
            descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            os.write(descriptor, content)
            os.close(descriptor)
            if file.read_bytes() != content:
                raise SystemExit(f"wrong bytes in {file}")

        _timed(done, "small" if size <= SMALL_BYTES else "larger", size, use)
        file.unlink()
        time.sleep(choose.uniform(0, 2 * THINK_S))
    own.rmdir()
    return done


def make_site(directory: Path, small: int, large: int) -> None:
    """Files of a web site: `small` ones of 4 to 64 KiB and `large` ones of 4 MiB."""
    choose = random.Random(1)
    for kind, count in (("small", small), ("large", large)):
        (directory / kind).mkdir()
        for number in range(count):
            size = 4 << 20 if kind == "large" else choose.choice(SIZES[:5])
            (directory / kind / f"{number}").write_bytes(_content(size, number))


def _web(directory: Path, seconds: float, seed: int, port: int) -> Done:
    """Gets files from a web server: of ten, nine small ones."""
    choose = random.Random(seed)
    files = {kind: sorted((directory / kind).iterdir()) for kind in ("small", "large")}
    done: Done = {}
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        kind = "large" if choose.random() < 0.1 else "small"
        file = choose.choice(files[kind])
        size = file.stat().st_size

        def get(kind: str = kind, file: Path = file, size: int = size) -> None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", f"/{kind}/{file.name}")
            if connection.getresponse().read() != _content(size, int(file.name)):
                raise SystemExit(f"wrong bytes of {file}")
            connection.close()

        _timed(done, kind, size, get)
    return done


def main(kind: str, directory: str, seconds: str, seed: str, port: str = "0") -> None:
    """Works for `seconds` after a line has come, and prints what it did."""
    print("ready", flush=True)
    sys.stdin.readline()
    if kind == "web":
        done = _web(Path(directory), float(seconds), int(seed), int(port))
    else:
        done = _mixed(Path(directory), float(seconds), int(seed))
    json.dump(done, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
