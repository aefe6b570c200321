"""`stripewise orchestrate`."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stripewise import StripewiseError
from stripewise.api import orchestrating, service
from stripewise.api.pools import Pool
from stripewise.cli import console
from stripewise.cli.finite import finite
from stripewise.terminal import name
from stripewise.units import about_bytes, mib_per_s, seconds

if TYPE_CHECKING:
    from stripewise.api.documents import OrchestratedProgram, Orchestration


def orchestrate(
    pool_file: Annotated[Path, typer.Argument(metavar="POOL", help="Pool file.")],
    policy: Annotated[
        str, typer.Option("--policy", metavar="NAME", help="Who gets which part of a window; --policies lists them.")
    ] = "reuse-distance",
    window_ms: Annotated[
        float,
        typer.Option("--window", "-w", metavar="MS", callback=finite, help="Length of a window, 1 to 10000."),
    ] = orchestrating.DEFAULT_WINDOW_S * 1000,
    weight: Annotated[
        list[str] | None,
        typer.Option("--weight", metavar="NAME=W", help="Weight of a program, 1 where none is given; repeatable."),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", metavar="NAME=RATE", help="Most bytes in a second, as 50MiB; repeatable."),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen", metavar="[ADDRESS:]PORT", help="Let agents of other nodes join; a PORT is this machine's alone."
        ),
    ] = None,
    keys: Annotated[
        Path | None, typer.Option("--keys", metavar="FILE", help="With --listen: the keys of the nodes.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log each decision of each window, not the new ones alone.")
    ] = False,
    status: Annotated[bool, typer.Option("--status", help="Say what goes on, and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --status: print as JSON.")] = False,
    install_unit: Annotated[
        bool, typer.Option("--install-unit", help="Write a systemd unit that runs this, and exit.")
    ] = False,
    policies: Annotated[bool, typer.Option("--policies", help="List the policies, and exit.")] = False,
) -> None:
    """Let the programs of a pool take turns on its servers where that pays.

    Runs until Ctrl-C or SIGTERM. Programs on the pool count how near their requests are on each server and how soon
    they are back. From that it gives programs parts of each window, in which all servers serve that program alone.
    If it dies, all programs go on without turns.

    Programs are known by `run --program NAME`, by their job (Slurm, PBS, Flux, MPI launchers), by `run`, or by cgroup
    or session.

    \b
    Examples:
      stripewise orchestrate p/pool.toml
      stripewise orchestrate p/pool.toml --policy even --window 250
      stripewise orchestrate p/pool.toml --weight sim=3 --limit backup=50MiB
      stripewise orchestrate p/pool.toml --listen 10.0.0.1:7077 --keys keys
      stripewise orchestrate p/pool.toml --status
    """
    asked = {"--policies": policies, "--status": status, "--json": as_json}
    if install_unit and any(asked.values()):
        option = next(option for option, given in asked.items() if given)
        raise StripewiseError(f"{option} prints and exits, and --install-unit writes a unit: leave one of them out")
    if policies:
        grid = console.table(["policy", "serves"])
        for named, words in orchestrating.policies().items():
            grid.add_row(named, words)
        console.out.print(grid)
        return
    pool = Pool.load(pool_file)
    if status or as_json:
        _show(pool, orchestrating.status(pool), as_json=as_json)
        return
    weights, limits = orchestrating.ordered_weights(weight or []), orchestrating.ordered_limits(limit or [])

    if install_unit:
        orchestrating.require(
            policy=policy, window_s=window_ms / 1000, weights=weights, limits=limits, listen=listen, keys=keys
        )
        options = ["--policy", policy, "--window", f"{window_ms:g}"]
        options += [word for rule in weight or [] for word in ("--weight", rule)]
        options += [word for rule in limit or [] for word in ("--limit", rule)]
        options += ["--listen", listen] if listen is not None else []
        options += ["--keys", str(keys.absolute())] if keys is not None else []
        file, text = orchestrating.unit(pool, [*options, *(["--verbose"] if verbose else [])])
        start = service.install(file, text)
        console.result(f"wrote {file}")
        console.hint(f"`{start}` starts it")
        return

    if listen is not None:
        command = orchestrating.listening(
            pool,
            listen=listen,
            keys=keys,
            policy=policy,
            window_s=window_ms / 1000,
            weights=weights,
            limits=limits,
            verbose=verbose,
        )
        os.execv(command[0], ["stripewise orchestrate", *command[1:]])

    def tell(words: str, is_new: bool) -> None:
        if is_new or verbose:
            console.say(f"{time.strftime('%H:%M:%S')} {name(words)}")

    console.say(f"orchestrating pool '{pool.name}' by {policy}, window {window_ms:g} ms; Ctrl-C ends")
    orchestrating.orchestrate(pool, policy=policy, window_s=window_ms / 1000, weights=weights, limits=limits, tell=tell)
    console.say("ended: all programs are served at all times")


def _show(pool: Pool, found: Orchestration, *, as_json: bool) -> None:
    if as_json:
        console.document(found)
        return
    if found["process"] is None:
        console.result(f"pool '{pool.name}': no orchestrator; all programs are served at all times")
    else:
        served = found["served"] or "all programs"
        console.result(
            f"pool '{pool.name}': {found['policy']}, window {seconds(found['window_s'])}, process {found['process']} "
            f"for {seconds(found['age_s'])}; serving {name(served)}"
        )
    print_programs(found)
    if found["nodes"]:
        console.out.print()
        console.out.print(_nodes(found))


def _nodes(found: Orchestration) -> console.Grid:
    """A table of the nodes that take part, the orchestrator's first."""
    grid = console.table(["node", "agent", "heard", "clock", "gates", "programs"], right=["heard", "clock"])
    for one in found["nodes"]:
        agent = "the orchestrator" if one["address"] is None else one["address"]
        turns = {None: "not known", True: "in turns", False: "open"}[one["is_in_turns"]]
        grid.add_row(
            one["name"],
            agent if one["is_joined"] else f"{agent}, gone",
            "-" if one["address"] is None else seconds(one["heard_s"]),
            "-" if one["address"] is None or one["clock_offset_s"] is None else f"{one['clock_offset_s']:+.3f} s",
            turns,
            ", ".join(name(program["name"]) for program in one["programs"]) or "-",
        )
    return grid


