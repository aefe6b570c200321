"""What the servers of a pool did between two decisions of `adapt`: how fast they were, and how full they get.

Each decision that is kept has what every server had done and held when it ended. So moves do not count, and all of this
outlives the process.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, fields
from itertools import pairwise
from typing import Any

from stripewise import usage
from stripewise._native import StripewiseError
from stripewise.api import activity, moved
from stripewise.api.activity import Done
from stripewise.api.kept_lines import Kept
from stripewise.decided import Considered, as_number, copied_bytes, number, plans
from stripewise.pool import Pool, Server
from stripewise.usage import Usage

__all__ = [
    "BEGUN",
    "STATE",
    "Considered",
    "Full",
    "Gain",
    "begin",
    "done_by_servers",
    "full",
    "gain_of_last_move",
    "last_gain",
    "number",
    "plans",
    "since_then",
    "state",
]

STATE = "adapt.jsonl"
"""In the pool's namespace: a line for each decision of `adapt`."""
BEGUN = "begun"
"""What the first line is that says what servers had done before a pool with heat was used, and before any decision."""
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
    boot, boot_s = moved.now_in_boot()
    return {
        "ended_s": time.time(),
        "boot": boot,
        "boot_s": boot_s,
        "done": {name: astuple(of) for name, of in done.items()},
        "used_bytes": {name: of.used_bytes for name, of in there.items()},
        "free_bytes": {name: of.free_bytes for name, of in there.items()},
    }


def begin(pool: Pool) -> None:
    """Keeps what the servers have done so far, as a pool with heat gets into use: so the first move's gain is measured.

    Where a decision says that, or began to, and where this user cannot write it, nothing is kept. Looks at no file of
    the pool, and waits for no other process: a line more, of one that begins at the same time, says the same.
    """
    kept = Kept(pool.namespace / STATE, lambda *_: [])
    with suppress(StripewiseError, OSError):
        if pool.keeps_heat and kept.stamp() is None:
            kept.append({"what": BEGUN, "done": {name: astuple(of) for name, of in done_by_servers(pool).items()}})


def since_then(decisions: Sequence[Mapping[str, Any]], now: Mapping[str, Done]) -> dict[str, Any]:
    """What the servers have served a second since the last of `decisions`, and what the last move has gained.

    The speed is bytes over the time of the busiest server: the same for much to do as for little. The gain is that
    speed over the last one that is known of the layouts before the move; it is in one decision, the first one after
    the move with both known.
    """
    speed = _bytes_per_s(_numbers(decisions[-1].get("done")), now) if decisions else None
    if speed is None:
        return {}
    found = {"served_bytes_per_s": speed}
    for last, decision in reversed(list(enumerate(decisions))):
        if decision.get("verdict") == "moved":
            before, predicted = _before_move(decisions[: last + 1]), number(decision, "ratio")
            if before and predicted:
                gain = {"before_bytes_per_s": before, "after_bytes_per_s": speed, "ratio": speed / before}
                return {**found, "measured": {**gain, "predicted_ratio": predicted}}
            break
        if "measured" in decision:
            break
    return found


def _before_move(decisions: Sequence[Mapping[str, Any]]) -> float | None:
    """How fast the servers were before the move of the last of these; the period right before it may say nothing.

    Then an earlier one counts, by the same layouts: none from before another move, a promotion or a relief.
    """
    for decision in reversed(decisions):
        if decision is not decisions[-1] and decision.get("verdict") == "moved":
            return None
        speed = number(decision, "served_bytes_per_s")
        if speed or decision.get("promoted") or decision.get("relieved"):
            return speed
    return None


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
        if decision.get("verdict") == "moved":
            predicted = number(decision, "ratio")
            return Gain(predicted, None) if predicted else None
    return None


