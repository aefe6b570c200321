"""Real processes on emulated pools: the measured side of an experiment."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stripewise import _native, emulation, launch, native_paths
from stripewise._native import StripewiseError
from stripewise.pool import Pool
from stripewise.reproduce import placement
from stripewise.reproduce.cluster import Devices
from stripewise.reproduce.workload import Op, Workload
from stripewise.units import about_bytes

MEMORY = Path("/dev/shm")
MEMORY_NEEDED = 4 << 30
"""Room for the files of the largest experiment twice over."""
TRIES = 3
"""Runs in a row that may be invalid before there is no figure."""


class InvalidRunError(StripewiseError):
    """The emulated devices could not keep their times."""


@dataclass(frozen=True)
class Run:
    """One run of a workload on one layout."""

    bytes_per_s: float
    """In the devices' own time, whatever the dilation."""
    verified_bytes: int
    error: float
    """Median emulation error: measured minus drawn service time, over drawn."""
    servers: list[_native.ServerStatistics]


def checked_text(runs: Sequence[Run]) -> str:
    """That the bytes were checked, and how exactly the emulated servers kept their times."""
    verified = about_bytes(sum(run.verified_bytes for run in runs))
    worst = 100 * max(run.error for run in runs)
    return (
        f"every byte of every run checked, {verified} in all; emulation error at most {worst:.1f} % (median of a run)"
    )


class EmulatedPool:
    """A pool of emulated servers, where each layout that is compared has a file of its own."""

    def __init__(self, directory: Path, devices: Devices, dilation: float = 1.0) -> None:
        """Makes the pool below `directory`, which must not exist; all times are multiplied by `dilation`."""
        self.devices = devices
        self.dilation = dilation
        self._directory = directory
        file = directory / "pool.toml"
        directory.mkdir(parents=True)
        tiers: list[_native.NewTier] = [
            {
                "name": tier.name,
                "servers": [str(directory / "servers" / f"{tier.name}.{n}") for n in range(tier.servers)],
                "capacity_bytes": None,
                "emulate": "hdd-7200",
                "dilation": None,
            }
            for tier in devices.tiers
        ]
        _native.pool_init(str(file), "reproduce", str(directory / "mount"), str(directory / "namespace"), tiers)
        text = file.read_text(encoding="utf-8")
        for tier in devices.tiers:
            text = text.replace('emulate = "hdd-7200"', f"emulate = {devices.emulation(tier, dilation)}", 1)
        file.write_text(text, encoding="utf-8")
        self.pool = Pool.load(file)

    def place(self, files: dict[str, _native.Regions]) -> None:
        """Files of these names will get these layouts."""
        layout = self._directory / "compared.layout"
        layout.write_text(placement.to_layout_file(self.pool.name, files, self.devices), encoding="utf-8")
        _native.layout_apply(
            str(layout), str(self.pool.file), rules=True, waits=False, gives_way=False, progress=lambda *_: True
        )

    def write_once(self, file: str, workload: Workload) -> None:
        """Fills a file for reads to come."""
        # Only writes that are checked have the bytes that reads can be checked against.
        self._program([*self._command(file, workload), "--write", "--verify"])

    def run(self, file: str, workload: Workload, op: Op, *, check: bool = True) -> Run:
        """Runs the workload's reads or writes, with every byte checked; an invalid run is repeated.

        Raises `InvalidRunError`, and `StripewiseError` where the workload failed or a byte was wrong.
        """
        # Reads are checked as they arrive, writes in a phase of their own that is not timed.
        verify = (["--verify", "inline"] if op == "read" else ["--verify"]) if check else []
        options = [f"--{op}", *verify]
        error = ""
        for _ in range(TRIES):
            before = emulation.snapshot(self.pool)
            report = self._program([*self._command(file, workload), *options, "--json"])
            statistics = emulation.since(before)
            verdict = statistics.verdict
            if verdict is None or verdict["median"] is None:
                raise StripewiseError(f"no request of {file} reached the emulated servers of {self.pool.file}")
            if verdict["valid"]:
                document = json.loads(report)
                (phase,) = document["phases"]
                return Run(
                    bytes_per_s=phase["bytes_per_second"] * self.dilation,
                    verified_bytes=document.get("verified_bytes") or 0,
                    error=verdict["median"],
                    servers=statistics.servers,
                )
            error = verdict["text"]
        raise InvalidRunError(f"no figure after {TRIES} runs: {error}")

    def remove(self, file: str) -> None:
        """Makes room; nothing where the file was never written."""
        script = 'rm -f -- "$0"'
        launch.run(["sh", "-c", script, str(self.pool.mount / file)], pool_file=self.pool.file, mount=self.pool.mount)

    def _command(self, file: str, workload: Workload) -> list[str]:
        name, *options = workload.arguments()
        return [str(native_paths.bench_program()), name, str(self.pool.mount / file), *options]

    def _program(self, command: Sequence[str]) -> str:
        output = self._directory / "output"
        ended = launch.run(command, pool_file=self.pool.file, mount=self.pool.mount, capture_stdout=output)
        if ended.interrupted:
            raise KeyboardInterrupt
        if ended.exit_code != 0:
            raise StripewiseError(f"exit code {ended.exit_code} of: {' '.join(command)}")
        return output.read_text(encoding="utf-8")


@contextmanager
def directory(parent: Path | None) -> Iterator[Path]:
    """An empty directory for pools; in memory where there is room, so that this machine's disk has no part in it."""
    if parent is None and MEMORY.is_dir() and os.access(MEMORY, os.W_OK):
        parent = MEMORY if shutil.disk_usage(MEMORY).free >= MEMORY_NEEDED else None
    with tempfile.TemporaryDirectory(prefix="stripewise-reproduce-", dir=parent) as made:
        yield Path(made)
