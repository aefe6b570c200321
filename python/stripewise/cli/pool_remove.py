"""`stripewise pool remove`."""

from pathlib import Path
from typing import Annotated

import typer

from stripewise.api import apart, pool_life
from stripewise.api.pools import Pool
from stripewise.cli import draining


def pool_remove(
    pool_file: Annotated[Path, typer.Argument(metavar="POOL", help="Pool file.")],
    server: Annotated[str, typer.Argument(metavar="SERVER", help="The server, such as hdd.1.")],
    lost: Annotated[
        bool, typer.Option("--lost", help="Its disk has died: give up what was on it, and list that by file.")
    ] = False,
    rate: draining.Rate = None,
    urgent: draining.Urgent = False,
    everything: Annotated[bool, typer.Option("--all", help="List every file that lost bytes, however many.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
) -> None:
    """Take a server out of a pool that has no bytes any more.

    It is refused while a file has its place there: `pool drain` moves them. Its name is never given again. With --lost,
    for a server that is not there any more: files without a byte on it leave it, and the others are listed with the
    ranges that they lost. Reading these gives EIO, all other bytes can be read; `stripewise fsck --forget-missing`
    makes them zeros.

    \b
    Examples:
      stripewise pool remove p/pool.toml hdd.1
      stripewise pool remove p/pool.toml hdd.1 --lost

    \b
    Exit codes: 0 removed and nothing lost, 1 refused, or files lost bytes.
    """
    pool = Pool.load(pool_file)
    keeps_names = not lost and apart.has_names_alone(pool, server)
    with draining.moving(f"removing {server}") as progress:
        pace = draining.pace(rate, urgent)
        done = draining.in_turn(pool, lambda: pool_life.remove(pool, server, lost=lost, pace=pace, progress=progress))
    if keeps_names and not done["staying"]:
        draining.hint_at_names(pool)
    said = f"{server} is removed" if lost or not done["staying"] else f"{server} is not removed"
    draining.end(done, server, said, everything=everything, document={} if as_json else None, lost=lost)
