"""The commands of a file system for what advice would change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stripewise import _native
from stripewise.exporters import EXPORTERS, Exported, export, pricing


@dataclass(frozen=True)
class Native:
    """Advice in the commands of the file system that its servers are of."""

    exported: Exported
    existing: bool
    """The files are there and keep their bytes: the program read more of them than it wrote. Else it makes them."""
    assumed: tuple[str, ...]
    """What the commands take for granted, in words."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them."""
        return {**self.exported.as_dict(), "existing": self.existing, "assumed": list(self.assumed)}


def of_advice(
    advice: _native.AdviceDocument,
    trace: _native.Trace,
    draw: Callable[[Mapping[int, int]], pricing.Samples] | None = None,
) -> Native | None:
    """The commands for what should change, on a cluster file's servers priced with the trace's own requests.

    `draw` is `pricing.sampled` of the trace where others have its requests.

    `None` where nothing should change, and where the servers' file system is not known. Servers that only the
    log shows have no pools: a layout then takes any targets.
    """
    cluster = advice["cluster"]
    if cluster["file_system"] is None or not advice["total"]["change"]:
        return None
    document = _native.layout_parse(advice["layout"])
    changed = [row for row in advice["files"] if row["change"]]
    existing = sum(row["read_bytes"] for row in changed) > sum(row["written_bytes"] for row in changed)
    exported = export(
        document,
        cluster=cluster,
        # Where any target will do, none of several ways is better for what it costs on these.
        workloads=None if cluster["found"] else _workloads(advice, trace, draw),
        pool_map={tier["name"]: "" for tier in cluster["tiers"]} if cluster["found"] else None,
        root=advice["root"],
        existing=existing,
    )
    return Native(exported, existing, tuple(_assumed(cluster, existing)))


def _workloads(
    advice: _native.AdviceDocument, trace: _native.Trace, draw: Callable[[Mapping[int, int]], pricing.Samples] | None
) -> dict[str, pricing.Workload]:
    patterns = [file["path"] for file in _native.layout_parse(advice["layout"])["files"]]
    in_flight = advice["processes_in_flight"]
    return pricing.of_trace(trace, advice["root"], patterns, in_flight=in_flight, draw=draw)


def _assumed(cluster: _native.AdviseCluster, existing: bool) -> list[str]:
    title = EXPORTERS[cluster["file_system"] or ""].title
    if cluster["found"]:
        servers = sum(tier["servers"] for tier in cluster["tiers"])
        pools = f"no pool is named: any targets of {title} will do, as fast as the {servers} that the log shows"
    else:
        names = ", ".join(f"{tier['name']} is {tier['pool'] or tier['name']}" for tier in cluster["tiers"])
        pools = f"pools of {title}: {names}"
    if existing:
        return [pools, "the files are there and no program writes them meanwhile"]
    return [pools, "the program makes its files anew; for those that are there: stripewise export --existing"]
