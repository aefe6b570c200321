"""The mount by io_uring and by the device, each against libfuse's passthrough file system by the same way."""

import os
import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benches import request_cost
from benches.frame import Benchmark, BenchmarkError, Context, Figure, MissingError, Target, checked, of_repetitions
from benches.fuse_mounts import example, most_descriptors, mounted, passthrough_ll
from stripewise import native_paths

SWITCH = Path("/sys/module/fuse/parameters/enable_uring")
LIBFUSE = "STRIPEWISE_LIBFUSE"
HOW = (
    "build it (`meson setup build --buildtype=release && ninja -C build` in its source; liburing-dev and libnuma-dev) "
    f"and say where that is: {LIBFUSE}=SOURCE/build"
)
RING, DEVICE = "io_uring", "device"
MERGERFS = "mergerfs"
ALONE = {RING: "0", DEVICE: "1"}
"""Of `STRIPEWISE_FUSE_DEVICE`: the mount fails where it cannot have that way."""

SIZES = ((4, "4 KiB"), (64, "64 KiB"), (512, "512 KiB"))
LEAST = {1: 1.0, 2: 0.95, 8: 0.85}
"""Of `passthrough_ll` by io_uring, by servers; of 512 KiB from several the next."""
LEAST_OF_LARGE = 1.2
LEAST_OF_DEVICE = 1.5
"""By io_uring against the device."""

MANY, FEW = 100_000, 2_000
AGAIN = "stat again"
STEPS = ("create", "stat", AGAIN, "list", "rename", "unlink")
FORGOTTEN_S = 10.5
"""After this long no kernel believes what it was told of a name."""
SOON_S = 1.2
"""After this long a mount that is alone is still believed."""
THREADS, CALLS = 64, 500
"""With fewer calls a single turn of another program, for which a processor's requests wait, decides the percentile."""
MOST_OF_MEDIAN = 3.0
IDLE_S = 10.0


def run(context: Context) -> Iterator[Figure | str]:
    """Blocks of requests in turn; no page cache, and no file that the kernel serves itself."""
    if not SWITCH.exists() or SWITCH.read_text(encoding="ascii").strip() != "Y":
        raise MissingError(
            f"the kernel offers no FUSE over io_uring; Linux 6.14 does after `echo Y > {SWITCH}` as root"
        )
    theirs = _libfuse(context)
    yield from _data(context, theirs)
    yield from _names(context, theirs, FEW, 9)
    yield from _names(context, theirs, 5_000 if context.quick else MANY, 1)
    yield from _threads(context, theirs)
    yield from _idle(context)


def _libfuse(context: Context) -> Path:
    """passthrough_ll of a libfuse that knows io_uring: of a build of it, or of the one that is installed."""
    if build := os.environ.get(LIBFUSE):
        program = Path(build) / "example" / "passthrough_ll"
        if not program.is_file():
            raise MissingError(f"{LIBFUSE}={build} has no example/passthrough_ll; {HOW}")
        return program
    try:
        checked(["pkg-config", "--atleast-version=3.18", "fuse3"])
    except BenchmarkError as error:
        raise MissingError(f"it needs passthrough_ll of libfuse 3.18 or later: {HOW}") from error
    return passthrough_ll(context.directory)


