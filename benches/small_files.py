"""Files of 4 KiB in a directory with the hint `small`, in one without it, and on other FUSE file systems."""

import shutil
import statistics
import subprocess
from collections.abc import Iterator
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
from benches.fuse_mounts import example, most_descriptors, mounted, passthrough_ll, pool_mounted

#: The kernel checks permissions, as for any mount of several users: one request more for each name that comes or goes.
CHECKED = "passthrough_ll with default_permissions"
#: A mount of its user alone, where the kernel checks nothing.
UNCHECKED = "passthrough_ll"
FILES = 2_000
"""Of each process."""
STEPS = ("write", "read", "lstat", "stat", "list", "unlink")
"""`stat` asks for the time of birth, too."""
HINTED, PLAIN = "hinted", "plain"
OWN = {HINTED: "small=64K", PLAIN: "without the hint"}


def run(context: Context, processes: int, repetitions: int) -> Iterator[Figure | str]:
    """Steps in turn, in another order each round."""
    files = 500 if context.quick else FILES
    # Now, as it may have to be built, which is no part of what is timed.
    example("metadata_cost")
    with ExitStack() as mounts:
        sides = {}
        # Each side has a mount of its own, as the others have: what the kernel knows of a mount is bounded.
        for number, kind in enumerate(OWN):
            pool = request_cost.plain_pool(context.directory / f"pool{number}", 2)
            mounts.enter_context(pool_mounted(pool.file, pool.mount))
            sides[kind] = pool.mount / "files"
            sides[kind].mkdir()
        checked([*STRIPEWISE, "hint", sides[HINTED], "small=64K"])
        for name, command, point in _others(context):
            mounts.enter_context(mounted(command, point, most_descriptors()))
            sides[name] = point / f"files of {name}"
            sides[name].mkdir()
        own = {side: [sides[side] / f"process{number}" for number in range(processes)] for side in sides}
        for directory in (directory for directories in own.values() for directory in directories):
            directory.mkdir()
        rounds = [_round(number, own, files) for number in range(context.rounds(repetitions))]
    by = "" if processes == 1 else f" by {processes} processes at once"
    for step in STEPS:
        for other in (name for name in sides if name != HINTED):
            ratios = [of_step[step][other] / of_step[step][HINTED] for of_step in rounds]
            ours, theirs = (statistics.median(of_step[step][side] for of_step in rounds) for side in (HINTED, other))
            note = f"{ours / 1000:.1f} us against {theirs / 1000:.1f} us a file"
            name = f"4 KiB files{by}: {step}, {OWN[HINTED]} / {OWN.get(other, other)}"
            yield of_repetitions(name, ratios, target=Target(least=1.0), note=note)


def _others(context: Context) -> Iterator[tuple[str, list[object], Path]]:
    """Those that are installed, over one directory or two of the same disk: name, command, mount point."""
    base = context.directory
    sources = [base / f"source{number}" for number in range(2)]
    for source in sources:
        source.mkdir()
    try:
        program, of = passthrough_ll(base), f"source={sources[0]}"
        plain, checking = base / "passthrough", base / "checking"
        yield UNCHECKED, [program, "-f", "-o", of, plain], plain
        yield CHECKED, [program, "-f", "-o", f"{of},default_permissions", checking], checking
    except MissingError as missing:
        context.say(f"without passthrough_ll: {missing}")
    if mergerfs := shutil.which("mergerfs"):
        branches = ":".join(map(str, sources))
        yield "mergerfs", [mergerfs, "-f", branches, base / "mergerfs"], base / "mergerfs"


def _round(number: int, sides: dict[str, list[Path]], files: int) -> dict[str, dict[str, float]]:
    """Nanoseconds a file, by step and side."""
    names = list(sides)
    order = names[number % len(names) :] + names[: number % len(names)]
    return {step: {name: _all(step, sides[name], files) for name in order} for step in STEPS}


def _all(step: str, directories: list[Path], files: int) -> float:
    """One process for each directory, all at once: nanoseconds of a file by their own clocks, in the mean."""
    running = [
        subprocess.Popen([example("metadata_cost"), step, each, str(files)], stdout=subprocess.PIPE, text=True)
        for each in directories
    ]
    said = [process.communicate()[0] for process in running]
    if any(process.returncode != 0 for process in running):
        raise BenchmarkError(f"metadata_cost {step} failed; its error stands above")
    return statistics.mean(map(float, said))


BENCHMARKS = (
    Benchmark(
        "small-files",
        "files of 4 KiB in their inodes against datafiles and other FUSE file systems",
        lambda context: run(context, 1, 9),
    ),
    Benchmark(
        "small-files-4",
        "the same by four processes at once",
        lambda context: run(context, 4, 9),
    ),
)
