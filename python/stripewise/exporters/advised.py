"""The commands of a file system for what advice would change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stripewise import _native
from stripewise.exporters import EXPORTERS, Exported, export, pricing
from stripewise.heading import NowThen, now_then, then

LEAST_GAIN = 1.03
"""What is not as much faster is not worth a command."""


@dataclass(frozen=True)
class Native:
    """Advice in the commands of the file system that its servers are of."""

    exported: Exported
    existing: bool
    """The files are there and keep their bytes: the program read more of them than it wrote. Else it makes them."""
    assumed: tuple[str, ...]
    """What the commands take for granted, in words."""
    priced: _native.AdviceDocument | None
    """The job under what the commands set; `None` where a hash chooses servers."""

    @property
    def is_worth_it(self) -> bool:
        """Whether what the commands set is faster than what there is, as far as that can be said."""
        return self.priced is None or (
            self.priced["total"]["change"] and self.priced["total"]["gain"]["ratio"] >= LEAST_GAIN
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as `--json` prints them."""
        return {**self.exported.as_dict(), "existing": self.existing, "assumed": list(self.assumed)}


def of_advice(
    advice: _native.AdviceDocument,
    trace: _native.Trace,
    given: Callable[[str], _native.AdviceDocument],
    draw: Callable[[Mapping[int, int]], pricing.Samples] | None = None,
) -> Native | None:
    """The commands for what should change, on a cluster file's servers priced with the trace's own requests.

    `given` is the same advice for the text of a layout file. `draw` is `pricing.sampled` of the trace where others have
    its requests.

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
    return Native(exported, existing, tuple(_assumed(cluster, existing)), priced(exported, given))


def priced(exported: Exported, given: Callable[[str], _native.AdviceDocument]) -> _native.AdviceDocument | None:
    """What `given` says of what the commands set; `None` where a hash chooses servers."""
    text = exported.layout_text()
    return None if text is None else given(text)


def then_set(advice: _native.AdviceDocument, native: Native | None) -> str | None:
    """What the advised layouts make of a job, priced for the commands that set them; `None` where nothing changes."""
    told = then(advice)
    if told is None or native is None or native.priced is None:
        return told
    if not native.is_worth_it:
        return f"{told}; but not by commands of {native.exported.title}: what those can set gains nothing"
    return f"{then(native.priced)}; with the commands below"


def figures_set(advice: _native.AdviceDocument, native: Native | None) -> NowThen:
    """The figures of a job, priced for the commands that set what is advised."""
    return now_then(advice if native is None or native.priced is None else native.priced)


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
