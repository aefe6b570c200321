"""What tiers have of a round of stripes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from stripewise._native import StripewiseError, parse_bytes
from stripewise.exporters.exporter import META

__all__ = ["shares"]

STRIPES = re.compile(rf"^(?:{META}|(?P<tier>.+)\.(?P<first>\d+)(?:-(?P<last>\d+))?):(?P<width>\S+)$")


def shares(stripes: Iterable[str]) -> dict[str, float]:
    """The share of a round's bytes that each tier has, from stripes such as `hdd.0-5:64KiB`, or `meta:8KiB`."""
    bytes_of: dict[str, int] = {}
    for stripe in stripes:
        match = STRIPES.match(stripe)
        if match is None:
            raise StripewiseError(f"'{stripe}' is no stripe: it should be as hdd.0-5:64KiB")
        first, last = match["first"] or 0, match["last"] or match["first"] or 0
        count = int(last) - int(first) + 1
        tier = match["tier"] or META
        bytes_of[tier] = bytes_of.get(tier, 0) + count * parse_bytes(match["width"])
    total = sum(bytes_of.values())
    return {tier: part / total for tier, part in bytes_of.items()}
