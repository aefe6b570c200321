"""The metadata tier of a pool: its load, what was predicted of it, and the threshold of small files by that."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import altair

from stripewise.report import chart
from stripewise.report.facts import Facts
from stripewise.report.markup import Markup, paragraph, section, table
from stripewise.units import about_bytes, seconds

if TYPE_CHECKING:
    from stripewise._native import MetaPeriod

NAME, TITLE = "small-files", "Small files on the metadata tier"
LAST_S = 600.0
"""What is drawn: so much before the last period."""
MOST = 40
"""Periods that the table lists: the last ones."""
SERIES = (("observed", chart.INK), ("ESM", chart.BEFORE), ("BLS-ESM", chart.AFTER))


def draw(facts: Facts) -> Markup:
    """Nothing for servers that are no pool's, and where the tier served nothing, or names alone at no known cost."""
    found = facts.meta_load
    if found is None or not any(
        period["served"] > (0 if found["is_known"] else period["names"]) for period in found["periods"]
    ):
        return Markup("")
    last_s = found["periods"][-1]["time_s"]
    periods = [period for period in found["periods"] if last_s - period["time_s"] <= LAST_S]
    content = _loads(periods, last_s) if found["is_known"] else paragraph(
        "The bandwidth of the metadata tier is not known, so that its load does not move the threshold: "
        "`stripewise pool calibrate` measures it."
    )  # fmt: skip
    return section(NAME, TITLE, content + _threshold(periods, last_s))


def _loads(periods: list[MetaPeriod], last_s: float) -> Markup:
    rows: list[dict[str, object]] = []
    for period, before in zip(periods, [None, *periods], strict=False):
        at = period["time_s"] - last_s
        rows.append({"at": at, "series": "observed", "load": period["load"]})
        if before is not None:
            # Each prediction beside what came.
            rows.append({"at": at, "series": "ESM", "load": before["esm"]})
            rows.append({"at": at, "series": "BLS-ESM", "load": before["bls_esm"]})
    names, colours = zip(*SERIES, strict=True)

    def draw_at(width: int) -> chart.Chart:
        colour = altair.Color("series:N", scale=altair.Scale(domain=list(names), range=list(colours)))
        y = altair.Y("load:Q", title="share of the tier's time")
        return _line(rows, width).encode(y=y, color=colour).properties(height=180)

    most = max(period["load"] for period in periods)
    words = (
        f"Lines of {len(periods)} seconds: the tier was busy {most:.2f} of its time at most, beside what was predicted."
    )
    return chart.figure(
        "Load, observed and predicted",
        words,
        draw_at,
        _numbers(periods),
        legend=chart.key([(colour, name) for name, colour in SERIES], "1: as much as it can serve"),
    )


def _threshold(periods: list[MetaPeriod], last_s: float) -> Markup:
    rows: list[dict[str, object]] = [{"at": period["time_s"] - last_s, "load": period["share"]} for period in periods]

    def draw_at(width: int) -> chart.Chart:
        y = altair.Y("load:Q", title="share of the hint", scale=altair.Scale(domain=[0, 1]))
        return _line(rows, width, chart.AFTER).encode(y=y).properties(height=120)

    least = min(period["share"] for period in periods)
    last = periods[-1]["share"]
    words = f"A line of the threshold: {least:.1%} of what directories hint at least, {last:.1%} at the end."
    return chart.figure("Threshold of small files", words, draw_at, _numbers(periods))


def _line(rows: list[dict[str, object]], width: int, colour: str = chart.INK) -> chart.Chart:
    x = altair.X("at:Q", title="seconds before the last one", axis=altair.Axis(tickCount=chart.ticks_of(width)))
    return altair.Chart(chart.values(rows)).mark_line(interpolate="step-before", color=colour).encode(x=x)


def _numbers(periods: list[MetaPeriod]) -> Markup:
    rows = [
        [
            datetime.fromtimestamp(period["time_s"]).strftime("%H:%M:%S"),
            f"{period['served']:,}",
            f"{period['names']:,}",
            f"{period['waiting']:,}",
            about_bytes(period["bytes"]),
            seconds(period["latency_s"]),
            f"{period['load']:.2f}",
            f"{period['esm']:.2f}",
            f"{period['bls_esm']:.2f}",
            f"{period['share']:.1%}",
        ]
        for period in reversed(periods[-MOST:])
    ]
    columns = [
        "second",
        "served",
        "of names",
        "waiting",
        "bytes",
        "each took",
        "load",
        "next by ESM",
        "by BLS-ESM",
        "threshold",
    ]
    return table(columns, rows, "Seconds of the metadata tier, the latest first")
