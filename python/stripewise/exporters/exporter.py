"""What an exporter is, what it is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from stripewise.exporters.shell import Command
from stripewise.units import exact_bytes

N = TypeVar("N")
"""A file system's own layout: equal exactly if the native layouts are; hashable."""

META = "meta"
"""The metadata tier, as layouts name it."""

KIB64 = 64 << 10
"""What Lustre, CephFS and BeeGFS count their stripes in."""


class RefusedError(Exception):
    """A file system cannot express a layout; the message says why and what would help."""


@dataclass(frozen=True)
class Region:
    """A region of a layout: `[start, end)`, served in rounds of (server, width in bytes)."""

    start: int
    end: int | None
    """`None` in the last region, which has no end."""
    stripes: tuple[tuple[str, int], ...]

    @property
    def tiers(self) -> dict[str, list[tuple[str, int]]]:
        """The stripes of each tier, tiers and stripes in the round's order; the metadata tier is left out."""
        tiers: dict[str, list[tuple[str, int]]] = {}
        for server, width in self.stripes:
            if server != META:
                tiers.setdefault(tier_of(server), []).append((server, width))
        return tiers

    @property
    def has_meta(self) -> bool:
        """Whether bytes of it are on the metadata tier."""
        return any(server == META for server, _ in self.stripes)

    @property
    def text(self) -> str:
        """Its place in the file, for people: `[0, 8MiB)`."""
        return f"[{exact_bytes(self.start)}, {'end' if self.end is None else exact_bytes(self.end)})"


@dataclass(frozen=True)
class Source:
    """A layout to translate, and the file or directory that gets it."""

    path: str
    """Below the root; of a directory the empty text is the root itself."""
    pattern: str
    """As the layout file has it."""
    is_directory: bool
    """A pattern of many files: the layout becomes the directory's default for new files."""
    regions: tuple[Region, ...]

    @property
    def tiers(self) -> list[str]:
        """The tiers that it names, in order of first appearance."""
        return list(dict.fromkeys(tier for region in self.regions for tier in region.tiers))


@dataclass(frozen=True)
class Names:
    """How the file system calls the tiers and servers of a layout."""

    pools: Mapping[str, str] = field(default_factory=dict)
    """Native pool by tier; a tier that is not in it has its own name, an empty name is no pool at all."""
    targets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Native names of a tier's servers, in the pool's order: OST indices, target IDs, addresses."""
    servers: Mapping[str, int] = field(default_factory=dict)
    """How many servers a tier has."""

    def pool(self, tier: str) -> str | None:
        """The native pool of a tier; `None` for no pool."""
        return self.pools.get(tier, tier) or None

    def target(self, server: str) -> str | None:
        """The native name of a server; `None` where the tier's are not known.

        Raises `RefusedError` where they are known, but not this one's.
        """
        tier, _, place = server.rpartition(".")
        known = self.targets.get(tier)
        if known is None:
            return None
        if int(place) >= len(known):
            raise RefusedError(
                f"server {server} has no native name: --targets {tier}=… names {len(known)} servers, the layout "
                f"uses more; name all of the tier's, in the pool's order"
            )
        return known[int(place)]

    def all_servers(self, tier: str, used: Sequence[str]) -> list[str]:
        """All servers of a tier, at least those that are `used`."""
        count = max([self.servers.get(tier, 0), *(int(server.rpartition(".")[2]) + 1 for server in used)])
        return [f"{tier}.{place}" for place in range(count)]


@dataclass(frozen=True)
class Rounds:
    """Where a native layout puts bytes: as in a layout, but a server may stand in a round several times."""

    regions: tuple[tuple[int, tuple[tuple[str, int], ...]], ...]
    """Offset and round of each."""


@dataclass(frozen=True)
class Hashed:
    """Objects of `object_bytes`, filled in stripes of `unit_bytes` over `count` at a time, on servers by a hash."""

    unit_bytes: int
    count: int
    object_bytes: int
    servers: tuple[str, ...]


@dataclass(frozen=True)
class Translation(Generic[N]):
    """One way to express a layout."""

    native: N
    placed: Rounds | Hashed
    losses: tuple[str, ...] = ()
    """What of the layout is lost, in words."""


@dataclass(frozen=True)
class Present:
    """The layout that existing files have."""

    pool: str
    """Native pool."""
    count: int
    """Servers that a file is on."""
    width_bytes: int


@dataclass(frozen=True)
class Place:
    """What gets the native layout."""

    path: str
    """As the commands take it."""
    is_directory: bool
    existing: bool
    """The file is there already and keeps its bytes."""
    present: Present | None = None
    """Its layout, where that is known."""


class Exporter(Protocol[N]):
    """A file system that layouts are translated for."""

    name: str
    """As `--to` takes it."""
    title: str
    """As people call it."""

    def translations(self, source: Source, names: Names) -> list[Translation[N]]:
        """The ways to express a layout, at least one; the first is taken where no prices are known.

        Raises `RefusedError` where there is none.
        """

    def commands(self, native: N, place: Place) -> list[Command]:
        """The commands that set `native`.

        Raises `RefusedError` where they cannot be told for this place.
        """

    def verify(self, native: N, place: Place) -> list[Command]:
        """The commands that show what was set."""


def tier_of(server: str) -> str:
    """The tier of a server: `hdd` of `hdd.3`."""
    return server.rpartition(".")[0]


def rounded(value: int, unit: int) -> int:
    """The multiple of `unit` next to `value`, at least one."""
    return max((value + unit // 2) // unit, 1) * unit


def mean_width(stripes: Sequence[tuple[str, int]]) -> int:
    """The mean of the widths, to a whole byte."""
    return max(round(sum(width for _, width in stripes) / len(stripes)), 1)


def widths_text(stripes: Sequence[tuple[str, int]]) -> str:
    """The different widths in order: `64KiB` or `48KiB, 112KiB`."""
    return ", ".join(exact_bytes(width) for width in dict.fromkeys(width for _, width in stripes))


def single_region_losses(source: Source, kept: int, tier: str | None = None) -> list[str]:
    """What is lost where a file has one region: all but region number `kept`, of which only `tier` if one is named."""
    losses = []
    regions = source.regions
    if len(regions) > 1:
        losses.append(f"{len(regions)} regions folded into one: the whole file is as {regions[kept].text} was to be")
    region = regions[kept]
    others = [other for other in region.tiers if other != tier] if tier is not None else []
    if tier is not None and others:
        share = sum(width for _, width in region.tiers[tier]) / sum(width for _, width in region.stripes)
        losses.append(f"one tier only: {tier}, which was to hold {share:.0%}, holds all; {', '.join(others)} nothing")
    if any(region.has_meta for region in regions):
        losses.append("no bytes on the metadata tier")
    return losses


def distinct(translations: Sequence[Translation[N]], most: int = 24) -> list[Translation[N]]:
    """Each native layout once, the one with the fewest losses; at most `most`."""
    kept: dict[N, Translation[N]] = {}
    for translation in translations:
        before = kept.get(translation.native)
        if before is None or len(translation.losses) < len(before.losses):
            kept[translation.native] = translation
    return list(kept.values())[:most]
