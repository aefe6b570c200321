"""Running a program on a pool: the mount under it, the preload library in it, its exit code out of it."""

import errno
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from stripewise import mounts, native_paths
from stripewise._native import StripewiseError


class ProgramNotFoundError(StripewiseError):
    """The program to run does not exist."""

    exit_code = 127
    """As a shell's."""


class NotExecutableError(StripewiseError):
    """The program to run exists and cannot be executed."""

    exit_code = 126
    """As a shell's."""


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    exit_code: int
    """As a shell gives it: 128 + signal where a signal ended the program."""
    wall_s: float
    """Wall clock from start to end in seconds, the private mount's start and stop included."""
    device_read_bytes: int
    """Bytes that the program's processes and the mount under them really read from block devices."""
    interrupted: bool
    """Whether Ctrl-C came meanwhile; the program got it, too, and may have ended in any way."""


def run(
    command: Sequence[str],
    *,
    pool_file: Path | None,
    mount: Path | None,
    trace_dir: Path | None = None,
    preload: bool = True,
    program: str | None = None,
    capture_stdout: Path | None = None,
) -> Ended:
    """Runs `command` to its end and returns how it ended.

    With `pool_file`, the pool is at `mount` for the program: the mount that is there already, or a private one that
    only the program sees. With `trace_dir`, its requests are recorded there (`Trace.merge` makes one file of them).
    Without `preload` nothing is put into the program: every request goes through the mount.
    `program` names it to an orchestrator; else that finds its job's name, or takes one that no other run has.
    `capture_stdout` sends the program's standard output to a file.

    Raises `ProgramNotFoundError` or `NotExecutableError` before anything is started.
    """
    _check_program(command[0], mount)
    settings: dict[str, str] = {"STRIPEWISE_PROGRAM": Path(command[0]).name}
    settings["STRIPEWISE_RUN"] = f"{Path(command[0]).name}.{os.getpid()}"
    if program is not None:
        settings["STRIPEWISE_JOB"] = program
    if preload:
        settings["LD_PRELOAD"] = _preload_list()
        settings |= _filters()
        if pool_file is not None:
            settings["STRIPEWISE_POOL"] = str(pool_file.absolute())
            if mount is not None:
                settings["STRIPEWISE_MOUNT"] = str(mount)
    if trace_dir is not None:
        settings["STRIPEWISE_TRACE"] = str(trace_dir.resolve())

    # The settings stand in front of the program alone, so the private mount itself runs without the preload library.
    full = ["env", *_enter_directory(mount), *(f"{key}={value}" for key, value in settings.items()), *command]
    if pool_file is not None and mount is not None and (not is_mounted(mount) or is_dead(mount)):
        full = [str(native_paths.mount_program()), "--private", str(pool_file.absolute()), "--", *full]

    read_before = _children_read_bytes()
    began = time.monotonic()
    with _sink(capture_stdout) as stdout, _Signals() as signals:
        # What was left open for the program stays open: MPI's wires, make's job server, a shell's `<(...)`.
        # Python's own descriptors are closed all the same, as they are on exec.
        child = signals.child = subprocess.Popen(full, stdout=stdout, close_fds=False)
        status = child.wait()
    return Ended(
        exit_code=128 - status if status < 0 else status,
        wall_s=time.monotonic() - began,
        device_read_bytes=_children_read_bytes() - read_before,
        interrupted=signals.interrupted,
    )


@contextmanager
def recording_dir(target: Path) -> Iterator[Path]:
    """A new directory beside `target` for a run's records.

    When the body fails it stays with what was recorded, for `stripewise show`; without a record it goes.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=f"{target.name}.", suffix=".recording", dir=target.parent))
    try:
        yield directory
    except BaseException:
        with suppress(OSError):
            directory.rmdir()
        raise
    shutil.rmtree(directory)


def is_mounted(mount: Path) -> bool:
    """Whether a FUSE file system is at `mount` in this process's mount namespace, be its process alive or dead."""
    wanted = Path(os.path.realpath(mount))
    return any(known.point == wanted and known.fs_type.startswith("fuse") for known in mounts.table())


def is_dead(mount: Path) -> bool:
    """Whether the process that served the file system at `mount` has died."""
    while True:
        try:
            os.statvfs(mount)
        except OSError as error:
            # It has died this moment: the kernel ends what its threads had first, and the connection then.
            if error.errno in (errno.ECONNABORTED, errno.ECANCELED):
                continue
            return error.errno == errno.ENOTCONN
        return False


def _check_program(program: str, mount: Path | None) -> None:
    if "/" in program and mount is not None and _is_below(Path(program), mount):
        return  # on the pool: only the mount can tell
    if "/" not in program:
        if shutil.which(program) is None:
            raise ProgramNotFoundError(f"program '{program}' not found in PATH")
        return
    path = Path(program)
    if not path.exists():
        raise ProgramNotFoundError(f"program '{program}' does not exist")
    if path.is_dir() or not os.access(path, os.X_OK):
        raise NotExecutableError(f"program '{program}' is not executable; make it so with chmod +x")


def _is_below(path: Path, directory: Path) -> bool:
    return Path(os.path.abspath(path)).is_relative_to(os.path.abspath(directory))


def _enter_directory(mount: Path | None) -> list[str]:
    """A working directory on the pool has to be entered again once the mount is there."""
    here = Path.cwd()
    return [f"--chdir={here}"] if mount is not None and _is_below(here, mount) else []


def _preload_list() -> str:
    library = str(native_paths.preload_library())
    if any(separator in library for separator in " :"):
        raise StripewiseError(
            f"{library} has a space or a colon in its path, which LD_PRELOAD cannot hold; "
            "install stripewise elsewhere or use --no-preload"
        )
    others = os.environ.get("LD_PRELOAD", "")
    return f"{library}:{others}" if others else library


def _filters() -> dict[str, str]:
    """How many seccomp filters there are before the program: in a process that has more, the library makes no call."""
    for line in Path("/proc/self/status").read_text(errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name == "Seccomp_filters":
            return {"STRIPEWISE_FILTERS": value.strip()}
    return {}


@contextmanager
def _sink(path: Path | None) -> Iterator[int | None]:
    if path is None:
        yield None
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class _Signals:
    """Lets the program decide about Ctrl-C (it gets it from the terminal) and hands SIGTERM and SIGHUP on to it."""

    def __init__(self) -> None:
        self.child: subprocess.Popen[bytes] | None = None
        self.interrupted = False

    def __enter__(self) -> "_Signals":
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        self._before = {number: signal.signal(number, self._take) for number in numbers}
        return self

    def _take(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            self.interrupted = True
        elif self.child is not None and self.child.poll() is None:
            self.child.send_signal(number)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _children_read_bytes() -> int:
    # ru_inblock counts blocks of 512 bytes, whatever the file system's block size.
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock * 512
