"""`simulate`: a trace replayed on servers, under the layouts that its files have and under others."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stripewise import _native
from stripewise.api import frames, html
from stripewise.api.frames import Columns
from stripewise.api.plan import Plan
from stripewise.api.priced import Priced
from stripewise.api.servers import Named, Servers
from stripewise.api.trace import Trace
from stripewise.pool import Pool
from stripewise.units import mib_per_s, ratio, seconds

if TYPE_CHECKING:
    import polars as pl

EMPTY = 'version = 1\npool = ""\n'
"""A layout file that gives no file another layout."""

BINS = 120
"""Steps of the time line."""


def around_of(given: Mapping[str, Any]) -> _native.SimulationAround:
    """The options of `stripewise simulate` by name, with those that are not `given` as usual."""
    usual: _native.SimulationAround = {
        "queue": [],
        "wait": "6.7ms",
        "near": "1MiB",
        "seek": [],
        "link": None,
        "client_link": None,
        "processes_per_node": None,
        "latency": "0s",
        "pipelined": False,
        "metadata": None,
        "think": False,
        "repeat": 5,
        "seed": 1,
        "bins": BINS,
    }
    unknown = set(given) - set(usual)
    if unknown:
        raise _native.StripewiseError(f"around: there is no option '{min(unknown)}'; there is {', '.join(usual)}")
    options: Any = {**usual, **given}
    made: _native.SimulationAround = options
    return made


def simulate(
    trace: Trace,
    *,
    pool: Named | Pool | None = None,
    cluster: Named | None = None,
    layout: Plan | Named | None = None,
    root: Named | None = None,
    repeat: int = 5,
    seed: int = 1,
    think: bool = False,
    around: dict[str, Any] | None = None,
) -> Simulation:
    """Replays the requests of a trace on a pool or a described cluster, under present layouts and those of `layout`.

    `layout` is a plan or a layout file. Files have the layouts that they have in the pool, or the cluster's default;
    `root` is the directory of the trace whose files are meant, as in `plan`: that of the plan, if there is one.
    `repeat` runs are made with other startup times; `think` keeps the time that the program spent between requests.
    `around` has the other options of `stripewise simulate` by name, as `{"queue": ["hdd=elevator"], "link": "1GB/s"}`.
    Raises `StripewiseError` that names what is wrong.
    """
    servers = Servers.of(pool, cluster)
    options = around_of({"think": think, "repeat": repeat, "seed": seed, **(around or {})})
    below = servers.root(layout.root if root is None and isinstance(layout, Plan) else root)

    def replayed(layout_file: str | None) -> Simulation:
        if servers.pool is not None and below is not None:
            document = _native.simulate(trace.native, str(servers.pool.file), below, layout_file, options)
        else:
            document = _native.simulate_on_cluster(trace.native, str(servers.cluster), below, layout_file, options)
        # That it is text the simulator has checked.
        text = EMPTY if layout_file is None else Path(layout_file).read_text(encoding="utf-8")
        return Simulation(document, servers, partial(servers.advised, trace, below, text))

    if isinstance(layout, Plan):
        with tempfile.TemporaryDirectory(prefix="stripewise-") as directory:
            return replayed(str(layout.save(Path(directory) / "planned.layout")))
    return replayed(None if layout is None else os.fspath(layout))


class Simulation(Priced):
    """What a replay took, on which servers."""

    def __init__(
        self, document: _native.SimulationDocument, servers: Servers, ask: Callable[[], _native.AdviceDocument]
    ) -> None:
        """Takes what the simulator found for these servers, and what gives the job's figures: see `simulate`."""
        super().__init__(ask)
        self.document = document
        """Everything that `stripewise simulate --json` prints."""
        self.on = servers
        """The pool or cluster."""

    @property
    def ratio(self) -> float | None:
        """Throughput under the layout over that at present; `None` without a layout."""
        found = self.document["ratio"]
        return None if found is None else found["mean"]

    @cached_property
    def _sides(self) -> dict[str, _native.ReplayedSide]:
        layout = self.document["layout"]
        return {"present": self.document["present"], **({} if layout is None else {"layout": layout})}

    def frame(self) -> pl.DataFrame:
        """One row a side (`present`, `layout`): bytes per second, seconds in all, latencies in seconds.

        `half_width` is half of the 95 % interval of the throughput over the runs; null for one run.
        """
        columns: Columns = {
            "side": ("String", lambda side: side["name"]),
            "bytes_per_s": ("Float64", lambda side: side["throughput"]["mean"]),
            "half_width": ("Float64", lambda side: side["throughput"]["half_width"]),
            "time_s": ("Float64", lambda side: side["makespan_s"]["mean"]),
            "read_bytes": ("UInt64", lambda side: side["read_bytes"]),
            "written_bytes": ("UInt64", lambda side: side["written_bytes"]),
            "latency_mean_s": ("Float64", lambda side: side["latency"]["mean_s"]["mean"]),
            "latency_median_s": ("Float64", lambda side: side["latency"]["p50_s"]["mean"]),
            "latency_p95_s": ("Float64", lambda side: side["latency"]["p95_s"]["mean"]),
            "latency_p99_s": ("Float64", lambda side: side["latency"]["p99_s"]["mean"]),
            "latency_max_s": ("Float64", lambda side: side["latency"]["max_s"]["mean"]),
        }
        return frames.frame(({"name": name, **side} for name, side in self._sides.items()), columns)

    @cached_property
    def servers(self) -> pl.DataFrame:
        """One row a server and side: sub-requests, bytes, seconds busy, share of the time, longest queue."""
        rows = (
            {
                "side": name,
                "server": server["name"],
                **server,
                "busy_s": (busy_s := server["busy_s"]["mean"]),
                "busy_share": busy_s / time_s if (time_s := side["makespan_s"]["mean"]) else None,
            }
            for name, side in self._sides.items()
            for server in side["servers"]
        )
        first = {"side": "String", "server": "String", "requests": "UInt64", "bytes": "UInt64", "busy_s": "Float64"}
        last = {"busy_share": "Float64", "waiting_s": "Float64", "longest_queue": "UInt64"}
        return frames.of_records(rows, {**first, **last})

    @cached_property
    def timeline(self) -> pl.DataFrame:
        """One row a step of time, server and side: its start and end in seconds, share busy, queue, bytes."""
        rows = (
            {
                "side": name,
                "server": server["name"],
                "start_s": bin * line["bin_s"],
                "end_s": (bin + 1) * line["bin_s"],
                "busy": busy,
                "queue": queue,
                "bytes": moved,
            }
            for name, side in self._sides.items()
            if (line := side["timeline"]) is not None
            for server in line["servers"]
            for bin, (busy, queue, moved) in enumerate(
                zip(server["busy"], server["queue"], server["bytes"], strict=True)
            )
        )
        times = {"start_s": "Float64", "end_s": "Float64", "busy": "Float64", "queue": "Float64"}
        return frames.of_records(rows, {"side": "String", "server": "String", **times, "bytes": "UInt64"})

    def plot(self) -> Any:  # noqa: ANN401
        """How busy each server was when (an altair chart)."""
        from stripewise.api import busy_map

        return busy_map.chart(self)

    def _headline(self) -> str:
        sides = (
            f"{name} {mib_per_s(side['throughput']['mean'])} MiB/s in {seconds(side['makespan_s']['mean'])}"
            for name, side in self._sides.items()
        )
        gain = "" if self.ratio is None else f", layout / present {ratio(self.ratio)}"
        return f"Replayed on {self.on.label} as described: {'; '.join(sides)}{gain}"

    def __repr__(self) -> str:
        return f"<{self._headline()}>"

    def _repr_html_(self) -> str:
        return html.shown(self._headline(), self.frame(), [*self.heading, self.then])
