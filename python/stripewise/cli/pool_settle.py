"""`stripewise pool settle`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from stripewise import StripewiseError
from stripewise.api import adapt as adapting
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
    command goes on. It is refused while another process adapts the pool, which settles files itself.

    \b
    Examples:
      stripewise pool settle p/pool.toml --dry-run
      stripewise pool settle p/pool.toml --hot

    \b
    Exit codes: 0 done, 1 files stay that should move, or refused.
    """
    pool = Pool.load(pool_file)
    pace = draining.pace(rate, urgent)
    with ExitStack() as stack:
        if not dry_run:
            _be_alone(pool, stack)
        progress = stack.enter_context(draining.moving("settling"))
        done = draining.in_turn(
            pool,
            lambda: relief.settle(pool, everything=hot, dry_run=dry_run, pace=pace, progress=progress),
            draining.GOES_ON,
        )
    if as_json:
        console.document({"dry_run": dry_run, **done})
    else:
        if (why := relief.lands_nowhere(pool)) is not None:
            console.result(f"{why}: no new file lands there")
        settling.report(done, everything=everything)
    if not dry_run and (done["staying"] or "why" in done):
        raise SystemExit(console.EXIT_FAILED)


def _be_alone(pool: Pool, stack: ExitStack) -> None:
    """Keeps other processes from adapting the pool: which files have left in part is kept by one at a time."""
    try:
        stack.enter_context(adapting.alone(pool))
    except adapting.AdaptedError as error:
        raise StripewiseError(
            f"pool '{pool.name}' is adapted by another process, which settles its files itself: `stripewise adapt "
            f"{pool.file} --once` has it do so now, within its limits; end it to settle by this command"
        ) from error
