"""What each server has to do under the present layouts and under the others."""

from __future__ import annotations

import altair

from stripewise import _native
from stripewise.report import chart
from stripewise.report.facts import Facts
from stripewise.report.markup import Markup, section, table
from stripewise.units import about_bytes, seconds

NAME, TITLE = "servers", "Load of the servers"
MOST = 32
"""Servers that are drawn: the most loaded ones."""
TABLE_ROWS = 200


def draw(facts: Facts) -> Markup:
    """Bytes, and busy time where it was simulated."""
    if facts.load is None:
        return Markup("")
    content = _figure(facts, facts.load, "bytes")
    if facts.load["simulated"] is not None:
        content += _figure(facts, facts.load, "busy_s")
    return section(NAME, TITLE, content)


def _value(server: _native.LoadedServer, side: str, what: str) -> float:
    load = server["present"] if side == "now" else server["layout"]
    return load["bytes"] if what == "bytes" else load["busy_s"] or 0.0


def _figure(facts: Facts, load: _native.ServerLoad, what: str) -> Markup:
    sides = ["now", "with the layout"] if facts.changes else ["now"]
    every = load["servers"]
    shown = every
    if len(every) > MOST:
        ranked = sorted(every, key=lambda server: -max(_value(server, side, what) for side in sides))[:MOST]
        names = {server["name"] for server in ranked}
        shown = [server for server in every if server["name"] in names]
    rows = [
        {"server": server["name"], "side": side, "value": _value(server, side, what)}
        for server in shown
        for side in sides
    ]
    most = max((row["value"] for row in rows if isinstance(row["value"], int | float)), default=0)

    def draw_at(width: int) -> chart.Chart:
        colour = altair.Color(
            "side:N", scale=altair.Scale(domain=sides, range=[chart.BEFORE, chart.AFTER][: len(sides)])
        )
        if what == "bytes":
            axis = chart.byte_axis("bytes", most, chart.ticks_of(width))
        else:
            axis = altair.Axis(title="busy seconds", tickCount=chart.ticks_of(width), format=",.6~g")
        y = altair.Y("server:N", sort=[server["name"] for server in shown], title=None)
        base = altair.Chart(chart.values(rows)).mark_bar()
        offset = altair.YOffset("side:N", sort=sides, scale=altair.Scale(paddingInner=0.1))
        return base.encode(y=y, yOffset=offset, x=altair.X("value:Q", axis=axis), color=colour).properties(
            height=altair.Step(10 if len(sides) > 1 else 16)
        )

    def spread(side: str) -> str:
        loads = [_value(server, side, what) for server in every]
        used = [value for value in loads if value]
        shown_as = about_bytes if what == "bytes" else seconds
        return (
            f"{side}: " if len(sides) > 1 else ""
        ) + f"{len(used)} of {len(every)} servers, the busiest {shown_as(max(loads, default=0))}"

    words = "; ".join(map(spread, sides))
    cut = f" The {MOST} most loaded of {len(every):,}." if len(every) > MOST else ""
    titles = {
        "bytes": "Bytes that each server moves",
        "busy_s": f"Busy time of each server, simulated on {facts.servers.label}",
    }
    colours = [(chart.BEFORE, "now"), (chart.AFTER, "with the layout")] if facts.changes else []
    return chart.figure(
        titles[what],
        f"Bars of servers. {words}.{cut}",
        draw_at,
        _table(facts, every),
        legend=chart.key(colours, words + "." + cut),
    )


def _table(facts: Facts, every: list[_native.LoadedServer]) -> Markup:
    columns = ["server", "requests now", "bytes now", "busy now"]
    if facts.changes:
        columns += ["requests then", "bytes then", "busy then"]
    rows = []
    for server in every[:TABLE_ROWS]:
        row: list[object] = [server["name"]]
        for load in [server["present"], server["layout"]] if facts.changes else [server["present"]]:
            busy = load["busy_s"]
            row += [f"{load['requests']:,}", about_bytes(load["bytes"]), "-" if busy is None else seconds(busy)]
        rows.append(row)
    cut = f" (the first {TABLE_ROWS} of {len(every):,})" if len(every) > TABLE_ROWS else ""
    return table(columns, rows, f"Load of every server{cut}; requests are those that a server gets after splitting")
