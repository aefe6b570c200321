"""`stripewise pool settle`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stripewise.api import relief
from stripewise.api.pools import Pool
from stripewise.cli import console, draining, settling


def pool_settle(
    pool_file: Annotated[Path, typer.Argument(metavar="POOL", help="Pool file, with land below [default].")],
    hot: Annotated[bool, typer.Option("--hot", help="Move hot files, too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be moved.")] = False,
    rate: draining.Rate = None,
    urgent: draining.Urgent = False,
    everything: draining.Everything = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
) -> None:
    """Move new files from the tier on which they landed to their place, once, as `adapt` does each period.

    Files that are read again and again stay there, if the pool keeps heat, until the tier is as full as `land_mark` of
    the pool file says; then those with the least gain per byte leave. Below that mark nothing moves while the servers
    are busy for programs. Files that programs keep in their place stay and are named. Stopped or killed, the same
    command goes on.

    \b
    Examples:
      stripewise pool settle p/pool.toml --dry-run
      stripewise pool settle p/pool.toml --hot

    \b
    Exit codes: 0 done, 1 files stay that should move, or refused.
    """
    pool = Pool.load(pool_file)
    pace = draining.pace(rate, urgent)
    with draining.moving("settling") as progress:
        done = relief.settle(pool, everything=hot, dry_run=dry_run, pace=pace, progress=progress)
    if as_json:
        console.document({"dry_run": dry_run, **done})
    else:
        settling.report(done, everything=everything)
    if done.get("staying"):
        raise SystemExit(console.EXIT_FAILED)
