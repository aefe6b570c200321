"""Charts as text of the page: SVG drawn once for wide and once for narrow windows, in colours of the style sheet."""

from __future__ import annotations

import base64
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import altair
import vl_convert

from stripewise.report.markup import Markup, join, more

Chart: TypeAlias = Any
"""Of altair, and its axes and data; what its classes have in common has no name."""

WIDE, NARROW = 800, 326
"""Widths in pixels that charts are drawn for; the page shows the one that fits and scales it a little."""

READ, WRITTEN = "var(--read)", "var(--written)"
BEFORE, AFTER = "var(--before)", "var(--after)"
TIERS = [f"var(--tier{number})" for number in range(6)]
INK, PAPER = "var(--ink)", "var(--paper)"

BYTES = (
    "datum.value == 0 ? '0' : datum.value >= 1099511627776 ? format(datum.value / 1099511627776, '.4~g') + ' TiB'"
    " : datum.value >= 1073741824 ? format(datum.value / 1073741824, '.4~g') + ' GiB'"
    " : datum.value >= 1048576 ? format(datum.value / 1048576, '.4~g') + ' MiB'"
    " : datum.value >= 1024 ? format(datum.value / 1024, '.4~g') + ' KiB' : datum.value + ' B'"
)
"""Labels of an axis of bytes."""

_numbers = itertools.count()


def figure(title: str, alt: str, draw: Callable[[int], Chart], data: Markup, *, legend: Markup | str = "") -> Markup:
    """A picture with its caption, a text in its place, and its numbers as a table; `draw` is given the width."""
    images = join(
        Markup('<div class="{}">{}</div>\n').format(kind, _svg(draw(width), width, alt))
        for kind, width in (("wide", WIDE), ("narrow", NARROW))
    )
    return Markup("<figure>\n<figcaption>{}</figcaption>\n{}{}{}</figure>\n").format(
        title, legend, images, more(f"Numbers: {title}", data)
    )


def key(entries: Sequence[tuple[str, str]], note: str = "") -> Markup:
    """What the colours stand for: pairs of a colour of the style sheet and its meaning."""
    swatch = Markup('<span class="key"><i style="background:{}"></i>{}</span> ')
    return Markup('<p class="legend">{}{}</p>\n').format(
        join(swatch.format(colour, meaning) for colour, meaning in entries), note
    )


def values(rows: Sequence[dict[str, object]]) -> Chart:
    """Rows as data of a chart."""
    return altair.InlineData(values=list(rows))


def byte_ticks(most: float, count: int) -> list[int]:
    """At most `count` + 1 round numbers of bytes from 0 to `most`: powers of two times 1, 2, 4 …, as people count."""
    step = 1
    while step * count < most:
        step *= 2
    return list(range(0, int(most) + 1, step))


def byte_axis(title: str, most: float, count: int) -> Chart:
    """An axis of bytes from 0 to `most`."""
    return altair.Axis(title=title, values=byte_ticks(most, count), labelExpr=BYTES)


def ticks_of(width: int) -> int:
    """As many ticks with long labels as fit."""
    return 8 if width == WIDE else 4


def picture(png: bytes, left: float, right: float, bottom: float, top: float, x: Chart, y: Chart) -> Chart:
    """An image laid out on the axes `x` and `y`."""
    url = "data:image/png;base64," + base64.b64encode(png).decode()
    data = values([{"left": left, "right": right, "bottom": bottom, "top": top, "url": url}])
    return altair.Chart(data).mark_image(aspect=False).encode(x=x, x2="right:Q", y=y, y2="top:Q", url="url:N")


def _svg(chart: Chart, width: int, alt: str) -> Markup:
    specification = (
        chart.properties(width=width, autosize=altair.AutoSizeParams(type="fit-x", contains="padding"))
        .configure(
            background="transparent",
            font="system-ui, sans-serif",
            padding={"left": 12, "right": 4, "top": 4, "bottom": 2},
        )
        .configure_view(stroke="var(--grid)")
        .configure_axis(
            labelColor="var(--muted)",
            titleColor="var(--muted)",
            gridColor="var(--grid)",
            domainColor="var(--muted)",
            tickColor="var(--muted)",
            labelFontSize=11,
            titleFontSize=11,
            titleFontWeight="normal",
            # Fonts of readers are wider than the one that this is measured with.
            labelOverlap=True,
            labelLimit=110,
        )
        .configure_axisLeft(titlePadding=12)
        .configure_legend(disable=True)
        .to_dict()
    )
    # What assistive technology reads is the text of the figure and its table.
    specification.setdefault("config", {})["aria"] = False
    drawn: str = vl_convert.vegalite_to_svg(specification)
    # Names of clips are the same in every drawing, and on one page they must not be.
    own = f"c{next(_numbers)}-"
    drawn = re.sub(r'\bid="', f'id="{own}', drawn).replace("url(#", f"url(#{own}")
    opening = re.match(r"<svg\b[^>]*?viewBox=\"([^\"]*)\"[^>]*>", drawn)
    assert opening is not None, "vl-convert wrote no SVG"
    head = Markup('<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{}" ')
    head += Markup('role="img" aria-label="{}">')
    # What follows is vl-convert's, which escapes the texts it is given.
    return head.format(opening[1], alt) + Markup(drawn[opening.end() :])
