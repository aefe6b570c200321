"""How evenly the processes are loaded, and how long each waits under both layouts."""

from __future__ import annotations

from typing import Literal

import altair
import numpy as np

from stripewise.report import chart
from stripewise.report.facts import Facts, moved, requests
from stripewise.report.markup import Markup, section, table
from stripewise.units import about_bytes, seconds

NAME, TITLE = "processes", "Load of the processes"
HEIGHT = 160
BARS = 100
"""Most bars: of more processes several are one bar, their mean."""
TABLE_ROWS = 20
WAYS: tuple[Literal["reads", "writes"], ...] = ("reads", "writes")


def draw(facts: Facts) -> Markup:
    """Bytes by process, and the time that each waits for its requests."""
    processes = facts.access["processes"]
    if not processes:
        return Markup("")
    per = -(-len(processes) // BARS)
    bars: list[dict[str, object]] = []
    for place in range(0, len(processes), per):
        group = processes[place : place + per]
        read, written = (float(np.mean([one[way]["bytes"] for one in group])) for way in WAYS)
        whole = {"place": place, "end": place + len(group)}
        bars.append({**whole, "way": "read", "from": 0, "to": read})
        bars.append({**whole, "way": "written", "from": read, "to": read + written})
    most = max(float(np.mean([moved(one) for one in processes[at : at + per]])) for at in range(0, len(processes), per))

    def draw_bytes(width: int) -> chart.Chart:
        colour = altair.Color(
            "way:N", scale=altair.Scale(domain=["read", "written"], range=[chart.READ, chart.WRITTEN])
        )
        y = altair.Y("from:Q", axis=chart.byte_axis("bytes", most, 4))
        base = altair.Chart(chart.values(bars)).mark_rect(stroke=chart.PAPER, strokeWidth=0.5)
        return base.encode(x=_x(facts, width), x2="end:Q", y=y, y2="to:Q", color=colour).properties(height=HEIGHT)

    loads = np.array([moved(one) for one in processes], dtype=np.float64)
    mean = float(loads.mean())
    even = f"The most loaded moves {loads.max() / mean:.1f} times the mean of {about_bytes(mean)}." if mean else ""
    of = f" A bar is the mean of {per} {facts.units}." if per > 1 else ""
    content = chart.figure(
        f"Bytes by {facts.unit}",
        f"Bars of {len(processes):,} {facts.units}. {even}{of} The table has the most loaded.",
        draw_bytes,
        _bytes_table(facts),
        legend=chart.key([(chart.READ, "read"), (chart.WRITTEN, "written")], even + of),
    )
    return section(NAME, TITLE, content + _waiting(facts))


def _x(facts: Facts, width: int) -> altair.X:
    count = len(facts.access["processes"])
    axis = altair.Axis(
        title="rank" if facts.unit == "rank" else "process, by program and rank",
        tickMinStep=1,
        format="d",
        tickCount=min(count, chart.ticks_of(width)),
    )
    return altair.X("place:Q", scale=altair.Scale(domain=[0, count], nice=False), axis=axis)


def _bytes_table(facts: Facts) -> Markup:
    processes = facts.access["processes"]
    order = sorted(range(len(processes)), key=lambda place: -moved(processes[place]))[:TABLE_ROWS]
    rows = [
        [
            facts.process_name(place),
            f"{requests(processes[place]):,}",
            about_bytes(processes[place]["reads"]["bytes"]),
            about_bytes(processes[place]["writes"]["bytes"]),
            seconds(processes[place]["reads"]["service_s"] + processes[place]["writes"]["service_s"]),
        ]
        for place in order
    ]
    caption = (
        f"The {len(rows)} {facts.units} that moved most, of {len(processes):,}; "
        "time is the sum of their requests', in the log"
    )
    return table([facts.unit, "requests", "read", "written", "time"], rows, caption)


def _waiting(facts: Facts) -> Markup:
    """Simulated, so that both layouts compare."""
    if facts.load is None or facts.load["processes"] is None or not facts.load["processes"]:
        return Markup("")
    places = {(one["program"], one["rank"], one["pid"]): place for place, one in enumerate(facts.access["processes"])}
    waits = [
        (places[one["program"], one["rank"], one["pid"]], one["present_s"], one["layout_s"])
        for one in facts.load["processes"]
    ]
    waits.sort()
    sides = ["now", "with the layout"] if facts.changes else ["now"]
    count = len(facts.access["processes"])
    per = -(-count // BARS)
    rows = []
    for at in range(0, count, per):
        group = [wait for wait in waits if at <= wait[0] < at + per]
        if group:
            rows += [
                {
                    "place": at,
                    "end": min(at + per, count),
                    "middle": (at + min(at + per, count)) / 2,
                    "side": side,
                    "seconds": float(np.mean([wait[1 + number] for wait in group])),
                }
                for number, side in enumerate(sides)
            ]

    def draw_at(width: int) -> chart.Chart:
        colour = altair.Color(
            "side:N", scale=altair.Scale(domain=sides, range=[chart.BEFORE, chart.AFTER][: len(sides)])
        )
        y = altair.Y("seconds:Q", title="seconds", stack=None, axis=altair.Axis(tickCount=4))
        base = altair.Chart(chart.values(rows)).mark_rule(strokeWidth=3)
        return base.encode(x=_x(facts, width), x2="end:Q", y=y, color=colour).properties(height=HEIGHT)

    totals = [sum(wait[1 + number] for wait in waits) for number in range(len(sides))]
    words = "; ".join(f"{side} {seconds(total)} in all" for side, total in zip(sides, totals, strict=True))
    order = sorted(waits, key=lambda wait: -wait[1])[:TABLE_ROWS]
    numbers = [
        [facts.process_name(place), seconds(now), *([seconds(then)] if facts.changes else [])]
        for place, now, then in order
    ]
    colours = [(chart.BEFORE, "now"), (chart.AFTER, "with the layout")] if facts.changes else []
    return chart.figure(
        f"Time that {facts.units} wait for their requests, simulated on {facts.servers.label}",
        f"A line for each of {len(waits):,} {facts.units}: {words}. The table has those that wait longest.",
        draw_at,
        table(
            [facts.unit, *sides], numbers, f"The {len(numbers)} {facts.units} that wait longest now, of {len(waits):,}"
        ),
        legend=chart.key(colours, words),
    )