class Sides:
    """Mounts beside each other, by name, all until the end."""

    def __init__(self, context: Context, mounts: ExitStack, theirs: Path, place: str) -> None:
        """In a directory of their own; `theirs` is passthrough_ll."""
        self.points: dict[str, Path] = {}
        self.processes: dict[str, int] = {}
        self._mounts, self._theirs = mounts, theirs
        self._directory = context.directory / place
        self._directory.mkdir()

    def ours(self, name: str, way: str, servers: int) -> None:
        """Our mount of a new pool."""
        base = self._directory / name.replace(" ", "-")
        base.mkdir()
        pool = request_cost.plain_pool(base, servers)
        program = native_paths.mount_program()
        command = [
            "env",
            f"STRIPEWISE_FUSE_DEVICE={ALONE[way]}",
            program,
            "-f",
            "-o",
            "nopassthrough",
            pool.file,
            pool.mount,
        ]
        self.processes[name] = self._mounts.enter_context(mounted(command, pool.mount))
        self.points[name] = pool.mount

    def other(self, name: str, way: str, options: str) -> None:
        """passthrough_ll of a new directory."""
        source, point = (self._directory / f"{name.replace(' ', '-')}-{kind}" for kind in ("source", "mount"))
        source.mkdir()
        by_ring = ",io_uring" if way == RING else ""
        command = [self._theirs, "-f", "-o", f"source={source},{options}{by_ring}", point]
        self.processes[name] = self._mounts.enter_context(mounted(command, point, most_descriptors()))
        self.points[name] = point

    def mergerfs(self) -> bool:
        """One of mergerfs, of two new directories, by the device, as it has no other way; whether it is installed."""
        program = shutil.which("mergerfs")
        if program is None:
            return False
        first, second, point = (self._directory / f"mergerfs-{kind}" for kind in ("first", "second", "mount"))
        first.mkdir()
        second.mkdir()
        command = [program, "-f", "-o", "cache.files=off", f"{first}:{second}", point]
        self.processes[MERGERFS] = self._mounts.enter_context(mounted(command, point, most_descriptors()))
        self.points[MERGERFS] = point
        return True


def _data(context: Context, theirs: Path) -> Iterator[Figure]:
    """Reads and writes of one program, by servers."""
    with ExitStack() as mounts:
        sides = Sides(context, mounts, theirs, "data")
        for servers in LEAST:
            sides.ours(_servers(servers), RING, servers)
        sides.ours("by the device", DEVICE, 1)
        sides.other("theirs", RING, "cache=never")
        sides.other("theirs by the device", DEVICE, "cache=never")
        beside_mergerfs = sides.mergerfs()
        names = list(sides.points)
        files = [sides.points[name] / "data" for name in names]
        for direction in ("read", "write"):
            for kib, size in SIZES:
                context.say(f"{direction} of {size}")
                job = [example("data_cost"), direction, "sequential", kib << 10, context.rounds(7)]
                output = checked([*job, *files])
                rounds = [dict(zip(names, map(float, line.split()), strict=True)) for line in output.splitlines()]
                what = f"{direction} of {size}"
                for servers, least in LEAST.items():
                    target = LEAST_OF_LARGE if kib == 512 and servers > 1 else least
                    yield _against(rounds, _servers(servers), "theirs", f"{what}, {_servers(servers)}", target)
                yield _against(rounds, _servers(1), "by the device", f"{what}, io_uring / device", LEAST_OF_DEVICE)
                yield _against(rounds, "by the device", "theirs by the device", f"{what}, both by the device", None)
                if beside_mergerfs:
                    yield _against(rounds, _servers(1), MERGERFS, f"{what}, 1 server, mergerfs", None)


def _servers(number: int) -> str:
    return "1 server" if number == 1 else f"{number} servers"


def _names(context: Context, theirs: Path, files: int, rounds: int) -> Iterator[Figure]:
    """Names of one directory. Many cost passthrough_ll more each than few: it goes through all that it knows."""
    context.say(f"{files:,} names")
    few = files == FEW
    with ExitStack() as mounts:
        sides = Sides(context, mounts, theirs, f"names-{files}")
        sides.ours("ours", RING, 2)
        sides.other("theirs", RING, "cache=auto,default_permissions")
        if few:
            sides.ours("by the device", DEVICE, 2)
            sides.other("theirs by the device", DEVICE, "cache=auto,default_permissions")
            sides.other("theirs without default_permissions", RING, "cache=auto")
        beside_mergerfs = sides.mergerfs()
        costs = [_round(number, sides.points, files) for number in range(context.rounds(rounds))]
        for step in STEPS:
            of_step, what = [cost[step] for cost in costs], f"{files:,} names: {step}"
            yield _against(of_step, "ours", "theirs", f"{what}, default_permissions", 1.0)
            if beside_mergerfs:
                yield _against(of_step, "ours", MERGERFS, f"{what}, mergerfs", None)
            if few:
                yield _against(of_step, "ours", "theirs without default_permissions", f"{what}, without", None)
                yield _against(of_step, "ours", "by the device", f"{what}, io_uring / device", LEAST_OF_DEVICE)
                yield _against(of_step, "by the device", "theirs by the device", f"{what}, both by the device", None)


