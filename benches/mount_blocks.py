"""Blocks that a mount fetches for readers in no order, as in `crates/store/src/file/paths/dense.rs`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from benches.cache_loads import MIB

MOST_BLOCKS = 64


class Blocks:
    """Those of one file, which are worth a fetch."""

    def __init__(self, price_s: Callable[[int, int], float]) -> None:
        """None yet. `price_s` is how long servers work for a stretch, offset and size."""
        self._price_s = price_s
        self._blocks: OrderedDict[int, bool] = OrderedDict()
        """Their beginnings, and whether each was fetched; the one that was used last comes last."""
        self._spent_s: OrderedDict[int, float] = OrderedDict()
        self._judged, self._cost_s, self._saved_s = 0, 0.0, 0.0

    def note(self, offset: int, size: int) -> tuple[bool, int | None]:
        """Whether the block of a request is kept; else the beginning of the block that is fetched for it."""
        begin = offset - offset % MIB
        if 2 * size > MIB or offset - begin + size > MIB:
            return False, None
        piece_s = self._price_s(offset, size)
        if begin in self._blocks:
            self._saved_s += piece_s
            self._blocks.move_to_end(begin)
        elif not self._add(begin, piece_s):
            return False, None
        if self._blocks[begin]:
            return True, None
        self._blocks[begin] = self._saved_s >= self._cost_s
        return False, begin if self._blocks[begin] else None

    def _add(self, begin: int, piece_s: float) -> bool:
        block_s = self._price_s(begin, MIB)
        spent_s = self._spent_s.pop(begin, 0.0) + piece_s
        if spent_s < block_s:
            if len(self._spent_s) == MOST_BLOCKS:
                self._spent_s.popitem(last=False)
            self._spent_s[begin] = spent_s
            return False
        if len(self._blocks) == MOST_BLOCKS:
            self._blocks.popitem(last=False)
        self._blocks[begin] = False
        if self._judged >= MOST_BLOCKS:
            self._judged, self._cost_s, self._saved_s = self._judged // 2, self._cost_s / 2, self._saved_s / 2
        self._judged += 1
        self._cost_s += block_s
        self._saved_s += piece_s
        return True

    def let_go(self) -> None:
        """The file has other bytes: what was fetched is old."""
        for begin in [begin for begin, was_fetched in self._blocks.items() if was_fetched]:
            del self._blocks[begin]
