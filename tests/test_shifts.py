"""A load that comes to other places is noticed between two decisions, and one that does not is not."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stripewise.api import heat, shifts
from stripewise.pool import Pool

if TYPE_CHECKING:
    from stripewise._native import BlockHeat

REQUEST_US = 8000


class Page:
    """The file of heat, and a clock."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.costs: dict[tuple[int, int], int] = {}
        self.next_halving_s = 1000
        self.now_s = 0.0

    def read(self, blocks: range, requests: int = 400, file: int = 1) -> None:
        """Requests at random blocks."""
        for _ in range(requests):
            block = (file, self.random.choice(blocks))
            self.costs[block] = self.costs.get(block, 0) + REQUEST_US

    def halve(self) -> None:
        """A period has gone by."""
        self.costs = {block: cost // 2 for block, cost in self.costs.items()}
        self.next_halving_s += 10

    def look(self) -> BlockHeat:
        self.now_s += 1.0
        blocks = [(file, block, cost) for (file, block), cost in sorted(self.costs.items()) if cost]
        few = blocks if len(blocks) <= shifts.MOST_BLOCKS else None
        return {"block_bytes": 65536, "period_s": 10, "next_halving_s": self.next_halving_s, "blocks": few}


class Tier:
    """A tier, as far as a watch asks."""

    class read:  # noqa: N801
        @staticmethod
        def mean_s(_: int) -> float:
            return REQUEST_US / 1e6


class FakePool:
    tiers = (Tier(),)


def watching(page: Page) -> shifts.Watch:
    return shifts.Watch(FakePool(), page.look, lambda: page.now_s)  # type: ignore[arg-type]


def test_a_load_that_has_come_to_other_places_is_noticed_at_the_second_look() -> None:
    page = Page()
    watch = watching(page)
    for number in range(25):
        page.read(range(96))
        if number % 10 == 9:
            page.halve()
        assert not watch.has_shifted()
    assert watch.lasted_s is None
    noticed = []
    for _ in range(5):
        page.read(range(288, 384))
        noticed.append(watch.has_shifted())
    assert noticed == [False, True, False, False, False]
    assert watch.lasted_s == pytest.approx(27.0)


def test_another_size_of_requests_is_the_same_load() -> None:
    page = Page()
    watch = watching(page)
    for requests in (400, 4000, 40, 400):
        for _ in range(5):
            page.read(range(96), requests)
            assert not watch.has_shifted()


@settings(max_examples=30)
@given(
    seed=st.integers(0, 1000),
    blocks=st.sampled_from([1, 7, 96, 5000, 1 << 20]),
    requests=st.sampled_from([3, 64, 500]),
)
def test_a_load_that_stays_is_never_another(seed: int, blocks: int, requests: int) -> None:
    page = Page(seed)
    watch = watching(page)
    for number in range(30):
        page.read(range(blocks), requests)
        if number % 10 == 5:
            page.halve()
        assert not watch.has_shifted()


def test_counters_that_have_stopped_are_no_load_that_has_gone() -> None:
    page = Page()
    watch = watching(page)
    page.costs = {(1, block): heat.FULL_US for block in range(16)}
    for _ in range(8):
        page.read(range(288, 384))
        assert not watch.has_shifted()


def test_a_scan_is_no_other_load() -> None:
    page = Page()
    watch = watching(page)
    for number in range(60):
        page.read(range(number * 50, number * 50 + 50))
        if number % 10 == 5:
            page.halve()
        assert not watch.has_shifted()


def test_what_few_requests_say_waits_for_more() -> None:
    page = Page()
    watch = watching(page)
    for _ in range(10):
        page.read(range(96))
        assert not watch.has_shifted()
    noticed = 0
    for _ in range(13):
        page.read(range(288, 384), requests=10)
        noticed += watch.has_shifted()
    assert noticed == 0, "after 64 requests it doubts, and after 128 it is certain"
    page.read(range(288, 384), requests=10)
    assert watch.has_shifted()


def test_of_a_pool_with_more_blocks_than_it_looks_at_all_heat_counts() -> None:
    page = Page()
    watch = watching(page)
    page.costs = {(1, block): REQUEST_US for block in range(shifts.MOST_BLOCKS + 1)}
    assert not watch.has_shifted()
    page.costs = {}
    for _ in range(4):
        page.read(range(96))
        assert not watch.has_shifted()
    assert watch.heat() is None


READS = """
import os, sys
file = os.open(f"{sys.argv[1]}/f", os.O_RDONLY)
for number in range(400):
    os.pread(file, 4096, (int(sys.argv[2]) + number % 4) << 16)
"""


def test_the_heat_of_a_pool_is_that_of_the_new_load_alone(pool) -> None:  # type: ignore[no-untyped-def]
    # Halved once a year.
    pool.file.write_text(f'{pool.file.read_text()}\n[heat]\nperiod = "31000000s"\n')
    pool.python("import sys; open(f'{sys.argv[1]}/f', 'wb').write(bytes(4 << 20))", preload=False)
    watch = shifts.Watch(Pool.load(pool.file))
    noticed = []
    for block in (0, 0, 0, 0, 32, 32, 32):
        pool.python(READS.replace("sys.argv[2]", str(block)), preload=False)
        noticed.append(watch.has_shifted())
    assert noticed == [False, False, False, False, False, True, False]
    heat = watch.heat()
    assert heat is not None
    (file,) = heat["files"]
    assert file["path"] == "f" and [block for block, _ in file["blocks"]] == [32, 33, 34, 35]
    assert file["cost_us"] == sum(cost for _, cost in file["blocks"])
    # While the load before has most of the heat, that would decide.
    watch.settled()
    assert watch.heat() is not None
    for _ in range(3):
        pool.python(READS.replace("sys.argv[2]", "32"), preload=False)
        assert not watch.has_shifted()
    assert watch.heat() is None and watch.lasted_s is not None
    for block in (16, 16):
        pool.python(READS.replace("sys.argv[2]", str(block)), preload=False)
        noticed.append(watch.has_shifted())
    assert noticed[-1] and watch.heat() is not None, "the next load counts alone again"


def test_a_pool_without_heat_has_no_other_load(pool) -> None:  # type: ignore[no-untyped-def]
    watch = shifts.Watch(Pool.load(pool.file))
    assert not watch.has_shifted()
    assert watch.heat() is None
