"""What the servers of a pool do: requests, bytes, busy and waiting time since some moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stripewise import _native, devices
from stripewise.pool import Pool


@dataclass(frozen=True)
class Done:
    """What a server has done; differences are what it did meanwhile."""

    requests: int
    read_bytes: int
    written_bytes: int
    busy_s: float
    waiting_s: float
    """Of all requests together, from the queue to the end."""

    def since(self, earlier: Done) -> Done:
        """The difference; nothing where a counter began anew, as of a device that was taken out and put back."""
        if self.requests < earlier.requests:
            return Done(0, 0, 0, 0.0, 0.0)
        return Done(
            self.requests - earlier.requests,
            self.read_bytes - earlier.read_bytes,
            self.written_bytes - earlier.written_bytes,
            self.busy_s - earlier.busy_s,
            self.waiting_s - earlier.waiting_s,
        )


@dataclass(frozen=True)
class Source:
    """Where the figures of a server are from."""

    server: str
    name: str
    """`emulated`, or the device's; `-` where there is none."""
    device: devices.Device | None
    unknown: str | None
    """Why nothing is known of the server."""


def sources(pool: Pool) -> list[Source]:
    """Where the figures of each server are from: an emulated one counts for itself, else the kernel for its device."""
    found = []
    for tier in (*pool.tiers, pool.meta):
        for server in tier.servers:
            if tier.emulated:
                found.append(Source(server.name, "emulated", None, None))
                continue
            device = devices.of(server.path)
            if isinstance(device, str):
                found.append(Source(server.name, "-", None, device))
            elif device.counters() is None:
                found.append(Source(server.name, device.name, None, f"is on {device.name}, which counts nothing"))
            else:
                found.append(Source(server.name, device.name, device, None))
    return found


def meta_load(pool: Pool) -> _native.MetaLoad:
    """What the metadata tier served of late, second by second, what is predicted, and the threshold of small files."""
    return _native.pool_meta_load(str(pool.file))


def done(pool: Pool, of: list[Source]) -> dict[str, Done]:
    """What each server has done so far, by name; those of which nothing is known are not in it."""
    so_far = {}
    if pool.is_emulated:
        emulated: list[Any] = _native.emulation_snapshot(str(pool.file)).total()
        for server in emulated:
            both = (server["read"], server["write"])
            busy_s = sum(op["busy_s"] for op in both)
            so_far[server["name"]] = Done(
                sum(op["requests"] for op in both),
                server["read"]["bytes"],
                server["write"]["bytes"],
                busy_s,
                # Emulated servers count the time in the queue alone.
                busy_s + sum(op["waiting_s"] for op in both),
            )
    for source in of:
        counters = source.device.counters() if source.device is not None else None
        if counters is not None:
            so_far[source.server] = Done(
                counters.reads + counters.writes,
                counters.read_bytes,
                counters.written_bytes,
                counters.busy_s,
                counters.waiting_s,
            )
    return so_far
