"""Plots of results: bars are simulated at the paper's scale, points are measured on emulated servers."""

from __future__ import annotations

from typing import Any, TypeAlias

import altair
import vl_convert

from stripewise.reproduce.experiment import Result, Sample

Chart: TypeAlias = Any
"""Of altair; what its classes have in common has no name."""

PANEL_WIDTH, PANEL_HEIGHT = 380, 240
BAR_WIDTH = 26
COLOURS = 10
"""Of the usual scheme; more layouts take one with pale colours, too."""


def chart(result: Result) -> Chart:
    """The result's own plot, or the usual one: groups of bars, a panel for each operation."""
    made = result.chart(result) if result.chart is not None else _bars(result)
    return made.properties(title=f"{result.experiment.paper}, {result.experiment.figure}").configure_view(stroke=None)


def svg(made: Chart) -> str:
    """The chart as an image that needs nothing else."""
    text: str = vl_convert.vegalite_to_svg(made.to_dict())
    return text


def png(made: Chart) -> bytes:
    """The same in dots."""
    image: bytes = vl_convert.vegalite_to_png(made.to_dict(), scale=1.5)
    return image


def rows(result: Result) -> list[dict[str, Any]]:
    """The cells as data of a chart."""

    def sample(value: Sample | None) -> dict[str, float]:
        return {"measured": value.median, "low": value.low, "high": value.high} if value is not None else {}

    return [
        {
            "panel": cell.panel,
            "x": cell.x,
            "layout": cell.layout,
            "simulated": cell.simulated,
            **sample(cell.measured),
        }
        for cell in result.cells
    ]


def _bars(result: Result) -> Chart:
    """Panels that share their places side by side; where each has its own, one by one in two columns."""
    data = rows(result)
    panels = list(dict.fromkeys(row["panel"] for row in data))
    if len(panels) > 2:
        single = [_panel(result, [row for row in data if row["panel"] == panel], PANEL_WIDTH) for panel in panels]
        titled = [made.properties(title=panel) for made, panel in zip(single, panels, strict=True)]
        return altair.concat(*titled, columns=2)
    header = altair.Header(titleFontWeight="normal")
    facet = altair.Column("panel:N", sort=panels, title=caption(result), header=header)
    return _panel(result, data, None).facet(column=facet)


def _panel(result: Result, data: list[dict[str, Any]], fixed_width: int | None) -> Chart:
    xs = list(dict.fromkeys(row["x"] for row in data))
    layouts = list(dict.fromkeys(row["layout"] for row in data))
    base = altair.Chart(altair.InlineData(values=data))
    single = len(xs) == 1 or len(layouts) == 1
    axis = altair.Axis(labelAngle=-40 if single and max(len(xs), len(layouts)) > 4 else 0, title=None)
    if single:
        field, values = ("layout", layouts) if len(xs) == 1 else ("x", xs)
        place = base.encode(x=altair.X(f"{field}:N", sort=values, axis=axis))
        # Never narrower than the caption, which is not wrapped.
        width = fixed_width or max(PANEL_WIDTH, len(values) * (BAR_WIDTH + 8))
    else:
        place = base.encode(x=altair.X("x:N", sort=xs, axis=axis), xOffset=altair.XOffset("layout:N", sort=layouts))
        width = fixed_width or max(PANEL_WIDTH, len(xs) * len(layouts) * BAR_WIDTH)
    legend = None if single else altair.Legend(title="layout", orient="bottom")
    scheme: Any = "tableau10" if len(layouts) <= COLOURS else "tableau20"
    colour = altair.Color("layout:N", sort=layouts, legend=legend, scale=altair.Scale(scheme=scheme))
    bars = place.mark_bar().encode(y=altair.Y("simulated:Q", title=result.axis), color=colour)
    layers = [bars]
    if any("measured" in row for row in data):
        measured = place.transform_filter("isValid(datum.measured)")
        layers.append(measured.mark_rule(color="black").encode(y=altair.Y("low:Q", title=""), y2="high:Q"))
        layers.append(measured.mark_point(color="black", filled=True, size=45).encode(y="measured:Q"))
    return altair.layer(*layers).properties(width=width, height=PANEL_HEIGHT)


def caption(result: Result) -> str:
    """What bars and points are."""
    measured = any(cell.measured is not None for cell in result.cells)
    return "bars: simulated" + ("; points: measured on emulated servers, least to greatest" if measured else "")
