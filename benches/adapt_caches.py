"""`adapt` against caches of 1 MiB blocks with the same fast space: ten loads in the simulator.

Both begin with all data on the disks. The simulator serves the same requests of the same processes, in pieces that end
when all processes have ended theirs. Caches are simulated in longer pieces, too, and the better time counts.

- A cache reads the whole block of a request that it has not, at once from the disks, before the request is served. A
  process beside each one writes it to the fast space, and writes dirty blocks that leave back: no request waits for it.
- `adapt` decides as in the product, by `stripewise.api.adapt` and `promotion`, on a pool with the same servers whose
  files have no bytes. Its heat is counted as the product counts it. One process more reads, writes and reads back what
  moves; a request finds it at its new place when all of the file is there. The processes are at one mount, and the
  files were made with its hints (`mount_model`).

Caches are compared a second time over the same mount, which then reads ahead from them and gathers what is written.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benches.cache_loads import FAST_BYTES, MIB, PROCESSES, READ, WRITE, Load, Rows, loads
from benches.caches import CACHES, Cache
from benches.frame import STRIPEWISE, Benchmark, BenchmarkError, Context, Figure, Target, checked
from benches.mount_model import HINTS, Mount, Request
from stripewise import _native, layouts
from stripewise.api import adapt
from stripewise.api.pacing import Pace
from stripewise.api.promotion import LOOK_S, Promoter
from stripewise.pool import Pool, Tier

if TYPE_CHECKING:
    from stripewise._native import Devices, PoolHeat, Regions

HDDS, SSDS = 4, 2
BLOCK_BYTES = MIB
"""Of the caches, and the width of stripes on the disks, so that a block is on one of them."""
FAST_WIDTH_BYTES = 64 << 10
"""Of stripes in the caches' fast space: one block is on all of its servers."""
PIECE = 320
"""Requests that are simulated at once: what moves meanwhile is found at its new place after them."""
LONG_PIECE = 1600
"""The same for caches, where that is faster, and for the bounds."""
COUNT = 40_000
PERIOD_S = 5
HORIZON_PERIODS = 144
"""A day of ten minutes each: what `adapt` has if not told otherwise."""
HEAT_BYTES = MIB
LEAST_MEAN, LEAST = 1.2, 0.95


def make_pool(directory: Path, load: Load) -> Pool:
    """A pool of directories with the profiles of the emulated devices, and the load's files, which have no holes."""
    limit = ["--capacity", f"ssd={FAST_BYTES // SSDS}B"]
    checked([*STRIPEWISE, "pool", "init", directory, "--emulate", "--hdd", str(HDDS), "--ssd", str(SSDS), *limit])
    file = directory / "pool.toml"
    text = file.read_text(encoding="utf-8")
    for tier in Pool.load(file).tiers:
        if tier.read is None or tier.write is None:
            raise BenchmarkError(f"tier {tier.name} has no profile")
        profile = "".join(
            f'[tier.{name}]\nstartup = ["{op.startup_min_s * 1e3}ms", "{op.startup_max_s * 1e3}ms"]\n'
            f'bandwidth = "{op.bandwidth_bytes_per_s / 1e6}MB/s"\n'
            for name, op in (("read", tier.read), ("write", tier.write))
        )
        preset = {"hdd": "hdd-7200", "ssd": "ssd-sata"}[tier.name]
        text = text.replace(f'emulate = "{preset}"\n', profile)
    file.write_text(text, encoding="utf-8")
    pool = Pool.load(file)
    if pool.is_emulated:
        raise BenchmarkError(f"{file} still has emulated servers")
    first = directory / "first.layout"
    first.write_text(first_layout(pool.name, len(load.sizes)), encoding="utf-8")
    layouts.apply(first, pool.file)
    script = "import os, sys\nfor name, size in zip(sys.argv[2::2], sys.argv[3::2]):\n"
    script += "  open(f'{sys.argv[1]}/{name}', 'xb').write(b'x' * int(size))"
    named = [part for pair in zip(_names(load), map(str, load.sizes), strict=True) for part in pair]
    checked([*STRIPEWISE, "run", "--quiet", "--pool", pool.file, "--", "python3", "-c", script, pool.mount, *named])
    return pool


