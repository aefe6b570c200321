"""BeeGFS 8: one chunk size, one number of targets and one storage pool for a file. The simplest exporter, to copy."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stripewise.exporters.copying import before_copy, copied, new_name
from stripewise.exporters.exporter import (
    KIB64,
    Names,
    Place,
    RefusedError,
    Rounds,
    Source,
    Translation,
    distinct,
    mean_width,
    single_region_losses,
    widths_text,
)
from stripewise.exporters.shell import Command, command
from stripewise.units import exact_bytes

MOST_CHUNK = 2 << 30
"""The largest power of two in the 32 bits that a chunk size has."""

MOST_TARGETS = 65_535
"""Target IDs have 16 bits, and a target stands in a file once."""

_ENTITY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")


@dataclass(frozen=True)
class Striping:
    """What BeeGFS keeps for a file or a directory."""

    chunk_bytes: int
    """A power of two, 64 KiB to 2 GiB."""
    targets: int
    pool: str | None = None
    """Storage pool; `None`: the directory's."""
    ids: tuple[str, ...] = ()
    """Targets by name; the metadata server chooses where there are none."""


class BeeGFS:
    """Chunks of a power of two, over as many targets of one pool."""

    name = "beegfs"
    title = "BeeGFS"

    def translations(self, source: Source, names: Names) -> list[Translation[Striping]]:
        """Each tier of each region, the last region's greatest tier first; with the powers of two around the width."""
        found = []
        for kept in range(len(source.regions) - 1, -1, -1):
            tiers = source.regions[kept].tiers
            for tier in sorted(tiers, key=lambda tier: -sum(width for _, width in tiers[tier])):
                for chunk in _powers_around(mean_width(tiers[tier])):
                    found.append(self._translation(source, names, kept, tier, chunk))
        if not found:
            raise RefusedError(
                "BeeGFS has no data on its metadata servers: name a tier with a storage pool for the file"
            )
        return distinct(found)

    def _translation(self, source: Source, names: Names, kept: int, tier: str, chunk: int) -> Translation[Striping]:
        stripes = source.regions[kept].tiers[tier]
        losses = single_region_losses(source, kept, tier)
        if any(width != chunk for _, width in stripes):
            losses.append(
                f"a chunk is one power of two for all targets: {exact_bytes(chunk)} instead of {widths_text(stripes)}"
            )
        known = [names.target(server) for server in (server for server, _ in stripes)]
        ids = tuple(target for target in known if target is not None) if not source.is_directory else ()
        if ids:
            losses.append(
                "the named targets in an order that BeeGFS chooses; they must be of the pool of the file's directory"
            )
        elif len(stripes) < len(names.all_servers(tier, [server for server, _ in stripes])):
            losses.append(f"BeeGFS chooses which {len(stripes)} targets of the pool")
        native = Striping(chunk, len(stripes), None if ids else names.pool(tier), ids)
        check(native)
        return Translation(native, Rounds(((0, tuple((server, chunk) for server, _ in stripes)),)), tuple(losses))

    def commands(self, native: Striping, place: Place) -> list[Command]:
        """`entry set` on a directory, `entry create file` for a file.

        A file that exists is migrated where its pool alone changes, else copied into a file that is so created.
        """
        check(native)
        options = ["--chunk-size", _size(native.chunk_bytes), "--num-targets", str(native.targets)]
        if native.ids:
            options += ["--targets", ",".join(native.ids)]
        elif native.pool is not None:
            options += ["--pool", native.pool]
        if place.is_directory:
            return [command("beegfs", "entry", "set", *options, place.path)]
        if not place.existing:
            return [command("beegfs", "entry", "create", "file", *options, place.path)]
        present = place.present
        if present and native.pool and (present.count, present.width_bytes) == (native.targets, native.chunk_bytes):
            # Only the pool is another, which is all that a migration changes.
            moved = ["--from-pools", present.pool, "--pool", native.pool]
            return [command("beegfs", "entry", "migrate", *moved, place.path)] if present.pool != native.pool else []
        new = new_name(place.path)
        made = command("beegfs", "entry", "create", "file", *options, new)
        return [before_copy(place.path), made, *copied(place.path, new)]

    def verify(self, native: Striping, place: Place) -> list[Command]:
        """`entry info`: the pattern, the targets and the pool."""
        return [command("beegfs", "entry", "info", place.path)]


def check(native: Striping) -> None:
    """Raises `RefusedError` for what BeeGFS does not take."""
    chunk = native.chunk_bytes
    if chunk & (chunk - 1) or not KIB64 <= chunk <= MOST_CHUNK:
        raise RefusedError(f"chunk size {exact_bytes(chunk)}: BeeGFS takes powers of two from 64KiB to 2GiB")
    if not 1 <= native.targets <= MOST_TARGETS:
        raise RefusedError(f"{native.targets} targets: BeeGFS takes 1 to {MOST_TARGETS}")
    for kind, name in [("pool", native.pool), *(("target", name) for name in native.ids)]:
        if name is not None and not _ENTITY.fullmatch(name):
            raise RefusedError(
                f"{kind} {name!r}: BeeGFS calls its {kind}s by an ID or an alias of letters, digits, - and _"
            )
    if native.ids and (len(set(native.ids)) < len(native.ids) or native.targets > len(native.ids)):
        raise RefusedError(
            f"targets {', '.join(native.ids)}: BeeGFS takes each target once, as many as --num-targets says"
        )


def _powers_around(width: int) -> list[int]:
    """The powers of two below and above, the nearer one (as a factor) first."""
    below = min(max(1 << (width.bit_length() - 1), KIB64), MOST_CHUNK)
    above = min(max(below if below >= width else below << 1, KIB64), MOST_CHUNK)
    return list(dict.fromkeys([below, above] if width * width < below * above else [above, below]))


def _size(count: int) -> str:
    """With a suffix: `512Ki`, `2Mi`."""
    for unit, shift in (("Gi", 30), ("Mi", 20), ("Ki", 10)):
        if count % (1 << shift) == 0:
            return f"{count >> shift}{unit}"
    return str(count)
