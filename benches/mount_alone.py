"""The mount without the preload library against libfuse's own passthrough file system, and a bare file."""

import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benches import request_cost
from benches.frame import Benchmark, Context, Figure, Target, checked, of_repetitions
from benches.fuse_mounts import example, mounted, passthrough_ll, pool_mounted

SIZES = ((4, "4 KiB"), (64, "64 KiB"), (512, "512 KiB"))
LEAST_OF_BARE = {4: None, 64: Target(least=0.9), 512: Target(least=0.9)}
LEAST_OF_THEIRS = {4: 1.0, 64: 1.0, 512: 1.2}
LEAST_OF_EIGHT = 0.8
"""A file striped over eight directories may cost somewhat more than one that is not."""

OURS = (
    ("kernel passthrough", 1, ""),
    ("one server", 1, "nopassthrough"),
    ("two servers", 2, "nopassthrough"),
    ("eight servers", 8, "nopassthrough"),
)


def run(context: Context) -> Iterator[Figure]:
    """Short blocks of requests, alternating between the mounts; no page cache in any.

    A file on one server is the kernel's to read and write where it can do that; the others are the mount's own work.
    What the kernel passes through is compared with its datafile, and passthrough_ll has the datafile of the file on one
    server, so that both have the very same pages: where memory was allocated makes more of a difference than the way.
    """
    passthrough = passthrough_ll(context.directory)
    theirs = context.directory / "theirs"
    theirs.mkdir()
    with ExitStack() as mounts:
        files, datafiles = [], []
        for number, (_, servers, options) in enumerate(OURS):
            directory = context.directory / f"ours-{number}"
            directory.mkdir()
            pool = request_cost.plain_pool(directory, servers)
            mounts.enter_context(pool_mounted(pool.file, pool.mount, options))
            files.append(pool.mount / "data")
            files[-1].write_bytes(bytes(1))
            datafiles += [file for file in pool.servers[0].path.glob("??/*") if file.is_file()][:1]
        bare, alone = datafiles[:2]
        command = [passthrough, "-f", "-o", f"source={alone.parent},cache=never", theirs]
        mounts.enter_context(mounted(command, theirs))
        files += [bare, theirs / alone.name]
        for direction in ("read", "write"):
            for order in ("sequential", "random"):
                for kib, size in SIZES:
                    context.say(f"{order} {direction} of {size}")
                    yield from _figures(context, files, (direction, order), kib, size)


def _figures(context: Context, files: list[Path], job: tuple[str, str], kib: int, size: str) -> Iterator[Figure]:
    """One size in one pattern: a round of blocks on every file, the figures of each of our mounts."""
    direction, order = job
    output = checked([example("data_cost"), direction, order, kib << 10, context.rounds(9), *files])
    rounds = [[float(ns) for ns in line.split()] for line in output.splitlines()]
    medians = [statistics.median(column) for column in zip(*rounds, strict=True)]

    def against(ours: int, theirs: int, what: str, target: Target | None) -> Figure:
        note = f"{medians[ours] / 1000:.1f} us against {medians[theirs] / 1000:.1f} us"
        ratios = [costs[theirs] / costs[ours] for costs in rounds]
        return of_repetitions(f"{what}: {order} {direction} of {size}", ratios, target=target, note=note)

    bare, theirs = len(OURS), len(OURS) + 1
    yield against(0, bare, "kernel passthrough / bare file", LEAST_OF_BARE[kib])
    for ours in (1, 2, 3):
        least = LEAST_OF_THEIRS[kib] * (LEAST_OF_EIGHT if ours == 3 else 1)
        yield against(ours, theirs, f"{OURS[ours][0]} / passthrough_ll", Target(least=least))
    yield against(3, 1, "eight servers / one server", Target(least=LEAST_OF_EIGHT))


BENCHMARK = Benchmark(
    "mount-alone", "the mount without preload library against passthrough_ll and a bare file, in memory", run
)
