"""`stripewise advise`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from stripewise import _native
from stripewise.cli import console
from stripewise.cli.opened import opened
from stripewise.units import about_bytes, exact_bytes, mib_per_s, ratio

ROWS = 20
"""Kinds of files that are printed, and of which findings are; `--json` has all."""
STRIPES = 4
"""Entries of a round that are printed."""


def advise(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="A trace, or any log that Stripewise reads.")],
    cluster: Annotated[
        Path | None,
        typer.Option(
            "--cluster",
            metavar="C.toml",
            help="The servers: a cluster file or a pool file; else those that the log's Lustre layouts show.",
        ),
    ] = None,
    preset: Annotated[
        str, typer.Option("--preset", metavar="NAME", help="What servers that only the log shows are taken for.")
    ] = "hdd-7200",
    root: Annotated[
        Path | None,
        typer.Option(
            "--root",
            metavar="DIR",
            help="Only files below it; paths in the layout are relative to it. A pool's mount, else what all share.",
        ),
    ] = None,
    planner: Annotated[
        str | None,
        typer.Option(
            "--planner", metavar="NAME", help="Who plans: a name of `stripewise planners`; auto for few files."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="LAYOUT", help="Layout file to write, of what should change."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the advice as JSON.")] = False,
) -> None:
    """Say of any log where its files should be, what that gains, and what matters more.

    Files that are named alike but for numbers, laid out alike and used alike are one row. Each row has its present
    layout and what it waits for, and a better layout where the predicted gain is beyond doubt: no change is advised
    where the low end of its interval is below 1.03. The interval comes from simulations with several seeds, the model's
    own error, and what the log lacks; the reasons are printed. Findings beside the layouts come with their figures and
    their remedies.

    \b
    Examples:
      stripewise advise job.darshan
      stripewise advise job.darshan --cluster orion.toml -o new.layout
      stripewise advise run.trace --cluster p/pool.toml -o new.layout
      stripewise advise strace.log --cluster orion.toml --root /scratch/me --json
    """
    document = _native.advise(
        opened(log),
        None if cluster is None else str(cluster),
        root=None if root is None else str(root.absolute()),
        planner=planner,
        preset=preset,
    )
    if output is not None:
        output.write_text(document["layout"], encoding="utf-8")
    if as_json:
        console.result(json.dumps(document, indent=2))
    else:
        _print(document)
    if output is None:
        return
    if document["total"]["change"]:
        is_pool = document["cluster"]["file_system"] is None
        console.say(f"wrote {output}" + (f"; `stripewise apply {output} --pool POOL` sets it" if is_pool else ""))
    else:
        console.say(f"wrote {output}: it names no file, since none should change")


def _print(document: _native.AdviceDocument) -> None:
    cluster, total = document["cluster"], document["total"]
    tiers = ", ".join(
        f"{tier['servers']} {tier['name']}" + (f" ({tier['preset']})" if tier["preset"] else "")
        for tier in cluster["tiers"]
    )
    whose = "found in the log" if cluster["found"] else f"'{cluster['name']}'"
    console.result(f"servers {whose}: {tiers}; planned by {document['planner']}; paths below {document['root']}")
    files = document["files"]
    grid = console.table(
        ["files", "moved", "now", "MiB/s", "should be", "MiB/s ", "gain"], right=["moved", "MiB/s", "MiB/s ", "gain"]
    )
    for row in files[:ROWS]:
        better = row["recommended"]
        grid.add_row(
            row["path"] + (f" ({row['files']:,} files)" if row["files"] > 1 else ""),
            about_bytes(row["read_bytes"] + row["written_bytes"]),
            _layout(row["present"]) + ("?" if row["present"]["source"] == "default" else ""),
            mib_per_s(row["present"]["bytes_per_s"]),
            "no change" if better is None else _layout(better),
            "" if better is None else mib_per_s(better["bytes_per_s"]),
            "" if better is None else _gain(row["gain"]),
        )
    console.out.print(grid)
    if len(files) > ROWS:
        console.result(f"and {len(files) - ROWS} kinds of files more, see --json")
    if any(row["present"]["source"] == "default" for row in files):
        console.result("?: the log does not say; taken to be the default")
    console.result("")
    if total["change"]:
        console.result(
            f"all: {mib_per_s(total['present_bytes_per_s'])} MiB/s now, "
            f"{mib_per_s(total['recommended_bytes_per_s'])} MiB/s predicted: {_gain(total['gain'])}"
        )
        console.result("the interval allows for:")
        for reason in total["reasons"]:
            console.result(f"  {reason}")
        _print_space(total["space"])
    else:
        now = f"{mib_per_s(total['present_bytes_per_s'])} MiB/s, simulated"
        console.result(f"no change: no layout is faster beyond doubt than the present ones ({now})")
    _print_waiting(files[:ROWS])
    _print_findings(document)
    if total["left_out"]:
        console.result(f"no advice on {total['left_out']:,} files that together move less than 0.1 % of the bytes")


def _print_space(space: list[_native.AdviseSpace]) -> None:
    grid = console.table(["tier", "holds now", "would hold", "capacity"], right=["holds now", "would hold", "capacity"])
    for tier in space:
        limit = tier["capacity_bytes"]
        grid.add_row(
            tier["tier"],
            about_bytes(tier["present_bytes"]),
            about_bytes(tier["recommended_bytes"]),
            "-" if limit is None else about_bytes(limit),
        )
    console.result("")
    console.out.print(grid)


def _print_waiting(files: list[_native.AdviseFile]) -> None:
    console.result("")
    console.result("waits for:")
    for row in files:
        console.result(f"  {row['path']}: {row['present']['bottleneck']['words']}")


def _print_findings(document: _native.AdviceDocument) -> None:
    found = [("the whole run", finding) for finding in document["total"]["findings"]]
    found += [(row["path"], finding) for row in document["files"] for finding in row["findings"]]
    order = {"high": 0, "medium": 1, "low": 2}
    found.sort(key=lambda one: order[one[1]["severity"]])
    if not found:
        return
    console.result("")
    console.result("beside the layout:")
    for path, finding in found[:ROWS]:
        console.result(f"  {finding['severity']}: {path}: {finding['words']}")
        for remedy in finding["mend"]:
            console.result(f"    - {remedy}")
    if len(found) > ROWS:
        console.result(f"  and {len(found) - ROWS} more, see --json")


def _layout(placed: _native.AdvisePlaced) -> str:
    """`hdd.0-5:64KiB ssd.0-1:192KiB`, with the number of regions where there are several."""
    regions = placed["layout"]
    parts = regions[0]["round"]
    text = " ".join(parts[:STRIPES]) + (" ..." if len(parts) > STRIPES else "")
    if len(regions) > 1:
        text += f" then {len(regions) - 1} more from {exact_bytes(regions[1]['offset'])}"
    return text + (", others alike" if placed["spread"] else "")


def _gain(gain: _native.AdviseGain) -> str:
    return f"{ratio(gain['ratio'])} ({gain['low']:.2f} to {gain['high']:.2f})"
