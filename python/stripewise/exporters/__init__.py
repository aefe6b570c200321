"""Layouts in the native commands of parallel file systems.

A file system is one file behind `exporter.Exporter`; `beegfs` is the simplest. An exporter lists the ways in which it
can express a layout and what each loses; here one is chosen and priced, and becomes commands. Every exporter also
reads its own commands as the file system would: the tests hold the two together.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from stripewise import _native
from stripewise.exporters.beegfs import BeeGFS
from stripewise.exporters.cephfs import CephFS
from stripewise.exporters.exported import Exported, ExportedFile
from stripewise.exporters.exporter import (
    Exporter,
    Names,
    Place,
    Present,
    RefusedError,
    Region,
    Rounds,
    Source,
    Translation,
)
from stripewise.exporters.lustre import Lustre
from stripewise.exporters.orangefs import OrangeFS
from stripewise.exporters.pricing import Prices
from stripewise.exporters.shell import file_argument

N = TypeVar("N")

__all__ = [
    "EXPORTERS",
    "Exported",
    "ExportedFile",
    "Exporter",
    "Present",
    "Prices",
    "RefusedError",
    "export",
    "sources",
]

EXPORTERS: dict[str, Exporter[Any]] = {
    exporter.name: exporter for exporter in (Lustre(), BeeGFS(), CephFS(), OrangeFS())
}
"""By name, as `--to` takes them."""


def export(
    document: _native.LayoutDocument,
    *,
    to: str | Exporter[Any],
    prices: Prices | None = None,
    pool_map: Mapping[str, str] | None = None,
    targets: Mapping[str, Sequence[str]] | None = None,
    servers: Mapping[str, int] | None = None,
    root: str = "",
    existing: bool = False,
    present: Present | None = None,
) -> Exported:
    """A layout document (`layouts.read`) in the commands of the file system `to`.

    `pool_map` is the native pool by tier, `targets` the native names of a tier's servers in the pool's order, `servers`
    how many servers a tier has. With `prices` of a trace each layout takes the way that is predicted to be fastest,
    else the first of its exporter. Paths are taken below `root`. With `existing` the files are there and keep their
    bytes; `present` is the layout that they have, where it is known.

    What a file system cannot express is refused file by file, see `Exported.refused`. Raises `StripewiseError` for an
    unknown file system, and for tiers of `pool_map` and `targets` that no layout names.
    """
    exporter = _exporter(to) if isinstance(to, str) else to
    known = sources(document)
    # What the layouts use at least, where nobody says how many servers there are.
    counts: dict[str, int] = dict(servers or {})
    for source in known:
        for region in source.regions:
            for tier, stripes in region.tiers.items():
                last = max(int(server.rpartition(".")[2]) for server, _ in stripes)
                counts[tier] = max(counts.get(tier, 0), last + 1)
    for option, mapping in (("--pool-map", pool_map), ("--targets", targets)):
        for tier in mapping or {}:
            if tier not in counts:
                raise _native.StripewiseError(
                    f"{option} {tier}=…: there is no tier {tier}, there is {', '.join(counts)}"
                )
    names = Names(
        pools=dict(pool_map or {}),
        targets={tier: tuple(names) for tier, names in (targets or {}).items()},
        servers=counts,
    )
    files: list[ExportedFile] = []
    directories: dict[str, str] = {}
    for source in known:
        file = _export_one(exporter, source, names, prices, root, existing, present)
        if source.is_directory and file.refused is None:
            earlier = directories.setdefault(source.path, source.pattern)
            if earlier != source.pattern:
                # A directory has one default.
                reason = f"directory '{source.path or '.'}' already has the layout of {earlier} as its default"
                file = replace(file, commands=(), verify=(), losses=(), loss_ratio=None, refused=reason)
        files.append(file)
    workload = prices.workload if prices is not None else None
    return Exported(exporter.name, exporter.title, document["pool"], tuple(files), workload)


def sources(document: _native.LayoutDocument) -> list[Source]:
    """The layouts of a document, in its order."""
    found = []
    for file in document["files"]:
        path, is_directory = _native.pattern_place(file["path"])
        ends = [region["offset"] for region in file["regions"][1:]]
        regions = tuple(
            Region(
                region["offset"], end, tuple((stripe["server"], stripe["width_bytes"]) for stripe in region["stripes"])
            )
            for region, end in zip(file["regions"], [*ends, None], strict=True)
        )
        found.append(Source(path, file["path"], is_directory, regions))
    return found


def _exporter(name: str) -> Exporter[Any]:
    if name not in EXPORTERS:
        raise _native.StripewiseError(f"--to {name}: there is {', '.join(EXPORTERS)}")
    return EXPORTERS[name]


def _export_one(
    exporter: Exporter[Any],
    source: Source,
    names: Names,
    prices: Prices | None,
    root: str,
    existing: bool,
    present: Present | None,
) -> ExportedFile:
    path = posixpath.join(root, source.path) if source.path else root or "."
    place = Place(file_argument(path), source.is_directory, existing, present)
    try:
        ways = exporter.translations(source, names)
        chosen, ratio = _cheapest(source, ways, prices)
        losses = list(chosen.losses)
        if source.is_directory:
            losses.append(_directory_loss(source))
        commands = exporter.commands(chosen.native, place)
        if any(command.arguments[0] == "cp" for command in commands):
            losses.append("a copy takes its name: hard links to it keep the old bytes, and nobody may write meanwhile")
        return ExportedFile(
            pattern=source.pattern,
            path=place.path,
            is_directory=source.is_directory,
            commands=tuple(commands),
            losses=tuple(losses),
            loss_ratio=ratio,
            verify=tuple(exporter.verify(chosen.native, place)),
            native=chosen.native,
        )
    except RefusedError as refused:
        return ExportedFile(source.pattern, place.path, source.is_directory, (), (), None, (), None, str(refused))


def _cheapest(
    source: Source, ways: Sequence[Translation[N]], prices: Prices | None
) -> tuple[Translation[N], float | None]:
    """The way to take, and its predicted time over the layout's.

    It is the first, or with a program's requests the one with the least time of those that there is room for, the first
    of equal ones.
    """
    if prices is None:
        return ways[0], None
    ideal_s = prices.seconds(source, Rounds(tuple((region.start, region.stripes) for region in source.regions)))
    if not ideal_s:
        # The trace has no request for it.
        return ways[0], None
    if not prices.is_measured:
        return ways[0], (prices.seconds(source, ways[0].placed) or 0.0) / ideal_s
    fitting = [way for way in ways if prices.has_room(source, way.placed)] or list(ways[:1])
    costs_s = [prices.seconds(source, way.placed) or 0.0 for way in fitting]
    at = costs_s.index(min(costs_s))
    return fitting[at], costs_s[at] / ideal_s


def _directory_loss(source: Source) -> str:
    directory = source.path or "."
    rest = source.pattern[len(source.path) :].lstrip("/") if source.pattern.startswith(source.path) else ""
    which = "all new files" if rest in ("*", "**") else f"all new files, not only those that {source.pattern} matches,"
    return f"the default of directory {directory}: {which} get it; files and directories in it keep what they have"
