"""`stripewise top`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from stripewise import StripewiseError
from stripewise.api import activity, orchestrating, running
from stripewise.api.activity import Done, Source
from stripewise.api.pools import Pool
from stripewise.api.watching import Watch
from stripewise.cli import adapted, console
from stripewise.cli.finite import finite
from stripewise.cli.orchestrate import programs
from stripewise.terminal import plain
from stripewise.units import about_bytes, mib_per_s, seconds

if TYPE_CHECKING:
    from stripewise.api.documents import Orchestration

LONGEST_S = 86_400.0
"""Between two updates, whatever is asked for: no clock of the system counts without end."""


def top(
    pool_file: Annotated[Path, typer.Option("--pool", "-p", metavar="POOL", help="Pool file.")],
    interval_s: Annotated[
        float,
        typer.Option("--interval", "-i", min=0.1, metavar="S", callback=finite, help="Seconds between updates."),
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print the totals so far, and exit.")] = False,
) -> None:
    """Watch what each server of a pool does: requests, bytes, busy share, queue, time of a request.

    An emulated server counts for itself. Of a real server the kernel counts what its block device does: for all
    programs, and without what the page cache served. A server without a block device (tmpfs, a network file system) is
    listed with the reason why nothing is known of it. While the pool is orchestrated, its programs are listed too, and
    of each other node that takes part its programs and what servers do for them, as the orchestrator says it. A line
    for each mount says how requests travel between it and the kernel. Another one says what the metadata tier
    served of names and small files in the last second in which it served some, which load is predicted of the next
    one, and which share of their hint `small` new files get by that.

    Of a pool that adapts, the hottest files are drawn as by `stripewise heat`. Below them stands the last decision of
    `stripewise adapt`, with the layouts that the model puts first and how long the servers need by each. Then come the
    file that is moved now, with what is copied of it, and what the last move was to gain and has gained, once that is
    measured.

    \b
    busy          share of the time in which the server had a request
    queue         requests in the server or waiting for it, on average
    time/request  from the queue to the end, on average

    \b
    Examples:
      stripewise top --pool p/pool.toml
      stripewise top --pool p/pool.toml --once
    """
    pool = Pool.load(pool_file)
    sources = activity.sources(pool)
    watch = Watch(pool)
    before, began_s = activity.done(pool, sources), time.monotonic()
    if once:
        found = _orchestration(pool)
        below = [*_programs(found), *_nodes(found), *_below(pool, watch)]
        console.out.print(Group(_totals(pool, sources, before), *below))
        return
    programs_before = _orchestration(pool)
    rates = orchestrating.NodeRates(programs_before)
    try:
        with Live(console=console.out, auto_refresh=False, transient=True) as live:
            while True:
                time.sleep(min(interval_s, LONGEST_S))
                pool, sources = _anew(pool, sources)
                watch.pool = pool
                now, now_s = activity.done(pool, sources), time.monotonic()
                programs_now, passed_s = _orchestration(pool), now_s - began_s
                rates.take(programs_now)
                moving = [*_programs(programs_now, programs_before, passed_s), *_nodes(programs_now, rates)]
                shown = Group(_rates(pool, sources, before, now, passed_s), *moving, *_below(pool, watch))
                if console.out.is_terminal:
                    live.update(shown, refresh=True)
                else:
                    console.out.print(shown)
                    console.out.file.flush()
                before, began_s, programs_before = now, now_s, programs_now
    except KeyboardInterrupt:
        return  # The way to end it.


def _anew(pool: Pool, sources: list[Source]) -> tuple[Pool, list[Source]]:
    """The pool as its file says it now, and where its figures are from: servers come and go meanwhile."""
    try:
        now = Pool.load(pool.file)
    except StripewiseError:
        return pool, sources  # It is just being written, or has gone: what is known stays.
    return (pool, sources) if now == pool else (now, activity.sources(now))


def _totals(pool: Pool, sources: list[Source], done: dict[str, Done]) -> Group:
    columns = ["server", "device", "requests", "read", "written", "busy", "time/request"]
    grid = console.table(columns, right=columns[2:])
    for source in sources:
        so_far = done.get(source.server)
        if so_far is None:
            grid.add_row(source.server, source.name, *["-"] * 5)
            continue
        grid.add_row(
            source.server,
            source.name,
            f"{so_far.requests:,}",
            about_bytes(so_far.read_bytes),
            about_bytes(so_far.written_bytes),
            seconds(so_far.busy_s),
            seconds(so_far.waiting_s / so_far.requests) if so_far.requests else "-",
        )
    kinds = {tier.emulated for tier in (*pool.tiers, pool.meta)}
    since = ["emulated servers since their queues were made"] if True in kinds else []
    since += ["devices since the machine started"] if False in kinds else []
    return Group(_line(f"pool '{pool.name}', {', '.join(since)}"), grid, *_notes(sources))


def _rates(pool: Pool, sources: list[Source], before: dict[str, Done], now: dict[str, Done], passed_s: float) -> Group:
    columns = ["server", "device", "requests/s", "read MiB/s", "write MiB/s", "busy", "queue", "time/request"]
    grid = console.table(columns, right=columns[2:])
    for source in sources:
        if source.server not in now or source.server not in before:
            grid.add_row(source.server, source.name, *["-"] * 6)
            continue
        did = now[source.server].since(before[source.server])
        grid.add_row(
            source.server,
            source.name,
            f"{did.requests / passed_s:.0f}",
            mib_per_s(did.read_bytes / passed_s),
            mib_per_s(did.written_bytes / passed_s),
            # The kernel counts in steps of its own: a little more than all the time.
            f"{min(did.busy_s / passed_s, 1.0):.0%}",
            f"{did.waiting_s / passed_s:.1f}",
            seconds(did.waiting_s / did.requests) if did.requests else "-",
        )
    title = _line(f"pool '{pool.name}', {pool.label}, last {seconds(passed_s)}; Ctrl-C ends")
    return Group(title, grid, *_notes(sources))


def _below(pool: Pool, watch: Watch) -> list[RenderableType]:
    """What stands below the tables."""
    travels = running.transports(pool)
    return [
        *(_line(f"mount at {point}: requests travel by {words}") for point, words in travels.items()),
        *_metadata_tier(pool),
        *adapted.shown(watch.look()),
    ]


def _metadata_tier(pool: Pool) -> list[RenderableType]:
    """What it served, what is predicted, and the threshold of small files; nothing where it never served anything."""
    found = activity.meta_load(pool)
    served = [period for period in found["periods"] if period["served"] or period["waiting"]]
    if not served:
        return []
    last, now = served[-1], found["periods"][-1]
    ago_s = max(0.0, time.time() - last["time_s"])
    load = f"load {last['load']:.2f}, next {now['bls_esm']:.2f} by BLS-ESM, {now['esm']:.2f} by ESM"
    return [
        _line(
            f"metadata tier, {seconds(ago_s)} ago: {last['served']:,} requests in a second, "
            f"{last['names']:,} of them on names, "
            f"{last['waiting']:,} waiting, {about_bytes(last['bytes'])}, {seconds(last['latency_s'])} each"
        ),
        _line(
            f"small files: {now['share']:.1%} of what `small` hints; {load if found['is_known'] else 'load unknown'}"
        ),
    ]


def _orchestration(pool: Pool) -> Orchestration | None:
    """What goes on; `None` where no orchestrator is at work."""
    try:
        found = orchestrating.status(pool)
    except StripewiseError:
        return None  # The namespace cannot be reached: the notes say of its server why.
    return None if found["process"] is None else found


def _programs(
    found: Orchestration | None, before: Orchestration | None = None, passed_s: float = 0.0
) -> list[RenderableType]:
    """Who is served, and what each program does; what it moves now where it was known `passed_s` ago."""
    if found is None:
        return []
    served = found["served"] or "all programs"
    rates = None
    if before is not None and passed_s > 0:
        rates = orchestrating.program_rates(before["programs"], found["programs"], passed_s)
    slices = ", ".join(f"{part['program']} {seconds(part['slice_s'])}" for part in found["slices"])
    return [
        _line(f"orchestrated by {found['policy']}, window {seconds(found['window_s'])}; serving {served}"),
        *([_line(f"slices: {slices}")] if slices else []),
        programs(found["programs"], rates),
    ]


def _nodes(found: Orchestration | None, rates: orchestrating.NodeRates | None = None) -> list[RenderableType]:
    """Programs of each other node, and what servers do for them; with `rates` what they move now."""
    shown: list[RenderableType] = []
    for node in orchestrating.elsewhere(found):
        where = node["name"] if node["address"] is None else f"{node['name']} at {node['address']}"
        if not node["is_joined"]:
            shown.append(_line(f"node {where}: gone"))
            continue
        gates = {None: "gates not known", True: "gates in turns", False: "gates open"}[node["is_in_turns"]]
        shown.append(_line(f"node {where}: {gates}{'' if node['programs'] else ', no program'}"))
        if node["programs"]:
            shown.append(programs(node["programs"], None if rates is None else rates.programs.get(node["name"], {})))
        if not node["servers"]:
            continue
        columns = ["server", *(["requests", "bytes"] if rates is None else ["requests/s", "MiB/s"])]
        grid = console.table(columns, right=columns[1:])
        for server in node["servers"]:
            if rates is None:
                grid.add_row(server["server"], f"{server['requests']:,}", about_bytes(server["bytes"]))
            else:
                requests, moved = rates.servers.get((node["name"], server["server"]), (0.0, 0.0))
                grid.add_row(server["server"], f"{requests:.0f}", mib_per_s(moved))
        shown.append(grid)
    return shown


def _notes(sources: list[Source]) -> list[Text]:
    """What the table cannot show."""
    on: dict[str, list[str]] = {}
    for source in sources:
        if source.device is not None:
            on.setdefault(source.name, []).append(source.server)
    notes = [f"{', '.join(servers)} are on one device, {name}: each line has the figures of all of it"
             for name, servers in on.items() if len(servers) > 1]  # fmt: skip
    if on:
        notes.append("a device's figures are of all programs that use it, without what the page cache served")
    why: dict[str, list[str]] = {}
    for source in sources:
        if source.unknown is not None:
            why.setdefault(source.unknown, []).append(source.server)
    notes += [f"{', '.join(servers)} {reason}: nothing counts what it does" for reason, servers in why.items()]
    return [_line(note) for note in notes]


def _line(text: str) -> Text:
    return Text(plain(text))
