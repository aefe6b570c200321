"""The end of a process by SIGTERM, as systemd and `kill` send it, or by SIGHUP, as of a terminal that is closed.

It does not end before what was begun is cleared away.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

__all__ = ["scratch_directory", "tidy_end"]

_unbroken = 0
"""How many `_whole` the main thread is in."""
_ended: int | None = None
"""The signal that has come."""


@contextmanager
def tidy_end() -> Iterator[None]:
    """SIGTERM and SIGHUP leave this as an exception would, and then end the process as if they had done so at once.

    A move stops where it is, as by Ctrl-C. A SIGHUP that is ignored, as by `nohup`, stays so. Only in the main thread.
    """
    is_ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    heeded = (signal.SIGTERM,) if is_ignored else (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, _end) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if _ended is not None:
            signal.signal(_ended, signal.SIG_DFL)
            os.kill(os.getpid(), _ended)


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """A directory for what is needed in here; it is gone afterwards, whenever such a signal comes."""
    made = None
    try:
        with _whole():
            made = TemporaryDirectory(prefix="stripewise-")
        yield Path(made.name)
    finally:
        with _whole():
            if made is not None:
                made.cleanup()


def _end(number: int, _: FrameType | None) -> None:
    global _ended
    _ended = number
    if not _unbroken:
        sys.exit(128 + number)


@contextmanager
def _whole() -> Iterator[None]:
    """What is done in here is done to its end before the signal is heeded."""
    global _unbroken
    _unbroken += 1
    try:
        yield
    finally:
        _unbroken -= 1
    if _ended is not None and not _unbroken:
        sys.exit(128 + _ended)
