"""Programs fill a small metadata tier until the data servers have most: what stays free, and what fails."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benches import filling_client
from benches.frame import ROOT, STRIPEWISE, Benchmark, BenchmarkError, Context, Figure, MissingError, Target, checked
from benches.fuse_mounts import pool_mounted
from stripewise import _native
from stripewise.api import activity, pools
from stripewise.pool import Pool

HINT = "small=64K"
TIER_BYTES = 128 << 20
OVER = 3
"""Times the tier's bytes are written."""
PROCESSES = (1, 4)
SAMPLE_S = 0.001
BEGUN_BYTES = 1 << 20
"""On the data servers, from which on the guard has begun to work."""


@dataclass
class Watched:
    """What was seen of the tier while it was filled."""

    times_s: list[float] = field(default_factory=list)
    free_bytes: list[int] = field(default_factory=list)
    on_servers_bytes: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Filled:
    """One run."""

    watched: Watched
    tier_bytes: int
    reserve_bytes: int
    failed: int
    wrong: int
    shares: list[float]
    """The threshold second by second, of what the directory hints."""


def run(context: Context) -> Iterator[Figure | str]:
    """Each shape by one process and by four at once, each time on a tier that is empty."""
    if os.geteuid() != 0:
        raise MissingError("it needs root, who can mount a file system of a limited size")
    for shape in filling_client.SHAPES:
        for processes in PROCESSES:
            context.say(f"{shape}, {processes} processes")
            base = context.directory / f"{shape} {processes}".replace(" ", "-")
            yield from figures(shape, processes, fill(base, shape, processes, is_quick=context.quick))


def fill(base: Path, shape: str, processes: int, *, is_quick: bool = False) -> Filled:
    """Fills a tier, and reads all back by another mount of the pool."""
    tier_bytes = TIER_BYTES // 4 if is_quick else TIER_BYTES
    files = OVER * tier_bytes // filling_client.FILE_BYTES[shape] // processes
    with _memory(base / "tier", tier_bytes) as tier, _memory(base / "servers", 4 * OVER * tier_bytes) as servers:
        disks = [servers / f"disk{number}" for number in range(2)]
        for disk in disks:
            disk.mkdir()
        reserve_bytes = _reserve_bytes(base, tier)
        tiers = pools.real_tiers({"ssd": disks}, "filling")
        pool = pools.make(base / "pool.toml", "filling", tiers, mount=base / "mount", namespace=tier / "names")
        with pool_mounted(pool.file, pool.mount):
            checked([*STRIPEWISE, "hint", pool.mount, HINT])
            with _watching(tier, servers) as watched:
                done = _clients("write", shape, pool, files, [""] * processes)
            shares = [period["share"] for period in activity.meta_load(pool)["periods"]]
        with pool_mounted(pool.file, pool.mount):
            lines = [json.dumps(of["shorter"]) for of in done]
            wrong = sum(of["wrong"] for of in _clients("read", shape, pool, files, lines))
        usable_bytes = _usable_bytes(tier)
    return Filled(watched, usable_bytes, reserve_bytes, sum(of["failed"] for of in done), wrong, shares)


@contextmanager
def _memory(directory: Path, size: int) -> Iterator[Path]:
    """A file system of that many bytes in memory."""
    directory.mkdir(parents=True)
    checked(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory])
    try:
        yield directory
    finally:
        checked(["umount", directory])


def _usable_bytes(directory: Path) -> int:
    found = os.statvfs(directory)
    return found.f_blocks * found.f_frsize


def _reserve_bytes(base: Path, tier: Path) -> int:
    """What pools leave free there, as they say of a server."""
    probe = tier / "probe"
    probe.mkdir()
    tiers = pools.real_tiers({"ssd": [probe]}, "probe")
    pool = pools.make(base / "probe.toml", "probe", tiers, mount=base / "probe", namespace=base / "probe-names")
    (room,) = _native.pool_tier_parts(str(pool.file), "ssd")["rooms"]
    shutil.rmtree(probe)
    return room["reserve_bytes"]