def last_gain(decisions: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
    """The last gain that was measured: its `ratio`, and the `predicted_ratio`."""
    for decision in reversed(decisions):
        gain = decision.get("measured")
        if isinstance(gain, dict) and number(gain, "ratio") and number(gain, "predicted_ratio"):
            return gain
    return None


@dataclass(frozen=True)
class Full:
    """When a pool gets full at the rate at which it has got fuller of late."""

    span_s: float
    """The time over which that rate is known."""
    servers_s: dict[str, float]
    """By server, in how many seconds it is full; one that does not get fuller is not in it."""
    tiers_s: dict[str, float]
    """The same of all servers of a tier together."""
    pool_s: float | None
    """The same of all tiers together; `None` where they do not get fuller."""


def full(pool: Pool, decisions: Sequence[Mapping[str, Any]], now: Mapping[str, Usage], now_s: float) -> Full | None:
    """When the pool is full, by what decisions of the last week have kept; `None` where none is an hour old.

    What was moved from server to server is no growth. Where a decision says that something was moved before it, or
    nothing says what was, the servers that got fuller share what all of them together have got.
    """
    kept = [(ended_s, of) for of in decisions if (ended_s := _ended_s(of, now_s)) is not None]
    recent = [(ended_s, of) for ended_s, of in kept if now_s - WEEK_S <= ended_s <= now_s and _used(of)]
    if not recent or now_s - recent[0][0] < LEAST_S:
        return None
    span_s = now_s - recent[0][0]
    there = {name: of for name, of in now.items() if of.error is None}
    grown = dict.fromkeys(there, 0.0)
    steps = [(_used(of), copied_bytes(of) > 0) for _, of in recent]
    # Of what was promoted since the last decision the next one tells.
    steps.append(({name: float(of.used_bytes) for name, of in there.items()}, True))
    for (before, _), (after, is_moved) in pairwise(steps):
        for name, more in _growth(before, after, is_moved=is_moved).items():
            grown[name] = grown.get(name, 0.0) + more
    tiers = {tier.name: [of for of in tier.servers if of.name in there] for tier in (*pool.tiers, pool.meta)}
    data = [of for tier in pool.tiers for of in tiers[tier.name]]

    def in_s(servers: Sequence[Server]) -> float | None:
        more = sum(grown[of.name] for of in servers)
        left_s = _free_bytes(servers, there) / more * span_s if more > 0 else math.inf
        return left_s if math.isfinite(left_s) else None

    each = {of.name: in_s([of]) for servers in tiers.values() for of in servers}
    together = {tier.name: in_s(tiers[tier.name]) for tier in pool.tiers}
    return Full(span_s, _known(each), _known(together), in_s(data))


def _ended_s(decision: Mapping[str, Any], now_s: float) -> float | None:
    """When it ended, by the clock of now: within a boot of the machine whatever the clock said then."""
    boot, now_boot_s = moved.now_in_boot()
    boot_s = number(decision, "boot_s") if boot and decision.get("boot") == boot else None
    # A name space of another time may be ahead.
    if boot_s is not None and boot_s <= now_boot_s:
        return now_s - (now_boot_s - boot_s)
    return number(decision, "ended_s")


def _used(decision: Mapping[str, Any]) -> dict[str, float]:
    """Bytes by server when a decision ended."""
    used = decision.get("used_bytes")
    return _known({str(name): number(used, name) for name in used}) if isinstance(used, dict) else {}


def _known(of: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in of.items() if value is not None}


def _growth(before: Mapping[str, float], after: Mapping[str, float], *, is_moved: bool) -> dict[str, float]:
    """By how many bytes each server got fuller by what programs wrote and removed."""
    more = {name: after[name] - before[name] for name in before.keys() & after.keys()}
    if not is_moved:
        return more
    in_all, fuller = sum(more.values()), sum(of for of in more.values() if of > 0)
    share = max(0.0, in_all) / fuller if fuller > 0 else 0.0
    return {name: of * share for name, of in more.items() if of > 0}


def _free_bytes(servers: Sequence[Server], there: Mapping[str, Usage]) -> float:
    """What can be written to all of these. Servers on one file system share what it has left."""
    devices: dict[int, list[Server]] = {}
    for of in servers:
        try:
            devices.setdefault(of.path.stat().st_dev, []).append(of)
        except OSError:
            continue
    found = 0.0
    for together in devices.values():
        try:
            room = os.statvfs(together[0].path)
        except OSError:
            continue  # It has just gone.
        limit = room.f_bavail * room.f_frsize if room.f_blocks else math.inf
        found += min(limit, sum(there[of.name].free_bytes for of in together))
    return found


def _numbers(done: object) -> dict[str, Done]:
    known = {}
    for name, of in done.items() if isinstance(done, dict) else ():
        if isinstance(of, list) and len(of) == len(fields(Done)) and all(as_number(value) is not None for value in of):
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
