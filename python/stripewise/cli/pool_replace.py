"""`stripewise pool replace`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from stripewise.api import apart, pool_life
from stripewise.api.pools import Pool
from stripewise.cli import draining


def pool_replace(
    pool_file: Annotated[Path, typer.Argument(metavar="POOL", help="Pool file.")],
    server: Annotated[str, typer.Argument(metavar="OLD", help="The server that goes, such as hdd.1.")],
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", parser=draining.disk, help="A directory on the new disk.")
    ],
    wait: Annotated[
        bool, typer.Option("--wait", help="Go on until the files that programs keep in their place have moved, too.")
    ] = False,
    rate: draining.Rate = None,
    urgent: draining.Urgent = False,
    everything: draining.Everything = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
) -> None:
    """Put a new disk in the place of a server: add it, move all files there, remove the old one.

    Programs may use the pool meanwhile: while the servers are busy for them it takes a tenth of the time. Widths
    stay as they are. Stopped or killed, the same command goes on. While files stay on the old server, as they are open
    for writing or cannot be read, it is not removed.

    \b
    Examples:
      stripewise pool replace p/pool.toml hdd.1 /disk9

    \b
    Exit codes: 0 replaced, 1 files stay or refused.
    """
    pool = Pool.load(pool_file)
    keeps_names = apart.has_names_alone(pool, server)
    with draining.moving(f"replacing {server}") as progress:
        pace = draining.pace(rate, urgent)
        turn = partial(draining.in_turn, pool, so_far=draining.GOES_ON)
        new, done = pool_life.replace(pool, server, directory, wait=wait, pace=pace, progress=progress, turn=turn)
    if keeps_names and not done["staying"]:
        draining.hint_at_names(pool)
    said = f"{new} is in the place of {server}" if not done["staying"] else f"{server} is not removed yet"
    draining.end(done, server, said, everything=everything, document={"new": new} if as_json else None)
