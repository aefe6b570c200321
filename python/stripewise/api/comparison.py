"""`compare`: two runs, or two layouts, side by side."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from stripewise import layouts
from stripewise._native import StripewiseError
from stripewise.api import frames, html
from stripewise.api.servers import Named
from stripewise.api.simulation import Simulation, simulate
from stripewise.api.trace import Trace
from stripewise.pool import Pool
from stripewise.units import about_bytes, exact_bytes, mib_per_s, ratio

if TYPE_CHECKING:
    import polars as pl

OPS = ("reads", "writes")
OTHER_WORK = 0.5
"""Runs are of different work where their shares of bytes read differ by this."""


def compare(a: Trace, b: Trace) -> Comparison:
    """Two runs side by side: what each moved, in which requests, how fast, and which files differ most.

    Files are the same where their names are, but for numbers, or else the names below the directory that the files of
    a run share.
    """
    runs = [_run(trace) for trace in (a, b)]
    ratios = {name: _ratio(*(run[name] for run in runs)) for name in ("bytes_per_s", "busy_s", "run_s")}
    files = _files(*(run.pop("files_of") for run in runs))
    return Comparison({"runs": runs, "ratio": ratios, "files": files})


class Comparison:
    """Two runs; the first is `a`, the second `b`."""

    def __init__(self, document: dict[str, Any]) -> None:
        """Takes what `compare` has found."""
        self.document = document
        """What `stripewise compare --json` prints for two runs. Ratios are those of the second to the first."""

    @cached_property
    def runs(self) -> pl.DataFrame:
        """A row a run: its log, programs, processes, seconds, files, and what was read and written how fast."""
        schema = {"log": "String", "format": "String", "programs": "List(String)", "processes": "UInt64"}
        schema |= {"run_s": "Float64", "busy_s": "Float64", "bytes_per_s": "Float64", "files": "UInt64"}
        rows = [{**run, **_flat(run)} for run in self.document["runs"]]
        return frames.of_records(rows, {**schema, **_flat_schema("")})

    @cached_property
    def files(self) -> pl.DataFrame:
        """A row a file, or files named alike, those first whose time differs most; null where a run has none."""
        rows = []
        for file in self.document["files"]:
            sides = {side: file[side] or {} for side in ("a", "b")}
            row: dict[str, Any] = {"path": file["path"]}
            for side, of in sides.items():
                row |= {f"{side}_files": of.get("files"), f"{side}_layout": of.get("layout")}
                row |= {f"{side}_{name}": value for name, value in _flat(of).items()}
            rows.append(row)
        schema = {"path": "String"}
        for side in ("a", "b"):
            schema |= {f"{side}_files": "UInt64", f"{side}_layout": "String", **_flat_schema(f"{side}_")}
        return frames.of_records(rows, schema)

    def words(self) -> str:
        """Which run was faster, and by how much."""
        a, b = self.document["runs"]
        rate, time = self.document["ratio"]["bytes_per_s"], self.document["ratio"]["busy_s"]
        if rate is None or time is None:
            unknown = " and ".join(run["log"] for run in (a, b) if run["bytes_per_s"] is None)
            return f"which is faster is not known: no bytes or no times are in {unknown}"
        differ = _other_work(a, b)
        if differ is not None:
            rates = " and ".join(mib_per_s(run["bytes_per_s"]) for run in (a, b))
            return f"the two runs do different work, so neither is called faster: {differ}, at {rates} MiB/s"
        moved = sum(b[op]["bytes"] for op in OPS) / sum(a[op]["bytes"] for op in OPS)
        what = "the same bytes" if abs(moved - 1) < 0.005 else f"{ratio(moved)} the bytes"
        faster = f"{ratio(rate)} as fast as" if abs(rate - 1) >= 0.02 else "as fast as"
        return (
            f"B is {faster} A while requests are in flight: {mib_per_s(a['bytes_per_s'])} MiB/s become "
            f"{mib_per_s(b['bytes_per_s'])}, and it moves {what} in {ratio(time)} the time"
        )

    def __repr__(self) -> str:
        return f"<Comparison: {self.words()}>"

    def _repr_html_(self) -> str:
        return html.shown(self.words(), self.files)


def _other_work(a: dict[str, Any], b: dict[str, Any]) -> str | None:
    """In words, where one run mostly reads and the other mostly writes: their rates are not of the same thing."""
    reads = [run["reads"]["bytes"] / sum(run[op]["bytes"] for op in OPS) for run in (a, b)]
    if abs(reads[0] - reads[1]) < OTHER_WORK:
        return None
    return ", ".join(
        f"{name} reads {about_bytes(run['reads']['bytes'])} and writes {about_bytes(run['writes']['bytes'])}"
        for name, run in (("A", a), ("B", b))
    )


def _ratio(a: float | None, b: float | None) -> float | None:
    return b / a if a and b is not None else None


def _flat(of: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{op}_{name}": of[op][name] if of else None for op in OPS for name in ("requests", "bytes", "rate_bytes_per_s")
    }


def _flat_schema(prefix: str) -> dict[str, str]:
    figures = {"requests": "UInt64", "bytes": "UInt64", "rate_bytes_per_s": "Float64"}
    return {f"{prefix}{op}_{name}": kind for op in OPS for name, kind in figures.items()}


def _run(trace: Trace) -> dict[str, Any]:
    about = trace.about
    numbers = list(range(len(trace.paths)))
    (total,) = trace.native.summaries([numbers])
    busy_s = trace.native.busy_s(numbers)
    untimed = busy_s is None
    moved = sum(total[op]["bytes"] for op in OPS)
    layouts_of = {row["file"]: _striping(row["components"]) for row in trace.native.lustre_layouts()}
    groups = [
        {
            "path": group["path"],
            "pattern": group["pattern"],
            "files": group["files"],
            "layout": layouts_of.get(group["id"]),
            **_side(group, untimed=untimed),
        }
        for group in trace.groups()
        if any(group[op]["requests"] for op in OPS)
    ]
    return {
        "log": str(trace.path),
        "format": about["format"],
        "job": trace.job,
        "programs": trace.programs,
        "processes": about["processes"] or len(trace.native.processes()),
        "run_s": about["run_s"],
        "busy_s": busy_s,
        "bytes_per_s": moved / busy_s if busy_s and moved else None,
        "files": sum(group["files"] for group in groups),
        **_side(total, untimed=untimed),
        "files_of": groups,
    }


def _side(of: dict[str, Any], *, untimed: bool) -> dict[str, Any]:
    """Reads and writes of a summary; without times where these are not those of the run."""
    figures = ("requests", "bytes", "median_bytes", "busy_s", "rate_bytes_per_s", "mean_concurrency")
    timed = {"busy_s", "rate_bytes_per_s", "mean_concurrency"}
    sides: dict[str, Any] = {
        op: {name: None if untimed and name in timed else of[op][name] for name in figures} for op in OPS
    }
    return {**sides, "ranks": len(of["ranks"])}


def _striping(components: list[Any]) -> str:
    """`4 x 1MiB` as Lustre had it; the first component of a progressive layout, and how many follow."""
    first = components[0]
    more = f", then {len(components) - 1} more" if len(components) > 1 else ""
    return f"{first['stripe_count']} x {exact_bytes(first['stripe_bytes'])}{more}"


def _files(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The files of both, those first whose times differ most, then those with most bytes."""
    of_b = {file["pattern"]: file for file in b}
    pairs: list[tuple[dict[str, Any] | None, dict[str, Any] | None]] = []
    alone = []
    for file in a:
        other = of_b.pop(file["pattern"], None)
        if other is None:
            alone.append(file)
        else:
            pairs.append((file, other))
    # What has no namesake may have been in another directory.
    below = _below(list(of_b.values()))
    for name, file in _below(alone).items():
        other = below.pop(name, None)
        pairs.append((file, other))
    pairs.extend((None, other) for other in below.values())

    def weight(pair: tuple[dict[str, Any] | None, dict[str, Any] | None]) -> tuple[float, float]:
        times = [sum(file[op]["busy_s"] or 0.0 for op in OPS) if file else 0.0 for file in pair]
        return -abs(times[1] - times[0]), -sum(file[op]["bytes"] for file in pair if file for op in OPS)

    rows = []
    for first, second in sorted(pairs, key=weight):
        named = first or second
        assert named is not None
        rows.append({"path": named["path"], "a": first, "b": second})
    return rows


