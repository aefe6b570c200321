"""`plan`: which part of which file goes to which servers, and why."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stripewise import _native, hints
from stripewise.api import ending, frames, html
from stripewise.api.alike import PlannedAlike, planned_alike
from stripewise.api.frames import Columns
from stripewise.api.layout_file import HasLayout
from stripewise.api.priced import Priced
from stripewise.api.servers import Named, Servers
from stripewise.api.trace import Trace
from stripewise.pool import Pool
from stripewise.units import about_bytes, counted, exact_bytes, mib_per_s, ratio, seconds

if TYPE_CHECKING:
    import polars as pl

Chart = Any
"""Of altair; what its classes have in common has no name."""


def plan(
    trace: Trace,
    *,
    pool: Named | Pool | None = None,
    cluster: Named | None = None,
    planner: str = "auto",
    root: Named | None = None,
    processes: float | None = None,
    max_regions: int | None = None,
) -> Plan:
    """Plans the files of a trace on the servers of a pool, or of a cluster that a file describes. Nothing is changed.

    `planner` is a name of `stripewise planners`; `auto` prices them all and simulates the best few. `root` is the
    directory of the trace whose files are planned: the pool's mount, or what all files of the trace have in common.
    `processes` are the requests in flight to plan for, from the trace if left out; `max_regions` of a file, 128 if left
    out. Raises `StripewiseError` that names what is wrong and the remedy.
    """
    servers = Servers.of(pool, cluster)
    options: dict[str, Any] = {"planner": planner, "processes": processes, "max_regions": max_regions}
    below = servers.root(root)
    if servers.pool is not None and below is not None:
        file = str(servers.pool.file)
        document = ending.heeding(lambda: _native.plan(trace.native, file, below, **options))
        at = Path(below)
    else:
        cluster_file = str(servers.cluster)
        document = ending.heeding(lambda: _native.plan_on_cluster(trace.native, cluster_file, root=below, **options))
        at = Path(document["root"])
    return Plan(document, servers, at, lambda: servers.advised(trace, below, document["layout"]))


def planners() -> list[_native.Planner]:
    """The planners: name, source and what each does; `auto` first."""
    return _native.planners()


class Plan(HasLayout, Priced):
    """Layouts for the files of a trace, with what they are predicted to cost."""

    def __init__(
        self, document: _native.PlanDocument, servers: Servers, root: Path, ask: Callable[[], _native.AdviceDocument]
    ) -> None:
        """Takes what a planner made for these servers, and what gives the job's figures: see `plan`."""
        HasLayout.__init__(self, document["layout"])
        Priced.__init__(self, ask)
        self.document = document
        """Everything that `stripewise plan --json` prints."""
        self.servers = servers
        """The pool or cluster."""
        self.root = root
        """The directory that paths of the plan are relative to."""

    @cached_property
    def _frame(self) -> pl.DataFrame:
        columns: Columns = {
            "path": ("String", lambda row: row["path"]),
            "offset": ("UInt64", lambda row: row["offset"]),
            "end": ("UInt64", lambda row: row["end"]),
            "requests": ("Float64", lambda row: row["requests"]),
            "read_bytes": ("Float64", lambda row: row["read_bytes"]),
            "written_bytes": ("Float64", lambda row: row["write_bytes"]),
            "round_before": ("List(String)", lambda row: row["round_before"]),
            "round": ("List(String)", lambda row: row["round"]),
            "default_s": ("Float64", lambda row: row["cost_s"]["default"]),
            "harl_s": ("Float64", lambda row: row["cost_s"]["harl"]),
            "plan_s": ("Float64", lambda row: row["cost_s"]["plan"]),
        }
        regions = ({"path": file["path"], **region} for file in self.document["files"] for region in file["regions"])
        return frames.frame(regions, columns)

    def frame(self) -> pl.DataFrame:
        """One row a region: its bytes, what was moved, its round of servers and widths before and after, and costs.

        A cost is the predicted time in which the region's requests are in flight, in seconds: under the default layout,
        under HARL's plan (null where that does not fit) and under this plan.
        """
        return self._frame

    @property
    def hints(self) -> list[dict[str, Any]]:
        """Hints for new files of directories that gain by the model, each with its `command`; of a cluster none."""
        pool = self.servers.pool
        return [] if pool is None else hints.commands(pool.mount, self.document["hints"])

    @property
    def hint_lines(self) -> list[str]:
        """The same for people."""
        pool = self.servers.pool
        return [] if pool is None else hints.lines(pool.mount, self.document["hints"])

    def explain(self) -> str:
        """Why this plan: what it changes, what that is predicted to give, and why other planners lost."""
        document = self.document
        told = [
            *self.heading,
            self.then,
            f"plan by {document['planner']} for {self.servers.label}, {document['processes']:.1f} requests in flight, "
            f"{counted(len(document['files']), 'file')} below {self.root}",
        ]
        if document["kept_default"]:
            told.append(f"by its own price {document['planner']} cannot better the default: it is kept")
        if document["sampled"] is not None:
            told.append(document["sampled"])
        if document["limited_by_space"] is not None:
            told.append(document["limited_by_space"])
        costs = document["cost_s"]
        for name, cost_s in (("default", costs["default"]), ("HARL", costs["harl"]), ("this plan", costs["plan"])):
            if cost_s:
                rate = f"{mib_per_s(document['bytes'] / cost_s)} MiB/s"
                gain = f", {ratio(costs['default'] / cost_s)} the default" if name != "default" else ""
                told.append(f"  {name}: {seconds(cost_s)} by the planner's own price, {rate}{gain}")
        for row in self.alike:
            others = ", on other servers each" if row.spread else ""
            name = row.path if len(row.files) == 1 else f"{row.path} ({len(row.files):,} files{others})"
            changed = [region for region in row.regions if region["round"] != region["round_before"]]
            if not changed:
                told.append(f"{name}: stays as it is, {' '.join(row.regions[0]['round'])}")
            for region in changed:
                moved = about_bytes(region["read_bytes"] + region["write_bytes"])
                cost = region["cost_s"]
                told.append(
                    f"{name} from {exact_bytes(region['offset'])} to {exact_bytes(region['end'])}: {moved} in "
                    f"{region['requests']:,.0f} requests, {' '.join(region['round_before'])} becomes "
                    f"{' '.join(region['round'])}, {seconds(cost['default'])} becomes {seconds(cost['plan'])}"
                )
        if document["comparison"] is not None:
            told.extend(f"{document['planner']} {reason}" for reason in document["comparison"]["why"])
        return "\n".join([*told, *self.hint_lines])

    @property
    def alike(self) -> list[PlannedAlike]:
        """Files that are named alike but for numbers, and laid out alike, as one; those that move most first."""
        return planned_alike(self.document["files"])

    def plot(self) -> Chart:
        """A map of the layouts (an altair chart): each file before and after, its regions by tier."""
        from stripewise.api import layout_map

        return layout_map.chart(self)

    def _headline(self) -> str:
        what = f"{counted(len(self.document['files']), 'file')}, {counted(self._frame.height, 'region')}"
        return f"Plan by {self.document['planner']} for {self.servers.label}: {what}"

    def __repr__(self) -> str:
        return f"<{self._headline()}>"

    def _repr_html_(self) -> str:
        return html.shown(self._headline(), self._frame, [*self.heading, self.then])
