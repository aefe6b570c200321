"""Reconsidering layouts by heat: data moves where that pays within the horizon.

The rule is Song et al.'s for their online approach, with a hysteresis: files move only if what the model gains in the
horizon is more than what moving costs, and only if the servers get at least a tenth faster.
"""

from __future__ import annotations

import csv
import fcntl
import itertools
import json
import os
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from stripewise import _native, layouts
from stripewise._native import StripewiseError
from stripewise.api import least_moves, measured, reading_ahead, relief, service, small_files, swaps
from stripewise.api import plan as planning
from stripewise.api import trace as traces
from stripewise.api.pacing import Pace, Pacer, Progress

if TYPE_CHECKING:
    from stripewise._native import PoolHeat
    from stripewise.pool import Pool

STATE = "adapt.jsonl"
"""In the pool's namespace: a line for each decision."""
HYSTERESIS = 1.1
"""How many times faster the servers have to get; as much again for other widths on the tier where data is."""
MOST_REQUESTS = 200_000
"""That stand for the heat; of more each stands for several."""
RESOLUTION = 64
"""Requests that stand for a block's heat in the mean, at least, up to `MOST_REQUESTS` in all."""
AT_ONCE = 4
"""Processes that send these requests, for each server: enough for the busiest server to decide how long they take."""
DAY_S = 86_400
FILE = "\n[[file]]\n"
"""Where the text of a file begins in a layout file."""

Decision = dict[str, Any]
"""What was decided, with its numbers: a line of the state file."""


@dataclass(frozen=True)
class Limits:
    """What an administrator allows."""

    horizon_s: float = DAY_S
    """For how long a new layout has to pay."""
    day_bytes: int | None = None
    """Most bytes that are copied in 24 hours."""
    hours: tuple[int, int] | None = None
    """Local hours from which to which data may move: (22, 6) is the night."""

    def allows(self, now: datetime) -> bool:
        """Whether data may move at that time."""
        if self.hours is None:
            return True
        begin, end = self.hours
        return begin <= now.hour < end if begin <= end else now.hour >= begin or now.hour < end


def state_file(pool: Pool) -> Path:
    """Where decisions are kept."""
    return pool.namespace / STATE


