"""What is to be had in `wei-fig3`: its clients, metadata tier and disks as queues, on no machine.

Each client waits for its requests and thinks between rounds, as `wei_client` does. The metadata tier serves two
requests at once, in order, or names first as the mount does; each disk one. A round asks the tier for as much as the
kernel asks the mount for, without a directory's attributes after a change in it, which come with the change.
"""

import heapq
import itertools
import random
import statistics
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from benches import wei, wei_client
from benches.frame import Benchmark, Context, Figure, Target

READ_S, WRITE_S = (0.6e-3, 1e-3), (1e-3, 1.6e-3)
"""Of the emulated tier, and its bandwidth."""
TIER_BYTES_PER_S = 120e6
DISK_S, DISK_BYTES_PER_S = (4e-3, 12e-3), 80e6
ANSWER_S = 0.3e-3
"""What a request takes besides, in the mount and the kernel."""
NAMES, MADE, OPENED, REMOVED = "rwrrww", "rw", "rr", "w"
"""Requests of the tier that look (r) and change (w): of four operations on names, and of a file when it is made, opened
and removed."""
WHOLE_BYTES = (64 << 10, 16 << 10, 8 << 10, 4096)
FREE = "free bytes"
"""A way that no system has: small files take no time of any server."""


@dataclass(frozen=True)
class _Way:
    """Heads of `head_bytes`; `None`: small files take no time."""

    head_bytes: int | None
    whole: bool = False
    """Files that are longer than the head have none."""
    names_first: bool = False


