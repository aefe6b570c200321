"""`survey`: many logs together, by application, user, directory and day, and what layout rules would gain over all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stripewise import surveying
from stripewise._native import StripewiseError, __version__
from stripewise.api import frames, html
from stripewise.api.frames import Schema
from stripewise.api.progress import Progress, told
from stripewise.api.servers import Named
from stripewise.units import about_bytes, counted, ratio

if TYPE_CHECKING:
    import polars as pl

SCHEMA_VERSION = 1
"""Of the document: it grows where keys are removed or get another meaning, and stays where some are added."""
UNKNOWN = "unknown"
"""The name of what a log does not say."""
BEYOND_DOUBT = 1.03
"""A log is faster under a rule from this low end of its gain's interval on, and slower the other way round."""
GROUPS = ("applications", "users", "directories", "days")


def survey(
    logs: Named | Iterable[Named],
    *,
    cluster: Named | None = None,
    preset: str = "hdd-7200",
    rules: bool = True,
    processes: int | None = None,
    dask: str | None = None,
    progress: Progress = False,
) -> Survey:
    """Looks at many logs, each by itself, and sums them up.

    `logs` are logs and directories of logs. Each log is read by one of this many `processes` (as many as there are
    processors), or by the workers of the Dask scheduler at `dask`, who see them under the same paths. A log that cannot
    be read stops nothing: it is among `failed`. With `rules`, layouts that all files might have are simulated, on the
    servers of the cluster or pool file, else on those that each log shows as `preset`. Raises `StripewiseError` where
    there is no log at all.
    """
    named = [logs] if isinstance(logs, str | os.PathLike) else list(logs)
    paths = [Path(path) for path in named]
    found = surveying.logs_of(paths)
    if not found:
        where = ", ".join(map(str, paths)) or "nothing"
        raise StripewiseError(f"there is no log in {where}: name logs, or directories that have some")
    # A mistake in it would be one of every log.
    asked = surveying.Asked(None if cluster is None else os.path.abspath(cluster), preset, rules)
    surveying.check(asked)
    with told(progress, "reading logs") as callback:
        tell: Callable[[int, int], object] = callback or (lambda *_: None)
        if dask is None:
            entries = surveying.by_processes(found, asked, processes or os.cpu_count() or 1, tell)
        else:
            entries = surveying.by_dask(found, asked, dask, tell)
        looked = {entry["log"]: entry for entry in entries}
    return Survey(summed_up([looked[str(path)] for path in found]))