def first_layout(pool: str, files: int) -> str:
    """The text of a layout file with that number of files, where they are at first."""
    blocks = [f'[[file]]\npath = "f{number:02}"\n{_first_region(number)}' for number in range(files)]
    return f'version = 1\npool = "{pool}"\n{"".join(blocks)}'


def _names(load: Load) -> list[str]:
    return [f"f{number:02}" for number in range(len(load.sizes))]


def _first_region(number: int) -> str:
    stripes = ", ".join(f'"hdd.{(number + at) % HDDS}:{BLOCK_BYTES // 1024}KiB"' for at in range(HDDS))
    return f'[[file.region]]\noffset = "0"\nround = [{stripes}]\n'


def first_layouts(load: Load) -> list[Regions]:
    """Where the files are at first: in stripes on the disks, each file from another one on."""
    disks = [[((number + at) % HDDS, BLOCK_BYTES) for at in range(HDDS)] for number in range(len(load.sizes))]
    return [[(0, stripes)] for stripes in disks]


def devices(pool: Pool) -> list[Devices]:
    """The pool's servers for the simulator."""

    def of(tier: Tier) -> Devices:
        read, write = (
            (op.startup_min_s, op.startup_max_s, 1 / op.bandwidth_bytes_per_s)
            for op in (tier.read, tier.write)
            if op is not None
        )
        return {
            "name": tier.name,
            "servers": len(tier.servers),
            "read": read,
            "write": write,
            "network_s_per_byte": 0.0,
        }

    return [of(tier) for tier in pool.tiers]


def simulated_s(cluster: list[Devices], placed: list[Regions], parts: list[tuple[int, Rows]], seed: int) -> float:
    """Seconds until all processes have ended their requests: those of each part follow each other."""
    if not parts:
        return 0.0
    process = np.concatenate([np.full(len(rows), number, dtype=np.uint32) for number, rows in parts])
    rows = np.concatenate([rows for _, rows in parts])
    steps: _native.Steps = {
        "process": process,
        "file": rows[:, 0].astype(np.uint32),
        "offset": rows[:, 1].astype(np.uint64),
        "size": rows[:, 2].astype(np.uint64),
        "kind": rows[:, 3].astype(np.uint8),
        "think_s": np.zeros(len(rows)),
    }
    return _native.simulate_generated(cluster, placed, steps, seed=seed, network="device")["makespan_s"]


def pieces(load: Load, count: int = PIECE) -> Iterator[Rows]:
    """The load's requests in the pieces that are simulated; those of a process are every sixteenth."""
    for begin in range(0, len(load.rows), count):
        yield load.rows[begin : begin + count]


def sent(rows: Rows) -> list[Request]:
    """The requests of a piece with the processes that send them, where no mount changes them."""
    return [(number % PROCESSES, *row) for number, row in enumerate(rows.tolist())]


def dealt(requests: Iterable[tuple[int, ...]]) -> list[tuple[int, Rows]]:
    """The requests of each process."""
    each: dict[int, list[tuple[int, ...]]] = {}
    for process, *request in requests:
        each.setdefault(process, []).append(tuple(request))
    return [(process, np.array(each[process], dtype=np.int64)) for process in sorted(each)]


