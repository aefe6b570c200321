"""What a decision of `adapt` says, read from its line in the state file. What is no number there is not believed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["copied_bytes", "number", "plans", "relieved"]

Line = Mapping[str, Any]


def number(of: Line, key: str) -> float | None:
    """A number of a line, or of a part of one; `None` for what is none."""
    value = of.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def relieved(decision: Line) -> list[Line]:
    """What each tier was relieved of."""
    steps = decision.get("relief")
    return [step for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []


def copied_bytes(decision: Line) -> int:
    """What a decision has copied in all: files, small files, what left tiers, and what was promoted or relieved before it."""
    keys = ("small_files", "promoted", "relieved")
    parts = [decision, *map(decision.get, keys), *relieved(decision)]
    counts = [of.get("copied_bytes") for of in parts if isinstance(of, Mapping)]
    return sum(count for count in counts if isinstance(count, int) and not isinstance(count, bool) and count > 0)


def plans(decision: Line) -> list[tuple[str, float]]:
    """The planners with the seconds that the model says the requests take by their layouts, the fastest first."""
    found = decision.get("plans")
    known = [
        (time_s, str(plan.get("planner")))
        for plan in (found if isinstance(found, list) else [])
        if isinstance(plan, dict) and (time_s := number(plan, "predicted_s")) is not None
    ]
    return [(name, time_s) for time_s, name in sorted(known)]