def _round(number: int, points: dict[str, Path], files: int) -> dict[str, dict[str, float]]:
    """All steps on all mounts, in another order each round: nanoseconds a name."""
    names = list(points)
    order = names[number % len(names) :] + names[: number % len(names)]
    for point in points.values():
        (point / "files").mkdir()
    costs = {}
    for step in STEPS:
        time.sleep({"stat": FORGOTTEN_S, AGAIN: SOON_S}.get(step, 0.0))
        program, does = example("metadata_cost"), step.removesuffix(" again")
        costs[step] = {name: float(checked([program, does, points[name] / "files", files])) for name in order}
    for point in points.values():
        (point / "files").rmdir()
    return costs


def _threads(context: Context, theirs: Path) -> Iterator[Figure]:
    """How evenly many threads are served."""
    context.say(f"{THREADS} threads")
    with ExitStack() as mounts:
        sides = Sides(context, mounts, theirs, "threads")
        sides.ours("ours", RING, 2)
        sides.other("theirs", RING, "cache=never")
        for name, target in (("ours", Target(most=MOST_OF_MEDIAN)), ("theirs", None)):
            ratios, medians = [], []
            for _ in range(context.rounds(5)):
                output = checked([example("many_threads"), sides.points[name] / "data", THREADS, CALLS])
                median, high = map(float, output.split())
                ratios.append(high / median)
                medians.append(median)
            note = f"median {statistics.median(medians) / 1000:.0f} us"
            what = f"{THREADS} threads read 4 KiB: 99th percentile / median, {name}"
            yield of_repetitions(what, ratios, target=target, note=note)


def _idle(context: Context) -> Iterator[Figure]:
    """Processor time of a mount that no program uses."""
    context.say("an idle mount")
    with ExitStack() as mounts:
        sides = Sides(context, mounts, Path(), "idle")
        sides.ours("ours", RING, 2)
        pause_s = 2.0 if context.quick else IDLE_S
        time.sleep(pause_s)
        before_ns = _processor_ns(sides.processes["ours"])
        time.sleep(pause_s)
        used_ms = (_processor_ns(sides.processes["ours"]) - before_ns) / 1e6
        yield Figure(f"an idle mount: processor time in {pause_s:.0f} s", used_ms, "ms", target=Target(most=1.0))


def _processor_ns(process: int) -> int:
    """What all threads of a process have taken (`/proc/PID/task/TID/schedstat`)."""
    tasks = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(task.read_text(encoding="ascii").split()[0]) for task in tasks)


def _against(rounds: list[dict[str, float]], ours: str, theirs: str, what: str, least: float | None) -> Figure:
    medians = {side: statistics.median(costs[side] for costs in rounds) / 1000 for side in (ours, theirs)}
    note = f"{medians[ours]:.1f} us against {medians[theirs]:.1f} us"
    ratios = [costs[theirs] / costs[ours] for costs in rounds]
    return of_repetitions(what, ratios, target=Target(least=least) if least is not None else None, note=note)


BENCHMARK = Benchmark(
    "mount-uring",
    "the mount by io_uring and by the device against passthrough_ll of libfuse by the same, in memory",
    run,
)
