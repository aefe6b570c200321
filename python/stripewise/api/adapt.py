"""Reconsidering layouts by heat: data moves where that pays within the horizon.

The rule is Song et al.'s for their online approach, with a hysteresis: files move only if what the model gains in the
horizon is more than what moving costs, and only if the servers get at least a tenth faster.
"""

from __future__ import annotations

import csv
import errno
import fcntl
import itertools
import math
import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stripewise import _native, decided, layouts
from stripewise._native import StripewiseError
from stripewise.api import (
    ending,
    forecasts,
    least_moves,
    measured,
    moved,
    owned,
    parting,
    reading_ahead,
    relief,
    service,
    small_files,
    swaps,
    tier_room,
    unplanned,
)
from stripewise.api import plan as planning
from stripewise.api import trace as traces
from stripewise.api.filling import Filling
from stripewise.api.kept_lines import Kept
from stripewise.api.least_moves import FILE
from stripewise.api.pacing import Pace, Pacer, Progress, give_turn
from stripewise.units import counted, seconds

if TYPE_CHECKING:
    from stripewise._native import PoolHeat
    from stripewise.pool import Pool

STATE = measured.STATE
LOCK = "adapt.lock"
"""In the pool's namespace: the process that adapts the pool has it locked."""
REMEDIES = {
    errno.EROFS: "remount its file system writable",
    errno.ENOSPC: "free space there",
    errno.EDQUOT: "free space there, or have its quota raised",
    errno.EIO: "its disk fails: mount it anew, or restore it",
    errno.ENOENT: "mount the disk of the pool's namespace",
}
"""Of a lock that cannot be made, where another user could not either."""
PLANNED = "planned"
"""What a line of the moves is that says what a decision is about to move."""
GONE = "gone"
"""What the first line of the state file is, if it stands for decisions that are no longer kept."""
NO_DECISIONS = (GONE, measured.BEGUN)
"""What lines of the state file are that say nothing of a decision of their own."""
LONGEST_HORIZON_S = 1e12
"""No move pays for longer: 30,000 years. What is gained in that is a number still."""
HYSTERESIS = 1.1
"""How many times faster the servers have to get; as much again for other widths on the tier where data is."""
MOST_REQUESTS = 200_000
"""That stand for the heat; of more each stands for several."""
RESOLUTION = 64
"""Requests that stand for a block's heat in the mean, at least, up to `MOST_REQUESTS` in all."""
AT_ONCE = 4
"""Processes that send these requests, for each server: enough for the busiest server to decide how long they take."""
DAY_S = 86_400

NO_TEXT = "\ufffd"
"""In a path, in the place of bytes that are no text."""
OVER_TIERS = "swaps over tiers"
"""The layouts in which also parts change places whose rounds span tiers."""
NONE_MOVES = "no file that would gain can move now"
NO_HEAT = "nothing was read or written of late through a mount that keeps heat"
"""Mounts that were there before the table [heat] keep none."""
OTHERS_MOVE = "another command that moves files is under way"
"""How the error begins by which no file of the pool can move now."""

Decision = dict[str, Any]
"""What was decided, with its numbers: a line of the state file."""


@dataclass(frozen=True)
class Limits:
    """What an administrator allows."""

    horizon_s: float = DAY_S
    """For how long a new layout has to pay, up to `LONGEST_HORIZON_S`."""
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

    def left_bytes(self, copied_bytes: Callable[[], int]) -> float:
        """How many bytes may be copied now, without those of the last 24 hours; less than 0: these are too many."""
        return math.inf if self.day_bytes is None else self.day_bytes - copied_bytes()


def state_file(pool: Pool) -> Path:
    """Where decisions are kept."""
    return pool.namespace / STATE


class AdaptedError(StripewiseError):
    """Another process adapts the pool."""


@contextmanager
def alone(pool: Pool) -> Iterator[None]:
    """Keeps other processes from adapting the pool meanwhile. Raises `StripewiseError` where one does so now."""
    file = pool.namespace / LOCK
    try:
        descriptor = owned.opened(file, os.O_RDWR)
    except OSError as error:
        remedy = REMEDIES.get(error.errno or 0, "run this as its owner")
        raise StripewiseError(f"{file} cannot be written: {error.strerror}; {remedy}") from error
    try:
        # A look whether the pool is adapted has the lock for a moment.
        for wait_s in (0.05, 0.05, None):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if wait_s is None:
                    raise AdaptedError(
                        f"pool '{pool.name}' is adapted already, by `stripewise adapt` or a mount with --adapt: "
                        f"end that first"
                    ) from None
                time.sleep(wait_s)
        yield
    finally:
        os.close(descriptor)


