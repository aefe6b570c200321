"""Disks that neither the model nor the emulated servers know: calibrated and optimised as a person would do it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from benches import fuse_mounts
from benches.frame import STRIPEWISE, Benchmark, BenchmarkError, Context, Figure, MissingError, Target, checked
from stripewise import native_paths
from stripewise.api import pools

DISKS, FLASH = 4, 2
SECONDS = 16
MOST_ERROR = 15.0
"""Of the predicted gain in percent of the measured one, in the median over the programs."""
LEAST_GAIN = 0.95

PROGRAMS: dict[str, tuple[str, ...]] = {
    f"{pattern}, p = {processes}, {request}": (
        "ior", "-p", str(processes), "-r", request, "-s", size, "--pattern", pattern,
    )
    for pattern in ("sequential", "strided", "random")
    for processes, request, size in (
        (1, "1MiB", "96MiB"), (2, "256KiB", "96MiB"), (4, "64KiB", "24MiB"), (8, "256KiB", "64MiB"),
        (8, "64KiB", "32MiB"),
    )
} | {
    "file per process, p = 4": ("ior", "-p", "4", "-r", "256KiB", "-s", "16MiB", "--file-per-process"),
    "a hot eighth": ("ior", "-p", "8", "--region", "0:14MiB:128KiB:0.5", "--region", "14MiB:2MiB:64KiB:4"),
    "small and large": ("ior", "-p", "4", "--region", "0:4MiB:16KiB:1", "--region", "4MiB:32MiB:1MiB:1"),
    "lanl-app1": ("lanl-app1", "-p", "8", "--loops", "8"),
    "song": ("song", "-p", "8", "--loop", "24x1KiB,64KiB", "--loops", "2"),
}  # fmt: skip


@contextlib.contextmanager
def mounted(base: Path) -> Iterator[tuple[list[Path], list[Path]]]:
    """The directories of slow and of fast disks of a file system of the benchmark's own."""
    if os.geteuid() != 0:
        raise MissingError("only root can mount the benchmark's disks: run it as root")
    program = fuse_mounts.example("slow_disk")
    servers: list[subprocess.Popen[bytes]] = []
    places: dict[str, list[Path]] = {"disk": [], "flash": []}
    try:
        for kind, count in (("disk", DISKS), ("flash", FLASH)):
            for number in range(count):
                below, mount = base / "below" / f"{kind}{number}", base / f"{kind}{number}"
                below.mkdir(parents=True)
                mount.mkdir()
                command = [str(program), kind, str(below), str(mount)]
                servers.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
                said = servers[-1].stdout
                if said is None or said.readline() != b"mounted\n":
                    raise BenchmarkError(f"{mount} could not be mounted")
                places[kind].append(mount)
        yield places["disk"], places["flash"]
    finally:
        for server in servers:
            if server.stdin is not None:
                server.stdin.close()
            server.wait()


def optimised(pool: Path, file: Path, directory: Path, program: Sequence[str]) -> dict[str, object]:
    """The report of `stripewise optimize` of a program on new files."""
    name, *options = program
    command = [native_paths.bench_program(), name, file, *options]
    cycle = ["optimize", "--pool", pool, "--directory", directory, "--prepare", f"rm -f {file}*", "--json"]
    # 3: the layout was taken back.
    report: dict[str, object] = json.loads(checked([*STRIPEWISE, *cycle, "--", *command], accept=(0, 3)))
    return report


def run(context: Context) -> Iterator[Figure | str]:
    """A figure a program, the median error of the predicted gains, and the least gain of a proposed layout."""
    with mounted(context.directory) as (disks, flash):
        base = context.directory / "pools"
        base.mkdir()
        pool, mount = base / "foreign.toml", base / "foreign"
        tiers = pools.real_tiers({"hdd": disks, "ssd": flash}, "foreign")
        # Names stay on a disk of this machine: the file system of the benchmark knows only what servers need.
        pools.make(pool, "foreign", tiers, mount=mount, namespace=base / "names")
        context.say(f"calibrating for {SECONDS} s")
        checked([*STRIPEWISE, "pool", "calibrate", pool, "--seconds", str(SECONDS)], cwd=base)
        # The metadata tier is in memory here: plans are to use the disks.
        profiles, _, _ = pool.read_text(encoding="utf-8").partition("[meta.")
        pool.write_text(profiles, encoding="utf-8")
        yield profiles
        errors, gains = [], []
        chosen = list(PROGRAMS.items())[:: 3 if context.quick else 1]
        for number, (name, program) in enumerate(chosen):
            context.say(f"program {number + 1} of {len(chosen)}: {name}")
            directory = base / f"cycle-{number}"
            # Files of its own, without the rules that another program has left.
            report = optimised(pool, mount / f"program-{number}.dat", directory, program)
            gain, predicted = report["gain"], report["predicted_gain"]
            if not isinstance(gain, dict) or not isinstance(predicted, dict):
                yield f"{name}: {report['why']}"
                continue
            ratio, promised = float(gain["ratio"]), float(predicted["both"])
            errors.append(100 * abs(promised / ratio - 1))
            gains.append(ratio)
            kept = "kept" if report["kept"] else f"taken back: {report['why']}"
            note = f"predicted {promised:.2f}; {kept}"
            yield Figure(f"{name}: gain", ratio, "x", float(gain["low"]), float(gain["high"]), note=note)
            shutil.rmtree(directory)
        if not errors:
            raise BenchmarkError("no program has a figure")
        most, least = Target(most=MOST_ERROR), Target(least=LEAST_GAIN)
        yield Figure(
            f"predicted gain, error of {len(errors)} programs, median", statistics.median(errors), "%", target=most
        )
        yield Figure("gain, least", min(gains), "x", target=least)


BENCHMARK = Benchmark("foreign-disks", "disks of a file system of the benchmark's own, calibrated and optimised", run)