def _below(files: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The files by their names below the directory that they share."""
    directories = [str(PurePosixPath(file["pattern"]).parent) for file in files]
    try:
        shared = os.path.commonpath(directories) if directories else ""
    except ValueError:  # some are relative, and to what is not known
        shared = ""
    return {os.path.relpath(file["pattern"], shared) if shared else file["pattern"]: file for file in files}


def compare_layouts(
    a: Named,
    b: Named,
    *,
    trace: Trace | None = None,
    pool: Named | Pool | None = None,
    cluster: Named | None = None,
    root: Named | None = None,
) -> dict[str, Any]:
    """Two layout files side by side, and both simulated where a `trace` and servers are given.

    The document has the layout of each file in both, `None` where a file is in one alone, and `simulated`: bytes per
    second of present layouts, of those of `a` and of those of `b`, each with half of its 95 % interval, on servers as
    they are described. `now_then` has what each makes of the job by the model that advice has, in words `heading` and
    `then`.
    """
    documents = [layouts.read(Path(path)) for path in (a, b)]
    regions = [
        {
            file["path"]: [{"offset": region["offset"], "round": region["round"]} for region in file["regions"]]
            for file in document["files"]
        }
        for document in documents
    ]
    paths = list(dict.fromkeys(path for of_one in regions for path in of_one))
    files = [{"path": path, "a": regions[0].get(path), "b": regions[1].get(path)} for path in paths]
    simulated: dict[str, Any] | None = None
    priced: list[Simulation] = []
    if trace is not None:
        priced = [simulate(trace, pool=pool, cluster=cluster, layout=path, root=root) for path in (a, b)]
        of_a, of_b = (of.document for of in priced)
        sides = {"present": of_a["present"], "a": of_a["layout"], "b": of_b["layout"]}
        simulated = {name: side["throughput"] for name, side in sides.items() if side is not None}
        simulated["ratio"] = _ratio(simulated["a"]["mean"], simulated["b"]["mean"])
    elif pool is not None or cluster is not None:
        raise StripewiseError("servers are for a simulation of both layouts, which needs a trace: name one")
    return {
        "layouts": [str(a), str(b)],
        "heading": priced[0].heading if priced else [],
        "then": [of.then for of in priced],
        "now_then": [of.now_then for of in priced],
        "files": files,
        "simulated": simulated,
    }
