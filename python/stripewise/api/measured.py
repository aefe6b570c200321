"""What the servers of a pool did between two decisions of `adapt`: how fast they were, and how full they get.

Each decision that is kept has what every server had done and held when it ended. So moves do not count, and all of this
outlives the process.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

from stripewise import usage
from stripewise.api import activity
from stripewise.api.activity import Done
from stripewise.decided import number, plans
from stripewise.pool import Pool
from stripewise.usage import Usage

__all__ = [
    "Gain",
    "done_by_servers",
    "full_in_s",
    "gain_of_last_move",
    "last_gain",
    "number",
    "plans",
    "since_then",
    "state",
]

WEEK_S = 7 * 86_400
"""Decisions of that time say how fast a server gets full."""
LEAST_S = 3600
"""Over less the rate says nothing of the days to come."""
LEAST_REQUESTS = 100
"""Of fewer the speed of servers is not known."""


def done_by_servers(pool: Pool) -> dict[str, Done]:
    """What the servers of all tiers have done so far: not the namespace, in which no layout changes anything."""
    done = activity.done(pool, activity.sources(pool))
    return {name: of for name, of in done.items() if name != pool.meta.name}


def state(pool: Pool) -> dict[str, Any]:
    """What a decision keeps of the servers. O(files of the pool)."""
    done = done_by_servers(pool)
    there = {name: of for name, of in usage.of_pool(pool).items() if of.error is None}
    return {
        "ended_s": time.time(),
        "done": {name: astuple(of) for name, of in done.items()},
        "used_bytes": {name: of.used_bytes for name, of in there.items()},
        "free_bytes": {name: of.free_bytes for name, of in there.items()},
    }


def since_then(decisions: Sequence[Mapping[str, Any]], now: Mapping[str, Done]) -> dict[str, Any]:
    """What the servers have served a second since the last of `decisions`, and what the last move has gained.

    The speed is bytes over the time of the busiest server: the same for much to do as for little. The gain is that
    speed over the one before the move; it is in one decision, the first one after the move with both known.
    """
    speed = _bytes_per_s(_numbers(decisions[-1].get("done")), now) if decisions else None
    if speed is None:
        return {}
    found = {"served_bytes_per_s": speed}
    for decision in reversed(decisions):
        before, predicted = _number(decision.get("served_bytes_per_s")), _number(decision.get("ratio"))
        if decision.get("verdict") == "moved":
            if before and predicted:
                gain = {"before_bytes_per_s": before, "after_bytes_per_s": speed, "ratio": speed / before}
                return {**found, "measured": {**gain, "predicted_ratio": predicted}}
            break
        if "measured" in decision:
            break
    return found


@dataclass(frozen=True)
class Gain:
    """How many times as fast a move has made the servers."""

    predicted_ratio: float
    ratio: float | None
    """As measured; `None` where that is not known so far."""


def gain_of_last_move(decisions: Sequence[Mapping[str, Any]]) -> Gain | None:
    """What the last move is to gain by the model, and has gained once that is measured; `None` where none is known."""
    for decision in reversed(decisions):
        gain = last_gain([decision])
        if gain is not None:
            return Gain(gain["predicted_ratio"], gain["ratio"])
        predicted = number(decision, "ratio")
        if decision.get("verdict") == "moved" and predicted:
            return Gain(predicted, None)
    return None


def last_gain(decisions: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
    """The last gain that was measured: its `ratio`, and the `predicted_ratio`."""
    for decision in reversed(decisions):
        gain = decision.get("measured")
        if isinstance(gain, dict) and _number(gain.get("ratio")) and _number(gain.get("predicted_ratio")):
            return gain
    return None


def full_in_s(decisions: Sequence[Mapping[str, Any]], now: Mapping[str, Usage], now_s: float) -> dict[str, float]:
    """In how many seconds a server is full at the rate of the last week; one that does not get fuller is not in it."""
    recent = (of for of in decisions if LEAST_S <= now_s - (_number(of.get("ended_s")) or now_s) <= WEEK_S)
    first = next(recent, None)
    used = first.get("used_bytes") if first is not None else None
    if first is None or not isinstance(used, dict):
        return {}
    passed_s = now_s - first["ended_s"]
    found = {}
    for name, of in now.items():
        before = _number(used.get(name))
        if before is not None and of.error is None and of.used_bytes > before:
            found[name] = of.free_bytes / (of.used_bytes - before) * passed_s
    return found


def _number(of: object) -> float | None:
    """A number of a state file; what else stands there is not believed."""
    return float(of) if isinstance(of, int | float) else None


def _numbers(done: object) -> dict[str, Done]:
    known = {}
    for name, of in done.items() if isinstance(done, dict) else ():
        if isinstance(of, list) and len(of) == len(fields(Done)) and all(_number(value) is not None for value in of):
            known[str(name)] = Done(*of)
    return known


def _bytes_per_s(before: Mapping[str, Done], now: Mapping[str, Done]) -> float | None:
    if not before or not before.keys() <= now.keys():
        return None
    did = [now[name].since(done) for name, done in before.items()]
    busiest_s = max(of.busy_s for of in did)
    if busiest_s <= 0 or sum(of.requests for of in did) < LEAST_REQUESTS:
        return None
    return sum(of.read_bytes + of.written_bytes for of in did) / busiest_s
