"""One picture for a slide: the run in a sentence, what was moved when, in which sizes, and what servers had to do."""

from __future__ import annotations

import re
import textwrap
from typing import Literal

import altair
import vl_convert

from stripewise import _native
from stripewise.exporters.advised import figures_set
from stripewise.heading import NowThen, unchanged
from stripewise.report import chart, pixels
from stripewise.report.facts import Facts, moved, short
from stripewise.terminal import middle, name
from stripewise.units import about_bytes, counted, exact_bytes, mib_per_s, ratio, seconds

WIDTH, HEIGHT = 1280, 720
"""Of the slide, in pixels of a screen: 16 to 9."""
PIXELS = 2
"""Pixels of a PNG for each of those."""
MARGIN = 24
READ, WRITTEN = "#2f81f7", "#db6d28"
BEFORE, AFTER = "#8c959f", "#1a7f37"
INK, MUTED, GRID = "#1f2328", "#57606a", "#d8dee4"
LEFT, RIGHT = 660, 360
"""Widths of the two columns of pictures."""
TALL, LOW = 400, 160
"""Heights of the picture on the left and of those on the right."""
MOST_SERVERS = 12
TITLE = 80
"""Letters of the title at most."""
LETTERS = 150
"""Of a line below the title."""
LEAST_SIZE = 0.001
"""Sizes of requests that move a smaller share of the bytes are not drawn."""
ONE_FILE = 0.5
"""A file of this share of the bytes is drawn by itself; of less, the processes are."""


def slide(facts: Facts, suffix: str) -> bytes:
    """The picture as a PNG, SVG or PDF file."""
    drawn = _on_slide(vl_convert.vegalite_to_svg(_chart(facts).to_dict()))
    if suffix == ".svg":
        return drawn.encode("utf-8", "replace")
    if suffix == ".pdf":
        return bytes(vl_convert.svg_to_pdf(drawn))
    return bytes(vl_convert.svg_to_png(drawn, scale=PIXELS))


def _on_slide(drawn: str) -> str:
    """The drawing as large as it can be in the middle of a white slide."""
    opening = re.match(r"<svg\b[^>]*?viewBox=\"([^\"]*)\"[^>]*>", drawn)
    assert opening is not None, "vl-convert wrote no SVG"
    left, top, width, height = map(float, opening[1].split())
    by = min((WIDTH - 2 * MARGIN) / width, (HEIGHT - 2 * MARGIN) / height)
    x, y = (WIDTH - by * width) / 2 - by * left, (HEIGHT - by * height) / 2 - by * top
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    paper = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    # A pixel of a heat map is a cell, with sharp edges.
    body = drawn[opening.end() :].replace("<image ", '<image image-rendering="optimizeSpeed" ')
    body = body.removesuffix("</svg>")
    # A drawing in a drawing is nested too deep for a PDF.
    return f'<svg {spaces} {size}>{paper}<g transform="translate({x:.2f} {y:.2f}) scale({by:.4f})">{body}</g></svg>'


def _chart(facts: Facts) -> chart.Chart:
    right = [_sizes(facts)]
    if facts.load is not None and facts.load["servers"]:
        right.append(_servers(facts, facts.load))
    pictures = [_heat(facts)] if facts.access["maps"] else []
    if facts.access["sizes"]:
        pictures.append(altair.vconcat(*right, spacing=24).resolve_scale(color="independent"))
    whole = altair.hconcat(*pictures, spacing=36) if pictures else altair.Chart(chart.values([])).mark_point()
    lines = [line for text in _lines(facts) for line in textwrap.wrap(text, LETTERS)]
    title = altair.TitleParams(
        text=_title(facts),
        subtitle=lines,
        anchor="start",
        fontSize=24,
        subtitleFontSize=14,
        subtitlePadding=8,
        subtitleLineHeight=19,
        offset=16,
        color=INK,
        subtitleColor=INK,
    )
    return (
        whole.properties(title=title)
        .resolve_scale(color="independent")
        .configure(background="#ffffff", font="sans-serif", padding=0)
        .configure_view(stroke=GRID)
        .configure_axis(
            labelColor=MUTED,
            titleColor=MUTED,
            gridColor=GRID,
            domainColor=MUTED,
            tickColor=MUTED,
            labelFontSize=12,
            titleFontSize=12,
            titleFontWeight="normal",
            labelOverlap=True,
            labelLimit=130,
        )
        .configure_legend(orient="top", title=None, labelFontSize=12, labelColor=INK, offset=4)
    )


