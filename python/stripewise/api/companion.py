"""A process beside a mount, which adapts the pool or serves its metrics, and ends with the mount.

```text
starts       takes the right to adapt, listens, says so or what keeps it from that
mounted      is told that the mount is there, or ends with the pipe
works        a decision a period, until the mount is another one, or gone
ends         between two steps of a move, or else a moment later where it is, as by SIGTERM
```
"""

from __future__ import annotations

import _thread
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from stripewise import launch, mounts
from stripewise._native import StripewiseError
from stripewise.api import adapt as adapting
from stripewise.api import adapt_service, ending, running
from stripewise.api import metrics as serving
from stripewise.api.pacing import Pace
from stripewise.pool import Pool

__all__ = ["mount"]

T = TypeVar("T")

LOOK_S = 1.0
"""Between two looks whether the mount is there."""
STOPS_S = 0.5
"""For how long a move may take to stop by itself once the mount is gone."""
ENDS_S = 5.0
"""For how long it waits for what a process beside a mount has that was just unmounted: some looks of that one."""


def mount(
    pool: Pool, directory: Path | None, *, adapt: adapt_service.Wanted | None, metrics: str | None
) -> tuple[int, str | None]:
    """Mounts a pool, with a process beside it that adapts it or serves its metrics as long as it is mounted.

    The exit code of the mount, and where metrics are served. Raises `StripewiseError` before anything is mounted where
    the pool is adapted already, keeps no heat, or cannot be listened for.
    """
    asked = {
        "adapt": None if adapt is None else asdict(adapt),
        "metrics": metrics,
        "directory": str((directory or pool.mount).resolve()),
    }
    # -P: what others have put into the directory where this begins is no module.
    command = [sys.executable, "-P", "-m", "stripewise.api.companion", str(pool.file), json.dumps(asked)]
    beside = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    assert beside.stdin is not None and beside.stdout is not None
    with beside.stdin, beside.stdout:
        said = json.loads(beside.stdout.readline() or '{"error": "the process beside the mount has not begun"}')
        if "error" in said:
            beside.wait()
            raise StripewiseError(said["error"])
        status = running.mount(pool, directory, latencies=metrics is not None)
        if status == 0:
            beside.stdin.write("mounted\n")
    if status != 0:
        beside.wait()
    return status, said["url"]


def mounted_at(directory: Path) -> int | None:
    """The number of the pool's mount at a directory, which tells it from all others; `None` where there is none."""
    there = [mount.id for mount in mounts.ours() if mount.point == directory]
    return there[-1] if there else None  # The last one lies over the others.


def _wanted(asked: dict[str, Any]) -> adapt_service.Wanted:
    """What was asked for, as the mount has sent it."""
    limits = {**asked["limits"], "hours": asked["limits"]["hours"] and tuple(asked["limits"]["hours"])}
    return adapt_service.Wanted(**{**asked, "limits": adapting.Limits(**limits), "pace": Pace(**asked["pace"])})


class _Mounted:
    """Whether a mount is there, and its process lives."""

    def __init__(self, directory: Path) -> None:
        """The mount that is there now."""
        self._directory, self._number, self._due_s = directory, mounted_at(directory), 0.0
        self._is_dead = False

    def __call__(self, *_: object) -> bool:
        """A look at the mount table, which a step of a move asks for; once a second the mount is asked, too."""
        now_s = time.monotonic()
        if now_s >= self._due_s:
            self._due_s = now_s + LOOK_S
            self._is_dead = launch.is_dead(self._directory)
        return self._number is not None and not self._is_dead and mounted_at(self._directory) == self._number


def _begun(begin: Callable[[], T], clock: Callable[[], float] = time.monotonic) -> T:
    """What `begin` gives, which takes what one process has at a time.

    The one beside a mount that has just ended has it for a moment. Raises what `begin` raises.
    """
    until_s = clock() + ENDS_S
    while True:
        try:
            return begin()
        except StripewiseError as error:
            is_taken = isinstance(error, adapting.AdaptedError) or (
                isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE
            )
            if not is_taken or clock() >= until_s:
                raise
        time.sleep(LOOK_S / 10)


def _serve(pool: Pool, asked: dict[str, Any]) -> None:
    """What the process beside the mount does."""
    # The directory where the command began may be on a disk that is to be unmounted.
    os.chdir("/")
    with ending.tidy_end(), ExitStack() as stack:
        try:
            if asked["adapt"] is not None:
                adapt_service.require(pool)
                _begun(lambda: stack.enter_context(adapting.alone(pool)))
            url = None
            if asked["metrics"] is not None:
                url, _ = _begun(lambda: serving.serve(pool, str(asked["metrics"])))
        except StripewiseError as error:
            print(json.dumps({"error": str(error)}), flush=True)
            return
        print(json.dumps({"url": url}), flush=True)
        directory = Path(str(asked["directory"]))
        if not sys.stdin.readline():
            return
        is_mounted = _Mounted(directory)
        Thread(target=_end_with, args=[_Mounted(directory)], daemon=True).start()
        while is_mounted():
            if asked["adapt"] is not None:
                _adapt(pool, _wanted(asked["adapt"]), is_mounted)
            else:
                time.sleep(LOOK_S)


def _end_with(is_mounted: Callable[[], bool]) -> None:
    """Ends this process once the mount is gone, whatever it does: while it plans, no step asks for the mount."""
    while is_mounted():
        time.sleep(LOOK_S / 2)
    time.sleep(STOPS_S)
    _thread.interrupt_main(signal.SIGTERM)


def _adapt(pool: Pool, wanted: adapt_service.Wanted, is_mounted: Callable[..., bool]) -> None:
    """Decides, and promotes until the next decision is due; a move ends when the mount does."""
    # The callback has stopped a move: the mount has ended.
    with suppress(KeyboardInterrupt):
        for _ in adapt_service.run(pool.file, wanted, lambda: nullcontext(is_mounted), is_mounted):
            pass


if __name__ == "__main__":
    _serve(Pool.load(Path(sys.argv[1])), json.loads(sys.argv[2]))
