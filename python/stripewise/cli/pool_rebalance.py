"""`stripewise pool rebalance`."""

from pathlib import Path
from typing import Annotated

import typer

from stripewise.api import pool_life
from stripewise.api.pools import Pool
from stripewise.cli import console, draining


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
    another. A file of several regions moves region by region. The largest move first, each region once at most, and is
    copied whole. What cannot be read stays.
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
        pace = draining.pace(rate, urgent)
        done = draining.in_turn(pool, lambda: pool_life.rebalance(pool, dry_run=dry_run, pace=pace, progress=progress))
    if as_json:
        console.document({"dry_run": dry_run, **done})
    else:
        draining.report_rebalanced(done, dry_run=dry_run, everything=everything)
    if done["staying"]:
        raise SystemExit(console.EXIT_FAILED)
