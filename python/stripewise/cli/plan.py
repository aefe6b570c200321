"""`stripewise plan`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from stripewise import _native
from stripewise._native import StripewiseError, Trace
from stripewise.cli import console
from stripewise.cli.run import PoolOption
from stripewise.pool import Pool
from stripewise.units import about_bytes, exact_bytes, mib_per_s, seconds

PLANNERS = ("ours", "harl")


def plan(
    trace: Annotated[Path, typer.Argument(metavar="T", help="Trace of a run of the program.")],
    pool_file: PoolOption,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="LAYOUT", help="Layout file to write.")],
    root: Annotated[
        Path | None,
        typer.Option(
            "--root", metavar="DIR", help="The trace's directory that stands for the mount; the mount itself."
        ),
    ] = None,
    planner: Annotated[
        str, typer.Option("--planner", metavar="NAME", help="ours, or harl: the paper's own, without space limits.")
    ] = "ours",
    processes: Annotated[
        float | None,
        typer.Option(
            "--processes", metavar="P", min=1, help="Requests in flight to plan for; from the trace if left out."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Plan which part of which file goes to which servers, in stripes how wide.

    A plan splits each file into regions that are used alike, and gives each region its round of servers and widths.
    Cost is the predicted time in which the region's requests are in flight, under the pool's default layout, under
    HARL's plan and under this one. Space limits of tiers hold over all regions and files. Nothing is changed: see
    `apply`.

    \b
    Examples:
      stripewise plan run.trace --pool p/pool.toml -o new.layout
      stripewise plan run.trace --pool p/pool.toml --root /lustre/project -o new.layout
      stripewise plan run.trace --pool p/pool.toml --planner harl -o harl.layout
    """
    if planner not in PLANNERS:
        raise StripewiseError(f"--planner {planner}: there is {' and '.join(PLANNERS)}")
    pool = Pool.load(pool_file)
    pool.require_profiles()
    document = _native.plan(
        Trace(str(trace)),
        str(pool.file),
        str((root or pool.mount).absolute()),
        planner=planner,
        processes=processes,
    )
    output.write_text(document["layout"], encoding="utf-8")
    if as_json:
        console.result(json.dumps(document, indent=2))
    else:
        _print(pool, document)
    console.say(f"wrote {output}; `stripewise apply {output} --pool {pool_file}` sets it")


def _print(pool: Pool, document: _native.PlanDocument) -> None:
    console.result(f"plan for pool '{pool.name}' ({pool.label}), {document['processes']:.1f} requests in flight")
    if document["sampled"] is not None:
        console.say(document["sampled"])
    columns = ["region", "size", "heat", "layout before", "layout after", "default", "HARL", "plan"]
    for file in document["files"]:
        grid = console.table(columns, title=file["path"], right=["size", "heat", "default", "HARL", "plan"])
        for region in file["regions"]:
            size = region["end"] - region["offset"]
            moved = region["read_bytes"] + region["write_bytes"]
            grid.add_row(
                f"{exact_bytes(region['offset'])}..{exact_bytes(region['end'])}",
                about_bytes(size),
                f"{moved / size:.2f}" if size else "-",
                " ".join(region["round_before"]),
                " ".join(region["round"]),
                seconds(region["cost_s"]["default"]),
                _cost(region["cost_s"]["harl"]),
                seconds(region["cost_s"]["plan"]),
            )
        console.out.print(grid)
    totals = console.table(["layout", "predicted", "MiB/s"], right=["predicted", "MiB/s"])
    costs = document["cost_s"]
    for label, cost_s in {"default": costs["default"], "HARL": costs["harl"], "plan": costs["plan"]}.items():
        totals.add_row(label, _cost(cost_s), mib_per_s(document["bytes"] / cost_s) if cost_s else "-")
    console.out.print()
    console.out.print(totals)
    space = console.table(
        ["tier", "servers", "default", "planned", "capacity"], right=["servers", "default", "planned"]
    )
    for tier in document["space"]:
        limit = tier["capacity_bytes"]
        space.add_row(
            tier["tier"],
            str(tier["servers"]),
            about_bytes(tier["default_bytes"]),
            about_bytes(tier["planned_bytes"]),
            about_bytes(limit) if limit is not None else "-",
        )
    console.out.print()
    console.out.print(space)


def _cost(cost_s: float | None) -> str:
    """A predicted time; HARL has none where its plan does not fit."""
    return "does not fit" if cost_s is None else seconds(cost_s)
