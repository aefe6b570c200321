"""What tiers have of a round of stripes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache

from stripewise._native import StripewiseError, parse_bytes
from stripewise.exporters.exporter import META

__all__ = ["bytes_on", "round_bytes", "servers", "shares", "widest"]

STRIPES = re.compile(rf"^(?:{META}|(?P<tier>.+)\.(?P<first>\d+)(?:-(?P<last>\d+))?):(?P<width>\S+)$")


def shares(stripes: Iterable[str]) -> dict[str, float]:
    """The share of a round's bytes that each tier has, from stripes such as `hdd.0-5:64KiB`, or `meta:8KiB`."""
    bytes_of: dict[str, int] = {}
    for tier, count, width_bytes in _parsed(stripes):
        bytes_of[tier] = bytes_of.get(tier, 0) + count * width_bytes
    total = sum(bytes_of.values())
    return {tier: part / total for tier, part in bytes_of.items()}


def servers(stripes: Iterable[str]) -> int:
    """How many servers a round has."""
    return sum(count for _, count, _ in _parsed(stripes))


def bytes_on(tier: str, stripes: Sequence[str], begin: int, end: int) -> int:
    """How many bytes of a stretch of a file a tier has by a round, whose phase counts from the start of the file."""
    total_bytes, places = _places(tier, tuple(stripes))

    def before(at: int) -> int:
        rounds, within = divmod(at, total_bytes)
        whole = sum(last - first for first, last in places)
        return rounds * whole + sum(min(last, within) - min(first, within) for first, last in places)

    return before(end) - before(begin)


def round_bytes(stripes: Sequence[str]) -> int:
    """How many bytes a round has."""
    return _places("", tuple(stripes))[0]


def widest(stripes: Iterable[str], tiers: Collection[str]) -> float:
    """The largest share of a round's bytes that one server of these tiers has."""
    known = list(_parsed(stripes))
    total = sum(count * width_bytes for _, count, width_bytes in known)
    return max((width_bytes / total for tier, _, width_bytes in known if tier in tiers), default=0.0)


@lru_cache(maxsize=1024)
def _places(tier: str, stripes: tuple[str, ...]) -> tuple[int, tuple[tuple[int, int], ...]]:
    """The bytes of a round, and where in it those of a tier begin and end."""
    at, found = 0, []
    for name, count, width_bytes in _parsed(stripes):
        if name == tier:
            found.append((at, at + count * width_bytes))
        at += count * width_bytes
    return at, tuple(found)


def _parsed(stripes: Iterable[str]) -> Iterator[tuple[str, int, int]]:
    """The tier of each stripe, how many servers it stands for, and the bytes of one."""
    for stripe in stripes:
        match = STRIPES.match(stripe)
        if match is None:
            raise StripewiseError(f"'{stripe}' is no stripe: it should be as hdd.0-5:64KiB")
        first, last = match["first"] or 0, match["last"] or match["first"] or 0
        yield match["tier"] or META, int(last) - int(first) + 1, parse_bytes(match["width"])
