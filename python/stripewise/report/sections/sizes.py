"""Request sizes: how many there are of each, and where in the files."""

from __future__ import annotations

import altair
import numpy as np

from stripewise import _native
from stripewise.report import chart, pixels
from stripewise.report.facts import Facts, requests, short
from stripewise.report.markup import Markup, section, table
from stripewise.units import about_bytes, exact_bytes

NAME, TITLE = "sizes", "Request sizes"
HEIGHT = 180
STEPS = 4
"""Cells an octave, as the maps have them."""
MOST_ROWS = 40


def draw(facts: Facts) -> Markup:
    """A histogram of all requests, and size by offset for each of the hottest files."""
    access = facts.access
    if not access["sizes"]:
        return Markup("")
    content = _histogram(facts)
    for drawn in access["maps"]:
        content += _by_offset(facts, drawn)
    return section(NAME, TITLE, content)


def _histogram(facts: Facts) -> Markup:
    sizes = facts.access["sizes"]
    labels = [exact_bytes(size["from"]) for size in sizes]
    rows = [
        {"size": label, "way": word, "requests": load["requests"]}
        for label, size in zip(labels, sizes, strict=True)
        for word, load in (("read", size["reads"]), ("written", size["writes"]))
    ]

    def draw_at(width: int) -> chart.Chart:
        angle = -40 if len(labels) > (12 if width == chart.WIDE else 5) else 0
        x = altair.X("size:N", sort=labels, title="size, to twice that", axis=altair.Axis(labelAngle=angle))
        colour = altair.Color(
            "way:N", scale=altair.Scale(domain=["read", "written"], range=[chart.READ, chart.WRITTEN])
        )
        y = altair.Y("requests:Q", title="requests", axis=altair.Axis(tickCount=4, format="~s"))
        return altair.Chart(chart.values(rows)).mark_bar().encode(x=x, y=y, color=colour).properties(height=HEIGHT)

    most = max(sizes, key=requests)
    total = sum(map(requests, sizes))
    words = (
        f"Bars, a size each: of {total:,} requests {requests(most):,} have {exact_bytes(most['from'])} to twice that."
    )
    numbers = [
        [
            label,
            f"{size['reads']['requests']:,}",
            about_bytes(size["reads"]["bytes"]),
            f"{size['writes']['requests']:,}",
            about_bytes(size["writes"]["bytes"]),
        ]
        for label, size in zip(labels, sizes, strict=True)
    ]
    columns = ["size, to twice that", "reads", "bytes read", "writes", "bytes written"]
    return chart.figure(
        "All requests by size",
        words,
        draw_at,
        table(columns, numbers, "Requests of all files by size"),
        legend=chart.key([(chart.READ, "read"), (chart.WRITTEN, "written")]),
    )


def _by_offset(facts: Facts, drawn: _native.FileMap) -> Markup:
    plane, path = drawn["sizes"], facts.files[drawn["file"]]
    across, down = plane["across"], plane["down"]
    extent = across["from"] + across["cell"] * across["cells"]
    low, high = down["from"] / STEPS, (down["from"] + down["cells"]) / STEPS
    borders = [border for border in facts.borders(drawn["file"]) if border < extent]
    octaves = list(range(int(np.floor(low)), int(np.ceil(high)) + 1))
    every = max(1, len(octaves) // 6)

    def draw_at(width: int) -> chart.Chart:
        x = altair.X(
            "left:Q",
            scale=altair.Scale(domain=[0, extent], nice=False),
            axis=chart.byte_axis("offset", extent, chart.ticks_of(width)),
        )
        y = altair.Y(
            "bottom:Q",
            scale=altair.Scale(domain=[octaves[0], octaves[-1]], nice=False),
            axis=altair.Axis(
                title="request size",
                values=octaves[::every],
                labelExpr=chart.BYTES.replace("datum.value", "pow(2, datum.value)"),
            ),
        )
        png = pixels.png(plane["reads"], plane["writes"])
        layers = [chart.picture(png, across["from"], extent, low, high, x, y)]
        if borders:
            data = chart.values([{"left": border} for border in borders])
            layers.append(altair.Chart(data).mark_rule(color=chart.INK, strokeDash=[4, 3]).encode(x="left:Q"))
        return altair.layer(*layers).properties(height=HEIGHT)

    rows = []
    for row in range(down["cells"] - 1, -1, -1):
        read, written = int(plane["reads"][row].sum()), int(plane["writes"][row].sum())
        if read or written:
            touched = np.flatnonzero(plane["reads"][row] + plane["writes"][row])
            between = (
                across["from"] + int(touched[0]) * across["cell"],
                across["from"] + (int(touched[-1]) + 1) * across["cell"],
            )
            rows.append(
                [
                    _size(down["from"] + row),
                    f"{read:,}",
                    f"{written:,}",
                    about_bytes(between[0]),
                    about_bytes(min(between[1], extent)),
                ]
            )
    rows.sort(key=lambda row: -int(row[1].replace(",", "")) - int(row[2].replace(",", "")))
    cut = f", the {MOST_ROWS} commonest sizes" if len(rows) > MOST_ROWS else ""
    most = int((plane["reads"] + plane["writes"]).max(initial=0))
    note = f"mixed colours: both; the fuller the more, at most {most:,} in {about_bytes(across['cell'])} of the file"
    return chart.figure(
        f"{short(path)}: size by offset",
        f"Heat map of {path}, offset across, request size upwards: {len(rows)} sizes, a quarter of an octave each; "
        f"{len(borders) + 1 if facts.load is not None else 'no'} regions. The table has the numbers.",
        draw_at,
        table(["size from", "reads", "writes", "first at", "last before"], rows[:MOST_ROWS], f"Requests by size{cut}"),
        legend=chart.key([(chart.READ, "read"), (chart.WRITTEN, "written")], note),
    )


def _size(step: int) -> str:
    octave, within = divmod(step, STEPS)
    return about_bytes((1 << octave) * (1 + within / STEPS))
