"""Calls through the preload library and libc's own, in alternating blocks: crates/preload/examples/request_cost.rs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benches.frame import ROOT, STRIPEWISE, Context, checked
from stripewise.pool import Pool


@dataclass(frozen=True)
class Round:
    """One round: medians over its blocks."""

    ours_ns: float
    """Per call through the preload library."""
    plain_ns: float
    """Per call of libc's own function."""
    ratio: float
    """Of the first over the second, median of the pairs."""


@cache
def program() -> Path:
    """Builds the program in release."""
    checked(
        ["cargo", "build", "--quiet", "--release", "-p", "stripewise-preload", "--example", "request_cost"], cwd=ROOT
    )
    return ROOT / "target" / "release" / "examples" / "request_cost"


def plain_pool(directory: Path, servers: int = 1) -> Pool:
    """A pool of servers that are not emulated: what is measured is the way, not a device."""
    base = directory / f"pool-of-{servers}"
    disks: list[object] = []
    for number in range(servers):
        disk = base / f"disk{number}"
        disk.mkdir(parents=True)
        disks += ["--ssd", disk]
    file = base / "pool.toml"
    places = ["--mount", base / "mount", "--output", file]
    checked([*STRIPEWISE, "pool", "init", *disks, "--name", "bench", *places])
    return Pool.load(file)


def rounds(
    context: Context,
    command: Sequence[object],
    call: str,
    request_bytes: int,
    ours: Path,
    plain: Path,
    before: Sequence[object] = (),
) -> list[Round]:
    """Rounds of `call` (read, write, open) under `command`, which puts the preload library into the program."""
    arguments = [call, str(request_bytes), ours, plain, str(context.rounds(7))]
    output = checked([*before, *STRIPEWISE, *command, "--", program(), *arguments])
    return [Round(*map(float, line.split())) for line in output.splitlines()]
