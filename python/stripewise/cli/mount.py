"""`stripewise mount`."""

from pathlib import Path
from typing import Annotated

import typer

from stripewise.api import running
from stripewise.api.pools import Pool
from stripewise.cli import console, draining
from stripewise.cli import limits as limiting


def mount(
    pool_file: Annotated[Path, typer.Argument(metavar="POOL", help="Pool file.")],
    directory: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="Where, a directory that exists; the pool file's `mount` if left out."),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say how requests travel between the kernel and the mount, and why.")
    ] = False,
    adapt: Annotated[
        bool, typer.Option("--adapt", help="Move what is hot as `stripewise adapt` does, until it is unmounted.")
    ] = False,
    limit: limiting.Limit = None,
    hours: limiting.Hours = None,
    rate: draining.Rate = None,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="[HOST:]PORT", help="Serve metrics for Prometheus there, on loopback if no HOST."),
    ] = None,
) -> None:
    """Mount a pool so that every program sees its files.

    The mount runs in the background until `stripewise umount`. A single program needs none: `stripewise run` makes a
    private one. A mount of the pool whose process has died is cleared from its place first. With --adapt or --metrics
    another process runs beside the mount, and ends with it. Of --adapt, --limit, --hours and --rate say how much may
    move, and when.

    \b
    Examples:
      stripewise mount p/pool.toml
      stripewise mount p/pool.toml /data/scratch
      stripewise mount -v p/pool.toml
      stripewise mount p/pool.toml --adapt --metrics 9123
      stripewise mount p/pool.toml --adapt --hours 22-6 --limit 100GB
    """
    pool = Pool.load(pool_file)
    url = None
    given = {"--limit": limit, "--hours": hours, "--rate": rate}
    without = [option for option, value in given.items() if value is not None]
    if without and not adapt:
        raise console.UsageError(f"{without[0]} says what --adapt may move: give that, too, or leave it out")
    if adapt or metrics is not None:
        # To load them takes longer than a mount.
        from stripewise.api import adapt_service, companion

        limiting.at_address(metrics)
        wanted = adapt_service.Wanted(limiting.limits(limit, hours), pace=draining.pace(rate, urgent=False))
        status, url = companion.mount(pool, directory, adapt=wanted if adapt else None, metrics=metrics)
    else:
        status = running.mount(pool, directory)
    if status == 0:
        emulated = " (emulated servers)" if pool.is_emulated else ""
        console.say(f"mounted pool '{pool.name}'{emulated} at {directory or pool.mount}")
        if verbose:
            travels = running.transports(pool).get((directory or pool.mount).resolve(), "a way that it does not say")
            console.say(f"requests travel by {travels}")
        if url is not None:
            console.say(f"metrics for Prometheus at {url}")
    raise SystemExit(status)