def _title(facts: Facts) -> str:
    programs = ", ".join(facts.programs[:2]) + (" …" if len(facts.programs) > 2 else "")
    return middle(name(f"{programs or 'A program'} ({facts.source.name})"), TITLE)


def _lines(facts: Facts) -> list[str]:
    """What was moved how fast, what another layout would gain, and what is wrong."""
    files = sum(1 for file in facts.access["files"] if moved(file))
    parts = [
        f"{about_bytes(facts.total[op]['bytes'])} {word}"
        for op, word in (("reads", "read"), ("writes", "written"))
        if facts.total[op]["bytes"]
    ]
    processes = facts.about["processes"] or len(facts.access["processes"])
    by = f"by {processes:,} {facts.units if processes > 1 else facts.unit}"
    text = f"{' and '.join(parts) or 'No byte read or written'} {by} in {counted(files, 'file')}"
    rate, took_s = facts.job["bytes_per_s"], facts.job["slowest_s"]
    if rate is not None and took_s is not None:
        text += f", measured {mib_per_s(rate)} MiB/s (its slowest process took {seconds(took_s)})"
    lines = [text + (f", of {name(facts.part)} alone." if facts.part else ".")]
    priced = facts.advice or facts.given
    if priced is not None:
        lines.append(_verdict(figures_set(priced, facts.native), unchanged(priced), is_given=facts.layout is not None))
        lines += _grave(priced)[:1]
    return lines


def _grave(document: _native.AdviceDocument) -> list[str]:
    """What is gravely wrong, in words."""
    found = [("", one) for one in document["total"]["findings"]]
    found += [(f"{short(file['path'])}: ", one) for file in document["files"] for one in file["findings"]]
    return [f"{name(of + one['words'])}." for of, one in found if one["severity"] == "high"]


def _verdict(figures: NowThen, unchanged: str, *, is_given: bool) -> str:
    gain = figures["gain"]
    now, then = figures["now_bytes_per_s"], figures["then_bytes_per_s"]
    if now is None:
        return "Layout: nothing is said, as the servers are not known."
    if gain is None or then is None:
        is_same = is_given and figures["refused"] is None
        why = "no file gets another one" if is_same else unchanged
        return f"Predicted: {mib_per_s(now)} MiB/s for the same. Layout: {why}."
    between = f"{ratio(gain['low'])} to {ratio(gain['high'])} in 95 of 100 cases"
    rates = f"{mib_per_s(now)} MiB/s become {mib_per_s(then)}, both predicted"
    which = "this one" if is_given else "another one"
    return f"Layout: {which} makes it {ratio(gain['ratio'])} as fast ({between}): {rates}."


def _heat(facts: Facts) -> chart.Chart:
    """Offset by time of a file that most bytes are of, else processes by time."""
    first = facts.access["maps"][0]
    files = facts.access["files"]
    every = sum(map(moved, files))
    share = max(map(moved, files), default=0) / every if every else 0.0
    if share >= ONE_FILE:
        plane, title = first["heat"], f"{name(short(facts.files[first['file']]))}: which bytes, when"
        bottom, top = plane["down"]["from"], plane["down"]["from"] + plane["down"]["cell"] * plane["down"]["cells"]
        axis = chart.byte_axis("offset", top, 8)
    else:
        plane, title = facts.access["process_time"], f"All files: which {facts.unit}, when"
        bottom, top = 0, len(facts.access["processes"])
        axis = altair.Axis(title=facts.unit, tickMinStep=1, format="d", tickCount=min(top, 8))
    across = plane["across"]
    left, right = across["from"] * 1e-9, (across["from"] + across["cell"] * across["cells"]) * 1e-9
    x = altair.X(
        "left:Q",
        scale=altair.Scale(domain=[left, right], nice=False),
        axis=altair.Axis(title="seconds since the start", tickCount=8, format=",.6~g"),
    )
    y = altair.Y("bottom:Q", scale=altair.Scale(domain=[bottom, top], nice=False), axis=axis)
    image = chart.picture(pixels.png(plane["reads"], plane["writes"]), left, right, bottom, top, x, y)
    return image.properties(width=LEFT, height=TALL, title=_heading(title))


