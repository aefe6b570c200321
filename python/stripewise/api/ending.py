"""The end of a process by SIGTERM, as systemd and `kill` send it, or by SIGHUP, as of a terminal that is closed.

It does not end before what was begun is cleared away. What only calculates is no reason to wait: not for Ctrl-C either.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TypeVar

__all__ = ["heeding", "scratch_directory", "tidy_end"]

T = TypeVar("T")

HEEDS_S = 0.1
"""Between two looks whether a signal has come, where another thread has taken it."""
INTERRUPTED = 130
"""The exit code of a process that Ctrl-C ends."""

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


def heeding(call: Callable[[], T]) -> T:
    """What a call gives that only calculates, as a planner: a signal ends the waiting for it at once.

    The call goes on in a thread of its own then, as long as the process lives, and what it gives is lost. Raises what
    the call raises, and what a signal does.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()  # No signal comes here.
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(call())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        while not found.done():
            wait([found], HEEDS_S)
    except BaseException:
        atexit.register(_leave, found)
        raise
    return found.result()


def _leave(call: Future[T]) -> None:
    """Ends a process in which a call goes on: at its end that would come back to an interpreter which is no more."""
    if not call.done():
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(INTERRUPTED)


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
