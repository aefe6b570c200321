"""Large numbers of everything: files, names in a directory, regions of a file, servers, bytes of a sparse file."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benches import request_cost
from benches.frame import STRIPEWISE, Benchmark, BenchmarkError, Context, Figure, Target, checked
from benches.fuse_mounts import example, most_descriptors, pool_mounted

FILES_OF_A_DIRECTORY = 100_000
DIRECTORIES = 10
DESCRIPTORS = (1024, 65_536)
SERVERS = 64
REGIONS = 1000
TERABYTE = 1 << 40
SAMPLE_S = 0.02


@dataclass
class Peak:
    """The most that a process had while it was watched."""

    descriptors: int = 0
    memory_bytes: int = 0


@contextmanager
def _watched(process: int) -> Iterator[Peak]:
    peak, over = Peak(), threading.Event()

    def watch() -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        while not over.wait(SAMPLE_S):
            peak.descriptors = max(peak.descriptors, len(list(Path(f"/proc/{process}/fd").iterdir())))
            resident = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
            peak.memory_bytes = max(peak.memory_bytes, resident * page)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


def run(context: Context) -> Iterator[Figure | str]:
    """Each as a person would come upon it; times are of this machine, bounds are of memory and descriptors."""
    directories = 1 if context.quick else DIRECTORIES
    each = FILES_OF_A_DIRECTORY // 10 if context.quick else FILES_OF_A_DIRECTORY
    pool = request_cost.plain_pool(context.directory, 2)
    count = directories * each
    with pool_mounted(pool.file, pool.mount) as process, _watched(process) as peak:
        costs = []
        for number in range(directories):
            context.say(f"making files: directory {number + 1} of {directories}")
            directory = pool.mount / f"d{number}"
            directory.mkdir()
            costs.append(float(checked([example("metadata_cost"), "create", directory, each])))
        yield Figure(f"{count:,} files: make one", sum(costs) / len(costs) / 1000, "us")
        yield from _peak(f"{count:,} files made", peak)
        listed = float(checked([example("metadata_cost"), "list", pool.mount / "d0", each]))
        yield Figure(f"a directory of {each:,} names: list a name", listed / 1000, "us")
    for limit in (*(limit for limit in DESCRIPTORS if limit <= most_descriptors()), None):
        with pool_mounted(pool.file, pool.mount, descriptors=limit) as process, _watched(process) as peak:
            what = f"walk over {count:,} files, {f'{limit:,} descriptors' if limit else 'any number of descriptors'}"
            context.say(what)
            began = time.monotonic()
            output = checked(["du", "--inodes", "--summarize", pool.mount])
            found = int(output.split()[0])
            if found != count + directories + 1:
                raise BenchmarkError(f"{what}: du found {found:,} inodes")
            yield Figure(f"{what}: a file", (time.monotonic() - began) / count * 1e6, "us")
            yield from _peak(what, peak, limit)
    yield from _one_file(context)


def _peak(what: str, peak: Peak, limit: int | None = None) -> Iterator[Figure]:
    yield Figure(f"{what}: memory", peak.memory_bytes / (1 << 20), "MiB", target=Target(most=512))
    target = Target(most=limit) if limit else None
    yield Figure(f"{what}: descriptors", peak.descriptors, "", target=target)


def _one_file(context: Context) -> Iterator[Figure]:
    """A file over many servers, of many regions, and a long sparse one."""
    pool = request_cost.plain_pool(context.directory, SERVERS)
    with pool_mounted(pool.file, pool.mount) as process, _watched(process) as peak:
        mib = 64 if context.quick else 512
        file = pool.mount / "regions"
        content = os.urandom(1 << 20) * mib
        context.say(f"a file of {REGIONS} regions over {SERVERS} servers")
        yield _timed(f"write {mib} MiB over {SERVERS} servers", lambda: file.write_bytes(content))
        layout = context.directory / "many.layout"
        region_bytes = len(content) // REGIONS // 4096 * 4096
        lines = ["version = 1", f'pool = "{pool.name}"', "[[file]]", f'path = "{file.name}"']
        for number in range(REGIONS):
            servers = f'"ssd.{number % SERVERS}:{4 + number % 60}KiB", "ssd.{(number + 7) % SERVERS}:4KiB"'
            lines.append(f'[[file.region]]\noffset = "{number * region_bytes}"\nround = [{servers}]')
        layout.write_text("\n".join(lines) + "\n", encoding="utf-8")
        command = [*STRIPEWISE, "apply", layout, "--pool", pool.file]
        yield _timed(f"apply {REGIONS} regions to them", lambda: checked(command))
        yield _timed(f"stripewise stat of {REGIONS} regions", lambda: checked([*STRIPEWISE, "stat", file]))
        if file.read_bytes() != content:
            raise BenchmarkError("a file of many regions has other bytes than were written")
        yield _timed(f"read {mib} MiB of {REGIONS} regions", file.read_bytes)
        sparse = pool.mount / "sparse"
        context.say("a sparse file of 1 TiB")
        yield _timed("write the last byte of 1 TiB", lambda: _last_byte(sparse))
        yield _timed("remove it", sparse.unlink)
    yield from _peak(f"{SERVERS} servers", peak)


def _last_byte(file: Path) -> None:
    with file.open("wb") as output:
        output.seek(TERABYTE - 1)
        output.write(b"x")


def _timed(what: str, do: Callable[[], object]) -> Figure:
    began = time.monotonic()
    do()
    return Figure(what, time.monotonic() - began, "s")


BENCHMARK = Benchmark("sizes", "a million files, 64 servers, 1,000 regions, 1 TiB: time, memory, descriptors", run)