def _sizes(facts: Facts) -> chart.Chart:
    """Bytes by size of the requests that moved them: the legend of colours is that of the heat map, too."""
    every = facts.access["sizes"]
    least = LEAST_SIZE * sum(map(moved, every))
    sizes = [size for size in every if moved(size) >= least]
    rows: list[dict[str, object]] = []
    most = 0.0
    for size in sizes:
        # Where the requests are a sample, it stands for all.
        read = size["reads"]["bytes"] * _stands_for(facts, "reads")
        written = size["writes"]["bytes"] * _stands_for(facts, "writes")
        most = max(most, read + written)
        of = {"size": exact_bytes(size["from"])}
        rows += [{**of, "way": "read", "value": read}, {**of, "way": "written", "value": written}]
    x = altair.X(
        "size:N",
        sort=[exact_bytes(size["from"]) for size in sizes],
        title="request size, to twice that",
        axis=altair.Axis(labelAngle=-40 if len(sizes) > 6 else 0),
    )
    y = altair.Y("value:Q", axis=chart.byte_axis("bytes moved", most, 4))
    colour = altair.Color("way:N", scale=altair.Scale(domain=["read", "written"], range=[READ, WRITTEN]))
    bars = altair.Chart(chart.values(rows)).mark_bar().encode(x=x, y=y, color=colour)
    return bars.properties(width=RIGHT, height=LOW, title=_heading("Bytes by request size"))


def _stands_for(facts: Facts, op: Literal["reads", "writes"]) -> float:
    """How many bytes a byte of the requests stands for."""
    seen = sum(size[op]["bytes"] for size in facts.access["sizes"])
    return float(facts.total[op]["bytes"] / seen) if seen else 1.0


def _servers(facts: Facts, load: _native.ServerLoad) -> chart.Chart:
    """Shares of the servers that have most to do."""
    sides: dict[str, Literal["present", "layout"]] = {"now": "present"}
    if facts.changes:
        sides["then"] = "layout"
    every = sorted(load["servers"], key=lambda server: -max(server[side]["bytes"] for side in sides.values()))
    shown = [server for server in every if any(server[side]["bytes"] for side in sides.values())][:MOST_SERVERS]
    total = {side: sum(server[side]["bytes"] for server in every) for side in sides.values()}
    rows: list[dict[str, object]] = [
        {"server": server["name"], "side": word, "value": server[side]["bytes"] / max(total[side], 1)}
        for server in shown
        for word, side in sides.items()
    ]
    # One colour needs no legend.
    legend = altair.Undefined if facts.changes else None
    scale = altair.Scale(domain=list(sides), range=[BEFORE, AFTER][: len(sides)])
    names = altair.Axis(labelAngle=-40, labelOverlap=False)
    bars = altair.Chart(chart.values(rows)).mark_bar()
    encoded = bars.encode(
        x=altair.X("server:N", sort=[server["name"] for server in shown], title=None, axis=names),
        xOffset=altair.XOffset("side:N", sort=list(sides)),
        y=altair.Y("value:Q", axis=altair.Axis(title="share of the bytes", format=".0%", tickCount=4)),
        color=altair.Color("side:N", scale=scale, legend=legend),
    )
    of = "Servers"
    if len(shown) < len(load["servers"]):
        of = f"The {len(shown)} busiest of {len(load['servers']):,} servers"
    return encoded.properties(width=RIGHT, height=LOW, title=_heading(of))


def _heading(text: str) -> chart.Chart:
    return altair.TitleParams(text=text, anchor="start", fontSize=14, color=INK, offset=8)
