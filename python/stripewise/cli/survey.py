"""`stripewise survey`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stripewise.api import survey as api
from stripewise.cli import console
from stripewise.cli.advised import PRESET, PresetOption, ServersOption
from stripewise.units import about_bytes, counted, mib_per_s, ratio, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

ROWS = 10
"""Rows of a group that are printed."""
PROGRAMS = 3
"""Programs that are named beside a finding."""
SINGULAR = {"applications": "application", "users": "user", "directories": "directory", "days": "day (UTC)"}


def survey(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG...", help="Logs, and directories of logs.")],
    cluster: ServersOption = None,
    preset: PresetOption = PRESET,
    rules: Annotated[
        bool, typer.Option("--rules/--no-rules", help="Simulate what layouts for all files would gain.")
    ] = True,
    processes: Annotated[
        int | None, typer.Option("--processes", metavar="N", min=1, help="Logs read at once; as many as processors.")
    ] = None,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Have the workers of this Dask scheduler read the logs.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON, every log.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="List every row, however many.")] = False,
) -> None:
    """Sum up many logs: by application, user, directory and day, and what layout rules would gain over all of them.

    Each log is read by itself, by processes of this machine or by Dask workers that see it under the same path. One
    that cannot be read is listed at the end and stops nothing. A rule is a layout that all files would have, such as 4
    servers and 1 MiB; it is simulated with the requests of each log. The gain over all is the sum of the logs' times
    with requests in flight, now and then. In directories, only what looks like a log is one.

    \b
    Examples:
      stripewise survey /logs/2026/11
      stripewise survey a.darshan b.darshan --cluster orion.toml
      stripewise survey /logs --json > survey.json
      stripewise survey /logs --dask tcp://node1:8786

    \b
    Exit code: 0 where at least one log could be read, else 1.
    """
    with console.counting("reading logs") as progress:
        made = api.survey(
            logs, cluster=cluster, preset=preset, rules=rules, processes=processes, dask=dask, progress=progress
        )
    document = made.document
    if as_json:
        console.document(document)
    else:
        _print(made, everything=everything)
    raise SystemExit(0 if document["logs"] else console.EXIT_FAILED)


def _print(made: api.Survey, *, everything: bool) -> None:
    document = made.document
    console.result(made.words())
    if document["rules"]:
        console.result("")
        _rules(document["rules"])
    if document["findings"]:
        console.result("")
        _findings(_first(document["findings"], everything))
    for group in api.GROUPS:
        rows = document[group]
        if rows and [row["name"] for row in rows] != [api.UNKNOWN]:
            console.result("")
            # The days are in their order: of many the last ones count.
            is_latest = group == "days" and not everything
            _group(SINGULAR[group], rows[-ROWS:] if is_latest else _first(rows, everything))
            if len(rows) > ROWS and not everything:
                console.result(f"and {len(rows) - ROWS:,} {'earlier' if is_latest else 'more'}, see --all")
    _without(document["logs"])
    _failed(document["failed"], everything=everything)


def _first(rows: Sequence[dict[str, Any]], everything: bool) -> Sequence[dict[str, Any]]:
    return rows if everything else rows[:ROWS]


def _rules(rules: Sequence[dict[str, Any]]) -> None:
    right = ["time now", "then", "gain", "between", "logs", "faster", "slower"]
    grid = console.table(["all files on", *right], right=right)
    console.result("what one layout for all files would gain (servers x stripe size):")
    for rule in rules:
        grid.add_row(
            rule["name"],
            seconds(rule["now_s"]),
            seconds(rule["then_s"]),
            ratio(rule["gain"]),
            f"{rule['low']:.2f} and {rule['high']:.2f}",
            f"{rule['logs']:,}",
            f"{rule['faster']:,}",
            f"{rule['slower']:,}",
        )
    console.out.print(grid)
    for rule in rules:
        # The others say what they are.
        if " x " not in rule["name"]:
            console.result(f"{rule['name']}: {rule['words']}")


def _findings(findings: Sequence[dict[str, Any]]) -> None:
    right = ["logs", "grave in", "moved by these"]
    grid = console.table(["found", *right, "programs"], right=right)
    for row in findings:
        programs = ", ".join(row["applications"][:PROGRAMS])
        more = len(row["applications"]) - PROGRAMS
        of = programs + (f" and {more:,} more" if more > 0 else "")
        grid.add_row(row["kind"], f"{row['logs']:,}", f"{row['high']:,}", about_bytes(row["bytes"]), of)
    console.out.print(grid)


def _group(name: str, rows: Sequence[dict[str, Any]]) -> None:
    right = ["logs", "read", "written", "time", "MiB/s", "gain"]
    grid = console.table([name, *right, "best rule"], right=right, paths=[name])
    for row in rows:
        best = row["best_rule"]
        grid.add_row(
            row["name"],
            f"{row['logs']:,}",
            about_bytes(row["read_bytes"]),
            about_bytes(row["written_bytes"]),
            "-" if row["busy_s"] is None else seconds(row["busy_s"]),
            "-" if row["bytes_per_s"] is None else mib_per_s(row["bytes_per_s"]),
            "" if best is None else ratio(best["gain"]),
            "" if best is None else best["name"],
        )
    console.out.print(grid)


def _without(logs: Sequence[dict[str, Any]]) -> None:
    """Logs on which no rule was tried, by the reason."""
    reasons: dict[str, int] = {}
    for log in logs:
        if log["no_rules"] is not None:
            reasons[log["no_rules"]] = reasons.get(log["no_rules"], 0) + 1
    for reason, count in sorted(reasons.items(), key=lambda reason: -reason[1])[:3]:
        console.say(f"no rule was tried on {counted(count, 'log')}: {reason}")


def _failed(failed: Sequence[dict[str, Any]], *, everything: bool) -> None:
    for entry in console.shown(failed, everything=everything):
        console.warn(entry["error"])
    console.say_more(failed, "logs that could not be read", everything=everything, otherwise=", --json has them")
