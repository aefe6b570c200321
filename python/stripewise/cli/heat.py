"""`stripewise heat`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stripewise.api import heat as heat_of
from stripewise.api import placing
from stripewise.api.pools import Pool
from stripewise.cli import console
from stripewise.terminal import name
from stripewise.units import about_bytes, exact_bytes, seconds

if TYPE_CHECKING:
    from stripewise.api.heat import PoolHeat

COLUMNS = 60
"""Parts of a file that are drawn."""
LEVELS = " ▁▂▃▄▅▆▇█"


def heat(
    path: Annotated[Path, typer.Argument(metavar="FILE|DIR", help="A file of a pool, or a directory.")],
    pool_file: Annotated[
        Path | None, typer.Option("--pool", "-p", metavar="POOL", help="Pool file; found by the path if left out.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="List every file, however many.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON, with each block.")] = False,
) -> None:
    """Show the heat of files: what accesses to each part have cost the servers of late.

    A pool keeps heat if its pool file has a table [heat]. Each read and write adds what it would cost on the slowest
    tier; all of it is halved once a period. The hottest part of a file is drawn as a full block. Reads of
    pages that the kernel keeps cost nothing.

    \b
    Examples:
      stripewise heat /data/scratch/result.h5
      stripewise heat . --pool p/pool.toml
    """
    found = heat_of.of(placing.place_of(path, None if pool_file is None else Pool.load(pool_file)))
    if as_json:
        console.document(found)
        return
    _print(found, everything=everything)


def _print(found: PoolHeat, *, everything: bool) -> None:
    files = sorted(found["files"], key=lambda file: -file["cost_us"])
    if not files:
        console.result("no heat: nothing was read or written of late through a mount that keeps it")
    else:
        grid = console.table(["file", "size", "cost", "heat by part"], right=["size", "cost"], paths=["file"])
        for file in console.shown(files, everything=everything):
            cost = seconds(file["cost_us"] / 1e6)
            parts = drawn(heat_of.columns(file, found["block_bytes"], COLUMNS))
            grid.add_row(name(file["path"]), about_bytes(file["size_bytes"]), cost, parts)
        console.out.print(grid)
        console.say_more(files, "files have heat", everything=everything)
    console.say(f"blocks of {exact_bytes(found['block_bytes'])}, halved every {seconds(found['period_s'])}")
    if found["missed"]:
        console.warn(f"{found['missed']:,} requests found no room and were not counted; choose larger blocks")


def drawn(parts: Sequence[float]) -> str:
    """Parts of a file by their heat, the hottest one as a full block. The least heat is seen, too."""
    most = max(parts, default=0.0)
    return "".join(LEVELS[0 if part == 0 else max(1, round(part / most * (len(LEVELS) - 1)))] for part in parts)
