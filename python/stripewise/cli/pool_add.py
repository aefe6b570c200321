"""`stripewise pool add`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stripewise.api import pool_life
from stripewise.api.pools import Pool
from stripewise.cli import console, draining
from stripewise.terminal import name
from stripewise.units import about_bytes

if TYPE_CHECKING:
    from stripewise.api import adapt


def pool_add(
    pool_file: Annotated[Path, typer.Argument(metavar="POOL", help="Pool file.")],
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR...", parser=draining.disk, help="Directories, one on each new disk.")
    ],
    tier: Annotated[
        str | None, typer.Option(metavar="TIER", help="The tier that they are of; left out: by the kind of the disk.")
    ] = None,
    no_fill: Annotated[bool, typer.Option("--no-fill", help="Leave files that are there where they are.")] = False,
    rate: draining.Rate = None,
    urgent: draining.Urgent = False,
    everything: draining.Everything = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
) -> None:
    """Add servers to a pool: a directory on each new disk.

    Programs may use the pool meanwhile. Mounts put new files on the new server within a second. As with `pool init`,
    nothing in the directory is touched: the server keeps to a hidden directory of the pool's name in it. No server gets
    another name or number by it.

    Then the server is filled as far as that gains: files with heat move where the planners find that it pays, as
    `stripewise adapt` decides, and of all others the server gets its share, as with `pool rebalance`. Stopped or
    killed, the same command goes on. While programs keep the servers busy it takes a tenth of the time.

    \b
    Examples:
      stripewise pool add p/pool.toml /disk3
      stripewise pool add p/pool.toml /disk3 /disk4 --tier hdd --no-fill

    \b
    Exit codes: 0 added or there before, files that stay are named; 1 refused.
    """
    pool, pace = Pool.load(pool_file), draining.pace(rate, urgent)
    found = draining.in_turn(pool, lambda: pool_life.add(pool, directories, tier))
    names = [of.server for of in found]
    added = [{"server": of.server, "directory": str(of.directory), "is_new": of.is_new} for of in found]
    if as_json and no_fill:
        console.document({"servers": added, "decision": None, "evened": None})
        return
    if not as_json:
        for of in found:
            what = f"server {of.server}" if of.is_new else f"{of.server} already"
            console.result(f"{name(str(of.directory))} is {what}")
    if no_fill:
        console.hint(f"`stripewise pool rebalance {pool_file}` gives it its share of the files that are there")
        return
    with draining.moving(f"filling {', '.join(names)}") as progress:
        turn = partial(draining.in_turn, pool, so_far=draining.GOES_ON)
        filled = pool_life.fill(pool, names, pace=pace, progress=progress, turn=turn)
    if as_json:
        console.document({"servers": added, "decision": filled.decision, "evened": filled.evened})
        return
    if filled.decision is not None:
        _print_decision(filled.decision)
    draining.report_rebalanced(filled.evened, dry_run=False, everything=everything)


def _print_decision(decision: adapt.Decision) -> None:
    if decision["verdict"] == "moved":
        gain = ""
        if "ratio" in decision:
            gain = f", which makes the servers {decision['ratio']:.2f} times as fast by the model"
        console.result(f"files with heat: copied {about_bytes(decision['copied_bytes'])}{gain}")
    else:
        console.result(f"files with heat stay: {decision['why']}")
