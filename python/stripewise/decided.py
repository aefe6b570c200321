"""What a decision of `adapt` says, read from its line in the state file. What is no number there is not believed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Considered", "as_number", "copied_bytes", "lines", "moved_heat_s", "number", "plans", "relieved"]

Line = Mapping[str, Any]
LARGEST = 1e300
"""What is not less than that is no number of a line."""


def lines(text: bytes, since_s: float = 0.0) -> list[dict[str, Any]]:
    """The lines of a file of decisions or moves that are no older than that; one that a kill has cut is left out.

    So is one that is no record. They are read from the end, as far as that takes.
    """
    found: list[dict[str, Any]] = []
    for line in reversed(text.split(b"\n")):
        try:
            one = json.loads(line) if line else None
        except (ValueError, RecursionError):
            continue
        if isinstance(one, dict) and (time_s := number(one, "time_s")) is not None:
            if time_s < since_s:
                break
            found.append(one)
    return found[::-1]


def number(of: Line, key: str) -> float | None:
    """A number of a line, or of a part of one; `None` for what is none, or has no end."""
    return as_number(of.get(key))


def as_number(value: object) -> float | None:
    """The same of what stands there."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < LARGEST else None


def relieved(decision: Line) -> list[Line]:
    """What each tier was relieved of."""
    steps = decision.get("relief")
    return [step for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []


def _steps(decision: Line) -> list[Line]:
    """All that it has moved: files, small files, what left tiers, and what was promoted or relieved before it."""
    parts = [decision, *map(decision.get, ("small_files", "promoted", "relieved")), *relieved(decision)]
    return [of for of in parts if isinstance(of, Mapping)]


def copied_bytes(decision: Line) -> int:
    """What a decision has copied in all."""
    return int(sum(max(0.0, number(of, "copied_bytes") or 0.0) for of in _steps(decision)))


def moved_heat_s(decision: Line) -> float:
    """The heat of what a decision has moved in all: what accesses to it had cost of late."""
    return sum(max(0.0, number(of, "moved_heat_s") or 0.0) for of in _steps(decision))


@dataclass(frozen=True)
class Considered:
    """A plan that was considered. One that does not fit comes after all that do."""

    excess_bytes: float
    """By how much it is more than its servers have room for; 0: it fits, as far as is known."""
    predicted_s: float
    """That the model says the requests take by its layouts."""
    planner: str


def plans(decision: Line) -> list[Considered]:
    """The plans that were considered: the fastest first of those that fit, and then of the others."""
    found = decision.get("plans")
    known = [
        Considered(max(0.0, number(plan, "excess_bytes") or 0.0), time_s, str(plan.get("planner")))
        for plan in (found if isinstance(found, list) else [])
        if isinstance(plan, dict) and (time_s := number(plan, "predicted_s")) is not None
    ]
    return sorted(known, key=lambda plan: (plan.excess_bytes > 0, plan.predicted_s, plan.planner))