def moves_now(pool: Pool, refused: StripewiseError) -> int | None:
    """The process that kept a command from moving files, if that is the one which adapts the pool.

    `refused` is what the command was told. `None`: another one does, or this machine's kernel does not tell.
    """
    told = re.match(f"{OTHERS_MOVE} in pool .*: process (\\d+), for ", str(refused))
    if told is None:
        return None
    try:
        lock = (pool.namespace / LOCK).stat()
        held = Path("/proc/locks").read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return None
    device = f"{os.major(lock.st_dev):02x}:{os.minor(lock.st_dev):02x}:{lock.st_ino}"
    process = int(told[1])
    holds = [fields for line in held.splitlines() if (fields := line.split())[1] == "FLOCK" and fields[5] == device]
    return process if any(fields[4] == str(process) for fields in holds) else None


def is_adapted(pool: Pool) -> bool:
    """Whether a process adapts the pool now."""
    try:
        lock = owned.opened_to_read(pool.namespace / LOCK)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(lock)
    return False


def failed(pool: Pool, error: Exception, asked: Sequence[str] = ()) -> Decision:
    """Keeps that no decision could be made, and why; of an error that is none of Stripewise's its kind, too.

    Where the pool's namespace cannot be written either, nothing is kept.
    """
    why = str(error) if isinstance(error, StripewiseError) else f"unexpected {type(error).__name__}: {error}"
    decision: Decision = {"time_s": time.time(), "dry_run": False, "verdict": "failed", "why": why}
    if asked:
        decision["asked"] = list(asked)
    # What has failed may be what tells of the servers.
    with suppress(StripewiseError, OSError):
        decision |= measured.state(pool)
    with suppress(StripewiseError, OSError):
        kept(pool).append(decision)
    return decision


def require_profiles(pool: Pool) -> None:
    """Raises `StripewiseError` where layouts are planned by heat, and a tier has no profile to predict by."""
    if pool.keeps_heat or pool.land is None:
        pool.require_profiles()


def away(pool: Pool) -> list[str]:
    """The servers in use that are not there. A system call for each."""
    servers = [server for tier in pool.tiers for server in tier.servers]
    return [server.name for server in servers if not swaps.is_there(server)]


def held_back(pool: Pool, why: str, asked: Sequence[str] = ()) -> Decision:
    """Keeps that nothing was decided, and why."""
    decision: Decision = {"time_s": time.time(), "dry_run": False}
    return _written(pool, _kept({**decision, "away": away(pool), **({"asked": list(asked)} if asked else {})}, why))


def kept(pool: Pool) -> Kept:
    """The lines of decisions of a pool."""
    return Kept(state_file(pool), _remembered)


def _remembered(lines: Sequence[Decision], others: Sequence[Decision]) -> list[Decision]:
    """What counts on when lines go: decisions by verdict, bytes that were copied, heat that was moved, hints."""
    if not lines:
        return []
    before = [line for line in others if line.get("what") == GONE]
    there = [line for line in lines if line.get("what") not in NO_DECISIONS]
    found = {"time_s": lines[-1]["time_s"], "what": GONE, **asdict(totals([*there, *before]))}
    hints = reading_ahead.set_by([*before, *there])
    return [{**found, "hints": hints} if hints else found]


@dataclass(frozen=True)
class Totals:
    """What decisions have done in all."""

    verdicts: dict[str, int]
    """How many there were of each verdict."""
    copied_bytes: int
    moved_heat_s: float


def totals(lines: Sequence[Decision]) -> Totals:
    """What the decisions of these lines have done, and those that have gone, as the last line that tells of them says.

    What is no number there is not believed.
    """
    there = [line for line in lines if line.get("what") not in NO_DECISIONS]
    gone = next((line for line in reversed(lines) if line.get("what") == GONE), {})
    verdicts = Counter(str(line.get("verdict")) for line in there)
    of_gone = gone.get("verdicts")
    if isinstance(of_gone, dict):
        verdicts.update({name: int(max(0.0, decided.number(of_gone, name) or 0.0)) for name in of_gone})
    each = [*there, gone]
    return Totals(dict(verdicts), sum(map(decided.copied_bytes, each)), sum(map(decided.moved_heat_s, each)))


