"""`stripewise pool drain`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stripewise.api import pool_life
from stripewise.api.pools import Pool
from stripewise.cli import console, draining
from stripewise.units import about_bytes, counted

if TYPE_CHECKING:
    from stripewise.api.pool_life import Drained


def pool_drain(
    pool_file: Annotated[Path, typer.Argument(metavar="POOL", help="Pool file.")],
    server: Annotated[str, typer.Argument(metavar="SERVER", help="The server, such as hdd.1.")],
    to: Annotated[
        str | None, typer.Option(metavar="TIER", help="The tier that takes its bytes; left out: its own.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Go on until the files that programs keep in their place have moved, too.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be moved, and whether it fits.")
    ] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Take a drain back: the server gets new files again, what has moved stays.")
    ] = False,
    rate: draining.Rate = None,
    urgent: draining.Urgent = False,
    everything: draining.Everything = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
) -> None:
    """Move all files from a server, so that it can be removed.

    Programs may use the pool meanwhile. In each layout the server's place is taken by the one of its tier that has the
    most room, or where all have a part already the others keep theirs. New files leave the server out. Each file is
    moved as `apply` does it. Files that programs keep in their place, or open for writing just then, stay and are
    named; the same command moves them later. A file that cannot be read, or that no other server takes, stays too, and
    is named with its ranges of bytes: the others move. While the servers are busy for programs it takes a tenth of the
    time. Stopped or killed, it goes on when it is called again; until then new files leave the server out, unless
    --cancel takes the drain back. A file that landed goes to its place. A file of more than 256 MiB moves in steps:
    only the step that was being copied when the command was stopped is copied anew.

    \b
    Examples:
      stripewise pool drain p/pool.toml hdd.1 --dry-run
      stripewise pool drain p/pool.toml hdd.1
      stripewise pool drain p/pool.toml hdd.1 --cancel

    \b
    Exit codes: 0 nothing is left on it, 1 files stay, or would, or refused.
    """
    pool = Pool.load(pool_file)
    if cancel:
        if to is not None or wait or dry_run or rate is not None or urgent:
            raise console.UsageError("--cancel moves nothing: leave out the options that say how files move")
        draining.in_turn(pool, lambda: pool_life.take_back(pool, server))
        if as_json:
            console.document({"server": server, "state": "used"})
        else:
            console.result(f"{server} takes files again; what has moved from it stays where it is")
            console.hint(f"`stripewise pool rebalance {pool_file}` fills the servers of each tier alike")
        return
    if dry_run:
        planned = draining.in_turn(pool, lambda: pool_life.drain(pool, server, to=to, dry_run=True))
        if as_json:
            console.document(planned)
        else:
            _print_plan(planned, server, everything=everything)
        if planned["staying"]:
            raise SystemExit(console.EXIT_FAILED)
        return
    besides = f"; until then new files leave {server} out, unless the command with --cancel takes the drain back"
    with draining.moving(f"draining {server}", besides) as progress:
        pace = draining.pace(rate, urgent)
        done = draining.in_turn(
            pool, lambda: pool_life.drain(pool, server, to=to, wait=wait, pace=pace, progress=progress)
        )
    if as_json:
        console.document(done)
    else:
        draining.report(done, server, everything=everything)
    if done["staying"]:
        raise SystemExit(console.EXIT_FAILED)
    if not as_json:
        console.hint(f"`stripewise pool remove {pool_file} {server}` takes it out of the pool")


def _print_plan(planned: Drained, server: str, *, everything: bool) -> None:
    draining.list_staying(planned, server, everything=everything)
    files, rules = counted(planned["moved_files"], "file"), counted(planned["rules"], "rule")
    console.result(
        f"would move {files} from {server}, copy {about_bytes(planned['copied_bytes'])}, and change {rules} for "
        "files to come; nothing was changed"
    )