@contextmanager
def _watching(tier: Path, servers: Path) -> Iterator[Watched]:
    """Asks both for their room all the time."""
    watched, has_ended = Watched(), threading.Event()

    def look() -> None:
        found, theirs = os.statvfs(tier), os.statvfs(servers)
        watched.times_s.append(time.monotonic())
        watched.free_bytes.append(found.f_bavail * found.f_frsize)
        watched.on_servers_bytes.append((theirs.f_blocks - theirs.f_bfree) * theirs.f_frsize)

    def watch() -> None:
        while not has_ended.wait(SAMPLE_S):
            look()

    look()
    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield watched
    finally:
        has_ended.set()
        watching.join()
        look()


def _clients(step: str, shape: str, pool: Pool, files: int, lines: Sequence[str]) -> list[dict[str, Any]]:
    """Runs a client for each line, all from one moment on, and what they say."""
    command = [sys.executable, "-m", "benches.filling_client", step, shape]
    pipe = subprocess.PIPE
    clients = [
        subprocess.Popen(
            [*command, str(pool.mount / f"process{number}"), str(files), str(number)],
            cwd=ROOT, stdin=pipe, stdout=pipe, text=True,
        )
        for number in range(len(lines))
    ]  # fmt: skip
    try:
        for client in clients:
            assert client.stdout is not None
            if client.stdout.readline() != "ready\n":
                raise BenchmarkError("a client did not begin; its error stands above")
        for client, line in zip(clients, lines, strict=True):
            assert client.stdin is not None
            client.stdin.write(f"{line}\n")
            client.stdin.flush()
        said = [client.communicate()[0] for client in clients]
        if any(client.returncode != 0 for client in clients):
            raise BenchmarkError("a client failed; its error stands above")
        return [json.loads(of) for of in said]
    finally:
        for client in clients:
            client.kill()
            client.wait()


def figures(shape: str, processes: int, filled: Filled) -> Iterator[Figure]:
    """Those of a run. Raises `BenchmarkError` where a byte was wrong, or the data servers have got nothing."""
    if filled.wrong > 0:
        raise BenchmarkError(f"{shape}, {processes} processes: {filled.wrong} files are not as they were written")
    what = f"{shape}, {processes} {'process' if processes == 1 else 'processes'}"
    watched, reserve = filled.watched, filled.reserve_bytes / filled.tier_bytes
    inline = watched.free_bytes[0] - watched.free_bytes[-1]
    on_servers = watched.on_servers_bytes[-1] - watched.on_servers_bytes[0]
    yield Figure(
        f"{what}: least free share of the metadata tier",
        min(watched.free_bytes) / filled.tier_bytes,
        "",
        target=Target(least=reserve),
        note=f"{min(watched.free_bytes) >> 10:,} of {filled.reserve_bytes >> 10:,} KiB; {len(watched.times_s):,} looks",
    )
    yield Figure(f"{what}: writes without room", float(filled.failed), "", target=Target(most=0.0))
    on_servers_share = on_servers / (on_servers + inline)
    note = f"{inline / 1e6:.0f} MB inline, {on_servers / 1e6:.0f} MB on data servers"
    yield Figure(f"{what}: share of the bytes on data servers", on_servers_share, "", note=note)
    if filled.shares:
        note = f"first {filled.shares[0]:.3f}, least {min(filled.shares):.3f}, in {len(filled.shares)} seconds"
        yield Figure(f"{what}: threshold in the end, of what is hinted", filled.shares[-1], "", note=note)
    before, after = _speeds(watched)
    note = f"{before / 1e6:.1f} MB/s before, {after / 1e6:.1f} MB/s after"
    yield Figure(f"{what}: speed from the first {BEGUN_BYTES >> 20} MiB on data servers on / before", after / before,
                 note=note)  # fmt: skip


def _speeds(watched: Watched) -> tuple[float, float]:
    """Bytes a second before the guard has begun to work, and from then on."""
    first = watched.on_servers_bytes[0]
    begun = [at for at, of in enumerate(watched.on_servers_bytes) if of - first >= BEGUN_BYTES]
    if not begun:
        raise BenchmarkError("the data servers have got nothing: the tier was not filled")

    def speed(begin: int, end: int) -> float:
        taken = watched.free_bytes[begin] - watched.free_bytes[end]
        stored = watched.on_servers_bytes[end] - watched.on_servers_bytes[begin]
        return (taken + stored) / (watched.times_s[end] - watched.times_s[begin])

    return speed(0, begun[0]), speed(begun[0], len(watched.times_s) - 1)


BENCHMARK = Benchmark("filling", "a small metadata tier that programs fill: its reserve, errors, speed", run)
