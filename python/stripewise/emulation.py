"""What a pool's emulated servers did during a run, and whether they kept their times."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stripewise import _native
from stripewise.pool import Pool
from stripewise.units import about_bytes, seconds


@dataclass(frozen=True)
class Statistics:
    """What emulated servers did between two moments."""

    servers: list[_native.ServerStatistics]
    verdict: _native.EmulationVerdict | None
    """`None` where the pool has no emulated server."""

    @property
    def is_valid(self) -> bool:
        """Whether figures of the run may be given: the median emulation error is at most 10 %."""
        return self.verdict is None or self.verdict["valid"]

    def report(self) -> str:
        """The verdict, and one line a server: requests, bytes, busy and waiting time."""
        if self.verdict is None:
            return "no emulated servers"
        lines = [self.verdict["text"]]
        for server in self.servers:
            done = [server["read"], server["write"]]
            requests = sum(op["requests"] for op in done)
            if requests:
                lines.append(
                    f"  {server['name']:<8} emulated  {requests:>7} requests  "
                    f"{about_bytes(sum(op['bytes'] for op in done)):>9}  "
                    f"busy {seconds(sum(op['busy_s'] for op in done)):>8}  "
                    f"waiting {seconds(sum(op['waiting_s'] for op in done)):>8}"
                )
        return "\n".join(lines)


@dataclass(frozen=True)
class Snapshot:
    """The counters of a pool's emulated servers at one moment."""

    pool_file: Path
    native: _native.EmulationSnapshot | None


def snapshot(pool: Pool) -> Snapshot:
    """The counters now; empty where no server of the pool is emulated."""
    return Snapshot(pool.file, _native.emulation_snapshot(str(pool.file)) if pool.is_emulated else None)


def since(earlier: Snapshot) -> Statistics:
    """What the servers did since `earlier`."""
    if earlier.native is None:
        return Statistics([], None)
    raw = _native.emulation_snapshot(str(earlier.pool_file)).since(earlier.native)
    return Statistics(raw["servers"], raw["verdict"])
