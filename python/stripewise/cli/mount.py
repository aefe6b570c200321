"""`stripewise mount`."""

from pathlib import Path
from typing import Annotated

import typer

from stripewise.api import companion, running
from stripewise.api.pools import Pool
from stripewise.cli import console


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
    metrics: Annotated[
        str | None,
        typer.Option(metavar="[HOST:]PORT", help="Serve metrics for Prometheus there, on loopback if no HOST."),
    ] = None,
) -> None:
    """Mount a pool so that every program sees its files.

    The mount runs in the background until `stripewise umount`. A single program needs none: `stripewise run` makes a
    private one. A mount of the pool whose process has died is cleared from its place first. With --adapt or --metrics
    another process runs beside the mount, and ends with it.

    \b
    Examples:
      stripewise mount p/pool.toml
      stripewise mount p/pool.toml /data/scratch
      stripewise mount -v p/pool.toml
      stripewise mount p/pool.toml --adapt --metrics 9123
    """
    pool = Pool.load(pool_file)
    url = None
    if adapt or metrics is not None:
        status, url = companion.mount(pool, directory, adapt=adapt, metrics=metrics)
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
