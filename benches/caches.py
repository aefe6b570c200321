"""Caches of equal blocks: which block a request finds in the fast space, and which one leaves for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import NamedTuple


class Used(NamedTuple):
    """What a use of a block did."""

    was_there: bool
    evicted: int | None
    """The block that left for it."""


class Cache(ABC):
    """Keeps at most `blocks` blocks; each that is used and not there is taken in."""

    name: str

    def __init__(self, blocks: int) -> None:
        """An empty cache. Raises `ValueError` for one without room."""
        if blocks < 1:
            raise ValueError(f"a cache of {blocks} blocks: it needs one at least")
        self.blocks = blocks

    @abstractmethod
    def use(self, block: int) -> Used:
        """A request reads or writes the block."""


class Lru(Cache):
    """What was not used for longest leaves. O(1)."""

    name = "LRU"

    def __init__(self, blocks: int) -> None:
        """An empty cache."""
        super().__init__(blocks)
        self._there: OrderedDict[int, None] = OrderedDict()

    def use(self, block: int) -> Used:
        """A request reads or writes the block."""
        if block in self._there:
            self._there.move_to_end(block)
            return Used(True, None)
        evicted = self._there.popitem(last=False)[0] if len(self._there) == self.blocks else None
        self._there[block] = None
        return Used(False, evicted)


class Lfu(Cache):
    """What was used least often since it came leaves; of those the one that was not used for longest. O(1)."""

    name = "LFU"

    def __init__(self, blocks: int) -> None:
        """An empty cache."""
        super().__init__(blocks)
        self._uses: dict[int, int] = {}
        self._by_uses: dict[int, OrderedDict[int, None]] = {}
        self._least = 1

    def use(self, block: int) -> Used:
        """A request reads or writes the block."""
        uses = self._uses.get(block, 0)
        evicted = None
        if uses:
            self._take(block, uses)
            if uses == self._least and uses not in self._by_uses:
                self._least += 1
        else:
            if len(self._uses) == self.blocks:
                evicted = next(iter(self._by_uses[self._least]))
                self._take(evicted, self._least)
                del self._uses[evicted]
            self._least = 1
        self._uses[block] = uses + 1
        self._by_uses.setdefault(uses + 1, OrderedDict())[block] = None
        return Used(uses > 0, evicted)

    def _take(self, block: int, uses: int) -> None:
        alike = self._by_uses[uses]
        del alike[block]
        if not alike:
            del self._by_uses[uses]


class Arc(Cache):
    """The adaptive replacement cache of Megiddo and Modha (FAST 2003, figure 4). O(1).

    `T1` has blocks used once of late, `T2` those used again; `B1` and `B2` have the names of those that left them. `p`
    is the size that `T1` should have.
    """

    name = "ARC"

    def __init__(self, blocks: int) -> None:
        """An empty cache."""
        super().__init__(blocks)
        self.t1: OrderedDict[int, None] = OrderedDict()
        self.t2: OrderedDict[int, None] = OrderedDict()
        self.b1: OrderedDict[int, None] = OrderedDict()
        self.b2: OrderedDict[int, None] = OrderedDict()
        self.p = 0.0

    def use(self, block: int) -> Used:
        """A request reads or writes the block: the four cases of the figure."""
        t1, t2, b1, b2, c = self.t1, self.t2, self.b1, self.b2, self.blocks
        if block in t1 or block in t2:
            (t1 if block in t1 else t2).pop(block)
            t2[block] = None
            return Used(True, None)
        if block in b1:
            self.p = min(float(c), self.p + max(1.0, len(b2) / len(b1)))
            evicted = self._replace(in_b2=False)
            del b1[block]
            t2[block] = None
            return Used(False, evicted)
        if block in b2:
            self.p = max(0.0, self.p - max(1.0, len(b1) / len(b2)))
            evicted = self._replace(in_b2=True)
            del b2[block]
            t2[block] = None
            return Used(False, evicted)
        left: int | None = None
        if len(t1) + len(b1) == c:
            if len(t1) < c:
                b1.popitem(last=False)
                left = self._replace(in_b2=False)
            else:
                left = t1.popitem(last=False)[0]
        elif len(t1) + len(t2) + len(b1) + len(b2) >= c:
            if len(t1) + len(t2) + len(b1) + len(b2) == 2 * c:
                b2.popitem(last=False)
            left = self._replace(in_b2=False)
        t1[block] = None
        return Used(False, left)

    def _replace(self, *, in_b2: bool) -> int:
        """Moves the oldest of `T1` or `T2` to its list of names."""
        t1, t2 = self.t1, self.t2
        if t1 and (len(t1) > self.p or (in_b2 and len(t1) == self.p)):
            block = t1.popitem(last=False)[0]
            self.b1[block] = None
        else:
            block = t2.popitem(last=False)[0]
            self.b2[block] = None
        return block


CACHES: tuple[type[Lru | Lfu | Arc], ...] = (Lru, Lfu, Arc)
"""Those that `adapt-caches` compares with."""
