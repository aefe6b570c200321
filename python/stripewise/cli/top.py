"""`stripewise top`."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from stripewise import _native
from stripewise._native import StripewiseError
from stripewise.cli import console
from stripewise.pool import Pool
from stripewise.units import about_bytes, mib_per_s, seconds


def top(
    pool_file: Annotated[Path, typer.Option("--pool", "-p", metavar="POOL", help="Pool file.")],
    interval_s: Annotated[
        float, typer.Option("--interval", "-i", min=0.1, metavar="S", help="Seconds between updates.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print the totals since each queue was made, and exit.")] = False,
) -> None:
    """Watch what each emulated server of a pool does: requests, bytes, busy and waiting time.

    Real devices are watched with iostat; this is for servers that only Stripewise knows.

    \b
    Examples:
      stripewise top --pool p/pool.toml
      stripewise top --pool p/pool.toml --once
    """
    pool = Pool.load(pool_file)
    if not pool.is_emulated:
        raise StripewiseError(f"pool '{pool.name}' has no emulated server; watch its disks with iostat -x")
    before = _native.emulation_snapshot(str(pool.file))
    if once:
        console.out.print(_totals(pool, before.total()))
        return
    with Live(console=console.out, auto_refresh=False, transient=True) as live:
        while True:
            began = time.monotonic()
            time.sleep(interval_s)
            now = _native.emulation_snapshot(str(pool.file))
            passed_s = time.monotonic() - began
            live.update(_rates(pool, now.since(before)["servers"], passed_s), refresh=True)
            before = now


def _totals(pool: Pool, servers: list[Any]) -> Group:
    columns = ["server", "requests", "read", "written", "busy", "waiting", "error"]
    grid = console.table(columns, right=columns[1:])
    for server in servers:
        done = (server["read"], server["write"])
        error = server["median_error"]
        grid.add_row(
            server["name"],
            str(sum(op["requests"] for op in done)),
            about_bytes(server["read"]["bytes"]),
            about_bytes(server["write"]["bytes"]),
            seconds(sum(op["busy_s"] for op in done)),
            seconds(sum(op["waiting_s"] for op in done)),
            "-" if error is None else f"{error:.1%}",
        )
    return Group(_title(pool, "since the queues were made"), grid)


def _rates(pool: Pool, servers: list[Any], passed_s: float) -> Group:
    columns = ["server", "requests/s", "read MiB/s", "write MiB/s", "busy", "waiting/request"]
    grid: Table = console.table(columns, right=columns[1:])
    for server in servers:
        done = (server["read"], server["write"])
        requests = sum(op["requests"] for op in done)
        waiting_s = sum(op["waiting_s"] for op in done)
        grid.add_row(
            server["name"],
            f"{requests / passed_s:.0f}",
            mib_per_s(server["read"]["bytes"] / passed_s),
            mib_per_s(server["write"]["bytes"] / passed_s),
            f"{sum(op['busy_s'] for op in done) / passed_s:.0%}",
            seconds(waiting_s / requests) if requests else "-",
        )
    return Group(_title(pool, f"last {seconds(passed_s)}; Ctrl-C ends"), grid)


def _title(pool: Pool, when: str) -> Text:
    return Text(console.plain(f"pool '{pool.name}', emulated servers, {when}"))
