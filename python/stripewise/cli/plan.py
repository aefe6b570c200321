"""`stripewise plan`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stripewise.api import plan as api
from stripewise.api.alike import planned_alike
from stripewise.api.servers import Servers
from stripewise.cli import console
from stripewise.cli.finite import finite
from stripewise.cli.opened import opened
from stripewise.cli.opening import show_lines
from stripewise.units import about_bytes, exact_bytes, mib_per_s, seconds

if TYPE_CHECKING:
    from stripewise.api.alike import PlannedAlike
    from stripewise.api.documents import ComparedPlanner, PlannerComparison
    from stripewise.cli.console import Grid

PlannerOption = Annotated[
    str, typer.Option("--planner", metavar="NAME", help="The planner: a name of `stripewise planners`.")
]


def plan(
    trace: Annotated[Path, typer.Argument(metavar="T", help="Trace of a run of the program, or a log.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="LAYOUT", help="Layout file to write.")],
    pool_file: Annotated[Path | None, typer.Option("--pool", "-p", metavar="POOL", help="Pool file.")] = None,
    cluster: Annotated[
        Path | None,
        typer.Option("--cluster", "-c", metavar="CLUSTER", help="Cluster file, in place of a pool that is at hand."),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(
            "--root",
            metavar="DIR",
            help="The trace's directory that stands for the mount; the mount itself, or the common one.",
        ),
    ] = None,
    planner: PlannerOption = "auto",
    processes: Annotated[
        float | None,
        typer.Option(
            "--processes",
            metavar="P",
            min=1,
            callback=finite,
            help="Requests in flight to plan for; from the trace if left out.",
        ),
    ] = None,
    max_regions: Annotated[
        int | None, typer.Option("--max-regions", metavar="N", min=1, help="Most regions of a file; 128 if left out.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="List every file, however many.")] = False,
) -> None:
    """Plan which part of which file goes to which servers, in stripes how wide.

    A plan splits each file into regions that are used alike, and gives each region its round of servers and widths.
    Cost is the planner's price: the time in which the region's requests are in flight, under stripes of one width over
    all servers (default), under HARL's plan and under this one. Files that are named and laid out alike are one row.
    Space limits of tiers hold over all regions and files. Nothing is changed: see `apply`. The first lines are the job,
    and what the model of `advise`, whose servers are fitted to the log, makes of it now and under the plan.

    The planner `auto` prices what every planner of `stripewise planners` would do, simulates the best few with the
    requests of the trace, takes the best, and prints by how much each other lost and why. A planner named here is taken
    as it is, except where the default is better by its own price, or its layouts do not fit.

    \b
    Examples:
      stripewise plan run.trace --pool p/pool.toml -o new.layout
      stripewise plan job.darshan --pool p/pool.toml --root /lustre/project \\
          -o new.layout
      stripewise plan run.trace --pool p/pool.toml --planner harl-paper \\
          -o harl.layout
      stripewise plan job.darshan --cluster orion.toml -o new.layout
    """
    if (pool_file is None) == (cluster is None):
        console.fail("say what to plan for: --pool POOL or --cluster CLUSTER", console.EXIT_USAGE)
    # Read first: a mistake there is told before a long log is read.
    servers = Servers.of(pool_file, cluster)
    run = opened(trace)
    made = api.plan(
        run,
        pool=servers.pool,
        cluster=servers.cluster,
        planner=planner,
        root=root,
        processes=processes,
        max_regions=max_regions,
    )
    made.save(output)
    if as_json:
        document = {**made.document, "hints": made.hints, "now_then": made.now_then, "about": run.about}
        console.document(document)
    else:
        show_lines((*made.heading, made.then))
        _print(made, everything=everything)
    gain = made.now_then["gain"]
    if gain is not None and gain["ratio"] < 1:
        console.warn("with servers fitted to the log this plan is slower than what there is: see `stripewise advise`")
    how = f"apply {output} --pool {pool_file}" if cluster is None else f"export {output} --cluster {cluster}"
    console.say(f"wrote {output}; `stripewise {how}` sets it")


def _regions(row: PlannedAlike) -> Grid:
    """The regions of a file, or of files that are laid out alike: sizes and costs are of all of them."""
    columns = ["region", "size", "heat", "layout before", "layout after", "default", "HARL", "plan"]
    title = console.how_many(row.path, len(row.files)) + (", on other servers each" if row.spread else "")
    grid = console.table(columns, title=title, right=["size", "heat", "default", "HARL", "plan"])
    for region, size in zip(row.regions, row.sizes_bytes, strict=True):
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
    return grid


def _print(made: api.Plan, *, everything: bool) -> None:
    document, label = made.document, made.servers.label
    in_flight = f"{document['processes']:.1f} requests in flight"
    console.result(f"plan by {document['planner']} for {label}, {in_flight}")
    if document["kept_default"]:
        console.say(f"by its own price {document['planner']} cannot better the default: it is kept")
    if document["sampled"] is not None:
        console.say(document["sampled"])
    if document["limited_by_space"] is not None:
        console.say(document["limited_by_space"])
    # `--all` lists each file by itself, largest first as well.
    rows = planned_alike(document["files"], apart=everything)
    for row in console.shown(rows, everything=everything):
        console.out.print(_regions(row))
    console.say_more(rows, "rows of files", everything=everything, otherwise=", the layout file has everything")
    totals = console.table(
        ["layout", "planner's price", "MiB/s"],
        right=["planner's price", "MiB/s"],
    )
    costs = document["cost_s"]
    for label, cost_s in {"default": costs["default"], "HARL": costs["harl"], "plan": costs["plan"]}.items():
        totals.add_row(label, _cost(cost_s), mib_per_s(document["bytes"] / cost_s) if cost_s else "-")
    console.out.print()
    console.result(
        "by the planner's own price, with servers as they are described; default is one width over all servers:"
    )
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
    if document["comparison"] is not None:
        _print_comparison(document["planner"], document["comparison"])
    for line in made.hint_lines:
        console.result(line)


def _print_comparison(winner: str, comparison: PlannerComparison) -> None:
    """Every planner, the best first, with how much longer its time is than the winner's."""
    figures = ["regions", "predicted", "simulated"]
    grid = console.table(["planner", *figures, "lost by"], right=figures)
    for row in sorted(comparison["planners"], key=lambda row: _order(row, winner)):
        grid.add_row(
            row["planner"],
            "-" if row["regions"] is None else str(row["regions"]),
            "-" if row["predicted_s"] is None else seconds(row["predicted_s"]),
            "-" if row["simulated_s"] is None else seconds(row["simulated_s"]),
            "taken" if row["planner"] == winner else _loss(row),
        )
    console.out.print()
    console.out.print(grid)
    for reason in comparison["why"]:
        console.result(f"{winner} {reason}")


