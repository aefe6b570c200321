"""The layouts that experiments compare, by the names that the papers give them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from stripewise import _native
from stripewise.reproduce.cluster import KIB, Devices

MOST_WIDTHS = 8
"""Widths of servers that are told one by one."""

Make: TypeAlias = "Callable[[Devices, _native.Steps, str], _native.Regions]"


@dataclass(frozen=True)
class Variant:
    """One of the layouts that are compared."""

    label: str
    make: Make
    """The layout of the only file, for these devices and requests, with the network on a `link` or in the `device`."""
    measured: bool = True
    """Whether it is also measured where the experiment is."""


def fixed(width_kib: int, *, measured: bool = True) -> Variant:
    """The same width on every server: `64K`."""
    label = f"{width_kib // 1024}M" if width_kib % 1024 == 0 else f"{width_kib}K"
    return Variant(label, lambda devices, *_: widths([width_kib * KIB] * devices.servers), measured)


def pair(slow_kib: int, fast_kib: int, *, measured: bool = True) -> Variant:
    """One width on each server of the first tier, another on each of the second: `{32K,160K}`."""

    def make(devices: Devices, *_: object) -> _native.Regions:
        slow, fast = devices.tiers
        return widths([slow_kib * KIB] * slow.servers + [fast_kib * KIB] * fast.servers)

    return Variant(f"{{{slow_kib}K,{fast_kib}K}}", make, measured)


def random_pairs(count: int, most_kib: int, seed: int, *, measured: int) -> list[Variant]:
    """Pairs of multiples of 4 KB drawn at random; the first `measured` of them are measured, too."""
    draw = random.Random(seed)
    drawn = [(draw.randrange(4, most_kib + 4, 4), draw.randrange(4, most_kib + 4, 4)) for _ in range(count)]
    return [pair(slow, fast, measured=number < measured) for number, (slow, fast) in enumerate(drawn)]


def per_server(widths_kib: Sequence[int], label: str = "") -> Variant:
    """A width for each server: `{48,48,48,112}K`."""
    label = label or f"{{{','.join(map(str, widths_kib))}}}K"
    return Variant(label, lambda *_: widths([width * KIB for width in widths_kib]))


def planned(planner: str, label: str, default_kib: int = 64) -> Variant:
    """What the planner of that name makes of the requests."""

    def make(devices: Devices, steps: _native.Steps, network: str) -> _native.Regions:
        width = default_kib * KIB
        (regions,) = _native.plan_generated(
            devices.native(), steps, planner, default_width_bytes=width, network=network
        )
        return from_native(regions)

    return Variant(label, make)


def from_native(regions: _native.Regions) -> _native.Regions:
    """With the pairs that the native module returns as lists."""
    return [(offset, [(server, width) for server, width in stripes]) for offset, stripes in regions]


OURS = planned("auto", "Stripewise")
"""What the papers do not have: Stripewise's own planner."""


def equal_depth(label: str, round_kib: int, block_kib: int) -> Variant:
    """Song's rule with rounds and blocks of these sizes, all servers alike."""

    def make(devices: Devices, steps: _native.Steps, _network: str) -> _native.Regions:
        return widths(_native.equal_depth_generated(devices.native(), steps, round_kib * KIB, block_kib * KIB))

    return Variant(label, make)


def widths(of_servers: Sequence[int], first: int = 0) -> _native.Regions:
    """One region; the servers from number `first` on have these widths in bytes, 0 leaves one out."""
    return [(0, [(first + server, width) for server, width in enumerate(of_servers) if width])]


def text(regions: _native.Regions, devices: Devices) -> str:
    """What a layout is: `hdd 32K, ssd 160K`, with the offset of each region where there are several."""
    return "; ".join(
        (f"{offset // (1 << 20)}M: " if len(regions) > 1 else "") + _round_text(stripes, devices)
        for offset, stripes in regions
    )


def _round_text(stripes: Sequence[tuple[int, int]], devices: Devices) -> str:
    widths_of = dict(stripes)
    parts = []
    first = 0
    for tier in devices.tiers:
        own = [widths_of.get(server, 0) for server in range(first, first + tier.servers)]
        first += tier.servers
        if any(own):
            parts.append(f"{tier.name} {_widths_text(own)}")
    return ", ".join(parts)


def _widths_text(own: Sequence[int]) -> str:
    """`64K`, `64K on 16 of 64`, `48K,48K,48K,112K`, or `4K to 120K` where they are many."""
    used = sorted({width for width in own if width})
    if len(used) == 1:
        servers = sum(width > 0 for width in own)
        return _kib(used[0]) + ("" if servers == len(own) else f" on {servers} of {len(own)}")
    if len(own) > MOST_WIDTHS:
        return f"{_kib(used[0])} to {_kib(used[-1])}"
    return ",".join(_kib(width) for width in own)


def _kib(width: int) -> str:
    return f"{width // KIB}K" if width % KIB == 0 else f"{width}B"


def to_layout_file(pool: str, files: dict[str, _native.Regions], devices: Devices) -> str:
    """The text of a layout file that gives each file its layout."""
    lines = ["version = 1", f'pool = "{pool}"']
    for path, regions in files.items():
        lines += ["", "[[file]]", f'path = "{path}"']
        for offset, stripes in regions:
            entries = ", ".join(f'"{devices.server_name(server)}:{width}B"' for server, width in stripes)
            lines += ["", "[[file.region]]", f'offset = "{offset}"', f"round = [{entries}]"]
    return "\n".join(lines) + "\n"
