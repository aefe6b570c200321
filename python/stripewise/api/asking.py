"""Asking the process that adapts a pool to decide now: for `adapt --once` beside a service, or beside a mount.

```text
asks        a file of its own in a directory of the namespace
waits       the process makes another decision, or moves what that has found: that is told, and waited for
is taken    the process removes the file, within a second while it waits for its next decision
answered    the decision has the file's name in `asked`
```
"""

from __future__ import annotations

import math
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from stripewise._native import StripewiseError
from stripewise.api import adapt, moving, owned
from stripewise.api.moving import Move
from stripewise.pool import Pool
from stripewise.terminal import name
from stripewise.units import about_bytes, mib_per_s, seconds

__all__ = ["EndedError", "answer", "is_waiting", "take"]

DIRECTORY = "adapt-asked"
"""In the pool's namespace."""
NAME = re.compile("[0-9a-f]{16}")
"""Of a question. What else is in the directory is none, and stays."""
MOST_TAKEN = 100
"""Questions that one decision answers; the next one answers more."""
TAKE_S = 600.0
"""For how long a process may move nothing and not take what it is asked, or not answer it, as while it plans."""
SAY_S = 30.0
"""Between two words of how far a move is."""
LOOK_S = 0.1
"""Between two looks for an answer."""
LIVES_S = 1.0
"""Between two looks whether the process is still there."""


def _directory(pool: Pool) -> Path:
    return pool.namespace / DIRECTORY


_refused: dict[Path, frozenset[str]] = {}
"""By directory, the names that could not be removed there when questions were taken last."""


def is_waiting(pool: Pool) -> bool:
    """Whether a command asks for a decision. Some system calls, or one where none ever did.

    What could not be removed as questions were taken is none, until they are taken again.
    """
    path = _directory(pool)
    refused = _refused.get(path, frozenset())
    try:
        with owned.directory(path) as directory:
            return any(question not in refused for question in owned.files(directory, NAME))
    except OSError:
        return False


def take(pool: Pool) -> list[str]:
    """The names of questions, `MOST_TAKEN` at most; the next decision answers them.

    What cannot be removed is no question: each look would find it again, and each decision would answer it.
    """
    path = _directory(pool)
    taken: list[str] = []
    refused: set[str] = set()
    # No command ever asked, or what it asked cannot be answered.
    with suppress(OSError), owned.directory(path) as directory:
        for question in owned.files(directory, NAME):
            if len(taken) == MOST_TAKEN:
                break
            try:
                os.unlink(question, dir_fd=directory)
            except FileNotFoundError:
                continue  # Its command has taken it back.
            except OSError:
                refused.add(question)
            else:
                taken.append(question)
    _refused[path] = frozenset(refused)
    return sorted(taken)


class EndedError(StripewiseError):
    """The process that was asked has ended without an answer."""


Show = Callable[[Move | None], None]
"""Called with the move that goes on, or with `None`, at each look."""


def answer(
    pool: Pool,
    say: Callable[[str], None],
    show: Show = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> adapt.Decision:
    """Asks for a decision and waits for it; `say` is told how far that is, and `show` the move that goes on.

    While data moves it waits. Raises `EndedError` where the process that adapts the pool ends, and `StripewiseError`
    where it moves nothing, and neither takes the question nor answers it, in time.
    """
    told = _Told(pool, say, show, clock)
    with _asked(pool) as (directory, question):
        say(f"pool '{pool.name}' is adapted by another process, which is asked to decide now, by its own options")
        while owned.has(directory, question):
            told.look()
            time.sleep(LOOK_S)
    told.goes_on()
    say("it decides, and moves what pays; Ctrl-C ends this command alone")
    stamp: object = ()
    while True:
        looked = adapt.kept(pool).stamp()
        if looked != stamp and (decision := _decision(pool, question)) is not None:
            return decision
        stamp = looked
        try:
            told.look()
        except EndedError:
            # It may have answered with its last word.
            if (decision := _decision(pool, question)) is None:
                raise
            return decision
        time.sleep(LOOK_S)


def _decision(pool: Pool, question: str) -> adapt.Decision | None:
    """The decision that answers a question; `None` where there is none so far."""
    for decision in reversed(adapt.decisions(pool)):
        names = decision.get("asked")
        if isinstance(names, list) and question in names:
            return decision
    return None


class _Told:
    """What the process does that is asked."""

    def __init__(self, pool: Pool, say: Callable[[str], None], show: Show, clock: Callable[[], float]) -> None:
        self._pool, self._say, self._show, self._clock = pool, say, show, clock
        self._since_s = self._lives_s = clock()
        self._said_s = -math.inf
        self._seen: Move | None = None

    def goes_on(self) -> None:
        """Notes a sign of life."""
        self._since_s = self._clock()

    def look(self) -> None:
        """Tells of the move that goes on.

        Raises `EndedError` where the process has ended, and `StripewiseError` where it gives no sign of life.
        """
        now_s, move = self._clock(), moving.now(self._pool)
        self._show(move)
        # One that stands still is no sign of life.
        if move != self._seen:
            self._seen, self._since_s = move, now_s
        if move is not None and now_s - self._said_s >= SAY_S:
            self._said_s = now_s
            self._say(_words(move))
        if now_s - self._lives_s >= LIVES_S:
            self._lives_s = now_s
            if not adapt.is_adapted(self._pool):
                raise EndedError(
                    f"the process that adapted pool '{self._pool.name}' has ended without an answer; try again"
                )
        if now_s - self._since_s > TAKE_S:
            raise StripewiseError(
                f"the process that adapts pool '{self._pool.name}' has moved nothing and not answered for "
                f"{TAKE_S:.0f} s: its planner may take longer, or a disk may not answer; try again later, or end it"
            )


def _words(move: Move) -> str:
    """Which file moves, how far it is, and how long it takes."""
    words = f"it moves {name(move.path)}: {about_bytes(move.copied_bytes)} of {about_bytes(move.all_bytes)}"
    rate, left_s = move.bytes_per_s, move.left_s
    if rate is not None and left_s is not None:
        words += f", {mib_per_s(rate)} MiB/s, {seconds(left_s)} left"
    if move.planned is not None:
        copied, planned = move.planned
        words += f"; in all {about_bytes(copied)} of {about_bytes(planned)}"
        words += "" if move.all_left_s is None else f", {seconds(move.all_left_s)} left"
    return f"{words}; the decision follows"


@contextmanager
def _asked(pool: Pool) -> Iterator[tuple[int, str]]:
    """Asks; the directory of the question, and its name, which is taken back in the end."""
    path, question = _directory(pool), secrets.token_hex(8)
    with ExitStack() as stack:
        try:
            owned.make_directory(path)
            directory = stack.enter_context(owned.directory(path))
            owned.make(directory, question)
        except OSError as error:
            raise StripewiseError(
                f"pool '{pool.name}' is adapted by another process, which cannot be asked to decide now: "
                f"{path / question} cannot be made: {error.strerror}"
            ) from error
        try:
            yield directory, question
        finally:
            with suppress(FileNotFoundError):
                os.unlink(question, dir_fd=directory)
