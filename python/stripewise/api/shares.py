"""What tiers have of a round of stripes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from stripewise._native import StripewiseError, parse_bytes
from stripewise.exporters.exporter import META

__all__ = ["servers", "shares"]

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


def _parsed(stripes: Iterable[str]) -> Iterator[tuple[str, int, int]]:
    """The tier of each stripe, how many servers it stands for, and the bytes of one."""
    for stripe in stripes:
        match = STRIPES.match(stripe)
        if match is None:
            raise StripewiseError(f"'{stripe}' is no stripe: it should be as hdd.0-5:64KiB")
        first, last = match["first"] or 0, match["last"] or match["first"] or 0
        yield match["tier"] or META, int(last) - int(first) + 1, parse_bytes(match["width"])