def decisions(pool: Pool, since_s: float = 0.0) -> list[Decision]:
    """All decisions that are kept, the oldest first, no older than that; lines that a kill has cut are left out."""
    return [line for line in kept(pool).lines(since_s) if line.get("what") not in NO_DECISIONS]


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
    relieved: Mapping[str, Any] | None = None,
    asked: Sequence[str] = (),
) -> Decision:
    """Plans from the heat of now, decides, and moves what pays. What was decided, which the pool keeps.

    The heat is the pool's own, unless some is given. What was `promoted` or `relieved` since the last decision stands
    in this one, and the names of the questions that `asked` for it.

    Tiers are relieved first: of new files that landed there, and of what gains least where one is near its limit. Then
    small files leave the metadata tier, or come back, by its threshold. A pool without heat, where files land, has no
    more.

    Raises `StripewiseError` where the pool keeps no heat, or has servers that were not calibrated: one on which files
    land, and that keeps no heat, needs neither.
    """
    require_profiles(pool)
    limits = replace(limits, horizon_s=min(limits.horizon_s, LONGEST_HORIZON_S))
    if heat is None and (pool.land is None or pool.keeps_heat):
        heat = _native.pool_heat(str(pool.file), ".")
    decision: Decision = {"time_s": time.time(), "dry_run": dry_run, "heat_s": _sum_us(heat) / 1e6 if heat else 0.0}
    if asked:
        decision["asked"] = list(asked)
    if servers := away(pool):
        decision["away"] = servers
    between = {"promoted": dict(promoted or {}), "relieved": dict(relieved or {})}
    if any(between.values()):
        # What the servers did for that is not what they served.
        decision |= {what: sums for what, sums in between.items() if sums}
    else:
        lines = [line for line in kept(pool).lines() if line.get("what") != GONE]
        decision |= measured.since_then(lines, measured.done_by_servers(pool))
    if not dry_run:
        moved.see_clock(pool)
    filling = None if dry_run else Filling.of(pool)
    ends = [] if filling is None else [filling.why_ended]
    if filling is not None:
        # A plan may take long: how full the tier was before is known then.
        filling.is_above()
    watch = moved.Watched(pool, limits, progress, partial(limits.left_bytes, partial(copied_today, pool)), ends)
    try:
        decision |= _relieve(pool, limits, heat, dry_run=dry_run, pace=pace, watch=watch, filling=filling)
        decision |= _move_small_files(pool, limits, decision, pace=pace, watch=watch)
        if filling is not None:
            filling.look_now()
            watch.ends[:] = [filling.why_scarce]
        found = _plan_and_move(pool, limits, decision, planner=planner, heat=heat, pace=pace, watch=watch)
    finally:
        watch.close()
    return _written(pool, {**found, "recorded_bytes": watch.recorded_bytes} if watch.recorded_bytes else found)


def _plan_and_move(
    pool: Pool,
    limits: Limits,
    decision: Decision,
    *,
    planner: str,
    heat: PoolHeat | None,
    pace: Pace,
    watch: moved.Watched,
) -> Decision:
    """What is decided of files that have their place, and moves what pays."""
    if heat is None:
        return _kept(decision, "the pool keeps no heat, by which files that have their place could be moved")
    heat, unnamed = _with_names(heat)
    if unnamed:
        decision["skipped"] = unnamed
    if not heat["files"]:
        return _kept(decision, NONE_MOVES if unnamed else NO_HEAT)
    decision |= _read_ahead(pool, heat, dry_run=decision["dry_run"])
    with ending.scratch_directory() as scratch:
        log = scratch / "heat.csv"
        try:
            heat_bytes, trace, made = _planned(pool, heat, planner, log)
        except StripewiseError:
            # One file of one user keeps no other from moving.
            heat, left_out = unplanned.without(pool, heat)
            if not left_out:
                raise
            unnamed = decision["skipped"] = [*unnamed, *left_out]
            if not heat["files"]:
                return _kept(decision, NONE_MOVES)
            heat_bytes, trace, made = _planned(pool, heat, planner, log)
        document = made.document
        decision["planner"] = document["planner"]
        if document["comparison"] is not None:
            compared = document["comparison"]["planners"]
            decision["plans"] = [
                {"planner": of["planner"], "predicted_s": of["predicted_s"], "excess_bytes": of["excess_bytes"]}
                for of in compared
            ]
        head = document["layout"].split(FILE)[0]
        pays = swaps.Pays(limits.horizon_s / heat["period_s"], move_s_per_byte(pool))
        present = swaps.Present()
        swapped = swaps.find(pool, heat, pays, document["layout"], present=present)
        over_tiers = swaps.find(pool, heat, pays, document["layout"], swaps.Spans.ALL, present)
        if not document["changes"] and not swapped and not over_tiers:
            return _kept(decision, "the layouts are as the planner would have them")
        # Of the sum of all periods' halves, the last period has about half.
        last_bytes = heat_bytes / 2
        asked = _Asked(trace, pool, heat, unnamed, document["cuts_s"], scratch, last_bytes * pays.periods, pays)
        layouts_asked = {
            "swaps": _with_regions(head, swapped),
            "fewer moves": _with_fewer_moves(pool, document["layout"]),
            "planned": document["layout"],
            OVER_TIERS: _with_regions(head, over_tiers if over_tiers != swapped else {}),
        }
        candidates = [_candidate(asked, name, layout) for name, layout in layouts_asked.items() if FILE in layout]
        # Of a file on a server that is drained no part can stay there: a layout that would keep it moves nothing.
        can_move = [of for of in candidates if of.movable] or candidates
        return _decide(asked, limits, decision, _best(can_move), (Pacer.of(pool, pace, watch), watch))


