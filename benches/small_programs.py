"""Trees of small files by `tar` and `git`: the hint `small` beside mergerfs."""

import io
import shutil
import statistics
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from benches import request_cost
from benches.frame import (
    STRIPEWISE,
    Benchmark,
    BenchmarkError,
    Context,
    Figure,
    MissingError,
    Target,
    checked,
    of_repetitions,
)
from benches.fuse_mounts import most_descriptors, mounted, pool_mounted

FILES = 20_000
OURS, THEIRS = "small=64K", "mergerfs"
MOST_MB = 256
"""What the mount may have of memory, whatever the number of files."""


def run(context: Context) -> Iterator[Figure | str]:
    """Each step on both in turn, another one first in each round."""
    program = shutil.which("mergerfs")
    if program is None:
        raise MissingError("mergerfs is not installed; on Debian: apt install mergerfs")
    files = FILES // 20 if context.quick else FILES
    base = context.directory
    archive = _archive(base / "tree.tar", files)
    origin = _repository(base / "origin", archive)
    pool = request_cost.plain_pool(base, 2)
    with ExitStack() as mounts:
        server = mounts.enter_context(pool_mounted(pool.file, pool.mount))
        sources = [base / f"source{number}" for number in range(2)]
        for source in sources:
            source.mkdir()
        point = base / "mergerfs"
        command: list[object] = [program, "-f", ":".join(map(str, sources)), point]
        mounts.enter_context(mounted(command, point, most_descriptors()))
        sides = {OURS: pool.mount / "ours", THEIRS: point / "theirs"}
        for directory in sides.values():
            directory.mkdir()
        checked([*STRIPEWISE, "hint", sides[OURS], OURS])
        rounds = []
        for number in range(context.rounds(5)):
            order = list(sides) if number % 2 == 0 else list(reversed(sides))
            context.say(f"round {number + 1}")
            rounds.append({side: _steps(sides[side], archive, origin, files) for side in order})
        context.say("memory")
        many = 5 * files
        peak_mb = [_peak_mb(server), _large_tree(sides[OURS], _archive(base / "many.tar", many), server)]
    for step in rounds[0][OURS]:
        ours, theirs = (statistics.median(of[side][step] for of in rounds) for side in (OURS, THEIRS))
        ratios = [of[THEIRS][step] / of[OURS][step] for of in rounds]
        note = f"{ours:.2f} s against {theirs:.2f} s"
        yield of_repetitions(f"{step}: {OURS} / {THEIRS}", ratios, target=Target(least=1.0), note=note)
    what = f"peak memory of the mount, a tree of {many:,} files made, listed, read, packed, removed"
    yield Figure(what, peak_mb[1], "MB", target=Target(most=MOST_MB), note=f"{peak_mb[0]:.0f} MB before it")


def _large_tree(directory: Path, archive: Path, server: int) -> float:
    """Makes the tree of `archive`, lists, reads, packs and removes it; the peak memory of `server` in MB."""
    checked(["tar", "xf", archive, "-C", directory])
    for work in ("find . -ls", "find . -type f -exec cat {} +", "tar cf - tree"):
        subprocess.run(work, shell=True, cwd=directory, stdout=subprocess.DEVNULL, check=True)
    shutil.rmtree(directory / "tree")
    return _peak_mb(server)


def _peak_mb(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    (peak,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(peak) * 1024 / 1e6


def _steps(directory: Path, archive: Path, origin: Path, files: int) -> dict[str, float]:
    """Seconds of each step in `directory`, which is empty before and after."""
    took_s = {f"tar x of {files:,} files": _timed(lambda: checked(["tar", "xf", archive, "-C", directory]))}
    # Nothing is compared wrongly: all bytes are what the archive has.
    checked(["tar", "df", archive, "-C", directory])
    shutil.rmtree(directory / "tree")
    clone = directory / "clone"

    def clone_and_look() -> None:
        checked(["git", "clone", "--quiet", "--no-hardlinks", origin, clone])
        if checked(["git", "-C", clone, "status", "--porcelain"]):
            raise BenchmarkError(f"git finds changes in {clone}")

    took_s["git clone and git status"] = _timed(clone_and_look)
    shutil.rmtree(clone)
    return took_s


def _timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def _archive(path: Path, files: int) -> Path:
    """An archive of a tree of small files, 100 in a directory, of 200 bytes to 8 KiB."""
    with tarfile.open(path, "w") as archive:
        for number in range(files):
            content = (f"line of {number}\n" * (1 + number * 7919 % 400)).encode()[: 200 + number * 7919 % 8000]
            entry = tarfile.TarInfo(f"tree/{number // 100:03}/{number:06}")
            entry.size, entry.mtime = len(content), 1_700_000_000
            archive.addfile(entry, io.BytesIO(content))
    return path


def _repository(directory: Path, archive: Path) -> Path:
    """A repository of the tree of `archive`, in one commit."""
    directory.mkdir()
    checked(["tar", "xf", archive, "-C", directory])
    who = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    checked(["git", "-C", directory, "init", "--quiet"])
    checked(["git", "-C", directory, "add", "."])
    checked(["git", "-C", directory, *who, "commit", "--quiet", "-m", "tree"])
    return directory


BENCHMARK = Benchmark("small-programs", "tar and git on trees of small files, beside mergerfs", run)
