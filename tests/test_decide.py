"""When a layout counts as faster, and what time of I/O is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stripewise.optimize.decide import NOISE_FLOOR, Verdict, gain
from stripewise.optimize.measure import union_s


def test_a_clear_gain_is_faster_after_two_runs():
    found = gain([50.0, 51.0], [200.0, 205.0])
    assert found.verdict is Verdict.FASTER
    assert found.ratio == pytest.approx(4.01, abs=0.01)
    assert found.low < found.ratio < found.high


def test_two_equal_runs_are_not_certainty():
    found = gain([100.0, 100.0], [101.0, 101.0])
    assert found.verdict is Verdict.UNDECIDED
    assert found.high / found.low > 1 + NOISE_FLOOR


def test_a_loss_is_slower():
    assert gain([200.0, 201.0], [100.0, 101.0]).verdict is Verdict.SLOWER


def test_more_runs_decide_what_two_cannot():
    noisy = [100.0, 130.0]
    assert gain(noisy, [160.0, 200.0]).verdict is Verdict.UNDECIDED
    assert gain(noisy * 4, [160.0, 200.0] * 4).verdict is Verdict.FASTER


@given(st.lists(st.floats(1, 1e9), min_size=2, max_size=6), st.lists(st.floats(1, 1e9), min_size=2, max_size=6))
def test_exchanging_the_layouts_inverts_the_gain(before, after):
    there, back = gain(before, after), gain(after, before)
    assert there.ratio * back.ratio == pytest.approx(1.0)
    assert there.low * back.high == pytest.approx(1.0)
    opposite = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
    assert back.verdict is opposite.get(there.verdict, Verdict.UNDECIDED)


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 50)), max_size=40))
def test_union_counts_every_moment_once(spans):
    start = np.array([begin for begin, _ in spans], dtype=np.uint64)
    end = np.array([begin + length for begin, length in spans], dtype=np.uint64)
    moments = {moment for begin, length in spans for moment in range(begin, begin + length)}
    assert union_s(start, end) == pytest.approx(len(moments) * 1e-9)