def _planned(pool: Pool, heat: PoolHeat, planner: str, log: Path) -> tuple[float, traces.Trace, planning.Plan]:
    """The bytes of the heat, the requests that stand for it, and what is planned for these.

    Raises `StripewiseError` where nothing can be planned, as for a file that cannot be read.
    """
    heat_bytes = _write_requests(pool, heat, log)
    trace = traces.read(log)
    return heat_bytes, trace, planning.plan(trace, pool=pool, planner=planner, root=pool.mount)


def _with_names(heat: PoolHeat) -> tuple[PoolHeat, list[dict[str, str]]]:
    """The heat of files that a layout file can name, and those that it cannot, which stay where they are.

    A file that cannot be read stays, too.
    A byte of a name that is no text is told as `NO_TEXT`, by which no file can be found.
    """
    named = [file for file in heat["files"] if NO_TEXT not in file["path"]]
    why = "its path is no UTF-8 text, by which alone a layout names files; rename it"
    unnamed = [{"path": file["path"], "why": why} for file in heat["files"] if NO_TEXT in file["path"]]
    return {**heat, "files": named}, [*unnamed, *heat.get("unreadable", ())]


@dataclass(frozen=True)
class _Asked:
    """What a layout is priced by."""

    trace: traces.Trace
    pool: Pool
    heat: PoolHeat
    unnamed: list[dict[str, str]]
    """Files that no layout file can name, or that cannot be planned, and why."""
    cuts_s: list[float]
    scratch: Path
    horizon_bytes: float
    """That are read and written within the horizon."""
    pays: swaps.Pays


@dataclass(frozen=True)
class _Candidate:
    """Layouts that files could get."""

    name: str
    layout: str
    """The text of the layout file."""
    before_bytes_per_s: float
    after_bytes_per_s: float
    gain_s: float
    """Within the horizon."""
    moved_bytes: int
    move_s: float
    movable: list[tuple[str, str]]
    """The files of which bytes move, each with the text of a layout file of its own."""
    heat_s: dict[str, float]
    """The heat of what moves of each of them."""
    skipped: list[dict[str, str]]

    @property
    def ratio(self) -> float:
        return self.after_bytes_per_s / self.before_bytes_per_s


def _candidate(asked: _Asked, name: str, layout: str) -> _Candidate:
    """What a layout file would do, priced without the files that cannot move now, where others can.

    O(requests that stand for the heat).
    """
    known = forecasts.of_layout(asked.pool, layout)
    within = tier_room.within(asked.pool, asked.heat, layout, known)
    if within != layout:
        layout, known = within, forecasts.of_layout(asked.pool, within)
    if any(of.file is not None and of.file["copied_bytes"] for of in known):
        # What stays gains nothing: the rest has to pay by itself.
        layout = layout.partition(FILE)[0] + "".join(of.block for of in known if of.why is None)
    total = _predicted(asked, layout)
    before, after = total["before"]["both"], total["after"]["both"]
    skipped, moved_bytes, movable, heat_s = [], 0, [], {}
    hot = parting.Hot.of(asked.heat)
    # What makes room on a faster tier goes before what comes for it.
    faster = swaps.faster(asked.pool)
    known.sort(key=lambda of: 0 if of.file is None else tier_room.more_bytes(of.file, faster))
    for one in known:
        if one.why is not None:
            skipped.append({"path": one.path, "why": one.why})
        elif one.file is not None and one.file["copied_bytes"]:
            moved_bytes += one.file["copied_bytes"]
            movable.append((one.path, one.text))
            heat_s[one.path] = parting.moved_s(hot, [one.file])
    gain_s = _gain_s(asked, before, after)
    move_s = moved_bytes * asked.pays.move_s_per_byte
    return _Candidate(name, layout, before, after, gain_s, moved_bytes, move_s, movable, heat_s, skipped)


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
    trace, pool, cuts_s = asked.trace.native, asked.pool, asked.cuts_s
    return ending.heeding(lambda: _native.predict(trace, str(pool.file), str(pool.mount), str(file), cuts_s))["total"]


