"""The map of a plan: each file before and after, which tier holds which part of which region."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import altair

from stripewise.api.shares import shares
from stripewise.units import about_bytes

if TYPE_CHECKING:
    from stripewise._native import PlannedFile
    from stripewise.api.plan import Plan

WIDTH, BAND = 640, 34
FILES = 24
"""Files that are drawn at most: those of which the most bytes were moved."""
TICKS = 8


def chart(plan: Plan) -> Any:  # noqa: ANN401
    """Two bands a file, before and after: along it the bytes of the file, across it each tier's share of the round."""
    files = sorted(plan.document["files"], key=_moved, reverse=True)
    tiers = sorted({row["tier"] for file in files for row in rows(file)})
    panels = [_panel(file, tiers) for file in files[:FILES]]
    few = f", the {FILES} of {len(files)} files with the most bytes moved" if len(files) > FILES else ""
    title = f"Layouts on {plan.servers.label}, by {plan.document['planner']}{few}"
    return altair.vconcat(*panels, spacing=14).properties(title=title).configure_view(stroke=None)


def _moved(file: PlannedFile) -> float:
    return sum(region["read_bytes"] + region["write_bytes"] for region in file["regions"])


def _panel(file: PlannedFile, tiers: list[str]) -> Any:  # noqa: ANN401
    end = max(region["end"] for region in file["regions"])
    step = 1 << max(0, (end // TICKS).bit_length())
    ticks = list(range(0, end + 1, step))
    labels = {tick: about_bytes(tick) for tick in ticks}
    axis = altair.Axis(values=ticks, labelExpr=f"({json.dumps(labels)})[datum.value]", grid=False)
    sides = altair.Axis(values=[0.5, 1.6], labelExpr="datum.value < 1 ? 'after' : 'before'", grid=False, ticks=False)
    return (
        altair.Chart({"values": rows(file)})
        .mark_rect(stroke="white", strokeWidth=0.5)
        .encode(
            x=altair.X("offset:Q", title=None, axis=axis, scale=altair.Scale(domain=[0, max(end, 1)], nice=False)),
            x2="end:Q",
            y=altair.Y("low:Q", title=None, axis=sides, scale=altair.Scale(domain=[0, 2.1], nice=False)),
            y2="high:Q",
            color=altair.Color("tier:N", title="tier", scale=altair.Scale(domain=tiers)),
            tooltip=["side:N", "offset:Q", "end:Q", "round:N", "share:N", "moved_bytes:Q", "predicted_s:Q"],
        )
        .properties(width=WIDTH, height=2 * BAND, title=altair.TitleParams(file["path"], anchor="start", fontSize=11))
    )


def rows(file: PlannedFile) -> list[dict[str, Any]]:
    """One rectangle a tier of a region: those of the layout before from 1.1 up to 2.1, of the one after from 0 to 1."""
    found: list[dict[str, Any]] = []
    for region in file["regions"]:
        cost = region["cost_s"]
        for side, stripes, low, cost_s in (
            ("before", region["round_before"], 1.1, cost["default"]),
            ("after", region["round"], 0.0, cost["plan"]),
        ):
            for tier, share in shares(stripes).items():
                found.append(
                    {
                        "side": side,
                        "offset": region["offset"],
                        "end": region["end"],
                        "round": " ".join(stripes),
                        "tier": tier,
                        "share": f"{share:.0%}",
                        "low": low,
                        "high": low + share,
                        "moved_bytes": region["read_bytes"] + region["write_bytes"],
                        "predicted_s": cost_s,
                    }
                )
                low += share
    return found
