"""`stripewise pool add`."""

from pathlib import Path
from typing import Annotated

import typer

from stripewise.api import pool_life
from stripewise.api.pools import Pool
from stripewise.cli import console


def pool_add(
    pool_file: Annotated[Path, typer.Argument(metavar="POOL", help="Pool file.")],
    directories: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Directories, one on each new disk.")],
    tier: Annotated[
        str | None, typer.Option(metavar="TIER", help="The tier that they are of; left out: by the kind of the disk.")
    ] = None,
) -> None:
    """Add servers to a pool: a directory on each new disk.

    Programs may use the pool meanwhile. Mounts put new files on the new server within a second; files that are there
    stay where they are. As with `pool init`, nothing in the directory is touched: the server keeps to a hidden
    directory of the pool's name in it. No server gets another name or number by it.

    \b
    Examples:
      stripewise pool add p/pool.toml /disk3
      stripewise pool add p/pool.toml /disk3 /disk4 --tier hdd
    """
    pool = Pool.load(pool_file)
    for directory, added in zip(directories, pool_life.add(pool, directories, tier), strict=True):
        console.result(f"{directory} is server {added}")
