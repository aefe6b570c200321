"""`stripewise simulate`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from stripewise.api import orchestrating, together
from stripewise.api import simulation as api
from stripewise.api.servers import Servers
from stripewise.cli import concurrent, console
from stripewise.cli.finite import finite
from stripewise.cli.opened import opened
from stripewise.cli.opening import show_lines
from stripewise.units import about_bytes, mib_per_s, ratio, seconds

if TYPE_CHECKING:
    from stripewise.api.documents import (
        AdviseFile,
        Estimate,
        ReplayedSide,
        ReplayedTimeline,
        SimulationAround,
        SimulationDocument,
    )

BINS = 60
"""Least number of characters of a printed time line; it has at most twice as many."""
LEVELS = " ▁▂▃▄▅▆▇█"
LATENCIES = {"mean": "mean_s", "median": "p50_s", "95 %": "p95_s", "99 %": "p99_s", "longest": "max_s"}


def simulate(
    traces: Annotated[
        list[Path],
        typer.Argument(metavar="T...", help="Trace of a run, or a log; several with --schedule."),
    ],
    pool_file: Annotated[Path | None, typer.Option("--pool", "-p", metavar="POOL", help="Pool file.")] = None,
    cluster: Annotated[
        Path | None,
        typer.Option("--cluster", "-c", metavar="CLUSTER", help="Cluster file, in place of a pool that is at hand."),
    ] = None,
    layout: Annotated[
        Path | None,
        typer.Option("--layout", "-l", metavar="LAYOUT", help="Layout file to compare with the present layouts."),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(
            "--root",
            metavar="DIR",
            help="The trace's directory that stands for the mount; the mount itself, else all files'.",
        ),
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            metavar="[TIER=]NAME",
            help="Queue of the servers: fifo (the default), elevator or anticipatory; may be repeated.",
        ),
    ] = None,
    wait: Annotated[
        str, typer.Option("--wait", metavar="TIME", help="Longest wait of an anticipatory queue.")
    ] = "6.7ms",
    near: Annotated[
        str, typer.Option("--near", metavar="BYTES", help="Distance on disk that an anticipatory queue calls close.")
    ] = "1MiB",
    seek: Annotated[
        list[str] | None,
        typer.Option(
            "--seek",
            metavar="TIER[=BYTES]",
            help="Startups of the tier by distance on disks of that size (its capacity, else 1TB), within its profile.",
        ),
    ] = None,
    link: Annotated[
        str | None,
        typer.Option(
            "--link",
            metavar="RATE",
            help="A link of that bandwidth for every server, or `profile`: its profile's; else the device is held.",
        ),
    ] = None,
    client_link: Annotated[
        str | None,
        typer.Option("--client-link", metavar="RATE", help="A link of that bandwidth for every node; else none."),
    ] = None,
    processes_per_node: Annotated[
        int | None,
        typer.Option("--processes-per-node", metavar="N", min=1, help="As many as a host had in the trace."),
    ] = None,
    latency: Annotated[
        str, typer.Option("--latency", metavar="TIME", help="Of a message; a request waits for two.")
    ] = "0s",
    pipelined: Annotated[
        bool, typer.Option("--pipelined", help="Both links of a sub-request carry it at once, not one after the other.")
    ] = False,
    metadata: Annotated[
        str | None,
        typer.Option("--metadata", metavar="TIME", help="What an open or stat takes a metadata server; else nothing."),
    ] = None,
    think: Annotated[
        bool, typer.Option("--think", help="Keep the time that the program spent between its requests.")
    ] = False,
    repeat: Annotated[int, typer.Option("--repeat", metavar="N", min=1, help="Runs with other startup times.")] = 5,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of the first run.")] = 1,
    schedule: Annotated[
        list[str] | None,
        typer.Option(
            "--schedule",
            metavar="POLICY",
            help="Two traces or more: programs that run at once and take turns by this policy; `all` tries each.",
        ),
    ] = None,
    window_ms: Annotated[
        float,
        typer.Option(
            "--window", "-w", metavar="MS", callback=finite, help="With --schedule: length of a window, 1 to 10000."
        ),
    ] = 500.0,
    weight: Annotated[
        list[str] | None,
        typer.Option("--weight", metavar="NAME=W", help="With --schedule: weight of a program, else 1; repeatable."),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", metavar="NAME=RATE", help="With --schedule: most bytes in a second; repeatable."),
    ] = None,
    timeline: Annotated[bool, typer.Option("--timeline", help="Draw how busy every server was when.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON, the time line with it.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="List every row of files, however many.")] = False,
) -> None:
    """Simulate a trace on a pool or a cluster: throughput, latencies, busy servers.

    Each thread of the trace issues its requests again, one after the other, as fast as it gets answers. Threads wait
    for each other where the trace's times show that they did: in collective MPI calls, and where a phase of the program
    ends with nothing under way. Servers have the profiles of the pool or cluster file; files have the layouts that they
    have in the pool, or the cluster's default. With a layout file the same is simulated under it, with the same startup
    times. Intervals are of 95 %, over the runs. The first lines are the job, and what the model of `advise`, whose
    servers are fitted to the trace, makes of it now and under the layout.

    With --schedule each trace is a program. All begin at once. They are simulated alone, together, and together under
    the policies of `stripewise orchestrate`, whose decisions are made by the same code as there, with the same weights
    and limits. A program is named by its trace's file, without `.trace`. The time that programs spent between requests
    is kept.

    \b
    Examples:
      stripewise simulate run.trace --pool p/pool.toml
      stripewise simulate run.trace --pool p/pool.toml --layout new.layout \\
          --timeline
      stripewise simulate run.trace --pool p/pool.toml --queue hdd=elevator \\
          --seek hdd=4TB
      stripewise simulate run.trace --pool p/pool.toml --link 117MB/s \\
          --client-link 117MB/s --processes-per-node 8
      stripewise simulate job.darshan --cluster orion.toml --layout new.layout
      stripewise simulate one.trace two.trace --pool p/pool.toml --schedule all
      stripewise simulate one.trace two.trace --pool p/pool.toml \\
          --schedule even --weight one=3 --limit two=50MiB
    """
    around: SimulationAround = {
        "queue": queue or [],
        "wait": wait,
        "near": near,
        "seek": seek or [],
        "link": link,
        "client_link": client_link,
        "processes_per_node": processes_per_node,
        "latency": latency,
        "pipelined": pipelined,
        "metadata": metadata,
        "think": think,
        "repeat": repeat,
        "seed": seed,
        "bins": BINS if timeline or as_json else 0,
    }
    if (pool_file is None) == (cluster is None):
        console.fail("say what to simulate: --pool POOL or --cluster CLUSTER", console.EXIT_USAGE)
    if (len(traces) > 1) != bool(schedule):
        console.fail("--schedule POLICY is for two traces or more, and several traces need it", console.EXIT_USAGE)
    if not schedule and (weight or limit):
        console.fail("--weight and --limit are of programs that take turns: add --schedule POLICY", console.EXIT_USAGE)
    # A mistake in these files is told before a long log is read.
    servers = Servers.of(pool_file, cluster)
    if schedule:
        if layout is not None or timeline:
            console.fail("--layout and --timeline are of one trace: omit them with --schedule", console.EXIT_USAGE)
        found = together.together(
            together.named_programs([opened(trace) for trace in traces]),
            pool=servers.pool,
            cluster=servers.cluster,
            root=root,
            policies_tried=schedule,
            window_s=window_ms / 1000,
            weights=orchestrating.ordered_weights(weight or []),
            limits=orchestrating.ordered_limits(limit or []),
            around={**around, "bins": 0, "think": True},
        )
        if as_json:
            console.document(found)
        else:
            console.result(f"simulated on {servers.label} as described, {_count(repeat, 'run')}")
            concurrent.show_policies(found)
        return
    run = opened(traces[0])
    made = api.simulate(run, pool=servers.pool, cluster=servers.cluster, layout=layout, root=root, around={**around})
    if as_json:
        console.document({**made.document, "now_then": made.now_then, "kinds": made.kinds, "about": run.about})
    else:
        show_lines((*made.heading, *([] if layout is None else [made.then])))
        claimed = layout is not None and made.now_then["refused"] is None
        _kinds(made.kinds, with_gain=claimed, everything=everything)
        _print(servers.label, made.document, timeline=timeline)


def _kinds(rows: list[AdviseFile], *, with_gain: bool, everything: bool) -> None:
    """Files that are used alike, by the model of the lines above."""
    right = ["moved", "MiB/s now", *(["then", "gain"] if with_gain else [])]
    named = console.named([row["files"] for row in rows])
    grid = console.table([named, *right, "waits now for"], right=right, paths=[named])
    for row in console.shown(rows, everything=everything):
        then = row["recommended"]
        rates = [mib_per_s(row["present"]["bytes_per_s"])]
        if with_gain:
            rates += (
                ["", "no change"] if then is None else [mib_per_s(then["bytes_per_s"]), ratio(row["gain"]["ratio"])]
            )
        grid.add_row(
            console.how_many(row["path"], row["files"]),
            about_bytes(row["read_bytes"] + row["written_bytes"]),
            *rates,
            row["present"]["bottleneck"]["words"],
        )
    console.out.print(grid)
    console.say_more(rows, "rows of files", everything=everything, otherwise=", --json has everything")
    console.result("")


def _print(servers: str, document: SimulationDocument, *, timeline: bool) -> None:
    sides = {"present": document["present"]}
    if document["layout"] is not None:
        sides["layout"] = document["layout"]
    calls = document["collectives"]
    console.result(f"simulated on {servers} as described, not fitted to the log, {_count(document['runs'], 'run')}")
    console.result(
        f"{_count(document['processes'], 'process', 'es')}, {_count(document['requests'], 'request')}, "
        f"{_count(calls, 'collective call') + ', ' if calls else ''}{_count(document['phases'], 'phase')}; "
        f"in the trace {seconds(document['traced_s'])}"
    )
    totals = console.table(["", *sides], right=list(sides))
    totals.add_row("MiB/s", *(_interval(side["throughput"], mib_per_s) for side in sides.values()))
    totals.add_row("time", *(_interval(side["makespan_s"], seconds) for side in sides.values()))
    for label, key in LATENCIES.items():
        totals.add_row(f"latency, {label}", *(_interval(side["latency"][key], seconds) for side in sides.values()))
    ops = {"reads": [side["reads"] for side in sides.values()], "writes": [side["writes"] for side in sides.values()]}
    for label, latencies in ops.items():
        if any(latency["max_s"] for latency in latencies):
            totals.add_row(f"latency, mean of {label}", *(seconds(latency["mean_s"]) for latency in latencies))
    console.out.print(totals)
    gain = document["ratio"]
    if gain is not None:
        console.result(f"layout / present: {_interval(gain, '{:.2f}x'.format)}")
    for name, side in sides.items():
        console.out.print()
        console.out.print(_servers(name, side))
    if timeline:
        for name, side in sides.items():
            if side["timeline"] is not None:
                console.out.print()
                _draw(name, side["timeline"])


def _count(count: int, what: str, plural: str = "s") -> str:
    return f"{count} {what}{'' if count == 1 else plural}"


def _interval(estimate: Estimate, shown: Callable[[float], str]) -> str:
    """A mean with half of its interval, in percent of it: `61.3 ±0.4%`."""
    mean, half_width = estimate["mean"], estimate["half_width"]
    if half_width is None or mean == 0:
        return shown(mean)
    return f"{shown(mean)} ±{half_width / mean:.1%}"


def _servers(name: str, side: ReplayedSide) -> Table:
    linked = any(server["link_in_busy_s"] or server["link_out_busy_s"] for server in side["servers"])
    # In two lines: all columns fit a terminal of 80.
    columns = ["server", "sub-\nrequests", "bytes", "busy", "of\ntime", "startups", "waiting\neach", "longest\nqueue"]
    grid = console.table([*columns, "link"] if linked else columns, title=name, right=[*columns[1:], "link"])
    took_s = side["makespan_s"]["mean"]
    for server in side["servers"]:
        busy_s, requests = server["busy_s"]["mean"], server["requests"]
        row = [
            server["name"],
            str(requests),
            about_bytes(server["bytes"]),
            seconds(busy_s),
            f"{busy_s / took_s:.0%}" if took_s else "-",
            seconds(server["startup_s"]),
            seconds(server["waiting_s"] / requests) if requests else "-",
            str(server["longest_queue"]),
        ]
        link_s = max(server["link_in_busy_s"], server["link_out_busy_s"])
        grid.add_row(*row, *([f"{link_s / took_s:.0%}" if took_s else "-"] if linked else []))
    return grid


def _draw(name: str, timeline: ReplayedTimeline) -> None:
    # Both strips beside the servers' names on one line of the terminal: a strip that folds cannot be read.
    names = max(len(server["name"]) for server in timeline["servers"])
    fits = max(10, (min(console.out.width, 2 * BINS + names + 8) - names - 8) // 2)
    per = -(-len(timeline["throughput"]) // fits) or 1
    rates = _merged(timeline["throughput"], per)
    grid = console.table(
        ["server", "busy over time", "queue over time"],
        title=f"{name}: one character is {seconds(timeline['bin_s'] * per)}",
    )
    for server in timeline["servers"]:
        queue = _merged(server["queue"], per)
        busy = _merged(server["busy"], per)
        grid.add_row(server["name"], _line(busy, 1.0), _line(queue, max(queue, default=0.0)))
    grid.add_row("MiB/s", _line(rates, max(rates, default=0.0)), f"at most {mib_per_s(max(rates, default=0.0))}")
    console.out.print(grid)


def _merged(values: list[float], per: int) -> list[float]:
    """Means of `per` bins each; the last ones may be of fewer."""
    groups = (values[at : at + per] for at in range(0, len(values), per))
    return [sum(group) / len(group) for group in groups]


def _line(values: list[float], most: float) -> str:
    """One character a bin, from blank (nothing) to a full block (`most`)."""
    steps = len(LEVELS) - 1
    return "".join(
        LEVELS[0 if value <= 0 or most <= 0 else max(1, min(steps, round(value / most * steps)))] for value in values
    )
