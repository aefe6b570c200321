"""Which bytes were moved when: offset by time of the hottest files, and process by time of all."""

from __future__ import annotations

import altair

from stripewise import _native
from stripewise.report import chart, pixels
from stripewise.report.facts import Facts, short
from stripewise.report.markup import Markup, escape, paragraph, section, table
from stripewise.units import about_bytes, seconds

NAME, TITLE = "heat", "What was moved when"
HEIGHT = 240
LOWEST = 48
HEIGHT_OF_WORDS = 168
"""Pixels of the picture beside which the axis can say in words how processes are ordered."""
TABLE_ROWS, TABLE_COLUMNS = 8, 8


def draw(facts: Facts) -> Markup:
    """A heat map for each of the hottest files, and one of the processes."""
    access = facts.access
    if not access["maps"]:
        return Markup("")
    content = Markup("")
    left = len(access["files"]) - len(access["maps"])
    if left:
        content += paragraph(
            f"Drawn are {len(access['maps'])} of {len(access['files']):,} files: those of which most bytes were moved.",
            kind="note",
        )
    for drawn in access["maps"]:
        content += _file(facts, drawn)
    return section(NAME, TITLE, content + _processes(facts))


def _file(facts: Facts, drawn: _native.FileMap) -> Markup:
    plane, path = drawn["heat"], facts.files[drawn["file"]]
    down = plane["down"]
    extent = down["from"] + down["cell"] * down["cells"]
    borders = [border for border in facts.borders(drawn["file"]) if border < extent]

    def draw_at(width: int) -> chart.Chart:
        y = altair.Y(
            "bottom:Q",
            scale=altair.Scale(domain=[0, extent], nice=False),
            axis=chart.byte_axis("offset", extent, 6),
        )
        layers = [_image(plane, down["from"], extent, y, width)]
        if borders:
            data = chart.values([{"bottom": border} for border in borders])
            layers.append(altair.Chart(data).mark_rule(color=chart.INK, strokeDash=[4, 3]).encode(y="bottom:Q"))
        return altair.layer(*layers).properties(height=HEIGHT)

    legend = _legend(
        plane,
        "a cell is {} of time and {} of the file; dashed: where regions of the layout begin"
        if borders
        else "a cell is {} of time and {} of the file",
    )
    rows = pixels.coarse(plane["reads"], TABLE_ROWS, TABLE_COLUMNS).shape[0]
    step = -(-down["cells"] // rows) * down["cell"]
    names = [f"{about_bytes(down['from'] + place * step)} on" for place in range(rows)]
    return chart.figure(
        f"{short(path)}: offset by time",
        f"Heat map of {path}, time across, offset upwards. {_words(plane)} The table has the numbers.",
        draw_at,
        _table(plane, names, "offset"),
        legend=legend,
    )


def _processes(facts: Facts) -> Markup:
    plane = facts.access["process_time"]
    down = plane["down"]
    count = len(facts.access["processes"])

    def draw_at(width: int) -> chart.Chart:
        height = max(LOWEST, min(HEIGHT, 24 * count))
        title = facts.unit if facts.unit == "rank" or height < HEIGHT_OF_WORDS else "process, by program and rank"
        # Ranks are whole: a tick between two of them would say nothing.
        axis = altair.Axis(title=title, tickMinStep=1, format="d", tickCount=min(count, 6))
        y = altair.Y("bottom:Q", scale=altair.Scale(domain=[0, count], nice=False), axis=axis)
        return _image(plane, 0, down["cell"] * down["cells"], y, width).properties(height=height)

    rows = pixels.coarse(plane["reads"], TABLE_ROWS, TABLE_COLUMNS).shape[0]
    step = -(-down["cells"] // rows) * down["cell"]
    names = [
        facts.process_name(place)
        if step == 1
        else f"{facts.process_name(place)} and the next {min(step, count - place) - 1}"
        for place in range(0, count, step)
    ]
    words = f"a cell is {{}} of time and {down['cell']:,} {facts.units if down['cell'] > 1 else facts.unit}"
    return chart.figure(
        f"All files: {facts.unit} by time",
        f"Heat map of {count:,} {facts.units}, time across, {facts.units} upwards. {_words(plane)} "
        "The table has the numbers.",
        draw_at,
        _table(plane, names, facts.unit),
        legend=_legend(plane, words),
    )


def _image(plane: _native.Plane, bottom: float, top: float, y: object, width: int) -> chart.Chart:
    across = plane["across"]
    left, right = across["from"] * 1e-9, (across["from"] + across["cell"] * across["cells"]) * 1e-9
    x = altair.X(
        "left:Q",
        scale=altair.Scale(domain=[left, right], nice=False),
        axis=altair.Axis(title="seconds since the start", tickCount=chart.ticks_of(width), format=",.6~g"),
    )
    return chart.picture(pixels.png(plane["reads"], plane["writes"]), left, right, bottom, top, x, y)


def _legend(plane: _native.Plane, words: str) -> Markup:
    most = int((plane["reads"] + plane["writes"]).max(initial=0))
    cell = words.format(seconds(plane["across"]["cell"] * 1e-9), about_bytes(plane["down"]["cell"]))
    return chart.key(
        [(chart.READ, "read"), (chart.WRITTEN, "written")],
        f"mixed colours: both; the fuller the more, at most {about_bytes(most)}; {cell}",
    )


def _words(plane: _native.Plane) -> str:
    total = plane["reads"] + plane["writes"]
    read, written = (about_bytes(int(part.sum())) for part in (plane["reads"], plane["writes"]))
    touched = int((total > 0).sum())
    return f"{read} read, {written} written, in {touched / total.size:.0%} of the cells."


def _table(plane: _native.Plane, names: list[str], of: str) -> Markup:
    across = plane["across"]
    reads, writes = (pixels.coarse(plane[way], TABLE_ROWS, TABLE_COLUMNS) for way in ("reads", "writes"))
    step = -(-across["cells"] // TABLE_COLUMNS) * across["cell"]
    columns = [f"{seconds((across['from'] + place * step) * 1e-9)} on" for place in range(reads.shape[1])]
    rows = [
        [name, *(_cell(int(read), int(written)) for read, written in zip(reads[row], writes[row], strict=True))]
        for row, name in enumerate(names)
    ]
    return table([of, *columns], rows, "Bytes moved; r: read, w: written")


def _cell(read: int, written: int) -> Markup:
    parts = [f"{about_bytes(count)} {way}" for count, way in ((read, "r"), (written, "w")) if count]
    return escape(", ".join(parts) or "-")