def summed_up(entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The document of a survey from what single logs told."""
    good = [entry for entry in entries if entry["error"] is None]
    return {
        "schema": {"name": "stripewise-survey", "version": SCHEMA_VERSION},
        "stripewise": __version__,
        "total": {"logs": len(entries), "failed": len(entries) - len(good), **_total(good)},
        "applications": _grouped(good, lambda log: [(_application(log), log)]),
        "users": _grouped(good, lambda log: [(log["job"]["user"] or UNKNOWN, log)]),
        "directories": _by_directory(good),
        "days": sorted(_grouped(good, lambda log: [(_day(log), log)]), key=lambda row: str(row["name"])),
        "findings": _findings(good),
        "rules": _rules(good),
        "logs": good,
        "failed": [entry for entry in entries if entry["error"] is not None],
    }


def _application(log: dict[str, Any]) -> str:
    return log["programs"][0] if log["programs"] else UNKNOWN


def _day(log: dict[str, Any]) -> str:
    start_s = log["start_unix_s"]
    if not start_s:
        return UNKNOWN
    return datetime.fromtimestamp(start_s, UTC).date().isoformat()


def _by_directory(logs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Directories whose names differ by numbers alone are one row."""
    names: dict[str, set[str]] = {}
    for log in logs:
        for row in log["directories"]:
            names.setdefault(row["pattern"], set()).add(row["path"])
    rows = _grouped(logs, lambda log: [(row["pattern"], _of_directory(log, row)) for row in log["directories"]])
    for row in rows:
        (name, *others) = names[row["name"]]
        row["name"] = row["name"] if others else name
    return rows


def _of_directory(log: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """The part of a log that is of a directory; its time in proportion to the bytes."""
    moved = log["read_bytes"] + log["written_bytes"]
    share = (row["read_bytes"] + row["written_bytes"]) / moved if moved else 0.0
    busy_s = None if log["busy_s"] is None else log["busy_s"] * share
    return {**log, **row, "busy_s": busy_s}


def _total(logs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    timed = [log for log in logs if log["busy_s"] is not None]
    busy_s = sum(log["busy_s"] for log in timed) if timed else None
    moved = sum(log["read_bytes"] + log["written_bytes"] for log in timed)
    figures = ("files", "requests", "read_bytes", "written_bytes")
    return {
        **{name: sum(log[name] for log in logs) for name in figures},
        "busy_s": busy_s,
        "bytes_per_s": moved / busy_s if busy_s and moved else None,
    }


Parts = Callable[[dict[str, Any]], list[tuple[str, dict[str, Any]]]]
"""The names under which a log counts, each with what it counts as there."""


def _grouped(logs: Sequence[dict[str, Any]], parts_of: Parts) -> list[dict[str, Any]]:
    """A row a name, those with most bytes first; with the rule that would gain most."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for log in logs:
        for name, part in parts_of(log):
            groups.setdefault(name, []).append(part)
    rows = []
    for name, parts in groups.items():
        rules = _rules(parts)
        best = max(rules, key=lambda rule: rule["gain"], default=None)
        row = {"name": name, "logs": len({part["log"] for part in parts}), **_total(parts)}
        rows.append({**row, "best_rule": best if best and best["low"] >= BEYOND_DOUBT else None})
    return sorted(rows, key=lambda row: (-row["read_bytes"] - row["written_bytes"], row["name"]))


def _findings(logs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row a kind of finding: in how many logs it is, in how many gravely, and of which applications these are."""
    found: dict[str, dict[str, Any]] = {}
    # The applications of those logs that moved most come first.
    for log in sorted(logs, key=lambda log: -log["read_bytes"] - log["written_bytes"]):
        for finding in log["findings"]:
            row = found.setdefault(
                finding["kind"], {"kind": finding["kind"], "logs": 0, "high": 0, "bytes": 0, "applications": []}
            )
            row["logs"] += 1
            row["high"] += finding["severity"] == "high"
            row["bytes"] += log["read_bytes"] + log["written_bytes"]
            if _application(log) not in row["applications"]:
                row["applications"].append(_application(log))
    return sorted(found.values(), key=lambda row: (-row["high"], -row["logs"], row["kind"]))


def _rules(logs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What each rule would gain over all logs that it was tried on: the sum of their times now over the sum then.

    The time of a log is that in which it had requests in flight; where it has no times, the predicted one. The interval
    is what all logs would give at the low, and at the high ends of theirs: an upper bound of its width.
    """
    sums: dict[str, dict[str, float]] = {}
    words: dict[str, str] = {}
    for log in logs:
        moved = log["read_bytes"] + log["written_bytes"]
        predicted = moved / log["predicted_bytes_per_s"] if log["predicted_bytes_per_s"] else 0.0
        now_s = predicted if log["busy_s"] is None else log["busy_s"]
        for rule in log["rules"]:
            words[rule["name"]] = rule["words"]
            of_rule = sums.setdefault(
                rule["name"], dict.fromkeys(("logs", "faster", "slower", "now_s", "then_s", "least_s", "most_s"), 0)
            )
            of_rule["logs"] += 1
            of_rule["faster"] += rule["low"] >= BEYOND_DOUBT
            of_rule["slower"] += rule["high"] <= 1 / BEYOND_DOUBT
            of_rule["now_s"] += now_s
            of_rule["then_s"] += now_s / rule["ratio"]
            of_rule["least_s"] += now_s / rule["high"]
            of_rule["most_s"] += now_s / rule["low"]
    rows = []
    for name, of in sums.items():
        gains = {
            gain: of["now_s"] / of[time] if of[time] else 1.0
            for gain, time in (("gain", "then_s"), ("low", "most_s"), ("high", "least_s"))
        }
        counts = {count: int(of[count]) for count in ("logs", "faster", "slower")}
        rows.append(
            {"name": name, "words": words[name], **counts, "now_s": of["now_s"], "then_s": of["then_s"], **gains}
        )
    return sorted(rows, key=lambda row: -float(row["gain"]))


class Survey:
    """Many logs together."""

    def __init__(self, document: dict[str, Any]) -> None:
        """Takes what `survey` has found."""
        self.document = document
        """What `stripewise survey --json` prints; `schema` says of which version it is."""

    @cached_property
    def logs(self) -> pl.DataFrame:
        """One row a log: its job, what it moved, how fast; `error` where it could not be read, and nothing else."""
        schema: Schema = {
            "log": "String",
            "error": "String",
            "job": "String",
            "user": "String",
            "application": "String",
            "processes": "UInt64",
            "start_unix_s": "Float64",
            "run_s": "Float64",
            "files": "UInt64",
            "requests": "UInt64",
            "read_bytes": "UInt64",
            "written_bytes": "UInt64",
            "busy_s": "Float64",
            "bytes_per_s": "Float64",
        }
        rows = []
        for log in self.document["logs"]:
            job = {"job": log["job"]["id"], "user": log["job"]["user"], "application": _application(log)}
            rows.append({**log, **job})
        rows += [{**dict.fromkeys(schema), **entry} for entry in self.document["failed"]]
        return frames.of_records(rows, schema)

    @cached_property
    def applications(self) -> pl.DataFrame:
        """One row an application, those with most bytes first; `best_rule` where one gains beyond doubt."""
        return self._group("applications")

    @cached_property
    def users(self) -> pl.DataFrame:
        """One row a user, as of applications."""
        return self._group("users")

    @cached_property
    def directories(self) -> pl.DataFrame:
        """One row a directory, numbers in it as `*`. The time of a log is parted by bytes."""
        return self._group("directories")

    @cached_property
    def days(self) -> pl.DataFrame:
        """One row a day (UTC) on which jobs began."""
        return self._group("days")

    @cached_property
    def rules(self) -> pl.DataFrame:
        """One row a layout rule: what it would gain over all logs, in how many it is faster or slower beyond doubt."""
        schema: Schema = {
            **{"name": "String", "words": "String", "logs": "UInt64", "faster": "UInt64", "slower": "UInt64"},
            **dict.fromkeys(("now_s", "then_s", "gain", "low", "high"), "Float64"),
        }
        return frames.of_records(self.document["rules"], schema)

    def _group(self, name: str) -> pl.DataFrame:
        schema: Schema = {
            **dict.fromkeys(("name",), "String"),
            **dict.fromkeys(("logs", "files", "requests", "read_bytes", "written_bytes"), "UInt64"),
            **dict.fromkeys(("busy_s", "bytes_per_s"), "Float64"),
            **{"best_rule": "String", "gain": "Float64"},
        }
        rows = []
        for row in self.document[name]:
            best = row["best_rule"]
            of_best = {"best_rule": best and best["name"], "gain": best and best["gain"]}
            rows.append({**row, **of_best})
        return frames.of_records(rows, schema)

    def words(self) -> str:
        """All of it in a sentence: how much was moved, and what a rule would gain."""
        total = self.document["total"]
        moved = about_bytes(total["read_bytes"] + total["written_bytes"])
        failed = f", {total['failed']:,} of them could not be read" if total["failed"] else ""
        best = next(iter(self.document["rules"]), None)
        if best is None:
            gain = "no layout rule could be tried"
        elif best["low"] >= BEYOND_DOUBT:
            between = f"between {ratio(best['low'])} and {ratio(best['high'])}"
            gain = (
                f"all files on {best['words']}, would make the {counted(best['logs'], 'log')} with known servers "
                f"{ratio(best['gain'])} as fast ({between}, predicted)"
            )
        else:
            logs = counted(best["logs"], "log")
            gain = f"no one layout for all files gains beyond doubt over the {logs} with known servers"
        return f"{counted(total['logs'], 'log')}{failed}: {moved} moved; {gain}"

    def __repr__(self) -> str:
        return f"<Survey of {self.words()}>"

    def _repr_html_(self) -> str:
        return html.shown(self.words(), self.applications)
