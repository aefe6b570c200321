"""`stripewise pool calibrate`."""

from pathlib import Path
from typing import Annotated

import typer

from stripewise import StripewiseError
from stripewise.api import pools
from stripewise.api.pools import Pool
from stripewise.cli import console
from stripewise.cli.finite import finite
from stripewise.units import about_bytes, mb_per_s, seconds


def pool_calibrate(
    pool_file: Annotated[Path, typer.Argument(metavar="POOL", help="Pool file; the profiles are written into it.")],
    tiers: Annotated[
        list[str] | None, typer.Option("--tier", metavar="TIER", help="Only this tier; again for more.")
    ] = None,
    budget_s: Annotated[
        float,
        typer.Option(
            "--seconds", metavar="S", min=1, callback=finite, help="Time for the requests; all servers at once."
        ),
    ] = 16.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Measure and print, write nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Measure what reads and writes cost on each server, and write it into the pool file.

    Requests of several sizes go to a scratch file on each server with direct I/O, at random places, one at a time. The
    fit is HARL's profile: a least and a greatest startup time, and a bandwidth; the residual says how well it holds.
    Then requests follow each other in the file: where they start sooner, the server has a head and its profile says so,
    and pairs of reads at growing distances give what a seek takes; `pool show` prints that.
    Of the namespace it also measures how many requests are served at once, and what a name costs: one that is looked
    at, and one that is made, renamed or removed.
    A tier gets the median of its servers. The namespace is the tier meta; beside emulated servers alone, it is measured
    only with --tier meta. Comments and everything else in the pool file stay.

    \b
    Examples:
      stripewise pool calibrate p/pool.toml
      stripewise pool calibrate p/pool.toml --tier ssd --seconds 60
    """
    pool = Pool.load(pool_file)
    names = [tier.name for tier in (*pool.tiers, pool.meta)]
    for name in tiers or []:
        if name not in names:
            raise StripewiseError(f"--tier {name}: pool '{pool.name}' has no such tier, it has {', '.join(names)}")
    chosen = tiers or pools.measured_tiers(pool)
    with console.counting("calibrating") as count:

        def progress(shares: list[float]) -> None:
            count(round(100 * sum(shares)), 100 * len(shares))

        measured = pools.calibrate(pool, chosen, budget_s=budget_s, write=not dry_run, progress=progress)
    if as_json:
        console.document(measured)
        return
    columns = [
        "server",
        "op",
        "startup min",
        "startup max",
        "in order",
        "ahead",
        "MB/s",
        "residual",
        "requests",
        "method",
    ]
    grid = console.table(columns, right=columns[2:9], title=f"pool '{pool.name}', {pool.label}")
    for tier in measured:
        for server in tier["servers"]:
            for op, fit in (("read", server["read"]), ("write", server["write"])):
                grid.add_row(
                    server["name"] if op == "read" else "",
                    op,
                    seconds(fit["startup_min_s"]),
                    seconds(fit["startup_max_s"]),
                    "-" if fit["sequential_startup_s"] is None else seconds(fit["sequential_startup_s"]),
                    about_bytes(fit["ahead_bytes"]) if fit["ahead_bytes"] else "-",
                    _bandwidth(fit["transfer_s_per_byte"]),
                    f"{fit['residual']:.1%}",
                    str(fit["requests"]),
                    server["method"],
                )
        if (costs := tier["names"]) is not None:
            for what, range_s in (("look", costs["look_s"]), ("change", costs["change_s"])):
                grid.add_row("", f"name, {what}", *map(seconds, range_s), *["-"] * 6)
    console.out.print(grid)
    for tier in measured:
        for warning in tier["warnings"]:
            console.warn(warning)
    if not dry_run:
        console.say(f"wrote the profiles of {', '.join(chosen)} into {pool_file}")


def _bandwidth(transfer_s_per_byte: float) -> str:
    """In MB/s; of memory, whose transfers take no time that can be told from noise, it is not known."""
    return mb_per_s(1 / transfer_s_per_byte) if transfer_s_per_byte > 0 else "-"
