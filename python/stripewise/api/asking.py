"""Asking the process that adapts a pool to decide now: for `adapt --once` beside a service, or beside a mount.

```text
asks        a file of its own in a directory of the namespace
is taken    the process removes the file, within a second while it waits for its next decision
answered    the decision has the file's name in `asked`
```
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from stripewise._native import StripewiseError
from stripewise.api import adapt
from stripewise.pool import Pool

__all__ = ["answer", "is_waiting", "take"]

DIRECTORY = "adapt-asked"
"""In the pool's namespace."""
TAKE_S = 120.0
"""For how long a process may do something else, such as move data, before it takes what it is asked."""
LOOK_S = 0.1
"""Between two looks for an answer."""
LIVES_S = 1.0
"""Between two looks whether the process is still there."""


def _directory(pool: Pool) -> Path:
    return pool.namespace / DIRECTORY


def is_waiting(pool: Pool) -> bool:
    """Whether a command asks for a decision. Four system calls, or one where none ever did."""
    try:
        with os.scandir(_directory(pool)) as found:
            return any(True for _ in found)
    except OSError:
        return False


def take(pool: Pool) -> list[str]:
    """The names of all questions; the next decision answers them."""
    taken = []
    try:
        for file in _directory(pool).iterdir():
            file.unlink(missing_ok=True)
            taken.append(file.name)
    except OSError:
        pass  # No command ever asked, or what it asked cannot be answered.
    return sorted(taken)


def answer(pool: Pool, say: Callable[[str], None]) -> adapt.Decision:
    """Asks for a decision and waits for it; `say` is told how far that is.

    Raises `StripewiseError` where the process that adapts the pool does not take it in time, or ends.
    """
    file = _asked(pool)
    try:
        say(f"pool '{pool.name}' is adapted by another process, which is asked to decide now, by its own options")
        _wait_until_taken(pool, file)
    finally:
        file.unlink(missing_ok=True)
    say("it decides, and moves what pays; Ctrl-C ends this command alone")
    looked, lives_s = None, time.monotonic()
    while True:
        state = adapt.state_file(pool).stat()
        if (state.st_size, state.st_mtime_ns) != looked:
            looked = state.st_size, state.st_mtime_ns
            for decision in reversed(adapt.decisions(pool)):
                names = decision.get("asked")
                if isinstance(names, list) and file.name in names:
                    return decision
        if time.monotonic() - lives_s > LIVES_S:
            lives_s = time.monotonic()
            _require_adapted(pool)
        time.sleep(LOOK_S)


def _asked(pool: Pool) -> Path:
    directory = _directory(pool)
    file = directory / secrets.token_hex(8)
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StripewiseError(
            f"pool '{pool.name}' is adapted by another process, which cannot be asked to decide now: {file} cannot be "
            f"made: {error.strerror}"
        ) from error
    return file


def _wait_until_taken(pool: Pool, file: Path) -> None:
    began_s = lives_s = time.monotonic()
    while file.exists():
        now_s = time.monotonic()
        if now_s - began_s > TAKE_S:
            raise StripewiseError(
                f"the process that adapts pool '{pool.name}' has not answered for {TAKE_S:.0f} s: it may be moving "
                f"data; try again later, or end it"
            )
        if now_s - lives_s > LIVES_S:
            lives_s = now_s
            _require_adapted(pool)
        time.sleep(LOOK_S)


def _require_adapted(pool: Pool) -> None:
    if not adapt.is_adapted(pool):
        raise StripewiseError(f"the process that adapted pool '{pool.name}' has ended without an answer; try again")
