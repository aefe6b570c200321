"""Devices of the experiments, in the papers' units: milliseconds, and KB (1024 bytes) per millisecond."""

from __future__ import annotations

from dataclasses import dataclass

from stripewise import _native

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Operation:
    """What a read or a write costs on a device: a startup drawn evenly from a range, then a time per byte."""

    startup_min_ms: float
    startup_max_ms: float
    kib_per_ms: float

    def native(self) -> tuple[float, float, float]:
        """In seconds, and seconds per byte."""
        return self.startup_min_ms * 1e-3, self.startup_max_ms * 1e-3, seconds_per_byte(self.kib_per_ms)

    def pool_text(self) -> str:
        """As an emulated device of a pool file has it."""
        bandwidth_bytes_per_s = round(self.kib_per_ms * 1000 * KIB)
        startup = f'["{self.startup_min_ms}ms", "{self.startup_max_ms}ms"]'
        return f'{{ startup = {startup}, bandwidth = "{bandwidth_bytes_per_s}B/s" }}'


@dataclass(frozen=True)
class Tier:
    """Servers that are alike."""

    name: str
    servers: int
    read: Operation
    write: Operation


@dataclass(frozen=True)
class Devices:
    """The servers of an experiment."""

    name: str
    """What they are called in the output."""
    tiers: tuple[Tier, ...]
    network_kib_per_ms: float | None
    """Of each server's link; `None` leaves the network out."""

    @property
    def servers(self) -> int:
        """How many, over all tiers."""
        return sum(tier.servers for tier in self.tiers)

    def native(self) -> list[_native.Devices]:
        """For the simulator and the planners."""
        network = 0.0 if self.network_kib_per_ms is None else seconds_per_byte(self.network_kib_per_ms)
        return [
            {
                "name": tier.name,
                "servers": tier.servers,
                "read": tier.read.native(),
                "write": tier.write.native(),
                "network_s_per_byte": network,
            }
            for tier in self.tiers
        ]

    def emulation(self, tier: Tier, dilation: float) -> str:
        """The value of `emulate` in a pool file; emulated servers hold the device while the bytes travel."""
        parts = [f"read = {tier.read.pool_text()}", f"write = {tier.write.pool_text()}"]
        if self.network_kib_per_ms is not None:
            parts.append(f'network = "{round(self.network_kib_per_ms * 1000 * KIB)}B/s"')
        if dilation != 1.0:
            parts.append(f"dilation = {dilation!r}")
        return f"{{ {', '.join(parts)} }}"

    def server_name(self, number: int) -> str:
        """`hdd.0`, as in layout files, of the server with this number over all tiers."""
        for tier in self.tiers:
            if number < tier.servers:
                return f"{tier.name}.{number}"
            number -= tier.servers
        raise IndexError(number)


def seconds_per_byte(kib_per_ms: float) -> float:
    """Of a bandwidth in KB per millisecond."""
    return 1e-3 / (KIB * kib_per_ms)
