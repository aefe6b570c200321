"""What `adapt` has made of the pool: what is hot, plans considered, what moved, gain predicted and measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import altair

from stripewise import decided
from stripewise.report import chart
from stripewise.report.facts import Adapted, Facts, short
from stripewise.report.markup import Markup, paragraph, section, table
from stripewise.units import about_bytes, counted, seconds

NAME, TITLE = "adapted", "What the pool has adapted to"
MOST = 40
"""Decisions that are listed: the last ones."""


def draw(facts: Facts) -> Markup:
    """Nothing for servers that are no pool's, and where nothing is known."""
    adapted = facts.adapted
    if adapted is None or not (adapted.heat or adapted.decisions):
        return Markup("")
    content = _heat(adapted) if adapted.heat else Markup("")
    gains = _gains(adapted.decisions)
    content += _gain_figure(gains) if gains else Markup("")
    content += _decisions(adapted.decisions) if adapted.decisions else paragraph("`stripewise adapt` has not run.")
    return section(NAME, TITLE, content)


def _heat(adapted: Adapted) -> Markup:
    # Each file for itself, as `stripewise heat` draws it: by the byte, files of a few bytes are hotter than all others.
    rows = [
        {"file": short(path), "part": part, "heat": value / max(parts)}
        for path, _, parts in adapted.heat
        for part, value in enumerate(parts)
        if value > 0
    ]
    files = [short(path) for path, _, _ in adapted.heat]
    count = len(adapted.heat[0][2])

    def draw_at(width: int) -> chart.Chart:
        x = altair.X(
            "part:O",
            scale=altair.Scale(domain=list(range(count))),
            axis=altair.Axis(title="place in the file, from its begin to its end", labels=False, ticks=False),
        )
        opacity = altair.Opacity("heat:Q", scale=altair.Scale(type="sqrt", domain=[0, 1], range=[0.08, 1]))
        base = altair.Chart(chart.values(rows)).mark_rect(color=chart.AFTER)
        return base.encode(x=x, y=altair.Y("file:N", sort=files, title=None), opacity=opacity).properties(
            height=altair.Step(18)
        )

    numbers = [[path, seconds(cost_us / 1e6), f"{_hottest(parts):.0%}"] for path, cost_us, parts in adapted.heat]
    words = (
        f"Strips of the {len(files)} hottest files, from begin to end: the fuller, the more a byte cost of late, in "
        "each file for itself."
    )
    return chart.figure(
        "What is hot",
        words,
        draw_at,
        table(
            ["file", "heat", "of it in the hottest tenth"], numbers, "Heat of files: what accesses have cost of late"
        ),
        legend=chart.key([(chart.AFTER, "hot")], "the fuller the hotter, each file for itself"),
    )


def _hottest(parts: Sequence[float]) -> float:
    most = sorted(parts, reverse=True)[: max(1, len(parts) // 10)]
    return sum(most) / (sum(parts) or 1.0)


def _gains(decisions: Sequence[Mapping[str, Any]]) -> list[tuple[str, float, float]]:
    """When a gain was measured, and the ratios that were predicted and measured."""
    found = []
    for decision in decisions:
        measured = decision.get("measured")
        if isinstance(measured, dict):
            predicted, gained = decided.number(measured, "predicted_ratio"), decided.number(measured, "ratio")
            if predicted is not None and gained is not None:
                found.append((_when(decision), predicted, gained))
    return found[-MOST:]


def _when(decision: Mapping[str, Any]) -> str:
    try:
        return datetime.fromtimestamp(decided.number(decision, "time_s") or 0.0).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return "-"


def _gain_figure(gains: list[tuple[str, float, float]]) -> Markup:
    sides = ["predicted", "measured"]
    rows = [
        {"when": when, "side": side, "times": value}
        for when, *both in gains
        for side, value in zip(sides, both, strict=True)
    ]

    def draw_at(width: int) -> chart.Chart:
        colour = altair.Color("side:N", scale=altair.Scale(domain=sides, range=[chart.BEFORE, chart.AFTER]))
        x = altair.X(
            "times:Q", title="times as fast as before the move", axis=altair.Axis(tickCount=chart.ticks_of(width))
        )
        y = altair.Y("when:N", sort=[when for when, *_ in gains], title=None)
        offset = altair.YOffset("side:N", sort=sides, scale=altair.Scale(paddingInner=0.1))
        base = altair.Chart(chart.values(rows)).mark_bar()
        return base.encode(x=x, y=y, yOffset=offset, color=colour).properties(height=altair.Step(10))

    numbers = [[when, f"{predicted:.2f}", f"{gained:.2f}"] for when, predicted, gained in gains]
    _, predicted, gained = gains[-1]
    words = f"Bars of {len(gains)} moves. The last one: {predicted:.2f} times as fast predicted, {gained:.2f} measured."
    return chart.figure(
        "Gain of moves, predicted and then measured",
        words,
        draw_at,
        table(["measured at", *sides], numbers, "How many times as fast the servers were after moves"),
        legend=chart.key([(chart.BEFORE, "predicted"), (chart.AFTER, "measured")], words),
    )


def _decisions(decisions: Sequence[Mapping[str, Any]]) -> Markup:
    rows = [_row(decision) for decision in reversed(decisions[-MOST:])]
    cut = f", the last {MOST} of {len(decisions):,}" if len(decisions) > MOST else ""
    columns = ["decided at", "plans considered", "verdict", "by the model", "gain", "time to move", "copied"]
    return table(columns, rows, f"Decisions of adapt, the latest first{cut}", left=3)


def _row(decision: Mapping[str, Any]) -> list[object]:
    ratio, gain_s, move_s = (decided.number(decision, key) for key in ("ratio", "gain_s", "move_s"))
    verdict = str(decision.get("verdict", "-"))
    why = str(decision.get("why", ""))
    return [
        _when(decision),
        _plans(decision),
        f"{verdict}: {why}" if why else verdict,
        "-" if ratio is None else f"{ratio:.2f} times as fast",
        "-" if gain_s is None else seconds(gain_s),
        "-" if move_s is None else seconds(move_s),
        about_bytes(decided.copied_bytes(decision)),
    ]


def _plans(decision: Mapping[str, Any]) -> str:
    """The planners with what each predicts, those that fit first; of old decisions the winner. What else moved."""
    known = [
        f"{of.planner} {seconds(of.predicted_s)}{' (does not fit)' if of.excess_bytes else ''}"
        for of in decided.plans(decision)
    ]
    relieved = [f"relief of {step.get('tier')}" for step in decided.relieved(decision)]
    promoted = decision.get("promoted")
    times = int(decided.number(promoted, "times") or 0) if isinstance(promoted, dict) else 0
    before = [f"after {counted(times, 'promotion')}"] if times else []
    return ", ".join([*(known or [str(decision.get("planner", "none"))]), *relieved, *before])
