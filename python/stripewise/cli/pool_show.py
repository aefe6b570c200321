"""`stripewise pool show`."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from stripewise import StripewiseError
from stripewise.api import adapt, measured, pools, relief
from stripewise.api.pools import OpProfile, Pool, Tier
from stripewise.cli import console
from stripewise.units import about_bytes, exact_bytes, mb_per_s, seconds


def pool_show(
    pool_file: Annotated[Path, typer.Argument(metavar="POOL", help="Pool file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show a pool: its tiers and servers, what they cost, how full they are.

    If `stripewise adapt` is at work on the pool, it also says when the first server, the first tier and the whole pool
    are full, at the rate at which programs have filled them in the last week, or since it began.

    \b
    Examples:
      stripewise pool show p/pool.toml
      stripewise pool show p/pool.toml --json
    """
    print_pool(Pool.load(pool_file), as_json=as_json)


def print_pool(pool: Pool, *, as_json: bool) -> None:
    """Prints `pool` to stdout."""
    states = pools.usage_of(pool)
    full = measured.full(pool, _decisions(pool), states, time.time())
    if as_json:
        console.document({**pools.document(pool), **_full_document(full)})
        return
    console.result(f"pool '{pool.name}' on {pool.label}")
    console.result(f"  mount      {pool.mount}")
    console.result(f"  namespace  {pool.namespace}")
    console.result(f"  default    all servers, {exact_bytes(pool.default_width_bytes)} each")
    if pool.land is not None and pool.land_mark is not None:
        console.result(f"  new files  {_landing(pool, states)}")
    console.out.print()
    tiers = console.table(["tier", "servers", "read", "write", "capacity", "profile"], right=["servers", "capacity"])
    for tier in (*pool.tiers, pool.meta):
        tiers.add_row(
            tier.name,
            str(len(tier.servers)),
            describe_op(tier.read),
            describe_op(tier.write),
            exact_bytes(tier.capacity_bytes) if tier.capacity_bytes else "-",
            describe_source(tier),
        )
    console.out.print(tiers)
    if pool.meta_at_once > 1:
        console.result(f"meta serves {pool.meta_at_once} requests at once")
    console.out.print()
    servers = console.table(["server", "kind", "used", "free", "state", "directory"], right=["used", "free"])
    for tier in (*pool.tiers, pool.meta):
        for server in tier.servers:
            state = states[server.name]
            servers.add_row(
                server.name,
                "emulated" if tier.emulated else "real",
                about_bytes(state.used_bytes) if state.error is None else "-",
                about_bytes(state.free_bytes) if state.error is None else "-",
                state.error or ("ready" if server.state == "used" else server.state),
                str(server.path),
            )
    console.out.print(servers)
    _show_seeks(pool)
    if full is not None:
        _show_full(full)


def _decisions(pool: Pool) -> list[adapt.Decision]:
    """What `adapt` has decided; none where this user may not read it, as that of root's in a shared pool."""
    try:
        return adapt.decisions(pool)
    except StripewiseError as error:
        console.warn(f"not known when the pool is full: {error}")
        return []


def _full_document(full: measured.Full | None) -> dict[str, Any]:
    """When servers, tiers and the pool are full, and over which time that is known."""
    if full is None:
        return {"full_in_s": {}, "tiers_full_in_s": {}, "pool_full_in_s": None, "full_by_rate_of_s": None}
    return {
        "full_in_s": full.servers_s,
        "tiers_full_in_s": full.tiers_s,
        "pool_full_in_s": full.pool_s,
        "full_by_rate_of_s": full.span_s,
    }


def _show_full(full: measured.Full) -> None:
    """The server and the tier that are full first, and the pool."""
    firsts = [min(of.items(), key=lambda each: each[1]) for of in (full.servers_s, full.tiers_s) if of]
    firsts += [("the pool", full.pool_s)] if full.pool_s is not None else []
    if firsts:
        told = ", ".join(f"{name} is full {f'in {_days(in_s)}' if in_s > 0 else 'now'}" for name, in_s in firsts)
        console.result(f"{told}, at the rate of the last {_days(full.span_s)}, without what was moved")


def _days(time_s: float) -> str:
    if time_s >= 2 * 86_400:
        return f"{time_s / 86_400:,.1f} days"
    return f"{time_s / 3600:.1f} hours" if time_s >= 3600 else f"{time_s / 60:.1f} minutes"


def _show_seeks(pool: Pool) -> None:
    """What a seek takes by its distance, of the servers of which that was measured."""
    measured = [server for server in pool.servers if server.seeks]
    gaps = sorted({gap for server in measured for gap, _ in server.seeks})
    if not measured:
        return
    console.out.print()
    columns = [about_bytes(gap) for gap in gaps]
    grid = console.table(["seek over", *columns], right=columns)
    for server in measured:
        times = dict(server.seeks)
        grid.add_row(server.name, *(seconds(times[gap]) if gap in times else "-" for gap in gaps))
    console.out.print(grid)


def _landing(pool: Pool, states: Mapping[str, pools.Usage]) -> str:
    """Where files land, and how full that tier may get, and is."""
    if (why := relief.lands_nowhere(pool)) is not None:
        return f"are made in their place at once, not on {pool.land}, where they should land: {why}"
    servers = [states[server.name] for tier in pool.tiers if tier.name == pool.land for server in tier.servers]
    used = sum(of.used_bytes for of in servers if of.error is None)
    size = used + sum(of.free_bytes for of in servers if of.error is None)
    return (
        f"land on {pool.land}, which they leave at the latest when it is {pool.land_mark:.0%} full; now it is "
        f"{used / max(1, size):.0%}"
    )


def describe_op(op: OpProfile | None) -> str:
    """A profile in a few words: `4.00 ms..12.00 ms + 80 MB/s`."""
    if op is None:
        return "-"
    head = "" if op.sequential_startup_s is None else f" ({seconds(op.sequential_startup_s)} in order)"
    return f"{seconds(op.startup_min_s)}..{seconds(op.startup_max_s)}{head} + {mb_per_s(op.bandwidth_bytes_per_s)} MB/s"


def describe_source(tier: Tier) -> str:
    """Where a tier's profile is from, for people."""
    if tier.profile_source == "none":
        return "not calibrated"
    if tier.profile_source == "emulation":
        return "as emulated"
    if tier.profile_source != "pool file":
        return f"as {tier.profile_source}, not measured"
    return "emulated, as calibrated" if tier.emulated else "as calibrated"