def _with_regions(head: str, files: Mapping[str, swaps.Regions]) -> str:
    return head + "".join(least_moves.text_of(path, found) for path, found in files.items())


def _with_fewer_moves(pool: Pool, layout: str) -> str:
    """The layout file without what would only get other widths on its tier."""
    head, *_ = layout.split(FILE)
    # Of one that cannot move the decision says why.
    texts = [of.block if of.file is None else least_moves.text(of.file) for of in forecasts.of_layout(pool, layout)]
    return "".join([head, *texts])


def _forecast_of(layout: str, pool: Pool) -> _native.ForecastFile:
    """What a layout file of one file would do. Raises `StripewiseError` where a program has removed it meanwhile."""
    (found,) = forecasts.of_each(pool, [layout])
    if found.file is None:
        raise StripewiseError(found.why or f"{found.path} is not there any more")
    return found.file


def copied_today(pool: Pool) -> int:
    """Bytes that were copied in the last 24 hours, as far as decisions tell, and what was kept while they moved.

    O(decisions of a day) where there is another one, else O(what is found).
    """
    since_s = time.time() - DAY_S
    found = moved.copied_bytes(pool, since_s)
    file, stamp = state_file(pool), kept(pool).stamp()
    if file not in _unrecorded or _unrecorded[file][0] != stamp:
        each = ((of["time_s"], decided.copied_bytes(of) - _recorded_bytes(of)) for of in decisions(pool, since_s))
        _unrecorded[file] = stamp, [(time_s, more) for time_s, more in each if more > 0]
    return found + sum(more for time_s, more in _unrecorded[file][1] if time_s > since_s)


_unrecorded: dict[Path, tuple[object, list[tuple[float, int]]]] = {}
"""By state file, what it was when it was read: when decisions have copied bytes that have no line of their own."""


def _recorded_bytes(decision: Decision) -> int:
    """Of what a decision has copied, what was kept while it moved; what is no number is not believed."""
    each = (decision, decision.get("promoted"), decision.get("relieved"))
    counts = [of.get("recorded_bytes") for of in each if isinstance(of, dict)]
    return sum(count for count in counts if isinstance(count, int))


def _relieve(
    pool: Pool,
    limits: Limits,
    heat: PoolHeat | None,
    *,
    dry_run: bool,
    pace: Pace,
    watch: moved.Watched,
    filling: Filling | None,
) -> Decision:
    """What tiers were relieved of, with the numbers; nothing where none has to be."""
    steps = relief.steps(pool, heat)
    if not steps:
        return {}
    if dry_run or not limits.allows(datetime.now()):
        why = "only asked what would be done" if dry_run else "data does not move at this hour"
        return {"relief": [{**step.document(), "why": why} for step in steps]}
    found: list[Decision] = []
    unrecorded = 0
    for step in steps:
        before_bytes, left = watch.recorded_bytes, None
        if limits.day_bytes is not None:
            # What was copied of a move that gave way has its line, and is in no step.
            left = max(0, limits.day_bytes - copied_today(pool) - unrecorded)
        take = partial(relief.take, pool, step, pace, watch, filling=filling)
        take = partial(take, most_bytes=left, a_day=limits.day_bytes)
        found.append(taken(watch, step.document(), take))
        unrecorded += max(0, found[-1].get("copied_bytes", 0) - (watch.recorded_bytes - before_bytes))
    return {"relief": found}


def taken(watch: moved.Watched, step: Decision, take: Callable[[], Decision]) -> Decision:
    """What a step has done: `take`, or its numbers with what has kept it from that, or from all of it."""
    before_bytes, watch.why = watch.recorded_bytes, None
    try:
        return take()
    except StripewiseError as error:
        # As while a drain changes the layouts of the pool: the next period tries again.
        watch.close()
        return {**step, "copied_bytes": watch.recorded_bytes - before_bytes, "why": str(error)}
    except KeyboardInterrupt:
        if watch.why is None:
            raise
        watch.close()
        return {**step, "copied_bytes": watch.recorded_bytes - before_bytes, "why": watch.why}


