"""Names: files made, looked at, listed and removed through the mount, against libfuse's passthrough file system."""

import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from benches import request_cost
from benches.frame import Benchmark, Context, Figure, Target, checked, of_repetitions
from benches.fuse_mounts import example, most_descriptors, mounted, passthrough_ll, pool_mounted

MANY, FEW = 100_000, 2_000
STEPS = ("create", "stat", "list", "unlink")
FORGOTTEN_S = 10.5
"""After this long no kernel believes what it was told of a name (ours believes for 10 s, the other for one)."""
SPARE_DESCRIPTORS = 1_000
"""Of its limit of open files that passthrough_ll needs for something else than files."""


def run(context: Context) -> Iterator[Figure | str]:
    """Steps in turn. Both sides keep a descriptor per file that the kernel knows.

    passthrough_ll finds a file that it knows by going through all of them: many files cost it more each than few. Where
    the limit of open files does not let it have as many as ours, it is measured with as many as it can have.
    """
    descriptors = most_descriptors()
    theirs, source = context.directory / "theirs", context.directory / "source"
    source.mkdir()
    pool = request_cost.plain_pool(context.directory, 2)
    with ExitStack() as mounts:
        mounts.enter_context(pool_mounted(pool.file, pool.mount))
        command = [passthrough_ll(context.directory), "-f", "-o", f"source={source}", theirs]
        mounts.enter_context(mounted(command, theirs, descriptors))
        many = 10_000 if context.quick else MANY
        for files, rounds in ((FEW, context.rounds(9)), (many, context.rounds(3))):
            context.say(f"{files} files")
            of_theirs = min(files, descriptors - SPARE_DESCRIPTORS)
            sides = ((pool.mount, files), (theirs, of_theirs))
            costs = [_round(number, sides) for number in range(rounds)]
            beside = "" if of_theirs == files else f" with {of_theirs:,}"
            for step in STEPS:
                ratios = [of_step[step][1] / of_step[step][0] for of_step in costs]
                ours, other = (statistics.median(of_step[step][side] for of_step in costs) for side in (0, 1))
                note = f"{ours / 1000:.1f} us against {other / 1000:.1f} us a file"
                target = Target(least=1.0) if files == many else None
                yield of_repetitions(
                    f"{files:,} files: {step} / passthrough_ll{beside}", ratios, target=target, note=note
                )
        context.say("stat of closed striped and plain files")
        yield _closed(context, pool.mount, pool.namespace / "tree")


def _round(number: int, sides: Sequence[tuple[Path, int]]) -> dict[str, tuple[float, ...]]:
    """All steps on the mounts with that many files, the first one changing: nanoseconds a file, as in `sides`."""
    order = list(range(len(sides)))[:: 1 if number % 2 == 0 else -1]
    for point, _ in sides:
        (point / "files").mkdir()
    costs = {}
    for step in STEPS:
        if step == "stat":
            time.sleep(FORGOTTEN_S)
        found = {index: _step(step, sides[index][0] / "files", sides[index][1]) for index in order}
        costs[step] = tuple(found[index] for index in range(len(sides)))
    for point, _ in sides:
        (point / "files").rmdir()
    return costs


def _step(step: str, directory: Path, files: int) -> float:
    return float(checked([example("metadata_cost"), step, directory, files]))


def _closed(context: Context, mount: Path, tree: Path) -> Figure:
    """`stat` of files without a writer: placed on two servers, and plain ones in the namespace."""
    files = FEW if context.quick else 10_000
    (mount / "striped").mkdir()
    (tree / "plain").mkdir()
    _step("create", mount / "striped", files)
    for file in (mount / "striped").iterdir():
        file.write_bytes(bytes(1 << 18 if file.name.endswith("00") else 1))
    _step("create", tree / "plain", files)
    ratios = []
    for number in range(context.rounds(9)):
        time.sleep(FORGOTTEN_S)
        order = ("striped", "plain")[:: 1 if number % 2 == 0 else -1]
        cost = {kind: _step("stat", mount / kind, files) for kind in order}
        ratios.append(cost["plain"] / cost["striped"])
    for kind in ("striped", "plain"):
        shutil.rmtree(mount / kind)
    return of_repetitions("stat of a closed file: striped / plain", ratios, target=Target(least=0.9))


BENCHMARK = Benchmark("mount-names", "names through the mount against libfuse's passthrough_ll, in memory", run)
