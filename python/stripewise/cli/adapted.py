"""What `stripewise top` shows of a pool that adapts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.text import Text

from stripewise.api import measured
from stripewise.cli import console
from stripewise.cli.heat import drawn
from stripewise.terminal import name, plain
from stripewise.units import about_bytes, counted, mib_per_s, seconds

if TYPE_CHECKING:
    from rich.console import RenderableType

    from stripewise.api.adapt import Decision
    from stripewise.api.heat import HotFile
    from stripewise.api.measured import Considered, Gain
    from stripewise.api.moving import Move
    from stripewise.api.watching import Seen

NOT_ADAPTED = "no process adapts the pool now"
"""Below a decision: the one that made it has ended, as it was to, or was killed."""
MOST_PLANS = 3
"""Of those that were considered: the fastest that fit, and then of the others."""


def shown(seen: Seen) -> list[RenderableType]:
    """The hottest files, the last decision, the move that goes on, and what the last one has gained."""
    decision, move, gain = seen.decision, seen.move, seen.gain
    lines = [
        *(_decision(decision) if decision is not None else []),
        *(_move(move) if move is not None else []),
        *([_gain(gain)] if gain is not None else []),
        *([NOT_ADAPTED] if decision is not None and not seen.is_adapted else []),
    ]
    return [*_hottest(seen.hottest), *(Text(plain(line)) for line in lines)]


def _hottest(files: list[HotFile]) -> list[RenderableType]:
    if not files:
        return []
    grid = console.table(["hottest files", "heat", "by part"], right=["heat"], paths=["hottest files"])
    for file in files:
        grid.add_row(file.path, seconds(file.cost_us / 1e6), drawn(file.parts))
    return [grid]


def _decision(decision: Decision) -> list[str]:
    """What was decided, and by which numbers; what is none in the state file is left out."""
    ended_s = measured.number(decision, "ended_s") or measured.number(decision, "time_s") or 0.0
    ago_s = max(0.0, time.time() - ended_s)
    why = decision.get("why")
    lines = [f"adapt, {seconds(ago_s)} ago: {decision.get('verdict')}{f': {why}' if why else ''}"]
    if rates := _numbers(decision, "before_bytes_per_s", "after_bytes_per_s", "ratio"):
        before, after, ratio = rates
        lines.append(
            f"  by the model {mib_per_s(before)} MiB/s now, {mib_per_s(after)} MiB/s then ({ratio:.2f}x), "
            f"planner {decision.get('planner')}"
        )
    if pays := _numbers(decision, "gain_s", "move_s", "horizon_s", "moved_bytes"):
        gain_s, move_s, horizon_s, moved = pays
        lines.append(
            f"  {seconds(gain_s)} gained in {seconds(horizon_s)}, {about_bytes(moved)} to move in {seconds(move_s)}"
        )
    plans = measured.plans(decision)
    if plans:
        fastest = ", ".join(map(_considered, plans[:MOST_PLANS]))
        more = f", and {len(plans) - MOST_PLANS} more" if len(plans) > MOST_PLANS else ""
        lines.append(f"  considered: {fastest}{more}")
    return [*lines, *_promoted(decision)]


def _considered(plan: Considered) -> str:
    too_much = f" (does not fit: {about_bytes(plan.excess_bytes)} too much)" if plan.excess_bytes else ""
    return f"{plan.planner} {seconds(plan.predicted_s)}{too_much}"


def _numbers(decision: Decision, *keys: str) -> list[float]:
    """Those numbers of a decision; none where it lacks one."""
    found = [number for key in keys if (number := measured.number(decision, key)) is not None]
    return found if len(found) == len(keys) else []


def _promoted(decision: Decision) -> list[str]:
    promoted = decision.get("promoted")
    if not isinstance(promoted, dict):
        return []
    times, copied = (int(measured.number(promoted, of) or 0) for of in ("times", "copied_bytes"))
    return [f"  promoted before it: {counted(times, 'time')}, {about_bytes(copied)} copied"] if times else []


def _move(move: Move) -> list[str]:
    """What moves; nothing between two files, as where a drain waits for a writer."""
    if not move.path:
        return []
    done = f"{about_bytes(move.copied_bytes)} of {about_bytes(move.all_bytes)}"
    rate, left_s = move.bytes_per_s, move.left_s
    pace = "" if rate is None or left_s is None else f", {mib_per_s(rate)} MiB/s, {seconds(left_s)} left"
    rest = f": {done}{pace}"
    lines = [f"moving {console.short(name(move.path), len('moving ') + len(rest))}{rest}"]
    if move.planned is not None:
        copied, planned = move.planned
        left = "" if move.all_left_s is None else f", {seconds(move.all_left_s)} left"
        lines.append(f"  in all {about_bytes(copied)} of {about_bytes(planned)}{left}")
    return lines


def _gain(gain: Gain) -> str:
    if gain.ratio is None:
        return f"adapt: {gain.predicted_ratio:.2f}x predicted for the last move, not measured so far"
    return f"adapt: {gain.ratio:.2f}x measured since the last move, {gain.predicted_ratio:.2f}x predicted"
