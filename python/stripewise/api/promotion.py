"""Promotion: what has become hot since the last look comes to a faster tier between two decisions.

A decision plans all files anew from the heat of several periods. Promotion looks twice a second at what has come since
the look before, and moves the few parts that pay for their own move within seconds (`swaps`). Once something was moved,
or while a faster tier has room, it looks again sooner, a few times in a row. What one read of a whole block costs does
not count: that may be a scan, which does not come back.

How long what was hot stays hot is up to the load. So several forecasts forget at different rates, and the one counts
that would have had most of what came of late on the faster tiers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from stripewise import _native, layouts
from stripewise._native import StripewiseError
from stripewise.api import ending, forecasts, least_moves, moved, swaps, tier_room
from stripewise.api.heat import came as heat_came
from stripewise.api.pacing import Pace, Pacer, Progress, give_turn

if TYPE_CHECKING:
    from stripewise._native import PoolHeat
    from stripewise.api.adapt import Limits
    from stripewise.pool import Pool

__all__ = ["DECAYS", "LOOK_S", "Promoter"]

LOOK_S = 0.5
"""Between two looks, if not told otherwise."""
LOOK_SHARE = 0.1
"""Of the time, at most, for looks: in a pool of many files one takes longer than it should be away from the next."""
SOON = 0.2
"""Of the time between two looks: the time after one in which no other begins. In less too little comes to tell."""
MOST_SOON = 4
"""Looks in a row that come sooner than usual: then moves pause for the time of a look, whatever is hot."""

DECAYS = (0.95, 0.7, 0.3)
"""What forecasts keep of their heat from one look to the next; of those that do equally well the first counts."""
REMEMBERED = 0.8
"""What they keep of how well they did."""
LEARNS = 0.25
"""How much the last period counts for how long what is hot stays hot."""
PAYS_WITHIN_S = 10.0
"""A part that comes has to gain what moves take within this time: what is hot of late may soon cool."""
PARTS = (1, 2, 4, 8)
"""Of what moves in the time of a look: how much is moved at once, whichever is worth most."""

SUMS = ("files", "came_bytes", "left_bytes", "moved_heat_s", "copied_bytes", "gain_s", "move_s", "took_s")
"""Of promotions, which the next decision has."""

Load = dict[tuple[str, int], float]
"""Microseconds by file and block."""


@dataclass
class _Forecast:
    """What will be hot, if what was hot stays hot for about that long."""

    decay: float
    heat: Load = field(default_factory=dict)
    """A weighted mean of what came between two looks, times `known`."""
    known: float = 0.0
    """The sum of its weights: 1 after many looks."""
    score_us: float = 0.0
    """Of what came, what it would have had on the faster tiers."""

    def learn(self, came: Load, room_blocks: int, share: float) -> None:
        """What came in that `share` of a look shows how good it was, and is part of it from now on.

        O(blocks log of them).
        """
        hottest = sorted(self.heat, key=lambda of: -self.heat[of])[:room_blocks]
        found_us = sum(came.get(of, 0.0) for of in hottest)
        self.score_us = self.score_us * REMEMBERED**share + found_us * (1 - REMEMBERED)
        left = self.decay**share
        kept = {of: cost * left for of, cost in self.heat.items() if cost * left >= 1}
        for of, cost in came.items():
            kept[of] = kept.get(of, 0.0) + cost * (1 - self.decay)
        self.heat = kept
        self.known = self.known * left + (1 - self.decay) * share


@dataclass(frozen=True)
class _Batch:
    """What could be promoted at once."""

    movable: Mapping[str, str]
    """Files, each with the text of a layout file."""
    copied_bytes: int
    move_s: float
    few: swaps.Few

    @property
    def gain_s(self) -> float:
        """Within `PAYS_WITHIN_S`, if all of it were there now."""
        return sum(self.few.gains_s.values())

    @property
    def worth_s(self) -> float:
        """What it gains and costs: it gains when all of it is there, so that a smaller one may be worth more."""
        return self.gain_s * max(0.0, 1 - self.move_s / PAYS_WITHIN_S) - self.move_s


@dataclass
class Promoter:
    """Promotes parts of a pool's files, look by look. For one process at a time (`adapt.alone`)."""

    pool: Pool
    look_s: float
    """Time between two looks."""
    move_s_per_byte: float
    """Server time of a byte that moves."""
    pace: Pace = field(default_factory=Pace)
    forecasts: list[_Forecast] = field(default_factory=lambda: [_Forecast(decay) for decay in DECAYS])
    _before: Load | None = None
    _block_bytes: int = 0
    """Of the blocks at the last look."""
    _period: Load = field(default_factory=dict)
    """What came since the last decision, and between the two before."""
    _last_period: Load = field(default_factory=dict)
    _changed: tuple[float, float] | None = None
    """How much has changed from a period to the next, of all, and how long that period was: weighted means."""
    _watched_s: float = 0.0
    """Time from the first of these decisions to the last."""
    _room_blocks: int = 1
    _looked_s: float | None = None
    _due_s: float | None = None
    """When the next look is."""
    _soon: int = 0
    """Looks in a row that came sooner than usual."""
    _has_room: bool = False
    """Whether something came to the last look, and a part more finds room on a faster tier."""
    _moved_s: float = 0.0
    """How long the last look has moved data."""
    _promoted: dict[str, Any] = field(default_factory=dict)

    def look(
        self,
        heat: PoolHeat,
        passed_s: float,
        *,
        most_bytes: float | None = None,
        hours: moved.Hours | None = None,
        progress: Progress | None = None,
    ) -> dict[str, Any] | None:
        """Moves what pays, by the heat of now; what it did, or `None` where nothing pays, or nothing of it can move.

        The first look moves nothing. It moves as much as takes the time of one look, and no more than `most_bytes`; it
        stops when the `hours` are over.
        """
        now: Load = {(file["path"], block): float(cost) for file in heat["files"] for block, cost in file["blocks"]}
        before, self._before = self._before, now
        if heat["block_bytes"] != self._block_bytes:
            # Where many blocks are hot, neighbours are joined: what is known is of blocks of another size.
            before, self._block_bytes = None, heat["block_bytes"]
            self.forecasts = [_Forecast(decay) for decay in DECAYS]
            self.has_shifted()
        self._moved_s, self._has_room = 0.0, False
        if before is None:
            return None
        came = came_since(before, now, passed_s / heat["period_s"])
        forecast = self._learn(came, heat["block_bytes"], passed_s)
        if forecast is None:
            return None
        limit = self.look_s / self.move_s_per_byte
        if most_bytes is not None:
            limit = min(limit, most_bytes)
        # That of an exponentially weighted mean, twice which stands for the heat.
        chance = 2 * (1 - forecast.decay) / (1 + forecast.decay)
        pays = swaps.Pays(PAYS_WITHIN_S / self.look_s, self.move_s_per_byte, chance)
        read_again = self._read_again(heat, forecast)
        batches, present = [], swaps.Present()
        for part in PARTS:
            spans = swaps.Spans.SURE
            few = swaps.few(self.pool, read_again, pays, limit / part, spans=spans, warm=heat, present=present)
            self._has_room = few.has_room
            batches.append(self._batch(few))
        allowed = [of for of in batches if most_bytes is None or of.copied_bytes <= most_bytes]
        best = max(allowed, key=lambda of: of.worth_s, default=None)
        if best is None or not best.worth_s > 0:
            return None
        allowed_bytes = math.inf if most_bytes is None else most_bytes
        watch = moved.Watched(self.pool, hours, progress, lambda: allowed_bytes - watch.recorded_bytes)
        return self._move(best, forecast, watch)

    def run(
        self,
        seconds: float,
        limits: Limits,
        copied_bytes: Callable[[], int],
        progress: Progress | None = None,
        goes_on: Callable[[], bool] = lambda: True,
    ) -> Iterator[dict[str, Any]]:
        """Looks for that long, or while it `goes_on`, and yields what each promotion did.

        `copied_bytes` of the last 24 hours are asked for where the `limits` say how many there may be. A look that
        fails, as of a pool whose server is away, promotes nothing: the next decision says why.
        """
        until_s = time.monotonic() + seconds
        if self._due_s is None:
            self._due_s = time.monotonic() + self.look_s
        while time.monotonic() < until_s and goes_on():
            time.sleep(max(0.0, min(self._due_s, until_s) - time.monotonic()))
            began_s = time.monotonic()
            # A server may have gone meanwhile.
            if began_s < self._due_s or not goes_on():
                return
            if not self.pool.keeps_heat or not limits.allows(datetime.now()):
                self._due_s = began_s + self.look_s
                continue
            left = None if limits.day_bytes is None else max(0, limits.day_bytes - copied_bytes())
            try:
                heat = _native.pool_heat(str(self.pool.file), ".")
                passed_s = began_s - (self._looked_s or began_s)
                self._looked_s = began_s
                done = self.look(heat, passed_s, most_bytes=left, hours=limits, progress=progress)
            except StripewiseError:
                done, self._has_room = None, False
            now_s = time.monotonic()
            took_s = now_s - began_s - self._moved_s
            self._due_s = now_s + self.wait_s(took_s, None if done is None else self._moved_s)
            if done is not None:
                yield done

    def wait_s(self, took_s: float, moved_s: float | None) -> float:
        """How long the next look waits after one that took `took_s` and moved for `moved_s`; `None`: it moved nothing.

        It follows soon where the last one has promoted, as what moved did so by the heat of before, and where
        something came while there is room, for which nothing has to leave: `MOST_SOON` times in a row.
        """
        share_s = took_s * (1 / LOOK_SHARE - 1)
        if (moved_s is not None or self._has_room) and self._soon < MOST_SOON:
            self._soon += 1
            return max(0.0, max(SOON * self.look_s, share_s) - (moved_s or 0.0))
        if moved_s is not None or not self._has_room:
            self._soon = 0
        return max(self.look_s, share_s)

    def promoted(self) -> dict[str, Any]:
        """What was promoted since this was asked last, in all: for the line of the next decision."""
        found, self._promoted = self._promoted, {}
        return found

    def lasts_s(self, passed_s: float) -> float:
        """For how long what is hot stays hot, as far as periods tell. For each decision, `passed_s` after the last.

        No longer than it has been watched: what is known of some minutes says nothing of a day. Of what the hottest
        blocks of a period had, those of the period before had a share: the rest has changed. In some time all of it
        does at that rate, and a part of it stays hot for half of that in the mean. A short period counts for its share.
        O(blocks log of them).
        """
        period, last = self._period, self._last_period
        self._period, self._last_period = {}, period
        if period and last:
            changed = max(0.0, 1 - self._hottest_us(last, period) / self._hottest_us(period, period))
            known, known_s = self._changed or (changed, passed_s)
            self._changed = known + (changed - known) * LEARNS, known_s + (passed_s - known_s) * LEARNS
        self._watched_s += passed_s
        changed, changed_s = self._changed or (0.0, 0.0)
        return min(self._watched_s, changed_s / (2 * changed) if changed else math.inf)

    def has_shifted(self) -> None:
        """The load is another one: what it has hot is no change within a load, and is compared with none of before.

        How long loads last as a whole is another question (`shifts.Watch`). Forecasts forget it: decisions are by the
        new load alone, and what was hot by the one before would come back in the place of what they have moved.
        """
        self._period, self._last_period = {}, {}
        for forecast in self.forecasts:
            forecast.heat, forecast.known = {}, 0.0

    def _hottest_us(self, by: Load, of: Load) -> float:
        """What the blocks that are hottest by one load have of another."""
        return sum(of.get(block, 0.0) for block in sorted(by, key=lambda block: -by[block])[: self._room_blocks])

    def _learn(self, came: Load, block_bytes: int, passed_s: float) -> _Forecast | None:
        """The forecast that did best; `None`: nothing came."""
        if not came or passed_s <= 0:
            return None
        self._room_blocks = max(1, self._room_bytes() // block_bytes)
        for of, cost in came.items():
            self._period[of] = self._period.get(of, 0.0) + cost
        # In a longer time comes more than in one look, in a shorter one a share of it.
        looks = passed_s / self.look_s
        of_one = {of: cost / max(1.0, looks) for of, cost in came.items()}
        for forecast in self.forecasts:
            forecast.learn(of_one, self._room_blocks, min(1.0, looks))
        return max(self.forecasts, key=lambda of: of.score_us)

    def _read_again(self, heat: PoolHeat, forecast: _Forecast) -> PoolHeat:
        """Heat whose last period was one look as the forecast says, but for one read of each whole block.

        Of the sum of all periods' halves, the last one has half.
        """
        size_bytes = heat["block_bytes"]
        sizes = {file["path"]: file["size_bytes"] for file in heat["files"]}
        blocks: dict[str, list[tuple[int, int]]] = {}
        for (path, block), cost in sorted(forecast.heat.items()):
            held = min(size_bytes, sizes.get(path, 0) - block * size_bytes)
            once_us = self._read_us(held) * (1 - forecast.decay) if held > 0 else cost
            again_us = (cost - once_us) / forecast.known
            if again_us >= 1:
                blocks.setdefault(path, []).append((block, round(2 * again_us)))
        files: list[_native.FileHeat] = []
        for path, found in blocks.items():
            cost_us = sum(cost for _, cost in found)
            files.append({"path": path, "size_bytes": sizes[path], "cost_us": cost_us, "blocks": found})
        return {**heat, "files": files}

    def _read_us(self, size_bytes: int) -> float:
        return max(tier.read.mean_s(size_bytes) for tier in self.pool.tiers if tier.read is not None) * 1e6

    def _room_bytes(self) -> int:
        """Of all tiers but the slowest, as much as may be filled."""
        known = [(tier.read.mean_s(1 << 16), tier.name) for tier in self.pool.tiers if tier.read is not None]
        found = 0.0
        for _, tier in sorted(known)[:-1]:
            rooms = _native.pool_tier_parts(str(self.pool.file), tier)["rooms"]
            found += sum(room["used_bytes"] + room["free_bytes"] for room in rooms) * tier_room.mark(self.pool, tier)
        return int(found)

    def _batch(self, few: swaps.Few) -> _Batch:
        """With a layout file for each file that changes, and what is copied in all: also what has to be joined."""
        head = f'version = 1\npool = "{self.pool.name}"\n'
        texts = [head + least_moves.text_of(path, regions) for path, regions in few.regions.items()]
        # Of one that cannot move now a decision says why.
        known = [of for of in forecasts.of_each(self.pool, texts) if of.why is None]
        # What makes room goes before what comes for it.
        faster = swaps.faster(self.pool)
        known.sort(key=lambda of: 0 if of.file is None else tier_room.more_bytes(of.file, faster))
        copied_bytes = sum(of.file["copied_bytes"] for of in known if of.file is not None)
        movable = {of.path: of.text for of in known}
        return _Batch(movable, copied_bytes, copied_bytes * self.move_s_per_byte, few)

    def _move(self, batch: _Batch, forecast: _Forecast, watch: moved.Watched) -> dict[str, Any] | None:
        """What was done, of the files that moved; `None` where none has."""
        began_s = time.monotonic()
        pacer = Pacer.of(self.pool, self.pace, watch)
        copied, skipped = 0, []
        files: list[str] = []
        with ending.scratch_directory() as scratch:
            one = scratch / "one.layout"
            for path, text in batch.movable.items():
                one.write_text(text, encoding="utf-8")
                give_turn(self.pool)
                try:
                    done = layouts.apply(one, self.pool.file, rules=False, gives_way=True, progress=pacer)
                except StripewiseError as error:
                    skipped.append({"path": path, "why": str(error)})
                    continue
                except KeyboardInterrupt:
                    if watch.why is None:
                        raise
                    skipped.append({"path": path, "why": watch.why})
                    break
                finally:
                    watch.close()
                if not done:
                    skipped.append({"path": path, "why": moved.REMOVED})
                    continue
                copied += sum(applied["copied_bytes"] for applied in done)
                files.append(path)
        self._moved_s = time.monotonic() - began_s
        times, recorded_bytes = (self._promoted.get(of, 0) for of in ("times", "recorded_bytes"))
        if watch.recorded_bytes:
            # Also what was copied in vain kept the servers busy, and is nothing that they have served.
            self._promoted |= {"times": times, "recorded_bytes": recorded_bytes + watch.recorded_bytes}
        if not files:
            return None  # A decision says why they stay.
        took = {
            "verdict": "promoted",
            "decay": forecast.decay,
            "files": len(files),
            "came_bytes": sum(batch.few.came.get(path, 0) for path in files),
            "left_bytes": sum(batch.few.left.get(path, 0) for path in files),
            "copied_bytes": copied,
            "moved_heat_s": sum(batch.few.heat_us.get(path, 0.0) for path in files) / 1e6,
            "gain_s": sum(batch.few.gains_s.get(path, 0.0) for path in files),
            "move_s": copied * self.move_s_per_byte,
            "took_s": self._moved_s,
            "skipped": skipped,
        }
        # Beside a mount this is the only trace of it.
        moved.record(self.pool, {"what": "promoted", **took})
        self._promoted |= {
            "times": times + 1,
            "decay": forecast.decay,
            **{of: self._promoted.get(of, 0) + took[of] for of in SUMS},
        }
        return {"time_s": time.time(), **took}


def came_since(before: Mapping[tuple[str, int], float], now: Load, periods: float = 0.0) -> Load:
    """What heat came between two looks, that part of a period apart; after a halving, what is certain. O(blocks)."""
    found = {}
    for of, cost in now.items():
        known = before.get(of, 0.0)
        more = heat_came(known if cost >= known else known / 2, cost, periods)
        if more >= 1:
            found[of] = more
    return found
