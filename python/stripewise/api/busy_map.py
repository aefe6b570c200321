"""How busy each server was when, in a simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair

if TYPE_CHECKING:
    from stripewise.api.simulation import Simulation

WIDTH, BAND = 560, 18


def chart(simulation: Simulation) -> Any:  # noqa: ANN401
    """A band a server, one panel a side, darker where it was busier."""
    servers = [server["name"] for server in simulation.document["present"]["servers"]]
    drawn = altair.Chart({"values": simulation.timeline.to_dicts()}).mark_rect()
    encoded = drawn.encode(
        x=altair.X("start_s:Q", title="seconds"),
        x2="end_s:Q",
        y=altair.Y("server:N", title=None, sort=servers),
        color=altair.Color("busy:Q", title="busy", scale=altair.Scale(domain=[0, 1], scheme="blues")),
        tooltip=["server:N", "start_s:Q", "busy:Q", "queue:Q", "bytes:Q"],
    )
    sides = ["present", "layout"]
    return encoded.properties(width=WIDTH, height=BAND * len(servers)).facet(
        row=altair.Row("side:N", title=None, sort=sides)
    )