def _move_small_files(pool: Pool, limits: Limits, decision: Decision, *, pace: Pace, watch: moved.Watched) -> Decision:
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
        watch.close()
        left = max(0, limits.day_bytes - copied_today(pool) - _unrecorded_bytes(decision, watch))
    step = small_files.step(due)
    take = partial(small_files.take, pool, due, pace, watch, most_bytes=left)
    return {"small_files": taken(watch, step, take)}


def _read_ahead(pool: Pool, heat: PoolHeat, *, dry_run: bool) -> Decision:
    """The hints that gain for what is read, and those that were set; nothing where none gains."""
    try:
        lines = kept(pool).lines()
        gone = [line for line in lines if line.get("what") == GONE]
        there = [line for line in lines if line.get("what") not in NO_DECISIONS]
        found = reading_ahead.take(pool, heat, [*gone, *there], dry_run=dry_run)
    except StripewiseError as error:
        # Data can move all the same.
        found = [{"verdict": "failed", "why": str(error)}]
    return {"hints": found} if found else {}


def _decide(
    asked: _Asked, limits: Limits, decision: Decision, chosen: _Candidate, moving: tuple[Progress, moved.Watched]
) -> Decision:
    pool, (progress, watch) = asked.pool, moving
    decision |= {**_numbers(chosen), "horizon_s": limits.horizon_s}
    skipped = decision["skipped"] = [*asked.unnamed, *chosen.skipped]
    is_faster = chosen.ratio >= HYSTERESIS or _has_more_to_move(pool, limits.horizon_s)
    without = f", without {_that_stay(len(chosen.skipped))}" if chosen.skipped else ""
    too_slow = f"the servers would get {chosen.ratio:.2f} times as fast, {HYSTERESIS} is asked for"
    refusals = (
        (not is_faster, too_slow + (without if chosen.movable else "")),
        (not chosen.movable, NONE_MOVES),
        (not chosen.gain_s > chosen.move_s, _too_dear(chosen) + without),
        (not limits.allows(datetime.now()), "data does not move at this hour"),
    )
    why = next((why for refused, why in refusals if refused), None)
    if why is not None:
        return _kept(decision, why)
    planned_bytes = chosen.moved_bytes
    if limits.day_bytes is not None:
        watch.close()
        left = max(0, limits.day_bytes - copied_today(pool) - _unrecorded_bytes(decision, watch))
        if planned_bytes > left:
            part = _part_within(asked, chosen, left)
            if part is None:
                return _kept(decision, _above_the_limit(asked, chosen, left, limits.day_bytes))
            chosen = part
            decision |= _numbers(chosen)
    if decision["dry_run"]:
        return _kept(decision, "only asked what would be done")
    copied, heat_s = 0, 0.0
    stopped: str | None = None
    moved.record(pool, {"what": PLANNED, "by": chosen.name, "planned_bytes": chosen.moved_bytes})
    watch.plan(chosen.moved_bytes)
    halves = moved.halves(pool) if limits.day_bytes is not None else {}
    # What the limit has stopped goes last, so that it keeps no other from moving.
    for path, layout in sorted(chosen.movable, key=lambda of: of[0] in halves):
        try:
            for done in _steps_done(asked, (path, halves.get(path)), layout, progress, watch):
                copied += done
            heat_s += chosen.heat_s[path]
        except StripewiseError as error:
            if str(error).startswith(OTHERS_MOVE):
                stopped = str(error)
                break
            skipped.append({"path": path, "why": str(error)})
        except KeyboardInterrupt:
            if watch.why is None:
                raise
            break
        finally:
            watch.close()
    stopped = stopped or watch.why
    if not copied:
        # The rest of what was decided before is still to move.
        return _kept({**decision, "is_part": True} if stopped else decision, stopped or NONE_MOVES)
    if stopped is not None:
        decision["stopped"] = stopped
    if stopped is not None or skipped:
        decision = _priced_anew(asked, chosen, decision, copied)
    decision["is_part"] = stopped is not None or chosen.moved_bytes < planned_bytes
    done_so_far = {"copied_bytes": copied, "moved_heat_s": heat_s, "planned_bytes": planned_bytes}
    return {**decision, "verdict": "moved", **done_so_far}


def pays(decision: Decision) -> bool:
    """Whether what was decided pays, by its numbers. Where it does and nothing has moved, hours or limits forbid it."""
    gain_s, move_s = (decided.number(decision, of) for of in ("gain_s", "move_s"))
    if decision.get("verdict") != "kept":
        return True
    is_faster = (decided.number(decision, "ratio") or 0.0) >= HYSTERESIS
    return is_faster and gain_s is not None and move_s is not None and gain_s > move_s


