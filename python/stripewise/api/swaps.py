"""Swaps: the hottest parts that a faster tier has not come for the coldest ones that it has, each where that pays.

A planner lays all files out anew, and what moves then pays as a whole or does not. Here each part that comes pays for
its own move and for that of the parts that leave for it: the rule of Song et al. (gain x horizon > bytes x cost of
moving), region by region. All other bytes stay where they are.

Heat that differs by no more than chance explains is equal: `n` requests of one price vary by the root of `n`.

Rounds may span tiers, as the default layout does. The tier then has a share of a part's bytes and heat. What comes
needs room for the rest, and gains what the rest has of the heat; what leaves frees that share, and loses its heat. Both
copy all of the part. Such a width may be planned, so that no swap alone says whether it should go: `Spans`.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from operator import itemgetter
from typing import TYPE_CHECKING

from stripewise import _native
from stripewise._native import StripewiseError
from stripewise.api import tier_room
from stripewise.api.parting import Part
from stripewise.api.shares import bytes_on, round_bytes, widest

if TYPE_CHECKING:
    from stripewise._native import PoolHeat, TierPart
    from stripewise.pool import Pool, Server, Tier

__all__ = ["MARKER", "Few", "Pays", "Present", "Regions", "Spans", "faster", "few", "find", "is_there", "usable"]

ALIKE = 1.1
"""Parts whose heat differs by less are equally hot; what comes must be hotter than what leaves by as much."""
SURELY = 2.0
"""How many times faster a tier alone has to serve a part than a slower server its share of it, if no model says so."""
MOST_PARTS = 4096
"""Of a file; in larger ones several blocks are a part."""

Regions = list[tuple[int, list[str]]]
"""Offset and round of each region of a file."""


@dataclass
class Present:
    """What swaps ask of files and plans: once for several, as of one decision, or of one look."""

    regions: dict[str, Regions] = field(default_factory=dict)
    """Of files as they are; none of one that is gone, or has no layout."""
    rounds: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """By layout file, the round that it has most often on each tier."""

    def regions_of(self, pool: Pool, path: str) -> Regions:
        """Those of a file. Where they are not known yet, the pool is opened."""
        if path not in self.regions:
            try:
                stat = _native.file_stat(str(pool.file), path)
            except StripewiseError:
                stat = {}
            self.regions[path] = _joined((region["offset"], region["round"]) for region in stat.get("regions", ()))
        return self.regions[path]

    def rounds_of(self, pool: Pool, planned: str) -> dict[str, list[str]]:
        """Those of a layout file."""
        if planned not in self.rounds:
            self.rounds[planned] = _most_often(pool, planned)
        return self.rounds[planned]


class Spans(Enum):
    """Which parts may change places whose rounds span tiers."""

    NONE = auto()
    SURE = auto()
    """What no model prices: without heat they leave, and they come where the tier alone serves all of them in less time
    than the slower server with most of them takes for its share, by far (`SURELY`)."""
    ALL = auto()
    """For a model that prices what comes of it."""


@dataclass(frozen=True)
class Pays:
    """When a move pays."""

    periods: float
    """For which the gain of one counts."""
    move_s_per_byte: float
    """Server time."""
    chance: float = 1.0
    """By how many times heat varies more than that of requests which are counted once."""


@dataclass(frozen=True)
class _Part(Part):
    """Bytes of one region, within one block or several."""

    share: float = 1.0
    """Of its bytes, those that take room, or free it: the rest are holes, or are on the tier before and after."""
    copies: float = 1.0
    """For each byte that takes room, how many are copied: more than one where its round spans tiers."""

    grain_bytes: int = 1
    """Cuts of it are at multiples of that: where its round spans tiers, all of that has to go."""

    @property
    def spans_tiers(self) -> bool:
        """Whether its round does."""
        return self.grain_bytes > 1

    @property
    def room_bytes(self) -> int:
        """What it takes of a server, and frees there when it leaves."""
        return round(self.size_bytes * self.share)

    @property
    def copied_bytes(self) -> int:
        """What a move of it copies."""
        return round(self.room_bytes * self.copies)

    def cut_for(self, needed_bytes: int) -> list[_Part]:
        """Its end, which frees that much, and what is before it, with equal heat per byte."""
        at = (self.end - math.ceil(needed_bytes / self.share)) // self.grain_bytes * self.grain_bytes
        if at <= self.begin:
            return [self]
        heat_us = self.heat_us * (self.end - at) / self.size_bytes
        behind = replace(self, begin=at, heat_us=heat_us)
        return [behind, replace(self, end=at, heat_us=self.heat_us - heat_us)]

    def of_share(self, share: float, grain_bytes: int) -> _Part:
        """What changes its tier if all of it moves: a share of its bytes and heat."""
        return replace(
            self, heat_us=self.heat_us * share, share=self.share * share, copies=1 / share, grain_bytes=grain_bytes
        )

    def overlaps(self, other: _Part) -> bool:
        """Whether they share bytes."""
        return self.path == other.path and self.begin < other.end and other.begin < self.end

    @property
    def warmth(self) -> int:
        """Heat for each byte that takes room, in steps of `ALIKE`."""
        if self.heat_us <= 0:
            return -(1 << 30)
        return round(math.log(self.heat_us / max(1, self.room_bytes)) / math.log(ALIKE))


@dataclass
class _Files:
    """Files as they would be, with their heat."""

    pool: Pool
    heat: PoolHeat
    rounds: Mapping[str, list[str]]
    """The round of files that are not on a tier yet, by its name."""
    present: Present
    known: dict[str, Regions] = field(default_factory=dict)
    spans: Spans = Spans.NONE
    warm: PoolHeat | None = None
    """All heat, by which what spans tiers may have some though nothing came to it of late; `None`: it is `heat`."""
    changed: set[str] = field(default_factory=set)
    gains_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """By file, within the periods that count: what has come gains, and what has left for it loses."""
    moved_bytes: int = 0
    came: Counter[str] = field(default_factory=Counter)
    """Bytes that have come to a faster tier, by file."""
    left: Counter[str] = field(default_factory=Counter)
    """Bytes that have left one for them."""
    heat_us: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Of what has come."""
    has_room: bool = False
    """Whether a tier has room for a block more than has come."""

    def __post_init__(self) -> None:
        # Sorted, so that a stretch finds its own: one of a file with holes may have billions without heat.
        self._blocks = {of["path"]: (sorted(of["blocks"]), of["size_bytes"]) for of in self.heat["files"]}
        self._warm = self._blocks
        if self.warm is not None:
            self._warm = {of["path"]: (sorted(of["blocks"]), of["size_bytes"]) for of in self.warm["files"]}
        self._least: dict[str, int] = {}
        self._spanning: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._usable = {tier.name: [server.name for server in usable(tier)] for tier in self.pool.tiers}

    def regions(self, path: str) -> Regions:
        """Those of a file; none of one that is gone, or has no layout."""
        if path not in self.known:
            found = self.present.regions_of(self.pool, path)
            if not found:
                return []
            self.known[path] = found
        return self.known[path]

    def parts(
        self, path: str, part_bytes: int, stretches: Iterable[tuple[int, int]], share: float = 1.0
    ) -> Iterator[_Part]:
        """The stretches, cut where regions begin and by `part_bytes`. O(parts log heat each, and blocks with heat)."""
        costs, held_bytes = self._blocks.get(path, ([], 0))
        begins = [offset for offset, _ in self.regions(path)]
        for at, end in stretches:
            while at < end:
                ahead = bisect_right(begins, at)
                cuts = (end, (at // part_bytes + 1) * part_bytes, *begins[ahead : ahead + 1])
                until = min(cuts)
                yield _Part(path, at, until, self._heat_us(costs, (at, until), held_bytes), share)
                at = until

    def held(self, held: TierPart, tier: str) -> Iterator[_Part]:
        """What of a region takes room on a tier: nothing of holes alone. The share of a part is that without holes.

        No more parts than blocks that it holds, so that holes make none.
        """
        path, (begin, end) = held["path"], held["stretch"]
        room_bytes = sum(held["by_server"].values())
        if room_bytes <= 0 or begin >= end:
            return
        stripes = self.round_of(_Part(path, begin, end, 0.0))
        on_bytes = bytes_on(tier, stripes, begin, end) if len(_tiers(stripes)) > 1 else end - begin
        if on_bytes <= 0:
            return
        filled = min(1.0, room_bytes / on_bytes)
        size_bytes = self._blocks.get(path, ([], end))[1]
        most_parts = max(1, min(MOST_PARTS, round((end - begin) * filled) // self.heat["block_bytes"]))
        part_bytes = max(self._part_bytes(path, size_bytes), self._part_bytes(path, end - begin, most_parts))
        yield from self.parts(path, part_bytes, [held["stretch"]], filled)

    def _part_bytes(self, path: str, size_bytes: int, most_parts: int = MOST_PARTS) -> int:
        """Of a file with rounds that span tiers no less than a round, so that each part is on all of its tiers."""
        part_bytes = self.heat["block_bytes"]
        least_bytes = self._least.get(path)
        if least_bytes is None:
            spanning = [of for _, of in self.regions(path) if len(_tiers(of)) > 1] if self.spans != Spans.NONE else []
            least_bytes = self._least[path] = max(map(round_bytes, spanning), default=0)
        while size_bytes > most_parts * part_bytes or least_bytes > part_bytes:
            part_bytes *= 2
        return part_bytes

    def leaving(self, held: TierPart, tier: str, slower: set[str]) -> Iterator[_Part]:
        """The parts of what a tier has that may leave it."""
        for part in self.held(held, tier):
            stripes = self.round_of(part)
            tiers = _tiers(stripes)
            if tiers == {tier}:
                yield part
            elif self.spans is not Spans.NONE and tier in tiers and tiers <= {tier, *slower}:
                on_bytes = bytes_on(tier, stripes, part.begin, part.end)
                is_warm = self.spans is Spans.SURE and self._is_warm(part)
                if on_bytes and not is_warm:
                    yield part.of_share(on_bytes / part.size_bytes, round_bytes(stripes))

    def coming(self, part: _Part, tier: str, slower: set[str], read_share: float) -> _Part | None:
        """What of a part may come to a tier; `None`: nothing.

        A read there takes `read_share` of one on the slowest tier.
        """
        stripes = self.round_of(part)
        tiers = _tiers(stripes)
        if tiers and tiers <= slower:
            return part
        if self.spans is Spans.NONE or tier not in tiers or not tiers <= {tier, *slower}:
            return None
        share = 1 - bytes_on(tier, stripes, part.begin, part.end) / part.size_bytes
        if share <= 0 or (self.spans is Spans.SURE and read_share * SURELY > widest(stripes, slower)):
            return None
        return part.of_share(share, round_bytes(stripes))

    def has_moved(self, part: _Part) -> bool:
        """Whether some of a part, whose round spans tiers, has come or left: it could do both."""
        found = self._spanning[part.path]
        number = bisect_left(found, (part.end, part.end))
        return number > 0 and found[number - 1][1] > part.begin

    def _is_warm(self, part: _Part) -> bool:
        costs, size_bytes = self._warm.get(part.path, ([], 0))
        return part.heat_us > 0 or self._heat_us(costs, (part.begin, part.end), size_bytes) > 0

    def _heat_us(self, costs: Sequence[tuple[int, int]], stretch: tuple[int, int], size_bytes: int) -> float:
        (begin, end), block = stretch, self.heat["block_bytes"]
        found = 0.0
        number_of = itemgetter(0)
        first = bisect_left(costs, begin // block, key=number_of)
        for at in range(first, bisect_left(costs, (end - 1) // block + 1, lo=first, key=number_of)):
            number, cost_us = costs[at]
            inside = min(end, (number + 1) * block) - max(begin, number * block)
            # The last block of a file has no more bytes than the file.
            held = min(block, max(size_bytes - number * block, inside))
            found += cost_us * inside / held
        return found

    def hot(self) -> Iterator[_Part]:
        """All parts that have heat."""
        block = self.heat["block_bytes"]
        for path, (costs, size_bytes) in self._blocks.items():
            part_bytes = self._part_bytes(path, size_bytes)
            numbers = sorted({number * block // part_bytes for number, _ in costs})
            stretches = ((of * part_bytes, min((of + 1) * part_bytes, size_bytes)) for of in numbers)
            yield from self.parts(path, part_bytes, stretches)

    def round_of(self, part: _Part) -> list[str]:
        """Where it is; nowhere if its file is gone."""
        found = self.regions(part.path)
        number = bisect_right([offset for offset, _ in found], part.begin)
        return found[number - 1][1] if number else []

    def place(self, part: _Part, stripes: list[str]) -> None:
        """Gives it another round."""
        if part.spans_tiers:
            insort(self._spanning[part.path], (part.begin, part.end))
        before = self.regions(part.path)
        behind = self.round_of(_Part(part.path, part.end, part.end, 0.0))
        kept = [(offset, of) for offset, of in before if not part.begin <= offset <= part.end]
        self.known[part.path] = _joined(sorted([*kept, (part.begin, stripes), (part.end, behind)]))
        self.changed.add(part.path)

    def usual(self, path: str, tier: Tier) -> list[str]:
        """The round on a tier that a file has most often, or that of new files where it is not there."""
        takes = self._usable[tier.name]
        own = [of for _, of in self.regions(path) if _tiers(of) == {tier.name}]
        rounds = Counter(tuple(of) for of in own if _servers(of) <= set(takes))
        if rounds:
            return list(rounds.most_common(1)[0][0])
        default = [f"{server}:{self.pool.default_width_bytes}B" for server in takes]
        return self.rounds.get(tier.name, default)


def find(
    pool: Pool,
    heat: PoolHeat,
    pays: Pays,
    planned: str,
    spans: Spans = Spans.NONE,
    present: Present | None = None,
) -> dict[str, Regions]:
    """Swaps that pay: all files with heat and others that change, as they would be; none where nothing pays.

    O(hot parts log of them, and files of the pool).

    A file that comes to a tier for the first time gets the round that a `planned` layout file has there most often.
    """
    present = present or Present()
    files = _Files(pool, heat, present.rounds_of(pool, planned), present, spans=spans)
    _swap(files, pays, math.inf)
    return files.known if files.changed else {}


@dataclass(frozen=True)
class Few:
    """Swaps that a short time is enough for."""

    regions: dict[str, Regions]
    """Of the files that change."""
    gains_s: Mapping[str, float]
    """By file: what comes gains, and what leaves for it loses."""
    moved_bytes: int
    came: Mapping[str, int]
    """Bytes that come to a faster tier, by file."""
    left: Mapping[str, int]
    """Bytes that leave one for them."""
    heat_us: Mapping[str, float]
    """Of what comes."""
    has_room: bool
    """Whether a block more would come to a tier without another that leaves for it."""


def few(
    pool: Pool,
    heat: PoolHeat,
    pays: Pays,
    most_bytes: float,
    planned: str | None = None,
    *,
    spans: Spans = Spans.NONE,
    warm: PoolHeat | None = None,
    present: Present | None = None,
) -> Few:
    """The swaps of `find` that gain most, as many as move no more than `most_bytes`.

    A file that comes to a tier for the first time gets the default width there, or the round that a `planned` layout
    file has there most often. By `Spans.SURE` what spans tiers leaves if it is not `warm` either, which is all heat.
    O(hot parts log of them, and files of the pool).
    """
    present = present or Present()
    rounds = {} if planned is None else present.rounds_of(pool, planned)
    files = _Files(pool, heat, rounds, present, spans=spans, warm=warm)
    _swap(files, pays, most_bytes)
    changed = {path: files.known[path] for path in sorted(files.changed)}
    return Few(
        changed, files.gains_s, files.moved_bytes, files.came, files.left, files.heat_us, has_room=files.has_room
    )


MARKER = ".stripewise"
"""In the directory of each server: without it, its disk is not mounted."""


def is_there(server: Server) -> bool:
    """Whether a server is there, and not the empty directory alone over which its disk is mounted. A system call."""
    return os.path.lexists(server.path / MARKER)


def usable(tier: Tier) -> list[Server]:
    """The servers of a tier that take new bytes: those that are there, and do not drain. A system call for each."""
    return [server for server in tier.servers if server.state == "used" and is_there(server)]


def faster(pool: Pool) -> list[str]:
    """The tiers with a profile, but for the slowest of them."""
    known = [(tier.read.mean_s(pool.default_width_bytes), tier.name) for tier in pool.tiers if tier.read is not None]
    return [name for _, name in sorted(known)[:-1]]


def _swap(files: _Files, pays: Pays, most_bytes: float) -> None:
    block_bytes = files.heat["block_bytes"]
    # A tier whose servers all drain, or are gone, is no place to move to.
    there = [tier for tier in files.pool.tiers if usable(tier)]
    profiled = [(tier.read.mean_s(block_bytes), tier) for tier in there if tier.read is not None]
    profiled.sort(key=lambda of: of[0])
    if len(profiled) < 2 or not files.heat["files"]:
        return
    slowest_s, slowest = profiled[-1]
    hot = list(files.hot())
    for number, (read_s, tier) in enumerate(profiled[:-1]):
        slower = {of.name for _, of in profiled[number + 1 :]}
        price = _Price(slowest, pays, 1 - read_s / slowest_s)
        _fill(files, hot, (tier, slower, slowest), price, most_bytes)


class _Price:
    """What a swap gains and costs."""

    def __init__(self, slowest: Tier, pays: Pays, share: float) -> None:
        """`share` of its heat is what a part gains."""
        self._pays = pays
        self.share = share
        self._request_us = slowest.read.mean_s(0) * 1e6 if slowest.read is not None else 0.0

    def is_right(self, coming: _Part, leaving: Sequence[_Part]) -> bool:
        """Whether a part may come for those that leave."""
        lost_us = sum(part.heat_us for part in leaving)
        moved_bytes = coming.copied_bytes + sum(part.copied_bytes for part in leaving)
        by_chance_us = math.sqrt(self._pays.chance * self._request_us * (coming.heat_us + lost_us))
        is_hotter = coming.heat_us >= ALIKE * lost_us and coming.heat_us - lost_us > by_chance_us
        return is_hotter and self.gain_s(coming, leaving) > moved_bytes * self._pays.move_s_per_byte

    def gain_s(self, coming: _Part, leaving: Iterable[_Part]) -> float:
        """What a part gains over those that leave for it."""
        more_us = coming.heat_us - sum(part.heat_us for part in leaving)
        # Of the sum of all periods' halves, the last period has about half.
        return more_us / 2e6 * self.share * self._pays.periods


def _fill(
    files: _Files, hot: list[_Part], tiers: tuple[Tier, set[str], Tier], price: _Price, most_bytes: float
) -> None:
    tier, slower, slowest = tiers
    known = _native.pool_tier_parts(str(files.pool.file), tier.name)
    if not known["rooms"]:
        return  # The last server has gone since the pool was read.
    held = [held for held in known["parts"] if not held["has_landed"]]
    there = [part for of in held for part in files.leaving(of, tier.name, slower)]
    each = (files.coming(part, tier.name, slower, 1 - price.share) for part in hot)
    coming = [part for part in each if part is not None]
    there.sort(key=lambda of: (of.warmth, of.spans_tiers, of.path, -of.begin))
    coming.sort(key=lambda of: (-of.warmth, of.path, of.begin))
    room_bytes = tier_room.left_bytes(files.pool, tier.name, known)
    left = 0
    for part in coming:
        if files.has_moved(part):
            continue
        leaving, needed_bytes = _leaving_for(files, part, there, left, part.room_bytes - room_bytes)
        if any(part.overlaps(cold) for cold in leaving):
            # Nothing else is colder.
            continue
        moved_bytes = files.moved_bytes + part.copied_bytes + sum(cold.copied_bytes for cold in leaving)
        if needed_bytes > 0 or moved_bytes > most_bytes:
            break
        if not price.is_right(part, leaving):
            # One that has less heat per byte may have more in all.
            continue
        files.moved_bytes = moved_bytes
        files.gains_s[part.path] += price.gain_s(part, ())
        left += len(leaving)
        room_bytes = -needed_bytes
        for cold in leaving:
            files.left[cold.path] += cold.room_bytes
            files.gains_s[cold.path] -= price.gain_s(cold, ())
            files.place(cold, files.usual(cold.path, slowest))
        files.came[part.path] += part.room_bytes
        files.heat_us[part.path] += part.heat_us
        files.place(part, files.usual(part.path, tier))
    files.has_room |= room_bytes >= files.heat["block_bytes"]


def _leaving_for(
    files: _Files, part: _Part, there: list[_Part], left: int, needed_bytes: int
) -> tuple[list[_Part], int]:
    """Of those that are `there` the next ones, until they free what is needed; and what is needed more.

    They end with one that shares bytes with the part, which cannot leave for itself.
    """
    leaving: list[_Part] = []
    while needed_bytes > 0 and (at := left + len(leaving)) < len(there):
        cold = there[at]
        if files.has_moved(cold):
            del there[at]
            continue
        if part.overlaps(cold):
            return [*leaving, cold], needed_bytes
        if 2 * needed_bytes <= cold.room_bytes:
            # Less than half of it is enough: the rest stays, and may leave for the next one.
            there[at : at + 1] = cold.cut_for(needed_bytes)
        leaving.append(there[at])
        needed_bytes -= leaving[-1].room_bytes
    return leaving, needed_bytes


def _most_often(pool: Pool, planned: str) -> dict[str, list[str]]:
    """By tier, of the rounds that have all its servers in use: a file that comes must not burden one of them."""
    servers = {tier.name: len(usable(tier)) for tier in pool.tiers}
    rounds: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for file in _native.layout_parse(planned)["files"]:
        for region in file["regions"]:
            tiers, named = _tiers(region["round"]), {stripe["server"] for stripe in region["stripes"]}
            if len(tiers) == 1 and len(named) == servers.get(tier := tiers.pop()):
                rounds[tier, tuple(region["round"])] += 1
    # The most frequent comes last.
    return {tier: list(stripes) for (tier, stripes), _ in reversed(rounds.most_common())}


def _joined(found: Iterable[tuple[int, list[str]]]) -> Regions:
    regions: Regions = []
    for offset, stripes in found:
        if not regions or regions[-1][1] != stripes:
            regions.append((offset, stripes))
    return regions


def _servers(stripes: Iterable[str]) -> set[str]:
    """Those that a round names; of a short form such as `hdd.0-1` each."""
    found = set()
    for stripe in stripes:
        tier, _, numbers = stripe.rpartition(":")[0].partition(".")
        first, _, last = numbers.partition("-")
        found |= {f"{tier}.{number}" for number in range(int(first), int(last or first) + 1)}
    return found


def _tiers(stripes: Iterable[str]) -> set[str]:
    return {stripe.rpartition(":")[0].partition(".")[0] for stripe in stripes}