def print_programs(found: Orchestration) -> None:
    """Prints a table of the programs, if there are any."""
    if found["programs"]:
        console.out.print(programs(found["programs"]))
    if found["unplaced"]:
        console.say(f"{found['unplaced']:,} requests of programs beyond the 64 of a user were served with all others")


def programs(
    found: Sequence[OrchestratedProgram], bytes_per_s: Mapping[tuple[str, int], float] | None = None
) -> console.Grid:
    """A table of the programs; with what each moves now, by name and user, where that is known."""
    columns = [
        "program",
        "user",
        "standing",
        "processes",
        "files",
        "requests",
        "bytes" if bytes_per_s is None else "MiB/s",
        "gap",
        "reuse",
        "slice",
        "waited",
    ]
    grid = console.table(columns, right=columns[3:])
    for one in found:
        gap, reuse_s = one["gap_bytes"], one["reuse_s"]
        grid.add_row(
            name(one["name"]),
            str(one["user"]),
            (one["standing"] or "-") + ("" if one["is_busy"] else ", idle"),
            str(one["processes"]),
            str(one["files"]),
            f"{one['requests']:,}",
            about_bytes(one["bytes"])
            if bytes_per_s is None
            else mib_per_s(bytes_per_s.get((one["name"], one["user"]), 0.0)),
            "-" if gap is None else about_bytes(int(gap)),
            "-" if reuse_s is None else seconds(reuse_s),
            seconds(one["slice_s"]) if one["slice_s"] else "-",
            seconds(one["waited_s"]) if one["held"] else "-",
        )
    return grid
