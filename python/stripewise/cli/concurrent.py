"""What `simulate --schedule` and `advise` print of programs that run at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stripewise.api import together as api
from stripewise.cli import console
from stripewise.terminal import name
from stripewise.units import about_bytes, mib_per_s, ratio, seconds

if TYPE_CHECKING:
    from stripewise.api.documents import ConcurrentPrograms

NOTICED = 1.05
"""A program that is slower by less is not said to be hurt."""


def show_policies(found: ConcurrentPrograms) -> None:
    """Prints a table of the programs alone, and one of what each policy makes of them together."""
    programs = found["programs"]
    alone = console.table(
        ["program", "processes", "bytes", "servers", "begins", "alone"],
        right=["processes", "bytes", "servers", "begins", "alone"],
    )
    for one in programs:
        alone.add_row(
            name(one["name"]),
            str(one["processes"]),
            about_bytes(one["bytes"]),
            str(len(one["servers"])),
            seconds(one["begin_s"]),
            seconds(one["alone_s"]["mean"]),
        )
    console.out.print(alone)
    console.out.print()
    names = [name(one["name"]) for one in programs]
    right = ["MiB/s", "time", "fairness", *names]
    grid = console.table(["turns", *right], right=right, title="slower than alone, by program")
    for row in found["policies"]:
        grid.add_row(
            row["policy"],
            mib_per_s(row["throughput"]["mean"]),
            seconds(row["makespan_s"]["mean"]),
            f"{row['fairness']['mean']:.2f}",
            *(ratio(slowdown["mean"]) for slowdown in row["slowdowns"]),
        )
    console.out.print(grid)
    console.result("fairness is Jain's index of the slowdowns: 1 where all are slowed alike")


def show_pairs(found: ConcurrentPrograms) -> None:
    """Says which programs hurt each other, and which policy helps how much."""
    for pair in found["pairs"]:
        one, other = (name(of) for of in pair["programs"])
        slowdowns = [slowdown["mean"] for slowdown in pair["slowdowns"]]
        shared = f"{_listed(pair['servers'])} for {seconds(pair['overlap_s'])}"
        if max(slowdowns) < NOTICED:
            console.result(f"{one} and {other} share {shared}, and neither is slower by more than {NOTICED - 1:.0%}")
            continue
        console.result(
            f"{one} and {other} hurt each other on {shared}: "
            f"{one} takes {ratio(slowdowns[0])} of its time alone, {other} {ratio(slowdowns[1])}"
        )
    if not found["pairs"]:
        console.result("no two of these programs use a server at one time")
    if found["pairs_left"]:
        console.say(f"{found['pairs_left']:,} more pairs overlap for less time and were not simulated by themselves")
    helps = api.helping_policy(found)
    if helps is None:
        console.result("no policy of `stripewise orchestrate` helps them: leave turns off")
        return
    plain = found["policies"][0]
    rates = (mib_per_s(one["throughput"]["mean"]) for one in (helps, plain))
    worst = (ratio(api.worst_slowdown(one)) for one in (helps, plain))
    console.result(
        f"turns by `{helps['policy']}` help: {' MiB/s in place of '.join(rates)}, the most slowed program takes "
        f"{' of its time alone in place of '.join(worst)}"
    )
    console.hint(f"`stripewise orchestrate POOL --policy {helps['policy']}` lets them take turns")


def _listed(servers: Sequence[str]) -> str:
    """The first servers by name, and how many there are."""
    few = ", ".join(servers[:4])
    return few if len(servers) <= 4 else f"{few} and {len(servers) - 4:,} more servers"