@contextmanager
def alone(pool: Pool) -> Iterator[None]:
    """Keeps other processes from adapting the pool meanwhile. Raises `StripewiseError` where one does so now."""
    try:
        descriptor = os.open(state_file(pool), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StripewiseError(
            f"{state_file(pool)} cannot be written: {error.strerror}; run this as its owner"
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StripewiseError(
                f"pool '{pool.name}' is adapted already, by `stripewise adapt` or a mount with --adapt: end that first"
            ) from None
        yield
    finally:
        os.close(descriptor)


def failed(pool: Pool, error: Exception) -> Decision:
    """Keeps that no decision could be made, and why; of an error that is none of Stripewise's its kind, too.

    Where the pool's namespace cannot be written either, nothing is kept.
    """
    why = str(error) if isinstance(error, StripewiseError) else f"unexpected {type(error).__name__}: {error}"
    decision: Decision = {"time_s": time.time(), "dry_run": False, "verdict": "failed", "why": why}
    # What has failed may be what tells of the servers.
    with suppress(StripewiseError, OSError):
        decision |= measured.state(pool)
    with suppress(OSError):
        _append(pool, decision)
    return decision


def decisions(pool: Pool) -> list[Decision]:
    """All decisions so far, the oldest first; lines that a kill has cut are left out."""
    try:
        lines = state_file(pool).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        try:
            decision = json.loads(line)
        except ValueError:
            continue
        if isinstance(decision, dict) and isinstance(decision.get("time_s"), int | float):
            found.append(decision)
    return found


def reconsider(
    pool: Pool,
    limits: Limits,
    *,
    planner: str = "auto",
    heat: PoolHeat | None = None,
    dry_run: bool = False,
    pace: Pace = Pace(),
    progress: Progress | None = None,
    promoted: Mapping[str, Any] | None = None,
) -> Decision:
    """Plans from the heat of now, decides, and moves what pays. What was decided, which the pool keeps.

    The heat is the pool's own, unless some is given. What was `promoted` since the last decision stands in this one.

    Tiers are relieved first: of new files that landed there, and of what gains least where one is near its limit. Then
    small files leave the metadata tier, or come back, by its threshold. A pool without heat, where files land, has no
    more.

    Raises `StripewiseError` where the pool keeps no heat, or has servers that were not calibrated.
    """
    pool.require_profiles()
    if heat is None and (pool.land is None or pool.keeps_heat):
        heat = _native.pool_heat(str(pool.file), ".")
    decision: Decision = {"time_s": time.time(), "dry_run": dry_run, "heat_s": _sum_us(heat) / 1e6 if heat else 0.0}
    if promoted:
        # What the servers did for that is not what they served.
        decision["promoted"] = dict(promoted)
    else:
        decision |= measured.since_then(decisions(pool), measured.done_by_servers(pool))
    decision |= _relieve(pool, limits, heat, dry_run=dry_run, pace=pace, progress=progress)
    decision |= _move_small_files(pool, limits, decision, pace=pace, progress=progress)
    if heat is None:
        return _kept(pool, decision, "the pool keeps no heat, by which files that have their place could be moved")
    if not heat["files"]:
        return _kept(pool, decision, "nothing was read or written of late")
    decision |= _read_ahead(pool, heat, dry_run=dry_run)
    with TemporaryDirectory() as scratch:
        log = Path(scratch) / "heat.csv"
        heat_bytes = _write_requests(pool, heat, log)
        trace = traces.read(log)
        made = planning.plan(trace, pool=pool, planner=planner, root=pool.mount)
        document = made.document
        decision["planner"] = document["planner"]
        if document["comparison"] is not None:
            compared = document["comparison"]["planners"]
            decision["plans"] = [{"planner": of["planner"], "predicted_s": of["predicted_s"]} for of in compared]
        head = document["layout"].split(FILE)[0]
        pays = swaps.Pays(limits.horizon_s / heat["period_s"], move_s_per_byte(pool))
        swapped = swaps.find(pool, heat, pays, document["layout"])
        if not document["changes"] and not swapped:
            return _kept(pool, decision, "the layouts are as the planner would have them")
        # Of the sum of all periods' halves, the last period has about half.
        last_bytes = heat_bytes / 2
        asked = _Asked(trace, pool, document["cuts_s"], Path(scratch), last_bytes * pays.periods, pays.move_s_per_byte)
        layouts_asked = {
            "swaps": head + "".join(least_moves.text_of(path, found) for path, found in swapped.items()),
            "fewer moves": _with_fewer_moves(pool, document["layout"], Path(scratch)),
            "planned": document["layout"],
        }
        candidates = [_candidate(asked, name, layout) for name, layout in layouts_asked.items() if FILE in layout]
        return _decide(pool, limits, decision, _best(candidates), Pacer.of(pool, pace, progress))


@dataclass(frozen=True)
class _Asked:
    """What a layout is priced by."""

    trace: traces.Trace
    pool: Pool
    cuts_s: list[float]
    scratch: Path
    horizon_bytes: float
    """That are read and written within the horizon."""
    move_s_per_byte: float


@dataclass(frozen=True)
class _Candidate:
    """Layouts that files could get."""

    name: str
    before_bytes_per_s: float
    after_bytes_per_s: float
    gain_s: float
    """Within the horizon."""
    moved_bytes: int
    move_s: float
    movable: list[tuple[str, Path]]
    """The files of which bytes move, each with a layout file of its own."""
    skipped: list[dict[str, str]]

    @property
    def ratio(self) -> float:
        return self.after_bytes_per_s / self.before_bytes_per_s


def _candidate(asked: _Asked, name: str, layout: str) -> _Candidate:
    total = _predicted(asked, layout)
    before, after = total["before"]["both"], total["after"]["both"]
    skipped, moved_bytes, movable = [], 0, []
    directory = asked.scratch / name
    directory.mkdir()
    for path, one in _each_file(layout, directory).items():
        try:
            forecast = _native.layout_forecast(str(one), str(asked.pool.file))
        except StripewiseError as error:
            skipped.append({"path": path, "why": str(error)})
            continue
        copied = sum(file["copied_bytes"] for file in forecast["files"])
        if copied:
            moved_bytes += copied
            movable.append((path, one))
    gain_s = asked.horizon_bytes / before - asked.horizon_bytes / after
    move_s = moved_bytes * asked.move_s_per_byte
    return _Candidate(name, before, after, gain_s, moved_bytes, move_s, movable, skipped)


def _best(candidates: list[_Candidate]) -> _Candidate:
    """The first one, or a later one that gets the servers faster by as much again than all before it do.

    It has to pay for what it moves more.
    """
    best, fastest = candidates[0], 0.0
    for other in candidates:
        is_faster = other.after_bytes_per_s >= HYSTERESIS * fastest
        if is_faster and other.gain_s - other.move_s > best.gain_s - best.move_s:
            best = other
        fastest = max(fastest, other.after_bytes_per_s)
    return best


def _predicted(asked: _Asked, layout: str) -> _native.BeforeAfter:
    file = asked.scratch / "new.layout"
    file.write_text(layout, encoding="utf-8")
    pool = asked.pool
    return _native.predict(asked.trace.native, str(pool.file), str(pool.mount), str(file), asked.cuts_s)["total"]


def _with_fewer_moves(pool: Pool, layout: str, scratch: Path) -> str:
    """The layout file without what would only get other widths on its tier."""
    head, *blocks = layout.split(FILE)
    texts = [head]
    for block, one in zip(blocks, _each_file(layout, scratch).values(), strict=True):
        try:
            (forecast,) = _native.layout_forecast(str(one), str(pool.file))["files"]
        except StripewiseError:
            texts.append(FILE + block)  # It cannot move, and the decision says why.
        else:
            texts.append(least_moves.text(forecast))
    return "".join(texts)


def copied_today(pool: Pool) -> int:
    """Bytes that were copied in the last 24 hours, as far as decisions tell."""
    since_s = time.time() - DAY_S
    return sum(relief.copied_bytes(of) for of in decisions(pool) if of["time_s"] > since_s)


def _relieve(
    pool: Pool, limits: Limits, heat: PoolHeat | None, *, dry_run: bool, pace: Pace, progress: Progress | None
) -> Decision:
    """What tiers were relieved of, with the numbers; nothing where none has to be."""
    steps = relief.steps(pool, heat)
    if not steps:
        return {}
    if dry_run or not limits.allows(datetime.now()):
        why = "only asked what would be done" if dry_run else "data does not move at this hour"
        return {"relief": [{**step.document(), "why": why} for step in steps]}
    left = None if limits.day_bytes is None else max(0, limits.day_bytes - copied_today(pool))
    taken = []
    for step in steps:
        try:
            taken.append(relief.take(pool, step, pace, progress, most_bytes=left))
        except StripewiseError as error:
            # As while a drain changes the layouts of the pool: the next period tries again.
            taken.append({**step.document(), "why": str(error)})
            continue
        if left is not None:
            left -= taken[-1]["copied_bytes"]
    return {"relief": taken}


def _move_small_files(
    pool: Pool, limits: Limits, decision: Decision, *, pace: Pace, progress: Progress | None
) -> Decision:
    """What left the metadata tier and what came back, with the numbers; nothing where none has to."""
    due = small_files.due(pool)
    if not decision["dry_run"]:
        small_files.decay(pool)
    if not due:
        return {}
    if decision["dry_run"] or not limits.allows(datetime.now()):
        why = "only asked what would be done" if decision["dry_run"] else "data does not move at this hour"
        return {"small_files": {**small_files.step(due), "why": why}}
    left = None
    if limits.day_bytes is not None:
        left = max(0, limits.day_bytes - copied_today(pool) - relief.copied_bytes(decision))
    try:
        return {"small_files": small_files.take(pool, due, pace, progress, most_bytes=left)}
    except StripewiseError as error:
        return {"small_files": {**small_files.step(due), "why": str(error)}}


def _read_ahead(pool: Pool, heat: PoolHeat, *, dry_run: bool) -> Decision:
    """The hints that gain for what is read, and those that were set; nothing where none gains."""
    try:
        found = reading_ahead.take(pool, heat, decisions(pool), dry_run=dry_run)
    except StripewiseError as error:
        # Data can move all the same.
        found = [{"verdict": "failed", "why": str(error)}]
    return {"hints": found} if found else {}


def _decide(
    pool: Pool,
    limits: Limits,
    decision: Decision,
    chosen: _Candidate,
    progress: Progress,
) -> Decision:
    ratio, gain_s, move_s, moved_bytes = chosen.ratio, chosen.gain_s, chosen.move_s, chosen.moved_bytes
    decision |= {
        "by": chosen.name,
        "before_bytes_per_s": chosen.before_bytes_per_s,
        "after_bytes_per_s": chosen.after_bytes_per_s,
        "ratio": ratio,
        "moved_bytes": moved_bytes,
        "gain_s": gain_s,
        "move_s": move_s,
        "horizon_s": limits.horizon_s,
        "skipped": (skipped := list(chosen.skipped)),
    }
    today = copied_today(pool) + relief.copied_bytes(decision)
    refusals = (
        (ratio < HYSTERESIS, f"the servers would get {ratio:.2f} times as fast, {HYSTERESIS} is asked for"),
        (not chosen.movable, "no file that would gain can move now"),
        (gain_s <= move_s, f"{gain_s:.1f} s gained in the horizon, {move_s:.1f} s for moving"),
        (not limits.allows(datetime.now()), "data does not move at this hour"),
        (
            limits.day_bytes is not None and today + moved_bytes > limits.day_bytes,
            f"{today:,} bytes were copied in 24 hours, and {moved_bytes:,} more are above the limit",
        ),
    )
    why = next((why for refused, why in refusals if refused), None)
    if why is not None:
        return _kept(pool, decision, why)
    if decision["dry_run"]:
        return _kept(pool, decision, "only asked what would be done")
    copied = 0
    for path, layout in chosen.movable:
        try:
            done = layouts.apply(layout, pool.file, rules=False, gives_way=True, progress=progress)
        except StripewiseError as error:
            skipped.append({"path": path, "why": str(error)})
            continue
        copied += sum(applied["copied_bytes"] for applied in done)
    return _written(pool, {**decision, "verdict": "moved", "copied_bytes": copied})


def _sum_us(heat: PoolHeat) -> int:
    return sum(file["cost_us"] for file in heat["files"])


def _kept(pool: Pool, decision: Decision, why: str) -> Decision:
    return _written(pool, {**decision, "verdict": "kept", "why": why})


def _written(pool: Pool, decision: Decision) -> Decision:
    if not decision["dry_run"]:
        decision |= measured.state(pool)
        _append(pool, decision)
    return decision


def _append(pool: Pool, decision: Decision) -> None:
    # A line that a kill has cut takes no other with it.
    line = f"\n{json.dumps(decision)}\n".encode()
    descriptor = os.open(state_file(pool), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def move_s_per_byte(pool: Pool) -> float:
    """Server time of a byte that is read, written and read back, on the tier where that takes longest."""
    known = [(tier.read, tier.write) for tier in pool.tiers]
    return max(
        2 / read.bandwidth_bytes_per_s + 1 / write.bandwidth_bytes_per_s
        for read, write in known
        if read is not None and write is not None
    )


def _write_requests(pool: Pool, heat: PoolHeat, log: Path) -> float:
    """Requests that cost what the heat says: reads of whole blocks, as often as their price goes into it.

    Heat does not tell sizes and directions of requests, nor how many are on their way at once. The price is that of the
    slowest tier, as that of heat. The bytes that the heat stands for: those of the requests, or more where each stands
    for several.
    """
    size_bytes = heat["block_bytes"]
    price_us = max(tier.read.mean_s(size_bytes) for tier in pool.tiers if tier.read is not None) * 1e6
    all_requests = _sum_us(heat) / price_us
    blocks = sum(len(file["blocks"]) for file in heat["files"])
    # Small requests cost a block less than a read of all of it: what blocks differ by must not be rounded away.
    scale = all_requests / min(MOST_REQUESTS, max(all_requests, RESOLUTION * blocks))
    processes = itertools.cycle(range(AT_ONCE * len(pool.servers)))
    reads = [
        (file, block)
        for file in heat["files"]
        for block, cost_us in file["blocks"]
        for _ in range(max(1, round(cost_us / price_us / scale)))
    ]
    # Heat has no order, and one after the other all processes would be at one server at a time.
    random.Random(0).shuffle(reads)
    bytes_in_all = 0
    with log.open("w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out)
        rows.writerow(["rank", "file", "op", "offset", "size"])
        for process, (file, block) in zip(processes, reads, strict=False):
            offset = block * size_bytes
            size = min(size_bytes, file["size_bytes"] - offset)
            rows.writerow([process, pool.mount / file["path"], "read", offset, size])
            bytes_in_all += size
    return bytes_in_all * scale


def _each_file(layout: str, directory: Path) -> dict[str, Path]:
    """A layout file for each file of `layout`, so that one that cannot move keeps no other from it."""
    head, *blocks = layout.split(FILE)
    files = {}
    for number, block in enumerate(blocks):
        one = directory / f"{number}.layout"
        one.write_text(f"{head}{FILE}{block}", encoding="utf-8")
        path = _native.layout_read(str(one))["files"][0]["path"]
        files[path] = one
    return files


def unit(pool: Pool, arguments: list[str], command: str = "") -> tuple[Path, str]:
    """Where the systemd unit of the pool's `adapt` belongs, root's or this user's, and its text."""
    purpose = f"layouts of pool {pool.name} follow what is hot"
    settings = "Nice=10\nIOSchedulingClass=idle\n"
    return service.unit(pool, "adapt", purpose, arguments, command=command, settings=settings)
