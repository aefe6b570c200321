"""CephFS: one stripe unit, stripe count, object size and data pool for a file that is still empty."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stripewise.exporters.copying import before_copy, copied, new_name
from stripewise.exporters.exporter import (
    KIB64,
    Hashed,
    Names,
    Place,
    RefusedError,
    Source,
    Translation,
    distinct,
    mean_width,
    rounded,
    single_region_losses,
    widths_text,
)
from stripewise.exporters.shell import Command, command
from stripewise.units import exact_bytes

MOST_OBJECT = 128 << 20
"""`osd_max_object_size`: more is accepted, and writing then fails with EFBIG."""

DEFAULT_OBJECT = 4 << 20
"""CephFS's own object size, which objects come as near as their stripe unit lets them."""

MOST_COUNT = (1 << 32) - 1
"""A stripe count has 32 bits."""


@dataclass(frozen=True)
class FileLayout:
    """What CephFS keeps for a file or a directory."""

    stripe_unit: int
    stripe_count: int
    object_size: int
    pool: str | None = None
    """Data pool; `None`: the directory's."""


class CephFS:
    """Stripes of a multiple of 64 KiB over objects in one pool; a hash chooses each object's server."""

    name = "cephfs"
    title = "CephFS"

    def translations(self, source: Source, names: Names) -> list[Translation[FileLayout]]:
        """Each tier of each region, the last region's greatest tier first."""
        found = []
        for kept in range(len(source.regions) - 1, -1, -1):
            tiers = source.regions[kept].tiers
            for tier in sorted(tiers, key=lambda tier: -sum(width for _, width in tiers[tier])):
                found.append(self._translation(source, names, kept, tier))
        if not found:
            raise RefusedError(
                "CephFS keeps no file's bytes on its metadata servers: name a tier with a pool for the file"
            )
        return distinct(found)

    def _translation(self, source: Source, names: Names, kept: int, tier: str) -> Translation[FileLayout]:
        stripes = source.regions[kept].tiers[tier]
        unit = min(rounded(mean_width(stripes), KIB64), MOST_OBJECT)
        losses = single_region_losses(source, kept, tier)
        if any(width != unit for _, width in stripes):
            losses.append(
                f"one stripe unit, a multiple of 64KiB of at most {exact_bytes(MOST_OBJECT)}: {exact_bytes(unit)} "
                f"instead of {widths_text(stripes)}"
            )
        servers = names.all_servers(tier, [server for server, _ in stripes])
        if len(servers) > 1:
            losses.append("a hash chooses the server of each object: two of one stripe can be on the same")
        object_bytes = max(DEFAULT_OBJECT // unit, 1) * unit
        native = FileLayout(unit, len(stripes), object_bytes, names.pool(tier))
        check(native)
        return Translation(native, Hashed(unit, len(stripes), object_bytes, tuple(servers)), tuple(losses))

    def commands(self, native: FileLayout, place: Place) -> list[Command]:
        """Attributes one by one, each valid with what stands before it.

        Whatever the present layout is, its object size is a multiple of 64 KiB, so that this is a valid stripe unit;
        with it any object size is valid, and with that the wanted unit.
        """
        check(native)
        path = new_name(place.path) if place.existing and not place.is_directory else place.path
        of = "dir" if place.is_directory else "file"
        steps = [("stripe_unit", KIB64), ("object_size", native.object_size)]
        if native.stripe_unit != KIB64:
            steps.append(("stripe_unit", native.stripe_unit))
        steps.append(("stripe_count", native.stripe_count))
        attributes = [command("setfattr", "-n", f"ceph.{of}.layout.{key}", "-v", str(n), path) for key, n in steps]
        if native.pool is not None:
            attributes.append(command("setfattr", "-n", f"ceph.{of}.layout.pool", "-v", native.pool, path))
        if place.is_directory:
            return attributes
        made = [command("touch", path), *attributes]
        return [before_copy(place.path), *made, *copied(place.path, path)] if place.existing else made

    def verify(self, native: FileLayout, place: Place) -> list[Command]:
        """`getfattr`: the whole layout in one line."""
        of = "dir" if place.is_directory else "file"
        return [command("getfattr", "-n", f"ceph.{of}.layout", place.path)]


def check(native: FileLayout) -> None:
    """Raises `RefusedError` for what the metadata server calls invalid, and for what fails once bytes are written."""
    unit, size = native.stripe_unit, native.object_size
    if unit <= 0 or unit % KIB64 or size <= 0 or size % KIB64:
        raise RefusedError(
            f"stripe unit {exact_bytes(unit)}, object size {exact_bytes(size)}: CephFS takes multiples of 64KiB"
        )
    if size % unit:
        raise RefusedError(f"object size {exact_bytes(size)} is no multiple of the stripe unit {exact_bytes(unit)}")
    if size > MOST_OBJECT:
        raise RefusedError(f"object size {exact_bytes(size)}: at most {exact_bytes(MOST_OBJECT)} can be written")
    if not 1 <= native.stripe_count <= MOST_COUNT:
        raise RefusedError(f"stripe count {native.stripe_count}: CephFS takes 1 to {MOST_COUNT}")
    pool = native.pool
    # A number would be taken for a pool's ID.
    if pool is not None and (pool.isdecimal() or not re.fullmatch(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*", pool)):
        raise RefusedError(
            f"pool {pool!r}: give the name of a data pool, of letters, digits, '_', '.' and '-', not all digits"
        )