def _numbers(of: _Candidate) -> Decision:
    return {
        "by": of.name,
        "before_bytes_per_s": of.before_bytes_per_s,
        "after_bytes_per_s": of.after_bytes_per_s,
        "ratio": of.ratio,
        "moved_bytes": of.moved_bytes,
        "gain_s": of.gain_s,
        "move_s": of.move_s,
    }


def _priced_anew(asked: _Asked, chosen: _Candidate, decision: Decision, copied_bytes: int) -> Decision:
    """The decision with the numbers of what has moved, where that is not all: the model prices the layouts of now.

    Where they cannot be priced, what the model said of the whole plan goes. O(requests that stand for the heat).
    """
    move_s = copied_bytes * asked.pays.move_s_per_byte
    moves = replace(chosen, moved_bytes=copied_bytes, move_s=move_s)
    try:
        now = _predicted(asked, chosen.layout)["before"]["both"]
    except StripewiseError as error:
        without = ("after_bytes_per_s", "ratio", "gain_s")
        numbers = {key: value for key, value in {**decision, **_numbers(moves)}.items() if key not in without}
        return {**numbers, "unpriced": str(error)}
    gain_s = _gain_s(asked, chosen.before_bytes_per_s, now)
    return {**decision, **_numbers(replace(moves, after_bytes_per_s=now, gain_s=gain_s))}


def _gain_s(asked: _Asked, before_bytes_per_s: float, after_bytes_per_s: float) -> float:
    """What the servers need less for what is read and written within the horizon."""
    return asked.horizon_bytes / before_bytes_per_s - asked.horizon_bytes / after_bytes_per_s


def _that_stay(files: int) -> str:
    return f"{counted(files, 'file')} that cannot move now"


def _too_dear(of: _Candidate) -> str:
    return f"{seconds(of.gain_s)} gained in the horizon, {seconds(of.move_s)} for moving"


def _has_more_to_move(pool: Pool, horizon_s: float) -> bool:
    """Whether the last move was only a part of what was decided, as hours, the limit or a kill had ended it.

    The rest of it may gain less than a decision has to. What was planned longer ago than the horizon counts no more.
    """
    since_s = time.time() - horizon_s
    kept_lines = decisions(pool)
    is_of_move = (of for of in reversed(kept_lines) if of.get("verdict") == "moved" or of.get("is_part") is True)
    last = next(is_of_move, {})
    planned = next((of for of in reversed(moved.records(pool)) if of.get("what") == PLANNED), None)
    if planned is None or planned["time_s"] <= max(since_s, decided.number(last, "ended_s") or 0.0):
        return last.get("is_part") is True
    # A process that was killed in the middle has kept no decision.
    spans = ((of["time_s"], decided.number(of, "ended_s") or of["time_s"]) for of in kept_lines)
    return not any(began_s <= planned["time_s"] <= ended_s for began_s, ended_s in spans)


def _unrecorded_bytes(decision: Decision, watch: moved.Watched) -> int:
    """Of what this decision has copied so far, and promotions before it, what has no line yet."""
    return max(0, decided.copied_bytes(decision) - _recorded_bytes(decision) - watch.recorded_bytes)


def _steps_done(
    asked: _Asked, file: tuple[str, int | None], layout: str, progress: Progress, watch: moved.Watched
) -> Iterator[int]:
    """Moves a file step by step, so that a move which is stopped goes on there; the bytes that each step has copied.

    `file` is its path, and how much of it is moved at once, if not as much as of others.
    """
    (_, step_bytes), pool = file, asked.pool
    forecast = _forecast_of(layout, pool)
    texts = parting.steps(forecast, forecast["size_bytes"], step_bytes)
    one = asked.scratch / "one.layout"
    for number, text in enumerate(texts, 1):
        of_step = f'version = 1\npool = "{pool.name}"\n{text}' if number < len(texts) else layout
        one.write_text(of_step, encoding="utf-8")
        give_turn(pool)
        done = layouts.apply(one, pool.file, rules=False, gives_way=True, progress=progress)
        watch.close()
        if not done:
            raise StripewiseError(moved.REMOVED)
        yield sum(applied["copied_bytes"] for applied in done)