@dataclass
class _Station:
    """Servers of one queue."""

    servers: int
    busy: int = 0
    waiting: deque[tuple[float, Callable[[], None]]] = field(default_factory=deque)
    bytes_busy: int = 0
    bytes_waiting: deque[tuple[float, Callable[[], None]]] = field(default_factory=deque)
    """Of a station at which names go first."""

    def has_place_for_bytes(self) -> bool:
        """As the store has it: a name takes two places, and bytes half of what there is at most."""
        names = self.busy - self.bytes_busy
        return 2 * names + self.bytes_busy < self.servers and self.bytes_busy < max(1, self.servers // 2)


class _Run:
    """Clients of one way for some seconds."""

    def __init__(self, way: _Way, seed: int, seconds: float) -> None:
        self.way, self.seconds, self.now_s = way, seconds, 0.0
        self.random = random.Random(seed)
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.number = itertools.count()
        self.tier = _Station(2)
        self.disks = [_Station(1) for _ in range(wei.DISKS)]
        self.did = {"names": [0, 0.0], "small": [0, 0.0]}

    def at(self, time_s: float, then: Callable[[], None]) -> None:
        heapq.heappush(self.events, (time_s, next(self.number), then))

    def serve(self, station: _Station, took_s: float, then: Callable[[], None]) -> None:
        if station.busy == station.servers:
            station.waiting.append((took_s, then))
            return
        station.busy += 1
        self.at(self.now_s + took_s, lambda: self.served(station, then))

    def serve_bytes(self, station: _Station, took_s: float, then: Callable[[], None]) -> None:
        """As `serve`, of bytes, behind names."""
        if station.waiting or not station.has_place_for_bytes():
            station.bytes_waiting.append((took_s, then))
            return
        station.busy += 1
        station.bytes_busy += 1

        def ended() -> None:
            station.bytes_busy -= 1
            self.served(station, then)

        self.at(self.now_s + took_s, ended)

    def served(self, station: _Station, then: Callable[[], None]) -> None:
        station.busy -= 1
        if station.waiting:
            self.serve(station, *station.waiting.popleft())
        elif station.bytes_waiting and station.has_place_for_bytes():
            self.serve_bytes(station, *station.bytes_waiting.popleft())
        then()

    def ask(self, requests: Sequence[tuple[str, int]], then: Callable[[], None]) -> None:
        """Requests one after the other: `r` and `w` of the tier with bytes of an inode, `d` of the disks."""
        if not requests:
            then()
            return
        (kind, size), rest = requests[0], requests[1:]

        def go_on() -> None:
            self.at(self.now_s + ANSWER_S, lambda: self.ask(rest, then))

        if kind != "d":
            startup_s = self.random.uniform(*(READ_S if kind == "r" else WRITE_S))
            serve = self.serve_bytes if size and self.way.names_first else self.serve
            serve(self.tier, startup_s + size / TIER_BYTES_PER_S, go_on)
            return
        first, shares = self.random.randrange(wei.DISKS), [0] * wei.DISKS
        for stripe in range(0, size, 64 << 10):
            shares[(first + (stripe >> 16)) % wei.DISKS] += min(64 << 10, size - stripe)
        left = [sum(share > 0 for share in shares)]

        def one_less() -> None:
            left[0] -= 1
            if not left[0]:
                go_on()

        for disk, share in zip(self.disks, shares, strict=True):
            if share:
                self.serve(disk, self.random.uniform(*DISK_S) + share / DISK_BYTES_PER_S, one_less)

    def round(self) -> None:
        if self.now_s > self.seconds:
            return
        began_s = self.now_s
        size = self.random.choices(wei_client.SIZES, wei_client.WEIGHTS)[0]
        is_small = size <= wei_client.SMALL_BYTES
        head = min(size, self.way.head_bytes or 0)
        if self.way.whole and size > head:
            head = 0

        def moved(kind: str) -> list[tuple[str, int]]:
            if self.way.head_bytes is None and is_small:
                return []
            return ([(kind, head)] if head else []) + ([("d", size - head)] if size > head else [])

        def named() -> None:
            self.note("names", 4, began_s)
            made_s = self.now_s
            requests = [*((of, 0) for of in MADE), *moved("w"), *((of, 0) for of in OPENED), *moved("r")]

            def used() -> None:
                if is_small:
                    self.note("small", size, made_s)
                pause_s = self.random.uniform(0, 2 * wei_client.THINK_S)
                self.ask([(of, 0) for of in REMOVED], lambda: self.at(self.now_s + pause_s, self.round))

            self.ask(requests, used)

        self.ask([(of, 0) for of in NAMES], named)

    def note(self, kind: str, count: int, began_s: float) -> None:
        if self.now_s <= self.seconds:
            self.did[kind][0] += count
            self.did[kind][1] += self.now_s - began_s

    def rates(self, clients: int) -> tuple[float, float]:
        """Operations on names, and bytes of small files, in a second of the time that clients spent on them."""
        for _ in range(clients):
            self.at(self.random.uniform(0, 2 * wei_client.THINK_S), self.round)
        while self.events and self.now_s < self.seconds:
            self.now_s, _, then = heapq.heappop(self.events)
            then()
        (names, names_s), (size, small_s) = self.did.values()
        return names / names_s, size / small_s


def run(context: Context) -> Iterator[Figure | str]:
    """Nothing is timed, so each run gives the same figures."""
    seconds = 20 if context.quick else 60
    clients = wei.CLIENTS[-1]
    ways = {
        wei.INLINE: _Way(1 << 30),
        wei.FIXED: _Way(16 << 10),
        "up to 4 KiB": _Way(4096),
        **{f"whole files up to {size >> 10} KiB": _Way(size, whole=True) for size in WHOLE_BYTES},
        **{f"the same up to {size >> 10} KiB, names first": _Way(size, True, True) for size in WHOLE_BYTES},
        FREE: _Way(None),
    }

    def rates(way: _Way) -> list[float]:
        runs = [_Run(way, seed, seconds).rates(clients) for seed in range(context.rounds(5))]
        return [statistics.mean(rate) for rate in zip(*runs, strict=True)]

    names, small = rates(_Way(0))
    for way, of in ways.items():
        of_names, of_small = rates(of)
        is_bound = way == FREE
        loss, gain = (Target(most=wei.MOST_LOSS), Target(least=wei.LEAST_GAIN)) if is_bound else (None, None)
        what = f"{clients} clients, {way}: loss of operations on names against {wei.STRIPED}"
        yield Figure(what, 1 - of_names / names, unit="", target=loss)
        yield Figure(f"{clients} clients, {way} / {wei.STRIPED}: small files", of_small / small, target=gain)


BENCHMARK = Benchmark("wei-bound", "what a metadata tier of that speed lets wei-fig3 have at best, by a model", run)