def _order(row: ComparedPlanner, winner: str) -> tuple[bool, bool, float, float]:
    """The winner, then those that fit by simulated time, by predicted time where they were not simulated."""
    unknown = float("inf")
    simulated, predicted = row["simulated_s"], row["predicted_s"]
    return (
        row["planner"] != winner,
        bool(row["excess_bytes"]) or row["error"] is not None,
        unknown if simulated is None else simulated,
        unknown if predicted is None else predicted,
    )


def _loss(row: ComparedPlanner) -> str:
    if row["excess_bytes"]:
        return f"does not fit: {about_bytes(row['excess_bytes'])} too much"
    if row["error"] is not None:
        return row["error"]
    losses = {"simulated": row["simulated_loss"], "predicted": row["predicted_loss"]}
    return ", ".join(_longer(loss, how) for how, loss in losses.items() if loss is not None)


def _longer(loss: float, how: str) -> str:
    """A share by which a time is longer, from twice as long on as a ratio: 1094 % is hard to read."""
    if loss < 1:
        # Without the sign of a loss that rounds to nothing.
        return f"{round(loss * 100, 1) + 0.0:.1f} % ({how})"
    ratio = loss + 1
    return f"{ratio:.1f}x slower ({how})" if ratio < 10 else f"{ratio:,.0f}x slower ({how})"


def _cost(cost_s: float | None) -> str:
    """A predicted time; HARL has none where its plan does not fit."""
    return "does not fit" if cost_s is None else seconds(cost_s)