class Promotion:
    """A cache's fast space: what its requests, promotions and evictions cost which servers."""

    def __init__(self, cache: Cache, load: Load) -> None:
        """An empty one."""
        self._cache = cache
        self._sizes = load.sizes
        self._first = np.concatenate([[0], np.cumsum([-(-size // BLOCK_BYTES) for size in load.sizes])])
        self._slots: dict[int, int] = {}
        self._free = list(range(cache.blocks))
        self._dirty: set[int] = set()
        self.hits = 0
        self.uses = 0

    def serve(self, requests: Iterable[Request]) -> list[tuple[int, Rows]]:
        """What each process does, and the one beside each, for requests that come in this order."""
        own: list[list[tuple[int, int, int, int]]] = [[] for _ in range(PROCESSES)]
        beside: list[list[tuple[int, int, int, int]]] = [[] for _ in range(PROCESSES)]
        for process, file, offset, size, kind in requests:
            begin, end = offset, offset + size
            steps: list[tuple[int, int, int, int]] = []
            while begin < end:
                index = begin // BLOCK_BYTES
                until = min(end, (index + 1) * BLOCK_BYTES)
                self._use((file, index), (begin, until, kind), (steps, beside[process]))
                begin = until
            own[process] += _joined(steps)
        parts = [*enumerate(own), *((PROCESSES + number, each) for number, each in enumerate(beside))]
        return [(number, np.array(each, dtype=np.int64)) for number, each in parts if each]

    def _use(
        self,
        at: tuple[int, int],
        request: tuple[int, int, int],
        steps: tuple[list[tuple[int, int, int, int]], list[tuple[int, int, int, int]]],
    ) -> None:
        (file, index), (begin, until, kind), (own, beside) = at, request, steps
        fast = len(self._sizes)
        block = int(self._first[file]) + index
        begin_of_block = index * BLOCK_BYTES
        held = min(BLOCK_BYTES, self._sizes[file] - begin_of_block)
        used = self._cache.use(block)
        self.uses += 1
        if used.evicted is not None:
            slot = self._slots.pop(used.evicted)
            self._free.append(slot)
            if used.evicted in self._dirty:
                self._dirty.remove(used.evicted)
                of = int(np.searchsorted(self._first, used.evicted, side="right")) - 1
                back = (used.evicted - int(self._first[of])) * BLOCK_BYTES
                bytes_back = min(BLOCK_BYTES, self._sizes[of] - back)
                beside += [(fast, slot * BLOCK_BYTES, bytes_back, READ), (of, back, bytes_back, WRITE)]
        if used.was_there:
            self.hits += 1
            own.append((fast, self._slots[block] * BLOCK_BYTES + begin - begin_of_block, until - begin, kind))
        else:
            slot = self._slots[block] = self._free.pop()
            if kind == READ:
                own.append((file, begin_of_block, held, READ))
                beside.append((fast, slot * BLOCK_BYTES, held, WRITE))
            elif until - begin == held:
                own.append((fast, slot * BLOCK_BYTES, held, WRITE))
            else:
                own += [(file, begin_of_block, held, READ), (fast, slot * BLOCK_BYTES, held, WRITE)]
        if kind == WRITE:
            self._dirty.add(block)


def _joined(steps: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Blocks of one request that follow each other in a file are read at once."""
    found: list[tuple[int, int, int, int]] = []
    for file, offset, size, kind in steps:
        if found and found[-1][3] == kind == READ and found[-1][:2] == (file, offset - found[-1][2]):
            found[-1] = (file, found[-1][1], found[-1][2] + size, kind)
        else:
            found.append((file, offset, size, kind))
    return found


def disk_read_s(cluster: list[Devices], _file: int, offset: int, size: int) -> float:
    """How long the disks work for a read where the files are at first: blocks are each on one of them."""
    startup_min_s, startup_max_s, transfer_s_per_byte = cluster[0]["read"]
    parts = (offset + size - 1) // BLOCK_BYTES - offset // BLOCK_BYTES + 1
    return parts * (startup_min_s + startup_max_s) / 2 + size * transfer_s_per_byte


def cached_s(cluster: list[Devices], load: Load, kind: type[Cache], *, mounted: bool) -> tuple[float, float]:
    """Seconds of the load with a cache, under a mount or not, and the part of its uses that found their block."""
    fast: Regions = [(0, [(HDDS + number, FAST_WIDTH_BYTES) for number in range(SSDS)])]
    placed = [*first_layouts(load), fast]
    found = []
    for count in (PIECE, LONG_PIECE):
        promotion = Promotion(kind(FAST_BYTES // BLOCK_BYTES), load)
        mount = Mount(load.sizes, partial(disk_read_s, cluster))
        total_s = 0.0
        for number, rows in enumerate(pieces(load, count)):
            requests = mount.sent(rows, total_s) if mounted else sent(rows)
            total_s += simulated_s(cluster, placed, promotion.serve(requests), seed=number + 1)
        total_s += simulated_s(cluster, placed, promotion.serve(mount.rest()), seed=0)
        found.append((total_s, promotion.hits / promotion.uses))
    return min(found)


def placed_s(cluster: list[Devices], load: Load, *, foresees: bool) -> float:
    """Seconds of the load where the hottest blocks are on the fast space before each piece begins, at no cost.

    By the requests of the piece itself where it `foresees` them: what a placement can gain at most, whatever it moves
    and when, as it reads no byte that is not asked for. Else by those of the pieces before, of which each counts half
    of the next: what heat can tell.
    """
    fast: Regions = [(0, [(HDDS + number, FAST_WIDTH_BYTES) for number in range(SSDS)])]
    placed = [*first_layouts(load), fast]
    first = np.concatenate([[0], np.cumsum([-(-size // BLOCK_BYTES) for size in load.sizes])])
    heat = np.zeros(int(first[-1]))
    total_s = 0.0
    for number, rows in enumerate(pieces(load, LONG_PIECE)):
        cut = np.concatenate([_within_blocks(part, process) for process, part in dealt(sent(rows))])
        block = first[cut[:, 0]] + cut[:, 1] // BLOCK_BYTES
        counts = np.bincount(block, minlength=len(heat))
        known = counts if foresees else heat
        hottest = np.argsort(-known, kind="stable")[: FAST_BYTES // BLOCK_BYTES]
        held = np.sort(hottest[known[hottest] > 0])
        heat = heat / 2 + counts
        slot = np.searchsorted(held, block)
        is_held = np.isin(block, held)
        cut[is_held, 1] = slot[is_held] * BLOCK_BYTES + cut[is_held, 1] % BLOCK_BYTES
        cut[is_held, 0] = len(load.sizes)
        parts = [(process, cut[cut[:, 4] == process, :4]) for process in range(PROCESSES)]
        total_s += simulated_s(cluster, placed, parts, seed=number + 1)
    return total_s


def _within_blocks(rows: Rows, process: int) -> Rows:
    """The requests of a process, cut where blocks end; the process is the fifth column."""
    cut = [
        (file, at, min(offset + size, (at // BLOCK_BYTES + 1) * BLOCK_BYTES) - at, kind, process)
        for file, offset, size, kind in rows.tolist()
        for at in (offset, *range((offset // BLOCK_BYTES + 1) * BLOCK_BYTES, offset + size, BLOCK_BYTES))
    ]
    return np.array(cut, dtype=np.int64).reshape(-1, 5)


@dataclass
class Adapted:
    """A pool that `adapt` has, and what its requests have cost of late."""

    pool: Pool
    load: Load
    heat_us: list[np.ndarray] = field(init=False)
    placed: list[Regions] = field(init=False)
    generation: list[int] = field(init=False)
    """The youngest of each file: what moves gets another one."""
    going: list[tuple[int, Regions, list[tuple[int, int, int, int]]]] = field(default_factory=list)
    """Files that move: where they will be, and what is left to do for it."""
    decisions: list[adapt.Decision] = field(default_factory=list)
    promotions: int = 0
    moved_bytes: int = 0
    now_s: float = 0.0
    last_s: float = 0.0
    """How long the last piece has taken: the mover is at work as long beside the next one."""

    def __post_init__(self) -> None:
        """No heat, and files where they are at first."""
        self.heat_us = [np.zeros(-(-size // HEAT_BYTES)) for size in self.load.sizes]
        self.placed = self._present()
        self.generation = [max(self._generations(file)) for file in range(len(self.load.sizes))]
        if self.placed != first_layouts(self.load):
            raise BenchmarkError(f"the files are not where they should be at first: {self.placed}")
        self.mount = Mount(self.load.sizes, self._read_s)
        self.promoter = Promoter(self.pool, LOOK_S, adapt.move_s_per_byte(self.pool), Pace(urgent=True))
        self.promoter.look(self.heat(), LOOK_S)

    def _present(self) -> list[Regions]:
        numbers = {server.name: server.id for server in self.pool.servers}
        found: list[Regions] = []
        for name in _names(self.load):
            stat = _native.file_stat(str(self.pool.file), name)
            found.append(
                [
                    (region["offset"], [_stripe(stripe, numbers) for text in region["round"] for stripe in _each(text)])
                    for region in stat["regions"]
                ]
            )
        return found

    def _price_s(self, tier: int, kind: int, size: int) -> float:
        op = self.pool.tiers[tier].read if kind == READ else self.pool.tiers[tier].write
        if op is None:
            raise BenchmarkError(f"tier {self.pool.tiers[tier].name} has no profile")
        return op.mean_s(size)

    def _read_s(self, file: int, offset: int, size: int) -> float:
        parts = parts_of(self.placed[file], offset, size)
        return sum(self._price_s(int(server >= HDDS), READ, length) for server, length in parts)

    def warm(self, requests: Iterable[Request]) -> None:
        """Counts what requests would cost on the disks: the price of heat, wherever the bytes are."""
        for _, file, offset, size, kind in requests:
            parts = parts_of(self.placed[file], offset, size)
            cost_us = sum(self._price_s(0, kind, length) for _, length in parts) * 1e6
            first, last = offset // HEAT_BYTES, (offset + size - 1) // HEAT_BYTES
            self.heat_us[file][first : last + 1] += cost_us / (last + 1 - first)

    def heat(self) -> PoolHeat:
        """As `stripewise heat` has it."""
        files: list[_native.FileHeat] = []
        for name, size, heat in zip(_names(self.load), self.load.sizes, self.heat_us, strict=True):
            blocks = [(int(block), int(heat[block])) for block in np.flatnonzero(heat >= 1)]
            cost_us = sum(cost for _, cost in blocks)
            if blocks:
                files.append({"path": name, "size_bytes": size, "cost_us": cost_us, "blocks": blocks})
        return {"block_bytes": HEAT_BYTES, "period_s": PERIOD_S, "missed": 0, "files": files}

    def decide(self, passed_s: float) -> None:
        """One decision of the product; what it has moved begins to move here."""
        limits = adapt.Limits(horizon_s=min(HORIZON_PERIODS * PERIOD_S, self.promoter.lasts_s(passed_s)))
        decision = adapt.reconsider(self.pool, limits, heat=self.heat(), pace=Pace(urgent=True))
        self.decisions.append(decision)
        if decision["verdict"] == "failed" or decision.get("skipped"):
            raise BenchmarkError(f"adapt could not move: {decision}")
        if decision["verdict"] == "moved":
            self._begin(decision["copied_bytes"])

    def look(self, passed_s: float) -> None:
        """One look of the product; what it has promoted begins to move here."""
        promoted = self.promoter.look(self.heat(), passed_s)
        if promoted is None:
            return
        if promoted["skipped"]:
            raise BenchmarkError(f"adapt could not promote: {promoted}")
        self.promotions += 1
        self._begin(promoted["copied_bytes"])

    def _begin(self, copied_bytes: int) -> None:
        presents = self._present()
        moves = [
            (file, after, [*self._moves(file)])
            for file, after in enumerate(presents)
            if max(self._generations(file)) != self.generation[file]
        ]
        moved_bytes = sum(length for *_, steps in moves for _, _, length, kind in steps if kind == WRITE)
        if moved_bytes != copied_bytes:
            raise BenchmarkError(f"adapt copied {copied_bytes}, here {moved_bytes} bytes move")
        self.going += moves
        self.moved_bytes += moved_bytes

    def _generations(self, file: int) -> list[int]:
        stat = _native.file_stat(str(self.pool.file), _names(self.load)[file])
        return [region["generation"] for region in stat["regions"]]

    def _moves(self, file: int) -> Iterator[tuple[int, int, int, int]]:
        """What the mover has copied: the parts that are in a generation of their own."""
        size, there = self.load.sizes[file], len(self.placed) + file
        stat = _native.file_stat(str(self.pool.file), _names(self.load)[file])
        generations = self._generations(file)
        begins = [region["offset"] for region in stat["regions"]]
        self.generation[file] = max(generations)
        for generation, (begin, end) in zip(generations, pairwise([*begins, size]), strict=True):
            if generation != self.generation[file]:
                continue
            for at in range(begin, min(end, size), MIB):
                length = min(MIB, min(end, size) - at)
                yield from ((file, at, length, READ), (there, at, length, WRITE), (there, at, length, READ))

    def serve(self, cluster: list[Devices], rows: Rows, seed: int) -> None:
        """Requests, beside which data moves: as much as takes as long as the last piece took. None: the rest."""
        targets = list(self.placed)
        for file, after, _ in self.going:
            targets[file] = after
        requests = self.mount.sent(rows, self.now_s) if len(rows) else self.mount.rest()
        parts = dealt(requests)
        if steps := self._next_steps():
            parts.append((PROCESSES, np.array(steps, dtype=np.int64)))
        took_s = simulated_s(cluster, [*self.placed, *targets], parts, seed)
        self.last_s = took_s
        self.now_s += took_s
        self.warm(requests)
        for file, after, left in self.going:
            if not left:
                self.placed[file] = after
        self.going = [move for move in self.going if move[2]]

    def _next_steps(self) -> list[tuple[int, int, int, int]]:
        steps: list[tuple[int, int, int, int]] = []
        left_s = self.last_s
        for _, _, left in self.going:
            while left and (left_s > 0 or not steps):
                steps.append(left.pop(0))
                file, offset, size, kind = steps[-1]
                regions = self.placed[file] if file < len(self.placed) else self.going_to(file - len(self.placed))
                left_s -= max(
                    self._price_s(int(server >= HDDS), kind, length)
                    for server, length in parts_of(regions, offset, size)
                )
        return steps

    def going_to(self, file: int) -> Regions:
        """Where a file that moves will be."""
        return next(after for of, after, _ in self.going if of == file)


def _each(text: str) -> Iterator[str]:
    """`hdd.0-1:64KiB` is two stripes."""
    names, width = text.split(":")
    tier, dot, numbers = names.rpartition(".")
    first, _, last = numbers.partition("-")
    for number in range(int(first), int(last or first) + 1):
        yield f"{tier}{dot}{number}:{width}"


def _stripe(text: str, numbers: dict[str, int]) -> tuple[int, int]:
    name, width = text.split(":")
    for unit, factor in (("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)):
        if width.endswith(unit):
            return numbers[name], round(float(width.removesuffix(unit)) * factor)
    raise BenchmarkError(f"{text} is no stripe")


def parts_of(placed: Regions, offset: int, size: int) -> list[tuple[int, int]]:
    """The servers of a request with the bytes that each serves: one part a server and region."""
    parts: list[tuple[int, int]] = []
    ends = [begin for begin, _ in placed[1:]] + [offset + size]
    for (begin, stripes), end in zip(placed, ends, strict=True):
        at, until = max(begin, offset), min(end, offset + size)
        lengths: dict[int, int] = {}
        period = sum(width for _, width in stripes)
        while at < until:
            within = at % period
            for server, width in stripes:
                if within < width:
                    length = min(width - within, until - at)
                    lengths[server] = lengths.get(server, 0) + length
                    at += length
                    break
                within -= width
        parts += lengths.items()
    return parts


def adapted_s(cluster: list[Devices], state: Adapted) -> float:
    """Seconds of the load in a pool that `adapt` has.

    Where nothing moves a piece ends about when the next look is due, and has no more requests than those of caches.
    """
    due_s, decided_s, looked_s, look_due_s = float(PERIOD_S), 0.0, 0.0, LOOK_S
    begin, number, count = 0, 0, PIECE
    has_promoted = False
    while begin < len(state.load.rows):
        rows = state.load.rows[begin : begin + count]
        begin, number = begin + len(rows), number + 1
        state.serve(cluster, rows, seed=number)
        if has_promoted and not state.going:
            look_due_s = state.now_s + state.promoter.wait_s(0.0, state.now_s - looked_s)
            has_promoted = False
        if state.now_s >= look_due_s and not state.going:
            before = state.promotions
            state.look(state.now_s - looked_s)
            looked_s, has_promoted = state.now_s, state.promotions > before
            if not has_promoted:
                look_due_s = looked_s + state.promoter.wait_s(0.0, None)
        if state.now_s >= due_s:
            if not state.going:
                state.decide(state.now_s - decided_s)
                decided_s = state.now_s
            while due_s <= state.now_s:
                due_s += PERIOD_S
                for heat in state.heat_us:
                    heat //= 2
        until_look = int(len(rows) * (look_due_s - state.now_s) / max(state.last_s, 1e-4))
        count = PIECE if state.going else max(PIECE, min(LONG_PIECE, until_look // PROCESSES * PROCESSES))
    state.serve(cluster, state.load.rows[:0], seed=0)
    return state.now_s


def simulated(context: Context) -> Iterator[Figure | str]:
    """All ten in the simulator."""
    best: list[float] = []
    others: dict[str, list[float]] = {what: [] for what in ("mounted", "knows what comes", "knows what was")}
    for load in loads(COUNT // 10 if context.quick else COUNT):
        pool = make_pool(context.directory / load.name, load)
        cluster = devices(pool)
        state = Adapted(pool, load)
        ours_s = adapted_s(cluster, state)
        plain, mounted = (
            {kind.name: cached_s(cluster, load, kind, mounted=under) for kind in CACHES} for under in (False, True)
        )
        disks_s = sum(
            simulated_s(cluster, first_layouts(load), dealt(sent(rows)), seed=number + 1)
            for number, rows in enumerate(pieces(load, LONG_PIECE))
        )
        best_s = min(took_s for took_s, _ in plain.values())
        best.append(best_s / ours_s)
        others["mounted"].append(min(took_s for took_s, _ in mounted.values()) / ours_s)
        for what in ("knows what comes", "knows what was"):
            others[what].append(best_s / placed_s(cluster, load, foresees=what.endswith("comes")))
        moved = sum(one["verdict"] == "moved" for one in state.decisions)
        for one in state.decisions:
            context.say(f"{one['verdict']}: {one.get('why', one.get('copied_bytes'))}")
        note = f"{load.what}; over {_over(plain, ours_s)}; over the same under the mount {_over(mounted, ours_s)}"
        note += f"; {moved} of {len(state.decisions)} decisions and {state.promotions} promotions moved "
        note += f"{state.moved_bytes // MIB} MiB; {load.bytes / MIB / ours_s:.0f} MiB/s, "
        note += f"disks alone {load.bytes / MIB / disks_s:.0f}"
        note += "".join(f"; a placement that {what} {others[what][-1]:.2f}" for what in others if what != "mounted")
        context.say(f"{load.name}: {note}")
        yield Figure(f"{load.name}: over the best cache", best[-1], target=Target(least=LEAST), note=note)
    target = Target(least=LEAST_MEAN)
    yield Figure("geometric mean over the best cache of each load", statistics.geometric_mean(best), target=target)
    yield Figure("the same over caches under the same mount", statistics.geometric_mean(others["mounted"]), note=HINTS)
    for what in ("knows what comes", "knows what was"):
        note = f"before each {LONG_PIECE:,} requests, and moves at no cost, without the mount"
        yield Figure(f"the same of a placement that {what}", statistics.geometric_mean(others[what]), note=note)


def _over(caches: dict[str, tuple[float, float]], ours_s: float) -> str:
    return ", ".join(f"{name} {took_s / ours_s:.2f} (hits {hits:.0%})" for name, (took_s, hits) in caches.items())


BENCHMARK = Benchmark("adapt-caches", "adapt against LRU, LFU and ARC with the same fast space, simulated", simulated)
