"""Layouts in the native commands of parallel file systems.

A file system is one file behind `exporter.Exporter`; `beegfs` is the simplest. An exporter lists the ways in which it
can express a layout and what each loses; here one is chosen and priced, and becomes commands.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from stripewise import _native
from stripewise.exporters import pricing
from stripewise.exporters.beegfs import BeeGFS
from stripewise.exporters.cephfs import CephFS
from stripewise.exporters.directories import together
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
from stripewise.exporters.pricing import Prices, Workload
from stripewise.exporters.shell import file_argument

N = TypeVar("N")

__all__ = [
    "EXPORTERS",
    "Exported",
    "ExportedFile",
    "Exporter",
    "Present",
    "RefusedError",
    "export",
    "pricing",
    "sources",
]

EXPORTERS: dict[str, Exporter[Any]] = {
    exporter.name: exporter for exporter in (Lustre(), BeeGFS(), CephFS(), OrangeFS())
}
"""By name, as `--to` takes them."""


def export(
    document: _native.LayoutDocument,
    *,
    to: str | Exporter[Any] | None = None,
    cluster: _native.ClusterInfo | None = None,
    workloads: Mapping[str, Workload] | None = None,
    servers: Mapping[str, int] | None = None,
    pool_map: Mapping[str, str] | None = None,
    targets: Mapping[str, Sequence[str]] | None = None,
    root: str = "",
    existing: bool = False,
    label: str = "",
) -> Exported:
    """A layout document (`layouts.read`) in the commands of the file system `to`, else of the cluster's.

    `cluster` (`cluster_load`) is what the layouts were made for: with it losses are priced, by the requests of
    `workloads` (`pricing.of_trace`) if there are any; then each layout takes the way that is predicted to be fastest,
    else the first of its exporter. `label` says what kind of servers the prices are of. `servers` is how many servers a
    tier has, where there is no cluster. `pool_map` is the native pool by tier, `targets` the native names of a tier's
    servers in the pool's order. Paths are taken below `root`. With `existing` the files are there and keep their bytes.

    More than a few new files of a directory that agree become the directory's default (`directories`).

    What a file system cannot express is refused file by file, see `Exported.refused`. Raises `StripewiseError` for an
    unknown file system, for tiers of `pool_map` and `targets` that no layout names, and for servers that the cluster
    does not have.
    """
    exporter = _exporter(to or (cluster["file_system"] if cluster is not None else None))
    known = sources(document)
    tiers = cluster["tiers"] if cluster is not None else []
    # At least the servers that the layouts use, where their number is not given.
    counts: dict[str, int] = {**(servers or {}), **{tier["name"]: tier["servers"] for tier in tiers}}
    for source in known:
        for region in source.regions:
            for name, stripes in region.tiers.items():
                last = max(int(server.rpartition(".")[2]) for server, _ in stripes)
                counts[name] = max(counts.get(name, 0), last + 1)
    for option, mapping in (("--pool-map", pool_map), ("--targets", targets)):
        for name in mapping or {}:
            if name not in counts:
                raise _native.StripewiseError(
                    f"{option} {name}=…: there is no tier {name}, there is {', '.join(counts)}"
                )
    pools = {tier["name"]: tier["pool"] for tier in tiers if tier["pool"]} | dict(pool_map or {})
    names = Names(pools, {tier: tuple(names) for tier, names in (targets or {}).items()}, counts)
    prices = Prices(pricing.of_cluster(cluster), workloads, label) if cluster is not None else None
    present = _present(cluster, pools) if cluster is not None else None
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
    gathered = tuple(files) if existing else together(exporter, known, files, root, present)
    return Exported(exporter.name, exporter.title, document["pool"], gathered, workload)


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


def _exporter(of: str | Exporter[Any] | None) -> Exporter[Any]:
    if of is None:
        raise _native.StripewiseError(f"name the file system: --to {', '.join(EXPORTERS)}")
    if isinstance(of, str):
        if of not in EXPORTERS:
            raise _native.StripewiseError(f"--to {of}: there is {', '.join(EXPORTERS)}")
        return EXPORTERS[of]
    return of


def _present(cluster: _native.ClusterInfo, pools: Mapping[str, str]) -> Present | None:
    """The cluster file's default: the layout of files without one of their own."""
    default = cluster["default"]
    tier = default["tier"]
    if cluster["kind"] == "pool" or tier is None:
        return None
    return Present(pools.get(tier, tier), default["count"], default["width_bytes"])


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
            losses.append("a copy takes its name: hard links to it keep the old bytes; no program may write meanwhile")
        return ExportedFile(
            pattern=source.pattern,
            path=place.path,
            is_directory=source.is_directory,
            commands=tuple(commands),
            losses=tuple(losses),
            loss_ratio=ratio,
            verify=tuple(exporter.verify(chosen.native, place)),
            native=chosen.native,
            placed=((source.pattern, chosen.placed),),
        )
    except RefusedError as refused:
        return ExportedFile(
            source.pattern, place.path, source.is_directory, (), (), None, (), None, refused=str(refused)
        )


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
