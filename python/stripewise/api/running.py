"""Programs on a pool: running and recording them, mounting the pool for all of them."""

from __future__ import annotations

import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stripewise import _native, emulation, launch, mounts, native_paths, outputs
from stripewise._native import StripewiseError
from stripewise.api import measured
from stripewise.launch import NotExecutableError, ProgramNotFoundError
from stripewise.pool import Pool

__all__ = [
    "NotExecutableError",
    "NothingRecordedError",
    "ProgramNotFoundError",
    "Ran",
    "bench_program",
    "mount",
    "run",
    "transports",
    "unmount",
]

bench_program = native_paths.bench_program


class NothingRecordedError(StripewiseError):
    """A program failed before anything could be recorded."""

    def __init__(self, message: str, exit_code: int) -> None:
        """`exit_code` is the program's."""
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Ran:
    """How a program ended."""

    exit_code: int
    """As a shell gives it: 128 + signal where a signal ended the program."""
    emulation: emulation.Statistics | None
    """What emulated servers did meanwhile; `None` without such."""


def run(
    command: Sequence[str],
    pool: Pool | None = None,
    *,
    preload: bool = True,
    program: str | None = None,
    trace: Path | None = None,
) -> Ran:
    """Runs a program to its end, on a pool or where it is; with `trace` its requests are recorded there.

    `program` is its name for an orchestrator of the pool.

    Without `preload` nothing is put into the program: every request goes through the mount. Raises
    `ProgramNotFoundError` or `NotExecutableError` before anything is started.
    """
    before = emulation.snapshot(pool) if pool is not None else None
    if pool is not None:
        measured.begin(pool)
    at = (pool.file, pool.mount) if pool is not None else (None, None)
    if trace is None:
        ended = launch.run(command, pool_file=at[0], mount=at[1], preload=preload, program=program)
    else:
        # Before the program runs.
        outputs.check_regular(trace)
        with launch.recording_dir(trace) as records:
            ended = launch.run(
                command, pool_file=at[0], mount=at[1], trace_dir=records, preload=preload, program=program
            )
            if ended.exit_code != 0 and not any(records.iterdir()):
                # The program need not have begun, where there was no mount for it.
                words = f"nothing was recorded: {command[0]} ended with exit code {ended.exit_code}"
                raise NothingRecordedError(words, ended.exit_code)
            _native.trace_merge(str(records), str(trace))
    is_emulated = before is not None and before.native is not None
    return Ran(ended.exit_code, emulation.since(before) if before is not None and is_emulated else None)


def mount(pool: Pool, directory: Path | None = None, *, latencies: bool = False) -> int:
    """Mounts a pool in the background, at its own place or at a directory that is there; the exit code of the mount.

    With `latencies` the mount counts how long servers take, for the metrics.
    """
    where = directory or pool.mount
    if not _may_be_directory(where):
        if directory is None:
            where.mkdir(parents=True, exist_ok=True)
        else:
            raise StripewiseError(f"cannot mount at {where}: it is no directory; make it first with mkdir -p")
    measured.begin(pool)
    options = ["-o", "latencies"] if latencies else []
    return subprocess.call([str(native_paths.mount_program()), *options, str(pool.file), str(where)])


def transports(pool: Pool) -> dict[Path, str]:
    """How requests travel between the kernel and each mount of the pool that this process sees: in words, by place.

    Mounts of other users but root are left out: they may say anything.
    """
    found = {}
    for mount in mounts.ours():
        words = mount.transport() if mount.root == "/" else None
        if words is not None and _serves(mount, pool):
            found[mount.point] = words
    return found


def _serves(mount: mounts.Mount, pool: Pool) -> bool:
    try:
        return mount.pool_file().samefile(pool.file)
    except (StripewiseError, OSError):
        return False  # It has just gone, or its pool file has.


def unmount(target: Path, *, lazy: bool = False) -> int:
    """Takes a mount away, by its directory or its pool file; the exit code of the program that does so.

    `lazy`: though programs use it; no new ones come in, and open files are served until they are closed.
    """
    directory = Pool.load(target).mount if _is_file(target) else target
    options = ["--lazy"] if lazy else []
    return subprocess.call([str(native_paths.mount_program()), *options, "--unmount", str(directory)])


def _may_be_directory(path: Path) -> bool:
    """Whether it is one, or cannot be asked: the place of a mount whose process has died answers with an error."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def _is_file(path: Path) -> bool:
    """Whether it is one; the place of a mount whose process has died is none, though it cannot be asked."""
    try:
        return path.is_file()
    except OSError:
        return False
