"""The caches that `adapt` is compared with do what their papers say."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benches.adapt_caches import Promotion, parts_of
from benches.cache_loads import PROCESSES, READ, WRITE, Load, loads
from benches.caches import CACHES, Arc, Lfu, Lru


def hits(cache, blocks):
    return [cache.use(block).was_there for block in blocks]


@pytest.mark.parametrize("kind", CACHES)
@given(blocks=st.integers(1, 6), uses=st.lists(st.integers(0, 12), max_size=200))
@settings(max_examples=60)
def test_what_it_says_of_each_block_is_true_and_there_is_never_more_than_room(kind, blocks, uses):
    cache, there = kind(blocks), set()
    for block in uses:
        used = cache.use(block)
        assert used.was_there == (block in there)
        if used.evicted is not None:
            assert len(there) == blocks and used.evicted != block
            there.remove(used.evicted)
        there.add(block)
        assert len(there) <= blocks


def test_lru_evicts_what_was_not_used_for_longest():
    cache = Lru(2)
    assert hits(cache, [1, 2, 1]) == [False, False, True]
    assert cache.use(3).evicted == 2
    assert hits(Lru(3), [0, 1, 2, 3] * 3) == [False] * 12  # A loop larger than it.


def test_lfu_evicts_what_was_used_least_and_of_those_the_oldest():
    cache = Lfu(3)
    hits(cache, [1, 1, 2, 2, 3, 3, 3])
    assert cache.use(4).evicted == 1
    assert cache.use(5).evicted == 4
    assert hits(cache, [2, 3]) == [True, True]


@given(blocks=st.integers(1, 5), uses=st.lists(st.integers(0, 14), max_size=300))
@settings(max_examples=100)
def test_arc_keeps_the_invariants_of_its_paper(blocks, uses):
    cache = Arc(blocks)
    for block in uses:
        cache.use(block)
        lists = (cache.t1, cache.t2, cache.b1, cache.b2)
        t1, t2, b1, b2 = map(len, lists)
        assert len(set().union(*lists)) == t1 + t2 + b1 + b2
        assert t1 + t2 <= blocks and t1 + b1 <= blocks and t1 + t2 + b1 + b2 <= 2 * blocks
        assert 0 <= cache.p <= blocks
        assert not (b1 or b2) or t1 + t2 == blocks


def test_arc_goes_through_the_four_cases_of_figure_4():
    cache = Arc(2)
    hits(cache, [1, 1, 2])
    assert (list(cache.t1), list(cache.t2)) == ([2], [1])
    assert cache.use(3).evicted == 2  # Case IV B: T1 is above its size.
    assert list(cache.b1) == [2] and cache.p == 0
    assert cache.use(2).evicted == 1  # Case II: p grows to 1, so T2 gives one up.
    assert (cache.p, list(cache.t1), list(cache.t2), list(cache.b2)) == (1, [3], [2], [1])
    assert cache.use(1).evicted == 3  # Case III: p shrinks again, and T1 is above it.
    assert (cache.p, list(cache.t2), list(cache.b1)) == (0, [2, 1], [3])


def test_a_scan_leaves_arc_what_was_used_twice():
    cache = Arc(4)
    hits(cache, [0, 1, 0, 1])
    hits(cache, range(10, 100))
    assert hits(cache, [0, 1]) == [True, True]
    cache = Lru(4)
    hits(cache, [0, 1, 0, 1, *range(10, 100)])
    assert hits(cache, [0, 1]) == [False, False]


KIB, MIB = 1 << 10, 1 << 20


def served(promotion, *requests):
    """Steps of the only process with requests, and of the one beside it."""
    parts = dict(promotion.serve([(0, *request) for request in requests]))
    return tuple([tuple(step) for step in parts.get(number, np.empty((0, 4))).tolist()] for number in (0, PROCESSES))


def test_promotion_reads_whole_blocks_from_the_disks_and_writes_dirty_ones_back():
    load = Load("a", "", (4 * MIB, 3 * MIB // 2), np.empty((0, 4), dtype=np.int64))
    promotion, fast = Promotion(Lru(1), load), 2
    missed = (0, 2 * MIB + 64 * KIB, 4 * KIB, READ)
    assert served(promotion, missed) == ([(0, 2 * MIB, MIB, READ)], [(fast, 0, MIB, WRITE)])
    assert served(promotion, missed) == ([(fast, 64 * KIB, 4 * KIB, READ)], [])
    assert served(promotion, (0, 2 * MIB, 4 * KIB, WRITE)) == ([(fast, 0, 4 * KIB, WRITE)], [])
    # The last block of the second file is half of one.
    back = [(fast, 0, MIB, READ), (0, 2 * MIB, MIB, WRITE), (fast, 0, MIB // 2, WRITE)]
    assert served(promotion, (1, MIB, 4 * KIB, READ)) == ([(1, MIB, MIB // 2, READ)], back)
    assert promotion.hits == 2


@given(st.integers(0, 5000), st.integers(1, 5000))
def test_parts_of_a_request_are_all_of_its_bytes(offset, size):
    placed = [(0, [(0, 100), (1, 200)]), (1000, [(2, 64)]), (1999, [(0, 7), (3, 50)])]
    parts = parts_of(placed, offset, size)
    assert sum(length for _, length in parts) == size
    servers = [
        next(server for end, server in ends if x % ends[-1][0] < end)
        for x in range(offset, offset + size)
        for ends in [[(100, 0), (300, 1)] if x < 1000 else [(64, 2)] if x < 1999 else [(7, 0), (57, 3)]]
    ]
    for server in range(4):
        assert servers.count(server) == sum(length for of, length in parts if of == server)


def test_the_ten_loads_are_the_same_each_time_and_within_their_files():
    once, again = list(loads(2000)), list(loads(2000))
    assert len(once) == 10 and len({load.name for load in once}) == 10
    for load, other in zip(once, again, strict=True):
        assert (load.rows == other.rows).all()
        ends = load.rows[:, 1] + load.rows[:, 2]
        assert (ends <= np.array(load.sizes)[load.rows[:, 0]]).all() and load.rows.min() >= 0


@pytest.mark.parametrize("kind", CACHES)
def test_a_cache_without_room_is_refused(kind):
    with pytest.raises(ValueError, match="0 blocks"):
        kind(0)
