"""A process beside a mount, which adapts the pool or serves its metrics, and ends with the mount.

```text
starts       takes the right to adapt, listens, says so or what keeps it from that
mounted      is told that the mount is there, or ends with the pipe
works        a decision a period, until the mount is another one, or gone
```
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stripewise import mounts
from stripewise._native import StripewiseError
from stripewise.api import adapt as adapting
from stripewise.api import adapt_service, ending, running
from stripewise.api import metrics as serving
from stripewise.api.pacing import Pace
from stripewise.pool import Pool

__all__ = ["mount"]

LOOK_S = 1.0
"""Between two looks whether the mount is there."""


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
    command = [sys.executable, "-m", "stripewise.api.companion", str(pool.file), json.dumps(asked)]
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


def _serve(pool: Pool, asked: dict[str, Any]) -> None:
    """What the process beside the mount does."""
    with ending.tidy_end(), ExitStack() as stack:
        try:
            if asked["adapt"] is not None:
                adapt_service.require(pool)
                stack.enter_context(adapting.alone(pool))
            url = serving.serve(pool, str(asked["metrics"]))[0] if asked["metrics"] is not None else None
        except StripewiseError as error:
            print(json.dumps({"error": str(error)}), flush=True)
            return
        print(json.dumps({"url": url}), flush=True)
        directory = Path(str(asked["directory"]))
        if not sys.stdin.readline():
            return
        mount = mounted_at(directory)

        def is_mounted(*_: object) -> bool:
            return mounted_at(directory) == mount

        while mount is not None and is_mounted():
            if asked["adapt"] is not None:
                _adapt(pool, _wanted(asked["adapt"]), is_mounted)
            else:
                time.sleep(LOOK_S)


def _adapt(pool: Pool, wanted: adapt_service.Wanted, is_mounted: Callable[..., bool]) -> None:
    """Decides, and promotes until the next decision is due; a move ends when the mount does."""
    # The callback has stopped a move: the mount has ended.
    with suppress(KeyboardInterrupt):
        for _ in adapt_service.run(pool.file, wanted, lambda: nullcontext(is_mounted), is_mounted):
            pass


if __name__ == "__main__":
    _serve(Pool.load(Path(sys.argv[1])), json.loads(sys.argv[2]))
