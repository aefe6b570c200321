"""`stripewise pool rebalance`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stripewise.api import pool_life
from stripewise.api.pools import Pool
from stripewise.cli import console, draining
from stripewise.terminal import name
from stripewise.units import about_bytes, counted

if TYPE_CHECKING:
    from stripewise.api.pool_life import Rebalanced


def pool_rebalance(
    pool_file: Annotated[Path, typer.Argument(metavar="POOL", help="Pool file.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be moved.")] = False,
    rate: draining.Rate = None,
    urgent: draining.Urgent = False,
    everything: draining.Everything = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
) -> None:
    """Fill the servers of each tier alike: a server that was added gets its share of the files that are there.

    Servers that are fuller than their tier's mean give, the others take, and none more than the mean. A file that is
    striped over several servers of the tier with one width gets one more stripe; else a server takes the place of
    another. Only files of one region move, the largest first, each once at most; a large file is copied whole.
    Programs may use the pool meanwhile: while the servers are busy for them it takes a tenth of the time. Stopped
    or killed, the same command goes on.

    \b
    Examples:
      stripewise pool rebalance p/pool.toml --dry-run
      stripewise pool rebalance p/pool.toml

    \b
    Exit codes: 0 done, 1 files stay or refused.
    """
    pool = Pool.load(pool_file)
    with draining.moving("rebalancing") as progress:
        done = pool_life.rebalance(pool, dry_run=dry_run, pace=draining.pace(rate, urgent), progress=progress)
    if as_json:
        console.document({"dry_run": dry_run, **done})
    else:
        _print(done, dry_run=dry_run, everything=everything)
    if done["staying"]:
        raise SystemExit(console.EXIT_FAILED)


def _print(done: Rebalanced, *, dry_run: bool, everything: bool) -> None:
    grid = console.table(["server", "full before", "full after"], right=["full before", "full after"])
    for server in done["servers"]:
        before, after = (server[when] / max(1, server["size_bytes"]) for when in ("before_bytes", "after_bytes"))
        grid.add_row(server["server"], f"{before:.1%}", f"{after:.1%}")
    console.out.print(grid)
    for file in console.shown(done["staying"], everything=everything):
        console.result(f"{name(file['path'])}: stays where it was: {file['why']}")
    console.say_more(done["staying"], "files stay", everything=everything)
    moved, copied = counted(done["moved_files"], "file"), about_bytes(done["copied_bytes"])
    console.result(f"would move {moved}, copy {copied}" if dry_run else f"moved {moved}, copied {copied}")