def _part_within(asked: _Asked, chosen: _Candidate, most_bytes: int) -> _Candidate | None:
    """What gains most of a plan that copies no more than that: swaps, or the hottest parts; `None`: nothing pays.

    What has to be joined is copied, too, so that less is tried where all of it is above.
    """
    present = swaps.Present()
    for share in (1, 2, 4, 8):
        each = _parts_of(asked, chosen, most_bytes // share, share, present)
        found = [of for of in each if of.moved_bytes <= most_bytes]
        paying = [of for of in found if of.movable and of.gain_s > of.move_s]
        if paying:
            return max(paying, key=lambda of: of.gain_s - of.move_s)
    return None


def _parts_of(
    asked: _Asked, chosen: _Candidate, most_bytes: int, share: int, present: swaps.Present
) -> Iterator[_Candidate]:
    head = chosen.layout.split(FILE)[0]
    spans = swaps.Spans.ALL if chosen.name == OVER_TIERS else swaps.Spans.NONE
    few = swaps.few(asked.pool, asked.heat, asked.pays, most_bytes, chosen.layout, spans=spans, present=present)
    if few.regions:
        yield _candidate(asked, f"swaps within the limit, {share}", _with_regions(head, few.regions))
    files = _changing(asked, chosen)
    taken = parting.most_gain(_hot_parts(asked, files), most_bytes)
    if taken:
        yield _candidate(asked, f"part of {chosen.name}, {share}", head + parting.chosen(files, taken))


def _changing(asked: _Asked, chosen: _Candidate) -> list[_native.ForecastFile]:
    """The files that can still move, now and then: meanwhile a program may have removed one, or keep it in place."""
    known = forecasts.of_each(asked.pool, (text for _, text in chosen.movable))
    return [of.file for of in known if of.file is not None]


def _hot_parts(asked: _Asked, files: list[_native.ForecastFile]) -> Iterator[parting.Part]:
    hot = parting.Hot.of(asked.heat)
    return (part for file in files for part in parting.parts(file, hot))


def _above_the_limit(asked: _Asked, chosen: _Candidate, left: int, day_bytes: int) -> str:
    """Why nothing moves, with the figures."""
    parts = [part for part in _hot_parts(asked, _changing(asked, chosen)) if part.heat_us]
    least = min((part.size_bytes for part in parts), default=chosen.moved_bytes)
    return (
        f"{left:,} bytes are left of the limit of {day_bytes:,} in 24 hours; all would copy {chosen.moved_bytes:,}, "
        f"which is above the limit, and no part of it pays within that: the smallest has {least:,}"
    )


def _sum_us(heat: PoolHeat) -> int:
    return sum(file["cost_us"] for file in heat["files"])


def _kept(decision: Decision, why: str) -> Decision:
    return {**decision, "verdict": "kept", "why": why}


def _written(pool: Pool, decision: Decision) -> Decision:
    if not decision["dry_run"]:
        decision |= measured.state(pool)
        try:
            kept(pool).append(decision)
        except OSError as error:
            raise StripewiseError(
                f"{state_file(pool)} cannot be written, so that the decision is not kept: {error.strerror}"
            ) from error
    return decision


def move_s_per_byte(pool: Pool) -> float:
    """Server time of a byte that is read, written and read back, on the tier where that takes longest.

    Without end where no tier was calibrated: then no move pays.
    """
    known = [(tier.read, tier.write) for tier in pool.tiers]
    each = (
        2 / read.bandwidth_bytes_per_s + 1 / write.bandwidth_bytes_per_s
        for read, write in known
        if read is not None and write is not None
    )
    return max(each, default=math.inf)


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
        (path, file["size_bytes"], block)
        for file, path in ((file, str(pool.mount / file["path"])) for file in heat["files"])
        for block, cost_us in file["blocks"]
        for _ in range(max(1, round(cost_us / price_us / scale)))
    ]
    # Heat has no order, and one after the other all processes would be at one server at a time.
    random.Random(0).shuffle(reads)
    bytes_in_all = 0
    with log.open("w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out)
        rows.writerow(["rank", "file", "op", "offset", "size"])
        for process, (path, file_bytes, block) in zip(processes, reads, strict=False):
            offset = block * size_bytes
            size = min(size_bytes, file_bytes - offset)
            rows.writerow([process, path, "read", offset, size])
            bytes_in_all += size
    return bytes_in_all * scale


def unit(pool: Pool, arguments: list[str], command: str = "") -> tuple[Path, str]:
    """Where the systemd unit of the pool's `adapt` belongs, root's or this user's, and its text."""
    purpose = f"layouts of pool {pool.name} follow what is hot"
    # Not the idle class: programs wait for what a move does in their place, which that would let starve.
    settings = "Nice=10\nIOSchedulingClass=best-effort\nIOSchedulingPriority=7\n"
    return service.unit(pool, "adapt", purpose, arguments, command=command, settings=settings)
